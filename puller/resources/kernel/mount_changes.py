"""All mount changes of a run: unmounts, one write of fstab, then mounts.

Each change fails separately. The fstab entry of a failed change is restored.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from foundation.problems import ProblemCode
from puller.errors import ChangedMeanwhile, ResourceError
from puller.resources.base import Context
from puller.resources.kernel import fstab, mount_commands
from puller.resources.kernel.fstab import Fields
from puller.resources.kernel.mount_commands import Processes, some
from puller.resources.kernel.mount_plan import NEVER_UNMOUNTED, Change, fstab_file, refuse_paths_of_users
from puller.resources.kernel.mount_sources import is_device_missing
from puller.resources.kernel.mount_table import Mounts, is_bind, not_in_force
from puller.resources.paths import PathState
from puller.system.protocol import Attributes, System

_MOST_LAYERS = 8


class Foreseen:
    """Points that will be mounted or unmounted by changes of this run."""

    def __init__(self) -> None:
        self.coming: set[str] = set()
        self.going: set[str] = set()
        self.processes = Processes()

    def add(self, change: Change) -> None:
        """Add the effects of a change."""
        if change.plan.first:
            self.going.add(change.actual.point)
        if "mounted" in change.plan.then:
            self.coming.add(change.actual.point)

    def will_hold(self, path: str) -> bool:
        """Return whether a path will be inside a future mount, so that its files are unknown."""
        return any(f"{path}/".startswith(f"{point.rstrip('/')}/") for point in self.coming)

    def will_hide(self, point: str) -> bool:
        """Return whether a mount above a point will hide the current directory."""
        return any(
            point != other and f"{point}/".startswith(f"{other.rstrip('/')}/") for other in self.coming
        )


def change_mounts(context: Context, changes: Sequence[Change]) -> Mapping[int, Exception]:
    """Make all changes and return the failures by index. Raises like a write of fstab.

    1. Refuse impossible changes.
    2. Change options and unmount, inner mount points first.
    3. Write fstab and reload systemd, because its outdated units would act against the new mounts.
    4. Mount, and replace mounts.
    5. Restore the entries of failed changes.
    """
    work, in_order = _Work(context, changes), range(len(changes))
    # 1. Refuse
    foreseen = Foreseen()
    for change in changes:
        foreseen.add(change)
    work.try_each(lambda change: refuse_what_cannot_be(context, change, foreseen), in_order)
    # 2. Change options, unmount
    backwards = sorted(in_order, key=lambda place: changes[place].actual.point, reverse=True)
    work.try_each(lambda change: _before(context, change), backwards)
    # 3. Write
    written = [place for place in in_order if place not in work.failed]
    _write(context, [changes[place] for place in written], back=False)
    # 4. Mount
    work.try_each(work.mount, in_order)
    # 5. Put back
    undone = [changes[place] for place in written if place in work.failed]
    _write(context, undone, back=True)
    for change in undone:
        _mount_again(context, change)
    return work.failed


class _Work:
    """Changes that fail separately."""

    def __init__(self, context: Context, changes: Sequence[Change]) -> None:
        self._context, self._changes = context, changes
        self.failed: dict[int, Exception] = {}

    def try_each(self, do: Callable[[Change], None], places: Iterable[int]) -> None:
        """Call ``do`` for each change that has not failed, in this order."""
        for place in places:
            if place not in self.failed:
                try:
                    do(self._changes[place])
                except (OSError, ResourceError) as error:
                    self.failed[place] = error

    def mount(self, change: Change) -> None:
        """Mount the point, unless a mount above it failed: a later mount there would hide this one."""
        above = (self._changes[place] for place in self.failed)
        for other in above:
            is_above = change.actual.point.startswith(f"{other.actual.point}/")
            if is_above and "mounted" in other.plan.then and "mounted" in change.plan.then:
                raise ResourceError(
                    f"nothing could be mounted at {other.actual.point}, which is above it",
                    code=ProblemCode.CHANGE_REFUSED,
                )
        _after(self._context, change)


def foretell(context: Context, change: Change) -> None:
    """In noop, raise ``ResourceError`` for a known failure, or record the effects for later resources."""
    foreseen: Foreseen = context.shared.setdefault(Foreseen, Foreseen())
    refuse_what_cannot_be(context, change, foreseen)
    foreseen.add(change)
    if "mounted" in change.plan.then:
        _expect_content(context.system, change.wanted)


def _expect_content(system: System, desired: Fields) -> None:
    """In noop, show later resources the file system that would be mounted."""
    if desired.type in ("tmpfs", "ramfs"):
        system.expect(desired.point, "empty directory")
        return
    system.expect(desired.point, "directory")
    if is_bind(desired.options) and desired.device != desired.point and system.is_directory(desired.device):
        system.expect_link(desired.point, desired.device)


def refuse_what_cannot_be(context: Context, change: Change, foreseen: Foreseen) -> None:
    """Raise ``ResourceError`` for a known failure before anything changes."""
    steps = {*change.plan.first, *change.plan.then}
    if change.plan.line == "written" or "mounted" in steps:
        refuse_paths_of_users(change)
    if "unmounted" in steps:
        _refuse_to_unmount(context, change.actual.point, foreseen)
    if "mounted" in steps:
        _refuse_to_mount(context, change, foreseen)
    if change.plan.remounted:
        _refuse_to_remount(context, change, foreseen)


def _refuse_to_remount(context: Context, change: Change, foreseen: Foreseen) -> None:
    mounted = change.actual.mounted
    remount = change.remount(Mounts.current(context))
    if mounted is not None and (by := foreseen.processes.writers(remount.becomes_read_only)):
        raise ResourceError(
            f"{mounted.point} cannot become read-only: files are open for writing in {some(by)}",
            code=ProblemCode.CHANGE_REFUSED,
        )
    if remount.note:
        change.note(remount.note)


def _refuse_to_unmount(context: Context, point: str, foreseen: Foreseen) -> None:
    if why := _why_kept(point, context):
        raise ResourceError(f"{point} is never unmounted: {why}", code=ProblemCode.CHANGE_REFUSED)
    if below := [item for item in Mounts.current(context).below(point) if item not in foreseen.going]:
        raise ResourceError(
            f"{point} is in use: {some(below)} is mounted below it", code=ProblemCode.CHANGE_REFUSED
        )
    if by := foreseen.processes.in_use(point):
        raise ResourceError(f"{point} is in use by {some(by)}", code=ProblemCode.CHANGE_REFUSED)


def _refuse_to_mount(context: Context, change: Change, foreseen: Foreseen) -> None:
    desired, point = change.wanted, change.actual.point
    if not context.uncertain("/sbin"):
        mount_commands.require_helper(desired.type)
    comes = foreseen.will_hold(desired.device) or _may_come(desired.device, context)
    if not comes and is_device_missing(desired.device, desired.type):
        raise ResourceError(f"there is no {desired.device}")
    if not foreseen.will_hide(point):
        _look_at_point(context, change)


def _look_at_point(context: Context, change: Change) -> None:
    """Raise ``ResourceError`` if nothing can be mounted at the point. Note the files that a mount would hide."""
    device, point, system = change.wanted.device, change.actual.point, context.system
    status = system.lstat(point)
    if PathState(status).kind == "symbolic link":
        raise ResourceError(
            f"{point} is a symbolic link", code=ProblemCode.CHANGE_REFUSED, hint="name its target"
        )
    binds_file = is_bind(change.wanted.options) and os.path.isfile(device)  # an image needs a directory
    if status is None and not system.exists(point) and binds_file:
        raise ResourceError(f"the mount point of the file {device} must be an existing file: {point}")
    if change.actual.mounted is None and status is not None and _holds_anything(point):
        change.note(f"the content of the directory {point} is hidden while a file system is mounted there")


def _may_come(device: str, context: Context) -> bool:
    """Return whether, in noop, an earlier resource may create the device."""
    if not device.startswith("/"):
        return context.uncertain("/dev")
    return context.uncertain(device) or context.system.exists(device)


def _why_kept(point: str, context: Context) -> str:
    if point in NEVER_UNMOUNTED:
        return "the system needs it"
    state = context.state_directory
    if state is not None and f"{os.path.realpath(state)}/".startswith(f"{point}/"):
        return f"{state} is in it, where Puller keeps its state"
    return ""


def _holds_anything(point: str) -> bool:
    try:
        with os.scandir(point) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def _before(context: Context, change: Change) -> None:
    if change.plan.first:
        _unmount(context, change.actual.point)
    if change.plan.remounted:
        for arguments in change.remount(Mounts.current(context)).commands:
            mount_commands.mount_by(context.system, arguments)
        _require_in_force(context, change)


def _require_in_force(context: Context, change: Change) -> None:
    """Raise ``ResourceError`` if options did not change, because mount(8) exits with 0 for options that it ignores."""
    layers = Mounts.current(context).at(change.actual.point)
    if missing := not_in_force(change.wanted.options, layers[-1]) if layers else []:
        raise ResourceError(
            f"mount has not changed {', '.join(missing)}", hint=f"unmount {change.actual.point} first"
        )


def _after(context: Context, change: Change) -> None:
    steps, system, point = change.plan.then, context.system, change.wanted.point
    if "unmounted" in steps:
        _unmount(context, change.actual.point)
    if "mounted" in steps:
        if not system.is_directory(point) and not system.exists(point):
            system.make_directory(point, Attributes(os.geteuid(), os.getegid(), 0o755))
        _require_same_point(context, change)
        mount_commands.mount(system, point)
        _require_mounted(context, change)


def _require_mounted(context: Context, change: Change) -> None:
    """Raise ``ResourceError`` if nothing was mounted. mount(8) with ``nofail`` exits with 0 in this case."""
    if not Mounts.current(context).at(change.actual.point):
        hides = ", since the option nofail hides the reason" if "nofail" in change.wanted.options else ""
        raise ResourceError(f"mount has ended without an error and has mounted nothing{hides}")


def _require_same_point(context: Context, change: Change) -> None:
    """Raise ``ChangedMeanwhile`` if a link now redirects the mount point. mount(8) would follow it.

    The owner of a directory in the path can replace it, and can read in fstab when a mount is due.
    """
    point, now = change.wanted.point, context.system.resolve(change.wanted.point)
    if now != change.actual.point:
        raise ChangedMeanwhile(f"{point}: leads to {now}, since another process changed the path to it")


def _unmount(context: Context, point: str) -> None:
    """Unmount all mounts of a point, the topmost first."""
    for _ in range(_MOST_LAYERS):
        if not Mounts.current(context).at(point):
            return
        mount_commands.unmount(context.system, point)
    if layers := len(Mounts.current(context).at(point)):
        raise ResourceError(
            f"{point} is still mounted {layers} times, after it was unmounted {_MOST_LAYERS} times"
        )


def _write(context: Context, changes: Sequence[Change], *, back: bool) -> None:
    """Write the new entries, or with ``back`` the previous entries."""
    result = ((change.edit, change.way_back) for change in changes)
    edits = [before if back else edit for edit, before in result if edit is not None]
    is_written = edits and fstab_file(context).write(context.system, partial(fstab.edited, edits=edits))
    if is_written and (problem := mount_commands.tell_systemd(context.system)):
        for change in changes:
            change.note(problem)


def _mount_again(context: Context, change: Change) -> None:
    """Mount the previous device again after its replacement failed."""
    before = change.actual.mounted
    if before is None or "unmounted" not in change.plan.then or Mounts.current(context).at(before.point):
        return
    if change.actual.entry is not None or before.root == "/":
        try:
            if change.actual.entry is not None:
                mount_commands.mount(context.system, change.wanted.point)
            else:
                options = ",".join(before.all_options)
                mount_commands.mount_by(
                    context.system, ("-t", before.type, "-o", options, "--", before.source, before.point)
                )
        except ResourceError as error:
            change.note(f"the previous file system could not be mounted again: {error}")
