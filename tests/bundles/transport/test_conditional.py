"""Conditional requests: the server's version is sent back, and 304 is accepted."""

import io

import pytest
import responses

from bundles.errors import TransportError
from bundles.transport.mirror import download_if_changed, download_url
from bundles.transport.settings import TransportSettings, Validators

URL = "https://www.example.org/site.yaml"
SETTINGS = TransportSettings(retries=0)


def fetch(known: Validators) -> tuple[Validators | None, bytes]:
    into = io.BytesIO()
    received = download_if_changed(URL, 100, into, known, SETTINGS)
    return (None if received is None else received.validators), into.getvalue()


@responses.activate
def test_validator_of_the_server_is_sent_back() -> None:
    date = "Fri, 20 Nov 2026 18:00:00 GMT"
    responses.get(URL, body="one", headers={"ETag": '"1"', "Last-Modified": date})
    result, body = fetch(Validators())
    assert (result, body) == (Validators('"1"', date), b"one")
    assert result is not None
    assert "If-None-Match" not in responses.calls[0].request.headers
    fetch(result)
    sent = responses.calls[1].request.headers
    assert (sent["If-None-Match"], sent["If-Modified-Since"]) == ('"1"', date)


@responses.activate
def test_an_unchanged_file_is_not_sent() -> None:
    responses.get(URL, status=304)
    assert fetch(Validators('"1"')) == (None, b"")


@responses.activate
def test_304_without_a_copy_is_a_problem() -> None:
    responses.get(URL, status=304)
    with pytest.raises(TransportError, match="status 304"):
        fetch(Validators())
    with pytest.raises(TransportError, match="status 304"):
        download_url(URL, 100, io.BytesIO(), SETTINGS)


@responses.activate
@pytest.mark.parametrize("etag", ["x" * 2000, "caf\xe9", ""])
def test_invalid_validators_are_not_kept(etag: str) -> None:
    responses.get(URL, body="one", headers={"ETag": etag})
    assert fetch(Validators()) == (Validators(), b"one")


@responses.activate
def test_the_limit_holds_here_too() -> None:
    responses.get(URL, body="x" * 101)
    with pytest.raises(TransportError, match="more than the permitted 100 bytes"):
        fetch(Validators())
