"""A site behind a real web server: pulled, tampered with file by file, and gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.errors import RollbackError, TransportError, TrustError
from bundles.index import Index
from bundles.site import Site
from bundles.transport import TransportSettings, open_mirrors
from bundles.trust import TrustClient

if TYPE_CHECKING:
    from tests.system.conftest import WebServer

pytestmark = pytest.mark.nginx


class Story:
    """A publisher that deploys to nginx's root, and one host."""

    def __init__(self, directory: Path, nginx: WebServer) -> None:
        self.nginx = nginx
        self.site = Site.init(directory / "site", None)
        self.state = directory / "trust"
        self.download = directory / "bundle"
        self.source = directory / "web"
        self.source.mkdir()

    def publish(self, version: str) -> None:
        (self.source / "manifest.yaml").write_text(f"resources: []  # {version}\n")
        self.site.publish(self.source, lambda _: b"", version=version)
        self.deploy()

    def deploy(self) -> None:
        shutil.copytree(self.site.public, self.nginx.root, dirs_exist_ok=True)

    def client(self) -> TrustClient:
        mirrors = open_mirrors([self.nginx.url], TransportSettings(retries=1))
        return TrustClient(self.state, self.site.anchor, mirrors)

    def pull(self) -> Index:
        client = self.client()
        index = client.refresh()
        release = index.find("web", "stable")
        assert release is not None
        client.fetch(release, self.download)
        return index


@pytest.fixture
def story(nginx: WebServer, tmp_path: Path) -> Story:
    made = Story(tmp_path, nginx)
    made.publish("1.0.0")
    return made


def test_a_refresh_without_news_is_two_requests_over_nginx(story: Story) -> None:
    story.pull()
    before = len(story.nginx.requests())
    story.client().refresh()
    assert story.nginx.requests()[before:] == [
        "GET /metadata/2.root.json HTTP/1.1",
        "GET /metadata/timestamp.json HTTP/1.1",
    ]


def test_a_flipped_bit_in_any_file_on_the_server_is_refused_and_undone_by_deploying_again(
    story: Story,
) -> None:
    story.pull()
    story.publish("1.1.0")
    root = story.nginx.root
    for path in (
        *(root / "metadata" / name for name in ("timestamp.json", "3.snapshot.json", "3.targets.json")),
        max(root.glob("targets/*.index.json"), key=lambda path: path.stat().st_mtime_ns),
        *root.glob("targets/web/*.web-1.1.0.tar.gz"),
    ):
        data = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        with pytest.raises(TrustError):
            story.pull()
        path.write_bytes(data)
        shutil.rmtree(story.state)
    story.deploy()
    release = story.pull().find("web", "stable")
    assert release is not None
    assert release.version == "1.1.0"


def test_a_server_that_is_gone_is_told_from_one_that_went_back(story: Story, tmp_path: Path) -> None:
    old = shutil.copytree(story.nginx.root, tmp_path / "old")
    story.publish("1.1.0")
    index = story.pull()
    story.nginx.stop()
    with pytest.raises(TransportError, match="the connection failed: Connection refused"):
        story.pull()
    assert story.client().index() == index
    story.nginx.start()
    shutil.copytree(old, story.nginx.root, dirs_exist_ok=True)
    with pytest.raises(RollbackError):
        story.pull()
