"""The linted bundle as all checks see it: its files, their texts, and its manifest if it is valid."""

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
    """Directory of its manifest: the root of the bundle."""
    name: str
    """Directory as the user named it, for findings: ``web``, or empty for the working directory."""
    inputs: Inputs
    """The available facts, and the given data."""
    manifest: Manifest | None
    """The manifest with these inputs. ``None`` if it is refused, which is already a finding."""
    texts: tuple[Problems, ...]
    """All YAML texts: of the manifest, its children, and rendered lists of resources."""
    manifest_name: str = ""
    """Name of its manifest in messages: ``web/manifest.yaml``."""
    data_files: tuple[Path, ...] = ()
    """Additional data documents."""

    @property
    def is_bundle(self) -> bool:
        """Whether it is a directory or an archive, and not a single manifest with another name."""
        return not self.manifest_name or self.manifest_name.endswith(MANIFEST)


Check = Callable[[Subject], Iterable[Finding]]
"""Yields violations of some rules. Problems of the bundle never raise."""


# Texts of files. Only regular files are read, since a pipe or a device would block all checks.

_SIZE_LIMIT: Final = 16 * 1024 * 1024


def read_text(path: str, limit: int = _SIZE_LIMIT) -> str | None:
    """Return the text of a file of at most ``limit`` bytes without a byte order mark, or ``None`` if it is
    unreadable.
    """
    try:
        data = _read(path, limit)
        is_text = len(data) <= limit and not is_wide(data)
        return data.decode("utf-8").removeprefix(MARK) if is_text else None
    except (OSError, ValueError):
        return None


def problem_of_text(path: str) -> str:
    """Return why `read_text` rejects an existing file: it is not text. Empty for other reasons."""
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
