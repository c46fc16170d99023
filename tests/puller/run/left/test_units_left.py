"""Unit files across versions of a bundle: changed, restored, removed."""

import os
from pathlib import Path

import pytest

from puller.resources import unit
from puller.system.protocol import Attributes
from tests.puller.run.left.test_way_back import copies, story
from tests.support.stories import Host, Publisher

FOREIGN = "[Service]\nExecStart=/bin/true\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that replaces ``/etc/systemd/system``."""
    path = tmp_path / "units"
    path.mkdir()
    monkeypatch.setattr(unit, "DIRECTORY", str(path))
    monkeypatch.setattr(unit, "BOOTED", str(tmp_path / "booted"))
    monkeypatch.setattr(unit, "ATTRIBUTES", Attributes(os.geteuid(), os.getegid(), 0o644))
    return path


def declared(name: str, nice: int = 1) -> str:
    """Return a unit resource of a manifest."""
    return f"  - unit: [{{{name}: {{sections: {{Service: {{ExecStart: /bin/true, Nice: {nice}}}}}, verify: false}}}}]\n"


def files(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.glob("**/*")
        if path.is_file()
    }


def test_leftover_unit_is_removed_if_puller_made_it(
    host: Host, publisher: Publisher, directory: Path
) -> None:
    (directory / "theirs.service").write_text(FOREIGN)
    resources = declared("theirs.service") + declared("made.service") + declared("made.service.d/x.conf")
    publisher.publish("1.0.0", "removed: absent\n" + story(0, resources))
    assert host.run().status == 0
    assert len(files(directory)) == 3
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    assert host.run().status == 0
    assert [path.name for path in directory.iterdir()] == ["theirs.service"]


def test_rollback_leaves_every_unit_as_it_was(host: Host, publisher: Publisher, directory: Path) -> None:
    publisher.publish("1.0.0", story(0, declared("kept.service")))
    assert host.run().status == 0
    (directory / "theirs.service").write_text(FOREIGN)
    (directory / "private.service").write_text(FOREIGN)
    (directory / "private.service").chmod(0o600)
    before = files(directory)
    names = ("theirs.service", "private.service", "new.service", "new.service.d/x.conf")
    resources = declared("kept.service", 2) + "".join(map(declared, names))
    publisher.publish("2.0.0", story(2, resources))
    assert host.run().status == 7
    assert files(directory) == before
    assert not (directory / "new.service.d").exists()
    assert (directory / "private.service").stat().st_mode & 0o777 == 0o600
    assert copies(host) == []
    assert host.run().status == 20
    assert set(host.states().values()) == {"stable"}
    assert files(directory) == before


def test_rollback_restores_a_removed_unit(host: Host, publisher: Publisher, directory: Path) -> None:
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    (directory / "theirs.service").write_text(FOREIGN)
    publisher.publish("2.0.0", story(2, "  - unit: [{theirs.service: {ensure: absent}}]\n"))
    assert host.run().status == 7
    assert files(directory) == {"theirs.service": FOREIGN}
