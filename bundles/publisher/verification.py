"""A published site, checked as a host would: signatures, expiry, and every published file."""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tuf.api.exceptions import LengthOrHashMismatchError

from bundles.archive.unpack import inspect
from bundles.client.client import TrustClient
from bundles.errors import BundleError, SettingsError, SignatureError
from bundles.filesystem.trees import open_regular
from bundles.format.artifact import Artifact, Digest
from bundles.format.identity import DESCRIPTION
from bundles.format.index import Indexes
from bundles.format.release import Release
from bundles.format.tuf import TargetFile
from bundles.publisher.published import Published
from bundles.publisher.records import Record
from bundles.publisher.site import RoleStatus, Site, statuses
from bundles.transport.directory import DirectoryMirror


@dataclass(frozen=True, slots=True)
class Verification:
    """The extent of a check that found nothing wrong; ``size`` is bytes."""

    targets: int
    size: int
    roles: list[RoleStatus]


def verify_site(site: Site) -> Verification:
    """Check everything below ``public/`` as a host would, from the first root on.

    Raises what `TrustClient.refresh` raises, and `SignatureError` that names every damaged target.

    1. What is published of all bundles, and all site data, as a host reads it.
    2. The history of each, which offers what the index offers.
    3. Every archive that was not pruned; of those that hosts are told to run, that it is what it is called.
    4. The description of each of these, and every file that it names, once for all that have it.
    """
    published = site.published()
    # 1.
    indexes = _indexes_for_hosts(site, published)
    # 2. and 3.
    of_bundles = [_of_bundle(site, site.record_of(published, bundle)) for bundle in indexes.of]
    count = len(indexes.documents) + sum(found.targets for found in of_bundles)
    problems = [problem for found in of_bundles for problem in found.problems]
    # 4.
    problems += _problems_of_files(site, [each for found in of_bundles for each in found.descriptions])
    if problems:
        raise SignatureError(str(site.public), f"{len(problems)} of {count} targets: {'; '.join(problems)}")
    documents = (info.length for of_bin in published.bins() for info in of_bin.targets.values())
    return Verification(count, sum(documents) + sum(found.size for found in of_bundles), statuses(published))


@dataclass(frozen=True, slots=True)
class _Found:
    """The targets of one bundle: its index, history and archives; ``size`` is that of the archives."""

    targets: int
    size: int
    problems: list[str]
    descriptions: list[Digest]


def _of_bundle(site: Site, record: Record) -> _Found:
    # 2.
    contradiction = _contradiction(record)
    # 3.
    kept = {name: of.artifact for name, of in record.history.versions.items() if of.pruned is None}
    named = record.index.named()
    found = [
        _problem(site, artifact, Release(record.index.bundle, version) if version in named else None)
        for version, artifact in kept.items()
    ]
    problems = [problem for problem in (contradiction, *found) if problem is not None]
    size = sum(artifact.archive.length for artifact in kept.values())
    return _Found(2 + len(kept), size, problems, [artifact.description for artifact in kept.values()])


def _indexes_for_hosts(site: Site, published: Published) -> Indexes:
    mirror, first_root = DirectoryMirror(str(site.public)), site.metadata / "1.root.json"
    bundles, documents = site.bundles(published), site.data_names(published)
    with tempfile.TemporaryDirectory() as scratch:
        client = TrustClient(Path(scratch), first_root, [mirror], bundles, site.now, documents=documents)
        try:
            return client.refresh()
        except SettingsError as error:  # to a host the anchor is a setting; here it is part of the site
            raise SignatureError(error.where, error.what) from None


def _contradiction(record: Record) -> str | None:
    for version, artifact in record.index.releases.items():
        if record.find_artifact(version) != artifact:
            return f"{record.index.bundle} {version}: the index offers other files than the history has"
    return None


def _problems_of_files(site: Site, descriptions: Iterable[Digest]) -> Iterator[str]:
    named: dict[str, Digest] = {}
    for description in descriptions:
        try:
            named |= site.files.named_by(description)
        except (OSError, BundleError) as error:
            yield str(error)
    for digest in named.values():
        try:
            for _ in site.files.verified(digest):
                pass
        except (OSError, SignatureError) as error:
            yield str(error)


def _problem(site: Site, artifact: Artifact, release: Release | None) -> str | None:
    """``release`` is what hosts are told that the archive is, if they are told to run it."""
    archive = artifact.archive
    path = site.archive_file(archive)
    info = TargetFile(archive.length, {"sha256": archive.sha256}, archive.path)
    try:
        with open_regular(path) as stream:
            info.verify_length_and_hashes(stream)
        if release is not None:
            description = inspect(path)
            if hashlib.sha256(description.to_bytes()).hexdigest() != artifact.description.sha256:
                return f"{path}: holds another {DESCRIPTION} than the index says"
            if (description.name, description.version) != (release.bundle, release.version):
                return f"{path}: is {description.name} {description.version}, the index says {release}"
    except (OSError, LengthOrHashMismatchError, BundleError) as error:
        return f"{path}: {error}" if isinstance(error, LengthOrHashMismatchError) else str(error)
    return None
