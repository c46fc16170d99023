"""A revalidation returns *unchanged* or an unknown state. It never accepts new metadata."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.client.revalidation import MEMORY, Known, MirrorMemory, revalidate
from bundles.errors import FormatError, SignatureError
from bundles.format.release import Release
from bundles.transport.mirror import open_mirrors
from bundles.transport.settings import TransportSettings
from hiera.values import Secret
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.simulators.authority import Authority
    from tests.support.http_server import Answer, Server
    from tests.support.sites import Clock, Host, Publisher

BIN = bin_of("web/index.json")
QUICK = TransportSettings(connect_timeout=2, read_timeout=1, total_timeout=2, retries=0)


@pytest.fixture
def server(publisher: Publisher, new_server: Callable[..., Server]) -> Server:
    """Return a server of the files of ``publisher``."""
    return new_server(root=publisher.served)


@pytest.fixture
def host(new_host: Callable[..., Host], server: Server) -> Host:
    """Return a host that has run once and has the newest metadata."""
    made = new_host(server.origin)
    made.refresh()
    server.requests.clear()
    return made


@pytest.fixture
def look(host: Host, server: Server, clock: Clock) -> Callable[..., Known | None]:
    """Return a function that revalidates for ``host``."""

    def revalidate_now(*sites: str, settings: TransportSettings = QUICK) -> Known | None:
        assert isinstance(host.anchor, Path)
        return revalidate(host.state, host.anchor, sites or (server.origin,), host.bundles, settings, clock())

    return revalidate_now


Look = Callable[..., "Known | None"]


def contents_of(directory: Path) -> dict[str, tuple[str, float]]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime) for path in files
    }


def test_when_nothing_is_new_two_requests_say_so(
    look: Look, host: Host, server: Server, publisher: Publisher
) -> None:
    before = contents_of(host.state)
    known = look()
    assert known is not None
    release = known.indexes.find("web", "stable")
    assert release == Release.of("web", "1.0.0")
    (published,) = (publisher.served / "targets" / "web").glob("*.tar.gz")
    assert known.digest(release) == published.name.partition(".")[0]
    assert server.paths == ["/metadata/2.root.json", "/metadata/timestamp.json"]
    assert contents_of(host.state) == before


def test_a_release_that_was_never_published_is_named(look: Look) -> None:
    known = look()
    assert known is not None
    with pytest.raises(FormatError, match=r"web 9\.9 is not published"):
        known.digest(Release.of("web", "9.9"))


def test_revalidation_does_not_announce_a_new_release(look: Look, publisher: Publisher, host: Host) -> None:
    publisher.refresh()
    assert look() is None
    host.refresh()
    assert look() is not None
    publisher.publish("1.1.0")
    assert look() is None


def test_a_new_root_is_not_told_by_a_revalidation(look: Look, publisher: Publisher) -> None:
    forge = publisher.forge()
    forge.new_key("timestamp")
    forge.write_root()
    assert look() is None


@pytest.mark.parametrize("days", [8, 31, 91, 366])
def test_revalidation_does_not_report_expired_metadata(look: Look, clock: Clock, days: int) -> None:
    clock.advance(days=days)
    assert look() is None


@pytest.mark.parametrize(
    "name",
    ["timestamp.json", "snapshot.json", "targets.json", f"{BIN}.json", "indexes/web.json", "root.json"],
)
@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b'{"signed": 5}', b"[]"])
@pytest.mark.representatives(7)
def test_damaged_state_is_not_told_by_a_revalidation(
    look: Look, host: Host, name: str, damage: bytes
) -> None:
    (host.state / name).write_bytes(damage)
    assert look() is None


@pytest.mark.parametrize(
    "name", ["timestamp.json", "snapshot.json", "targets.json", f"{BIN}.json", "indexes/web.json"]
)
@pytest.mark.representatives(3)
def test_flipped_bit_in_the_state_is_noticed(look: Look, host: Host, name: str) -> None:
    data = bytearray((host.state / name).read_bytes())
    for position in range(0, len(data), 7):
        data[position] ^= 1
        (host.state / name).write_bytes(data)
        assert look() is None, position
        data[position] ^= 1


def test_a_state_that_is_not_there_is_not_told_by_a_revalidation(look: Look, host: Host) -> None:
    shutil.rmtree(host.state)
    assert look() is None


def test_another_trust_anchor_is_another_site(
    look: Look, host: Host, new_publisher: Callable[..., Publisher]
) -> None:
    host.anchor = new_publisher("other").site.anchor
    assert look() is None


def test_an_answer_that_is_out_of_the_ordinary_is_not_judged(
    look: Look, server: Server, answer: Callable[..., Answer], host: Host
) -> None:
    timestamp = (host.state / "timestamp.json").read_bytes()
    page = b"<html>please log in</html>"
    for path, given in [
        ("/metadata/2.root.json", answer(page)),
        ("/metadata/2.root.json", answer(b"", 403)),
        ("/metadata/2.root.json", answer(b"", 500)),
        ("/metadata/2.root.json", answer(b"x" * 100_000, 404)),
        ("/metadata/timestamp.json", answer(page)),
        ("/metadata/timestamp.json", answer(b"", 302, Location="/elsewhere")),
        ("/metadata/timestamp.json", answer(timestamp + b" ")),
        ("/metadata/timestamp.json", answer(timestamp[:-1])),
        ("/metadata/timestamp.json", answer(timestamp, Content_Length="9999")),
        ("/metadata/timestamp.json", lambda stream: stream.sendall(b"garbage\r\n\r\n")),
        ("/metadata/timestamp.json", lambda stream: stream.close()),
    ]:
        server.answers.clear()
        server.on(path, given)
        assert look() is None
    server.answers.clear()
    assert look() is not None


def test_an_answer_that_trickles_is_waited_for_only_so_long(look: Look, server: Server) -> None:
    def trickle(stream: object) -> None:
        for _ in range(1200):
            stream.sendall(b"H")  # type: ignore[attr-defined]  # a socket
            time.sleep(0.05)

    server.on("/metadata/timestamp.json", trickle)
    started = time.monotonic()
    assert look() is None
    assert time.monotonic() - started < 30  # the trickle lasts a minute


def test_revalidation_leaves_unknown_schemes_to_others(
    look: Look, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look(str(publisher.served)) is None, "a directory"
    assert look(settings=TransportSettings(proxy=Secret("http://proxy.example.org:3128"))) is None
    assert look(settings=TransportSettings(client_cert="/etc/puller/client.pem")) is None
    assert look("http://127.0.0.1:1") is None, "nobody listens"
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    assert look() is None


def test_credentials_are_sent_as_to_any_mirror(look: Look, server: Server) -> None:
    assert (
        look(settings=TransportSettings(token=Secret("canary"), headers={"X-Fleet": Secret("blue")}))
        is not None
    )
    assert {(r.headers["authorization"], r.headers["x-fleet"]) for r in server.requests} == {
        ("Bearer canary", "blue")
    }


def test_revalidation_over_tls_requires_a_trusted_certificate(
    look: Look, publisher: Publisher, authority: Authority, new_server: Callable[..., Server]
) -> None:
    secure = new_server(root=publisher.served, tls=authority.server()).origin
    settings = TransportSettings(ca_bundle=str(authority.bundle), retries=0)
    assert look(secure, settings=settings) is not None
    assert look(secure) is None
    assert (
        look(
            new_server(root=publisher.served, tls=authority.server(timedelta(days=-1))).origin,
            settings=settings,
        )
        is None
    )


# --- several mirrors ----------------------------------------------------------------------------------------


@pytest.fixture
def second(publisher: Publisher, new_server: Callable[..., Server]) -> Server:
    """Return another mirror of the same site."""
    return new_server(root=publisher.served)


def test_every_mirror_is_looked_at(look: Look, server: Server, second: Server) -> None:
    known = look(server.origin, second.origin)
    assert known is not None
    assert known.notes == []
    assert server.paths == second.paths == ["/metadata/2.root.json", "/metadata/timestamp.json"]


@pytest.mark.parametrize("newer", ["the first", "the second"])
@pytest.mark.parametrize("what", ["release", "root"])
def test_news_on_a_single_mirror_is_seen(
    look: Look, server: Server, publisher: Publisher, new_server: Callable[..., Server], newer: str, what: str
) -> None:
    server.root = publisher.copy("frozen")
    if what == "release":
        publisher.publish("1.1.0")
    else:
        publisher.forge().write_root()
    fresh = new_server(root=publisher.served)
    origins = [server.origin, fresh.origin]
    assert look(*(origins[::-1] if newer == "the first" else origins)) is None


def test_failing_mirror_is_not_judged_before_its_failure(
    look: Look, host: Host, server: Server, second: Server, answer: Callable[..., Answer], clock: Clock
) -> None:
    second.on("/metadata/timestamp.json", answer(b"", 500))
    both = (server.origin, second.origin)
    assert look(*both) is None
    host.mirrors = open_mirrors(both, QUICK)
    host.refresh()
    second.requests.clear()
    known = look(*both)
    assert known is not None
    assert known.notes == host.notes
    assert known.notes[0].startswith(f"{second.origin}: failed once since ")
    assert second.requests == []
    clock.advance(minutes=6)
    assert look(*both) is None, "it is asked again, and still fails"


def test_mirrors_that_all_rest_are_not_judged(
    look: Look, host: Host, server: Server, second: Server, clock: Clock
) -> None:
    memory = MirrorMemory(clock())
    for mirror in (server, second):
        memory.failed(mirror.origin, "why")
    (host.state / MEMORY).write_bytes(memory.to_bytes())
    assert look(server.origin, second.origin) is None
    assert look(server.origin) is not None, "a single site is always looked at"


@pytest.mark.parametrize("damage", [b"", b"garbage", b"[]", b'{"format":1}'])
def test_a_damaged_memory_of_mirrors_is_left_to_the_others(
    look: Look, host: Host, server: Server, second: Server, damage: bytes
) -> None:
    (host.state / MEMORY).write_bytes(damage)
    assert look(server.origin, second.origin) is None


def test_credentials_of_the_first_site_stay_with_it(
    look: Look, server: Server, publisher: Publisher, new_server: Callable[..., Server]
) -> None:
    settings = TransportSettings(token=Secret("canary"))
    elsewhere = new_server(root=publisher.served, address="127.0.0.2")
    assert look(server.origin, elsewhere.origin, settings=settings) is not None
    assert {r.headers.get("authorization") for r in server.requests} == {"Bearer canary"}
    assert {r.headers.get("authorization") for r in elsewhere.requests} == {None}


def test_a_directory_among_the_mirrors_is_left_to_the_others(
    look: Look, server: Server, publisher: Publisher
) -> None:
    assert look(server.origin, str(publisher.served)) is None


def test_revalidation_waits_until_new_thresholds_are_met(
    look: Look, publisher: Publisher, host: Host
) -> None:
    """An older root verified the stored metadata. They need not be the site's current metadata."""
    forge = publisher.forge()
    forge.root.roles["targets"].threshold = 2
    forge.write_root()
    for _ in range(2):
        with pytest.raises(SignatureError):
            host.refresh()
        assert look() is None
