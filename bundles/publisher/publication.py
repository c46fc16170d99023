"""Bundles published together: from their directories, or built archives, to what a channel says of them.

* A release never changes: its name and version stand for the same files for ever.
* All bundles are published in one signed step, or none is. What is wrong with any of them is found before, and told
  together.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuf.api.metadata import TargetFile

from bundles.archive.pack import NO_LIBRARIES, BuiltBundle, Libraries, build_bundle
from bundles.archive.unpack import inspect, read_description
from bundles.errors import FormatError, PublishError, StoreError
from bundles.filesystem.trees import measure, remove_tree
from bundles.format.description import BundleDescription
from bundles.format.index import parse_channel
from bundles.format.release import Release
from bundles.publisher import statements
from bundles.publisher.changes import Changes
from bundles.publisher.keys import Passphrase
from bundles.publisher.signing import Published
from bundles.publisher.site import Site
from bundles.publisher.statements import AT_ONCE, RolloutRequest, Statement
from bundles.publisher.versions import AUTO, next_version

_BUILD = ".build-"

Progress = Callable[[int, Path], None]
"""Told of each source, and its number from 1 on, before it is packed."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The version, channel and rollout for all bundles that are published together."""

    version: str | None = None
    """`AUTO` for the next version of each that has changed. A directory needs one, an archive states its own."""
    channel: str = "stable"
    request: RolloutRequest = AT_ONCE
    name: str | None = None
    """Of the one bundle there is; ``None`` for the name of its directory, or the one that its archive states."""
    libraries: Mapping[Path, Libraries] = field(default_factory=dict)
    """The libraries that are packed with the bundle of a directory, by that; an archive is whole."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A release as it was published, and what the channel said before."""

    release: Release
    """As the channel says it now, with its rollout."""
    statement: Statement
    size: int
    """Bytes."""
    sha256: str
    changes: Changes | None = None
    """Since the release that the channel gave before; ``None`` where there was none, or a version was given by hand."""

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
    libraries: Libraries = NO_LIBRARIES,
) -> Publication:
    """`publish_bundles` for one of them."""
    wish = Wish(version, channel, request, name, {source: libraries})
    (publication,) = publish_bundles(site, [source], wish, passphrase)
    return publication


def publish_bundles(
    site: Site,
    sources: Sequence[Path],
    wish: Wish,
    passphrase: Passphrase,
    progress: Progress = lambda number, source: None,
) -> list[Publication]:
    """Make each of ``sources``, a bundle's directory or a built archive, what a channel says of that bundle.

    Raises `PublishError`, for one when a version was published with other contents, and `FormatError`.

    1. Nobody else publishes meanwhile, and what another publisher could not finish is finished.
    2. Read what is published, and verify it: what is signed anew is only what was signed before.
    3. Pack each bundle, and work out what the channel says of it next (`_Round.draft`). All problems are told together.
    4. Where that is what it says already, nothing is written.
    5. Sign the index and the metadata that leads to it once, and write them (`Site.announce`).
    """
    parse_channel(wish.channel)
    with site.locked(), _own_scratch(site) as scratch:  # 1.
        edition = site.edition(passphrase)  # 2.
        drafts = _Round(site, wish, edition.published, scratch).drafts(sources, progress)  # 3.
        index, new = site.index_of(edition.published), []
        for draft in drafts:
            if draft.publication.changed:
                index = index.with_release(draft.publication.release, wish.channel)
                new += draft.new
        # 4.
        if any(draft.publication.changed for draft in drafts):
            site.announce(edition, index, *new)  # 5.
        return [draft.publication for draft in drafts]


def plan_bundles(
    site: Site, sources: Sequence[Path], wish: Wish, progress: Progress = lambda number, source: None
) -> list[Publication]:
    """The publications that `publish_bundles` would make; raises as it does, and writes nothing to the site."""
    parse_channel(wish.channel)
    with tempfile.TemporaryDirectory(prefix="puller") as scratch:
        drafts = _Round(site, wish, site.published(), Path(scratch)).drafts(sources, progress)
        return [draft.publication for draft in drafts]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A publication, and what has to be written for it that is not there yet."""

    publication: Publication
    new: list[tuple[TargetFile, Path]]


class _Round:
    """The bundles that are published together, packed in ``scratch``."""

    def __init__(self, site: Site, wish: Wish, published: Published, scratch: Path) -> None:
        self._site = site
        self._wish = wish
        self._targets = published.targets.targets
        self._index = site.index_of(published)
        self._scratch = scratch
        self._now = site.now()

    def drafts(self, sources: Sequence[Path], progress: Progress) -> list[_Draft]:
        """One for each source; raises one `PublishError` for all that is wrong with any of them."""
        drafts: list[_Draft] = []
        named: dict[str, Path] = {}
        problems: list[PublishError | FormatError] = []
        for number, source in enumerate(sources, 1):
            progress(number, source)
            try:
                drafts.append(draft := self.draft(source, self._scratch / f"{number}.tar.gz"))
                _claim(named, draft.publication.release.bundle, source)
            except (PublishError, FormatError) as error:
                problems.append(error)
        _raise_all(problems, len(sources))
        return drafts

    def draft(self, source: Path, output: Path) -> _Draft:
        """Of one bundle, which is packed into ``output`` unless it is an archive.

        1. Pack the directory, or check the archive as thoroughly as a host does.
        2. With `AUTO`, what has the same files as the release that the channel names is left as it is.
        3. A version that was published with other files is refused.
        4. Work out what the channel says next.
        """
        # 1.
        bundle = self._built(source, output)
        release = Release.of(bundle.description.name, bundle.description.version)
        before = self._index.find(release.bundle, self._wish.channel)
        # 2.
        changes = None
        if self._wish.version == AUTO and before is not None:
            changes = Changes.between(self._description(self._targets[before.target]), bundle.description)
            if not changes:
                # Of many bundles most are unchanged, and the disk need not hold them all.
                output.unlink(missing_ok=True)
                return self._drafted(before, before, self._targets[before.target], changes)
        # 3.
        known = self._targets.get(release.target)
        if known is not None:
            self._check_same(release, bundle, known)
        # 4.
        following = statements.published(before, release, self._wish.request, self._now)
        info = known or TargetFile(bundle.size, {"sha256": bundle.sha256}, release.target)
        new = [] if known else [(info, bundle.path)]
        return self._drafted(before, following, info, changes, new)

    def _drafted(
        self,
        before: Release | None,
        after: Release,
        info: TargetFile,
        changes: Changes | None,
        new: Sequence[tuple[TargetFile, Path]] = (),
    ) -> _Draft:
        statement = Statement(self._wish.channel, before, after, self._now)
        return _Draft(Publication(after, statement, info.length, info.hashes["sha256"], changes), list(new))

    def _built(self, source: Path, output: Path) -> BuiltBundle:
        name, version = self._wish.name, self._wish.version
        if not source.is_dir():
            return _archive(source, name, version)
        if version is None:
            what = "a directory has no version of its own, wanted one such as 1.4.0, or auto"
            raise PublishError(str(source), what)
        name = name or source.resolve().name
        if version == AUTO:
            version = next_version(self._versions(name))
        libraries = self._wish.libraries.get(source, NO_LIBRARIES)
        return build_bundle(source, output, name=name, version=version, libraries=libraries)

    def _versions(self, bundle: str) -> list[str]:
        """All that were ever published, in whatever channel: targets stay when a channel names them no more."""
        start, end = f"{bundle}/{bundle}-", ".tar.gz"
        return [
            path.removeprefix(start).removesuffix(end) for path in self._targets if path.startswith(start)
        ]

    def _description(self, info: TargetFile) -> BundleDescription:
        """Of a published archive; raises `SignatureError` when the file is not as signed."""
        try:
            return read_description(self._site.file_of(info), info.hashes["sha256"])
        except StoreError as error:  # to a host; here it is part of the site
            raise PublishError(
                error.where, f"{error.what}; restore it from a copy, or give a --version"
            ) from None

    def _check_same(self, release: Release, bundle: BuiltBundle, known: TargetFile) -> None:
        """Other bytes may hold the same files: another zlib compresses otherwise."""
        published = known.hashes["sha256"]
        if bundle.sha256 == published or self._description(known) == bundle.description:
            return
        raise PublishError(
            str(release),
            f"is published with sha256 {published}, this one has {bundle.sha256}: give it a new version",
        )


@contextlib.contextmanager
def _own_scratch(site: Site) -> Iterator[Path]:
    """On the file system of the site, which has to take what is packed anyway."""
    for leftover in site.directory.glob(f"{_BUILD}*"):  # of a publisher that was killed
        remove_tree(leftover)
    with tempfile.TemporaryDirectory(dir=site.directory, prefix=_BUILD) as scratch:
        yield Path(scratch)


def _archive(path: Path, name: str | None, version: str | None) -> BuiltBundle:
    description = inspect(path)
    for what, found, wanted in (("name", description.name, name), ("version", description.version, version)):
        if wanted is not None and found != wanted:
            raise PublishError(str(path), f"{what} is {found!r} in the archive, {wanted!r} was asked for")
    counted = measure(path)
    return BuiltBundle(path, counted.size, counted.sha256, description)


def _claim(named: dict[str, Path], bundle: str, source: Path) -> None:
    if bundle in named:
        raise PublishError(str(source), f"is bundle {bundle!r}, and so is {named[bundle]}")
    named[bundle] = source


def _raise_all(problems: Sequence[PublishError | FormatError], count: int) -> None:
    """One problem of one bundle as it is; several in lines of their own."""
    if count == 1 and problems:
        raise problems[0]
    if problems:
        lines = "\n".join(map(str, problems))
        raise PublishError(
            "", f"{len(problems)} of {count} bundles cannot be published, so none is:\n{lines}"
        )
