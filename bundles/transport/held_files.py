"""Files that only the agent may read, for a process that gives up its rights: copies in memory, made before."""

import os

import msgspec

from bundles.transport.settings import TransportSettings
from bundles.transport.web import authorities, certificate


class HeldFiles:
    """The files of settings, held."""

    def __init__(self, settings: TransportSettings) -> None:
        """Raises `SettingsError` for a file that cannot be read, and ``OSError``."""
        self._names: dict[str, str] = {}
        trusted, _ = authorities(settings), certificate(settings)
        paths = {
            "ca_bundle": trusted if isinstance(trusted, str) else None,
            "client_cert": settings.client_cert,
            "client_key": settings.client_key,
        }
        self.settings = msgspec.structs.replace(
            settings, **{name: path and self._hold(path) for name, path in paths.items()}
        )
        """With the copies in their places."""
        self.readable = tuple(path for path in paths.values() if path)
        """What they name; of these a directory stays where it is."""

    def named(self, text: str) -> str:
        """A sentence with the names of the files instead of those of the copies."""
        for copy, path in self._names.items():
            text = text.replace(copy, path)
        return text

    def _hold(self, path: str) -> str:
        if os.path.isdir(path):
            return path
        with open(path, "rb") as stream:
            data = stream.read()
        descriptor = os.memfd_create("held")
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(data)
        copy = f"/proc/self/fd/{descriptor}"
        self._names[copy] = path
        return copy
