"""Files of a machine, below its root directory.

* Links are never followed in the last name of a path, and never out of the root directory.
* Missing files are empty. Unreadable files are errors.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from foundation.problems import ProblemCode
from puller.errors import SourceError, file_problem

FILE_LIMIT: Final = 1 << 20
"""Maximum bytes of a configuration file in a draft."""
_DATABASE_LIMIT: Final = 256 << 20
_MOST_LINKS: Final = 40


class RootFiles:
    """Files below a root directory, by paths without a leading slash."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directories: dict[str, str] = {}

    def exists(self, path: str) -> bool:
        """Return whether an object exists, or a link whose target is missing."""
        return os.path.lexists(self._place(path))

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of a regular file, or ``None``. Raises ``SourceError``."""
        status = self.status_of_object(path)
        return status if status is not None and stat.S_ISREG(status.st_mode) else None

    def status_of_object(self, path: str) -> os.stat_result | None:
        """Return the status of an object, or ``None`` for a missing one. Raises ``SourceError``."""
        try:
            return os.lstat(self._place(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(file_problem(error)) from error

    def link(self, path: str) -> str | None:
        """Return the target of a link, or ``None``."""
        try:
            return os.readlink(self._place(path))
        except OSError:
            return None

    def content(self, path: str, limit: int = FILE_LIMIT) -> bytes | None:
        """Return the content of a regular file, or ``None`` if it is larger. Raises ``SourceError``."""
        try:
            descriptor = os.open(
                self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
            with open(descriptor, "rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise SourceError(file_problem(error, where=self.root / path)) from error
        return data if len(data) <= limit else None

    def lines(self, path: str, limit: int = _DATABASE_LIMIT) -> list[str]:
        """Return the lines of a text, or an empty list for a missing file. Raises ``SourceError``."""
        if self.status(path) is None:
            return []
        data = self.content(path, limit)
        if data is None:
            raise SourceError(
                f"{self.root / path}: has more than {limit} bytes", code=ProblemCode.LIMIT_EXCEEDED
            )
        return data.decode(errors="replace").splitlines()

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, or an empty list. Raises ``SourceError``."""
        try:
            return sorted(os.listdir(self._place(f"{path}/.")))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise SourceError(file_problem(error)) from error

    def _place(self, path: str) -> str:
        """Return the place of an object on this machine. Links to directories stay below the root directory."""
        directory, _, name = path.rpartition("/")
        if directory not in self._directories:
            self._directories[directory] = self._resolved(directory)
        return os.path.join(self.root, self._directories[directory], name)

    def _resolved(self, directory: str) -> str:
        """Return a directory without links. An absolute link of an image starts at the root of the image."""
        place: list[str] = []
        names, links = directory.split("/")[::-1], 0
        while names:
            name = names.pop()
            if name == "..":
                place = place[:-1]
            elif name not in ("", "."):
                try:
                    target = os.readlink(os.path.join(self.root, *place, name))
                except OSError:  # not a link, or reported when the object is read
                    place.append(name)
                    continue
                links += 1
                if links > _MOST_LINKS:
                    raise SourceError(f"{self.root / directory}: too many links")
                place = [] if target.startswith("/") else place
                names += target.split("/")[::-1]
        return "/".join(place)


def stanzas(lines: list[str]) -> Iterator[Mapping[str, str]]:
    """Yield the stanzas of a database of dpkg. Further lines of a field keep their line breaks."""
    stanza: dict[str, str] = {}
    field = ""
    for line in [*lines, ""]:
        if not line.strip():
            if "Package" in stanza:
                yield stanza
            stanza, field = {}, ""
        elif line[0] in " \t":
            if field:
                stanza[field] += f"\n{line.strip()}"
        elif ":" in line:
            field, _, value = line.partition(":")
            stanza[field] = value.strip()


def number_of(text: str) -> int | None:
    """Return the number of an account or a field, or ``None`` for an invalid one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None
