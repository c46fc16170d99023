"""Extraction of an archive without a resource, a receipt or a download."""

import hashlib
import os
from pathlib import Path

from puller.resources.archives.extract import Form, unpacked
from puller.resources.archives.members import LIMITS, Kind, Limits, Opened, open_archive


def extract(
    archive: Path, kind: Kind, place: Path, limits: Limits = LIMITS, *, strip: int = 0
) -> tuple[str, ...]:
    """Extract the archive, and return its top-level names."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    with open_archive(str(archive)) as stream:
        opened = Opened(str(archive), stream, digest)
        with unpacked(
            opened, Form(kind, strip), str(place), uid=os.geteuid(), gid=os.getegid(), limits=limits
        ) as new:
            new.refuse_in_the_way({})
            new.put({})
            return new.entries
