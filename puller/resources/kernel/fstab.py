"""``/etc/fstab`` as the text that it is (fstab(5)): one line is changed, added or removed, all others stay.

* Blanks, tabs and backslashes within a field are octal (``\\040``). A comment may follow the fields of a line.
* A changed line keeps its place, its comment, and what separates its fields.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

FSTAB = "/etc/fstab"

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_FIELD = re.compile(r"([ \t]*)([^ \t\r\n]+)")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_SPECIAL = re.compile(r"[ \t\n\\]")
_DEFAULTS = ("", "", "", "defaults", "0", "0")
_LEAST = 3  # fields that a line has at least


class Fields(msgspec.Struct, frozen=True):
    """The fields of an entry, without octal numbers."""

    device: str
    point: str
    type: str
    options: tuple[str, ...] = ("defaults",)
    dump: int = 0
    passno: int = 0

    def written(self) -> list[str]:
        """The fields as they stand in the file."""
        texts = (self.device, self.point, self.type, ",".join(self.options))
        return [*map(encoded, texts), str(self.dump), str(self.passno)]

    def same_as(self, other: "Fields") -> bool:
        """Whether both say the same: the order of options says nothing."""
        return self._comparable() == other._comparable()

    def _comparable(self) -> tuple[object, ...]:
        return self.device, self.point, self.type, frozenset(self.options), self.dump, self.passno

    def __str__(self) -> str:
        return " ".join(self.written())


class Entry(msgspec.Struct, frozen=True):
    """One line for a mount point; ``number`` counts from 1, ``line`` is the line as it is."""

    fields: Fields
    number: int
    line: str


class Edit(msgspec.Struct, frozen=True):
    """The line that a mount point is to have: fields, or a whole line, or none."""

    point: str
    fields: Fields | None = None
    line: str = ""


def encoded(text: str) -> str:
    """A field as it stands in the file."""
    text = _SPECIAL.sub(lambda match: f"\\{ord(match[0]):03o}", text)
    return f"\\043{text[1:]}" if text.startswith("#") else text


def decoded(field: str) -> str:
    """A field, or one of mountinfo, without its octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field) if "\\" in field else field


def parse(text: str) -> dict[str, list[Entry]]:
    """All entries, by mount point."""
    found: dict[str, list[Entry]] = {}
    for number, line in enumerate(_LINES.findall(text), start=1):
        if fields := _fields(line):
            found.setdefault(fields.point, []).append(Entry(fields, number, line))
    return found


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with all edits made; what is new stands at the end, in their order."""
    lines: list[str] = _LINES.findall(text)
    known = {fields.point: index for index, line in enumerate(lines) if (fields := _fields(line))}
    for edit in edits:
        index = known.get(edit.point)
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
    """The fields of a line as they stand there, each with what is before it; not the comment."""
    return [*_before_comment(line)][:6]


def _before_comment(line: str) -> Iterator[tuple[str, str]]:
    for match in _FIELD.finditer(line):
        if match[2].startswith("#"):
            return
        yield match[1], match[2]


def _number(text: str) -> int:
    return int(text) if (text.isascii() and text.isdecimal()) else 0


def _with_fields(line: str, fields: Fields) -> str:
    """A line with other fields, and its own comment and blanks."""
    parts, texts = _split(line), fields.written()
    rest = line[sum(len(blanks) + len(text) for blanks, text in parts) :]
    # The last two are there only where somebody has written them, or they say something.
    wanted = max(len(parts), 4 if (fields.dump, fields.passno) == (0, 0) else 6)
    blanks = [before for before, _ in parts] + [" "] * (wanted - len(parts))
    old = _fields(line)
    if old is not None and set(old.options) == set(fields.options) and len(parts) > 3:
        texts[3] = parts[3][1]  # in another order: it stays as somebody has written it
    return "".join(before + text for before, text in zip(blanks, texts, strict=False)) + rest
