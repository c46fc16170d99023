"""The document in which a report is sent: compressed JSON of limited size, with selected facts.

A document that is too large loses these parts, in this order, until it fits:

1. differences of contents (``diff``)
2. the ends of long texts and lists, and all facts if they are large
3. resources, failed ones last
4. all facts, restless resources and exports, and all but the first bundles

``left_out`` lists the omitted parts. Every document contains the end of the run.

The facts are those that the configuration lists, the names of the host, and those that bundles have read. A fact that
is missing, cannot be gathered or is not a plain value is omitted. It never fails the run. No other facts are gathered.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from foundation.quantities import counted
from puller.facts.fact_values import FactReads
from puller.reporting.in_order import without_lists
from puller.reporting.report import (
    BundleReport,
    Event,
    PublishedBundle,
    Report,
    SentFacts,
    SentReport,
    State,
    dotted,
)
from puller.state import decode
from puller.values.foreign_text import EXPECTED_NAME, is_host_name, visible_json_bytes

LARGEST_JSON = 1024 * 1024
"""Maximum bytes of a document's JSON."""
LARGEST = 256 * 1024
"""Maximum bytes of a document as it is sent."""

_GZIP = 31  # a zlib window with a gzip header, which has no timestamp
_LONG_TEXT, _LONG_LIST = 400, 10
_SHORT_TEXT, _SHORT_LIST = 100, 3
_MOST_FACTS = 64 * 1024
"""Maximum bytes of the facts' JSON in step 2. Larger facts are omitted before resources are."""
_MOST_READ = 64 * 1024
"""Maximum bytes of the JSON of facts that bundles have read. Further facts are omitted."""
_MOST_ABSENT = 1000
_MOST_BUNDLES = 512
_NAMES = ("clientcert", "networking.fqdn", "networking.hostname", "networking.domain")
"""The names of the host, which the next release may use for overrides although the current one does not."""
_SEVERITY = (State.FAILED, State.SKIPPED, State.CHANGED, State.REFRESHED, State.WOULD_CHANGE, State.STABLE)


def pack(sent: SentReport) -> bytes:
    """Return the document of a host's report, without changing ``sent``. Raises ``ValueError`` if it cannot be made
    small enough.
    """
    text = msgspec.structs.replace(sent, report=without_lists(sent.report))
    for candidate in _smaller_and_smaller(text):
        if (packed := _packed(candidate)) is not None:
            return packed
    raise ValueError("is too large, even without all optional parts")  # for example a name of many megabytes


class _Named(msgspec.Struct):
    host: str


def host_of(data: bytes) -> str:
    """Return the host of a document. Raises ``ValueError`` for a name that is unsafe in a path."""
    host = decode(unpack(data), _Named).host
    if not is_host_name(host):
        raise ValueError(f"belongs to host {host[:100]!r}, {EXPECTED_NAME}")
    return host


def unpack(data: bytes) -> bytes:
    """Return the JSON of a document. Raises ``ValueError`` for an invalid or too large document."""
    if len(data) > LARGEST:
        raise ValueError(f"has more than {LARGEST} bytes")
    inflate = zlib.decompressobj(wbits=_GZIP)
    try:
        text = inflate.decompress(data, LARGEST_JSON)
    except zlib.error as error:
        raise ValueError(f"is not a compressed report: {error}") from None
    if inflate.unconsumed_tail:
        raise ValueError(f"has more than {LARGEST_JSON} bytes after decompression")
    if not inflate.eof or inflate.unused_data:
        raise ValueError("is cut off, or has further data behind it")
    return text


def _packed(sent: SentReport) -> bytes | None:
    """Return the bytes of a document, or ``None`` if it is too large."""
    text = msgspec.json.encode(sent)
    if len(text) <= LARGEST_JSON:  # escapes only make it longer
        text = visible_json_bytes(text)
    if len(text) > LARGEST_JSON:
        return None
    compress = zlib.compressobj(wbits=_GZIP)
    data = compress.compress(text) + compress.flush()
    return data if len(data) <= LARGEST else None


def _smaller_and_smaller(sent: SentReport) -> Iterator[SentReport]:
    yield sent
    # 1.
    remaining = ["differences of contents"]
    sent = _with_report(sent, sent.report.without_diffs())
    yield _saying(sent, remaining)
    # 2.
    remaining.append("the ends of long texts and lists")
    sent = _with_report(sent, _shortened(sent.report, _LONG_TEXT, _LONG_LIST))
    sent = msgspec.structs.replace(sent, restless=_cut(sent.restless, _LONG_TEXT, _LONG_LIST))
    if len(msgspec.json.encode(sent.facts)) > _MOST_FACTS:
        remaining.append("facts")
        sent = msgspec.structs.replace(sent, facts={}, absent_facts=[], whole_facts=[])
    yield _saying(sent, remaining)
    # 3.
    count = sum(1 for _ in _events(sent.report))
    while count > 1:
        count //= 2
        fewer, gone = _with_most_severe(sent.report, count)
        yield _saying(_with_report(sent, fewer), [*remaining, counted(gone, "resource")])
    # 4.
    fewer, gone = _with_most_severe(sent.report, 1)
    sent = _with_report(sent, _shortened(fewer, _SHORT_TEXT, _SHORT_LIST))
    remaining = [*remaining, counted(gone, "resource"), "facts", "restless resources", "exports"]
    count = _MOST_BUNDLES
    while count:
        yield _saying(_with_few_bundles(sent, count), [*remaining, f"bundles beyond the first {count}"])
        count //= 2
    yield _saying(_with_few_bundles(sent, 0), [*remaining, "bundles"])


def _with_few_bundles(sent: SentReport, count: int) -> SentReport:
    """Return the smallest form of a report, with at most ``count`` bundles. Without bundles, its size is bounded."""
    report = msgspec.structs.replace(sent.report, bundles=sent.report.bundles[:count])
    bundles = [_shorten_bundle(bundle) for bundle in sent.bundles[:count]]
    without_facts = msgspec.structs.replace(sent, facts={}, absent_facts=[], whole_facts=[])
    return msgspec.structs.replace(without_facts, restless=[], bundles=bundles, report=report)


def _shorten_bundle(bundle: PublishedBundle) -> PublishedBundle:
    """Shorten a bundle and omit its exports, because a shortened value would look like another value."""
    cut: PublishedBundle = _cut(msgspec.structs.replace(bundle, exports={}), _SHORT_TEXT, _SHORT_LIST)
    return cut


def _saying(sent: SentReport, remaining: list[str]) -> SentReport:
    return msgspec.structs.replace(
        sent, left_out=f"omitted, because the document was too large: {', '.join(remaining)}"
    )


def _with_report(sent: SentReport, report: Report) -> SentReport:
    return msgspec.structs.replace(sent, report=report)


def _each_bundle(report: Report, change: Callable[[BundleReport], BundleReport]) -> Report:
    """Apply ``change`` to each bundle of a report, including the bundles that were given up."""

    def both(bundle: BundleReport) -> BundleReport:
        changed = change(bundle)
        return msgspec.structs.replace(changed, given_up=bundle.given_up and both(bundle.given_up))

    return msgspec.structs.replace(report, bundles=[both(bundle) for bundle in report.bundles])


def _events(report: Report) -> Iterator[Event]:
    for bundle in report.bundles:
        while bundle is not None:
            yield from bundle.events
            if bundle.given_up is None:
                break
            bundle = bundle.given_up


def _shortened(report: Report, text: int, items: int) -> Report:
    """Shorten long texts and lists of a report. The number of events stays the same."""
    short: Report = _cut(msgspec.structs.replace(report, bundles=[]), text, items)

    def of_bundle(bundle: BundleReport) -> BundleReport:
        bare = msgspec.structs.replace(bundle, events=[], in_order=None, given_up=None)
        events = [_cut(event, text, items) for event in bundle.events]
        cut: BundleReport = _cut(bare, text, items)
        return msgspec.structs.replace(cut, events=events, in_order=bundle.in_order)

    return msgspec.structs.replace(short, bundles=_each_bundle(report, of_bundle).bundles)


def _cut(value: Any, text: int, items: int) -> Any:
    """Return a value with shortened texts and lists."""
    if type(value) is str:  # not an enum member
        return value if len(value) <= text else f"{value[:text]}…"
    if isinstance(value, list):
        return [_cut(item, text, items) for item in value[:items]]
    if isinstance(value, tuple):
        return tuple(_cut(item, text, items) for item in value[:items])
    if isinstance(value, dict):
        retained = list(value.items())[: max(items, _LONG_LIST)]
        return {_cut(key, text, items): _cut(item, text, items) for key, item in retained}
    if isinstance(value, msgspec.Struct):
        fields = {name: _cut(getattr(value, name), text, items) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


def _with_most_severe(report: Report, count: int) -> tuple[Report, int]:
    """Return a report with the ``count`` most severe resources, and the number of omitted resources."""
    ranked = sorted(_events(report), key=_rank)
    retained = {id(event) for event in ranked[:count]}

    def fewer(bundle: BundleReport) -> BundleReport:
        events = [event for event in bundle.events if id(event) in retained]
        # The positions refer to the complete list of events.
        in_order = bundle.in_order and msgspec.structs.replace(bundle.in_order, others_at=[])
        return msgspec.structs.replace(bundle, events=events, in_order=in_order)

    return _each_bundle(report, fewer), len(ranked) - len(retained)


def _rank(event: Event) -> tuple[bool, int]:
    # Among skipped resources, unmet requirements matter more than conditions.
    return not (event.state is State.FAILED or event.unmet_requirements), _SEVERITY.index(event.state)


# Selected facts, as plain values.

_DEEPEST = 16
_LONGEST = 4096  # characters of one text


def chosen_facts(facts: Mapping[str, Any], names: Iterable[str], reads: FactReads | None = None) -> SentFacts:
    """Return the facts at these dotted paths, the names of the host, and the facts that bundles have read."""
    result: dict[str, Any] = {}
    absent: dict[str, None] = {}
    whole: dict[str, None] = {}
    for name in (*names, *(_NAMES if reads is not None else ())):
        steps = name.split(".")
        value = _at(facts, steps)
        if value is not _ABSENT:
            _put(result, steps, value)
            if isinstance(value, dict):
                whole[name] = None
        elif _is_missing(facts, steps):
            absent[name] = None
    if reads is not None:
        _put_reads(result, absent, whole, reads)
    return SentFacts(facts=result, absent_facts=[*absent][:_MOST_ABSENT], whole_facts=[*whole])


def joined_facts(facts: SentFacts, earlier: SentFacts) -> SentFacts:
    """Return facts of this run with those of an earlier run for the missing ones."""
    result = dict(facts.facts)
    _fill(result, earlier.facts)
    whole = dict.fromkeys((*facts.whole_facts, *earlier.whole_facts))
    return SentFacts(
        facts=result,
        absent_facts=[
            name
            for name in dict.fromkeys((*facts.absent_facts, *earlier.absent_facts))
            if _at(result, name.split(".")) is _ABSENT
        ],
        whole_facts=[*whole],
    )


def _fill(facts: dict[str, Any], earlier: Mapping[str, Any]) -> None:
    for name, value in earlier.items():
        known = facts.setdefault(name, value)
        if isinstance(known, dict) and isinstance(value, dict) and known is not value:
            facts[name] = known = dict(known)
            _fill(known, value)


def _put_reads(
    result: dict[str, Any], absent: dict[str, None], whole: dict[str, None], reads: FactReads
) -> None:
    left = _MOST_READ
    for path, original in reads.values.items():
        value = _plain(original, 0)
        if value is _ABSENT:
            continue
        left -= len(msgspec.json.encode(value))
        if left < 0:  # a preview names the omitted facts as missing
            break
        _put(result, [*map(str, path)], value)
        if path in reads.whole:
            whole[dotted(path)] = None
    # A fact of a bundle is absent among the facts of the host.
    absent |= {dotted(path): None for path in reads.absent if path not in reads.values}


def _is_missing(facts: Mapping[str, Any], steps: list[str]) -> bool:
    """Return whether the host lacks a fact, rather than failing to gather it."""
    value: Any = facts
    for step in steps:
        if not isinstance(value, Mapping):
            return True
        try:
            value = value[step]
        except KeyError:
            return True
        except Exception:  # noqa: BLE001  see ``_at``
            return False
    return False


_ABSENT: Any = object()


def _at(facts: Mapping[str, Any], steps: list[str]) -> Any:
    value: Any = facts
    for step in steps:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except Exception:  # noqa: BLE001  facts are gathered now, by whatever code somebody has put there
            return _ABSENT
    return _plain(value, 0)


def _put(result: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        inner = result.setdefault(step, {})
        if not isinstance(inner, dict):  # its parent is already complete
            return
        result = inner
    there = result.get(steps[-1])
    if isinstance(there, dict) and isinstance(value, dict):
        value = {**there, **value}
    result[steps[-1]] = value


def _plain(value: Any, depth: int) -> Any:
    """Return a JSON copy of a value, so that later changes of the original have no effect."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return printable(value[:_LONGEST])
    if depth >= _DEEPEST:
        return _ABSENT
    if isinstance(value, Mapping):
        items = ((printable(str(key)), _plain(item, depth + 1)) for key, item in value.items())
        return {key: item for key, item in items if item is not _ABSENT}
    if isinstance(value, list | tuple):
        items_of_list = (_plain(item, depth + 1) for item in value)
        return [item for item in items_of_list if item is not _ABSENT]
    return _ABSENT


def printable(text: str) -> str:
    """Return a text that UTF-8 can encode. Undecodable bytes of the system become escapes."""
    return text.encode(errors="backslashreplace").decode()
