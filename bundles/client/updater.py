"""The client workflow of TUF on one mirror.

python-tuf decides what is trusted (specification 1.0, section 5). Added here, and nothing else:

* bytes come through a `Mirror`, and metadata is read strictly before python-tuf sees it;
* what is stored goes through `TrustDirectory`, which writes durably and speaks up about damage;
* a root chain that ends below the highest root of this host is a rollback, even when that root was
  damaged here;
* the chain of roots is followed to its end, however long it is: what a run has verified of it is stored at once, so
  that the next one goes on where this one was stopped;
* the time is handed in, once for the whole refresh.
"""

import io
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tuf.api.exceptions import DownloadHTTPError
from tuf.api.metadata import Targets
from tuf.ngclient import UpdaterConfig
from tuf.ngclient.fetcher import FetcherInterface
from tuf.ngclient.updater import Updater

from bundles.client.trust_anchor import Anchor
from bundles.client.trusted_metadata import TrustDirectory
from bundles.errors import FormatError, NotFoundError, OversizeError, RollbackError, SignatureError
from bundles.format.limits import LARGEST_METADATA, LARGEST_STORED
from bundles.format.metadata import check_metadata
from bundles.transport.mirror import Mirror

_NOT_FOUND = 404
_AS_MANY_AS_THERE_ARE = sys.maxsize
"""Each is signed by the keys of the one before it, so that nobody else can make the chain of roots longer."""


class MirrorFetcher(FetcherInterface):
    """A mirror as python-tuf sees it; ``path`` and ``data`` are those of the metadata last fetched."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.path = ""
        self.data = b""

    @property
    def where(self) -> str:
        """The metadata last asked for, for messages."""
        return f"{self.mirror}/{self.path}"

    def download_bytes(self, url: str, max_length: int) -> bytes:
        self.path, self.data = url.lstrip("/"), b""
        buffer = io.BytesIO()
        try:
            self.mirror.download(self.path, max_length, buffer)
        except NotFoundError as error:
            # python-tuf takes this one as the end of the root chain. Everything else passes through it.
            raise DownloadHTTPError(str(error), _NOT_FOUND) from error
        except OversizeError as error:
            raise SignatureError(error.where, error.what) from None
        self.data = buffer.getvalue()
        return self.data

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.download_bytes(url, LARGEST_STORED)


class Workflow(Updater):
    """One refresh from one mirror, as of ``now``; ``directory`` is that of the metadata on the mirror."""

    def __init__(
        self,
        store: TrustDirectory,
        anchor: Anchor,
        mirror: Mirror,
        now: datetime,
        *,
        directory: str = "metadata",
    ) -> None:
        self.fetcher = MirrorFetcher(mirror)
        self._store = store
        config = UpdaterConfig(
            max_root_rotations=_AS_MANY_AS_THERE_ARE,
            root_max_length=LARGEST_METADATA["root"],
            timestamp_max_length=LARGEST_METADATA["timestamp"],
            snapshot_max_length=LARGEST_METADATA["snapshot"],
            targets_max_length=LARGEST_METADATA["targets"],
        )
        super().__init__(
            str(store.path), directory, fetcher=self.fetcher, config=config, bootstrap=anchor.data
        )
        self.trusted = self._trusted_set
        self.trusted.reference_time = now

    @property
    def targets(self) -> Targets:
        """What is published, after `refresh`."""
        return self.trusted.targets

    def _load_root(self) -> None:
        highest = self._store.highest_root()
        super()._load_root()
        reached = self.trusted.root
        if reached.version < highest:
            what = f"the chain of roots ends at version {reached.version}, this host has trusted {highest}"
            raise RollbackError(self.fetcher.where, what)
        self._store.check_roles(reached)

    def _download_metadata(self, rolename: str, length: int, version: int | None = None) -> bytes:
        data = super()._download_metadata(rolename, self._checked(rolename, length, version), version)
        check_metadata(data, self.fetcher.where, rolename, self.trusted.root)
        return data

    def _checked(self, role: str, length: int, version: int | None) -> int:
        """A length as signed, or the largest for a role whose length nobody signs."""
        largest = LARGEST_METADATA.get(role, LARGEST_METADATA[Targets.type])
        if length > largest:
            where = f"{self.fetcher.mirror}: version {version} of {role}"
            what = f"has {length} bytes, this version of Puller reads {largest}: upgrade Puller here"
            raise FormatError(where, what)
        return length

    def _persist_file(self, filename: str, data: bytes) -> None:
        self._store.write(str(Path(filename).relative_to(self._store.path)), data)
