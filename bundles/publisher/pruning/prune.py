"""Pruning a site: versions are said to be pruned, signed; their files go when no host can ask for them any more.

* Never what a channel or a wave names, or an unexpired ``timestamp.json`` may still lead to.
* The history of a bundle keeps what is pruned on record: a version stands for the same files for ever.
* Each publication and each refresh prunes what it has at hand; `prune_site` looks at everything.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bundles.errors import BundleError
from bundles.filesystem.atomic import open_directory, remove_leftovers
from bundles.format.history import Version
from bundles.publisher.edition import Edition
from bundles.publisher.keys import Passphrase
from bundles.publisher.pruning.rule import PruningRule
from bundles.publisher.pruning.sweep import Sweep, Swept, target_directories
from bundles.publisher.published import Record
from bundles.publisher.site import NewArchive, Site, explained

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The outcome of pruning, or with ``noop`` of what would be pruned."""

    versions: Mapping[str, Sequence[Version]]
    """By bundle: those that are said to be pruned now; their files are among those that wait."""
    swept: Swept


def announce(site: Site, edition: Edition, records: Sequence[Record], new: Iterable[NewArchive] = ()) -> None:
    """`Site.announce`, without the versions that are outdated by the rule of the site; then `tidy`."""
    rule = site.settings().pruning
    if rule.automatic:
        records = [rule.applied(record, edition.now) for record in records]
    site.announce(edition, records, new)
    tidy(site, edition, records)


def outdated_by_rule(site: Site, records: Iterable[Record]) -> Mapping[str, Sequence[Version]]:
    """By bundle, the versions that `announce` prunes with these records."""
    rule = site.settings().pruning
    return _outdated(rule, records, site) if rule.automatic else {}


def tidy(
    site: Site, edition: Edition, records: Sequence[Record] = (), directories: Sequence[str] = ()
) -> None:
    """Remove what no host can ask for any more: metadata, and files of bundles that were published.

    And in ``directories`` below ``targets/``.

    A failure is logged: what was to be published is published, and the next one tries again.
    """
    try:
        sweep = Sweep(site, edition.published, briefly=True)
        swept = sweep.look(records, directories)
        if site.settings().pruning.automatic:
            sweep.remove(swept)
        # Also where nothing is removed: that it waits begins now.
        sweep.note()
    except (OSError, BundleError) as error:
        _log.warning("%s: what is of no use any more could not be removed: %s", site.directory, error)


def plan_pruning(site: Site, rule: PruningRule) -> Pruned:
    """The outcome that `prune_site` would have; raises as it does, and writes nothing."""
    published, now = site.published(), site.now()
    with explained(site.directory):
        records = [site.record_of(published, bundle) for bundle in site.bundles(published)]
        after = [rule.applied(record, now) for record in records]
        swept = Sweep(site, published).look(after, target_directories(site.public))
        return Pruned(_outdated(rule, records, site), swept)


def prune_site(site: Site, rule: PruningRule, passphrase: Passphrase) -> Pruned:
    """Prune everything that ``rule`` does not keep; raises `PublishError`, `SignatureError`, and `KeyFileError`.

    1. Nobody publishes meanwhile, and what a publisher could not finish is finished.
    2. Read what is published of all bundles, and verify it.
    3. Sign the records without what is outdated. Where nothing is, no key is needed.
    4. Note which files nothing names since now, and remove those whose time is over.
    5. Remove what killed publishers left under temporary names.
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
        sweep.note()  # a kill while files are removed must not begin their time anew
        sweep.remove(swept)
        sweep.note()
        # 5.
        for name in ["metadata", *(f"targets/{name}" for name in directories)]:
            with open_directory(site.public / name) as directory:
                remove_leftovers(directory)
        return Pruned(versions, swept)


def _outdated(rule: PruningRule, records: Iterable[Record], site: Site) -> dict[str, list[Version]]:
    now = site.now()
    found = {record.index.bundle: rule.outdated(record, now) for record in records}
    return {bundle: versions for bundle, versions in found.items() if versions}
