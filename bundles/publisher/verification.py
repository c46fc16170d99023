"""A published site, checked as a host would: signatures, expiry, and every published file.

All that is wrong is told together, one line for each kind of it, with the first few files: thousands may be missing for
one reason.
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
from bundles.first_few import first_few
from bundles.format.identity import DESCRIPTION
from bundles.format.index import Artifact, Digest, Indexes, index_path
from bundles.format.release import Release
from bundles.format.tuf import TargetFile
from bundles.publisher.published import Published, Record
from bundles.publisher.site import RoleStatus, Site, statuses
from bundles.transport.mirror import DirectoryMirror


@dataclass(frozen=True, slots=True)
class Verification:
    """The extent of a check that found nothing wrong; ``size`` is bytes."""

    targets: int
    """Indexes, histories, documents and archives."""
    files: int
    """Those of bundles that can be fetched one by one, each once."""
    size: int
    """Of the targets."""
    roles: list[RoleStatus]


def verify_site(site: Site) -> Verification:
    """Check everything below ``public/`` as a host would, from the first root on.

    Raises what `TrustClient.refresh` raises, and `SignatureError` that counts all damaged files, and names the first.

    1. What is published of all bundles, and all site data, as a host reads it.
    2. The history of each, which offers what the index offers.
    3. Every archive that was not pruned; of those that hosts are told to run, that it is what it is called.
    4. The description of each of these, and every file that it names, once for all that have it.
    5. What is wrong, by its kind.
    """
    published = site.published()
    # 1.
    indexes = _indexes_for_hosts(site, published)
    # 2. and 3.
    of_bundles = [_of_bundle(site, site.record_of(published, bundle)) for bundle in indexes.of]
    count = len(indexes.documents) + sum(found.targets for found in of_bundles)
    problems = [problem for found in of_bundles for problem in found.problems]
    # 4.
    files, wrong = _files_of(site, dict.fromkeys(each for found in of_bundles for each in found.descriptions))
    # 5.
    if problems := [*problems, *wrong]:
        what = f"{len(problems)} of {count + files} published files are not as they were signed for:"
        raise SignatureError(str(site.public), "\n".join([what, *_lines(problems)]))
    documents = (info.length for of_bin in published.bins() for info in of_bin.targets.values())
    size = sum(documents) + sum(found.size for found in of_bundles)
    return Verification(count, files, size, statuses(published))


class _Problem(NamedTuple):
    """One file that is not as it should be; ``details`` are about this one, where ``kind`` says what others may be."""

    kind: str
    path: str
    details: str = ""

    @classmethod
    def of(cls, error: OSError | BundleError | LengthOrHashMismatchError, path: Path) -> "_Problem":
        if isinstance(error, FileNotFoundError):
            return cls("missing", str(path))
        if isinstance(error, OSError):
            return cls("not readable", str(path), error.strerror or str(error))
        return cls("damaged", str(path), error.what if isinstance(error, BundleError) else str(error))


def _lines(problems: Sequence[_Problem]) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for problem in problems:
        details = f" ({problem.details})" if problem.details else ""
        kinds.setdefault(problem.kind, []).append(f"{problem.path}{details}")
    yield from (f"{len(named)} {kind}: {first_few(named)}" for kind, named in kinds.items())


@dataclass(frozen=True, slots=True)
class _Found:
    """The targets of one bundle: its index, history and archives; ``size`` is that of the archives."""

    targets: int
    size: int
    problems: list[_Problem]
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
            raise error.under(error.where, SignatureError) from None


def _contradiction(record: Record) -> _Problem | None:
    bundle = record.index.bundle
    for version, artifact in record.index.releases.items():
        if record.find_artifact(version) != artifact:
            what = f"{bundle} {version}: the index offers other files than the history has"
            return _Problem("contradicted by the history", index_path(bundle), what)
    return None


def _files_of(site: Site, descriptions: Iterable[Digest]) -> tuple[int, list[_Problem]]:
    """The number of files that hosts may ask for one by one, and what is wrong with them."""
    named: dict[str, Digest] = {}
    problems: list[_Problem] = []
    read = {description.sha256 for description in descriptions}
    for description in descriptions:
        try:
            named |= site.files.named_by(description)
        except (OSError, BundleError) as error:
            problems.append(_Problem.of(error, site.files.path(description.sha256)))
    for digest in named.values():
        if digest.sha256 in read:  # to see what it names
            continue
        try:
            for _ in site.files.verified(digest):
                pass
        except (OSError, SignatureError) as error:
            problems.append(_Problem.of(error, site.files.path(digest.sha256)))
    return len(named.keys() | read), problems


def _problem(site: Site, artifact: Artifact, release: Release | None) -> _Problem | None:
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
                return _Problem(
                    "of another bundle", str(path), f"has another {DESCRIPTION} than the index says"
                )
            if (description.name, description.version) != (release.bundle, release.version):
                found = f"is {description.name} {description.version}, the index says {release}"
                return _Problem("of another bundle", str(path), found)
    except (OSError, LengthOrHashMismatchError, BundleError) as error:
        return _Problem.of(error, path)
    return None
