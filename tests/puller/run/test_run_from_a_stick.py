"""A machine without a network updates from a USB drive: a copy of the site, verified as over HTTP."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher, WebServer

Stick = Path


@pytest.fixture
def stick(tmp_path: Path, publisher: Publisher) -> Stick:
    """Return the mount point of a USB drive with the current copy of the site."""
    place = tmp_path / "usb" / "public"
    publisher.publish("1.0.0")
    plug(place, publisher)
    return place


@pytest.fixture
def offline(host: Host, stick: Stick) -> Host:
    """Return a host that has only the USB drive, and has run once."""
    host.configure(site=str(stick))
    assert host.run().status == 0
    host.assert_enforces("1.0.0")
    return host


def plug(stick: Stick, publisher: Publisher) -> None:
    """Replace the content of the USB drive by the current copy of the site."""
    shutil.rmtree(stick, ignore_errors=True)
    shutil.copytree(publisher.served, stick)


def unplug(stick: Stick) -> None:
    shutil.rmtree(stick.parent)


def test_a_stick_brings_an_update(offline: Host, publisher: Publisher, stick: Stick) -> None:
    publisher.publish("1.1.0")
    plug(stick, publisher)
    assert offline.run().status == 0
    offline.assert_enforces("1.1.0")


def test_without_the_stick_the_last_good_bundle_is_enforced(offline: Host, stick: Stick) -> None:
    unplug(stick)
    (offline.machine / "motd").unlink()
    outcome = offline.run()
    assert outcome.status == 14
    offline.assert_told(f"{stick}: the directory is missing; check that the medium is mounted", outcome)
    offline.assert_enforces("1.0.0")


def test_an_empty_mount_point_is_no_attack(offline: Host, stick: Stick) -> None:
    unplug(stick)
    stick.mkdir(parents=True)
    outcome = offline.run()
    assert outcome.status == 14
    offline.assert_told("the file is missing", outcome)
    offline.assert_enforces("1.0.0")


def test_a_stick_with_an_older_copy_is_refused(offline: Host, publisher: Publisher, stick: Stick) -> None:
    shutil.copytree(stick, stick.with_name("older"))
    publisher.publish("1.1.0")
    plug(stick, publisher)
    assert offline.run().status == 0
    shutil.rmtree(stick)
    stick.with_name("older").rename(stick)
    outcome = offline.run()
    assert outcome.status == 12
    offline.assert_told(r"timestamp\.json: version \d, older than the trusted version \d", outcome)
    offline.assert_enforces("1.1.0")


def test_a_bundle_that_was_tampered_with_on_the_stick_is_refused(
    offline: Host, publisher: Publisher, stick: Stick
) -> None:
    publisher.publish("1.1.0")
    plug(stick, publisher)
    (bundle,) = stick.glob("targets/web/*1.1.0*")
    data = bundle.read_bytes()
    bundle.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    outcome = offline.run()
    assert outcome.status == 10
    offline.assert_told(r"sha256 is .*, expected .* from the signed metadata", outcome)
    offline.assert_enforces("1.0.0")


# --- with a web server ----------------------------------------------------------------------------------------


@pytest.fixture
def mixed(host: Host, stick: Stick, web: WebServer) -> Host:
    """Return a host with a web server and a USB drive, which has run once."""
    host.configure(site=[web.url, str(stick)])
    assert host.run().status == 0
    return host


def test_a_stick_helps_while_the_web_server_is_away(
    mixed: Host, publisher: Publisher, stick: Stick, web: WebServer
) -> None:
    web.stop()
    publisher.publish("1.1.0")
    plug(stick, publisher)
    outcome = mixed.run()
    assert outcome.status == 0
    output = f"{web.url}: failed once since .*, next attempt at .*: .*the connection failed"
    assert re.search(output, outcome.output)
    mixed.assert_enforces("1.1.0")


def test_without_the_stick_the_web_server_goes_on(mixed: Host, publisher: Publisher, stick: Stick) -> None:
    unplug(stick)
    publisher.publish("1.1.0")
    for _ in range(2):
        outcome = mixed.run()
        assert outcome.status == 0
        output = f"{stick}: failed once since .*: the directory is missing; check that the medium is mounted"
        assert re.search(output, outcome.output)
        mixed.assert_enforces("1.1.0")


def test_a_stick_that_is_behind_does_not_hold_up_the_web_server(
    mixed: Host, publisher: Publisher, stick: Stick
) -> None:
    publisher.publish("1.1.0")
    outcome = mixed.run()
    assert outcome.status == 0
    mixed.assert_told(f"{stick}: is behind: .*older than", outcome)
    mixed.assert_enforces("1.1.0")


def test_a_noop_run_leaves_no_memory_of_mirrors(mixed: Host, stick: Stick) -> None:
    unplug(stick)
    before = sorted(mixed.state.rglob("*"))
    assert mixed.run("--noop").status == 0
    assert sorted(mixed.state.rglob("*")) == before


# --- hostile USB drives ---------------------------------------------------------------------------------------


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: replace(path, lambda path: path.symlink_to(target))


def replace(path: Path, put: Callable[[Path], object]) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    put(path)


def listen(path: Path) -> None:
    # The path of a socket is limited to 107 bytes, and the directory of a test may be longer.
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


HOSTILE: dict[str, tuple[str, Callable[[Path], object], int, str]] = {
    # The replaced document, its replacement, the exit status and the message.
    "timestamp, a link out": (
        "metadata/timestamp.json",
        link_to("/etc/passwd"),
        14,
        r"timestamp\.json: is a symbolic link, expected a regular file",
    ),
    "timestamp, a device": ("metadata/timestamp.json", link_to("/dev/zero"), 14, "is a symbolic link"),
    "timestamp, a FIFO": (
        "metadata/timestamp.json",
        lambda path: replace(path, os.mkfifo),
        14,
        "is a FIFO, expected a regular file",
    ),
    "timestamp, a socket": (
        "metadata/timestamp.json",
        lambda path: replace(path, listen),
        14,
        "No such device",
    ),
    "timestamp, a directory": (
        "metadata/timestamp.json",
        lambda path: replace(path, Path.mkdir),
        14,
        "is a directory, expected a regular file",
    ),
    "timestamp, huge": (
        "metadata/timestamp.json",
        lambda path: replace(path, sparse),
        10,
        "has 1099511627776 bytes, at most",
    ),
    "timestamp, a loop": ("metadata/timestamp.json", link_to("timestamp.json"), 14, "is a symbolic link"),
    "metadata, a link out": ("metadata", link_to("/etc"), 14, "Not a directory"),
    "metadata, a file": ("metadata", lambda path: replace(path, Path.touch), 14, "Not a directory"),
    "targets, a link out": ("targets", link_to("/etc"), 14, "Not a directory"),
    "bundle, a link out": ("targets/web/*1.1.0*", link_to("/etc/passwd"), 14, "is a symbolic link"),
    "bundle, a FIFO": ("targets/web/*1.1.0*", lambda path: replace(path, os.mkfifo), 14, "is a FIFO"),
    "bundle, huge": (
        "targets/web/*1.1.0*",
        lambda path: replace(path, sparse),
        10,
        r"has 1099511627776 bytes, at most \d+ are allowed, the signed metadata has the length",
    ),
}


@pytest.mark.parametrize(("where", "put", "status", "sentence"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_usb_drive_is_refused_and_confined(
    offline: Host,
    publisher: Publisher,
    stick: Stick,
    where: str,
    put: Callable[[Path], object],
    status: int,
    sentence: str,
) -> None:
    publisher.publish("1.1.0")
    plug(stick, publisher)
    (victim,) = stick.glob(where)
    put(victim)
    outcome = offline.run()
    assert outcome.status == status
    offline.assert_told(sentence, outcome)
    assert "root:" not in outcome.output
    offline.assert_enforces("1.0.0")


@pytest.mark.root
def test_a_device_on_the_stick_is_refused(offline: Host, stick: Stick) -> None:
    def make_device(path: Path) -> None:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero

    replace(stick / "metadata/timestamp.json", make_device)
    outcome = offline.run()
    assert outcome.status == 14
    offline.assert_told("is a character device, expected a regular file|Permission denied", outcome)


def test_the_directory_of_the_site_may_itself_be_a_link(
    offline: Host, publisher: Publisher, stick: Stick
) -> None:
    real = stick.with_name("2026-11")
    publisher.publish("1.1.0")
    plug(real, publisher)
    shutil.rmtree(stick)
    stick.symlink_to(real)
    assert offline.run().status == 0
    offline.assert_enforces("1.1.0")
