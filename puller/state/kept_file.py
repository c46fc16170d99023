"""Results that are kept between runs in one file: the code of templates, or the values of YAML texts.

``hiera.expressions.kept_code`` and ``hiera.text.kept_values`` ask for them by digests (``hiera.keeping``).

* Code is executed, and a value applied, as whoever runs Puller, so only what nobody else can have written is believed:
  directory and file belong to that user, the directory is open to nobody else and the file written by nobody else. Both
  are judged as they were opened, and not by their names.
* Anything else (damage, another maker's result, another format) is a result that is not there. Every piece is compared
  with its digest before it is looked at, since ``marshal`` trusts what it reads.
* The file is written whole, by the one atomic write, at the end of a run that has made something; nothing waits for the
  disk, since what a power cut spoils is not believed.
* It never grows beyond ``LARGEST``: what this run has used comes first, and what was not used by the last
  ``_LONGEST_UNUSED`` writings is left out.

Format: a head (mark, maker, number of entries, digest of the table), the table (``_ENTRY`` for each result: what it is
found by, the digest of its bytes, their length, writings since it was used), and the bytes, in the same order.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from bundles.filesystem.atomic import open_directory, remove_leftovers, replace_file
from hiera.keeping import digest_of

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of all results together; the code of a template of twenty lines is 4 KiB."""

_LARGEST_RESULT: Final = 4 * 1024 * 1024  # bytes
_LONGEST_UNUSED: Final = 8

_MARK: Final = b"puller kept 1\n\0\0"
_HEAD: Final = struct.Struct("<16s32sQ32s")
_ENTRY: Final = struct.Struct("<32s32sII")
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Entry(msgspec.Struct, frozen=True):
    """A result of the file: the digest of its bytes, where they are, and its writings since it was used."""

    sum: bytes
    offset: int
    length: int
    unused: int


class KeptFile:
    """The file ``path``, for results of one ``maker``; reading begins at once.

    In its directory are only such files.
    """

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

    def find(self, digest: bytes) -> object:
        """The result with this digest; ``None`` when there is none that is sound."""
        entry = self._entries.get(digest)
        data = None if entry is None else self._read(entry)
        if data is None:
            return None
        self._used[digest] = None
        return _result(data)

    def keep(self, digest: bytes, result: Any) -> None:
        """Remember the result with this digest, for ``save``."""
        data = marshal.dumps(result)
        if len(data) <= min(_LARGEST_RESULT, self._left):
            self._new[digest] = data
            self._left -= len(data)

    def save(self) -> None:
        """Write the file if this run has made something that has a place in it. Raises ``OSError``."""
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
        """The bytes of a result as they were written."""
        if self._descriptor is None:
            return None
        with contextlib.suppress(OSError):
            data = os.pread(self._descriptor, entry.length, entry.offset)
            if digest_of(data) == entry.sum:
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
            _ENTRY.pack(digest, self._sum(digest), length, unused)
            for digest, (length, unused) in chosen.items()
        )
        yield _HEAD.pack(_MARK, self._maker, len(chosen), digest_of(table)) + table
        for digest, (length, _) in chosen.items():
            data = self._new.get(digest) or self._read(self._entries[digest])
            # What is damaged now was not asked for in this run; it keeps its place, and its sum, which it is not.
            yield data if data is not None else bytes(length)

    def _sum(self, digest: bytes) -> bytes:
        data = self._new.get(digest)
        return self._entries[digest].sum if data is None else digest_of(data)


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
        raise ValueError("is another's")
    table = os.pread(descriptor, count * _ENTRY.size, _HEAD.size)
    if digest_of(table) != digest:
        raise ValueError("is damaged")
    entries, offset = {}, _HEAD.size + len(table)
    for name, sum_, length, unused in _ENTRY.iter_unpack(table):
        entries[name] = _Entry(sum_, offset, length, unused)
        offset += length
    return entries


def _result(data: bytes) -> object:
    """The result in bytes that are as they were written."""
    with contextlib.suppress(ValueError, TypeError, EOFError):
        return marshal.loads(data)  # noqa: S302  nobody else can have written it
    return None
