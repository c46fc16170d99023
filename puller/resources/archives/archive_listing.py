"""Members of an archive on disk, listed without extraction for a dry run.

The whole archive is read, and nothing is written.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO

from puller.resources.archives.archive_receipts import Made, Members, Removable, is_all_removable, made_at
from puller.resources.archives.members import LIMITS, Budget, Kind, Limits, Member, Type
from puller.resources.archives.opened import open_archive
from puller.resources.archives.placing import in_the_way, is_another
from puller.resources.archives.tar import ArchiveSource, TarReader, inflated, plain
from puller.resources.archives.zip import ZipReader
from puller.system.safe_paths import open_safely

ArchiveMembers = Iterator[tuple[Member, Iterator[bytes]]]


def read_members(stream: BinaryIO, kind: Kind, limits: Limits = LIMITS) -> ArchiveMembers:
    """Yield each member with its content, to be read before the next member. Raises ``FormatError`` and ``OSError``."""
    size = os.fstat(stream.fileno()).st_size
    budget = Budget(limits, size)
    # A zip has its directory at the end and needs seeking. A tar is read sequentially.
    if kind is Kind.ZIP:
        return iter(ZipReader(stream, size, limits, budget))

    pieces = inflated(stream) if kind is Kind.TAR_GZ else plain(stream)
    return iter(TarReader(ArchiveSource(pieces, budget), budget))


_KINDS = {Type.FILE: "file", Type.HARD_LINK: "file", Type.LINK: "link", Type.DIRECTORY: "directory"}


@contextmanager
def listed(archive: str, kind: Kind, parent: str, limits: Limits = LIMITS) -> Iterator["Listed"]:
    """Yield the members of an archive for comparison with the files in ``parent``.

    Raises ``FormatError``, ``ResourceError``, ``OSError``.
    """
    with ExitStack() as stack:
        target = stack.enter_context(open_safely(parent)) if os.path.isdir(parent) else None
        found = Listed(parent, target)
        stream = stack.enter_context(open_archive(archive))
        for member, contents in read_members(stream, kind, limits):
            found.add(member, contents)
        yield found


class Listed:
    """The members of an archive, to be compared with the open directory ``target``, if it exists."""

    def __init__(self, where: str, target: int | None) -> None:
        self.members: Members = {}
        self._where = where
        self._target = target
        self._digests: dict[str, str] = {}

    def add(self, member: Member, contents: Iterator[bytes]) -> None:
        """Read a member and record its type and digest."""
        path, digest = member.path.text, hashlib.sha256()
        for piece in contents:
            digest.update(piece)
        for above in list(PurePosixPath(path).parents)[:-1]:
            self.members.setdefault(str(above), Made("directory"))
        self._digests[path] = digest.hexdigest()
        size, target = member.size, member.target if member.type is Type.LINK else ""
        # A hard link has no content of its own in the archive, but on disk it has the content of its target.
        if member.type is Type.HARD_LINK and (first := self.members.get(member.target)):
            size, self._digests[path] = first.size, self._digests[member.target]
        self.members[path] = Made(_KINDS[member.type], size, target=target)

    def differs(self, path: str) -> bool:
        """Return whether the file or link at ``path`` differs from the archive's."""
        wanted, digest = self.members[path], self._digests[path]
        return self._target is not None and is_another(self._target, path, wanted, lambda: digest)

    def refuse_in_the_way(self, removable: Removable) -> None:
        """Raise ``ResourceError`` for another file type in the way, unless it is an unchanged earlier member."""
        for path, wanted in self.members.items():
            there = None if self._target is None else made_at(self._target, path)
            if self._target is None or there is None or "directory" not in (there.kind, wanted.kind):
                continue
            if there.kind != wanted.kind and not is_all_removable(self._target, path, removable):
                mode = os.lstat(os.path.join(self._where, path)).st_mode
                raise in_the_way(self._where, path, mode, wanted.kind)
