"""How a release gets into the store: by the files that this host does not have yet, or by its archive.

* Both lead to the same tree, and to the same trust: the index names the archive and the description by their SHA-256,
  the description every file.
* Whatever goes wrong with the files, the archive is taken; what the site says of a bundle is never out of reach because
  a file of it is.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from bundles import progress
from bundles.client.partial_downloads import FILES
from bundles.errors import BundleError
from bundles.filesystem.atomic import remove_any
from bundles.format.artifact import Artifact, Digest
from bundles.format.compressed_file import read_verified
from bundles.format.release import Release
from bundles.store.assembly import Assembly, is_promising
from bundles.store.contents import Installed
from bundles.store.store import Store

if TYPE_CHECKING:
    from bundles.client.client import TrustClient


class Arrival:
    """One release on its way into ``store``; ``directory`` is where downloads are, those that broke off too."""

    def __init__(self, client: "TrustClient", release: Release, store: Store, directory: Path) -> None:
        self._client = client
        self._release = release
        self._store = store
        self._artifact: Artifact = client.artifact(release)
        sha256 = self._artifact.archive.sha256
        self._archive = directory / f"{sha256}.tar.gz"
        self._files = directory / f"{sha256}{FILES}"

    def install(self) -> Installed:
        """Download what is missing, verify it, and put it into the store; raises ``BundleError``.

        1. Is there anything here to begin with?
        2. Files (``_from_files``), when they are less than the archive.
        3. Otherwise, or when anything was wrong with them, the archive.
        4. What was downloaded is removed when it is in the store. If not, the next run goes on with it.
        """
        self._archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (installed := self._by_files()) is None:
            installed = self._by_archive()
        # 4.
        self._forget_files()
        return installed

    def _by_files(self) -> Installed | None:
        try:
            # 1.
            directories = self._store.directories()
            # 2.
            return self._from_files(directories) if directories else None
        except (BundleError, OSError) as error:
            # 3. Also for what this machine is to blame for: a file of another version may be damaged.
            self._client.notes.append(f"{error}; the archive of {self._release} is fetched in place of files")
            return None

    def _from_files(self, directories: list[Path]) -> Installed | None:
        """The release by its files; ``None`` when the archive is the better way. Raises ``OSError`` too.

        1. The description, which the index names by its SHA-256.
        2. Which files does no bundle here have? Are they worth it?
        3. Fetch these.
        4. Put all together.
        """
        if not is_promising(self._artifact):
            return None
        # 1.
        description = self._artifact.description
        (place,) = self._fetched([description]).values()
        assembly = Assembly(self._artifact, read_verified(place, description), directories)
        # 2.
        if not assembly.is_worth_it:
            self._forget_files()
            progress.expect(self._artifact.archive.length)
            return None
        # 3.
        fetched = self._fetched(assembly.missing)
        # 4.
        return self._store.assemble(
            assembly.parts(fetched),
            name=self._release.bundle,
            version=self._release.version,
            check=self._client.deadline.check,
        )

    def _fetched(self, wanted: list[Digest]) -> dict[str, Path]:
        return self._client.fetch_files(wanted, self._files)

    def _forget_files(self) -> None:
        if self._files.is_dir():
            remove_any(self._files)

    def _by_archive(self) -> Installed:
        try:
            self._client.fetch(self._release, self._archive)
            return self._store.install(
                self._archive,
                name=self._release.bundle,
                version=self._release.version,
                sha256=self._artifact.archive.sha256,
                check=self._client.deadline.check,
            )
        finally:  # a download that broke off lies beside it, under another name, and stays
            self._archive.unlink(missing_ok=True)
