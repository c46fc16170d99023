"""The linted bundle as all checks see it: its files, their texts, and its manifest as far as it is valid."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from bundles.filesystem.trees import open_regular
from puller.authoring.lint.findings import Finding
from puller.manifest.manifest import MANIFEST, Inputs, Manifest
from puller.manifest.problems import Problems
from puller.values.byte_order import IS_WIDE, MARK, is_wide


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


# Texts of files. Only regular files are read, since a pipe or a device would block all checks.

_SIZE_LIMIT: Final = 16 * 1024 * 1024


def read_text(path: str, limit: int = _SIZE_LIMIT) -> str | None:
    """Return the text of a file of at most ``limit`` bytes, without a byte order mark; ``None`` if it is unreadable."""
    try:
        data = _read(path, limit)
        is_text = len(data) <= limit and not is_wide(data)
        return data.decode("utf-8").removeprefix(MARK) if is_text else None
    except (OSError, ValueError):
        return None


def problem_of_text(path: str) -> str:
    """The reason why `read_text` gives nothing although there is a file: it is no text; empty for all others."""
    try:
        data = _read(path, _SIZE_LIMIT)
        if len(data) <= _SIZE_LIMIT:
            data.decode("utf-8")
            return IS_WIDE if is_wide(data) else ""
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text, at byte {error.start}"
    except (OSError, ValueError):
        return ""
    return ""


def _read(path: str, limit: int) -> bytes:
    with open_regular(Path(path), follow=True) as file:
        return file.read(limit + 1)
