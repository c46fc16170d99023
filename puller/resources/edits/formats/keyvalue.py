"""Settings of files with a key and its value on each line, and no sections (``docs/resources/setting.md``).

* A separator of blanks matches any blanks and tabs. Any other separator matches with any blanks around it.
* A value may continue over several lines (``text_lines.py``).
* A new key is inserted after the last comment that contains it, or else at the end, before trailing blank lines.
"""

from collections.abc import Iterator

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.text_lines import (
    Found,
    Pair,
    Setting,
    behind_the_last,
    edited,
    edited_in_all,
    extended,
    found_in_all,
    found_pair,
    is_blank,
    is_comment,
    last_lines,
    lines_of,
    pair_by_blanks,
    pair_by_sign,
    pair_problems,
    remembered,
    uncommented,
    with_pair,
    without_pairs,
)

NEW_TEXT = ""
_SEPARATOR = " "


class _Document(msgspec.Struct, frozen=True):
    pairs: dict[str, list[Pair]]
    commented: dict[str, int]
    """The last line that has the key commented out, by key."""


def problems(setting: Setting) -> Iterator[PropertyError]:
    """Yield errors of a setting that are independent of the file."""
    sign = _sign(setting)
    yield from pair_problems(setting, first_signs="#;", signs=(sign,) if sign else (" ", "\t"))
    separator = setting.separator
    if separator is not None and (not separator or any(sign in separator for sign in "\n\r\0")):
        yield PropertyError("separator", f"is {separator!r}, expected the sign between key and value")


def find(text: str, setting: Setting) -> Found:
    """Return the value and line of a key. Raises ``FormatError`` if the text is ambiguous."""

    def find_by(continuation: str) -> Found:
        return found_pair(_document(text, _sign(setting), continuation).pairs.get(str(setting.key), []))

    return found_in_all(text, setting, find_by, None)


def with_value(text: str, setting: Setting) -> str:
    """Return the text with the value. Raises ``FormatError`` if no edit is correct in every reading of the text."""
    return edited_in_all(text, setting, _with_value, _all_pairs, None)


def without(text: str, setting: Setting) -> str:
    """Return the text without the key. Raises ``FormatError`` as :func:`with_value`."""
    absent = msgspec.structs.replace(setting, value=msgspec.UNSET)
    return edited_in_all(text, absent, _without, _all_pairs, None)


def _with_value(text: str, setting: Setting, continuation: str) -> str:
    document, lines, key = _document(text, _sign(setting), continuation), lines_of(text), str(setting.key)
    separator = _SEPARATOR if setting.separator is None else setting.separator
    if pairs := document.pairs.get(key):
        head = pairs[-1].head + (separator if pairs[-1].value is None else "")
        return with_pair(text, lines, pairs, head + setting.value)
    commented = document.commented.get(key)
    at = behind_the_last(lines) if commented is None else commented + 1
    return edited(lines, at=at, inserted=[f"{key}{separator}{setting.value}"])


def _without(text: str, setting: Setting, continuation: str) -> str:
    pairs = _document(text, _sign(setting), continuation).pairs.get(str(setting.key), [])
    return without_pairs(text, lines_of(text), pairs)


def _all_pairs(text: str, setting: Setting, continuation: str) -> dict[tuple[str | None, str], list[Pair]]:
    pairs = _document(text, _sign(setting), continuation).pairs
    return {(setting.section, key): of_key for key, of_key in pairs.items()}


@remembered
def _document(text: str, sign: str, continuation: str) -> _Document:
    document, contents = _Document({}, {}), lines_of(text).contents
    ends, end = last_lines(text, continuation, None), -1
    for index, content in enumerate(contents):
        if index <= end or is_blank(content):
            continue
        if is_comment(content):
            pair = _pair(index, uncommented(content), sign)
            if pair.value is not None:
                document.commented[pair.key] = index
        else:
            end = ends.get(index, index)
            pair = extended(_pair(index, content, sign), contents, end, continuation)
            document.pairs.setdefault(pair.key, []).append(pair)
    return document


def _pair(index: int, content: str, sign: str) -> Pair:
    return pair_by_sign(index, content, (sign,)) if sign else pair_by_blanks(index, content)


def _sign(setting: Setting) -> str:
    """Return the separator without blanks. Empty if it consists of blanks."""
    return (_SEPARATOR if setting.separator is None else setting.separator).strip(" \t")
