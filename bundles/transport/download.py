"""Any URL, apart from sites: what it gives now, or only whether that has changed.

Raised is what `bundles.transport.mirror.Mirror.download` raises, and `SettingsError` for what is no such URL.
"""

from typing import BinaryIO

from bundles.confined.current import current
from bundles.deadline import Deadline
from bundles.transport.confined_web import fetch_file
from bundles.transport.settings import Received, TransportSettings, Validators


def download_url(
    url: str,
    limit: int,
    into: BinaryIO,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> bool:
    """Write what any http or https URL gives to the empty ``into``; raises as `Mirror.download`.

    Returns whether the server has stated where the file ends. Credentials in the URL are for its origin; those of a
    site do not belong in ``settings`` here.
    """
    received = download_if_changed(url, limit, into, Validators(), settings, deadline)
    return received is not None and received.is_whole


def download_if_changed(
    url: str,
    limit: int,
    into: BinaryIO,
    known: Validators,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> Received | None:
    """Like `download_url`, unless what ``known`` stands for is still what the server has: then ``None``."""
    settings = settings or TransportSettings()
    if (network := current()) is not None:
        return fetch_file(network, url, limit, into, known, settings, deadline)
    from bundles.transport.web_transfers import WebFile  # requests takes 80 % of an idle run

    return WebFile(url, settings).download(limit, into, known, deadline)
