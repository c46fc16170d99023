"""Trusted metadata of this host, below ``/var/lib/puller/trust``, and the trust anchor.

* Rollback is detected by comparison with these files, so a damaged file is renamed and noted. python-tuf would
  silently fetch a new one.
* Damage does not stop a run that can continue. The anchor and the site replace the damaged file.
* Only the bins, indexes and documents of this host are kept. They do not protect from rollback: the snapshot contains
  the version of every bin.
* New keys for the timestamp or the snapshot reset the versions of that role (TUF specification, 5.3.11). Otherwise a
  thief of the old keys could publish a huge version number and block every later version.
* The trust anchor is a root file that was provisioned with this machine. It must carry as many signatures of its own
  keys as it requires. It may be old or expired: the client follows the site's roots from there.

Effects of damage: without ``timestamp.json``, the host accepts an old timestamp once if it has not expired, but the
snapshot still blocks old targets. Without both files, the host accepts an old copy of the site if it has not expired.
A root is never rolled back, because the file names keep the number of the highest root even if the files are damaged.
"""

import enum
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tuf.api.exceptions import RepositoryError, UnsignedMetadataError

from bundles.errors import BundleError, SettingsError
from bundles.filesystem.atomic import (
    forget_oldest,
    open_directory,
    read_limited,
    remove_any,
    remove_leftovers,
    sync_directory,
    write_file,
)
from bundles.format.index import index_path
from bundles.format.site_targets import data_path, is_bin_file
from bundles.format.size_limits import LARGEST_METADATA, LARGEST_STORED
from bundles.format.tuf import Metadata, Root, Snapshot, Targets, Timestamp, check_metadata
from bundles.progress import RoutineNote
from foundation.times import zulu_text

# The trust anchor.

_LARGEST = LARGEST_METADATA["root"]
_EXPECTED = "the root.json that `puller site init` wrote"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A trust anchor. ``where`` is for messages."""

    data: bytes
    version: int
    where: str

    @classmethod
    def load(cls, source: Path | bytes) -> "Anchor":
        """Read and check an anchor. Raises `SettingsError`."""
        where = "the trust anchor" if isinstance(source, bytes) else str(source)
        data = source if isinstance(source, bytes) else _read(source)
        return cls(data, parse_root(data, where).version, where)


def parse_root(data: bytes, where: str) -> Root:
    """Parse a root that is signed with its own keys. Raises `SettingsError`."""
    try:
        check_metadata(data, where)
        metadata = Metadata[Root].from_bytes(data)
        if not isinstance(metadata.signed, Root):
            raise SettingsError(where, f"is metadata of type {metadata.signed.type!r}", expected=_EXPECTED)
        metadata.signed.verify_delegate(Root.type, metadata.signed_bytes, metadata.signatures)
    except UnsignedMetadataError as error:
        raise SettingsError(where, f"is damaged, because it is not signed by its own keys: {error}") from None
    except SettingsError:  # already complete; it is a BundleError, too
        raise
    except BundleError as error:
        raise SettingsError(where, error.what, expected=_EXPECTED) from None
    except RepositoryError as error:
        raise SettingsError(where, f"is not a root: {error.__cause__ or error}", expected=_EXPECTED) from None
    return metadata.signed


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, _LARGEST)
    except FileNotFoundError:
        raise SettingsError(str(path), "the trust anchor is missing", expected=_EXPECTED) from None
    except OSError as error:
        raise SettingsError(str(path), f"the trust anchor cannot be read: {error.strerror}") from None
    except ValueError:
        raise SettingsError(str(path), f"has more than {_LARGEST} bytes", expected=_EXPECTED) from None


_HISTORY = "root_history"
_INDEXES = "indexes"
_ROOT = re.compile(r"([0-9]{1,15})\.root\.json")
_CLOCK_TOLERANCE = timedelta(minutes=5)


_Role = Timestamp | Snapshot | Targets


def index_file(bundle: str) -> str:
    """Return the name of a stored index, relative to the directory."""
    return f"{_INDEXES}/{bundle}.json"


def document_file(name: str) -> str:
    """Return the name of a stored document of site data. Names of bundles cannot start with an underscore."""
    return f"{_INDEXES}/_{name}.yaml"


class _Standing(enum.Enum):
    TRUSTED = enum.auto()
    ROTATED = enum.auto()
    """Signed by a key that has been revoked."""
    SHORT = enum.auto()
    """Signed by too few keys for the current threshold, all of them still trusted. Stays until it is replaced."""
    DAMAGED = enum.auto()


class TrustDirectory:
    """The directory at ``path``. Problems are added to ``notes``. Methods raise ``OSError``."""

    def __init__(self, path: Path, notes: list[str], now: Callable[[], datetime]) -> None:
        self.path = path
        self.notes = notes
        self._now = now

    def prepare(self, anchor: Anchor) -> None:
        """Prepare the directory. Start over if the anchor belongs to another site."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_directories()
        for place in (self.path, self.path / _INDEXES):
            with open_directory(place) as directory:
                remove_leftovers(directory)
        if _is_real_directory(self.path / "root.json"):  # each refresh recreates it as a link
            self.set_aside("root.json", "is a directory")
        self._check_origin(anchor)
        self._check_clock()

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file, or ``None``. Sets aside an object that cannot be a stored file."""
        path = self.path / name
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                self.set_aside(name, "is not a regular file")
                return None
            return read_limited(path, LARGEST_STORED)
        except FileNotFoundError:
            return None
        except ValueError:
            self.set_aside(name, f"has more than {LARGEST_STORED} bytes")
            return None

    def write(self, name: str, data: bytes) -> None:
        """Replace a file, unless it is identical. A run without news writes nothing."""
        result = self.read(name)
        if result == data:
            return
        if result is not None and name.startswith(f"{_HISTORY}/"):
            self.set_aside(name, "is not the root of this version")
        write_file(self.path / name, data)

    def write_or_remove(self, name: str, data: bytes) -> None:
        """Write the file, or remove it if ``data`` is empty."""
        if data:
            self.write(name, data)
        else:
            (self.path / name).unlink(missing_ok=True)

    def set_aside(self, name: str, why: str) -> None:
        """Rename an invalid file for inspection, to a name that is never read."""
        retained = f"{name}.damaged-{self._now():%Y%m%dT%H%M%S.%fZ}"
        os.rename(self.path / name, self.path / retained)
        place = (self.path / name).parent
        sync_directory(place)
        forget_oldest(place, f"{Path(name).name}.damaged-")
        self.notes.append(f"{self.path / name}: {why} (moved to {self.path / retained})")

    def highest_root(self) -> int:
        """Return the highest root version that was ever stored here, or 0. Includes roots that were set aside."""
        names = os.listdir(self.path / _HISTORY)
        return max((int(match[1]) for name in names if (match := _ROOT.match(name))), default=0)

    def check_roles(self, root: Root) -> None:
        """Set aside metadata that ``root`` does not verify, before other metadata is compared with it.

        1. Verify each stored role with the keys of ``root``.
        2. Set aside damaged roles. Versions are then checked against the remaining ones.
        3. If timestamp or snapshot were signed by a revoked key, delete both (TUF 5.3.11).
        4. If any role was not trusted, delete the indexes.
        5. Set aside damaged bins, and delete bins that lack signatures by now.
        """
        # 1.
        standings = {role: self._standing(role.type, role, root) for role in (Timestamp, Snapshot, Targets)}
        # 2.
        for role, standing in standings.items():
            if standing is _Standing.DAMAGED:
                self.set_aside(
                    f"{role.type}.json", "is damaged, so versions are checked with the other metadata"
                )
        # 3.
        if _Standing.ROTATED in (standings[Timestamp], standings[Snapshot]):
            self._forget_versions(root)
        # 4.
        if not set(standings.values()) <= {_Standing.TRUSTED}:
            # They depend on untrusted metadata, and without them the stored data never counts as complete.
            self._remove(self._indexes())
        # 5.
        self._check_bins(root)

    def keep_only(self, bundles: Sequence[str], documents: Sequence[str] = ()) -> None:
        """Remove the bins and indexes of all other bundles and documents. Call this after a refresh."""
        targets = self._targets()
        if targets and targets.delegations and (roles := targets.delegations.succinct_roles):
            paths = (*map(index_path, bundles), *map(data_path, documents))
            of_these = {f"{roles.get_role_for_target(path)}.json" for path in paths}
            files = {*map(index_file, bundles), *map(document_file, documents)}
            self._remove({*self._bins(), *self._indexes()} - of_these - files)

    def _check_bins(self, root: Root) -> None:
        for name in self._bins():
            standing = self._standing(name.removesuffix(".json"), Targets, root)
            if standing is _Standing.DAMAGED:
                self.set_aside(name, "is damaged and is downloaded again")
            elif standing is not _Standing.TRUSTED:
                self._remove([name])

    def _targets(self) -> Targets | None:
        data = self.read(f"{Targets.type}.json")
        return Metadata[Targets].from_bytes(data).signed if data else None

    def _bins(self) -> list[str]:
        return [name for name in os.listdir(self.path) if is_bin_file(name)]

    def _indexes(self) -> list[str]:
        return [f"{_INDEXES}/{name}" for name in os.listdir(self.path / _INDEXES) if ".damaged-" not in name]

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            remove_any(self.path / name)

    def _standing(self, name: str, role: type[_Role], root: Root) -> _Standing:
        data = self.read(f"{name}.json")
        if data is None:
            return _Standing.TRUSTED
        try:
            metadata: Metadata[Any] = Metadata.from_bytes(data)
            root.verify_delegate(role.type, metadata.signed_bytes, metadata.signatures)
        except UnsignedMetadataError:
            # Invalid signatures of current keys mean damage. Missing ones were not required before.
            desired = root.roles[role.type]
            present = metadata.signatures.keys() & desired.keyids
            if len(present) >= desired.threshold:
                return _Standing.DAMAGED
            revoked = metadata.signatures.keys() - desired.keyids
            return _Standing.ROTATED if revoked else _Standing.SHORT
        except RepositoryError:
            return _Standing.DAMAGED
        return _Standing.TRUSTED if metadata.signed.type == role.type else _Standing.DAMAGED

    def _forget_versions(self, root: Root) -> None:
        for role in (Timestamp, Snapshot):
            (self.path / f"{role.type}.json").unlink(missing_ok=True)
        self.notes.append(
            RoutineNote(
                f"{self.path}: root {root.version} replaced keys of the site, so versions can start again"
            )
        )

    def _make_directories(self) -> None:
        for name in (_HISTORY, _INDEXES):
            if os.path.lexists(self.path / name) and not _is_real_directory(self.path / name):
                self.set_aside(name, "is not a directory")
            (self.path / name).mkdir(mode=0o700, exist_ok=True)

    def _check_origin(self, anchor: Anchor) -> None:
        """Start over if the anchor contradicts the stored root, because it then belongs to another site."""
        name = f"{_HISTORY}/{anchor.version}.root.json"
        result = self.read(name)
        if result is None or result == anchor.data:
            return
        try:
            parse_root(result, name)
        except SettingsError as error:
            self.set_aside(name, error.what)
        else:
            self._start_over(anchor)

    def _start_over(self, anchor: Anchor) -> None:
        retained = self.path / f"before-{self._now():%Y%m%dT%H%M%S.%fZ}"
        retained.mkdir(mode=0o700)
        for entry in self.path.iterdir():
            if not entry.name.startswith("before-"):
                entry.rename(retained / entry.name)
        forget_oldest(self.path, "before-")
        self._make_directories()
        self.notes.append(
            f"{anchor.where}: belongs to another site, so all metadata is verified anew. "
            f"The old metadata is kept in {retained}"
        )

    def _check_clock(self) -> None:
        try:
            stored = datetime.fromtimestamp(
                os.stat(self.path / "timestamp.json").st_mtime, self._now().tzinfo
            )
        except FileNotFoundError:
            return
        if stored > self._now() + _CLOCK_TOLERANCE:
            clock, then = zulu_text(self._now()), zulu_text(stored)
            self.notes.append(
                f"the clock of this host shows {clock}, and metadata was stored at {then}: "
                "the clock is or was wrong, so expired metadata may be accepted or valid metadata rejected"
            )


def _is_real_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
