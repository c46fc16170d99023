"""The bundles on this machine.

    <root>/<name>/<sha256>/   an unpacked bundle, named by the SHA-256 of its archive; read-only
    <root>/<name>/current     link: what is applied
    <root>/<name>/good        link: the last one that passed
    <root>/<name>/previous    link: what `current` was before
    <root>/<name>/.*          what an interrupted step left; the next `prune` removes it
    <root>/<name>/*.damaged   what was in the place of a link or a bundle and is none
    <root>/.seals/<sha256>    by which a bundle is known to be what it was; see `bundles.store.fingerprints`

* A directory named by a SHA-256 is complete: it gets that name by a rename, once its contents are checked and
  on the disk. It loses that name by a rename too, before the first file in it is removed.
* A link points to its old or to its new bundle at every instant, across crashes and power cuts.
* No bundle is handed out in which a file is not as it was unpacked; one that is damaged is as good as not there.
* Only *not found* means absent. Anything else in the place of a link or a bundle is an error that names it;
  `activate` and `install` get the machine back from there.

Two processes must not change one store at a time; the agent's lock sees to that.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bundles.errors import FormatError, StoreError, UnpackError
from bundles.filesystem.atomic import forget_oldest, read_limited, remove_any, sync_directory
from bundles.format.identity import DESCRIPTION, parse_identity, parse_name
from bundles.format.limits import LIMITS, Limits
from bundles.format.paths import shown

if TYPE_CHECKING:
    from bundles.store.fingerprints import Fingerprints

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}\.(new|old)")


class Installed(msgspec.Struct, frozen=True):
    """A bundle in the store; ``sha256`` is that of the archive it came from, ``path`` its directory."""

    name: str
    version: str
    sha256: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Store:
    """All bundles below ``root``. Methods raise ``StoreError`` when the machine is the reason.

    The root and the directories in it are made when they are needed, and only for their owner: bundles hold
    secrets.
    """

    def __init__(self, root: Path, *, limits: Limits = LIMITS) -> None:
        self.root = root
        self.limits = limits
        self._intact: dict[Path, str] = {}
        """Bundles that have been compared, or have their recorded fingerprint, each with it."""

    # What is there

    def names(self) -> list[str]:
        """The bundles of which something is installed."""
        with _explained(self.root):
            names = [name for name in _entries(self.root) if not name.startswith(".")]
            return sorted(name for name in names if (self.root / name).is_dir())

    def installed(self, name: str) -> list[Installed]:
        """All complete bundles of this name, the latest installed first."""
        with _explained(directory := self._directory(name)):
            found = [entry for entry in _entries(directory) if _SHA256.fullmatch(entry)]
            found.sort(key=lambda entry: (directory / entry).stat().st_mtime_ns, reverse=True)
        return [self._read(name, sha256) for sha256 in found]

    def find(self, name: str, sha256: str) -> Installed | None:
        """The bundle of an archive with this SHA-256; ``None`` when ``install`` has to bring it, or bring it anew."""
        with suppress(StoreError):
            return self._read_intact(name, sha256)
        return None

    def current(self, name: str) -> Installed | None:
        """What is applied on this machine; ``None`` when nothing has been yet."""
        return self._follow(name, "current")

    def named(self, name: str) -> Installed | None:
        """What ``current`` names, also where its files are damaged; ``None`` when that cannot be told."""
        with suppress(StoreError):
            if (sha256 := self._target(name, "current")) is not None:
                return self._read(name, sha256)
        return None

    def good(self, name: str) -> Installed | None:
        """The last bundle that passed."""
        return self._follow(name, "good")

    def previous(self, name: str) -> Installed | None:
        """What was current before."""
        return self._follow(name, "previous")

    def verify(self, name: str, sha256: str | None = None) -> list[str]:
        """How a bundle, by default the current one, differs from its ``bundle.json``; reads every file."""
        wanted = sha256 or self._target(name, "current")
        return self._differences(self._read(name, wanted)) if wanted else []

    # Steps of a run

    def install(
        self,
        archive: Path,
        *,
        name: str,
        version: str,
        sha256: str,
        repair: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Installed:
        """Unpack ``archive`` unless its bundle is there already, in which case the archive is not looked at.

        A bundle that is there and is damaged is replaced; with ``repair`` every byte is compared to find out. Raises
        ``SignatureError`` and ``UnpackError`` as ``unpack`` does, and what ``check`` raises; what is there stays then.
        """
        place = self._place(name, sha256)
        if not self._is_sound(name, sha256, repair=repair):
            self._make_directory(name)
            fresh = _hidden(place, "new") if os.path.lexists(place) else place
            from bundles.archive.unpack import (
                unpack,  # and all that it checks with: not for what is here already
            )

            unpack(archive, fresh, name=name, version=version, sha256=sha256, limits=self.limits, check=check)
            if fresh != place:
                with _explained(place):
                    self._discard(place, successor=fresh)
            self._intact.pop(place, None)
            self._fingerprints.put(sha256, self._fingerprint(place))
        bundle = self._read(name, sha256)
        if bundle.version != version:
            where = f"{place}: {DESCRIPTION}: version"
            raise UnpackError(where, f"is {bundle.version!r}, wanted {version!r}")
        return bundle

    def activate(self, name: str, sha256: str) -> Installed:
        """Make an installed bundle the current one, and remember the one before it."""
        bundle = self._read_intact(name, sha256)
        before = self._readable(name, "current")  # if it is damaged, there is nothing to remember
        if before and before.sha256 != sha256:
            self._point(name, "previous", before.sha256)
        if before != bundle:
            self._point(name, "current", sha256)
        return bundle

    def mark_good(self, name: str, sha256: str) -> None:
        """Remember an installed bundle as the one to roll back to."""
        self._read_intact(name, sha256)
        with suppress(StoreError):
            if self._target(name, "good") == sha256:
                return
        self._point(name, "good", sha256)

    # Housekeeping

    def prune(self, name: str, *, except_for: str = "") -> list[str]:
        """Remove all bundles but current, good, previous and the one with the SHA-256 ``except_for``, and leftovers.

        Returns the SHA-256 of what was removed.

        Removes nothing as long as one of the links cannot be read; what is in the place of `previous`, which nothing
        else corrects, is set aside.
        """
        try:
            self._target(name, "previous")
        except StoreError as error:
            if isinstance(error.__cause__, OSError):  # it cannot be read, which says nothing about what it is
                raise
            self._set_aside(self._directory(name) / "previous")
            raise StoreError(error.where, f"{error.what}; set aside") from error
        kept = {except_for, *(self._target(name, link) for link in ("current", "good", "previous"))}
        with _explained(directory := self._directory(name)):
            removed = sorted(
                entry for entry in _entries(directory) if _SHA256.fullmatch(entry) and entry not in kept
            )
            for sha256 in removed:
                self._discard(directory / sha256)
            _sweep(directory)
            _sweep(self.root)
        self._renew_fingerprints()
        return removed

    def remove(self, name: str) -> None:
        """Remove all that is stored of this name; nothing stored is no error."""
        with _explained(directory := self._directory(name)):
            if os.path.lexists(directory):
                self._discard(directory)
            _sweep(self.root)

    # The rest is how

    def _directory(self, name: str) -> Path:
        return self.root / parse_name(name)

    def _place(self, name: str, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise FormatError("sha256", f"is {shown(sha256)}, wanted 64 hexadecimal digits")
        return self._directory(name) / sha256

    def _make_directory(self, name: str) -> None:
        with _explained(directory := self._directory(name)):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.path.lexists(directory) and not directory.is_dir():
                self._set_aside(directory)
            directory.mkdir(mode=0o700, exist_ok=True)
            sync_directory(self.root)

    def _is_sound(self, name: str, sha256: str, *, repair: bool) -> bool:
        if self.find(name, sha256) is None:
            return False
        with suppress(StoreError):
            return not (repair and self.verify(name, sha256))
        return False

    def _read(self, name: str, sha256: str) -> Installed:
        place = self._place(name, sha256)
        with _explained(place):
            identity = parse_identity(read_limited(place / DESCRIPTION, LIMITS.description))
        if identity.name != name:
            raise StoreError(f"{place}: {DESCRIPTION}: name", f"is {identity.name!r}, wanted {name!r}")
        return Installed(name, identity.version, sha256, place)

    def _read_intact(self, name: str, sha256: str) -> Installed:
        bundle = self._read(name, sha256)
        if bundle.path not in self._intact:
            found = self._fingerprint(bundle.path)
            # What was added, by a command of the bundle that keeps a cache beside itself, changes none of its files.
            if not self._fingerprints.fits(sha256, found) and (
                wrong := self._differences(bundle, unlisted=False)
            ):
                others = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
                raise StoreError(str(bundle.path), f"{wrong[0]}{others}")
            self._intact[bundle.path] = found
        return bundle

    def _fingerprint(self, place: Path) -> str:
        from bundles.store.fingerprints import fingerprint

        with _explained(place):
            return fingerprint(place)

    def _differences(self, bundle: Installed, *, unlisted: bool = True) -> list[str]:
        from bundles.store.verify import differences

        with _explained(bundle.path):
            return differences(bundle.path, unlisted=unlisted)

    @property
    def _fingerprints(self) -> "Fingerprints":
        from bundles.store.fingerprints import Fingerprints

        return Fingerprints(self.root / ".seals")

    def _renew_fingerprints(self) -> None:
        """Of what was compared without one that fits; looking (status, a dry run) writes none."""
        known = self._fingerprints
        for place, found in self._intact.items():
            if os.path.lexists(place) and not known.fits(place.name, found):
                known.put(place.name, found)
        known.keep_only({entry for name in self.names() for entry in _entries(self.root / name)})

    def _follow(self, name: str, link: str) -> Installed | None:
        if (sha256 := self._target(name, link)) is None:
            return None
        try:
            return self._read_intact(name, sha256)
        except StoreError as error:
            raise StoreError(
                str(self._directory(name) / link), f"points to a damaged bundle: {error}"
            ) from error

    def _readable(self, name: str, link: str) -> Installed | None:
        with suppress(StoreError):
            return self._follow(name, link)
        return None

    def _target(self, name: str, link: str) -> str | None:
        path = self._directory(name) / link
        with _explained(path):
            try:
                target = os.readlink(path)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                from bundles.filesystem.trees import kind_of

                raise StoreError(str(path), f"is {kind_of(os.lstat(path).st_mode)}, wanted a link") from None
        if not _SHA256.fullmatch(target):
            raise StoreError(str(path), f"points to {shown(target)}, wanted the SHA-256 of a bundle")
        return target

    def _point(self, name: str, link: str, sha256: str) -> None:
        path = self._directory(name) / link
        with _explained(path):
            if path.is_dir() and not path.is_symlink():
                # A backup that follows links restores them as directories, which rename does not replace.
                self._set_aside(path)
            os.symlink(sha256, temporary := _hidden(path, "new"))
            try:
                os.rename(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
            sync_directory(path.parent)

    def _set_aside(self, path: Path) -> None:
        with _explained(path):
            os.rename(path, path.with_name(f"{path.name}.{os.urandom(6).hex()}.damaged"))
            forget_oldest(path.parent, suffix=".damaged")

    def _discard(self, place: Path, *, successor: Path | None = None) -> None:
        """Take a directory's name away before its files; its ``successor``, if any, gets the name at once.

        A crash between the two renames leaves ``current`` dangling, which ``install`` sees to.
        """
        os.rename(place, old := _hidden(place, "old"))
        if successor:
            os.rename(successor, place)
        sync_directory(place.parent)
        remove_any(old)


def _hidden(path: Path, purpose: str) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.{purpose}")


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _sweep(directory: Path) -> None:
    for entry in _entries(directory):
        if _LEFTOVER.fullmatch(entry):
            remove_any(directory / entry)


@contextmanager
def _explained(place: Path) -> Iterator[None]:
    try:
        yield
    except FormatError as error:
        raise StoreError(f"{place}: {error.where}", error.what) from error
    except OSError as error:
        raise StoreError(str(error.filename or place), str(error.strerror)) from error
    except ValueError as error:
        raise StoreError(str(place), str(error)) from error
