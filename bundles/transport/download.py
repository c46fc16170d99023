"""Downloads of URLs outside of sites, with optional revalidation.

Raises the errors of `bundles.transport.mirror.Mirror.download`, and `SettingsError` for an invalid URL.
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
    """Download an http or https URL to the empty ``into``. Raises like `Mirror.download`.

    Returns whether the server has stated where the file ends. Credentials in the URL are sent to its origin only.
    ``settings`` must not contain the credentials of a site.
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
    """Download like `download_url`, or return ``None`` if the server still has the version ``known``."""
    settings = settings or TransportSettings()
    if (network := current()) is not None:
        return fetch_file(network, url, limit, into, known, settings, deadline)
    from bundles.transport.web_transfers import WebFile  # requests takes 80 % of an idle run

    return WebFile(url, settings).download(limit, into, known, deadline)
