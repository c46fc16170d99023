"""Versions that this host's operator holds bundles at, until they are let go.

* A pin wins over the channel. A version in the configuration is a pin, too: two that differ are a mistake that only a
  person can settle, so nothing new is chosen then.
* A pin chooses among what is published and signed; it lets nothing in that the site does not offer.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from puller.errors import ConfigurationError
from puller.state.directories import Directories
from puller.state.state_file import StateFile

_LOSS = "PINS ARE LOST: bundles that were pinned follow their channel again, until `puller pin` holds them"


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    bundles: dict[str, str]


class Pins:
    """All of them, by the name of the bundle."""

    def __init__(self, file: StateFile[_Document], entries: Mapping[str, str], *, noop: bool) -> None:
        self.entries = dict(entries)
        self._file = file
        self._noop = noop

    @classmethod
    def load(cls, directories: Directories, warn: Callable[[str], None], *, noop: bool = False) -> "Pins":
        """Read the file; ``warn`` is told when it cannot be used, and there are none then. Raises ``OSError``."""
        file = StateFile(directories.pins, _Document, _LOSS)
        document = file.load(warn, noop=noop)
        return cls(file, document.bundles if document else {}, noop=noop)

    def find(self, bundle: str) -> str | None:
        """The version that a bundle is held at."""
        return self.entries.get(bundle)

    def version_for(self, bundle: str, configured: str | None) -> str | None:
        """The version that a bundle is held at by a pin or by the configuration; ``None`` follows the channel.

        Raises ``ConfigurationError`` when these two differ.
        """
        pinned = self.find(bundle)
        if pinned and configured and pinned != configured:
            raise ConfigurationError(
                f"{bundle}: `puller pin` holds it at {pinned}, its version in the configuration is {configured}; "
                f"`puller unpin {bundle}` leaves it to the configuration"
            )
        return pinned or configured

    def set(self, bundle: str, version: str) -> None:
        """Hold a bundle at a version; raises ``OSError``."""
        self._save({**self.entries, bundle: version})

    def remove(self, bundle: str) -> str | None:
        """Let a bundle follow its channel again; gives the version that it was held at. Raises ``OSError``."""
        if (version := self.find(bundle)) is not None:
            self._save({name: pin for name, pin in self.entries.items() if name != bundle})
        return version

    def _save(self, entries: dict[str, str]) -> None:
        if not self._noop:
            self._file.save(_Document(1, entries))
        self.entries = entries
