"""Remote sources: empty or possibly truncated content needs a checksum."""

from hashlib import sha256

import pytest

from bundles.errors import TransportError
from puller.errors import ResourceError
from puller.resources.content_sources import EndUnknownError, fetched

URL = "https://www.example.org/app.conf?token=secret"
DATA = b"port = 80\n"


def of_unknown_end(url: str) -> bytes:
    raise EndUnknownError(url, DATA)


def test_empty_source_without_a_checksum_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"app\.conf.* is empty; give its checksum") as raised:
        fetched(lambda url: b"", URL, None)
    assert "secret" not in str(raised.value)
    assert fetched(lambda url: b"", URL, sha256(b"").hexdigest()) == b""


def test_source_of_unknown_end_needs_a_checksum() -> None:
    with pytest.raises(TransportError, match="sent no length, so the file may be incomplete"):
        fetched(of_unknown_end, URL, None)
    assert fetched(of_unknown_end, URL, sha256(DATA).hexdigest()) == DATA
    with pytest.raises(ResourceError, match="expected"):
        fetched(of_unknown_end, URL, sha256(DATA + b"more").hexdigest())


def test_source_of_a_stated_length_needs_no_checksum() -> None:
    assert fetched(lambda url: DATA, URL, None) == DATA
