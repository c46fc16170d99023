"""Checks of this machine: processes, files, disks. An unknown state is never in order."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foundation.times import Duration
from puller.checks import kinds
from puller.checks.kinds import Disk, File, HealthCheck, Process
from puller.engine.conditions import check_health
from puller.reporting.report import Health, HealthResult
from puller.system import systemd_units
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from puller.values.file_mode import FileMode
from puller.values.plain_values import parse_value
from tests.support.rows import each_row


def asked(**kind: Any) -> HealthResult:
    return check_health(HealthCheck(**kind), LocalSystem())


def of_file(path: Path, **more: Any) -> HealthResult:
    return asked(file=File(path=str(path), **more))


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process with a unique name."""
    program = tmp_path / "a-rather-long-name"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"]) as process:
        deadline = time.monotonic() + 10
        while not Path(f"/proc/{process.pid}/comm").read_text().startswith("a-rather"):
            assert time.monotonic() < deadline
        yield process
        process.kill()


def test_processes_by_name_number_and_count(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    name, pidfile = "a-rather-long-name", tmp_path / "pid"
    pidfile.write_text(f"{sleeper.pid}\n")
    assert asked(process=Process(name=name)).status is Health.OK
    assert asked(process=Process(name=name, count=1)).status is Health.OK
    assert asked(process=Process(name=name, count=0)).status is Health.CRITICAL
    assert asked(process=Process(name="a-rather-long-other")).status is Health.CRITICAL
    assert asked(process=Process(name="a-rather-long-other", count=0)).status is Health.OK
    assert asked(process=Process(pidfile=str(pidfile), name=name)).status is Health.OK
    wrong = asked(process=Process(pidfile=str(pidfile), name="nginx"))
    assert wrong.status is Health.CRITICAL
    assert wrong.output == f"process of {pidfile} nginx: 0 running, expected one or more"
    sleeper.kill()
    deadline = time.monotonic() + 10
    while ") Z " not in Path(f"/proc/{sleeper.pid}/stat").read_text():
        assert time.monotonic() < deadline
    # A zombie keeps its process id and name.
    assert asked(process=Process(pidfile=str(pidfile))).status is Health.CRITICAL
    assert asked(process=Process(name=name)).status is Health.CRITICAL
    pidfile.write_text("none\n")
    assert asked(process=Process(pidfile=str(pidfile))).status is Health.UNKNOWN
    pidfile.unlink()
    assert asked(process=Process(pidfile=str(pidfile))).status is Health.CRITICAL


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    assert of_file(path).output == f"{path} does not exist"
    assert of_file(path, exists=False).status is Health.OK
    path.write_text("x" * 3_000_000 + "ready")
    path.chmod(0o640)
    owner = os.getuid()
    good = {"type": "file", "mode": FileMode.parse("0640"), "owner": owner, "contains": "ready"}
    assert of_file(path, **good, max_age=Duration(60), min_size=5).status is Health.OK
    assert of_file(path, exists=False).status is Health.CRITICAL
    wrong = {
        "type": "directory",
        "mode": FileMode.parse("0600"),
        "owner": owner + 1,
        "group": os.getgid() + 1,
        "contains": "absent",
        "min_age": Duration(60),
        "min_size": 4_000_000,
    }
    for key, value in wrong.items():
        if key == "type":
            assert of_file(path, type=value).status is Health.CRITICAL
        else:
            assert of_file(path, **{key: value}).status is Health.CRITICAL, key
    os.utime(path, (0, time.time() - 3600))
    result = of_file(path, max_age=Duration(60))
    assert "was written 3600 s ago, expected at most 60 s" in result.output
    os.utime(path, (0, time.time() + 3600))
    assert of_file(path, max_age=Duration(60)).status is Health.CRITICAL
    assert of_file(path, owner="no-such-user-here").status is Health.UNKNOWN


def test_links_are_followed_and_special_files_not_read(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("nowhere")
    assert of_file(link).status is Health.CRITICAL
    assert of_file(link, type="link").status is Health.OK
    os.mkfifo(pipe)
    assert of_file(pipe, type="fifo").status is Health.OK
    assert of_file(pipe, contains="x").status is Health.UNKNOWN
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert of_file(tmp_path / "socket", type="socket").status is Health.OK


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_unreadable_file_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    result = of_file(tmp_path / "closed/file", exists=False)
    assert result.status is Health.UNKNOWN


def test_free_space(tmp_path: Path) -> None:
    where = str(tmp_path)
    assert asked(disk=Disk(path=where, free=1)).status is Health.OK
    assert asked(disk=Disk(path=where, free="0%")).status is Health.OK
    wrong = asked(disk=Disk(path=where, free="900PB"))
    assert wrong.status is Health.CRITICAL
    assert wrong.output.endswith("are free, expected 900PB")
    assert asked(disk=Disk(path=where, free="100%", inodes=1)).status is Health.CRITICAL
    assert asked(disk=Disk(path=f"{where}/none", free=1)).status is Health.UNKNOWN
    # /proc has no inode counts.
    assert asked(disk=Disk(path="/proc", inodes="5%")).status is Health.UNKNOWN


@each_row(
    ("text", "amount"),
    [
        (5, (5.0, False)),
        ("5", (5.0, False)),
        ("10%", (10.0, True)),
        ("1.5GB", (1.5e9, False)),
        ("2 GiB", (2.0 * 1024**3, False)),
        ("500MB", (5e8, False)),
        ("1KiB", (1024.0, False)),
    ],
)
def test_amounts(text: str | int, amount: tuple[float, bool]) -> None:
    assert kinds.parse_amount(text) == amount


WRONG = {
    "{}": "has no kind, expected one of command, http, ",
    "{command: a, tcp: {address: 'a:1'}}": "has command and tcp, expected one of command, http, ",
    "{tcp: {address: localhost}}": "has address 'localhost', expected HOST:PORT",
    "{tcp: {address: 'localhost:0'}}": "expected HOST:PORT",
    "{tcp: {adress: 'localhost:1'}}": "adress is not a key of tcp (did you mean 'address'?)",
    "{http: {url: 'ftp://a/'}}": "has an invalid url",
    "{http: {url: 'http://user:pw@a/'}}": "has an invalid url",
    "{http: {url: 'http://a/', certificate_days: 3}}": "which require a url with https://",
    "{http: {url: 'http://a/', method: POST}}": "expected GET or HEAD or OPTIONS",
    "{http: {url: 'http://a/', headers: ['a']}}": "expected 'Name: value' in one line",
    "{http: {url: 'http://a/', contains: ''}}": "has an empty contains",
    "{file: {path: relative}}": "has path 'relative', expected an absolute path",
    "{file: {path: /a, exists: false, owner: root}}": "has exists: false and checks of a file, which exclude",
    "{disk: {path: /}}": "has no limit, expected free or inodes",
    "{disk: {path: /, free: 110%}}": "has amount '110%'",
    "{process: {count: 2}}": "names no process",
    "{service: {unit: '-x'}}": "has unit '-x'",
}


@pytest.mark.parametrize("check", WRONG)
def test_invalid_check_is_reported_with_location(execute: Any, tmp_path: Path, check: str) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        f"resources:\n  - exec:\n      - 'true':\n          health_checks:\n            - {check}\n"
    )
    status, output = execute("lint", str(tmp_path))
    assert status == 1, output
    assert WRONG[check] in output
    assert "manifest.yaml:5:" in output


def test_numbers_and_expressions_are_values_of_a_check() -> None:
    import msgspec

    raw = {"process": {"name": "x", "count": 2}, "timeout": "5s"}
    check = msgspec.convert(raw, HealthCheck, dec_hook=parse_value)
    assert (check.kind, check.desired.count, check.timeout) == ("process", 2, 5.0)


@pytest.mark.parametrize(("scope", "runtime"), [("system", None), ("user", f"/run/user/{os.geteuid()}")])
def test_the_systemd_is_asked_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, scope: Any, runtime: str | None
) -> None:
    asked_for: list[Command] = []

    def answer(self: LocalSystem, command: Command) -> Completed:
        asked_for.append(command)
        shown = "Id=multi-user.target\n\nId=greeter.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
        return Completed(0, None, False, shown, "", 0.0)

    monkeypatch.setattr(LocalSystem, "query", answer)
    assert asked(service=kinds.Service(unit="greeter", scope=scope)).status is Health.OK
    (command,) = asked_for
    assert command.arguments[:3] == ["systemctl", f"--{scope}", "show"]
    assert command.environment.get("XDG_RUNTIME_DIR") == runtime


UNIT = {
    "Id": "app.service", "LoadState": "loaded", "ActiveState": "active", "SubState": "running",
    "UnitFileState": "enabled", "WantedBy": "multi-user.target",
}  # fmt: skip


def systemd_with(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, str]) -> None:
    """Let ``systemctl show`` return each answer for ``app`` in turn, and the names of all other units."""
    pending = [{**UNIT, **answer} for answer in answers]

    def answer(self: LocalSystem, command: Command) -> Completed:
        names = command.arguments[command.arguments.index("--") + 1 :]
        shown = []
        for name in names:
            if name == "app":
                shown.append(pending.pop(0) if len(pending) > 1 else pending[0])
            else:
                load = "loaded" if name in ("default.target", "other.service") else "not-found"
                shown.append({"Id": name.replace("default", "multi-user"), "LoadState": load})
        text = "\n\n".join("\n".join(f"{key}={value}" for key, value in fields.items()) for fields in shown)
        return Completed(0, None, False, f"{text}\n", "", 0.0)

    monkeypatch.setattr(LocalSystem, "query", answer)


@pytest.mark.parametrize(
    ("unit", "enabled", "disabled"),
    [
        ({}, True, False),
        ({"WantedBy": "rescue.target"}, False, False),
        ({"WantedBy": "other.service"}, False, False),
        ({"UnitFileState": "enabled-runtime"}, False, False),
        ({"UnitFileState": "disabled", "WantedBy": ""}, False, True),
        ({"UnitFileState": "static", "WantedBy": ""}, False, True),
        ({"UnitFileState": "static"}, True, False),
        ({"UnitFileState": "indirect", "WantedBy": "", "TriggeredBy": "app.socket"}, False, True),
        ({"UnitFileState": "generated", "WantedBy": ""}, False, True),
    ],
)
def test_unit_is_enabled_if_it_starts_at_boot(
    monkeypatch: pytest.MonkeyPatch, unit: dict[str, str], enabled: bool, disabled: bool
) -> None:
    systemd_with(monkeypatch, unit)
    for wanted, is_so in ((True, enabled), (False, disabled)):
        answer = asked(service=kinds.Service(unit="app", enabled=wanted))
        assert (answer.status is Health.OK) is is_so, answer


def test_unit_that_is_restarted_is_not_active(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = {
        "ActiveState": "activating",
        "SubState": "auto-restart",
        "ExecMainCode": "1",
        "ExecMainStatus": "3",
    }
    systemd_with(monkeypatch, loop)
    answer = asked(service=kinds.Service(unit="app"))
    assert answer.status is Health.CRITICAL
    assert "app is activating (auto-restart), its process has ended with exit code 3" in answer.output


def test_unit_whose_young_process_ends_is_not_active(monkeypatch: pytest.MonkeyPatch) -> None:
    systemd_with(monkeypatch, {}, {"NRestarts": "1"})
    ended = iter([True])
    monkeypatch.setattr(systemd_units, "ends_early", lambda fields, at_most: next(ended))
    assert asked(service=kinds.Service(unit="app")).status is Health.CRITICAL
