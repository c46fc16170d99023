"""Unread or closed outputs and full disks affect neither the work nor the exit status."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.stories import Host, Publisher

PULLER = (sys.executable, "-m", "puller")


def gone(*command: str, **options: Any) -> int:
    """Return the status of a command whose reader has closed the pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            command, stdout=writer, stderr=writer, check=False, timeout=60, **options
        ).returncode
    finally:
        os.close(writer)


def closed(*command: str, **options: Any) -> int:
    """Return the status of a command without standard output, error and input."""
    line = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command)
    return subprocess.run(line, check=False, timeout=60, **options).returncode


def full(*command: str, **options: Any) -> int:
    """Return the status of a command whose output goes to a full disk."""
    with open("/dev/full", "ab") as disk:
        return subprocess.run(
            command, stdout=disk, stderr=disk, check=False, timeout=60, **options
        ).returncode


Unread = Callable[..., int]
every_way = pytest.mark.parametrize("unread", [gone, closed, full])
one_way = pytest.mark.parametrize(
    "unread", [gone, *(pytest.param(way, marks=pytest.mark.crash) for way in (closed, full))]
)
"""For tests that start many processes: a plain run tries only one of the ways."""


def many_files(directory: Path, count: int = 300) -> Path:
    """Return a manifest of many files below ``directory``."""
    files = [{f"{directory}/{number}": {"content": f"{number}\n"}} for number in range(count)]
    defaults = {"defaults": {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}}
    place: dict[str, object] = {str(directory): {"ensure": "directory", "mode": "0755"}}
    manifest = directory.with_suffix(".yaml")
    manifest.write_text(json.dumps({"resources": [{"file": [defaults, place, *files]}]}))
    return manifest


def environment(directory: Path) -> Mapping[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(directory), "XDG_RUNTIME_DIR": str(directory)}


@one_way
@pytest.mark.parametrize(("last", "status"), [("true", 0), ("false", 6)])
@pytest.mark.representatives(1)
def test_apply_makes_all_files_and_tells_how_it_went(
    unread: Unread, tmp_path: Path, last: str, status: int
) -> None:
    manifest = many_files(tmp_path / "files")
    value = json.loads(manifest.read_text())
    value |= {"pre_message": "before", "post_message": "after"}
    value["resources"].append({"exec": [{last: {}}]})
    manifest.write_text(json.dumps(value))
    options = ("--verbose", "--diff", "--state-directory", str(tmp_path / "state"))
    assert unread(*PULLER, "apply", str(manifest), *options) == status
    assert len(list((tmp_path / "files").iterdir())) == 300


@every_way
@pytest.mark.representatives(1)
def test_run_enforces_and_keeps_its_report(unread: Unread, host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0")
    assert unread(*PULLER, "run", "--verbose", "--config", str(host.configuration)) == 0
    host.assert_enforces("1.0.0")
    assert host.report()["exit_status"] == 0
    publisher.served.joinpath("metadata", "timestamp.json").write_bytes(b"nonsense")
    (host.machine / "motd").unlink()
    status = unread(*PULLER, "run", "--config", str(host.configuration))
    assert status == host.report()["exit_status"] == 14
    host.assert_enforces("1.0.0")


@pytest.mark.everything
@one_way
@pytest.mark.parametrize(("command", "status"), [("true", 0), ("false", 4)])
@pytest.mark.representatives(1)
def test_ensure_and_its_session(unread: Unread, tmp_path: Path, command: str, status: int) -> None:
    session = tmp_path / "session"
    assert unread(*PULLER, "session", "new", "--directory", str(session)) == 0
    line = ("ensure", "exec", command, "--session", str(session))
    assert unread(*PULLER, *line, env=environment(tmp_path)) == status
    assert len(list(session.glob("*.event"))) == 1
    assert unread(*PULLER, "session", "report", "--session", str(session), "--remove") == status
    assert not session.exists()


@pytest.mark.parametrize("unread", [gone, full])
@pytest.mark.parametrize(("command", "status"), [("true", 0), ("false", 4)])
@pytest.mark.representatives(1)
def test_the_pipe_of_other_programs(unread: Unread, tmp_path: Path, command: str, status: int) -> None:
    protocol = "io.choria.ccm.v1.resource.ensure.request"
    request = {"protocol": protocol, "type": "exec", "properties": {"name": command}}
    output = json.dumps(request).encode()
    line = ("ensure", "api", "pipe")
    assert unread(*PULLER, *line, input=output, env=environment(tmp_path)) == status


@one_way
@pytest.mark.everything
def test_a_site_is_made_and_published_in(unread: Unread, tmp_path: Path) -> None:
    site, web = str(tmp_path / "site"), str(tmp_path / "web")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.yaml").write_text("resources: []\n")
    assert unread(*PULLER, "site", "init", site, "--no-passphrase") == 0
    assert unread(*PULLER, "site", "publish", site, web, "--version", "1.0.0") == 0
    assert list((tmp_path / "site/public/targets/web").iterdir())
    (tmp_path / "web" / "manifest.yaml").write_text("resources: []  # other bytes\n")
    assert unread(*PULLER, "site", "publish", site, web, "--version", "1.0.0") == 64


@one_way
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("render MANIFEST", 0),
        ("lint MANIFEST", 0),
        ("lint MANIFEST-none", 64),
        ("facts", 0),
        ("--help", 0),
        ("no-such-command", 64),
    ],
)
@pytest.mark.representatives(1)
def test_commands_that_show_something(unread: Unread, tmp_path: Path, line: str, status: int) -> None:
    manifest = many_files(tmp_path / "files")
    words = line.replace("MANIFEST", str(manifest)).split()
    assert unread(*PULLER, *words) == status


@one_way
@pytest.mark.parametrize("line", ["status", "quarantine list"])
@pytest.mark.representatives(1)
def test_commands_that_show_a_host(unread: Unread, host: Host, publisher: Publisher, line: str) -> None:
    publisher.publish("1.0.0")
    assert host.run().status == 0
    assert unread(*PULLER, *line.split(), "--config", str(host.configuration)) == 0


@one_way
@pytest.mark.everything
def test_an_operator_s_word_holds(unread: Unread, host: Host, publisher: Publisher) -> None:
    for version in ("1.0.0", "1.1.0"):
        publisher.publish(version)
        assert host.run().status == 0
    configuration = ("--config", str(host.configuration))
    assert unread(*PULLER, "rollback", "web", *configuration) == 0
    host.assert_enforces("1.0.0")
    assert unread(*PULLER, "disable", "--reason", "TICKET-7", *configuration) == 0
    assert host.run().status == 20


@pytest.mark.everything
def test_write_errors_are_reported_where_possible(tmp_path: Path) -> None:
    with open("/dev/full", "ab") as disk:
        line = (*PULLER, "schema", "manifest")
        completed = subprocess.run(
            line, stdout=disk, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert completed.returncode == 0
    assert completed.stderr == "puller: standard output is not complete: No space left on device\n"


def test_later_opened_file_gets_no_standard_output(tmp_path: Path) -> None:
    manifest = many_files(tmp_path / "files", 20)
    assert closed(*PULLER, "apply", str(manifest), "-v", "--state-directory", str(tmp_path / "state")) == 0
    for number in range(20):
        assert (tmp_path / "files" / str(number)).read_text() == f"{number}\n"


@pytest.mark.everything
def test_slow_reader_gets_everything_and_blocks_nothing(tmp_path: Path) -> None:
    manifest = many_files(tmp_path / "files", 800)
    state = tmp_path / "state"
    line = (*PULLER, "apply", str(manifest), "--verbose", "--state-directory", str(state))
    with subprocess.Popen(line, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)  # the process has started and holds the lock
        with (state / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits until the work is complete
        assert len(list((tmp_path / "files").iterdir())) == 800
        assert process.poll() is None  # its output does not fit into a pipe
        output = (first + process.stdout.read()).decode()
        assert process.wait(timeout=60) == 0
    assert output.count("\n") == 802
    assert output.endswith(" s\n")


def test_letters_that_the_locale_does_not_have_end_nothing(tmp_path: Path) -> None:
    manifest = many_files(tmp_path / "żółw", 2)
    line = (*PULLER, "apply", str(manifest), "-v", "--state-directory", str(tmp_path / "state"))
    latin = {**os.environ, "PYTHONIOENCODING": "iso-8859-1"}
    completed = subprocess.run(line, env=latin, capture_output=True, check=False, timeout=60)
    assert completed.returncode == 0, completed.stderr
    assert b"\\u017c" in completed.stdout
