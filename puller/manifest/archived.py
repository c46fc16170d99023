"""Archives whose manifest a user names. Only ``puller apply ARCHIVE`` imports this module.

* A bundle file is verified against itself.
* An archive that ``puller bundle build`` did not make has no description with checksums, so its contents are not
  verified. The user confirms this (``puller apply --plain-archive``). Only its files and directories are unpacked, into
  a private directory. Links are errors.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bundles.archive.unpack import unpack
from bundles.errors import FormatError
from puller.errors import SourceError, reason
from puller.resources.archives.extract import Form, read_members
from puller.resources.archives.members import Kind, Type
from puller.system import processes


@contextlib.contextmanager
def unpacked(archive: Path, *, is_plain: bool) -> Iterator[Path]:
    """Yield a directory with the contents of an archive, which exists during the block.

    ``is_plain``: the archive may be made by another program. Raises ``SourceError`` and ``UnpackError``.
    """
    with tempfile.TemporaryDirectory(prefix="puller-", ignore_cleanup_errors=True) as parent:
        directory = Path(parent) / "bundle"
        if is_plain:
            _unpack_plain(archive, directory)
        else:  # without an index, any name and version are accepted
            unpack(archive, directory, name=None, version=None, check=processes.check)
        yield directory


def _unpack_plain(archive: Path, directory: Path) -> None:
    """Unpack a ``tar.gz`` into a new private directory. Raises ``SourceError``."""
    try:
        with open(archive, "rb") as stream:
            for member, contents in read_members(stream, Form(Kind.TAR_GZ)):
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
