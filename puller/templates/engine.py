"""What an engine is to the rest of Puller: a name, and text that becomes a template.

* A template is parsed once and rendered as often as wanted; it keeps nothing between renderings.
* Templates see facts, data and environ, and the functions they are given. They reach nothing else.
* An engine is imported when it is asked for, so that a run without templates does not pay for any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from puller.templates.limits import Budget

Function = Callable[..., Any]
"""A function that a template may call: takes and returns values of Go (``govalue``), raises FunctionError."""

ENGINES = ("go", "jet", "jinja")
_NAMED: Final = {".j2": "jinja", ".jinja": "jinja", ".jinja2": "jinja"} | {
    ".jet": "jet",
    ".tmpl": "go",
    ".gotmpl": "go",
}


def named_engine(path: str) -> str | None:
    """The engine that the name of a template says, by its ending."""
    return next((engine for ending, engine in _NAMED.items() if path.endswith(ending)), None)


def choose_engine(path: str, given: str | None = None, otherwise: str = "jinja") -> str:
    """The engine for a template: the one that is given, else that of its name, else ``otherwise``.

    Raises ValueError, whose text goes on after what names the path, for one that is not that of the name.
    """
    named = named_engine(path)
    if given is None:
        return named or otherwise
    if named not in (None, given):
        says = f"is {path!r}, a template of {named!r} by its name"
        raise ValueError(f"{says}, but engine is {given!r}: rename it, or leave out engine")
    return given


class TemplateScope(dict[str, Any]):
    """What a template sees at its top: ``facts``, ``data``, ``environ``; also ``Facts``, ``Data``, ``Environ``.

    * The capitalised names are found by ``scope[name]`` and are not shown by walking the mapping.
    * The lists and mappings in it are copies: what a template changes, nobody outside sees.
    * Keys are strings, as in every map that a template of Go's kind gets: the key ``80`` is ``"80"``.
    * One scope serves all files of a tree: what a Jet template assigns to a key of ``data``, later files see.
    """

    def __init__(self, facts: Any = None, data: Any = None, environ: Any = None) -> None:
        copied = _Copier().copy
        super().__init__(
            facts=copied(facts or {}),
            data={} if data is None else copied(data),
            environ=copied(environ or {}),
        )

    def __missing__(self, key: str) -> Any:
        small = key[:1].lower() + key[1:]
        if small != key and small in self:
            return self[small]
        raise KeyError(key)


class _Copier:
    """Copies lists and mappings, each once, so that what was shared is shared in the copy; any depth is fine."""

    def __init__(self) -> None:
        self.copies: dict[int, Any] = {}
        self.unfilled: list[tuple[Any, Any]] = []

    def copy(self, value: Any) -> Any:
        result = self.begin(value)
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
        """One of ENGINES."""

    def compile(self, name: str, text: str) -> Template:
        """Parse the text. ``name`` stands in messages. Raises TemplateError."""


def load_engine(name: str, *, left_delimiter: str = "", right_delimiter: str = "") -> Engine:
    """The engine with this name; a delimiter that is empty is the engine's own.

    Raises ValueError for a name that is none of ENGINES.
    """
    if name == "jet":
        from puller.templates.jet.engine import JetEngine

        return JetEngine(left_delimiter, right_delimiter)
    if name == "go":
        from puller.templates.gotemplate.engine import GoEngine

        return GoEngine(left_delimiter, right_delimiter)
    if name == "jinja":
        from puller.templates.jinja import JinjaEngine

        return JinjaEngine(left_delimiter, right_delimiter)
    raise ValueError(f"engine is {name!r}, wanted one of {', '.join(ENGINES)}")
