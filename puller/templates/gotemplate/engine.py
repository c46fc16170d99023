"""The engine ``go``: Go's ``text/template`` with Sprig's functions.

The tree of a file is called by the last part of the file's name, so a file ``etc/a.conf`` can call itself as
``{{ template "a.conf" . }}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, ClassVar, Final

from puller.templates.gotemplate.compiler import compile_bodies
from puller.templates.gotemplate.functions import complaint_about, find_function
from puller.templates.gotemplate.rendering import Frame, Rendering
from puller.templates.gotemplate.syntax.parser import parse
from puller.templates.govalue.types import MISSING
from puller.templates.limits import Budget, Exceeded
from puller.templates.scope import TemplateScope
from puller.templates.source import TemplateSource

_TOO_DEEP: Final = "actions, templates or values are nested too deeply"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

# ``env`` works in partials too, whose dot is whatever the file that renders them gives them.
_environ: Final[ContextVar[Mapping[str, Any]]] = ContextVar("environ", default=_NOTHING)


class GoTemplate:
    """A parsed file; it keeps nothing between renderings."""

    __slots__ = ("_root", "_source")

    def __init__(self, source: TemplateSource, left: str, right: str) -> None:
        name = source.name.rpartition("/")[2]
        bodies = parse(source, complaint_about, left, right, root=name)
        self._source = source
        self._root = compile_bodies(source, bodies, find_function)[name]

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        """See ``puller.templates.scope.Template``."""
        dot = (
            MISSING if dot is None else dot
        )  # as in Go, where a template without data has fields without value
        before = _environ.set(dot["environ"]) if isinstance(dot, TemplateScope) else None
        rendering = Rendering(functions or _NOTHING, _environ.get(), budget or Budget())
        try:
            self._root.execute(Frame(rendering, dot, self._root.size), dot)
            return rendering.text()
        except Exceeded as error:
            raise self._source.limit(0, error) from None
        except RecursionError:
            raise self._source.limit(0, _TOO_DEEP) from None
        finally:
            if before is not None:
                _environ.reset(before)


class GoEngine:
    """The language with its delimiters; an empty delimiter is Go's own."""

    name: ClassVar[str] = "go"

    def __init__(self, left_delimiter: str = "", right_delimiter: str = "") -> None:
        self._left = left_delimiter or "{{"
        self._right = right_delimiter or "}}"

    def compile(self, name: str, text: str) -> GoTemplate:
        """Parse the text. Raises TemplateError with ``name``, line and column."""
        source = TemplateSource(name, text)
        try:
            return GoTemplate(source, self._left, self._right)
        except RecursionError:
            raise source.limit(0, _TOO_DEEP) from None
