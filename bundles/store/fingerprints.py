"""Is an unpacked bundle still as it was when every byte of it was last compared?

* A fingerprint is a digest of what changes with every change of a file: name, inode, size, mode, owner, and times, the
  one of the last change among them, which the kernel sets and nobody else. Looking at these costs five microseconds a
  file.
* What does not have its recorded fingerprint is not damaged, only unknown: it is compared byte by byte then. So is what
  was recorded more than a day ago, because disks also forget without a trace.
* Fingerprints protect from accidents: who may write here may write these, too. They can be lost without harm.
"""

import contextlib
import os
import time
from collections.abc import Container
from pathlib import Path

from bundles.digests import sha256
from bundles.filesystem.atomic import read_limited, write_file
from bundles.filesystem.trees import walk

LONGEST_TRUSTED = 24 * 3600.0
"""Seconds after which a fingerprint says nothing any more."""

_LENGTH = 64


def fingerprint(directory: Path) -> str:
    """The digest of all that a tree shows from outside of its files; raises ``OSError``."""
    digest = sha256()
    for name, found in sorted(walk(directory)):  # the file system gives them in any order
        about = (found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_ino)
        digest.update(b"%s\0%r %d %d\n" % (os.fsencode(name), about, found.st_mtime_ns, found.st_ctime_ns))
    return digest.hexdigest()


class Fingerprints:
    """The recorded fingerprints in ``directory``, by the name of the tree. A problem with one is as good as none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fits(self, name: str, found: str) -> bool:
        """Whether ``found`` is the recorded fingerprint, and was recorded not long ago."""
        path = self._directory / name
        with contextlib.suppress(OSError, ValueError):
            age = time.time() - os.lstat(path).st_mtime  # negative: the clock was wrong then or is now
            return 0 <= age < LONGEST_TRUSTED and read_limited(path, _LENGTH) == found.encode("ascii")
        return False

    def put(self, name: str, found: str) -> None:
        """Record the fingerprint of what was compared just now."""
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_file(self._directory / name, found.encode("ascii"), mode=0o600, durable=False)

    def keep_only(self, names: Container[str]) -> None:
        """Forget the others."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._directory):
                if name not in names:
                    os.unlink(self._directory / name)
