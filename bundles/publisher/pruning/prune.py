"""Pruning of a site: a signed statement marks versions as pruned, and their files are removed later.

* Files are removed when hosts can no longer request them.
* Versions that a channel or a wave names, or that an unexpired ``timestamp.json`` may lead to, are kept.
* The history of a bundle records pruned versions, because a version always stands for the same files.
* Each publication and each refresh prunes the bundles that it changes. `prune_site` checks all bundles.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bundles.errors import BundleError
from bundles.filesystem.atomic import open_directory, remove_leftovers
from bundles.format.history import Version
from bundles.publisher.edition import Edition
from bundles.publisher.keys import Passphrase
from bundles.publisher.pruning.sweep import Sweep, Swept, target_directories
from bundles.publisher.published import Record
from bundles.publisher.settings import PruningRule
from bundles.publisher.site import NewArchive, Site, explained

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of pruning, or with ``noop`` of planned pruning."""

    versions: Mapping[str, Sequence[Version]]
    """Versions that are marked as pruned now, by bundle. Their files are among the waiting ones."""
    swept: Swept


def announce(site: Site, edition: Edition, records: Sequence[Record], new: Iterable[NewArchive] = ()) -> None:
    """Call `Site.announce` without the versions that are outdated by the rule of the site, then `tidy`."""
    rule = site.settings().pruning
    if rule.automatic:
        records = [rule.applied(record, edition.now) for record in records]
    site.announce(edition, records, new)
    tidy(site, edition, records)


def outdated_by_rule(site: Site, records: Iterable[Record]) -> Mapping[str, Sequence[Version]]:
    """Return the versions that `announce` prunes with these records, by bundle."""
    rule = site.settings().pruning
    return _outdated(rule, records, site) if rule.automatic else {}


def tidy(
    site: Site, edition: Edition, records: Sequence[Record] = (), directories: Sequence[str] = ()
) -> None:
    """Remove metadata and files of published bundles that no host can request, also in ``directories`` of ``targets/``.

    A failure is logged only, because the publication is complete and the next one tries again.
    """
    try:
        sweep = Sweep(site, edition.published, briefly=True)
        swept = sweep.look(records, directories)
        if site.settings().pruning.automatic:
            sweep.remove(swept)
        # Even without removals, because the waiting time starts now.
        sweep.note()
    except (OSError, BundleError) as error:
        _log.warning("%s: unneeded files cannot be removed: %s", site.directory, error)


def plan_pruning(site: Site, rule: PruningRule) -> Pruned:
    """Return the planned result of `prune_site`. Raises the same errors, and writes nothing."""
    published, now = site.published(), site.now()
    with explained(site.directory):
        records = [site.record_of(published, bundle) for bundle in site.bundles(published)]
        after = [rule.applied(record, now) for record in records]
        swept = Sweep(site, published).look(after, target_directories(site.public))
        return Pruned(_outdated(rule, records, site), swept)


def prune_site(site: Site, rule: PruningRule, passphrase: Passphrase) -> Pruned:
    """Prune every version that ``rule`` does not keep. Raises `PublishError`, `SignatureError` and `KeyFileError`.

    1. Lock the site against other publishers, and complete an interrupted change.
    2. Read and verify the published metadata of all bundles.
    3. Sign the records without outdated versions. If nothing is outdated, no key is needed.
    4. Note unreferenced files, and remove files whose waiting time is over.
    5. Remove temporary files of killed publishers.
    """
    with site.locked():  # 1.
        # 2.
        edition = site.edition(passphrase)
        records = [site.record_of(edition.published, bundle) for bundle in site.bundles(edition.published)]
        # 3.
        versions = _outdated(rule, records, site)
        after = [rule.applied(record, edition.now) for record in records]
        if versions:
            site.announce(edition, [record for record in after if record.index.bundle in versions])
        # 4.
        sweep = Sweep(site, edition.published)
        directories = target_directories(site.public)
        swept = sweep.look(after, directories)
        sweep.note()  # a kill during removal must not restart the waiting times
        sweep.remove(swept)
        sweep.note()
        # 5.
        for name in ["metadata", *(f"targets/{name}" for name in directories)]:
            with open_directory(site.public / name) as directory:
                remove_leftovers(directory)
        return Pruned(versions, swept)


def _outdated(rule: PruningRule, records: Iterable[Record], site: Site) -> dict[str, list[Version]]:
    now = site.now()
    result = {record.index.bundle: rule.outdated(record, now) for record in records}
    return {bundle: versions for bundle, versions in result.items() if versions}
