"""Verification of a published site, like on a host: signatures, expiry, and every published file.

All problems are reported together, one line for each kind with the first few files, because one cause may affect
thousands of files.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tuf.api.exceptions import LengthOrHashMismatchError

from bundles.archive.unpack import inspect
from bundles.client.client import TrustClient
from bundles.errors import BundleError, SettingsError, SignatureError
from bundles.filesystem.trees import open_regular
from bundles.format.fields import DESCRIPTION
from bundles.format.index import Artifact, Digest, Indexes, index_path
from bundles.format.release import Release
from bundles.format.tuf import TargetFile
from bundles.publisher.published import Published, Record
from bundles.publisher.site import RoleStatus, Site, statuses
from bundles.transport.mirror import DirectoryMirror
from foundation.quantities import first_few


@dataclass(frozen=True, slots=True)
class Verification:
    """The extent of a successful verification, with ``size`` in bytes."""

    targets: int
    """Number of indexes, histories, documents and archives."""
    files: int
    """Number of distinct individual files of bundles."""
    size: int
    """Size of the targets."""
    roles: list[RoleStatus]


def verify_site(site: Site) -> Verification:
    """Verify everything below ``public/`` as a host would, starting from the first root.

    Raises the errors of `TrustClient.refresh`, and `SignatureError` with the number and the first names of bad files.

    1. Read the published metadata of all bundles and all site data, as a host does.
    2. Compare the index of each bundle with its history.
    3. Verify every archive that is not pruned, and the name and version in archives that channels name.
    4. Verify the descriptions of these versions and every file in them, once each.
    5. Report problems by kind.
    """
    published = site.published()
    # 1.
    indexes = _indexes_for_hosts(site, published)
    # 2. and 3.
    of_bundles = [_of_bundle(site, site.record_of(published, bundle)) for bundle in indexes.of]
    count = len(indexes.documents) + sum(report.targets for report in of_bundles)
    problems = [problem for report in of_bundles for problem in report.problems]
    # 4.
    files, wrong = _files_of(
        site, dict.fromkeys(each for report in of_bundles for each in report.descriptions)
    )
    # 5.
    if problems := [*problems, *wrong]:
        detail = f"{len(problems)} of {count + files} published files differ from their signed metadata:"
        raise SignatureError(str(site.public), "\n".join([detail, *_lines(problems)]))
    documents = (info.length for of_bin in published.bins() for info in of_bin.targets.values())
    size = sum(documents) + sum(report.size for report in of_bundles)
    return Verification(count, files, size, statuses(published))


class _Problem(NamedTuple):
    """A problem with one file. ``details`` are about this file, ``kind`` is shared with other files."""

    kind: str
    path: str
    details: str = ""

    @classmethod
    def of(cls, error: OSError | BundleError | LengthOrHashMismatchError, path: Path) -> "_Problem":
        if isinstance(error, FileNotFoundError):
            return cls("missing", str(path))
        if isinstance(error, OSError):
            return cls("unreadable", str(path), error.strerror or str(error))
        return cls("damaged", str(path), error.what if isinstance(error, BundleError) else str(error))


def _lines(problems: Sequence[_Problem]) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for problem in problems:
        details = f" ({problem.details})" if problem.details else ""
        kinds.setdefault(problem.kind, []).append(f"{problem.path}{details}")
    yield from (f"{len(named)} {kind}: {first_few(named)}" for kind, named in kinds.items())


@dataclass(frozen=True, slots=True)
class _Found:
    """The targets of one bundle: index, history and archives. ``size`` is the size of the archives."""

    targets: int
    size: int
    problems: list[_Problem]
    descriptions: list[Digest]


def _of_bundle(site: Site, record: Record) -> _Found:
    # 2.
    contradiction = _contradiction(record)
    # 3.
    retained = {name: of.artifact for name, of in record.history.versions.items() if of.pruned is None}
    named = record.index.named()
    results = [
        _problem(site, artifact, Release(record.index.bundle, version) if version in named else None)
        for version, artifact in retained.items()
    ]
    problems = [problem for problem in (contradiction, *results) if problem is not None]
    size = sum(artifact.archive.length for artifact in retained.values())
    return _Found(2 + len(retained), size, problems, [artifact.description for artifact in retained.values()])


def _indexes_for_hosts(site: Site, published: Published) -> Indexes:
    mirror, first_root = DirectoryMirror(str(site.public)), site.metadata / "1.root.json"
    bundles, documents = site.bundles(published), site.data_names(published)
    with tempfile.TemporaryDirectory() as scratch:
        client = TrustClient(Path(scratch), first_root, [mirror], bundles, site.now, documents=documents)
        try:
            return client.refresh()
        except SettingsError as error:  # a setting for hosts, but a part of this site
            raise error.under(error.where, SignatureError) from None


def _contradiction(record: Record) -> _Problem | None:
    bundle = record.index.bundle
    for version, artifact in record.index.releases.items():
        if record.find_artifact(version) != artifact:
            detail = f"{bundle} {version}: the index and the history list different files"
            return _Problem("contradicted by the history", index_path(bundle), detail)
    return None


def _files_of(site: Site, descriptions: Iterable[Digest]) -> tuple[int, list[_Problem]]:
    """Return the number of files that hosts may request individually, and their problems."""
    named: dict[str, Digest] = {}
    problems: list[_Problem] = []
    read = {description.sha256 for description in descriptions}
    for description in descriptions:
        try:
            named |= site.files.named_by(description)
        except (OSError, BundleError) as error:
            problems.append(_Problem.of(error, site.files.path(description.sha256)))
    for digest in named.values():
        if digest.sha256 in read:  # already read for its contents
            continue
        try:
            for _ in site.files.verified(digest):
                pass
        except (OSError, SignatureError) as error:
            problems.append(_Problem.of(error, site.files.path(digest.sha256)))
    return len(named.keys() | read), problems


def _problem(site: Site, artifact: Artifact, release: Release | None) -> _Problem | None:
    """Return the problem of an archive. ``release`` is its expected name and version if a channel names it."""
    archive = artifact.archive
    path = site.archive_file(archive)
    info = TargetFile(archive.length, {"sha256": archive.sha256}, archive.path)
    try:
        with open_regular(path) as stream:
            info.verify_length_and_hashes(stream)
        if release is not None:
            description = inspect(path)
            if hashlib.sha256(description.to_bytes()).hexdigest() != artifact.description.sha256:
                return _Problem("of another bundle", str(path), f"{DESCRIPTION} differs from the index")
            if (description.name, description.version) != (release.bundle, release.version):
                result = (
                    f"contains {description.name} {description.version}, expected {release} from the index"
                )
                return _Problem("of another bundle", str(path), result)
    except (OSError, LengthOrHashMismatchError, BundleError) as error:
        return _Problem.of(error, path)
    return None
