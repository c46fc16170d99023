"""The manifest as a plain value, its inputs, and the source that a user names.

* A source is a manifest, a directory with a manifest, or a bundle file.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bundles.format.release import TrialRule
from foundation.masking import mask_location
from foundation.problems import KeyPath, Problem
from hiera.expressions.expressions import Scope
from hiera.sops.identities import Identities
from hiera.values import Secret
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource
from puller.errors import MissingSourceError, SourceError, UsageError
from puller.manifest.graph.catalog import Catalog
from puller.manifest.problems import Problems
from puller.state import IDENTITIES, PRIVATE_KEY
from puller.values.common_properties import Reference


class Inputs(msgspec.Struct, frozen=True):
    """The facts, data and keys that a manifest is resolved with."""

    facts: Mapping[str, Any]
    environ: Mapping[str, str]
    sources: tuple[DataSource, ...] = ()
    """Data from outside of the manifest, lowest precedence first. They override its own data."""
    private_key: str = PRIVATE_KEY
    """The file with this host's key for encrypted values of eyaml."""
    identities: Identities = Identities(IDENTITIES)
    """The keys of this host for files that SOPS encrypted."""
    as_user: bool | None = None
    """Whether the agent of an ordinary user reads it, with the rules of ``of_user``. ``None``: it is only read, and the
    manifest decides.
    """
    watch: Callable[[str, KeyPath, Scope, Scope, BundleFiles], Scope] | None = None
    """Makes the scope for a resource from the scope of its manifest. The arguments include the text and its place
    (``puller.engine.explanation``).
    """


class Manifest(Catalog, kw_only=True):
    """A valid manifest: its declarations and their order."""

    name: str
    """The name in messages: ``web/manifest.yaml``."""
    files: BundleFiles
    """Resolves paths."""
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    data: BundleData
    """The source of ``scope.data``."""
    fail_on_error: bool = False
    give_up_after: int = 0
    """Runs in a row with failed resources after which a bundle on trial is given up. 0 disables it."""
    trial: TrialRule = TrialRule()
    """How long a new version stays on trial."""
    exports: Mapping[str, Any] = {}
    """Values for the fleet, by name: those that have a valid value on this host."""
    export_problems: Sequence[Problem] = ()
    """The problems of all other exports."""
    pre_message: str | Secret = ""
    post_message: str | Secret = ""
    warnings: list[Problem] = msgspec.field(default_factory=list)
    """Suspicious but valid parts."""
    of_no_item: frozenset[Reference] = frozenset()
    """The written names of entries whose loops have no item on this machine."""
    texts: list[Problems] = msgspec.field(default_factory=list)
    """The texts of the manifest, of its children, and of rendered lists."""


MANIFEST = "manifest.yaml"
BUNDLE_ENDINGS = (".tar.gz", ".tgz")
_ARCHIVE_ENDINGS = (".tar", ".zip", ".tar.xz", ".tar.bz2", ".tar.zst")


class ManifestSource(msgspec.Struct, frozen=True):
    """A manifest file, with its name in messages."""

    path: Path
    name: str


def working_directory() -> Path:
    """Return the start of relative paths. Raise ``UsageError`` if the directory was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory, where relative paths start, no longer exists") from None


@contextlib.contextmanager
def open_source(
    argument: str, *, plain_archive: bool = False, needs_manifest: bool = True
) -> Iterator[ManifestSource]:
    """Yield the manifest of an argument. A bundle file is verified against itself, and unpacked during the block.

    ``plain_archive``: a ``tar.gz`` may be made by another program. It is unpacked without verification.
    ``needs_manifest``: a directory without a manifest is an error.

    Raise ``MissingSourceError`` if the manifest is missing, ``SourceError`` for another file, ``UnpackError`` for an
    invalid bundle.
    """
    path = Path(argument)
    if path.is_dir():
        manifest, name = path.absolute() / MANIFEST, os.path.join(argument, MANIFEST)
        if needs_manifest and not os.path.lexists(manifest):
            raise MissingSourceError(f"{name}: does not exist ({manifest})")
        yield ManifestSource(manifest, name)
    elif argument.endswith(BUNDLE_ENDINGS) and path.exists():
        from puller.manifest.archived import unpacked  # 17 % of an idle apply of a directory

        with unpacked(path, is_plain=plain_archive) as directory:
            yield ManifestSource(directory / MANIFEST, f"{path.name}:{MANIFEST}")
    # Before the plain file, because YAML would report an archive only as invalid UTF-8.
    elif argument.endswith(_ARCHIVE_ENDINGS) and path.exists():
        raise SourceError(
            f"{argument}: is an archive but not a bundle, whose name ends in .tar.gz",
            hint="unpack it, and pass its directory",
        )
    elif path.exists():
        yield ManifestSource(path.absolute(), argument)
    elif "://" in argument:
        raise SourceError(
            f"{mask_location(argument)}: is a URL",
            expected="a file or directory of this machine",
            hint="download it first, or follow its site with `puller run`",
        )
    else:
        raise MissingSourceError(f"{argument}: does not exist")
