"""Lines of a text, ``key value`` pairs in lines, and values that continue over several lines.

* Only LF ends a line. If the first line ends with CRLF, new and replaced lines end with CRLF too. The CR is not part of
  the content.
* Unchanged lines keep their ending. An unterminated last line is completed before a line is added.
* The ini, keyvalue and shell formats share the pairs. Libraries such as ConfigUpdater reject duplicate headers and
  keys, which are common in these files, and do not support commented keys.

Programs disagree about continuation, and the text alone does not show which program reads it:

* ``indent``: a line that is indented more than its setting continues the value. Comments and blank lines may stand
  between (configparser, supervisor, Postfix, OpenLDAP).
* ``backslash``: a line that ends with a backslash continues in the next line. In ini files comment lines may stand
  between (systemd, git). In keyvalue files every line counts (``.properties``).
* ``none``: values never continue (OpenSSH, MySQL, PHP).

A setting names the rule in ``continuation``. Without it, an edit must be correct by every rule that the text allows:
the key has the desired value, and every other setting keeps its value. Otherwise the edit is refused.

Terms that all formats share: a setting, its value in a text, and errors.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from puller.errors import ResourceError
from puller.resources.base import PropertyError

CONTINUATIONS = ("none", "indent", "backslash")
"""Rules for values that continue in the next line. See ``text_lines.py``."""


class FormatError(ResourceError):
    """A text in which a setting cannot be found or safely changed. Names the line if possible."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, from the properties of its resource."""

    key: str | tuple[str, ...]
    """The key. In yaml, toml and json, dots or a tuple of names give the path in the tree."""
    section: str | None = None
    """The section, in ini."""
    value: Any = msgspec.UNSET
    """The desired value, with secrets revealed. Unset if the setting should be absent."""
    separator: str | None = None
    """The separator of key and value in a new line, in ini and keyvalue. ``None``: the default of the format."""
    continuation: str | None = None
    """The continuation rule in ini and keyvalue: one of ``CONTINUATIONS``, or ``None`` if unknown."""

    @property
    def is_absent(self) -> bool:
        """Whether the setting has no value."""
        return self.value is msgspec.UNSET


class Found(msgspec.Struct, frozen=True):
    """The state of a setting in a text."""

    is_there: bool
    value: Any = None
    """The value that a program reads. Text in ini, shell and keyvalue. ``None`` for a key without a sign."""
    line: int | None = None
    """The line of the key, counted from 1. For several lines, the last one, which takes precedence."""


# A cache of parsed texts for the next setting in the same text.

P = ParamSpec("P")
R = TypeVar("R")

_LARGE = 1 << 20
"""The size in characters of a large text. Only two of these are cached, because a tree is many times its text."""


def remembered(read: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
    """Cache the last few results of ``read``, a pure function of a text."""
    small, large = lru_cache(maxsize=16)(read), lru_cache(maxsize=2)(read)

    def answer(text: str, /, *additional: P.args, **named: P.kwargs) -> R:
        return (small if len(text) < _LARGE else large)(text, *additional, **named)  # type: ignore[arg-type]

    return answer


class Lines(msgspec.Struct, frozen=True):
    """A text as lines, counted from 0."""

    contents: tuple[str, ...]
    """The lines without their endings."""
    endings: tuple[str, ...]
    """LF or CRLF for each line. The last one may be empty."""
    ending: str
    """The ending of a new line."""


@remembered
def lines_of(text: str) -> Lines:
    """Return the lines of a text. Empty for an empty text."""
    contents = text.split("\n")
    if not contents[-1]:
        contents.pop()
        endings = ["\n"] * len(contents)
    else:
        endings = ["\n"] * (len(contents) - 1) + [""]
    if ending_of(text) != "\r\n":
        return Lines(tuple(contents), tuple(endings), "\n")
    for index, content in enumerate(contents):
        if endings[index] and content.endswith("\r"):
            contents[index], endings[index] = content[:-1], "\r\n"
    return Lines(tuple(contents), tuple(endings), "\r\n")


def ending_of(text: str) -> str:
    """Return the line ending for a new line of the text."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def edited(
    lines: Lines,
    *,
    replaced: Mapping[int, str] | None = None,
    removed: Collection[int] = (),
    at: int = 0,
    inserted: Sequence[str] = (),
) -> str:
    """Return the text with lines ``replaced`` and ``removed`` by number, and lines ``inserted`` before line ``at``."""
    replaced, gone = replaced or {}, frozenset(removed)
    pieces: list[str] = []
    for index, (content, ending) in enumerate(zip(lines.contents, lines.endings, strict=True)):
        if index == at:
            pieces += (line + lines.ending for line in inserted)
        if index in replaced:
            pieces.append(replaced[index] + lines.ending)
        elif index not in gone:
            pieces.append(content + ending)
    if at >= len(lines.contents) and inserted:
        if pieces and not pieces[-1].endswith("\n"):
            pieces[-1] += lines.ending
        pieces += (line + lines.ending for line in inserted)
    return "".join(pieces)


# Pairs of key and value in one line.

BLANKS = " \t\r\f\v"
_COMMENT_SIGNS = "#;"
_WORDS = {"True": "true", "False": "false", "None": "null"}  # as in manifests
_NEVER = "\n\r\0"
_BY_BLANKS = re.compile(r"[ \t\r\f\v]*(?P<key>[^ \t]+)(?:[ \t]+(?P<value>.*))?", re.DOTALL)


class Pair(msgspec.Struct, frozen=True):
    """A line that is a setting."""

    index: int
    """The line, counted from 0."""
    key: str
    head: str
    """The line before its value: indentation, key, sign and the blanks around it."""
    value: str | None
    """The value, including trailing blanks. ``None`` for a key alone."""
    end: int = -1
    """The last line of a value that continues, counted from 0. Negative if the value is on one line."""

    @property
    def lines(self) -> range:
        """All lines of the setting, comments within the value included."""
        return range(self.index, max(self.index, self.end) + 1)


def pair_by_sign(index: int, content: str, signs: Sequence[str]) -> Pair:
    """Return the setting of a line whose key ends at the first of the ``signs``."""
    places = [(place, sign) for sign in signs if (place := content.find(sign)) >= 0]
    if not places:
        return _only_key(index, content)
    place, sign = min(places)
    behind = content[place + len(sign) :]
    value = behind.lstrip(" \t")
    head = content[: len(content) - len(value)]
    return Pair(index, content[:place].strip(BLANKS), head, value)


def pair_by_blanks(index: int, content: str) -> Pair:
    """Return the setting of a line whose key ends at the first blank or tab."""
    match = _BY_BLANKS.match(content)
    if match is None or match["value"] is None:
        return _only_key(index, content)
    return Pair(index, match["key"], content[: match.start("value")], match["value"])


def _only_key(index: int, content: str) -> Pair:
    return Pair(index, content.strip(BLANKS), content.rstrip(BLANKS), None)


def is_blank(content: str) -> bool:
    """Return whether a line is blank."""
    return not content.strip(BLANKS)


def is_comment(content: str) -> bool:
    """Return whether a line is a comment."""
    return content.lstrip(BLANKS)[:1] in ("#", ";")


def uncommented(content: str) -> str:
    """Return the text of a comment, without its signs."""
    return content.lstrip(BLANKS).lstrip(_COMMENT_SIGNS).strip(BLANKS)


def indentation_of(content: str) -> str:
    """Return the leading blanks of a line."""
    return content[: len(content) - len(content.lstrip(" \t"))]


def behind_the_last(lines: Lines) -> int:
    """Return the index for a new line at the end of a text, before trailing blank lines."""
    index = len(lines.contents)
    while index and is_blank(lines.contents[index - 1]):
        index -= 1
    return index


def found_pair(pairs: Sequence[Pair]) -> Found:
    """Return the value of the last line of a key."""
    if not pairs:
        return Found(is_there=False)
    last = pairs[-1]
    value = None if last.value is None else last.value.rstrip(" \t")
    return Found(is_there=True, value=value, line=last.index + 1)


def with_pair(text: str, lines: Lines, pairs: Sequence[Pair], desired: str) -> str:
    """Return the text with the line ``desired`` as the last setting of a key, and without its other settings."""
    last = pairs[-1]
    replaced = {} if lines.contents[last.index] == desired else {last.index: desired}
    removed = [index for pair in pairs for index in pair.lines if index != last.index]
    return edited(lines, replaced=replaced, removed=removed) if replaced or removed else text


def without_pairs(text: str, lines: Lines, pairs: Sequence[Pair]) -> str:
    """Return the text without any line of these settings."""
    removed = [index for pair in pairs for index in pair.lines]
    return edited(lines, removed=removed) if removed else text


def proven(new: str, setting: Setting, find: Callable[[str, Setting], Found]) -> str:
    """Return the new text if it has the desired value. Raises :class:`FormatError` otherwise."""
    if find(new, setting).value != setting.value:
        raise FormatError(f"{setting.key} cannot be written so that it is read back with the same value")
    return new


def pair_problems(setting: Setting, *, first_signs: str, signs: Sequence[str]) -> Iterator[PropertyError]:
    """Yield errors of a key and a value in one line.

    A key must not begin with one of ``first_signs`` or contain one of ``signs``, because it could not be parsed again.
    """
    key = setting.key
    if not isinstance(key, str):
        yield PropertyError("key", f"is the list {list(key)!r}, expected one text", because=["format"])
    elif not key or key != key.strip() or any(sign in key for sign in _NEVER):
        yield PropertyError("key", f"is {key!r}, expected text in one line, without blanks around it")
    elif key[0] in first_signs or any(sign in key for sign in signs):
        expected = " or ".join(repr(sign) for sign in [*first_signs, *signs])
        yield PropertyError(
            "key", f"is {key!r}, expected one without {expected}", because=["format", "separator"]
        )
    if setting.value is not msgspec.UNSET:
        yield from value_problems(setting.value)


def value_problems(value: object, *, blanks: bool = False) -> Iterator[PropertyError]:
    """Yield errors of a value in one line. With ``blanks``, blanks at its start and end are allowed."""
    if not isinstance(value, str):
        written = _WORDS.get(repr(value), repr(value))
        yield PropertyError("value", f"is {written}, expected text: put it in quotes", because=["format"])
    elif any(sign in value for sign in _NEVER):
        yield PropertyError("value", f"is {value!r}, expected text in one line", because=["format"])
    elif not blanks and value != value.strip(" \t"):
        sentence = f"is {value!r}, expected one that does not begin or end with a blank, which readers drop"
        yield PropertyError("value", sentence, because=["format"])
    elif not is_text(value):
        yield PropertyError("value", "has half a character, which no file can hold")


def is_text(text: str) -> bool:
    """Return whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


# Continued values of ini and keyvalue files.

Pairs = Mapping[tuple[str | None, str], Sequence[Pair]]
"""All settings of a text, by section and key."""
ReadPairs = Callable[[str, Setting, str], Pairs]
"""Reads a text by one rule of continuation."""
EditText = Callable[[str, Setting, str], str]
"""Edits a text by one rule of continuation."""
HeaderTest = Callable[[str], bool]
_ADVICE = "set continuation to indent, backslash or none, as the program reads the file"


@remembered
def last_lines(text: str, continuation: str, is_header: HeaderTest | None) -> dict[int, int]:
    """Return the last line of each value that has several lines, by its first line.

    ``is_header`` recognizes section headers. It is ``None`` for keyvalue files.
    """
    if continuation == "none":
        return {}
    contents = lines_of(text).contents
    return dict((_indented if continuation == "indent" else _joined)(contents, is_header))


def _indented(contents: Sequence[str], is_header: HeaderTest | None) -> Iterator[tuple[int, int]]:
    start, depth = None, 0
    for index, content in enumerate(contents):
        # Postfix reads an indented semicolon as part of the value.
        if is_blank(content) or (is_comment(content) if is_header else content.lstrip(BLANKS)[:1] == "#"):
            continue
        indentation = len(indentation_of(content))
        if start is not None and indentation > depth:
            yield start, index
        else:
            start = None if is_header and is_header(content) else index
            depth = indentation


def _joined(contents: Sequence[str], is_header: HeaderTest | None) -> Iterator[tuple[int, int]]:
    start = None
    for index, content in enumerate(contents):
        if start is None:
            is_setting = not is_blank(content) and not is_comment(content)
            if is_setting and not (is_header and is_header(content)) and _goes_on(content, is_header):
                start = index
        elif not (is_header and is_comment(content)):
            yield start, index
            if not _goes_on(content, is_header):
                start = None


def _goes_on(content: str, is_header: HeaderTest | None) -> bool:
    """Return whether the last backslash of a line is unescaped. systemd ignores blanks after it."""
    content = content.rstrip(BLANKS) if is_header else content
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def extended(pair: Pair, contents: Sequence[str], last: int, continuation: str) -> Pair:
    """Return the setting with all lines of its value, which are joined by newlines."""
    remainder = [content.strip(BLANKS) for content in contents[pair.index + 1 : last + 1]]
    if not remainder and continuation == "backslash" and contents[pair.index].rstrip(BLANKS).endswith("\\"):
        remainder = [""]  # The file ends within the value.
    if not remainder:
        return pair
    return Pair(pair.index, pair.key, pair.head, "\n".join([pair.value or "", *remainder]), last)


def found_in_all(
    text: str, setting: Setting, find: Callable[[str], Found], is_header: HeaderTest | None
) -> Found:
    """Return the value and line of a key. Raises :class:`FormatError` if the rules of continuation disagree."""
    first, *others = (find(rule) for rule in _rules(text, setting, is_header))
    if any(other != first for other in others):
        raise _ambiguous(text, setting, is_header)
    return first


def edited_in_all(
    text: str, setting: Setting, edit: EditText, read: ReadPairs, is_header: HeaderTest | None
) -> str:
    """Return the text with one setting changed, or ``text`` itself if it is in sync.

    Without a value the setting is removed. Raises :class:`FormatError` if no edit is correct by every rule that the
    text allows.
    """
    rules = _rules(text, setting, is_header)
    for rule in rules:
        new = edit(text, setting, rule)
        after = rules if setting.continuation else dict.fromkeys([*rules, *_rules(new, setting, is_header)])
        if all(_is_only_change(read(text, setting, r), read(new, setting, r), setting) for r in after):
            return text if new == text else new
    if setting.continuation or (len(rules) == 1 and len(after) == 1):
        raise FormatError(f"{setting.key} cannot be changed so that this and every other key is read back")
    raise _ambiguous(new if len(rules) == 1 else text, setting, is_header)


def _rules(text: str, setting: Setting, is_header: HeaderTest | None) -> Sequence[str]:
    """Return the possible rules for the text, the likeliest one first."""
    return (setting.continuation,) if setting.continuation else _possible(text, is_header)


@remembered
def _possible(text: str, is_header: HeaderTest | None) -> Sequence[str]:
    rules = ["none"]
    if "\n " in text or "\n\t" in text:
        rules += ["indent"] if last_lines(text, "indent", is_header) else []
    if "\\" in text and any(
        _goes_on(content, is_header) and not is_comment(content) for content in lines_of(text).contents
    ):
        rules.append("backslash")
    return rules[::-1]


def _is_only_change(before: Pairs, after: Pairs, setting: Setting) -> bool:
    place = (setting.section, str(setting.key))
    expected = {**_values(before), place: [] if setting.is_absent else [setting.value]}
    if not expected[place]:
        del expected[place]
    return _values(after) == expected


def _values(pairs: Pairs) -> dict[tuple[str | None, str], object]:
    return {
        place: [None if pair.value is None else pair.value.rstrip(BLANKS) for pair in of_key]
        for place, of_key in pairs.items()
        if of_key
    }


def _ambiguous(text: str, setting: Setting, is_header: HeaderTest | None) -> FormatError:
    """Return the error that names the lines that may continue the value, or contain the key."""
    contents, key = lines_of(text).contents, str(setting.key)
    rules = ("indent", "backslash")
    spans = sorted(span for rule in rules for span in last_lines(text, rule, is_header).items())
    near = [span for span in spans if any(key in content for content in contents[span[0] : span[1] + 1])]
    if not spans:
        return FormatError(f"the last line ends with a backslash, so its value may continue; {_ADVICE}")
    start, last = (near or spans)[0]
    lines = f"line {start + 2}" if last == start + 1 else f"lines {start + 2} to {last + 1}"
    return FormatError(f"{lines} may continue the value of line {start + 1}; {_ADVICE}")
