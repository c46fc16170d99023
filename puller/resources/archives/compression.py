"""Uncompressed bytes of an archive, in pieces of limited size, for each compression of a tar.

* All streams of a file are read, as the compression programs do. Data after the last stream are an error.
* The reader of the pieces limits their total (``members.Budget``). This module limits the memory: a piece has at most
  256 KiB, and a dictionary of xz or zstd at most 128 MiB, which covers their highest standard levels.
* zstd needs the program ``zstd``. Python has a module for it from version 3.14 on, and a library would add a compiled
  module to each package of the agent. The program reads the open archive, and ends with the reader.
"""

import bz2
import lzma
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import BinaryIO, Protocol

import msgspec

from bundles.errors import FormatError
from bundles.filesystem.trees import pieces_of
from bundles.format.fields import shown
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.archives.members import MIB, Kind
from puller.system import commands
from puller.system.processes import Descendants, starting

_COMPRESSED = 64 * 1024
_PIECE = 256 * 1024
_DICTIONARY = 128 * MIB
_PADDING = 4  # xz aligns streams to four bytes

_ZSTD = "zstd"
PROGRAMS = "/usr/bin"
"""The directory where a package installs the program for zstd."""


class _Stream(Protocol):
    """One compressed stream of a file, as the modules ``bz2`` and ``lzma`` read it."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """A member of a gzip file. Its length and CRC-32 are verified at its end."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)


def _bzip2() -> _Stream:
    return bz2.BZ2Decompressor()


def _xz() -> _Stream:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DICTIONARY)


class _Compression(msgspec.Struct, frozen=True):
    """A compression: the first bytes of a stream, and the function that starts one."""

    name: str
    magic: bytes
    start: Callable[[], _Stream]
    is_padded: bool = False


_MODULES = {
    Kind.TAR_GZ: _Compression("gzip", b"\x1f\x8b", _Gzip),
    Kind.TAR_BZ2: _Compression("bzip2", b"BZh", _bzip2),
    Kind.TAR_XZ: _Compression("xz", b"\xfd7zXZ\0", _xz, is_padded=True),
}
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

STARTS = {
    **{kind: (compression.magic,) for kind, compression in _MODULES.items()},
    Kind.TAR_ZST: (_ZSTD_MAGIC,),
    Kind.ZIP: (b"PK\3\4", b"PK\5\6"),
}
"""The possible first bytes of each kind of archive. A tar without compression starts with a name."""


def uncompressed(stream: BinaryIO, kind: Kind) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a file from its start.

    Raises ``FormatError``, and ``ResourceError`` if the program for the compression is missing.
    """
    stream.seek(0)
    if kind is Kind.TAR_ZST:
        return _through_program(stream)
    compression = _MODULES.get(kind)
    return pieces_of(stream) if compression is None else _streams(stream, compression)


def missing_program(kind: Kind) -> ResourceError | None:
    """Return the error if this machine lacks the program for a compression."""
    if kind is not Kind.TAR_ZST or _find_program() is not None:
        return None
    return ResourceError(
        f"the program {_ZSTD} is missing, which uncompresses a {kind}",
        code=ProblemCode.CHANGE_REFUSED,
        hint=f"declare the package {_ZSTD}, and require it",
    )


def _find_program() -> str | None:
    return shutil.which(_ZSTD, path=commands.SEARCH_PATH)


def _streams(stream: BinaryIO, compression: _Compression) -> Iterator[bytes]:
    damage = (zlib.error, lzma.LZMAError, OSError, EOFError)
    data = stream.read(_COMPRESSED)
    while True:
        if not data.startswith(compression.magic):
            magic = compression.magic.hex(" ")
            raise FormatError("", f"is not {compression.name}: {shown(data[:8])} stands where {magic} should")
        reader = compression.start()
        while not reader.eof:
            if reader.needs_input:
                data = data or stream.read(_COMPRESSED)
                if not data:
                    raise FormatError("", "is cut off: its compressed data is incomplete")
            try:
                piece = reader.decompress(data, _PIECE)
            except damage as error:
                raise FormatError("", f"its compressed data is damaged: {error}") from None
            data = b""
            if piece:
                yield piece
        data = reader.unused_data + stream.read(_COMPRESSED)
        if compression.is_padded:
            data = _without_padding(data, stream)
        if not data:
            return


def _without_padding(data: bytes, stream: BinaryIO) -> bytes:
    """Return the data after the zeros that follow a stream. Raises ``FormatError`` for a wrong number of them."""
    count = 0
    while data:
        rest = data.lstrip(b"\0")
        count += len(data) - len(rest)
        if rest:
            data = rest + stream.read(_COMPRESSED)
            break
        data = stream.read(_COMPRESSED)
    if count % _PADDING:
        raise FormatError("", f"has {count} zeros after a stream", expected="a multiple of 4")
    return data


def _through_program(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the output of the program. It reads the descriptor, so that another file at the path has no effect."""
    # 4 % of an idle run, and few archives have this compression.
    import subprocess
    import tempfile

    if (missing := missing_program(Kind.TAR_ZST)) is not None:
        raise missing
    if (start := stream.read(len(_ZSTD_MAGIC))) != _ZSTD_MAGIC:
        # The program also reads skippable frames and other formats, which an archive does not start with.
        raise FormatError("", f"is not zstd: {shown(start)} stands where {_ZSTD_MAGIC.hex(' ')} should")
    os.lseek(stream.fileno(), 0, os.SEEK_SET)  # the buffer of the stream has read more
    arguments = [str(_find_program()), "-dcq", f"--memory={_DICTIONARY // MIB}MiB", "--single-thread"]
    with tempfile.TemporaryFile() as errors:
        with starting:  # so that no other thread takes it for an orphan, and its exit status with it
            process = subprocess.Popen(
                arguments,
                env=commands.base_environment(),
                stdin=stream,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
            registered = Descendants(process.pid)
        output = process.stdout
        if output is None:  # excluded by PIPE
            return
        with closing(output):
            try:
                while piece := output.read(_PIECE):
                    yield piece
                status = process.wait()
            finally:
                process.kill()
                process.wait()
                registered.forget()
        if status != 0:
            errors.seek(0)
            detail = errors.read(400).decode(errors="replace").strip().replace("\n", " ")
            raise FormatError("", f"its compressed data is damaged: {shown(detail.encode())}")
