"""Publication of site data: documents that hosts read beside their bundles, signed in the same way.

* A document has one version at a time, which its bin names. Hosts reject older versions of bins, so a document cannot
  be rolled back.
* The caller is responsible for the contents. This module handles bytes.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from bundles.errors import PublishError
from bundles.first_few import first_few
from bundles.format.site_data import DIRECTORY, SiteDocument, custom_fields, data_path, parse_data_name
from bundles.format.size_limits import LARGEST_SITE_DATA
from bundles.format.tuf import TargetFile
from bundles.publisher.edition import check_readable
from bundles.publisher.keys import Passphrase
from bundles.publisher.pruning.prune import tidy
from bundles.publisher.published import Published
from bundles.publisher.site import Site
from foundation.problems import ProblemCode


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
