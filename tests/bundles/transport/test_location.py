"""Location of a site: parsed once, invalid URLs rejected, and safe to print."""

import pytest

from bundles.errors import SettingsError
from bundles.transport.settings import Location, origin_of
from tests.support.rows import each_row


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("https://www.example.org/puller", "https://www.example.org/puller"),
        ("https://www.example.org/puller//", "https://www.example.org/puller"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("/media/usb/public/", "/media/usb/public"),
        ("/", "/"),
    ],
)
def test_a_url_or_an_absolute_directory_is_a_location(text: str, base: str) -> None:
    assert Location.parse(text) == Location(base)


def test_user_information_is_split_off_and_decoded() -> None:
    location = Location.parse("https://me%40work:p%2Fw@www.example.org/puller")
    assert location == Location("https://www.example.org/puller", "me@work", "p/w")
    assert "p/w" not in f"{location} {location!r}"
    assert "me" not in str(location)


@each_row(
    ("text", "message"),
    [
        ("www.example.org", "www.example.org: expected a URL such as"),
        ("file:///srv/site", "file:///srv/site: expected a URL such as"),
        ("ftp://me:secret@host/", r"ftp://\*\*\*@host/: expected"),
        ("https://", "expected a URL"),
        ("https:///path", "expected a URL"),
        ("https://host:port/", "Port could not be cast"),
        ("https://host:70000/", "Port out of range"),
        ("https://me:secret@host/?a=b", r"https://\*\*\*@host/\?\*\*\*: contains a query"),
        ("https://host/#top", "contains a query or fragment"),
        ("https://host/a b", "contains blanks or control characters"),
        ("https://host/\n", "contains blanks or control characters"),
        ("relative/directory", "expected a URL"),
        ("", "expected a URL"),
        ("https://[::1/", "Invalid IPv6 URL"),
    ],
)
def test_everything_else_is_refused_without_showing_a_password(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        Location.parse(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://www.example.org/a", "https://www.example.org:443"),
        ("https://WWW.Example.org:443/b", "https://www.example.org:443"),
        ("http://www.example.org", "http://www.example.org:80"),
        ("http://www.example.org:8080", "http://www.example.org:8080"),
        ("https://me@www.example.org/", "https://www.example.org:443"),
    ],
)
def test_origin_has_a_canonical_spelling(url: str, origin: str) -> None:
    assert origin_of(url) == origin
