"""A strict reader of tar archives from front to back. ``puller.resources.archives.compression`` uncompresses them.

* Supported dialects: ustar, PAX, GNU long names and large sizes, and the original format (V7).
* Each member is a file, a directory or a link. An ambiguous header is an error.
* An archive must end with the end marker, followed by zeros only.
* Memory holds one piece of the archive at a time. Output counts against the limits before the caller gets it.
"""

import re
from collections.abc import Iterator

import msgspec

from bundles.errors import FormatError
from bundles.format.fields import MemberPath, shown
from puller.resources.archives.members import (
    Budget,
    Member,
    Type,
    directory_mode,
    file_mode,
    link_target,
    parse_path,
)

# Uncompressed bytes of an archive, read in exact sizes.


class ArchiveSource:
    """A reader of ``pieces`` in exact sizes. ``place`` is the current position for messages. Raises ``FormatError``."""

    def __init__(self, pieces: Iterator[bytes], budget: Budget) -> None:
        self.place = ""
        self._pieces = pieces
        self._budget = budget
        self._ready = b""
        self._at = 0

    def read(self, count: int) -> bytes:
        """Return exactly ``count`` bytes. Intended for small counts, because they are held in memory."""
        while len(self._ready) - self._at < count:
            if not (piece := self._next()):
                raise FormatError(self.place, "the archive is cut off here")
            self._ready, self._at = self._ready[self._at :] + piece, 0
        self._at += count
        return self._ready[self._at - count : self._at]

    def pieces(self, count: int) -> Iterator[bytes]:
        """Yield exactly ``count`` bytes."""
        while count:
            if self._at == len(self._ready):
                self._ready, self._at = self._next(), 0
            portion = min(count, max(1, len(self._ready) - self._at))
            yield self.read(portion)
            count -= portion

    def rest(self) -> Iterator[bytes]:
        """Yield the remaining bytes."""
        yield self._ready[self._at :]
        while piece := self._next():
            yield piece

    def _next(self) -> bytes:
        piece = next(self._pieces, b"")
        self._budget.take(len(piece))
        return piece


BLOCK = 512

_ZEROS = bytes(BLOCK)
_LARGEST_EXTRA = 1024 * 1024  # bytes in a PAX header, or in a GNU name
_LARGEST_OCTAL = 8**11  # larger sizes do not fit into the header and need a PAX record

_KINDS = {
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"S": "a GNU sparse file",
    b"D": "a GNU directory listing",
    b"M": "the rest of a file from another GNU volume",
    b"N": "a GNU long name of the oldest kind",
    b"V": "a GNU volume label",
    b"X": "a Solaris PAX header",
}
_TYPES = {
    b"0": Type.FILE,
    b"\0": Type.FILE,
    b"1": Type.HARD_LINK,
    b"2": Type.LINK,
    b"5": Type.DIRECTORY,
}
_RECORD = re.compile(rb"([1-9]\d{0,6}) ([^=\n]+)=")
_NUMBER = re.compile(rb"-?(\d{1,18})(?:\.\d*)?")


class TarReader:
    """The members of a tar archive in ``source``. Raises ``FormatError`` for an invalid archive.

    Each member comes with its content. Unread content is skipped.
    """

    def __init__(self, source: ArchiveSource, budget: Budget) -> None:
        self._source = source
        self._budget = budget

    def __iter__(self) -> Iterator[tuple[Member, Iterator[bytes]]]:
        extended = _ExtendedHeaders()
        while (block := self._read_block("a header")) != _ZEROS:
            header = _Header.parse(block)
            if header.kind in (b"x", b"g", b"L", b"K"):
                self._read_extra(header, extended)
                continue
            member = _member(header, extended)
            extended = _ExtendedHeaders()
            if member is not None:
                self._budget.take_entry()
                yield from self._with_contents(member)
        if extended != _ExtendedHeaders():
            raise FormatError("", "ends after the header of a member that does not come")
        self._finish()

    def _with_contents(self, member: Member) -> Iterator[tuple[Member, Iterator[bytes]]]:
        self._source.place = shown(member.path.text)
        contents = self._source.pieces(member.size)
        yield member, contents
        for _ in contents:
            pass
        self._source.read(-member.size % BLOCK)

    def _read_block(self, place: str) -> bytes:
        self._source.place = place
        return self._source.read(BLOCK)

    def _read_extra(self, header: "_Header", extended: "_ExtendedHeaders") -> None:
        size = header.number("size")
        if size > _LARGEST_EXTRA:
            raise FormatError(shown(header.name), f"is {size} bytes of names and numbers")
        data = self._source.read(size)
        self._source.read(-size % BLOCK)
        if header.kind in (b"x", b"g"):
            extended.add_pax(data, everywhere=header.kind == b"g")
        else:
            extended.add("path" if header.kind == b"L" else "linkpath", data.removesuffix(b"\0"))

    def _finish(self) -> None:
        if self._read_block("the end") != _ZEROS:
            raise FormatError("the end", "is one empty block", expected="two")
        for piece in self._source.rest():
            if piece.count(0) != len(piece):
                raise FormatError("", "goes on after its end")


class _ExtendedHeaders(msgspec.Struct):
    """Values of PAX and GNU headers for the next member."""

    values: dict[str, bytes] = {}

    def add(self, key: str, value: bytes) -> None:
        """Store the value of a record or header. Raises ``FormatError`` for a duplicate."""
        if key in self.values:
            raise FormatError(shown(value), f"is the second {key} for one member")
        self.values[key] = value

    def add_pax(self, data: bytes, *, everywhere: bool) -> None:
        """Read the records of a PAX header. Irrelevant records (owners, comments, labels) are skipped.

        Raises ``FormatError``.
        """
        position = 0
        while position < len(data):
            match = _RECORD.match(data, position)
            end = position + int(match[1]) if match else 0
            if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
                raise FormatError(shown(data[position : position + 40]), "is not a record of a PAX header")
            key, value = match[2].decode(errors="replace"), data[match.end() : end - 1]
            if key.startswith("GNU.sparse."):
                raise FormatError(shown(key), "makes a sparse file, which is not unpacked")
            if key in ("path", "linkpath", "size") or (key == "mtime" and not everywhere):
                if everywhere:
                    raise FormatError(shown(key), "must not be in a global PAX header")
                self.add(key, value)
            position = end


class _Header(msgspec.Struct, frozen=True):
    """The relevant fields of a header. ``block`` is the whole header."""

    name: bytes
    kind: bytes
    link: bytes
    block: bytes

    @classmethod
    def parse(cls, block: bytes) -> "_Header":
        """Parse a block of 512 bytes. Raises ``FormatError`` for an invalid checksum."""
        if block[257:262] != b"ustar" and block[257:265] != bytes(8):
            raise FormatError("", "is not a tar archive: a header is missing")
        header = cls(_text(block[:100]), block[156:157], _text(block[157:257]), block)
        # The checksum field itself counts as blanks.
        computed = sum(block) - sum(block[148:156]) + 8 * ord(" ")
        if (checksum := header.number("checksum")) != computed:
            where = shown(header.name) if checksum or header.name else ""
            raise FormatError(where, f"the checksum of its header is {checksum}, computed {computed}")
        if block[257:265] == b"ustar\x0000" and (prefix := _text(block[345:500])):
            # GNU uses these bytes for other fields.
            return msgspec.structs.replace(header, name=prefix + b"/" + header.name)
        return header

    def number(self, field: str) -> int:
        """Return a numeric field: octal digits, or base 256 for large values. Raises ``FormatError``."""
        start, end = {"mode": (100, 108), "size": (124, 136), "time": (136, 148), "checksum": (148, 156)}[
            field
        ]
        raw = self.block[start:end]
        if raw[0] == 0x80:
            return int.from_bytes(raw[1:], "big")
        digits = raw.strip(b" \0")
        if digits and digits.strip(b"01234567"):
            raise FormatError(shown(self.name), f"{field} is {shown(raw)}", expected="octal digits")
        return int(digits or b"0", 8)

    @property
    def is_old(self) -> bool:
        """Whether the format precedes ustar, where a directory is a file with a trailing slash in its name."""
        return self.block[257:265] == bytes(8)


def _member(header: _Header, extended: _ExtendedHeaders) -> Member | None:
    name = extended.values.get("path", header.name)
    type_ = _TYPES.get(header.kind)
    if type_ is None:
        what = _KINDS.get(header.kind, f"of the unknown type {header.kind.decode('latin-1')!r}")
        raise FormatError(shown(name), f"is {what}", expected="a file, a directory or a link")
    if type_ is Type.FILE and header.is_old and name.endswith(b"/"):
        type_ = Type.DIRECTORY
    path = parse_path(name, directory=type_ is Type.DIRECTORY)
    size = _size(name, header, extended)
    if size and type_ is not Type.FILE:
        raise FormatError(shown(name), f"is {type_.value} with {size} bytes of contents")
    if path is None:
        return None
    mode = header.number("mode")
    return Member(
        path,
        type_,
        directory_mode(mode) if type_ is Type.DIRECTORY else file_mode(mode),
        size,
        _time(header, extended),
        _target(path, type_, extended.values.get("linkpath", header.link)),
    )


def _target(path: MemberPath, type_: Type, link: bytes) -> str:
    if type_ is Type.LINK:
        return link_target(path, link)
    if type_ is Type.HARD_LINK:
        target = parse_path(link)
        return target.text if target else ""
    return ""


def _size(name: bytes, header: _Header, extended: _ExtendedHeaders) -> int:
    size = header.number("size")
    if "size" not in extended.values:
        return size
    match = _NUMBER.fullmatch(extended.values["size"])
    reported = int(match[1]) if match and extended.values["size"].isdigit() else -1
    if reported < 0 or (reported != size and reported < _LARGEST_OCTAL):
        raise FormatError(shown(name), f"size is {size}, its PAX header has {shown(extended.values['size'])}")
    return reported


def _time(header: _Header, extended: _ExtendedHeaders) -> int | None:
    if "mtime" not in extended.values:
        return header.number("time")
    match = _NUMBER.fullmatch(extended.values["mtime"])
    return int(match[1]) if match and not extended.values["mtime"].startswith(b"-") else None


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]
