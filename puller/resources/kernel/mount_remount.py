"""Plan how to change the options of one mount without changing another mount.

* Flags such as ``ro`` and ``nosuid`` belong to a mount point. ``mount -o remount,bind`` changes them there alone.
  Without ``bind`` the kernel also changes the file system, which every other mount of it shows: a bind mount that
  becomes ``ro`` would make its whole source read-only.
* Options such as ``size=`` belong to the file system. They change only if this mount is the only one of the whole file
  system.
* The options are given in full, so that nothing is taken from fstab, which still has the old entry.
* Flags that neither the declaration nor the old entry names stay as they are.
"""

from collections.abc import Iterator, Sequence

import msgspec

from bundles.first_few import first_few
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.kernel.fstab import Fields
from puller.resources.kernel.mount_options import (
    ATIMES,
    FLAGS_OF_MOUNT,
    OF_CONTENT,
    PROPAGATIONS,
    has_propagation,
    is_bind,
    is_of_mount,
    of_kernel,
    wanted_flags,
)
from puller.resources.kernel.mount_table import Mounted, MountTable

# File systems of which every mount is the same one, so that their options always change everywhere.
_ALWAYS_SHARED = frozenset({"proc", "sysfs", "cgroup", "cgroup2"})


class Remount(msgspec.Struct, frozen=True):
    """The arguments of ``mount`` for each step, and what the user should know."""

    commands: tuple[tuple[str, ...], ...]
    becomes_read_only: frozenset[int] = frozenset()
    """The numbers of the mounts that nothing may write to at that moment."""
    note: str = ""


def plan_remount(
    wanted: Fields, before: Fields | None, missing: Sequence[str], mounted: Mounted, table: MountTable
) -> Remount:
    """Return the commands that give a mount its wanted options.

    ``before`` is its entry in fstab until now, and ``missing`` are wanted options that are not in force. Raises
    ``ResourceError`` if another mount would change with it.
    """
    return _Planner(wanted, before, missing, mounted, table).plan()


class _Planner:
    def __init__(
        self,
        wanted: Fields,
        before: Fields | None,
        missing: Sequence[str],
        mounted: Mounted,
        table: MountTable,
    ) -> None:
        self._wanted, self._mounted = wanted, mounted
        self._before = before.options if before else ()
        self._others = [
            other
            for other in table.mounts
            if other.device == mounted.device and other.number != mounted.number
        ]
        options_before = of_kernel(self._before) if before else of_kernel(wanted.options)
        changed = {*missing, *(of_kernel(wanted.options) ^ options_before)}
        self._changes_file_system = not all(map(is_of_mount, changed))
        self._declared = wanted_flags(wanted.options)
        self._is_read_only = "ro" in mounted.of_all

    def plan(self) -> Remount:
        """Decide between the mount point and the file system, then build the commands."""
        read_only = self._flag("ro")
        becomes_read_only = read_only and "ro" not in self._mounted.options and not self._is_read_only
        if is_bind(self._wanted.options):
            if self._declared.get("ro") is False and self._is_read_only:
                what = f"{self._point} cannot become writable: its file system is read-only as a whole"
                raise ResourceError(what, code=ProblemCode.CHANGE_REFUSED, hint="mount that with rw")
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
        return name in self._mounted.options and name not in wanted_flags(self._before)

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
        is_asked = "ro" in self._declared or "ro" in wanted_flags(self._before)
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
        """Raise ``ResourceError`` if options of the file system would change for another mount of the whole of it."""
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
            for option in self._wanted.options
            if option in of_kernel(self._wanted.options)
            and not is_of_mount(option)
            and not option.startswith(OF_CONTENT)
        ]
        return ("-t", self._mounted.type, "-o", ",".join(words), "--", self._mounted.source, self._point)

    def _of_mount_point(self, read_only: bool) -> tuple[str, ...]:
        words = ["remount", "bind", "ro" if read_only else "rw", *self._flag_words()]
        return ("-o", ",".join(words), "--", "none", self._point)

    def _flag_words(self) -> Iterator[str]:
        """All flags but ``ro``: newer versions of mount keep flags that are not given, older ones clear them."""
        for name, (on, off) in FLAGS_OF_MOUNT.items():
            is_on = self._flag(name)
            # Older versions of mount do not know the words for symbolic links.
            if name != "nosymfollow" or is_on or name in self._mounted.options:
                yield on if is_on else off
        yield self._atime()

    def _atime(self) -> str:
        """Return the word for access times, of which one always holds."""
        declared = [option for option in self._wanted.options if option in ATIMES]
        if declared:
            return declared[-1]
        if not ATIMES.isdisjoint(self._before):
            return "relatime"  # the default
        return next(
            (word for word in ("noatime", "relatime") if word in self._mounted.options), "strictatime"
        )

    def _propagation(self) -> Iterator[tuple[str, ...]]:
        words = [option for option in self._wanted.options if option in PROPAGATIONS]
        if words and not has_propagation(self._mounted, words[-1]):
            yield (f"--make-{words[-1]}", "--", self._point)

    def _busy(self, becomes_read_only: bool, file_system_read_only: bool) -> frozenset[int]:
        if not becomes_read_only:
            return frozenset()
        others = (other.number for other in self._others) if file_system_read_only else ()
        return frozenset({self._mounted.number, *others})
