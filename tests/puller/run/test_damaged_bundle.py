"""A bundle with modified files is fetched again, or Puller enforces another version."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher, WebServer

GARBLED = b"workers = 9\n"


@pytest.fixture
def updated(settled: Host, publisher: Publisher) -> Host:
    """Return a host that was updated from 1.0.0 to 1.1.0."""
    publisher.publish("1.1.0")
    assert settled.run().status == 0
    return settled


def garble(host: Host) -> Path:
    """Corrupt a file as a bad disk does: same name, size, mode and time."""
    path = (host.state / "bundles/web/current/files/app.conf").resolve()
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(GARBLED)
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return path


TOLD = r"web/current: points to a damaged bundle: .*'files/app\.conf' has the sha256 "


def test_it_is_fetched_anew(updated: Host) -> None:
    path = garble(updated)
    outcome = updated.run()
    assert outcome.status == 0
    updated.assert_told(TOLD, outcome)
    updated.assert_enforces("1.1.0")
    assert path.read_bytes() != GARBLED
    assert updated.run().status == 0
    assert updated.report().get("problems", []) == []


def test_while_the_site_is_away_the_bundle_before_it_is_enforced(updated: Host, web: WebServer) -> None:
    garble(updated)
    web.stop()
    outcome = updated.run()
    assert outcome.status == 14
    updated.assert_told(TOLD, outcome)
    updated.assert_enforces("1.0.0")
    web.start()
    assert updated.run().status == 0
    updated.assert_enforces("1.1.0")


def test_without_another_bundle_only_published_files_apply(settled: Host, web: WebServer) -> None:
    garble(settled)
    web.stop()
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 15
    settled.assert_told(TOLD, outcome)
    assert not (settled.machine / "motd").exists()
    assert (settled.machine / "app.conf").read_bytes() != GARBLED
    web.start()
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")


def test_status_tells_it_and_looking_changes_nothing(updated: Host) -> None:
    garble(updated)
    before = sorted((path, path.lstat().st_mtime_ns) for path in updated.state.rglob("*"))
    bundle = updated.status()["bundles"][0]
    assert "points to a damaged bundle" in bundle["problem"]
    updated.run("--noop")
    assert sorted((path, path.lstat().st_mtime_ns) for path in updated.state.rglob("*")) == before


def test_unapplied_run_reports_no_enforced_bundle(updated: Host, web: WebServer, execute: Execute) -> None:
    garble(updated)
    web.stop()
    execute("disable", "--reason", "an audit", "--config", str(updated.configuration))
    outcome = updated.run()
    updated.assert_told(TOLD, outcome)
    assert (updated.machine / "motd").read_text() == "Hello from 1.1.0\n"
    assert updated.enforced is None
    _, output = execute("status", "--config", str(updated.configuration))
    assert "\nweb: the enforced version cannot be used\n" in output


def test_damage_never_leads_to_a_bundle_in_quarantine(
    updated: Host, web: WebServer, execute: Execute
) -> None:
    status, _ = execute("rollback", "web", "--config", str(updated.configuration))
    assert status == 0
    garble(updated)
    web.stop()
    outcome = updated.run()
    assert outcome.status == 15
    updated.assert_told("web: this host has no usable version of this bundle", outcome)
    assert (updated.machine / "motd").read_text() == "Hello from 1.0.0\n"
    assert updated.enforced is None

    web.start()
    assert updated.run("--noop").status == 20
    assert updated.enforced is None
    assert updated.run().status == 20  # 1.1.0 is quarantined, and 1.0.0 fetched again
    updated.assert_enforces("1.0.0")


def test_damaged_link_on_a_full_disk_still_enforces(
    settled: Host, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settled.state / "bundles/web/current").unlink()
    (settled.state / "bundles/web/current").write_bytes(b"garbage")
    (settled.machine / "motd").unlink()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "symlink", full)
    web.stop()
    outcome = settled.run()
    assert outcome.status == 14
    settled.assert_told("web/current: is a regular file, expected a link", outcome)
    assert (settled.machine / "motd").read_text() == "Hello from 1.0.0\n"
