"""Observer of the changes of a bundle on trial.

* It records the states before and after each change in the journal.
* Objects that the last good bundle repairs by itself are not copied.
* An object larger than ``LARGEST`` is reported before the change, and cannot be restored.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from foundation.differences import Difference
from puller.manifest.declaration import Declaration
from puller.resources.base import Properties, Resource
from puller.resources.content_sources import sha256
from puller.resources.files.leftover_files import Original
from puller.resources.paths import PathState
from puller.resources.registry import find_remover
from puller.run.leftovers.reversal_rules import merged_text
from puller.run.leftovers.shared_edits import EditRecorder
from puller.run.leftovers.trial_copies import (
    Began,
    Changed,
    Done,
    FailedCreation,
    Line,
    Made,
    NewState,
    TrialCopies,
    Was,
)
from puller.system.protocol import System
from puller.system.trusted_files import is_parameter

LARGEST = 256 * 1024 * 1024
"""Bytes of all copies of a bundle's trial together."""
LARGEST_TEXT = 1024 * 1024
"""Bytes of a text that is copied after a change, so that later edits by others can be merged."""


class _Owner(NamedTuple):
    """The resource that makes a change, and the resources that this refreshes."""

    reference: str
    subscribers: tuple[str, ...]
    left: bool
    """Whether it is removed because it is not declared any longer."""


class _Change(NamedTuple):
    """A current change."""

    declaration: Declaration
    resource: Resource[Any, Any]
    paths: list[str]


class TrialObserver:
    """Receives each change of a bundle on trial from the engine.

    ``subscribers`` returns the resources that a change refreshes. ``whole`` are the paths that the last good version
    restores completely. ``is_made`` returns whether Puller has created a path or a resource. ``warn`` reports missing
    copies.
    """

    def __init__(
        self,
        copies: TrialCopies,
        began: Began,
        subscribers: Callable[[str], Iterable[str]],
        whole: Collection[str],
        is_made: Callable[[str, str], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._copies, self._began, self._is_made = copies, began, is_made
        self._subscribers, self._whole, self._warn = subscribers, whole, warn
        self._edits = EditRecorder(copies, began.sha256, self._begin, self._why_lost)
        self._changes: dict[str, _Change] = {}
        self.touched: set[str] = set()
        """The paths and references that this run has changed."""
        self._kept: list[str] = []
        """The paths that the current change has recorded."""
        self._replaced: list[str] = []
        """Files and links among them, which have no contents yet."""

    def before_change(
        self,
        declaration: Declaration,
        resource: Resource[Any, Any],
        actual: Any,
        differences: Iterable[Difference],
        *,
        left: bool = False,
    ) -> None:
        """Record the state before a change. ``left``: it removes a leftover. Raise ``OSError``."""
        reference = str(declaration.reference)
        owner = _Owner(reference, tuple(self._subscribers(reference)), left)
        paths, system = resource.changed_paths(actual), resource.context.system
        self._kept, self._replaced = [], []
        if (place := resource.edited_place(actual)) is not None:
            self._edits.record(resource, place, owner.subscribers, left=left)
            if place.content is None:
                self._keep_missing(os.path.dirname(place.real), system, owner)
            paths = [path for path in paths or () if path != place.real]
            if not paths:
                return
        if paths is None:
            self._keep_resource(declaration, owner, resource, actual)
        # If only attributes of a directory change, its contents are not recorded.
        below = any(difference.property == "ensure" for difference in differences)
        for path in paths or ():
            self._keep(path, system, owner, below=below)
        self._changes[reference] = _Change(declaration, resource, self._kept)

    def begin_changes(self) -> None:
        """Write the states before the next changes to the disk. Raises ``OSError``."""
        self._copies.sync()

    def after_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """Record the state after a change."""
        del actual
        change = self._changes.pop(str(declaration.reference), None)
        if change is not None:
            self._note_paths(change._replace(resource=resource))

    def close(self) -> None:
        """Record the states of objects after failed changes, and close the journal."""
        for reference, change in self._changes.items():
            with contextlib.suppress(
                Exception
            ):  # after any error, the current state counts as that of the trial
                self._note_paths(change)
                if isinstance(self._copies.objects.get(reference), Made) and not _exists(change.resource):
                    self._copies.append(FailedCreation(reference), sync=False)
        self._changes.clear()
        self._copies.close()

    # Resources without paths

    def _keep_resource(
        self, declaration: Declaration, owner: _Owner, resource: Resource[Any, Any], actual: Any
    ) -> None:
        reference, properties, system = owner.reference, declaration.properties, resource.context.system
        for path in declaration.type.places(properties):
            if path != properties.name and system.lstat(path) is None:
                self._keep(path, system, owner)
        if reference not in self._copies.objects:
            is_made = not resource.is_there(actual) and find_remover(declaration.type.type_name) is not None
            made = Made(owner.reference, owner.subscribers, time.time_ns())
            is_foreign = not self._is_made("", reference)
            self._append(made if is_made else _was(owner, resource.way_back(actual), foreign=is_foreign))
        self._touch(reference)

    # Paths before the change

    def _keep(self, path: str, system: System, owner: _Owner, *, below: bool = False) -> None:
        if path in self._whole or path == "/":
            return
        status = None if self._is_below_replaced(path) else system.lstat(path)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            self._replaced.append(path)
        line = self._copies.objects.get(path)
        if not isinstance(line, Changed):
            if status is None:  # its parent directories may be created too
                self._keep_missing(os.path.dirname(path), system, owner)
            line = self._line(path, status, system, owner)
            # The first bundle of a host has no fallback. If its line is lost, a file may remain.
            self._append(line, sync=bool(self._began.back) or status is not None)
        elif path in self._copies.new_states and path not in self._kept:
            self._apply_edits_of_others(line, self._copies.new_states[path], status, system)
            self._append(NewState(path))
        self._kept.append(path)
        self._touch(path)
        # A run may have been killed after it recorded the directory, and before all its contents.
        if (
            status is not None
            and below
            and stat.S_ISDIR(status.st_mode)
            and line.original.kind == "directory"
        ):
            self._keep_below(path, status.st_dev, system, owner)

    def _is_below_replaced(self, path: str) -> bool:
        return any(path.startswith(f"{above}/") for above in self._replaced)

    def _keep_missing(self, directory: str, system: System, owner: _Owner) -> None:
        if (
            directory != "/"
            and not self._is_below_replaced(f"{directory}/")
            and system.lstat(directory) is None
        ):
            self._keep(directory, system, owner)

    def _keep_below(self, path: str, device: int, system: System, owner: _Owner) -> None:
        for name, found in system.children(path):
            if found.st_dev == device:
                self._keep(f"{path}/{name}", system, owner, below=True)

    def _line(self, path: str, found: os.stat_result | None, system: System, owner: _Owner) -> Changed:
        original = original_of(path, found, system)
        line = Changed(
            path, original, owner.reference, owner.subscribers, noted=time.time_ns(), left=owner.left
        )
        if found is None:
            return line
        line = msgspec.structs.replace(line, foreign=not self._is_made(path, owner.reference))
        if original.kind in ("directory", "symbolic link"):
            return line
        if lost := self._why_lost(path, found.st_size, original.kind):
            return msgspec.structs.replace(line, lost=lost)
        self._begin()
        # A parameter of the kernel has no size, and its file cannot be replaced.
        looked_at = None if is_parameter(path) else found
        copy = self._copies.copy(system.read_chunks(path, looked_at))
        return msgspec.structs.replace(line, copy=copy, size=found.st_size)

    def _why_lost(self, path: str, size: int, kind: str = "present") -> str:
        """Return why a file cannot be copied, and warn about it. Empty if it can."""
        lost = f"is a {kind}" if kind != "present" else ""
        if not lost and self._copies.size + size > LARGEST:
            lost = f"has {size} bytes, and copies over {LARGEST} bytes are not kept"
        if lost and self._began.back:
            self._warn(f"{path}: {lost}, so a rollback of {self._began.version} cannot restore it")
        return lost

    def _apply_edits_of_others(
        self, line: Changed, new_state: NewState, status: os.stat_result | None, system: System
    ) -> None:
        """Apply the edits to the copy that another program has made since the last change of the trial."""
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_TEXT:
            return
        before = b"" if line.original.kind == "absent" else self._copies.text_of(line)
        changed = self._copies.text_of(new_state)
        if before is None or changed is None or (line.original.kind == "absent" and not new_state.is_shared):
            return
        merged = merged_text(before, changed, system.read(line.path))
        if merged is not None and merged != before:
            original = line.original
            if original.kind != "present":
                original = original_of(line.path, status, system)
            copy = self._copies.copy([merged])
            self._append(msgspec.structs.replace(line, original=original, copy=copy, size=len(merged)))

    # Paths after the change

    def _note_paths(self, change: _Change) -> None:
        declaration, resource, paths = change
        properties = declaration.properties
        is_shared = not declaration.type.is_whole(properties)
        for path in dict.fromkeys(paths):
            line = self._copies.objects.get(path)
            if isinstance(line, Changed):
                self._append(self._new_state(line, resource.context.system, is_shared=is_shared), sync=False)

    def _new_state(self, line: Changed, system: System, *, is_shared: bool) -> NewState:
        path, copies = line.path, self._copies
        status = system.lstat(path)
        state = original_of(path, status, system)
        if status is None or state.kind != "present":
            return NewState(path, state)
        digest = sha256(system.read_chunks(path))
        if line.copy and line.size == status.st_size and _digest_of(copies.path_of(line)) == digest:
            return NewState(path, state, digest, same_content=True)
        known = copies.new_states.get(path)
        if known is not None and known.sha256 == digest and known.state == state:
            return known
        copy = 0
        is_first = line.original.kind == "absent" and not is_shared
        if not is_first and status.st_size <= LARGEST_TEXT and not is_parameter(path):
            copy = copies.copy([system.read(path)], sync=False)
        return NewState(path, state, digest, copy, status.st_size if copy else 0, is_shared=is_shared)

    def _append(self, line: Line, *, sync: bool = True) -> None:
        self._begin()
        self._copies.append(line, sync=sync)

    def _touch(self, key: str) -> None:
        self.touched.add(key)
        if key in self._copies.objects and self._copies.trial_of(key) != self._began.sha256:
            self._append(self._copies.objects[key])  # once more, because it now belongs to this trial

    def _begin(self) -> None:
        if self._copies.bundle != self._began.sha256:
            self._copies.append(self._began)


def original_of(path: str, status: os.stat_result | None, system: System) -> Original:
    """Return the state of a path whose ``lstat`` is ``status``."""
    kind = PathState(status).kind
    if status is None:
        return Original(kind)
    target = os.readlink(path) if kind == "symbolic link" else ""
    return Original.of(kind, status, target, {} if target else system.labels(path))


def _digest_of(path: str) -> str:
    with open(path, "rb", buffering=0) as stream:
        return sha256(iter(lambda: stream.read(1 << 20), b""))


def _exists(resource: Resource[Any, Any]) -> bool:
    return resource.is_there(resource.look())


def _was(owner: _Owner, before: Properties | None, *, foreign: bool) -> Line:
    if before is None:
        return Done(owner.reference)
    properties: dict[str, Any] = msgspec.to_builtins(before, enc_hook=str)
    return Was(owner.reference, properties, owner.subscribers, time.time_ns(), foreign)
