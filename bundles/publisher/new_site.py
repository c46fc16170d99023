"""A new site: its keys, and signed metadata that says nothing yet.

It appears under its name when it is complete, so whoever finds a site finds a usable one.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from bundles.errors import PublishError
from bundles.filesystem.atomic import sync_directory, write_file
from bundles.filesystem.trees import remove_tree
from bundles.publisher.edition import first_root
from bundles.publisher.expiry import Lifetimes
from bundles.publisher.files import make_directory
from bundles.publisher.keys import generate_key
from bundles.publisher.pruning.rule import PruningRule
from bundles.publisher.published import ROLES, Published
from bundles.publisher.site import SETTINGS, Site, explained, utc_now


def make_site(
    directory: Path,
    passphrase: bytes | None,
    lifetimes: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Site:
    """Make a site with new keys and nothing in it; ``passphrase`` ``None`` stores the keys in the clear.

    It appears under its name when it is complete. Raises `PublishError`.
    """
    if directory.name in ("", ".."):
        raise PublishError(str(directory), "is no name for a new directory, wanted one such as 'site'")
    with explained(directory):
        if directory.exists() and any(directory.iterdir()):
            raise PublishError(str(directory), "exists and is not empty")
        directory.parent.mkdir(parents=True, exist_ok=True)
        staging = directory.with_name(f".{directory.name}.{secrets.token_hex(6)}.new")
        make_directory(staging)
        try:
            _fill(staging, passphrase, lifetimes or {}, now)
            os.rename(staging, directory)
        except BaseException:
            remove_tree(staging)
            raise
        sync_directory(directory.parent)
    return Site(directory, now)


def _fill(
    directory: Path, passphrase: bytes | None, lifetimes: Mapping[str, str], now: Callable[[], datetime]
) -> None:
    for part in ("public", "public/metadata", "public/targets"):
        make_directory(directory / part)
    write_file(directory / SETTINGS, _settings_text(lifetimes).encode())
    site = Site(directory, now)
    with site.locked():  # the lock belongs to who makes the site, and not to the timer that signs it
        keys = {role: generate_key(directory / "keys", role, passphrase) for role in ROLES}
        edition = site.edition(
            lambda _: passphrase or b"", Published.nothing(site.metadata, first_root(keys))
        )
        edition.sign_root()
        edition.sign_targets()
        edition.sign_timestamp()
        site.write(edition)


def _settings_text(lifetimes: Mapping[str, str]) -> str:
    Lifetimes.parse(lifetimes, "expiry")
    wanted = {"root": "365d", "targets": "90d", "snapshot": "30d", "timestamp": "7d", **lifetimes}
    rule = PruningRule()
    lines = "".join(f"  {role}: {text}\n" for role, text in wanted.items())
    return f"""\
# How long what this site signs is good for. Hosts stay on what they have when it has expired.
# `puller site refresh` signs anew; run it by a timer, well within the lifetime of the timestamp.
expiry:
{lines}
# Which versions of a bundle stay, beside those that channels name: the latest, and what a channel has named
# within a time. `puller site prune --noop` says what would go; with `automatic: false` only `puller site prune` prunes.
# prune: {{versions: {rule.versions}, after: {rule.after.days}d, automatic: true}}
"""
