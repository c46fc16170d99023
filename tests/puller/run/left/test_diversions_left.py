"""Diversions across versions of a bundle: the file of the package always returns."""

import os
from pathlib import Path

import pytest

from puller.system.local import LocalSystem
from tests.puller.run.left.test_way_back import copies, story
from tests.simulators.diversions import TOOL, Diverting
from tests.support.stories import Host, Publisher

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs dpkg-divert")

PACKAGED = "of the package\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diverting:
    """Return a machine with a file of a package. The host has its diversions."""
    database = tmp_path / "dpkg"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").write_text(PACKAGED)
    database.mkdir()
    (database / "status").write_text("")
    machine = Diverting(database)
    for method in ("query", "execute"):
        original = getattr(LocalSystem, method)

        def run(
            system: LocalSystem, command: object, method: str = method, original: object = original
        ) -> object:
            is_tool = command.arguments[0].endswith("dpkg-divert")  # type: ignore[attr-defined]
            return getattr(machine, method)(command) if is_tool else original(system, command)  # type: ignore[operator]

        monkeypatch.setattr(LocalSystem, method, run)
    return machine


def diversion(root: Path) -> str:
    return f"  - diversion: [{{{root}/bin/tool: {{}}}}]\n"


def file(root: Path, text: str = "of Puller") -> str:
    owner = f"owner: {os.getuid()}, group: {os.getgid()}"
    return f"  - file: [{{{root}/bin/tool: {{content: {text}, {owner}, mode: '0755'}}}}]\n"


def state(machine: Diverting, root: Path) -> dict[str, str]:
    """Return the files, and the diversions."""
    result = {path.name: path.read_text() for path in sorted((root / "bin").iterdir())}
    return {**result, "list": machine.tool("--list").stdout.replace(str(root), "")}


@pytest.mark.parametrize("with_file", [False, True])
def test_leftover_diversion_returns_the_packaged_file(
    host: Host, publisher: Publisher, machine: Diverting, tmp_path: Path, with_file: bool
) -> None:
    before = state(machine, tmp_path)
    resources = diversion(tmp_path) + (file(tmp_path) if with_file else "")
    publisher.publish("1.0.0", "removed: absent\n" + story(0, resources))
    assert host.run().status == 0
    assert (tmp_path / "bin/tool.distrib").read_text() == PACKAGED
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    assert host.run().status == 0
    assert state(machine, tmp_path) == before
    assert host.run().status == 0
    assert state(machine, tmp_path) == before


@pytest.mark.parametrize("with_file", [False, True])
def test_rollback_never_deletes_the_packaged_file(
    host: Host, publisher: Publisher, machine: Diverting, tmp_path: Path, with_file: bool
) -> None:
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    before = state(machine, tmp_path)
    resources = diversion(tmp_path) + (file(tmp_path) if with_file else "")
    publisher.publish("2.0.0", story(2, resources))
    assert host.run().status == 7
    assert state(machine, tmp_path) == before
    assert copies(host) == []
    assert host.run().status == 20
    assert state(machine, tmp_path) == before


@pytest.mark.parametrize("with_file", [False, True])
def test_rollback_of_a_removal_diverts_again(
    host: Host, publisher: Publisher, machine: Diverting, tmp_path: Path, with_file: bool
) -> None:
    resources = diversion(tmp_path) + (file(tmp_path) if with_file else "")
    publisher.publish("1.0.0", "removed: absent\n" + story(0, resources))
    assert host.run().status == 0
    before = state(machine, tmp_path)
    publisher.publish("2.0.0", "removed: absent\n" + story(2))
    assert host.run().status == 7
    assert state(machine, tmp_path) == before
    assert host.run().status == 20
    assert state(machine, tmp_path) == before


def test_diversion_stays_while_its_path_is_declared(
    host: Host, publisher: Publisher, machine: Diverting, tmp_path: Path
) -> None:
    publisher.publish("1.0.0", "removed: absent\n" + story(0, diversion(tmp_path) + file(tmp_path)))
    assert host.run().status == 0
    before = state(machine, tmp_path)
    publisher.publish("2.0.0", "removed: absent\n" + story(0, file(tmp_path)))
    assert host.run().status == 0
    assert state(machine, tmp_path) == before


@pytest.mark.parametrize("is_packaged", [False, True])
def test_rollback_beside_an_older_file_of_puller(
    host: Host, publisher: Publisher, machine: Diverting, tmp_path: Path, is_packaged: bool
) -> None:
    """The file of the older version stays at the path. No file is lost."""
    (tmp_path / "bin/tool").unlink()
    publisher.publish("1.0.0", story(0, file(tmp_path)))
    assert host.run().status == 0
    before = state(machine, tmp_path)
    if is_packaged:  # a package would have installed it there
        (tmp_path / "bin/tool.distrib").write_text(PACKAGED)
    publisher.publish("2.0.0", story(2, diversion(tmp_path), file(tmp_path)))
    outcome = host.run()
    assert outcome.status == 7, outcome.output
    for _ in range(2):
        if not is_packaged:
            assert state(machine, tmp_path) == before
            host.run()
            continue
        # Without the diversion, dpkg would overwrite one of the two files.
        assert state(machine, tmp_path) == {
            "tool": "of Puller",
            "tool.distrib": PACKAGED,
            "list": "local diversion of /bin/tool to /bin/tool.distrib\n",
        }
        assert "bin/tool is a leftover: the removal failed: " in outcome.output
        outcome = host.run()
    (tmp_path / "bin/tool.distrib").unlink(missing_ok=True)
    host.run()
    assert state(machine, tmp_path) == before
