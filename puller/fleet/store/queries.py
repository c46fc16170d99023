"""Queries of the store. Each query takes a few statements, whatever the number of hosts.

Counts of hosts over time, by state or version, from periods.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import func, select

from foundation.problems import Problem
from puller.fleet.attention import expiring, find_attention
from puller.fleet.store import database
from puller.fleet.store.host_queries import (
    AT_ONCE,
    HostReader,
    differences_of,
    event_of,
    in_parts,
    moment_of,
)
from puller.fleet.store.importer import MOST_LISTED, refused_files
from puller.fleet.store.writing import resource_key
from puller.fleet.views import (
    Attention,
    BundleHistory,
    BundleView,
    Condition,
    EventView,
    FailureView,
    FleetView,
    HostRow,
    ReleaseView,
    ResourceView,
    RestlessView,
    RolloutView,
    Series,
    VersionRecord,
    VersionRow,
    WaitingHost,
)
from puller.reporting.report import PublishedBundle, State

_MOST_TIMES = 120


class Period(NamedTuple):
    """A value of one host for a period, in seconds since 1970. A current value has no end."""

    name: str
    began: float
    ended: float | None


def counted(periods: Iterable[Period], begin: float, now: float, order: Iterable[str] = ()) -> Series:
    """Return the counts by name between ``begin`` and ``now``.

    If there are few changes, each has its own time. Otherwise the times are evenly spaced. Names are sorted by
    ``order``, then by first appearance.
    """
    steps: list[tuple[float, str, int]] = []
    first: dict[str, float] = {}
    for name, began, ended in periods:
        if (ended is not None and ended <= begin) or began > now:
            continue
        began = max(began, begin)
        first[name] = min(began, first.get(name, began))
        steps.append((began, name, 1))
        if ended is not None and ended <= now:
            steps.append((ended, name, -1))
    if not steps:
        return Series()
    steps.sort()
    times = _times(sorted({position for position, _, _ in steps}), now)
    desired = list(order)
    names = [name for name in desired if name in first]
    names += sorted((name for name in first if name not in desired), key=lambda name: (first[name], name))
    counts: dict[str, list[int]] = {name: [] for name in names}
    held: Counter[str] = Counter()
    position = 0
    for time in times:
        while position < len(steps) and steps[position][0] <= time:
            held[steps[position][1]] += steps[position][2]
            position += 1
        for name in names:
            counts[name].append(held[name])
    return Series([datetime.fromtimestamp(time, UTC) for time in times], counts)


def _times(changes: list[float], now: float) -> list[float]:
    if len(changes) < _MOST_TIMES:
        return changes if changes[-1] >= now else [*changes, now]
    begin = changes[0]
    step = (now - begin) / (_MOST_TIMES - 1)
    return [begin + step * number for number in range(_MOST_TIMES - 1)] + [now]


_EXPIRES_SOON = timedelta(days=3)
_MOST_RECENT = 20
_MOST_CAUSES = 3
_ORDER = [str(condition) for condition in reversed(Condition)]


class Reader(HostReader):
    """The fleet at the time ``now``: hosts, bundles, releases, failures and resources."""

    def exporting(self, bundle: str, names: Collection[str]) -> Iterator[tuple[str, PublishedBundle]]:
        """Yield the named hosts that enforce a bundle, each with its exports.

        Raises ``SourceError`` for a damaged document.
        """
        having = {row["host"] for row in self._by_bundle.get(bundle, ()) if row["enforced"]}
        for part in in_parts(sorted(having.intersection(names))):
            with self._store.reading() as connection:
                documents = self._documents(connection, part)
            for name, packed in documents.items():
                yield from ((name, one) for one in self._sent(name, packed).bundles if one.name == bundle)

    def refused_files(self, most: int = MOST_LISTED) -> tuple[int, Mapping[str, str]]:
        """Return the number of invalid files, and the newest of them with reasons."""
        return refused_files(self._store, most)

    @cached_property
    def attention(self) -> list[Attention]:
        """The hosts that need attention, grouped by problem, the most serious group first."""
        rolled_back: dict[tuple[str, str], list[HostRow]] = defaultdict(list)
        for bundle, rows in self._by_bundle.items():
            for row in rows:
                host = self.hosts[row["host"]]
                if host.state == Condition.GAVE_UP and row["published"] in row["quarantined"]:
                    rolled_back[bundle, row["published"]].append(host)
        return find_attention(
            self.hosts.values(),
            self.failures,
            rolled_back,
            [rollout for bundle in self.bundles for rollout in bundle.rollouts],
            next_step=self._step_of,
            last_failures=self._last_failures,
        )

    def _last_failures(self, bundle: str, hosts: Sequence[HostRow]) -> list[EventView]:
        """Return the newest failures of a bundle on some of the hosts, one for each resource."""
        table = database.events.c
        query = (
            select(database.events)
            .where(table.host.in_([host.name for host in hosts[:AT_ONCE]]))
            .where(table.bundle == bundle, table.state == str(State.FAILED))
            .order_by(table.at.desc(), table.host, table.place)
            .limit(_MOST_RECENT)
        )
        with self._store.reading() as connection:
            rows = connection.execute(query).mappings().all()
        newest = {row["reference"]: row for row in reversed(rows)}
        return [event_of(row) for row in reversed(newest.values())][:_MOST_CAUSES]

    def standings(self, bundle: str) -> list[Mapping[str, Any]]:
        """Return the rows of a bundle, one for each host."""
        return [dict(row) for row in self._by_bundle.get(bundle, ())]

    @cached_property
    def _by_bundle(self) -> dict[str, list[Mapping[str, Any]]]:
        result: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in self._standings:
            result[row["bundle"]].append({**row, "quarantined": json.loads(row["quarantined"])})
        return dict(sorted(result.items()))

    def _of_bundle(self, standing: Mapping[str, Any]) -> HostRow:
        """Return the host of a standing, in the state of this bundle alone.

        A silent host, or a host with expired metadata, has this state for all of its bundles.
        """
        host, row = self.hosts[standing["host"]], self._rows[standing["host"]]
        state = self._states_of_bundles.get((standing["bundle"], standing["host"]))
        if state is None or state == host.state or host.state != row.condition:
            return host
        return replace(host, state=state, why="")

    @cached_property
    def _states_of_bundles(self) -> dict[tuple[str, str], str]:
        return {
            (row.bundle, row.host): row.condition for row in self._periods if row.bundle and row.ended is None
        }

    @cached_property
    def bundles(self) -> list[BundleView]:
        """All bundles of the fleet, with their versions, newest first."""
        return [
            BundleView(name, self._versions(name), self._history(name), self._rollouts(name))
            for name in self._by_bundle
        ]

    def _rollouts(self, bundle: str) -> list[RolloutView]:
        """Return the rollouts of a bundle with waiting hosts, the one for most hosts first."""
        published: Counter[str] = Counter()
        reached: Counter[str] = Counter()
        gave_up: Counter[str] = Counter()
        waiting: dict[str, list[WaitingHost]] = defaultdict(list)
        for row in self._by_bundle.get(bundle, ()):
            version = row["published"]
            published[version] += 1
            if row["enforced"] == version:
                reached[version] += 1
            elif version in row["quarantined"]:
                gave_up[version] += 1
            elif self._of_bundle(row).state == Condition.WAITING:
                host = self.hosts[row["host"]]
                waiting[version].append(WaitingHost(host, moment_of(row["waits_until"]), row["held"]))
        latest = datetime.max.replace(tzinfo=UTC)
        rollouts = [
            RolloutView(
                bundle,
                version,
                published[version],
                reached[version],
                gave_up[version],
                sorted(hosts, key=lambda item: (item.turn or latest, item.row.name)),
            )
            for version, hosts in waiting.items()
            if version
        ]
        return sorted(rollouts, key=lambda rollout: (-rollout.published_for, rollout.version))

    def bundle(self, name: str, most: int = 100) -> BundleHistory:
        """Return a bundle with at most ``most`` versions, the newest first."""
        bundle = next(item for item in self.bundles if item.name == name)
        ever: dict[str, set[str]] = defaultdict(set)
        failed: dict[str, set[str]] = defaultdict(set)
        last: dict[str, float] = {}
        for row in self._periods_of.get(name, ()):
            ever[row.version].add(row.host)
            if row.condition == Condition.FAILED:
                failed[row.version].add(row.host)
            ended = math.inf if row.ended is None else row.ended
            last[row.version] = max(ended, last.get(row.version, ended))
        current = {row.version: row for row in bundle.versions}
        past = [
            VersionRow(version, 0, {}, first=datetime.fromtimestamp(first, UTC))
            for version, first in self._first.get(name, {}).items()
            if version and version not in current
        ]
        records = [
            VersionRecord(
                row,
                max(len(ever[row.version]), row.hosts),
                len(failed[row.version]),
                datetime.fromtimestamp(last[row.version], UTC)
                if math.isfinite(last.get(row.version, math.inf))
                else None,
            )
            for row in sorted([*bundle.versions, *past], key=_newest_first, reverse=True)
        ]
        troubled = [
            host
            for row in self._by_bundle[name]
            if not Condition((host := self._of_bundle(row)).state).is_well
        ]
        return BundleHistory(
            bundle,
            records[:most],
            max(len(records) - most, 0),
            [failure for failure in self.failures if failure.bundle == name],
            sorted(troubled, key=lambda host: (_ORDER.index(host.state) * -1, host.name)),
        )

    @cached_property
    def _version_rows(self) -> dict[str, dict[str, VersionRow]]:
        return {bundle.name: {row.version: row for row in bundle.versions} for bundle in self.bundles}

    def _versions(self, bundle: str) -> list[VersionRow]:
        hosts: Counter[str] = Counter()
        gave_up: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        on_trial: Counter[str] = Counter()
        states: dict[str, Counter[str]] = defaultdict(Counter)
        for row in self._by_bundle.get(bundle, ()):
            hosts[row["enforced"]] += 1
            states[row["enforced"]][self._of_bundle(row).state] += 1
            on_trial[row["enforced"]] += row["good"] != row["enforced"]
            gave_up.update(row["quarantined"])
            if row["published"] != row["enforced"] and row["published"] not in row["quarantined"]:
                waiting[row["published"]] += 1
        first = self._first.get(bundle, {})
        names = {*hosts, *gave_up, *waiting} - {""}
        rows = [
            VersionRow(
                name,
                hosts[name],
                {str(item): states[name][item] for item in Condition if states[name][item]},
                gave_up[name],
                waiting[name],
                datetime.fromtimestamp(first[name], UTC) if name in first else None,
                on_trial[name],
            )
            for name in names
        ]
        return sorted(rows, key=_newest_first, reverse=True)

    @cached_property
    def _first(self) -> dict[str, dict[str, float]]:
        """The time at which the first host had each version of each bundle."""
        result: dict[str, dict[str, float]] = defaultdict(dict)
        for row in self._periods:
            if row.bundle:
                of_bundle = result[row.bundle]
                of_bundle[row.version] = min(row.began, of_bundle.get(row.version, row.began))
        return result

    def _history(self, bundle: str) -> Series:
        return self._counted(
            Period(row.version or "none", row.began, row.ended) for row in self._periods_of.get(bundle, ())
        )

    @cached_property
    def _periods_of(self) -> dict[str, list[Any]]:
        result: dict[str, list[Any]] = defaultdict(list)
        for row in self._periods:
            result[row.bundle].append(row)
        return result

    def _counted(self, periods: Iterable[Period], order: Iterable[str] = ()) -> Series:
        return counted(periods, (self.now - self.kept).timestamp(), self.now.timestamp(), order)

    def _conditions(self, rows: Iterable[Any]) -> Iterator[Period]:
        """Yield the conditions of hosts over time. A silent host is silent from ``silent_after`` after its last report
        on.
        """
        for row in rows:
            label = Condition(row.condition).label
            host = self.hosts.get(row.host)
            if row.ended is None and host is not None and host.state == Condition.SILENT and host.heard:
                since = max((host.heard + self.silent_after).timestamp(), row.began)
                yield Period(label, row.began, since)
                yield Period(Condition.SILENT.label, since, None)
            else:
                yield Period(label, row.began, row.ended)

    @cached_property
    def history(self) -> Series:
        """Hosts by state, over time."""
        order = [Condition(word).label for word in _ORDER]
        return self._counted(self._conditions(self._periods_of.get("", ())), order)

    def release(self, bundle: str, version: str) -> ReleaseView:
        """Return a version of a bundle, and its results on hosts."""
        result: dict[str, list[HostRow]] = {
            label: [] for label in (*dict.fromkeys(_GROUPS.values()), _WAITING)
        }
        published = 0
        for row in self._by_bundle.get(bundle, ()):
            host = self._of_bundle(row)
            published += row["published"] == version
            if row["enforced"] == version:
                result[_GROUPS[Condition(host.state)]].append(host)
            elif version in row["quarantined"]:
                result[_GROUPS[Condition.GAVE_UP]].append(host)
            elif row["published"] == version:
                is_held = host.state in (Condition.HELD, Condition.FAILED, Condition.SILENT)
                result[_GROUPS[Condition(host.state)] if is_held else _WAITING].append(host)
        for hosts in result.values():
            hosts.sort(key=lambda host: host.name)
        rows = [row for row in self._periods_of.get(bundle, ()) if row.version == version]
        versions = self._version_rows.get(bundle, {})
        names = {host.name for hosts in result.values() for host in hosts}
        failures = [failure for failure in self.failures if failure.bundle == bundle]
        failures = [
            failure for failure in failures if not names.isdisjoint(host.name for host in failure.hosts)
        ]
        return ReleaseView(
            versions.get(version) or VersionRow(version, 0, {}),
            bundle,
            published,
            self._counted(self._conditions(rows), [Condition(word).label for word in _ORDER]),
            result,
            failures,
        )

    def is_well(self, host: str) -> bool:
        """Return whether a host is in order and sends reports.

        Reports of a paused host contain no results, so its condition before the pause counts. If that is unknown, the
        host is not in order.
        """
        state = Condition(self.hosts[host].state)
        if state is not Condition.PAUSED:
            return state.is_well
        known = (
            (row.began, Condition(row.condition))
            for row in self._conditions_of.get(host, ())
            if Condition(row.condition) is not Condition.PAUSED
        )
        _, before = max(known, default=(0.0, Condition.FAILED))
        return before.is_well

    @cached_property
    def _conditions_of(self) -> dict[str, list[Any]]:
        result: dict[str, list[Any]] = defaultdict(list)
        for row in self._periods_of.get("", ()):
            result[row.host].append(row)
        return result

    def first_of(self, bundle: str, version: str) -> float | None:
        """Return when the first host had a version, in seconds since 1970, or ``None``."""
        return self._first.get(bundle, {}).get(version)

    def conditions_before(self, bundle: str, version: str) -> dict[str, str]:
        """Return the known condition of each host just before it first had a version."""
        began: dict[str, float] = {}
        for row in self._periods_of.get(bundle, ()):
            if row.version == version:
                began[row.host] = min(row.began, began.get(row.host, row.began))
        result: dict[str, tuple[float, str]] = {}
        for row in self._periods_of.get("", ()):
            # If a host never had the version, use its condition when the first host got it.
            until = began.get(row.host, self.first_of(bundle, version))
            if until is not None and row.began < until:
                result[row.host] = max(result.get(row.host, (0.0, "")), (row.began, row.condition))
        return {host: condition for host, (_, condition) in result.items()}

    # Failures

    @cached_property
    def failures(self) -> list[FailureView]:
        """The errors of the last runs of all hosts, grouped, those on most hosts first."""
        groups: dict[str, list[Any]] = defaultdict(list)
        for row in self._failing:
            groups[row["key"]].append(row)
        results = [self._failure(key, rows) for key, rows in groups.items()]
        return sorted(results, key=lambda item: (-len(item.hosts), item.bundle, item.reference, item.message))

    def _failure(self, key: str, rows: Sequence[Any]) -> FailureView:
        newest = max(rows, key=lambda row: (self._rows[row["host"]].at, row["host"]))
        return FailureView(
            key,
            newest["bundle"],
            newest["reference"],
            msgspec.json.decode(newest["problem"], type=Problem),
            sorted((self.hosts[row["host"]] for row in rows), key=lambda host: host.name),
            datetime.fromtimestamp(min(row["since"] for row in rows), UTC),
            datetime.fromtimestamp(self._rows[newest["host"]].at, UTC),
            msgspec.json.decode(newest["example"], type=Problem),
            newest["host"],
        )

    # Resources

    @cached_property
    def restless(self) -> list[RestlessView]:
        """The resources that change in run after run, those on most hosts first."""
        groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for row in self._restless:
            groups[row["bundle"], row["reference"]].append(row)
        results = []
        for (bundle, reference), rows in groups.items():
            unlike = dict.fromkeys(item for row in rows for item in differences_of(row["differences"]))
            names = sorted({row["host"] for row in rows})
            results.append(RestlessView(bundle, reference, names, list(unlike)[:10]))
        return sorted(results, key=lambda item: (-len(item.hosts), item.bundle, item.reference))

    def resources(self, most: int = 1000) -> list[ResourceView]:
        """Return the resources that changed or failed, most frequent first, without their events."""
        table = database.events.c
        query = select(
            table.resource,
            table.reference,
            table.bundle,
            table.host,
            table.state,
            func.count().label("times"),
        ).group_by(table.resource, table.reference, table.bundle, table.host, table.state)
        groups: dict[str, list[Any]] = defaultdict(list)
        with self._store.reading() as connection:
            for row in connection.execute(query):
                groups[row.reference].append(row)
        ranked = sorted(groups, key=lambda name: (-sum(row.times for row in groups[name]), name))
        names = dict.fromkeys([*(item.reference for item in self.restless), *ranked[:most]])
        restless = {item.reference: item for item in self.restless}
        return [self._resource(name, groups.get(name, ()), restless.get(name)) for name in names]

    def _resource(self, reference: str, rows: Sequence[Any], restless: RestlessView | None) -> ResourceView:
        names = {row.host for row in rows} | set(restless.hosts if restless else ())
        bundles = {row.bundle for row in rows} | ({restless.bundle} if restless else set())
        return ResourceView(
            reference,
            sorted(bundles),
            sum(row.times for row in rows if row.state in (State.CHANGED, State.REFRESHED)),
            sum(row.times for row in rows if row.state == State.FAILED),
            sorted((self.hosts[name] for name in names if name in self.hosts), key=lambda host: host.name),
            restless,
        )

    def recent(self, reference: str) -> list[tuple[str, datetime, EventView]]:
        """Return the newest events of a resource, each with its host and time."""
        table = database.events.c
        query = (
            select(database.events)
            .where(table.resource == resource_key(reference))
            .order_by(table.at.desc(), table.host, table.place)
            .limit(_MOST_RECENT)
        )
        with self._store.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [(row["host"], datetime.fromtimestamp(row["at"], UTC), event_of(row)) for row in rows]

    # The whole

    def fleet(self, refused: int = 0) -> FleetView:
        """Return an overview of the fleet. ``refused`` is the number of invalid documents."""
        soon = (self.now + _EXPIRES_SOON).timestamp()
        expire = [
            (self.hosts[name], datetime.fromtimestamp(row.expires, UTC))
            for name, row in self._rows.items()
            if row.expires is not None and row.expires < soon
        ]
        soon_expiring = [(host, when) for host, when in expire if Condition(host.state).is_well]
        silent = [host for host in self.hosts.values() if host.state == Condition.SILENT]
        heard = [host.heard for host in self.hosts.values() if host.heard]
        return FleetView(
            self.now,
            max(heard, default=None),
            self.states,
            self.history,
            self.bundles,
            self.failures,
            sorted(silent, key=lambda host: (host.heard or self.now, host.name)),
            sorted(expire, key=lambda pair: (pair[1], pair[0].name)),
            self.restless,
            refused,
            [*self.attention, *([expiring(soon_expiring)] if soon_expiring else [])],
            sum(not Condition(host.state).is_well for host in self.hosts.values()),
            self.rebooting,
        )


_GROUPS = {
    Condition.FAILED: "Failed",
    Condition.GAVE_UP: "Rolled back",
    Condition.HELD: "Held",
    Condition.SILENT: "Silent",
    Condition.PAUSED: "Held",
    Condition.WAITING: "In sync",
    Condition.IN_ORDER: "In sync",
}


_WAITING = "Waiting for the rollout"


def _newest_first(row: VersionRow) -> tuple[datetime, str]:
    return row.first or datetime.max.replace(tzinfo=UTC), row.version
