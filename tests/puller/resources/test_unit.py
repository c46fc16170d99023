"""The unit resource: every state of its file with every declaration, verification, reloads, and rejected input."""

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError, MutationInNoop, ResourceError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event, State
from puller.resources import unit
from puller.resources.base import PropertyError, Resource
from puller.resources.services.systemd import SYSTEM
from puller.resources.unit import Unit
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import Attributes
from tests.simulators.systemd import OFFSET, done
from tests.support.sweeps import Sweep

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]
Sections = dict[str, Any]

NAME = "job.service"
SECTIONS: Sections = {"Service": {"Type": "oneshot", "ExecStart": "/bin/true"}}
JOB = {"name": NAME, "sections": SECTIONS}
ABSENT = {"name": NAME, "ensure": "absent"}
HEADER = "# Puller writes this file: what is changed here is lost.\n"
TEXT = f"{HEADER}[Service]\nType=oneshot\nExecStart=/bin/true\n"
WRITTEN, REMOVED = "Would have written the unit", "Would have removed the unit"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the unit. The test's user owns all files, and systemd does not run."""
    directory = tmp_path / "system"
    directory.mkdir()
    monkeypatch.setattr(unit, "DIRECTORY", str(directory))
    monkeypatch.setattr(unit, "BOOTED", str(tmp_path / "booted"))
    monkeypatch.setattr(unit, "ATTRIBUTES", Attributes(os.geteuid(), os.getegid(), 0o644))
    return directory / NAME


def write(path: Path, text: str = TEXT, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)


def make_full(path: Path) -> None:
    path.mkdir()
    (path / "precious").write_text("x")


def alias(path: Path) -> None:
    write(path.with_name("other.service"))
    path.symlink_to("other.service")


STATES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "nothing, and no directory": lambda path: path.parent.rmdir(),
    "the same": write,
    "another program": lambda path: write(path, TEXT.replace("true", "false")),
    "an empty file": lambda path: write(path, ""),
    "bytes that are no text": lambda path: path.write_bytes(b"\xff\0"),
    "writable for all": lambda path: write(path, mode=0o666),
    "a mask": lambda path: path.symlink_to("/dev/null"),
    "an alias": alias,
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a FIFO": lambda path: os.mkfifo(path),
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o755),
    "a directory": make_full,
}
REFUSED = {
    "a mask": "masks the unit, .*; if it is not needed: systemctl unmask job.service",
    "an alias": "is a link to another unit file, .*; if it is not needed: remove the link",
    "a dangling link": "is a link to another unit file",
    "a FIFO": "is a fifo, and only a file is replaced or removed",
    "a socket": "is a socket, and only a file",
    "a directory": "is a directory, and only a file",
}


def expectation(state: str, desired: Mapping[str, Any]) -> str:
    """Return the dry run's message, an empty text if in sync, or the reason of a rejection."""
    if state in REFUSED:
        return REFUSED[state]
    if desired is ABSENT:
        return "" if state.startswith("nothing") else REMOVED
    return "" if state == "the same" else WRITTEN


EVERY_PAIR = [
    pytest.param(
        state,
        desired,
        expectation(state, desired),
        id=f"{state}, expected {desired.get('ensure', 'present')}",
    )
    for state in STATES
    for desired in (JOB, ABSENT)
]


def picture(path: Path) -> tuple[Any, ...]:
    if not os.path.lexists(path):
        return ()
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns


@pytest.mark.parametrize(("state", "desired", "expected"), EVERY_PAIR)
def test_every_state_converges_in_a_run_or_is_refused(
    make: Make, converge: Converge, path: Path, state: str, desired: dict[str, Any], expected: str
) -> None:
    STATES[state](path)
    before = picture(path)
    if state in REFUSED:
        with pytest.raises(ResourceError, match=expected):
            converge(make(Unit, desired))
        assert picture(path) == before
        return
    assert bool(converge(make(Unit, desired))) is bool(expected)
    if desired is ABSENT:
        assert not os.path.lexists(path)
    else:
        assert (path.read_text(), path.lstat().st_mode) == (TEXT, 0o100644)
    after = picture(path)
    assert converge(make(Unit, desired)) == []
    assert picture(path) == after, "the second run changes nothing"
    assert not list(path.parent.parent.glob("**/.*")), "nothing is left beside it"


@pytest.mark.parametrize(("state", "desired", "expected"), EVERY_PAIR)
def test_noop_predicts_the_run_and_changes_nothing(
    make: Make, path: Path, state: str, desired: dict[str, Any], expected: str
) -> None:
    STATES[state](path)
    before = picture(path)
    resource = make(Unit, desired, noop=True)
    actual = resource.look()
    differences = resource.differences(actual)
    assert bool(differences) is bool(expected)
    if expected in (WRITTEN, REMOVED):
        with pytest.raises(MutationInNoop):
            resource.change(differences, actual)
        assert resource.noop_message(differences, actual) == expected
        assert resource.context.system.exists(str(path)) is (desired is JOB), "later resources know it"
    elif expected:
        with pytest.raises(ResourceError, match=expected):
            resource.noop_message(differences, actual)
    assert picture(path) == before


def test_idle_run_starts_no_process_and_writes_nothing(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path)
    resource = make(Unit, JOB)
    for forbidden in ("query", "execute", "replace_file", "set_attributes", "remove"):
        monkeypatch.setattr(resource.context.system, forbidden, None)
    assert resource.differences(resource.look()) == []


# The content of the file


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"Service": {"ExecStart": "/bin/true"}}, "[Service]\nExecStart=/bin/true\n"),
        ({"Service": {"ExecStart": ["", "/bin/true"]}}, "[Service]\nExecStart=\nExecStart=/bin/true\n"),
        (
            {"Unit": {"After": ["a.service", "b.service"]}, "Service": {"ExecStart": "/bin/true"}},
            "[Unit]\nAfter=a.service\nAfter=b.service\n\n[Service]\nExecStart=/bin/true\n",
        ),
        (
            {"Service": {"RemainAfterExit": True, "PrivateTmp": False, "LimitNOFILE": 1024}},
            "[Service]\nRemainAfterExit=yes\nPrivateTmp=no\nLimitNOFILE=1024\n",
        ),
        ({"Service": {}}, "[Service]\n"),
    ],
)
def test_sections_have_the_documented_form(
    make: Make, converge: Converge, path: Path, sections: Sections, text: str
) -> None:
    converge(make(Unit, {"name": NAME, "sections": sections, "verify": False}))
    assert path.read_text() == HEADER + text


def test_text_comes_from_content_source_or_template(
    make: Make, converge: Converge, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "unit").write_text(TEXT)
    (tmp_path / "unit.j2").write_text("[Service]\nExecStart={{ data.program }}\n")
    converge(make(Unit, {"name": NAME, "source": "unit"}))
    assert path.read_text() == TEXT
    converge(make(Unit, {"name": NAME, "template": "unit.j2", "data": {"program": "/bin/echo"}}))
    assert path.read_text() == "[Service]\nExecStart=/bin/echo\n"
    (tmp_path / "named.j2").write_text("[Service]\nExecStart={{ program }}\n")
    named = {"template": "named.j2", "data": {"program": "/bin/true"}, "interpolate": True}
    converge(make(Unit, {"name": NAME, **named}))
    assert path.read_text() == "[Service]\nExecStart=/bin/true\n"
    converge(make(Unit, {"name": NAME, "content": TEXT}))
    assert path.read_text() == TEXT
    with pytest.raises(ResourceError, match="missing"):
        make(Unit, {"name": NAME, "source": "missing"}).look()


def test_changes_are_shown_unless_sensitive(make: Make, path: Path) -> None:
    write(path, TEXT.replace("true", "false"))
    resource = make(Unit, JOB)
    shown = resource.diff(resource.look()) or ""
    assert "-ExecStart=/bin/false" in shown
    assert "+ExecStart=/bin/true" in shown
    resource = make(Unit, {**JOB, "sensitive": True})
    assert resource.diff(resource.look()) is None
    assert [str(item) for item in resource.differences(resource.look())] == ["content (sensitive)"]


def test_drop_in_makes_its_directory_and_removes_it(make: Make, converge: Converge, path: Path) -> None:
    drop_in = {"name": "job.service.d/x.conf", "sections": {"Service": {"Nice": 5}}}
    converge(make(Unit, drop_in))
    directory = path.with_name("job.service.d")
    assert directory.stat().st_mode & 0o777 == 0o755
    assert (directory / "x.conf").read_text() == f"{HEADER}[Service]\nNice=5\n"
    (directory / "theirs.conf").write_text("")
    converge(make(Unit, {"name": drop_in["name"], "ensure": "absent"}))
    assert [item.name for item in directory.iterdir()] == ["theirs.conf"]
    converge(make(Unit, drop_in))
    (directory / "theirs.conf").unlink()
    converge(make(Unit, {"name": drop_in["name"], "ensure": "absent"}))
    assert not directory.exists()


@pytest.mark.parametrize(
    "name", ["a@.service", "a@b.service", r"srv-a\x2db.mount", "service.d/x.conf", "a-.service.d/x.conf"]
)
def test_names_with_escapes_and_templates_are_written(
    make: Make, converge: Converge, path: Path, name: str
) -> None:
    converge(make(Unit, {"name": name, "content": TEXT, "verify": False}))
    assert (path.parent / name).read_text() == TEXT


# Verification


@needs_systemd
@pytest.mark.parametrize("noop", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (NAME, "[Service]\nExecStart=/bin/true\nRestrat=always\n", "Unknown key"),
        (NAME, "[Service]\nExecStart=/no/such/program\n", "/no/such/program is not executable"),
        (NAME, "[Service]\n", "Service has no ExecStart="),
        ("job.timer", "[Timer]\nOnCalendar=never\n", "Failed to parse calendar specification"),
        ("job@.service", "[Service]\nType=nonsense\nExecStart=/bin/true %i\n", "nonsense"),
        ("srv-a.mount", "[Mount]\nWhat=tmpfs\nWhere=/srv/b\n", "doesn't match unit name"),
    ],
)
def test_rejected_text_leaves_the_old_file(
    make: Make, path: Path, name: str, content: str, message: str, noop: bool
) -> None:
    place = path.with_name(name)
    write(place)
    before = picture(place)
    resource = make(Unit, {"name": name, "content": content}, noop=noop)
    actual = resource.look()
    act: Any = resource.noop_message if noop else resource.change
    with pytest.raises(ResourceError, match=f"rejects {re.escape(name)}, so .* stays as it was:\n") as caught:
        act(resource.differences(actual), actual)
    assert message in str(caught.value)
    assert "puller-unit-" not in str(caught.value), "messages name the final path"
    assert picture(place) == before


@needs_systemd
def test_secret_text_is_not_in_the_messages(make: Make, converge: Converge) -> None:
    content = "[Service]\nExecStart=/bin/true\nEnvironmentt=PASSWORD=hunter2\n"
    with pytest.raises(ResourceError, match="Its messages may be secret") as caught:
        converge(make(Unit, {"name": NAME, "content": content, "sensitive": True}))
    assert "hunter2" not in str(caught.value)
    assert "Environmentt" not in str(caught.value)


@needs_systemd
def test_verify_false_writes_any_text(make: Make, converge: Converge, path: Path) -> None:
    converge(make(Unit, {"name": NAME, "content": "[Service]\nFoo=1\n", "verify": False}))
    assert path.read_text() == "[Service]\nFoo=1\n"


@needs_systemd
def test_drop_in_is_verified_with_its_unit(make: Make, converge: Converge, path: Path) -> None:
    write(path)
    name = "job.service.d/x.conf"
    with pytest.raises(ResourceError, match=r"x\.conf:2: Invalid memory limit 'lots'"):
        converge(make(Unit, {"name": name, "content": "[Service]\nMemoryMax=lots\n"}))
    assert not path.with_name("job.service.d").exists()
    with pytest.raises(ResourceError, match="more than one ExecStart"):
        converge(make(Unit, {"name": name, "content": "[Service]\nType=simple\nExecStart=/bin/true\n"}))
    converge(make(Unit, {"name": name, "content": "[Service]\nExecStart=\nExecStart=/bin/true\n"}))


@needs_systemd
def test_errors_of_the_unit_are_not_those_of_a_drop_in(make: Make, converge: Converge, path: Path) -> None:
    write(path, "[Service]\nExecStart=/no/such/program\nFoo=1\n")
    converge(make(Unit, {"name": "job.service.d/x.conf", "content": "[Service]\nNice=5\n"}))
    with pytest.raises(ResourceError, match="Unknown key") as caught:
        converge(make(Unit, {"name": "job.service.d/x.conf", "content": "[Service]\nBar=5\n"}))
    assert "Foo" not in str(caught.value)
    assert "/no/such/program" not in str(caught.value)


def test_drop_in_without_a_unit_file_is_not_verified(make: Make, converge: Converge, path: Path) -> None:
    converge(make(Unit, {"name": "generated.service.d/x.conf", "content": "[Service]\nFoo=1\n"}))
    assert (path.parent / "generated.service.d/x.conf").exists()


def test_machine_without_systemd_analyze_gets_the_file(
    make: Make, converge: Converge, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "SEARCH_PATH", "/no/such/directory")
    converge(make(Unit, {"name": NAME, "content": "[Service]\nFoo=1\n"}))
    assert path.read_text() == "[Service]\nFoo=1\n"


@needs_systemd
def test_dry_run_expects_programs_of_earlier_resources(tmp_path: Path, path: Path) -> None:
    program = tmp_path / "program"
    file = {"content": "#!/bin/sh\n", "owner": os.geteuid(), "group": os.getegid(), "mode": "0755"}
    resources = [
        {"file": [{str(program): file}]},
        {"unit": [{NAME: {"sections": {"Service": {"ExecStart": f"{program} --all"}}}}]},
    ]
    assert states(apply(tmp_path, resources, NoopSystem(), noop=True)) == ["would change"] * 2
    (event,) = apply(tmp_path, resources[1:], NoopSystem(), noop=True)
    assert event.state is State.FAILED, "no resource installs it"
    assert states(apply(tmp_path, resources)) == ["changed", "changed"]
    assert path.exists()


@needs_systemd
@pytest.mark.parametrize("noop", [False, True])
def test_socket_is_verified_after_its_service(tmp_path: Path, noop: bool) -> None:
    sections = {"Socket": {"ListenStream": "/run/job.sock"}}
    resources = [{"unit": [{"job.socket": {"sections": sections}}, {NAME: {"sections": SECTIONS}}]}]
    system = NoopSystem() if noop else LocalSystem()
    events = apply(tmp_path, resources, system, noop=noop)
    assert [event.reference for event in events] == [f"unit#{NAME}", "unit#job.socket"]
    assert states(events) == ["would change" if noop else "changed"] * 2, [event.errors for event in events]


# In runs


def apply(
    directory: Path, resources: list[Any], system: LocalSystem | None = None, *, noop: bool = False
) -> list[Event]:
    file = directory / "manifest.yaml"
    file.write_text(yaml.safe_dump({"resources": resources}))
    manifest = load_manifest(file, "manifest.yaml", Inputs({}, {}))
    pending = PendingRefreshes(None, "test")
    return Engine(manifest, system or LocalSystem(), lambda url: b"", pending, Settings(noop=noop)).apply()


def states(events: Iterable[Event]) -> list[str]:
    return [str(event.state) for event in events]


class Killed(BaseException):
    """Raised where a test simulates a kill."""


class Booted(LocalSystem):
    """A machine with systemd, which is killed at step ``kill_at``. ``loaded`` are the files of its last reload."""

    reloads = 0
    fails = False
    """Whether reloads fail."""
    loaded: Mapping[str, str] = {}
    read_at = 0.0
    """The time of the last reload, in seconds since 1970."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory, self.kill_at = directory, -1

    def _step(self) -> None:
        self.kill_at -= 1
        if self.kill_at == -1:
            raise Killed

    def query(self, command: Command) -> Completed:
        if command.arguments[0] != "systemctl":
            return super().query(command)
        day, monotonic = datetime.fromtimestamp(self.read_at, UTC), OFFSET + self.read_at
        shown = f"UnitsLoadTimestamp={day:%a %Y-%m-%d %H:%M:%S.%f} UTC\n"
        return done(f"{shown}UnitsLoadTimestampMonotonic={int(monotonic * 1e6)}\n")

    def execute(self, command: Command) -> Completed:
        assert "daemon-reload" in command.arguments
        self._step()
        if self.fails:
            return done("", 1, "Failed to reload")
        self.loaded, self.reloads = texts(self.directory), self.reloads + 1
        self.executed += 1
        # The file system's clock is coarser, so files of the same tick would count as unread.
        self.read_at = max(time.time(), newest(self.directory) + 1e-5)
        return done()

    def make_directory(self, *arguments: Any, **named: Any) -> None:
        self._step()
        super().make_directory(*arguments, **named)
        self._step()

    def replace_file(self, *arguments: Any, **named: Any) -> None:
        self._step()
        super().replace_file(*arguments, **named)
        self._step()

    def remove(self, *arguments: Any, **named: Any) -> None:
        self._step()
        super().remove(*arguments, **named)
        self._step()


def texts(directory: Path) -> dict[str, str]:
    """Return the files below a directory with their texts."""
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.glob("**/*")
        if path.is_file()
    }


def newest(directory: Path) -> float:
    """Return the time of the last change in a directory, in seconds since 1970."""
    return max(path.lstat().st_ctime for path in (directory, *directory.glob("**/*")))


@pytest.fixture
def machine(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Booted:
    """Return a machine on which systemd runs, with the test's directory of units."""
    (tmp_path / "booted").mkdir()
    manager = msgspec.structs.replace(SYSTEM, directories=(str(path.parent),), generated_from=())
    monkeypatch.setattr(unit, "SYSTEM", manager)
    return Booted(path.parent)


def units(**texts: str) -> list[Any]:
    """Return units with these programs, by name without ``.service``."""
    return [
        {
            "unit": [
                {f"{name}.service": {"sections": {"Service": {"ExecStart": text}}}}
                for name, text in texts.items()
            ]
        }
    ]


GONE = [{"unit": [{f"{name}.service": {"ensure": "absent"}} for name in ("a", "b")]}]


def test_versions_follow_each_other_there_and_back(tmp_path: Path, path: Path) -> None:
    for program, count in (("/bin/true", 2), ("/bin/false", 2), ("/bin/true", 2)):
        assert states(apply(tmp_path, units(a=program, b=program))) == ["changed"] * count
        assert states(apply(tmp_path, units(a=program, b=program))) == ["stable"] * count
        assert f"ExecStart={program}\n" in (path.parent / "a.service").read_text()
    assert states(apply(tmp_path, GONE)) == ["changed", "changed"]
    assert states(apply(tmp_path, GONE)) == ["stable", "stable"]
    assert list(path.parent.iterdir()) == []


def test_rejected_unit_does_not_hold_up_the_next_unit(tmp_path: Path, path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    events = apply(tmp_path, units(a="/no/such/program", b="/bin/true", c="/no/such/program"))
    assert states(events) == ["failed", "changed", "failed"]
    assert [item.name for item in path.parent.iterdir()] == ["b.service"]


def test_file_in_its_place_is_an_error_of_the_manifest(tmp_path: Path, path: Path) -> None:
    file = {"content": "x", "owner": "root", "group": "root", "mode": "0644"}
    with pytest.raises(ManifestError, match=rf"writes the whole file: unit#{NAME} at "):
        apply(tmp_path, [{"unit": [{NAME: {"sections": SECTIONS}}]}, {"file": [{str(path): file}]}])


def test_service_follows_its_units_and_precedes_removals(tmp_path: Path) -> None:
    def order(*resources: Any) -> list[str]:
        file = tmp_path / "manifest.yaml"
        file.write_text(yaml.safe_dump({"resources": list(resources)}))
        manifest = load_manifest(file, "manifest.yaml", Inputs({}, {}))
        return [str(manifest.declarations[index].reference) for index in manifest.order]

    drop_in, template = "a@.service.d/x.conf", "a@.service"
    present = [{name: {"sections": SECTIONS}} for name in (drop_in, template)]
    assert order({"service": [{"a@one": {}}]}, {"unit": present}) == [
        f"unit#{template}",
        f"unit#{drop_in}",
        "service#a@one",
    ]
    gone = {"unit": [{NAME: {"ensure": "absent"}}]}
    stopped = {"service": [{"job": {"ensure": "stopped", "enable": False}}]}
    assert order(gone, stopped) == ["service#job", f"unit#{NAME}"]


# Reloads


def test_systemd_reads_its_files_once_for_all_units(tmp_path: Path, machine: Booted) -> None:
    apply(tmp_path, units(a="/bin/true"), machine)
    for resources in (
        units(a="/bin/true", b="/bin/true", c="/bin/true"),
        units(a="/bin/false", b="/bin/false"),
        GONE,
    ):
        before = machine.reloads
        apply(tmp_path, resources, machine)
        assert machine.reloads == before + 1
        assert machine.loaded == texts(machine.directory)
        apply(tmp_path, resources, machine)
        assert machine.reloads == before + 1, "the second run does not reload"


def test_failed_reload_is_repeated_by_the_next_run(tmp_path: Path, machine: Booted) -> None:
    machine.read_at = newest(machine.directory) + 1e-5  # it has read all files
    machine.fails = True
    events = apply(tmp_path, units(a="/bin/true"), machine)
    assert states(events) == ["failed"]
    assert "daemon-reload" in str(events[0].errors)
    assert (machine.reloads, machine.loaded) == (0, {})
    machine.fails = False
    assert states(apply(tmp_path, units(a="/bin/true"), machine)) == ["stable"]
    assert machine.loaded == texts(machine.directory)


def test_dry_run_never_reloads(tmp_path: Path, machine: Booted, monkeypatch: pytest.MonkeyPatch) -> None:
    write(machine.directory / "a.service")
    system = NoopSystem()
    monkeypatch.setattr(system, "query", machine.query)
    assert states(apply(tmp_path, units(a="/bin/false"), system, noop=True)) == ["would change"]
    assert machine.reloads == 0


DROP_IN = [{"unit": [{"a.service.d/x.conf": {"content": "[Service]\nNice=5\n", "verify": False}}]}]
STEPS = {
    "first version": ([], units(a="/bin/true", b="/bin/true") + DROP_IN),
    "second version": (units(a="/bin/true", b="/bin/true"), units(a="/bin/false", b="/bin/false")),
    "removal": (
        units(a="/bin/true", b="/bin/true") + DROP_IN,
        [*GONE, {"unit": [{"a.service.d/x.conf": {"ensure": "absent"}}]}],
    ),
}


@pytest.mark.parametrize("change", STEPS)
def test_run_after_a_kill_converges_and_reloads(
    tmp_path: Path, machine: Booted, sweep: Sweep, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(unit, "SEARCH_PATH", "/no/such/directory")
    before, after = STEPS[change]
    versions = []
    for version in (before, after):
        clear(machine.directory)
        apply(tmp_path, before, machine)
        apply(tmp_path, version, machine)
        versions.append(texts(machine.directory))

    def is_killed(step: int) -> bool:
        clear(machine.directory)
        apply(tmp_path, before, machine)
        machine.kill_at = step
        try:
            apply(tmp_path, after, machine)
        except Killed:
            pass
        else:
            return False
        finally:
            machine.kill_at = -1
        for name, text in texts(machine.directory).items():
            assert text in [version[name] for version in versions if name in version], (
                "old or new, never half"
            )
        apply(tmp_path, after, machine)
        assert texts(machine.directory) == versions[1]
        assert machine.loaded == versions[1], "systemd has read the files"
        reloads = machine.reloads
        assert {*states(apply(tmp_path, after, machine))} == {"stable"}
        assert machine.reloads == reloads
        return True

    assert sweep(is_killed) > 4


def clear(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


# Errors at load


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ensure": "running"}, "ensure is 'running', expected present or absent"),
        ({"name": "job"}, "name is 'job', expected a unit such as backup.timer"),
        ({"name": ""}, "name is '', expected a unit"),
        ({"name": "../job.service"}, r"name is '\.\./job.service', expected a drop-in"),
        ({"name": "/etc/job.service"}, "expected a drop-in"),
        ({"name": "..service"}, "expected a unit"),
        ({"name": ".service"}, "expected a unit"),
        ({"name": "-x.service"}, "expected a unit"),
        ({"name": "a b.service"}, "expected a unit"),
        ({"name": "a.service\n"}, r"name is 'a.service\\n', expected a unit"),
        ({"name": "a\0.service"}, "expected a unit"),
        ({"name": "a.conf"}, "expected a unit"),
        ({"name": "a.scope"}, "expected a unit"),
        ({"name": f"{'a' * 250}.service"}, "expected a unit"),
        ({"name": "a.service/x.conf"}, "expected a drop-in"),
        ({"name": "a.service.d/../x.conf"}, "expected a drop-in"),
        ({"name": "a.service.d/x/y.conf"}, "expected a drop-in"),
        ({"name": "a.service.d/.conf"}, "expected a drop-in"),
        ({"name": "a.service.d/x"}, "expected a drop-in"),
        ({"name": "a.service.d/x.conf\n"}, "expected a drop-in"),
        ({"name": "a.wants/x.conf"}, "expected a drop-in"),
        ({"sections": {}}, "sections is missing; or give content, source or template"),
        ({"content": "x"}, "content cannot be given together with sections"),
        ({"interpolate": True}, "interpolate is only for a template"),
        ({"sections": {}, "content": "x", "source": "y"}, "source cannot be given together with content"),
        (
            {"sections": {}, "source": "https://example.com/x"},
            "expected a file; use a file resource for a URL",
        ),
        ({"sections": {"A]\n[B": {}}}, "sections has .* expected the name of a section"),
        ({"sections": {"": {}}}, "expected the name of a section"),
        ({"sections": {"A": {"B=C": "d"}}}, r"has 'B=C' in \[A\], expected the name of a setting"),
        ({"sections": {"A": {"B\nC": "d"}}}, "expected the name of a setting"),
        ({"sections": {"A": {"B": "c\nExecStart=/bin/sh"}}}, r"has B with .* in \[A\], expected one line"),
        ({"sections": {"A": {"B": ["c", "d\r"]}}}, "expected one line"),
        ({"sections": {"A": {"B": "c\\"}}}, "expected one line, without a backslash at its end"),
        ({"sections": {"A": {"B": "c\\ "}}}, "expected one line, without a backslash at its end"),
        ({"sections": {"A": {"B": "c\0"}}}, "expected one line"),
    ],
)
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        make(Unit, {**JOB, **properties})
