"""A reader that verifies a bundle archive in one pass, and the diagnosis of unexpected tar headers.

* ``bundle.json`` determines the rest of the archive. The reader compares each header with the only valid one, and
  each file with its SHA-256.
* The reader never returns more bytes than ``bundle.json`` lists, whatever the archive contains.
* Memory use is bounded. The reader checks all sizes against the limits before it returns the first file.
"""

import zlib
from collections.abc import Collection, Iterator
from typing import BinaryIO

from bundles.archive.pack import (
    BLOCK,
    END_OF_ARCHIVE,
    GZIP_HEADER,
    HEADER,
    PAX,
    description_header,
    file_header,
    padding,
)
from bundles.errors import FormatError
from bundles.filesystem.trees import Counted
from bundles.format.description import BundleDescription
from bundles.format.fields import DESCRIPTION, MemberPath, folded, shown
from bundles.format.size_limits import Limits

# The error message for an unexpected tar header. The reader has rejected the archive already, so the untrusted fields
# of the header are only printed.

_FIELDS = (
    *("name", "mode", "owner", "group", "size", "time", "checksum", "type", "link target", "magic"),
    *("user name", "group name", "device major", "device minor", "prefix", "padding"),
)
_NUMBERS = ("owner", "group", "size", "time", "device major", "device minor")
_KINDS = {
    "\0": "a member of a tar older than POSIX",
    "0": "a regular file",
    "1": "a hard link",
    "2": "a symbolic link",
    "3": "a character device",
    "4": "a block device",
    "5": "a directory, which a bundle does not list",
    "6": "a FIFO",
    "7": "a contiguous file",
    "g": "a global PAX header",
    "x": "a PAX header",
    "D": "a GNU directory listing",
    "K": "a GNU long link target",
    "L": "a GNU long name",
    "M": "a continued file of another GNU volume",
    "S": "a GNU sparse file",
    "V": "a GNU volume label",
}
_MODE_BITS = {
    0o4000: "setuid",
    0o2000: "setgid",
    0o1000: "sticky",
    0o0020: "group-writable",
    0o0002: "world-writable",
}


def diagnose(
    block: bytes,
    expected: bytes,
    *,
    turn: MemberPath | None,
    listed: Collection[MemberPath] | None,
    before: Collection[MemberPath],
) -> FormatError:
    """Return the error for ``block``, which differs from the expected header ``expected``.

    ``turn`` is the file expected next, ``None`` at the end of the archive. ``listed`` are the files of ``bundle.json``,
    ``None`` before it is read. ``before`` are the previous files.
    """
    here = shown(turn.text) if turn else "the end"
    if not any(block):
        return FormatError(here, "is missing because the archive ends before it")
    if block[257:262] != b"ustar":
        detail = f"its header has the magic {shown(block[257:265])}" if turn else "is followed by more bytes"
        return FormatError(here, detail)
    fields = _read(block)
    where = shown(_full_name(fields))
    if problem := _of_checksum(block, fields) or _of_type(fields, expected):
        return FormatError(where, problem)
    if fields["type"] != PAX:
        try:
            path = MemberPath.parse(_full_name(fields))
        except FormatError as error:
            return error
        if path != turn:
            return FormatError(where, _of_name(path, here, listed, before))
    return FormatError(here, _of_fields(fields, _read(expected)))


def _read(block: bytes) -> dict[str, bytes]:
    return dict(zip(_FIELDS, HEADER.unpack(block), strict=True))


def _full_name(fields: dict[str, bytes]) -> bytes:
    """Return the name up to its first NUL, as other readers see it."""
    prefix, name = (fields[field].split(b"\0")[0] for field in ("prefix", "name"))
    return prefix + b"/" + name if prefix else name


def _of_checksum(block: bytes, fields: dict[str, bytes]) -> str | None:
    # "checksum" counts as eight spaces
    right = sum(block) - sum(fields["checksum"]) + 8 * 32
    if _number(fields["checksum"]) == right:
        return None
    return f"the checksum of its header is {shown(fields['checksum'])}, expected {right:06o}"


def _of_type(fields: dict[str, bytes], desired: bytes) -> str | None:
    kind = fields["type"].decode("latin-1")
    if kind == "0" or fields["type"] == _read(desired)["type"]:
        return None
    target = f" to {shown(fields['link target'].split(bytes(1))[0])}" if kind in "12" else ""
    known = _KINDS.get(kind, f"a member of the unknown type {kind!r}")
    return f"is {known}{target}, expected {_KINDS['0']}"


def _of_name(
    path: MemberPath, here: str, listed: Collection[MemberPath] | None, before: Collection[MemberPath]
) -> str:
    if path in before:
        return "is repeated"
    for other in before:
        if folded(other.text) == folded(path.text):
            return f"differs from {shown(other.text)} only by case or Unicode normalisation"
    if listed is not None and path not in listed:
        return "is not listed in bundle.json"
    return f"is in the place of {here}"


def _of_fields(fields: dict[str, bytes], desired: dict[str, bytes]) -> str:
    different = [field for field in _FIELDS if fields[field] != desired[field]]
    # The checksum differs because another field does, unless it is the only one.
    field = next((field for field in different if field != "checksum"), "checksum")
    result, right = _value(field, fields[field]), _value(field, desired[field])
    if result == right:
        result = f"{result}, spelled {shown(fields[field])},"
    return f"{field} is {result} in the archive, expected {right}"


def _value(field: str, value: bytes) -> str:
    number = _number(value)
    if field == "mode" and number is not None:
        bits = "".join(f", {name}" for bit, name in _MODE_BITS.items() if number & bit)
        return f"{number:04o}{bits}," if bits else f"{number:04o}"
    if field in _NUMBERS and number is not None:
        return str(number)
    return shown(value.rstrip(b"\0"))


def _number(value: bytes) -> int | None:
    digits = value.rstrip(b"\0 ")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None


_COMPRESSED = 64 * 1024
_PIECE = 256 * 1024
_SIZE = slice(124, 136)


class BundleReader:
    """Reads ``stream``, an archive of ``size`` bytes. All methods raise ``FormatError``, and ``OSError`` of the stream.

    Exhaust ``contents`` for each file of the description, in order, and then call ``finish``.
    """

    def __init__(self, stream: BinaryIO, size: int, limits: Limits) -> None:
        limits.check_archive(size)
        self._tar = _Inflated(stream)
        self._read: list[MemberPath] = []
        self.description = self._read_description(limits)
        limits.check_files(self.description)
        limits.check_ratio(self.description, size)

    def contents(self, path: MemberPath) -> Iterator[bytes]:
        """Yield the next file in pieces. They are unverified until the iteration ends."""
        entry = self.description.files[path]
        self._expect_header(file_header(path, entry), path)
        contents = Counted(self._tar.pieces(entry.size))
        yield from contents
        self._expect_padding(entry.size)
        if contents.sha256 != entry.sha256:
            detail = f"sha256 is {contents.sha256} in the archive, {entry.sha256} in bundle.json"
            raise FormatError(shown(path.text), detail)
        self._read.append(path)

    def finish(self) -> None:
        """Check that the archive and the file end here."""
        self._expect_header(END_OF_ARCHIVE, None)
        self._tar.finish()

    def _read_description(self, limits: Limits) -> BundleDescription:
        self._tar.place = DESCRIPTION
        header = self._tar.read(BLOCK)
        # The only field that previous data does not determine. An invalid number counts as 0, and then the header
        # differs from the expected one.
        digits = header[_SIZE].rstrip(b"\0")
        size = int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else 0
        if header != (desired := description_header(size)):
            raise diagnose(header, desired, turn=MemberPath(DESCRIPTION), listed=None, before=[])
        limits.check_description(size)
        data = b"".join(self._tar.pieces(size))
        self._expect_padding(size)
        return BundleDescription.parse(data)

    def _expect_header(self, desired: bytes, turn: MemberPath | None) -> None:
        self._tar.place = shown(turn.text) if turn else "the end"
        for start in range(0, len(desired), BLOCK):
            if (block := self._tar.read(BLOCK)) == desired[start : start + BLOCK]:
                continue
            # A name that does not fit into ustar has three blocks. The second is the PAX record, not a header.
            if start == BLOCK and turn:
                raise FormatError(shown(turn.text), "the path in its PAX record differs")
            raise diagnose(
                block,
                desired[start : start + BLOCK],
                turn=turn,
                listed=self.description.files.keys(),
                before=self._read,
            )

    def _expect_padding(self, size: int) -> None:
        if self._tar.read(-size % BLOCK) != padding(size):
            raise FormatError(self._tar.place, "the padding after its contents is not empty")


class _Inflated:
    """The tar inside a gzip file of exactly one member. ``place`` is the current position, for messages."""

    def __init__(self, stream: BinaryIO) -> None:
        self.place = ""
        self._stream = stream
        # Compared before zlib parses it, so that the header cannot contain a file name or a comment.
        self._compressed = stream.read(len(GZIP_HEADER))
        if self._compressed != GZIP_HEADER:
            detail = "is not a bundle of `puller bundle build`: its first bytes differ"
            raise FormatError("", detail, hint="unpack another archive, or use puller apply --plain-archive")
        self._inflate = zlib.decompressobj(wbits=31)
        self._ready = b""
        self._at = 0

    def read(self, count: int) -> bytes:
        """Return exactly ``count`` bytes. Only for small counts."""
        if len(self._ready) - self._at < count:
            self._fill(count)
        piece = self._ready[self._at : self._at + count]
        self._at += count
        return piece

    def pieces(self, count: int) -> Iterator[bytes]:
        """Yield exactly ``count`` bytes, with at most one piece in memory."""
        while count:
            piece = self.read(min(count, _PIECE))
            count -= len(piece)
            yield piece

    def finish(self) -> None:
        """Raise ``FormatError`` for any data after the tar, after the gzip member or at the end of the file."""
        if self._at < len(self._ready) or self._inflate_more():
            raise FormatError("", "has bytes after the end of the tar archive")
        if self._inflate.unused_data or self._stream.read(1):
            raise FormatError("", "has bytes after the end of the gzip member")

    def _fill(self, count: int) -> None:
        pieces = [self._ready[self._at :]]
        have = len(pieces[0])
        while have < count:
            pieces.append(piece := self._inflate_more())
            have += len(piece)
            if not piece:
                raise FormatError(self.place, "the tar archive is truncated here")
        self._ready, self._at = b"".join(pieces), 0

    def _inflate_more(self) -> bytes:
        """Return the next bytes of the tar, or nothing at its end, where zlib has compared length and CRC-32."""
        while not self._inflate.eof:
            self._compressed = self._compressed or self._stream.read(_COMPRESSED)
            if not self._compressed:
                raise FormatError(self.place, "the file is truncated here")
            try:
                # At most one piece, because a few bytes can expand to more data than fits into memory.
                piece = self._inflate.decompress(self._compressed, _PIECE)
            except zlib.error as error:
                raise FormatError(self.place, f"the compressed data is damaged here: {error}") from None
            self._compressed = self._inflate.unconsumed_tail
            if piece:
                return piece
        return b""
