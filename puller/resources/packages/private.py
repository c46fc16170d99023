"""A directory of our own for as long as a package manager needs files that are in no place of theirs yet."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator

from puller.system.protocol import Attributes, System


@contextlib.contextmanager
def private_directory(system: System, mode: int) -> Iterator[str]:
    """A new directory that nobody else writes into, gone afterwards; ``mode`` says who may read. Raises ``OSError``."""
    path = os.path.join(tempfile.gettempdir(), f"puller-{secrets.token_hex(8)}")
    system.make_directory(path, Attributes(os.geteuid(), os.getegid(), mode))
    try:
        yield path
    finally:
        if (found := system.lstat(path)) is not None:
            system.remove_tree(path, found)
