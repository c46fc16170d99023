"""Ctrl-C during downloads of resources stops them immediately, and the next run resumes them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulators import moodyserver as moody
from tests.support.machines import wait_until

if TYPE_CHECKING:
    from tests.simulators.moodyserver import MoodyServer


def archive(seed: int) -> bytes:
    data, buffer = random.Random(seed).randbytes(300_000), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo("noise")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MoodyServer]:
    (tmp_path / "www").mkdir()
    for name in ("first", "second"):
        (tmp_path / f"www/{name}.tar.gz").write_bytes(archive(len(name)))
    with moody.serving(tmp_path / "www") as server:
        yield server


@pytest.fixture
def manifest(tmp_path: Path, server: MoodyServer) -> Path:
    """Write a manifest with two archives and two files from the same server."""
    (tmp_path / "m").mkdir()
    owner = f"owner: '{os.geteuid()}', group: '{os.getegid()}'"
    lines = ["resources:", "  - archive:"]
    for name in ("first", "second"):
        digest = hashlib.sha256((tmp_path / f"www/{name}.tar.gz").read_bytes()).hexdigest()
        url = f"{server.url}/{name}.tar.gz"
        lines.append(f"      - {tmp_path}/m/{name}.tar.gz: {{url: '{url}', checksum: {digest}, {owner}}}")
    lines += ["  - file:"]
    lines.append(f"      - {tmp_path}/m/file: {{source: '{server.url}/first.tar.gz', mode: '0600', {owner}}}")
    (tmp_path / "manifest.yaml").write_text("\n".join(lines))
    return tmp_path / "manifest.yaml"


def apply(manifest: Path) -> list[str]:
    state = ("--state-directory", str(manifest.parent / "state"))
    return [sys.executable, "-m", "puller", "apply", str(manifest), *state]


def sizes(directory: Path) -> set[int]:
    """Return the sizes of all files outside of the server's directory."""
    results = set()
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a temporary file has its final name
            results.add(0 if directory / "www" in path.parents else path.stat().st_size)
    return results


def silent_at(server: MoodyServer, number: int) -> None:
    """Fall silent after this number of connections, requests and pieces."""
    moods = iter([*["slow"] * number, "silent"])
    server.mood = lambda: next(moods, "slow")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.representatives(1)
def test_interrupt_ends_an_archive_download_with_progress(
    manifest: Path, server: MoodyServer, number: signal.Signals
) -> None:
    silent_at(server, 8)
    with subprocess.Popen(apply(manifest), stdout=subprocess.PIPE, text=True) as process:
        assert server.fell_silent.wait(60)
        wait_until(lambda: 65_536 in sizes(manifest.parent), "the client has all that was sent", 60)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    first = f"archive#{manifest.parent}/m/first.tar.gz"
    why = f"stopped by {number.name}"
    assert process.returncode == 128 + number
    finishing = f"WARN   {why}: finishing {first}. A second signal ends its commands\n"
    assert finishing in output, output  # a slow run also announces the download
    assert f"{first} skipped ({why}; 65.5 kB are stored, and the next run resumes from there)" in output
    assert output.count("skipped") == 4, "each resource, and the summary"
    assert "failed" not in output
    assert len(server.asked) == 1

    completed = subprocess.run(apply(manifest), capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed
    assert "3 changed" in completed.stdout
    assert server.asked[1] == ("/first.tar.gz", "bytes=65536-")


@pytest.mark.everything
def test_ctrl_c_ends_the_download_of_a_file_too(manifest: Path, server: MoodyServer) -> None:
    lines = manifest.read_text().splitlines()
    manifest.write_text("\n".join([lines[0], *lines[-2:]]))
    silent_at(server, 4)
    with subprocess.Popen(apply(manifest), stdout=subprocess.PIPE, text=True) as process:
        assert server.fell_silent.wait(60)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"file#{manifest.parent}/m/file skipped (stopped by SIGINT)" in output
    assert not (manifest.parent / "m/file").exists()
    assert subprocess.run(apply(manifest), capture_output=True, check=False).returncode == 0
