"""``puller run`` on a machine with problems: its configuration, its state directory, its disk.

The run reports missing and damaged files, and deletes none. It enforces the last good bundle if its version is known.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.lifecycle import make_site

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher


# --- the operator's files -------------------------------------------------------------------------------------


def test_a_host_that_was_never_configured_is_told_how_to_begin(host: Host) -> None:
    host.configuration.unlink()
    outcome = host.run()
    sentence = "the configuration does not exist; create it from the output of `puller config sample`"
    assert outcome == (78, f"puller: {host.configuration}: {sentence}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("site: [\n", "config.yaml:2:1: "),
        ("- site\n", "config.yaml: is not a mapping"),
        (
            "site: /srv/site\nbundle: web\n",
            "config.yaml:2: bundle is not a key of the configuration (did you mean",
        ),
    ],
)
def test_a_configuration_that_is_not_valid_stops_everything(settled: Host, text: str, message: str) -> None:
    settled.configuration.write_text(text)
    outcome = settled.run()
    assert outcome.status == 78
    assert message in outcome.output
    settled.configure()
    assert settled.run().status == 0


OTHER_SITE = "another site"


@pytest.mark.parametrize(
    ("anchor", "status", "message"),
    [
        (
            None,
            78,
            r"host/root\.json: the trust anchor is missing, expected the root\.json that `puller site init`",
        ),
        ("{", 78, r"root\.json: "),
        ("{}", 78, r"root\.json: "),
        (
            OTHER_SITE,
            10,
            r"is signed by 0 of the 1 keys that root 1 requires: check that the trust anchor belongs to this",
        ),
    ],
)
def test_wrong_trust_anchor_keeps_the_last_good_bundle(
    settled: Host, tmp_path: Path, anchor: str | None, status: int, message: str
) -> None:
    place = Path(settled.settings["trust_anchor"])
    right = place.read_bytes()
    place.unlink()
    if anchor is OTHER_SITE:
        shutil.copyfile(make_site(tmp_path / "other", None).anchor, place)
    elif anchor is not None:
        place.write_text(anchor)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == status
    settled.assert_told(message, outcome)
    settled.assert_enforces("1.0.0")

    place.write_bytes(right)
    assert settled.run().status == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: [\n", "data.yaml:2:1: "),
        ("data: {a: '{{ facts.nowhere }}'}\n", "facts.nowhere"),
        ("dato: {a: 1}\n", "data.yaml:1:1: dato: unknown key 'dato', expected data, hierarchy, overrides"),
    ],
)
def test_invalid_host_data_are_reported_and_change_nothing(settled: Host, text: str, message: str) -> None:
    """Without an override, a run could undo its purpose."""
    Path(settled.settings["host_data"]).write_text(text)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told(re.escape(message), outcome)
    assert not (settled.machine / "motd").exists()

    Path(settled.settings["host_data"]).unlink()
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")


def test_channel_without_the_bundle_keeps_the_last_good(settled: Host) -> None:
    settled.configure(bundles=[{"name": "web", "channel": "canary"}])
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told("web: channel 'canary' of the site does not contain this bundle", outcome)
    settled.assert_enforces("1.0.0")


# --- the state directory ------------------------------------------------------------------------------------


def bundle_emptied(host: Host) -> None:
    bundle = (host.state / "bundles/web/current").resolve()
    bundle.chmod(0o755)
    (bundle / "bundle.json").unlink()


def link_dangling(host: Host) -> None:
    (host.state / "bundles/web/current").unlink()
    (host.state / "bundles/web/current").symlink_to("0" * 64)


def garbage(name: str) -> Callable[[Host], object]:
    return lambda host: (host.state / name).write_bytes(b"\0 not what belongs here")


DAMAGE: dict[str, tuple[Callable[[Host], object], str]] = {
    "current points to nothing": (link_dangling, r"web/current: points to a damaged bundle: "),
    "the bundle is incomplete": (bundle_emptied, r"web/current: points to a damaged bundle: .*bundle\.json"),
    "pending refreshes": (garbage("owed.json"), r"owed\.json: .* set aside as .*\.unreadable"),
    "trusted timestamp": (garbage("trust/timestamp.json"), r"trust/timestamp\.json: is damaged, .*moved to "),
    "trusted snapshot": (garbage("trust/snapshot.json"), r"trust/snapshot\.json: is damaged, .*moved to "),
    "last report": (garbage("last-run.json"), ""),
    "index": (garbage("trust/indexes/web.json"), ""),
    "what is going on": (garbage("../run/status.json"), ""),
}


@pytest.mark.attack("state.garbage")
@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_state_is_told_set_aside_and_made_good(
    settled: Host, publisher: Publisher, damage: Callable[[Host], object], message: str
) -> None:
    damage(settled)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 0
    settled.assert_told(message, outcome)
    settled.assert_enforces("1.0.0")

    publisher.publish("1.1.0")
    assert settled.run().status == 0
    assert settled.status()["last_run"]["problems"] == []
    settled.assert_enforces("1.1.0")


# --- the disk -----------------------------------------------------------------------------------------------


@pytest.mark.attack("disk.full", "disk.readable")
@pytest.mark.root
def test_full_disk_is_reported_and_the_bundle_enforced(
    settled: Host, publisher: Publisher, small_disk: Path
) -> None:
    shutil.copytree(settled.state, small_disk / "state", symlinks=True)
    settled.state = small_disk / "state"
    settled.configure(state_directory=str(settled.state))
    assert settled.run().status == 0
    publisher.publish("1.1.0", files={**publisher.story_files, "files/large": os.urandom(3_000_000)})
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 14
    settled.assert_told(f"requires 3\\.0 MB and a reserve of .*, but .* are free on {small_disk}", outcome)
    settled.assert_enforces("1.0.0")

    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


@pytest.mark.attack("disk.full", "disk.readable")
@pytest.mark.root
def test_last_good_bundle_is_enforced_without_a_free_byte(settled: Host, small_disk: Path) -> None:
    """Resources with subscribers fail, because a full disk cannot record the pending refresh."""
    shutil.copytree(settled.state, small_disk / "state", symlinks=True)
    settled.state = small_disk / "state"
    settled.configure(state_directory=str(settled.state))
    (settled.machine / "app.conf").unlink()
    subprocess.run(["dd", "if=/dev/zero", f"of={small_disk}/filler"], capture_output=True, check=False)
    assert os.statvfs(small_disk).f_bavail == 0
    outcome = settled.run()
    assert outcome.status == 78
    place = rf"{settled.state}/runs/\S+\.json\S*"
    expected = rf"ERROR  cannot write the report: {place}: no space left on the file system\n"
    assert re.search(expected, outcome.output), outcome.output
    settled.assert_enforces("1.0.0")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 2 MiB."""
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "puller-test", str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_metrics_that_cannot_be_written_are_told_in_the_report(settled: Host) -> None:
    settled.configure(reports={"textfile": str(settled.machine / "no" / "puller.prom")})
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told(r"cannot write the metrics: \S+: no such file or directory", outcome)


def test_unsaved_report_does_not_fail_the_run(settled: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = settled.machine / "puller.prom"
    settled.configure(reports={"textfile": str(metrics)})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "a report")

    with monkeypatch.context() as patched:
        patched.setattr("puller.run.report_keeping.save_report", full)
        assert settled.run().status == 78
    assert "puller_last_run_exit_status 78\n" in metrics.read_text()
    outcome = settled.run()
    assert outcome.status == 0
    assert "did not finish" not in outcome.output
