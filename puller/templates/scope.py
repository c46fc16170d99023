"""The ground that the engines share: the scope of a template, and the shape of an engine.

* A template is parsed once and rendered as often as wanted; it keeps nothing between renderings.
* Templates see facts, data and environ, and the functions they are given. They reach nothing else.
* Nothing here knows one engine from another; ``engine.py`` chooses and loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from hiera.values.plain import plain
from puller.templates.govalue.types import LazyMap, UnlistedMap
from puller.templates.limits import Budget

Function = Callable[..., Any]
"""A function that a template may call: takes and returns values of Go (``govalue``), raises FunctionError."""


class TemplateScope(dict[str, Any]):
    """The names at a template's top: ``facts``, ``data``, ``environ``; also ``Facts``, ``Data``, ``Environ``.

    * Further names, such as the variables of a loop in the manifest, stand beside them.
    * The capitalised names are found by ``scope[name]`` and are not shown by walking the mapping.
    * The lists and mappings in it are copies: what a template changes, nobody outside sees.
    * Keys are strings, as in every map that a template of Go's kind gets: the key ``80`` is ``"80"``.
    * One scope serves all files of a tree: what a Jet template assigns to a key of ``data``, later files see.
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
            # Not whether there are any: who only sees what is asked for would be asked for all.
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
    """All facts as a map of Go's kind; those that are made on demand are copied when a template looks at them."""
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
    """Facts, or a mapping in them, for whoever wants to know what a template asks for: names and values one by one."""

    def made(name: str) -> Any:
        value = facts[name]
        if getattr(value, "unlisted", False):
            return _unlisted(value)
        return _Copier().copy(plain(value) if isinstance(value, Mapping) else value)

    return UnlistedMap(facts, made)


class _Copier:
    """Copies lists and mappings, each once, so that what was shared is shared in the copy; any depth is fine."""

    def __init__(self) -> None:
        self.copies: dict[int, Any] = {}
        self.unfilled: list[tuple[Any, Any]] = []

    def copy(self, value: Any) -> Any:
        result = self.begin(value)
        # A list of what is to be filled and no recursion: values may be nested deeper than Python's stack.
        while self.unfilled:
            source, target = self.unfilled.pop()
            if type(source) is dict:
                target.update((_as_key(key), self.begin(item)) for key, item in source.items())
            else:
                target.extend(map(self.begin, source))
        return result

    def begin(self, value: Any) -> Any:
        """The copy of a container, perhaps still empty; anything else itself."""
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
        """The text. ``dot`` is a TemplateScope, or for a partial whatever ``render(path, value)`` was given.

        ``budget`` is shared by a template and its partials; without one the default limits hold.
        Raises TemplateError.
        """


class Engine(Protocol):
    """A template language with its delimiters."""

    @property
    def name(self) -> str:
        """``go``, ``jet`` or ``jinja``."""

    def compile(self, name: str, text: str) -> Template:
        """Parse the text. ``name`` stands in messages. Raises TemplateError."""
