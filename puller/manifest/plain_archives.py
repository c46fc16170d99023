"""Archives that ``puller bundle build`` did not make, for ``puller apply --plain-archive``.

* The archive has no description with checksums, so its contents are not verified. The user confirms this.
* Only files and directories are unpacked, into a private directory. Links are errors.
"""

import os
from pathlib import Path

from bundles.errors import FormatError
from puller.errors import SourceError, reason
from puller.resources.archives.extract import read_members
from puller.resources.archives.members import Kind, Type


def unpack_plain(archive: Path, directory: Path) -> None:
    """Unpack a ``tar.gz`` into a new private directory. Raises ``SourceError``."""
    try:
        with open(archive, "rb") as stream:
            for member, contents in read_members(stream, Kind.TAR_GZ):
                path = directory / member.path.text
                if member.type is Type.DIRECTORY:
                    path.mkdir(0o700, parents=True, exist_ok=True)
                elif member.type is Type.FILE:
                    _write(path, b"".join(contents), member.mode)
                else:
                    raise SourceError(
                        f"{archive}: contains the link {member.path.text}, which is not unpacked"
                    )
    except FormatError as error:
        raise SourceError(f"{archive}: {error}") from error
    except OSError as error:
        raise SourceError(f"{archive}: cannot be unpacked: {reason(error)}") from error


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, mode)
