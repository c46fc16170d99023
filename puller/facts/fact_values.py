"""Fact values, the errors of fact sources, and the time limit for slow sources.

* A value is a mapping, list, text, number, boolean or ``None``. A missing fact is omitted. It never has an empty
  placeholder.
* Mappings are merged deeply. Any other value replaces the earlier one, so a later source can also remove values.
* A source that fails never stops the collection of facts. The fact is omitted, and ``Facts.problems`` contains the
  error. An expression that reads a failed fact of a bundle fails with this error (``bundled.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bundles.deadline import Deadline, DeadlineError, aside
from foundation.formatting import text_of
from foundation.problems import Location, Problem, ProblemCode
from puller.system import signals

ABSENT: Any = object()
"""A missing fact. ``None`` is a valid value of a custom fact."""


def present(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts without ``None``, which marks missing facts of a built-in source."""
    return {name: value for name, value in facts.items() if value is not None}


def merged(lower: Any, upper: Any) -> Any:
    """Return ``upper`` merged over ``lower``. Both stay unchanged."""
    if not isinstance(lower, dict) or not isinstance(upper, dict):
        return lower if upper is ABSENT else upper
    result = dict(lower)
    for name, value in upper.items():
        result[name] = merged(result.get(name, ABSENT), value)
    return result


def find(facts: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path of names, or ``ABSENT``."""
    value: Any = facts
    for name in path:
        try:
            value = value[name]
        except (KeyError, TypeError, IndexError):
            return ABSENT
    return value


def nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a tree that contains only ``value``, at ``path``."""
    for name in reversed(path):
        value = {name: value}
    result: dict[str, Any] = value
    return result


class FactError(Exception):
    """A fact source that failed. ``str()`` formats its problem: *where: what*."""

    def __init__(self, where: str, what: str, *, is_left_out: bool = False) -> None:
        """``is_left_out``: the fact exists on hosts, but was not gathered here."""
        super().__init__(where, what)
        self.where = where
        self.what = what
        self.is_left_out = is_left_out

    def __str__(self) -> str:
        return text_of(self.problems[0])

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problem as a value."""
        code = ProblemCode.UNDEFINED_FACT if self.is_left_out else ProblemCode.UNAVAILABLE_FACT
        return (Problem(code=code, message=self.what, location=Location(self.where)),)


# Time limit for sources that can hang, such as a dead file server or a silent name service. The source runs in a
# thread, since signals do not interrupt every system call. After the limit, its result is discarded and its thread
# ends with the process.

LIMIT = 5.0
"""Default time limit of a source, in seconds."""


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, with its errors. Raises ``TimeoutError`` after ``seconds``."""
    try:
        return aside(lambda: function(*arguments), Deadline(seconds, signals.check))
    except DeadlineError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
