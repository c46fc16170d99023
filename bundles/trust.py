"""What a site publishes, as far as this host can trust it.

* Nothing is returned that enough of the site's keys did not sign, that has expired, or that is older
  than what this host has seen before. The trust anchor came with the machine.
* Mirrors are tried in order. Each can only withhold: one that is down, stale or hostile is passed over,
  and noted.
* A file is checked while nobody else can see it, and placed afterwards.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from tuf.api.exceptions import DownloadError, LengthOrHashMismatchError, RepositoryError
from tuf.api.metadata import Metadata, Root, TargetFile, Targets

from bundles.anchor import Anchor
from bundles.errors import (
    BundleError,
    FormatError,
    OversizeError,
    SignatureError,
    StoreError,
    TransportError,
    TrustError,
)
from bundles.files import read_limited, sync_directory
from bundles.index import INDEX, LARGEST_INDEX, Index, Release
from bundles.refresh import Workflow
from bundles.transport import Mirror
from bundles.trusted import LARGEST_FILE, TrustDirectory
from bundles.verdicts import mismatch, verdict

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A verified file in its place; ``size`` is bytes."""

    path: Path
    size: int
    sha256: str


class TrustClient:
    """One host's view of a site. ``directory`` keeps what was trusted; one process at a time may use it.

    ``notes`` collects sentences for people: mirrors that failed although another one helped, damaged state.
    """

    def __init__(
        self,
        directory: Path,
        anchor: Path | bytes,
        mirrors: Sequence[Mirror],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.notes: list[str] = []
        self._anchor = anchor
        self._mirrors = list(mirrors)
        self._now = now
        self._store = TrustDirectory(directory, self.notes, now)
        self._targets: Targets | None = None

    def refresh(self) -> Index:
        """Fetch and verify what is published now.

        Raises `TransportError`, `TrustError` or `FormatError` of the mirror with the worst answer when
        none helped, `SettingsError` for the anchor, and `StoreError` for this machine's disk. What was
        trusted stays then.
        """
        anchor = Anchor.load(self._anchor)
        with _explained(self._store.path):
            self._store.prepare(anchor)
        return self._from_any_mirror(lambda mirror: self._refresh_from(mirror, anchor))

    def index(self) -> Index:
        """What was trusted last, expired or not, from this machine alone; raises `StoreError`."""
        with _explained(self._store.path):
            targets, data = self._stored_targets(), self._store.read(INDEX)
        info = targets.targets.get(INDEX)
        if info is None or data is None or not _is(info, data):
            raise StoreError(
                str(self._store.path / INDEX), "is missing or damaged; the next refresh brings it back"
            )
        self._targets = targets
        return Index.parse(data)

    def digest(self, release: Release) -> str:
        """SHA-256 of the bundle of ``release``, as signed; raises as `fetch` without fetching."""
        return self._published(release).hashes["sha256"]

    def fetch(self, release: Release, destination: Path) -> Fetched:
        """Download the bundle of ``release``, verify it, and place it at ``destination``.

        After `refresh` or `index`. Raises `FormatError` for a release that was not published, otherwise
        as `refresh`.
        """
        info = self._published(release)
        return self._from_any_mirror(lambda mirror: self._fetch_from(mirror, info, destination))

    def _refresh_from(self, mirror: Mirror, anchor: Anchor) -> Index:
        with _explained(self._store.path):
            workflow = Workflow(self._store, anchor, mirror, self._now())
            try:
                workflow.refresh()
            except (RepositoryError, DownloadError) as error:
                raise verdict(error, workflow) from error
            data = self._index_from(mirror, workflow.targets)
        self._targets = workflow.targets
        return Index.parse(data, f"{mirror}/{target_path(workflow.targets.targets[INDEX])}")

    def _index_from(self, mirror: Mirror, targets: Targets) -> bytes:
        """The index, from this machine when it has not changed."""
        info = targets.targets.get(INDEX)
        if info is None or "sha256" not in info.hashes:
            raise FormatError(str(mirror), f"publishes no {INDEX}; is it a site of Puller?")
        if (stored := self._store.read(INDEX)) is not None and _is(info, stored):
            return stored
        buffer = BytesIO()
        _download(mirror, info, min(info.length, LARGEST_INDEX), buffer)
        self._store.write(INDEX, buffer.getvalue())
        return buffer.getvalue()

    def _fetch_from(self, mirror: Mirror, info: TargetFile, destination: Path) -> Fetched:
        with _explained(destination), _placed(destination) as part:
            _download(mirror, info, info.length, part)
        return Fetched(destination, info.length, info.hashes["sha256"])

    def _from_any_mirror(self, action: Callable[[Mirror], _Result]) -> _Result:
        failures: list[BundleError] = []
        for mirror in self._mirrors:
            try:
                result = action(mirror)
            except (TransportError, TrustError, FormatError) as error:
                failures.append(error)
                continue
            self.notes += map(str, failures)
            self._prefer(mirror)
            return result
        worst = max(failures, key=_gravity)
        self.notes += [str(error) for error in failures if error is not worst]
        raise worst

    def _prefer(self, mirror: Mirror) -> None:
        """What helped once in this run is asked first for the rest of it."""
        self._mirrors.remove(mirror)
        self._mirrors.insert(0, mirror)

    def _published(self, release: Release) -> TargetFile:
        if self._targets is None:
            raise RuntimeError("fetch() comes after refresh() or index()")
        info = self._targets.targets.get(release.target)
        if info is None or "sha256" not in info.hashes:
            raise FormatError(
                str(self._mirrors[0]), f"{release} is not published: there is no {release.target}"
            )
        return info

    def _stored_targets(self) -> Targets:
        root, targets = self._stored(Root.type), self._stored(Targets.type)
        try:
            root.signed.verify_delegate(Targets.type, targets.signed_bytes, targets.signatures)
        except RepositoryError as error:
            raise StoreError(
                str(self._store.path), f"damaged; the next refresh brings it back ({error})"
            ) from None
        signed: Targets = targets.signed
        return signed

    def _stored(self, role: str) -> Metadata[Any]:
        path = self._store.path / f"{role}.json"
        try:
            return Metadata.from_bytes(read_limited(path, LARGEST_FILE))
        except FileNotFoundError:
            raise StoreError(str(path), "nothing was trusted yet on this host") from None
        except (RepositoryError, ValueError) as error:
            raise StoreError(str(path), f"damaged; the next refresh brings it back ({error})") from None


def _gravity(error: BundleError) -> int:
    return 2 if isinstance(error, TrustError) else 1 if isinstance(error, FormatError) else 0


def target_path(info: TargetFile) -> str:
    """Where a target is served: with its hash in its name, so that no URL ever changes its contents."""
    directory, slash, name = info.path.rpartition("/")
    return f"targets/{directory}{slash}{info.hashes['sha256']}.{name}"


def _download(mirror: Mirror, info: TargetFile, limit: int, into: BinaryIO) -> None:
    path = target_path(info)
    where = f"{mirror}/{path}"
    try:
        mirror.download(path, limit, into)
        info.verify_length_and_hashes(into)
    except OversizeError as error:
        raise SignatureError(error.where, f"{error.what}, the signed metadata says {info.length}") from None
    except LengthOrHashMismatchError as error:
        raise SignatureError(where, mismatch(error)) from None


def _is(info: TargetFile, data: bytes) -> bool:
    try:
        info.verify_length_and_hashes(data)
    except LengthOrHashMismatchError:
        return False
    return True


@contextlib.contextmanager
def _placed(destination: Path) -> Iterator[BinaryIO]:
    """A private file beside ``destination``, which takes its place when the block ends well."""
    for leftover in destination.parent.glob(f".{destination.name}.*.part"):  # of a run that was killed
        leftover.unlink(missing_ok=True)
    descriptor, name = tempfile.mkstemp(".part", f".{destination.name}.", destination.parent)
    try:
        with open(descriptor, "w+b") as part:
            yield part
            part.flush()
            os.fsync(part.fileno())
        os.rename(name, destination)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    sync_directory(destination.parent)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Trouble with this machine's own files, in our words."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        raise StoreError(where, error.strerror or str(error)) from error
