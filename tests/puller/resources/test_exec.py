"""The exec resource: when a command runs, its environment, and its outcome."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ResourceError
from puller.resources.base import PropertyError, Resource
from puller.resources.exec import Exec
from puller.state import Directories

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]


def shell(text: str) -> dict[str, Any]:
    return {"name": "a command", "command": text, "provider": "shell"}


def runs(make: Make, properties: dict[str, Any], *, refresh: bool = False) -> bool:
    resource = make(Exec, {"name": "true", **properties})
    return bool(resource.differences(resource.look(), refresh=refresh))


@pytest.mark.parametrize(
    ("guards", "refresh", "expected"),
    [
        ({}, False, True),
        ({"creates": "/"}, False, False),
        ({"creates": "/no/such/path"}, False, True),
        ({"onlyif": "true"}, False, True),
        ({"onlyif": "false"}, False, False),
        ({"unless": "true"}, False, False),
        ({"unless": "false"}, False, True),
        ({"onlyif": "true", "unless": "true"}, False, False),
        ({"refreshonly": True}, False, False),
        ({"refresh_only": True}, False, False),
        ({"refreshonly": True}, True, True),
        ({"creates": "/", "onlyif": "false", "unless": "true"}, True, True),
    ],
)
def test_the_first_guard_that_says_so_decides(
    make: Make, guards: dict[str, Any], refresh: bool, expected: bool
) -> None:
    assert runs(make, guards, refresh=refresh) is expected


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        ({}, True),
        ({"creates": "/"}, False),
        ({"onlyif": "false"}, False),
        ({"unless": "true"}, False),
        ({"onlyif": "true", "unless": "false", "creates": "/no/such/path"}, True),
    ],
)
@pytest.mark.parametrize("refreshonly", [True, False])
def test_with_guard_refresh_guards_decide_on_a_refresh_too(
    make: Make, guards: dict[str, Any], refreshonly: bool, expected: bool
) -> None:
    properties = {**guards, "guard_refresh": True, "refreshonly": refreshonly}
    assert runs(make, properties, refresh=True) is expected


def test_a_refresh_that_a_guard_prevents_is_told(make: Make) -> None:
    resource = make(Exec, {"name": "true", "onlyif": "false", "guard_refresh": True})
    resource.differences(resource.look(), refresh=True)
    assert resource.notes == ("a subscribed resource changed, and a guard skipped the command",)


@pytest.mark.parametrize(
    ("guards", "message"),
    [
        ({"creates": "/no/such/path"}, "ran, but `creates` /no/such/path is still missing"),
        ({"unless": "false"}, "ran, but `unless` still fails"),
    ],
)
def test_command_that_would_run_again_is_a_failure(
    make: Make, converge: Converge, guards: dict[str, Any], message: str
) -> None:
    for refresh_first in (False, True):
        resource = make(Exec, {"name": "true", **guards})
        differences = resource.differences(resource.look(), refresh=refresh_first)
        if refresh_first:  # the refresh skips the guards before and after the command
            resource.change(differences, resource.look())
            continue
        with pytest.raises(ResourceError) as error:
            resource.change(differences, resource.look())
        assert str(error.value) == message
    converge(make(Exec, {"name": "true", **guards, "recheck": False}))


def test_files_made_by_a_command_exist_after_it(make: Make, converge: Converge, tmp_path: Path) -> None:
    properties = {**shell("touch made"), "cwd": str(tmp_path), "creates": "made", "unless": "test -e made"}
    assert converge(make(Exec, properties)) == ["ran"]
    assert converge(make(Exec, properties)) == []


@pytest.mark.parametrize(
    ("guards", "noted"),
    [
        ({"onlyif": "true"}, True),
        ({"onlyif": "true", "recheck": False}, False),
        ({"onlyif": "test ! -e {}/made"}, False),
        ({"onlyif": "true", "creates": "{}/made"}, False),
    ],
)
def test_an_onlyif_that_would_run_it_again_is_noted(
    make: Make, converge: Converge, tmp_path: Path, guards: dict[str, Any], noted: bool
) -> None:
    here = {key: text.format(tmp_path) if isinstance(text, str) else text for key, text in guards.items()}
    resource = make(Exec, {"name": f"touch {tmp_path}/made", **here})
    converge(resource)
    assert bool(resource.notes) is noted
    assert not noted or "runs in every run" in resource.notes[0]


@pytest.mark.parametrize("properties", [{}, {"onlyif": "true"}, {"provider": "shell"}])
def test_missing_directory_is_named_before_the_program(
    make: Make, converge: Converge, tmp_path: Path, properties: dict[str, Any]
) -> None:
    desired = {"name": "true", "cwd": f"{tmp_path}/missing", **properties}
    with pytest.raises(ResourceError, match=f"^cwd {tmp_path}/missing does not exist$"):
        converge(make(Exec, desired))
    dry = make(Exec, desired, noop=True)
    with pytest.raises(ResourceError, match=f"^cwd {tmp_path}/missing does not exist$"):
        dry.noop_message(dry.differences(dry.look()), dry.look())


def test_noop_assumes_results_of_earlier_resources(make: Make, tmp_path: Path) -> None:
    """A working directory, or the program of a guard."""
    expected = make(Exec, {"name": "true", "cwd": f"{tmp_path}/new", "onlyif": "true"}, noop=True)
    expected.context.system.expect(f"{tmp_path}/new", "directory")
    later = make(Exec, {"name": "true", "unless": "/no/such/program"}, noop=True, uncertain=True)
    for resource in (expected, later):
        differences = resource.differences(resource.look())
        assert resource.noop_message(differences, resource.look()) == "Would have executed"
    with pytest.raises(ResourceError, match="unless '/no/such/program' cannot be started"):
        runs(make, {"unless": "/no/such/program"})


def test_guards_after_the_deciding_guard_do_not_run(make: Make, tmp_path: Path) -> None:
    """The reference runs all guards, even after ``creates`` has decided."""
    assert not runs(make, {"creates": "/", "onlyif": f"touch {tmp_path}/asked"})
    assert not (tmp_path / "asked").exists()


def test_guards_are_asked_in_noop_too(make: Make) -> None:
    resource = make(Exec, {"name": "true", "unless": "true"}, noop=True)
    assert resource.differences(resource.look()) == ()


def test_a_guard_that_cannot_answer_is_a_failure_and_no_answer(make: Make) -> None:
    with pytest.raises(ResourceError, match="unless 'sleep 60': killed after"):
        runs(make, {"unless": "sleep 60", "timeout": "100ms"})


def test_a_command_runs_once_and_is_then_done(make: Make, converge: Converge, tmp_path: Path) -> None:
    assert converge(make(Exec, shell(f"echo x >> {tmp_path}/log"))) == ["ran"]
    assert (tmp_path / "log").read_text() == "x\n"


@pytest.mark.parametrize(("returns", "code"), [([0], 0), ([3, 4], 4)])
def test_exit_codes_that_mean_success(make: Make, converge: Converge, returns: list[int], code: int) -> None:
    converge(make(Exec, {**shell(f"exit {code}"), "returns": returns}))


def test_unexpected_exit_code_is_a_failure_with_output(make: Make, converge: Converge) -> None:
    """The reference discards the output of a failed command."""
    with pytest.raises(ResourceError) as error:
        converge(make(Exec, {**shell("echo out; echo err >&2; exit 9"), "returns": [0, 2]}))
    assert str(error.value) == "exit code 9, expected 0, 2; it printed:\nout\nerr"


@pytest.mark.attack("secrets.sensitive")
def test_of_a_sensitive_command_nothing_is_printed(make: Make, converge: Converge) -> None:
    with pytest.raises(ResourceError) as error:
        converge(make(Exec, {**shell("echo secret; exit 9"), "sensitive": True}))
    assert str(error.value) == "exit code 9, expected 0"


@pytest.mark.attack("commands.hang")
def test_a_command_over_its_time_is_killed_and_failed(make: Make, converge: Converge) -> None:
    """The reference passes the timeout on, but never kills the command."""
    with pytest.raises(ResourceError, match=r"killed after 0\.\d s, its time limit, expected 0"):
        converge(make(Exec, {"name": "sleep 60", "timeout": "200ms"}))


def test_words_are_split_without_a_shell(make: Make, converge: Converge, tmp_path: Path) -> None:
    converge(make(Exec, {"name": f"touch '{tmp_path}/$HOME' \"{tmp_path}/a b\""}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["$HOME", "a b"]


def test_the_shell_gets_the_text_as_it_is(make: Make, converge: Converge, tmp_path: Path) -> None:
    converge(make(Exec, shell(f"for x in a b; do echo $x; done > {tmp_path}/log")))
    assert (tmp_path / "log").read_text() == "a\nb\n"


def test_directory_environment_and_path(make: Make, converge: Converge, tmp_path: Path) -> None:
    (tmp_path / "greet").write_text('#!/bin/sh\necho "$GREETING in $(pwd), PATH=$PATH" > out\n')
    (tmp_path / "greet").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    environment = ["GREETING=hello=world", "EMPTY="]
    converge(make(Exec, {"name": "greet", "cwd": str(tmp_path), "environment": environment, "path": path}))
    assert (tmp_path / "out").read_text() == f"hello=world in {tmp_path}, PATH={path}\n"


def test_creates_may_be_relative_to_the_directory(make: Make, tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    assert not runs(make, {"cwd": str(tmp_path), "creates": "made"})


def test_output_is_logged_when_asked_for(make: Make, converge: Converge) -> None:
    lines: list[str] = []
    converge(make(Exec, {**shell("echo out; echo err >&2"), "logoutput": True}, log=lines.append))
    assert lines == ["a command: out", "a command: err"]


@pytest.mark.parametrize(
    ("refresh", "message"), [(False, "Would have executed"), (True, "Would have executed via subscribe")]
)
def test_noop_messages(make: Make, refresh: bool, message: str) -> None:
    resource = make(Exec, {"name": "true"}, noop=True)
    actual = resource.look()
    assert resource.noop_message(resource.differences(actual, refresh=refresh), actual) == message


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ensure": "absent"}, "ensure is 'absent', expected present"),
        ({"command": "echo 'a"}, 'command is "echo \'a", which has a single quote that is not closed'),
        ({"name": "  "}, "name is '  ', expected a command"),
        ({"onlyif": 'test "a'}, "onlyif is 'test \"a', which has a double quote that is not closed"),
        ({"environment": ["A"]}, "environment has 'A', expected KEY=VALUE"),
        ({"environment": ["1A=b"]}, "environment has '1A=b', expected KEY=VALUE"),
        ({"path": "/bin::/usr/bin"}, "path has '', expected absolute directories separated by colons"),
        ({"path": "bin"}, "path has 'bin', expected absolute directories separated by colons"),
        ({"cwd": "tmp"}, "cwd is 'tmp', expected an absolute path"),
        (
            {"creates": "made"},
            "creates is 'made', expected an absolute path, or a cwd to which it is relative",
        ),
        ({"timeout": 0}, "timeout is 0, expected a positive duration"),
        ({"guard_timeout": 0}, "guard_timeout is 0, expected a positive duration"),
        ({"user": "-u"}, "user is '-u', expected a name or an id"),
        ({"user": ""}, "user is '', expected a name or an id"),
        ({"user": -1}, "user is -1, expected a name or an id"),
        ({"user": "a\0b"}, "user is 'a\\x00b', expected a name or an id"),
        ({"group": "a:b"}, "group is 'a:b', expected a name or an id"),
        (
            {"once": True, "refreshonly": True},
            "once has no effect on a refresh; set guard_refresh: true",
        ),
        (
            {"refreshonly": True, "refresh_only": True},
            "refresh_only cannot be given together with refreshonly",
        ),
    ],
)
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError) as error:
        make(Exec, {"name": "true", **properties})
    assert str(error.value) == message


# Other users


def whoami(directory: Path, **properties: Any) -> dict[str, Any]:
    directory.chmod(0o777)
    text = 'echo "$(id -un):$(id -gn):$(id -G) $HOME $USER $LOGNAME" >> out'
    return {**shell(text), "cwd": str(directory), **properties}


@pytest.fixture
def open_directory(tmp_path: Path) -> Path:
    """Return a directory that every user can reach and write to."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and not directory.stat().st_mode & 0o001:
            directory.chmod(0o755)
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.mark.attack("as-user.identity")
@pytest.mark.root
@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ({"user": "nobody"}, "nobody:nogroup:65534 /nonexistent nobody nobody"),
        ({"user": 65534}, "nobody:nogroup:65534 /nonexistent nobody nobody"),
        ({"user": "nobody", "group": "daemon"}, "nobody:daemon:1 /nonexistent nobody nobody"),
        ({"group": "daemon"}, "root:daemon:1 /root root root"),
    ],
)
def test_a_command_runs_as_a_user_with_their_groups_and_home(
    make: Make, converge: Converge, open_directory: Path, who: dict[str, Any], expected: str
) -> None:
    """The guards run as the user, too."""
    guard = 'echo "$(id -un)" > guard; exit 1'
    converge(make(Exec, whoami(open_directory, **who, unless=guard, recheck=False)))
    assert (open_directory / "out").read_text() == f"{expected}\n"
    assert (open_directory / "guard").read_text() == f"{expected.partition(':')[0]}\n"


@pytest.mark.parametrize(
    ("who", "message"),
    [
        ({"user": "no-such-user"}, "user is 'no-such-user', an unknown user"),
        ({"user": 4242421}, "user is 4242421, an unknown user"),
        ({"group": "no-such-group"}, "group is 'no-such-group', an unknown group"),
        ({"user": "nobody", "group": "no-such-group"}, "group is 'no-such-group', an unknown"),
    ],
)
@pytest.mark.parametrize("guards", [{}, {"unless": "true"}, {"onlyif": "true"}])
def test_a_user_that_there_is_not_is_a_failure_in_noop_too(
    make: Make, converge: Converge, who: dict[str, Any], message: str, guards: dict[str, Any]
) -> None:
    with pytest.raises(ResourceError, match=message):
        converge(make(Exec, {"name": "true", **who, **guards}))
    dry = make(Exec, {"name": "true", **who, **guards}, noop=True)
    with pytest.raises(ResourceError, match=message):
        dry.noop_message(dry.differences(dry.look()), dry.look())


@pytest.mark.parametrize("guards", [{}, {"unless": "true"}])
@pytest.mark.parametrize("who", [{"user": "app"}, {"user": "app", "group": "app"}, {"group": "app"}])
@pytest.mark.parametrize("how", ["by a resource that is predicted", "by a command"])
def test_in_noop_a_user_that_the_run_would_make_is_not_missed(
    make: Make, who: dict[str, Any], guards: dict[str, Any], how: str
) -> None:
    dry = make(Exec, {"name": "true", **who, **guards}, noop=True, uncertain=how == "by a command")
    if how != "by a command":
        system: Any = dry.context.system
        system.user_id = system.group_id = lambda name: 1001 if name == "app" else None
    assert dry.noop_message(dry.differences(dry.look()), dry.look()) == "Would have executed"


@pytest.mark.parametrize("guards", [{}, {"unless": "true"}, {"onlyif": "true"}])
@pytest.mark.parametrize(
    ("who", "kind"),
    [({"user": "nobody"}, "user"), ({"user": 65534}, "user"), ({"group": "nogroup"}, "group")],
)
def test_in_noop_a_user_that_the_run_would_remove_is_missed(
    make: Make, who: dict[str, Any], kind: Any, guards: dict[str, Any]
) -> None:
    dry = make(Exec, {"name": "true", **who, **guards}, noop=True)
    dry.context.system.expect_account(kind, {"user": "nobody", "group": "nogroup"}[kind], None)
    with pytest.raises(ResourceError, match=f"{kind} is .*, which this run would have removed"):
        dry.noop_message(dry.differences(dry.look()), dry.look())
    dry.context.system.expect_account(kind, {"user": "nobody", "group": "nogroup"}[kind], 65534)
    dry.differences(dry.look())  # the account is created again


@pytest.mark.root
@pytest.mark.attack("as-user.inherited")
def test_command_of_a_user_inherits_no_descriptor_or_terminal(
    make: Make, converge: Converge, open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, report = open_directory / "secret", open_directory / "report"
    secret.write_text("canary")
    secret.chmod(0o600)
    monkeypatch.setenv("CANARY", "canary")
    looking = "readlink /proc/self/fd/*; tr '\\0' '\\n' < /proc/self/environ; cut -d' ' -f7 /proc/self/stat"
    requested = f"({looking}; cat /proc/$PPID/environ; echo seen) > {report} 2>/dev/null"
    with secret.open() as stream:
        os.set_inheritable(stream.fileno(), True)
        converge(make(Exec, {**shell(requested), "user": "nobody"}))
    reported = report.read_text()
    assert "canary" not in reported
    assert str(secret) not in reported
    assert reported.splitlines()[-2:] == ["0", "seen"]


@pytest.mark.root
@pytest.mark.attack("secrets.arguments")
def test_input_of_a_command_is_in_no_command_line(
    make: Make, converge: Converge, open_directory: Path
) -> None:
    report = open_directory / "report"
    requested = f"cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ > {report} 2>/dev/null; cat > /dev/null"
    converge(make(Exec, {**shell(requested), "user": "nobody", "stdin": "a-canary-of-input"}))
    assert b"/dev/null" in report.read_bytes()
    assert b"a-canary-of-input" not in report.read_bytes()


@pytest.mark.attack("as-user.directory")
@pytest.mark.root
@pytest.mark.parametrize("guards", [{}, {"unless": "false"}])
def test_a_directory_that_the_user_cannot_enter_is_a_failure(
    make: Make, converge: Converge, open_directory: Path, guards: dict[str, Any]
) -> None:
    """Also if the directory itself is open to all, and its parent is not."""
    (open_directory / "closed/open").mkdir(parents=True)
    (open_directory / "closed").chmod(0o700)
    for cwd in ("closed", "closed/open"):
        desired = {"name": "true", "user": "nobody", "cwd": f"{open_directory}/{cwd}", **guards}
        with pytest.raises(ResourceError, match=f"^cwd {desired['cwd']} cannot be entered by user nobody$"):
            converge(make(Exec, desired))
    converge(make(Exec, {"name": "true", "user": "root", "cwd": f"{open_directory}/closed"}))


@pytest.mark.attack("as-user.directory")
@pytest.mark.root
def test_a_program_that_the_user_may_not_run_is_a_failure(
    make: Make, converge: Converge, open_directory: Path
) -> None:
    (open_directory / "tool").write_text("#!/bin/sh\n")
    (open_directory / "tool").chmod(0o700)
    with pytest.raises(ResourceError, match="cannot be started: permission denied"):
        converge(make(Exec, {"name": f"{open_directory}/tool", "user": "nobody"}))


# Limits of guards, and standard input


def test_a_guard_may_have_a_time_limit_of_its_own(make: Make) -> None:
    with pytest.raises(ResourceError, match="unless 'sleep 60': killed after 0"):
        runs(make, {"unless": "sleep 60", "guard_timeout": "100ms"})
    assert not runs(make, {"unless": "sleep 0.2", "timeout": "100ms", "guard_timeout": "1m"})


def test_a_command_reads_its_input_and_guards_read_none(
    make: Make, converge: Converge, tmp_path: Path
) -> None:
    text = "a pass\u00fcrase\nwithout an end"
    guard = f"cat > {tmp_path}/guard; false"
    properties = {**shell(f"cat > {tmp_path}/out"), "unless": guard, "recheck": False, "stdin": text}
    converge(make(Exec, properties))
    assert (tmp_path / "out").read_text() == text
    assert (tmp_path / "guard").read_text() == ""


@pytest.mark.attack("secrets.stdin")
def test_the_input_is_not_shown(make: Make, converge: Converge) -> None:
    resource = make(Exec, {**shell("exit 3"), "stdin": "hunter2"})
    assert "hunter2" not in repr(resource.properties)
    with pytest.raises(ResourceError) as failure:
        converge(resource)
    assert "hunter2" not in str(failure.value)
    lines: list[str] = []
    echo = {**shell("cat; echo end"), "stdin": "pass hunter2\nno\n", "logoutput": True}
    converge(make(Exec, echo, log=lines.append))
    assert lines == ["a command: Sensitive [value redacted]", "a command: no", "a command: end"]


@pytest.mark.parametrize("output", ['PASS "HUNTER2', r"pass \"hunter2", "pass%20%22hunter2"])
def test_input_is_masked_in_other_notations(make: Make, converge: Converge, output: str) -> None:
    lines: list[str] = []
    echo = {**shell(f"printf %s {shlex.quote(output)}"), "stdin": 'pass "hunter2\n', "logoutput": True}
    converge(make(Exec, echo, log=lines.append))
    assert lines == ["a command: Sensitive [value redacted]"]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the record of successful commands of this test."""
    directory = tmp_path / "state"
    monkeypatch.setattr(Directories, "of_user", classmethod(lambda cls: Directories(directory, directory)))
    return directory / "commands.json"


def counted(tmp_path: Path, **properties: Any) -> dict[str, Any]:
    return {**shell(f"echo run >> {tmp_path}/log"), "once": True, **properties}


def runs_of(tmp_path: Path) -> int:
    log = tmp_path / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_once_runs_until_the_command_has_succeeded(
    make: Make, converge: Converge, tmp_path: Path, state: Path
) -> None:
    failing = counted(tmp_path, command=f"echo run >> {tmp_path}/log; test -e {tmp_path}/ready")
    for _ in range(2):
        with pytest.raises(ResourceError, match="expected 0"):
            converge(make(Exec, failing))
    assert not state.exists()
    (tmp_path / "ready").touch()
    assert converge(make(Exec, failing)) == ["ran"]
    (tmp_path / "ready").unlink()
    assert converge(make(Exec, failing)) == []
    assert runs_of(tmp_path) == 3
    assert not make(Exec, failing).is_recurring


def test_once_runs_a_changed_command_but_not_a_previous_one(
    make: Make, converge: Converge, tmp_path: Path, state: Path
) -> None:
    first = counted(tmp_path)
    second = counted(tmp_path, command=f"echo again >> {tmp_path}/log")
    for properties in (first, second, first, second, {**first, "cwd": str(tmp_path), "timeout": "1m"}):
        converge(make(Exec, properties))
    assert runs_of(tmp_path) == 2
    converge(make(Exec, {**first, "name": "another name"}))
    assert runs_of(tmp_path) == 3


def test_once_runs_again_after_a_kill_before_the_record(
    make: Make, converge: Converge, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(Exec, "_record", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            converge(make(Exec, counted(tmp_path)))
    assert runs_of(tmp_path) == 1
    assert converge(make(Exec, counted(tmp_path))) == ["ran"]
    assert converge(make(Exec, counted(tmp_path))) == []
    assert runs_of(tmp_path) == 2


@pytest.mark.parametrize("damage", ["{", '{"format": 2}', '{"format": 1, "commands": 3}', ""])
@pytest.mark.parametrize("noop", [False, True])
def test_once_with_a_damaged_record_fails_and_runs_nothing(
    make: Make, tmp_path: Path, state: Path, damage: str, noop: bool
) -> None:
    state.parent.mkdir()
    state.write_text(damage)
    state.chmod(0o600)
    resource = make(Exec, counted(tmp_path), noop=noop)
    with pytest.raises(ResourceError, match=r"commands\.json: .*restore the file, or remove it"):
        resource.differences(resource.look())
    assert runs_of(tmp_path) == 0
    assert state.read_text() == damage


def test_record_of_once_does_not_contain_the_command(
    make: Make, converge: Converge, tmp_path: Path, state: Path
) -> None:
    converge(make(Exec, counted(tmp_path, sensitive=True)))
    assert str(tmp_path) not in state.read_text()
    assert state.stat().st_mode & 0o777 == 0o600


def test_record_of_once_stays_small(make: Make, converge: Converge, state: Path) -> None:
    for number in range(105):
        converge(make(Exec, {"name": "release", "command": f"true {number}", "once": True}))
    (checksums,) = json.loads(state.read_text())["commands"].values()
    assert len(checksums) == 100
    assert converge(make(Exec, {"name": "release", "command": "true 104", "once": True})) == []


@pytest.mark.parametrize(("guard_refresh", "count"), [(False, 2), (True, 1)])
def test_refresh_runs_a_command_with_once_unless_guarded(
    make: Make, tmp_path: Path, state: Path, guard_refresh: bool, count: int
) -> None:
    for _ in range(2):
        resource = make(Exec, counted(tmp_path, guard_refresh=guard_refresh))
        if differences := resource.differences(resource.look(), refresh=True):
            resource.change(differences, resource.look())
    assert runs_of(tmp_path) == count


def test_explain_states_whether_a_command_has_succeeded(
    make: Make, converge: Converge, tmp_path: Path, state: Path
) -> None:
    resource = make(Exec, counted(tmp_path))
    explained = [Exec.on_record(resource.properties, state.parent)]
    converge(resource)
    explained.append(Exec.on_record(resource.properties, state.parent))
    assert explained == [
        ["the command has not succeeded on this machine yet"],
        ["the command has succeeded on this machine"],
    ]
    assert Exec.on_record(make(Exec, {"name": "true"}).properties, state.parent) == []
