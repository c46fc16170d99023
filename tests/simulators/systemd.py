"""Simulated systemd units, controlled by the arguments of systemctl.

It behaves like systemd 252 as far as Puller can observe. ``tests/system/test_services.py`` compares the same steps with
a real systemd.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from puller.errors import MutationInNoop
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem

PROPERTIES = (
    "LoadState", "LoadError", "ActiveState", "SubState", "UnitFileState", "FragmentPath", "NeedDaemonReload",
    "CanReload", "Id", "Result", "WantedBy", "TriggeredBy", "SourcePath", "NRestarts", "MainPID", "ExecMainCode",
    "ExecMainStatus", "ExecMainStartTimestampMonotonic",
)  # fmt: skip

SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n"
INSTALL = "[Install]\nWantedBy=multi-user.target\n"
FAILS = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo it is broken; exit 3'\n"

FILES = {
    "plain.service": SLEEP + INSTALL,
    "static.service": SLEEP,
    "indirect.service": SLEEP + "[Install]\nAlso=plain.service\n",
    "instance@.service": SLEEP + INSTALL,
    "reloads.service": SLEEP + "ExecReload=/bin/true\n" + INSTALL,
    "fails.service": FAILS + INSTALL,
    "bad.service": "[Service]\nType=oneshot\n" + INSTALL,
}
"""Installed unit files."""

DIRECTORY = "/etc/systemd/system"
RUN = "/run/systemd/system"
START_LIMIT = 5  # StartLimitBurst=, for the duration of a test
MOMENT = 1_000_000  # nanoseconds between successive events
OFFSET = max(time.monotonic() - time.time() for _ in range(100))
"""Seconds from the clock to the monotonic clock. A pause of this process between both readings only reduces it."""

LINKED = "/opt/units/linked.service"
"""A unit file kept elsewhere."""

STATES: dict[str, tuple[str, list[list[str]]]] = {
    "stopped and disabled": ("plain", []),
    "stopped and enabled": ("plain", [["enable", "plain"]]),
    "running and disabled": ("plain", [["start", "plain"]]),
    "running and enabled": ("plain.service", [["enable", "plain"], ["start", "plain"]]),
    "enabled until the next boot": ("plain", [["enable", "--runtime", "plain"], ["start", "plain"]]),
    "failed": ("fails", [["start", "fails"]]),
    "static and stopped": ("static", []),
    "static and running": ("static", [["start", "static"]]),
    "indirect": ("indirect", []),
    "an instance, stopped": ("instance@one", []),
    "an instance, running and enabled": ("instance@one", [["enable", "instance@one"], ["start", "instance@one"]]),
    "masked": ("plain", [["mask", "plain"]]),
    "masked while running": ("plain", [["start", "plain"], ["mask", "plain"]]),
    "masked until the next boot": ("plain", [["mask", "--runtime", "plain"]]),
    "masked without a unit file": ("missing", [["mask", "missing"]]),
    "linked": ("linked", [["link", LINKED]]),
    "linked, running and enabled": ("linked", [["link", LINKED], ["enable", "linked"], ["start", "linked"]]),
    "with a bad unit file": ("bad", []),
    "without a unit file": ("missing", []),
}  # fmt: skip
"""A unit, and the arguments of systemctl that bring it into the state."""

DESIRED = [
    {"ensure": ensure, **({} if enable is None else {"enable": enable})}
    for ensure in ("running", "stopped")
    for enable in (None, True, False)
] + [{"ensure": "stopped", "enable": "masked"}]


def refusal(state: str, desired: dict[str, object]) -> str:
    """Return the expected error for an unreachable state, or an empty text."""
    ensure, enable = desired["ensure"], desired.get("enable")
    starts = ensure == "running" and "running" not in state
    if state == "without a unit file" and (starts or enable is True):
        return "unknown unit missing.service"
    if state.startswith("masked") and (starts or enable in (True, False)):
        return f".service is masked; to allow it: systemctl unmask {STATES[state][0]}"
    if state.startswith("linked") and enable == "masked":
        return f"{DIRECTORY}/linked.service occupies the place of the mask link: remove it, or "
    if state == "with a bad unit file" and (starts or enable is True):
        return "systemd refuses /"
    if state.startswith(("static", "indirect")) and enable is True:
        return f"{STATES[state][0]}.service is {state.split()[0]} and would not start at boot: it lacks an [Install]"
    if state == "failed" and starts:
        return "systemctl start fails.service: exit code 1; it said: "
    return ""


@dataclass
class SimulatedUnit:
    """One unit. ``file`` is its text on disk with its drop-ins, ``read`` the text that systemd has loaded."""

    id: str
    path: str = ""
    file: str | None = None
    read: str | None = None
    noticed: str | None = None
    """The part of ``file`` that systemd compares to decide whether a reload is needed."""
    noticed_then: str | None = None
    """The same part at the last reload."""
    active: str = "inactive"
    sub: str = "dead"
    enabled: set[str] = field(default_factory=set)
    """The directories of its links: ``etc`` and ``run``."""
    masked: str = ""
    """The directory of its mask: ``etc`` or ``run``."""
    mask: int = 0
    """The inode of the mask."""
    loaded: bool = False
    """Pinned in memory, because it runs."""
    generated: str = ""
    """``generated`` or ``transient``, if it has no unit file of the test."""
    starts_left: int = START_LIMIT
    result: str = "success"
    passing: list[tuple[str, str]] = field(default_factory=list)
    """Successive states of the unit, one for each pause."""
    wanted_by: str = ""
    """Further units that require it, such as units of a package."""
    triggered_by: str = ""
    source: str = ""
    restarts: int = 0
    ended: tuple[str, str] = ("0", "0")
    """How the last process ended: ``ExecMainCode`` and ``ExecMainStatus``."""

    @property
    def needs_reload(self) -> bool:
        return self.loaded and not self.masked and self.noticed != self.noticed_then

    def file_state(self, text: str | None) -> str:
        if self.masked:
            return "masked" if self.masked == "etc" else "masked-runtime"
        if self.generated:
            return self.generated
        if text is None:
            return ""
        if self.enabled:
            return "enabled" if "etc" in self.enabled else "enabled-runtime"
        if "[Install]" not in text:
            return "static"
        if "WantedBy=" not in text:
            return "indirect"
        return "linked" if self.path == LINKED else "disabled"

    @property
    def load(self) -> tuple[str, str]:
        if self.masked:
            return "masked", f'org.freedesktop.systemd1.UnitMasked "Unit {self.id} is masked."'
        if self.read is None and not self.generated:
            return "not-found", f'org.freedesktop.systemd1.NoSuchUnit "Unit {self.id} not found."'
        if self.read is not None and "ExecStart" not in self.read:
            error = f'org.freedesktop.systemd1.BadUnitSetting "Unit {self.id} has a bad unit file setting."'
            return "bad-setting", error
        return "loaded", ""

    @property
    def fragment(self) -> str:
        if self.masked or self.path == LINKED:
            return f"{DIRECTORY if self.masked != 'run' else RUN}/{self.id}"
        return f"/lib/systemd/system/{self.id}"

    def show(self, wanted: Iterable[str] = PROPERTIES) -> str:
        load, error = self.load
        values = {
            "Id": self.id,
            "LoadState": load,
            "LoadError": error,
            "ActiveState": self.active,
            "SubState": self.sub,
            "UnitFileState": self.file_state(self.read),
            "FragmentPath": self.fragment if load != "not-found" else "",
            "CanReload": "yes" if "ExecReload=" in (self.read or "") and not self.masked else "no",
            "NeedDaemonReload": "yes" if self.needs_reload else "no",
            "Result": self.result,
            "WantedBy": "multi-user.target" if self.enabled and not self.masked else self.wanted_by,
            "TriggeredBy": self.triggered_by,
            "SourcePath": self.source,
            "NRestarts": str(self.restarts),
            "MainPID": "0",
            "ExecMainCode": self.ended[0],
            "ExecMainStatus": self.ended[1],
            "ExecMainStartTimestampMonotonic": "0",
        }
        return "".join(f"{name}={values[name]}\n" for name in PROPERTIES if name in wanted)


class SimulatedSystemd(LocalSystem):
    """A machine with these units. ``ran`` records the commands."""

    def __init__(self, files: dict[str, str] | None = None) -> None:
        super().__init__()
        self.files = dict(FILES if files is None else files)
        """Files by path below the directory of units: ``plain.service``, ``plain.service.d/first.conf``."""
        self.known: set[str] = set()
        """The directories of drop-ins that existed at the last reload."""
        self.changed: dict[str, tuple[str | None, int]] = {}
        """The last text of each path, and the time of its change (nanoseconds)."""
        self.units: dict[str, SimulatedUnit] = {}
        self.ran: list[list[str]] = []
        self.journal: list[str] = []
        self.pauses = 0
        self.masks = 0
        self.reached: set[str] = set()
        """Loaded units of other types than services."""
        self.refuses_names: set[str] = set()
        self.on_start: Callable[[SimulatedUnit], None] = lambda unit: None
        self.on_reload: Callable[[SimulatedUnit], Completed | None] = lambda unit: None
        self.read_at = 0.0
        """The time of the last reload, in seconds since 1970."""
        self._read_all()

    def lstat(self, path: str) -> os.stat_result | None:
        """Return a status with existence and time only. All unit files are in one directory."""
        directory, _, name = path.rpartition("/")
        if path == DIRECTORY:
            return self._status("")
        if path.endswith(("/systemd/system", "/etc/init.d", "/containers/systemd")):
            return None
        if directory.endswith("/multi-user.target.wants"):
            where = "run" if path.startswith("/run") else "etc"
            return self._status("") if where in self.unit(name).enabled else None
        inner = path.partition("/systemd/system/")[2]
        if not directory.endswith("/systemd/system"):
            return self._status(inner) if inner in self.files else super().lstat(path)
        if directory == DIRECTORY and (mask := self.unit(name).mask):
            return os.stat_result((stat.S_IFLNK, mask, 1, 1, 0, 0, 0, 0, 0, 0), {"st_ctime_ns": mask})
        return self._status(name) if name in self.files else None

    def exists(self, path: str) -> bool:
        return self.lstat(path) is not None

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        if path != DIRECTORY and not path.startswith(f"{DIRECTORY}/"):
            return super().children(path)
        above = path.removeprefix(DIRECTORY).lstrip("/")
        inside = [
            os.path.relpath(file, above) for file in self.files if os.path.dirname(file).startswith(above)
        ]
        names = sorted({name.partition("/")[0] for name in inside})
        return [(name, self._status(os.path.join(above, name))) for name in names]

    def _status(self, path: str) -> os.stat_result:
        self._note_changes()
        kind = stat.S_IFREG if path in self.files else stat.S_IFDIR
        changed = self.changed[path][1]
        return os.stat_result((kind, 1, 1, 1, 0, 0, 0, 0, 0, 0), {"st_ctime_ns": changed})

    def _note_changes(self) -> None:
        """Set the time of paths changed since the last call to now. A directory changes with its list of files."""
        texts: dict[str, str | None] = dict(self.files)
        for directory in {"", *map(os.path.dirname, self.files)}:
            texts[directory] = " ".join(sorted(file for file in self.files if file.startswith(directory)))
        now = max(time.time_ns(), int(self.read_at * 1e9) + MOMENT)
        for path, text in texts.items():
            if path not in self.changed or self.changed[path][0] != text:
                self.changed[path] = (text, now)

    def _read_all(self) -> None:
        self._note_changes()
        self.read_at = (max(since for _, since in self.changed.values()) + MOMENT) / 1e9
        self.known = {os.path.dirname(file) for file in self.files}
        for unit in self.units.values():
            self.unit(unit.id)
            unit.read = unit.file
            unit.noticed_then = unit.noticed = unit.file

    def query(self, command: Command) -> Completed:
        return self._run(list(command.arguments))

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        return self._run(list(command.arguments))

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses += 1
        for unit in self.units.values():
            if unit.passing:
                unit.active, unit.sub = unit.passing.pop(0)

    def told(self) -> list[str]:
        """Return the commands that change a state, without common options."""
        looking = ("show", "is-enabled", "--sync", "--quiet")
        words = [
            [word for word in one[1:] if word not in ("--system", "--user", "--no-ask-password", "--")]
            for one in self.ran
        ]
        return [" ".join(one) for one in words if one[0] not in looking]

    def count(self, verb: str) -> int:
        return sum(verb in item for item in self.ran)

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        inner = path.partition("/systemd/system/")[2]
        return self.files[inner].encode() if inner in self.files else super().read(path, looked_at)

    def unit(self, name: str) -> SimulatedUnit:
        """Return a unit as systemd would load it. Units that do not run are read from disk each time."""
        if name == "default.target":
            return SimulatedUnit("multi-user.target", read=SLEEP)
        if name.endswith((".target", ".socket")):
            return self.units.get(name, SimulatedUnit(name, read=SLEEP if name in self.reached else None))
        identity = name if name.endswith(".service") else f"{name}.service"
        unit = self.units.setdefault(identity, SimulatedUnit(identity))
        template = f"{identity.partition('@')[0]}@.service" if "@" in identity else identity
        unit.file = self._text(template, {os.path.dirname(file) for file in self.files})
        unit.noticed = self._text(template, self.known)
        if not unit.loaded:
            unit.read, unit.noticed_then = unit.file, unit.noticed
        return unit

    def _text(self, template: str, directories: set[str]) -> str | None:
        """Return the text of a unit file and of its drop-ins in these directories."""
        if template not in self.files:
            return None
        of_unit = {f"{template}.d"} & directories
        return self.files[template] + "".join(
            text for file, text in sorted(self.files.items()) if os.path.dirname(file) in of_unit
        )

    # systemctl

    def _run(self, arguments: list[str]) -> Completed:
        self.ran.append(arguments)
        program, *words = arguments
        if program == "journalctl":
            assert "--sync" in words or "--reverse" in words
            return done(
                "".join(f"{line}\n" for line in reversed(self.journal)) if "--sync" not in words else ""
            )
        verb, *words = [word for word in words if word not in ("--system", "--user", "--no-ask-password")]
        names = words[words.index("--") + 1 :] if "--" in words else [w for w in words if w[:2] != "--"]
        if bad := self.refuses_names.intersection(names):
            return done("", 1, f"Failed to get properties: {bad.pop()} is not a unit name.")
        if verb == "daemon-reload":
            self._read_all()
            return done()
        if verb == "link":
            return self._link(names[0])
        units = [self.unit(name) for name in names]
        if verb == "show" and not names:
            return self._show_manager()
        if verb == "show":
            (desired,) = (
                word.partition("=")[2].split(",") for word in words if word.startswith("--property=")
            )
            return done("\n".join(unit.show(desired) for unit in units))
        return self._act(verb, units[0], "run" if "--runtime" in words else "etc")

    def _show_manager(self) -> Completed:
        day, monotonic = (
            datetime.fromtimestamp(self.read_at, UTC),
            OFFSET + self.read_at,
        )
        shown = f"UnitsLoadTimestamp={day:%a %Y-%m-%d %H:%M:%S.%f} UTC\n"
        return done(f"{shown}UnitsLoadTimestampMonotonic={int(monotonic * 1e6)}\n")

    def _link(self, path: str) -> Completed:
        name = path.rpartition("/")[2]
        self.files[name] = SLEEP + INSTALL
        self.unit(name).path = LINKED
        return done()

    def _act(self, verb: str, unit: SimulatedUnit, where: str) -> Completed:
        load = unit.load[0]
        if verb == "is-enabled":
            state = unit.file_state(unit.file)
            if unit.source.startswith("/etc/init.d/"):  # systemd-sysv-install answers
                state = "enabled" if unit.wanted_by else "disabled"
            return done(f"{state}\n", 0 if state.startswith(("enabled", "static")) else 1)
        if verb in ("start", "restart") and load != "loaded":
            return done("", 1, f"Failed to {verb} {unit.id}: Unit {unit.id} {load}.")
        if verb in ("enable", "disable") and (unit.masked or unit.file is None) and not unit.source:
            return done("", 1, f"Failed to {verb} unit: Unit file {unit.id} is masked or does not exist.")
        if verb == "mask" and unit.path == LINKED:
            return done("", 1, f"Failed to mask unit: File {unit.fragment} already exists.")
        return getattr(self, f"_{verb.replace('-', '_')}")(unit, where) or done()

    def _start(self, unit: SimulatedUnit, where: str) -> Completed | None:
        del where
        if unit.starts_left == 0:
            unit.active, unit.sub, unit.loaded, unit.result = "failed", "failed", True, "start-limit-hit"
            return done(
                "", 1, f"Job for {unit.id} failed because start of the service was attempted too often."
            )
        unit.starts_left -= 1
        unit.restarts = 0
        self.on_start(unit)
        if "exit 3" in (unit.read or ""):
            unit.active, unit.sub, unit.loaded, unit.result = "failed", "failed", True, "exit-code"
            self.journal = ["it is broken", f"{unit.id}: Failed with result 'exit-code'."]
            return done(
                "", 1, f"Job for {unit.id} failed because the control process exited with error code."
            )
        unit.active, unit.sub, unit.loaded = "active", "running", True
        return None

    _restart = _start

    def _reenable(self, unit: SimulatedUnit, where: str) -> None:
        unit.enabled.clear()
        self._enable(unit, where)

    def _reload(self, unit: SimulatedUnit, where: str) -> Completed | None:
        if unit.active != "active" or "ExecReload=" not in (unit.read or ""):
            return done("", 1, f"Failed to reload {unit.id}: Job type reload is not applicable.")
        return self.on_reload(unit)

    def _stop(self, unit: SimulatedUnit, where: str) -> None:
        unit.active, unit.sub, unit.loaded, unit.passing = "inactive", "dead", False, []

    def _reset_failed(self, unit: SimulatedUnit, where: str) -> None:
        unit.active, unit.sub, unit.loaded = "inactive", "dead", False
        unit.starts_left, unit.result = START_LIMIT, "success"

    def _mask(self, unit: SimulatedUnit, where: str) -> None:
        unit.masked = where
        self.masks += 1
        unit.mask = self.masks if where == "etc" else 0

    def _unmask(self, unit: SimulatedUnit, where: str) -> None:
        unit.masked, unit.mask = "", 0

    def _enable(self, unit: SimulatedUnit, where: str) -> None:
        if "WantedBy=" in (unit.file or ""):
            unit.enabled.add(where)

    def _disable(self, unit: SimulatedUnit, where: str) -> None:
        unit.enabled.discard(where)
        if unit.path == LINKED:
            del self.files[unit.id]
            unit.path = ""


class LookingOnly(LocalSystem):
    """The same machine in a dry run. Every change raises an error."""

    def __init__(self, machine: SimulatedSystemd) -> None:
        super().__init__()
        self.machine = machine

    def lstat(self, path: str) -> os.stat_result | None:
        return self.machine.lstat(path)

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        return self.machine.children(path)

    def exists(self, path: str) -> bool:
        return self.machine.exists(path)

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        return self.machine.read(path, looked_at)

    def query(self, command: Command) -> Completed:
        return self.machine.query(command)

    def execute(self, command: Command) -> Completed:
        raise MutationInNoop(" ".join(command.arguments))


def done(stdout: str = "", code: int = 0, stderr: str = "") -> Completed:
    return Completed(code, None, False, stdout, stderr, 0.0)
