"""The outcome of a release on each host, from the store.

* A host that failed before it had the release says nothing against it when it fails still.
* A host that was to get the release by now, was heard of before, and has sent nothing since counts as silent: a release
  that takes the network away is never reported, also where no host at all could tell that it had got it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bundles.format.release import Release
from puller.fleet.conditions import Condition
from puller.fleet.store.reading import Reader
from puller.fleet.watching.judging import Became, HostOutcome

_BAD = (Condition.FAILED, Condition.HELD)


def outcomes_of(
    reader: Reader, release: Release, channel: str, kinds: Sequence[str]
) -> tuple[list[HostOutcome], float]:
    """The outcome of ``release`` on each host of ``channel`` that has it, or was to have it by now.

    And the part of all hosts, from 0 to 1, that failed without it: before they got it, or now.
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


def blindness(reader: Reader, release: Release, channel: str) -> str:
    """Why nothing is known of a rollout; empty when any host of its channel was heard of of late.

    No hosts at all are expected for a while only after it began.
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


def last_heard(reader: Reader, bundle: str, channel: str) -> datetime | None:
    """When any host that follows this channel of a bundle was heard of last."""
    rows = [row for row in reader.standings(bundle) if row["channel"] == channel]
    heard = [reader.hosts[row["host"]].heard for row in rows]
    return max((one for one in heard if one is not None), default=None)


def _became(
    reader: Reader, release: Release, row: Mapping[str, Any], before: str, first: float | None
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


def _takes(reader: Reader, release: Release, host: str, later: timedelta) -> bool:
    """Whether the rollout had reached a host at another time than now."""
    return release.chosen_for(host, reader.now + later, current=False).release == release


def kind_of(facts: Mapping[str, Any], kinds: Sequence[str]) -> str:
    """``Debian 12``, from the facts of these names; empty when there is none of them."""
    return " ".join(_texts(facts, kinds))


def _texts(facts: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[str]:
    for name in kinds:
        value: Any = facts
        for step in name.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, str | int) and value != "":
            yield value if isinstance(value, str) else json.dumps(value)
