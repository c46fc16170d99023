"""Managers of systemd: queries of their units, and commands that change them.

* A unit belongs to the system's manager, or to the manager of a user who is logged in or lingers. Commands to a user's
  manager run as that user, so that root never acts in directories that the user owns.
* One ``systemctl show`` queries all services of a manifest. It runs again only after a change.
* systemd first reads changed unit files (``puller.resources.services.unit_files``).
* Queries wait a limited time for transient states (activating, deactivating, reloading) to end.
* The error of a failed command includes the unit's journal entries since the command started.

``show`` replaces ``is-active`` and ``is-enabled``, which need two processes per service and have ambiguous exit codes.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from puller.errors import ResourceError, reason
from puller.resources.base import Context
from puller.resources.services.unit_files import UNIT_DIRECTORIES, UnitFiles, parse_last_read
from puller.resources.services.unit_links import AtBoot, Installs, InstallSections, Masks, Restarts
from puller.resources.services.unit_state import INIT_SCRIPTS, PROPERTIES, Unit
from puller.system import systemd_units
from puller.system.commands import Command, Completed
from puller.system.identity import Identity
from puller.system.protocol import System
from puller.system.systemd_units import DEFAULT, DEPENDENTS, Boot, Node
from puller.values.foreign_text import visible


class Manager(msgspec.Struct, frozen=True):
    """One manager: its systemctl options and unit directories."""

    scope: str
    """The option of systemctl that selects it."""
    directories: tuple[str, ...]
    """Directories of unit files (systemd.unit(5)) that a manifest may write to."""
    masks: str
    """The directory of its masks."""
    generated_from: tuple[str, ...] = ()
    """Directories of files from which generators make units."""
    records: str = ""
    """The suffix of Puller's record files for it."""
    identity: Identity | None = None
    environment: Mapping[str, str] = {}
    journal: tuple[str, ...] = ()
    """Options of journalctl that select its entries."""
    unit_option: str = "--unit"
    """The option of journalctl that selects a unit."""

    def require(self, system: System, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait for a manager that is about to start. Raises ``ResourceError`` for a user without one."""
        if self.identity is None:
            return
        name = self.identity.name
        for _ in range(_LOOKS):
            if system.exists(f"{self.environment[_RUNTIME]}/systemd/private"):
                return
            if not system.exists(f"{_LINGERING}/{name}"):
                break
            sleep(_LOOK_PAUSE)
        detail = f"user {name} has no systemd, being neither logged in nor lingering"
        raise ResourceError(f"{detail}", hint=f"to let it run from boot on: loginctl enable-linger {name}")


_LINGERING = "/var/lib/systemd/linger"
_LOOKS = 80
_LOOK_PAUSE = 0.25  # seconds between looks
_RUNTIME = "XDG_RUNTIME_DIR"

SYSTEM = Manager(
    "--system",
    UNIT_DIRECTORIES,
    UNIT_DIRECTORIES[0],
    (
        "/etc/init.d",
        *(f"/etc/rc{level}.d" for level in range(2, 6)),
        "/etc/containers/systemd",
        "/usr/share/containers/systemd",
    ),
)


def manager_of(identity: Identity) -> Manager:
    """Return the manager of a user."""
    own = f"{identity.home}/.config/systemd/user"
    return Manager(
        "--user",
        (
            own,
            "/etc/systemd/user",
            "/run/systemd/user",
            f"{identity.home}/.local/share/systemd/user",
            "/usr/local/lib/systemd/user",
            "/usr/lib/systemd/user",
        ),
        own,
        (f"{identity.home}/.config/containers/systemd",),
        f"-{identity.uid}",
        identity,
        {_RUNTIME: f"/run/user/{identity.uid}"},
        (f"_UID={identity.uid}",),
        "--user-unit",
    )


PATIENCE = 30.0
"""Seconds to wait for a transient state to end."""

_PAUSE = 0.25
_LONG = 32 * 1024  # bytes; more than systemctl prints about a unit with hundreds of dependents
_LONGEST_LINE = 500  # characters of a line of the journal
_TOGETHER = 1e-5  # maximum seconds between simultaneous readings of two clocks
_JOURNAL_LINES = 10


class Systemd:
    """One manager of this machine. Methods raise ``ResourceError``.

    ``names`` returns the units to query together. ``sleep`` waits during transient states.
    """

    def __init__(
        self,
        context: Context,
        names: Callable[[], Iterable[str]],
        sleep: Callable[[float], None] = time.sleep,
        manager: Manager = SYSTEM,
    ) -> None:
        self._manager = manager
        self._system = context.system
        self._noop = context.noop
        self._changes = context.changes
        self._names = names
        self._sleep = sleep
        state = context.state_directory
        system, log, noop, of = context.system, context.log, context.noop, manager.records
        directories = (*manager.directories, *manager.generated_from)
        self._files = UnitFiles(system, directories, state and state / f"units{of}.json", log, noop=noop)
        self._masks = Masks(system, manager.masks, state and state / f"masks{of}.json", log, noop=noop)
        self._looked_after = -1
        """The number of changed resources when the unit files were last read."""
        self._is_behind = False
        """In noop: whether systemd has not read its current files, which the real run would change."""
        self._known: dict[str, tuple[int, Unit]] = {}
        """Query results, each with the number of executed commands at that time."""
        self._default = ""
        """The target of ``default.target``."""
        self._at_boot: tuple[int, AtBoot] | None = None
        """The units that start at boot, with the number of executed commands at that time."""
        self._sections = InstallSections(system, manager.directories)
        self._installs = Installs(state and state / f"installs{of}.json", log, noop=noop)
        self._restarts = Restarts(state and state / f"restarts{of}.json", log, noop=noop)

    @classmethod
    def of(cls, context: Context, names: Callable[[], Iterable[str]], manager: Manager = SYSTEM) -> "Systemd":
        """Return the instance that all services of a run share. Reports about services use another system."""
        shared = context.shared.setdefault(cls, {})
        if (key := (context.system, manager.records)) not in shared:
            shared[key] = cls(context, names, manager=manager)
        systemd: Systemd = shared[key]
        return systemd

    # Queries

    def unit(self, name: str) -> Unit:
        """Return the unit of this name, after a transient state has ended.

        1. Let systemd read changed unit files.
        2. Return the cached result if nothing has changed since, or query all units together.
        3. Query the unit alone if this result is missing: an invalid name breaks the query for all units, a missing
           unit may exist by now, and a transient state must end.
        """
        # 1. Read changed files
        self.reload_if_needed()
        # 2. Query all
        if (unit := self._is_still_known(name)) is None:
            with contextlib.suppress(ResourceError):
                self._show([*dict.fromkeys([*self._names(), name])])
            unit = self._is_still_known(name)
        # 3. Query this unit
        return self.ask(name) if unit is None or unit.is_missing or unit.is_passing else unit

    def ask(self, name: str, *, waits: bool = True) -> Unit:
        """Query the unit of this name again. Waits until a transient state ends, unless ``waits`` is False."""
        unit = first = self._show([name])[name]
        for look in range(int(PATIENCE / _PAUSE) if waits else 0):
            is_crashing = unit.restarts > first.restarts or look * _PAUSE >= systemd_units.WATCH
            if not unit.is_passing or (unit.is_restarting and is_crashing):
                break
            self._sleep(_PAUSE)
            unit = self._show([name])[name]
        return unit

    def settled(self, name: str, unit: Unit) -> Unit:
        """Return a unit that should run, with the description of a crash loop.

        1. Watch a recently started process until it is old enough or ends.
        2. A unit that is waiting for a restart, or was restarted meanwhile, is crashing.
        3. A unit with many restarts since the last run is crashing.
        """
        # 1. Watch
        before, last = unit.restarts, systemd_units.last_exit(unit.fields)
        if unit.is_running and systemd_units.ends_early(unit.fields):
            last = systemd_units.last_exit(self._show([name])[name].fields)
            unit = self.ask(name)
        # 2. Restarted meanwhile
        crash = ""
        if unit.is_restarting or unit.restarts > before:
            last = last or systemd_units.last_exit(unit.fields)
            crash = f"its process has ended{f' with {last}' if last else ''}, and systemd restarts it"
        # 3. Restarted since the last run
        elif unit.is_running:
            crash = self._restarts.since_last_run(unit.id, unit.restarts, systemd_units.age(unit.fields))
        return msgspec.structs.replace(unit, crash=crash) if crash else unit

    @property
    def at_boot(self) -> AtBoot:
        """The units that start at boot, based on the cached results."""
        executed = self._system.executed
        if self._at_boot is None or self._at_boot[0] != executed:
            nodes = [unit.node for known, unit in self._known.values() if known == executed]
            of_user = self._manager.identity is not None
            boot = Boot(self._ask_nodes, self._default, nodes, of_user=of_user)
            self._at_boot = (executed, AtBoot(self._sections, boot, is_behind=self._is_behind))
        return self._at_boot[1]

    def _ask_nodes(self, names: Sequence[str]) -> dict[str, Node]:
        options = (f"--property={','.join(('Id', 'LoadState', *DEPENDENTS))}", "--", *names)
        completed = self._query("systemctl", "show", *options, output_limit=_LONG * len(names))
        nodes = [Node.parse(fields) for fields in _blocks(completed.stdout)]
        if completed.exit_code != 0 or len(nodes) != len(names):
            raise ResourceError(_sentence(completed, "systemctl show"))
        return dict(zip(names, nodes, strict=True))

    def is_enabled_by_old_section(self, unit: Unit) -> bool:
        """Return whether a unit was enabled by a previous version of its ``[Install]`` section."""
        if unit.file_state != "enabled":
            return False
        install = self._sections.of(unit.id, unit.fragment)
        if self._sections.missing_links(unit.id, install) or self._installs.is_other(unit.id, install):
            return True
        self._installs.remember(unit.id, install)
        return False

    def reload_if_needed(self) -> None:
        """Let systemd read changed unit files. In noop, only determine whether it would."""
        if self._looked_after == (changes := self._changes()):
            return
        self._looked_after = changes
        result = self._files.look()
        is_read = self._files.is_read(result, self._last_read)
        self._is_behind = self._noop and not is_read
        if self._is_behind:
            return
        if not is_read:
            self.read_files()
        self._files.remember(result)

    def _last_read(self) -> float | None:
        """Return when systemd last read its files, ``None`` for a version that does not report it."""
        options = ("--timestamp=us+utc", "--property=UnitsLoadTimestamp,UnitsLoadTimestampMonotonic")
        completed = self._query("systemctl", "show", *options)
        return parse_last_read(completed.stdout, *_both_clocks())

    def _is_still_known(self, name: str) -> Unit | None:
        executed, unit = self._known.get(name, (-1, None))
        return unit if executed == self._system.executed else None

    def _show(self, names: Sequence[str]) -> dict[str, Unit]:
        """Query units. Raises ``ResourceError`` if a result is missing, because systemctl stops at an invalid name."""
        requested = names if self._default else [DEFAULT, *names]
        arguments = ("show", f"--property={PROPERTIES}", "--", *requested)
        completed = self._query("systemctl", *arguments, output_limit=_LONG * len(requested))
        blocks = _blocks(completed.stdout)
        if completed.exit_code != 0 or len(blocks) != len(requested):
            raise ResourceError(_sentence(completed, "systemctl show"))
        if not self._default:
            self._default = blocks.pop(0).get("Id", "")
        units = {name: self._read(block) for name, block in zip(names, blocks, strict=True)}
        self._known.update({name: (self._system.executed, unit) for name, unit in units.items()})
        return units

    def _read(self, shown: Mapping[str, str]) -> Unit:
        unit = Unit.parse(shown)
        if self._is_behind:
            unit = msgspec.structs.replace(unit, needs_reload=True)
        if unit.needs_reload and unit.load == "loaded" and not unit.source.startswith(INIT_SCRIPTS):
            # systemd does not see an [Install] section that changed since it read its files. For an init script,
            # `is-enabled` prints whether it is enabled instead of "generated".
            file_state = self._query("systemctl", "is-enabled", "--", unit.id).stdout.strip()
            unit = msgspec.structs.replace(unit, file_state=file_state)
        return unit

    # Changes

    def read_files(self) -> None:
        """Let systemd read all unit files again."""
        self._execute("daemon-reload")

    def start(self, unit: Unit) -> None:
        if unit.active == "failed":
            # systemd refuses to start a unit that crashed too often until it is reset.
            self._execute("reset-failed", "--", unit.id)
        self._start_by("start", unit)

    def stop(self, unit: Unit) -> None:
        self._execute("stop", "--", unit.id)

    def restart(self, unit: Unit) -> None:
        self._start_by("restart", unit)

    def reload(self, unit: Unit) -> None:
        """Let a running unit reload its configuration."""
        self._execute("reload", "--", unit.id)

    def _start_by(self, verb: str, unit: Unit) -> None:
        """Start a unit even if it has reached the limit of ``StartLimitBurst=``.

        The limit should stop crash loops, but must not block several releases in a row, or the release that fixes a
        crash.
        """
        self._restarts.begin(unit.id)
        try:
            self._execute(verb, "--", unit.id)
        except ResourceError:
            shown = self._query("systemctl", "show", "--property=Result", "--", unit.id).stdout
            if shown.strip() != "Result=start-limit-hit":
                raise
            self._execute("reset-failed", "--", unit.id)
            self._execute("start", "--", unit.id)

    def enable(self, unit: Unit) -> None:
        """Let a unit start at boot, by the links that its current ``[Install]`` section requires."""
        if unit.file_state == "enabled" and not unit.is_init_script:
            fragment = self._system.lstat(unit.fragment)
            if fragment is None or not stat.S_ISLNK(fragment.st_mode):
                self._execute("reenable", "--", unit.id)
            else:  # linked from elsewhere: systemctl would remove the link to the unit file
                self.disable(unit)
                self._execute("enable", "--", unit.id)
        else:
            if unit.file_state == "enabled-runtime":
                self.disable(unit)  # otherwise the links below /run remain after a later `disable`
            self._execute("enable", "--", unit.id)
        if unit.is_init_script:
            self.read_files()  # systemctl does not reload after enabling an init script
        install = self._sections.of(unit.id, unit.fragment)
        self._installs.remember(unit.id, install)

    def disable(self, unit: Unit) -> None:
        runtime = ("--runtime",) if unit.file_state.endswith("-runtime") else ()
        stored_reports = os.path.realpath(unit.fragment)
        self._execute("disable", *runtime, "--", unit.id)
        if unit.is_init_script:
            self.read_files()  # systemctl does not reload after disabling an init script
        elif unit.fragment and self._system.lstat(unit.fragment) is None:
            # systemctl has removed all links to the unit file, including the link to a file stored elsewhere.
            self._execute("link", *runtime, "--", stored_reports)

    def is_masked_by_us(self, unit: Unit) -> bool:
        """Return whether Puller has masked a unit."""
        return unit.file_state == "masked" and self._masks.is_ours(unit.id)

    def mask(self, unit: Unit) -> None:
        self._masks.begin(unit.id)
        try:
            self._execute("mask", "--", unit.id)
        except ResourceError:
            self._masks.forget(unit.id)
            raise
        self._masks.finish(unit.id)

    def unmask(self, unit: Unit) -> None:
        self._execute("unmask", "--", unit.id)
        self._masks.forget(unit.id)

    def journal(self, unit: Unit, since: float) -> list[str]:
        """Return the last lines of a unit after ``since`` (seconds since 1970). Empty without a journal."""
        of = (f"{self._manager.unit_option}={unit.id}", *self._manager.journal)
        # The newest first: with --since, journalctl counts the lines from the oldest.
        which = (f"--since=@{since:.6f}", "--reverse", f"--lines={_JOURNAL_LINES}", *of)
        try:
            self._query("journalctl", "--sync")
            lines = self._query("journalctl", "--quiet", "--output=cat", *which).stdout.splitlines()
            return [visible(line)[:_LONGEST_LINE] for line in reversed(lines)]
        except ResourceError:
            return []

    def _execute(self, verb: str, *arguments: str) -> None:
        manager = self._manager
        words = ["systemctl", manager.scope, "--no-ask-password", verb, *arguments]
        command = Command(words, manager.environment, identity=manager.identity)
        completed = self._run(self._system.execute, command)
        if completed.exit_code != 0:
            raise ResourceError(_sentence(completed, " ".join(("systemctl", verb, *arguments[1:]))))

    def _query(self, program: str, *arguments: str, output_limit: int = 0) -> Completed:
        limit = max(output_limit, 256 * 1024)
        command = Command([program, *arguments], timeout=60.0, output_limit=limit)
        if program == "systemctl":
            manager = self._manager
            command = msgspec.structs.replace(
                command,
                arguments=[program, manager.scope, *arguments],
                environment=manager.environment,
                identity=manager.identity,
            )
        return self._run(self._system.query, command)

    def _run(self, run: Callable[[Command], Completed], command: Command) -> Completed:
        try:
            return run(command)
        except OSError as error:
            raise ResourceError(f"{command.arguments[0]} cannot be started: {reason(error)}") from error


def _blocks(stdout: str) -> list[dict[str, str]]:
    """Return the properties of each unit that ``systemctl show`` printed."""
    text = stdout.strip("\n")
    return [
        dict(line.partition("=")[::2] for line in block.splitlines())
        for block in (text.split("\n\n") if text else ())
    ]


def _sentence(completed: Completed, description: str) -> str:
    text = completed.stderr.strip().removesuffix(".")
    return f"{description}: {completed.outcome}" + (f"; it said: {text}" if text else "")


def _both_clocks() -> tuple[float, float]:
    """Return the current wall clock and monotonic time in seconds, read without a pause of this process in between."""
    before = time.monotonic()
    for _ in range(10):
        now, after = time.time(), time.monotonic()
        if after - before < _TOGETHER:
            break
        before = time.monotonic()
    return now, after
