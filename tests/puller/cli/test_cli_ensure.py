"""``puller ensure``, ``session``, ``state`` and the pipe, as scripts and programs use them."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from foundation.problems import ProblemCode
from puller.cli import main
from puller.resources import unit
from puller.resources.host import host_entry, hostname, timezone
from puller.resources.registry import type_names
from puller.system import commands, trusted_files
from tests.simulators.locales import make_locales, redirect_locales
from tests.simulators.swaps import SwappingSystem

IDS = ("--owner", str(os.geteuid()), "--group", str(os.getegid()), "--mode", "0644")
REQUEST = "io.choria.ccm.v1.resource.ensure.request"
RESPONSE = "io.choria.ccm.v1.resource.ensure.response"


class Ended(NamedTuple):
    """Exit status and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Puller = Callable[..., Ended]


@pytest.fixture
def puller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Puller:
    """Run ``puller`` in a temporary directory. ``session`` and ``provided`` (standard input) are keywords."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, session: str = "", provided: str = "") -> Ended:
        monkeypatch.setenv("PULLER_SESSION", session)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(provided.encode())))
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main(arguments)
        return Ended(int(ended.value.code or 0), out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def session(puller: Puller, tmp_path: Path) -> str:
    """The directory of a new session."""
    made = puller("session", "new", "--directory", "its session")
    assert made.stdout == f"export PULLER_SESSION='{tmp_path}/its session'\n"
    return f"{tmp_path}/its session"


def test_a_file_is_ensured_and_then_stable(puller: Puller, tmp_path: Path) -> None:
    """The reference ignores the owner that it receives."""
    line = ("ensure", "file", f"{tmp_path}/motd", "--content", "Hello\n", *IDS)
    dry = puller(*line, "--noop", "--diff")
    assert "would change ensure=present" in dry.stdout
    assert "+Hello" in dry.stdout
    assert not (tmp_path / "motd").exists()
    assert "changed ensure=present" in puller(*line).stdout
    assert (tmp_path / "motd").read_text() == "Hello\n"
    again = puller(*line, "--detailed-exitcodes")
    assert "stable ensure=present" in again.stdout
    assert again.returncode == 0
    assert puller("ensure", "file", f"{tmp_path}/motd", "absent").returncode == 0
    assert not (tmp_path / "motd").exists()


STATUSES = [
    (("exec", "true"), 0),
    (("exec", "true", "--detailed-exitcodes"), 2),
    (("exec", "true", "--noop", "--detailed-exitcodes"), 2),
    (("exec", "false"), 4),
    (("exec", "false", "--returns", "0", "--returns", "1"), 0),
    (("exec", "sh -c 'exit $CODE'", "--environment", "CODE=3", "--returns", "3"), 0),
    (("exec", "false", "--control-if", "1 > 2"), 0),
    (("exec", "true", "--check", "sh -c 'exit 2'", "--check-tries", "2", "--check-sleep", "0s"), 4),
    (("exec", "echo {{ data.port }}", "--set", "port=80"), 0),
    (("exec", "echo {{ facts.role }}", "--fact", "role=db"), 0),
    (("exec", "true", "--returns", "many"), 64),
    (("exec", "true", "--cwd", "here"), 64),
    (("exec", "true", "later"), 64),
    (("exec",), 64),
    (("exec", "true", "--no-such"), 64),
    (("no-such-type", "x"), 64),
    (("exec", "true", "--require", "exec#true"), 64),
]


@pytest.mark.parametrize(
    ("line", "status"), STATUSES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else None
)
def test_exit_status_states_the_result(puller: Puller, line: tuple[str, ...], status: int) -> None:
    """The reference exits with 0 although the resource failed."""
    ended = puller("ensure", *line)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.fixture
def machine_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory with the files of a machine, which the types use instead of those of this machine."""
    make_locales(tmp_path)
    redirect_locales(tmp_path, monkeypatch)
    SwappingSystem(tmp_path).redirect(monkeypatch)
    for name, text in {
        "zoneinfo/Europe/Berlin": "TZif2",
        "proc/kernel/hostname": "old\n",
        "etc/default/locale": "",
        "programs/locale": "#!/bin/sh\necho C\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "programs/locale").chmod(0o755)
    monkeypatch.setattr(commands, "SEARCH_PATH", f"{tmp_path}/programs:{commands.SEARCH_PATH}")
    monkeypatch.setattr(trusted_files, "PROC_SYS", str(tmp_path / "proc"))
    monkeypatch.setattr(host_entry, "HOSTS", str(tmp_path / "etc/hosts"))
    monkeypatch.setattr(hostname, "HOSTNAME", str(tmp_path / "etc/hostname"))
    monkeypatch.setattr(timezone, "ETC", str(tmp_path / "etc"))
    monkeypatch.setattr(timezone, "ZONES", str(tmp_path / "zoneinfo"))
    monkeypatch.setattr(unit, "DIRECTORY", str(tmp_path / "units"))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        (("hostname", "web01", "--hosts"), "etc/hostname"),
        (("host_entry", "db", "--address", "192.0.2.10", "--aliases", "store"), "etc/hosts"),
        (("timezone", "Europe/Berlin"), "etc/localtime"),
        (("locale", "C.UTF-8", "--variables", "LANG", "--variables", "LC_TIME"), "etc/default/locale"),
        (("swap", "DIR/file", "--size", "1M", "--no-active"), "file"),
        pytest.param(
            ("unit", "app.service", "--content", "[Service]\nExecStart=/bin/true\n"),
            "units/app.service",
            marks=pytest.mark.root,
        ),
    ],
)
def test_types_of_the_machine_are_ensured(
    puller: Puller, machine_files: Path, line: tuple[str, ...], changed: str
) -> None:
    def is_changed() -> bool:
        return os.path.lexists(place) and (place.is_symlink() or place.stat().st_size > 0)

    line, place = tuple(word.replace("DIR", str(machine_files)) for word in line), machine_files / changed
    assert "would change ensure=" in puller("ensure", *line, "--noop").stdout
    assert not is_changed()
    done = puller("ensure", *line)
    assert "changed ensure=" in done.stdout, done.stdout + done.stderr
    assert is_changed()
    assert "stable ensure=" in puller("ensure", *line).stdout
    state = yaml.safe_load(puller("state", *line[:2]).stdout)
    assert (state["type"], state["ensure"]) == (line[0], "present")


@pytest.mark.parametrize("line", [("ensure", "exec", "true"), ("state", "file", "/etc/motd")])
def test_a_working_directory_that_was_removed_is_named(
    puller: Puller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    ended = puller(*line)
    detail = "the working directory, where relative paths start, no longer exists"
    assert (ended.returncode, ended.stderr) == (64, f"puller: {detail}\n")
    monkeypatch.chdir(tmp_path)  # so that cleanup code can still read the working directory


def test_invalid_property_is_reported_without_manifest_lines(puller: Puller) -> None:
    ended = puller("ensure", "file", "/a", "--mode", "0999")
    assert ended.stderr.startswith("puller: file#/a: mode is '0999', expected octal digits")


def test_every_type_has_its_properties_as_options(puller: Puller) -> None:
    for name in type_names():
        helped = puller("ensure", name, "--help")
        assert helped.returncode == 0, helped.stderr
        assert "The property " not in helped.stdout, "every property has a docstring"
        assert "``" not in helped.stdout, "it is read by people"
    assert "--post KEY=VALUE" in puller("ensure", "scaffold", "--help").stdout
    assert "--scaffold-data KEY=VALUE" in puller("ensure", "scaffold", "--help").stdout
    assert "--file-data KEY=VALUE" in puller("ensure", "file", "--help").stdout
    assert "--enable / --no-enable" in puller("ensure", "service", "--help").stdout


def test_a_child_manifest_is_ensured(puller: Puller, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text("resources: [{exec: {name: 'test {{ data.x }} = 1'}}]")
    ended = puller("ensure", "apply", "child.yaml", "--apply-data", "x=1")
    assert (ended.returncode, ended.stdout.count(" changed ")) == (0, 2), ended.stdout


def test_paths_that_are_typed_may_lead_anywhere(puller: Puller, tmp_path: Path) -> None:
    """Relative paths start at the working directory, which is no bundle."""
    (tmp_path.parent / "motd").write_text("hello")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/child.yaml").write_text("resources: [{exec: {name: 'true'}}]")
    ended = puller("ensure", "file", f"{tmp_path}/a", "--source", "../motd", *IDS)
    assert (ended.returncode, (tmp_path / "a").read_text()) == (0, "hello"), ended.stderr
    ended = puller("ensure", "apply", "deep/../deep/child.yaml")
    assert "apply#deep/child.yaml changed" in ended.stdout


def test_references_mean_the_events_of_the_session(puller: Puller, session: str) -> None:
    puller("ensure", "exec", "true", "--alias", "fine", session=session)
    puller("ensure", "exec", "false", session=session)
    assert puller("ensure", "exec", "echo 1", "--require", "exec#fine", session=session).returncode == 0
    unmet = puller("ensure", "exec", "echo 2", "--require", "exec#false", session=session)
    assert unmet.returncode == 4
    assert "skipped due to unmet requirements" in unmet.stdout
    unknown = puller("ensure", "exec", "echo 3", "--require", "exec#none", session=session)
    assert unknown.returncode == 64
    assert "exec#none: has no event in the session" in unknown.stderr


def test_subscriber_is_refreshed_until_it_succeeds(puller: Puller, session: str, tmp_path: Path) -> None:
    def ensure_file(text: str) -> None:
        puller(
            "ensure", "file", f"{tmp_path}/conf", "--content", text, *IDS, "--alias", "conf", session=session
        )

    def reload() -> str:
        line = ("ensure", "exec", f"test -e {tmp_path}/up", "--refreshonly", "--subscribe", "file#conf")
        return puller(*line, session=session).stdout

    ensure_file("one")
    assert "failed" in reload()
    (tmp_path / "up").touch()
    ensure_file("one")
    assert "refreshed" in reload(), "the change is owed, although the file is stable since"
    assert "stable" in reload()
    ensure_file("two")
    assert "refreshed" in reload()


def test_the_report_of_a_session(puller: Puller, session: str) -> None:
    puller("ensure", "exec", "true", session=session)
    puller("ensure", "exec", "false", session=session)
    shown = puller("session", "report", "--format", "json", session=session)
    report: dict[str, Any] = json.loads(shown.stdout)
    assert [event["event"]["name"] for event in report["events"]] == ["true", "false"]
    assert (report["summary"]["changed"], report["summary"]["failed"]) == (1, 1)
    assert shown.returncode == 6
    text = puller("session", "report", "--session", session, "--remove")
    assert "2 resources, 0 stable, 1 changed, 1 failed" in text.stdout
    assert not Path(session).exists()
    assert puller("session", "report", session=session).returncode == 64
    assert puller("session", "report").returncode == 64


PIPE = [
    ("as JSON", {"name": "true"}, 0, {"changed": True, "failed": False}),
    ("as a list of names", [{"true": {"cwd": "/"}}], 0, {"changed": True}),
    ("a name with nothing", [{"true": None}], 0, {"changed": True}),
    ("one that fails", {"name": "false"}, 4, {"failed": True, "errors": ["exit code 1, expected 0"]}),
    ("guarded", {"name": "true", "creates": "/"}, 0, {"changed": False, "state": "stable"}),
]


@pytest.mark.parametrize(("name", "properties", "status", "state"), PIPE, ids=[case[0] for case in PIPE])
@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["JSON", "YAML"])
def test_a_request_is_answered(
    puller: Puller,
    session: str,
    name: str,
    properties: Any,
    status: int,
    state: dict[str, Any],
    write: Callable[[Any], str],
) -> None:
    """The reference always exits with 0 and does not record the event."""
    del name
    provided = write({"protocol": REQUEST, "type": "exec", "properties": properties})
    ended = puller("ensure", "api", "pipe", provided=provided, session=session)
    answer = json.loads(ended.stdout)
    assert (ended.returncode, answer["protocol"]) == (status, RESPONSE)
    assert {key: answer["state"][key] for key in state} == state
    assert ("error" in answer) is (status != 0)
    report = json.loads(puller("session", "report", "--format", "json", session=session).stdout)
    assert len(report["events"]) == 1


def test_an_answer_in_yaml(puller: Puller) -> None:
    provided = json.dumps({"protocol": REQUEST, "type": "exec", "properties": {"name": "true"}})
    ended = puller("ensure", "api", "pipe", "--yaml", "--noop", provided=provided)
    state = yaml.load(ended.stdout, yaml.CSafeLoader)["state"]
    assert (state["noop"], state["noop_message"]) == (True, "Would have executed")


BAD = [
    ("nothing", "", "request: is not a mapping with protocol, type and properties"),
    ("no JSON", '{"protocol": ', "request:2:1: did not find"),
    ("no YAML", "a: [\n", "request:2:1: did not find"),
    ("another protocol", {"protocol": "x"}, 'invalid protocol "x", expected ' + REQUEST),
    ("no protocol", {"type": "exec"}, 'invalid protocol ""'),
    ("no type", {"protocol": REQUEST, "properties": {"name": "x"}}, "missing type in request"),
    ("no properties", {"protocol": REQUEST, "type": "exec"}, "missing properties in request"),
    (
        "two resources",
        {"protocol": REQUEST, "type": "exec", "properties": [{"true": {}}, {"false": {}}]},
        "multiple resources found",
    ),
    (
        "defaults alone",
        {"protocol": REQUEST, "type": "exec", "properties": [{"defaults": {}}]},
        "no resources found",
    ),
    (
        "an unknown type",
        {"protocol": REQUEST, "type": "exek", "properties": {"name": "x"}},
        "unknown resource type 'exek' (did you mean 'exec'?)",
    ),
    (
        "an unknown property",
        {"protocol": REQUEST, "type": "exec", "properties": {"name": "x", "cdw": "/"}},
        "exec#x: cdw is not a property of exec (did you mean 'cwd'?)",
    ),
    (
        "a subscription of a type that has none",
        {"protocol": REQUEST, "type": "file", "properties": {"name": "/x", "subscribe": ["exec#y"]}},
        "file#/x: subscribe is not a property of file",
    ),
    (
        "a reference without a session",
        {"protocol": REQUEST, "type": "exec", "properties": {"name": "x", "require": ["exec#y"]}},
        "exec#y: references require a session; create one with: puller session new",
    ),
    (
        "a key too many",
        {"protocol": REQUEST, "type": "a", "properties": [1], "x": 1},
        "request: unknown key 'x'",
    ),
]


@pytest.mark.parametrize(("name", "request_", "message"), BAD, ids=[case[0] for case in BAD])
def test_bad_request_is_answered_with_the_error(
    puller: Puller, name: str, request_: Any, message: str
) -> None:
    """The reference reports an invalid protocol for each parse error, and exits with 0."""
    del name
    provided = request_ if isinstance(request_, str) else json.dumps(request_)
    ended = puller("ensure", "api", "pipe", provided=provided)
    answer = json.loads(ended.stdout)
    assert (ended.returncode, set(answer)) == (64, {"protocol", "error", "problems"})
    assert message in answer["error"]
    assert answer["error"] == ", ".join(problem["text"] for problem in answer["problems"])
    assert {problem["code"] for problem in answer["problems"]} <= set(ProblemCode)


@pytest.mark.parametrize(
    ("properties", "code", "property_"),
    [
        ({"/bin/false": {}}, ProblemCode.CHANGE_FAILED, ""),
        ({"/bin/true": {"timeoutt": "5s"}}, ProblemCode.UNKNOWN_PROPERTY, "timeoutt"),
        ({"/bin/true": {"timeout": "soon"}}, ProblemCode.INVALID_VALUE, "timeout"),
        ({"/bin/true": {"health_checks": [{"command": "false"}]}}, ProblemCode.HEALTH_CHECK_FAILED, ""),
    ],
    ids=str,
)
def test_an_answer_has_problems_as_objects(
    puller: Puller, properties: Any, code: ProblemCode, property_: str
) -> None:
    provided = json.dumps({"protocol": REQUEST, "type": "exec", "properties": properties})
    answer = json.loads(puller("ensure", "api", "pipe", provided=provided).stdout)
    (problem,) = answer["problems"]
    assert (problem["code"], problem.get("property", "")) == (code, property_)
    assert answer.get("state", answer)["problems"] == [problem]


def test_a_secret_is_in_no_output_and_no_session(puller: Puller, session: str, tmp_path: Path) -> None:
    """The reference writes all properties, with content and passwords, to world-readable files."""
    properties = {"name": f"{tmp_path}/key", "content": "{{ data.password }}"}
    properties |= {"owner": str(os.geteuid()), "group": str(os.getegid()), "mode": "0600"}
    provided = json.dumps({"protocol": REQUEST, "type": "file", "properties": properties})
    (tmp_path / "data.yaml").write_text("data:\n  # @sensitive\n  password: canary-7\n")
    options = ("--data", "data.yaml", "--diff")
    ended = puller("ensure", "api", "pipe", *options, provided=provided, session=session)
    assert (tmp_path / "key").read_text() == "canary-7", ended.stdout
    (tmp_path / "key").write_text("canary-7 old")
    line = ("ensure", "file", f"{tmp_path}/key", "--content", "{{ data.password }}", *IDS, *options)
    shown = puller(*line, session=session)
    report = puller("session", "report", session=session)
    for output in (ended, shown, report):
        assert "canary" not in output.stdout + output.stderr
    assert not [path for path in Path(session).iterdir() if "canary" in path.read_text()]


def test_the_state_of_a_resource_is_shown(puller: Puller, tmp_path: Path) -> None:
    (tmp_path / "motd").write_text("Hello\n")
    (tmp_path / "motd").chmod(0o640)
    state = yaml.load(puller("state", "file", f"{tmp_path}/motd").stdout, yaml.CSafeLoader)
    assert (state["type"], state["ensure"], state["mode"], state["size"]) == ("file", "present", "0640", 6)
    missing = puller("state", "file", f"{tmp_path}/none", "--format", "json")
    assert json.loads(missing.stdout) == {"type": "file", "name": f"{tmp_path}/none", "ensure": "absent"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("exec", "true"), "exec: exists only as a declaration in a manifest"),
        (("apply", "a.yaml"), "apply: exists only as a declaration in a manifest"),
        (("fiel", "/a"), "unknown resource type 'fiel' (did you mean 'file'?)"),
        (("file", "a"), "file#a: name is 'a', expected an absolute path"),
        (
            ("line", "/etc/hosts"),
            "line#/etc/hosts: a file has many of them, and the address does not identify a line. `puller ensure line "
            "/etc/hosts --line TEXT --noop` reports whether it exists",
        ),
        (
            ("setting", "/etc/hosts"),
            "the address does not identify a setting. `puller ensure setting /etc/hosts --key KEY --format FORMAT "
            "--value VALUE --noop` reports",
        ),
    ],
)
def test_type_without_state_is_refused(puller: Puller, line: tuple[str, str], message: str) -> None:
    ended = puller("state", *line)
    assert ended.returncode == 64
    assert message in ended.stderr


def test_state_of_a_block_names_its_marker(puller: Puller, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a\n")
    missing = yaml.load(puller("state", "block", str(path)).stdout, yaml.CSafeLoader)
    assert (missing["ensure"], missing["marker"]) == ("absent", f"# BEGIN puller {path}")
    path.write_text(f"# BEGIN puller {path}\na\n# END puller {path}\n")
    there = yaml.load(puller("state", "block", str(path)).stdout, yaml.CSafeLoader)
    assert (there["ensure"], there["content"], there["marker"]) == ("present", "a\n", missing["marker"])
