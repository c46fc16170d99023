"""The journal of a trial: the states before and after each change of a bundle on trial, with copies of content.

* The state before a change and a copy of the content are on the disk before the change. Changes that are made
  together need one sync. The state after the change follows without a sync. If it is missing (a run was killed), the
  current state counts as the state of the trial.
* A file that several resources edit is never recorded as a whole. Each edit is a separate object
  (``puller.run.leftovers.shared_edits``).
* If another program edits a text between two changes of the trial, the copy gets the same edits
  (``puller.run.leftovers.reversal_rules``). It stays the state without the trial.
* The journal continues when another bundle on trial follows. It is removed, before the copies, when a trial has
  passed or all changes are reverted. Copies without a journal are unused.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bundles.filesystem.atomic import open_directory, replace_file, sync_directory
from puller.resources.edits.planned_edits import Made as Receipt
from puller.resources.files.leftover_files import Original
from puller.run.leftovers.reversal_rules import Hunk
from puller.state import read_state, set_aside, write_state

_LARGEST_JOURNAL = 64 * 1024 * 1024  # bytes
_LOSS = "earlier changes of the bundle on trial cannot be undone"


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The start of the changes of a bundle on trial."""

    version: str
    sha256: str
    back: str = ""
    """The SHA-256 of its fallback. Empty for the first bundle on a host."""
    format: int = 2


class Changed(msgspec.Struct, frozen=True, tag="path", omit_defaults=True):
    """A path before the trial changed it. ``copy`` is the number of the copy of its content, 0 without a copy.

    The last line of a path counts.
    """

    path: str
    original: Original
    reference: str
    """The resource that changed it."""
    subscribers: tuple[str, ...] = ()
    copy: int = 0
    size: int = 0
    """Bytes of the copy."""
    lost: str = ""
    """Why it cannot be restored."""
    noted: int = 0
    """Time of the first line, in nanoseconds of the host's clock: orders the changes of several bundles."""
    left: bool = False
    """The change has removed it because its bundle no longer declared it."""
    foreign: bool = False
    """It existed, and Puller had not made it."""


# The tag belongs to the format of the file: a journal of an earlier version has it, too.
class NewState(msgspec.Struct, frozen=True, tag="became", omit_defaults=True):
    """A path after a change by the trial. Without a ``state`` during the change."""

    path: str
    state: Original | None = None
    sha256: str = ""
    """The digest of its content. Empty if the trial does not determine the content."""
    copy: int = 0
    """The number of a copy of the text, for merging."""
    size: int = 0
    same_content: bool = False
    """Whether the trial has changed only attributes."""
    is_shared: bool = False
    """Whether the trial has edited the file, which may have other edits."""


class Made(msgspec.Struct, frozen=True, tag="made", omit_defaults=True):
    """A resource that the trial was about to create, and that its type can remove."""

    reference: str
    subscribers: tuple[str, ...] = ()
    noted: int = 0
    """See ``Changed.noted``."""


class FailedCreation(msgspec.Struct, frozen=True, tag="not made"):
    """A resource whose change has failed, and that does not exist."""

    reference: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A resource whose change cannot be undone."""

    reference: str


class Was(msgspec.Struct, frozen=True, tag="was", omit_defaults=True):
    """A resource that existed before it was changed. ``properties`` restore it."""

    reference: str
    properties: dict[str, Any]
    subscribers: tuple[str, ...] = ()
    noted: int = 0
    """See ``Changed.noted``."""
    foreign: bool = False
    """See ``Changed.foreign``."""


class Edited(msgspec.Struct, frozen=True, tag="edit", omit_defaults=True):
    """An edit of a shared file by one trial: the file without the edit, and the lines that the edit replaces."""

    reference: str
    path: str
    trial: str
    """The SHA-256 of the bundle."""
    hunks: tuple[Hunk, ...] = ()
    copy: int = 0
    """The number of the copy of the file without the edit. 0 if the file did not exist."""
    size: int = 0
    """Bytes of the copy."""
    made: Receipt | None = None
    """Removes the part again. ``None`` if the file had such a part before."""
    file: str = ""
    """The declared path, under which receipts are stored."""
    receipt: Receipt | None = None
    """The receipt of the resource before the trial."""
    subscribers: tuple[str, ...] = ()
    lost: str = ""
    """Why it cannot be reverted."""
    noted: int = 0
    """See ``Changed.noted``."""
    left: bool = False
    """See ``Changed.left``."""


Line = Began | Changed | NewState | Made | FailedCreation | Was | Done | Edited
Object = Changed | Made | Was | Done | Edited
"""The lines about changes of a trial: one for each object."""


def key_of(line: Line) -> str:
    """Return the path or the reference of a line. Empty for the start of a trial."""
    match line:
        case Began():
            return ""
        case Changed() | NewState():
            return line.path
        case Edited():
            return f"{line.reference} in {line.path} by {line.trial}"
        case _:
            return line.reference


class TrialCopies:
    """The journal and the copies of one bundle's name, in ``directory``. Methods raise ``OSError``."""

    def __init__(self, directory: Path, warn: Callable[[str], None], *, noop: bool = False) -> None:
        self.directory = directory
        self._journal = directory / "journal"
        self._noop = noop
        self._descriptor = -1
        self._is_synced = True
        self.began: Began | None = None
        """The trial with the last changes. ``None`` without changes."""
        self.objects: dict[str, Object] = {}
        """The objects that trials have changed, by path or reference, in the order of their first change."""
        self.trials: dict[str, Began] = {}
        """The trials that have changed objects most recently, by path or reference."""
        self.new_states: dict[str, NewState] = {}
        """The paths after their change."""
        self.size = 0
        """Bytes of all copies."""
        self._last = 0
        self._counted: set[int] = set()
        for line in self._load(warn):
            self._note(line)

    @property
    def bundle(self) -> str:
        """The SHA-256 of the bundle with the last changes. Empty without changes."""
        return self.began.sha256 if self.began is not None else ""

    def _note(self, line: Line) -> None:
        match line:
            case Began():
                self.began = line
            case FailedCreation():
                self.objects.pop(line.reference, None)
            case NewState():
                self.new_states[line.path] = line
            case _:
                self.objects[key_of(line)] = line
                self.take_over(key_of(line))
        if isinstance(line, Changed | NewState | Edited) and line.copy and line.copy not in self._counted:
            self._counted.add(line.copy)
            self.size += line.size
            self._last = max(self._last, line.copy)

    def take_over(self, key: str) -> None:
        """Assign an object to the current trial, which has changed it again."""
        if self.began is not None:
            self.trials[key] = self.began

    def of_others(self, sha256: str) -> dict[str, Object]:
        """Return the objects whose last change is by other bundles."""
        pairs = ((key, self.trial_of(key), line) for key, line in self.objects.items())
        return {key: line for key, trial, line in pairs if trial != sha256}

    def trial_of(self, key: str) -> str:
        """Return the SHA-256 of the bundle with the last change of an object."""
        line = self.objects[key]
        return line.trial if isinstance(line, Edited) else self.trials[key].sha256

    def _load(self, warn: Callable[[str], None]) -> Iterator[Line]:
        try:
            data = read_state(self._journal, _LARGEST_JOURNAL)
        except FileNotFoundError:
            return
        except ValueError as error:
            aside = "left as it is" if self._noop else f"set aside as {set_aside(self._journal)}"
            warn(f"{self._journal}: {error}, {aside}, and {_LOSS}")
            return
        whole = 0
        for text in data.splitlines(keepends=True):
            try:
                line = msgspec.json.decode(text, type=Line)
            except msgspec.DecodeError:
                break
            if not text.endswith(b"\n"):
                break
            whole += len(text)
            yield line
        if whole < len(data):  # a run was killed during its last write, before the change
            if b"\n" in data[whole:-1]:
                warn(f"{self._journal}: is damaged, and {_LOSS} from the damage on")
            if not self._noop:
                os.truncate(self._journal, whole)

    def append(self, line: Line, *, sync: bool = True) -> None:
        """Append a line to the journal. Unless ``sync`` is false, ``sync`` has to be called before the change."""
        if self._descriptor < 0:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_new = self.began is None
            if is_new:
                self._remove_copies()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._journal, flags, 0o600)
            if is_new:
                sync_directory(self.directory)
        os.write(self._descriptor, msgspec.json.encode(line) + b"\n")
        self._is_synced = self._is_synced and not sync
        self._note(line)

    def sync(self) -> None:
        """Write all unsynced lines to the disk."""
        if not self._is_synced:
            os.fsync(self._descriptor)
            self._is_synced = True

    def copy(self, chunks: Iterable[bytes], *, sync: bool = True) -> int:
        """Copy a content. Return the number of the copy."""
        number = self._last + 1
        if sync:
            with open_directory(self.directory) as descriptor:
                replace_file(descriptor, str(number), chunks, mode=0o600)
            return number
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.directory / str(number), flags, 0o600), "wb") as stream:
            stream.writelines(chunks)
        return number

    def path_of(self, line: Changed | NewState | Edited) -> str:
        """Return the path of the copy. Empty without a copy."""
        return str(self.directory / str(line.copy)) if line.copy else ""

    def text_of(self, line: Changed | NewState | Edited) -> bytes | None:
        """Return the copied content. ``None`` without a copy."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / str(line.copy)).read_bytes() if line.copy else None
        return None

    def keep(self, keys: Collection[str]) -> None:
        """Keep only the lines about these paths and references. Without keys, remove the journal, then the copies."""
        self.close()
        if self._noop or (keys and not self.objects.keys() - {*keys}):
            return
        self.objects = {key: line for key, line in self.objects.items() if key in keys}
        self.new_states = {path: line for path, line in self.new_states.items() if path in self.objects}
        if self.objects and self.began is not None:
            lines: list[Line] = [*self._objects_with_trials(), self.began, *self.new_states.values()]
            write_state(self._journal, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        else:
            self.objects, self.began = {}, None
            self._journal.unlink(missing_ok=True)
        self._remove_copies()
        if not self.objects:
            with contextlib.suppress(OSError):  # the directory is missing, or a journal was set aside in it
                self.directory.rmdir()

    def _objects_with_trials(self) -> Iterator[Line]:
        trial: Began | None = None
        for key, line in self.objects.items():
            if self.trials[key] != trial:
                trial = self.trials[key]
                yield trial
            yield line

    def _remove_copies(self) -> None:
        lines = (*self.objects.values(), *self.new_states.values())
        copies = {str(line.copy) for line in lines if isinstance(line, Changed | NewState | Edited)}
        with contextlib.suppress(FileNotFoundError):
            for path in self.directory.iterdir():
                if path.name not in copies | {self._journal.name} and ".unreadable" not in path.name:
                    path.unlink()

    def close(self) -> None:
        """Close the journal, until the next line."""
        if self._descriptor >= 0:
            self.sync()
            os.close(self._descriptor)
            self._descriptor = -1
