"""Documents brought to a web server, one request each: nothing is tried again, and nothing followed.

* Credentials, client certificate, proxies and authorities are as for sites (`bundles.transport.web`).
* A redirect is an answer like any other: a body is never sent to where a server points.
* Nothing of an answer is kept but its status, and no more of its body is read than a short one has.
"""

import contextlib
from typing import Protocol

from bundles.confined.current import current
from bundles.deadline import Deadline
from bundles.transport.confined_web import ConfinedUploads
from bundles.transport.location import Location
from bundles.transport.plain_uploads import PlainUploads
from bundles.transport.settings import TransportSettings, goes_through_proxy


class Uploads(Protocol):
    """Requests with a body to URLs of one origin, over a connection that is kept."""

    def send(self, method: str, url: str, data: bytes, kind: str, deadline: Deadline) -> int:
        """The status that a server answers with; ``kind`` is the media type of ``data``.

        It may block in the resolver for longer than the deadline, so it is to be called aside. Raises `TransportError`,
        ``DeadlineError``, and what the deadline's ``check`` raises.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def open_uploads(location: Location, settings: TransportSettings) -> Uploads:
    """The way to the origin of a location; connects to nothing yet.

    Raises `SettingsError` for a file of ``settings`` that cannot be read.
    """
    if (network := current()) is not None:
        return ConfinedUploads(network, location, settings)
    return open_uploads_here(location, settings)


def open_uploads_here(location: Location, settings: TransportSettings) -> Uploads:
    """As `open_uploads`, in this process."""
    if location.base.isascii() and not goes_through_proxy(settings):
        # What is wrong with files is found, and said, by the other way.
        with contextlib.suppress(OSError, ValueError):
            return PlainUploads(location, settings)
    from bundles.transport.web_uploads import WebUploads  # requests takes 80 % of an idle run

    return WebUploads(location, settings)
