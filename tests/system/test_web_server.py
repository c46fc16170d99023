"""The nginx block of the documents: caching rules, and stable addresses after changes."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.nginx import Nginx

pytestmark = pytest.mark.nginx


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("metadata/timestamp.json", "no-cache"),
        ("metadata/1.root.json", "max-age=31536000, immutable"),
        ("metadata/12.snapshot.json", "max-age=31536000, immutable"),
        ("metadata/12.bin-3f.json", "max-age=31536000, immutable"),
        (f"targets/web/{'0' * 64}.index.json", "max-age=31536000, immutable"),
        (f"targets/web/{'0' * 64}.web-1.4.0.tar.gz", "max-age=31536000, immutable"),
    ],
)
def test_caches_keep_immutable_files_only(nginx: Nginx, path: str, policy: str) -> None:
    (nginx.root / path).parent.mkdir(parents=True)
    (nginx.root / path).write_bytes(b"contents")
    with urllib.request.urlopen(f"{nginx.url}/{path}") as response:
        assert response.read() == b"contents"
        assert response.headers["Cache-Control"] == policy
        assert response.headers["Content-Encoding"] is None


def test_that_a_file_is_missing_is_not_kept_by_caches(nginx: Nginx) -> None:
    """The next root is missing until it is published."""
    with pytest.raises(urllib.error.HTTPError, match="404") as error:
        urllib.request.urlopen(f"{nginx.url}/metadata/2.root.json")
    assert error.value.headers["Cache-Control"] is None
    error.value.close()


def test_stopped_server_returns_at_the_same_address(nginx: Nginx) -> None:
    (nginx.root / "file").write_text("{}")
    nginx.stop()
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(f"{nginx.url}/file")
    nginx.start()
    with urllib.request.urlopen(f"{nginx.url}/file") as response:
        assert response.read() == b"{}"
    assert nginx.requests() == ["GET /file"]
