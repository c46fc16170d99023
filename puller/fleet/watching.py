"""Supervision of rollouts by the reports of hosts: judgement, reached hosts, notifications, queries of Prometheus.

* ``judge`` compares outcomes with the rule of the rollout. It does no I/O. ``outcomes_of`` reads the outcomes from
  the store.
* A host that failed before it had the release, and still fails, does not count against the release.
* A host counts as silent if it should have the release by now, has reported before, and has sent nothing since. This
  detects a release that disconnects the network, even if no host could report that it had the release.
* A notification of a halt is a command or a URL. A failed notification does not prevent the halt.
* A host is on trial until the release is its last good version. A rollout does not grow before a host has passed.
* A Prometheus query must hold (HTTP API, `/api/v1/query`).
"""

import contextlib
import json
import math
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import requests
import urllib3

from bundles.deadline import Deadline, aside
from bundles.format.release import Release
from bundles.publisher.settings import WatchRule
from bundles.transport.web import session
from foundation.quantities import counted
from puller.fleet.views import Condition
from puller.values.foreign_text import visible, visible_line

if TYPE_CHECKING:
    from puller.fleet.store.queries import Reader  # needs the extra fleet


_NAMED = 3
_CHANCE = 1e-5
"""Maximum probability of a false alarm in one check. A rollout is checked hundreds of times."""


class ReleaseResult(StrEnum):
    """The result of a release on a host."""

    IN_ORDER = "in order"
    ON_TRIAL = "on trial"
    FAILED = "failed"
    GAVE_UP = "gave it up"
    SILENT = "not heard of since"


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """The result of the release on a host that has it, or should have it."""

    host: str
    kind: str
    """Such as ``Debian 12``. Empty if unknown."""
    result: ReleaseResult
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rollout may continue."""

    counts: Mapping[ReleaseResult, int]
    reasons: Sequence[str]
    """Reasons to stop, a sentence each. Empty if the rollout may continue."""
    is_reported: bool = False
    """Whether hosts reported failures. Missing reports are a reason to halt, but not to go back."""

    @property
    def hosts(self) -> int:
        """The number of hosts that have the release, or should have it."""
        return sum(self.counts.values())

    @property
    def is_on_trial(self) -> bool:
        """Whether hosts have the release on trial, and none has passed."""
        return bool(self.counts.get(ReleaseResult.ON_TRIAL)) and not self.counts.get(ReleaseResult.IN_ORDER)


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
    counts = {result: sum(item.result is result for item in every) for result in ReleaseResult}
    return Verdict(
        counts, [sentence for sentence, _ in reasons], any(is_reported for _, is_reported in reasons)
    )


def _reasons(
    outcomes: Sequence[HostOutcome], kind: str, rule: WatchRule, usual: float
) -> Iterable[tuple[str, bool]]:
    """Yield sentences, each with whether hosts reported the problem."""
    for what, limit, words in (
        ((ReleaseResult.FAILED, ReleaseResult.GAVE_UP), rule.failed, "failed or rolled back"),
        ((ReleaseResult.SILENT,), rule.silent, "have been silent since they received it"),
    ):
        bad = [outcome for outcome in outcomes if outcome.result in what]
        part = 100 * len(bad) / len(outcomes) if outcomes else 0.0
        expected = usual * len(outcomes) if ReleaseResult.FAILED in what else 0.0
        if len(bad) >= rule.at_least and part > limit and not _is_chance(len(bad), expected):
            of = f" of {kind}" if kind else ""
            names = ", ".join(outcome.host for outcome in bad[:_NAMED])
            suffix = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
            why = next((f": {outcome.why}" for outcome in bad if outcome.why), "")
            share = f"{len(bad)} of {counted(len(outcomes), 'host')}{of} {words} (limit {limit:g}%)"
            yield f"{share}: {names}{suffix}{why}", ReleaseResult.FAILED in what


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
    results = []
    failed_without = 0
    for row in rows:
        result = _result(reader, release, row, before.get(row["host"], ""), first)
        without = reader.hosts[row["host"]].state if result is None else before.get(row["host"], "")
        failed_without += without in _BAD
        if result is not None:
            host = reader.hosts[row["host"]]
            why = "" if result in (ReleaseResult.IN_ORDER, ReleaseResult.ON_TRIAL) else host.why
            results.append(HostOutcome(host.name, kind_of(facts.get(host.name, {}), kinds), result, why))
    return results, failed_without / len(rows) if rows else 0.0


def blindness(reader: "Reader", release: Release, channel: str) -> str:
    """Return why the state of a rollout is unknown. Empty if any host of its channel reported recently.

    A rollout without any host is normal until ``silent_after`` after its start.
    """
    latest = last_heard(reader, release.bundle, channel)
    begin = release.rollout.start if release.rollout is not None else None
    if latest is None and begin is None:
        return ""
    since = max(item for item in (latest, begin) if item is not None)
    if reader.now - since <= reader.silent_after:
        return ""
    hours = reader.silent_after / timedelta(hours=1)
    return (
        f"no host of channel {channel} sent a report for more than {hours:g} h, "
        "so the result of the release is unknown"
    )


def last_heard(reader: "Reader", bundle: str, channel: str) -> datetime | None:
    """Return the last report time of all hosts that follow this channel of a bundle."""
    rows = [row for row in reader.standings(bundle) if row["channel"] == channel]
    heard = [reader.hosts[row["host"]].heard for row in rows]
    return max((item for item in heard if item is not None), default=None)


def _result(
    reader: "Reader", release: Release, row: Mapping[str, Any], before: str, first: float | None
) -> ReleaseResult | None:
    host = reader.hosts[row["host"]]
    if release.version in row["quarantined"]:
        return ReleaseResult.GAVE_UP
    if row["enforced"] == release.version:
        if host.state == Condition.SILENT:
            return ReleaseResult.SILENT
        has_failed = host.state in _BAD and before not in _BAD
        if has_failed:
            return ReleaseResult.FAILED
        return ReleaseResult.IN_ORDER if row["good"] == release.version else ReleaseResult.ON_TRIAL
    if first is None or host.heard is None or row["pin"]:
        return None
    if host.state == Condition.SILENT:
        was_there = (host.heard + reader.silent_after).timestamp() > first
        was_to_have_it = _takes(reader, release, host.name, -reader.silent_after)
        return ReleaseResult.SILENT if was_there and was_to_have_it else None
    if row["published"] == release.version and host.state in _BAD and before not in _BAD:
        return ReleaseResult.FAILED if _takes(reader, release, host.name, host.heard - reader.now) else None
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


_SECONDS = 20


def notify_by_command(command: Sequence[str], sentence: str, seconds: float = _SECONDS) -> str:
    """Call ``command`` with the sentence as its last argument. Return the reason for a failure, or an empty text.

    After ``seconds`` it is ended, together with its children.
    """
    try:
        # A sentence contains texts of hosts. It must stay one line, without control sequences for terminals or mail
        # headers.
        called = subprocess.Popen(
            [*command, visible_line(sentence)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"{command[0]}: cannot be started: {error}"
    with called:
        try:
            _, errors = called.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(called.pid, signal.SIGKILL)
            return f"{command[0]}: exceeded the limit of {seconds:g} s"
    if called.returncode:
        last = errors.strip().splitlines()[-1:]
        return f"{command[0]}: ended with status {called.returncode}{''.join(f': {line}' for line in last)}"
    return ""


def notify_by_url(url: str, message: Mapping[str, object], seconds: float = _SECONDS) -> str:
    """POST ``message`` as JSON to ``url``. Return the reason of a failure, without the URL: it may have a token."""
    try:
        shown = {key: _visible(value) for key, value in message.items()}
        status = aside(lambda: _post(url, shown, seconds), Deadline(seconds))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return f"the URL of watch: notify cannot be reached: {type(error).__name__}"
    return "" if 200 <= status < 300 else f"the URL of watch: notify returned status {status}"


def _visible(value: object) -> object:
    """Return a value whose texts are safe to display."""
    if isinstance(value, Mapping):
        return {visible(str(key)): _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return visible(value) if isinstance(value, str) else value


def _post(url: str, message: Mapping[str, object], seconds: float) -> int:
    with (
        session() as opened,
        opened.post(url, json=dict(message), timeout=seconds, allow_redirects=False, stream=True) as response,
    ):
        return response.status_code


_PROMETHEUS_SECONDS = 20
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Doubt:
    """The reason for which a query does not hold."""

    why: str
    is_reported: bool = False
    """Whether the response shows the problem. False for a missing response."""


def doubt_of(url: str, query: str, seconds: float = _PROMETHEUS_SECONDS) -> Doubt | None:
    """Return why ``query`` does not hold at the server ``url``, or ``None`` if it holds.

    It holds if its response has at least one number, and all numbers differ from 0. An unreachable server, or no
    response within ``seconds``, is also a reason, because an unknown state is not in order.
    """
    try:
        status, data = aside(lambda: _fetch(url, query, seconds), Deadline(seconds))
        if status != 200:
            return Doubt(f"Prometheus returned status {status} for {query}")
        if len(data) > _MOST_BYTES:
            return Doubt(f"Prometheus returned more than {_MOST_BYTES} bytes for {query}")
        values = _values(json.loads(data))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        return Doubt(f"Prometheus cannot be reached: {type(error).__name__}")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Doubt(f"Prometheus returned an invalid response for {query}")
    if not values:
        return Doubt(f"the query of Prometheus has no result: {query}")
    if not (wrong := sum(not value for value in values)):
        return None
    return Doubt(
        f"the query of Prometheus is false for {wrong} of {len(values)} series: {query}", is_reported=True
    )


def _fetch(url: str, query: str, seconds: float) -> tuple[int, bytes]:
    """Return the status and the body."""
    with (
        session() as opened,
        opened.get(
            f"{url.rstrip('/')}/api/v1/query",
            params={"query": query},
            timeout=seconds,
            stream=True,
            allow_redirects=False,
        ) as response,
    ):
        return response.status_code, response.raw.read(_MOST_BYTES + 1, decode_content=True)


def _values(answer: dict[str, object]) -> list[bool]:
    """Return whether each number of a response differs from 0. Raises ``ValueError`` and the like."""
    if answer["status"] != "success":
        raise ValueError
    data = answer["data"]
    if not isinstance(data, dict):
        raise ValueError
    kind, result = data["resultType"], data["result"]
    pairs = [result] if kind == "scalar" else [item["value"] for item in result]
    numbers = [float(pair[1]) for pair in pairs]
    return [number != 0 and number == number for number in numbers]  # NaN does not hold


# The hosts that a rollout reaches.


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts of a channel that get a release now, and the number of all hosts that follow the channel."""

    hosts: tuple[str, ...]
    followers: int


def reach_of(reader: "Reader", release: Release, channel: str, now: datetime) -> Reach:
    """Return the reach of a release. A pinned host does not follow the channel."""
    rows = [row for row in reader.standings(release.bundle) if row["channel"] == channel and not row["pin"]]
    names = sorted(reader.hosts[row["host"]].name for row in rows)
    reached = [name for name in names if release.chosen_for(name, now, current=False).release == release]
    return Reach(tuple(reached), len(names))
