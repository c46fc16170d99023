"""Unpacked bundles on disk, each in a directory named by the SHA-256 of its archive.

* A directory with such a name is complete. A rename gives it the name after its contents are verified and flushed.
  Before its files are removed, another rename takes the name away.
* A bundle with a changed file is never returned. A damaged bundle counts as missing.
* A fingerprint shows whether a bundle has changed since the last full comparison. It is a digest of the name, inode,
  size, mode, owner and times of each file, including the change time, which only the kernel sets. Reading these takes
  five microseconds per file.
* A bundle without a matching fingerprint is compared with its description byte by byte. So is a bundle whose last
  comparison is more than a day old, because disks can lose data silently. The differences are sentences. An empty list
  means that exactly the listed files exist, with their contents and modes.
* Fingerprints protect from accidents only, because a user who can write to the store can also write fingerprints.
  They can be deleted without harm.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bundles.digests import sha256
from bundles.errors import FormatError, StoreError
from bundles.filesystem.atomic import forget_oldest, read_limited, remove_any, sync_directory, write_file
from bundles.filesystem.trees import kind_of, measure, walk
from bundles.format.fields import DESCRIPTION, SHA256, MemberPath, parse_identity, parse_name, shown
from bundles.format.size_limits import LIMITS
from foundation.quantities import first_few

if TYPE_CHECKING:
    from bundles.format.description import FileEntry


def read_description(directory: Path) -> bytes:
    """Return the ``bundle.json`` of an unpacked bundle. Raises ``OSError``, and ``ValueError`` if it is too large."""
    return read_limited(directory / DESCRIPTION, LIMITS.description)


def differences(directory: Path, *, unlisted: bool = True) -> list[str]:
    """Return the differences of an unpacked bundle from its ``bundle.json``. Raises ``FormatError`` and ``OSError``.

    Without ``unlisted``, additional files are ignored.
    """
    # 2 % of an idle run, which compares fingerprints
    from bundles.format.description import BundleDescription

    description = BundleDescription.parse(read_description(directory))
    result = dict(walk(directory))
    del result[DESCRIPTION]
    desired = {path.text for path in description.files} | description.directories
    added = [name for name in result if name not in desired] if unlisted else []
    sentences = [f"{shown(name)} is not listed in bundle.json" for name in added]
    for path, entry in description.files.items():
        sentences += [
            f"{shown(path.text)} {what}" for what in _of_file(directory, path, entry, result.get(path.text))
        ]
    return sentences


def _of_file(
    directory: Path, path: MemberPath, entry: "FileEntry", status: os.stat_result | None
) -> Iterator[str]:
    if status is None:
        yield "is missing"
        return
    if not stat.S_ISREG(status.st_mode):
        yield f"is {kind_of(status.st_mode)}, expected a regular file"
        return
    if (mode := stat.S_IMODE(status.st_mode)) != entry.mode.unpacked:
        yield f"has the mode {mode:04o}, expected {entry.mode.unpacked:04o}"
    contents = measure(directory / path.text)
    if contents.size != entry.size:
        yield f"has {contents.size} bytes, expected {entry.size}"
    elif contents.sha256 != entry.sha256:
        yield f"has the sha256 {contents.sha256}, expected {entry.sha256}"


# Fingerprints.

LONGEST_TRUSTED = 24 * 3600.0
"""Seconds after which a fingerprint is no longer trusted."""

_LENGTH = 64


def fingerprint(directory: Path) -> str:
    """Return the digest of the names and metadata of all files of a tree. Raises ``OSError``."""
    digest = sha256()
    for name, found in sorted(walk(directory)):  # the order of directory entries is not defined
        about = (found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_ino)
        digest.update(b"%s\0%r %d %d\n" % (os.fsencode(name), about, found.st_mtime_ns, found.st_ctime_ns))
    return digest.hexdigest()


class Fingerprints:
    """The recorded fingerprints in ``directory``, by the name of the tree. Unreadable fingerprints count as missing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fits(self, name: str, found: str) -> bool:
        """Return whether ``found`` is the recorded fingerprint and recent."""
        path = self._directory / name
        with contextlib.suppress(OSError, ValueError):
            age = time.time() - os.lstat(path).st_mtime  # negative: the clock is or was wrong
            return 0 <= age < LONGEST_TRUSTED and read_limited(path, _LENGTH) == found.encode("ascii")
        return False

    def put(self, name: str, found: str) -> None:
        """Record the fingerprint of a tree that was just compared."""
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_file(self._directory / name, found.encode("ascii"), mode=0o600, durable=False)

    def keep_only(self, names: Container[str]) -> None:
        """Delete the fingerprints of other trees."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._directory):
                if name not in names:
                    os.unlink(self._directory / name)


_LEFTOVER = r"\..+\.[0-9a-f]{12}\.(new|old)"


Make = Callable[[Path], object]
"""Creates a bundle's directory at an unused path, complete and flushed. Raises and leaves nothing otherwise."""


class Installed(msgspec.Struct, frozen=True):
    """A bundle in the store: ``sha256`` of its archive, and ``path`` of its directory."""

    name: str
    version: str
    sha256: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Contents:
    """The bundles below ``root``. Methods raise ``StoreError`` for problems of the machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._intact: dict[Path, str] = {}
        """Fingerprints of bundles that were compared or match their recorded fingerprint."""

    # Reading

    def names(self) -> list[str]:
        """Return the names of bundles with stored contents, sorted."""
        with explained(self.root):
            names = [name for name in _entries(self.root) if not name.startswith(".")]
            return sorted(name for name in names if (self.root / name).is_dir())

    def directory(self, name: str) -> Path:
        """Return the directory of a bundle name. Raises ``FormatError``."""
        return self.root / parse_name(name)

    def complete(self, name: str) -> list[str]:
        """Return the SHA-256 of each complete bundle of this name, latest installed first."""
        with explained(directory := self.directory(name)):
            results = [entry for entry in _entries(directory) if is_sha256(entry)]
            return sorted(results, key=lambda entry: (directory / entry).lstat().st_mtime_ns, reverse=True)

    def read(self, name: str, sha256: str) -> Installed:
        """Read the ``bundle.json`` of a bundle, without a check of its other files. Raises ``StoreError``."""
        place = self._place(name, sha256)
        with explained(place):
            identity = parse_identity(read_limited(place / DESCRIPTION, LIMITS.description))
        if identity.name != name:
            raise StoreError(f"{place}: {DESCRIPTION}: name", f"is {identity.name!r}", expected=f"{name!r}")
        return Installed(name, identity.version, sha256, place)

    def read_intact(self, name: str, sha256: str) -> Installed:
        """Return a bundle with unchanged files. Raises ``StoreError`` if a file has changed."""
        bundle = self.read(name, sha256)
        if bundle.path not in self._intact:
            result = self._fingerprint(bundle.path)
            # Additional files are accepted: a command of the bundle may keep a cache in its directory.
            if not self._fingerprints.fits(sha256, result) and (
                wrong := self.differences(bundle, unlisted=False)
            ):
                raise StoreError(str(bundle.path), first_few(wrong, 1))
            self._intact[bundle.path] = result
        return bundle

    def differences(self, bundle: Installed, *, unlisted: bool = True) -> list[str]:
        """Return differences between a bundle and its ``bundle.json``, in sentences. See ``bundles.store.contents``."""

        with explained(bundle.path):
            return differences(bundle.path, unlisted=unlisted)

    def is_sound(self, name: str, sha256: str, *, repair: bool) -> bool:
        """Return whether a bundle is intact. With ``repair``, compare every byte."""
        with suppress(StoreError):
            bundle = self.read_intact(name, sha256)
            return not (repair and self.differences(bundle))
        return False

    # Changing

    def put(self, name: str, sha256: str, make: Make) -> Path:
        """Let ``make`` create a bundle and replace the existing directory: steps 2 to 4 of ``Store.install``.

        Raises ``StoreError``, and the errors of ``make``.
        """
        place = self._place(name, sha256)
        # 2.
        self._make_directory(name)
        # 3.
        fresh = hidden(place, "new") if os.path.lexists(place) else place
        make(fresh)
        # 4.
        if fresh != place:
            with explained(place):
                _discard(place, successor=fresh)
        self._intact.pop(place, None)
        self._fingerprints.put(sha256, self._fingerprint(place))
        return place

    def keep_only(self, name: str, kept: set[str | None]) -> list[str]:
        """Remove leftovers and the bundles of this name except ``kept``. Returns the removed SHA-256."""
        with explained(directory := self.directory(name)):
            removed = sorted(entry for entry in _entries(directory) if is_sha256(entry) and entry not in kept)
            for sha256 in removed:
                _discard(directory / sha256)
            _sweep(directory)
            _sweep(self.root)
        return removed

    def remove(self, name: str) -> None:
        """Remove everything stored under this name, if anything."""
        with explained(directory := self.directory(name)):
            if os.path.lexists(directory):
                _discard(directory)
            _sweep(self.root)

    def renew_fingerprints(self) -> None:
        """Record new fingerprints of compared bundles. Read-only commands (status, a dry run) do not call this."""
        known = self._fingerprints
        for place, found in self._intact.items():
            if os.path.lexists(place) and not known.fits(place.name, found):
                known.put(place.name, found)
        known.keep_only({entry for name in self.names() for entry in _entries(self.root / name)})

    def _place(self, name: str, sha256: str) -> Path:
        if not is_sha256(sha256):
            raise FormatError("sha256", f"is {shown(sha256)}", expected="64 hexadecimal digits")
        return self.directory(name) / sha256

    def _make_directory(self, name: str) -> None:
        with explained(directory := self.directory(name)):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.path.lexists(directory) and not directory.is_dir():
                set_aside(directory)
            directory.mkdir(mode=0o700, exist_ok=True)
            sync_directory(self.root)

    def _fingerprint(self, place: Path) -> str:
        with explained(place):
            return fingerprint(place)

    @property
    def _fingerprints(self) -> "Fingerprints":
        return Fingerprints(self.root / ".seals")


def is_sha256(text: str) -> bool:
    """Return whether ``text`` can be the name of a complete bundle."""
    return re.fullmatch(SHA256, text) is not None


def hidden(path: Path, purpose: str) -> Path:
    """Return a random name beside ``path``. `_sweep` recognizes and removes it as a leftover after a crash."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.{purpose}")


def set_aside(path: Path) -> None:
    """Rename an unexpected object out of the way, for inspection. Raises ``StoreError``."""
    with explained(path):
        os.rename(path, path.with_name(f"{path.name}.{os.urandom(6).hex()}.damaged"))
        forget_oldest(path.parent, suffix=".damaged")


@contextmanager
def explained(place: Path) -> Iterator[None]:
    """Raise ``StoreError`` that names ``place`` for errors within the block."""
    try:
        yield
    except FormatError as error:
        raise error.under(f"{place}: {error.where}", StoreError) from error
    except OSError as error:
        raise StoreError(str(error.filename or place), str(error.strerror)) from error
    except ValueError as error:
        raise StoreError(str(place), str(error)) from error


def _discard(place: Path, *, successor: Path | None = None) -> None:
    """Rename a directory away before its files are removed. A ``successor`` gets the name immediately.

    A crash between the two renames leaves ``current`` dangling. ``install`` repairs that.
    """
    os.rename(place, old := hidden(place, "old"))
    if successor:
        os.rename(successor, place)
    # Before the first file is removed: a power failure must not bring the old name back with files missing.
    sync_directory(place.parent)
    remove_any(old)


def _sweep(directory: Path) -> None:
    for entry in _entries(directory):
        if entry.endswith((".new", ".old")) and re.fullmatch(_LEFTOVER, entry):
            remove_any(directory / entry)


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
