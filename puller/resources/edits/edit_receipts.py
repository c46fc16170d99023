"""Receipts of edits, for their removal when they are no longer declared.

* An edit is recorded before it is written. A receipt holds only the checksum of a line, because a line may be secret.
* Text that existed before the edit is not recorded, in any form. The record is updated when the edit changes the text.
* A damaged or unknown receipt is set aside. Its edits stay.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from puller.resources.base import Context
from puller.resources.content_sources import sha256
from puller.state import Directories, StateFile

_LARGEST = 64 * 1024 * 1024  # bytes
_LONGEST_NAME = 200  # bytes; file systems allow 255


class Made(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line, block or setting that an edit created in the file at ``path``."""

    path: str
    lines: tuple[str, ...] = ()
    """Checksums of the line and of the previous one, because a write may have failed."""
    marker: str = ""
    format: str = ""
    section: str | None = None
    key: str | tuple[str, ...] = ""
    separator: str | None = None
    continuation: str | None = None


class Receipt(msgspec.Struct, omit_defaults=True, tag_field="format", tag=1):
    """All recorded edits of one file, by reference."""

    path: str
    edits: dict[str, Made] = {}


class Receipts:
    """The receipts of this host, one for each file. Methods raise ``OSError``."""

    def __init__(self, state_directory: Path | None, *, noop: bool = False) -> None:
        self._directory = (state_directory or Directories.of_user().state) / "edits"
        self._noop = noop

    @classmethod
    def of(cls, context: Context) -> "Receipts":
        """Return the receipts of the run."""
        return cls(context.state_directory, noop=context.noop)

    def path(self, path: str) -> str:
        """Return the path of a file's receipt. A rollback of an edit also restores it."""
        name = quote(path, safe="")
        return str(
            self._directory / f"{name if len(name) <= _LONGEST_NAME else sha256([path.encode()])}.json"
        )

    def find(self, reference: str) -> Made | None:
        """Return the record of an edit in its last file, or ``None`` if it is unknown."""
        if not self._directory.is_dir():
            return None
        newest_first = sorted(self._directory.glob("*.json"), key=lambda path: -path.stat().st_mtime_ns)
        loaded = (self._load(path) for path in newest_first)
        return next((each.edits[reference] for each in loaded if each and reference in each.edits), None)

    def note(self, path: str, made: Mapping[str, Made], changed: Mapping[str, Made]) -> None:
        """Record edits that are about to be ``made``, and recorded edits that are about to be ``changed``."""
        before = self.edits_of(path)
        after = {reference: each for reference, each in changed.items() if reference in before} | {**made}
        for reference, each in after.items():
            if (old := before.get(reference)) is not None and old.lines[-1:] != each.lines:
                after[reference] = msgspec.structs.replace(each, lines=(*old.lines[-1:], *each.lines))
        self._save(path, before, {**before, **after})

    def forget(self, path: str, reference: str) -> None:
        """Remove the record of an edit, because its part is gone."""
        self.replace(path, reference, None)

    def replace(self, path: str, reference: str, made: Made | None) -> None:
        """Replace the record of an edit. ``None`` removes it."""
        before = self.edits_of(path)
        others = {name: each for name, each in before.items() if name != reference}
        self._save(path, before, others if made is None else {**before, reference: made})

    def _save(self, path: str, before: dict[str, Made], after: dict[str, Made]) -> None:
        if after == before:
            return
        file = self._file(Path(self.path(path)))
        if after:
            file.save(Receipt(path, after))
        else:
            file.remove()

    def all(self) -> Iterator[Receipt]:
        """Yield the receipts of all files."""
        for path in sorted(self._directory.glob("*.json")):
            if (receipt := self._load(path)) is not None:
                yield receipt

    def edits_of(self, path: str) -> dict[str, Made]:
        """Return all recorded edits of a file, by reference."""
        result = self._load(Path(self.path(path)))
        return result.edits if result is not None and result.path == path else {}

    def _load(self, path: Path) -> Receipt | None:
        return self._file(path).load(lambda sentence: None, noop=self._noop)

    def _file(self, path: Path) -> StateFile[Receipt]:
        return StateFile(path, Receipt, "", largest=_LARGEST)


def checksum_of(line: str) -> str:
    """Return the checksum that identifies a recorded line."""
    return sha256([line.encode("utf-8", "surrogateescape")])
