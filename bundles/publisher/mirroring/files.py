"""The files of a copy: which are there as they were signed for, and how one gets there.

* A file gets its name below ``public/`` when it is whole and verified.
* One that was verified is known again by its size and the time of its last change.
"""

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

from bundles.client.files import CompressedFile
from bundles.client.targets import download_target, explained, fetch_target, is_target
from bundles.errors import FormatError, NotFoundError
from bundles.filesystem.atomic import read_limited
from bundles.filesystem.output import OutputTree
from bundles.filesystem.trees import open_regular
from bundles.format.artifact import Archive, Digest
from bundles.format.compressed_file import verified
from bundles.format.target_paths import target_path
from bundles.format.tuf import TargetFile
from bundles.publisher.mirroring.state import Stamp
from bundles.publisher.push.contents import FILES
from bundles.transport.mirror import Mirror


class Wanted:
    """A file that the copy is to have at ``path``, below ``public/`` as below the site."""

    def __init__(self, path: str, info: TargetFile, expected: int, *, optional: bool = False) -> None:
        self.path = path
        self.info = info
        self.expected = expected
        """Bytes that it is likely to have."""
        self.optional = optional
        """Whether a site may lack it: hosts take the archive then."""

    @property
    def sha256(self) -> str:
        """The digest that was signed for."""
        return str(self.info.hashes["sha256"])

    @property
    def is_exact(self) -> bool:
        """Whether the file has as many bytes as its info states; a compressed file has at most so many."""
        return not isinstance(self.info, CompressedFile)

    @classmethod
    def archive(cls, archive: Archive, where: str) -> "Wanted":
        """Raises `FormatError` for a path without the digest in it: the contents under a name never change."""
        path = f"targets/{archive.path}"
        if not Path(path).name.startswith(f"{archive.sha256}.") or path.startswith(FILES):
            raise FormatError(
                f"{where}/{path}", f"wanted a name that begins with its sha256, {archive.sha256}"
            )
        info = TargetFile(archive.length, {"sha256": archive.sha256}, archive.path)
        return cls(path, info, archive.length)

    @classmethod
    def file(cls, digest: Digest, shrinks_to: float = 1.0) -> "Wanted":
        """``shrinks_to``: how small such files become; nobody has signed that, and it only says how long it takes."""
        info = CompressedFile(digest)
        return cls(f"targets/{info.path}", info, int(digest.length * shrinks_to), optional=True)


class Files:
    """The files below ``public``; ``known`` are the stamps of those that were verified before."""

    def __init__(self, public: Path, incoming: Path, mirror: Mirror, known: dict[str, Stamp]) -> None:
        self._public = public
        self._tree = OutputTree(public)
        self._incoming = incoming
        self._mirror = mirror
        self._known = known
        self.stamps: dict[str, Stamp] = {}
        """Of those that are as they were signed for."""

    def has(self, wanted: Wanted) -> bool:
        """Whether a file is there, as it was signed for."""
        path = self._public / wanted.path
        try:
            found = stamp_of(path)
            if self._known.get(wanted.path) != found:
                with open_regular(path) as stream:
                    if not is_target(wanted.info, stream):
                        return False
        except OSError:  # it is not there, or something else is; either way it is replaced
            return False
        self.stamps[wanted.path] = found
        return True

    def place(self, wanted: Wanted, check: Callable[[], None]) -> bool:
        """Fetch and verify a file, and give it its name; raises as ``fetch_target``.

        False for one that the site lacks, and may.
        """
        staged, path = self._incoming / f"{wanted.sha256}.tar.gz", self._public / wanted.path
        try:
            fetch_target(self._mirror, wanted.info, wanted.path, staged, check, is_exact=wanted.is_exact)
        except NotFoundError:
            if wanted.optional:
                return False
            raise
        with explained(path):
            self._tree.move_in(staged, wanted.path)
            self.stamps[wanted.path] = stamp_of(path)
        return True

    def read_document(self, info: TargetFile, limit: int) -> bytes:
        """An index or a history, from the copy when it has not changed; raises as ``download_target``."""
        path = target_path(info)
        try:
            data = read_limited(self._public / path, limit)
            if is_target(info, data):
                return data
        except (OSError, ValueError):
            pass
        buffer = io.BytesIO()
        download_target(self._mirror, info, path, min(info.length, limit), buffer)
        return buffer.getvalue()

    def read_description(self, digest: Digest) -> bytes | None:
        """The description of a version, from the copy when it is there; ``None`` where the site has none."""
        wanted = Wanted.file(digest)
        buffer = io.BytesIO()
        if self.has(wanted):
            with explained(self._public / wanted.path):
                buffer.write(read_limited(self._public / wanted.path, wanted.info.length))
        else:
            try:
                download_target(
                    self._mirror,
                    wanted.info,
                    wanted.path,
                    wanted.info.length,
                    buffer,
                    is_exact=wanted.is_exact,
                )
            except NotFoundError:
                return None
        buffer.seek(0)
        return b"".join(verified(buffer, digest))


def stamp_of(path: Path) -> Stamp:
    """Raises ``OSError``, also for what is no regular file."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise FileNotFoundError(str(path))
    return found.st_size, found.st_mtime_ns
