"""The steps for a mount, from what is wanted and what is there (``docs/resources/mount.md``); nothing is done here."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.kernel import fstab
from puller.resources.kernel.edited_file import EditedFile
from puller.resources.kernel.fstab import Edit, Entry, Fields
from puller.resources.kernel.mount_options import of_kernel
from puller.resources.kernel.mount_remount import plan_remount
from puller.resources.kernel.mount_table import Mounted, MountTable

if TYPE_CHECKING:
    from puller.resources.kernel.mount_remount import Remount

NEVER_UNMOUNTED = ("/", "/proc", "/sys", "/dev", "/run")


def fstab_file(context: Context) -> EditedFile[dict[str, list[Entry]]]:
    """``/etc/fstab``, for all mounts of a run."""
    return EditedFile.of(context, fstab.FSTAB, fstab.parse)


class MountState(msgspec.Struct, frozen=True):
    """The entry of a point in fstab, what is mounted there, and how it differs from what is wanted."""

    entry: Entry | None
    mounted: Mounted | None
    """The topmost."""
    point: str = ""
    """The mount point without links."""
    is_automount: bool = False
    """The point waits for somebody who looks at it; systemd mounts it then."""
    is_other: bool = False
    """Another device, or a file system of another type, is mounted."""
    missing: Sequence[str] = ()
    """Wanted options that are not in force."""


class Plan(msgspec.Struct, frozen=True):
    """The steps for one mount: ``first`` and ``remounted`` before fstab is written, ``then`` after it.

    Options change before their entry does. A run that is cut short in between finds the old entry and starts over:
    the kernel does not show all options, so that a new entry alone would look as if everything was in order.
    """

    first: tuple[str, ...] = ()
    remounted: bool = False
    line: str = ""
    """``written``, ``removed``, or nothing."""
    then: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The steps in words, in their order."""
        of_line = {"written": "written to fstab", "removed": "removed from fstab"}.get(self.line)
        remounted = ["remounted"] if self.remounted else []
        return [*self.first, *remounted, *([of_line] if of_line else []), *self.then]


class Change(msgspec.Struct, frozen=True):
    """The work for one mount; ``note`` takes sentences to be told of it."""

    wanted: Fields
    plan: Plan
    actual: MountState
    note: Callable[[str], None]

    @property
    def edit(self) -> Edit | None:
        """Its line in fstab, where that becomes another one."""
        if not self.plan.line:
            return None
        return Edit(self.wanted.point, self.wanted if self.plan.line == "written" else None)

    def remount(self, table: MountTable) -> "Remount":
        """Return how to change the options of this mount alone; raises ``ResourceError`` if that cannot be."""
        mounted = self.actual.mounted
        if mounted is None:
            raise ResourceError(f"{self.actual.point} is not mounted")
        before = self.actual.entry.fields if self.actual.entry else None
        return plan_remount(self.wanted, before, self.actual.missing, mounted, table)

    @property
    def way_back(self) -> Edit:
        """Its line in fstab as it was."""
        return Edit(self.wanted.point, line=self.actual.entry.line if self.actual.entry else "")


def plan(ensure: str, wanted: Fields, actual: MountState) -> Plan:
    """The steps that lead from what is there to what is wanted."""
    is_mounted = actual.mounted is not None
    away = ("unmounted",) if is_mounted else ()
    if ensure == "unmounted":
        return Plan(first=away)
    if ensure == "absent":
        return Plan(first=away, line="removed" if actual.entry else "")
    line = "" if actual.entry is not None and actual.entry.fields.same_as(wanted) else "written"
    if ensure == "present" or actual.is_automount:
        return Plan(line=line)
    if not is_mounted:
        return Plan(line=line, then=("mounted",))
    if actual.is_other:
        return Plan(line=line, then=("unmounted", "mounted"))
    return Plan(line=line, remounted=bool(actual.missing) or _changes_options(wanted, actual))


def _changes_options(wanted: Fields, actual: MountState) -> bool:
    """Whether options for the kernel leave fstab or come to it: what it shows does not tell of all of them."""
    if actual.entry is None:
        return False
    return of_kernel(actual.entry.fields.options) != of_kernel(wanted.options)
