"""Queries of the store about hosts: rows, documents, facts, runs and next steps."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, func, select

from foundation.differences import Difference
from foundation.problems import Problem, ProblemCode
from puller.delivery.report_document import unpack
from puller.errors import SourceError
from puller.exit_status import ExitStatus
from puller.fleet.attention import CHECK_THE_HOST, ENABLE, REFRESH_THE_SITE, UNPIN
from puller.fleet.store import database
from puller.fleet.store.database import Store
from puller.fleet.store.writing import (
    counts,
    events_to_store,
    outcome,
    problems,
    seconds,
    stored_event,
)
from puller.fleet.views import (
    Condition,
    EventView,
    HostRow,
    HostView,
    RestlessView,
    RunView,
    StandingView,
)
from puller.reporting.headline import next_step
from puller.reporting.report import Event, Report, SentFacts, SentReport, State
from puller.values.maintenance import PendingReboot

AT_ONCE = 400
"""Hosts in one statement."""
_MOST_RUNS = 20
_FOR_THE_PUBLISHER = (
    ExitStatus.SIGNATURE,
    ExitStatus.ROLLBACK,
    ExitStatus.REJECTED,
    ExitStatus.HEALTH_FAILED,
)
"""Exit statuses whose next step is the publisher's."""
_decoder = msgspec.json.Decoder(SentReport)


class _ReportWithReboots(msgspec.Struct):
    reboots: list[PendingReboot] = []


class _SentReboots(msgspec.Struct):
    """The reboots in a document, which is decoded faster without its other parts."""

    report: _ReportWithReboots


_reboots_decoder = msgspec.json.Decoder(_SentReboots)
_facts_decoder = msgspec.json.Decoder(SentFacts)
_Document = TypeVar("_Document")


class _Recipient(msgspec.Struct):
    """The only field of a document that a list of recipients needs. Decoding a complete document takes longer."""

    recipient: str = ""


_recipient_decoder = msgspec.json.Decoder(_Recipient)


class HostReader:
    """The hosts at the time ``now``. Hosts without a report for ``silent_after`` are silent.

    Common data is read once. Methods raise ``SourceError``.
    """

    def __init__(self, store: Store, now: datetime, silent_after: timedelta | None = None) -> None:
        self._store = store
        self.now = now
        with store.reading() as connection:
            hours = float(store.setting(connection, "silent"))
            self.kept = timedelta(days=float(store.setting(connection, "keep")))
            self.silent_after = timedelta(hours=hours) if silent_after is None else silent_after
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        table = database.hosts.c
        columns = (
            table.host,
            table.run,
            table.at,
            table.condition,
            table.why,
            table.system,
            table.expires,
            table.ahead,
        )
        self._rows = {row.host: row for row in connection.execute(select(*columns).order_by(table.host))}
        self._standings = connection.execute(select(database.standings)).mappings().all()
        self._failing = connection.execute(select(database.failing)).mappings().all()
        self._restless = connection.execute(select(database.restless)).mappings().all()
        begin = (self.now - self.kept).timestamp()
        periods = database.periods.c
        query = select(database.periods).where(periods.ended.is_(None) | (periods.ended > begin))
        self._periods = connection.execute(query).all()

    @cached_property
    def hosts(self) -> dict[str, HostRow]:
        """All hosts by name."""
        bundles: dict[str, dict[str, str]] = defaultdict(dict)
        for standing in self._standings:
            if standing["enforced"]:
                bundles[standing["host"]][standing["bundle"]] = standing["enforced"]
        return {name: self._host_row(row, bundles.get(name, {})) for name, row in self._rows.items()}

    def _host_row(self, row: Any, bundles: Mapping[str, str]) -> HostRow:
        heard = datetime.fromtimestamp(row.at, UTC)
        state, why, since = row.condition, row.why, self._since.get(row.host)
        if self.now - heard > self.silent_after:
            was = Condition(state)
            state = str(Condition.SILENT)
            why = f"it was {was.label}{': ' if why else ''}{why}"
            since = heard
        elif self._is_expired(row) and Condition(state).is_well:
            state, why = str(Condition.FAILED), "the site's metadata on it have expired"
            since = datetime.fromtimestamp(row.expires, UTC)
        return HostRow(row.host, state, why, heard, since, row.system, dict(sorted(bundles.items())))

    def _is_expired(self, row: Any) -> bool:
        return row.expires is not None and row.expires <= self.now.timestamp()

    @cached_property
    def _since(self) -> dict[str, datetime]:
        """The begin of the current state of each host."""
        return {
            row.host: datetime.fromtimestamp(row.began, UTC)
            for row in self._periods
            if not row.bundle and row.ended is None
        }

    @cached_property
    def states(self) -> dict[str, int]:
        """The number of hosts in each state. Includes empty states only for *in order*."""
        counter = Counter(row.state for row in self.hosts.values())
        return {str(item): counter[item] for item in Condition if counter[item] or item is Condition.IN_ORDER}

    def facts(self, names: Collection[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the facts of the named hosts, or of all hosts."""
        table = database.hosts.c
        for part in in_parts(sorted(self.hosts if names is None else names)):
            with self._store.reading() as connection:
                query = select(table.host, table.facts).where(table.host.in_(part)).order_by(table.host)
                rows = connection.execute(query).all()
            for row in rows:
                yield row.host, json.loads(row.facts)

    def sent_facts(self) -> Iterator[tuple[str, SentFacts]]:
        """Yield the facts of all hosts with their limits. Raises ``SourceError`` for a damaged document."""
        return self._latest(self.hosts, _facts_decoder)

    @cached_property
    def rebooting(self) -> dict[str, list[PendingReboot]]:
        """The pending reboots by host. Raises ``SourceError`` for a damaged document."""
        documents = self._latest(self.hosts, _reboots_decoder)
        return {name: document.report.reboots for name, document in documents if document.report.reboots}

    def details(self, names: Sequence[str]) -> Iterator[HostView]:
        """Yield complete hosts in the order of ``names``. Unknown hosts are skipped."""
        for part in in_parts(names):
            with self._store.reading() as connection:
                documents = self._documents(connection, part)
                runs = self._runs(connection, part)
            for name in part:
                if name in documents and name in self.hosts:
                    yield self._details(name, documents[name], runs.get(name, []))

    def recipients(self, names: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the named hosts, or all hosts, with their recipients for encrypted files.

        The recipient is empty without a key, and for reports of earlier versions of Puller. Raises ``SourceError`` for
        a damaged document.
        """
        for name, document in self._latest(self.hosts if names is None else names, _recipient_decoder):
            yield name, document.recipient

    def _latest(
        self, names: Iterable[str], decoder: "msgspec.json.Decoder[_Document]"
    ) -> Iterator[tuple[str, _Document]]:
        """Yield the decoded last documents of hosts, by name. Raises ``SourceError`` for a damaged document."""
        for part in in_parts(sorted(names)):
            with self._store.reading() as connection:
                documents = self._documents(connection, part)
            for name, packed in sorted(documents.items()):
                yield name, self._decoded(name, packed, decoder)

    def _documents(self, connection: Connection, names: Sequence[str]) -> dict[str, bytes]:
        table = database.hosts.c
        rows = connection.execute(select(table.host, table.document).where(table.host.in_(names)))
        return {row.host: bytes(row.document) for row in rows}

    def _runs(self, connection: Connection, names: Sequence[str]) -> dict[str, list[RunView]]:
        """Return the newest runs with changes or failures, except the last run of each host."""
        table = database.runs.c
        rank = func.row_number().over(partition_by=table.host, order_by=(table.at.desc(), table.run.desc()))
        ranked = select(database.runs, rank.label("rank")).where(table.host.in_(names)).subquery()
        query = select(ranked).where(ranked.c.rank <= _MOST_RUNS).order_by(ranked.c.host, ranked.c.rank)
        rows = [
            row for row in connection.execute(query).mappings() if row["run"] != self._run_of(row["host"])
        ]
        events = self._events(connection, {(row["host"], row["run"]) for row in rows})
        result: dict[str, list[RunView]] = defaultdict(list)
        for row in rows:
            result[row["host"]].append(
                RunView(
                    row["run"],
                    datetime.fromtimestamp(row["at"], UTC),
                    row["exit_status"],
                    row["outcome"],
                    json.loads(row["counts"]),
                    _problems(row["problems"]),
                    events.get((row["host"], row["run"]), []),
                )
            )
        return result

    def _run_of(self, host: str) -> str:
        row = self._rows.get(host)
        return row.run if row is not None else ""

    def _events(
        self, connection: Connection, keys: set[tuple[str, str]]
    ) -> dict[tuple[str, str], list[EventView]]:
        table = database.events.c
        result: dict[tuple[str, str], list[EventView]] = defaultdict(list)
        for part in in_parts(sorted({run for _, run in keys})):
            query = (
                select(database.events)
                .where(table.run.in_(part))
                .order_by(table.host, table.run, table.place)
            )
            for row in connection.execute(query).mappings():
                if (row["host"], row["run"]) in keys:
                    result[row["host"], row["run"]].append(event_of(row))
        return result

    def _details(self, name: str, packed: bytes, runs: list[RunView]) -> HostView:
        sent = self._sent(name, packed)
        row = self._rows[name]
        notes = [sent.left_out] if sent.left_out else []
        notes += map(str, sent.report.reboots)
        if row.ahead:
            ahead = timedelta(seconds=round(row.ahead))
            notes.append(f"its clock is {ahead} ahead: times of its last report are those of its arrival")
        return HostView(
            self.hosts[name],
            sent.report.puller,
            moment_of(sent.metadata_expire),
            sent.facts,
            [_standing(bundle) for bundle in sent.bundles],
            [_last_run(sent.report, row), *runs],
            [
                RestlessView(bundle.bundle, bundle.reference, [name], bundle.differences)
                for bundle in sent.restless
            ],
            notes,
            self._next_step(sent)[0],
            sent.recipient,
        )

    def _next_step(self, sent: SentReport) -> tuple[str, str]:
        """Return what a person should do about a host, and the host for the commands. Empty: the publisher."""
        report, name = sent.report, sent.host
        host, row = self.hosts[name], self._rows[name]
        if host.state == Condition.SILENT:
            return CHECK_THE_HOST, name
        if host.state == Condition.PAUSED:
            return ENABLE, name
        if report.exit_status == ExitStatus.EXPIRED or (
            self._is_expired(row) and host.state != row.condition
        ):
            return REFRESH_THE_SITE, ""
        todo = next_step(report)
        pinned = [item.name for item in sent.bundles if item.pin and item.pin != item.published]
        if host.state == Condition.HELD and pinned and not todo:
            return UNPIN.format(pinned[0]), name
        return todo, "" if report.exit_status in _FOR_THE_PUBLISHER else name

    def _step_of(self, name: str) -> tuple[str, str]:
        with self._store.reading() as connection:
            documents = self._documents(connection, [name])
        return self._next_step(self._sent(name, documents[name]))

    def _sent(self, name: str, packed: bytes) -> SentReport:
        return self._decoded(name, packed, _decoder)

    def _decoded(self, name: str, packed: bytes, decoder: "msgspec.json.Decoder[_Document]") -> _Document:
        try:
            return decoder.decode(unpack(packed))
        except (ValueError, msgspec.DecodeError) as error:
            raise SourceError(
                f"{self._store.name}: the last report of {name} is damaged: {error}",
                code=ProblemCode.UNUSABLE_STORE,
            ) from error

    def bundles_of_hosts(self) -> dict[str, list[str]]:
        """Return the bundles in the configuration of each host."""
        result: dict[str, list[str]] = defaultdict(list)
        for row in self._standings:
            result[row["host"]].append(row["bundle"])
        return {name: sorted(bundles) for name, bundles in result.items()}

    def run_of(self, host: str) -> str:
        """Return the identity of the last run of a host. Empty for an unknown host."""
        return self._run_of(host)


def moment_of(text: str) -> datetime | None:
    """Return the time in a text of a host, or ``None`` if it is invalid."""
    at = seconds(text)
    return None if at is None else datetime.fromtimestamp(at, UTC)


def in_parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the items in parts that fit one statement."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def event_of(row: Any) -> EventView:
    """Return the event of a row of the table of events."""
    kind, _, name = row["reference"].partition("#")
    state, texts = State(row["state"]), json.loads(row["sentences"])
    event = Event(
        type=kind,
        name=name,
        state=state,
        problems=_problems(row["problems"]),
        differences=differences_of(row["differences"]),
        is_planned=state is State.FAILED and bool(texts),
        skip_reason=texts[0] if state is State.SKIPPED and texts else "",
        notes=texts if state not in (State.FAILED, State.SKIPPED) else [],
    )
    return EventView(row["bundle"], event)


def _problems(text: str) -> list[Problem]:
    return msgspec.json.decode(text, type=list[Problem])


def differences_of(text: str) -> list[Difference]:
    """Return the differences in a stored text."""
    return msgspec.json.decode(text, type=list[Difference])


def _standing(item: Any) -> StandingView:
    return StandingView(
        item.name,
        item.channel,
        item.enforced,
        moment_of(item.enforced_since),
        item.published,
        item.good,
        item.held,
        item.pin,
        item.quarantined,
        moment_of(item.waits_until),
    )


def _last_run(report: Report, row: Any) -> RunView:
    reported = [
        EventView(bundle.name, stored_event(event), bundle.version)
        for bundle, event in events_to_store(report)
    ]
    return RunView(
        report.run,
        datetime.fromtimestamp(row.at, UTC),
        report.exit_status,
        outcome(report, row.why),
        counts(report),
        problems(report.problems, 50),
        reported,
    )
