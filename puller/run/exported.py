"""The exports of the bundles of this host, kept from the run that enforced them last.

A run that applies nothing (a maintenance window, a pause) exports the same as the one before it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from puller.state.directories import Directories
from puller.state.state_file import StateFile
from puller.values.exports import Value


class _Kept(msgspec.Struct, tag_field="format", tag=1):
    """The document, with its format in front."""

    bundles: dict[str, dict[str, Value]]
    """By bundle, then by name."""


class ExportedValues:
    """The exports of all bundles; ``warn`` is told what is damaged. Methods raise ``OSError``."""

    def __init__(self, directories: Directories, warn: Callable[[str], None]) -> None:
        self._file = StateFile(directories.exports, _Kept, "the next run exports anew")
        self._warn = warn

    def load(self, *, noop: bool = False) -> dict[str, dict[str, Value]]:
        """The values that were exported last, by bundle; with ``noop`` nothing is changed."""
        kept = self._file.load(self._warn, noop=noop)
        return kept.bundles if kept else {}

    def update(self, enforced: Mapping[str, Mapping[str, Any]], configured: Collection[str]) -> None:
        """Keep the exports of bundles that are enforced now, and none of those that are not ``configured``."""
        if not self._file.path.exists() and not any(enforced.values()):
            return
        before = self.load()
        now = before | {name: dict(values) for name, values in enforced.items()}
        now = {name: values for name, values in now.items() if name in configured and values}
        if now != before:
            self._file.save(_Kept(now))
        if not now:
            self._file.remove()
