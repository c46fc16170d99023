"""Files of bundles, each once, below ``public/targets/files/``, for hosts that already have most of a version.

* A file is written once for all versions and bundles that contain it, and never changed.
* A large file that is nearly all of its bundle is omitted, because hosts without it fetch the archive.
* A file gets its name when it is complete and flushed. Files are flushed together, because flushing thousands of files
  takes as long as flushing one.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bundles.archive.pack import gzipped, side_by_side
from bundles.archive.unpack import Members, read_members
from bundles.errors import FormatError, SignatureError
from bundles.filesystem.atomic import open_directory, write_all
from bundles.filesystem.trees import open_regular, remove_tree, sync_filesystem
from bundles.format.description import BundleDescription, FileEntry, worth_asking_for
from bundles.format.index import Digest
from bundles.format.size_limits import file_path, longest_compressed, verified
from foundation.problems import ProblemCode

_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_BEGUN = ".begun-"
_SMALL = 256 * 1024
"""Size limit in bytes for files compressed in memory. Larger files are compressed in blocks, possibly in parallel."""


class _Listed(msgspec.Struct):
    files: dict[str, FileEntry]


class Files:
    """The files below ``targets``, the directory of that name of a site."""

    def __init__(self, targets: Path) -> None:
        self._targets = targets
        self._directory = targets / "files"

    def path(self, sha256: str) -> Path:
        """Return the path of the file with this SHA-256."""
        return self._targets / file_path(sha256)

    def add(self, archives: Iterable[Path]) -> None:
        """Write the missing files of checked ``archives``. Raises ``OSError``.

        1. Compress each missing file under a temporary name.
        2. Flush all files.
        3. Rename them, and flush the renames.
        """
        make_directory(self._directory)
        with self._begun() as begun:
            # 1.
            added: set[str] = set()
            for archive in archives:
                added |= self._compressed(archive, added, begun)
            # 2. and 3.
            if added:
                self._place(added, begun)

    def _compressed(self, archive: Path, added: set[str], begun: Path) -> set[str]:
        """Compress the files of a bundle that are neither stored nor ``added`` into ``begun``.

        Returns their SHA-256.
        """
        with read_members(archive) as (description, members):
            data = description.to_bytes()
            described = hashlib.sha256(data).hexdigest()
            listed = {described, *worth_asking_for(description.files.values())}
            desired = {sha256 for sha256 in listed - added if not self.path(sha256).exists()}
            if described in desired:
                _write(begun / described, gzipped([data]))
            _compress(members, desired - {described}, begun)
            return desired

    def lacks(self, described: Digest, description: BundleDescription) -> bool:
        """Return whether the description of a bundle, or a file that `add` writes, is missing."""
        listed = [described.sha256, *worth_asking_for(description.files.values())]
        return not all(self.path(sha256).exists() for sha256 in listed)

    def _place(self, needed: Iterable[str], begun: Path) -> None:
        with open_directory(self._directory) as directory:
            # 2.
            sync_filesystem(directory)
            # 3.
            for sha256 in needed:
                make_directory(self.path(sha256).parent)
                os.rename(begun / sha256, self.path(sha256))
            sync_filesystem(directory)

    def named_by(self, description: Digest) -> dict[str, Digest]:
        """Return every file of a bundle that hosts may request, including its description, by SHA-256.

        Raises `SignatureError` if the description differs from the signed one, and ``OSError``.
        """
        data = b"".join(self.verified(description))
        # The same bytes were validated before they were signed.
        files = msgspec.json.decode(data, type=_Listed).files.values()
        named = {sha256: Digest(entry.size, sha256) for sha256, entry in worth_asking_for(files).items()}
        return {**named, description.sha256: description}

    def verified(self, digest: Digest) -> Iterator[bytes]:
        """Yield a file in pieces. Raises `SignatureError` at the end for other contents, and ``OSError``."""
        path = self.path(digest.sha256)
        try:
            with open_regular(path) as stream:
                if os.fstat(stream.fileno()).st_size > longest_compressed(digest.length):
                    raise FormatError("", "is larger than the limit of hosts")
                yield from verified(stream, digest)
        except FormatError as error:
            raise error.under(str(path), SignatureError, code=ProblemCode.CHECKSUM_MISMATCH) from None

    @contextlib.contextmanager
    def _begun(self) -> Iterator[Path]:
        """Yield a directory for incomplete files. Removes such directories of killed publishers."""
        for leftover in self._directory.glob(f"{_BEGUN}*"):
            remove_tree(leftover)
        begun = self._directory / f"{_BEGUN}{os.urandom(6).hex()}"
        begun.mkdir(mode=0o700)
        try:
            yield begun
        finally:
            remove_tree(begun)


def _compress(members: Members, desired: set[str], directory: Path) -> None:
    """Write the ``desired`` files of ``members``, and stop reading after the last of them."""

    def small() -> Iterator[tuple[Path, bytes]]:
        while desired:
            entry, contents = next(members)
            path = directory / entry.sha256
            if entry.sha256 in desired and entry.size > _SMALL:
                _write(path, gzipped(contents))
            elif entry.sha256 in desired:
                yield path, b"".join(contents)
            desired.discard(entry.sha256)
            for _ in contents:  # advance to the next member
                pass

    # Written by this thread only: threads that create files in one directory block each other in the kernel.
    for path, compressed in side_by_side(lambda file: (file[0], b"".join(gzipped([file[1]]))), small()):
        _write(path, [compressed])


def _write(path: Path, contents: Iterable[bytes]) -> None:
    with open(path, "xb", buffering=0) as stream:
        os.fchmod(stream.fileno(), _FILE_MODE)
        for piece in contents:
            write_all(stream.fileno(), piece)


def make_directory(path: Path) -> None:
    """Create a directory that a web server can read. Raises ``OSError``."""
    path.mkdir(exist_ok=True)
    path.chmod(_DIRECTORY_MODE)  # regardless of the umask
