"""The canonical archive of a description.

* ``bundle.json`` comes first, then every file it lists, sorted by name, then two empty blocks as the end.
* Each header field is fixed or follows from ``bundle.json``. The packer writes these bytes, and the reader compares
  them instead of parsing untrusted headers.
* Every tar program can read it: ustar, with one PAX record, ``path``, for a name that does not fit into ustar.

The same description and contents give the same tar. The same tar and the same zlib give the same ``tar.gz``. Another
version or implementation of zlib may compress differently, and then the archives differ with the same contents. Data
that does not shrink is stored (`bundles.archive.compression`), independent of zlib.
"""

import struct

from bundles.format.description import FileEntry, FileMode
from bundles.format.identity import DESCRIPTION
from bundles.format.member_paths import MemberPath

BLOCK = 512
END_OF_ARCHIVE = bytes(2 * BLOCK)

GZIP_HEADER = bytes.fromhex("1f8b 08 00 00000000 02 ff")
"""Deflate, without name and time. The byte for the level is always 2. The operating system is unknown, because that
byte would depend on the build machine.
"""

HEADER = struct.Struct("100s 8s 8s 8s 12s 12s 8s c 100s 8s 32s 32s 8s 8s 155s 12s")
"""POSIX.1-1988 ustar: name, mode, uid, gid, size, mtime, checksum, type, link target, magic and version, user
and group name, device major and minor, prefix of the name, nothing."""

REGULAR = b"0"
PAX = b"x"
_NAME = 100
_PREFIX = 155


def file_header(path: MemberPath, entry: FileEntry) -> bytes:
    """Return the bytes before the contents of a file."""
    return member_header(path.text, entry.size, entry.mode)


def description_header(size: int) -> bytes:
    """Return the bytes before the ``size`` bytes of ``bundle.json``."""
    return member_header(DESCRIPTION, size, FileMode.PLAIN)


def member_header(name: str, size: int, mode: FileMode) -> bytes:
    """Return the header of a member: ustar, after a PAX record for a name that does not fit into ustar."""
    encoded = name.encode()
    if fitting := _split(encoded):
        return _ustar(*fitting, size, mode, REGULAR)
    record = _pax_record(b"path", encoded)
    return (
        _ustar(b"././@PaxHeader", b"", len(record), FileMode.PLAIN, PAX)
        + record
        + padding(len(record))
        # Readers without PAX see a truncated name.
        + _ustar(encoded[:_NAME], b"", size, mode, REGULAR)
    )


def padding(size: int) -> bytes:
    """Return the zeros that fill contents of ``size`` bytes up to a whole block."""
    return bytes(-size % BLOCK)


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """Split a name into name and longest prefix of a ustar header. ``None`` if it does not fit."""
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

    # The checksum is computed with spaces in its own field.
    return header(b"%06o\0 " % sum(header(b" " * 8)))


def _pax_record(key: bytes, value: bytes) -> bytes:
    """Return ``length key=value`` and a line end, where the length includes its own digits."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest)
    while len(record := b"%d%s" % (length, rest)) != length:
        length = len(record)
    return record
