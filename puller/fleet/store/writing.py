"""Storage of documents: in any order, repeatedly, and from several processes.

* The newest report of a host defines its current state. A late report adds only history. A repeated report adds
  nothing.
* A report without changes or failures that equals its predecessor updates one row.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Table, and_, bindparam, select, tuple_

from foundation.differences import Difference
from foundation.formatting import json_values
from foundation.problems import Problem, ProblemCode, replaced
from foundation.times import parse_moment
from puller.exit_status import ExitStatus
from puller.fleet.host_document import Document, general_problem, key_of, plain, without_host
from puller.fleet.store import database
from puller.fleet.views import conditions_of_bundles
from puller.reporting.history import is_eventful
from puller.reporting.report import BundleReport, Event, Report, State
from puller.reporting.terminal_rows import why_skipped

_MOST_FAILING = 100
"""Maximum grouped failures of one run. Further failures add no information."""
_MOST_EVENTS = 500
_LONGEST, _LONGEST_DIFF = 2000, 16_000  # characters
_AT_ONCE = 400
"""Hosts in one statement, because databases limit the number of parameters."""
_UNEXPLAINED = Problem(code=ProblemCode.CHANGE_FAILED, message="failed")
_TOLD = (State.CHANGED, State.REFRESHED, State.FAILED)


class Put(NamedTuple):
    """The counts of documents by result."""

    newest: int
    """Documents that are the newest of their host."""
    late: int
    """Earlier documents with changes or failures, which were stored."""
    known: int
    """Documents without new information."""


class _Known(NamedTuple):
    """The stored data of a host."""

    run: str
    at: float
    details: str


def put(connection: Connection, documents: Iterable[Document]) -> Put:
    """Store documents, in a transaction of the caller."""
    ordered = sorted(documents, key=lambda document: (document.at, document.run))
    known = _known(connection, {document.host for document in ordered})
    there = _stored_runs(connection, ordered)
    changes = _Changes(connection)
    newest = late = repeated = 0
    for document in ordered:
        before, at = known.get(document.host), document.at.timestamp()
        if before is not None and (document.run == before.run or (document.host, document.run) in there):
            repeated += 1
            continue
        eventful = is_eventful(document.sent.report)
        if eventful:
            there.add((document.host, document.run))
            changes.add_run(document)
        if before is not None and (at, document.run) < (before.at, before.run):
            late, repeated = late + eventful, repeated + (not eventful)
            continue
        newest += 1
        known[document.host] = changes.set_newest(document, before)
    changes.write()
    return Put(newest, late, repeated)


def _known(connection: Connection, names: Collection[str]) -> dict[str, _Known]:
    table = database.hosts.c
    hosts: dict[str, _Known] = {}
    for part in _parts(sorted(names)):
        rows = connection.execute(
            select(table.host, table.run, table.at, table.details).where(table.host.in_(part))
        )
        hosts.update((row.host, _Known(row.run, row.at, row.details)) for row in rows)
    return hosts


def _stored_runs(connection: Connection, documents: Sequence[Document]) -> set[tuple[str, str]]:
    table, results = database.runs.c, set()
    for part in _parts([(document.host, document.run) for document in documents]):
        rows = connection.execute(
            select(table.host, table.run).where(tuple_(table.host, table.run).in_(part))
        )
        results |= {(row.host, row.run) for row in rows}
    return results


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


class _Failing:
    """The start of each current failure of a host, for the documents of one batch."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.before = set(keys)
        """The failures that every document so far contains. If the store has an earlier start, that one applies."""
        self.since: dict[str, float] = {}

    def go_on(self, keys: Sequence[str], at: float) -> None:
        """Add the failures of the next document."""
        self.before.intersection_update(keys)
        self.since = {key: self.since.get(key, at) for key in keys}


class _Changes:
    """Pending changes of the database, collected so that a batch takes few statements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._hosts: dict[str, dict[str, Any]] = {}
        self._new: set[str] = set()
        self._details: dict[str, Document] = {}
        """The newest documents whose bundles, failures or conditions differ from earlier ones."""
        self._failing: dict[str, _Failing] = {}
        self._periods: list[tuple[float, Document]] = []
        self._runs: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []

    def add_run(self, document: Document) -> None:
        """Add a run with changes or failures."""
        report, at = document.sent.report, document.at.timestamp()
        self._runs.append(
            {
                "host": document.host,
                "run": document.run,
                "at": at,
                "exit_status": report.exit_status,
                "outcome": _text(outcome(report, document.why)),
                "counts": _json(counts(report)),
                "problems": _json_problems(report.problems[:50]),
            }
        )
        for place, (bundle, event) in enumerate(events_to_store(report)):
            self._events.append(
                {
                    "host": document.host,
                    "run": document.run,
                    "place": place,
                    "at": at,
                    "bundle": _text(bundle.name),
                    "reference": _text(event.reference),
                    "resource": resource_key(_text(event.reference)),
                    "state": str(event.state),
                    "problems": _json_problems(event.problems[:20]),
                    "sentences": _json([_text(line) for line in sentences(event)]),
                    "differences": _objects(differences(event)),
                }
            )

    def set_newest(self, document: Document, before: _Known | None) -> _Known:
        """Make a document the newest of its host."""
        sent, host = document.sent, document.host
        details = _digest(document)
        if before is None:
            self._new.add(host)
        if before is None or before.details != details:
            self._details[host] = document
            keys = [row["key"] for row in _failing(document, {})]
            self._failing.setdefault(host, _Failing(keys)).go_on(keys, document.at.timestamp())
            self._periods.append((document.at.timestamp(), document))
        facts = _json(sent.facts)
        self._hosts[host] = {
            "host": host,
            "run": document.run,
            "at": document.at.timestamp(),
            "condition": str(document.condition),
            "why": _text(document.why),
            "exit_status": sent.report.exit_status,
            "system": _text(system_of(sent.facts)),
            "agent": _text(sent.report.puller),
            "expires": seconds(sent.metadata_expire),
            "ahead": document.ahead.total_seconds() if document.ahead else None,
            "facts": facts,
            "details": details,
            "document": document.packed,
        }
        return _Known(document.run, document.at.timestamp(), details)

    def write(self) -> None:
        """Write all pending changes."""
        self._write_details()
        self._write_periods()
        new = [row for host, row in self._hosts.items() if host in self._new]
        old = [row for host, row in self._hosts.items() if host not in self._new]
        self._insert(database.hosts, new)
        if old:
            table = database.hosts
            names = [column.name for column in table.columns if column.name != "host"]
            values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
            statement = table.update().where(table.c.host == bindparam("new_host")).values(values)
            self._connection.execute(
                statement, [{f"new_{name}": value for name, value in row.items()} for row in old]
            )
        self._insert(database.runs, self._runs)
        self._insert(database.events, self._events)

    def _write_details(self) -> None:
        """Write the bundles, failures and restless resources of changed hosts."""
        since = {
            (host, key): at for host, failing in self._failing.items() for key, at in failing.since.items()
        }
        known = self._failing_since(self._details).items()
        since |= {(host, key): at for (host, key), at in known if key in self._failing[host].before}
        for table in (database.standings, database.failing, database.restless):
            self._delete_of(table, [host for host in self._details if host not in self._new])
        documents = self._details.values()
        self._insert(database.standings, [row for document in documents for row in _standings(document)])
        self._insert(database.failing, [row for document in documents for row in _failing(document, since)])
        self._insert(database.restless, [row for document in documents for row in _restless(document)])

    def _failing_since(self, hosts: Iterable[str]) -> dict[tuple[str, str], float]:
        table, result = database.failing.c, {}
        for part in _parts(list(hosts)):
            rows = self._connection.execute(
                select(table.host, table.key, table.since).where(table.host.in_(part))
            )
            result.update({(row.host, row.key): row.since for row in rows})
        return result

    def _write_periods(self) -> None:
        """End the periods of changed values, and begin new ones."""
        current = self._current_periods({document.host for _, document in self._periods})
        ended: list[dict[str, Any]] = []
        none: list[dict[str, Any]] = []
        begun: dict[tuple[str, str], dict[str, Any]] = {}
        for at, document in self._periods:
            desired = _conditions(document)
            held = current.setdefault(document.host, {})
            for bundle in [*held, *(name for name in desired if name not in held)]:
                row, then = held.get(bundle), desired.get(bundle)
                if row is not None and then == (row["version"], row["condition"]):
                    continue
                if row is not None:
                    self._end(row, at, begun, ended, none)
                    del held[bundle]
                if then is not None:
                    version, condition = then
                    held[bundle] = new = {
                        "host": document.host,
                        "bundle": bundle,
                        "began": at,
                        "ended": None,
                        "version": version,
                        "condition": condition,
                    }
                    begun[document.host, bundle, at] = new  # type: ignore[index]
        table = database.periods
        row_of = and_(
            table.c.host == bindparam("of_host"),
            table.c.bundle == bindparam("of_bundle"),
            table.c.began == bindparam("of_began"),
        )
        if ended:
            self._connection.execute(table.update().where(row_of).values(ended=bindparam("until")), ended)
        if none:
            self._connection.execute(table.delete().where(row_of), none)
        self._insert(database.periods, list(begun.values()))

    @staticmethod
    def _end(
        row: dict[str, Any],
        at: float,
        begun: dict[Any, dict[str, Any]],
        ended: list[dict[str, Any]],
        none: list[dict[str, Any]],
    ) -> None:
        """End a period. A period without duration is deleted. Runs with equal or wrong times can cause one."""
        key = (row["host"], row["bundle"], row["began"])
        if key in begun:
            if row["began"] >= at:  # the period has no duration
                del begun[key]
            else:
                row["ended"] = at
            return
        of = {"of_host": key[0], "of_bundle": key[1], "of_began": key[2]}
        if row["began"] >= at:
            none.append(of)
        else:
            ended.append({**of, "until": at})

    def _current_periods(self, hosts: Collection[str]) -> dict[str, dict[str, dict[str, Any]]]:
        table = database.periods
        result: dict[str, dict[str, dict[str, Any]]] = {}
        for part in _parts(sorted(set(hosts) - self._new)):
            rows = self._connection.execute(
                select(table).where(table.c.host.in_(part), table.c.ended.is_(None))
            )
            for row in rows.mappings():
                result.setdefault(row["host"], {})[row["bundle"]] = dict(row)
        return result

    def _insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self._connection.execute(table.insert(), rows)

    def _delete_of(self, table: Table, hosts: Sequence[str]) -> None:
        for part in _parts(hosts):
            self._connection.execute(table.delete().where(table.c.host.in_(part)))


# Rows of a document


def _digest(document: Document) -> str:
    """Return a digest of the document's rows in the tables below the host."""
    rows = [
        [
            document.condition,
            _conditions(document),
        ],
        _standings(document),
        _failing(document, {}, at=0.0),
        _restless(document),
    ]
    return hashlib.sha256(_json(rows).encode()).hexdigest()[:32]


def _conditions(document: Document) -> dict[str, tuple[str, str]]:
    """Return the version and the condition of each bundle. The empty name stands for the host itself."""
    result = {"": ("", str(document.condition))}
    of_bundles = conditions_of_bundles(document.sent)
    for standing in document.sent.bundles:
        result[_name(standing.name)] = (_text(standing.enforced), str(of_bundles[standing.name]))
    return result


def _standings(document: Document) -> list[dict[str, Any]]:
    rows = {
        _name(bundle.name): {
            "host": document.host,
            "bundle": _name(bundle.name),
            "channel": _text(bundle.channel),
            "enforced": _text(bundle.enforced),
            "since": seconds(bundle.enforced_since),
            "published": _text(bundle.published),
            "waits_until": _text(bundle.waits_until),
            "good": _text(bundle.good),
            "held": _text(bundle.held),
            "pin": _text(bundle.pin),
            "quarantined": _json([_text(version) for version in bundle.quarantined[:100]]),
        }
        for bundle in document.sent.bundles
    }
    return list(rows.values())


def _failing(
    document: Document, since: Mapping[tuple[str, str], float], at: float | None = None
) -> list[dict[str, Any]]:
    host, report = document.host, document.sent.report
    if at is None:
        at = document.at.timestamp()
    result: dict[str, dict[str, Any]] = {}
    for bundle, reference, example in _failures(report):
        problem = general_problem(example, host)
        reference = without_host(plain(reference), host)
        key = key_of(bundle, reference, problem)
        result.setdefault(
            key,
            {
                "host": host,
                "key": key,
                "bundle": _text(bundle),
                "reference": _text(reference),
                "problem": _encoded(problem),
                "example": _encoded(example),
                "since": since.get((host, key), at),
            },
        )
        if len(result) == _MOST_FAILING:
            break
    return list(result.values())


def _failures(report: Report) -> Iterator[tuple[str, str, Problem]]:
    """Yield the bundle, the resource and the problem of each failure of a run."""
    # A successful run may have warnings among its problems, which are not failures.
    if report.exit_status not in (ExitStatus.OK, ExitStatus.CHANGED, ExitStatus.HELD):
        for problem in report.problems:
            yield "", "", stored_problem(problem)
    for bundle in report.bundles:
        for item in _with_given_up(bundle):
            for event in item.events:
                if event.state is State.FAILED:
                    for problem in event.problems or [_UNEXPLAINED]:
                        yield bundle.name, event.reference, stored_problem(problem)


def events_to_store(report: Report) -> Iterator[tuple[BundleReport, Event]]:
    """Yield the resources that changed, failed, or waited for a failed one, up to a readable number.

    Each has the report of its bundle, and the resources of a release that was given up come first.
    """
    result = (
        (item, event)
        for bundle in report.bundles
        for item in _with_given_up(bundle)
        for event in item.events
        if event.state in _TOLD or event.unmet_requirements
    )
    for _, pair in zip(range(_MOST_EVENTS), result, strict=False):
        yield pair


def _with_given_up(bundle: BundleReport) -> Iterator[BundleReport]:
    if bundle.given_up is not None:
        yield bundle.given_up
    yield bundle


def _restless(document: Document) -> list[dict[str, Any]]:
    return [
        {
            "host": document.host,
            "place": place,
            "bundle": _text(item.bundle),
            "reference": _text(item.reference),
            "runs": item.runs,
            "changes": item.changes,
            "differences": _objects(item.differences[:10]),
        }
        for place, item in enumerate(document.sent.restless[:200])
    ]


def resource_key(reference: str) -> str:
    """Return the identity of a resource, by its stored reference."""
    return hashlib.sha256(reference.encode()).hexdigest()[:16]


def sentences(event: Event) -> list[str]:
    """Return the reasons for the state of a resource that are neither problems nor differences."""
    if event.is_planned:
        return ["The change failed. These differences were planned:"]
    if event.problems:
        return []
    if event.unmet_requirements:
        return [why_skipped(stored_event(event))]
    return event.notes[:20]


def stored_event(event: Event) -> Event:
    """Return an event of a bounded size, in characters that databases and pages can hold."""
    return msgspec.structs.replace(
        event,
        name=_text(event.name),
        alias=_text(event.alias),
        problems=problems(event.problems),
        differences=differences(event),
        notes=[_text(note) for note in event.notes[:20]],
        unmet_requirements=[_text(name) for name in event.unmet_requirements[:20]],
        skip_reason=_text(event.skip_reason),
    )


def problems(found: Sequence[Problem], most: int = 20) -> list[Problem]:
    """Return the first problems, each of a bounded size."""
    return [stored_problem(problem) for problem in found[:most]]


def stored_problem(problem: Problem) -> Problem:
    """Return a problem of a bounded size, in characters that databases and pages can hold."""
    location = msgspec.structs.replace(problem.location, path=problem.location.path[:20])
    short = replaced(problem, location=location, suggestions=problem.suggestions[:5], related=())
    return short.map_texts(_text)


def differences(event: Event) -> list[Difference]:
    """Return the first differences of a resource, with the beginnings of their diffs."""
    retained, room = [], _LONGEST_DIFF
    for difference in event.differences[:20]:
        diff = plain(difference.diff[:room])
        room -= len(diff)
        retained.append(msgspec.structs.replace(difference.map_texts(_text), diff=diff))
    return retained


def outcome(report: Report, why: str) -> str:
    """Return a short description of a run."""
    if report.paused:
        return f"nothing was applied: {report.paused}"
    if why:
        return why
    changed = sum(bundle.summary.changes for bundle in report.bundles)
    return f"{changed} changed" if changed else "in sync"


def counts(report: Report) -> dict[str, int]:
    """Return the number of resources of a run by state."""
    names = ("stable", "changed", "refreshed", "failed", "skipped")
    result = {name: sum(getattr(bundle.summary, name) for bundle in report.bundles) for name in names}
    return {name: count for name, count in result.items() if count}


def system_of(facts: Mapping[str, Any]) -> str:
    """Return the operating system as ``Debian 12``. Empty if the facts do not contain it."""
    result = facts.get("os")
    if not isinstance(result, dict):
        return ""
    release = result.get("release")
    major = release.get("major") if isinstance(release, dict) else release
    name = result.get("name")
    words = [str(word) for word in (name, major) if isinstance(word, str | int) and str(word)]
    return " ".join(words)[:80]


def seconds(text: str) -> float | None:
    """Return a time in ISO 8601 as seconds, or ``None`` if it is invalid or not of the years 2000 to 8999."""
    try:
        moment = parse_moment(text)
    except ValueError:
        return None
    if not 2000 <= moment.year < 9000:  # in another time zone it may be outside the calendar
        return None
    return moment.timestamp()


def _text(text: str) -> str:
    return plain(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _name(text: str) -> str:
    return plain(text[:255])


def _objects(differences: Sequence[Difference]) -> str:
    return _json(
        json_values([msgspec.structs.replace(item.map_texts(_text), diff=item.diff) for item in differences])
    )


def _json_problems(findings: Sequence[Problem]) -> str:
    return msgspec.json.encode(problems(findings, len(findings))).decode()


def _encoded(problem: Problem) -> str:
    return msgspec.json.encode(problem).decode()


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
