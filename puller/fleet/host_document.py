"""The document of a host as received, equal problems of several hosts, and the exports of hosts for other hosts.

* The parser is strict, since a host may send any content.
* A document describes only the host that its directory is named after.
* Its texts contain only characters that databases and pages can hold.
* Equal problems have the same code, bundle, resource, property and name. No message is compared, because it contains
  values of one host or one moment, such as the output of a tool. The name of the reporting host is replaced in the
  values that are compared: ``file#/srv/web1`` on the host ``web1`` equals ``file#/srv/web2`` on ``web2``.

Exports of hosts are collected into data for other hosts:

* Each value is checked against its type in the manifest of the host's version, since a host may send any value.
* A host with a missing or invalid value is omitted and listed. Incomplete values would break the configuration of
  other hosts.
"""

import gzip
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from foundation.problems import Problem
from puller.delivery.report_document import LARGEST, LARGEST_JSON, unpack
from puller.fleet.views import Condition, condition_of
from puller.reporting.report import PublishedBundle, SentReport
from puller.values.export_types import Export, Value, find_problem
from puller.values.foreign_text import EXPECTED_NAME, is_host_name

SUFFIXES = (".json.gz", ".json")
MOST_BYTES = max(LARGEST, LARGEST_JSON)
"""Maximum bytes of a file that can be a document."""
AHEAD = timedelta(hours=1)
"""Maximum lead of a host's clock over the local clock."""
_LONGEST_RUN = 64
_LONGEST_RECIPIENT = 2000
"""Characters. An SSH key of the kind RSA has up to 1,400."""
_DEEPEST = 100
"""Maximum nesting of facts, as for facts in files."""
_LARGEST_NUMBER = 2**31
"""Maximum of a count in databases."""
_NOT_TEXT = dict.fromkeys((0, *range(0xD800, 0xE000)), "\N{REPLACEMENT CHARACTER}")
_FORMAT = SentReport.__struct_config__.tag
_decoder = msgspec.json.Decoder(SentReport)


class Format(msgspec.Struct):
    """The beginning of a document of any format."""

    format: int


class Document(msgspec.Struct, frozen=True):
    """The report of a host, and the host's condition at that time."""

    sent: SentReport
    packed: bytes
    """The document as received, compressed."""
    at: datetime
    """End of the run by the host's clock. If that clock is ahead, the time of arrival."""
    condition: Condition
    why: str
    size: int
    """Bytes of its JSON."""
    ahead: timedelta | None = None
    """Lead of the host's clock, if it exceeds the maximum."""

    @property
    def host(self) -> str:
        return self.sent.host

    @property
    def run(self) -> str:
        return self.sent.report.run


def read_document(data: bytes, directory: str, arrived: datetime) -> Document:
    """Return the document in a file that ``arrived`` in the directory of this name. Raises ``ValueError`` with the
    reason if it is invalid.
    """
    is_packed = data[:2] == b"\x1f\x8b"
    text = unpack(data) if is_packed else data
    if len(text) > LARGEST_JSON:
        raise ValueError(f"has more than {LARGEST_JSON} bytes")
    try:
        sent = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(_why_not(text, error)) from None
    report = sent.report
    if not is_host_name(sent.host):
        raise ValueError(f"has the host {sent.host[:80]!r}, {EXPECTED_NAME}")
    if sent.host != directory:
        raise ValueError(f"belongs to the host {sent.host!r}, and hosts can only send their own reports")
    if report.host != sent.host:
        raise ValueError(f"contains a report of the host {report.host[:80]!r}")
    if not 0 < len(report.run) <= _LONGEST_RUN or not report.run.isascii() or not report.run.isprintable():
        raise ValueError("has an invalid identity of the run")
    if report.noop:
        raise ValueError("belongs to a dry run, which does not describe the state of the host")
    if len(sent.recipient) > _LONGEST_RECIPIENT or not sent.recipient.isprintable():
        raise ValueError("has an invalid recipient of encrypted files")
    finished = _time(report.finished, "finished")
    for reboot in report.reboots:
        _time(reboot.since, "since")
        if reboot.at:
            _time(reboot.at, "at")
    _verify_numbers(sent)
    if _is_deep(sent.facts):
        raise ValueError(f"has facts that are nested more than {_DEEPEST} deep")
    condition, why = condition_of(sent)
    ahead = finished - arrived
    is_ahead = ahead > AHEAD
    return Document(
        sent,
        data if is_packed else _packed(data),
        arrived if is_ahead else min(finished, arrived),
        condition,
        why,
        len(text),
        ahead if is_ahead else None,
    )


def plain(text: str) -> str:
    """Return a text that every database and every page can hold."""
    return text.translate(_NOT_TEXT)


def _packed(data: bytes) -> bytes:
    packed = gzip.compress(data, mtime=0)
    if len(packed) > LARGEST:  # readers of the store apply this limit, too
        raise ValueError(f"has more than {LARGEST} compressed bytes")
    return packed


def _verify_numbers(sent: SentReport) -> None:
    if not 0 <= sent.report.exit_status < 256:
        raise ValueError("has an invalid exit status")
    if any(not 0 <= count < _LARGEST_NUMBER for item in sent.restless for count in (item.runs, item.changes)):
        raise ValueError("has an invalid number of runs")


def _is_deep(facts: Mapping[str, Any]) -> bool:
    level: list[Any] = [facts]
    for _ in range(_DEEPEST):
        level = [
            below
            for value in level
            for below in (value.values() if isinstance(value, dict) else value)
            if isinstance(below, dict | list)
        ]
        if not level:
            return False
    return True


def _why_not(text: bytes, error: Exception) -> str:
    try:
        result = msgspec.json.decode(text, type=Format).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"is not a report: {error}"
    if result != _FORMAT:
        return f"has format {result}, and this version of Puller reads format {_FORMAT}"
    return f"is not a report: {error}"


def _time(text: str, name: str) -> datetime:
    """Read a time of a host's document. Raise ``ValueError``.

    ``parse_moment`` is not used: here a time without an offset is an error, because Puller writes the offset.
    """
    try:
        result = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"has {name}: {text[:40]!r}, expected a time") from None
    if result.tzinfo is None:
        raise ValueError(f"has {name}: {text[:40]!r}, expected a time in UTC")
    if not 2000 <= result.year < 9000:
        raise ValueError(f"has {name}: {text[:40]!r}, expected a time between 2000 and 9000")
    return result.astimezone(UTC)


_LONGEST = 1000


def general_problem(problem: Problem, host: str) -> Problem:
    """Return a problem without the name of its host."""
    return problem.map_texts(partial(without_host, host=host))


def without_host(text: str, host: str) -> str:
    """Return a text without the name of ``host``, of a bounded size."""
    text = " ".join(text[: 4 * _LONGEST].split())
    for name in sorted({host, host.partition(".")[0]}, key=len, reverse=True):
        if len(name) > 2:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<host>", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def key_of(bundle: str, reference: str, problem: Problem) -> str:
    """Return the identity of a problem in a fleet. ``reference`` and ``problem`` are without the name of their host."""
    values = "\0".join((bundle, reference, problem.code, problem.subject, problem.property, problem.name))
    return hashlib.sha256(values.encode("utf-8", "replace")).hexdigest()[:16]


Types = Callable[[str], Mapping[str, Export]]
"""Return the exports that a version of the bundle declares. Raise ``ValueError`` with the reason if they are unknown.
"""


class Collected(msgspec.Struct):
    """The exports of one bundle, by host, and the reasons for which hosts were omitted."""

    bundle: str
    values: dict[str, dict[str, Value]] = {}
    left_out: dict[str, str] = {}


def collect(bundle: str, standings: Iterable[tuple[str, PublishedBundle]], types: Types) -> Collected:
    """Return the exports of the hosts that enforce a bundle, sorted by host name."""
    collected = Collected(bundle)
    for host, standing in sorted(standings):
        if not standing.enforced:
            continue
        try:
            declared = types(standing.enforced)
        except ValueError as error:
            collected.left_out[host] = str(error)
            continue
        if not declared and not standing.exports:
            continue
        if why := _export_problem(declared, standing.exports):
            collected.left_out[host] = why
        else:
            collected.values[host] = {name: standing.exports[name] for name in sorted(declared)}
    return collected


def _export_problem(declared: Mapping[str, Export], values: Mapping[str, Value]) -> str:
    if problem := find_problem(values):
        return problem
    for name in sorted(values.keys() - declared.keys()):
        return f"exports {ascii(name)[:80]}, which its version does not declare"
    for name, export in declared.items():
        if name not in values:
            return f"does not export {name}"
        if problem := export.type.problem(values[name]):
            return f"exports {name}, which {problem}"
    return ""


def as_data(collected: Sequence[Collected]) -> dict[str, Any]:
    """Return a data document: ``data.exports['web']`` contains the hosts with exports of the bundle ``web``."""
    return {"data": {"exports": {item.bundle: item.values for item in collected}}}


class Targets(msgspec.Struct):
    """A document of Prometheus' ``file_sd``, and the reasons for which hosts were omitted, by bundle and host."""

    groups: list[dict[str, Any]] = []
    left_out: dict[tuple[str, str], str] = {}


def as_targets(collected: Sequence[Collected], address: str, port: str) -> Targets:
    """Make a group for each host that has both exports. Its other exports are labels.

    If ``port`` is empty, ``address`` is the whole target.
    """
    targets = Targets()
    for item in collected:
        for host, values in item.values.items():
            missing = [name for name in (address, port) if name and name not in values]
            if missing:
                targets.left_out[item.bundle, host] = f"does not export {' and '.join(missing)}"
                continue
            own = {"puller_host": host, "puller_bundle": item.bundle}
            others = {
                f"puller_{name}": _label(value)
                for name, value in values.items()
                if name not in (address, port)
            }
            target = _target(values[address], values.get(port))
            targets.groups.append({"targets": [target], "labels": own | others})
    return targets


def _target(address: Value, port: Value | None) -> str:
    host = f"[{address}]" if ":" in str(address) and port is not None else str(address)
    return host if port is None else f"{host}:{port}"


def _label(value: Value) -> str:
    if isinstance(value, list):
        return ",".join(map(_label, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_suspicious(before: int, now: int) -> bool:
    """Return whether more than half of the hosts have gone. The cause may be missing reports, not removed hosts."""
    return now * 2 < before
