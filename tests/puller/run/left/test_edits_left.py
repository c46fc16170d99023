"""Edits of files across versions of a bundle: removed, restored, and made by a version on trial."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.system.local import LocalSystem
from tests.support.stories import Host, Publisher

BEFORE = "[main]\nlevel = 1\n; end\nold=1\n"
MACHINE = "{{ facts.machine }}"
THREE: dict[str, dict[str, Any]] = {
    "line#l": {"line": "# a line"},
    "block#b": {"content": "x\ny\n", "insert_before": "BOF"},
    "setting#s": {"format": "ini", "section": "main", "key": "new", "value": "2"},
}
AFTER = "# BEGIN puller b\nx\ny\n# END puller b\n[main]\nlevel = 1\n; end\nold=1\nnew = 2\n# a line\n"


def story(
    edits: dict[str, dict[str, Any]], *, removed: str = "absent", code: int = 0, name: str = "app.conf"
) -> str:
    """Return a manifest with these edits of one file, and a health check that exits with ``code``."""
    entries = [
        {kind: [{name_: {"path": f"{MACHINE}/{name}", **properties}}]}
        for (kind, _, name_), properties in ((key.partition("#"), each) for key, each in edits.items())
    ]
    check = {"name": "app", "command": f"sh -c 'exit {code}'"}
    entries.append({"file": [{f"{MACHINE}/check": {"content": f"{code}\n", "health_checks": [check]}}]})
    entries[-1]["file"][0][f"{MACHINE}/check"] |= {
        "owner": "{{ facts.uid }}",
        "group": "{{ facts.gid }}",
        "mode": "0644",
    }
    return yaml.safe_dump({"removed": removed, "resources": entries})


@pytest.fixture
def path(host: Host) -> Path:
    host.machine.mkdir(parents=True)
    path = host.machine / "app.conf"
    path.write_text(BEFORE)
    return path


def left(host: Host) -> dict[str, bool]:
    result = host.status()["bundles"][0].get("left_behind", [])
    return {item["reference"]: item["made"] for item in result}


def test_leftover_edit_is_removed_and_the_next_run_is_stable(
    host: Host, publisher: Publisher, path: Path
) -> None:
    publisher.publish("1.0.0", story(THREE))
    assert host.run().status == 0
    assert path.read_text() == AFTER
    publisher.publish("2.0.0", story({}))
    output = host.run("--noop").output
    assert output.count(f"Would have changed {path}") == 3
    assert path.read_text() == AFTER
    assert host.run().status == 0
    assert path.read_text() == BEFORE
    assert [host.states()[name] for name in THREE] == ["changed"] * 3
    assert left(host) == {}
    assert host.run("--detailed-exitcodes").status == 0
    assert set(host.states()) == {"file#check"}
    assert list((host.state / "edits").iterdir()) == []
    publisher.publish("3.0.0", story(THREE))
    assert host.run().status == 0
    assert path.read_text() == AFTER


@pytest.mark.everything
def test_dry_run_removes_a_line_of_two_bundles_once(host: Host, publisher: Publisher, path: Path) -> None:
    """The first removal takes the line away, and the second one finds nothing to do."""
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    line = {"line": "# shared"}
    for name in ("web", "base"):
        publisher.publish("1.0.0", story({f"line#{name}": line}, name="app.conf"), name=name)
    assert host.run().status == 0
    assert path.read_text().count("# shared") == 1
    for name in ("web", "base"):
        publisher.publish("2.0.0", story({}), name=name)
    predicted = host.run("--noop").output.count(" would change ensure=absent")
    assert host.run().output.count(" changed ensure=absent") == predicted == 1
    assert path.read_text() == BEFORE


def test_without_the_word_it_stays_and_is_listed(host: Host, publisher: Publisher, path: Path) -> None:
    publisher.publish("1.0.0", story(THREE, removed="keep"))
    host.run()
    publisher.publish("2.0.0", story({}, removed="keep"))
    assert host.run().status == 0
    assert path.read_text() == AFTER
    assert left(host) == dict.fromkeys(THREE, True)


def test_equivalent_existing_text_is_not_removed(host: Host, publisher: Publisher, path: Path) -> None:
    edits = {
        "line#l": {"line": "old=2", "match": "^old="},
        "line#there": {"line": "; end"},
        "setting#s": {"format": "ini", "section": "main", "key": "level", "value": "2"},
    }
    publisher.publish("1.0.0", story(edits))
    host.run()
    publisher.publish("2.0.0", story({}))
    assert host.run().status == 0
    assert path.read_text() == "[main]\nlevel = 2\n; end\nold=2\n"
    assert left(host) == dict.fromkeys(edits, False)


@pytest.mark.everything
def test_modified_leftover_line_is_removed(host: Host, publisher: Publisher, path: Path) -> None:
    for version, text in (("1.0.0", "new=1"), ("2.0.0", "new=2"), ("3.0.0", "new=3")):
        publisher.publish(version, story({"line#l": {"line": text, "match": "^new="}}))
        assert host.run().status == 0
    assert path.read_text() == f"{BEFORE}new=3\n"
    publisher.publish("4.0.0", story({}))
    assert host.run().status == 0
    assert path.read_text() == BEFORE


def test_edit_wanted_under_another_name_stays(host: Host, publisher: Publisher, path: Path) -> None:
    publisher.publish("1.0.0", story(THREE))
    host.run()
    publisher.publish("2.0.0", story({"line#renamed": THREE["line#l"]}))
    assert host.run().status == 0
    assert path.read_text() == BEFORE + "# a line\n"
    assert host.states()["line#renamed"] == host.states()["line#l"] == "stable"
    assert left(host) == {}


def test_a_version_that_is_given_up_has_edited_nothing(host: Host, publisher: Publisher, path: Path) -> None:
    publisher.publish("1.0.0", story({"line#first": {"line": "first"}}))
    assert host.run().status == 0
    path.chmod(0o640)
    before = path.read_text()
    made = {"line#made": {"line": "made", "path": f"{MACHINE}/made", "create": True}}
    publisher.publish("2.0.0", story({"line#first": {"line": "first"}, **THREE, **made}, code=2))
    assert host.run().status == 7
    assert (path.read_text(), path.stat().st_mode & 0o777) == (before, 0o640)
    assert not (host.machine / "made").exists()
    assert host.enforced == "1.0.0"
    assert left(host) == {}
    host.run()
    assert set(host.states().values()) == {"stable"}
    publisher.publish("3.0.0", story({}))
    assert host.run().status == 0
    assert path.read_text() == BEFORE


@pytest.mark.everything
def test_versions_edit_each_others_text_forth_and_back(host: Host, publisher: Publisher, path: Path) -> None:
    item = {**THREE, "block#b": {**THREE["block#b"], "content": "z\n"}}
    publisher.publish("1.0.0", story(item))
    host.run()
    first = path.read_text()
    publisher.publish("2.0.0", story(THREE))
    host.run()
    assert path.read_text() != first
    publisher.publish("3.0.0", story(item))
    host.run()
    assert path.read_text() == first


class Died(BaseException):
    """Raised to simulate a killed run."""


@pytest.mark.parametrize("is_written", [False, True])
def test_kill_at_the_write_keeps_the_records(
    host: Host, publisher: Publisher, path: Path, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("1.0.0", story(THREE))
    original = LocalSystem.replace_file

    def dying(self: LocalSystem, *arguments: Any, **named: Any) -> None:
        if is_written:
            original(self, *arguments, **named)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(LocalSystem, "replace_file", dying)
        with pytest.raises(Died):
            host.run()
    assert path.read_text() == (AFTER if is_written else BEFORE)
    assert host.run().status == 0
    assert path.read_text() == AFTER
    publisher.publish("2.0.0", story({}))
    assert host.run().status == 0
    assert path.read_text() == BEFORE


def test_a_secret_line_is_in_no_receipt(host: Host, publisher: Publisher, path: Path) -> None:
    publisher.publish("1.0.0", story({"line#l": {"line": "password=canary", "sensitive": True}}))
    host.run()
    assert "canary" in path.read_text()
    for receipt in (host.state / "edits").iterdir():
        assert "canary" not in receipt.read_text()
    publisher.publish("2.0.0", story({}))
    host.run()
    assert path.read_text() == BEFORE


@pytest.mark.everything
@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"path": 1}'])
@pytest.mark.representatives(1)
def test_damaged_receipt_keeps_edits_and_new_edits_work(
    host: Host, publisher: Publisher, path: Path, damage: bytes
) -> None:
    publisher.publish("1.0.0", story(THREE))
    host.run()
    (receipt,) = (host.state / "edits").iterdir()
    receipt.write_bytes(damage)
    publisher.publish("2.0.0", story({"line#new": {"line": "new"}}))
    assert host.run().status == 0
    assert path.read_text() == f"{AFTER}new\n"
    publisher.publish("3.0.0", story({}))
    assert host.run().status == 0
    assert path.read_text() == AFTER
