"""Commands end in time, and their child processes end with them."""

import hashlib
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from puller.errors import ResourceError, reason
from puller.system.commands import Command, run
from puller.system.identity import Identity


def shell(text: str, **options: object) -> Command:
    return Command(["sh", "-c", text], **options)  # type: ignore[arg-type]  # options of Command by name


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie that waits for its parent does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> bool:
    limit = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    return not is_alive(pid)


def pid_in(path: Path) -> int:
    """Wait until a command has written its process id into a file, and return the id."""
    limit = time.monotonic() + 60
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < limit, f"{path} did not appear"
        time.sleep(0.01)
    return int(path.read_text())


def test_a_command_gives_its_exit_code_and_both_outputs() -> None:
    completed = run(shell("echo out; echo err >&2; exit 3"))
    assert (completed.exit_code, completed.stdout, completed.stderr) == (3, "out\n", "err\n")
    assert completed.outcome == "exit code 3"
    assert completed.tail() == "out\nerr"


@pytest.mark.attack("commands.signal")
def test_a_command_that_a_signal_ended_has_no_exit_code() -> None:
    completed = run(shell("kill -TERM $$"))
    assert (completed.exit_code, completed.signal) == (None, 15)
    assert completed.outcome == "ended by signal SIGTERM"


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV"), (34, "SIGRTMIN"), (40, "40")])
def test_a_signal_is_named_where_it_has_a_name(number: int, name: str) -> None:
    completed = run(Command([sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})"]))
    assert (completed.signal, completed.outcome) == (number, f"ended by signal {name}")


@pytest.mark.attack("commands.hang", "commands.children")
def test_command_over_its_limit_is_killed_with_children(tmp_path: Path) -> None:
    completed = run(shell(f"sleep 60 & echo $! > {tmp_path}/child; sleep 60", timeout=0.2))
    assert completed.timed_out
    assert "its time limit" in completed.outcome
    assert wait_until_gone(int((tmp_path / "child").read_text()))


@pytest.mark.attack("commands.sigterm")
def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puller.system.commands._GRACE", 0.2)
    completed = run(shell(f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done", timeout=0.3))
    assert completed.timed_out
    assert wait_until_gone(int((tmp_path / "pid").read_text()))


# Each command leaves a process in its own session that writes its id into the file ``child``.
STRAYS = {
    "in a session of its own": "setsid sh -c 'echo $$ > child; exec sleep 60' & sleep 60",
    "whose parent has ended": "(setsid sh -c 'echo $$ > child; exec sleep 60' &) ; sleep 60",
    "that closes all files": "(setsid sh -c 'echo $$ > child; exec sleep 60' <&- >&- 2>&- &) ; sleep 60",
    "without an environment": "(setsid env -i sh -c 'echo $$ > child; exec sleep 60' &) ; sleep 60",
    "that ignores SIGTERM": "(setsid sh -c 'trap \"\" TERM; echo $$ > child; exec sleep 60' &) ; sleep 60",
    "of one that has its own children": (
        "(setsid sh -c 'setsid sh -c \"echo \\$\\$ > child; exec sleep 60\" & sleep 60' &) ; sleep 60"
    ),
}


@pytest.mark.attack("commands.children")
@pytest.mark.parametrize("stray", STRAYS)
def test_a_command_over_its_time_limit_takes_along_a_child(
    stray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("puller.system.commands._GRACE", 0.2)
    completed = run(shell(STRAYS[stray], directory=str(tmp_path), timeout=0.5))
    assert completed.timed_out
    assert not is_alive(pid_in(tmp_path / "child"))


def test_a_command_that_is_done_leaves_its_daemon_alone(tmp_path: Path) -> None:
    completed = run(
        shell("(setsid sh -c 'echo $$ > child; exec sleep 60' >&- 2>&- &)", directory=str(tmp_path))
    )
    assert completed.exit_code == 0
    daemon = pid_in(tmp_path / "child")
    assert run(shell("sleep 60", timeout=0.2)).timed_out
    assert is_alive(daemon), "it began before the command that was killed"
    os.kill(daemon, signal.SIGKILL)


def test_script_sees_the_end_of_an_earlier_daemon(tmp_path: Path) -> None:
    run(shell("(setsid sh -c 'echo $$ > child; exec sleep 60' >&- 2>&- &)", directory=str(tmp_path)))
    daemon = pid_in(tmp_path / "child")
    stop = f"kill {daemon}; while kill -0 {daemon} 2>&-; do sleep 0.05; done; echo gone"
    assert run(shell(stop, timeout=30)).stdout == "gone\n"


def test_foreign_child_processes_are_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as running, subprocess.Popen(["false"]) as ended:
        assert run(shell("sleep 60", timeout=0.2)).timed_out
        assert (running.poll(), ended.wait()) == (None, 1)
        running.kill()


# Each process records its id, begins a session, starts the next process, and ends.
HEIRS = """\
import os, time
if os.fork():
    time.sleep(60)
while os.fork() == 0:
    os.setsid()
    print(os.getpid(), file=open("heirs", "a"))
    time.sleep(0.02)
"""


def test_a_process_that_multiplies_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("puller.system.commands._GRACE", 0.2)
    monkeypatch.setattr("puller.system.commands._LAST_WAIT", 60.0)  # the machine may be busy
    completed = run(Command([sys.executable, "-c", HEIRS], directory=str(tmp_path), timeout=0.5))
    assert completed.timed_out
    assert not any(is_alive(int(pid)) for pid in (tmp_path / "heirs").read_text().split())


@pytest.mark.attack("commands.children")
def test_a_child_that_holds_the_pipes_open_is_not_waited_for(tmp_path: Path) -> None:
    completed = run(shell(f"sleep 60 & echo $! > {tmp_path}/child; echo done", timeout=30.0))
    assert (completed.exit_code, completed.stdout) == (0, "done\n")
    assert completed.duration < 20
    os.kill(int((tmp_path / "child").read_text()), 9)


def test_a_command_may_close_its_output_and_work_on() -> None:
    assert run(shell("exec >&- 2>&-; sleep 0.1; exit 7")).exit_code == 7


@pytest.mark.attack("commands.flood")
def test_of_a_flood_of_output_the_end_is_kept() -> None:
    completed = run(shell("head -c 5000000 /dev/zero | tr '\\0' x; echo end", output_limit=1000))
    assert completed.stdout.endswith("xend\n")
    assert "bytes before this were dropped" in completed.stdout
    assert len(completed.stdout) < 1200


@pytest.mark.everything
@pytest.mark.attack("commands.flood")
def test_a_gigabyte_of_output_takes_no_memory() -> None:
    program = """\
from puller.errors import ResourceError, reason
from puller.system.commands import Command, run
from puller.system.identity import Identity

def most_memory():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

run(Command(["true"]))
before = most_memory()
completed = run(Command(["sh", "-c", "head -c 1073741824 /dev/zero; echo end"]))
print(completed.stdout.endswith("\\0end\\n"), most_memory() - before < 8 << 10)
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True True\n"


@pytest.mark.attack("commands.encoding")
def test_output_that_is_not_text_is_decoded_with_replacements() -> None:
    assert run(shell("printf 'a\\377b'")).stdout == "a�b"


def test_environment_of_commands_is_the_documented_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLER_PASSPHRASE", "secret")
    completed = run(Command(["env"], {"EXTRA": "1"}))
    names = {line.partition("=")[0] for line in completed.stdout.splitlines()}
    assert names == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "EXTRA"}
    assert f"HOME={pwd.getpwuid(os.geteuid()).pw_dir}" in completed.stdout


def test_a_path_of_the_commands_own_is_searched_for_the_program(tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    assert run(Command(["greet"], {"PATH": str(tmp_path)})).stdout == "hello\n"


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="no executable 'no-such-program' in /usr/bin"):
        run(Command(["no-such-program"], {"PATH": "/usr/bin"}))


def test_a_command_reads_nothing_from_our_terminal() -> None:
    assert run(Command(["cat"])).stdout == ""


def test_command_reads_its_complete_input() -> None:
    data = bytes(range(256)) * 4096  # more than the buffer of a pipe
    assert run(Command(["sha256sum"], input=data)).stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert run(Command(["cat"])).stdout == ""


def test_input_is_not_part_of_a_shown_command() -> None:
    assert "s3cret" not in repr(Command(["chpasswd"], input=b"alice:s3cret"))


@pytest.mark.root
def test_command_of_another_user_has_groups_and_home() -> None:
    nobody = Identity.find("nobody")
    shown = run(shell("id -u; id -g; id -G; echo $HOME $USER $LOGNAME; cat", identity=nobody, input=b"in"))
    uid, gid, groups, names, remainder = shown.stdout.split("\n")
    assert (int(uid), int(gid)) == (nobody.uid, nobody.gid)
    assert {*map(int, groups.split())} == {nobody.gid, *nobody.groups}
    assert (names, remainder) == (f"{nobody.home} nobody nobody", "in")


def test_user_is_found_by_name_and_id() -> None:
    assert Identity.find("65534") == Identity.find("nobody")
    root_group = Identity.find("nobody", "root")
    assert root_group.gid == 0
    assert 0 in root_group.groups


def test_a_user_or_a_group_that_there_is_not_is_named() -> None:
    with pytest.raises(ResourceError, match=r"user is 'nemo', an unknown user"):
        Identity.find("nemo")
    with pytest.raises(ResourceError, match=r"group is 'crew', an unknown group"):
        Identity.find("nobody", "crew")


def test_a_command_of_the_running_user_wants_no_root() -> None:
    me = Identity.find(os.geteuid(), os.getegid())
    shown = run(Command(["/bin/sh", "-c", "id -u; echo $HOME"], identity=me))
    assert shown.stdout.splitlines() == [str(me.uid), me.home]


def test_sentence_about_a_program_keeps_its_spelling(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="MakeThing") as raised:
        run(Command(("MakeThing",)))
    assert "no executable 'MakeThing' in" in reason(raised.value)


def test_words_of_the_system_begin_with_a_small_letter() -> None:
    assert reason(FileNotFoundError(2, os.strerror(2), "/A")) == "no such file or directory"
    assert reason(OSError(22, "is Odd", "/A")) == "is Odd"
