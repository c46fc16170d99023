"""Store of the bundles on this machine.

::

    <root>/<name>/<sha256>/   an unpacked bundle, named by the SHA-256 of its archive; read-only
    <root>/<name>/current     link to the applied bundle
    <root>/<name>/good        link to the last bundle that passed
    <root>/<name>/previous    link to the bundle that was `current` before
    <root>/<name>/.*          leftovers of an interrupted step, removed by the next `prune`
    <root>/<name>/*.damaged   damaged links and bundles, and other files in their place
    <root>/.seals/<sha256>    fingerprint that detects changes of a bundle (`bundles.store.contents`)

* ``bundles.store.contents`` manages the directories, `Links` the links, and `Store` combines them for a run.
* A link points to its old or to its new bundle at every instant, across crashes and power cuts.
* Only *not found* means absent. Any other file in the place of a link or bundle is an error that names it. `activate`
  and `install` repair the store.

Two processes must not change one store at the same time. The agent's lock ensures this.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bundles.errors import StoreError, UnpackError
from bundles.filesystem.atomic import sync_directory
from bundles.filesystem.trees import kind_of
from bundles.format.fields import DESCRIPTION, shown
from bundles.format.size_limits import LIMITS, Limits
from bundles.store.contents import Contents, Installed, Make, explained, hidden, is_sha256, set_aside

if TYPE_CHECKING:
    from bundles.archive.unpack import Parts


# The links of one bundle.


class Links:
    """The links of one bundle, in ``directory``. Methods raise ``StoreError``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, link: str) -> Path:
        """Return the path of a link, for messages."""
        return self._directory / link

    def target(self, link: str) -> str | None:
        """Return the SHA-256 that a link points to, or ``None``. Raises ``StoreError`` for another type of file."""
        path = self.path(link)
        with explained(path):
            try:
                target = os.readlink(path)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise

                raise StoreError(
                    str(path), f"is {kind_of(os.lstat(path).st_mode)}", expected="a link"
                ) from None
        if not is_sha256(target):
            raise StoreError(str(path), f"points to {shown(target)}", expected="the SHA-256 of a bundle")
        return target

    def point(self, link: str, sha256: str) -> None:
        """Point a link to another bundle, atomically and durably. If it raises ``StoreError``, the old link stays."""
        path = self.path(link)
        with explained(path):
            if path.is_dir() and not path.is_symlink():
                # A backup that follows links restores them as directories, which rename does not replace.
                set_aside(path)
            os.symlink(sha256, temporary := hidden(path, "new"))
            try:
                os.rename(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
            sync_directory(path.parent)

    def set_aside_damaged(self, link: str) -> None:
        """Rename an invalid link out of the way, and raise ``StoreError`` that reports it.

        An unreadable link stays, because its type is unknown.
        """
        try:
            self.target(link)
        except StoreError as error:
            if isinstance(error.__cause__, OSError):
                raise
            set_aside(self.path(link))
            raise StoreError(error.where, f"{error.what} (set aside)") from error


class Store:
    """All bundles below ``root``. Methods raise ``StoreError`` for problems of the machine.

    The root and its directories are created on demand and are private, because bundles contain secrets.
    """

    def __init__(self, root: Path, *, limits: Limits = LIMITS) -> None:
        self.root = root
        self._limits = limits
        self._contents = Contents(root)

    # Reading

    def names(self) -> list[str]:
        """Return the names of all bundles in the store."""
        return self._contents.names()

    def installed(self, name: str) -> list[Installed]:
        """Return all complete bundles of this name, latest installed first."""
        return [self._contents.read(name, sha256) for sha256 in self._contents.complete(name)]

    def directories(self) -> list[Path]:
        """Return the directories of all complete bundles, without further checks."""
        contents = self._contents
        return [contents.directory(name) / each for name in self.names() for each in contents.complete(name)]

    def find(self, name: str, sha256: str) -> Installed | None:
        """Return the bundle of an archive with this SHA-256. ``None`` if ``install`` must fetch it again."""
        with suppress(StoreError):
            return self._contents.read_intact(name, sha256)
        return None

    def current(self, name: str) -> Installed | None:
        """Return the applied bundle, or ``None`` before the first one."""
        return self._follow(name, "current")

    def named(self, name: str, link: str = "current") -> Installed | None:
        """Return the bundle that a link names, even if its files are damaged. ``None`` if unknown."""
        with suppress(StoreError):
            if (sha256 := self._links(name).target(link)) is not None:
                return self._contents.read(name, sha256)
        return None

    def good(self, name: str) -> Installed | None:
        """Return the last bundle that passed."""
        return self._follow(name, "good")

    def previous(self, name: str) -> Installed | None:
        """Return the bundle that was current before."""
        return self._follow(name, "previous")

    def verify(self, name: str, sha256: str | None = None) -> list[str]:
        """Return the differences of a bundle (default: the current one) from its ``bundle.json``. Reads every file."""
        desired = sha256 or self._links(name).target("current")
        return self._contents.differences(self._contents.read(name, desired)) if desired else []

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
        """Unpack ``archive`` unless its bundle is already in the store. The archive is not read then.

        Replaces a damaged bundle. With ``repair``, every byte is compared. Raises ``SignatureError`` and
        ``UnpackError`` like ``unpack``, and the errors of ``check``. The old bundle then stays.

        1. If the bundle is intact, continue with step 5.
        2. Create the directory for bundles of this name, and set aside any other file in its place.
        3. Unpack (``bundles.archive.unpack``), under a hidden name if the bundle's directory exists.
        4. Replace the damaged bundle by two renames, and record the fingerprint of the new one.
        5. Read the bundle from the store, and check its version.
        """

        def make(place: Path) -> None:
            from bundles.archive.unpack import unpack  # 5 % of an idle run, whose bundles are in the store

            limits = self._limits
            unpack(archive, place, name=name, version=version, sha256=sha256, limits=limits, check=check)

        return self._installed(name, version, sha256, make, repair=repair)

    def assemble(
        self, parts: "Parts", *, name: str, version: str, check: Callable[[], None] = lambda: None
    ) -> Installed:
        """Assemble a bundle from its files, like ``install``. Raises ``UnpackError`` and ``StoreError``."""

        def make(place: Path) -> None:
            from bundles.archive.unpack import assemble  # 5 % of an idle run, see ``install``

            assemble(parts, place, name=name, version=version, limits=self._limits, check=check)

        return self._installed(name, version, parts.artifact.archive.sha256, make)

    def _installed(
        self, name: str, version: str, sha256: str, make: Make, *, repair: bool = False
    ) -> Installed:
        if not self._contents.is_sound(name, sha256, repair=repair):  # 1.
            self._contents.put(name, sha256, make)  # 2. to 4.
        # 5.
        bundle = self._contents.read(name, sha256)
        if bundle.version != version:
            where = f"{bundle.path}: {DESCRIPTION}: version"
            raise UnpackError(where, f"is {bundle.version!r}", expected=f"{version!r}")
        return bundle

    def activate(self, name: str, sha256: str) -> Installed:
        """Make an installed bundle the current one, and remember the previous one."""
        bundle = self._contents.read_intact(name, sha256)
        before = None
        with suppress(StoreError):  # a damaged bundle cannot be the previous one
            before = self._follow(name, "current")
        # ``previous`` first: after a crash between the two steps, both links name the same bundle.
        if before and before.sha256 != sha256:
            self._links(name).point("previous", before.sha256)
        if before != bundle:
            self._links(name).point("current", sha256)
        return bundle

    def mark_good(self, name: str, sha256: str) -> None:
        """Remember an installed bundle as the target of rollbacks."""
        self._contents.read_intact(name, sha256)
        with suppress(StoreError):
            if self._links(name).target("good") == sha256:
                return
        self._links(name).point("good", sha256)

    # Housekeeping

    def prune(self, name: str, *, except_for: str = "") -> list[str]:
        """Remove leftovers and all bundles except current, good, previous and ``except_for`` (a SHA-256).

        Returns the removed SHA-256. Removes nothing while a link is unreadable. An invalid `previous` is set aside,
        because no other step repairs it.
        """
        links = self._links(name)
        links.set_aside_damaged("previous")
        retained = {except_for, *(links.target(link) for link in ("current", "good", "previous"))}
        removed = self._contents.keep_only(name, retained)
        self._contents.renew_fingerprints()
        return removed

    def remove(self, name: str) -> None:
        """Remove everything stored under this name, if anything."""
        self._contents.remove(name)

    def _links(self, name: str) -> Links:
        return Links(self._contents.directory(name))

    def _follow(self, name: str, link: str) -> Installed | None:
        links = self._links(name)
        if (sha256 := links.target(link)) is None:
            return None
        try:
            return self._contents.read_intact(name, sha256)
        except StoreError as error:
            raise StoreError(str(links.path(link)), f"points to a damaged bundle: {error}") from error
