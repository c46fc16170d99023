"""The directory of the pages: what is new is written, what is gone removed, and files of others are left alone.

``pages.json`` names the files that are ours, and what each was made of, so that the next time only those are made of
which something is different. The directory may belong to another user: ``bundles/filesystem/output.py`` writes there.
"""

import hashlib
from pathlib import Path

import msgspec

from bundles.filesystem.output import OutputTree
from foundation.problems import ProblemCode
from puller.errors import SourceError, UsageError, file_problem

LIST = "pages.json"
_SIZE_LIMIT = 256 * 1024 * 1024


class _Made(msgspec.Struct, tag_field="format", tag=1):
    """The files of the last time, each with a digest of what it was made of."""

    files: dict[str, str] = {}


class Output:
    """Files below ``directory``; methods raise ``SourceError``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tree = OutputTree(directory)
        self._before = self._read()
        self._files: dict[str, str] = {}
        self.written = 0
        self.removed = 0

    def _read(self) -> dict[str, str]:
        try:
            made = msgspec.json.decode(self._tree.read(LIST, _SIZE_LIMIT), type=_Made)
        except FileNotFoundError:
            if self._directory.exists() and any(self._directory.iterdir()):
                what = "is not empty, and no directory of pages"
                raise UsageError(
                    f"{self._directory}: {what}: name a new or an empty one",
                    code=ProblemCode.UNWRITABLE_OUTPUT,
                ) from None
            return {}
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read")) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise SourceError(
                f"{self._directory / LIST}: is damaged: {error}",
                code=ProblemCode.INVALID_DOCUMENT,
                hint="remove it and the pages",
            ) from None
        return made.files

    def is_made(self, name: str, of: str) -> bool:
        """Whether a page is there that was made of the same; it stays then."""
        if self._before.get(name) == of and self._is_file(name):
            self._files[name] = of
            return True
        return False

    def write(self, name: str, data: bytes, of: str = "") -> None:
        """Write a page, unless it is there as it is to be."""
        of = of or hashlib.sha256(data).hexdigest()
        if self.is_made(name, of):
            return
        try:
            if not self._tree.is_file(LIST):
                # Before the first page: after a kill the directory is still known as one of pages.
                self._note(self._before)
            # All of them are brought to the disk together, before the list says that they are there.
            self._tree.write(name, [data], durable=False)
        except OSError as error:
            path = self._directory / name
            raise SourceError(
                file_problem(error, "cannot be written", where=path), code=ProblemCode.UNWRITABLE_OUTPUT
            ) from error
        self._files[name] = of
        self.written += 1

    def finish(self) -> None:
        """Remove the pages that were not made this time, and note those that were."""
        try:
            self._tree.sync()
            # Both, until what is gone is removed: a kill in between leaves no file that nobody knows.
            self._note({**self._before, **self._files})
            for name in self._before.keys() - self._files.keys():
                if _is_ours(name):
                    self._tree.remove(name)
                    self.removed += 1
            self._note(self._files)
        except OSError as error:
            where = error.filename or self._directory
            raise SourceError(
                file_problem(error, "cannot be written", where=where), code=ProblemCode.UNWRITABLE_OUTPUT
            ) from error
        finally:
            self._tree.close()

    def _is_file(self, name: str) -> bool:
        try:
            return self._tree.is_file(name)
        except OSError as error:
            raise SourceError(file_problem(error, "cannot be read")) from error

    def _note(self, files: dict[str, str]) -> None:
        self._tree.write(LIST, [msgspec.json.encode(_Made(files))])


def _is_ours(name: str) -> bool:
    """Whether a name can be that of a page: the list lies where others may write."""
    parts = name.split("/")
    return len(parts) <= 2 and all(part and part[0] != "." for part in parts)
