"""The record of bundles on trial. The next run reads in it that an attempt was cut short.

* A bundle is on trial from its first resource until it has passed or is given up.
* An attempt that has reached a resource and has no end on record was cut short, by a crash, a power cut or ``kill -9``.
  If several bundles are on trial, those without a reached resource had no part in it. The identity of the boot
  distinguishes a restart of the machine from the death of the process. A run that a signal stops records an end.
* The record counts the attempts in a row with failed resources. An attempt that was cut short or stopped does not
  change the count.
* The record counts the attempts in a row that were in order, and has the time of the first one. A failure begins again.
  The rule of the bundle decides how many are enough, and for how long (``bundles.format.release``).
* The time in order is measured by the clock of the boot, because the clock of the day may jump. After a restart of the
  machine, only the clock of the day is left.
* A trial ends when another version of the bundle is applied, or when the bundle leaves the configuration. Otherwise a
  later attempt would be judged by a state that it has not made.
* A reboot that becomes due during a trial belongs to the trial. The version passes in a run after the boot.
* The record keeps the results of the health checks before the change. A later attempt must not take the damage of an
  earlier one for the state before.
"""

import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from bundles.format.release import Requirement, Runs, TrialRule
from bundles.store.contents import Installed
from foundation.times import Duration, iso_text
from puller.reporting.report import Health, TrialReport
from puller.state import Directories, StateFile

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone. Python cannot compare it with a time without a zone."""


class Moment(NamedTuple):
    """A time by the clock of the day and by the clock of the boot."""

    now: datetime
    boot: str
    """The identity of the boot."""
    uptime: float
    """Seconds since the boot, including the time in which the machine was suspended."""


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The trial of one version. Times are UTC in ISO 8601."""

    version: str
    sha256: str
    since: str
    health: dict[str, Health]
    """The results of health checks before the change, by ``puller.run.judging.key_of``."""
    boot: str = ""
    """The identity of the boot in which the current attempt began. Empty between attempts."""
    reached: bool = False
    """Whether the current attempt has reached one of its resources."""
    cut_short: int = 0
    """Earlier attempts in a row without an end."""
    failed: int = 0
    """Earlier attempts in a row with failed resources."""
    in_order: int = 0
    """Earlier attempts in a row without failures."""
    in_order_since: _Moment | None = None
    """The end of the first of them."""
    in_order_boot: str = ""
    """The identity of the boot of the last of them."""
    in_order_uptime: float = 0.0
    """The end of the first of them, in seconds since that boot."""
    until: _Moment | None = None
    """The earliest time at which it can pass. ``None`` before the first attempt in order."""
    runs: int = 1
    """The attempts in order that it needs in all."""
    release_duration: int | None = None
    """The rule of the release, in seconds. A run without the site still needs it."""
    release_runs: int | None = None
    restarts: dict[str, int] = {}
    """How often systemd has restarted each service that the version has started, after the last attempt in order."""
    failure: str = ""
    """A health check that failed between two runs. The next run gives the version up."""
    awaits_boot: bool = False
    """Whether it cannot pass before the machine has restarted, because a reboot became due during the trial."""

    @property
    def release_rule(self) -> TrialRule:
        """The rule of the release, as the last run with the site read it."""
        duration, runs = self.release_duration, self.release_runs
        return TrialRule(
            None if duration is None else Duration(duration), None if runs is None else Runs(runs)
        )

    def continued(self, required: Requirement, moment: Moment) -> "Trial":
        """Return the trial after one more attempt in order.

        After a restart of the machine, a clock that went back begins the time again.
        """
        now, uptime = moment.now, moment.uptime
        if self.in_order_since is None:
            since = now
        elif self.in_order_boot == moment.boot:
            uptime = min(self.in_order_uptime, moment.uptime)
            since = now - timedelta(seconds=moment.uptime - uptime)
        else:
            since = min(self.in_order_since, now)
            uptime = moment.uptime - (now - since).total_seconds()
        return msgspec.structs.replace(
            self,
            failed=0,
            in_order=self.in_order + 1,
            in_order_since=since,
            in_order_boot=moment.boot,
            in_order_uptime=uptime,
            until=since + timedelta(seconds=required.seconds),
            runs=required.runs,
        )

    def report(self) -> TrialReport:
        """Return what people need to know about it."""
        until = iso_text(self.until) if self.until is not None else ""
        runs = max(1, self.runs - self.in_order)
        return TrialReport(since=self.since, until=until, runs=runs, awaits_boot=self.awaits_boot)

    def is_over(self, now: datetime) -> bool:
        """Return whether the attempts in order are enough."""
        if self.awaits_boot:
            return False
        return self.in_order >= self.runs and self.until is not None and self.until <= now

    def interruption(self, boot: str) -> str:
        """Return how the last attempt was cut short. Empty if it has an end."""
        if not self.boot or not self.reached:
            return ""
        return "the process was killed" if self.boot == boot else "the machine restarted"


def restarted(trial: Trial) -> Trial:
    """Return a trial whose time in order begins again."""
    return msgspec.structs.replace(
        trial, in_order=0, in_order_since=None, in_order_boot="", until=None, restarts={}, failure=""
    )


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """The document on disk, with at most one trial for each bundle, by name."""

    format: Literal[1] = 1
    trials: dict[str, Trial] = {}


class Trials:
    """The trials on this host. ``noop`` keeps changes in memory. Methods raise ``OSError``."""

    def __init__(
        self, directories: Directories, warn: Callable[[str], None], *, noop: bool, boot: str | None = None
    ) -> None:
        self._file = StateFile(directories.journal, _Record, "trials of bundles start again")
        self._noop = noop
        self._trials = (self._file.load(warn, noop=noop) or _Record()).trials
        self._boot = boot

    @property
    def boot(self) -> str:
        """The identity of this boot of the machine."""
        if self._boot is None:
            self._boot = _BOOT_ID.read_text(encoding="ascii").strip()
        return self._boot

    def restarts(self, trial: Trial) -> Mapping[str, int]:
        """Return how often systemd had restarted each service after the last attempt in order. A boot counts anew."""
        return trial.restarts if self.is_of_this_boot(trial) else dict.fromkeys(trial.restarts, 0)

    def is_of_this_boot(self, trial: Trial) -> bool:
        """Return whether the machine has not restarted since the last attempt in order."""
        return trial.in_order_boot in ("", self.boot)  # "": recorded by an earlier version of Puller

    def find(self, bundle: Installed) -> Trial | None:
        """Return the trial of exactly this version."""
        trial = self._trials.get(bundle.name)
        return trial if trial is not None and trial.sha256 == bundle.sha256 else None

    def find_interruptions(self, bundle: Installed) -> tuple[int, str]:
        """Return how many attempts in a row were cut short, and how the last one was. 0: the last one has an end."""
        trial = self.find(bundle)
        how = trial.interruption(self.boot) if trial is not None else ""
        return (trial.cut_short + 1, how) if trial is not None and how else (0, "")

    def begin(self, bundle: Installed, health: Mapping[str, Health], rule: TrialRule | None = None) -> Trial:
        """Begin an attempt. Only the first attempt stores ``health``. ``rule`` is the rule of the release."""
        since = iso_text(datetime.now(UTC))
        result = self.find(bundle) or Trial(bundle.version, bundle.sha256, since, dict(health))
        cut_short = result.cut_short + result.reached if result.boot else 0
        stated = rule.fields() if rule is not None else {}
        begun = msgspec.structs.replace(
            result,
            boot=self.boot,
            reached=False,
            cut_short=cut_short,
            release_duration=stated.get("duration"),
            release_runs=stated.get("runs"),
        )
        return self._put(bundle, begun)

    def continued(self, bundle: Installed, required: Requirement) -> Trial:
        """Return the trial of a version after one more attempt in order. Nothing is recorded."""
        moment = Moment(datetime.now(UTC), self.boot, time.clock_gettime(time.CLOCK_BOOTTIME))
        trial = self.find(bundle) or Trial(bundle.version, bundle.sha256, iso_text(moment.now), {})
        return trial.continued(required, moment)

    def reach(self, bundle: Installed) -> None:
        """Record that the current attempt reaches its first resource."""
        if (result := self.find(bundle)) is not None and result.boot and not result.reached:
            self._put(bundle, msgspec.structs.replace(result, reached=True))

    def end(self, bundle: Installed, *, failed: bool = False, in_order: Trial | None = None) -> None:
        """End the current attempt, perhaps with failed resources, or ``in_order``. The version stays on trial."""
        if (result := in_order or self.find(bundle)) is not None:
            result = msgspec.structs.replace(result, boot="", reached=False, cut_short=0)
            if failed:
                result = restarted(msgspec.structs.replace(result, failed=result.failed + 1))
            self._put(bundle, result)

    def note_failure(self, bundle: Installed, why: str) -> None:
        """Record a health check that has failed after an attempt in order. The first one stays."""
        result = self.find(bundle)
        if result is not None and result.in_order and not result.failure:
            self._put(bundle, msgspec.structs.replace(result, failure=why))

    def restart(self, bundle: Installed) -> None:
        """Begin the time in order again."""
        if (result := self.find(bundle)) is not None:
            self._put(bundle, restarted(result))

    def close(self, name: str) -> None:
        """Remove the trial of a bundle."""
        self.retain(self._trials.keys() - {name})

    def close_other(self, bundle: Installed) -> None:
        """Remove the trial of another version, because this version takes its place."""
        trial = self._trials.get(bundle.name)
        if trial is not None and trial.sha256 != bundle.sha256:
            self.close(bundle.name)

    def retain(self, names: Collection[str]) -> None:
        """Remove the trials of all other bundles."""
        if not self._trials.keys() <= set(names):
            self._save({name: trial for name, trial in self._trials.items() if name in names})

    def _put(self, bundle: Installed, trial: Trial) -> Trial:
        if self._trials.get(bundle.name) != trial:
            self._save({**self._trials, bundle.name: trial})
        return trial

    def _save(self, trials: dict[str, Trial]) -> None:
        if not self._noop:
            self._file.save(_Record(trials=trials))
        self._trials = trials
