"""Stored metadata of a site without the verification of signatures: its expiry, and whether it is still published.

The publisher chooses the lifetimes of signatures: ``bundles/publisher/settings.py``.

Revalidation checks whether the site still publishes the metadata that this host has verified.
A cache validates stored responses in the same way (RFC 9111, 4.3). The result is *unchanged* or *unknown*. If it is
unknown, the complete workflow of ``bundles.client.client`` runs, which takes four times as long, mostly for imports
that verify signatures. *Unchanged* requires:

* the site's ``timestamp.json`` is byte for byte the one that this host has verified and stored;
* the SHA-256 in it lead to the stored snapshot, targets, bins, indexes and site data, for all requested names;
* the site has no newer root, none of the stored metadata has expired, and the trust anchor belongs to this store;
* every mirror agrees, except mirrors that are in backoff (``bundles.client.revalidation``).

This module only accepts previously verified data, and writes nothing. Special cases (a redirect, a proxy, a client
certificate, any failure) are *unknown*.

Record of mirrors that failed while another mirror helped.

* The record only saves time. A mirror in backoff is still tried if all others fail, and all data is verified. The
  record may therefore be lost or damaged without harm.
* The backoff grows with the time of failure: five minutes, doubled each time, at most six hours.
* A mirror that helps, or is only behind, is removed from the record immediately.
* If every mirror failed, nothing is recorded, because the cause is usually the network of this host.
* A short failure is a notice. A continuous failure for a week is a warning, because the mirror is probably gone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from bundles.confined.current import current
from bundles.deadline import Deadline, aside
from bundles.digests import sha256
from bundles.errors import BundleError
from bundles.filesystem.atomic import read_limited
from bundles.format.index import Index, Indexes, index_path
from bundles.format.release import Release
from bundles.format.site_targets import BIN_NAME, SiteDocument, bin_of, data_path, read_custom
from bundles.format.size_limits import LARGEST_STORED
from bundles.progress import RoutineNote
from bundles.transport.settings import (
    Location,
    TransportSettings,
    locate,
    request_headers,
    uses_proxy,
)
from foundation.times import zulu_text

MEMORY = "mirrors.json"
"""File name in the directory of trusted metadata."""

FIRST_BACKOFF = timedelta(minutes=5)
LONGEST_BACKOFF = timedelta(hours=6)
WARNED_AFTER = timedelta(days=7)
WARNED_AFTER_FAILURES = 10
"""A host with little uptime tries too rarely to conclude from the time alone that a failure lasts."""

_LARGEST_JITTER = 0.2  # share of a backoff; spreads the retries of many hosts
_LONGEST_REASON = 500  # characters
_FORMAT = 1

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Failing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mirror that failed in the last ``times`` attempts."""

    since: _Time
    times: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    next_try: _Time
    reason: str

    def is_lasting(self, now: datetime) -> bool:
        """Return whether the mirror has failed so long and often that it should be repaired or removed."""
        return self.times >= WARNED_AFTER_FAILURES and now - self.since >= WARNED_AFTER

    def __str__(self) -> str:
        times = "once" if self.times == 1 else f"{self.times} times"
        since = zulu_text(self.since)
        return f"failed {times} since {since}, next attempt at {zulu_text(self.next_try)}: {self.reason}"


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Annotated[int, msgspec.Meta(ge=_FORMAT, le=_FORMAT)]
    mirrors: dict[str, Failing]


class MirrorMemory:
    """Failing mirrors by their location, as of ``now``, which has a time zone."""

    def __init__(self, now: datetime, failing: dict[str, Failing] | None = None) -> None:
        self._now = now
        self._failing = failing or {}

    @classmethod
    def parse(cls, data: bytes, now: datetime) -> "MirrorMemory":
        """Parse the record. Raises ``ValueError`` if it is invalid."""
        return cls(now, msgspec.json.decode(data, type=_Document).mirrors)

    def to_bytes(self) -> bytes:
        """Return the record as a file, or nothing if it is empty."""
        return msgspec.json.encode(_Document(_FORMAT, self._failing)) if self._failing else b""

    def turn(self, mirror: str) -> tuple[bool, bool]:
        """Return a sort key: mirrors in backoff are last, after other failed mirrors."""
        return self.backs_off(mirror), mirror in self._failing

    def backs_off(self, mirror: str) -> bool:
        """Return whether to skip a mirror while another one helps."""
        result = self._failing.get(mirror)
        # A next try beyond the longest backoff was written while the clock of this host was wrong.
        return result is not None and self._now < result.next_try <= self._now + LONGEST_BACKOFF

    def sentences(self, mirrors: Iterable[str]) -> Iterator[str]:
        """Yield a note about each of these mirrors that failed while another one helped."""
        for mirror in mirrors:
            if (failing := self._failing.get(mirror)) is not None:
                sentence = f"{mirror}: {failing}"
                yield sentence if failing.is_lasting(self._now) else RoutineNote(sentence)

    def failed(self, mirror: str, reason: str) -> None:
        """Record the failure of a mirror while another one helped."""
        before = self._failing.get(mirror)
        times = before.times + 1 if before else 1
        self._failing[mirror] = Failing(
            since=before.since if before else self._now.astimezone(UTC).replace(microsecond=0),
            times=min(times, 1_000_000),
            next_try=(self._now + _backoff_after(times)).astimezone(UTC).replace(microsecond=0),
            reason=reason[:_LONGEST_REASON],
        )

    def helped(self, mirror: str) -> None:
        """Remove a mirror from the record."""
        self._failing.pop(mirror, None)

    def keep_only(self, mirrors: Iterable[str]) -> None:
        """Remove mirrors that are no longer configured."""
        self._failing = {mirror: self._failing[mirror] for mirror in mirrors if mirror in self._failing}


def _backoff_after(times: int) -> timedelta:
    import random  # 0.5 % of an idle run, which meets no failed mirror

    doublings = min(times - 1, 20)  # more than the longest backoff needs, without overflow
    longest: timedelta = min(FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
    return longest * (1 - random.uniform(0, _LARGEST_JITTER))  # noqa: S311  nobody gains by guessing it


class _SuccinctRoles(msgspec.Struct):
    bit_length: Annotated[int, msgspec.Meta(ge=1, le=32)]


class _Delegations(msgspec.Struct):
    succinct_roles: _SuccinctRoles


class _Signed(msgspec.Struct):
    expires: Annotated[datetime, msgspec.Meta(tz=True)]
    delegations: _Delegations | None = None


class _Metadata(msgspec.Struct):
    signed: _Signed


def first_expiry(trust: Path, bundles: Iterable[str], documents: Iterable[str] = ()) -> datetime | None:
    """Return when the metadata in ``trust`` expires. ``None`` if it is missing or incomplete.

    Only the bins of ``bundles`` and site data ``documents`` count, because other stored bins are no longer used.
    Signatures are not verified.
    """
    results = [
        _read(trust / f"{name}.json")
        for name in _names(trust, [*map(index_path, bundles), *map(data_path, documents)])
    ]
    expiries = [signed.expires for signed in results if signed is not None]
    return min(expiries).astimezone(UTC) if len(expiries) == len(results) else None


def _names(trust: Path, paths: Iterable[str]) -> Iterator[str]:
    yield from ("root", "timestamp", "snapshot", "targets")
    targets = _read(trust / "targets.json")
    if targets is not None and targets.delegations is not None:
        bits = targets.delegations.succinct_roles.bit_length
        yield from {bin_of(path, bits) for path in paths}


def _read(path: Path) -> _Signed | None:
    """Return ``None`` for a missing or damaged file, which the next run fetches again."""
    try:
        return msgspec.json.decode(read_limited(path, LARGEST_STORED), type=_Metadata).signed
    except (OSError, ValueError, RecursionError):
        return None


_NOT_FOUND = 404  # of HTTP; the module that defines it is slow to import
_Mirrors = list[tuple[Location, TransportSettings]]


class Known:
    """Verified indexes that the site still publishes. Same interface as ``TrustClient``."""

    def __init__(self, indexes: Indexes, notes: list[str]) -> None:
        self.indexes = indexes
        self.notes = notes
        """Sentences for users: mirrors in backoff because they failed."""

    def digest(self, release: Release) -> str:
        """Return the SHA-256 of the archive of a release. Raises ``FormatError`` if it is not published."""
        return self.indexes.artifact(release).archive.sha256


def revalidate(
    directory: Path,
    anchor: Path,
    sites: Sequence[str],
    bundles: Iterable[str],
    settings: TransportSettings,
    now: datetime,
    deadline: Deadline | None = None,
    documents: Iterable[str] = (),
) -> Known | None:
    """Return the stored ``bundles`` and ``documents`` of site data if the site still publishes them.

    ``None`` if that is unknown, for example for a bundle that was never requested before. ``directory`` belongs to
    ``TrustClient``, ``sites`` are the mirrors, ``now`` has a time zone. ``deadline`` applies to all requests. Raises
    the errors of its ``check``.

    1. Read the stored metadata: the root by the anchor, and the snapshot, targets, bins and indexes by their SHA-256
       from the timestamp. None may be expired (TUF 5.3.10, 5.4.4, 5.5.6, 5.6.5).
    2. Skip mirrors in backoff. A refresh would skip them, too, as long as another mirror helps.
    3. Request from every other mirror, over one connection and within the timeout of one read: (a) the next root, which
       must not exist (TUF 5.3.3), (b) ``timestamp.json``, which must equal the stored one (TUF 5.4.3: the same version,
       no change).
    4. If all mirrors agree, the verified data is still valid.
    """
    deadline = deadline or Deadline(settings.total_timeout)
    try:
        # 1.
        stored = _Stored(directory, anchor, now)
        indexes = Indexes(stored.indexes(bundles), stored.documents(documents))
        # 2.
        mirrors = locate(sites, settings)
        notes: list[str] = []
        if len(mirrors) > 1:
            mirrors, notes = _without_backoff(mirrors, directory, now)
        # 3. and 4.
        if mirrors and all(_is_unchanged(stored, location, own, deadline) for location, own in mirrors):
            return Known(indexes, notes)
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        BundleError,
    ):
        # Damaged files or network problems. The complete workflow reports them.
        return None
    return None


def _without_backoff(mirrors: _Mirrors, directory: Path, now: datetime) -> tuple[_Mirrors, list[str]]:
    """Return the mirrors that are not in backoff, and notes about mirrors in backoff."""

    try:
        memory = MirrorMemory.parse(read_limited(directory / MEMORY, LARGEST_STORED), now)
    except FileNotFoundError:
        return mirrors, []
    notes: list[str] = list(memory.sentences(str(location) for location, _ in mirrors))
    return [mirror for mirror in mirrors if not memory.backs_off(str(mirror[0]))], notes


def _is_unchanged(
    stored: "_Stored", location: Location, settings: TransportSettings, deadline: Deadline
) -> bool:
    """Return whether a mirror has the stored timestamp and no newer root. Raises errors for unexpected responses."""
    if _is_out_of_the_ordinary(location, settings):
        return False
    # Two small files: the limit is the timeout of one read.
    own = deadline.within(settings.read_timeout)
    # 3a. and 3b.
    newer_root = f"metadata/{stored.root_version + 1}.root.json"
    status, timestamp = _glance(
        location, settings, (newer_root, "metadata/timestamp.json", len(stored.timestamp)), own
    )
    return status == _NOT_FOUND and timestamp == stored.timestamp


def _glance(
    location: Location, settings: TransportSettings, requested: tuple[str, str, int], deadline: Deadline
) -> tuple[int, bytes]:
    """Return the response of ``bundles.transport.plain``. Raises ``OSError``, ``ValueError`` and `TransportError`."""
    url_parts = urlsplit(location.base)
    headers = request_headers(location, settings)
    times = (settings.connect_timeout, settings.read_timeout)
    place = (url_parts.scheme, url_parts.netloc, url_parts.path, headers, *times, settings.ca_bundle)
    if (network := current()) is not None:
        connection = network.open("bundles.transport.plain:open_glance", place, str(location))
        try:
            status, content = connection.call((*requested, deadline.left), deadline)
        finally:
            connection.close()
        return int(status), content
    from bundles.transport.plain import open_glance  # 7 % of an idle run, in which a worker imports it

    return aside(lambda: open_glance(place).take(*requested, deadline), deadline)


class _Stored:
    """The stored metadata, with its hashes, types and expiry checked. Methods raise errors for any inconsistency."""

    def __init__(self, directory: Path, anchor: Path, now: datetime) -> None:
        self._now = now
        self._directory = directory
        root = self._read("root.json")
        self.root_version = int(self._signed(root, "root")["version"])
        # A replaced trust anchor means another site, or keys that are no longer trusted.
        provided = read_limited(anchor, LARGEST_STORED)
        version = int(msgspec.json.decode(provided)["signed"]["version"])
        _require(self._read(f"root_history/{version}.root.json") == provided)
        self.timestamp = self._read("timestamp.json")
        snapshot = self._followed(self._signed(self.timestamp, "timestamp"), "snapshot.json")
        self._snapshot = self._signed(snapshot, "snapshot")
        targets = self._signed(self._followed(self._snapshot, "targets.json"), "targets")
        self._bits = int(targets["delegations"]["succinct_roles"]["bit_length"])

    def indexes(self, bundles: Iterable[str]) -> dict[str, Index]:
        """Return the stored indexes of ``bundles``. Raises an error if an index differs from its bin."""
        indexes = {}
        for bundle in bundles:
            if info := self._find(index_path(bundle)):
                indexes[bundle] = Index.parse(self._verified(f"indexes/{bundle}.json", info), bundle)
        return indexes

    def documents(self, names: Iterable[str]) -> dict[str, SiteDocument]:
        """Return the stored documents. Raises an error if a document differs from its bin."""
        site_documents = {}
        for name in names:
            if info := self._find(data_path(name)):
                contents = self._verified(f"indexes/_{name}.yaml", info)
                site_documents[name] = SiteDocument(name, contents, read_custom(info.get("custom"), name))
        return site_documents

    def _find(self, path: str) -> Mapping[str, Any] | None:
        """Return the target at ``path`` from its bin."""
        return self._targets_of(bin_of(path, self._bits)).get(path)

    def _verified(self, name: str, info: Mapping[str, Any]) -> bytes:
        data = self._read(name)
        _require(sha256(data).hexdigest() == info["hashes"]["sha256"])
        return data

    def _targets_of(self, name: str) -> Mapping[str, Any]:
        signed = self._signed(self._followed(self._snapshot, f"{name}.json"), "targets")
        _require(signed[BIN_NAME] == name)
        targets: Mapping[str, Any] = signed["targets"]
        return targets

    def _read(self, name: str) -> bytes:
        return read_limited(self._directory / name, LARGEST_STORED)

    def _followed(self, signed: Mapping[str, Any], name: str) -> bytes:
        data = self._read(name)
        _require(sha256(data).hexdigest() == signed["meta"][name]["hashes"]["sha256"])
        return data

    def _signed(self, data: bytes, role: str) -> Mapping[str, Any]:
        signed: Mapping[str, Any] = msgspec.json.decode(data)["signed"]
        _require(signed["_type"] == role)
        _require(datetime.fromisoformat(signed["expires"]) > self._now)
        return signed


def _is_out_of_the_ordinary(location: Location, settings: TransportSettings) -> bool:
    """Return whether only ``bundles.transport.web`` can handle a location (directory, proxy, client certificate)."""
    return location.is_directory or settings.client_cert is not None or uses_proxy(settings)


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("the metadata changed")
