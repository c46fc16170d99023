"""The judgement of a rollout by the outcomes of its release on the hosts.

* ``judge`` compares outcomes with the rule of the rollout. It does no I/O. ``outcomes_of`` reads the outcomes from
  the store.
* A host that failed before it had the release, and still fails, does not count against the release.
* A host counts as silent if it should have the release by now, has reported before, and has sent nothing since. This
  detects a release that disconnects the network, even if no host could report that it had the release.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from bundles.format.release import Release
from bundles.publisher.settings import WatchRule
from foundation.quantities import counted
from puller.fleet.conditions import Condition

if TYPE_CHECKING:
    from puller.fleet.store.queries import Reader  # needs the extra fleet

_NAMED = 3
_CHANCE = 1e-5
"""Maximum probability of a false alarm in one check. A rollout is checked hundreds of times."""


class Became(StrEnum):
    """The result of a release on a host."""

    IN_ORDER = "in order"
    FAILED = "failed"
    GAVE_UP = "gave it up"
    SILENT = "not heard of since"


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """The result of the release on a host that has it, or should have it."""

    host: str
    kind: str
    """Such as ``Debian 12``. Empty if unknown."""
    became: Became
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rollout may continue."""

    counts: Mapping[Became, int]
    reasons: Sequence[str]
    """Reasons to stop, a sentence each. Empty if the rollout may continue."""
    is_told: bool = False
    """Whether hosts reported failures. Missing reports are a reason to halt, but not to go back."""

    @property
    def hosts(self) -> int:
        """The number of hosts that have the release, or should have it."""
        return sum(self.counts.values())


def judge(outcomes: Iterable[HostOutcome], rule: WatchRule, usual: float = 0.0) -> Verdict:
    """Return the verdict: too many failed or silent hosts, in total or of one kind, stop the rollout.

    ``usual`` is the share of hosts, from 0 to 1, that fail without the release. So many failures are not a reason to
    stop.
    """
    by_kind: dict[str, list[HostOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    every = [outcome for of_kind in by_kind.values() for outcome in of_kind]
    reasons = list(_reasons(every, "", rule, usual))
    if len(by_kind) > 1:
        for kind, of_kind in sorted(by_kind.items()):
            reasons += _reasons(of_kind, kind or "an unknown kind", rule, usual)
    counts = {became: sum(one.became is became for one in every) for became in Became}
    return Verdict(counts, [sentence for sentence, _ in reasons], any(is_told for _, is_told in reasons))


def _reasons(
    outcomes: Sequence[HostOutcome], kind: str, rule: WatchRule, usual: float
) -> Iterable[tuple[str, bool]]:
    """Yield sentences, each with whether hosts reported the problem."""
    for what, limit, words in (
        ((Became.FAILED, Became.GAVE_UP), rule.failed, "failed or gave it up"),
        ((Became.SILENT,), rule.silent, "were not heard of since they got it"),
    ):
        bad = [one for one in outcomes if one.became in what]
        part = 100 * len(bad) / len(outcomes) if outcomes else 0.0
        expected = usual * len(outcomes) if Became.FAILED in what else 0.0
        if len(bad) >= rule.at_least and part > limit and not _is_chance(len(bad), expected):
            of = f" of {kind}" if kind else ""
            names = ", ".join(one.host for one in bad[:_NAMED])
            more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
            why = next((f": {one.why}" for one in bad if one.why), "")
            said = f"{len(bad)} of {counted(len(outcomes), 'host')}{of} {words} (limit {limit:g}%): {names}{more}{why}"
            yield said, Became.FAILED in what


def _is_chance(count: int, expected: float) -> bool:
    """Return whether ``count`` or more are plausible if ``expected`` are usual (Poisson distribution)."""
    term = below = math.exp(-expected)
    for number in range(1, count):
        term *= expected / number
        below += term
    return 1 - below > _CHANCE


# Outcomes of a release, from the store.

_BAD = (Condition.FAILED, Condition.HELD)


def outcomes_of(
    reader: "Reader", release: Release, channel: str, kinds: Sequence[str]
) -> tuple[list[HostOutcome], float]:
    """Return the result of ``release`` on each host of ``channel`` that has it, or should have it by now.

    Also returns the share of all hosts, from 0 to 1, that failed without this release: before they got it, or now.
    """
    rows = [row for row in reader.standings(release.bundle) if row["channel"] == channel]
    facts = dict(reader.facts([row["host"] for row in rows]))
    before = reader.conditions_before(release.bundle, release.version)
    first = reader.first_of(release.bundle, release.version)
    begin = release.rollout.start if release.rollout is not None else None
    if begin is not None:
        first = begin.timestamp() if first is None else min(first, begin.timestamp())
    found = []
    failed_without = 0
    for row in rows:
        became = _became(reader, release, row, before.get(row["host"], ""), first)
        without = reader.hosts[row["host"]].state if became is None else before.get(row["host"], "")
        failed_without += without in _BAD
        if became is not None:
            host = reader.hosts[row["host"]]
            why = host.why if became is not Became.IN_ORDER else ""
            found.append(HostOutcome(host.name, kind_of(facts.get(host.name, {}), kinds), became, why))
    return found, failed_without / len(rows) if rows else 0.0


def blindness(reader: "Reader", release: Release, channel: str) -> str:
    """Return why the state of a rollout is unknown. Empty if any host of its channel reported recently.

    A rollout without any host is normal until ``silent_after`` after its start.
    """
    latest = last_heard(reader, release.bundle, channel)
    begin = release.rollout.start if release.rollout is not None else None
    if latest is None and begin is None:
        return ""
    since = max(one for one in (latest, begin) if one is not None)
    if reader.now - since <= reader.silent_after:
        return ""
    hours = reader.silent_after / timedelta(hours=1)
    return (
        f"no host of channel {channel} was heard of for more than {hours:g} h: nobody knows what became of it"
    )


def last_heard(reader: "Reader", bundle: str, channel: str) -> datetime | None:
    """Return the last report time of all hosts that follow this channel of a bundle."""
    rows = [row for row in reader.standings(bundle) if row["channel"] == channel]
    heard = [reader.hosts[row["host"]].heard for row in rows]
    return max((one for one in heard if one is not None), default=None)


def _became(
    reader: "Reader", release: Release, row: Mapping[str, Any], before: str, first: float | None
) -> Became | None:
    host = reader.hosts[row["host"]]
    if release.version in row["quarantined"]:
        return Became.GAVE_UP
    if row["enforced"] == release.version:
        if host.state == Condition.SILENT:
            return Became.SILENT
        has_failed = host.state in _BAD and before not in _BAD
        return Became.FAILED if has_failed else Became.IN_ORDER
    if first is None or host.heard is None or row["pin"]:
        return None
    if host.state == Condition.SILENT:
        was_there = (host.heard + reader.silent_after).timestamp() > first
        was_to_have_it = _takes(reader, release, host.name, -reader.silent_after)
        return Became.SILENT if was_there and was_to_have_it else None
    if row["published"] == release.version and host.state in _BAD and before not in _BAD:
        return Became.FAILED if _takes(reader, release, host.name, host.heard - reader.now) else None
    return None


def _takes(reader: "Reader", release: Release, host: str, later: timedelta) -> bool:
    """Return whether the rollout reaches a host at the current time plus ``later``."""
    return release.chosen_for(host, reader.now + later, current=False).release == release


def kind_of(facts: Mapping[str, Any], kinds: Sequence[str]) -> str:
    """Return the kind of a host, such as ``Debian 12``, from the named facts. Empty if all are missing."""
    return " ".join(_texts(facts, kinds))


def _texts(facts: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[str]:
    for name in kinds:
        value: Any = facts
        for step in name.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, str | int) and value != "":
            yield value if isinstance(value, str) else json.dumps(value)
