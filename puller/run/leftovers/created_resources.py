"""Resources that Puller creates. They are recorded in a journal before their creation, in case a run is killed.

* A line is appended to a journal before the change. The record (``managed``) takes it over at the end of this run or
  at the start of the next.
* If the change fails, a second line records the failure. A resource that never existed has no record.
* The line is not synced. If a power cut loses it, the resource counts as existing before, and is never removed.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from puller.manifest.declaration import Declaration
from puller.resources.base import Resource
from puller.run.leftovers.declared_resources import can_be_left
from puller.values.common_properties import ABSENT


class Making(msgspec.Struct, frozen=True, array_like=True):
    """A resource that is about to be created."""

    bundle: str
    reference: str
    removed: bool
    """Whether it is removed when it is not declared any longer."""
    has_failed: bool = False
    """Whether the change has failed, so that the resource does not exist."""


class MakingsJournal:
    """The journal at ``path``. Methods raise ``OSError``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def note(self, making: Making) -> None:
        """Append a line."""
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        os.write(self._descriptor, msgspec.json.encode(making) + b"\n")

    def read(self) -> list[Making]:
        """Return the created resources. The last line may be incomplete, if a run was killed."""
        if not self._path.exists():
            return []
        makings: dict[tuple[str, str], Making] = {}
        for line in self._path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                making = msgspec.json.decode(line, type=Making)
                makings[making.bundle, making.reference] = making
        return [making for making in makings.values() if not making.has_failed]

    def close(self) -> None:
        """Close the file, until the next line."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Makings:
    """Records the created resources of one run. ``made`` returns them.

    ``is_known`` returns whether the origin of a resource is on record, and ``is_created_at`` whether Puller has created
    the file at a path.
    """

    def __init__(
        self,
        journal: MakingsJournal,
        bundle_of: Callable[[Declaration], str],
        is_known: Callable[[str], bool],
        is_created_at: Callable[[str], bool],
    ) -> None:
        self._journal = journal
        self._bundle_of = bundle_of
        self._is_known, self._is_made_at = is_known, is_created_at
        self._begun: dict[str, tuple[Making, Resource[Any, Any]]] = {}
        self._made: set[str] = set()

    def before_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """Record a resource that is about to be created."""
        reference = declaration.reference
        if not can_be_left(declaration) or self._is_known(reference):
            return
        # A replacement of an object that Puller has created counts as created by Puller.
        if resource.is_there(actual) and not self._is_made_at(declaration.properties.name):
            return
        removed = declaration.properties.removed == ABSENT
        making = Making(self._bundle_of(declaration), str(reference), removed)
        self._begun[reference] = making, resource
        with contextlib.suppress(OSError):  # if the run is killed now, it counts as existing before
            self._journal.note(making)

    def after_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """Record a created resource."""
        if declaration.reference in self._begun and resource.is_there(actual):
            self._made.add(declaration.reference)

    def made(self) -> set[str]:
        """Return the references of all created resources, and close the journal.

        After a failed change, the state of the resource is read once more.
        """
        for reference, (making, resource) in self._begun.items():
            if reference not in self._made:
                with contextlib.suppress(Exception):  # if the state is unknown, the resource was not made
                    if resource.is_there(resource.look()):
                        self._made.add(reference)
            if reference not in self._made:
                with contextlib.suppress(OSError):
                    self._journal.note(msgspec.structs.replace(making, has_failed=True))
        self._journal.close()
        return self._made
