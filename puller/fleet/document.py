"""A document of a host as it arrived: read strictly, as any host may have sent anything.

* It speaks for the host that its directory is named after, and for no other.
* Texts have no character that a database or a page cannot hold.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from puller.delivery.document import LARGEST, LARGEST_JSON, unpack
from puller.fleet.conditions import Condition, condition_of
from puller.reporting.sent_report import SentReport
from puller.values.host_name import WANTED, is_host_name

SUFFIXES = (".json.gz", ".json")
MOST_BYTES = max(LARGEST, LARGEST_JSON)
"""Bytes of a file that can be a document."""
AHEAD = timedelta(hours=1)
"""How far the clock of a host may be before ours."""
_LONGEST_RUN = 64
_MOST = 2**31
_DEEPEST = 100
_NOT_TEXT = dict.fromkeys((0, *range(0xD800, 0xE000)), "\N{REPLACEMENT CHARACTER}")
_decoder = msgspec.json.Decoder(SentReport)


class Format(msgspec.Struct):
    """The beginning of a document of any format."""

    format: int


class Document(msgspec.Struct, frozen=True):
    """What a host has said of itself."""

    sent: SentReport
    packed: bytes
    """As it arrived, compressed."""
    at: datetime
    """When the run had ended: by the clock of the host, unless that is ahead of ours."""
    condition: Condition
    why: str
    ahead: timedelta | None = None
    """How far the clock of the host was before ours, where that is more than it may be."""

    @property
    def host(self) -> str:
        return self.sent.host

    @property
    def run(self) -> str:
        return self.sent.report.run


def read_document(data: bytes, directory: str, arrived: datetime) -> Document:
    """The document in a file that ``arrived`` in the directory of this name; raises ``ValueError`` saying why not."""
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
        raise ValueError(f"has the host {sent.host[:80]!r}, {WANTED}")
    if sent.host != directory:
        raise ValueError(f"is of the host {sent.host!r}, and a host can speak for itself only")
    if report.host != sent.host:
        raise ValueError(f"has a report of the host {report.host[:80]!r}")
    if not 0 < len(report.run) <= _LONGEST_RUN or not report.run.isascii() or not report.run.isprintable():
        raise ValueError("has no identity of a run")
    if report.noop:
        raise ValueError("is of a dry run, which says nothing of the host")
    _check_numbers(sent)
    _check_depth(sent.facts)
    finished = _time(report.finished, "finished")
    condition, why = condition_of(sent)
    ahead = finished - arrived
    is_ahead = ahead > AHEAD
    return Document(
        sent,
        data if is_packed else _packed(data),
        arrived if is_ahead else min(finished, arrived),
        condition,
        why,
        ahead if is_ahead else None,
    )


def plain(text: str) -> str:
    """A text that every database and every page can hold."""
    return text.translate(_NOT_TEXT)


def _packed(data: bytes) -> bytes:
    import gzip

    packed = gzip.compress(data, mtime=0)
    if len(packed) > LARGEST:  # the store would not read it again
        raise ValueError(f"has more than {LARGEST} bytes when it is compressed")
    return packed


def _why_not(text: bytes, error: Exception) -> str:
    try:
        found = msgspec.json.decode(text, type=Format).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"is no document of a report: {error}"
    if found != 1:
        return f"has format {found}, and this version of Puller knows format 1"
    return f"is no document of a report: {error}"


def _check_numbers(sent: SentReport) -> None:
    """Raises ``ValueError`` for what no database holds in a column."""
    if not 0 <= sent.report.exit_status < 256:
        raise ValueError("has an exit status that no program has")
    if any(not 0 <= count < _MOST for one in sent.restless for count in (one.runs, one.changes)):
        raise ValueError("has counts of runs that nobody has counted")


def _check_depth(facts: Any) -> None:
    """Raises ``ValueError`` for facts that are nested so deep that they can be read and not be written."""
    level: list[Any] = [facts]
    for _ in range(_DEEPEST):
        inner = [
            one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)
        ]
        level = [item for items in inner for item in items]
        if not level:
            return
    raise ValueError(f"has facts that are nested deeper than {_DEEPEST} levels")


def _time(text: str, name: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"has {name}: {text[:40]!r}, wanted a time") from None
    if found.tzinfo is None:
        raise ValueError(f"has {name}: {text[:40]!r}, wanted a time in UTC")
    if not 2000 <= found.year < 9000:
        raise ValueError(f"has {name}: {text[:40]!r}, wanted a time of this millennium")
    return found.astimezone(UTC)
