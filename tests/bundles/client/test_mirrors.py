"""Several mirrors: the newest version wins, and failed mirrors are paused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bundles.client import trust
from bundles.client.revalidation import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    MEMORY,
    WARNED_AFTER_FAILURES,
    MirrorMemory,
)
from bundles.errors import BundleError, NotFoundError, RollbackError, TransportError, TrustError
from bundles.filesystem.atomic import write_file
from bundles.progress import RoutineNote
from bundles.transport.mirror import open_mirrors
from bundles.transport.settings import MOST_RETRIES_OF_SEVERAL, TransportSettings
from tests.support.rows import each_row
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.support.http_server import Answer, Server
    from tests.support.sites import Clock, Host, Publisher

BIN = bin_of("web/index.json")

QUICK = TransportSettings(connect_timeout=5, read_timeout=0.8, total_timeout=20, retries=0)
NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
TIMESTAMP = "/metadata/timestamp.json"


# --- the newest wins ----------------------------------------------------------------------------------------


@pytest.mark.attack("mirror.stale")
@pytest.mark.parametrize("order", ["the frozen one first", "the frozen one last"])
@pytest.mark.parametrize("seen", ["nothing", "the old", "the new"])
def test_newest_metadata_win_in_any_mirror_order(
    publisher: Publisher, new_host: Callable[..., Host], order: str, seen: str
) -> None:
    frozen = publisher.copy("frozen")
    publisher.publish("1.1.0")
    host = new_host(frozen, publisher.served)
    if seen != "nothing":
        host.mirrors = open_mirrors([str(frozen if seen == "the old" else publisher.served)])
        host.refresh()
    places = [str(frozen), str(publisher.served)]
    host.mirrors = open_mirrors(places if order.endswith("first") else places[::-1])
    assert host.version() == "1.1.0"
    assert host.fetch()
    assert all(note.startswith(f"{frozen}: ") for note in host.notes)


def test_mirror_asked_before_a_newer_answer_is_only_behind(
    publisher: Publisher, new_host: Callable[..., Host]
) -> None:
    frozen = publisher.copy("frozen")
    publisher.publish("1.1.0")
    host = new_host(frozen, publisher.served)
    host.refresh()
    newest = publisher.served
    assert host.notes == [f"{frozen}: is behind: its timestamp has version 2, and {newest} has version 3"]
    assert not (host.state / MEMORY).exists()


def test_a_new_root_is_found_on_any_mirror(publisher: Publisher, new_host: Callable[..., Host]) -> None:
    frozen = publisher.copy("frozen")
    publisher.forge().write_root()
    host = new_host(frozen, publisher.served)
    host.refresh()
    assert (host.state / "root.json").resolve().name == "2.root.json"


@pytest.mark.attack("mirror.content")
def test_older_mirror_cannot_roll_back_trusted_metadata(
    publisher: Publisher, new_host: Callable[..., Host]
) -> None:
    frozen = publisher.copy("frozen")
    publisher.publish("1.1.0")
    host = new_host(frozen, publisher.served)
    host.refresh()
    shutil.rmtree(publisher.served)
    with pytest.raises(RollbackError, match="version 2, older than the trusted version 3"):
        host.refresh()


@pytest.mark.parametrize(
    "missing", ["metadata/*.snapshot.json", f"metadata/*.{BIN}.json", "targets/web/*.index.json"]
)
@pytest.mark.parametrize("order", [1, -1])
def test_mirror_behind_an_unfinished_upload_is_no_attack(
    publisher: Publisher, new_host: Callable[..., Host], missing: str, order: int
) -> None:
    old = publisher.copy("old")
    publisher.publish("1.1.0")
    uploading = publisher.copy("uploading")
    max(uploading.glob(missing), key=lambda path: path.stat().st_mtime_ns).unlink()
    host = new_host(old)
    host.refresh()
    host.mirrors = open_mirrors([str(old), str(uploading)][::order])
    with suppress(TransportError):
        host.refresh()  # the old mirror may be first
    for _ in range(2):
        with pytest.raises(NotFoundError, match="the file is missing"):
            host.refresh()
        assert any("older than" in note for note in host.notes)
    host.mirrors = open_mirrors([str(old), str(publisher.served)])
    assert host.version() == "1.1.0"


def test_files_missing_on_the_newest_mirror_come_from_another(
    publisher: Publisher, new_host: Callable[..., Host]
) -> None:
    publisher.publish("1.1.0")
    half = publisher.copy("half")
    publisher.refresh()
    full = publisher.copy("full")
    for archive in full.glob("targets/web/*.tar.gz"):
        archive.unlink()
    host = new_host(full, half)
    assert host.fetch()
    assert any(str(full) in note and "the file is missing" in note for note in host.notes)


# --- broken and hostile mirrors next to a good mirror -------------------------------------------------------


def silence(stream: socket.socket) -> None:
    while stream.recv(1):
        pass


def trickle(stream: socket.socket) -> None:
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        stream.sendall(b" ")
        time.sleep(0.05)


def endless(stream: socket.socket) -> None:
    stream.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        stream.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def problem(sent: str, remembered: str, *cases: str) -> Any:
    """Return a parameter: the answer to the timestamp request, the remembered problem and the attacks."""
    return pytest.param(sent, remembered, id=sent, marks=[pytest.mark.attack(*cases)] if cases else [])


@pytest.mark.attack("mirror.content")
@pytest.mark.parametrize(
    ("sent", "remembered"),
    [
        problem("silence", "no response for 0.8 s", "mirror.hangs"),
        problem("a trickle", "stalled: less than 1000 bytes a second for 0.8 s", "slow.body"),
        problem("no end", "bytes", "endless.body"),
        problem("403", "metadata/timestamp.json: status 403 Forbidden", "mirror.status-403"),
        problem("404", "metadata/timestamp.json: status 404 Not Found", "mirror.status-404"),
        problem("500", "status 500 Internal Server Error", "mirror.status-5xx"),
        problem("503", "status 503 Service Unavailable", "mirror.status-5xx"),
        problem("a captive portal", "is a web page, expected timestamp.json", "mirror.captive-portal"),
        problem("garbage", "is not metadata", "mirror.garbage"),
        problem("another site's", "is signed by 0 of the 1 keys", "mirror.content"),
        problem("a stale one", "older than the trusted version 3", "mirror.stale"),
    ],
)
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.representatives(2)
def test_bad_mirror_neither_stops_nor_steers_a_host(
    publisher: Publisher,
    new_publisher: Callable[..., Publisher],
    new_server: Callable[..., Server],
    new_host: Callable[..., Host],
    answer: Callable[..., Answer],
    sent: str,
    remembered: str,
    place: str,
) -> None:
    stale = (publisher.served / "metadata/timestamp.json").read_bytes()
    publisher.publish("1.1.0")
    good, bad = new_server(root=publisher.served), new_server(root=publisher.served)
    answers: dict[str, Callable[[], Answer]] = {
        "silence": lambda: silence,
        "a trickle": lambda: trickle,
        "no end": lambda: endless,
        "a captive portal": lambda: answer(b"<html>Welcome to our hotel</html>"),
        "garbage": lambda: answer(b"\x00garbage"),
        "a stale one": lambda: answer(stale),
        "another site's": lambda: answer(
            (new_publisher("x").served / "metadata/timestamp.json").read_bytes()
        ),
    }
    bad.on(TIMESTAMP, answers[sent]() if sent in answers else answer(b"", int(sent)))
    origins = [bad.origin, good.origin] if place == "first" else [good.origin, bad.origin]
    host = new_host(good.origin, settings=QUICK)
    host.refresh()
    host.mirrors = open_mirrors(origins, QUICK)
    assert host.version() == "1.1.0"
    (note,) = host.notes
    behind = sent == "a stale one"  # it answers, and may have the newest version at another time
    assert note.startswith(f"{bad.origin}: is behind: " if behind else f"{bad.origin}: failed once since ")
    assert remembered in note
    assert (host.state / MEMORY).exists() != behind
    assert host.fetch()


@pytest.mark.attack("mirror.hangs")
def test_hanging_mirror_is_retried_once_beside_others(
    publisher: Publisher, new_server: Callable[..., Server], new_host: Callable[..., Host]
) -> None:
    hanging, good = new_server(), new_server(root=publisher.served)
    hanging.on("/metadata/2.root.json", silence)
    many = TransportSettings(read_timeout=0.2, total_timeout=20, retries=10)
    host = new_host(hanging.origin, good.origin, settings=many)
    host.refresh()
    assert len(hanging.requests) == 1 + MOST_RETRIES_OF_SEVERAL


# --- memory -------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(publisher: Publisher, new_server: Callable[..., Server], answer: Callable[..., Answer]) -> Pair:
    """Return a failing and a working mirror of ``publisher``."""
    bad, good = new_server(root=publisher.served), new_server(root=publisher.served)
    bad.on(TIMESTAMP, answer(b"", 500))
    return bad, good


Pair = tuple["Server", "Server"]


def asked(server: Server) -> bool:
    """Return whether the server received requests since the last call."""
    paths = server.paths
    server.requests.clear()
    return bool(paths)


def test_backoff_of_a_failed_mirror_grows_while_another_works(
    pair: Pair, new_host: Callable[..., Host], clock: Clock
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)
    start = f"{clock.now:%Y-%m-%dT%H:%M:%SZ}"
    for times in range(1, 5):
        host.refresh()
        assert asked(bad)
        assert asked(good)
        count = "once" if times == 1 else f"{times} times"
        (note,) = host.notes
        assert note.startswith(f"{bad.origin}: failed {count} since {start}, next attempt at ")
        assert ": metadata/timestamp.json: status 500 Internal Server Error" in note
        remainder = FIRST_BACKOFF * 2 ** (times - 1)
        clock.advance(seconds=remainder.total_seconds() * 0.75)
        host.refresh()
        assert not asked(bad)
        assert asked(good)
        assert host.notes == [note], "it is said as long as it is so"
        clock.advance(seconds=remainder.total_seconds() * 0.25)


def test_mirror_long_behind_is_used_when_it_is_ahead(
    publisher: Publisher, new_host: Callable[..., Host], clock: Clock
) -> None:
    """Otherwise a mirror that is always first could freeze hosts while the late mirrors are paused."""
    slow = publisher.copy("slow")
    publisher.publish("1.1.0")
    fast = publisher.copy("fast")
    host = new_host(fast, slow)
    for _ in range(24):
        assert host.version() == "1.1.0"
        assert [note for note in host.notes if note.startswith(f"{slow}: is behind: ")]
        clock.advance(minutes=30)
    publisher.publish("1.2.0")
    shutil.rmtree(slow)
    shutil.copytree(publisher.served, slow)
    assert host.version() == "1.2.0"


def test_a_mirror_that_helps_again_is_forgotten(
    pair: Pair, new_host: Callable[..., Host], clock: Clock
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)
    host.refresh()
    assert (host.state / MEMORY).exists()
    bad.answers.clear()
    clock.advance(minutes=6)
    host.refresh()
    assert host.notes == []
    assert not (host.state / MEMORY).exists()


def test_a_mirror_that_failed_is_asked_last(
    pair: Pair, publisher: Publisher, new_host: Callable[..., Host], clock: Clock
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)
    host.refresh()
    clock.advance(minutes=6)
    publisher.publish("1.1.0")
    for server in pair:
        server.requests.clear()
    assert host.fetch()
    assert not any("/targets/" in path for path in bad.paths)
    assert sum("/targets/" in path for path in good.paths) == 2, "the index and the bundle"


def test_a_mirror_is_never_left_alone_when_no_other_works(
    pair: Pair, new_host: Callable[..., Host], answer: Callable[..., Answer]
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)
    host.refresh()
    bad.answers.clear()
    good.on(TIMESTAMP, answer(b"", 503))
    assert host.version() == "1.0.0"
    (note,) = host.notes
    assert note.startswith(f"{good.origin}: failed once")


def test_when_no_mirror_helps_nothing_is_learnt_about_any(
    pair: Pair, new_host: Callable[..., Host], answer: Callable[..., Answer]
) -> None:
    """The cause is usually the network of this host, and pausing mirrors would save nothing."""
    bad, good = pair
    good.on(TIMESTAMP, answer(b"", 500))
    host = new_host(bad.origin, good.origin, settings=QUICK)
    for _ in range(2):
        with pytest.raises(TransportError, match="status 500"):
            host.refresh()
        assert not (host.state / MEMORY).exists()
        assert asked(bad)
        assert asked(good)


def test_host_with_a_single_site_remembers_nothing(
    publisher: Publisher, new_host: Callable[..., Host], answer: Callable[..., Answer], server: Server
) -> None:
    host = new_host(server.origin, settings=QUICK)
    with pytest.raises(TransportError):
        host.refresh()
    server.root = publisher.served
    host.refresh()
    assert not (host.state / MEMORY).exists()


def test_a_mirror_that_is_not_configured_any_more_is_forgotten(
    pair: Pair, new_host: Callable[..., Host]
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)
    host.refresh()
    host.mirrors = open_mirrors([good.origin])
    host.refresh()
    assert host.notes == []
    assert not (host.state / MEMORY).exists()


def test_the_memory_holds_no_password(pair: Pair, new_host: Callable[..., Host]) -> None:
    bad, good = pair
    with_password = bad.origin.replace("://", "://me:canary@")
    host = new_host(with_password, good.origin, settings=QUICK)
    host.refresh()
    text = (host.state / MEMORY).read_text()
    assert bad.origin in text
    assert "canary" not in text + "".join(host.notes)


def replace(path: Path, put: Callable[[Path], object]) -> None:
    path.unlink()
    put(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "emptied": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(100)),
    "other JSON": lambda path: path.write_bytes(b"[]"),
    "of a later version": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"format":1', b'"format":2')
    ),
    "a time without a zone": lambda path: path.write_bytes(path.read_bytes().replace(b'Z"', b'"')),
    "no whole number": lambda path: path.write_bytes(path.read_bytes().replace(b'"times":1', b'"times":-1')),
    "huge": lambda path: os.truncate(path, 10_000_000),
    "a directory": lambda path: replace(path, Path.mkdir),
    "a link": lambda path: replace(path, lambda path: path.symlink_to("/dev/zero")),
    "a FIFO": lambda path: replace(path, os.mkfifo),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.representatives(2)
def test_a_damaged_memory_is_set_aside_and_every_mirror_is_asked(
    pair: Pair, new_host: Callable[..., Host], damage: Callable[[Path], object]
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)
    host.refresh()
    damage(host.state / MEMORY)
    asked(bad)
    assert host.version() == "1.0.0"
    assert asked(bad)
    output = "\n".join(host.notes)
    assert f"{host.state / MEMORY}: " in output
    assert "moved to" in output
    assert "failed once" in output


def test_a_memory_that_cannot_be_kept_costs_a_note(
    pair: Pair, new_host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)

    def full(path: Path, data: bytes) -> None:
        if path.name == MEMORY:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_file(path, data)

    monkeypatch.setattr(trust, "write_file", full)
    assert host.version() == "1.0.0"
    assert f"{host.state / MEMORY}: cannot be written: No space left on device" in host.notes


def test_retry_time_far_in_the_future_is_ignored(
    pair: Pair, new_host: Callable[..., Host], clock: Clock
) -> None:
    bad, good = pair
    host = new_host(bad.origin, good.origin, settings=QUICK)
    host.refresh()
    clock.advance(days=-400)
    asked(bad)
    host.refresh()
    assert asked(bad)


@each_row("times", [1, 2, 3, 5, 7, 8, 20, 1000])
def test_rests_double_up_to_a_bound_and_differ_between_hosts(times: int) -> None:
    rests = set()
    for _ in range(20):
        memory = MirrorMemory(NOW)
        for _ in range(times):
            memory.failed("https://a", "why")
        result = json.loads(memory.to_bytes())["mirrors"]["https://a"]
        rests.add(datetime.fromisoformat(result["next_try"]) - NOW)
    longest = min(FIRST_BACKOFF * 2 ** min(times - 1, 30), LONGEST_BACKOFF)
    assert len(rests) > 1
    assert all(longest * 0.8 - timedelta(seconds=1) <= rest <= longest for rest in rests)


def kinds_of_notes(every: timedelta, times: int) -> list[bool]:
    """Return for each run whether the note about a permanently failing mirror is routine."""
    kinds, data = [], MirrorMemory(NOW).to_bytes()
    for number in range(times):
        now = NOW + number * every
        memory = MirrorMemory.parse(data, now) if data else MirrorMemory(now)
        memory.failed("https://a", "why")
        (note,) = memory.sentences(["https://a"])
        kinds.append(isinstance(note, RoutineNote))
        data = memory.to_bytes()
    return kinds


def test_a_mirror_that_fails_for_a_week_becomes_a_warning() -> None:
    a_week = 7 * 4
    assert kinds_of_notes(timedelta(hours=6), 2 * a_week) == [True] * a_week + [False] * a_week


def test_a_host_that_rarely_runs_has_no_warning_of_a_mirror() -> None:
    routine = WARNED_AFTER_FAILURES - 1
    assert kinds_of_notes(timedelta(days=1), routine + 3) == [True] * routine + [False] * 3


def test_a_mirror_that_helps_once_is_no_warning_any_more() -> None:
    memory = MirrorMemory(NOW)
    for _ in range(WARNED_AFTER_FAILURES):
        memory.failed("https://a", "why")
    later = MirrorMemory.parse(memory.to_bytes(), NOW + timedelta(days=30))
    assert [type(note) for note in later.sentences(["https://a"])] == [str]
    later.helped("https://a")
    assert later.to_bytes() == b""
    later.failed("https://a", "why")
    assert [type(note) for note in later.sentences(["https://a"])] == [RoutineNote]


def test_mirror_state_survives_a_round_trip() -> None:
    memory = MirrorMemory(NOW)
    assert memory.to_bytes() == b""
    memory.failed("https://a", "x" * 10_000)
    again = MirrorMemory.parse(memory.to_bytes(), NOW)
    assert again.to_bytes() == memory.to_bytes()
    assert again.backs_off("https://a")
    assert not again.backs_off("https://b")
    assert len("".join(again.sentences(["https://a", "https://b"]))) < 700


@pytest.mark.attack("mirror.content")
def test_hostile_mirrors_deliver_only_published_files(
    publisher: Publisher, new_publisher: Callable[..., Publisher], new_host: Callable[..., Host], clock: Clock
) -> None:
    attacker = new_publisher("attacker")
    attacker.publish("6.6.6")
    old = publisher.copy("old")
    publisher.publish("1.1.0")
    places = [str(attacker.served), str(old), str(publisher.served), "/nonexistent"]
    host = new_host(publisher.served)
    visited = set()
    for turn in range(12):
        host.mirrors = open_mirrors(places[turn % 4 :] + places[: turn % 4])
        visited.add(host.version())
        clock.advance(minutes=7)
    assert visited == {"1.1.0"}
    shutil.rmtree(publisher.served)
    with pytest.raises(TrustError):
        host.refresh()
    with pytest.raises(BundleError):
        host.fetch()
