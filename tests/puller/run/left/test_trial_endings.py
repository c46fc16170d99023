"""Every type of resource through all endings of a trial, with other bundles and manual changes in between."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from tests.simulators import archivewriter as writer

if TYPE_CHECKING:
    from tests.puller.run.left.simulated_tools import Tools
    from tests.support.stories import Host, Publisher, WebServer

MACHINE = "{{ facts.machine }}"
OWNED = {"owner": os.geteuid(), "group": os.getegid()}
FAILS = {"exec": [{"fails": {"command": "false"}}]}
BAD = {"exec": [{"true": {"health_checks": [{"command": "sh -c 'exit 2'"}]}}]}
TREE = {"tree/b": b"1\n", "tree/sub/d": b"1\n"}
SHARED = "# by hand\n[one]\n"


def file(name: str, content: str, **more: Any) -> dict[str, Any]:
    return {"file": [{f"{MACHINE}/{name}": {**OWNED, "mode": "0644", "content": content, **more}}]}


def tree(**more: Any) -> dict[str, Any]:
    output = {**OWNED, "mode": "0644", "ensure": "directory", "source": "tree", "recurse": True, **more}
    return {"file": [{f"{MACHINE}/T": output}]}


def setting(key: str, value: str, path: str = "shared.ini", **more: Any) -> dict[str, Any]:
    output = {
        "path": f"{MACHINE}/{path}",
        "format": "ini",
        "section": "one",
        "key": key,
        "value": value,
        **more,
    }
    return {"setting": [{key: output}]}


OBJECTS: dict[str, dict[str, Any]] = {
    "file": file("T", "1\n"),
    "directory": {"file": [{f"{MACHINE}/T": {**OWNED, "mode": "0755", "ensure": "directory"}}]},
    "link": {"link": [{f"{MACHINE}/T": {"target": "z"}}]},
    "tree": tree(),
    "tree that purges": tree(purge=True, force=True),
    "scaffold": {
        "scaffold": [{f"{MACHINE}/T": {"source": "tree", "engine": "jinja", "mode": "0644", **OWNED}}]
    },
    "line": {"line": [{"l": {"path": f"{MACHINE}/shared.ini", "line": "# mine"}}]},
    "line of a new file": {"line": [{"l": {"path": f"{MACHINE}/T", "line": "# mine", "create": True}}]},
    "block": {"block": [{"b": {"path": f"{MACHINE}/shared.ini", "content": "# x\n# y\n"}}]},
    "setting": setting("mine", "1"),
    "cron": {"cron": [{"job": {"schedule": "@hourly", "command": "true"}}]},
    "kernel module": {"kernel_module": [{"foo": {"options": ["a=1"]}}]},
    "sysctl": {"sysctl": [{"vm.swappiness": {"value": 10, "path": f"{MACHINE}/sysctl.conf"}}]},
}
TOOLS = {
    "package": {"package": [{"tool": {"provider": "apt"}}]},
    "user": {"user": [{"joe": {"manage_home": False}}]},
    "group": {"group": [{"web": {"gid": 5001}}]},
    "mount": {"mount": [{"TOOLS/mnt/a": {"device": "tmpfs", "type": "tmpfs", "options": ["size=5m"]}}]},
    "mount in fstab": {"mount": [{"TOOLS/mnt/a": {"device": "tmpfs", "type": "tmpfs", "ensure": "present"}}]},
}
"""Objects that simulated tools change."""
KINDS = [*OBJECTS, *(pytest.param(kind, marks=pytest.mark.root) for kind in TOOLS)]


class Story:
    """A host, its machine, and its published versions."""

    def __init__(self, host: Host, publisher: Publisher) -> None:
        self.host, self.publisher, self.machine = host, publisher, host.machine
        host.machine.mkdir()
        (host.machine / "cron.d").mkdir()
        (host.machine / "shared.ini").write_text(SHARED)
        (host.machine / "sysctl.conf").write_text("# by hand\n")
        self.tools: Tools | None = None

    def resource(self, kind: str) -> dict[str, Any]:
        """Return the resource of a kind for this host."""
        if kind in OBJECTS:
            return OBJECTS[kind]
        assert self.tools is not None
        result: dict[str, Any] = json.loads(
            json.dumps(TOOLS[kind]).replace("TOOLS", str(self.tools.directory))
        )
        return result

    def publish(self, version: str, *resources: dict[str, Any], name: str = "web", **more: Any) -> None:
        manifest = {"removed": "absent", "resources": [file(f"z-{name}", "z"), *resources], **more}
        self.publisher.publish(f"{version}.0.0", json.dumps(manifest), name=name, files=TREE)

    def run(self, *expected: int) -> str:
        outcome = self.host.run()
        assert outcome.status in (expected or (0,)), outcome.output
        return str(outcome.output)

    def settle(self, *expected: int) -> dict[str, object]:
        """Compare a dry run with a run, check that the next run is in sync, and return the objects of the machine."""
        predicted = self.host.run("--noop").output.count(" would change ensure=")
        output = self.run(*expected)
        changed = output.count(" changed ensure=")
        assert changed == predicted, output
        result = self.picture()
        again = self.host.run("--detailed-exitcodes")
        assert again.status in (0, 20), again.output
        assert self.picture() == result
        return result

    def picture(self) -> dict[str, object]:
        """Return kinds and contents. Puller keeps empty directories of the kernel's configuration by design."""
        result: dict[str, object] = {}
        for path in sorted(self.machine.rglob("*")):
            mode = path.lstat().st_mode
            content = os.readlink(path) if stat.S_ISLNK(mode) else path.read_text() if path.is_file() else ""
            name = str(path.relative_to(self.machine))
            if content or not name.startswith(("etc", "proc")):
                result[name] = (stat.S_IFMT(mode), content)
        return {**result, **(self.tools.picture() if self.tools else {})}

    def left(self) -> list[str]:
        leftovers = [
            item for bundle in self.host.status()["bundles"] for item in bundle.get("left_behind", ())
        ]
        return [item["reference"] for item in leftovers]


@pytest.mark.everything
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.representatives(1)
@pytest.mark.sample(6)
def test_an_object_of_a_trial_stays_where_the_next_declares_it(story: Story, kind: str) -> None:
    story.publish("1")
    story.run()
    story.publish("2", story.resource(kind), FAILS)
    story.run(6)
    on_trial = story.picture()
    story.publish("3", story.resource(kind))
    assert story.settle() == on_trial
    assert story.left() == []
    story.publish("4")
    after = story.settle()
    story.publish("5", story.resource(kind))
    assert story.settle() == on_trial
    story.publish("6")
    assert story.settle() == after


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.representatives(1)
def test_an_object_of_a_trial_goes_with_the_next_version(story: Story, kind: str) -> None:
    story.publish("1")
    story.run()
    before = story.picture()
    story.publish("2", story.resource(kind), FAILS)
    story.run(6)
    story.publish("3")
    after = story.settle()
    assert {name: value for name, value in after.items() if "proc/" not in name} == {
        name: value for name, value in before.items() if "proc/" not in name
    }
    assert story.left() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["given up", "rolled back"])
@pytest.mark.representatives(2)
@pytest.mark.sample(12)
def test_a_rollback_leads_to_the_state_before(story: Story, kind: str, ending: str) -> None:
    story.publish("1")
    story.run()
    before = story.picture()
    story.publish("2", story.resource(kind), BAD if ending == "given up" else FAILS)
    story.run(7 if ending == "given up" else 6)
    if ending == "rolled back":
        story.host.puller("rollback", "web")
    assert story.picture() == before
    assert story.settle(20) == before
    assert story.left() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.representatives(1)
@pytest.mark.sample(6)
def test_a_leftover_of_a_trial_does_not_come_back(story: Story, kind: str) -> None:
    story.publish("1", story.resource(kind))
    story.run()
    for version in ("2", "3"):
        story.publish(version, FAILS)
        story.run(4)
        story.run(4)
    story.publish("4")
    gone = story.settle()
    assert not any(
        name == "T" or name.startswith(("T/", "cron.d/")) for name in gone if kind != "line of a new file"
    )
    assert story.left() == []
    story.publish("5", file("more", "x"))
    assert {name: each for name, each in story.settle().items() if name != "more"} == gone


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["given up", "rolled back"])
@pytest.mark.representatives(1)
@pytest.mark.sample(12)
def test_a_leftover_of_a_trial_is_back_after_a_rollback(story: Story, kind: str, ending: str) -> None:
    story.publish("1", story.resource(kind))
    story.run()
    before = story.picture()
    story.publish("2", BAD if ending == "given up" else FAILS)
    story.run(7 if ending == "given up" else 4)
    if ending == "rolled back":
        story.host.puller("rollback", "web")
    assert story.picture() == before
    assert story.settle(20) == before
    story.publish("3")
    story.settle()
    assert story.left() == []


SHARED_KINDS = ["line", "block", "setting"]


@pytest.mark.everything
@pytest.mark.parametrize("kind", SHARED_KINDS)
@pytest.mark.parametrize("ending", ["replaced", "rolled back"])
@pytest.mark.parametrize("hand", ["a person", "another bundle"])
@pytest.mark.representatives(1)
def test_edits_of_others_during_a_trial_stay(story: Story, kind: str, ending: str, hand: str) -> None:
    story.host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    story.publish("1", name="web")
    story.publish("1", setting("gone", "1"), setting("kept", "1"), name="base")
    story.run()
    story.publish("2", OBJECTS[kind], FAILS)
    story.run(6)
    shared = story.machine / "shared.ini"
    if hand == "a person":
        shared.write_text(shared.read_text().replace("# by hand", "# by hand\n# a person"))
    else:
        story.publish("2", setting("kept", "2"), setting("new", "1"), name="base")
        story.run(6)
    if ending == "rolled back":
        story.host.puller("rollback", "web")
    else:
        story.publish("3")
    story.settle(0, 20)
    text = shared.read_text()
    expected = ["kept = 1", "gone = 1"] if hand == "a person" else ["kept = 2", "new = 1"]
    extra = ["# a person"] if hand == "a person" else []
    assert sorted(text.splitlines()) == sorted(["# by hand", *extra, "[one]", *expected])


@pytest.mark.everything
def test_replaced_path_stays_and_fails_no_run(story: Story) -> None:
    story.publish("1")
    story.run()
    (story.machine / "T").write_text("before\n")
    story.publish("2", OBJECTS["file"], FAILS)
    story.run(6)
    (story.machine / "T").unlink()
    (story.machine / "T").mkdir()
    (story.machine / "T/precious").touch()
    outcome = story.host.puller("rollback", "web")
    assert "it has been changed outside Puller since then" in outcome.output
    story.settle(20)
    assert (story.machine / "T/precious").exists()


@pytest.mark.everything
def test_replacement_of_a_leftover_stays(story: Story) -> None:
    """The second version declares a link with ``keep`` at the path of a leftover file."""
    story.publish("1", OBJECTS["file"])
    story.run()
    story.publish("2", {"link": [{f"{MACHINE}/T": {"target": "z", "removed": "keep", "force": True}}]})
    story.settle()
    story.publish("3")
    story.settle()
    assert os.readlink(story.machine / "T") == "z"
    assert [reference.partition("#")[0] for reference in story.left()] == ["link"]


def test_a_first_version_on_trial_is_undone_by_the_next(story: Story) -> None:
    before = story.picture()
    story.publish("1", *(OBJECTS[kind] for kind in ("file", "line", "setting")), FAILS)
    story.run(6)
    story.publish("2")
    after = story.settle()
    assert {name: each for name, each in after.items() if name != "z-web"} == before
    assert story.left() == []


def archive(web: WebServer, version: int, digest: str) -> dict[str, Any]:
    output = {
        "url": f"{web.url}/archives/{version}.tar.gz",
        "checksum": digest,
        "extract_parent": f"{MACHINE}/app",
    }
    return {
        "archive": [{f"{MACHINE}/app-{version}.tar.gz": {**OWNED, **output, "creates": f"{MACHINE}/app/bin"}}]
    }


@pytest.mark.everything
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("on_trial", [True, False])
@pytest.mark.representatives(1)
def test_an_application_stays_until_its_successor_is_there(
    story: Story, web: WebServer, is_there: bool, on_trial: bool
) -> None:
    """``on_trial``: the version with the first archive has not passed."""
    import hashlib

    story.publish("1")
    story.run()
    data = {
        number: writer.gzip(writer.tar(writer.Member("bin", f"{number}\n".encode()))) for number in (1, 2)
    }
    digests = {number: hashlib.sha256(each).hexdigest() for number, each in data.items()}
    story.publish("2", archive(web, 1, digests[1]), *([FAILS] if on_trial else []))
    (web.root / "archives").mkdir(exist_ok=True)
    (web.root / "archives/1.tar.gz").write_bytes(data[1])
    story.run(6 if on_trial else 0)
    story.publish("3", archive(web, 2, digests[2]))
    if is_there:
        (web.root / "archives").mkdir(exist_ok=True)
        (web.root / "archives/2.tar.gz").write_bytes(data[2])
    story.run(0 if is_there else 4)
    assert (story.machine / "app/bin").read_text() == ("2\n" if is_there else "1\n")
    assert (story.machine / "app-1.tar.gz").exists() is not is_there
    assert bool(story.left()) is not is_there


@pytest.mark.everything
def test_exit_status_of_several_bundles_counts_all_changes(story: Story) -> None:
    story.host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    story.publish("1", FAILS)
    story.publish("1", name="base")
    story.run(6)
    story.publish("2", file("more", "x"), name="base")
    story.run(6)
    story.run(4)


def test_reversals_are_counted_beside_resources(story: Story) -> None:
    story.publish("1", OBJECTS["tree"], OBJECTS["line"])
    story.run()
    story.publish("2")
    output = story.run()
    assert "web 2.0.0: 1 resource, 1 stable, 0 changed, 2 reverted in" in output
    assert str(story.host.state) not in json.dumps(story.host.report()["bundles"])
    assert {
        event["reversal"] for event in story.host.report()["bundles"][0]["events"] if "reversal" in event
    } == {True}


def test_a_leftover_goes_before_the_command_that_subscribed(story: Story) -> None:
    """The command, like many services, fails while the old file exists."""
    checks = {"command": f"sh -c 'test ! -e {MACHINE}/old && test -e {MACHINE}/new'", "refreshonly": True}

    def reload(name: str) -> dict[str, Any]:
        return {"exec": [{"reload": {**checks, "subscribe": [f"file#{MACHINE}/{name}"]}}]}

    story.publish("1", file("old", "1"))
    story.run()
    story.publish("2", file("old", "1"), reload("old"))
    story.run()
    story.publish("3", file("new", "1"), reload("new"))
    story.run()
    assert not (story.machine / "old").exists()


@pytest.mark.everything
def test_a_package_that_was_never_installed_is_not_listed(story: Story) -> None:
    """The version that fixes the release prints no warnings either."""
    story.publish("1")
    story.run()
    story.publish("2", {"link": [{f"{MACHINE}/missing/l": {"target": "x"}}]}, OBJECTS["file"], FAILS)
    story.run(6)
    story.publish("3", OBJECTS["file"])
    output = story.run()
    assert "WARN" not in output
    assert "not_undone" not in story.host.report()["bundles"][0]


def shared_by(story: Story) -> str:
    return (story.machine / "shared.ini").read_text()


def edit(name: str, kind: str = "setting", value: str = "1", path: str = "shared.ini") -> dict[str, Any]:
    """Return a setting or line that other resources declare under other names."""
    output: dict[str, Any] = {"line": "# shared"}
    if kind == "setting":
        output = {"format": "ini", "section": "one", "key": "k", "value": value}
    return {kind: [{name: {"path": f"{MACHINE}/{path}", **output}}]}


@pytest.fixture
def two(story: Story) -> Story:
    """Return a story with two passed bundles."""
    story.host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    story.publish("1", name="web")
    story.publish("1", name="base")
    story.run()
    return story


@pytest.mark.everything
@pytest.mark.parametrize("kind", ["setting", "line"])
@pytest.mark.parametrize("is_later", [True, False])
@pytest.mark.representatives(1)
def test_an_edit_of_a_trial_passes_to_who_declares_it_too(two: Story, kind: str, is_later: bool) -> None:
    """``is_later``: a run applies the other bundle before the version on trial is replaced."""
    two.publish("2", edit("web-k", kind), FAILS)
    two.run(6)
    two.publish("2", edit("base-k", kind), name="base")
    if is_later:
        two.run(6, 4)
    two.publish("3")
    two.settle()
    assert shared_by(two) != SHARED
    assert two.left() == []
    two.publish("3", name="base")
    two.settle()
    assert shared_by(two) == SHARED
    assert two.left() == []
    assert not [*(two.host.state / "edits").glob("*")]


@pytest.mark.everything
@pytest.mark.parametrize("kind", ["setting", "line"])
@pytest.mark.parametrize("is_trial", [True, False])
@pytest.mark.parametrize(
    "spellings", [("shared.ini", "alias/shared.ini"), ("alias/shared.ini", "shared.ini")]
)
@pytest.mark.representatives(1)
def test_an_edit_passes_to_another_spelling_of_its_file(
    two: Story, kind: str, is_trial: bool, spellings: tuple[str, str]
) -> None:
    """``is_trial``: the version that made the edit has not passed."""
    (two.machine / "alias").symlink_to(".")
    two.publish("2", edit("web-k", kind, path=spellings[0]), *([FAILS] if is_trial else []))
    two.run(6 if is_trial else 0)
    two.publish("2", edit("base-k", kind, path=spellings[1]), name="base")
    two.run(4 if is_trial else 0)
    two.publish("3")
    two.settle()
    assert shared_by(two) != SHARED
    assert two.left() == []
    two.publish("3", name="base")
    two.settle()
    assert shared_by(two) == SHARED
    assert two.left() == []
    assert not [*(two.host.state / "edits").glob("*")]


@pytest.mark.everything
@pytest.mark.parametrize("kind", ["setting", "line"])
@pytest.mark.parametrize("value", ["1", "2"])
@pytest.mark.parametrize("ending", ["replaced", "rolled back"])
@pytest.mark.representatives(1)
def test_a_leftover_that_a_trial_declares_goes_after_it(
    two: Story, kind: str, value: str, ending: str
) -> None:
    two.publish("2", edit("web-k", kind), name="web")
    two.settle()
    two.publish("2", edit("base-k", kind), FAILS, name="base")
    two.run(4)
    two.publish("3", name="web")
    two.publish("3", edit("base-k", kind, value), FAILS, name="base")
    two.run(4, 6)
    if value == "1":  # otherwise Puller removes it before the trial creates it again
        assert two.left() == [f"{kind}#web-k"]
    if ending == "rolled back":
        two.host.puller("rollback", "base")
    else:
        two.publish("4", name="base")
    two.settle(0, 20)
    assert shared_by(two) == SHARED
    assert two.left() == []


@pytest.mark.everything
@pytest.mark.parametrize("removed", ["keep", "absent"])
@pytest.mark.representatives(1)
def test_a_renamed_edit_is_removed_as_its_last_name_says(two: Story, removed: str) -> None:
    two.publish("2", edit("old"))
    two.settle()
    two.publish("3", edit("new"), removed=removed)
    two.settle()
    assert two.left() == []
    two.publish("4")
    two.settle()
    assert (shared_by(two) == SHARED) is (removed == "absent")
    assert two.left() == ([] if removed == "absent" else ["setting#new"])


@pytest.mark.everything
@pytest.mark.parametrize("removed", ["keep", "absent"])
@pytest.mark.parametrize("is_tree", [True, False])
@pytest.mark.representatives(1)
def test_declaration_of_a_passed_bundle_is_not_restored(two: Story, removed: str, is_tree: bool) -> None:
    """Another bundle declares a path during a trial, and drops it before the version on trial is replaced."""
    if is_tree:
        (two.machine / "T/sub").mkdir(parents=True)
        (two.machine / "T/sub/d").write_text("by hand\n")
    else:
        (two.machine / "T").write_text("by hand\n")
    absent = {"file": [{f"{MACHINE}/T": {"ensure": "absent", "force": True}}]}
    two.publish("2", absent, FAILS, name="web")
    two.run(6)
    two.publish("2", absent, name="base", removed=removed)
    two.run(4)
    two.publish("3", name="base")
    two.run(4)
    two.publish("3", name="web")
    two.settle()
    assert not (two.machine / "T").exists()


@pytest.mark.everything
def test_nothing_is_restored_below_an_absent_path(two: Story) -> None:
    (two.machine / "T/sub").mkdir(parents=True)
    (two.machine / "T/sub/d").write_text("by hand\n")
    absent = {"file": [{f"{MACHINE}/T": {"ensure": "absent", "force": True}}]}
    two.publish("2", absent, FAILS, name="web")
    two.run(6)
    two.publish("3", name="web")
    two.publish("2", absent, name="base")
    two.settle()
    assert not (two.machine / "T").exists()


@pytest.mark.everything
def test_a_line_of_a_person_stays_through_two_trials(story: Story) -> None:
    """The second trial edits the same file, and an operator rolls it back."""
    story.publish("1", OBJECTS["setting"], OBJECTS["block"], FAILS)
    story.run(6)
    shared = story.machine / "shared.ini"
    shared.write_text(f"{shared.read_text()}# a person\n")
    story.publish("2", OBJECTS["line"], FAILS)
    story.run(6)
    assert "# a person" in shared.read_text()
    story.host.puller("rollback", "web")
    assert "# a person" in shared.read_text()
