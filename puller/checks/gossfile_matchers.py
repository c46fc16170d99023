"""Matchers of Goss: a value, a list, or a mapping with one operator, compared with an actual value.

The rules are those of Goss ("Matchers" in the documentation of its gossfile):

* The actual value is converted to the type of the matcher: text, number or list of lines. A value that cannot be
  converted does not match.
* A list matches if each item matches a different item of the actual list.
* For values with lines (contents, output, bodies), the items of a list are patterns: ``text``, ``!text``,
  ``/regex/``, ``!/regex/``.
* A range of semantic versions is ``>1.0.0 <2.0.0 !=1.5.0 || >=3.0.0``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from hiera.regex import is_found

# Ranges of semantic versions.

_VERSION = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
_CONDITION = re.compile(r"(>=|<=|!=|==|=|!|>|<)?\s*([^\s<>=!|]+)")

_Key = tuple[int, int, int, int, tuple[tuple[int, int, str], ...]]
Range = tuple[tuple[tuple[str, _Key], ...], ...]
"""Alternatives. All conditions of an alternative must hold."""


def in_range(version: str, constraint: str) -> bool:
    """Return whether a version is in a range. Invalid versions are not."""
    try:
        key = _key(version)
    except ValueError:
        return False
    return any(
        all(_holds(key, *condition) for condition in conditions) for conditions in parse_range(constraint)
    )


@cache
def parse_range(text: str) -> Range:
    """Parse a range. Raises ``ValueError`` for an invalid range, including wildcards."""
    return tuple(_conditions(part) for part in text.split("||"))


def _conditions(text: str) -> tuple[tuple[str, _Key], ...]:
    matches = _CONDITION.findall(text)
    if not matches or "".join("".join(item) for item in matches) != "".join(text.split()):
        raise ValueError(f"is {text.strip()!r}, expected a range such as '>1.0.0 <2.0.0'")
    return tuple((sign or "=", _key(version)) for sign, version in matches)


def _key(text: str) -> _Key:
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"has {text!r}, expected a semantic version such as '1.2.3' (wildcards are not supported)"
        )
    before = match[4]
    # A release sorts after its pre-releases. Numeric identifiers sort before words.
    fields = tuple(
        (0, int(part), "") if (part.isascii() and part.isdecimal()) else (1, 0, part)
        for part in (before.split(".") if before else ())
    )
    return int(match[1]), int(match[2]), int(match[3]), int(before is None), fields


def _holds(key: _Key, sign: str, other: _Key) -> bool:
    if sign in ("=", "=="):
        return key == other
    if sign in ("!", "!="):
        return key != other
    if sign in (">", ">="):
        return key > other or (sign == ">=" and key == other)
    return key < other or (sign == "<=" and key == other)


Path = tuple[str | int, ...]


class Lines(str):
    """A text with lines. The items of a matcher list for it are patterns."""

    __slots__ = ()


def problems(expected: Any, path: Path, *, lines: bool = False) -> Iterator[tuple[Path, str]]:
    """Yield the unsupported parts of a matcher with their places. ``lines``: the matcher is for a text with lines."""
    if isinstance(expected, list):
        for index, item in enumerate(expected):
            if lines and isinstance(item, str):
                yield from _pattern_problems(item, (*path, index))
            elif lines and isinstance(item, list):
                yield (*path, index), "must not be a list, because it is in a list of patterns"
            else:
                yield from problems(item, (*path, index))
    elif isinstance(expected, Mapping):
        yield from _word_problems(expected, path, lines=lines)
    elif expected is None:
        yield path, "is empty"
    elif lines:
        yield path, f"is {expected!r}, expected a list of patterns, or a matcher such as 'contain-substring'"


def _word_problems(desired: Mapping[Any, Any], path: Path, *, lines: bool) -> Iterator[tuple[Path, str]]:
    if len(desired) != 1:
        yield path, f"has {len(desired)} matchers, expected one, or 'and' with a list of several"
        return
    ((word, value),) = desired.items()
    here = (*path, word)
    if word in ("and", "or"):
        if not isinstance(value, list) or not value:
            yield here, "must be a list of matchers"
            return
        for index, item in enumerate(value):
            yield from problems(item, (*here, index), lines=lines and not isinstance(item, str | int | float))
    elif word == "not":
        yield from problems(value, here, lines=lines and not isinstance(value, str | int | float))
    elif word in ("contain-elements", "consist-of"):
        if not isinstance(value, list):
            yield here, "must be a list of matchers"
            return
        for index, item in enumerate(value):
            yield from problems(item, (*here, index))
    elif word == "contain-element":
        yield from problems(value, here)
    elif word in _OF_TEXT:
        if not isinstance(value, str):
            yield here, "must be text"
        elif word == "match-regexp":
            yield from _regex_problems(value, here)
    elif word in _OF_NUMBERS:
        if _number(value) is None:
            yield here, "must be a number"
    elif word == "semver-constraint":
        try:
            parse_range(str(value))
        except ValueError as error:
            yield here, str(error)
    elif word == "have-len":
        if not isinstance(value, int) or isinstance(value, bool):
            yield here, "must be a whole number"
    elif word not in ("equal", "have-key"):
        yield here, f"is not a supported matcher: {word!r}"


def matches(found: Any, expected: Any) -> bool:
    """Return whether a value matches. Raises ``hiera.errors.LimitError`` for a slow regular expression."""
    if isinstance(expected, Mapping):
        ((word, value),) = expected.items()
        return _matches_word(found, word, value)
    if isinstance(expected, list):
        if isinstance(found, Lines):
            return all(_has_pattern(found, item) for item in expected)
        items = _items(found)
        return items is not None and _assigned(items, expected)
    return _is_equal(found, expected)


def _matches_word(result: Any, word: str, value: Any) -> bool:
    if word == "and":
        return all(matches(result, one) for one in value)
    if word == "or":
        return any(matches(result, one) for one in value)
    if word == "not":
        return not matches(result, value)
    if word in _OF_TEXT:
        text = _text(result)
        return text is not None and _OF_TEXT[word](text, value)
    if word in _OF_NUMBERS:
        number, other = _number(result), _number(value)
        return number is not None and other is not None and _OF_NUMBERS[word](number, other)
    if word == "equal":
        return _is_exactly(result, value)
    if word == "have-key":
        return isinstance(result, Mapping) and value in result
    if word == "have-len":
        return isinstance(result, str | list | Mapping) and len(result) == value
    items = _items(result)
    if items is None:
        return False
    if word == "contain-element":
        return any(matches(item, value) for item in items)
    if word == "contain-elements":
        return _assigned(items, value)
    if word == "consist-of":
        return len(items) == len(value) and _assigned(items, value)
    return bool(items) and all(in_range(str(item), value) for item in items)  # semver-constraint


_OF_TEXT: Mapping[str, Callable[[str, str], bool]] = {
    "have-prefix": lambda found, expected: found.startswith(expected),
    "have-suffix": lambda found, expected: found.endswith(expected),
    "contain-substring": lambda found, expected: expected in found,
    "match-regexp": lambda found, expected: is_found(re.compile(expected), found),
}
_OF_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "gt": lambda found, expected: found > expected,
    "ge": lambda found, expected: found >= expected,
    "lt": lambda found, expected: found < expected,
    "le": lambda found, expected: found <= expected,
}


def _is_equal(result: Any, desired: Any) -> bool:
    """Compare single values by the type of the expected value."""
    if isinstance(desired, bool) or isinstance(result, bool):
        return result is desired
    if isinstance(desired, str):
        return _text(result) == desired
    number = _number(result)
    return number is not None and number == desired


def _is_exactly(result: Any, desired: Any) -> bool:
    if isinstance(desired, list):
        items = _items(result)
        same = items is not None and len(items) == len(desired)
        return same and all(_is_exactly(*pair) for pair in zip(items or (), desired, strict=True))
    if isinstance(desired, Mapping):
        return isinstance(result, Mapping) and result == desired
    return _is_equal(result, desired)


def _text(result: Any) -> str | None:
    if isinstance(result, bool) or not isinstance(result, str | int | float):
        return None
    return str(result)


def _number(result: Any) -> float | None:
    if isinstance(result, bool) or not isinstance(result, str | int | float):
        return None
    try:
        return float(result)
    except (ValueError, OverflowError):
        return None


def _items(result: Any) -> list[Any] | None:
    """Return the value as a list: the lines of a text, or one item."""
    if isinstance(result, list):
        return result
    if isinstance(result, str):
        return result.rstrip("\n").split("\n") if isinstance(result, Lines) else result.split("\n")
    return None if isinstance(result, Mapping) else [result]


def _assigned(items: Sequence[Any], desired: Sequence[Any]) -> bool:
    """Return whether each matcher can have a different item that matches it."""
    fits = [[index for index, item in enumerate(items) if matches(item, one)] for one in desired]
    owners: dict[int, int] = {}

    def place(one: int, tried: set[int]) -> bool:
        for index in fits[one]:
            if index not in tried:
                tried.add(index)
                if index not in owners or place(owners[index], tried):
                    owners[index] = one
                    return True
        return False

    return all(place(one, set()) for one in range(len(desired)))


def _has_pattern(result: str, desired: Any) -> bool:
    if not isinstance(desired, str):
        return (
            matches(result, {"contain-element": desired})
            if isinstance(desired, Mapping)
            else str(desired) in result
        )
    is_inverse, is_regex, text = _pattern(desired)
    has = is_found(re.compile(text, re.MULTILINE), result) if is_regex else text in result
    return has is not is_inverse


def _pattern(written: str) -> tuple[bool, bool, str]:
    is_inverse = written.startswith("!")
    text = written.removeprefix("!")
    if not is_inverse and text.startswith("\\!"):
        text = text[1:]
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        return is_inverse, True, text[1:-1]
    return is_inverse, False, text


def _pattern_problems(written: str, path: Path) -> Iterator[tuple[Path, str]]:
    _, is_regex, text = _pattern(written)
    if is_regex:
        yield from _regex_problems(text, path)
    elif not text or "\n" in text:
        yield path, "must be text of one line"


def _regex_problems(written: str, path: Path) -> Iterator[tuple[Path, str]]:
    # Python does not support some syntax of Go, or interprets it differently.
    if re.search(r"\\[pPzQECK]|\[\[:|\(\?[a-zA-Z]*U", written):
        yield path, f"is not supported: {written!r} uses syntax that only Go's regular expressions have"
        return
    try:
        re.compile(written)
    except (re.error, RecursionError, OverflowError) as error:
        yield path, f"is not a valid regular expression: {error}"
