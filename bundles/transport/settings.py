"""Locations of sites, and settings for their mirrors and for URLs: limits, proxy, authorities and credentials.

* A location is a URL, or a directory such as a mounted USB drive. It is parsed once, at the entry. An unusable location
  is rejected there.
* Neither ``str`` nor ``repr`` of a location contains the user name and password of its URL.
* Contradictory settings are rejected when the object is created, before the first request.
* Credentials belong to the first location and to other locations of the same origin. Another mirror gets only the
  credentials in its own URL, because its operator is not trusted with the passwords of the first mirror.
* A worker receives settings and locations as built-in types, and converts them back.
* This module does not use the network or import an HTTP library, so a run without news does not need one.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from bundles.deadline import Deadline
from bundles.errors import SettingsError, TransportError
from foundation.masking import Hidden, mask_location

_DEFAULT_PORTS = {"http": 80, "https": 443}
_EXPECTED = "expected a URL such as https://www.example.org/puller, or an absolute directory such as /media/usb/public"


class Location(msgspec.Struct, frozen=True):
    """``base`` has no trailing slash and no user information, and may be displayed."""

    base: str
    username: str | None = None
    password: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Location":
        """Parse a location from the configuration. Raises `SettingsError`."""
        if any(character.isspace() or not character.isprintable() for character in text):
            raise SettingsError(
                mask_location(ascii(text)), f"contains blanks or control characters, {_EXPECTED}"
            )
        if text.startswith("/"):
            return cls(text.rstrip("/") or "/")
        fields = _split(text)
        if fields.scheme not in _DEFAULT_PORTS or not fields.hostname:
            raise SettingsError(mask_location(text), _EXPECTED)
        if fields.query or fields.fragment:
            raise SettingsError(
                mask_location(text), "contains a query or fragment, which is invalid for a site"
            )
        base = f"{fields.scheme}://{fields.netloc.rpartition('@')[2]}{fields.path.rstrip('/')}"
        if fields.username is None:
            return cls(base)
        return cls(base, unquote(fields.username), unquote(fields.password or ""))

    @property
    def is_directory(self) -> bool:
        return self.base.startswith("/")

    @property
    def origin(self) -> str:
        """Return scheme, host and port, to which credentials are restricted."""
        return origin_of(self.base)

    def __str__(self) -> str:
        return self.base

    def __repr__(self) -> str:
        return f"Location({self.base!r})"


def origin_of(url: str) -> str:
    """Return ``https://host:443`` for an http or https URL, in one spelling. Raises `SettingsError`."""
    fields = _split(url)
    port = fields.port or _DEFAULT_PORTS.get(fields.scheme, 0)
    return f"{fields.scheme}://{(fields.hostname or '').lower()}:{port}"


def _split(url: str) -> SplitResult:
    try:
        url_parts = urlsplit(url)
        _ = url_parts.port  # this property rejects non-numeric ports
    except ValueError as error:
        description = str(error).partition(" as ")[0]  # an invalid port may be a part of a password
        raise SettingsError(mask_location(url), f"{description}, {_EXPECTED}") from None
    return url_parts


CHUNK = 64 * 1024
"""Bytes per read from a mirror."""
LONGEST_VALIDATOR = 1024  # characters
MOST_RETRIES_OF_SEVERAL = 1
"""Limit of retries on each of several mirrors, regardless of the configuration."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class TransportSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a site over HTTP. Times are seconds."""

    connect_timeout: float = 10.0
    """For one address of the host, and for the TLS handshake."""
    read_timeout: float = 30.0
    """Without a single byte, and the time over which a transfer must keep a pace (see `transfer_limits`)."""
    total_timeout: float = 300.0
    """For one file with its redirects and retries, if there is no common deadline for several files."""
    retries: int = 3
    """After the first attempt, for temporary failures: lost connections, timeouts, status 408, 429 and 5xx."""
    proxy: Hidden | None = None
    """URL of a proxy, which may contain a password. Empty: no proxy, regardless of the environment."""
    ca_bundle: str | None = None
    """PEM file or directory of certificate authorities. Default: the system's."""
    client_cert: str | None = None
    client_key: str | None = None
    """When it is not in the same file as the certificate."""
    username: str | None = None
    password: Hidden | None = None
    token: Hidden | None = None
    """Sent as ``Authorization: Bearer``."""
    headers: Mapping[str, Hidden] = {}
    """Sent to the site only, as credentials are."""
    user_agent: str | None = None
    """Instead of ``puller/<version>``."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "read_timeout", "total_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected more than 0 seconds")
        if not 0 <= self.retries <= 100:
            raise ValueError(f"retries is {self.retries}, expected 0 to 100")
        if self.token is not None and self.username is not None:
            raise ValueError("token and username exclude each other")
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key requires client_cert")
        for name, value in self.headers.items():
            if not (name.isascii() and name.replace("-", "").isalnum() and _is_header_text(value.reveal())):
                raise ValueError(f"headers: {name!r} or its value is not printable ASCII")
        if self.token is not None and not _is_header_text(self.token.reveal()):
            raise ValueError("token is empty or contains characters outside printable ASCII")

    def without_credentials(self) -> "TransportSettings":
        """Return the settings for a mirror of another operator, without credentials."""
        changes = {"username": None, "password": None, "token": None, "client_cert": None, "client_key": None}
        return msgspec.structs.replace(self, **changes, headers={})


class Validators(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's identifiers for a version of a file (RFC 9110, 8.8), for conditional requests."""

    etag: str = ""
    last_modified: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Validators":
        """Return the usable validators in the headers of a response."""
        result = (headers.get(name, "") for name in ("ETag", "Last-Modified"))
        return cls(
            *(value if _is_header_text(value) and len(value) <= LONGEST_VALIDATOR else "" for value in result)
        )

    def headers(self) -> dict[str, str]:
        """Return the headers of a conditional request."""
        conditions = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in conditions.items() if value}


class Received(msgspec.Struct, frozen=True):
    """A file received from a server."""

    validators: Validators
    is_whole: bool
    """Whether the server has stated where the file ends. Otherwise a lost connection looks like the end."""


def locate(locations: Sequence[str], settings: TransportSettings) -> list[tuple[Location, TransportSettings]]:
    """Return each location with its settings. Raises `SettingsError`."""
    parsed = [Location.parse(location) for location in locations]
    if not parsed:
        raise SettingsError(
            "site", "no location is configured", expected="a URL such as https://www.example.org/puller"
        )
    if len(parsed) > 1:
        # With several mirrors, the next mirror is the better retry. A hanging mirror should cost a minute, not the
        # whole run.
        settings = msgspec.structs.replace(settings, retries=min(settings.retries, MOST_RETRIES_OF_SEVERAL))
    own = settings.without_credentials()
    return [(place, settings if place.origin == parsed[0].origin else own) for place in parsed]


def deadline_of(url: str, settings: TransportSettings, common: Deadline | None) -> Deadline:
    """Return the deadline of one download.

    ``common`` is the deadline of several downloads. Raises `TransportError` if it is over.
    """
    if common is None:
        return Deadline(settings.total_timeout)
    if common.is_over:
        raise TransportError(
            url, f"is not requested, because the {common.seconds:g} s of total_timeout have passed"
        )
    return common.within(common.seconds)


def too_late(url: str, deadline: Deadline) -> TransportError:
    """Return the error for a download that has exceeded its deadline."""
    seconds = f"{deadline.seconds:.1f}".removesuffix(".0")
    return TransportError(url, f"took longer than the limit of {seconds} s")


def uses_proxy(settings: TransportSettings) -> bool:
    """Return whether the settings or the environment name any proxy."""
    environment = {name.lower() for name, value in os.environ.items() if value}
    return bool(settings.proxy and settings.proxy.reveal()) or not environment.isdisjoint(_PROXIES)


def require_files(settings: TransportSettings) -> None:
    """Raise `SettingsError` for an unreadable file of ``settings``."""
    for name in ("ca_bundle", "client_cert", "client_key"):
        if (path := getattr(settings, name)) is not None:
            require_readable(name, path)


def require_readable(name: str, path: str) -> None:
    """Raise `SettingsError` if the file of the setting ``name`` is unreadable."""
    if not os.access(path, os.R_OK):
        raise SettingsError(path, f"the file of {name} cannot be read")


def _is_header_text(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()


# Headers with the credentials of the configured origin.


def credentials(location: Location, settings: TransportSettings) -> dict[str, str]:
    """Return headers for the configured origin. The URL takes precedence over the settings."""
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
    """Return the headers of every request to the configured origin, including credentials."""
    agent = settings.user_agent or "puller"
    return {"User-Agent": agent, "Accept-Encoding": "identity", **credentials(location, settings)}


def _basic(username: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


class Clear(str):
    """An unmasked secret, in the process that sends it."""

    __slots__ = ()

    def reveal(self) -> str:
        """Return the text itself."""
        return str(self)


def handed_over(location: Location, settings: TransportSettings) -> tuple[Any, ...]:
    """Convert location and settings, including their secrets, to built-in types."""
    return msgspec.structs.astuple(location), {
        name: _bare(value) for name, value in msgspec.structs.asdict(settings).items()
    }


def taken_over(arguments: tuple[Any, ...]) -> tuple[Location, TransportSettings]:
    """Return the location and the settings from the result of `handed_over`."""
    location, values = arguments
    headers = {name: Clear(value) for name, value in values.pop("headers").items()}
    hidden: Any = {
        name: Clear(value)
        for name in ("proxy", "password", "token")
        if (value := values.pop(name)) is not None
    }
    return Location(*location), TransportSettings(**values, **hidden, headers=headers)


def _bare(value: Any) -> Any:
    if hasattr(value, "reveal"):
        return value.reveal()
    if hasattr(value, "items"):
        return {name: _bare(each) for name, each in value.items()}
    return value
