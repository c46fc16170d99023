"""Extraction of an archive into a directory that may have other contents, and a list of its members for a dry run.

* Nothing outside the directory is created, changed or touched, regardless of the archive and of links that other users
  change meanwhile. Each step is relative to the descriptor of a real directory.
* All members are extracted into a private directory first. ``puller.resources.archives.filling`` moves them into place.
* Extracted members get the given owner and group, not those of the archive.
* The list reads the whole archive and writes nothing.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import PurePosixPath
from typing import BinaryIO

import msgspec

from bundles.errors import FormatError
from bundles.filesystem.atomic import in_progress, naming, remove_foreign_acls
from bundles.filesystem.trees import remove_directory
from bundles.format.fields import shown
from puller.resources.archives.archive_receipts import (
    Made,
    Members,
    Removable,
    attributes_at,
    is_all_removable,
)
from puller.resources.archives.compression import uncompressed
from puller.resources.archives.filling import Unpacked, in_the_way, is_another
from puller.resources.archives.members import (
    LIMITS,
    Budget,
    Kind,
    Limits,
    Member,
    Opened,
    Type,
    kept,
    needing_space,
    open_archive,
    stripped,
)
from puller.resources.archives.tar import ArchiveSource, TarReader
from puller.resources.archives.zip import ZipReader
from puller.system.local_paths import REAL_DIRECTORY, open_safely, require_new

ArchiveMembers = Iterator[tuple[Member, Iterator[bytes]]]


class Form(msgspec.Struct, frozen=True):
    """How an archive is read: its kind, and the number of leading components to remove from each path."""

    kind: Kind
    strip: int = 0


def read_members(stream: BinaryIO, form: Form, limits: Limits = LIMITS) -> ArchiveMembers:
    """Yield each member with its content, to be read before the next member.

    Raises ``FormatError``, ``ResourceError`` for a missing program, and ``OSError``.
    """
    has_members, is_stripped = False, True
    for member, contents in _all_members(stream, form.kind, limits):
        has_members = True
        if (remaining := stripped(member, form.strip)) is not None:
            is_stripped = False
            yield remaining, contents
    if form.strip and has_members and is_stripped:
        raise FormatError("", f"has no path of more than {form.strip} components (strip_components)")


def _all_members(stream: BinaryIO, kind: Kind, limits: Limits) -> ArchiveMembers:
    size = os.fstat(stream.fileno()).st_size
    budget = Budget(limits, size)
    # A zip has its directory at the end and needs seeking. A tar is read sequentially.
    if kind is Kind.ZIP:
        yield from ZipReader(stream, size, limits, budget)
        return
    pieces = uncompressed(stream, kind)
    yield from TarReader(ArchiveSource(pieces, budget), budget)


_KINDS = {Type.FILE: "file", Type.HARD_LINK: "file", Type.LINK: "link", Type.DIRECTORY: "directory"}


@contextmanager
def listed(archive: str, form: Form, parent: str, limits: Limits = LIMITS) -> Iterator["Listed"]:
    """Yield the members of an archive for comparison with the files in ``parent``.

    Raises ``FormatError``, ``ResourceError``, ``OSError``.
    """
    with ExitStack() as stack:
        target = stack.enter_context(open_safely(parent)) if os.path.isdir(parent) else None
        listing = Listed(parent, target)
        stream = stack.enter_context(open_archive(archive))
        for member, contents in read_members(stream, form, limits):
            listing.add(member, contents)
        yield listing


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
        desired, digest = self.members[path], self._digests[path]
        return self._target is not None and is_another(self._target, path, desired, lambda: digest)

    def refuse_in_the_way(self, removable: Removable) -> None:
        """Raise ``ResourceError`` for another file type in the way, unless it is an unchanged earlier member."""
        for path, expected in self.members.items():
            there = None if self._target is None else attributes_at(self._target, path)
            if self._target is None or there is None or "directory" not in (there.kind, expected.kind):
                continue
            if there.kind != expected.kind and not is_all_removable(self._target, path, removable):
                mode = os.lstat(os.path.join(self._where, path)).st_mode
                raise in_the_way(self._where, path, mode, expected.kind)


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STAGING = re.compile(r"\.puller-[0-9a-f]{12}(-[0-9a-f]{12})?\.new")


@contextmanager
def unpacked(
    archive: Opened, form: Form, parent: str, *, uid: int, gid: int, limits: Limits = LIMITS
) -> Iterator[Unpacked]:
    """Extract the members of ``archive`` for the directory ``parent``, without changes to its other contents.

    1. Open ``parent`` without following links of other users.
    2. Create a private directory in it, so that all later renames stay on one file system.
    3. Copy the archive if another user may write to it, and verify the checksum of the copy (``opened.kept``).
    4. Extract the members into the private directory, each below a descriptor, and symbolic links last.
    5. Yield them (``filling.fill`` moves them into place), and remove the private directory.

    Raises ``FormatError`` for an invalid archive, ``ResourceError`` if another process changed it or the space is
    insufficient, and ``OSError``.
    """
    # 1. and 2. Open, and create a private directory
    with naming(parent), open_safely(parent) as target, _private_directory(target) as staging:
        # 3. A private copy
        with kept(archive, staging, parent) as stream:
            # 4. Unpack
            detail = f"what {archive.path} holds"
            with needing_space(parent, target, detail, lambda: _size_of(stream, form, limits)):
                _unpack(stream, form, limits, _Tree(staging, uid, gid, limits.entries))
        # 5. Yield
        yield Unpacked(staging, target, parent)


def _unpack(stream: BinaryIO, form: Form, limits: Limits, tree: "_Tree") -> None:
    try:
        for member, contents in read_members(stream, form, limits):
            tree.add(member, contents)
        tree.add_links()
    finally:
        tree.close()


def _size_of(stream: BinaryIO, form: Form, limits: Limits) -> int:
    """Return the total size of all files in bytes."""
    stream.seek(0)
    size = 0
    for member, contents in read_members(stream, form, limits):
        size += member.size
        for _ in contents:
            pass
    return size


@contextmanager
def _private_directory(target: int) -> Iterator[int]:
    """Yield a new directory in ``target``, and remove it afterwards."""
    _remove_left_over(target)
    name = f".puller-{os.urandom(6).hex()}.new"
    os.mkdir(name, 0o700, dir_fd=target)
    try:
        with in_progress(descriptor := os.open(name, REAL_DIRECTORY, dir_fd=target)):
            require_new(name, descriptor)
            remove_foreign_acls(descriptor, target, None)
            yield descriptor
    finally:
        with suppress(FileNotFoundError):
            remove_directory(name, within=target)


def _remove_left_over(target: int) -> None:
    """Remove private directories of killed runs, except those that another process has locked."""
    for name in os.listdir(target):
        if _STAGING.fullmatch(name):
            with suppress(OSError):
                descriptor = os.open(name, REAL_DIRECTORY, dir_fd=target)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_directory(name, within=target)
                finally:
                    os.close(descriptor)


class _Tree:
    """A directory that is being filled.

    Symbolic links are created last, so that no member is written through one. ``_open`` holds the descriptors of the
    last member's directories, because consecutive members usually share them.
    """

    def __init__(self, root: int, uid: int, gid: int, most_directories: int) -> None:
        self._root = root
        self._uid = uid
        self._gid = gid
        self._most_directories = most_directories
        self._directories = 0
        self._now = int(time.time())
        self._open: list[tuple[str, int]] = []
        self._links: list[Member] = []

    def add(self, member: Member, contents: Iterator[bytes]) -> None:
        """Extract a member. Raises ``FormatError``, also for a duplicate name."""
        if member.type is Type.LINK:
            self._links.append(member)
            return
        try:
            if member.type is Type.FILE:
                self._write(member, contents)
            elif member.type is Type.DIRECTORY:
                os.fchmod(self._enter(member, member.path.parts), member.mode)
            else:
                self._link_hard(member)
        except FileExistsError:
            raise _taken(member) from None

    def add_links(self) -> None:
        """Create the symbolic links. Raises ``FormatError``."""
        for link in self._links:
            *directories, name = link.path.parts
            directory = self._enter(link, directories)
            try:
                os.symlink(link.target, name, dir_fd=directory)
            except FileExistsError:
                raise _taken(link) from None
            os.chown(name, self._uid, self._gid, dir_fd=directory, follow_symlinks=False)

    def close(self) -> None:
        self._leave(0)

    def _write(self, member: Member, contents: Iterator[bytes]) -> None:
        *directories, name = member.path.parts
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=self._enter(member, directories))
        with open(descriptor, "wb", buffering=0) as stream:
            # Owner before mode: chown clears bits of the mode.
            os.fchown(descriptor, self._uid, self._gid)
            os.fchmod(descriptor, member.mode)
            for piece in contents:
                _write_all(stream.fileno(), piece)
            if member.modified is not None:
                modified = min(member.modified, self._now)
                os.utime(descriptor, (modified, modified))

    def _link_hard(self, member: Member) -> None:
        """Create a hard link to an earlier file."""
        *directories, name = member.path.parts
        *its_directories, its_name = member.target.split("/")
        try:
            source = os.dup(self._enter(member, its_directories, make=False))
            try:
                if not stat.S_ISREG(os.stat(its_name, dir_fd=source, follow_symlinks=False).st_mode):
                    raise FileNotFoundError
                here = self._enter(member, directories)
                os.link(its_name, name, src_dir_fd=source, dst_dir_fd=here, follow_symlinks=False)
            finally:
                os.close(source)
        except FileNotFoundError:
            detail = f"is a hard link to {shown(member.target)}, which is not a previous file of the archive"
            raise FormatError(shown(member.path.text), detail) from None

    def _enter(self, member: Member, directories: list[str], *, make: bool = True) -> int:
        """Return the descriptor of a directory, valid until the next call. Creates missing directories."""
        shared = 0
        for (name, _), expected in zip(self._open, directories, strict=False):
            if name != expected:
                break
            shared += 1
        self._leave(shared)
        for name in directories[shared:]:
            current = self._open[-1][1] if self._open else self._root
            self._open.append((name, self._open_or_make(member, name, current, make=make)))
        return self._open[-1][1] if self._open else self._root

    def _open_or_make(self, member: Member, name: str, current: int, *, make: bool) -> int:
        made = False
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=current)
                self._count_directory()
                made = True
        try:
            descriptor = os.open(name, REAL_DIRECTORY, dir_fd=current)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            detail = f"requires {shown(name)} to be a directory, but the archive has a file or link there"
            raise FormatError(shown(member.path.text), detail) from None
        if made:
            os.fchown(descriptor, self._uid, self._gid)
            os.fchmod(descriptor, 0o755)
        return descriptor

    def _count_directory(self) -> None:
        """Count a new directory, because one short member name can require as many directories as a path can have."""
        self._directories += 1
        if self._directories > self._most_directories:
            raise FormatError("", f"holds more than {self._most_directories} directories")

    def _leave(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])


def _taken(member: Member) -> FormatError:
    return FormatError(
        shown(member.path.text), "stands twice in the archive, or beside a name that is the same here"
    )


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
