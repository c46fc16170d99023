"""A published site, checked as a host would: signatures, expiry, and every published file."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tuf.api.exceptions import LengthOrHashMismatchError
from tuf.api.metadata import TargetFile

from bundles.archive.unpack import inspect
from bundles.client.client import TrustClient
from bundles.errors import BundleError, SettingsError, SignatureError
from bundles.filesystem.trees import open_regular
from bundles.format.index import Index
from bundles.format.release import Release
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
    """
    index, published = _index_for_hosts(site), site.published()
    infos = published.targets.targets.values()
    current = {release.target: release for release in index.releases()}
    problems = [problem for info in infos if (problem := _problem(site, info, current.get(info.path)))]
    if problems:
        what = f"{len(problems)} of {len(infos)} targets: {'; '.join(problems)}"
        raise SignatureError(str(site.public), what)
    return Verification(len(infos), sum(info.length for info in infos), statuses(published))


def _index_for_hosts(site: Site) -> Index:
    mirror, first_root = DirectoryMirror(str(site.public)), site.metadata / "1.root.json"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return TrustClient(Path(scratch), first_root, [mirror], site.now).refresh()
        except SettingsError as error:  # to a host the anchor is a setting; here it is part of the site
            raise SignatureError(error.where, error.what) from None


def _problem(site: Site, info: TargetFile, release: Release | None) -> str | None:
    path = site.file_of(info)
    try:
        with open_regular(path) as stream:
            info.verify_length_and_hashes(stream)
        if release is not None:
            description = inspect(path)
            if (description.name, description.version) != (release.bundle, release.version):
                return f"{path}: is {description.name} {description.version}, the index says {release}"
    except (OSError, LengthOrHashMismatchError, BundleError) as error:
        return f"{path}: {error}" if isinstance(error, LengthOrHashMismatchError) else str(error)
    return None
