"""Links, devices and similar files, which cannot be packed.

``unpackable-file``: ``puller bundle build`` refuses the bundle.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from bundles.archive.pack import is_left_out
from bundles.filesystem.trees import kind_of, walk
from foundation.problems import Location
from puller.authoring.lint.findings import UNPACKABLE, Finding, Severity
from puller.authoring.lint.subject import Subject

_MOST: Final = 20_000  # maximum files to check, because a path may point to a whole machine


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each such file of a bundle. Files beside a single manifest are not checked."""
    if not subject.is_bundle:
        return
    try:
        for number, (path, status) in enumerate(walk(subject.directory, is_left_out)):
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                what = f"is {kind_of(status.st_mode)}, expected a regular file or a directory"
                yield Finding.of(UNPACKABLE, Severity.ERROR, Location(os.path.join(subject.name, path)), what)
            if number > _MOST:
                return
    except OSError:
        return  # packing reports unreadable files
