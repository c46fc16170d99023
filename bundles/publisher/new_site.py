"""Creation of a site: its keys, and signed metadata without content.

The site appears under its name when it is complete, so that every existing site is usable.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from bundles.errors import PublishError
from bundles.filesystem.atomic import naming, temporary_name, write_file
from bundles.filesystem.output import open_parent
from bundles.filesystem.safe_paths import REAL_DIRECTORY
from bundles.filesystem.trees import remove_tree
from bundles.publisher.edition import first_root
from bundles.publisher.expiry import DEFAULT_LIFETIMES, Lifetimes
from bundles.publisher.files import make_directory
from bundles.publisher.keys import generate_key
from bundles.publisher.pruning.rule import PruningRule
from bundles.publisher.published import ROLES, Published
from bundles.publisher.site import SETTINGS, Site, explained, utc_now
from foundation.problems import ProblemCode


def make_site(
    directory: Path,
    passphrase: bytes | None,
    lifetimes: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Site:
    """Create an empty site with new keys. If ``passphrase`` is ``None``, the keys are stored unencrypted.

    The site appears under its name when it is complete. Raises `PublishError`.
    """
    if directory.name in ("", ".."):
        raise PublishError(
            str(directory),
            "is no name for a new directory",
            code=ProblemCode.INVALID_NAME,
            expected="one such as 'site'",
        )
    with explained(directory):
        if directory.exists() and any(directory.iterdir()):
            raise PublishError(str(directory), "exists and is not empty", code=ProblemCode.UNWRITABLE_OUTPUT)
        with naming(directory), open_parent(directory, make=True) as (parent, name):
            staging = temporary_name(name)
            os.mkdir(staging, 0o755, dir_fd=parent)
            try:
                # Filled through its descriptor: another user who owns the parent may exchange the name for a link.
                with _opened_new(parent, staging) as place:
                    _fill(place, passphrase, lifetimes or {}, now)
                os.rename(staging, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                remove_tree(Path(f"/proc/self/fd/{parent}/{staging}"))
                raise
            os.fsync(parent)
    return Site(directory, now)


@contextlib.contextmanager
def _opened_new(parent: int, name: str) -> Iterator[Path]:
    """Yield a path of the new directory that renames do not change. Raises ``OSError``."""
    descriptor = os.open(name, REAL_DIRECTORY, dir_fd=parent)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid() or os.listdir(descriptor):
            raise FileExistsError(errno.EEXIST, "was replaced by another user", name)
        os.fchmod(descriptor, 0o755)  # regardless of the umask, for a web server
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _fill(
    directory: Path, passphrase: bytes | None, lifetimes: Mapping[str, str], now: Callable[[], datetime]
) -> None:
    for part in ("public", "public/metadata", "public/targets"):
        make_directory(directory / part)
    write_file(directory / SETTINGS, _settings_text(lifetimes).encode())
    site = Site(directory, now)
    with site.locked():  # creates the lock with the site's owner, before the timer that signs
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
    rule = PruningRule()
    lines = "".join(f"  {role}: {text}\n" for role, text in {**DEFAULT_LIFETIMES, **lifetimes}.items())
    return f"""\
# How long what this site signs is good for. Hosts stay on what they have when it has expired.
# `puller site refresh` signs anew; run it by a timer, well within the lifetime of the timestamp.
expiry:
{lines}
# Which versions of a bundle stay, beside those that channels name: the latest, and what a channel has named
# within a time. `puller site prune --noop` says what would go; with `automatic: false` only `puller site prune` prunes.
# prune: {{versions: {rule.versions}, after: {rule.after.days}d, automatic: true}}
"""
