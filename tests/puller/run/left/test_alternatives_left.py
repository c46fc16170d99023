"""Alternatives across versions of a bundle: selected, restored, removed."""

import os
from pathlib import Path

import pytest

from puller.system.local import LocalSystem
from tests.puller.run.left.test_way_back import copies, story
from tests.simulators.alternatives import TOOL, Group
from tests.support.stories import Host, Publisher

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs update-alternatives")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Return a group with two candidates in automatic mode, on the machine of the host."""
    root = tmp_path / "group"
    root.mkdir()
    for name in ("one", "two", "own"):
        (root / name).write_text("")
    group = Group(root)
    group.redirect(monkeypatch)
    for name, priority in (("one", "10"), ("two", "20")):
        for link in ("editor", "pager"):
            group.tool("--install", str(root / link), link, str(root / name), priority)
    for method in ("query", "execute"):
        original = getattr(LocalSystem, method)

        def run(
            system: LocalSystem, command: object, method: str = method, original: object = original
        ) -> object:
            is_tool = command.arguments[0].endswith("update-alternatives")  # type: ignore[attr-defined]
            return getattr(group, method)(command) if is_tool else original(system, command)  # type: ignore[operator]

        monkeypatch.setattr(LocalSystem, method, run)
    return group


def declared(group: Group, name: str, path: str, *, registers: bool = False) -> str:
    more = f", link: {group.root}/{name}, priority: 5" if registers else ""
    return f"  - alternative: [{{{name}: {{path: {group.root}/{path}{more}}}}}]\n"


def state(group: Group) -> dict[str, list[str]]:
    """Return the mode, the program and the candidates of each name."""
    result = {}
    for name in ("editor", "pager"):
        lines = group.tool("--query", name).stdout.splitlines()
        words = ("Status:", "Alternative:", "Value:")
        result[name] = [line.replace(str(group.root), "") for line in lines if line.startswith(words)]
    return result


def test_leftover_alternative_returns_to_automatic_mode(
    host: Host, publisher: Publisher, group: Group
) -> None:
    before = state(group)
    resources = declared(group, "editor", "one") + declared(group, "pager", "own", registers=True)
    publisher.publish("1.0.0", "removed: absent\n" + story(0, resources))
    assert host.run().status == 0
    assert os.readlink(group.root / "etc/pager") == f"{group.root}/own"
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    assert host.run().status == 0
    assert state(group) == before


@pytest.mark.parametrize("chosen", ["", "one", "two"])
def test_rollback_restores_the_selection_and_the_candidates(
    host: Host, publisher: Publisher, group: Group, chosen: str
) -> None:
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    for name in ("editor", "pager") if chosen else ():
        group.tool("--set", name, str(group.root / chosen))
    before = state(group)
    resources = declared(group, "editor", "one") + declared(group, "pager", "own", registers=True)
    publisher.publish("2.0.0", story(2, resources))
    assert host.run().status == 7
    assert state(group) == before
    assert copies(host) == []
    assert host.run().status == 20
    assert state(group) == before


def test_rollback_restores_the_priority_of_a_package(host: Host, publisher: Publisher, group: Group) -> None:
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    before = group.tool("--query", "editor").stdout
    publisher.publish("2.0.0", story(2, declared(group, "editor", "one", registers=True)))
    assert host.run().status == 7
    assert group.tool("--query", "editor").stdout == before
    assert host.run().status == 20
    assert group.tool("--query", "editor").stdout == before
