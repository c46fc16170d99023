"""Runs against hostile mirrors and expired signatures, without leaks of credentials."""

from __future__ import annotations

import base64
import gzip
import shutil
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.lifecycle import make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.stories import Host, Publisher, WebServer

    Break = Callable[[WebServer], object]


def answering(status: int, body: bytes = b"Hello?") -> Break:
    def break_it(web: WebServer) -> None:
        web.answer = (status, body)

    return break_it


def silent(web: WebServer) -> None:
    web.stall_at = "/metadata/"


MIRRORS: dict[str, Break] = {
    "hangs": silent,
    "garbage": answering(200, b"\x00garbage"),
    "status-403": answering(403),
    "status-404": answering(404),
    "status-5xx": answering(503),
    "captive-portal": answering(200, b"<!DOCTYPE html><title>Hotel Splendid</title>"),
}


@pytest.mark.parametrize(
    "break_it",
    [pytest.param(row, id=case, marks=pytest.mark.attack(f"mirror.{case}")) for case, row in MIRRORS.items()],
)
def test_useless_first_mirror_leads_to_the_next(
    settled: Host, publisher: Publisher, web: WebServer, tmp_path: Path, break_it: Break
) -> None:
    publisher.publish("1.1.0")
    other = shutil.copytree(publisher.served, tmp_path / "other")
    break_it(web)
    settled.configure(site=[web.url, str(other)], http={"retries": 0, "read_timeout": 0.3})
    outcome = settled.run()
    assert outcome.status == 0
    assert web.url in outcome.output
    settled.assert_enforces("1.1.0")


@pytest.mark.attack("mirror.stale")
def test_a_first_mirror_that_is_behind_does_not_hold_a_host_back(
    settled: Host, publisher: Publisher, web: WebServer, tmp_path: Path
) -> None:
    behind = shutil.copytree(publisher.served, tmp_path / "behind")
    publisher.publish("1.1.0")
    settled.configure(site=[str(behind), web.url])
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


# --- expired metadata -----------------------------------------------------------------------------------------

ROLES = ("root", "targets", "snapshot", "timestamp")


class Later(datetime):
    """A clock that is three hours ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(hours=3)


@pytest.mark.attack("freeze.enforced")
@pytest.mark.parametrize("role", ROLES)
def test_expired_metadata_keep_the_last_good_bundle(
    host: Host, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    lifetimes = {each: "2h" if each == role else "1w" for each in ROLES}
    publisher.site = make_site(tmp_path / "mortal", None, lifetimes)
    shutil.copyfile(publisher.site.anchor, host.settings["trust_anchor"])
    publisher.publish("1.0.0")
    assert host.run().status == 0
    (host.machine / "motd").unlink()

    for module in ("puller.run.agent", "bundles.client.client"):
        monkeypatch.setattr(f"{module}.datetime", Later)
    outcome = host.run()
    assert outcome.status == 11
    host.assert_told(rf"of {role} expired at 20\S+Z, and the clock of this host shows 20", outcome)
    host.assert_enforces("1.0.0")


# --- credentials --------------------------------------------------------------------------------------------

CANARY = "tr0ub4dor-and-3"
SPELLINGS = (CANARY, base64.b64encode(f"me:{CANARY}".encode()).decode())


@pytest.mark.attack("credentials.output", "credentials.userinfo")
@pytest.mark.parametrize(
    ("break_it", "status"),
    [
        pytest.param(lambda web: None, 0, id="all is well"),
        pytest.param(answering(401), 14, id="refused"),
        pytest.param(answering(500), 14, id="an error"),
        pytest.param(answering(200, b"{}"), 14, id="not metadata"),
        pytest.param(lambda web: web.stop(), 14, id="away"),
    ],
)
def test_credentials_are_in_the_configuration_only(
    settled: Host, publisher: Publisher, web: WebServer, tmp_path: Path, break_it: Break, status: int
) -> None:
    publisher.publish("1.1.0")
    settled.configure(site=web.url.replace("://", f"://me:{CANARY}@"))
    break_it(web)
    outcome = settled.run("--verbose", "--verbose")
    assert outcome.status == status
    reported = [outcome.output, str(settled.status()), *map(str, files_with(SPELLINGS, tmp_path))]
    assert reported[2:] == [str(settled.configuration)]
    assert not any(spelling in text for spelling in SPELLINGS for text in reported)


def files_with(texts: tuple[str, ...], directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file():
            packed = path.name.endswith(".json.gz")  # the list of resources in sync
            data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
            if any(text.encode() in data for text in texts):
                yield path
