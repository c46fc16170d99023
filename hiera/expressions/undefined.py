"""Undefined names, keys and items of expressions, and the columns of template files in errors.

* An undefined value raises an error at its use, with hints for users who know the Python syntax.
* `Callers` records which templates call each other during rendering. If a macro lacks a name that its caller has, the
  error explains this. ``default`` and ``is defined`` would otherwise treat the name as missing.
* Jinja2 counts lines only, so a number of a line also carries a column: the place where the code of the tag begins. In
  ``a = {{ facts.x }}`` it is 8.
* Text outside of tags has no column. A number without a column is the number of the line, as Jinja2 has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from jinja2 import UndefinedError as JinjaUndefinedError
from jinja2.lexer import newline_re
from jinja2.runtime import Context, StrictUndefined, Undefined
from jinja2.utils import missing

from foundation.problems import ProblemCode
from hiera.errors import UndefinedError
from hiera.expressions.filters import FILTERS
from hiera.expressions.refused import ABSENT
from hiera.limits import PerThread
from hiera.values import described

# The calls between templates.
#
# ``Sandbox.call`` calls a template. Just before the call, it passes the variables of loops and macros, which are
# missing in the context, to ``Callers.tell``. ``template()`` and ``render()`` pass on all names. A macro receives its
# arguments only, as in Jinja2.

_NONE: Final[Mapping[str, Any]] = {}


_Call: TypeAlias = tuple[Context, Mapping[str, Any]]
_Before: TypeAlias = tuple[list[_Call], Mapping[str, Any]]


class _Own:
    """The active calls of templates in a thread, the innermost last."""

    __slots__ = ("calls", "told")

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.told: Mapping[str, Any] = _NONE


class _Thread(PerThread):
    def __init__(self) -> None:
        self.own = _Own()


_thread: Final = _Thread()


class Callers:
    """The active calls of templates in this thread."""

    __slots__ = ()

    def tell(self, names: Mapping[str, Any]) -> None:
        """Record the variables at the place of the next call."""
        _thread.own.told = names

    def enter(self, context: Context) -> None:
        """Begin a call from a template with this context, and the recorded variables."""
        own = _thread.own
        own.calls.append((context, own.told))

    def leave(self) -> None:
        """End the call. Restore its names, since it may be an argument of another call at the same place."""
        own = _thread.own
        own.told = own.calls.pop()[1]

    def begin(self) -> _Before:
        """Begin a separate evaluation without callers, such as evaluating data that a template uses.

        Pass the result to ``end``.
        """
        own = _thread.own
        before = own.calls, own.told
        if before[0]:  # runs for every expression, and few are nested in another evaluation
            own.calls, own.told = [], _NONE
        return before

    def end(self, before: _Before) -> None:
        """End an evaluation."""
        own = _thread.own
        own.calls, own.told = before

    def names(self) -> dict[str, Any]:
        """Return all names at the place of the current call. Empty outside of calls."""
        calls = _thread.own.calls
        if not calls:
            return {}
        context, reported = calls[-1]
        return {**context.get_all(), **{name: item for name, item in reported.items() if item is not missing}}

    def have(self, name: str) -> bool:
        """Return whether this name exists at the place of any call."""
        return any(
            told.get(name, missing) is not missing or context.resolve_or_missing(name) is not missing
            for context, told in _thread.own.calls
        )


callers: Final = Callers()


class ExplainedUndefined(StrictUndefined):
    """A missing value. Using it raises UndefinedError, and so does printing a list that contains it."""

    __slots__ = ("is_hidden",)
    __repr__ = StrictUndefined.__str__

    def __init__(
        self, hint: str | None = None, obj: Any = missing, name: Any = None, exc: Any = JinjaUndefinedError
    ) -> None:
        super().__init__(hint, obj, name, exc)
        self.is_hidden = hint is None and obj is missing and isinstance(name, str) and callers.have(name)
        """Whether the name exists in the caller of the macro that uses it."""
        if exc is JinjaUndefinedError:
            # Jinja2 calls this with a message, and raises the result.
            self._undefined_exception = self._error  # type: ignore[assignment]

    def _error(self, _message: str) -> UndefinedError:
        owner, name = self._undefined_obj, self._undefined_name
        if self.is_hidden:
            what = f"{name!r} is undefined in the macro. It exists {_HIDDEN}"
            return UndefinedError("", what, name, [], code=ProblemCode.UNKNOWN_NAME)
        if self._undefined_hint or owner is missing:
            advice = f": {ABSENT[name]}" if name in ABSENT else ""
            what = self._undefined_hint or f"unknown name {name!r}{advice}"
            return UndefinedError("", what, name, code=ProblemCode.UNKNOWN_NAME)
        if isinstance(owner, Mapping):
            return UndefinedError("", f"unknown key {name!r}{_advice(owner, name)}", name, owner)
        what = f"{described(owner)} has no {name!r}{_advice(owner, name)}"
        return UndefinedError("", what, name, code=ProblemCode.EXPRESSION_FAILS)


_HIDDEN: Final = "where the macro is called. Pass it as an argument"
_INSTEAD: Final[dict[type, Mapping[str, str]]] = {
    list: {
        **dict.fromkeys(("append", "insert"), "values cannot change. Write list + [item]"),
        "extend": "values cannot change. Write list + other",
        **dict.fromkeys(
            ("remove", "pop", "clear"),
            "values are not changed; a shorter list is list | reject('equalto', item) | list",
        ),
        "sort": "values are not changed; a sorted list is list | sort",
        "reverse": "values are not changed; the other way round is list | reverse | list",
        "index": "write item in list",
        "count": "how many are alike is list | select('equalto', item) | list | length",
        "get": "an item is list[0], or list[0] | default(…)",
    },
    dict: {
        **dict.fromkeys(("update", "setdefault"), "values cannot change. Write a | combine(b)"),
        **dict.fromkeys(("pop", "popitem", "clear"), "values cannot change. Read a key with .get"),
        "has_key": "write key in mapping",
    },
}
"""By type: methods of Python that are missing here, and the replacement."""


def _advice(owner: Any, name: Any) -> str:
    kind = next((kind for kind in _INSTEAD if isinstance(owner, kind)), None)
    instead = _INSTEAD[kind].get(name) if kind is not None and isinstance(name, str) else None
    if instead is None and isinstance(owner, str) and name in FILTERS:
        instead = f"write | {name}"
    return f": {instead}" if instead else ""


# -- functions for missing values ------------------------------------------------------------------


def default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    """Jinja2's ``default``. Raises UndefinedError for a name that only the caller of a macro has."""
    return default_value if is_undefined(value) or (boolean and not value) else value


def is_undefined(value: Any) -> bool:
    """Jinja2's ``undefined``. Raises UndefinedError for a name that only the caller of a macro has."""
    if isinstance(value, ExplainedUndefined) and value.is_hidden:
        str(value)  # raises an error with advice
    return isinstance(value, Undefined)


def is_defined(value: Any) -> bool:
    """Jinja2's ``defined``. Raises UndefinedError for a name that only the caller of a macro has."""
    return not is_undefined(value)


FILTERS_OF_MISSING: Final[dict[str, Callable[..., Any]]] = {"d": default, "default": default}
TESTS_OF_MISSING: Final[dict[str, Callable[..., Any]]] = {"defined": is_defined, "undefined": is_undefined}


_SHIFT = 24
_LINES = (1 << _SHIFT) - 1
_BEGINS = frozenset({"variable_begin", "block_begin", "linestatement_begin"})
_ENDS = frozenset({"variable_end", "block_end", "linestatement_end"})
_IGNORED = frozenset({"whitespace", "comment", "comment_begin", "comment_end", "linecomment"})

Token = tuple[int, str, str]
"""The line, the kind and the text, as Jinja2's lexer yields them."""


def place_of(number: int) -> tuple[int, int]:
    """Return the line and the column, both from 1, of a number that ``with_columns`` made."""
    return number & _LINES, (number >> _SHIFT) or 1


def with_columns(tokens: Iterable[Token], source: str) -> Iterator[Token]:
    """Yield the tokens of a text, with columns in the numbers of their lines."""
    text = "\n".join(newline_re.split(source)[::2])  # as the lexer reads it
    position, column, line_of_column = 0, 0, 0
    for line, kind, value in tokens:
        # The lexer only leaves out stripped blanks.
        position = max(text.find(value, position), position)
        if kind in _BEGINS or kind == "data":
            column = line_of_column = 0
        elif kind not in _IGNORED and line != line_of_column:
            column, line_of_column = position - text.rfind("\n", 0, position), line
        position += len(value)
        yield line | column << _SHIFT, kind, value
        if kind in _ENDS:
            column = line_of_column = 0
