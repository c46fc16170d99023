"""Everyday work of a host and a site: refresh, fetch, mirrors."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.client.client import TrustClient
from bundles.client.updater import MirrorFetcher
from bundles.errors import (
    BundleError,
    FormatError,
    RollbackError,
    SettingsError,
    SignatureError,
    StoreError,
    TransportError,
    TrustError,
)
from bundles.format.release import Release
from bundles.transport.mirror import open_mirrors
from bundles.transport.settings import TransportSettings
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.support.http_server import Answer, Server
    from tests.support.sites import Clock, Host, Publisher

BIN = bin_of("web/index.json")
QUICK = TransportSettings(read_timeout=1, total_timeout=20, retries=0)


def snapshot_of(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return the contents and inode of each file."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path): (path.read_bytes(), path.stat().st_ino) for path in files}


def test_published_bundle_is_pulled(publisher: Publisher, host: Host) -> None:
    assert host.version() == "1.0.0"
    publisher.publish("1.1.0")
    publisher.publish("0.9.0", name="db")
    assert (host.version("web"), host.version("db")) == ("1.1.0", "0.9.0")
    assert host.version("web", channel="canary") is None


def test_fetched_bundle_equals_the_published_bundle(publisher: Publisher, host: Host) -> None:
    done = publisher.publish("1.1.0")
    client = host.client()
    release = client.refresh().find("web", "stable")
    assert release is not None
    fetched = client.fetch(release, host.downloads / "web")
    assert fetched.sha256 == hashlib.sha256(fetched.path.read_bytes()).hexdigest() == done.sha256
    assert fetched.sha256 == client.digest(release)
    assert fetched.size == fetched.path.stat().st_size == done.size
    assert stat.S_IMODE(fetched.path.stat().st_mode) == 0o600
    assert [path.name for path in host.downloads.iterdir()] == ["web"]


def test_any_release_that_was_ever_published_can_be_fetched(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.1.0")
    client = host.client()
    client.refresh()
    assert client.fetch(Release.of("web", "1.0.0"), host.downloads / "web").size > 0


def test_a_release_that_was_never_published_is_named(host: Host) -> None:
    client = host.client()
    client.refresh()
    with pytest.raises(FormatError, match=r"web 9\.9 is not published"):
        client.fetch(Release.of("web", "9.9"), host.downloads / "web")


def test_a_refresh_without_news_asks_twice_and_writes_nothing(
    publisher: Publisher, new_server: Callable[..., Server], new_host: Callable[..., Host]
) -> None:
    server = new_server(root=publisher.served)
    host = new_host(server.origin)
    host.refresh()
    first, before = len(server.requests), snapshot_of(host.state)
    host.refresh()
    assert server.paths[first:] == ["/metadata/2.root.json", "/metadata/timestamp.json"]
    assert snapshot_of(host.state) == before


def test_the_index_is_fetched_again_only_when_it_changed(
    publisher: Publisher, new_server: Callable[..., Server], new_host: Callable[..., Host]
) -> None:
    server = new_server(root=publisher.served)
    host = new_host(server.origin)
    host.refresh()
    publisher.refresh()
    host.refresh()
    assert sum("index.json" in path for path in server.paths) == 1
    publisher.publish("1.1.0")
    host.refresh()
    assert sum("index.json" in path for path in server.paths) == 2


def test_the_index_is_known_without_the_site(publisher: Publisher, host: Host) -> None:
    before = host.refresh()
    shutil.rmtree(publisher.served)
    assert host.client().indexes() == before


def test_before_the_first_refresh_there_is_no_index(host: Host) -> None:
    with pytest.raises(StoreError, match="this host has not trusted any metadata yet"):
        host.client().indexes()


@pytest.mark.parametrize("name", ["indexes/web.json", f"{BIN}.json", "targets.json", "root.json"])
def test_a_damaged_copy_is_no_index(host: Host, name: str) -> None:
    host.refresh()
    path = host.state / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError, match=r"damaged.*; the next refresh restores it"):
        host.client().indexes()
    assert host.version() == "1.0.0"
    assert host.client().indexes()


def test_an_index_of_a_later_format_asks_for_an_upgrade(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    forge.put_index(b'{"format": 3}')
    forge.publish()
    with pytest.raises(
        FormatError, match=r"index\.json: format: is 3, and this version of Puller reads 2: upgrade"
    ):
        host.refresh()


def test_a_tuf_repository_of_something_else_is_no_site(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    forge.targets.delegations = None
    forge.publish()
    with pytest.raises(
        FormatError, match=r"contains no indexes of bundles: the site was made by another version"
    ):
        host.refresh()


# --- mirrors ------------------------------------------------------------------------------------------------


def break_files(directory: Path, contents: bytes | None, pattern: str = "metadata/*") -> None:
    for path in directory.glob(pattern):
        path.unlink()
        if contents is not None:
            path.write_bytes(contents)


BROKEN: dict[str, Callable[[Path], None]] = {
    "empty": lambda site: shutil.rmtree(site / "metadata"),
    "gone": shutil.rmtree,
    "garbage": lambda site: break_files(site, b"\x00garbage"),
    "truncated": lambda site: break_files(site, b'{"signatures":['),
    "no index": lambda site: break_files(site, None, "targets/web/*.index.json"),
    "another index": lambda site: break_files(site, b"{}", "targets/web/*.index.json"),
    "no snapshot": lambda site: break_files(site, None, "metadata/*.snapshot.json"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_mirror_that_is_broken_is_passed_over_and_noted(
    publisher: Publisher, new_host: Callable[..., Host], broken: Callable[[Path], None]
) -> None:
    mirror = publisher.copy("mirror")
    broken(mirror)
    host = new_host(mirror, publisher.served)
    assert host.fetch()
    (note,) = host.notes
    assert str(mirror) in note


@pytest.mark.attack("mirror.stale")
def test_a_stale_mirror_is_passed_over(
    publisher: Publisher, new_host: Callable[..., Host], clock: Clock
) -> None:
    stale = publisher.copy("stale")
    publisher.publish("1.1.0")
    host = new_host(publisher.served)
    host.refresh()
    host.mirrors = open_mirrors([str(stale), str(publisher.served)])
    assert host.version() == "1.1.0"
    assert "older than" in host.notes[0]
    clock.advance(days=8)
    publisher.refresh()
    fresh = new_host(stale, publisher.served, name="fresh")
    assert fresh.version() == "1.1.0"
    assert "timestamp expired at" in fresh.notes[0]


@pytest.mark.attack("mirror.status-404")
@pytest.mark.parametrize("missing", ["web", "index"])
def test_bundle_missing_on_a_mirror_comes_from_the_next(
    publisher: Publisher, new_host: Callable[..., Host], missing: str
) -> None:
    mirror = publisher.copy("mirror")
    break_files(mirror, b"tampered with" if missing == "web" else None, "targets/web/*.tar.gz")
    host = new_host(mirror, publisher.served)
    assert host.fetch()
    assert len(host.notes) == 1


def silence(stream: socket.socket) -> None:
    while stream.recv(1):  # until the client gives up
        pass


@pytest.mark.attack("mirror.hangs", "mirror.status-403", "mirror.status-5xx", "mirror.captive-portal")
def test_a_mirror_over_http_that_misbehaves_is_passed_over(
    publisher: Publisher,
    new_server: Callable[..., Server],
    new_host: Callable[..., Host],
    answer: Callable[..., Answer],
) -> None:
    good = new_server(root=publisher.served)
    bad = new_server(root=publisher.served)
    problems = {
        "a captive portal": answer(b"<html>Welcome to our hotel</html>"),
        "forbidden": answer(b"", 403),
        "an error": answer(b"", 500),
        "a redirect": answer(b"", 302, Location="http://127.0.0.1:1/"),
        "silence": silence,
        "a length that lies": answer(b"{}", Content_Length="100000"),
    }
    for name, problem in problems.items():
        bad.on("/metadata/timestamp.json", problem)
        host = new_host(bad.origin, good.origin, name=name, settings=QUICK)
        assert host.version() == "1.0.0", name
        assert any(bad.origin in note for note in host.notes), name


@pytest.mark.attack("mirror.captive-portal")
def test_captive_portal_is_a_network_problem(
    new_server: Callable[..., Server], new_host: Callable[..., Host], answer: Callable[..., Answer]
) -> None:
    server = new_server()
    for path in ("/metadata/2.root.json", "/metadata/timestamp.json"):
        server.on(path, answer(b"<html>Welcome</html>"))
    with pytest.raises(TransportError, match="is a web page"):
        new_host(server.origin).refresh()


def test_worst_answer_is_raised_when_all_mirrors_fail(
    publisher: Publisher, new_publisher: Callable[..., Publisher], new_host: Callable[..., Host]
) -> None:
    attacker = new_publisher("attacker")
    host = new_host("/nonexistent", attacker.served, "/nonexistent/too")
    with pytest.raises(SignatureError, match="is signed by 0 of"):
        host.refresh()
    assert [note.split(":")[0] for note in host.notes] == ["/nonexistent", "/nonexistent/too"]


@pytest.mark.attack("mirror.content")
def test_no_combination_of_hostile_mirrors_chooses_content(
    publisher: Publisher, new_publisher: Callable[..., Publisher], new_host: Callable[..., Host]
) -> None:
    attacker = new_publisher("attacker")
    attacker.publish("6.6.6")
    old = publisher.copy("old")
    publisher.publish("1.1.0")
    tampered = publisher.copy("tampered")
    break_files(tampered, b"x", "targets/web/*.tar.gz")
    host = new_host(publisher.served)
    host.fetch()
    host.mirrors = open_mirrors([str(place) for place in (attacker.served, old, tampered)])
    with pytest.raises(TrustError):
        host.fetch()
    assert list(host.downloads.iterdir()) == []
    assert host.client().indexes().find("web", "stable") == Release.of("web", "1.1.0")


def test_successful_mirror_stays_first_for_the_run(
    publisher: Publisher,
    new_server: Callable[..., Server],
    new_host: Callable[..., Host],
    answer: Callable[..., Answer],
) -> None:
    bad, good = new_server(), new_server(root=publisher.served)
    bad.on("/metadata/timestamp.json", answer(b"", 500))
    host = new_host(bad.origin, good.origin, settings=QUICK)
    host.fetch()
    assert bad.paths == ["/metadata/2.root.json", "/metadata/timestamp.json"]


# --- the anchor ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (None, r"the trust anchor is missing, expected the root\.json that"),
        (b"", "is not metadata: .*, expected the root.json"),
        (b"<html>", "is not metadata"),
        (b"{}", "'signed' is missing"),
        (b'{"signed": {"spec_version": "1.0.31", "_type": "root"}}', "is not a root: .*, expected"),
        (b" " * 600_000, "has more than 512000 bytes"),
    ],
    ids=["missing", "empty", "a page", "no metadata", "half a root", "huge"],
)
def test_a_broken_anchor_is_a_matter_of_settings(
    host: Host, tmp_path: Path, contents: bytes | None, message: str
) -> None:
    anchor = tmp_path / "root.json"
    if contents is not None:
        anchor.write_bytes(contents)
    host.anchor = anchor
    with pytest.raises(SettingsError, match=message) as caught:
        host.refresh()
    assert str(anchor) in str(caught.value)


def test_metadata_that_is_no_root_is_no_anchor(publisher: Publisher, host: Host) -> None:
    host.anchor = publisher.served / "metadata/timestamp.json"
    with pytest.raises(SettingsError, match=r"is metadata of type 'timestamp', expected the root\.json"):
        host.refresh()


def test_an_anchor_that_was_tampered_with_is_refused(publisher: Publisher, host: Host) -> None:
    data = publisher.site.anchor.read_bytes()
    host.anchor = data.replace(b'"threshold":1', b'"threshold":2', 1)
    with pytest.raises(
        SettingsError, match="the trust anchor: is damaged, because it is not signed by its own keys"
    ):
        host.refresh()


def test_the_anchor_of_another_site_is_suspected(
    publisher: Publisher, new_publisher: Callable[..., Publisher], host: Host
) -> None:
    host.anchor = new_publisher("other").site.anchor
    with pytest.raises(SignatureError, match="check that the trust anchor belongs to this site"):
        host.refresh()


@pytest.mark.attack("root.expired")
def test_an_expired_anchor_leads_to_the_present_root(
    new_publisher: Callable[..., Publisher], clock: Clock, new_host: Callable[..., Host]
) -> None:
    publisher = new_publisher("short", root="2h")
    anchor = publisher.site.anchor.read_bytes()
    clock.advance(hours=3)
    publisher.refresh()
    host = new_host(publisher.served)
    host.anchor = anchor
    host.refresh()


def test_host_moved_to_another_site_starts_over(
    publisher: Publisher, new_publisher: Callable[..., Publisher], new_host: Callable[..., Host]
) -> None:
    for version in ("1.1.0", "1.2.0"):
        publisher.publish(version)
    host = new_host(publisher.served)
    host.refresh()
    other = new_publisher("other")
    other.publish("0.1.0")
    host.anchor, host.mirrors = other.site.anchor, open_mirrors([str(other.served)])
    assert host.version() == "0.1.0"
    (note,) = host.notes
    assert "belongs to another site, so all metadata is verified anew" in note
    (retained,) = host.state.glob("before-*")
    assert (retained / "timestamp.json").exists()
    assert host.version() == "0.1.0"
    assert host.notes == []


def test_a_newer_anchor_of_the_same_site_changes_nothing(publisher: Publisher, host: Host) -> None:
    host.refresh()
    forge = publisher.forge()
    forge.write_root()
    host.anchor = publisher.served / "metadata/2.root.json"
    old = publisher.copy("old")
    publisher.forge().publish()
    assert host.version() == "1.0.0"
    host.mirrors = open_mirrors([str(old)])
    with pytest.raises(RollbackError):
        host.refresh()


# --- damage on this machine ---------------------------------------------------------------------------------


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "emptied": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(100)),
    "one bit": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"sig":"', b'"sig":"0', 1)[:-1] + b"}"
    ),
    "other JSON": lambda path: path.write_bytes(b"[]"),
    "huge": lambda path: os.truncate(path, 10_000_000),
    "a directory": directory,
    "a link": link,
}


CASES = {
    "truncated": "state.truncated",
    "emptied": "state.emptied",
    "garbage": "state.garbage",
    "a directory": "state.directory",
    "a link": "state.link",
}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, id=name, marks=[pytest.mark.attack(CASES[name])] if name in CASES else [])
        for name, damage in DAMAGE.items()
    ],
)
@pytest.mark.parametrize(
    "name", ["timestamp.json", "snapshot.json", "targets.json", f"{BIN}.json", "root_history/1.root.json"]
)
@pytest.mark.representatives(6)
def test_damaged_state_is_set_aside_noted_and_made_good(
    host: Host, name: str, damage: Callable[[Path], None]
) -> None:
    host.refresh()
    good = (host.state / name).read_bytes()
    damage(host.state / name)
    assert host.version() == "1.0.0"
    (note,) = host.notes
    (retained,) = (host.state / name).parent.glob("*.damaged-*")
    assert f"{host.state / name}: " in note
    assert str(retained) in note
    assert (host.state / name).read_bytes() == good
    host.refresh()
    assert host.notes == []


def test_few_copies_of_repeatedly_damaged_files_are_kept(host: Host, clock: Clock) -> None:
    for times in range(7):
        host.refresh()
        (host.state / "timestamp.json").write_text(f"damaged {times}")
        (host.state / "root_history/1.root.json").write_text(f"damaged {times}")
        clock.advance(seconds=1)
    host.refresh()
    for name in ("timestamp.json", "root_history/1.root.json"):
        retained = sorted((host.state / name).parent.glob(f"{Path(name).name}.damaged-*"))
        assert [path.read_text() for path in retained] == ["damaged 4", "damaged 5", "damaged 6"]


def test_damaged_timestamp_does_not_admit_old_targets(publisher: Publisher, host: Host) -> None:
    old = publisher.copy("old")
    publisher.publish("1.1.0")
    host.refresh()
    (host.state / "timestamp.json").write_bytes(b"garbage")
    host.mirrors = open_mirrors([str(old)])
    with pytest.raises(RollbackError, match=r"lists bin-5\.json version 2, older than the trusted version 3"):
        host.refresh()


def test_a_damaged_root_is_brought_back_by_the_site(publisher: Publisher, host: Host) -> None:
    publisher.forge().write_root()
    host.refresh()
    (host.state / "root_history/2.root.json").write_bytes(b"garbage")
    assert host.version() == "1.0.0"
    assert "2.root.json: is not the root of this version (moved to" in host.notes[0]
    assert (host.state / "root.json").resolve().name == "2.root.json"


def test_a_damaged_root_does_not_lead_back_to_an_older_one(publisher: Publisher, host: Host) -> None:
    publisher.forge().write_root()
    host.refresh()
    (host.state / "root_history/2.root.json").write_bytes(b"garbage")
    (publisher.served / "metadata/2.root.json").unlink()
    for _ in range(2):
        with pytest.raises(
            RollbackError, match="the chain of roots ends at version 1, and this host has trusted 2"
        ):
            host.refresh()


def test_a_file_in_the_place_of_the_history_is_set_aside(host: Host) -> None:
    host.refresh()
    shutil.rmtree(host.state / "root_history")
    (host.state / "root_history").write_bytes(b"")
    assert host.version() == "1.0.0"
    assert "root_history: is not a directory" in host.notes[0]


def test_leftovers_of_a_killed_write_are_removed(host: Host) -> None:
    host.refresh()
    (host.state / ".timestamp.json.0123456789ab.new").write_bytes(b"half")
    (host.state / ".of-somebody-else.new").mkdir()
    host.refresh()
    assert [path.name for path in host.state.glob(".*")] == [".of-somebody-else.new"]


def test_a_state_directory_that_cannot_be_used_is_said_so(host: Host, tmp_path: Path) -> None:
    host.state.write_bytes(b"")
    with pytest.raises(StoreError, match=r"trust: (File exists|Not a directory)"):
        host.refresh()


@pytest.mark.attack("disk.full")
def test_full_disk_during_refresh_keeps_trusted_metadata(
    publisher: Publisher, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from bundles.client import trust

    host.refresh()
    publisher.publish("1.1.0")
    written = []

    def full(path: Path, data: bytes) -> None:
        written.append(path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as disk:
        disk.setattr(trust, "write_file", full)
        with pytest.raises(StoreError, match="No space left on device"):
            host.refresh()
    assert written
    assert host.client().indexes().find("web", "stable") == Release.of("web", "1.0.0")
    assert host.version() == "1.1.0"


def test_missing_download_directory_is_a_local_problem(host: Host) -> None:
    client = host.client()
    release = client.refresh().find("web", "stable")
    assert release is not None
    with pytest.raises(StoreError, match="No such file or directory"):
        client.fetch(release, host.downloads / "missing" / "web")


@pytest.mark.parametrize(
    "step", [0, 3, 7, *(pytest.param(step, marks=pytest.mark.crash) for step in (1, 2, 4, 5, 6))]
)
def test_host_killed_at_any_write_trusts_old_or_new(publisher: Publisher, host: Host, step: int) -> None:
    """To the disk, ``os._exit`` at the n-th rename looks like kill -9."""
    host.refresh()
    publisher.publish("1.1.0")
    program = f"""
import itertools, os
from pathlib import Path
from bundles.transport.mirror import open_mirrors
from bundles.client.client import TrustClient

rename, steps = os.rename, itertools.count()
def dying(*arguments, **options):
    if next(steps) == {step}: os._exit(9)
    rename(*arguments, **options)
    if next(steps) == {step}: os._exit(9)
os.rename = dying
mirrors = open_mirrors([{str(publisher.served)!r}])
TrustClient(Path({str(host.state)!r}), Path({str(host.anchor)!r}), mirrors, ["web"]).refresh()
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert killed.returncode == 9
    known = host.client()
    try:
        assert known.indexes().find("web", "stable") in (
            Release.of("web", "1.0.0"),
            Release.of("web", "1.1.0"),
        )
    except BundleError:
        pass  # between targets and index: neither is available, and the next refresh decides
    assert host.version() == "1.1.0"
    assert host.notes == []


def test_client_refreshes_before_it_fetches(host: Host) -> None:
    client = TrustClient(host.state, host.anchor, host.mirrors, ["web"])
    with pytest.raises(RuntimeError, match="requires refresh"):
        client.fetch(Release.of("web", "1.0.0"), host.downloads / "web")


def test_python_tuf_gets_the_same_bytes_whichever_way_it_asks(publisher: Publisher) -> None:
    (mirror,) = open_mirrors([str(publisher.served)])
    fetcher, name = MirrorFetcher(mirror), "metadata/timestamp.json"
    assert b"".join(fetcher.fetch(name)) == fetcher.download_bytes(name, 10_000)
    assert fetcher.where == f"{publisher.served}/{name}"
