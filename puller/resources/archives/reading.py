"""The members of an archive, of whatever kind it is."""

import os
from collections.abc import Iterator
from typing import BinaryIO

from puller.resources.archives.kinds import Kind
from puller.resources.archives.limits import LIMITS, Budget, Limits
from puller.resources.archives.members import Member
from puller.resources.archives.source import ArchiveSource, inflated, plain
from puller.resources.archives.tar import TarReader
from puller.resources.archives.zip import ZipReader

Members = Iterator[tuple[Member, Iterator[bytes]]]


def read_members(stream: BinaryIO, kind: Kind, limits: Limits = LIMITS) -> Members:
    """Each member with its contents, to be read before the next is asked for; raises ``FormatError``, ``OSError``."""
    size = os.fstat(stream.fileno()).st_size
    budget = Budget(limits, size)
    # A zip says at its end what it holds, and is read by seeking; a tar is read from front to back.
    if kind is Kind.ZIP:
        return iter(ZipReader(stream, size, limits, budget))

    pieces = inflated(stream) if kind is Kind.TAR_GZ else plain(stream)
    return iter(TarReader(ArchiveSource(pieces, budget), budget))
