"""Releases of a site as sides of a preview, verified and temporarily unpacked.

* A site is its publisher's directory or a server. A server is verified like on a host, with a root.
* Downloaded files are temporary.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import click

from bundles.archive.unpack import unpack
from bundles.client.client import TrustClient
from bundles.errors import PublishError, SettingsError
from bundles.format.release import Release
from bundles.publisher.site import Site
from bundles.transport.mirror import open_mirrors
from foundation.masking import mask_location
from foundation.problems import ProblemCode
from puller.errors import UsageError
from puller.manifest.manifest import MANIFEST, ManifestSource
from puller.system import processes

SITE = "site"
"""Name of the default site directory, in the working directory or beside the bundle."""


class Releases(Protocol):
    """All releases of a site."""

    where: str
    """Location for messages, without a password."""

    def find(self, bundle: str, channel: str) -> Release | None:
        """Return the release of ``bundle`` in a channel. Raises ``BundleError``."""

    def archive(self, release: Release) -> tuple[Path, str]:
        """Return the file of a release and its signed SHA-256. Raises ``BundleError``, also for an unknown release."""


class _OfDirectory:
    """The releases of a publisher's directory."""

    def __init__(self, directory: Path) -> None:
        self.where = str(directory)
        self._site = Site(directory)

    def find(self, bundle: str, channel: str) -> Release | None:
        return self._site.record(bundle).index.find(channel)

    def archive(self, release: Release) -> tuple[Path, str]:
        artifact = self._site.record(release.bundle).find_artifact(release.version)
        if artifact is None:
            raise PublishError(self.where, f"has never published {release}", code=ProblemCode.NOT_PUBLISHED)
        return self._site.archive_file(artifact.archive), artifact.archive.sha256


class _OfServer:
    """The releases of a server, downloaded below ``scratch``."""

    def __init__(self, url: str, root: Path, scratch: Path) -> None:
        """Raises ``UsageError`` for an invalid location."""
        self.where = mask_location(url)
        self._root = root
        self._scratch = scratch
        with _as_usage():
            self._mirrors = open_mirrors([url])

    def find(self, bundle: str, channel: str) -> Release | None:
        return self._refreshed(bundle).indexes().find(bundle, channel)

    def archive(self, release: Release) -> tuple[Path, str]:
        client = self._refreshed(release.bundle)
        digest = client.digest(release)
        fetched = client.fetch(release, self._scratch / f"{digest}.tar.gz")
        return fetched.path, fetched.sha256

    def _refreshed(self, bundle: str) -> "TrustClient":
        client = TrustClient(self._scratch / "trust", self._root, self._mirrors, [bundle])
        with _as_usage():
            client.refresh()
        return client


@contextlib.contextmanager
def _as_usage() -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        raise UsageError(problems=error.problems) from error


@contextlib.contextmanager
def open_site(where: str, root: Path | None) -> Iterator[Releases]:
    """Open the releases of the site at ``where``, a directory or a URL. ``root`` verifies a URL.

    Raises ``BundleError``, and ``click.UsageError`` for a URL without a root.
    """
    if "://" not in where:
        yield _OfDirectory(Path(where))
        return
    if root is None:
        raise click.UsageError(
            f"{mask_location(where)} is trusted by its root only: expected --root FILE, the root.json of the site"
        )
    with _scratch() as scratch:
        yield _OfServer(where, root, scratch)


def find_site(source: str) -> str | None:
    """Return the default site: the directory ``site`` here, or beside the bundle. ``None`` if both are missing."""
    beside = os.path.join(os.path.dirname(os.path.abspath(source)), SITE)
    return next((place for place in (SITE, beside) if os.path.isdir(os.path.join(place, "public"))), None)


@contextlib.contextmanager
def open_release(site: Releases, written: str) -> Iterator[ManifestSource]:
    """Open the release ``NAME=VERSION`` of a site. Raises ``PublishError`` or ``FormatError`` if it is missing.

    Raises ``SignatureError`` if the site or the bundle does not match its signatures.
    """
    name, equals, version = written.partition("=")
    if not equals:
        raise click.UsageError(f"{written!r} is not a release, expected NAME=VERSION such as web=1.4.0")
    with open_bundle(site, Release.of(name, version)) as source:
        yield source


def find_published(site: Releases, name: str, channel: str) -> Release:
    """Return the current or final release of a bundle in a channel. Raises like ``open_release``."""
    release = site.find(name, channel)
    if release is None:
        raise PublishError(
            site.where,
            f"channel {channel!r} has no bundle {name!r}. Set its name with --name",
            code=ProblemCode.NOT_PUBLISHED,
        )
    return release


def published_note(site: Releases, release: Release, channel: str) -> str:
    """Return a sentence about the current release."""
    note = f"compared with {release.bundle} {release.version}, which channel {channel} of {site.where} gives"
    if release.rollout is None or release.rollout.before is None:
        return note
    return f"{note}. Hosts outside of its rollout have {release.rollout.before.version}"


@contextlib.contextmanager
def open_bundle(site: Releases, release: Release) -> Iterator[ManifestSource]:
    """Unpack a release as a bundle. Raises like ``open_release``."""
    archive, digest = site.archive(release)
    with _scratch() as scratch:
        unpacked = scratch / "bundle"
        unpack(
            archive,
            unpacked,
            name=release.bundle,
            version=release.version,
            sha256=digest,
            check=processes.check,
        )
        yield ManifestSource(unpacked / MANIFEST, f"{release.bundle} {release.version}:{MANIFEST}")


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="puller-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)
