"""The one formatter of problems: values in, text out. No other module words a problem, and none reads the text.

The text of a problem is ``LOCATION: ENTRY SUBJECT: MESSAGE (did you mean 'NAME'?); HINT``, and the excerpt below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from foundation.problems import Location, Problem, register_formatter
from foundation.suggestions import MOST


def text_of(problem: Problem) -> str:
    """Return a problem in full, with its location."""
    return _format(problem)


def text_without_place(problem: Problem) -> str:
    """Return a problem without location, for a format that has a field for it."""
    return _format(problem, with_place=False)


def text_of_all(problems: Iterable[Problem]) -> str:
    """Return each problem on a line. A message that several resources share stands once, with their number."""
    return "\n".join(lines_of(problems))


def lines_of(problems: Iterable[Problem]) -> list[str]:
    """Return the texts of ``text_of_all``."""
    groups: dict[object, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(_shared(problem), []).append(problem)
    return [_grouped(group) for group in groups.values()]


def plain(problem: Problem) -> dict[str, Any]:
    """Return a problem as an object for JSON, with its full text."""
    value: dict[str, Any] = msgspec.to_builtins(problem)
    return {**value, "text": text_of(problem)}


def did_you_mean(suggestions: Sequence[str]) -> str:
    """Return `` (did you mean 'owner' or 'mode'?)``. Empty without suggestions."""
    if not suggestions:
        return ""
    *others, last = map(repr, suggestions[:MOST])
    return f" (did you mean {', '.join(others)}{' or ' if others else ''}{last}?)"


def prefixed(problem: Problem, prefix: str) -> Problem:
    """Return a problem as part of another message. Its place becomes text, and a related location."""
    place = place_text(problem.location) if problem.location.file else ""
    message = ": ".join(filter(None, (prefix, place, problem.message)))
    related = (*problem.related, problem.location) if problem.location.file else problem.related
    return msgspec.structs.replace(problem, message=message, related=related, location=Location())


def place_text(location: Location) -> str:
    """Return the location as errors show it."""
    shown = location if location.is_exact else msgspec.structs.replace(location, column=0)
    return str(shown)


def _shared(problem: Problem) -> object:
    """Equal for problems that differ only in the resource. A problem without one stands alone."""
    if not problem.subject:
        return problem
    return problem.code, problem.message, problem.property, problem.name, problem.location.file, problem.hint


def _grouped(problems: Sequence[Problem]) -> str:
    text = text_of(problems[0])
    if len(problems) == 1:
        return text
    return f"{text} (and {len(problems) - 1} more resources)"


def _format(problem: Problem, *, with_place: bool = True) -> str:
    place = place_text(problem.location) if with_place and problem.location.file else ""
    subject = " ".join(filter(None, (problem.entry, problem.subject)))
    hint = f"; {problem.hint}" if problem.hint else ""
    message = f"{problem.message}{did_you_mean(problem.suggestions)}{hint}"
    text = ": ".join(filter(None, (place, subject, message)))
    return f"{text}\n{problem.excerpt}" if problem.excerpt else text


register_formatter(text_of)
