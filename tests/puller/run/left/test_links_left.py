"""Links across versions of a bundle: changed, restored, removed."""

import os
from pathlib import Path

import pytest

from tests.puller.run.left.test_way_back import copies, story
from tests.support.stories import Host, Publisher


def link(name: str = "current", **properties: object) -> str:
    """Return a link resource of a manifest."""
    values = ", ".join(f"{key}: '{value}'" for key, value in properties.items())
    return f'  - link: [{{"{{{{ facts.machine }}}}/{name}": {{{values}}}}}]\n'


def picture(path: Path) -> tuple[str, int, int]:
    status = path.lstat()
    return os.readlink(path), status.st_uid, status.st_gid


def test_versions_forth_and_back(host: Host, publisher: Publisher) -> None:
    current = host.machine / "current"
    for version, target in (("1.0.0", "a"), ("2.0.0", "b"), ("3.0.0", "a")):
        publisher.publish(version, story(0, link(target=target)))
        assert host.run().status == 0
        assert os.readlink(current) == target
        inode = current.lstat().st_ino
        assert host.run().status == 0
        assert set(host.states().values()) == {"stable"}
        assert current.lstat().st_ino == inode


def test_leftover_link_is_removed_if_puller_made_it(host: Host, publisher: Publisher) -> None:
    host.machine.mkdir()
    (host.machine / "found").symlink_to("a")
    both = link("found", target="b") + link("made", target="b") + link("replaced", target="b")
    publisher.publish("1.0.0", "removed: absent\n" + story(0, both))
    assert host.run().status == 0
    (host.machine / "replaced").unlink()
    (host.machine / "replaced").mkdir()
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    assert host.run().status == 0
    assert not os.path.lexists(host.machine / "made")
    assert os.readlink(host.machine / "found") == "b"
    assert (host.machine / "replaced").is_dir()


@pytest.mark.root
def test_a_bundle_that_is_given_up_leaves_every_link_as_it_was(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", story(0, link(target="a")))
    assert host.run().status == 0
    theirs, current, empty = host.machine / "theirs", host.machine / "current", host.machine / "empty"
    theirs.symlink_to("x")
    empty.mkdir()
    for path in (theirs, current):
        os.chown(path, 1234, 5678, follow_symlinks=False)
    before = picture(theirs), picture(current)
    changed = link(target="b", owner=0) + link("theirs", target="y", owner=0) + link("new", target="z")
    publisher.publish("2.0.0", story(2, changed, link("empty", target="z", force="{{ true }}")))
    assert host.run().status == 7
    assert (picture(theirs), picture(current)) == before
    assert empty.is_dir()
    assert not os.path.lexists(host.machine / "new")
    assert copies(host) == []
    assert host.run().status == 20
    assert set(host.states().values()) == {"stable"}
