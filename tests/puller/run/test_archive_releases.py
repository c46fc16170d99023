"""Releases of a bundle with an application as an archive: updates, all kinds of rollback, and their messages."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.simulators import fileserver as simulator

if TYPE_CHECKING:
    from tests.simulators.fileserver import FileServer
    from tests.support.stories import Execute, Host, Publisher

Manifest = Callable[..., str]


def packed(version: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("bin/app", f"lib/app-{version}.jar"):
            member = tarfile.TarInfo(name)
            member.size = len(version)
            tar.addfile(member, io.BytesIO(version.encode()))
    return buffer.getvalue()


PACKED = {version: packed(version) for version in ("1.0.0", "1.1.0", "1.2.0")}
SHA256 = {version: hashlib.sha256(data).hexdigest() for version, data in PACKED.items()}

DECLARED = """\
resources:
  - file:
      - "{{ facts.machine }}":
          {ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
  - archive:
      - "{{ facts.machine }}/NAME.tar.gz":
          url: URL/app-VERSION.tar.gz
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          extract_parent: "{{ facts.machine }}/app"
          creates: "{{ facts.machine }}/app/bin/app"
          MORE
          health_checks:
            - {name: app, command: "sh -c 'exit CODE'"}
"""

STYLES = {
    "by name": ("app-VERSION", "alias: app"),
    "by name, cleaned up": ("app-VERSION", "cleanup: true"),
    "by checksum": ("app", "checksum: SHA256"),
    "by checksum, cleaned up": ("app", "{checksum: SHA256, cleanup: true}"),
}


@pytest.fixture
def server() -> Iterator[FileServer]:
    with simulator.serving() as server:
        for version, data in PACKED.items():
            server.files[f"/app-{version}.tar.gz"] = data
        yield server


@pytest.fixture(params=STYLES)
def release(request: pytest.FixtureRequest, server: FileServer, publisher: Publisher) -> Callable[..., None]:
    """Return a function that publishes a version whose health check exits with ``code``."""
    name, additional = STYLES[request.param]

    def publish(version: str, code: int = 0) -> None:
        own = "\n          ".join(additional.strip("{}").split(", "))
        text = DECLARED.replace("MORE", own).replace("NAME", name).replace("URL", server.url)
        publisher.publish(version, text.replace("SHA256", SHA256[version]).replace("CODE", str(code)))

    return publish


def installed(host: Host) -> dict[str, str]:
    place = host.machine / "app"
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


def contents(version: str) -> dict[str, str]:
    return {"bin/app": version, f"lib/app-{version}.jar": version}


def assert_settled(host: Host, version: str, status: int = 0) -> None:
    assert installed(host) == contents(version)
    outcome = host.run()
    assert (outcome.status, "changed=" in outcome.output) == (status, False)
    assert installed(host) == contents(version)


@pytest.mark.representatives(1)
def test_releases_forth_and_back_by_the_publisher(
    host: Host, publisher: Publisher, release: Callable[..., None]
) -> None:
    for version in ("1.0.0", "1.1.0"):
        release(version)
        dry = host.run("--noop")
        assert "Would have extracted" in dry.output
        assert host.run().status == 0
        assert_settled(host, version)
    publisher.say(lambda channels: channels.roll_back("web", "stable", "1.0.0"))
    assert "Would have removed files that the new archive lacks" in host.run("--noop").output
    assert host.run().status == 0
    assert_settled(host, "1.0.0")


@pytest.mark.representatives(1)
def test_a_rollback_brings_the_archive_of_the_release_before(
    host: Host, execute: Execute, release: Callable[..., None]
) -> None:
    for version in ("1.0.0", "1.1.0"):
        release(version)
        assert host.run().status == 0
    status, output = execute("rollback", "web", "--config", str(host.configuration))
    assert status == 0, output
    assert_settled(host, "1.0.0", status=20)
    release("1.2.0")
    assert host.run().status == 0
    assert_settled(host, "1.2.0")


@pytest.mark.representatives(1)
def test_failed_release_is_undone_with_its_archive(host: Host, release: Callable[..., None]) -> None:
    release("1.0.0")
    assert host.run().status == 0
    release("1.1.0", code=2)
    assert host.run().status == 7
    assert_settled(host, "1.0.0", status=20)


@pytest.mark.parametrize("release", ["by name, cleaned up"], indirect=True)
def test_explain_shows_the_content_of_the_directory(
    host: Host, execute: Execute, release: Callable[..., None]
) -> None:
    release("1.0.0")
    host.run()
    release("1.1.0")
    host.run()
    subject = f"archive#{host.machine}/app-1.1.0.tar.gz"
    status, output = execute("explain", subject, "--config", str(host.configuration))
    holds = f"{host.machine}/app holds {host.machine}/app-1.1.0.tar.gz (sha256 {SHA256['1.1.0'][:12]}…)"
    assert status == 0
    assert f"  on record\n    {holds}\n" in output
    status, output = execute("explain", subject, "--config", str(host.configuration), "--format", "json")
    assert json.loads(output)[0]["on_record"] == [holds]
