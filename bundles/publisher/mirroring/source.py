"""A site as the source of a copy: the client workflow of a host, for all bins.

* Data that a host would reject is rejected by the same code and with the same messages.
* Metadata is stored byte for byte, because a copy contains the publisher's signatures.
"""

import io
import os
from collections.abc import Iterator, Mapping
from datetime import datetime

from tuf.api.exceptions import DownloadError, RepositoryError

from bundles.client.targets import SiteWorkflow, check_layout, explained
from bundles.client.trust import Anchor, TrustDirectory, parse_root
from bundles.client.updater import verdict
from bundles.errors import FormatError, NotFoundError, SettingsError, SignatureError, StoreError
from bundles.format.bins import bin_of
from bundles.format.history import history_path
from bundles.format.identity import parse_name
from bundles.format.index import index_path
from bundles.format.site_data import data_name
from bundles.format.size_limits import LARGEST_METADATA
from bundles.format.tuf import Metadata, Snapshot, TargetFile, Targets, Timestamp
from bundles.transport.mirror import Mirror


class _Workflow(SiteWorkflow):
    def all_bins(self) -> dict[str, Targets]:
        """Return every bin, verified as on a host. Requires `refresh` first."""
        check_layout(self.targets, str(self.fetcher.mirror))
        delegations = self.targets.delegations
        roles = delegations.succinct_roles if delegations else None
        # The bins of the delegation and not of the snapshot, so that none can be withheld.
        return {name: self._load_targets(name, Targets.type) for name in (roles.get_roles() if roles else ())}


class Source:
    """The site behind ``mirror``, as of ``now``. ``store`` contains the previously trusted metadata."""

    def __init__(self, mirror: Mirror, store: TrustDirectory, anchor: Anchor, now: datetime) -> None:
        self.mirror = mirror
        self._store = store
        self._anchor = anchor
        self._now = now
        self._bins: dict[str, Targets] = {}

    def refresh(self, before: Mapping[str, bytes]) -> None:
        """Fetch and verify all metadata of the site. Raises like `TrustClient.refresh`.

        ``before`` contains the old timestamp and snapshot for comparison, in case the store lacks them.
        """
        with explained(self._store.path):
            self._store.prepare(self._anchor)
            for name, data in before.items():
                if self._store.read(name) is None:
                    self._store.write(name, data)
            workflow = _Workflow(self._store, self._anchor, self.mirror, self._now)
            try:
                workflow.refresh()
                self._bins = workflow.all_bins()
            except (RepositoryError, DownloadError) as error:
                raise verdict(error, workflow) from error

    @property
    def timestamp(self) -> bytes:
        """Return the site's ``timestamp.json``, after `refresh`."""
        return self._read("timestamp.json")

    def metadata(self) -> dict[str, bytes]:
        """Return all metadata of the timestamp, and the roots from the anchor on, by path."""
        timestamp = Metadata[Timestamp].from_bytes(self.timestamp).signed
        snapshot = self._read("snapshot.json")
        versions = {
            name: meta.version for name, meta in Metadata[Snapshot].from_bytes(snapshot).signed.meta.items()
        }
        desired = {"targets.json", *(f"{name}.json" for name in self._bins)}
        result = {f"{versions[name]}.{name}": self._read(name) for name in desired}
        result[f"{timestamp.snapshot_meta.version}.snapshot.json"] = snapshot
        result["timestamp.json"] = self.timestamp
        return {f"metadata/{name}": data for name, data in (result | self._roots()).items()}

    def earlier_root(self, data: bytes, version: int) -> bytes | None:
        """Return the root before ``version``, whose contents are ``data``. ``None`` if the site no longer has it.

        Hosts that were installed with it need it. Raises `SignatureError` if it does not verify ``data``.
        """
        path = f"metadata/{version - 1}.root.json"
        where, buffer = f"{self.mirror}/{path}", io.BytesIO()
        try:
            self.mirror.download(path, LARGEST_METADATA["root"], buffer)
            root = parse_root(buffer.getvalue(), where)
            following = Metadata.from_bytes(data)
            root.verify_delegate("root", following.signed_bytes, following.signatures)
        except NotFoundError:
            return None
        except (SettingsError, RepositoryError) as error:
            detail = error.what if isinstance(error, SettingsError) else str(error)
            raise SignatureError(where, f"does not lead to root {version}: {detail}") from None
        if root.version != version - 1:
            raise SignatureError(where, f"has version {root.version}", expected=f"{version - 1}")
        return buffer.getvalue()

    def documents(self) -> Iterator[tuple[str | None, TargetFile]]:
        """Yield each index, history and document of site data that a bin names, with its bundle.

        Raises `FormatError` for an unknown target, which the copy would otherwise silently lack.
        """
        for name, of_bin in self._bins.items():
            for path, info in of_bin.targets.items():
                bundle = self._bundle_of(path)
                if bin_of(path, len(self._bins).bit_length() - 1) == name:  # elsewhere hosts ignore it
                    if "sha256" not in info.hashes:
                        raise FormatError(str(self.mirror), f"lists {path} without a sha256")
                    yield bundle, info

    def _bundle_of(self, path: str) -> str | None:
        """Return the bundle of an index or a history, or ``None`` for site data."""
        if data_name(path) is not None:
            return None
        bundle = path.partition("/")[0]
        if path not in (index_path(bundle), history_path(bundle)):
            raise FormatError(
                f"{self.mirror}",
                f"lists {path!r}, which this version of Puller cannot copy: upgrade Puller on this host",
            )
        return parse_name(bundle)

    def _roots(self) -> dict[str, bytes]:
        names = (
            name for name in os.listdir(self._store.path / "root_history") if name.endswith(".root.json")
        )
        return {name: self._read(f"root_history/{name}") for name in names}

    def _read(self, name: str) -> bytes:
        with explained(self._store.path):
            data = self._store.read(name)
        if data is None:
            raise StoreError(
                str(self._store.path / name), "is missing", hint="the next run downloads it again"
            )
        return data
