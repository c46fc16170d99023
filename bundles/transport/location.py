"""Location of a site: a URL, or a directory such as a mounted USB drive.

* A location is parsed once, at the entry. An unusable location is rejected there.
* Neither ``str`` nor ``repr`` of a location contains the user name and password of its URL.
"""

from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from bundles.errors import SettingsError
from foundation.masking import mask_location

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
