"""The source that a user names to be applied: a manifest, a directory that holds one, or a bundle file."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from foundation.masking import mask_location
from puller.errors import SourceError, UsageError
from puller.system import signals

MANIFEST = "manifest.yaml"
_BUNDLE_ENDINGS = (".tar.gz", ".tgz")
_ARCHIVE_ENDINGS = (".tar", ".zip", ".tar.xz", ".tar.bz2", ".tar.zst")


class ManifestSource(msgspec.Struct, frozen=True):
    """A manifest file, and what messages call it."""

    path: Path
    name: str


def working_directory() -> Path:
    """Where relative paths start; raises ``UsageError`` when it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the working directory, where relative paths start, does not exist any more"
        ) from None


@contextlib.contextmanager
def open_source(argument: str) -> Iterator[ManifestSource]:
    """The manifest that is meant; a bundle file is verified against itself and unpacked for as long as the block runs.

    Raises ``SourceError`` when there is nothing to apply, ``UnpackError`` for a bundle that is not valid.
    """
    path = Path(argument)
    if path.is_dir():
        yield ManifestSource(path.absolute() / MANIFEST, os.path.join(argument, MANIFEST))
    elif argument.endswith(_BUNDLE_ENDINGS) and path.exists():
        import tempfile

        from bundles.archive.unpack import unpack

        with tempfile.TemporaryDirectory(prefix="puller-", ignore_cleanup_errors=True) as directory:
            unpacked = Path(directory) / "bundle"
            # There is no index to say which name and version it should have.
            unpack(path, unpacked, name=None, version=None, check=signals.check)
            yield ManifestSource(unpacked / MANIFEST, f"{path.name}:{MANIFEST}")
    # Before the plain file: of an archive YAML would only say that it is not UTF-8 text.
    elif argument.endswith(_ARCHIVE_ENDINGS) and path.exists():
        raise SourceError(
            f"{argument}: is an archive and no bundle, which ends in .tar.gz: unpack it, and name its directory"
        )
    elif path.exists():
        yield ManifestSource(path.absolute(), argument)
    elif "://" in argument:
        what = "is a URL, wanted a file or directory of this machine: download it first"
        raise SourceError(f"{mask_location(argument)}: {what}; hosts that follow a site run `puller run`")
    else:
        raise SourceError(f"{argument}: there is no such manifest, directory or bundle file")
