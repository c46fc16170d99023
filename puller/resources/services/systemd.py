"""Units of systemd: what they are doing, and how to make them do something else.

* One ``systemctl show`` answers for all services of a manifest; it is asked again only after something was changed.
* Before it is asked, systemd reads the unit files that it has not read as they are
  (``puller.resources.services.unit_files``).
* A state that will pass (activating, deactivating, reloading) is waited for, and not for ever.
* A failed command is told with what the unit wrote to the journal meanwhile.

``show`` and not ``is-active`` and ``is-enabled``: two processes for each service, whose exit codes say several things.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from puller.errors import ResourceError, reason
from puller.resources.base import Context
from puller.resources.services.managers import SYSTEM, Manager
from puller.resources.services.masks import Masks
from puller.resources.services.unit_files import UNIT_DIRECTORIES, UnitFiles, parse_last_read
from puller.system.commands import Command, Completed

PATIENCE = 30.0
"""Seconds that a passing state is waited for."""

_PAUSE = 0.25
_BLOCK = 4096  # bytes; more than systemctl prints about one unit
_TOGETHER = 1e-5  # seconds between two clocks that are read as one moment
_JOURNAL_LINES = 10

_RUNNING = frozenset({"active", "reloading", "refreshing"})
_STOPPED = frozenset({"inactive", "failed"})
_PASSING = frozenset({"activating", "deactivating", "reloading", "refreshing", "maintenance"})

# The rest (disabled, linked, masked, not-found, nothing, …) does not start at boot.
_ENABLED = frozenset({"enabled", "enabled-runtime", "alias", "static", "indirect", "generated", "transient"})


class Unit(msgspec.Struct, frozen=True):
    """One unit as systemd describes it, in its own words (``org.freedesktop.systemd1(5)``)."""

    id: str
    """The full name; that of the unit itself when it was asked for by an alias."""
    load: str
    """``loaded``, ``not-found``, ``masked``, ``bad-setting``, ``error``."""
    load_error: str
    active: str
    sub: str
    file_state: str
    """``enabled``, ``disabled``, ``static``, …; empty when there is no unit file."""
    fragment: str
    """Path of the unit file."""
    needs_reload: bool
    """The unit file on disk is not the one that systemd has read."""
    can_reload: bool = False
    """It has a way to read its configuration again while it runs."""

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
    def is_enabled(self) -> bool:
        return self.file_state in _ENABLED

    @property
    def is_masked(self) -> bool:
        return self.load == "masked" or self.file_state.startswith("masked")

    @property
    def is_missing(self) -> bool:
        """Neither a unit file nor anything left of one that was removed while the unit ran."""
        return self.load == "not-found" and self.is_stopped

    @property
    def state(self) -> str:
        """``running``, ``stopped``, or the state that does not pass; with what is odd about it."""
        word = "running" if self.is_running else "stopped" if self.is_stopped else self.active
        return word if self.active in ("active", "inactive") else f"{word} ({self.sub})"

    @classmethod
    def unknown(cls, name: str) -> "Unit":
        """A unit of which nothing can be known before the real run."""
        return cls(name, "not-found", "", "inactive", "dead", "", "", needs_reload=False)

    def files(self, directories: Sequence[str] = UNIT_DIRECTORIES) -> list[str]:
        """Where the unit file may be, also that of the template of an instance."""
        name, mark, rest = self.id.partition("@")
        names = [self.id, f"{name}@.{rest.rpartition('.')[2]}"] if mark else [self.id]
        return [f"{directory}/{one}" for directory in directories for one in names]


_FIELDS = {
    "Id": "id",
    "LoadState": "load",
    "LoadError": "load_error",
    "ActiveState": "active",
    "SubState": "sub",
    "UnitFileState": "file_state",
    "FragmentPath": "fragment",
    "NeedDaemonReload": "needs_reload",
    "CanReload": "can_reload",
}


class Systemd:
    """One manager of this machine. Methods raise ``ResourceError``.

    ``names`` are the units that will be asked about; ``sleep`` passes the time while a state passes.
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
        """How many resources had been changed when the unit files were looked at."""
        self._is_behind = False
        """In noop: systemd has not read its files as they are, and the real run would let it."""
        self._known: dict[str, tuple[int, Unit]] = {}
        """Answers, each with how many commands had changed something by then."""

    @classmethod
    def of(cls, context: Context, names: Callable[[], Iterable[str]], manager: Manager = SYSTEM) -> "Systemd":
        """The one that all services of a run share; those that are only reported have a system of their own."""
        shared = context.shared.setdefault(cls, {})
        if (key := (context.system, manager.records)) not in shared:
            shared[key] = cls(context, names, manager=manager)
        found: Systemd = shared[key]
        return found

    # Looking

    def unit(self, name: str) -> Unit:
        """The unit of this name, once its state has settled.

        1. Let systemd read the unit files that were written or removed since it last did.
        2. Take the answer that is known, if nothing was changed since; or ask about all units together.
        3. Ask for it alone where that has not told: one bad name spoils the answer for all, what is not there may have
           come, and a state that passes is waited for.
        """
        # 1. Keep up
        self._keep_up()
        # 2. Ask about all
        if (unit := self._still_known(name)) is None:
            with contextlib.suppress(ResourceError):
                self._show([*dict.fromkeys([*self._names(), name])])
            unit = self._still_known(name)
        # 3. Ask for this one
        return self.ask(name) if unit is None or unit.is_missing or unit.is_passing else unit

    def ask(self, name: str, *, waits: bool = True) -> Unit:
        """The unit of this name, asked for anew; without waiting when that has been done."""
        unit = self._show([name])[name]
        for _ in range(int(PATIENCE / _PAUSE) if waits else 0):
            if not unit.is_passing:
                break
            self._sleep(_PAUSE)
            unit = self._show([name])[name]
        return unit

    def _keep_up(self) -> None:
        """Let systemd read what was written or removed since it last did; in noop only find that out."""
        if self._looked_after == (changes := self._changes()):
            return
        self._looked_after = changes
        found = self._files.look()
        is_read = self._files.is_read(found, self._last_read)
        self._is_behind = self._noop and not is_read
        if self._is_behind:
            return
        if not is_read:
            self.read_files()
        self._files.remember(found)

    def _last_read(self) -> float | None:
        """When systemd has last read its files; ``None`` of one that is too old to tell."""
        options = ("--timestamp=us+utc", "--property=UnitsLoadTimestamp,UnitsLoadTimestampMonotonic")
        completed = self._query("systemctl", "show", *options)
        return parse_last_read(completed.stdout, *_both_clocks())

    def _still_known(self, name: str) -> Unit | None:
        executed, unit = self._known.get(name, (-1, None))
        return unit if executed == self._system.executed else None

    def _show(self, names: Sequence[str]) -> dict[str, Unit]:
        """Ask about some units; raises when not all are answered for, as systemctl stops at a name it does not like."""
        arguments = ("show", f"--property={','.join(_FIELDS)}", "--", *names)
        completed = self._query("systemctl", *arguments, output_limit=_BLOCK * len(names))
        blocks = completed.stdout.strip("\n").split("\n\n")
        if completed.exit_code != 0 or len(blocks) != len(names) or not blocks[0]:
            raise ResourceError(_sentence(completed, "systemctl show"))
        units = {name: self._read(block) for name, block in zip(names, blocks, strict=True)}
        self._known.update({name: (self._system.executed, unit) for name, unit in units.items()})
        return units

    def _read(self, block: str) -> Unit:
        given = dict(line.partition("=")[::2] for line in block.splitlines())
        fields = {field: given.get(name, "") for name, field in _FIELDS.items()}
        needs_reload = fields.pop("needs_reload") == "yes" or self._is_behind
        can_reload = fields.pop("can_reload") == "yes"
        if needs_reload and fields["load"] == "loaded":
            # What systemd has read says nothing of an [Install] section that was written since; this reads the files.
            fields["file_state"] = self._query("systemctl", "is-enabled", "--", fields["id"]).stdout.strip()
        return Unit(**fields, needs_reload=needs_reload, can_reload=can_reload)

    # Changing

    def read_files(self) -> None:
        """Let systemd read all unit files again."""
        self._execute("daemon-reload")

    def start(self, unit: Unit) -> None:
        if unit.active == "failed":
            # One that crashed too often is not started again before it is forgiven.
            self._execute("reset-failed", "--", unit.id)
        self._start_by("start", unit)

    def stop(self, unit: Unit) -> None:
        self._execute("stop", "--", unit.id)

    def restart(self, unit: Unit) -> None:
        self._start_by("restart", unit)

    def reload(self, unit: Unit) -> None:
        """Let a unit that runs read its configuration again."""
        self._execute("reload", "--", unit.id)

    def _start_by(self, verb: str, unit: Unit) -> None:
        """Let a unit start, also one that was started as often as its ``StartLimitBurst=`` allows.

        That limit is to end what restarts itself for ever. Releases that follow each other quickly, or the release that
        mends a unit which crashes again and again, must not fail for it.
        """
        try:
            self._execute(verb, "--", unit.id)
        except ResourceError:
            shown = self._query("systemctl", "show", "--property=Result", "--", unit.id).stdout
            if shown.strip() != "Result=start-limit-hit":
                raise
            self._execute("reset-failed", "--", unit.id)
            self._execute("start", "--", unit.id)

    def enable(self, unit: Unit) -> None:
        self._execute("enable", "--", unit.id)

    def disable(self, unit: Unit) -> None:
        runtime = ("--runtime",) if unit.file_state.endswith("-runtime") else ()
        kept_in = os.path.realpath(unit.fragment)
        self._execute("disable", *runtime, "--", unit.id)
        if unit.fragment and self._system.lstat(unit.fragment) is None:
            # systemctl has removed all links to the unit file, also the one by which it knows a file kept elsewhere.
            self._execute("link", *runtime, "--", kept_in)

    def is_masked_by_us(self, unit: Unit) -> bool:
        """Whether Puller has masked a unit."""
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
        """The last lines of a unit that were written after ``since`` (seconds since 1970); none without a journal."""
        of = (f"{self._manager.unit_option}={unit.id}", *self._manager.journal)
        which = (f"--since=@{since:.6f}", f"--lines={_JOURNAL_LINES}", *of)
        try:
            self._query("journalctl", "--sync")
            return self._query("journalctl", "--quiet", "--output=cat", *which).stdout.splitlines()
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


def _sentence(completed: Completed, what: str) -> str:
    said = completed.stderr.strip().removesuffix(".")
    return f"{what}: {completed.outcome}" + (f"; it said: {said}" if said else "")


def _both_clocks() -> tuple[float, float]:
    """This moment on the clock and on the monotonic one, in seconds: not with a pause of this process between them."""
    before = time.monotonic()
    for _ in range(10):
        now, after = time.time(), time.monotonic()
        if after - before < _TOGETHER:
            break
        before = time.monotonic()
    return now, after
