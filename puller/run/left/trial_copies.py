"""A private copy of what a bundle on trial changes, kept until the trial has passed: the way back.

* A line of the journal says what a path was, and is on the disk before the path is changed; so is the copy of what a
  file held. Of each path only the first line counts: that is how it was before the trial.
* What the last good bundle makes whole again by itself is not copied. What does not fit into ``LARGEST`` is named
  before the change, and cannot be restored.
* The journal goes on when one bundle on trial follows another, and is removed, before the copies, when one has passed
  or all is undone. Copies without a journal are nobody's.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bundles.filesystem.atomic import open_directory, replace_file, sync_directory
from puller.manifest.declaration import Declaration
from puller.resources.base import Difference, Properties, Resource
from puller.resources.files.restored import Original
from puller.resources.paths import PathState
from puller.resources.registry import find_remover
from puller.state.state_file import read_state, set_aside, write_state
from puller.system.protocol import System

LARGEST = 256 * 1024 * 1024
"""Bytes of all copies of a bundle's trial together."""
_LARGEST_JOURNAL = 64 * 1024 * 1024  # bytes
_LOSS = "what the bundle on trial has changed before cannot be undone"


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A bundle on trial changes things from here on."""

    version: str
    sha256: str


class Changed(msgspec.Struct, frozen=True, tag="path", omit_defaults=True):
    """A path as it was before it was changed first; ``copy`` is the number of the copy of its content, 0 for none."""

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
    """When, in nanoseconds of this host's clock: of the trials of two bundles the first one knows how it was."""


class Made(msgspec.Struct, frozen=True, tag="made", omit_defaults=True):
    """A resource that was brought into being, and that its type can take away."""

    reference: str
    subscribers: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A resource that did what nobody can undo."""

    reference: str


class Was(msgspec.Struct, frozen=True, tag="was", omit_defaults=True):
    """A resource that was there before it was changed; ``properties`` make of it what it was."""

    reference: str
    properties: dict[str, Any]
    subscribers: tuple[str, ...] = ()
    noted: int = 0
    """See ``Changed.noted``."""


Line = Began | Changed | Made | Was | Done


class TrialCopies:
    """The journal and the copies of one bundle's name, in ``directory``. Methods raise ``OSError``."""

    def __init__(self, directory: Path, warn: Callable[[str], None], *, noop: bool = False) -> None:
        self.directory = directory
        self._journal = directory / "journal"
        self._noop = noop
        self._descriptor = -1
        self.lines: list[Line] = []
        self.bundle = ""
        """The SHA-256 of the bundle that made the last changes; empty when nothing is on record."""
        self.size = 0
        """Bytes of all copies."""
        self._last = 0
        for line in self._load(warn):
            self._note(line)

    def _note(self, line: Line) -> None:
        self.lines.append(line)
        if isinstance(line, Began):
            self.bundle = line.sha256
        elif isinstance(line, Changed):
            self.size += line.size
            self._last = max(self._last, line.copy)

    def _load(self, warn: Callable[[str], None]) -> Iterator[Line]:
        try:
            data = read_state(self._journal, _LARGEST_JOURNAL)
        except FileNotFoundError:
            return
        except ValueError as error:
            aside = "left as it is" if self._noop else f"set aside as {set_aside(self._journal)}"
            warn(f"{self._journal}: {error}; {aside}, and {_LOSS}")
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
        if whole < len(data):  # a run was killed while it wrote the last one, before the change
            if b"\n" in data[whole:-1]:
                warn(f"{self._journal}: is damaged, and {_LOSS} from there on")
            if not self._noop:
                os.truncate(self._journal, whole)

    def append(self, line: Line) -> None:
        """Put a line on the journal, and on the disk."""
        if self._descriptor < 0:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_new = not self.lines
            if is_new:
                self._remove_copies()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._journal, flags, 0o600)
            if is_new:
                sync_directory(self.directory)
        os.write(self._descriptor, msgspec.json.encode(line) + b"\n")
        os.fsync(self._descriptor)
        self._note(line)

    def copy(self, chunks: Iterable[bytes]) -> int:
        """Keep a content; gives the number of the copy."""
        number = self._last + 1
        with open_directory(self.directory) as descriptor:
            replace_file(descriptor, str(number), chunks, mode=0o600)
        return number

    def path_of(self, changed: Changed) -> str:
        """Where a content is kept; empty when there is none."""
        return str(self.directory / str(changed.copy)) if changed.copy else ""

    def keep(self, lines: list[Line]) -> None:
        """Keep only these lines; without any, the journal goes, and then the copies."""
        self.close()
        if self._noop or (lines and lines == self.lines):
            return
        if lines:
            write_state(self._journal, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        else:
            self._journal.unlink(missing_ok=True)
        self.lines = lines
        self._remove_copies()
        if not lines:
            with contextlib.suppress(OSError):  # there is none, or what was set aside is in it
                self.directory.rmdir()

    def _remove_copies(self) -> None:
        kept = {str(line.copy) for line in self.lines if isinstance(line, Changed)} | {self._journal.name}
        with contextlib.suppress(FileNotFoundError):
            for path in self.directory.iterdir():
                if path.name not in kept and ".unreadable" not in path.name:
                    path.unlink()

    def close(self) -> None:
        """Close the journal, until the next line."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Owner(NamedTuple):
    """The resource that changes something, and those that are refreshed then."""

    reference: str
    subscribers: tuple[str, ...]


class TrialObserver:
    """Told by the engine of each change of a bundle on trial: keeps what it was before.

    ``subscribers`` gives the resources that are refreshed when one changes, ``whole`` are the paths that the last good
    bundle makes whole by itself, ``tell`` is told what cannot be kept.
    """

    def __init__(
        self,
        copies: TrialCopies,
        began: Began,
        subscribers: Callable[[str], Iterable[str]],
        whole: Collection[str],
        tell: Callable[[str], None],
    ) -> None:
        self._copies = copies
        self._began = began
        self._subscribers = subscribers
        self._whole = whole
        self._tell = tell
        self._kinds = {line.path: line.original.kind for line in copies.lines if isinstance(line, Changed)}
        self._others = {line.reference for line in copies.lines if isinstance(line, Made | Was | Done)}

    def before_change(
        self,
        declaration: Declaration,
        resource: Resource[Any, Any],
        actual: Any,
        differences: Iterable[Difference],
    ) -> None:
        """Keep what a resource is about to change; raises ``OSError`` where that cannot be."""
        owner = _Owner(str(declaration.reference), tuple(self._subscribers(declaration.reference)))
        paths, system = resource.changed_paths(actual), resource.context.system
        if paths is None:
            self._keep_more(declaration, owner, resource, actual)
            return
        # A directory whose attributes alone change keeps all that is in it.
        below = any(difference.property == "ensure" for difference in differences)
        for path in paths:
            self._keep(path, system, owner, below=below)

    def _keep_more(
        self, declaration: Declaration, owner: _Owner, resource: Resource[Any, Any], actual: Any
    ) -> None:
        """Keep that a resource was made or changed of which paths do not tell what that is."""
        reference, properties, system = owner.reference, declaration.properties, resource.context.system
        for path in declaration.type.places(properties):
            if path != properties.name and system.lstat(path) is None:
                self._keep(path, system, owner)
        if reference not in self._others:
            self._others.add(reference)
            is_made = not resource.is_there(actual) and find_remover(declaration.type.type_name) is not None
            self._append(Made(*owner) if is_made else self._was(owner, resource.way_back(actual)))

    def _was(self, owner: _Owner, before: Properties | None) -> Line:
        if before is None:
            return Done(owner.reference)
        properties: dict[str, Any] = msgspec.to_builtins(before, enc_hook=str)
        return Was(owner.reference, properties, owner.subscribers, time.time_ns())

    def close(self) -> None:
        """Nothing more is changed."""
        self._copies.close()

    def after_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """Nothing is to be kept of what it became."""

    def _keep(self, path: str, system: System, owner: _Owner, *, below: bool = False) -> None:
        if path in self._whole or path == "/":
            return
        found = system.lstat(path)
        if path not in self._kinds:
            if found is None:  # and perhaps the directories above are made with it
                self._keep_missing(os.path.dirname(path), system, owner)
            line = self._line(path, found, system, owner)
            self._append(line)
            self._kinds[path] = line.original.kind
        # A run may have been killed when it had kept the directory, and not all that is in it.
        if found is not None and below and stat.S_ISDIR(found.st_mode) and self._kinds[path] == "directory":
            self._keep_below(path, found.st_dev, system, owner)

    def _keep_missing(self, directory: str, system: System, owner: _Owner) -> None:
        if directory != "/" and system.lstat(directory) is None:
            self._keep(directory, system, owner)

    def _keep_below(self, path: str, device: int, system: System, owner: _Owner) -> None:
        """All that is in a directory."""
        for name, found in system.children(path):
            if found.st_dev == device:
                self._keep(f"{path}/{name}", system, owner, below=True)

    def _line(self, path: str, found: os.stat_result | None, system: System, owner: _Owner) -> Changed:
        kind = PathState(found).kind
        if found is None:
            return Changed(path, Original(kind), *owner, noted=time.time_ns())
        target = os.readlink(path) if kind == "symbolic link" else ""
        original = Original.of(kind, found, target, {} if target else system.labels(path))
        if kind in ("directory", "symbolic link"):
            return Changed(path, original, *owner, noted=time.time_ns())
        lost = f"is a {kind}" if kind != "present" else ""
        if not lost and self._copies.size + found.st_size > LARGEST:
            lost = f"has {found.st_size} bytes, and copies of more than {LARGEST} are not kept"
        if lost:
            self._tell(f"{path}: {lost}, so it cannot be restored if {self._began.version} is given up")
            return Changed(path, original, *owner, lost=lost, noted=time.time_ns())
        self._begin()
        copy = self._copies.copy(system.read_chunks(path))
        return Changed(path, original, *owner, copy, found.st_size, noted=time.time_ns())

    def _append(self, line: Line) -> None:
        self._begin()
        self._copies.append(line)

    def _begin(self) -> None:
        if self._copies.bundle != self._began.sha256:
            self._copies.append(self._began)
