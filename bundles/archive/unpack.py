"""From an archive to a directory.

* Nothing is created, changed or touched outside the directory that is being filled, whatever the archive
  holds.
* The destination exists once it is complete, checked against ``bundle.json`` and on the disk; until then it
  does not.
* What is unpacked is read-only, and is never written to again.

``tarfile`` is not used: its filters have been escaped several times, and Python 3.11.2 has none.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bundles.archive.reader import BundleReader
from bundles.errors import FormatError, SignatureError, StoreError, UnpackError
from bundles.filesystem.atomic import sync_directory
from bundles.filesystem.free_space import check_free_space
from bundles.filesystem.trees import Counted, open_regular, pieces_of, remove_tree, sync_filesystem
from bundles.format.description import BundleDescription
from bundles.format.identity import DESCRIPTION
from bundles.format.limits import LIMITS, Limits
from bundles.format.paths import MemberPath

_DIRECTORY_MODE = 0o555
_FILE_MODE = 0o444
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def inspect(archive: Path, *, limits: Limits = LIMITS) -> BundleDescription:
    """Check an archive as thoroughly as ``unpack`` does, and write nothing; raises what ``unpack`` raises."""
    with _explained(archive, "cannot be read"), _opened(archive, None, limits, lambda: None) as reader:
        for path in reader.description.files:
            for _ in reader.contents(path):
                pass
        reader.finish()
        return reader.description


def read_description(archive: Path, sha256: str, *, limits: Limits = LIMITS) -> BundleDescription:
    """The description of an archive that was checked before it got this SHA-256; raises what ``unpack`` raises."""
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
    """Unpack ``archive`` into ``destination``, which must not exist; its parent must.

    ``name``, ``version`` and ``sha256`` are what the signed index says; ``None`` takes what comes. Raises
    ``SignatureError`` when the file has another SHA-256, before anything in it is looked at; ``UnpackError``
    when the archive is not what it should be; ``StoreError`` when this machine cannot read or write; what ``check``
    raises, which is asked all the time. Nothing is left then.

    1. Open the archive, once: its SHA-256 is the signed one, before a byte of it is interpreted.
    2. Read ``bundle.json``, its first member: within the limits, and of the name and version that were asked for.
    3. Is there space for all that it lists?
    4. Make a directory beside the destination, under a hidden name and for its owner alone.
    5. Write each file into it, in the order of ``bundle.json``; its header, size and SHA-256 are as promised there.
    6. The archive ends here. Close all directories to writing, and wait until everything is on the disk.
    7. Rename the directory to the destination, and bring that to the disk, too.
    """
    with (
        _explained(archive, f"cannot be unpacked into {destination}"),
        _opened(archive, sha256, limits, check) as reader,  # 1.
    ):
        # 2.
        description = reader.description
        _check_identity(description, name, version)
        # 3. Better to say so now than to fill the disk for everybody else first.
        files = len(description.files) + len(description.directories) + 2
        check_free_space(destination, destination.parent, size=description.size, files=files)
        # 4. to 7.
        _fill_and_place(reader, destination, check)
        return description


@contextmanager
def _explained(archive: Path, failure: str) -> Iterator[None]:
    try:
        yield
    except FormatError as error:
        raise UnpackError(f"{archive}: {error.where}".removesuffix(": "), error.what) from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise StoreError(str(archive), f"{failure}: {reason}") from error


@contextmanager
def _opened(
    archive: Path, sha256: str | None, limits: Limits, check: Callable[[], None]
) -> Iterator[BundleReader]:
    with open_regular(archive, follow=True) as stream:
        if sha256 is not None:
            # The same open file is read again below: one that is renamed into its place is never looked at.
            found = Counted(_asking(check, pieces_of(stream))).exhaust().sha256
            if found != sha256:
                raise SignatureError(str(archive), f"sha256 is {found}, the signed index says {sha256}")
            stream.seek(0)
        yield BundleReader(stream, os.fstat(stream.fileno()).st_size, limits)


def _asking(check: Callable[[], None], pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        check()
        yield piece


def _check_identity(description: BundleDescription, name: str | None, version: str | None) -> None:
    for field, found, wanted in (("name", description.name, name), ("version", description.version, version)):
        if wanted is not None and found != wanted:
            raise FormatError(f"{DESCRIPTION}: {field}", f"is {found!r}, wanted {wanted!r}")


def _fill_and_place(reader: BundleReader, destination: Path, check: Callable[[], None]) -> None:
    if os.path.lexists(destination):
        raise StoreError(str(destination), "exists already")
    # 4. Beside the destination, so that the rename stays within a file system; private until it is complete.
    staging = destination.with_name(f".{destination.name}.{os.urandom(6).hex()}.new")
    os.mkdir(staging, 0o700)
    try:
        with _Tree(staging) as tree:
            _fill(tree, reader, check)
        # 7.
        os.rename(staging, destination)
    except BaseException:
        with suppress(OSError):  # the first error says more, and nobody takes what is left for a bundle
            remove_tree(staging)
        raise
    sync_directory(destination.parent)


def _fill(tree: "_Tree", reader: BundleReader, check: Callable[[], None]) -> None:
    # 5.
    tree.write(MemberPath(DESCRIPTION), iter([reader.description.to_bytes()]), _FILE_MODE)
    for path, entry in reader.description.files.items():
        check()
        tree.write(path, _asking(check, reader.contents(path)), entry.mode.unpacked)
    # 6.
    reader.finish()
    tree.finish()


class _Tree:
    """A new directory and the files put into it, in the order of their names.

    Every step is relative to the descriptor of a directory that was made here a moment ago, so there is no
    path in which another process, or an earlier member, could put a link. In the order of names a directory's
    files come one after the other, except those of directories below it: the descriptors open at one time are
    those of one path.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, _DIRECTORY)
        self._open: list[tuple[str, int]] = []

    def __enter__(self) -> "_Tree":
        return self

    def __exit__(self, *_: object) -> None:
        for _name, descriptor in self._open:
            os.close(descriptor)
        os.close(self._root)

    def write(self, path: MemberPath, pieces: Iterator[bytes], mode: int) -> None:
        *directories, name = path.parts
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=self._enter(directories))
        with open(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.writelines(pieces)

    def finish(self) -> None:
        """Close all directories to writing, and wait until everything is on the disk."""
        self._leave(0)
        os.fchmod(self._root, _DIRECTORY_MODE)
        sync_filesystem(self._root)

    def _enter(self, directories: list[str]) -> int:
        """The descriptor of a directory, made now unless the file before was in it too."""
        shared = 0
        for (name, _), wanted in zip(self._open, directories, strict=False):
            if name != wanted:
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
