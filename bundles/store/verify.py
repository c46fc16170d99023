"""Comparison of an unpacked bundle with its description.

The differences are sentences. An empty list means that exactly the listed files exist, with their contents and modes.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bundles.filesystem.atomic import read_limited
from bundles.filesystem.trees import kind_of, measure, walk
from bundles.format.description import BundleDescription, FileEntry
from bundles.format.identity import DESCRIPTION
from bundles.format.member_paths import MemberPath, shown
from bundles.format.size_limits import LIMITS


def read_description(directory: Path) -> bytes:
    """Return the ``bundle.json`` of an unpacked bundle. Raises ``OSError``, and ``ValueError`` if it is too large."""
    return read_limited(directory / DESCRIPTION, LIMITS.description)


def differences(directory: Path, *, unlisted: bool = True) -> list[str]:
    """Return the differences of an unpacked bundle from its ``bundle.json``. Raises ``FormatError`` and ``OSError``.

    Without ``unlisted``, additional files are ignored.
    """
    description = BundleDescription.parse(read_description(directory))
    found = dict(walk(directory))
    del found[DESCRIPTION]
    wanted = {path.text for path in description.files} | description.directories
    added = [name for name in found if name not in wanted] if unlisted else []
    sentences = [f"{shown(name)} is not listed in bundle.json" for name in added]
    for path, entry in description.files.items():
        sentences += [
            f"{shown(path.text)} {what}" for what in _of_file(directory, path, entry, found.get(path.text))
        ]
    return sentences


def _of_file(
    directory: Path, path: MemberPath, entry: FileEntry, status: os.stat_result | None
) -> Iterator[str]:
    if status is None:
        yield "is missing"
        return
    if not stat.S_ISREG(status.st_mode):
        yield f"is {kind_of(status.st_mode)}, expected a regular file"
        return
    if (mode := stat.S_IMODE(status.st_mode)) != entry.mode.unpacked:
        yield f"has the mode {mode:04o}, expected {entry.mode.unpacked:04o}"
    contents = measure(directory / path.text)
    if contents.size != entry.size:
        yield f"has {contents.size} bytes, expected {entry.size}"
    elif contents.sha256 != entry.sha256:
        yield f"has the sha256 {contents.sha256}, expected {entry.sha256}"
