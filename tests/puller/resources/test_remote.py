"""Remote sources: what is told of them while they are fetched."""

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest

from bundles.errors import TransportError
from bundles.progress import Transfer, watched_by
from puller.resources.remote import fetch_url

simulator: Any = SimpleNamespace(**run_path(str(Path(__file__).parents[2] / "simulators/fileserver.py")))


class Recording:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []
        self.ends: list[tuple[str, bool]] = []

    def moved(self, transfer: Transfer) -> None:
        self.told.append((transfer.what, transfer.have, transfer.size))

    def ended(self, transfer: Transfer, *, well: bool) -> None:
        self.ends.append((transfer.what, well))


def test_a_remote_source_is_watched_by_the_last_part_of_its_path() -> None:
    watcher = Recording()
    with simulator.serving() as server, watched_by(watcher):
        server.files["/pub/big.deb"] = b"x" * 300_000
        assert len(fetch_url(f"{server.url}/pub/big.deb")) == 300_000
    assert watcher.told[0] == ("big.deb", 0, None)
    assert watcher.told[-1] == ("big.deb", 300_000, 300_000)
    assert watcher.ends == [("big.deb", True)]


@pytest.mark.parametrize(
    "end", ["", "/", "?token=canary", "/?token=canary", "/a?token=canary", "/a?x=/canary#canary"]
)
def test_no_password_and_no_query_is_in_its_name(end: str) -> None:
    watcher = Recording()
    with watched_by(watcher), pytest.raises(TransportError):
        fetch_url(f"http://me:canary@127.0.0.1:1{end}")
    ((name, well),) = watcher.ends
    assert (name in ("a", "a remote source"), well) == (True, False)
