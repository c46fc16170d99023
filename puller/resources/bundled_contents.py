"""The files of a bundle that a resource takes to a machine as they are: what authors compare before a release."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from puller.errors import ResourceError, reason
from puller.resources.base import Content, Context
from puller.resources.remote import is_url

_CHUNK = 1024 * 1024  # bytes


class BundledFile(msgspec.Struct, frozen=True):
    """A regular file of the bundle, however large."""

    path: str
    size: int
    is_secret: bool = False

    def chunks(self) -> Iterable[bytes]:
        """Raises ``ResourceError`` when it cannot be read."""
        try:
            with open(self.path, "rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise ResourceError(f"{self.path} cannot be read: {reason(error)}") from error


def bundled_contents(paths: Iterable[str], context: Context, below: str = "") -> Mapping[str, Content]:
    """The files that relative paths mean, and those below the directories among them, by the paths as written.

    With ``below``, a directory stands there on the machine, and its files are named by their places there.
    Absolute paths and URLs are of the machine and of others. Raises ``ResourceError`` for what is not there.
    """
    found: dict[str, Content] = {}
    for path in paths:
        if not os.path.isabs(path) and not is_url(path):
            found.update(_files(context.files.find(path), path.rstrip("/"), below or path.rstrip("/")))
    return found


def _files(real: str, written: str, placed: str) -> Iterator[tuple[str, Content]]:
    try:
        status = os.stat(real)
        if stat.S_ISREG(status.st_mode):
            yield placed, BundledFile(real, status.st_size)
        elif stat.S_ISDIR(status.st_mode):
            for name in sorted(os.listdir(real)):
                yield from _files(os.path.join(real, name), f"{written}/{name}", f"{placed}/{name}")
        else:
            raise ResourceError(f"{written} is neither a regular file nor a directory")
    except OSError as error:
        raise ResourceError(f"{written} cannot be read: {reason(error)}") from error
