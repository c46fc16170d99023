"""The bytes of an archive from a web server, here or by a worker without privileges."""

from collections.abc import Mapping
from typing import BinaryIO

import msgspec

from bundles.confined.current import current
from bundles.deadline import Deadline, DeadlineError
from bundles.transport.handed_over import handed_over
from bundles.transport.location import Location
from bundles.transport.settings import TransportSettings
from bundles.transport.time_limits import too_late
from foundation.masking import Hidden
from puller.resources.archives.kinds import Kind
from puller.system import signals


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A file to fetch, and how; ``timeout`` is seconds for all of it, ``limit`` bytes."""

    url: str
    kind: Kind
    checksum: str | None
    """SHA-256, in hexadecimal."""
    timeout: float
    limit: int
    username: str | None = None
    password: Hidden | None = None
    headers: Mapping[str, Hidden] = {}

    @property
    def place(self) -> tuple[Location, TransportSettings]:
        """Where it is, without the query of its URL, and what belongs to its origin; raises `SettingsError`."""
        location = Location.parse(self.url.partition("#")[0].partition("?")[0])
        own = any(name.lower() == "authorization" for name in self.headers)
        settings = TransportSettings(
            total_timeout=self.timeout,
            username=None if own else self.username,
            password=None if own else self.password,
            headers=self.headers,
        )
        return Location(location.base) if own else location, settings


def fetch_archive(request: Request, partial: BinaryIO) -> bool:
    """Add to ``partial`` what it does not hold of the archive yet, or write it anew.

    Returns whether the server has stated where the archive ends.

    Raises `TransportError`, ``StoppedDownload``, and the ``OSError`` of ``partial``.
    """
    deadline = Deadline(request.timeout, signals.check_download)
    if (network := current()) is None:
        from puller.resources.archives.resuming import ResumingMirror  # requests takes 80 % of an idle run

        mirror = ResumingMirror(
            request.url, request.kind, request.place, is_known=request.checksum is not None
        )
        return mirror.complete(request.limit, partial, deadline)

    place, settings = request.place
    arguments = (request.url, request.kind.value, request.checksum is not None, *handed_over(place, settings))
    connection = network.open("puller.resources.archives.resuming:open_archive", arguments, request.url)
    try:
        call = (request.limit, deadline.left)
        return [*connection.call(call, deadline, partial, request.limit, resume=True)] == [b"1"]
    except DeadlineError:
        raise too_late(request.url, deadline) from None
    finally:
        connection.close()
