"""Releases with mostly known files: a host fetches the missing files, or the archive if these are invalid."""

from __future__ import annotations

import gzip
import hashlib
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.format.size_limits import file_path
from bundles.store.store import Store

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher, WebServer

NOISE = {f"noise/{number:02}": random.Random(number).randbytes(20_000) for number in range(20)}
OTHER = random.Random(99).randbytes(20_000)
CHANGED = {**NOISE, "noise/07": OTHER}


def publish(publisher: Publisher, version: str, files: dict[str, bytes], name: str = "web") -> None:
    publisher.publish(version, files={**publisher.story_files, **files}, name=name)


@pytest.fixture
def most_is_here(host: Host, publisher: Publisher, web: WebServer) -> Host:
    """Return a host with 1.0.0. The site has 1.1.0, which differs in the manifest and one other file."""
    publish(publisher, "1.0.0", NOISE)
    assert host.run().status == 0
    publish(publisher, "1.1.0", CHANGED)
    web.requests.clear()
    return host


def site_path(data: bytes) -> str:
    return f"/targets/{file_path(hashlib.sha256(data).hexdigest())}"


def fetched(web: WebServer) -> list[str]:
    """Return the requested paths, without metadata and indexes."""
    return [path for path in web.requests if path.startswith("/targets/") and "index.json" not in path]


def archives(web: WebServer) -> list[str]:
    return [path for path in web.requests if path.endswith(".tar.gz")]


def test_update_fetches_the_description_and_missing_files(most_is_here: Host, web: WebServer) -> None:
    outcome = most_is_here.run()
    assert outcome.status == 0
    most_is_here.assert_enforces("1.1.0")
    # The release description, the manifest with the new version, and the changed file
    assert len(fetched(web)) == 3
    assert archives(web) == []
    assert site_path(OTHER) in fetched(web)
    assert list((most_is_here.state / "downloads").iterdir()) == []
    current = Store(most_is_here.state / "bundles").current("web")
    assert current is not None
    assert (current.path / "noise/07").read_bytes() == OTHER


def test_assembled_bundle_equals_its_archive(most_is_here: Host, web: WebServer) -> None:
    most_is_here.run()
    store = Store(most_is_here.state / "bundles")
    current = store.current("web")
    assert current is not None
    assert store.verify("web") == []
    (archive,) = web.root.glob("targets/web/*.web-1.1.0.tar.gz")
    assert current.sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert most_is_here.run().status == 0
    assert archives(web) == []


def test_the_first_version_of_all_comes_as_an_archive(
    host: Host, publisher: Publisher, web: WebServer
) -> None:
    publish(publisher, "1.0.0", NOISE)
    assert host.run().status == 0
    assert len(fetched(web)) == len(archives(web)) == 1


def test_of_a_small_bundle_the_archive_is_fetched(
    settled: Host, publisher: Publisher, web: WebServer
) -> None:
    publisher.publish("1.1.0")
    web.requests.clear()
    assert settled.run().status == 0
    assert len(fetched(web)) == len(archives(web)) == 1


@pytest.mark.everything
def test_when_most_has_changed_the_archive_is_fetched(
    most_is_here: Host, publisher: Publisher, web: WebServer
) -> None:
    publish(publisher, "2.0.0", {name: data[::-1] for name, data in NOISE.items()})
    assert most_is_here.run().status == 0
    most_is_here.assert_enforces("2.0.0")
    assert len(archives(web)) == 1
    assert len(fetched(web)) == 2  # and the release description


@pytest.mark.everything
def test_bundles_share_their_files(most_is_here: Host, publisher: Publisher, web: WebServer) -> None:
    manifest = "resources: []\n"
    publisher.publish("1.0.0", manifest, name="db", files=NOISE)
    most_is_here.configure(bundles=[{"name": "web"}, {"name": "db"}])
    assert most_is_here.run().status == 0
    assert archives(web) == []
    assert [path for path in web.requests if path == site_path(NOISE["noise/01"])] == []


@pytest.mark.everything
def test_the_way_back_needs_no_site(most_is_here: Host, publisher: Publisher, web: WebServer) -> None:
    publish(publisher, "1.2.0", {**CHANGED, "noise/01": OTHER[::-1]})
    most_is_here.run()
    web.stop()
    most_is_here.configure(bundles=[{"name": "web", "version": "1.0.0"}])
    store = Store(most_is_here.state / "bundles")
    assert {bundle.version for bundle in store.installed("web")} == {"1.0.0", "1.2.0"}
    assert all(store.verify("web", bundle.sha256) == [] for bundle in store.installed("web"))


# --- Invalid files --------------------------------------------------------------------------------------------

Break = Callable[[Path], object]


def holding(data: bytes) -> Break:
    return lambda path: path.write_bytes(gzip.compress(data, compresslevel=1))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def longer_on_the_wire(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(1_000_000))


LIES: dict[str, tuple[Break, str]] = {
    "hash": (holding(OTHER[::-1]), "sha256 of the content is .*, expected the signed"),
    "longer": (holding(OTHER + b"x"), "contains more than the signed length of 20000 bytes"),
    "shorter": (holding(OTHER[1:]), "contains 19999 bytes, expected the signed length of 20000"),
    "bomb": (
        holding(bytes(50_000_000)),
        "contains more than the signed length of 20000 bytes|are allowed",
    ),
    "compression": (flipped, "the compressed data is damaged|sha256 of the content is"),
    "not-compressed": (lambda path: path.write_bytes(OTHER), "the compressed data is damaged"),
    "endless": (longer_on_the_wire, "from the signed metadata|allowed"),
    "withheld": (Path.unlink, "404|the file is missing"),
}


@pytest.mark.parametrize(
    ("lie", "message"),
    [pytest.param(*row, id=case, marks=pytest.mark.attack(f"files.{case}")) for case, row in LIES.items()],
)
@pytest.mark.representatives(1)
def test_file_with_wrong_content_causes_an_archive_download(
    most_is_here: Host, web: WebServer, lie: Break, message: str
) -> None:
    lie(web.root / site_path(OTHER)[1:])
    outcome = most_is_here.run()
    assert outcome.status == 0
    most_is_here.assert_enforces("1.1.0")
    assert len(archives(web)) == 1
    assert re.search(message, outcome.output), outcome.output
    assert "the archive of web 1.1.0 is fetched instead of single files" in outcome.output
    assert Store(most_is_here.state / "bundles").verify("web") == []
    assert list((most_is_here.state / "downloads").iterdir()) == []


@pytest.mark.everything
@pytest.mark.attack("files.description")
@pytest.mark.parametrize("lie", [flipped, Path.unlink, holding(b"{}")])
@pytest.mark.representatives(1)
def test_wrong_description_causes_an_archive_download(
    most_is_here: Host, publisher: Publisher, web: WebServer, lie: Break
) -> None:
    description = publisher.site.indexes().of["web"].releases["1.1.0"].description
    lie(web.root / "targets" / file_path(description.sha256))
    assert most_is_here.run().status == 0
    most_is_here.assert_enforces("1.1.0")
    assert len(archives(web)) == 1


@pytest.mark.attack("files.both")
def test_wrong_archive_keeps_the_last_good_bundle(most_is_here: Host, web: WebServer) -> None:
    flipped(web.root / site_path(OTHER)[1:])
    (archive,) = web.root.glob("targets/web/*.web-1.1.0.tar.gz")
    flipped(archive)
    outcome = most_is_here.run()
    assert outcome.status != 0
    most_is_here.assert_enforces("1.0.0")


@pytest.mark.attack("files.next-mirror")
def test_wrong_file_of_a_mirror_comes_from_the_next(
    most_is_here: Host, publisher: Publisher, web: WebServer, tmp_path: Path
) -> None:
    other = shutil.copytree(publisher.served, tmp_path / "other")
    flipped(web.root / site_path(OTHER)[1:])
    most_is_here.configure(site=[web.url, str(other)])
    outcome = most_is_here.run()
    assert outcome.status == 0
    most_is_here.assert_enforces("1.1.0")
    assert archives(web) == []
    most_is_here.assert_told(re.escape(web.url), outcome)


@pytest.mark.attack("files.on-this-disk")
def test_a_file_here_that_was_changed_is_not_taken(most_is_here: Host, web: WebServer) -> None:
    current = Store(most_is_here.state / "bundles").current("web")
    assert current is not None
    spoiled = current.path / "noise/03"
    spoiled.chmod(0o644)
    spoiled.write_bytes(NOISE["noise/03"][::-1])
    assert most_is_here.run().status == 0
    most_is_here.assert_enforces("1.1.0")
    store = Store(most_is_here.state / "bundles")
    assert store.verify("web") == []
    result = store.current("web")
    assert result is not None
    assert (result.path / "noise/03").read_bytes() == NOISE["noise/03"]


# --- Interrupted runs -----------------------------------------------------------------------------------------


def test_a_run_that_was_killed_has_its_files_for_the_next_one(
    most_is_here: Host, publisher: Publisher, web: WebServer
) -> None:
    suffix = {f"more/{number}": random.Random(200 + number).randbytes(5000) for number in range(3)}
    publish(publisher, "1.2.0", {**CHANGED, **suffix})
    (archive,) = web.root.glob("targets/web/*.web-1.2.0.tar.gz")
    # Simulate a killed run: one file is complete, one is partial, and one is damaged.
    leftovers = most_is_here.state / f"downloads/{archive.name[:64]}.files"
    leftovers.mkdir(parents=True, mode=0o700)
    whole, begun, damaged = (hashlib.sha256(data).hexdigest() for data in suffix.values())
    sources = {digest: web.root / "targets" / file_path(digest) for digest in (whole, begun, damaged)}
    shutil.copyfile(sources[whole], leftovers / f"{whole}.gz")
    (leftovers / f".{begun}.part").write_bytes(sources[begun].read_bytes()[:1000])
    (leftovers / f"{damaged}.gz").write_bytes(b"half of it")
    assert most_is_here.run().status == 0
    most_is_here.assert_enforces("1.2.0")
    assert f"/targets/{file_path(whole)}" not in web.requests
    assert f"/targets/{file_path(begun)}" in web.requests
    assert f"/targets/{file_path(damaged)}" in web.requests
    assert archives(web) == []
    assert list((most_is_here.state / "downloads").iterdir()) == []


@pytest.mark.everything
def test_files_of_a_release_that_is_no_more_are_removed(most_is_here: Host) -> None:
    leftovers = most_is_here.state / f"downloads/{'0' * 64}.files"
    leftovers.mkdir(parents=True, mode=0o700)
    (leftovers / f"{'1' * 64}.gz").write_bytes(b"of another time")
    most_is_here.run()
    assert not leftovers.exists()


def test_a_dry_run_takes_the_same_way_and_leaves_nothing(most_is_here: Host, web: WebServer) -> None:
    assert most_is_here.run("--noop").status == 0
    most_is_here.assert_enforces("1.0.0")
    assert len(Store(most_is_here.state / "bundles").installed("web")) == 1
