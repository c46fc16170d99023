"""All changes of the mounts of a run: what has to go, one write of fstab, what has to come.

What fails is told of each by itself: its entry in fstab is then as it was before.
"""

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.kernel import fstab, mounting
from puller.resources.kernel.fstab import Edit
from puller.resources.kernel.mount_plan import NEVER_UNMOUNTED, Change, fstab_file
from puller.resources.kernel.mount_sources import is_device_missing
from puller.resources.kernel.mount_table import Mounts
from puller.resources.kernel.processes import Processes, some
from puller.resources.paths import PathState
from puller.system.protocol import Attributes

_MOST_LAYERS = 8


def change_mounts(context: Context, changes: Sequence[Change]) -> Mapping[int, Exception]:
    """Make all changes; gives what single ones have failed with, by their places. Raises as a write of fstab does.

    1. Refuse what cannot be.
    2. Unmount what is to be away.
    3. Write fstab, and tell systemd: the units that it has made of it would act against what is mounted.
    4. Mount, and mount anew.
    5. Put the entries back of what could not be.
    """
    failed: dict[int, Exception] = {}

    def for_each(do: Callable[[Context, Change], None], places: Iterable[int]) -> None:
        for place in places:
            if place not in failed:
                try:
                    do(context, changes[place])
                except (OSError, ResourceError) as error:
                    failed[place] = error

    # 1. Refuse
    in_order, processes = range(len(changes)), Processes()
    going = {change.actual.point for change in changes if change.plan.first}
    for_each(lambda context, change: refuse_what_cannot_be(context, change, going, processes), in_order)
    # 2. Unmount, what is below before what is above
    for_each(_before, sorted(in_order, key=lambda place: changes[place].actual.point, reverse=True))
    # 3. Write
    written = [change for place, change in enumerate(changes) if place not in failed]
    _write(context, written, [edit for change in written if (edit := change.edit)])
    # 4. Mount
    for_each(_after, in_order)
    # 5. Put back
    undone = [change for place, change in enumerate(changes) if place in failed and change in written]
    _write(context, undone, [change.way_back for change in undone if change.edit])
    for change in undone:
        _mount_again(context, change)
    return failed


def foretell(context: Context, change: Change) -> None:
    """In noop: raise for what is known to fail; let those after it know what would not be mounted any more."""
    going: set[str] = context.shared.setdefault(Change, set())
    processes: Processes = context.shared.setdefault(Processes, Processes())
    refuse_what_cannot_be(context, change, going, processes)
    if change.plan.first:
        going.add(change.actual.point)
    if "mounted" in change.plan.then:
        context.system.expect(change.wanted.point, "directory")


def refuse_what_cannot_be(
    context: Context, change: Change, going: Container[str], processes: Processes
) -> None:
    """Raise ``ResourceError`` for what is known to fail, before anything is done; ``going`` are points not to count."""
    steps = {*change.plan.first, *change.plan.then}
    if "unmounted" in steps:
        _refuse_to_unmount(context, change.actual.point, going, processes)
    if "mounted" in steps:
        _refuse_to_mount(context, change)


def _refuse_to_unmount(context: Context, point: str, going: Container[str], processes: Processes) -> None:
    if why := _why_kept(point, context):
        raise ResourceError(f"{point} is never unmounted: {why}")
    if below := [one for one in Mounts.current(context).below(point) if one not in going]:
        raise ResourceError(f"{point} is in use: {some(below)} is mounted below it")
    if by := processes.in_use(point):
        raise ResourceError(f"{point} is in use by {some(by)}")


def _refuse_to_mount(context: Context, change: Change) -> None:
    device, point, system = change.wanted.device, change.actual.point, context.system
    if not context.uncertain("/sbin"):
        mounting.require_helper(change.wanted.type)
    if is_device_missing(device, change.wanted.type) and not _may_come(device, context):
        raise ResourceError(f"there is no {device}")
    found = system.lstat(point)
    if PathState(found).kind == "symbolic link":
        raise ResourceError(f"{point} is a symbolic link; name what it leads to")
    if found is None and not system.exists(point) and device.startswith("/") and os.path.isfile(device):
        raise ResourceError(f"there is no file {point}, over which the file {device} could be mounted")
    if change.actual.mounted is None and found is not None and _holds_anything(point):
        change.note(f"what is in the directory {point} is hidden while something is mounted there")


def _may_come(device: str, context: Context) -> bool:
    """In noop: whether an earlier resource may have brought what is to be mounted."""
    return context.uncertain(device if device.startswith("/") else "/dev") or context.system.exists(device)


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


def _after(context: Context, change: Change) -> None:
    steps, system, point = change.plan.then, context.system, change.wanted.point
    if "unmounted" in steps:
        _unmount(context, change.actual.point)
    if "mounted" in steps:
        if not system.is_directory(point) and not system.exists(point):
            system.make_directory(point, Attributes(os.geteuid(), os.getegid(), 0o755))
        mounting.mount(system, point)
    if "remounted" in steps:
        mounting.remount(system, point)


def _unmount(context: Context, point: str) -> None:
    """Take away all mounts of a point, the topmost first."""
    for _ in range(_MOST_LAYERS):
        if not Mounts.current(context).at(point):
            return
        mounting.unmount(context.system, point)
    if layers := len(Mounts.current(context).at(point)):
        raise ResourceError(
            f"{point} is still mounted {layers} times, after it was unmounted {_MOST_LAYERS} times"
        )


def _write(context: Context, changes: Sequence[Change], edits: Sequence[Edit]) -> None:
    is_written = edits and fstab_file(context).write(context.system, lambda text: fstab.edited(text, edits))
    if is_written and (problem := mounting.tell_systemd(context.system)):
        for change in changes:
            change.note(problem)


def _mount_again(context: Context, change: Change) -> None:
    """Mount what was there before another device was to take its place."""
    is_away = "unmounted" in change.plan.then and not Mounts.current(context).at(change.actual.point)
    if is_away and change.actual.entry is not None:
        try:
            mounting.mount(context.system, change.wanted.point)
        except ResourceError as error:
            change.note(f"what was mounted before could not be mounted again: {error}")
