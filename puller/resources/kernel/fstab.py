"""Edits of ``/etc/fstab`` as text (fstab(5)): one line is changed, added or removed, and all other lines stay.

* Blanks, tabs and backslashes within a field are octal (``\\040``). A comment may follow the fields of a line.
* A changed line keeps its place, its comment and its separators.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

FSTAB = "/etc/fstab"
SWAP = "swap"
"""The type of an entry for swap. Its mount point has no meaning, and is usually ``none``."""

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_FIELD = re.compile(r"([ \t]*)([^ \t\r\n]+)")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_SPECIAL = re.compile(r"[ \t\n\\]")
_DEFAULTS = ("", "", "", "defaults", "0", "0")
_LEAST = 3  # minimum number of fields


class Fields(msgspec.Struct, frozen=True):
    """The decoded fields of an entry."""

    device: str
    point: str
    type: str
    options: tuple[str, ...] = ("defaults",)
    dump: int = 0
    passno: int = 0

    @property
    def key(self) -> str:
        """The text that identifies the entry: the mount point, and for swap, which has none, the device."""
        return self.device if self.type == SWAP else self.point

    def written(self) -> list[str]:
        """Return the fields as written in the file."""
        texts = (self.device, self.point, self.type, ",".join(self.options))
        return [*map(encoded, texts), str(self.dump), str(self.passno)]

    def same_as(self, other: "Fields") -> bool:
        """Return whether both are equal. The order of options does not matter."""
        return self._comparable() == other._comparable()

    def _comparable(self) -> tuple[object, ...]:
        return self.device, self.point, self.type, frozenset(self.options), self.dump, self.passno

    def __str__(self) -> str:
        return " ".join(self.written())


class Entry(msgspec.Struct, frozen=True):
    """One line for a mount point or for swap. ``number`` counts from 1. ``line`` is the original line."""

    fields: Fields
    number: int
    line: str


class Edit(msgspec.Struct, frozen=True):
    """The desired line of a key: fields, a whole line, or neither to remove the line."""

    key: str
    fields: Fields | None = None
    line: str = ""


def encoded(text: str) -> str:
    """Return a field as written in the file."""
    text = _SPECIAL.sub(lambda match: f"\\{ord(match[0]):03o}", text)
    return f"\\043{text[1:]}" if text.startswith("#") else text


def decoded(field: str) -> str:
    """Decode the octal escapes of a field of fstab or mountinfo."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field) if "\\" in field else field


def parse(text: str) -> dict[str, list[Entry]]:
    """Return all entries by key."""
    result: dict[str, list[Entry]] = {}
    for number, line in enumerate(_LINES.findall(text), start=1):
        if fields := _fields(line):
            result.setdefault(fields.key, []).append(Entry(fields, number, line))
    return result


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return the text after all edits. New lines are appended in their order."""
    lines: list[str] = _LINES.findall(text)
    known = {fields.key: index for index, line in enumerate(lines) if (fields := _fields(line))}
    for edit in edits:
        index = known.get(edit.key)
        if index is None:
            if edit.fields or edit.line:
                _append(lines, edit)
        elif edit.fields is not None:
            lines[index] = _with_fields(lines[index], edit.fields)
        else:
            lines[index] = edit.line
    return "".join(lines)


def _append(lines: list[str], edit: Edit) -> None:
    last = next((index for index in reversed(range(len(lines))) if lines[index]), None)
    if last is not None and not lines[last].endswith("\n"):
        lines[last] += "\n"
    lines.append(edit.line or f"{edit.fields}\n")


def _fields(line: str) -> Fields | None:
    texts = [text for _, text in _split(line)]
    if len(texts) < _LEAST:
        return None
    device, point, kind, options, dump, passno = (
        decoded(text) for text in (*texts, *_DEFAULTS[len(texts) :])
    )
    plain = point.rstrip("/") or point[:1]
    return Fields(device, plain, kind, (*options.split(","),), _number(dump), _number(passno))


def _split(line: str) -> list[tuple[str, str]]:
    """Return the fields as written, each with the separator before it, without the comment."""
    return [*_before_comment(line)][:6]


def _before_comment(line: str) -> Iterator[tuple[str, str]]:
    for match in _FIELD.finditer(line):
        if match[2].startswith("#"):
            return
        yield match[1], match[2]


def _number(text: str) -> int:
    return int(text) if (text.isascii() and text.isdecimal()) else 0


def _with_fields(line: str, fields: Fields) -> str:
    """Return a line with new fields that keeps its comment and separators."""
    pieces, texts = _split(line), fields.written()
    remainder = line[sum(len(blanks) + len(text) for blanks, text in pieces) :]
    # Write the last two fields only if the line has them or they are not 0.
    desired = max(len(pieces), 4 if (fields.dump, fields.passno) == (0, 0) else 6)
    blanks = [before for before, _ in pieces] + [" "] * (desired - len(pieces))
    old = _fields(line)
    if old is not None and set(old.options) == set(fields.options) and len(pieces) > 3:
        texts[3] = pieces[3][1]  # the same options in another order: keep the order of the line
    return "".join(before + text for before, text in zip(blanks, texts, strict=False)) + remainder
