"""The parser of gossfiles: returns the checks, and the unsupported parts with their places.

The parser ignores nothing. A file with an unknown kind, attribute or matcher yields an unknown result, since the
omitted part might be the failing one.

Matchers of Goss: a value, a list, or a mapping with one operator, compared with an actual value.

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

import msgspec

from hiera import parsing
from hiera.errors import HieraError
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


LARGEST = 1 << 20
"""Maximum bytes of a file."""

_COMMON = frozenset({"title", "meta", "skip"})
_LINES = frozenset({"contents", "contains", "stdout", "stderr", "body", "headers"})
ATTRIBUTES: Mapping[str, tuple[str, frozenset[str], frozenset[str]]] = {
    "addr": ("reachable", frozenset({"reachable"}), frozenset({"address", "timeout"})),
    "command": (
        "exit-status",
        frozenset({"exit-status", "stdout", "stderr"}),
        frozenset({"exec", "timeout"}),
    ),
    "dns": ("resolvable", frozenset({"resolvable", "addrs"}), frozenset({"resolve", "timeout"})),
    "file": (
        "exists",
        frozenset(
            {"exists", "mode", "size", "owner", "group", "uid", "gid", "filetype", "contents", "contains"}
            | {"md5", "sha256", "sha512", "linked-to"}
        ),
        frozenset({"path"}),
    ),
    "group": ("exists", frozenset({"exists", "gid"}), frozenset({"groupname"})),
    "http": (
        "status",
        frozenset({"status", "headers", "body"}),
        frozenset({"url", "no-follow-redirects", "timeout", "request-headers", "ca-file", "method"}),
    ),
    "interface": ("exists", frozenset({"exists", "addrs", "mtu"}), frozenset({"name"})),
    "kernel-param": ("value", frozenset({"value"}), frozenset({"name"})),
    "matching": ("matches", frozenset({"matches"}), frozenset({"content"})),
    "mount": (
        "exists",
        frozenset({"exists", "opts", "vfs-opts", "source", "filesystem", "usage"}),
        frozenset({"mountpoint", "timeout"}),
    ),
    "package": ("installed", frozenset({"installed", "versions"}), frozenset({"name"})),
    "port": ("listening", frozenset({"listening", "ip"}), frozenset({"port"})),
    "process": ("running", frozenset({"running"}), frozenset({"comm"})),
    "service": ("", frozenset({"enabled", "running"}), frozenset({"name"})),
    "user": (
        "exists",
        frozenset({"exists", "uid", "gid", "groups", "home", "shell"}),
        frozenset({"username"}),
    ),
}
"""The kinds: required attribute, attributes to compare, and options of the query."""

_TEXTS = frozenset(
    {"address", "exec", "resolve", "path", "groupname", "url", "ca-file", "method", "name", "mountpoint"}
    | {"port", "comm", "username"}
)
_MODES = ("GET", "HEAD", "OPTIONS")


class Test(msgspec.Struct, frozen=True):
    """One resource of a gossfile: what to query, and the expected values."""

    kind: str
    name: str
    """Its key in the file."""
    desired: Mapping[str, Any]
    """The matchers, by attribute."""
    options: Mapping[str, Any]
    """Options of the query."""
    skip: bool = False


class Problem(msgspec.Struct, frozen=True):
    """An unsupported or invalid part of a file."""

    path: Path
    sentence: str

    def __str__(self) -> str:
        return f"{': '.join(map(str, self.path))}: {self.sentence}" if self.path else self.sentence


def read(text: str, source: str) -> tuple[list[Test], list[Problem]]:
    """Return the tests and the problems of a gossfile."""
    if "{{" in text:
        line = text[: text.index("{{")].count("\n") + 1
        return [], [
            Problem((), f"line {line} has a template ({{{{ … }}}}) of goss, and templates are not supported")
        ]
    try:
        value = parsing.load_yaml(text, source, limit=LARGEST)
    except HieraError as error:
        return [], [Problem((), str(error))]
    if not isinstance(value, dict) or not value:
        return [], [Problem((), "must be a mapping of kinds to tests")]
    tests: list[Test] = []
    problems: list[Problem] = []
    for kind, resources in value.items():
        if kind not in ATTRIBUTES:
            problems.append(Problem((kind,), "is not a supported kind"))
        elif not isinstance(resources, dict) or not resources:
            problems.append(Problem((kind,), "must be a mapping of tests"))
        else:
            for name, attributes in resources.items():
                problems += _problems(kind, name, attributes)
                if isinstance(attributes, dict):
                    tests.append(_test(kind, str(name), attributes))
    if not problems and not any(not test.skip for test in tests):
        problems.append(Problem((), "skips all of its tests"))
    return tests, problems


def _test(kind: str, name: str, attributes: dict[Any, Any]) -> Test:
    _, compared, options = ATTRIBUTES[kind]
    return Test(
        kind,
        name,
        {key: value for key, value in attributes.items() if key in compared},
        {key: value for key, value in attributes.items() if key in options},
        attributes.get("skip") is True,
    )


def _problems(kind: str, name: str | int, attributes: Any) -> Iterator[Problem]:
    here: Path = (kind, name)
    if not isinstance(attributes, dict):
        yield Problem(here, "must be a mapping of attributes")
        return
    required, compared, options = ATTRIBUTES[kind]
    for key, value in attributes.items():
        place = (*here, key)
        if key in compared:
            for path, sentence in problems(value, place, lines=key in _LINES):
                yield Problem(path, sentence)
        elif key in options:
            if sentence := _option_problem(kind, key, value):
                yield Problem(place, sentence)
        elif key not in _COMMON:
            yield Problem(place, "is not a supported attribute")
        elif key == "skip" and not isinstance(value, bool):
            yield Problem(place, "must be true or false")
    if required and required not in attributes:
        yield Problem(here, f"{required} is missing")
    if kind == "matching" and "content" not in attributes:
        yield Problem(here, "content is missing")
    if not required and not compared & {*attributes}:
        yield Problem(here, f"checks no attribute, expected one of {', '.join(sorted(compared))}")
    yield from _of_kind(kind, here, attributes)


def _of_kind(kind: str, here: Path, attributes: dict[Any, Any]) -> Iterator[Problem]:
    name = str(here[1])
    if kind == "addr":
        address = str(attributes.get("address", name))
        if not address.startswith("tcp://"):
            yield Problem(here, f"is not supported: {address!r}, expected tcp://HOST:PORT")
    if kind == "dns" and ":" in str(attributes.get("resolve", name)):
        yield Problem(here, "is not supported: Puller cannot query a DNS server for one record type")
    if kind == "port":
        port = str(attributes.get("port", name))
        protocol, _, number = port.rpartition(":")
        if protocol not in ("", "tcp", "tcp6", "udp", "udp6") or not (
            number.isascii() and number.isdecimal()
        ):
            yield Problem(here, f"is {port!r}, expected a port such as 'tcp:22'")
    if kind == "file" and isinstance(attributes.get("mode"), int):
        yield Problem((*here, "mode"), "is a number that YAML reads as octal, so quote it")


def _option_problem(kind: str, key: str, value: Any) -> str:
    if key == "timeout":
        is_time = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        return "" if is_time else "must be a number of milliseconds"
    if key == "no-follow-redirects":
        return "" if isinstance(value, bool) else "must be true or false"
    if key == "request-headers":
        is_list = isinstance(value, list) and all(isinstance(item, str) and ":" in item for item in value)
        return "" if is_list else "must be a list of 'Name: value'"
    if key == "method" and value not in _MODES:
        return f"is not supported: {value!r}, expected {' or '.join(_MODES)}"
    if key in _TEXTS and not isinstance(value, str) and not (kind == "port" and isinstance(value, int)):
        return "must be text"
    return ""
