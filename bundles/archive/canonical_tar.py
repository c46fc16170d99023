"""The one archive that belongs to a description.

* ``bundle.json`` comes first, then every file it lists, sorted by name, then two empty blocks, and nothing
  after that.
* No field of a header is free: it follows from ``bundle.json``, or is fixed. The packer writes these bytes;
  the reader compares with them instead of parsing what a stranger wrote.
* Any tar reads it: ustar, and for a name that does not fit into ustar one PAX record, ``path``.

Same description and contents, same tar. Same tar, same ``tar.gz``, as long as zlib is the same: another
version or another make of zlib may compress otherwise, and then the archive differs and its contents do not.
What does not shrink is stored (`bundles.archive.compression`), in the same bytes whatever zlib is.
"""

import struct

from bundles.format.description import FileEntry, FileMode
from bundles.format.identity import DESCRIPTION
from bundles.format.member_paths import MemberPath

BLOCK = 512
END_OF_ARCHIVE = bytes(2 * BLOCK)

GZIP_HEADER = bytes.fromhex("1f8b 08 00 00000000 02 ff")
"""Deflate, no name, no time, a byte for the level that is 2 whatever the level is, and no operating system: that byte
would tell where it was built."""

HEADER = struct.Struct("100s 8s 8s 8s 12s 12s 8s c 100s 8s 32s 32s 8s 8s 155s 12s")
"""POSIX.1-1988 ustar: name, mode, uid, gid, size, mtime, checksum, type, link target, magic and version, user
and group name, device major and minor, prefix of the name, nothing."""

REGULAR = b"0"
PAX = b"x"
_NAME = 100
_PREFIX = 155


def file_header(path: MemberPath, entry: FileEntry) -> bytes:
    """All that stands in the archive before the contents of a file."""
    return member_header(path.text, entry.size, entry.mode)


def description_header(size: int) -> bytes:
    """All that stands before the ``size`` bytes of ``bundle.json``."""
    return member_header(DESCRIPTION, size, FileMode.PLAIN)


def member_header(name: str, size: int, mode: FileMode) -> bytes:
    """The header of a member: ustar, behind a PAX record when the name does not fit into it."""
    encoded = name.encode()
    if fitting := _split(encoded):
        return _ustar(*fitting, size, mode, REGULAR)
    record = _pax_record(b"path", encoded)
    return (
        _ustar(b"././@PaxHeader", b"", len(record), FileMode.PLAIN, PAX)
        + record
        + padding(len(record))
        # Where a reader knows no PAX, the name is cut off.
        + _ustar(encoded[:_NAME], b"", size, mode, REGULAR)
    )


def padding(size: int) -> bytes:
    """The zeros that fill contents of ``size`` bytes up to a whole block."""
    return bytes(-size % BLOCK)


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """Name and prefix of a ustar header, the longest prefix possible; ``None`` when they do not fit."""
    if len(name) <= _NAME:
        return name, b""
    slash = name.rfind(b"/", 0, _PREFIX + 1)
    if slash < 0 or len(name) - slash - 1 > _NAME:
        return None
    return name[slash + 1 :], name[:slash]


def _ustar(name: bytes, prefix: bytes, size: int, mode: FileMode, kind: bytes) -> bytes:
    zero, permissions, length, time = b"%07o" % 0, b"%07o" % mode.bits, b"%011o" % size, b"%011o" % 0

    def header(checksum: bytes) -> bytes:
        return HEADER.pack(
            *(name, permissions, zero, zero, length, time, checksum, kind),
            *(b"", b"ustar\00000", b"", b"", zero, zero, prefix, b""),
        )

    # The checksum is that of the header with spaces in its place.
    return header(b"%06o\0 " % sum(header(b" " * 8)))


def _pax_record(key: bytes, value: bytes) -> bytes:
    """``length key=value`` and a line end, where the length counts its own digits."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest)
    while len(record := b"%d%s" % (length, rest)) != length:
        length = len(record)
    return record
