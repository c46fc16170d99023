"""The files of a bundle that a resource takes to a machine as they are: what authors compare before a release."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from foundation.problems import ProblemCode
from puller.errors import ResourceError, reason
from puller.resources.base import Context
from puller.resources.remote import is_url

_CHUNK = 1024 * 1024  # bytes


class BundledFile(msgspec.Struct, frozen=True):
    """A regular file of the bundle, however large."""

    path: str
    size: int
    is_secret: bool = False
    executable: bool = False
    """Whether its owner may run it."""

    def chunks(self) -> Iterable[bytes]:
        """Raises ``ResourceError`` when it cannot be read."""
        try:
            with open(self.path, "rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise ResourceError(f"{self.path} cannot be read: {reason(error)}") from error


def bundled_contents(paths: Iterable[str], context: Context, below: str = "") -> Mapping[str, BundledFile]:
    """The files that relative paths mean, and those below the directories among them, by the paths as written.

    With ``below``, a directory stands there on the machine, and its files are named by their places there.
    Absolute paths and URLs are of the machine and of others. Raises ``ResourceError`` for what is not there.
    """
    found: dict[str, BundledFile] = {}
    for path in paths:
        if not os.path.isabs(path) and not is_url(path):
            found.update(_files(context.files.find(path), path.rstrip("/"), below or path.rstrip("/")))
    return found


_File = TypeVar("_File", bound=msgspec.Struct)


def plain_files(found: Mapping[str, _File]) -> Mapping[str, _File]:
    """Contents that have a field ``executable``, where the mode of the resource says that none is a program."""
    return {path: msgspec.structs.replace(content, executable=False) for path, content in found.items()}


def _files(real: str, written: str, placed: str) -> Iterator[tuple[str, BundledFile]]:
    pending = [(real, written, placed)]  # not recursive, as a tree may be deeper than Python's stack
    while pending:
        real, written, placed = pending.pop()
        try:
            status = os.stat(real)
            is_directory = stat.S_ISDIR(status.st_mode)
            names = os.listdir(real) if is_directory else []
        except OSError as error:
            raise ResourceError(
                f"{written} cannot be read: {reason(error)}", code=ProblemCode.MISSING_FILE, name=written
            ) from error
        if stat.S_ISREG(status.st_mode):
            yield placed, BundledFile(real, status.st_size, executable=bool(status.st_mode & stat.S_IXUSR))
        elif not is_directory:
            raise ResourceError(f"{written} is neither a regular file nor a directory")
        pending += (
            (os.path.join(real, name), f"{written}/{name}", f"{placed}/{name}")
            for name in sorted(names, reverse=True)
        )
