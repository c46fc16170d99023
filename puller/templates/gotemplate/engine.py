"""The engine ``go``: Go's ``text/template`` with Sprig's functions.

From text to text, with the sections of Go's documentation (https://pkg.go.dev/text/template) that say how:

1. The text is cut into tokens, trimmed beside ``{{-`` and ``-}}``: ``syntax/lexer.py`` ("Text and spaces").
2. Tokens become a tree for the file and one for each ``define`` and ``block``, and what Go refuses before it
   renders is refused: ``syntax/parser.py`` ("Actions", "Nested template definitions").
3. Trees become closures. Names become functions, constants get the types of their places, variables get places
   in a frame: ``compiler.py``, ``expressions.py`` ("Arguments", "Pipelines", "Variables", "Functions").
4. A rendering is given its functions, environ and budget, and a frame where dot is also ``$``.
5. The closures run. Rounds, calls and long texts are paid for.
6. The text that was written is joined, and paid for as well.
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
    """A parsed file; it keeps nothing between renderings.

    Its tree is called by the last part of the file's name, so a file ``etc/a.conf`` can call itself as
    ``{{ template "a.conf" . }}``.
    """

    __slots__ = ("_root", "_source")

    def __init__(self, source: TemplateSource, left: str, right: str) -> None:
        name = source.name.rpartition("/")[2]
        bodies = parse(source, complaint_about, left, right, root=name)  # 1. cut; 2. parse and check
        self._source = source
        self._root = compile_bodies(source, bodies, find_function)[name]  # 3. compile

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        """The text; steps 4 to 6. Raises TemplateError, LimitError among them.

        The budget is that of the file that renders this one, when this is a partial.
        """
        # 4. A template without data has fields without value, as in Go; nil has none.
        dot = MISSING if dot is None else dot
        before = _environ.set(dot["environ"]) if isinstance(dot, TemplateScope) else None
        rendering = Rendering(functions or _NOTHING, _environ.get(), budget or Budget())
        try:
            self._root.execute(Frame(rendering, dot, self._root.size), dot)  # 5. run
            return rendering.text()  # 6. join
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
        """The parsed text; steps 1 to 3. Raises TemplateError with ``name``, line and column."""
        source = TemplateSource(name, text)
        try:
            return GoTemplate(source, self._left, self._right)
        except RecursionError:
            raise source.limit(0, _TOO_DEEP) from None
