"""The plan for all edits of one file, in the order of the run, and the receipts of these edits.

The plan:

* Every edit is checked once against the current text. If all are in sync, the plan is empty.
* Otherwise the edits are made in memory, and each one is checked again at the end. Two edits that undo each other
  contradict. Neither is made, because both would change the file in every run.
* A link at the path is followed if the link and its target belong to the same user. ``puller.system.local_paths``
  checks the directories above, as for every type.
* A file is read once for all its edits. The cached text is valid until a resource changes something, and after that as
  long as the file has not changed.

Receipts of edits, for their removal when they are no longer declared:

* An edit is recorded before it is written. A receipt holds only the checksum of a line, because a line may be secret.
* Text that existed before the edit is not recorded, in any form. The record is updated when the edit changes the text.
* A damaged or unknown receipt is set aside. Its edits stay.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context, Part
from puller.resources.content_sources import sha256
from puller.resources.edits.file_text import Edited, Text
from puller.resources.paths import PathState
from puller.state import Directories, StateFile
from puller.system.protocol import System

Asked = Edited | ResourceError | None
"""The result of an edit, an error, or ``None`` if it is in sync."""


class _Step(NamedTuple):
    """An edit that succeeded or was in sync."""

    part: Part
    asked: Edited | None
    after: Text


class Plan:
    """The plan for the edits ``parts``, in order, on one text."""

    def __init__(self, text: Text, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._now = {id(part.properties): ask(part, text) for part in parts}
        self._later: dict[int, Edited | None] = {}
        self._failures: dict[int, ResourceError] = {}
        self.final = text
        """The text after all parts that succeed."""
        if any(asked is not None for asked in self._now.values()):
            self._make(text, parts)

    def knows(self, properties: Any) -> bool:
        """Return whether a resource is one of the parts."""
        return id(properties) in self._now

    @cached_property
    def content(self) -> list[Any]:
        """The properties of the parts that are in sync with the current text."""
        return [part.properties for part in self._parts if self._now[id(part.properties)] is None]

    @cached_property
    def is_secret(self) -> bool:
        """Whether the file has sensitive parts. A diff of any edit could show them."""
        return any(part.properties.sensitive for part in self._parts)

    def asked(self, properties: Any, *, noop: bool) -> Edited | None:
        """Return the result of a part on the current text, or if it fails there, after the preceding parts.

        Raises ``ResourceError`` for an impossible edit, and for a contradiction with another part.
        """
        key = id(properties)
        if key in self._failures:
            raise self._failures[key]
        requested = self._now[key]
        if not isinstance(requested, ResourceError):
            return requested
        later = self._later.get(key)
        # Preceding parts may still fail in a real run. Only noop can rely on their predicted results.
        if later is None and not (noop and key in self._later):
            raise requested
        return later

    def _make(self, text: Text, parts: Sequence[Part]) -> None:
        while True:
            steps = list(self._steps(text, parts))
            if (pair := _contradiction(steps)) is None:
                self._later = {id(step.part.properties): step.asked for step in steps}
                self.final = steps[-1].after if steps else text
                return
            names = f"{pair[0].reference} and {pair[1].reference} contradict each other"
            sentence = f"{names}: they undo each other in {pair[0].properties.file}"
            self._failures |= {id(part.properties): ResourceError(sentence) for part in pair}

    def _steps(self, text: Text, parts: Sequence[Part]) -> "list[_Step]":
        """Return the edits in order, without those that fail."""
        steps = []
        for part in parts:
            if id(part.properties) in self._failures:
                continue
            requested = ask(part, text)
            if isinstance(requested, Edited) and ask(part, requested.text) is not None:
                requested = _again(part, requested)
            if isinstance(requested, ResourceError):
                self._failures[id(part.properties)] = requested
                continue
            text = text if requested is None else requested.text
            steps.append(_Step(part, requested, text))
        return steps


def ask(part: Part, text: Text) -> Asked:
    """Return the result of an edit on a text."""
    try:
        edited: Edited | None = part.type.edited(part.properties, text)  # type: ignore[attr-defined]  # parts of a file are edits
    except ResourceError as error:
        return error
    return edited


def _again(part: Part, requested: Edited) -> ResourceError:
    detail = "it differs" if part.properties.sensitive else str(requested.difference)
    return ResourceError(f"{part.properties.file}: {detail}, and after the change it would differ again")


def _contradiction(steps: Sequence[_Step]) -> tuple[Part, Part] | None:
    """Return the first edit that is undone at the end, and the edit that undoes it."""
    if not steps:
        return None
    final = steps[-1].after
    for index, step in enumerate(steps):
        if step.after is not final and ask(step.part, final) is not None:
            later = steps[index + 1 :]
            return step.part, next(other.part for other in later if ask(step.part, other.after) is not None)
    return None


# Edited files and their cached texts.

LARGEST = 16 * 1024 * 1024
"""The maximum size of an edited file in bytes."""


class Place(msgspec.Struct, frozen=True):
    """A file as it was read. ``found`` is ``None`` if it is missing."""

    path: str
    """The path as written."""
    real: str
    """The path with a final link resolved."""
    found: os.stat_result | None
    text: Text


class Texts:
    """The edited files of one run, stored in ``Context.shared``."""

    def __init__(self) -> None:
        self._changes = -1
        self._fresh: set[str] = set()
        self._places: dict[str, Place] = {}
        self.plans: dict[str, tuple[Text, Plan]] = {}
        """The plan of all edits by path, and the text that it belongs to."""
        self.predicted: dict[str, Text] = {}
        """In noop: the predicted texts after the edits so far, by real path."""

    @classmethod
    def of(cls, context: Context) -> "Texts":
        """Return the texts of this run."""
        texts: Texts = context.shared.setdefault(cls, cls())
        return texts

    def at(self, path: str, context: Context) -> Place:
        """Return the current file at a path.

        Raises ``OSError``, and ``ResourceError`` for a file that cannot be edited.
        """
        if (changes := context.changes()) != self._changes:
            self._fresh.clear()
            self._changes = changes
        if path not in self._fresh:
            self._places[path] = self._current(path, context.system)
            self._fresh.add(path)
        return self._places[path]

    def forget(self) -> None:
        """Discard cached texts after a write."""
        self._fresh.clear()

    def _current(self, path: str, system: System) -> Place:
        real, result = _find(path, system)
        known = self._places.get(path)
        if known and known.real == real and _identity(known.found) == _identity(result):
            return known
        if result is None:
            return Place(path, real, None, Text.missing())
        if not stat.S_ISREG(result.st_mode):
            raise ResourceError(
                f"{path} is a {PathState(result).kind}, and only regular files are edited",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if result.st_size > LARGEST:
            raise ResourceError(
                f"{path} has {result.st_size} bytes, and files of more than {LARGEST} are not edited",
                code=ProblemCode.CHANGE_REFUSED,
            )
        data = system.read(real, result)
        try:
            return Place(path, real, result, Text.of(data))
        except ResourceError as error:
            raise ResourceError(f"{path} {error}", code=error.code) from None


def _find(path: str, system: System) -> tuple[str, os.stat_result | None]:
    """Return the path with a final link resolved, and its ``lstat``. Raises ``ResourceError`` for an untrusted link."""
    status = system.lstat(path)
    if status is None or not stat.S_ISLNK(status.st_mode):
        return path, status
    real = system.resolve(path)
    target = None if real == path else system.lstat(real)
    if target is None:
        raise ResourceError(f"{path} is a link that leads to nothing", code=ProblemCode.CHANGE_REFUSED)
    if target.st_uid != status.st_uid:
        whose = f"is a link of user {status.st_uid} to a file of user {target.st_uid}"
        raise ResourceError(f"{path} {whose}, so it is not followed", code=ProblemCode.CHANGE_REFUSED)
    return real, target


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    if status is None:
        return None
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


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
