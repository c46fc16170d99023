"""Credentials in URLs are masked, also in every error of the package."""

import pytest

from bundles.errors import TransportError
from bundles.transport.settings import Location, TransportSettings
from foundation.masking import mask_location, mask_urls, mask_userinfo
from hiera.values import Secret


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://www.example.org/a@b", "https://www.example.org/a@b"),
        ("https://me:pass@www.example.org/", "https://***@www.example.org/"),
        ("https://token@www.example.org", "https://***@www.example.org"),
        ("https://me:p@ss@www.example.org/x", "https://***@www.example.org/x"),
        ("from http://a:b@c/ to http://d:e@f/", "from http://***@c/ to http://***@f/"),
        ("mail me@example.org", "mail me@example.org"),
    ],
)
def test_user_information_in_urls_is_masked(text: str, masked: str) -> None:
    assert mask_userinfo(text) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://a/b?c=d: e, http://f/?g h", "https://a/b?***: e, http://f/?*** h"),
        ("is 'https://me:pass@a/b?c=d', expected", "is 'https://***@a/b?***', expected"),
        ("https://a/b#c?d", "https://a/b#c?d"),
        ("what?", "what?"),
    ],
)
def test_queries_of_urls_are_masked(text: str, masked: str) -> None:
    assert mask_urls(text) == masked
    assert mask_urls(masked) == masked


@pytest.mark.parametrize(
    "location",
    [
        "https://me:can/ary@host/",
        "https:/me:canary@host",
        "ftp://me:can ary@h",
        "me:canary@host",
        "https://h?canary",
    ],
)
def test_a_broken_location_shows_nothing_before_its_last_at(location: str) -> None:
    assert "ary" not in mask_location(location)


def test_errors_mask_credentials_in_urls() -> None:
    error = TransportError(
        "https://me:canary@host/a?sig=canary", "redirects to http://you:canary@host/b?canary"
    )
    assert str(error) == "https://***@host/a?***: redirects to http://***@host/b?***"
    assert "canary" not in f"{error.where} {error.what} {error.args}"


def test_neither_settings_nor_locations_show_credentials() -> None:
    hidden = Secret("canary")
    settings = TransportSettings(proxy=hidden, username="me", password=hidden, headers={"X-Key": hidden})
    assert "canary" not in f"{settings} {Location.parse('https://me:canary@host')!r}"
