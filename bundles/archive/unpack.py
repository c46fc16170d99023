"""Directories of bundles, unpacked from an archive or assembled from local and downloaded files.

* Nothing outside the new directory is created, changed or touched, whatever the archive contains.
* The destination appears only when it is complete, verified against ``bundle.json`` and flushed to disk.
* The files are read-only and never written again. They are never hard links to files elsewhere. Clones (reflinks)
  share disk blocks safely, because a write to one file does not change the other.
* `assemble` builds the directory that `unpack` makes of the archive, without the archive. Each file is compared with
  its SHA-256 during the copy, so its source needs no trust: an installed version, another bundle or a download.

``tarfile`` is not used: its filters have been bypassed several times, and Python 3.11.2 does not have them.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from bundles.archive.reader import BundleReader
from bundles.errors import FormatError, SignatureError, StoreError, UnpackError
from bundles.filesystem.atomic import sync_directory
from bundles.filesystem.trees import (
    Counted,
    check_free_space,
    open_regular,
    pieces_of,
    remove_tree,
    sync_filesystem,
)
from bundles.format.description import BundleDescription, FileEntry
from bundles.format.fields import DESCRIPTION, MemberPath
from bundles.format.index import Artifact, Digest
from bundles.format.size_limits import LIMITS, Limits, verified
from foundation.problems import ProblemCode

# The new directory that `unpack` and `assemble` write through.

FILE_MODE = 0o444
_DIRECTORY_MODE = 0o555
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE = 0x40049409
"""From linux/fs.h. The module ``fcntl`` defines it from Python 3.12 on."""


def fill_and_place(destination: Path, fill: Callable[["NewTree"], None]) -> None:
    """Create the new directory ``destination`` with the files that ``fill`` writes. Its parent must exist.

    Raises ``StoreError`` if the destination exists, ``OSError``, and the errors of ``fill``. Leaves nothing behind
    then.

    1. Create a private directory with a hidden name beside the destination.
    2. Fill it.
    3. Make all directories read-only, and flush everything to disk.
    4. Rename the directory to the destination, and flush the rename.
    """
    if os.path.lexists(destination):
        raise StoreError(str(destination), "already exists")
    # 1. Beside the destination, so that the rename stays within one file system. Private until it is complete.
    staging = destination.with_name(f".{destination.name}.{os.urandom(6).hex()}.new")
    os.mkdir(staging, 0o700)
    try:
        with NewTree(staging) as tree:
            fill(tree)  # 2.
            tree.finish()  # 3.
        # 4.
        os.rename(staging, destination)
    except BaseException:
        with suppress(OSError):  # the first error matters more, and leftovers have hidden names
            remove_tree(staging)
        raise
    sync_directory(destination.parent)


class NewTree:
    """A new directory and its files, which the caller writes in the order of their names.

    Every step is relative to the descriptor of a new directory. Neither another process nor an earlier member can
    therefore redirect a path with a link. In the order of names, only the directories of one path are open at a time.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, _DIRECTORY)
        self._open: list[tuple[str, int]] = []

    def __enter__(self) -> "NewTree":
        return self

    def __exit__(self, *_: object) -> None:
        for _name, descriptor in self._open:
            os.close(descriptor)
        os.close(self._root)

    def write(self, path: MemberPath, pieces: Iterator[bytes], mode: int) -> None:
        """Write the next file with these contents."""
        with self._created(path, mode) as stream:
            stream.writelines(pieces)

    def copy(self, path: MemberPath, source: BinaryIO, mode: int) -> Iterator[bytes]:
        """Clone the next file from another file if the file system can, otherwise copy it.

        Yields the contents of the new file in pieces, for verification by the caller.
        """
        with self._created(path, mode) as stream:
            if _is_cloned(source, stream):
                yield from pieces_of(stream)
                return
            for piece in pieces_of(source):
                stream.write(piece)
                yield piece

    def finish(self) -> None:
        """Make all directories read-only, and flush everything to disk."""
        self._leave(0)
        os.fchmod(self._root, _DIRECTORY_MODE)
        sync_filesystem(self._root)

    @contextmanager
    def _created(self, path: MemberPath, mode: int) -> Iterator[BinaryIO]:
        *directories, name = path.parts
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=self._enter(directories))
        with open(descriptor, "w+b") as stream:
            os.fchmod(descriptor, mode)
            yield stream

    def _enter(self, directories: list[str]) -> int:
        """Return the descriptor of a directory, which is created unless the previous file was in it."""
        shared = 0
        for (name, _), expected in zip(self._open, directories, strict=False):
            if name != expected:
                break
            shared += 1
        self._leave(shared)
        for name in directories[shared:]:
            os.mkdir(name, 0o700, dir_fd=self._current())
            self._open.append((name, os.open(name, _DIRECTORY, dir_fd=self._current())))
        return self._current()

    def _leave(self, depth: int) -> None:
        while len(self._open) > depth:
            _, descriptor = self._open.pop()
            try:
                os.fchmod(descriptor, _DIRECTORY_MODE)
            finally:
                os.close(descriptor)

    def _current(self) -> int:
        return self._open[-1][1] if self._open else self._root


def _is_cloned(source: BinaryIO, target: BinaryIO) -> bool:
    """Clone ``source`` to ``target`` if the file system supports it. Returns whether that succeeded."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


Members = Iterator[tuple[FileEntry, Iterator[bytes]]]
"""Files of a bundle with their contents in pieces. Read the contents of each file before the next file."""


def inspect(archive: Path, *, limits: Limits = LIMITS) -> BundleDescription:
    """Check an archive as thoroughly as ``unpack``, without writing. Raises the same errors."""
    with _explained(archive, "cannot be read"), _opened(archive, None, limits, lambda: None) as reader:
        for path in reader.description.files:
            for _ in reader.contents(path):
                pass
        reader.finish()
        return reader.description


@contextmanager
def read_members(archive: Path, *, limits: Limits = LIMITS) -> Iterator[tuple[BundleDescription, Members]]:
    """Yield the description of a checked archive, and its files with their contents, in order.

    Raises ``OSError`` and ``FormatError``.
    """
    with _opened(archive, None, limits, lambda: None) as reader:
        files = reader.description.files.items()
        yield reader.description, ((entry, reader.contents(path)) for path, entry in files)


def read_description(archive: Path, sha256: str, *, limits: Limits = LIMITS) -> BundleDescription:
    """Return the description of a previously checked archive with this SHA-256. Raises the errors of ``unpack``."""
    with _explained(archive, "cannot be read"), _opened(archive, sha256, limits, lambda: None) as reader:
        return reader.description


def unpack(
    archive: Path,
    destination: Path,
    *,
    name: str | None = None,
    version: str | None = None,
    sha256: str | None = None,
    limits: Limits = LIMITS,
    check: Callable[[], None] = lambda: None,
) -> BundleDescription:
    """Unpack ``archive`` into the new directory ``destination``. Its parent must exist.

    ``name``, ``version`` and ``sha256`` come from the signed index. ``None`` accepts any value. Calls ``check``
    repeatedly and raises its errors. Raises ``SignatureError`` for another SHA-256, before the contents are parsed,
    ``UnpackError`` for an invalid archive, and ``StoreError`` if this machine cannot read or write. Leaves nothing
    behind then.

    1. Open the archive once, and compare its SHA-256 before any byte is parsed.
    2. Read ``bundle.json``, its first member, and check limits, name and version.
    3. Check the free space for all listed files.
    4. Create a private directory with a hidden name beside the destination.
    5. Write each file into it, in the order of ``bundle.json``, and check its header, size and SHA-256.
    6. Check the end of the archive. Make all directories read-only, and flush everything to disk.
    7. Rename the directory to the destination, and flush the rename.
    """
    with (
        _explained(archive, f"cannot be unpacked into {destination}"),
        _opened(archive, sha256, limits, check) as reader,  # 1.
    ):
        # 2.
        description = reader.description
        check_identity(description, name, version)
        # 3. Before the files fill the disk.
        check_space(description, destination)
        # 4. to 7.
        fill_and_place(destination, lambda tree: _fill(tree, reader, check))
        return description


@contextmanager
def _explained(archive: Path, failure: str) -> Iterator[None]:
    try:
        yield
    except FormatError as error:
        raise error.under(f"{archive}: {error.where}".removesuffix(": "), UnpackError) from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise StoreError(str(archive), f"{failure}: {reason}") from error


@contextmanager
def _opened(
    archive: Path, sha256: str | None, limits: Limits, check: Callable[[], None]
) -> Iterator[BundleReader]:
    with open_regular(archive, follow=True) as stream:
        if sha256 is not None:
            # The same open file is read again below, so that a file renamed into its place is never read.
            result = Counted(asking(check, pieces_of(stream))).exhaust().sha256
            if result != sha256:
                detail = f"sha256 is {result}, expected {sha256} from the signed index"
                raise SignatureError(str(archive), detail, code=ProblemCode.CHECKSUM_MISMATCH)
            stream.seek(0)
        yield BundleReader(stream, os.fstat(stream.fileno()).st_size, limits)


def asking(check: Callable[[], None], pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield ``pieces``, and call ``check`` before each. Raises the errors of ``check``."""
    for piece in pieces:
        check()
        yield piece


def check_space(description: BundleDescription, destination: Path) -> None:
    """Raise ``StoreError`` if the free space is too small for all files of a bundle. Raises ``OSError``, too."""
    files = len(description.files) + len(description.directories) + 2
    check_free_space(destination, destination.parent, size=description.size, files=files)


def check_identity(description: BundleDescription, name: str | None, version: str | None) -> None:
    """Raise ``FormatError`` for a bundle with an unexpected name or version."""
    for field, found, expected in (
        ("name", description.name, name),
        ("version", description.version, version),
    ):
        if expected is not None and found != expected:
            raise FormatError(f"{DESCRIPTION}: {field}", f"is {found!r}", expected=f"{expected!r}")


def _fill(tree: NewTree, reader: BundleReader, check: Callable[[], None]) -> None:
    # 5.
    tree.write(MemberPath(DESCRIPTION), iter([reader.description.to_bytes()]), FILE_MODE)
    for path, entry in reader.description.files.items():
        check()
        tree.write(path, asking(check, reader.contents(path)), entry.mode.unpacked)
    # 6.
    reader.finish()


# Assembly from files instead of an archive.


class Source(Protocol):
    """A candidate for a file of the bundle, on this machine."""

    def put(self, tree: NewTree, path: MemberPath, entry: FileEntry, check: Callable[[], None]) -> None:
        """Write the next file of ``tree``. Raises ``FormatError`` for other contents, and ``OSError``."""
        ...


class Unpacked(msgspec.Struct, frozen=True):
    """A file of an unpacked bundle."""

    path: Path

    def put(self, tree: NewTree, path: MemberPath, entry: FileEntry, check: Callable[[], None]) -> None:
        """Write the file, as in ``Source``. Raises the same errors."""
        with open_regular(self.path) as stream:
            contents = Counted(asking(check, tree.copy(path, stream, entry.mode.unpacked)))
            for _ in contents:
                if contents.size > entry.size:  # the file may grow while it is read
                    break
        if (contents.size, contents.sha256) != (entry.size, entry.sha256):
            raise FormatError(
                str(self.path), f"was changed, expected {entry.size} bytes, sha256 {entry.sha256}"
            )


class Fetched(msgspec.Struct, frozen=True):
    """A compressed file as downloaded from a site."""

    path: Path

    def put(self, tree: NewTree, path: MemberPath, entry: FileEntry, check: Callable[[], None]) -> None:
        """Write the file, as in ``Source``. Raises the same errors."""
        with open_regular(self.path) as stream:
            pieces = verified(stream, Digest(entry.size, entry.sha256))
            tree.write(path, asking(check, pieces), entry.mode.unpacked)


class Parts(msgspec.Struct, frozen=True):
    """The contents of a bundle: its verified description, and a source for each SHA-256."""

    artifact: Artifact
    description: bytes
    sources: Mapping[str, Source]


def assemble(
    parts: Parts,
    destination: Path,
    *,
    name: str,
    version: str,
    limits: Limits = LIMITS,
    check: Callable[[], None] = lambda: None,
) -> BundleDescription:
    """Assemble a bundle in the new directory ``destination``. Its parent must exist.

    Calls ``check`` repeatedly and raises its errors. Raises ``UnpackError`` for an invalid description or source, and
    ``StoreError`` if this machine cannot read or write. Leaves nothing behind then.

    1. Check that the description is the signed one, its limits, name and version.
    2. Check the free space for all listed files.
    3. Write each file, in the order of the description, and complete the directory as ``unpack`` does.
    """
    try:
        # 1.
        description = _checked(parts, limits)
        check_identity(description, name, version)
        # 2.
        check_space(description, destination)
        # 3.
        fill_and_place(destination, lambda tree: _fill_from_parts(tree, parts, description, check))
    except FormatError as error:
        raise error.under(f"{destination}: {error.where}".removesuffix(": "), UnpackError) from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise StoreError(str(destination), f"cannot be assembled: {reason}") from error
    return description


def _checked(pieces: Parts, limits: Limits) -> BundleDescription:
    limits.check_archive(pieces.artifact.archive.length)
    limits.check_description(len(pieces.description))
    if hashlib.sha256(pieces.description).hexdigest() != pieces.artifact.description.sha256:
        raise FormatError(DESCRIPTION, "differs from the description in the signed index")
    description = BundleDescription.parse(pieces.description)
    limits.check_files(description)
    limits.check_ratio(description, pieces.artifact.archive.length)
    return description


def _fill_from_parts(
    tree: NewTree, pieces: Parts, description: BundleDescription, check: Callable[[], None]
) -> None:
    tree.write(MemberPath(DESCRIPTION), iter([pieces.description]), FILE_MODE)
    for path, entry in description.files.items():
        check()
        pieces.sources[entry.sha256].put(tree, path, entry, check)
