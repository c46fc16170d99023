"""Publication of bundles, from directories or built archives to the releases of a channel, and of site data.

* A release never changes: its name and version always stand for the same files.
* All bundles are published in one signed step, or none. The problems of all bundles are reported together, before
  anything is signed.

Site data are documents that hosts read beside their bundles, signed in the same way:

* A document has one version at a time, which its bin names. Hosts reject older versions of bins, so a document cannot
  be rolled back.
* The caller is responsible for the contents. This module handles bytes.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from msgspec import structs

from bundles.archive.pack import NO_LIBRARIES, BuiltBundle, DescribedBundle, Libraries, describe
from bundles.archive.unpack import inspect, read_description
from bundles.errors import FormatError, PublishError, StoreError
from bundles.filesystem.trees import measure, remove_tree
from bundles.format.description import BundleDescription
from bundles.format.fields import parse_name
from bundles.format.index import Archive, Artifact, Digest, parse_channel
from bundles.format.release import Release, TrialRule
from bundles.format.site_targets import DIRECTORY, SiteDocument, custom_fields, data_path, parse_data_name
from bundles.format.size_limits import LARGEST_SITE_DATA
from bundles.format.tuf import TargetFile
from bundles.publisher import channels
from bundles.publisher.channels import AT_ONCE, RolloutRequest, Statement
from bundles.publisher.edition import check_readable
from bundles.publisher.pruning import announce, outdated_by_rule, tidy
from bundles.publisher.published import AUTO, Changes, Published, Record, next_version
from bundles.publisher.signing_keys import Passphrase
from bundles.publisher.site import NewArchive, Site
from foundation.problems import ProblemCode
from foundation.quantities import counted, first_few

_BUILD = ".build-"
_MOST_TOLD = 50
"""Limit for the problems in one message."""

Progress = Callable[[int, Path], None]
"""Receives the number of each source, from 1 on, and the source, before it is packed."""


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """The version, channel and rollout for all bundles that are published together."""

    version: str | None = None
    """`AUTO` for the next version of each changed bundle. Required for a directory. An archive contains its own
    version.
    """
    channel: str = "stable"
    request: RolloutRequest = AT_ONCE
    name: str | None = None
    """Name for a single bundle. ``None`` for the name of its directory or from its archive."""
    trial: TrialRule | None = None
    """How long the release stays on trial on each host. ``None``: the rule of its manifest."""
    libraries: Mapping[Path, Libraries] = field(default_factory=dict)
    """The libraries that are packed with a bundle, by its directory. Archives already contain their libraries."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A published release, and the previous release of the channel."""

    release: Release
    """With its rollout in the channel."""
    statement: Statement
    size: int
    """Bytes."""
    sha256: str
    changes: Changes | None = None
    """Differences to the previous release of the channel. ``None`` without one, or for an explicit version."""
    pruned: tuple[str, ...] = ()
    """Outdated versions of the bundle that this publication prunes by the rule of the site."""
    restored: bool = False
    """Whether this publication restores missing files of the version."""

    @property
    def changed(self) -> bool:
        return self.statement.changed

    @property
    def before(self) -> str | None:
        """Return the previous version of the channel."""
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
    trial: TrialRule | None = None,
    libraries: Libraries = NO_LIBRARIES,
) -> Publication:
    """Call `publish_bundles` for one bundle."""
    wish = PublishRequest(version, channel, request, name, trial, {source: libraries})
    (publication,) = publish_bundles(site, [source], wish, passphrase)
    return publication


def publish_bundles(
    site: Site,
    sources: Sequence[Path],
    wish: PublishRequest,
    passphrase: Passphrase,
    progress: Progress = lambda number, source: None,
) -> list[Publication]:
    """Publish ``sources``, directories of bundles or built archives, in a channel.

    Raises `FormatError` and `PublishError`, for example if a version was published with other contents.

    1. Lock the site against other publishers, and complete an interrupted change.
    2. Read and verify the published metadata, so that only signed data is signed again.
    3. Pack each bundle, and compute its next release in the channel (`_Round.draft`). Report all problems together.
    4. If the channel already has this release, only restore missing files.
    5. Sign and write the records of changed bundles and their metadata once (`announce`).
    """
    parse_channel(wish.channel)
    with site.locked(), _own_scratch(site) as scratch:  # 1.
        edition = site.edition(passphrase)  # 2.
        drafts = _Round(site, wish, edition.published, scratch).drafts(sources, progress)  # 3.
        # 4.
        changed = [draft for draft in drafts if draft.publication.changed]
        site.add(file for draft in drafts if draft.publication.restored for file in draft.new)
        if changed:
            new = [file for draft in changed if not draft.publication.restored for file in draft.new]
            publications = _told(site, drafts)
            announce(site, edition, [draft.record for draft in changed], new)  # 5.
            return publications
        return [draft.publication for draft in drafts]


def plan_bundles(
    site: Site,
    sources: Sequence[Path],
    wish: PublishRequest,
    progress: Progress = lambda number, source: None,
) -> list[Publication]:
    """Return the publications that `publish_bundles` would make. Raises the same errors, and writes nothing."""
    parse_channel(wish.channel)
    with tempfile.TemporaryDirectory(prefix="puller") as scratch:
        return _told(site, _Round(site, wish, site.published(), Path(scratch)).drafts(sources, progress))


@dataclass(frozen=True, slots=True)
class _Draft:
    """A publication with its record, and the archive to write if files are missing."""

    publication: Publication
    record: Record
    new: Sequence[NewArchive]


def _told(site: Site, drafts: Sequence[_Draft]) -> list[Publication]:
    """Return the publications with the versions that are pruned with them."""
    outdated = outdated_by_rule(site, [draft.record for draft in drafts if draft.publication.changed])
    return [
        replace(
            draft.publication,
            pruned=tuple(version.version for version in outdated.get(draft.publication.release.bundle, ())),
        )
        for draft in drafts
    ]


class _Round:
    """The bundles that are published together, packed in ``scratch``."""

    def __init__(self, site: Site, wish: PublishRequest, published: Published, scratch: Path) -> None:
        self._site = site
        self._wish = wish
        self._published = published
        self._scratch = scratch
        self._now = site.now()

    def drafts(self, sources: Sequence[Path], progress: Progress) -> list[_Draft]:
        """Return one draft for each source. Raises one `PublishError` for the problems of all sources."""
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
        """Return the draft of one bundle, which is packed into ``output`` unless it is an archive.

        1. Read the files of the directory, or check the archive as thoroughly as a host does.
        2. With `AUTO`, keep the current release of the channel if it has the same files.
        3. Pack the directory, unless the version is published with these files. Reject a version published with other
           files.
        4. Compute the next release of the channel.
        """
        # 1.
        bundle = self._described(source)
        release = Release.of(bundle.description.name, bundle.description.version)
        record = self._record(release.bundle)
        before = record.index.find(self._wish.channel)
        # 2.
        changes = None
        if self._wish.version == AUTO and before is not None:
            named = record.index.releases[before.version]
            changes = Changes.between(self._description(named), bundle.description)
            if not changes:
                return self._drafted(record, before, named, changes, self._lost(named, bundle, output))
        # 3.
        artifact, new = self._packed(record, release, bundle, output)
        # 4.
        release = structs.replace(release, trial=self._wish.trial)
        following = channels.published(before, release, self._wish.request, self._now)
        return self._drafted(record, following, artifact, changes, new)

    def _drafted(
        self,
        record: Record,
        after: Release,
        artifact: Artifact,
        changes: Changes | None,
        new: Sequence[NewArchive],
    ) -> _Draft:
        channel, archive = self._wish.channel, artifact.archive
        statement = Statement(channel, record.index.find(channel), after, self._now)
        restored = bool(new) and record.find_artifact(after.version) is not None
        publication = Publication(
            after, statement, archive.length, archive.sha256, changes, restored=restored
        )
        following = record.with_version(after.version, artifact, self._now)
        return _Draft(publication, following.with_statement(channel, after, self._now), new)

    def _described(self, source: Path) -> DescribedBundle | BuiltBundle:
        name, version = self._wish.name, self._wish.version
        if not source.is_dir():
            return _archive(source, name, version)
        if version is None:
            raise PublishError(
                str(source),
                "a directory requires a version",
                code=ProblemCode.INVALID_COMMAND,
                expected="a version such as 1.4.0, or auto",
            )
        name = name or source.resolve().name
        if version == AUTO:
            # Among all published versions, in any channel.
            version = next_version(self._record(name).history.versions)
        libraries = self._wish.libraries.get(source, NO_LIBRARIES)
        return describe(source, name=name, version=version, libraries=libraries)

    def _record(self, bundle: str) -> Record:
        return self._site.record_of(self._published, parse_name(bundle))

    def _description(self, artifact: Artifact) -> BundleDescription:
        """Return the description of a published archive. Raises `SignatureError` for a modified file."""
        archive = artifact.archive
        try:
            return read_description(self._site.archive_file(archive), archive.sha256)
        except StoreError as error:  # meant for hosts: here the file belongs to the site
            raise PublishError(
                error.where, error.what, hint="restore it from a copy, or specify a --version"
            ) from None

    def _packed(
        self, record: Record, release: Release, bundle: DescribedBundle | BuiltBundle, output: Path
    ) -> tuple[Artifact, Sequence[NewArchive]]:
        """Return the permanent files of a release, and its archive if it is missing from the site.

        Raises `PublishError` if the version was published with other files. Different archives can contain the same
        files, because versions of zlib compress differently.
        """
        described = bundle.description.to_bytes()
        description = Digest(len(described), hashlib.sha256(described).hexdigest())
        known = record.history.versions.get(release.version)
        if known is not None and known.pruned is None and known.artifact.description == description:
            return known.artifact, self._lost(known.artifact, bundle, output)
        new = _packed(bundle, output)
        artifact = Artifact(new.archive, description)
        if known is not None and known.artifact != artifact:
            published = known.artifact.archive.sha256
            raise PublishError(
                str(release),
                f"is already published with sha256 {published}, and the new archive has sha256 {new.archive.sha256}",
                hint="specify a new version",
            )
        return artifact, [new]

    def _lost(
        self, artifact: Artifact, bundle: DescribedBundle | BuiltBundle, output: Path
    ) -> Sequence[NewArchive]:
        """Return the archive of a published version if the archive or one of its files is missing from the site.

        Raises `PublishError` if the archive cannot be recreated.
        """
        archive = artifact.archive
        if not self._site.lacks(artifact, bundle.description):
            return ()
        if self._site.has(archive):  # it is verified when it replaces itself
            return [NewArchive(archive, self._site.archive_file(archive))]
        new = _packed(bundle, output)
        if new.archive != archive:  # versions of zlib compress differently
            description = bundle.description
            raise PublishError(
                f"{description.name} {description.version}",
                f"is missing in the site, and the new archive has sha256 {new.archive.sha256} "
                f"instead of {archive.sha256}",
                hint=f"restore {archive.path} from a copy, or specify a new version",
            )
        return [new]


def _packed(bundle: DescribedBundle | BuiltBundle, output: Path) -> NewArchive:
    """Return the archive of a bundle. A directory is packed into ``output``. Raises `PublishError`."""
    is_ours = isinstance(bundle, DescribedBundle)
    built = bundle.pack(output) if isinstance(bundle, DescribedBundle) else bundle
    description = built.description
    archive = Archive.of(description.name, description.version, Digest(built.size, built.sha256))
    return NewArchive(archive, built.path, is_ours)


@contextlib.contextmanager
def _own_scratch(site: Site) -> Iterator[Path]:
    """Create a private directory for packed archives.

    It is on the file system of the site, so that archives can be moved and inherit properties such as labels. Its name
    cannot be the name of a bundle.
    """
    targets = site.public / "targets"
    for leftover in targets.glob(f"{_BUILD}*"):  # of a killed publisher
        remove_tree(leftover)
    with tempfile.TemporaryDirectory(dir=targets, prefix=_BUILD) as scratch:
        yield Path(scratch)


def _archive(path: Path, name: str | None, version: str | None) -> BuiltBundle:
    description = inspect(path)
    for what, found, expected in (
        ("name", description.name, name),
        ("version", description.version, version),
    ):
        if expected is not None and found != expected:
            raise PublishError(str(path), f"{what} is {found!r} in the archive", expected=repr(expected))
    counted = measure(path)
    return BuiltBundle(path, counted.size, counted.sha256, description)


def _claim(named: dict[str, Path], bundle: str, source: Path) -> None:
    if bundle in named:
        raise PublishError(str(source), f"contains bundle {bundle!r}, as {named[bundle]} does")
    named[bundle] = source


def _raise_all(problems: Sequence[PublishError | FormatError], count: int) -> None:
    """Raise the problem of a single bundle unchanged, or several problems on one line each."""
    if count == 1 and problems:
        raise problems[0]
    if problems:
        lines = first_few(list(map(str, problems)), _MOST_TOLD, "\n")
        raise PublishError(
            "",
            f"{len(problems)} of {counted(count, 'bundle')} cannot be published, so nothing was published:\n{lines}",
        )


@dataclass(frozen=True, slots=True)
class PublishedData:
    """A published document, with its ``size`` in bytes."""

    name: str
    size: int
    sha256: str
    published: datetime
    changed: bool = False
    """Whether this operation changed it."""


def published_data(site: Site, published: Published | None = None) -> list[PublishedData]:
    """Return all documents, by name. Raises `PublishError`, and `SignatureError` for a modified file."""
    published = published or site.published()
    result = ((name, site.data_of(published, name)) for name in site.data_names(published))
    return [
        PublishedData(name, len(known.contents), _sha256(known.contents), known.published)
        for name, known in result
        if known is not None
    ]


def plan_data(site: Site, name: str, contents: bytes) -> PublishedData:
    """Return the planned result of `publish_data`. Raises the same errors, and writes nothing."""
    check_readable(data_path(parse_data_name(name)), len(contents), LARGEST_SITE_DATA)
    known = site.data_of(site.published(), name)
    return _outcome(known, name, contents, site.now())


def publish_data(site: Site, name: str, contents: bytes, passphrase: Passphrase) -> PublishedData:
    """Publish ``contents`` as the document ``name``. Publishing identical contents changes nothing.

    Raises `PublishError`, `FormatError` for the name, and ``KeyFileError``. The published document then stays.

    1. Lock the site against other publishers.
    2. If the document is already published, return. No key is needed then.
    3. Sign the bin of the document, and the metadata that leads to the bin.
    4. Write the document under its hash, then the metadata, with ``timestamp.json`` last.
    5. Note unreferenced files, and remove those that hosts can no longer request.
    """
    path = data_path(parse_data_name(name))
    check_readable(path, len(contents), LARGEST_SITE_DATA)
    with site.locked():  # 1.
        # 2.
        edition = site.edition(passphrase)
        known = site.data_of(edition.published, name)
        outcome = _outcome(known, name, contents, edition.now)
        if not outcome.changed:
            return outcome
        # 3.
        info = TargetFile.from_data(path, contents, ["sha256"])
        info.unrecognized_fields["custom"] = custom_fields(outcome.published)
        edition.change({path: info})
        edition.sign_timestamp()
        # 4.
        site.write_target(info, contents)
        site.write(edition)
        # 5.
        tidy(site, edition, directories=[DIRECTORY])
        return outcome


def withdraw_data(site: Site, name: str, passphrase: Passphrase) -> None:
    """Withdraw the document ``name``. Hosts that have it keep it and report that.

    Raises `PublishError`, also if the document is not published, `FormatError` for the name, and ``KeyFileError``.
    """
    path = data_path(parse_data_name(name))
    with site.locked():
        edition = site.edition(passphrase)
        if name not in (names := site.data_names(edition.published)):
            there = f"published site data: {first_few(names, 20)}" if names else "no site data is published"
            raise PublishError(
                str(site.directory),
                f"site data {name!r} is not published ({there})",
                code=ProblemCode.NOT_PUBLISHED,
            )
        edition.change({path: None})
        edition.sign_timestamp()
        site.write(edition)
        tidy(site, edition, directories=[DIRECTORY])


def _outcome(known: SiteDocument | None, name: str, contents: bytes, now: datetime) -> PublishedData:
    changed = known is None or known.contents != contents
    published = now.replace(microsecond=0) if known is None or changed else known.published
    return PublishedData(name, len(contents), _sha256(contents), published, changed)


def _sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()
