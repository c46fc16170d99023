"""The links of one bundle: which of its directories is current, which passed last, which was current before.

* A link points to its old or to its new bundle at every instant, across crashes and power cuts.
* Only *not found* means that there is none. Anything else in the place of a link is an error that names it.
"""

import errno
import os
from pathlib import Path

from bundles.errors import StoreError
from bundles.filesystem.atomic import sync_directory
from bundles.filesystem.trees import kind_of
from bundles.format.paths import shown
from bundles.store.contents import explained, hidden, is_sha256, set_aside


class Links:
    """The links in ``directory``, that of one bundle. Methods raise ``StoreError``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, link: str) -> Path:
        """Where a link is, for messages."""
        return self._directory / link

    def target(self, link: str) -> str | None:
        """The SHA-256 that a link points to; ``None`` when there is none. Raises ``StoreError`` for what is no link."""
        path = self.path(link)
        with explained(path):
            try:
                target = os.readlink(path)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise

                raise StoreError(
                    str(path), f"is {kind_of(os.lstat(path).st_mode)}", expected="a link"
                ) from None
        if not is_sha256(target):
            raise StoreError(str(path), f"points to {shown(target)}", expected="the SHA-256 of a bundle")
        return target

    def point(self, link: str, sha256: str) -> None:
        """Let a link point to another bundle, at once and durably; raises ``StoreError``, the old one stays then."""
        path = self.path(link)
        with explained(path):
            if path.is_dir() and not path.is_symlink():
                # A backup that follows links restores them as directories, which rename does not replace.
                set_aside(path)
            os.symlink(sha256, temporary := hidden(path, "new"))
            try:
                os.rename(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
            sync_directory(path.parent)

    def set_aside_damaged(self, link: str) -> None:
        """Take what is no link of ours out of its place; raises ``StoreError`` that says so, if there was such a thing.

        Nothing is moved that only cannot be read, which says nothing about what it is.
        """
        try:
            self.target(link)
        except StoreError as error:
            if isinstance(error.__cause__, OSError):
                raise
            set_aside(self.path(link))
            raise StoreError(error.where, f"{error.what}; set aside") from error
