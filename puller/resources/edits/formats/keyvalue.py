"""Settings of files with a key and its value on each line, and no sections (``types.md`` section 4.4).

* With a separator of blanks, any blanks and tabs separate; otherwise the separator, with any blanks around it.
* A new key stands behind the last commented-out line of it, else at the end, before trailing blank lines.
"""

from collections.abc import Iterator

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.lines import edited, lines_of
from puller.resources.edits.formats.pairs import (
    Pair,
    behind_the_last,
    found_pair,
    is_blank,
    is_comment,
    pair_by_blanks,
    pair_by_sign,
    pair_problems,
    proven,
    uncommented,
    with_pair,
    without_pairs,
)
from puller.resources.edits.formats.remembered import remembered
from puller.resources.edits.formats.wanted import Found, Setting

NEW_TEXT = ""
_SEPARATOR = " "


class _Document(msgspec.Struct, frozen=True):
    pairs: dict[str, list[Pair]]
    commented: dict[str, int]
    """The last line that has the key commented out."""


def problems(setting: Setting) -> Iterator[PropertyError]:
    """The problems of a setting whatever the file says."""
    sign = _sign(setting)
    yield from pair_problems(setting, first_signs="#;", signs=(sign,) if sign else (" ", "\t"))
    separator = setting.separator
    if separator is not None and (not separator or any(sign in separator for sign in "\n\r\0")):
        yield PropertyError("separator", f"is {separator!r}, wanted what stands between key and value")


def find(text: str, setting: Setting) -> Found:
    """The value and place of a key."""
    return found_pair(_document(text, _sign(setting)).pairs.get(str(setting.key), []))


def with_value(text: str, setting: Setting) -> str:
    """The text with the value. Raises ``FormatError`` for a value that goes on in the next line."""
    document, lines, key = _document(text, _sign(setting)), lines_of(text), str(setting.key)
    separator = _SEPARATOR if setting.separator is None else setting.separator
    if pairs := document.pairs.get(key):
        head = pairs[-1].head + (separator if pairs[-1].value is None else "")
        new = with_pair(text, lines, pairs, head + setting.value)
    else:
        commented = document.commented.get(key)
        at = behind_the_last(lines) if commented is None else commented + 1
        new = edited(lines, at=at, inserted=[f"{key}{separator}{setting.value}"])
    return new if new is text else proven(new, setting, find)


def without(text: str, setting: Setting) -> str:
    """The text without the key. Raises ``FormatError`` as :func:`with_value`."""
    pairs = _document(text, _sign(setting)).pairs.get(str(setting.key), [])
    return without_pairs(text, lines_of(text), pairs)


@remembered
def _document(text: str, sign: str) -> _Document:
    document = _Document({}, {})
    for index, content in enumerate(lines_of(text).contents):
        if is_comment(content):
            pair = _pair(index, uncommented(content), sign)
            if pair.value is not None:
                document.commented[pair.key] = index
        elif not is_blank(content):
            pair = _pair(index, content, sign)
            document.pairs.setdefault(pair.key, []).append(pair)
    return document


def _pair(index: int, content: str, sign: str) -> Pair:
    return pair_by_sign(index, content, (sign,)) if sign else pair_by_blanks(index, content)


def _sign(setting: Setting) -> str:
    """What separates, without blanks; empty where blanks do."""
    return (_SEPARATOR if setting.separator is None else setting.separator).strip(" \t")
