"""Mirrors: places that one and the same site is served from.

* A mirror gives bytes, and none of them are trusted: it bounds their number and the time they take.
* Whatever goes wrong outside this machine leaves as a `TransportError` that shows no password.
"""

from collections.abc import Sequence
from typing import BinaryIO, Protocol

from bundles.confined.current import current
from bundles.deadline import Deadline
from bundles.transport.confined_web import ConfinedMirror
from bundles.transport.directory import DirectoryMirror
from bundles.transport.location import Location
from bundles.transport.settings import TransportSettings, locate


class Mirror(Protocol):
    """One place that a site is served from."""

    @property
    def is_remote(self) -> bool:
        """Whether a server gives the files. It may answer with an error page instead."""
        ...

    def download(
        self, path: str, limit: int, into: BinaryIO, *, resume: bool = False, is_exact: bool = False
    ) -> bool:
        """Write the file at ``path``, relative to the site, to ``into``, and nothing else.

        With ``resume``, what ``into`` holds is taken for the beginning of the file, and only the rest is asked
        for where that can be done. Whether it was the beginning of this file, the caller has to verify.

        With ``is_exact`` the file has ``limit`` bytes. Fewer bytes are a transfer that ended early and a
        `TransportError`, unless the server stated that length for a file that is not resumed: then it is another file.
        Returns whether the end of the file is certain, and not only the end of a connection.

        Raises `NotFoundError`, `OversizeError` beyond ``limit`` bytes, and any other `TransportError`; a part
        of the file may have been written then. A problem with ``into`` itself is an ``OSError``.
        """
        ...

    def __str__(self) -> str:
        """Its location, safe to show."""
        ...


def open_mirrors(
    locations: Sequence[str], settings: TransportSettings | None = None, deadline: Deadline | None = None
) -> list[Mirror]:
    """A mirror for each location, in that order; connects to nothing yet. Raises `SettingsError`.

    ``deadline`` is for all that is downloaded from all of them; without one each file has a limit of its own.
    """
    return [_open(place, own, deadline) for place, own in locate(locations, settings or TransportSettings())]


def _open(location: Location, settings: TransportSettings, deadline: Deadline | None) -> Mirror:
    if location.is_directory:
        return DirectoryMirror(location.base, deadline)
    if (network := current()) is not None:
        return ConfinedMirror(network, location, settings, deadline)
    from bundles.transport.web import WebMirror  # requests takes 80 % of an idle run

    return WebMirror(location, settings, deadline=deadline)
