"""Any URL, apart from sites: what it gives now, or only whether that has changed.

Raised is what `bundles.transport.mirror.Mirror.download` raises, and `SettingsError` for what is no such URL.
"""

from typing import BinaryIO

import requests

from bundles.deadline import Deadline
from bundles.errors import SettingsError
from bundles.transport.location import Location
from bundles.transport.settings import TransportSettings, Validators
from bundles.transport.web import WebMirror
from bundles.transport.web_failures import UnchangedError


def download_url(
    url: str,
    limit: int,
    into: BinaryIO,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> None:
    """Write what any http or https URL gives to the empty ``into``; raises as `Mirror.download`.

    Credentials in the URL are for its origin; those of a site do not belong in ``settings`` here.
    """
    mirror, place = _open_url(url, settings, deadline)
    mirror.fetch(place, limit, into)


def download_if_changed(
    url: str,
    limit: int,
    into: BinaryIO,
    known: Validators,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> Validators | None:
    """Like `download_url`, unless what ``known`` stands for is still what the server has: then ``None``."""
    mirror, place = _open_url(url, settings, deadline)
    found = Validators()

    def note(response: requests.Response, _start: bytes) -> None:
        nonlocal found
        found = Validators.of(response.headers)

    try:
        mirror.fetch(place, limit, into, note, known.headers())
    except UnchangedError:
        return None
    return found


def _open_url(
    url: str, settings: TransportSettings | None, deadline: Deadline | None
) -> tuple[WebMirror, str]:
    """The mirror that fetches a URL, and the URL as it is asked for."""
    # A location has no query, because paths are added to it. Here it belongs to the one file that is asked for.
    base, mark, query = url.partition("#")[0].partition("?")
    location = Location.parse(base)
    if location.is_directory:
        raise SettingsError(url, "wanted an http or https URL")
    slash = "/" if base.endswith("/") else ""
    opened = WebMirror(location, settings or TransportSettings(), deadline=deadline)
    return opened, f"{location.base}{slash}{mark}{query}"
