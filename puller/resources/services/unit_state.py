"""The state of a unit, from the properties that systemd reports (``org.freedesktop.systemd1(5)``)."""

from collections.abc import Mapping, Sequence

import msgspec

from puller.resources.services.unit_files import UNIT_DIRECTORIES
from puller.system import systemd_units
from puller.system.systemd_units import DEPENDENTS, Node

_FIELDS = {
    "Id": "id",
    "LoadState": "load",
    "LoadError": "load_error",
    "ActiveState": "active",
    "SubState": "sub",
    "UnitFileState": "file_state",
    "FragmentPath": "fragment",
    "SourcePath": "source",
}
PROPERTIES = ",".join(
    dict.fromkeys((*_FIELDS, "NeedDaemonReload", "CanReload", *DEPENDENTS, *systemd_units.PROPERTIES))
)
"""The properties that ``Unit.parse`` reads, as the option of ``systemctl show``."""

_RUNNING = frozenset({"active", "reloading", "refreshing"})
_STOPPED = frozenset({"inactive", "failed"})
_PASSING = frozenset({"activating", "deactivating", "reloading", "refreshing", "maintenance"})

_LINKED = frozenset({"enabled", "enabled-runtime", "alias"})
"""States of unit files with links that ``systemctl disable`` removes."""
INIT_SCRIPTS = "/etc/init.d/"


class Unit(msgspec.Struct, frozen=True):
    """One unit of one manager."""

    id: str
    """The full name. For an alias, the name of the unit itself."""
    load: str
    """``loaded``, ``not-found``, ``masked``, ``bad-setting``, ``error``."""
    load_error: str
    active: str
    sub: str
    file_state: str
    """``enabled``, ``disabled``, ``static``, …. Empty without a unit file."""
    fragment: str
    """Path of the unit file."""
    needs_reload: bool
    """Whether the unit file has changed since systemd read it."""
    can_reload: bool = False
    """Whether the unit can reload its configuration while it runs."""
    dependents: tuple[str, ...] = ()
    """The units that start it."""
    source: str = ""
    """The file from which a generator made the unit, such as ``/etc/init.d/cron``."""
    restarts: int = 0
    """Automatic restarts by systemd since the last start."""
    fields: Mapping[str, str] = {}
    """The properties that ``puller.system.systemd_units`` reads."""
    crash: str = ""
    """The description of a crash loop, else empty."""

    @property
    def is_running(self) -> bool:
        return self.active in _RUNNING

    @property
    def is_stopped(self) -> bool:
        return self.active in _STOPPED

    @property
    def is_passing(self) -> bool:
        return self.active in _PASSING

    @property
    def has_links(self) -> bool:
        """Whether ``systemctl disable`` would remove a link."""
        return self.file_state in _LINKED

    @property
    def is_init_script(self) -> bool:
        """Whether it was made from a script in ``/etc/init.d``, which systemctl enables by links in ``/etc/rcN.d``."""
        return self.file_state == "generated" and self.source.startswith(INIT_SCRIPTS)

    @property
    def is_restarting(self) -> bool:
        """Whether its process has ended and systemd is about to restart it."""
        return systemd_units.is_restarting(self.fields)

    @property
    def node(self) -> Node:
        """The unit as a node in the boot graph."""
        return Node(self.id, self.load, self.dependents)

    @property
    def is_masked(self) -> bool:
        return self.load == "masked" or self.file_state.startswith("masked")

    @property
    def is_missing(self) -> bool:
        """Whether the unit has no unit file and does not run."""
        return self.load == "not-found" and self.is_stopped

    @property
    def state(self) -> str:
        """``running``, ``stopped``, or another state. Includes an unusual substate."""
        word = "running" if self.is_running else "stopped" if self.is_stopped else self.active
        return word if self.active in ("active", "inactive") else f"{word} ({self.sub})"

    @classmethod
    def parse(cls, shown: Mapping[str, str]) -> "Unit":
        """Return the unit that ``systemctl show`` describes."""
        return cls(
            **{field: shown.get(name, "") for name, field in _FIELDS.items()},
            needs_reload=shown.get("NeedDaemonReload") == "yes",
            can_reload=shown.get("CanReload") == "yes",
            dependents=Node.parse(shown).dependents,
            restarts=systemd_units.number(shown, "NRestarts"),
            fields={name: shown[name] for name in systemd_units.PROPERTIES if name in shown},
        )

    @classmethod
    def unknown(cls, name: str) -> "Unit":
        """Return the unit for a dry run that cannot query it."""
        return cls(name, "not-found", "", "inactive", "dead", "", "", needs_reload=False)

    def files(self, directories: Sequence[str] = UNIT_DIRECTORIES) -> list[str]:
        """Return the possible paths of the unit file. For an instance, include its template's paths."""
        name, mark, remainder = self.id.partition("@")
        names = [self.id, f"{name}@.{remainder.rpartition('.')[2]}"] if mark else [self.id]
        return [f"{directory}/{one}" for directory in directories for one in names]
