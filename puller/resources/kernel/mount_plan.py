"""The plan for a mount, from the declaration and the current state (``docs/resources/mount.md``).

This module only plans. It executes nothing.

* Flags such as ``ro`` and ``nosuid`` belong to a mount point. ``mount -o remount,bind`` changes them there alone.
  Without ``bind`` the kernel also changes the file system, which every other mount of it shows: a bind mount that
  becomes ``ro`` would make its whole source read-only.
* Options such as ``size=`` belong to the file system. They change only if the whole file system has no other mount.
* A remount passes all options, because fstab still has the old entry.
* Flags that neither the declaration nor the old entry names stay unchanged.
* Mounts are refused if another user controls a directory above a path. mount(8) follows links, now and at every boot,
  so that user could expose root's files or cover /etc. The last directory of a path may belong to any user.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from foundation.problems import ProblemCode
from foundation.quantities import first_few
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.kernel import fstab
from puller.resources.kernel.fstab import Edit, Entry, Fields
from puller.resources.kernel.mount_table import (
    ATIMES,
    FLAGS_OF_MOUNT,
    OF_CONTENT,
    PROPAGATIONS,
    Mounted,
    MountTable,
    content_of_overlay,
    declared_flags,
    has_propagation,
    is_bind,
    is_of_mount,
    of_kernel,
)
from puller.resources.read_once import EditedFile
from puller.system.trusted_files import distrust_of_way

# File systems with a single instance, so that their options always change everywhere.
_ALWAYS_SHARED = frozenset({"proc", "sysfs", "cgroup", "cgroup2"})


class Remount(msgspec.Struct, frozen=True):
    """The arguments of ``mount`` for each step, and a note for the user."""

    commands: tuple[tuple[str, ...], ...]
    becomes_read_only: frozenset[int] = frozenset()
    """The numbers of the mounts that become read-only, where no file may be open for writing."""
    note: str = ""


def plan_remount(
    desired: Fields, before: Fields | None, missing: Sequence[str], mounted: Mounted, table: MountTable
) -> Remount:
    """Return the commands that give a mount its declared options.

    ``before`` is its current entry in fstab, and ``missing`` are declared options that are not in force. Raises
    ``ResourceError`` if another mount would change as well.
    """
    return _Planner(desired, before, missing, mounted, table).plan()


class _Planner:
    def __init__(
        self,
        desired: Fields,
        before: Fields | None,
        missing: Sequence[str],
        mounted: Mounted,
        table: MountTable,
    ) -> None:
        self._desired, self._mounted = desired, mounted
        self._before = before.options if before else ()
        self._others = [
            other
            for other in table.mounts
            if other.device == mounted.device and other.number != mounted.number
        ]
        options_before = of_kernel(self._before) if before else of_kernel(desired.options)
        changed = {*missing, *(of_kernel(desired.options) ^ options_before)}
        self._changes_file_system = not all(map(is_of_mount, changed))
        self._declared = declared_flags(desired.options)
        self._is_read_only = "ro" in mounted.of_all

    def plan(self) -> Remount:
        """Decide between the mount point and the file system, then build the commands."""
        read_only = self._flag("ro")
        becomes_read_only = read_only and "ro" not in self._mounted.options and not self._is_read_only
        if is_bind(self._desired.options):
            if self._declared.get("ro") is False and self._is_read_only:
                detail = f"{self._point} cannot become writable: its file system is read-only as a whole"
                raise ResourceError(detail, code=ProblemCode.CHANGE_REFUSED, hint="mount that with rw")
            of_file_system, note = False, ""
            file_system_read_only = self._is_read_only
        else:
            file_system_read_only, note = self._file_system_read_only(read_only, becomes_read_only)
            of_file_system = self._changes_file_system or file_system_read_only is not self._is_read_only
            self._require_alone(of_file_system)
        commands = [self._of_file_system(file_system_read_only)] if of_file_system else []
        if not of_file_system or read_only is not file_system_read_only:
            commands.append(self._of_mount_point(read_only))
        commands += self._propagation()
        return Remount(tuple(commands), self._busy(becomes_read_only, file_system_read_only), note)

    @property
    def _point(self) -> str:
        return self._mounted.point

    def _flag(self, name: str) -> bool:
        """Return whether the mount point should have a flag."""
        if name in self._declared:
            return self._declared[name]
        return name in self._mounted.options and name not in declared_flags(self._before)

    def _file_system_read_only(self, read_only: bool, becomes_read_only: bool) -> tuple[bool, str]:
        """Return whether the file system itself should be read-only, and a note."""
        writable = [other.point for other in self._others if "ro" not in other.options]
        if becomes_read_only:
            if not writable:
                return True, ""
            where = first_few(writable)
            return (
                False,
                f"its file system is also mounted at {where}, so only {self._point} is read-only until the next boot",
            )
        is_asked = "ro" in self._declared or "ro" in declared_flags(self._before)
        if self._is_read_only and not read_only and is_asked:
            if writable:
                raise ResourceError(
                    f"{self._point} cannot become writable alone: its file system is read-only as a whole, and would"
                    f" become writable at {first_few(writable)}, too",
                    code=ProblemCode.CHANGE_REFUSED,
                )
            return False, ""
        return self._is_read_only, ""

    def _require_alone(self, of_file_system: bool) -> None:
        """Raise ``ResourceError`` if options would also change for another mount of the whole file system."""
        if not of_file_system or not self._changes_file_system or self._mounted.type in _ALWAYS_SHARED:
            return
        if same := [other.point for other in self._others if other.root == self._mounted.root]:
            raise ResourceError(
                f"options of {self._point} would change at {first_few(same)}, too, as they are of one file system",
                code=ProblemCode.CHANGE_REFUSED,
            )

    def _of_file_system(self, read_only: bool) -> tuple[str, ...]:
        words = ["remount", "ro" if read_only else "rw", *self._flag_words()]
        words += [
            option
            for option in self._desired.options
            if option in of_kernel(self._desired.options)
            and not is_of_mount(option)
            and not option.startswith(OF_CONTENT)
        ]
        return ("-t", self._mounted.type, "-o", ",".join(words), "--", self._mounted.source, self._point)

    def _of_mount_point(self, read_only: bool) -> tuple[str, ...]:
        words = ["remount", "bind", "ro" if read_only else "rw", *self._flag_words()]
        return ("-o", ",".join(words), "--", "none", self._point)

    def _flag_words(self) -> Iterator[str]:
        """Yield all flags but ``ro``. Newer versions of mount keep flags that are not passed, older ones clear them."""
        for name, (on, off) in FLAGS_OF_MOUNT.items():
            is_on = self._flag(name)
            # Older versions of mount reject the words for symbolic links.
            if name != "nosymfollow" or is_on or name in self._mounted.options:
                yield on if is_on else off
        yield self._atime()

    def _atime(self) -> str:
        """Return the word for access times. Exactly one word applies."""
        declared = [option for option in self._desired.options if option in ATIMES]
        if declared:
            return declared[-1]
        if not ATIMES.isdisjoint(self._before):
            return "relatime"  # the default
        return next(
            (word for word in ("noatime", "relatime") if word in self._mounted.options), "strictatime"
        )

    def _propagation(self) -> Iterator[tuple[str, ...]]:
        words = [option for option in self._desired.options if option in PROPAGATIONS]
        if words and not has_propagation(self._mounted, words[-1]):
            yield (f"--make-{words[-1]}", "--", self._point)

    def _busy(self, becomes_read_only: bool, file_system_read_only: bool) -> frozenset[int]:
        if not becomes_read_only:
            return frozenset()
        others = (other.number for other in self._others) if file_system_read_only else ()
        return frozenset({self._mounted.number, *others})


NEVER_UNMOUNTED = ("/", "/proc", "/sys", "/dev", "/run")


def fstab_file(context: Context) -> EditedFile[dict[str, list[Entry]]]:
    """Return ``/etc/fstab``, shared by all mounts of a run."""
    return EditedFile.of(context, fstab.FSTAB, fstab.parse)


class MountState(msgspec.Struct, frozen=True):
    """The fstab entry of a point, its mount, and the differences from the declaration."""

    entry: Entry | None
    mounted: Mounted | None
    """The topmost mount."""
    point: str = ""
    """The mount point without links."""
    is_automount: bool = False
    """Whether systemd mounts the point at the first access."""
    is_other: bool = False
    """Whether another device or type is mounted."""
    missing: Sequence[str] = ()
    """Declared options that are not in force."""


class Plan(msgspec.Struct, frozen=True):
    """The steps for one mount: ``first`` and ``remounted`` before fstab is written, ``then`` after it.

    Options change before their entry, so that an interrupted run finds the old entry and starts over. The kernel does
    not show all options, so a new entry alone would look in sync.
    """

    first: tuple[str, ...] = ()
    remounted: bool = False
    line: str = ""
    """``written``, ``removed`` or empty."""
    then: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the steps as words, in order."""
        of_line = {"written": "written to fstab", "removed": "removed from fstab"}.get(self.line)
        remounted = ["remounted"] if self.remounted else []
        return [*self.first, *remounted, *([of_line] if of_line else []), *self.then]


class Change(msgspec.Struct, frozen=True):
    """The work for one mount. ``note`` accepts sentences for the report."""

    desired: Fields
    plan: Plan
    actual: MountState
    note: Callable[[str], None]

    @property
    def edit(self) -> Edit | None:
        """The new line in fstab, ``None`` if it stays."""
        if not self.plan.line:
            return None
        return Edit(self.desired.point, self.desired if self.plan.line == "written" else None)

    def remount(self, table: MountTable) -> "Remount":
        """Return how to change the options of this mount alone. Raises ``ResourceError`` if this is impossible."""
        mounted = self.actual.mounted
        if mounted is None:
            raise ResourceError(f"{self.actual.point} is not mounted")
        before = self.actual.entry.fields if self.actual.entry else None
        return plan_remount(self.desired, before, self.actual.missing, mounted, table)

    @property
    def way_back(self) -> Edit:
        """The edit that restores the previous line in fstab."""
        return Edit(self.desired.point, line=self.actual.entry.line if self.actual.entry else "")


def plan(ensure: str, desired: Fields, actual: MountState) -> Plan:
    """Return the steps from the current to the desired state."""
    is_mounted = actual.mounted is not None
    away = ("unmounted",) if is_mounted else ()
    if ensure == "unmounted":
        return Plan(first=away)
    if ensure == "absent":
        return Plan(first=away, line="removed" if actual.entry else "")
    line = "" if actual.entry is not None and actual.entry.fields.same_as(desired) else "written"
    if ensure == "present" or actual.is_automount:
        return Plan(line=line)
    if not is_mounted:
        return Plan(line=line, then=("mounted",))
    if actual.is_other:
        return Plan(line=line, then=("unmounted", "mounted"))
    return Plan(line=line, remounted=bool(actual.missing) or _changes_options(desired, actual))


def _changes_options(desired: Fields, actual: MountState) -> bool:
    """Return whether kernel options in fstab change.

    Compare the entries, because the kernel does not show all options.
    """
    if actual.entry is None:
        return False
    return of_kernel(actual.entry.fields.options) != of_kernel(desired.options)


def refuse_paths_of_users(change: Change) -> None:
    """Raise ``ResourceError`` if another user could change the device or the mount point."""
    for name, path in paths_of(change.desired):
        if reason := distrust_of_way(path):
            raise ResourceError(
                f"{name} {path} can be led elsewhere by another user, now or at boot: {reason}",
                code=ProblemCode.UNTRUSTED_PATH,
            )


def paths_of(desired: Fields) -> Iterator[tuple[str, str]]:
    """Yield the paths that a mount follows, each with the name of its property."""
    yield "mount point", desired.point
    if desired.device.startswith("/") and not desired.device.startswith("//"):
        yield "device", desired.device
    for option in sorted(content_of_overlay(desired.options)):
        key, _, value = option.partition("=")
        for path in value.strip('"').replace("\\:", "\0").split(":"):
            if path.startswith("/"):
                yield key.rstrip("+"), path.replace("\0", ":")
