"""All mount changes of a run, and their commands: unmounts, one write of fstab, then mounts.

* Each change fails separately. The fstab entry of a failed change is restored.
* Each command has a time limit. If a server does not answer, only the resource of this mount fails.
* Mounts are never unmounted lazily or by force. If a mount is busy, the error names the processes that use it
  (proc(5)) by an open file, a directory or a program.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from foundation.problems import ProblemCode
from foundation.quantities import first_few
from puller.errors import ChangedMeanwhile, ResourceError, reason
from puller.resources.base import Context
from puller.resources.kernel import fstab
from puller.resources.kernel.fstab import Fields
from puller.resources.kernel.mount_plan import NEVER_UNMOUNTED, Change, fstab_file, refuse_paths_of_users
from puller.resources.kernel.mount_table import Mounts, is_bind, is_device_missing, not_in_force
from puller.resources.paths import PathState
from puller.system.commands import Command, Completed
from puller.system.protocol import Attributes, System

# Processes that use a mount.

PROC = "/proc"
_MOST_NAMED = 8


class Processes:
    """All processes of this machine. Each list is read once."""

    def in_use(self, point: str) -> list[str]:
        """Return the processes that use a mount, by name and number."""
        below = f"{point.rstrip('/')}/"
        return [
            f"{_name(number)} ({number})"
            for number, paths in self._paths.items()
            if any(path == point or path.startswith(below) for path in paths)
        ]

    def writers(self, mounts: Collection[int]) -> list[str]:
        """Return the processes that have a file open for writing in one of these mounts, by name and number."""
        if not mounts:
            return []
        return [
            f"{_name(number)} ({number})"
            for number in self._numbers
            if _writes_to(f"{PROC}/{number}", mounts)
        ]

    @cached_property
    def _numbers(self) -> list[str]:
        return sorted(filter(str.isdecimal, os.listdir(PROC)), key=int)

    @cached_property
    def _paths(self) -> dict[str, set[str]]:
        return {number: {*_paths(f"{PROC}/{number}")} for number in self._numbers}


def some(names: list[str]) -> str:
    """Return the first few names, for a message."""
    return first_few(names, _MOST_NAMED)


def _writes_to(process: str, mounts: Collection[int]) -> bool:
    """Return whether a process has a regular file open for writing in one of these mounts (proc(5), ``fdinfo``)."""
    try:
        numbers = os.listdir(f"{process}/fdinfo")
    except OSError:
        return False
    for number in numbers:
        try:
            with open(f"{process}/fdinfo/{number}", encoding="ascii", errors="replace") as stream:
                fields = dict(line.split(":", 1) for line in stream.read().splitlines() if ":" in line)
            is_open_for_writing = int(fields["flags"], 8) & os.O_ACCMODE != os.O_RDONLY
            if not is_open_for_writing or int(fields["mnt_id"]) not in mounts:
                continue
            # Pipes, sockets and devices can be written to on a read-only file system.
            if stat.S_ISREG(os.stat(f"{process}/fd/{number}").st_mode):
                return True
        except (OSError, KeyError, ValueError):  # the process ended meanwhile, or reading it is not permitted
            continue
    return False


def _paths(process: str) -> Iterator[str]:
    """Yield the paths that a process uses. Skip paths that cannot be read, or if the process ended meanwhile."""
    names = ["cwd", "root", "exe"]
    try:
        names += [f"fd/{number}" for number in os.listdir(f"{process}/fd")]
    except OSError:
        pass
    for name in names:
        try:
            yield os.readlink(f"{process}/{name}")
        except OSError:
            continue


def _name(number: str) -> str:
    try:
        with open(f"{PROC}/{number}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "a process"


TIMEOUT = 60.0  # seconds
SYSTEMD = "/run/systemd/system"
"""The directory that exists if systemd runs."""

_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
_TAIL = 5  # lines of output of a failed command
_HELPERS = {
    "nfs": "nfs-common (nfs-utils)",
    "nfs4": "nfs-common (nfs-utils)",
    "cifs": "cifs-utils",
    "smb3": "cifs-utils",
    "glusterfs": "glusterfs-client",
    "ntfs-3g": "ntfs-3g",
    "fuse.sshfs": "sshfs",
}
_HELPER_DIRECTORIES = ("/sbin", "/usr/sbin", "/usr/local/sbin")


def mount(system: System, point: str) -> None:
    """Mount according to fstab. Raises ``ResourceError``."""
    _execute(system, "mount", "--", point)


def mount_by(system: System, arguments: Sequence[str]) -> None:
    """Run mount with these arguments. Raises ``ResourceError``."""
    _execute(system, "mount", *arguments)


def unmount(system: System, point: str) -> None:
    """Unmount the topmost mount of a point. Raises ``ResourceError`` with the processes that use it."""
    try:
        _execute(system, "umount", "--", point)
    except ResourceError as error:
        raise ResourceError(f"{error}{_held(point)}") from None


def tell_systemd(system: System) -> str:
    """If systemd runs, make it regenerate its units from fstab. Return the error message, empty on success."""
    if not os.path.isdir(SYSTEMD):
        return ""
    try:
        _execute(system, "systemctl", "--system", "--no-ask-password", "daemon-reload")
    except ResourceError as error:
        return f"systemd has not read /etc/fstab: {error}"
    return ""


def require_helper(kind: str) -> None:
    """Raise ``ResourceError`` if the helper program that mounts this type of file system is missing."""
    package = _HELPERS.get(kind)
    if package and not any(os.path.exists(f"{item}/mount.{kind}") for item in _HELPER_DIRECTORIES):
        raise ResourceError(
            f"mount.{kind} is missing",
            code=ProblemCode.MISSING_DEPENDENCY,
            hint=f"it comes with the package {package}",
        )


def _held(point: str) -> str:
    by = Processes().in_use(point)
    return f". It is in use by {some(by)}" if by else ""


def _execute(system: System, *arguments: str) -> None:
    try:
        completed = system.execute(Command(arguments, _ENVIRONMENT, timeout=TIMEOUT))
    except FileNotFoundError:
        package = "systemd" if arguments[0] == "systemctl" else "mount (util-linux)"
        raise ResourceError(
            f"{arguments[0]} is missing",
            code=ProblemCode.MISSING_DEPENDENCY,
            hint=f"it comes with the package {package}",
        ) from None
    except OSError as error:
        raise ResourceError(f"{arguments[0]} cannot be started: {reason(error)}") from error
    if completed.exit_code != 0:
        shown = arguments[: arguments.index("--")] if "--" in arguments else arguments
        raise ResourceError(_sentence(" ".join(shown), completed))


def _sentence(description: str, completed: Completed) -> str:
    printed = (completed.stderr.strip() or completed.stdout.strip()).splitlines()[-_TAIL:]
    text = "; ".join(line.strip() for line in printed)
    return f"{description}: {completed.outcome}" + (f"; it said: {text}" if text else "")


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
        _expect_content(context.system, change.desired)


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
    desired, point = change.desired, change.actual.point
    if not context.uncertain("/sbin"):
        require_helper(desired.type)
    comes = foreseen.will_hold(desired.device) or _may_come(desired.device, context)
    if not comes and is_device_missing(desired.device, desired.type):
        raise ResourceError(f"there is no {desired.device}")
    if not foreseen.will_hide(point):
        _look_at_point(context, change)


def _look_at_point(context: Context, change: Change) -> None:
    """Raise ``ResourceError`` if nothing can be mounted at the point. Note the files that a mount would hide."""
    device, point, system = change.desired.device, change.actual.point, context.system
    status = system.lstat(point)
    if PathState(status).kind == "symbolic link":
        raise ResourceError(
            f"{point} is a symbolic link", code=ProblemCode.CHANGE_REFUSED, hint="name its target"
        )
    binds_file = is_bind(change.desired.options) and os.path.isfile(device)  # an image needs a directory
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
            mount_by(context.system, arguments)
        _require_in_force(context, change)


def _require_in_force(context: Context, change: Change) -> None:
    """Raise ``ResourceError`` if options did not change, because mount(8) exits with 0 for options that it ignores."""
    layers = Mounts.current(context).at(change.actual.point)
    if missing := not_in_force(change.desired.options, layers[-1]) if layers else []:
        raise ResourceError(
            f"mount has not changed {', '.join(missing)}", hint=f"unmount {change.actual.point} first"
        )


def _after(context: Context, change: Change) -> None:
    steps, system, point = change.plan.then, context.system, change.desired.point
    if "unmounted" in steps:
        _unmount(context, change.actual.point)
    if "mounted" in steps:
        if not system.is_directory(point) and not system.exists(point):
            system.make_directory(point, Attributes(os.geteuid(), os.getegid(), 0o755))
        _require_same_point(context, change)
        mount(system, point)
        _require_mounted(context, change)


def _require_mounted(context: Context, change: Change) -> None:
    """Raise ``ResourceError`` if nothing was mounted. mount(8) with ``nofail`` exits with 0 in this case."""
    if not Mounts.current(context).at(change.actual.point):
        hides = ", since the option nofail hides the reason" if "nofail" in change.desired.options else ""
        raise ResourceError(f"mount has ended without an error and has mounted nothing{hides}")


def _require_same_point(context: Context, change: Change) -> None:
    """Raise ``ChangedMeanwhile`` if a link now redirects the mount point. mount(8) would follow it.

    The owner of a directory in the path can replace it, and can read in fstab when a mount is due.
    """
    point, now = change.desired.point, context.system.resolve(change.desired.point)
    if now != change.actual.point:
        raise ChangedMeanwhile(f"{point}: leads to {now}, since another process changed the path to it")


def _unmount(context: Context, point: str) -> None:
    """Unmount all mounts of a point, the topmost first."""
    for _ in range(_MOST_LAYERS):
        if not Mounts.current(context).at(point):
            return
        unmount(context.system, point)
    if layers := len(Mounts.current(context).at(point)):
        raise ResourceError(
            f"{point} is still mounted {layers} times, after it was unmounted {_MOST_LAYERS} times"
        )


def _write(context: Context, changes: Sequence[Change], *, back: bool) -> None:
    """Write the new entries, or with ``back`` the previous entries."""
    result = ((change.edit, change.way_back) for change in changes)
    edits = [before if back else edit for edit, before in result if edit is not None]
    is_written = edits and fstab_file(context).write(context.system, partial(fstab.edited, edits=edits))
    if is_written and (problem := tell_systemd(context.system)):
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
                mount(context.system, change.desired.point)
            else:
                options = ",".join(before.all_options)
                mount_by(
                    context.system, ("-t", before.type, "-o", options, "--", before.source, before.point)
                )
        except ResourceError as error:
            change.note(f"the previous file system could not be mounted again: {error}")
