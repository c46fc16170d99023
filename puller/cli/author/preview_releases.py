"""Releases of a site as sides of a preview: unpacked for as long as they are looked at, if they are as was signed."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from bundles.archive.unpack import unpack
from bundles.errors import PublishError
from bundles.format.release import Release
from bundles.publisher.site import Site
from puller.manifest.source import MANIFEST, ManifestSource
from puller.system import signals


@contextlib.contextmanager
def open_release(directory: Path, written: str) -> Iterator[ManifestSource]:
    """The release ``NAME=VERSION`` of the site in ``directory``; raises ``PublishError`` when it has none.

    Raises ``SignatureError`` where the site, or the bundle, is not as it was signed.
    """
    name, equals, version = written.partition("=")
    if not equals:
        raise click.UsageError(f"{written!r} is no release, wanted NAME=VERSION such as web=1.4.0")
    with _opened(Site(directory), Release.of(name, version)) as source:
        yield source


@contextlib.contextmanager
def open_published(directory: Path, name: str, channel: str) -> Iterator[ManifestSource]:
    """The release that a channel of a site gives of a bundle now, or in the end; raises as ``open_release``."""
    site = Site(directory)
    release = site.index().find(name, channel)
    if release is None:
        raise PublishError(str(directory), f"channel {channel!r} has no bundle {name!r}")
    with _opened(site, release) as source:
        yield source


@contextlib.contextmanager
def _opened(site: Site, release: Release) -> Iterator[ManifestSource]:
    info = site.published().targets.targets.get(release.target)
    if info is None:
        raise PublishError(str(site.directory), f"has never published {release}")
    with tempfile.TemporaryDirectory(prefix="puller-", ignore_cleanup_errors=True) as scratch:
        unpacked = Path(scratch) / "bundle"
        unpack(
            site.file_of(info),
            unpacked,
            name=release.bundle,
            version=release.version,
            sha256=info.hashes["sha256"],
            check=signals.check,
        )
        yield ManifestSource(unpacked / MANIFEST, f"{release.bundle} {release.version}:{MANIFEST}")
