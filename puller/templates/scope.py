"""The scope of a template, the interface of an engine, and files of a bundle as text.

Common parts of the engines: the scope of a template, and the interface of an engine.

* A template is parsed once and rendered any number of times, without state between renderings.
* Templates can reach facts, data, environ and their functions, nothing beyond.
* This module does not depend on an engine. ``rendering.py`` chooses and loads engines.

Files of a bundle as text, and template functions with paths of such files as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from bundles.filesystem.atomic import read_limited
from foundation.problems import ProblemCode
from hiera.errors import ExpressionError
from hiera.expressions.expressions import Scope
from hiera.values import plain
from puller.bundle_paths import BundleFiles
from puller.templates.govalue.types import LazyMap, UnlistedMap
from puller.templates.template_errors import Budget

_LIMIT = 16 * 1024 * 1024  # bytes of a file as text in an expression


def read_text(files: BundleFiles, path: object) -> str:
    """Return the text of a file of the bundle. Raises ``HieraError``."""
    if not isinstance(path, str):
        raise ExpressionError("", f"a path is text, not {path!r}")
    try:
        return read_limited(files.find(path), _LIMIT).decode("utf-8")
    except OSError as error:
        detail = f"{path} cannot be read: {error.strerror}"
        raise ExpressionError("", detail, code=ProblemCode.MISSING_FILE, name=str(path)) from error
    except ValueError as error:
        raise ExpressionError("", f"{path} is not usable: {error}") from error


class BundleFunction:
    """A function of paths, which are relative to the calling file."""

    __slots__ = ("_function", "_make")

    def __init__(self, make: Callable[[BundleFiles], Callable[..., Any]], files: BundleFiles) -> None:
        self._make = make
        self._function = make(files)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def at(self, files: BundleFiles) -> BundleFunction:
        """Return this function for another place."""
        return BundleFunction(self._make, files)


def seen_from(files: BundleFiles, scope: Scope) -> Scope:
    """Return the scope of a manifest for a template at another place, such as a library."""
    functions = {
        name: item.at(files) for name, item in scope.functions.items() if isinstance(item, BundleFunction)
    }
    return scope.with_names(functions)


Function = Callable[..., Any]
"""A template function: accepts and returns values of Go (``govalue``), raises FunctionError."""


class TemplateScope(dict[str, Any]):
    """The names at a template's top: ``facts``, ``data``, ``environ``, and also ``Facts``, ``Data``, ``Environ``.

    * Further names, such as the variables of a loop in the manifest, stand beside them.
    * The capitalised names work as ``scope[name]``. Iterating does not show them.
    * The lists and mappings in it are copies, so that changes in a template stay inside.
    * Keys are strings, as in every map for templates of Jet and Go: the key ``80`` is ``"80"``.
    * One scope serves all files of a tree: later files receive a Jet template's assignments to keys of ``data``.
    """

    def __init__(
        self,
        facts: Any = None,
        data: Any = None,
        environ: Any = None,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        copied = _Copier().copy
        super().__init__(
            {name: copied(value) for name, value in further.items()},
            # Do not test for emptiness: a lazy mapping would list all its keys.
            facts={} if facts is None else copied(facts),
            data={} if data is None else copied(data),
            environ=copied(environ or {}),
        )

    def __missing__(self, key: str) -> Any:
        small = key[:1].lower() + key[1:]
        if small != key and small in self:
            return self[small]
        raise KeyError(key)


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return all facts as a map for Go. Facts on demand are copied when a template reads them."""
    if getattr(facts, "unlisted", False):
        return _unlisted(facts)
    on_demand: frozenset[str] = getattr(facts, "on_demand", frozenset())
    if not on_demand:
        return dict(facts)

    def copied(name: str) -> Any:
        value = facts[name]
        return _Copier().copy(plain(value) if isinstance(value, Mapping) else value)

    known = {name: facts[name] for name in facts if name not in on_demand}
    return LazyMap(_Copier().copy(known), on_demand, copied)


def _unlisted(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts, or a mapping in them, as a map that reads names and values only when a template does."""

    def made(name: str) -> Any:
        value = facts[name]
        if getattr(value, "unlisted", False):
            return _unlisted(value)
        return _Copier().copy(plain(value) if isinstance(value, Mapping) else value)

    return UnlistedMap(facts, made)


class _Copier:
    """Copies lists and mappings of any depth, each once, so that shared values stay shared in the copy."""

    def __init__(self) -> None:
        self.copies: dict[int, Any] = {}
        self.unfilled: list[tuple[Any, Any]] = []

    def copy(self, value: Any) -> Any:
        result = self.begin(value)
        # A list of unfilled copies instead of recursion: values may be nested deeper than Python's stack.
        while self.unfilled:
            source, target = self.unfilled.pop()
            if type(source) is dict:
                target.update((_as_key(key), self.begin(item)) for key, item in source.items())
            else:
                target.extend(map(self.begin, source))
        return result

    def begin(self, value: Any) -> Any:
        """Return the copy of a container, perhaps still empty. Other values are returned unchanged."""
        if type(value) is not dict and type(value) is not list:
            return value
        known = self.copies.get(id(value))
        if known is None:
            known = self.copies[id(value)] = type(value)()
            self.unfilled.append((value, known))
        return known


def _as_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None:
        return "null"
    return str(key).lower() if isinstance(key, bool) else str(key)


class Template(Protocol):
    """A parsed template."""

    def render(
        self, dot: Any, functions: Mapping[str, Function] | None = None, *, budget: Budget | None = None
    ) -> str:
        """Return the text. ``dot`` is a TemplateScope, or in a partial the value of ``render(path, value)``.

        ``budget`` is shared by a template and its partials. It defaults to the default limits. Raises TemplateError.
        """


class Engine(Protocol):
    """A template language with its delimiters."""

    @property
    def name(self) -> str:
        """``go``, ``jet`` or ``jinja``."""

    def compile(self, name: str, text: str) -> Template:
        """Parse the text. ``name`` appears in messages. Raises TemplateError."""
