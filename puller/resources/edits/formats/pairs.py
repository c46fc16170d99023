"""A key and its value on a line of their own: what ini, keyvalue and shell have in common.

No library reads these by the rules of Puller: ConfigUpdater, for one, refuses equal headers and equal keys, which are
everyday in these files, and knows nothing of keys that are commented out.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.lines import Lines, edited
from puller.resources.edits.formats.wanted import FormatError, Found, Setting

BLANKS = " \t\r\f\v"
_COMMENT_SIGNS = "#;"
_WORDS = {"True": "true", "False": "false", "None": "null"}  # as manifests write them
_NEVER = "\n\r\0"
_BY_BLANKS = re.compile(r"[ \t\r\f\v]*(?P<key>[^ \t]+)(?:[ \t]+(?P<value>.*))?", re.DOTALL)


class Pair(msgspec.Struct, frozen=True):
    """A line that is a setting."""

    index: int
    """The line, counted from 0."""
    key: str
    head: str
    """The line up to its value: indentation, key, sign and the blanks around it."""
    value: str | None
    """What follows, trailing blanks included; ``None`` where there is only the key."""
    end: int = -1
    """The last line of a value that continues, counted from 0. Negative if the value is on one line."""

    @property
    def lines(self) -> range:
        """All lines of the setting, comments within the value included."""
        return range(self.index, max(self.index, self.end) + 1)


def pair_by_sign(index: int, content: str, signs: Sequence[str]) -> Pair:
    """The setting of a line, whose key ends at the first of the ``signs``."""
    places = [(place, sign) for sign in signs if (place := content.find(sign)) >= 0]
    if not places:
        return _only_key(index, content)
    place, sign = min(places)
    behind = content[place + len(sign) :]
    value = behind.lstrip(" \t")
    head = content[: len(content) - len(value)]
    return Pair(index, content[:place].strip(BLANKS), head, value)


def pair_by_blanks(index: int, content: str) -> Pair:
    """The setting of a line, whose key ends at the first blank or tab."""
    match = _BY_BLANKS.match(content)
    if match is None or match["value"] is None:
        return _only_key(index, content)
    return Pair(index, match["key"], content[: match.start("value")], match["value"])


def _only_key(index: int, content: str) -> Pair:
    return Pair(index, content.strip(BLANKS), content.rstrip(BLANKS), None)


def is_blank(content: str) -> bool:
    """Whether a line has nothing in it."""
    return not content.strip(BLANKS)


def is_comment(content: str) -> bool:
    """Whether a line is a comment."""
    return content.lstrip(BLANKS)[:1] in ("#", ";")


def uncommented(content: str) -> str:
    """The text of a comment, without its signs."""
    return content.lstrip(BLANKS).lstrip(_COMMENT_SIGNS).strip(BLANKS)


def indentation_of(content: str) -> str:
    """The blanks that a line begins with."""
    return content[: len(content) - len(content.lstrip(" \t"))]


def behind_the_last(lines: Lines) -> int:
    """Where a line is put at the end of a text: before the blank lines that it ends with."""
    index = len(lines.contents)
    while index and is_blank(lines.contents[index - 1]):
        index -= 1
    return index


def found_pair(pairs: Sequence[Pair]) -> Found:
    """The value that the lines of one key give: the last one counts."""
    if not pairs:
        return Found(is_there=False)
    last = pairs[-1]
    value = None if last.value is None else last.value.rstrip(" \t")
    return Found(is_there=True, value=value, line=last.index + 1)


def with_pair(text: str, lines: Lines, pairs: Sequence[Pair], wanted: str) -> str:
    """Return the text in which the last setting of a key is the line ``wanted``, and the other settings are removed."""
    last = pairs[-1]
    replaced = {} if lines.contents[last.index] == wanted else {last.index: wanted}
    removed = [index for pair in pairs for index in pair.lines if index != last.index]
    return edited(lines, replaced=replaced, removed=removed) if replaced or removed else text


def without_pairs(text: str, lines: Lines, pairs: Sequence[Pair]) -> str:
    """Return the text without any line of these settings."""
    removed = [index for pair in pairs for index in pair.lines]
    return edited(lines, removed=removed) if removed else text


def proven(new: str, setting: Setting, find: Callable[[str, Setting], Found]) -> str:
    """The new text, which says what was wanted. Raises :class:`FormatError` where it does not."""
    if find(new, setting).value != setting.value:
        raise FormatError(f"{setting.key} cannot be written so that it is read back as it is wanted")
    return new


def pair_problems(setting: Setting, *, first_signs: str, signs: Sequence[str]) -> Iterator[PropertyError]:
    """The problems of a key, and a value, of one line.

    A key that began with one of ``first_signs``, or had one of ``signs`` in it, would not be found again.
    """
    key = setting.key
    if not isinstance(key, str):
        yield PropertyError("key", f"is the list {list(key)!r}, wanted one text", because=["format"])
    elif not key or key != key.strip() or any(sign in key for sign in _NEVER):
        yield PropertyError("key", f"is {key!r}, wanted text in one line, without blanks around it")
    elif key[0] in first_signs or any(sign in key for sign in signs):
        wanted = " or ".join(repr(sign) for sign in [*first_signs, *signs])
        yield PropertyError(
            "key", f"is {key!r}, wanted one without {wanted}", because=["format", "separator"]
        )
    if setting.value is not msgspec.UNSET:
        yield from value_problems(setting.value)


def value_problems(value: object, *, blanks: bool = False) -> Iterator[PropertyError]:
    """The problems of the value of one line; with ``blanks`` it may begin and end with them."""
    if not isinstance(value, str):
        written = _WORDS.get(repr(value), repr(value))
        yield PropertyError("value", f"is {written}, wanted text: put it in quotes", because=["format"])
    elif any(sign in value for sign in _NEVER):
        yield PropertyError("value", f"is {value!r}, wanted text in one line", because=["format"])
    elif not blanks and value != value.strip(" \t"):
        sentence = f"is {value!r}, wanted one that does not begin or end with a blank, which readers drop"
        yield PropertyError("value", sentence, because=["format"])
    elif not is_text(value):
        yield PropertyError("value", "has half a character, which no file can hold")


def is_text(text: str) -> bool:
    """Whether a file can hold it: it has no half of a pair of surrogates."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
