"""The ``reboot`` resource: restarts the machine when it is due (``docs/resources/reboot.md``).

* It comes after all other resources of all bundles. The run restarts the machine after its report was stored and sent.
* Outside of its windows and its slot, it waits. The run, ``puller status`` and the fleet show a pending reboot.
* It never restarts the machine twice for one reason. A reason that remains is a failure.
* Only ``puller run`` restarts a machine. ``puller apply`` and ``puller ensure`` report that a reboot is due.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from foundation.differences import Difference, changed
from foundation.problems import ProblemCode
from foundation.times import Duration, minute_text
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource, missing_property
from puller.resources.reboots.machine import Machine, Reason
from puller.resources.reboots.plan import DueReboot, RebootPlan, Records
from puller.resources.reboots.schedule import Rules, Share, slot_of
from puller.values.common_properties import Reference
from puller.values.maintenance import RebootState, Window

_MINUTE, _DAY = 60.0, 86400.0
_LONGEST_MESSAGE = 200  # characters
_LONGEST_NUMBER = 1_000_000
_NAMED = 3
"""Maximum subscribed resources in a reason."""


class RebootProperties(Properties, frozen=True):
    """The properties of a reboot."""

    when: Literal["required"] | None = None
    """``required``: reboot if the system requires it, because packages ask for it or a newer kernel is installed."""
    max_uptime: Duration | None = None
    """Reboot if the machine has been up for longer, such as ``30d``."""
    subscribe: tuple[Reference, ...] = ()
    """Resources whose change requires a reboot."""
    windows: tuple[Window, ...] = ()
    """Reboot only in these windows, which have the keys of the configuration's windows."""
    share: Share | None = None
    """The part of the fleet that may reboot at a time, such as ``20%``. It divides each window into slots."""
    number: int | None = None
    """The number of this host, which selects its slot. The default is the hash of its name, as in rollouts."""
    duration: Duration = Duration(900.0)
    """The time from the beginning of a reboot until the host works again, by default ``15m``."""
    delay: Duration = Duration(300.0)
    """The time between the message and the reboot, in whole minutes, by default ``5m``."""
    message: str = ""
    """The message to logged-in users."""
    min_uptime: Duration = Duration(43200.0)
    """No reboot before the machine has been up for this time, by default ``12h``."""


class RebootingState(msgspec.Struct, frozen=True):
    """The boot of the machine, and the reasons to end it."""

    booted: datetime
    reasons: tuple[Reason, ...]


class Reboot(Resource[RebootProperties, RebootingState]):
    """A restart of the machine."""

    type_name = "reboot"
    properties_type = RebootProperties
    providers = ("systemd",)
    is_last = True
    secret_properties = frozenset({"message"})
    command_lines = frozenset({"health_checks", "message"})

    _notes: tuple[str, ...] = ()

    def look(self) -> RebootingState:
        plan, properties = self._plan, self.properties
        if not plan.withheld:
            plan.machine.require_reboots()
        booted = plan.machine.booted_at(plan.now)
        reasons = plan.machine.reasons() if properties.when is not None else []
        if properties.max_uptime is not None and plan.now - booted > properties.max_uptime.delta:
            days = properties.max_uptime / _DAY
            reasons.append(Reason("uptime", f"up since {minute_text(booted)}, longer than {days:g} days"))
        if (subscription := plan.subscription(self._reference)) is not None:
            reasons.append(subscription)
        return RebootingState(booted, tuple(reasons))

    def differences(self, actual: RebootingState, *, refresh: bool = False) -> Sequence[Difference]:
        """Return a difference if the restart is requested, or becomes due by a refresh.

        Raises ``OSError``, and ``ResourceError`` if a reason has remained after a restart.
        """
        plan, self._notes = self._plan, ()
        reasons = list(actual.reasons)
        is_new = refresh and plan.subscription(self._reference) is None
        if is_new:
            reasons.append(self._subscription())
        if not reasons:
            plan.settle(self._reference)
            return ()
        verdict = plan.decide(self._due(reasons))
        if verdict.state is RebootState.FAILED:
            raise ResourceError(
                f"a reboot is still required after the last one ({_texts(reasons)}): {verdict.waits_for}",
                code=ProblemCode.REASON_REMAINS,
                hint="remove the cause, or restart the machine yourself. Puller does not repeat the reboot",
            )
        progress = plan.pending(self._reference).progress
        self._notes = (f"a reboot is due ({_texts(reasons)}): {progress}",)
        if verdict.state is RebootState.REQUESTED and not plan.has_requested(self._reference):
            return [self._difference("requested", is_refresh=refresh)]
        return [self._difference("pending", is_refresh=True)] if is_new else ()

    @staticmethod
    def _difference(desired: str, *, is_refresh: bool) -> Difference:
        return msgspec.structs.replace(changed("reboot", "due", desired), refresh=is_refresh)

    def change(self, differences: Sequence[Difference], actual: RebootingState) -> None:
        """Record the reasons, and request the restart if it is time."""
        plan, reasons = self._plan, list(actual.reasons)
        if differences[0].refresh and plan.subscription(self._reference) is None:
            subscription = self._subscription()
            plan.record_subscription(self._reference, subscription.text)
            reasons.append(subscription)
        if differences[0].desired == "requested":
            due = self._due(reasons)
            verdict = plan.decide(due)
            if verdict.state is RebootState.REQUESTED and verdict.at is not None:
                plan.request(due, verdict.at)

    def noop_message(self, differences: Sequence[Difference], actual: RebootingState) -> str:
        del actual
        if differences[0].desired == "requested":
            return "Would have restarted the machine after the run"
        return "Would have recorded that a reboot is due"

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    def changed_paths(self, actual: RebootingState) -> Iterable[str]:
        # A rollback cannot undo a reboot, and has nothing to restore: the record belongs to the machine.
        del actual
        return ()

    def describe(self, actual: RebootingState) -> dict[str, Any]:
        booted = minute_text(actual.booted)
        return {"ensure": "present", "booted": booted, "reasons": [reason.text for reason in actual.reasons]}

    @classmethod
    def subjects(cls, properties: RebootProperties) -> Iterable[str]:
        del properties
        return ()

    @classmethod
    def places(cls, properties: RebootProperties) -> Iterable[str]:
        # A name is any text, and never a path.
        del properties
        return ()

    @classmethod
    def identity(cls, properties: RebootProperties, spellings: object) -> str:
        del spellings
        return properties.name

    @classmethod
    def lasting(cls, properties: RebootProperties) -> None:
        del properties

    @classmethod
    def may_replace(cls, properties: RebootProperties) -> bool:
        del properties
        return False

    @classmethod
    def on_record(cls, properties: RebootProperties, state_directory: Path | None) -> list[str]:
        resource = f"{cls.type_name}#{properties.name}"
        plan = _reading_plan(state_directory)
        return [str(item) for item in plan.record.pending if item.resource == resource]

    @classmethod
    def check(cls, properties: RebootProperties) -> Iterator[PropertyError]:
        if properties.ensure != "present":
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present")
        if properties.when is None and properties.max_uptime is None and not properties.subscribe:
            yield missing_property("when", expected="when, max_uptime or subscribe")
        if properties.max_uptime is not None and properties.max_uptime <= properties.min_uptime:
            yield PropertyError(
                "max_uptime",
                "is not longer than min_uptime",
                because=["min_uptime"],
                expected="a longer time",
            )
        if properties.delay % _MINUTE or properties.delay > _DAY:
            expected = "whole minutes, at most a day"
            yield PropertyError("delay", f"is {properties.delay:g} s", expected=expected)
        if properties.duration <= 0:
            yield PropertyError("duration", "is 0", expected="the time that a reboot takes")
        if properties.number is not None and properties.share is None:
            yield missing_property(
                "share", because=["number"], expected="a share, because number selects a slot"
            )
        if properties.number is not None and not 0 <= properties.number <= _LONGEST_NUMBER:
            yield PropertyError("number", f"is {properties.number}", expected=f"from 0 to {_LONGEST_NUMBER}")
        text = properties.message
        if text[:1] == "-" or any(unicodedata.category(character)[0] == "C" for character in text):
            expected = "one line of visible characters that does not start with -"
            yield PropertyError("message", f"is {text!r}", expected=expected)
        if len(text) > _LONGEST_MESSAGE:
            expected = f"at most {_LONGEST_MESSAGE}"
            yield PropertyError("message", f"has {len(text)} characters", expected=expected)
        yield from _check_windows(properties)

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Require quoted times, because 800 would be 13:20. Raises ``PropertyError``."""
        windows = raw.get("windows")
        for number, window in enumerate(windows if isinstance(windows, list) else ()):
            for key in ("from", "to") if isinstance(window, dict) else ():
                if isinstance(window.get(key), int):
                    message = f"has the number {window[key]} in {key}"
                    raise PropertyError(
                        "windows", message, place=(number, key), expected="a quoted time such as '22:00'"
                    )
        return raw

    # The plan

    @property
    def _plan(self) -> RebootPlan:
        if self.context.reboots is not None:
            return self.context.reboots
        plan: RebootPlan = self.context.shared.setdefault(
            RebootPlan, _reading_plan(self.context.state_directory, noop=self.context.noop)
        )
        return plan

    @property
    def _reference(self) -> str:
        return f"{self.type_name}#{self.properties.name}"

    def _subscription(self) -> Reason:
        names = [str(name) for name in self.properties.subscribe]
        more = f" or {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return Reason(f"subscribe {self._reference}", f"change of {', '.join(names[:_NAMED])}{more}")

    def _due(self, reasons: Sequence[Reason]) -> DueReboot:
        properties, plan = self.properties, self._plan
        slot = slot_of(plan.find_host(), properties.number, properties.share) if properties.share else 0
        rules = Rules(
            properties.windows, plan.windows, properties.share, slot, properties.duration, properties.delay
        )
        uptime = timedelta(seconds=properties.min_uptime)
        return DueReboot(self._reference, reasons, rules, uptime, properties.message)


def _texts(reasons: Sequence[Reason]) -> str:
    return ", ".join(reason.text for reason in reasons)


def _reading_plan(state_directory: Path | None, *, noop: bool = True) -> RebootPlan:
    """Return the plan of commands that never restart the machine."""
    records = Records(state_directory, noop=noop)
    return RebootPlan(Machine(), records, lambda: datetime.now(UTC), withheld="for `puller run`")


def _check_windows(properties: RebootProperties) -> Iterator[PropertyError]:
    slots = properties.share.slots if properties.share is not None else 1
    for number, window in enumerate(properties.windows):
        if window.start == window.end:
            message = f"has a window from {window.start} to {window.end}"
            yield PropertyError(
                "windows", message, place=(number,), expected="00:00 to 24:00 for a whole day"
            )
            continue
        seconds = (window.end - window.start) % 1440 * _MINUTE or _DAY
        if seconds / slots < properties.duration:
            yield PropertyError(
                "windows",
                f"has a window of {seconds / _MINUTE:g} minutes with {slots} slots",
                place=(number,),
                because=["share", "duration"],
                expected=f"slots of at least {properties.duration / _MINUTE:g} minutes, the duration",
                hint="use a longer window, a larger share, or a shorter duration",
            )
