"""Expected values of a case: plain values, which must be equal, and tags with conditions.

* ``None`` stands for a property without a value.
* A hidden value is ``HIDDEN_VALUE``. It equals no other value, so only ``!secret`` can match it.
* YAML allows one tag per value. Therefore ``!lacks`` exists beside ``!contains``, and ``!all`` combines tags.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec

from foundation.masking import HIDDEN, mask_urls
from foundation.problems import KeyPath
from hiera.regex import is_found

_LONGEST: Final = 300
"""Maximum characters of a value in a message."""


class _HiddenValue:
    """The type of ``HIDDEN_VALUE``."""

    def __str__(self) -> str:
        return HIDDEN


HIDDEN_VALUE: Final = _HiddenValue()
"""Stands for a value that is hidden because it is a secret."""

Read = Callable[[Any], Any]
"""Reads a plain value like the property, so that ``1m`` equals ``60s``. Raises ``ValueError``."""


class Matcher(msgspec.Struct, frozen=True):
    """One tag with its value."""

    tag: ClassVar[str]
    expected: Any

    def __str__(self) -> str:
        return self.tag if self.expected is None else f"{self.tag} {shown(self.expected)}"

    def fits(self, found: Any) -> bool:
        """Return whether the condition holds for ``found``. Raises ``LimitError`` for an expression that takes too
        long.
        """
        raise NotImplementedError

    def read(self, read: Read) -> "Matcher":
        """Return the matcher with its values read like those of a property."""
        del read
        return self


class Contains(Matcher, frozen=True):
    """The text contains all of these texts."""

    tag: ClassVar[str] = "!contains"

    def fits(self, found: Any) -> bool:
        return isinstance(found, str) and all(text in found for text in _texts(self.expected))


class Lacks(Matcher, frozen=True):
    """The text contains none of these texts."""

    tag: ClassVar[str] = "!lacks"

    def fits(self, found: Any) -> bool:
        return isinstance(found, str) and not any(text in found for text in _texts(self.expected))


class Matches(Matcher, frozen=True):
    """The regular expression matches somewhere in the text. ``^`` and ``$`` match at line ends."""

    tag: ClassVar[str] = "!matches"

    def fits(self, found: Any) -> bool:
        return isinstance(found, str) and is_found(re.compile(self.expected, re.MULTILINE), found)


class Not(Matcher, frozen=True):
    """The value exists and differs."""

    tag: ClassVar[str] = "!not"

    def fits(self, found: Any) -> bool:
        return found is not None and not fits(self.expected, found)

    def read(self, read: Read) -> Matcher:
        return Not(read_as(self.expected, read))


class Has(Matcher, frozen=True):
    """The list has a matching item."""

    tag: ClassVar[str] = "!has"

    def fits(self, found: Any) -> bool:
        return isinstance(found, list | tuple) and any(fits(self.expected, item) for item in found)

    def read(self, read: Read) -> Matcher:
        if isinstance(self.expected, Matcher):
            return self
        (expected,) = read([self.expected])
        return Has(expected)


class All(Matcher, frozen=True):
    """All conditions hold."""

    tag: ClassVar[str] = "!all"

    def fits(self, found: Any) -> bool:
        return all(fits(expected, found) for expected in self.expected)

    def read(self, read: Read) -> Matcher:
        return All([read_as(expected, read) for expected in self.expected])


class Absent(Matcher, frozen=True):
    """The value is missing."""

    tag: ClassVar[str] = "!absent"

    def fits(self, found: Any) -> bool:
        return found is None


class Something(Matcher, frozen=True):
    """The value exists."""

    tag: ClassVar[str] = "!any"

    def fits(self, found: Any) -> bool:
        return found is not None


class IsSecret(Matcher, frozen=True):
    """The value exists and is hidden."""

    tag: ClassVar[str] = "!secret"

    def fits(self, found: Any) -> bool:
        return found is HIDDEN_VALUE


def _text_or_texts(value: Any) -> Any:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("requires text, or a list of text")
    return value


def _expression(value: Any) -> Any:
    if not isinstance(value, str) or not value:
        raise ValueError("requires a regular expression")
    try:
        re.compile(value, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"is not a valid regular expression: {error}") from None
    return value


def _items(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise ValueError("requires a list")
    return value


def _value(value: Any) -> Any:
    if value is None:
        raise ValueError("requires a value")
    return value


def _nothing(value: Any) -> Any:
    if value is not None:
        raise ValueError("accepts no value")
    return value


def _tag(matcher: type[Matcher], check: Callable[[Any], Any]) -> Callable[[Any], Matcher]:
    return lambda value: matcher(check(value))


TAGS: Final[Mapping[str, Callable[[Any], Matcher]]] = MappingProxyType(
    {
        matcher.tag: _tag(matcher, check)
        for matcher, check in (
            (Contains, _text_or_texts),
            (Lacks, _text_or_texts),
            (Matches, _expression),
            (Not, _value),
            (Has, _value),
            (All, _items),
            (Absent, _nothing),
            (Something, _nothing),
            (IsSecret, _nothing),
        )
    }
)
"""For ``hiera.parsing.load``."""


def fits(expected: Any, found: Any) -> bool:
    """Return whether ``found`` matches. Mappings must have the same keys, except those with ``!absent``."""
    if isinstance(expected, Matcher):
        return expected.fits(found)
    if isinstance(expected, Mapping):
        is_mapping = isinstance(found, Mapping) and not found.keys() - expected.keys()
        return is_mapping and all(fits(value, found.get(key)) for key, value in expected.items())
    if isinstance(expected, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(expected)
        return same and all(map(fits, expected, found))
    # Python treats 1 as True. YAML does not.
    return isinstance(expected, bool) == isinstance(found, bool) and bool(expected == found)


def with_hidden(value: Any, paths: Collection[KeyPath]) -> Any:
    """Return a plain value with ``HIDDEN_VALUE`` at each of the paths."""
    if () in paths:
        return HIDDEN_VALUE
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    parts = {
        key: with_hidden(item, [path[1:] for path in paths if path[:1] == (key,)]) for key, item in items
    }
    return [*parts.values()] if isinstance(value, list) else parts if isinstance(value, Mapping) else value


def compares_hidden(expected: Any, found: Any) -> bool:
    """Return whether a comparison of ``found`` with ``expected`` needs a hidden value."""
    if isinstance(expected, IsSecret | Something):
        return False
    if isinstance(found, Mapping):
        parts = expected if isinstance(expected, Mapping) else {}
        return any(compares_hidden(parts.get(key), value) for key, value in found.items())
    if isinstance(found, list | tuple):
        items = expected if isinstance(expected, list | tuple) else []
        return any(map(compares_hidden, [*items, *[None] * len(found)], found))
    return found is HIDDEN_VALUE


def read_as(expected: Any, read: Read) -> Any:
    """Return an expected value, with its plain parts read like the property. Raises ``ValueError``."""
    if isinstance(expected, Matcher):
        return expected.read(read)
    return expected if has_matcher(expected) else read(expected)


def has_matcher(value: Any) -> bool:
    """Return whether a value contains a tag."""
    if isinstance(value, Mapping):
        return any(map(has_matcher, value.values()))
    return any(map(has_matcher, value)) if isinstance(value, list | tuple) else isinstance(value, Matcher)


def has_tag(value: Any, kind: type[Matcher]) -> bool:
    """Return whether a value is a certain tag, or an ``!all`` that contains it."""
    return isinstance(value, kind) or (
        isinstance(value, All) and any(has_tag(one, kind) for one in value.expected)
    )


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
    if isinstance(value, Matcher):
        return str(value)
    if has_matcher(value):
        return _shown_parts(value)
    text = mask_urls(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _shown_parts(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(shown, value))}]"


def _texts(expected: Any) -> list[str]:
    return expected if isinstance(expected, list) else [expected]
