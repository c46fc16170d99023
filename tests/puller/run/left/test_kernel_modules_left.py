"""Kernel modules across versions of a bundle: their files are changed, restored and removed."""

import os
from pathlib import Path

import pytest

from puller.resources.kernel import module_files
from tests.puller.run.left.test_way_back import copies, story
from tests.support.stories import Host, Publisher


@pytest.fixture
def root(host: Host, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root directory of a simulated container, in which Puller manages only files."""
    monkeypatch.setattr(module_files, "ROOT", str(host.machine))
    return host.machine / "etc"


def module(text: str) -> str:
    """Return a kernel module resource of a manifest."""
    return f"  - kernel_module: [{{{text}}}]\n"


def files(root: Path) -> dict[str, str]:
    return {path.name: path.read_text().partition("\n")[2] for path in root.rglob("*.conf")}


def test_versions_forth_and_back(host: Host, publisher: Publisher, root: Path) -> None:
    kept_out, loaded = "foo: {ensure: blacklisted}", "foo: {options: [a=1]}"
    for version, text in (("1.0.0", kept_out), ("2.0.0", loaded), ("3.0.0", kept_out)):
        publisher.publish(version, story(0, module(text)))
        assert host.run().status == 0
        assert (root / "modules-load.d/foo.conf").exists() is (text == loaded)
        assert ("options foo a=1\n" in (root / "modprobe.d/foo.conf").read_text()) is (text == loaded)
        assert host.run().status == 0
        assert set(host.states().values()) == {"stable"}


def test_a_bundle_that_is_given_up_leaves_the_files_as_they_were(
    host: Host, publisher: Publisher, root: Path
) -> None:
    publisher.publish("1.0.0", story(0, module("foo: {options: [a=1]}")))
    assert host.run().status == 0
    (root / "modprobe.d/theirs.conf").write_text("# theirs\noptions theirs x=1\n")
    before = files(root)
    changed = module("foo: {options: [a=2]}") + module("new: {}") + module("theirs: {ensure: blacklisted}")
    publisher.publish("2.0.0", story(2, changed))
    assert host.run().status == 7
    assert files(root) == before
    assert copies(host) == []
    assert host.run().status == 20
    assert set(host.states().values()) == {"stable"}


def test_its_files_go_where_puller_has_made_them(host: Host, publisher: Publisher, root: Path) -> None:
    publisher.publish(
        "1.0.0", "removed: absent\n" + story(0, module("foo: {}"), module("bar: {ensure: blacklisted}"))
    )
    assert host.run().status == 0
    assert sorted(files(root)) == ["bar.conf", "foo.conf"]
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    assert host.run().status == 0
    assert files(root) == {}
    assert os.path.isdir(root / "modprobe.d")
