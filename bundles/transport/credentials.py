"""Credentials as headers, for the origin that they were configured for and no other."""

import base64

from bundles.transport.location import Location
from bundles.transport.settings import TransportSettings


def credentials(location: Location, settings: TransportSettings) -> dict[str, str]:
    """Headers for the configured origin; what the URL says goes before what the settings say."""
    headers = {name: value.reveal() for name, value in settings.headers.items()}
    if location.username is not None:
        headers["Authorization"] = _basic(location.username, location.password or "")
    elif settings.username is not None:
        headers["Authorization"] = _basic(
            settings.username, settings.password.reveal() if settings.password else ""
        )
    elif settings.token is not None:
        headers["Authorization"] = f"Bearer {settings.token.reveal()}"
    return headers


def request_headers(location: Location, settings: TransportSettings) -> dict[str, str]:
    """Headers of every request to the configured origin, credentials included."""
    agent = settings.user_agent or "puller"
    return {"User-Agent": agent, "Accept-Encoding": "identity", **credentials(location, settings)}


def _basic(username: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"
