"""The code of templates, kept between runs in one file: ``hiera.expressions.kept_code`` asks for it by digests.

* What is here is executed as whoever runs Puller, so only what nobody else can have written is believed: directory and
  file belong to that user, the directory is open to nobody else and the file written by nobody else. Both are judged
  as they were opened, and not by their names.
* Anything else (damage, another maker's code, another format) is code that is not there. Every piece is compared with
  its SHA-256 before it is looked at, since ``marshal`` trusts what it reads.
* The file is written whole, by the one atomic write, at the end of a run that has made code; nothing waits for the
  disk, since what a power cut spoils is not believed.
* It never grows beyond ``LARGEST``: what this run has used comes first, and what was not used by the last
  ``_LONGEST_UNUSED`` writings is left out.

Format: a head (mark, maker, number of entries, SHA-256 of the table), the table (``_ENTRY`` for each code: its digest,
the SHA-256 of its bytes, their length, writings since it was used), and the bytes, in the same order.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

from bundles.filesystem.atomic import open_directory, remove_leftovers, replace_file

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of all code together; of a template of twenty lines it is 4 KiB."""

_LARGEST_CODE: Final = 4 * 1024 * 1024  # bytes
_LONGEST_UNUSED: Final = 8

_MARK: Final = b"puller code 1\n\0\0"
_HEAD: Final = struct.Struct("<16s32sQ32s")
_ENTRY: Final = struct.Struct("<32s32sII")
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Entry(NamedTuple):
    """A code of the file: the SHA-256 of its bytes, where they are, and how often it was written without being used."""

    sha256: bytes
    offset: int
    length: int
    unused: int


class CodeFile:
    """The file ``path``, in a directory of its own, for code of one ``maker``; reading begins at once."""

    def __init__(self, path: Path, maker: bytes) -> None:
        self._path, self._maker = path, maker
        self._entries: dict[bytes, _Entry] = {}
        self._used: dict[bytes, None] = {}
        self._new: dict[bytes, bytes] = {}
        self._left = LARGEST
        self._descriptor: int | None = None
        with contextlib.suppress(OSError, ValueError):
            self._descriptor = _open(path)
            self._entries = _table(self._descriptor, maker)

    def find(self, digest: bytes) -> CodeType | None:
        """The code with this digest; ``None`` when there is none that is sound."""
        entry = self._entries.get(digest)
        data = None if entry is None else self._read(entry)
        if data is None:
            return None
        self._used[digest] = None
        return _code(data)

    def keep(self, digest: bytes, code: CodeType) -> None:
        """Remember the code with this digest, for ``save``."""
        data = marshal.dumps(code)
        if len(data) <= min(_LARGEST_CODE, self._left):
            self._new[digest] = data
            self._left -= len(data)

    def save(self) -> None:
        """Write the file if this run has made code that has a place in it. Raises ``OSError``."""
        chosen = self._chosen()
        if self._new.keys().isdisjoint(chosen):
            return
        directory = self._path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_directory(directory) as descriptor:
            if not _is_private(os.fstat(descriptor)):
                return
            remove_leftovers(descriptor)
            chunks = self._chunks(chosen)
            replace_file(descriptor, self._path.name, chunks, mode=0o600, durable=False)

    def close(self) -> None:
        """Read no more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor, self._entries = None, {}

    def _read(self, entry: _Entry) -> bytes | None:
        """The bytes of a code as they were written."""
        if self._descriptor is None:
            return None
        with contextlib.suppress(OSError):
            data = os.pread(self._descriptor, entry.length, entry.offset)
            if hashlib.sha256(data).digest() == entry.sha256:
                return data
        return None

    def _chosen(self) -> dict[bytes, tuple[int, int]]:
        """What is to be in the file, each with its length and writings since it was used, as far as there is room."""
        old = self._entries
        ordered = {digest: (old[digest].length, 0) for digest in self._used if digest not in self._new}
        ordered |= {digest: (len(data), 0) for digest, data in self._new.items()}
        rest = ((digest, one) for digest, one in old.items() if digest not in ordered)
        ordered |= {
            digest: (one.length, one.unused + 1) for digest, one in rest if one.unused < _LONGEST_UNUSED
        }
        return dict(_fitting(ordered.items()))

    def _chunks(self, chosen: dict[bytes, tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of the file."""
        table = b"".join(
            _ENTRY.pack(digest, self._sha256(digest), length, unused)
            for digest, (length, unused) in chosen.items()
        )
        yield _HEAD.pack(_MARK, self._maker, len(chosen), hashlib.sha256(table).digest()) + table
        for digest, (length, _) in chosen.items():
            data = self._new.get(digest) or self._read(self._entries[digest])
            # What is damaged now was not asked for in this run; it keeps its place, and its sum, which it is not.
            yield data if data is not None else bytes(length)

    def _sha256(self, digest: bytes) -> bytes:
        data = self._new.get(digest)
        return self._entries[digest].sha256 if data is None else hashlib.sha256(data).digest()


def _fitting(
    entries: Iterable[tuple[bytes, tuple[int, int]]],
) -> Iterator[tuple[bytes, tuple[int, int]]]:
    left = LARGEST
    for digest, (length, unused) in entries:
        left -= length
        if left < 0:
            return
        yield digest, (length, unused)


def _open(path: Path) -> int:
    """A descriptor of a file that nobody else can have written; raises ``OSError``, ``ValueError`` for any other."""
    directory = os.open(path.parent, _FLAGS | os.O_DIRECTORY)
    try:
        if not _is_private(os.fstat(directory)):
            raise ValueError(f"{path.parent}: is open to others")
        descriptor = os.open(path.name, _FLAGS, dir_fd=directory)
    finally:
        os.close(directory)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or not _is_private(found):
        os.close(descriptor)
        raise ValueError(f"{path}: is no file of ours")
    return descriptor


def _is_private(found: os.stat_result) -> bool:
    """Whether it belongs to this user alone."""
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _table(descriptor: int, maker: bytes) -> dict[bytes, _Entry]:
    """The entries of an open file; raises ``OSError``, and ``ValueError`` for what is not one, or of another maker."""
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) != _HEAD.size:
        raise ValueError("is too short")
    mark, made_by, count, digest = _HEAD.unpack(head)
    if mark != _MARK or made_by != maker or count > size // _ENTRY.size:
        raise ValueError("is another's code")
    table = os.pread(descriptor, count * _ENTRY.size, _HEAD.size)
    if hashlib.sha256(table).digest() != digest:
        raise ValueError("is damaged")
    entries, offset = {}, _HEAD.size + len(table)
    for name, sha256, length, unused in _ENTRY.iter_unpack(table):
        entries[name] = _Entry(sha256, offset, length, unused)
        offset += length
    return entries


def _code(data: bytes) -> CodeType | None:
    """The code in bytes that are as they were written."""
    with contextlib.suppress(ValueError, TypeError, EOFError):
        code = marshal.loads(data)  # noqa: S302  nobody else can have written it
        return code if isinstance(code, CodeType) else None
    return None
