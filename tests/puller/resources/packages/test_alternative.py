"""The alternative resource, with Debian's real tool in a private directory: every state, kills, rejected input."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event, State
from puller.resources.base import PropertyError
from puller.resources.packages.alternative import Alternative, Candidate, parse_display
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from tests.puller.resources.conftest import Make
from tests.simulators.alternatives import TOOL, Group, LookingOnly, RedHatGroup
from tests.support.sweeps import Sweep

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs update-alternatives")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Return a machine with three programs, and no group."""
    for name in ("one", "two", "own", "one.1", "own.1"):
        (tmp_path / name).write_text("")
    machine = Group(tmp_path)
    machine.redirect(monkeypatch)
    return machine


def install(machine: Group) -> None:
    """Register two candidates, as packages do. The second one has the higher priority."""
    root = machine.root
    slave = ["--slave", f"{root}/editor.1", "editor.1", f"{root}/one.1"]
    machine.tool("--install", f"{root}/editor", "editor", f"{root}/one", "10", *slave)
    machine.tool("--install", f"{root}/editor", "editor", f"{root}/two", "20")


def choose(machine: Group, name: str) -> None:
    install(machine)
    machine.tool("--set", "editor", f"{machine.root}/{name}")


def without_link(machine: Group) -> None:
    choose(machine, "one")
    (machine.root / "editor").unlink()


def dangling(machine: Group) -> None:
    choose(machine, "one")
    (machine.root / "etc/editor").unlink()


def with_file(machine: Group) -> None:
    choose(machine, "one")
    (machine.root / "editor").unlink()
    (machine.root / "editor").write_text("precious")


STATES = {
    "no group": lambda machine: None,
    "automatic": install,
    "one chosen": lambda machine: choose(machine, "one"),
    "two chosen": lambda machine: choose(machine, "two"),
    "without its link": without_link,
    "without its inner link": dangling,
    "a file in place of the link": with_file,
}
DESIRED: dict[str, dict[str, Any]] = {
    "one": {"path": "ROOT/one"},
    "automatic": {"auto": True},
    "own": {"path": "ROOT/own", "link": "ROOT/editor", "priority": 5},
    "own by priority": {"path": "ROOT/own", "link": "ROOT/editor", "priority": 50, "auto": True},
    "own with a page": {
        "path": "ROOT/own",
        "link": "ROOT/editor",
        "priority": 50,
        "slaves": {"editor.1": {"link": "ROOT/editor.1", "path": "ROOT/own.1"}},
    },
    "absent": {"ensure": "absent"},
}
RESULTS = {"one": "one", "automatic": "two", "own": "own", "own by priority": "own", "own with a page": "own"}


def apply(machine: LocalSystem, root: Path, properties: dict[str, Any], *, noop: bool = False) -> Event:
    """Apply an alternative. Return its event."""
    text = yaml.safe_dump({"resources": [{"alternative": [{"editor": properties}]}]}).replace(
        "ROOT", str(root)
    )
    (root / "manifest.yaml").write_text(text)
    manifest = load_manifest(root / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
    settings = Settings(noop=noop, state_directory=root / "state")
    (event,) = Engine(manifest, machine, lambda url: b"", PendingRefreshes(None, "test"), settings).apply()
    return event


def picture(machine: Group) -> dict[str, str]:
    """Return the links and files of the machine, without logs and records."""
    root, result = machine.root, {}
    for path in sorted({*root.glob("editor*"), *root.glob("etc/*"), *root.glob("groups/*")}):
        result[path.name if path.parent == root else f"{path.parent.name}/{path.name}"] = (
            os.readlink(path) if path.is_symlink() else path.read_text()
        )
    return result


def is_refused(state: str, desired: str) -> str:
    if state == "no group" and desired in ("one", "automatic"):
        return "alternative editor is unknown; give link and priority to register it"
    if state == "a file in place of the link" and desired != "absent":
        return "editor is not a link, and only a link is replaced; move it away"
    return ""


@pytest.mark.parametrize("desired", DESIRED)
@pytest.mark.parametrize("state", STATES)
def test_every_state_converges_as_the_dry_run_predicts(machine: Group, state: str, desired: str) -> None:
    root, properties = machine.root, DESIRED[desired]
    STATES[state](machine)
    before = picture(machine)
    dry = apply(LookingOnly(root), root, properties, noop=True)
    assert picture(machine) == before
    real = apply(machine, root, properties)
    assert dry.differences == real.differences
    if error := is_refused(state, desired):
        assert real.state is dry.state is State.FAILED
        assert error in str(real.errors)
        assert picture(machine) == before
        return
    assert real.errors == dry.errors == []
    assert bool(real.differences) is (picture(machine) != before)
    after = picture(machine)
    again = apply(machine, root, properties)
    assert (again.state, picture(machine)) == (State.STABLE, after)
    if desired in RESULTS:
        assert os.readlink(root / "editor") == f"{root}/etc/editor"
        assert os.readlink(root / "etc/editor") == f"{root}/{RESULTS[desired]}"
    if desired == "own with a page":
        assert (root / "editor.1").resolve() == root / "own.1"
    if desired == "absent" and state != "no group":
        assert "Status: auto" in machine.tool("--query", "editor").stdout


@pytest.mark.parametrize("state", ["no group", "automatic", "one chosen"])
def test_versions_and_removal_return_to_automatic_mode(machine: Group, state: str) -> None:
    STATES[state](machine)
    root, before = machine.root, picture(machine)
    for version in ("own", "own with a page", "own by priority", "own"):
        assert apply(machine, root, DESIRED[version]).errors == []
        assert apply(machine, root, DESIRED[version]).state is State.STABLE
    other = {"path": "ROOT/two", "link": "ROOT/editor", "priority": 20}
    assert apply(machine, root, other).errors == []
    assert f"{root}/own" not in machine.tool("--query", "editor").stdout, "the earlier candidate is removed"
    assert apply(machine, root, DESIRED["absent"]).errors == []
    assert apply(machine, root, DESIRED["absent"]).state is State.STABLE
    if state != "one chosen":
        assert picture(machine) == before
    else:
        assert os.readlink(root / "etc/editor") == f"{root}/two"


def test_candidate_of_a_package_stays_after_the_removal(machine: Group) -> None:
    install(machine)
    declared = {"path": "ROOT/one", "link": "ROOT/editor", "priority": 10}
    declared["slaves"] = {"editor.1": {"link": "ROOT/editor.1", "path": "ROOT/one.1"}}
    before = picture(machine)
    apply(machine, machine.root, declared)
    assert picture(machine) != before
    apply(machine, machine.root, DESIRED["absent"])
    assert picture(machine) == before


@pytest.mark.parametrize(
    "following",
    [{"ensure": "absent"}, {"path": "ROOT/two"}, {"path": "ROOT/own", "link": "ROOT/editor", "priority": 5}],
)
def test_registration_of_a_package_is_restored(machine: Group, following: dict[str, object]) -> None:
    root = machine.root
    install(machine)
    before = machine.tool("--query", "editor").stdout
    declared = {"path": "ROOT/one", "link": "ROOT/editor", "priority": 77}  # without its slave
    assert apply(machine, root, declared).state is State.CHANGED
    assert apply(machine, root, {**declared, "priority": 78}).state is State.CHANGED
    assert before not in machine.tool("--query", "editor").stdout
    dry = apply(LookingOnly(root), root, following, noop=True)
    real = apply(machine, root, following)
    assert (dry.differences, real.errors) == (real.differences, [])
    assert apply(machine, root, following).state is State.STABLE
    blocks = before.split("\n\n")[1:]
    assert blocks
    assert all(block.strip() in machine.tool("--query", "editor").stdout for block in blocks)
    assert "originals" not in (root / "state/alternatives.json").read_text()


def test_unknown_candidate_names_the_known_ones(machine: Group) -> None:
    install(machine)
    for noop in (False, True):
        system = LookingOnly(machine.root) if noop else machine
        event = apply(system, machine.root, {"path": "ROOT/own"}, noop=noop)
        assert event.state is State.FAILED
        assert "own', which is not a candidate of editor" in str(event.errors)
        assert f"expected one of {machine.root}/one, {machine.root}/two" in str(event.errors)
    event = apply(machine, machine.root, {"path": "ROOT/missing", "link": "ROOT/x", "priority": 1})
    assert "which does not exist" in str(event.errors)


class Killed(BaseException):
    """Raised where a test simulates a kill."""


class KilledGroup(Group):
    """A machine that is killed before or after the command with this number."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(root)
        self.at = at

    def execute(self, command: Command) -> Completed:
        for act in (lambda: None, lambda: super(KilledGroup, self).execute(command)):
            completed = act()
            self.at -= 1
            if self.at == -1:
                raise Killed
        assert completed is not None
        return completed


@pytest.mark.parametrize(
    ("first", "then"), [("absent", "own"), ("own", "one"), ("own", "other"), ("own with a page", "absent")]
)
def test_run_after_a_kill_converges(
    tmp_path: Path, machine: Group, sweep: Sweep, monkeypatch: pytest.MonkeyPatch, first: str, then: str
) -> None:
    desired = {**DESIRED, "other": {"path": "ROOT/two", "link": "ROOT/editor", "priority": 20}}

    def prepare(name: str) -> Path:
        root = tmp_path / name
        (root / "state").mkdir(parents=True)
        for program in ("one", "two", "own", "one.1", "own.1"):
            (root / program).write_text("")
        Group(root).redirect(monkeypatch)
        install(Group(root))
        apply(Group(root), root, desired[first])
        return root

    def result(root: Path) -> str:
        return str(picture(Group(root))).replace(str(root), "ROOT")

    expected = prepare("expected")
    apply(Group(expected), expected, desired[then])

    def is_killed(step: int) -> bool:
        root = prepare(f"step{step}")
        try:
            apply(KilledGroup(root, step), root, desired[then])
        except Killed:
            assert apply(Group(root), root, desired[then]).errors == []
            assert result(root) == result(expected)
            assert apply(Group(root), root, desired[then]).state is State.STABLE
            apply(Group(root), root, DESIRED["absent"])
            assert f"{root}/own" not in Group(root).tool("--query", "editor").stdout
            return True
        return False

    assert sweep(is_killed) >= 2


# Red Hat's tool


DISPLAY = """python - status is manual.
 link currently points to /usr/bin/python3
/usr/libexec/no-python - priority 404
 slave unversioned-python-man: (null)
/usr/bin/python3 - priority 300
 follower unversioned-python-man: /usr/share/man/man1/python3.1.gz
/usr/bin/python3.12 - family python priority -5
Current `best' version is /usr/libexec/no-python.
"""


def test_output_of_the_tool_of_red_hat_is_read() -> None:
    state = parse_display(DISPLAY)
    assert (state.mode, state.path, state.best) == ("manual", "/usr/bin/python3", "/usr/libexec/no-python")
    assert dict(state.candidates) == {
        "/usr/libexec/no-python": Candidate(404),
        "/usr/bin/python3": Candidate(300, {"unversioned-python-man": "/usr/share/man/man1/python3.1.gz"}),
        "/usr/bin/python3.12": Candidate(-5),
    }
    assert parse_display(DISPLAY.replace("manual", "auto")).mode == "auto"


@pytest.mark.parametrize("desired", DESIRED)
@pytest.mark.parametrize("state", ["no group", "automatic", "one chosen", "two chosen"])
@pytest.mark.representatives(6)
def test_every_state_converges_with_the_tool_of_red_hat(
    machine: Group, monkeypatch: pytest.MonkeyPatch, state: str, desired: str
) -> None:
    STATES[state](machine)
    red_hat = RedHatGroup(machine.root)
    red_hat.redirect(monkeypatch)
    before = picture(machine)
    real = apply(red_hat, machine.root, DESIRED[desired])
    if error := is_refused(state, desired):
        assert error in str(real.errors)
        assert picture(machine) == before
        return
    assert real.errors == []
    assert bool(real.differences) is (picture(machine) != before)
    assert apply(red_hat, machine.root, DESIRED[desired]).state is State.STABLE
    if desired in RESULTS:
        assert os.readlink(machine.root / "etc/editor") == f"{machine.root}/{RESULTS[desired]}"
    apply(red_hat, machine.root, DESIRED["absent"])
    assert "own" not in machine.tool("--query", "editor").stdout


# Errors at load


def messages(errors: Iterable[PropertyError]) -> str:
    return "; ".join(map(str, errors))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ensure": "selected"}, "ensure is 'selected', expected present or absent"),
        ({"name": "a/b"}, "name is 'a/b', expected letters"),
        ({"name": "../editor"}, "expected letters"),
        ({"name": "--remove-all"}, "expected letters"),
        ({"name": ""}, "expected letters"),
        ({"name": "a\n"}, "expected letters"),
        ({"name": "a b"}, "expected letters"),
        ({"path": None}, "path is missing; or give auto: true"),
        ({"auto": True}, "path has no effect with auto: true; give link to register it"),
        ({"path": "bin/vim"}, "path is 'bin/vim', expected an absolute path"),
        ({"path": "/bin/../vim"}, "expected an absolute path"),
        ({"path": "/bin/vim\nx"}, "expected a path on one line"),
        ({"priority": 5}, "link is missing"),
        ({"link": "/usr/bin/editor"}, "priority is missing"),
        ({"link": "editor", "priority": 5}, "link is 'editor', expected an absolute path"),
        ({"slaves": {"a": {"link": "/a", "path": "/b"}}}, "link is missing"),
        (
            {"link": "/l", "priority": 1, "slaves": {"-a": {"link": "/a", "path": "/b"}}},
            "slaves is '-a', expected letters",
        ),
        (
            {"link": "/l", "priority": 1, "slaves": {"a": {"link": "a", "path": "/b"}}},
            "slaves is 'a', expected",
        ),
    ],
)
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        make(Alternative, {"name": "editor", "path": "/usr/bin/vim", **properties})
