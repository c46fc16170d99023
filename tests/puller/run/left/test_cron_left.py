"""Cron jobs across versions of a bundle: changed, restored, removed."""

import os
from pathlib import Path

import pytest

from puller.resources.services import cron
from puller.system.protocol import Attributes
from tests.puller.run.left.test_way_back import copies, story
from tests.support.stories import Host, Publisher

FOREIGN = "@daily root true\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that replaces ``/etc/cron.d``."""
    path = tmp_path / "cron.d"
    path.mkdir()
    monkeypatch.setattr(cron, "DIRECTORY", str(path))
    monkeypatch.setattr(cron, "ATTRIBUTES", Attributes(os.geteuid(), os.getegid(), 0o644))
    return path


def job(name: str, schedule: str = "@hourly") -> str:
    """Return a cron resource of a manifest."""
    return f"  - cron: [{{{name}: {{schedule: '{schedule}', command: 'true'}}}}]\n"


def test_leftover_job_is_removed_if_puller_made_it(host: Host, publisher: Publisher, directory: Path) -> None:
    (directory / "found").write_text(FOREIGN)
    publisher.publish("1.0.0", "removed: absent\n" + story(0, job("found") + job("made")))
    assert host.run().status == 0
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    assert host.run().status == 0
    assert [path.name for path in directory.iterdir()] == ["found"]


def test_a_bundle_that_is_given_up_leaves_every_job_as_it_was(
    host: Host, publisher: Publisher, directory: Path
) -> None:
    publisher.publish("1.0.0", story(0, job("kept")))
    assert host.run().status == 0
    (directory / "theirs").write_text(FOREIGN)
    (directory / "theirs").chmod(0o600)
    before = (directory / "kept").read_text()
    publisher.publish("2.0.0", story(2, job("kept", "@daily") + job("theirs") + job("new")))
    assert host.run().status == 7
    assert {path.name: path.read_text() for path in directory.iterdir()} == {
        "kept": before,
        "theirs": FOREIGN,
    }
    assert (directory / "theirs").stat().st_mode & 0o777 == 0o600
    assert copies(host) == []
    assert host.run().status == 20
    assert set(host.states().values()) == {"stable"}
