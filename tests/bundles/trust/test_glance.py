"""A glance at the site says *unchanged*, or that it cannot tell; it never learns anything new."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.errors import FormatError
from bundles.glance import Known, glance
from bundles.index import Release
from bundles.secret import Secret
from bundles.transport import TransportSettings

if TYPE_CHECKING:
    from tests.bundles.trust.conftest import Answer, Authority, Clock, Host, Publisher, Server

QUICK = TransportSettings(connect_timeout=1, read_timeout=0.3, total_timeout=1, retries=0)


@pytest.fixture
def server(publisher: Publisher, new_server: Callable[..., Server]) -> Server:
    """Serves what ``publisher`` publishes."""
    return new_server(root=publisher.served)


@pytest.fixture
def host(new_host: Callable[..., Host], server: Server) -> Host:
    """A host that has run once, and has seen everything that is published."""
    made = new_host(server.origin)
    made.refresh()
    server.requests.clear()
    return made


@pytest.fixture
def look(host: Host, server: Server, clock: Clock) -> Callable[..., Known | None]:
    """What a glance of ``host`` says."""

    def glance_now(site: str = "", settings: TransportSettings = QUICK) -> Known | None:
        assert isinstance(host.anchor, Path)
        return glance(host.state, host.anchor, site or server.origin, settings, clock())

    return glance_now


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
    release = known.index.find("web", "stable")
    assert release == Release.of("web", "1.0.0")
    (published,) = (publisher.served / "targets" / "web").iterdir()
    assert known.digest(release) == published.name.partition(".")[0]
    assert server.paths == ["/metadata/2.root.json", "/metadata/timestamp.json"]
    assert contents_of(host.state) == before


def test_a_release_that_was_never_published_is_named(look: Look) -> None:
    known = look()
    assert known is not None
    with pytest.raises(FormatError, match=r"web 9\.9 is not published"):
        known.digest(Release.of("web", "9.9"))


def test_a_new_release_or_signature_is_not_told_at_a_glance(
    look: Look, publisher: Publisher, host: Host
) -> None:
    publisher.refresh()
    assert look() is None
    host.refresh()
    assert look() is not None
    publisher.publish("1.1.0")
    assert look() is None


def test_a_new_root_is_not_told_at_a_glance(look: Look, publisher: Publisher) -> None:
    forge = publisher.forge()
    forge.new_key("timestamp")
    forge.write_root()
    assert look() is None


@pytest.mark.parametrize("days", [8, 31, 91, 366])
def test_what_has_expired_is_not_told_at_a_glance(look: Look, clock: Clock, days: int) -> None:
    clock.advance(days=days)
    assert look() is None


@pytest.mark.parametrize(
    "name", ["timestamp.json", "snapshot.json", "targets.json", "index.json", "root.json"]
)
@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b'{"signed": 5}', b"[]"])
def test_damaged_state_is_not_told_at_a_glance(look: Look, host: Host, name: str, damage: bytes) -> None:
    (host.state / name).write_bytes(damage)
    assert look() is None


@pytest.mark.parametrize("name", ["timestamp.json", "snapshot.json", "targets.json", "index.json"])
def test_one_flipped_bit_in_the_state_is_noticed(look: Look, host: Host, name: str) -> None:
    data = bytearray((host.state / name).read_bytes())
    for position in range(0, len(data), 7):
        data[position] ^= 1
        (host.state / name).write_bytes(data)
        assert look() is None, position
        data[position] ^= 1


def test_a_state_that_is_not_there_is_not_told_at_a_glance(look: Look, host: Host) -> None:
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
        for _ in range(200):
            stream.sendall(b"H")  # type: ignore[attr-defined]  # a socket
            time.sleep(0.05)

    server.on("/metadata/timestamp.json", trickle)
    started = time.monotonic()
    assert look() is None
    assert time.monotonic() - started < 5


def test_what_the_glance_does_not_know_how_to_reach_is_left_to_the_others(
    look: Look, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look(str(publisher.served)) is None, "a directory"
    assert look(settings=TransportSettings(proxy=Secret("http://proxy.example.org:3128"))) is None
    assert look(settings=TransportSettings(client_cert="/etc/puller/client.pem")) is None
    assert look("http://localhost:1") is None, "nobody listens"
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


def test_a_site_over_tls_is_believed_only_with_a_certificate_that_is_trusted(
    look: Look, publisher: Publisher, authority: Authority, new_server: Callable[..., Server]
) -> None:
    secure = new_server(root=publisher.served, tls=authority.server()).origin
    settings = TransportSettings(ca_bundle=str(authority.bundle), retries=0)
    assert look(secure, settings) is not None
    assert look(secure) is None
    assert (
        look(new_server(root=publisher.served, tls=authority.server(timedelta(days=-1))).origin, settings)
        is None
    )
