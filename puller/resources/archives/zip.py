"""A strict reader of zip archives.

* The central directory at the end is authoritative. The header before each file must agree with it.
* Every byte belongs to at most one file, so that files cannot overlap.
* Sizes and checksums are compared with the uncompressed content. Bytes beyond a declared size are never returned.

``zipfile`` is unsuitable: it truncates names at NUL, trusts one of two headers, and older versions read overlapping
files.
"""

import stat
import struct
import time
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from bundles.errors import FormatError
from bundles.format.fields import MemberPath, shown
from foundation.quantities import counted
from puller.resources.archives.members import (
    LONGEST_TARGET,
    Budget,
    Limits,
    Member,
    Type,
    directory_mode,
    file_mode,
    link_target,
    parse_path,
    refuse_kind,
)

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s4B4H3L5H2L")
_LOCAL = struct.Struct("<4s2B4H3L2H")

_LONGEST_COMMENT = 0xFFFF
_NOT_HERE = 0xFFFFFFFF  # marks a number that is stored in a zip64 record
_PIECE = 256 * 1024

_STORED, _DEFLATED = 0, 8
_DESCRIPTOR_FOLLOWS = 1 << 3
_REFUSED_FLAGS = {
    1 << 0: "is encrypted",
    1 << 5: "is a patch",
    1 << 6: "is encrypted",
    1 << 13: "has a masked header",
}


class _Entry(msgspec.Struct, frozen=True):
    """An entry of the central directory."""

    name: bytes
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int
    size: int
    mode: int
    """The ``st_mode``, or 0 if the creating system has no file modes."""
    offset: int


class ZipReader:
    """The members of a zip archive of ``size`` bytes. Raises ``FormatError`` for an invalid archive."""

    def __init__(self, stream: BinaryIO, size: int, limits: Limits, budget: Budget) -> None:
        self._stream = stream
        self._size = size
        self._limits = limits
        self._budget = budget

    def __iter__(self) -> Iterator[tuple[Member, Iterator[bytes]]]:
        entries, end = self._read_directory()
        free_from = 0
        # In the order of their offsets, so that a comparison with the previous file detects every overlap.
        for entry in sorted(entries, key=lambda entry: entry.offset):
            if entry.offset < free_from:
                raise FormatError(shown(entry.name), "overlaps with another file")
            start = self._read_local_header(entry)
            free_from = start + entry.packed
            if free_from > end:
                raise FormatError(shown(entry.name), "overlaps with the table of contents")
            contents = self._contents(entry, start)
            member = _member(entry, contents)
            if member is not None:
                yield member, contents
            for _ in contents:
                pass

    def _read(self, at: int, count: int, what: str) -> bytes:
        self._stream.seek(at)
        if at < 0 or len(data := self._stream.read(count)) != count:
            raise FormatError("", f"is cut off: {what} is not there")
        return data

    # The central directory

    def _read_directory(self) -> tuple[list[_Entry], int]:
        """Return all entries, and the offset of their directory."""
        count, size, offset = self._find_directory()
        if size > self._limits.directory or count * _CENTRAL.size > size:
            raise FormatError("", f"has a table of contents of {size} bytes for {counted(count, 'file')}")
        data = self._read(offset, size, "its table of contents")
        entries, position = [], 0
        for _ in range(count):
            entry, position = _read_entry(data, position)
            self._budget.take_entry()
            entries.append(entry)
        if position != size:
            raise FormatError(
                "",
                f"has a table of contents of {size} bytes, but {position} for {counted(count, 'file')}",
            )
        return entries, offset

    def _find_directory(self) -> tuple[int, int, int]:
        """Return the number of files, and the size and offset of the central directory."""
        place, fields = self._find_end()
        _, disk, first_disk, here, count, size, offset, _ = fields
        if place >= _LOCATOR_64.size:
            locator = self._read(place - _LOCATOR_64.size, _LOCATOR_64.size, "its end")
            if locator.startswith(b"PK\6\7"):
                place, numbers = self._find_end_64(place - _LOCATOR_64.size, locator)
                for short, long, unknown in zip(
                    (here, count, size, offset), numbers, (0xFFFF, 0xFFFF, _NOT_HERE, _NOT_HERE), strict=True
                ):
                    if short not in (long, unknown):
                        raise FormatError("", f"says {short} at its end and {long} in its zip64 record")
                here, count, size, offset = numbers
        if (disk, first_disk, here) != (0, 0, count):
            raise FormatError("", "is a part of an archive in several files")
        if offset + size != place:
            raise FormatError(
                "", f"has a table of contents that ends at {offset + size}", expected=str(place)
            )
        return count, size, offset

    def _find_end(self) -> tuple[int, tuple[int, ...]]:
        start = max(0, self._size - _END.size - _LONGEST_COMMENT)
        tail = self._read(start, self._size - start, "its end")
        results = []
        position = tail.rfind(b"PK\5\6")
        while position >= 0:
            if len(tail) - position >= _END.size:
                fields = _END.unpack_from(tail, position)
                if position + _END.size + fields[-1] == len(tail):
                    results.append((start + position, fields))
            position = tail.rfind(b"PK\5\6", 0, position)
        # If the comment of one end record contains another, two readers would see different archives.
        if len(results) != 1:
            raise FormatError(
                "", "has two ends" if results else "is not a zip archive: its end record is missing"
            )
        return results[0]

    def _find_end_64(self, locator_at: int, locator: bytes) -> tuple[int, tuple[int, ...]]:
        _, disk, at, disks = _LOCATOR_64.unpack(locator)
        fields = _END_64.unpack(self._read(at, _END_64.size, "its zip64 record"))
        signature, size, _, _, number, first, *numbers = fields
        if signature != b"PK\6\6" or at + 12 + size != locator_at:
            raise FormatError("", "has a zip64 record that is not where it should be")
        if (disk, number, first) != (0, 0, 0) or disks > 1:
            raise FormatError("", "is a part of an archive in several files")
        return at, tuple(numbers)

    # The files

    def _read_local_header(self, entry: _Entry) -> int:
        """Compare the header before a file with its entry. Returns the offset of the data."""
        where = shown(entry.name)
        data = self._read(entry.offset, _LOCAL.size, f"the header of {where}")
        signature, _, _, flags, method, _, _, crc, packed, size, name, extra = _LOCAL.unpack(data)
        if signature != b"PK\3\4":
            raise FormatError(where, "has no header")
        remainder = self._read(entry.offset + _LOCAL.size, name + extra, f"the header of {where}")
        if remainder[:name] != entry.name:
            raise FormatError(where, f"is called {shown(remainder[:name])} in its own header")
        if method != entry.method:
            raise FormatError(
                where, f"is packed by method {method} in its own header, {entry.method} in the table"
            )
        _refuse_flags(where, flags)
        size, packed = _wide(where, remainder[name:], (size, packed))
        reported = (crc, packed, size)
        if reported != (entry.crc, entry.packed, entry.size) and not (
            flags & _DESCRIPTOR_FOLLOWS and not any(reported)
        ):
            detail = f"has crc, packed size and size {reported} in its own header, "
            raise FormatError(where, f"{detail}{(entry.crc, entry.packed, entry.size)} in the table")
        return entry.offset + _LOCAL.size + len(remainder)

    def _contents(self, entry: _Entry, start: int) -> Iterator[bytes]:
        where = shown(entry.name)
        crc = size = 0
        for piece in self._unpacked(entry, start):
            size += len(piece)
            self._budget.take(len(piece))
            if size > entry.size:
                raise FormatError(where, f"holds more than the {entry.size} bytes in the table")
            crc = zlib.crc32(piece, crc)
            yield piece
        if (size, crc) != (entry.size, entry.crc):
            detail = (
                f"has {size} bytes with CRC-32 {crc:08x}, the table has {entry.size} with {entry.crc:08x}"
            )
            raise FormatError(where, detail)

    def _unpacked(self, entry: _Entry, start: int) -> Iterator[bytes]:
        if entry.method == _STORED:
            yield from self._packed(entry, start)
            return
        if entry.method != _DEFLATED:
            detail = (
                f"is packed by method {entry.method}, expected {_STORED} (stored) or {_DEFLATED} (deflated)"
            )
            raise FormatError(shown(entry.name), detail)
        inflate = zlib.decompressobj(wbits=-15)
        try:
            for data in self._packed(entry, start):
                while data and not inflate.eof:
                    yield inflate.decompress(data, _PIECE)
                    data = inflate.unconsumed_tail
            # zlib may still hold the last bytes, because a piece has a maximum size.
            while not inflate.eof and (piece := inflate.decompress(b"", _PIECE)):
                yield piece
        except zlib.error as error:
            raise FormatError(shown(entry.name), f"its compressed data is damaged: {error}") from None
        if not inflate.eof or inflate.unused_data:
            raise FormatError(shown(entry.name), "its compressed data does not end where it should")

    def _packed(self, entry: _Entry, start: int) -> Iterator[bytes]:
        end = start + entry.packed
        while start < end:
            # Read at an explicit offset, because reading a link's target moves the stream in between.
            data = self._read(start, min(_PIECE, end - start), f"the end of {shown(entry.name)}")
            start += len(data)
            yield data


def _read_entry(data: bytes, position: int) -> tuple[_Entry, int]:
    if len(data) - position < _CENTRAL.size or data[position : position + 4] != b"PK\1\2":
        raise FormatError("", "has a table of contents that is damaged")
    fields = _CENTRAL.unpack_from(data, position)
    flags, method, clock, date, crc, packed, size, *lengths, disk, _, attributes, offset = fields[5:]
    position += _CENTRAL.size
    name, extra, comment = lengths
    end = position + name + extra + comment
    if end > len(data):
        raise FormatError("", "has a table of contents that is damaged")
    where = shown(data[position : position + name])
    size, packed, offset = _wide(
        where, data[position + name : position + name + extra], (size, packed, offset)
    )
    if disk:
        raise FormatError(where, "is in another file")
    _refuse_flags(where, flags)
    entry = _Entry(
        data[position : position + name],
        flags,
        method,
        clock,
        date,
        crc,
        packed,
        size,
        attributes >> 16,
        offset,
    )
    return entry, end


def _refuse_flags(where: str, flags: int) -> None:
    for flag, what in _REFUSED_FLAGS.items():
        if flags & flag:
            raise FormatError(where, f"{what}, which is not unpacked")


def _wide(where: str, extra: bytes, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers, with placeholders replaced from the zip64 field, which has only these numbers."""
    if _NOT_HERE not in numbers:
        return numbers
    field = _find_field(where, extra, 1)
    wide = []
    for number in numbers:
        if number != _NOT_HERE:
            wide.append(number)
            continue
        if len(field) < 8:
            raise FormatError(where, "has a zip64 field that is too short")
        wide.append(int.from_bytes(field[:8], "little"))
        field = field[8:]
    return tuple(wide)


def _find_field(where: str, extra: bytes, desired: int) -> bytes:
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        if kind == desired:
            return extra[4 : 4 + size]
        extra = extra[4 + size :]
    raise FormatError(where, "lacks the zip64 field")


def _member(entry: _Entry, contents: Iterator[bytes]) -> Member | None:
    is_directory = entry.name.endswith(b"/") or stat.S_ISDIR(entry.mode)
    path = parse_path(entry.name, directory=is_directory)
    if path is None:
        return None
    kind = stat.S_IFMT(entry.mode)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK) or (is_directory and kind == stat.S_IFLNK):
        refuse_kind(path, entry.mode)
    modified = _time(entry)
    if is_directory:
        if entry.size:
            raise FormatError(shown(entry.name), f"is a directory with {entry.size} bytes of contents")
        return Member(path, Type.DIRECTORY, directory_mode(entry.mode), modified=modified)
    if kind == stat.S_IFLNK:
        return Member(
            path, Type.LINK, modified=modified, target=link_target(path, _target(path, entry, contents))
        )
    return Member(path, Type.FILE, file_mode(entry.mode), entry.size, modified)


def _target(path: MemberPath, entry: _Entry, contents: Iterator[bytes]) -> bytes:
    if entry.size > LONGEST_TARGET:
        raise FormatError(shown(path.text), f"is a symbolic link of {entry.size} bytes")
    return b"".join(contents)


def _time(entry: _Entry) -> int | None:
    """Return the local time where the archive was created, read as local time here: zip has no time zones."""
    date, clock = entry.date, entry.time
    pieces = (1980 + (date >> 9), date >> 5 & 15, date & 31, clock >> 11, clock >> 5 & 63, (clock & 31) * 2)
    try:
        return int(time.mktime((*pieces, 0, 0, -1)))
    except (OverflowError, ValueError):
        return None
