"""The sysctl resource: every state of kernel and file, on a simulated kernel."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.reporting.report import Event, State
from puller.resources.kernel import sysctl_files
from puller.resources.kernel.sysctl import LeftoverSysctl, Sysctl
from puller.system import trusted_files
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import System

KEYS = {
    "net/ipv4/ip_forward": "0\n",
    "net/ipv4/conf/all/accept_redirects": "1\n",
    "net/ipv4/ip_local_port_range": "32768\t60999\n",
    "net/ipv4/conf/eth0.100/rp_filter": "0\n",
    "kernel/ostype": "Linux\n",
    "kernel/modprobe": "\n",
    "vm/swappiness": "60\n",
    "vm/rounded": "0\n",
}


class Kernel(LocalSystem):
    """A simulated kernel that accepts words, rejects 999, rounds one parameter, and resets one with another."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.wrote: list[str] = []
        self.dies_after = -1

    def write_kernel(self, path: str, data: bytes) -> None:
        self._act(f"{Path(path).relative_to(self.root)} {data.decode().strip()}")
        if b"999" in data:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        value = b"\t".join(data.split()) + b"\n"
        Path(path).write_bytes(b"64\n" if path.endswith("rounded") else value)
        if path.endswith("ip_forward"):
            (self.root / "net/ipv4/conf/all/accept_redirects").write_text("1\n")

    def replace_file(self, path: str, *arguments: Any, **options: Any) -> None:
        self._act("file")
        super().replace_file(path, *arguments, **options)

    def _act(self, what: str) -> None:
        if self.dies_after == len(self.wrote):
            raise KeyboardInterrupt
        self.wrote.append(what)


class Machine:
    """A simulated machine. ``conf`` is the file read at boot."""

    def __init__(self, load: Callable[..., Any], directory: Path) -> None:
        self._load, self._directory = load, directory
        self.proc, self.boot = directory / "proc", directory / "sysctl.d"
        self.conf = self.boot / "90-puller.conf"
        self.state = directory / "state"
        for path in (self.boot, self.state):
            path.mkdir()
        for key, value in KEYS.items():
            (self.proc / key).parent.mkdir(parents=True, exist_ok=True)
            (self.proc / key).write_text(value)
        self.wrote: list[str] = []

    def running(self, key: str) -> str:
        return (self.proc / key).read_text().strip()

    def apply(self, *entries: str, noop: bool = False, dies_after: int = -1) -> dict[str, Event]:
        kernel = Kernel(self.proc)
        kernel.dies_after, self.wrote = dies_after, kernel.wrote
        system: System = NoopSystem() if noop else kernel
        text = "resources:\n" + "".join(f"  - {entry}\n" for entry in entries)
        pending = PendingRefreshes(self._directory / "owed.json", "web", noop=True)
        settings = Settings(diffs=True, noop=noop, state_directory=self.state)
        manifest = self._load(text.replace("CONF", str(self.conf)))
        engine = Engine(manifest, system, lambda url: b"", pending, settings)
        return {event.reference: event for event in engine.apply()}


@pytest.fixture
def machine(load: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(load, tmp_path)
    monkeypatch.setattr(trusted_files, "PROC_SYS", str(machine.proc))
    monkeypatch.setattr(sysctl_files, "DIRECTORIES", (str(machine.boot), str(tmp_path / "lib")))
    monkeypatch.setattr(sysctl_files, "OLD", str(tmp_path / "sysctl.conf"))
    return machine


def sysctl(name: str, value: object = "1", **properties: str) -> str:
    additional = "".join(f", {key}: {item}" for key, item in properties.items())
    expected = "" if value is None else f", value: {value}"
    return f"sysctl: {{name: {name!r}, path: CONF{expected}{additional}}}"


FORWARD = "sysctl#net.ipv4.ip_forward"


@pytest.mark.parametrize("running", ["0", "1"])
@pytest.mark.parametrize("kept", [None, "0", "1"])
@pytest.mark.parametrize("wanted", ["1", "absent"])
def test_every_state_becomes_every_other_and_stays(
    machine: Machine, running: str, kept: str | None, wanted: str
) -> None:
    (machine.proc / "net/ipv4/ip_forward").write_text(f"{running}\n")
    if kept is not None:
        machine.conf.write_text(f"# mine\nnet.ipv4.ip_forward={kept}\n")
    absent = wanted == "absent"
    entry = sysctl(
        "net.ipv4.ip_forward", None if absent else wanted, ensure="absent" if absent else "present"
    )
    foretold = machine.apply(entry, noop=True)[FORWARD]
    assert machine.wrote == []
    done = machine.apply(entry)[FORWARD]
    actions, words = [*machine.wrote], []
    if not absent and running != "1":
        words.append("changed net.ipv4.ip_forward from 0 to 1")
    if not absent and kept != "1":
        words.append(f"set net.ipv4.ip_forward to 1 in {machine.conf}")
    if absent and kept is not None:
        words.append(f"removed net.ipv4.ip_forward from {machine.conf}")
    assert foretold.noop_message == (f"Would have {', would have '.join(words)}" if words else "")
    assert done.state == ("changed" if words else "stable")
    assert len(actions) == len(words)
    assert foretold.differences == done.differences
    assert machine.running("net/ipv4/ip_forward") == (running if absent else "1")
    text = machine.conf.read_text() if machine.conf.exists() else ""
    assert ("ip_forward" in text) is not absent
    assert text.startswith("# mine\n") == (kept is not None)
    assert machine.apply(entry)[FORWARD].state == "stable"
    assert machine.wrote == []


def test_parameters_of_a_file_share_a_write_and_a_diff(machine: Machine) -> None:
    entries = [
        sysctl("vm.swappiness", 10),
        "exec: [{'true': {}}]",
        sysctl("net.ipv4.conf.eth0/100.rp_filter"),
        sysctl("net/ipv4/ip_local_port_range", "'1024 65000'"),
    ]
    foretold = machine.apply(*entries, noop=True)
    done = machine.apply(*entries)
    assert machine.wrote == [
        "vm/swappiness 10",
        "net/ipv4/conf/eth0.100/rp_filter 1",
        "net/ipv4/ip_local_port_range 1024 65000",
        "file",
    ]
    assert machine.conf.read_text() == (
        "vm.swappiness = 10\nnet.ipv4.conf.eth0/100.rp_filter = 1\nnet/ipv4/ip_local_port_range = 1024 65000\n"
    )
    diffs = [event.diff for event in done.values()]
    assert diffs[0]
    assert diffs[0].count("\n+") == 4
    assert diffs[1:] == ["", "", ""]
    assert [event.diff for event in foretold.values()] == diffs
    assert machine.conf.stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_parameter_refused_by_the_kernel_blocks_no_other(machine: Machine, wrong: int) -> None:
    values = ["5", "1", "'1 2'"]
    values[wrong] = "999"
    names = ["vm.swappiness", "net.ipv4.ip_forward", "net.ipv4.ip_local_port_range"]
    events = machine.apply(*map(sysctl, names, values))
    failed = events[f"sysctl#{names[wrong]}"]
    was = {"vm.swappiness": "60", "net.ipv4.ip_forward": "0"}.get(names[wrong], "32768 60999")
    assert failed.errors == [f"the kernel refuses 999: invalid argument. It stays {was}"]
    assert [event.state for event in events.values()].count(State.CHANGED) == 2
    assert machine.wrote.count("file") == 1
    retained = machine.conf.read_text()
    assert names[wrong] not in retained
    assert retained.count("\n") == 2


def test_value_rounded_by_the_kernel_is_a_failure(machine: Machine) -> None:
    events = machine.apply(sysctl("vm.rounded", 60), sysctl("vm.swappiness", 5))
    assert events["sysctl#vm.rounded"].errors == ["the kernel made 64 of 60"]
    assert machine.conf.read_text() == "vm.swappiness = 5\n"


def test_an_empty_value_is_one(machine: Machine) -> None:
    event = machine.apply(sysctl("kernel.modprobe", "''"))["sysctl#kernel.modprobe"]
    assert [*map(str, event.differences)] == [f"{machine.conf} value: ''"]
    assert machine.apply(sysctl("kernel.modprobe", "''"))["sysctl#kernel.modprobe"].state == "stable"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "net.bridge.bridge-nf-call-iptables",
            "it comes with the module br_netfilter, which may not be loaded",
        ),
        ("net.ipv4.conf.eth7.rp_filter", "unknown network interface eth7"),
        ("net.ipv4.conf.all.rp_filtre", "unknown key in this kernel"),
        ("kernel.nothing", "unknown key in this kernel"),
        ("net.ipv4.ip_forward.more", "unknown key in this kernel"),
    ],
)
def test_a_missing_key_is_a_failure_with_the_reason_in_noop_too(
    machine: Machine, key: str, said: str
) -> None:
    for noop in (True, False):
        [error] = machine.apply(sysctl(key), noop=noop)[f"sysctl#{key}"].errors
        assert said in error
    assert not machine.conf.exists()


def test_in_noop_a_module_may_bring_a_missing_key(machine: Machine) -> None:
    event = machine.apply("exec: [modprobe br_netfilter]", sysctl("net.bridge.x"), noop=True)[
        "sysctl#net.bridge.x"
    ]
    assert event.noop_message.startswith(
        "Would have changed net.bridge.x to 1, would have set net.bridge.x to 1 in"
    )


def test_read_only_key_is_stable_or_a_failure(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.proc / "kernel/ostype").chmod(0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("ostype"))
    assert machine.apply(sysctl("kernel.ostype", "Linux"))["sysctl#kernel.ostype"].state == "changed"
    assert machine.wrote == ["file"]
    assert machine.apply(sysctl("kernel.ostype", "Linux"))["sysctl#kernel.ostype"].state == "stable"
    for noop in (True, False):
        [error] = machine.apply(sysctl("kernel.ostype", "Hurd"), noop=noop)["sysctl#kernel.ostype"].errors
        assert error.endswith("kernel/ostype is read-only (mode 0444): the kernel rejects changes")
        assert machine.wrote == []


def test_a_directory_of_keys_is_no_key(machine: Machine) -> None:
    assert machine.apply(sysctl("net.ipv4"))["sysctl#net.ipv4"].state == "failed"


@pytest.mark.parametrize("step", range(4))
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(machine: Machine, step: int) -> None:
    entries = [
        sysctl("vm.swappiness", 10),
        sysctl("net.ipv4.ip_forward"),
        sysctl("net.ipv4.ip_local_port_range", "'1 2'"),
    ]
    with pytest.raises(KeyboardInterrupt):
        machine.apply(*entries, dies_after=step)
    assert not machine.conf.exists()  # A value is kept for the next boot after the kernel accepts it.
    machine.apply(*entries)
    assert machine.conf.read_text().count("\n") == 3
    assert {event.state for event in machine.apply(*entries).values()} == {"stable"}


def test_dependent_parameter_is_set_after_its_reset(machine: Machine) -> None:
    entries = [sysctl("net.ipv4.conf.all.accept_redirects", 0), sysctl("net/ipv4/ip_forward")]
    machine.apply(*entries)
    assert machine.wrote == ["net/ipv4/ip_forward 1", "net/ipv4/conf/all/accept_redirects 0", "file"]
    assert {event.state for event in machine.apply(*entries).values()} == {"stable"}


def test_versions_one_two_and_back(machine: Machine) -> None:
    for value in (10, 20, 10):
        assert machine.apply(sysctl("vm.swappiness", value))["sysctl#vm.swappiness"].state == "changed"
        assert machine.conf.read_text() == f"vm.swappiness = {value}\n"
        assert machine.running("vm/swappiness") == str(value)


# A minimum


def minimum(number: int, name: str = "vm.swappiness", **properties: str) -> str:
    return sysctl(name, None, minimum=str(number), **properties)


@pytest.mark.parametrize("running", [59, 60, 61])
@pytest.mark.parametrize("kept", [None, 59, 60, 61])
@pytest.mark.parametrize("other", [None, 59, 60, 61])
@pytest.mark.parametrize("name_of_other", ["10-a.conf", "99-z.conf"])
def test_minimum_never_lowers_a_value(
    machine: Machine, running: int, kept: int | None, other: int | None, name_of_other: str
) -> None:
    (machine.proc / "vm/swappiness").write_text(f"{running}\n")
    if kept is not None:
        machine.conf.write_text(f"vm.swappiness = {kept}\n")
    if other is not None:
        (machine.boot / name_of_other).write_text(f"vm.swappiness = {other}\n")
    foretold = machine.apply(minimum(60), noop=True)["sysctl#vm.swappiness"]
    done = machine.apply(minimum(60))["sysctl#vm.swappiness"]
    assert not done.errors
    assert foretold.differences == done.differences
    assert machine.running("vm/swappiness") == str(max(running, 60))
    own = sysctl_files.parse(machine.conf.read_text()) if machine.conf.exists() else {}
    line = own.get("vm/swappiness")
    assert line is None or int(line) >= max(60, kept or 0, other or 0)
    if other is None or other < 60:
        assert line is not None or (running > 60 and other is None and kept is None)
    if kept is not None:
        assert line is not None
    assert machine.apply(minimum(60))["sysctl#vm.swappiness"].state == "stable"
    assert machine.wrote == []


def test_note_names_a_later_file_below_the_minimum(machine: Machine) -> None:
    other = machine.boot / "99-z.conf"
    other.write_text("vm.swappiness = 30\n")
    notes = machine.apply(minimum(60))["sysctl#vm.swappiness"].notes
    assert notes == [f"{other} sets it to 30 at boot, whatever {machine.conf} says"]
    other.write_text("vm.swappiness = 90\n")
    assert machine.apply(minimum(60))["sysctl#vm.swappiness"].notes == []


def test_minimum_without_a_line_has_no_note(machine: Machine) -> None:
    event = machine.apply(minimum(10))["sysctl#vm.swappiness"]
    assert (event.state, event.notes) == ("stable", [])
    assert not machine.conf.exists()


def test_lower_minimum_of_another_version_changes_nothing(machine: Machine) -> None:
    states = [machine.apply(minimum(number))["sysctl#vm.swappiness"].state for number in (70, 65, 80, 70)]
    assert states == ["changed", "stable", "changed", "stable"]
    assert machine.conf.read_text() == "vm.swappiness = 80\n"
    assert machine.running("vm/swappiness") == "80"
    machine.apply(minimum(70, ensure="absent"))
    assert machine.conf.read_text() == ""


@pytest.mark.parametrize("step", range(2))
def test_minimum_is_kept_for_the_boot_after_a_kill(machine: Machine, step: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        machine.apply(minimum(70), dies_after=step)
    assert machine.apply(minimum(70))["sysctl#vm.swappiness"].state == "changed"
    assert machine.conf.read_text() == "vm.swappiness = 70\n"


@pytest.mark.parametrize("noop", [True, False])
def test_minimum_needs_a_single_number(machine: Machine, noop: bool) -> None:
    key = "net.ipv4.ip_local_port_range"
    [error] = machine.apply(minimum(70, key), noop=noop)[f"sysctl#{key}"].errors
    assert error.startswith("the kernel has '32768 60999', expected one number")
    assert machine.wrote == []


def test_minimum_replaces_a_line_that_is_no_number(machine: Machine) -> None:
    machine.conf.write_text("vm.swappiness = many\n")
    machine.apply(minimum(10))
    assert machine.conf.read_text() == "vm.swappiness = 10\n"


def test_highest_minimum_of_several_declarations_counts(machine: Machine) -> None:
    machine.apply(minimum(70), minimum(90, "vm/swappiness"), minimum(80))
    assert machine.running("vm/swappiness") == "90"
    machine.apply(minimum(70), sysctl("vm.swappiness", 75), minimum(60))
    assert machine.running("vm/swappiness") == "75"
    for declarations in (
        [minimum(80), sysctl("vm.swappiness", 75)],
        [sysctl("vm.swappiness", 75), minimum(80)],
    ):
        with pytest.raises(ManifestError, match="minimum"):
            machine.apply(*declarations)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("value: 5, minimum: 5", "minimum cannot be given together with value"),
        ("minimum: many", "minimum"),
        ("{}", "value is missing"),
    ],
)
def test_minimum_is_a_number_instead_of_a_value(machine: Machine, entry: str, message: str) -> None:
    properties = "" if entry == "{}" else f", {entry}"
    with pytest.raises(ManifestError, match=message):
        machine.apply(f"sysctl: {{name: vm.swappiness{properties}}}")


# At boot


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        (
            "sysctl.d/99-z.conf",
            "vm/swappiness=30\n",
            "{}/sysctl.d/99-z.conf sets it to 30 at boot, whatever {}",
        ),
        ("lib/99-z.conf", "vm.swappiness = 30\n", "{}/lib/99-z.conf sets it to 30 at boot, whatever {}"),
        ("sysctl.d/99-z.conf", "vm.swappiness = 10\n", None),
        ("sysctl.d/10-a.conf", "vm.swappiness = 30\n", None),
        ("sysctl.d/99-z.txt", "vm.swappiness = 30\n", None),
        ("sysctl.d/99-z.conf", "vm.* = 30\n# vm.swappiness = 30\n", None),
        ("lib/90-puller.conf", "vm.swappiness = 30\n", None),
    ],
)
def test_a_file_that_wins_at_boot_is_a_warning(
    machine: Machine, tmp_path: Path, path: str, text: str, said: str | None
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / path).write_text(text)
    for state in ("changed", "stable"):
        event = machine.apply(sysctl("vm.swappiness", 10))["sysctl#vm.swappiness"]
        assert event.state == state
        notes = [said.format(tmp_path, f"{machine.conf} says")] if said else []
        assert event.notes == notes


def test_file_in_the_first_directory_hides_equal_names(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/99-z.conf").write_text("vm.swappiness = 30\n")
    (machine.boot / "99-z.conf").symlink_to("/dev/null")
    assert machine.apply(sysctl("vm.swappiness", 10))["sysctl#vm.swappiness"].notes == []


def test_a_file_that_nothing_reads_at_boot_is_a_warning(machine: Machine, tmp_path: Path) -> None:
    entry = sysctl("vm.swappiness", 10).replace("CONF", str(tmp_path / "elsewhere.conf"))
    event = machine.apply(entry)["sysctl#vm.swappiness"]
    assert event.notes == [f"{tmp_path}/elsewhere.conf is not read at boot"]


def test_linked_old_file_counts(machine: Machine, tmp_path: Path) -> None:
    """Debian 12 has this link, and systemd reads the file only through it. Debian 13 has neither."""
    old = tmp_path / "sysctl.conf"
    old.write_text("-vm.swappiness = 30\n")
    entry = sysctl("vm.swappiness", 10)
    of_the_old = sysctl("net.ipv4.ip_forward", 0).replace("CONF", str(old))
    assert machine.apply(entry)["sysctl#vm.swappiness"].notes == []
    assert machine.apply(of_the_old)["sysctl#net.ipv4.ip_forward"].notes == [f"{old} is not read at boot"]
    (machine.boot / "99-sysctl.conf").symlink_to("../sysctl.conf")
    output = f"{old} sets it to 30 at boot, whatever {machine.conf} says"
    assert machine.apply(entry)["sysctl#vm.swappiness"].notes == [output]
    assert machine.apply(of_the_old)["sysctl#net.ipv4.ip_forward"].notes == []
    (machine.boot / "99-z.conf").write_text("vm.swappiness = 10\n")
    assert machine.apply(entry)["sysctl#vm.swappiness"].notes == []


def test_that_the_running_value_stays_is_said_once(machine: Machine) -> None:
    machine.conf.write_text("vm.swappiness = 10\nnet.ipv4.ip_forward = 1\n")
    (machine.boot / "99-z.conf").write_text("vm.swappiness = 30\n")
    entries = [sysctl(name, None, ensure="absent") for name in ("vm.swappiness", "net.ipv4.ip_forward")]
    events = machine.apply(*entries)
    stays, other = (
        "the running value stays until the next boot",
        f"{machine.boot}/99-z.conf sets it to 30 at boot",
    )
    assert events["sysctl#vm.swappiness"].notes == [stays, other]
    assert events[FORWARD].notes == [stays]
    assert machine.conf.read_text() == ""
    events = machine.apply(*entries)
    assert events["sysctl#vm.swappiness"].notes == [other]
    assert events[FORWARD].notes == []


# Errors at load


@pytest.mark.attack("data-names.kernel")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("sysctl: {name: vm.swappiness}", "value is missing"),
        ("sysctl: {name: vm.swappiness, value: true}", "value"),
        ('sysctl: {name: vm.swappiness, value: "1\\nkernel.panic = 1"}', "expected words in one line"),
        ('sysctl: {name: vm.swappiness, value: "1\\0"}', "expected words in one line"),
        ("sysctl: {name: -vm.swappiness, value: 1}", "name is '-vm.swappiness', expected a key"),
        ("sysctl: {name: net/../vm, value: 1}", "which has a part without a name"),
        ("sysctl: {name: vm.swappiness, value: 1, path: sysctl.conf}", "expected an absolute path"),
        ("sysctl: {name: vm.swappiness, value: 1, ensure: latest}", "expected present or absent"),
        ("sysctl: [{vm.swappiness: {value: 1}}, {vm.swappiness: {value: 2}}]", "the two differ: "),
        (
            "sysctl: [{vm.swappiness: {value: 1}}, {vm/swappiness: {value: 2}}]",
            "as sysctl#vm.swappiness, and the two differ: ",
        ),
        (
            "sysctl: [{vm.swappiness: {value: 1}}, {vm/swappiness: {ensure: absent}}]",
            "as sysctl#vm.swappiness, and the two differ: ",
        ),
    ],
)
def test_impossible_properties_are_refused_at_load(machine: Machine, entry: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        machine.apply(entry)


def test_managed_file_excludes_other_lines(machine: Machine) -> None:
    attributes = "owner: root, group: root, mode: '0440'"
    with pytest.raises(ManifestError, match="another resource writes the whole file: file#"):
        machine.apply(f"file: {{name: CONF, content: x, {attributes}}}", sysctl("vm.swappiness", 1))


def test_declarations_that_say_the_same_are_one(machine: Machine) -> None:
    entries = [sysctl("vm.swappiness", 10), sysctl("vm.swappiness", "'10'"), sysctl("vm/swappiness", "'10 '")]
    assert {event.state for event in machine.apply(*entries).values()} == {"changed"}
    assert machine.conf.read_text() == "vm.swappiness = 10\n"


@pytest.mark.attack("secrets.sensitive")
def test_sensitive_value_is_masked(machine: Machine) -> None:
    entry = sysctl("vm.swappiness", 77, sensitive="true")
    for event in (*machine.apply(entry, noop=True).values(), *machine.apply(entry).values()):
        output = f"{event.differences} {event.noop_message} {event.diff} {event.notes} {event.errors}"
        values = re.findall(r"\b\d+\b", output.replace(str(machine.conf), ""))
        assert not {"77", "60"} & set(values)


# Leftovers and rollback


def test_trial_keeps_touched_paths_only(machine: Machine, make: Callable[..., Any]) -> None:
    resource = make(Sysctl, {"name": "vm.swappiness", "value": 60, "path": str(machine.conf)})
    assert resource.changed_paths(resource.look()) == [str(machine.conf)]
    resource = make(Sysctl, {"name": "vm.swappiness", "value": 61, "path": str(machine.conf)})
    assert resource.changed_paths(resource.look()) == [str(machine.conf), str(machine.proc / "vm/swappiness")]


def test_leftover_parameter_is_removed_from_its_file(machine: Machine, make: Callable[..., Any]) -> None:
    machine.apply(sysctl("vm.swappiness", 10), sysctl("net.ipv4.ip_forward"))
    leftovers = make(LeftoverSysctl, {"name": "vm.swappiness", "ensure": "absent"})
    leftovers.context = msgspec.structs.replace(leftovers.context, state_directory=machine.state)
    assert leftovers.places(leftovers.properties) == ()
    actual = leftovers.look()
    assert leftovers.is_there(actual)
    leftovers.change(leftovers.differences(actual), actual)
    assert machine.conf.read_text() == "net.ipv4.ip_forward = 1\n"
    assert not leftovers.differences(leftovers.look())


def test_leftover_of_a_file_adds_nothing_from_another(machine: Machine, make: Callable[..., Any]) -> None:
    machine.apply(sysctl("vm.swappiness", 10))
    other = machine.boot / "other.conf"
    leftovers = make(LeftoverSysctl, {"name": "vm.swappiness", "ensure": "absent"})
    declared = make(Sysctl, {"name": "net.ipv4.ip_forward", "value": 1, "path": str(other)})
    for resource in (leftovers, declared):
        context = msgspec.structs.replace(
            leftovers.context, state_directory=machine.state, system=Kernel(machine.proc)
        )
        resource.context = context
    assert not Sysctl.change_together([(leftovers, leftovers.look()), (declared, declared.look())])
    assert machine.conf.read_text() == ""
    assert other.read_text() == "net.ipv4.ip_forward = 1\n"


def test_nothing_to_do_opens_each_key_once_and_the_file_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"vm/x{number}" for number in range(50)]
    for key in keys:
        (machine.proc / key).write_text("1\n")
    entries = [sysctl(key) for key in keys]
    machine.apply(*entries)
    opened: list[str] = []
    original = LocalSystem.read

    def read(system: LocalSystem, path: str) -> bytes:
        opened.append(path)
        return original(system, path)

    monkeypatch.setattr(LocalSystem, "read", read)
    machine.apply(*entries)
    assert sorted(opened) == sorted([str(machine.conf), *(str(machine.proc / key) for key in keys)])


def test_line_on_a_file_that_is_made_before_is_predicted(machine: Machine) -> None:
    conf = machine.boot / "new.conf"
    entries = [
        sysctl("vm.swappiness", 10).replace("CONF", str(conf)),
        f"line: {{name: {conf}, line: '# hello'}}",
    ]
    states = [event.state for event in machine.apply(*entries, noop=True).values()]
    assert states == [State.WOULD_CHANGE, State.WOULD_CHANGE]
    assert [event.state for event in machine.apply(*entries).values()] == [State.CHANGED, State.CHANGED]
    assert conf.read_text() == "vm.swappiness = 10\n# hello\n"
    assert {event.state for event in machine.apply(*entries).values()} == {State.STABLE}
