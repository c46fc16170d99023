"""Formatter of problems and differences. Other modules neither format them nor parse the text.

* For users, a problem is ``LOCATION: ENTRY SUBJECT: MESSAGE (did you mean 'NAME'?), expected EXPECTED; HINT``, and the
  excerpt below.
* For users, differences are ``owner nobody → root, mode 0600 → 0644, content``. Without UTF-8 the arrow is ``->``. A
  checksum appears only without a diff.
* The journal gets the text for users, always with the arrow, and the differences as JSON in a field.
* JSON documents get the fields, and the full text of a problem.
"""

from __future__ import annotations

import _locale
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from foundation import differences as _differences
from foundation import problems as _problems
from foundation.differences import Action, Difference, DifferenceKind
from foundation.masking import HIDDEN
from foundation.problems import Location, Problem
from foundation.quantities import counted
from foundation.suggestions import MOST, meant

ARROW, ASCII_ARROW = "→", "->"
_NO_VALUE = "(none)"

# Problems


def text_of(problem: Problem) -> str:
    """Return a problem in full, with its location."""
    return _format(problem)


def text_in_one_line(problem: Problem) -> str:
    """Return the text of a problem, with its line breaks as spaces."""
    return " ".join(_format(problem).split())


def text_without_place(problem: Problem) -> str:
    """Return a problem without location, for a format that has a field for it."""
    return _format(problem, with_place=False)


def text_of_all(problems: Iterable[Problem]) -> str:
    """Return each problem on a line. A message that several resources share appears once, with their number."""
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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'owner'?)``, or some known words if none is similar."""
    fields = meant(word, known)
    return suggestions_text(fields.get("suggestions", ())) or _known_text(
        fields.get("known", ()), fields.get("known_more", 0)
    )


def suggestions_text(suggestions: Sequence[str]) -> str:
    """Return `` (did you mean 'owner' or 'mode'?)``. Empty without suggestions."""
    if not suggestions:
        return ""
    *others, last = map(repr, suggestions[:MOST])
    return f" (did you mean {', '.join(others)}{' or ' if others else ''}{last}?)"


def _known_text(names: Sequence[str], additional: int = 0) -> str:
    """Return `` (known: a, b, c, d, e and 3 more)``. Empty without names."""
    if not names:
        return ""
    return f" (known: {', '.join(names)}{f' and {additional} more' if additional else ''})"


def completed(message: str, expected: str, hint: str) -> str:
    """Return a message with the valid values and the hint."""
    values = f", expected {expected}" if expected else ""
    return f"{message}{values}{f'; {hint}' if hint else ''}"


def prefixed(problem: Problem, prefix: str) -> Problem:
    """Return a problem as part of another message. Its place becomes text, and a related location."""
    place = place_text(problem.location) if problem.location.file else ""
    message = ": ".join(filter(None, (prefix, place, problem.message)))
    related = (*problem.related, problem.location) if problem.location.file else problem.related
    return msgspec.structs.replace(problem, message=message, related=related, location=Location())


def place_text(location: Location) -> str:
    """Return the location in the format of errors."""
    shown = location if location.is_exact else msgspec.structs.replace(location, column=0)
    return str(shown)


def _shared(problem: Problem) -> object:
    """Return a key that is equal for problems that differ only in the resource. A problem without one is unique."""
    if not problem.subject:
        return problem
    texts = problem.message, problem.expected, problem.hint
    return problem.code, problem.property, problem.name, problem.location.file, *texts


def _grouped(problems: Sequence[Problem]) -> str:
    text = text_of(problems[0])
    if len(problems) == 1:
        return text
    return f"{text} (and {counted(len(problems) - 1, 'more resource')})"


def _format(problem: Problem, *, with_place: bool = True) -> str:
    place = place_text(problem.location) if with_place and problem.location.file else ""
    subject = " ".join(filter(None, (problem.entry, problem.subject)))
    names = suggestions_text(problem.suggestions) or _known_text(problem.known, problem.known_more)
    message = completed(f"{problem.message}{names}", problem.expected, problem.hint)
    text = ": ".join(filter(None, (place, subject, message)))
    return f"{text}\n{problem.excerpt}" if problem.excerpt else text


# Differences

_DONE = {Action.RUN: "ran", Action.RESTART: "restarted", Action.RELOAD: "reloaded"}


def people(differences: Sequence[Difference], *, is_predicted: bool = False, arrow: str = "") -> str:
    """Return the differences in one line. The default ``arrow`` depends on the locale."""
    arrow = arrow or (ARROW if is_utf8() else ASCII_ARROW)
    return ", ".join(_one(difference, arrow, is_predicted=is_predicted) for difference in differences)


def lines(differences: Sequence[Difference], *, is_predicted: bool = False, arrow: str = "") -> list[str]:
    """Return the text for users, one line for each difference."""
    return [people([difference], is_predicted=is_predicted, arrow=arrow) for difference in differences]


def journal(differences: Sequence[Difference]) -> str:
    """Return the differences as the value of a field of the journal, without their diffs."""
    plain = [msgspec.structs.replace(difference, diff="") for difference in differences]
    return msgspec.json.encode(plain).decode()


def json_values(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Return the differences as objects of a JSON document."""
    values: list[dict[str, Any]] = msgspec.to_builtins(differences)
    return values


def _one(difference: Difference, arrow: str, *, is_predicted: bool) -> str:
    if difference.action is not None:
        return _action(difference, difference.action, is_predicted=is_predicted)
    kind, is_content = difference.kind, difference.property == "content"
    if difference.path and difference.property == "ensure":
        if kind is not DifferenceKind.CHANGED:
            return f"{difference.path} {kind}"
        name = difference.path
    else:
        name = f"{difference.path} {difference.property}".lstrip()
    if difference.secret:
        return f"{name} {HIDDEN}"
    if kind is DifferenceKind.UNKNOWN:
        reason = f" ({difference.desired})" if difference.desired else ""
        return f"{name} {kind}{reason}"
    if is_content and difference.diff:
        return name
    if not difference.current:
        return f"{name}: {difference.desired or repr('')}"
    is_value_removed = kind is DifferenceKind.REMOVED and not difference.desired
    current, desired = (
        _value(difference.current),
        _NO_VALUE if is_value_removed else _value(difference.desired),
    )
    return f"{name}{':' if is_content else ''} {current} {arrow} {desired}"


def _action(difference: Difference, action: Action, *, is_predicted: bool) -> str:
    verb = f"would {action}" if is_predicted else _DONE[action]
    if not difference.refresh:
        return verb
    if not difference.because:
        return f"{verb}, because of a change in an earlier run"
    changed = "would change" if is_predicted else "changed"
    return f"{verb}, because {' and '.join(difference.because)} {changed}"


def _value(value: str) -> str:
    """Return a value, quoted if it could be confused with the surrounding text."""
    is_quoted = len(value) > 1 and value[0] in "'\"" and value[0] == value[-1]
    is_clear = value != "" and value.isprintable() and value == value.strip()
    is_clear = is_clear and (is_quoted or not any(mark in value for mark in (", ", ARROW, ASCII_ARROW)))
    return value if is_clear else repr(value)


def is_utf8() -> bool:
    """Return whether terminals of the current locale display UTF-8."""
    # Python writes UTF-8 in the locale C, but a terminal of that locale cannot display it.
    return _locale.nl_langinfo(_locale.CODESET).upper().replace("-", "") == "UTF8"


_problems.register_formatter(text_of)
_differences.register_formatter(people)
