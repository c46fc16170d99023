"""Values that a case expects: plain ones, which must be equal, and tags that say what must be true of what is found.

* ``None`` stands for a property that has no value.
* Nothing is equal to what is hidden, so no tag but ``!secret`` tells anything of it.
* YAML gives a value one tag only, so ``!lacks`` is there beside ``!contains``, and ``!all`` puts several together.
"""

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec

from foundation.masking import HIDDEN, VALUE_MASK, mask_urls
from hiera.regex import is_found

_LONGEST: Final = 300
"""Characters of a value in a message."""

Read = Callable[[Any], Any]
"""Reads a plain value as the property would, so that ``1m`` and ``60s`` are one; raises ``ValueError``."""


class Matcher(msgspec.Struct, frozen=True):
    """One tag with what stands behind it."""

    tag: ClassVar[str]
    wanted: Any

    def __str__(self) -> str:
        return self.tag if self.wanted is None else f"{self.tag} {shown(self.wanted)}"

    def fits(self, found: Any) -> bool:
        """Whether it is true of ``found``; raises ``LimitError`` for an expression that takes too long."""
        raise NotImplementedError

    def read(self, read: Read) -> "Matcher":
        """Itself, with values read as those of a property are."""
        del read
        return self


class Contains(Matcher, frozen=True):
    """A text has these texts in it."""

    tag: ClassVar[str] = "!contains"

    def fits(self, found: Any) -> bool:
        return isinstance(found, str) and all(text in found for text in _texts(self.wanted))


class Lacks(Matcher, frozen=True):
    """A text has none of these in it."""

    tag: ClassVar[str] = "!lacks"

    def fits(self, found: Any) -> bool:
        return isinstance(found, str) and not any(text in found for text in _texts(self.wanted))


class Matches(Matcher, frozen=True):
    """A regular expression fits somewhere in a text; ``^`` and ``$`` are begin and end of a line."""

    tag: ClassVar[str] = "!matches"

    def fits(self, found: Any) -> bool:
        return isinstance(found, str) and is_found(re.compile(self.wanted, re.MULTILINE), found)


class Not(Matcher, frozen=True):
    """A value is there, and is another one."""

    tag: ClassVar[str] = "!not"

    def fits(self, found: Any) -> bool:
        return found is not None and not fits(self.wanted, found)

    def read(self, read: Read) -> Matcher:
        return Not(read_as(self.wanted, read))


class Has(Matcher, frozen=True):
    """A list has an item like this."""

    tag: ClassVar[str] = "!has"

    def fits(self, found: Any) -> bool:
        return isinstance(found, list | tuple) and any(fits(self.wanted, item) for item in found)

    def read(self, read: Read) -> Matcher:
        if isinstance(self.wanted, Matcher):
            return self
        (wanted,) = read([self.wanted])
        return Has(wanted)


class All(Matcher, frozen=True):
    """Several things are true at once."""

    tag: ClassVar[str] = "!all"

    def fits(self, found: Any) -> bool:
        return all(fits(wanted, found) for wanted in self.wanted)

    def read(self, read: Read) -> Matcher:
        return All([read_as(wanted, read) for wanted in self.wanted])


class Absent(Matcher, frozen=True):
    """There is no value."""

    tag: ClassVar[str] = "!absent"

    def fits(self, found: Any) -> bool:
        return found is None


class Something(Matcher, frozen=True):
    """There is a value, whatever it is."""

    tag: ClassVar[str] = "!any"

    def fits(self, found: Any) -> bool:
        return found is not None


class IsSecret(Matcher, frozen=True):
    """There is a value, and it is hidden."""

    tag: ClassVar[str] = "!secret"

    def fits(self, found: Any) -> bool:
        return is_hidden(found)


def _text_or_texts(value: Any) -> Any:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("wants a text, or a list of texts")
    return value


def _expression(value: Any) -> Any:
    if not isinstance(value, str) or not value:
        raise ValueError("wants a regular expression")
    try:
        re.compile(value, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


def _items(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise ValueError("wants a list")
    return value


def _value(value: Any) -> Any:
    if value is None:
        raise ValueError("wants a value")
    return value


def _nothing(value: Any) -> Any:
    if value is not None:
        raise ValueError("stands alone, without a value")
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
"""For ``hiera.text.yaml_text.load``."""


def fits(wanted: Any, found: Any) -> bool:
    """Whether ``found`` is as wanted; mappings have the same keys, but for those that are wanted ``!absent``."""
    if isinstance(wanted, Matcher):
        return wanted.fits(found)
    if isinstance(wanted, Mapping):
        is_mapping = isinstance(found, Mapping) and not found.keys() - wanted.keys()
        return is_mapping and all(fits(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(wanted)
        return same and all(map(fits, wanted, found))
    # Python takes 1 for True, and YAML does not.
    return isinstance(wanted, bool) == isinstance(found, bool) and bool(wanted == found)


def is_hidden(found: Any) -> bool:
    """Whether a value is shown by a mark, because it is secret, or has a secret in it."""
    return isinstance(found, str) and (found == HIDDEN or VALUE_MASK in found)


def compares_hidden(wanted: Any, found: Any) -> bool:
    """Whether something hidden would have to be known to say whether ``found`` is as wanted."""
    if isinstance(wanted, IsSecret | Something):
        return False
    if isinstance(found, Mapping):
        parts = wanted if isinstance(wanted, Mapping) else {}
        return any(compares_hidden(parts.get(key), value) for key, value in found.items())
    if isinstance(found, list | tuple):
        items = wanted if isinstance(wanted, list | tuple) else []
        return any(map(compares_hidden, [*items, *[None] * len(found)], found))
    return is_hidden(found)


def read_as(wanted: Any, read: Read) -> Any:
    """A wanted value, its plain parts read as those of the property are; raises ``ValueError``."""
    if isinstance(wanted, Matcher):
        return wanted.read(read)
    return wanted if has_matcher(wanted) else read(wanted)


def has_matcher(value: Any) -> bool:
    """Whether a tag stands anywhere in a value."""
    if isinstance(value, Mapping):
        return any(map(has_matcher, value.values()))
    return any(map(has_matcher, value)) if isinstance(value, list | tuple) else isinstance(value, Matcher)


def has_tag(value: Any, kind: type[Matcher]) -> bool:
    """Whether a value is a certain tag, or several of which one is."""
    return isinstance(value, kind) or (
        isinstance(value, All) and any(has_tag(one, kind) for one in value.wanted)
    )


def shown(value: Any) -> str:
    """A value in a message, shortened."""
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


def _texts(wanted: Any) -> list[str]:
    return wanted if isinstance(wanted, list) else [wanted]
