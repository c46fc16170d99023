"""A bundle published: from its directory, or a built archive, to what a channel says of it.

A release never changes: its name and version stand for the same files for ever.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuf.api.metadata import TargetFile

from bundles.archive.pack import BuiltBundle, build_bundle
from bundles.archive.unpack import inspect
from bundles.errors import PublishError
from bundles.filesystem.trees import measure, remove_tree
from bundles.format.index import parse_channel
from bundles.format.release import Release
from bundles.publisher import statements
from bundles.publisher.keys import Passphrase
from bundles.publisher.site import Site
from bundles.publisher.statements import AT_ONCE, RolloutRequest, Statement

_BUILD = ".build-"


@dataclass(frozen=True, slots=True)
class Publication:
    """A release as it was published, and what the channel said before."""

    release: Release
    """As the channel says it now, with its rollout."""
    statement: Statement
    size: int
    """Bytes."""
    sha256: str

    @property
    def changed(self) -> bool:
        return self.statement.changed

    @property
    def before(self) -> str | None:
        """The version that the channel had."""
        return self.statement.before.version if self.statement.before else None


def publish_bundle(
    site: Site,
    source: Path,
    passphrase: Passphrase,
    *,
    name: str | None = None,
    version: str | None = None,
    channel: str = "stable",
    request: RolloutRequest = AT_ONCE,
) -> Publication:
    """Make ``source``, a bundle's directory or a built archive, what ``channel`` says of the bundle.

    For a directory ``name`` is that of the directory unless given, and a version is needed; an
    archive states both. Raises `PublishError`, for one when the version was published with other
    contents.

    1. Nobody else publishes meanwhile, and what another publisher could not finish is finished.
    2. Pack the directory, or check the archive as thoroughly as a host does.
    3. Read what is published, and verify it: what is signed anew is only what was signed before.
    4. A version that was published with other files is refused.
    5. Work out what the channel says next. Where that is what it says already, nothing is written.
    6. Sign the index and the metadata that leads to it, and write them (`Site.announce`).
    """
    parse_channel(channel)
    with (
        site.locked(),  # 1.
        _built(site, source, name, version) as bundle,  # 2.
    ):
        # 3.
        edition = site.edition(passphrase)
        release = Release.of(bundle.description.name, bundle.description.version)
        # 4.
        known = edition.published.targets.targets.get(release.target)
        if known is not None:
            _check_same(site, release, bundle, known)
        # 5.
        index = site.index_of(edition.published)
        before = index.find(release.bundle, channel)
        following = statements.published(before, release, request, edition.now)
        statement = Statement(channel, before, following, edition.now)
        info = known or TargetFile(bundle.size, {"sha256": bundle.sha256}, release.target)
        # 6.
        if statement.changed:
            new = [] if known else [(info, bundle.path)]
            site.announce(edition, index.with_release(following, channel), *new)
        return Publication(following, statement, info.length, info.hashes["sha256"])


@contextlib.contextmanager
def _built(site: Site, source: Path, name: str | None, version: str | None) -> Iterator[BuiltBundle]:
    if not source.is_dir():
        yield _archive(source, name, version)
        return
    if version is None:
        raise PublishError(str(source), "a directory has no version of its own, wanted one such as 1.4.0")
    for leftover in site.directory.glob(f"{_BUILD}*"):  # of a publisher that was killed
        remove_tree(leftover)
    with tempfile.TemporaryDirectory(dir=site.directory, prefix=_BUILD) as scratch:
        output = Path(scratch, "bundle.tar.gz")
        yield build_bundle(source, output, name=name or source.resolve().name, version=version)


def _archive(path: Path, name: str | None, version: str | None) -> BuiltBundle:
    description = inspect(path)
    for field, found, wanted in (("name", description.name, name), ("version", description.version, version)):
        if wanted is not None and found != wanted:
            raise PublishError(str(path), f"{field} is {found!r} in the archive, {wanted!r} was asked for")
    counted = measure(path)
    return BuiltBundle(path, counted.size, counted.sha256, description)


def _check_same(site: Site, release: Release, bundle: BuiltBundle, known: TargetFile) -> None:
    """Other bytes may hold the same files: another zlib compresses otherwise."""
    published = known.hashes["sha256"]
    if bundle.sha256 == published or inspect(site.file_of(known)) == bundle.description:
        return
    raise PublishError(
        str(release),
        f"is published with sha256 {published}, this one has {bundle.sha256}: give it a new version",
    )
