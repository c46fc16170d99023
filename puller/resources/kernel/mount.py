"""The ``mount`` resource: file systems, now and at the next boot (``docs/resources/mount.md``).

* One write of fstab and one reload of systemd serve all mounts of a run. A mount that mount(8) rejects gets its old
  entry back and does not block other mounts.
* A mount in use is not unmounted, and its entry stays. Puller never unmounts lazily or by force.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foundation.differences import Difference, added, changed, presence, removed, secret, unified
from puller.errors import ResourceError
from puller.resources.base import Declared, Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Use
from puller.resources.kernel import fstab
from puller.resources.kernel.fstab import Entry, Fields
from puller.resources.kernel.mount_changes import Processes, change_mounts, foretell
from puller.resources.kernel.mount_plan import NEVER_UNMOUNTED, Change, MountState, fstab_file, paths_of, plan
from puller.resources.kernel.mount_table import Mounts, MountTable, is_bind, is_desired_mount, not_in_force
from puller.resources.paths import check_path
from puller.system.local_paths import Spellings
from puller.values.common_properties import Reference

_ENSURE = ("mounted", "present", "unmounted", "absent")
_GONE = ("unmounted", "absent")

_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # a tab can be written in fstab
_NO_OPTIONS = frozenset({"remount", "move", "make-private", "make-shared", "make-slave", "make-unbindable"})


class MountProperties(Properties, frozen=True, rename={"pass_": "pass"}):
    """The properties of a mount. The name is the mount point."""

    ensure: str = "mounted"
    """``mounted``, ``present`` (only in fstab), ``unmounted`` (keep fstab) or ``absent``."""
    device: str | None = None
    """A device, ``UUID=``, ``LABEL=``, ``host:/path``, a name for a file system without a device, or the directory of a
    bind mount."""
    type: str | None = None
    """The type of the file system, or ``none`` for a bind mount."""
    options: tuple[str, ...] = ("defaults",)
    """Mount options, as in fstab."""
    dump: int = 0
    """The field of dump(8) in fstab."""
    pass_: int = 0
    """The order of the check by fsck(8) at boot: 1, 2, or 0 for never."""


class Mount(Resource[MountProperties, MountState]):
    """A mounted file system."""

    type_name = "mount"
    properties_type = MountProperties
    secret_properties = frozenset({"device", "options"})
    removable = True

    def look(self) -> MountState:
        """Return the state of the point.

        Raises ``ResourceError`` for a point of autofs and for several lines in fstab.
        """
        table, entry = Mounts.current(self.context), self._entry()
        point = self._real_point(table)
        layers = table.at(point)
        top = layers[-1] if layers else None
        if top is not None and top.type == "autofs":
            options = [*self.properties.options, *(entry.fields.options if entry else ())]
            if "x-systemd.automount" not in options:
                raise ResourceError(f"it is a point of autofs, from {top.source}, which is left to it")
            return MountState(entry, None, point, is_automount=True)
        return self._compared(MountState(entry, top, point), table)

    def differences(self, actual: MountState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        desired, todo, differences = self._desired, plan(self.properties.ensure, self._desired, actual), []
        if todo.first or todo.then == ("mounted",):
            differences.append(presence(self.final_ensure(actual), self.properties.ensure))
        if actual.is_other and actual.mounted is not None:
            current = f"{actual.mounted.source} ({actual.mounted.type})"
            differences.append(self._changed("device", current, f"{desired.device} ({desired.type})"))
        if actual.missing and actual.mounted is not None:
            differences.append(
                self._changed("options", ",".join(actual.mounted.all_options), ",".join(desired.options))
            )
        if todo.line:
            current = "" if actual.entry is None else str(actual.entry.fields)
            differences.append(
                self._changed("entry", current, str(desired) if todo.line == "written" else "", fstab.FSTAB)
            )
        return differences

    def _changed(self, name: str, current: str, desired: str, path: str = "") -> Difference:
        if self.properties.sensitive:
            return secret(name, path)
        if not current:
            return added(name, desired, path)
        return changed(name, current, desired, path) if desired else removed(name, current, path)

    def change(self, differences: Sequence[Difference], actual: MountState) -> None:
        """Change only this mount. Raises ``OSError`` and ``ResourceError``."""
        del differences
        for failure in self.change_together([(self, actual)]).values():
            raise failure

    @classmethod
    def is_in_use(cls, properties: MountProperties) -> bool:
        return bool(Processes().in_use(properties.name))

    @classmethod
    def change_together(cls, members: "Sequence[tuple[Mount, MountState]]") -> Mapping[int, Exception]:
        changes = [resource._change(actual) for resource, actual in members]
        return change_mounts(members[0][0].context, changes)

    def noop_message(self, differences: Sequence[Difference], actual: MountState) -> str:
        del differences
        change = self._change(actual)
        foretell(self.context, change)
        return f"Would have {', '.join(change.plan.words())}"

    @property
    def notes(self) -> Sequence[str]:
        result: Sequence[str] = self.context.shared.get(Mount, {}).get(self.properties.name, ())
        return [*dict.fromkeys(result)]

    def final_ensure(self, actual: MountState) -> str:
        if actual.mounted is not None or actual.is_automount:
            return "mounted"
        if self.properties.ensure == "unmounted":
            return "unmounted"
        return "absent" if actual.entry is None else "present"

    def reach(self) -> str:
        # The files of a file system that is not mounted yet are unknown.
        return self.properties.name if self.properties.ensure == "mounted" else ""

    def is_there(self, actual: MountState) -> bool:
        return actual.mounted is not None or actual.entry is not None

    @classmethod
    def subjects(cls, properties: MountProperties) -> Iterable[str]:
        """Return all mounts together, because a mount can hide or move another, the mount point, and fstab."""
        return (cls.type_name, properties.name, fstab.FSTAB)

    def changed_paths(self, actual: MountState) -> Iterable[str] | None:
        del actual
        return None  # a mount is more than its line in fstab

    def way_back(self, actual: MountState) -> Properties | None:
        if actual.entry is None:  # mounted by hand, with unknown options
            return None
        before = actual.entry.fields
        ensure = "present" if actual.mounted is None else "mounted"
        return MountProperties(
            name=before.point, ensure=ensure, device=before.device, type=before.type, options=before.options,
            dump=before.dump, pass_=before.passno,
        )  # fmt: skip

    def describe(self, actual: MountState) -> dict[str, Any]:
        described: dict[str, Any] = {"ensure": self.final_ensure(actual)}
        if (mounted := actual.mounted) is not None:
            described |= {"device": mounted.source, "file_system": mounted.type}
            described["options"] = [*mounted.all_options]
        if actual.entry is not None:
            described["entry"] = str(actual.entry.fields)
        return described

    def diff(self, actual: MountState) -> str | None:
        return self.diff_together([(self, actual)])

    @classmethod
    def diff_together(cls, members: "Sequence[tuple[Mount, MountState]]") -> str | None:
        edits = [edit for resource, actual in members if (edit := resource._change(actual).edit)]
        context = members[0][0].context
        _, before, after = fstab_file(context).plan(context.system, lambda text: fstab.edited(text, edits))
        return unified(before, after, fstab.FSTAB) if before != after else None

    # Current state

    def _entry(self) -> Entry | None:
        """Return its line in fstab. Raises ``ResourceError`` if there are several."""
        entries = fstab_file(self.context).current(self.context).get(self.properties.name, ())
        if len(entries) > 1:
            lines = " and ".join(str(entry.number) for entry in entries)
            raise ResourceError(
                f"{fstab.FSTAB} has several lines for it ({lines}); which line is effective is unknown"
            )
        return entries[0] if entries else None

    def _real_point(self, table: MountTable) -> str:
        """Return the mount point with resolved parents. Do not access the disk if the table contains the point."""
        point = self.properties.name
        if table.at(point) or point == "/":
            return point
        above, _, name = point.rpartition("/")
        return f"{self.context.system.resolve(above or '/').rstrip('/')}/{name}"

    def _compared(self, found: MountState, table: MountTable) -> MountState:
        """Return the state after comparing the mount with the declaration."""
        desired, mounted = self._desired, found.mounted
        if self.properties.ensure != "mounted" or mounted is None:
            return found
        is_same = is_desired_mount(desired, mounted, table)
        missing = not_in_force(desired.options, mounted) if is_same else ()
        return msgspec.structs.replace(found, is_other=not is_same, missing=tuple(missing))

    # Desired state

    @property
    def _desired(self) -> Fields:
        return _fields(self.properties)

    def _change(self, actual: MountState) -> Change:
        notes = self.context.shared.setdefault(Mount, {}).setdefault(self.properties.name, [])
        return Change(
            self._desired, plan(self.properties.ensure, self._desired, actual), actual, notes.append
        )

    # Loading

    @classmethod
    def whole(cls, properties: Any) -> Hashable | None:
        del properties
        return (cls.type_name, "fstab")

    @classmethod
    def follows(cls, properties: MountProperties, declared: Declared) -> Iterator[Reference]:
        """Yield the mounts above the point and above its device. For removals, yield the mounts below the point."""
        if properties.ensure in _GONE:
            below = f"{properties.name}/"
            names = (other.name for other in declared(cls.type_name) if other.name.startswith(below))
            yield from (Reference.to(cls.type_name, name) for name in names)
            return
        for path in (properties.name, f"{properties.device}/" if _is_path(properties.device) else ""):
            while path := path.rpartition("/")[0]:
                yield Reference.to(cls.type_name, path)

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        # The kernel mounts at the end of a link.
        return spellings.directory(properties.name)

    @classmethod
    def claims(cls, properties: MountProperties) -> Iterator[Claim]:
        point, is_gone = properties.name, properties.ensure in _GONE
        # A bind mount of a file has a file as its mount point.
        is_directory = not is_gone and not is_bind(properties.options)
        yield Claim(point, Use.CONTENTS if is_directory else Use.KEPT if is_gone else Use.ANY)
        if properties.ensure == "unmounted":  # its entry may stay in fstab
            return
        entry = Fields(
            properties.device or "",
            point,
            properties.type or "",
            properties.options,
            properties.dump,
            properties.pass_,
        )

        def rejects(line: str) -> bool:
            others = fstab.parse(line).get(point, ())
            return any(properties.ensure == "absent" or not other.fields.same_as(entry) for other in others)

        yield Claim(
            fstab.FSTAB,
            Use.REMOVED_PART if properties.ensure == "absent" else Use.PART,
            editor=cls.type_name,
            lines=lambda: () if is_gone else (str(entry),),
            rejects=rejects,
        )

    @classmethod
    def covers(cls, properties: MountProperties) -> Sequence[str]:
        # A directory that is bound over itself shows the same files before and after.
        is_mounted = properties.ensure == "mounted" and properties.device != properties.name
        return (properties.name,) if is_mounted else ()

    @classmethod
    def needs(cls, properties: MountProperties) -> Iterator[str]:
        if properties.ensure == "mounted":
            yield from (path for name, path in paths_of(_fields(properties)) if name != "mount point")

    @classmethod
    def check(cls, properties: MountProperties) -> Iterator[PropertyError]:
        ensure, name = properties.ensure, properties.name
        yield from check_path("name", name)
        if _CONTROL.search(name):
            yield PropertyError("name", f"is {name!r}", expected="a path without control characters")
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected=f"one of {', '.join(_ENSURE)}")
        if ensure in _GONE:
            if name in NEVER_UNMOUNTED:
                yield PropertyError("ensure", f"is {ensure}; {name} is never unmounted")
            return
        yield from _check_device(properties)
        yield from _check_options(properties)
        for number in ("dump", "pass_"):
            if not 0 <= getattr(properties, number) <= 9:
                yield PropertyError(number.rstrip("_"), "is not valid", expected="a number from 0 to 9")

    @classmethod
    def is_whole(cls, properties: MountProperties) -> bool:
        del properties
        return False


def _fields(properties: MountProperties) -> Fields:
    """Return the entry in fstab that the properties describe."""
    device, kind = properties.device or "", properties.type or ""
    return Fields(device, properties.name, kind, properties.options, properties.dump, properties.pass_)


def _is_path(device: str | None) -> bool:
    return device is not None and device.startswith("/") and not device.startswith("//")


def _check_device(properties: MountProperties) -> Iterator[PropertyError]:
    device, kind, options = properties.device, properties.type, properties.options
    if not device:
        yield missing_property("device", because=["ensure"])
    elif device.startswith("-") or _CONTROL.search(device):
        yield PropertyError("device", f"is {device!r}, which is not a device")
    elif is_bind(options) and not _is_path(device):
        yield PropertyError(
            "device", f"is {device!r}", because=["options"], expected="the path that is bound"
        )
    if not kind:
        yield missing_property("type", because=["ensure"])
    elif kind == "swap" or not _TYPE.fullmatch(kind):
        yield PropertyError("type", f"is {kind!r}", expected="the type of a file system such as 'ext4'")
    elif kind == "none" and not is_bind(options):
        yield PropertyError("type", "is 'none', which requires the option bind or rbind", because=["options"])


def _check_options(properties: MountProperties) -> Iterator[PropertyError]:
    if not properties.options:
        yield PropertyError("options", "is empty", expected="at least defaults")
    for index, option in enumerate(properties.options):
        bare = re.sub(r'"[^"]*"', "", option)
        if not option or "," in bare or '"' in bare or _CONTROL.search(option):
            yield PropertyError("options", f"has {option!r}", place=(index,), expected="one option each")
        elif option in _NO_OPTIONS or option.startswith("#"):
            yield PropertyError("options", f"has {option!r}, which is not an option of fstab", place=(index,))
