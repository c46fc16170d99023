"""The bundle that is linted, as all checks see it: its files, and its manifest as far as that is understood."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from puller.authoring.lint.findings import Finding
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.problems import Problems
from puller.manifest.source import MANIFEST


class Subject(msgspec.Struct, frozen=True):
    """One bundle."""

    directory: Path
    """Where its manifest is: the root of the bundle."""
    name: str
    """As the user has named the directory; findings name files below it: ``web``, empty for the working directory."""
    inputs: Inputs
    """The facts at hand, and the data that is given."""
    manifest: Manifest | None
    """As it is with these; ``None`` where it is refused, which is a finding already."""
    texts: tuple[Problems, ...]
    """All YAML texts that were read: of the manifest, its children, and lists that templates have rendered."""
    manifest_name: str = ""
    """What messages call its manifest: ``web/manifest.yaml``."""
    data_files: tuple[Path, ...] = ()
    """Documents of data that are given beside the bundle."""

    @property
    def is_bundle(self) -> bool:
        """Whether it is a directory or an archive, and not a manifest of another name alone."""
        return not self.manifest_name or self.manifest_name.endswith(MANIFEST)


Check = Callable[[Subject], Iterable[Finding]]
"""Looks for what breaks some rules; never raises for what is wrong with the bundle."""
