"""Lists of unchanged resources, each stored once for all runs with the same list.

* A report contains the other resources. It names the list by its SHA-256 and number of resources. A run without changes
  therefore writes no list.
* Only the duration of each unchanged resource is lost. The summary has the sum. ``complete`` restores all events in the
  order of the run.
* A missing or damaged list, or a list of another length, is an error, never an empty list.
"""

import contextlib
import zlib
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from bundles.digests import sha256
from puller.reporting.report import BundleReport, Event, InOrder, Report, State
from puller.state import decode, read_state, write_state

_GZIP = 31
_FASTEST = 1
_LARGEST = 64 * 1024 * 1024
"""Maximum bytes, compressed or not."""
LIST_SUFFIX = ".json.gz"

_Item = TypeVar("_Item")


class _List(msgspec.Struct, Generic[_Item], tag_field="format", tag=1):
    resources: list[_Item]


class _Checked(msgspec.Struct, omit_defaults=True, gc=False):
    """An event without the values that differ from run to run. Fields are those of ``Event``."""

    type: str
    name: str
    state: State
    alias: str = ""
    provider: str = ""
    item: str = ""
    requested_ensure: str = ""
    final_ensure: str = ""
    skip_reason: str = ""
    applied: list[str] = []
    children: dict[str, int] = {}


def shorten(report: Report, directory: Path) -> Report:
    """Return ``report`` in its stored form, and save its lists in ``directory``. Raises ``OSError``."""
    lists: dict[str, bytes] = {}
    shortened = without_lists(report, lists)
    for digest, data in lists.items():
        _keep(directory / f"{digest}{LIST_SUFFIX}", data)
    return shortened


def without_lists(report: Report, lists: dict[str, bytes] | None = None) -> Report:
    """Return ``report`` in its stored form. Lists of unchanged resources are added to ``lists``, by their SHA-256."""
    result = {} if lists is None else lists
    bundles = [_shorten(bundle, result) for bundle in report.bundles]
    return msgspec.structs.replace(report, bundles=bundles)


def complete(report: Report, directory: Path) -> Report:
    """Return ``report`` with an event for each resource. Raises ``OSError``, and ``ValueError`` for an invalid list."""
    bundles = [_complete(bundle, directory) for bundle in report.bundles]
    return msgspec.structs.replace(report, bundles=bundles)


def _is_quiet(event: Event) -> bool:
    """Return whether the list stores all facts about a resource: it was checked without a remark, or skipped."""
    return (
        (event.state is State.STABLE or (event.state is State.SKIPPED and not event.unmet_requirements))
        and event.reached
        and not (event.noop or event.problems or event.differences or event.notes or event.health_checks)
        and not event.noop_message
    )


def _checked(event: Event) -> _Checked:
    return _Checked(
        event.type,
        event.name,
        event.state,
        event.alias,
        event.provider,
        event.item,
        event.requested_ensure,
        event.final_ensure,
        event.skip_reason,
        event.applied,
        event.children,
    )


def _shorten(bundle: BundleReport, lists: dict[str, bytes]) -> BundleReport:
    given_up = _shorten(bundle.given_up, lists) if bundle.given_up else None
    reported = [index for index, event in enumerate(bundle.events) if not _is_quiet(event)]
    if len(reported) == len(bundle.events):
        return msgspec.structs.replace(bundle, given_up=given_up)
    others = set(reported)
    quiet = [_checked(event) for index, event in enumerate(bundle.events) if index not in others]
    data = msgspec.json.encode(_List(quiet))
    in_order = InOrder(resources=len(quiet), sha256=sha256(data).hexdigest(), others_at=reported)
    lists[in_order.sha256] = data
    events = [bundle.events[index] for index in reported]
    return msgspec.structs.replace(bundle, given_up=given_up, events=events, in_order=in_order)


def _keep(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError, ValueError):
        if _read(path) == data:
            return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    compress = zlib.compressobj(_FASTEST, wbits=_GZIP)
    write_state(path, compress.compress(data) + compress.flush())


def _read(path: Path) -> bytes:
    inflate = zlib.decompressobj(wbits=_GZIP)
    try:
        data = inflate.decompress(read_state(path, _LARGEST), _LARGEST)
    except zlib.error as error:
        raise ValueError(f"is damaged: {error}") from None
    if not inflate.eof or inflate.unused_data:
        raise ValueError("is truncated or has further data")
    return data


def _complete(bundle: BundleReport, directory: Path) -> BundleReport:
    given_up = _complete(bundle.given_up, directory) if bundle.given_up else None
    if (in_order := bundle.in_order) is None:
        return msgspec.structs.replace(bundle, given_up=given_up)
    path = directory / f"{in_order.sha256}{LIST_SUFFIX}"
    try:
        events = _joined(bundle.events, _listed(path, in_order), in_order.others_at)
    except FileNotFoundError:
        raise ValueError(f"{path}: is missing, so the unchanged resources are unknown") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}, so the unchanged resources are unknown") from None
    return msgspec.structs.replace(bundle, given_up=given_up, events=events, in_order=None)


def _listed(path: Path, in_order: InOrder) -> list[Event]:
    data = _read(path)
    if (result := sha256(data).hexdigest()) != in_order.sha256:
        raise ValueError(f"sha256 is {result}")
    events = decode(data, _List[Event]).resources
    if len(events) != in_order.resources:
        raise ValueError(f"has {len(events)} resources, expected {in_order.resources} from the report")
    return events


def _joined(reported: list[Event], quiet: list[Event], positions: list[int]) -> list[Event]:
    """Return all events in the order of the run: ``reported`` at ``positions``, ``quiet`` between them."""
    if len(reported) != len(positions):
        raise ValueError(f"has positions of {len(positions)} other resources, expected {len(reported)}")
    remainder, all_events = iter(quiet), dict(zip(positions, reported, strict=True))
    count = len(reported) + len(quiet)
    if len(all_events) != len(reported) or any(not 0 <= position < count for position in positions):
        raise ValueError("has invalid positions of other resources")
    return [all_events[place] if place in all_events else next(remainder) for place in range(count)]
