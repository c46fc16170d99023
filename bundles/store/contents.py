"""Unpacked bundles on disk, each in a directory named by the SHA-256 of its archive.

* A directory with such a name is complete. A rename gives it the name after its contents are verified and flushed.
  Before its files are removed, another rename takes the name away.
* A bundle with a changed file is never returned. A damaged bundle counts as missing.
* A fingerprint shows whether a bundle has changed since the last full comparison. It is a digest of the name, inode,
  size, mode, owner and times of each file, including the change time, which only the kernel sets. Reading these takes
  five microseconds per file.
* A bundle without a matching fingerprint is compared byte by byte. So is a bundle whose last comparison is more than
  a day old, because disks can lose data silently.
* Fingerprints protect from accidents only, because a user who can write to the store can also write fingerprints.
  They can be deleted without harm.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from bundles.digests import sha256
from bundles.errors import FormatError, StoreError
from bundles.filesystem.atomic import forget_oldest, read_limited, remove_any, sync_directory, write_file
from bundles.filesystem.trees import walk
from bundles.format.identity import DESCRIPTION, SHA256, parse_identity, parse_name
from bundles.format.member_paths import shown
from bundles.format.size_limits import LIMITS

# Fingerprints.

LONGEST_TRUSTED = 24 * 3600.0
"""Seconds after which a fingerprint says nothing any more."""

_LENGTH = 64


def fingerprint(directory: Path) -> str:
    """The digest of all that a tree shows from outside of its files; raises ``OSError``."""
    digest = sha256()
    for name, found in sorted(walk(directory)):  # the file system gives them in any order
        about = (found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_ino)
        digest.update(b"%s\0%r %d %d\n" % (os.fsencode(name), about, found.st_mtime_ns, found.st_ctime_ns))
    return digest.hexdigest()


class Fingerprints:
    """The recorded fingerprints in ``directory``, by the name of the tree. A problem with one is as good as none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fits(self, name: str, found: str) -> bool:
        """Whether ``found`` is the recorded fingerprint, and was recorded not long ago."""
        path = self._directory / name
        with contextlib.suppress(OSError, ValueError):
            age = time.time() - os.lstat(path).st_mtime  # negative: the clock was wrong then or is now
            return 0 <= age < LONGEST_TRUSTED and read_limited(path, _LENGTH) == found.encode("ascii")
        return False

    def put(self, name: str, found: str) -> None:
        """Record the fingerprint of what was compared just now."""
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_file(self._directory / name, found.encode("ascii"), mode=0o600, durable=False)

    def keep_only(self, names: Container[str]) -> None:
        """Forget the others."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._directory):
                if name not in names:
                    os.unlink(self._directory / name)


_LEFTOVER = r"\..+\.[0-9a-f]{12}\.(new|old)"


Make = Callable[[Path], object]
"""Makes a bundle's directory at a path where there is nothing, whole and on the disk, or raises and leaves nothing."""


class Installed(msgspec.Struct, frozen=True):
    """A bundle in the store; ``sha256`` is that of the archive it came from, ``path`` its directory."""

    name: str
    version: str
    sha256: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Contents:
    """The bundles below ``root``. Methods raise ``StoreError`` when the machine is the reason."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._intact: dict[Path, str] = {}
        """Bundles that have been compared, or have their recorded fingerprint, each with it."""

    # Looking

    def names(self) -> list[str]:
        """The bundles of which something is installed."""
        with explained(self.root):
            names = [name for name in _entries(self.root) if not name.startswith(".")]
            return sorted(name for name in names if (self.root / name).is_dir())

    def directory(self, name: str) -> Path:
        """The directory of all that is stored of one name; raises ``FormatError``."""
        return self.root / parse_name(name)

    def complete(self, name: str) -> list[str]:
        """The SHA-256 of each complete bundle of this name, the latest installed first."""
        with explained(directory := self.directory(name)):
            found = [entry for entry in _entries(directory) if is_sha256(entry)]
            return sorted(found, key=lambda entry: (directory / entry).lstat().st_mtime_ns, reverse=True)

    def read(self, name: str, sha256: str) -> Installed:
        """A bundle by what its ``bundle.json`` says, its other files not looked at; raises ``StoreError``."""
        place = self._place(name, sha256)
        with explained(place):
            identity = parse_identity(read_limited(place / DESCRIPTION, LIMITS.description))
        if identity.name != name:
            raise StoreError(f"{place}: {DESCRIPTION}: name", f"is {identity.name!r}", expected=f"{name!r}")
        return Installed(name, identity.version, sha256, place)

    def read_intact(self, name: str, sha256: str) -> Installed:
        """A bundle whose files are as they were unpacked; raises ``StoreError`` when they are not."""
        bundle = self.read(name, sha256)
        if bundle.path not in self._intact:
            found = self._fingerprint(bundle.path)
            # What was added, by a command of the bundle that keeps a cache beside itself, changes none of its files.
            if not self._fingerprints.fits(sha256, found) and (
                wrong := self.differences(bundle, unlisted=False)
            ):
                from bundles.first_few import first_few  # only for messages

                raise StoreError(str(bundle.path), first_few(wrong, 1))
            self._intact[bundle.path] = found
        return bundle

    def differences(self, bundle: Installed, *, unlisted: bool = True) -> list[str]:
        """How a bundle differs from its ``bundle.json``, in sentences; see ``bundles.store.verify``."""
        from bundles.store.verify import differences

        with explained(bundle.path):
            return differences(bundle.path, unlisted=unlisted)

    def is_sound(self, name: str, sha256: str, *, repair: bool) -> bool:
        """Whether a bundle is there and intact; with ``repair`` every byte is compared to find out."""
        with suppress(StoreError):
            bundle = self.read_intact(name, sha256)
            return not (repair and self.differences(bundle))
        return False

    # Changing

    def put(self, name: str, sha256: str, make: Make) -> Path:
        """Let ``make`` make a bundle in place of what is there, if anything; steps 2 to 4 of ``Store.install``.

        Raises ``StoreError``, and what ``make`` raises.
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
        """Remove the bundles of this name but for ``kept``, and leftovers; the SHA-256 of what was removed."""
        with explained(directory := self.directory(name)):
            removed = sorted(entry for entry in _entries(directory) if is_sha256(entry) and entry not in kept)
            for sha256 in removed:
                _discard(directory / sha256)
            _sweep(directory)
            _sweep(self.root)
        return removed

    def remove(self, name: str) -> None:
        """Remove all that is stored of this name; nothing stored is no error."""
        with explained(directory := self.directory(name)):
            if os.path.lexists(directory):
                _discard(directory)
            _sweep(self.root)

    def renew_fingerprints(self) -> None:
        """Record those of what was compared without one that fits; looking (status, a dry run) writes none."""
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
    """Whether ``text`` can be the name of a complete bundle."""
    return re.fullmatch(SHA256, text) is not None


def hidden(path: Path, purpose: str) -> Path:
    """A random name beside ``path``, which `_sweep` knows for a leftover if a crash keeps it from its own."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.{purpose}")


def set_aside(path: Path) -> None:
    """Keep what is in the place of something else, for people to look at; raises ``StoreError``."""
    with explained(path):
        os.rename(path, path.with_name(f"{path.name}.{os.urandom(6).hex()}.damaged"))
        forget_oldest(path.parent, suffix=".damaged")


@contextmanager
def explained(place: Path) -> Iterator[None]:
    """A problem with ``place``: what goes wrong within raises ``StoreError`` that names it."""
    try:
        yield
    except FormatError as error:
        raise error.under(f"{place}: {error.where}", StoreError) from error
    except OSError as error:
        raise StoreError(str(error.filename or place), str(error.strerror)) from error
    except ValueError as error:
        raise StoreError(str(place), str(error)) from error


def _discard(place: Path, *, successor: Path | None = None) -> None:
    """Take a directory's name away before its files; its ``successor``, if any, gets the name at once.

    A crash between the two renames leaves ``current`` dangling, which ``install`` sees to.
    """
    os.rename(place, old := hidden(place, "old"))
    if successor:
        os.rename(successor, place)
    # Before the first file is removed: after a power cut the old name must not be back, with files missing below it.
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
