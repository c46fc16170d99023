"""One row for each resource type (``tests/cases/differences.yaml``): the dry run shows what the real run changes.

A new type without a row fails. So does a new property without a case, and a row whose dry run and real run differ.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from foundation.differences import Difference
from foundation.formatting import lines
from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.reporting.report import Event, State
from puller.resources import unit
from puller.resources.accounts import account_databases, user_state
from puller.resources.archives import archive_receipts
from puller.resources.base import Properties
from puller.resources.host import host_entry, hostname, timezone
from puller.resources.kernel import fstab, module_files, mount_changes, mount_table, sysctl_files
from puller.resources.packages.apt import AptLayout
from puller.resources.registry import find_type, is_ours, type_names
from puller.resources.services import cron
from puller.system import trusted_files
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import Attributes, System
from tests.puller.resources.kernel import test_kernel_module, test_sysctl
from tests.puller.resources.packages import test_repository
from tests.simulators import accounts, fileserver, mounts, packages, swaps, systemd
from tests.simulators.alternatives import Group, LookingOnly
from tests.simulators.diversions import Diverting, DivertingInNoop
from tests.simulators.locales import LocalesHere, LocalesInNoop, make_locales, redirect_locales
from tests.support.git_remotes import Remote
from tests.support.rows import each_row

TESTS = Path(__file__).parents[2]
ROWS: dict[str, dict[str, Any]] = yaml.load((TESTS / "cases/differences.yaml").read_text(), yaml.CSafeLoader)
CASES = [
    pytest.param(
        name,
        case,
        id=f"{name}-{number}-{case['property']}",
        marks=[pytest.mark.root] if case.get("root") or row.get("root") else [],
    )
    for name, row in ROWS.items()
    for number, case in enumerate(row["cases"])
]
Entry = dict[str, Any]
Machine = Callable[[bool], System]
"""The system of a dry run, or of a real run."""


def own_properties(type_name: str) -> set[str]:
    kind = find_type(type_name)
    assert kind is not None
    of_all = {*Properties.__struct_fields__}
    return {name.rstrip("_") for name in kind.properties_type.__struct_fields__ if name not in of_all}


# The machines


def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(archive_receipts, "default_directory", lambda: tmp_path / "receipts")
    return lambda noop: NoopSystem() if noop else LocalSystem()


def with_cron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "cron.d").mkdir()
    monkeypatch.setattr(cron, "DIRECTORY", str(tmp_path / "cron.d"))
    monkeypatch.setattr(cron, "ATTRIBUTES", Attributes(os.geteuid(), os.getegid(), 0o644))
    monkeypatch.setattr(cron, "_DAEMONS", (str(tmp_path),))
    return plain(tmp_path, monkeypatch)


def with_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "units").mkdir()
    monkeypatch.setattr(unit, "DIRECTORY", str(tmp_path / "units"))
    monkeypatch.setattr(unit, "BOOTED", str(tmp_path / "booted"))
    monkeypatch.setattr(unit, "ATTRIBUTES", Attributes(os.geteuid(), os.getegid(), 0o644))
    return plain(tmp_path, monkeypatch)


def with_alternatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in ("one", "two", "man1"):
        (tmp_path / name).write_text("")
    Group(tmp_path).redirect(monkeypatch)
    return lambda noop: LookingOnly(tmp_path) if noop else Group(tmp_path)


def with_diversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    del monkeypatch
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/status").write_text("")
    machine = Diverting(tmp_path / "packages")
    return lambda noop: DivertingInNoop(tmp_path / "packages") if noop else machine


def with_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "homes").mkdir()
    monkeypatch.setattr(user_state, "HOMES", str(tmp_path / "homes"))
    monkeypatch.setattr(account_databases, "DIRECTORY", str(tmp_path / "etc"))
    machine = accounts.Accounts(tmp_path / "etc")
    return lambda noop: accounts.LookingOnly(machine) if noop else machine


def with_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    module = f"lib/modules/{os.uname().release}"
    for name, text in {
        f"{module}/modules.dep": "kernel/x/dummy.ko.xz: kernel/y.ko\n",
        f"{module}/modules.builtin": "",
        "proc/modules": "ahci 49152 3 - Live 0x0000000000000000\n",
        "bin/modprobe": "#!/bin/false\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin/modprobe").chmod(0o755)
    monkeypatch.setattr(module_files, "ROOT", str(tmp_path))
    monkeypatch.setattr("puller.resources.kernel.kernel_module.SEARCH_PATH", str(tmp_path / "bin"))
    kernel = test_kernel_module.Kernel(tmp_path)
    return lambda noop: NoopSystem() if noop else kernel


def with_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in ("mnt", "proc", "systemd"):
        (tmp_path / name).mkdir()
    (tmp_path / "fstab").write_text("")
    (tmp_path / "mountinfo").write_text(mounts.FIRST)
    monkeypatch.setattr(fstab, "FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(mount_table, "MOUNTINFO", str(tmp_path / "mountinfo"))
    monkeypatch.setattr(mount_changes, "SYSTEMD", str(tmp_path / "systemd"))
    monkeypatch.setattr(mount_changes, "PROC", str(tmp_path / "proc"))
    machine = mounts.MountingSystem(tmp_path)
    return lambda noop: NoopSystem() if noop else machine


def with_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = swaps.SwappingSystem(tmp_path)
    machine.redirect(monkeypatch)
    machine.fstab.write_text("")
    return lambda noop: NoopSystem() if noop else machine


def with_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    del tmp_path, monkeypatch
    machine = packages.Debian(repository={"tool": ["1.0", "2.0"]})
    return lambda noop: packages.LookingOnly(machine) if noop else machine


def with_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in ("sources.list.d", "preferences.d"):
        (tmp_path / "apt" / name).mkdir(parents=True)
    monkeypatch.setattr(AptLayout, "root", str(tmp_path / "apt"))
    (tmp_path / "web.asc").write_text(test_repository.KEY)
    machine = test_repository.Machine()
    return lambda noop: test_repository.LookingOnly(machine) if noop else machine


def with_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    del tmp_path
    machine = systemd.SimulatedSystemd()
    monkeypatch.setattr("puller.system.systemd_units.time.sleep", machine.sleep)
    return lambda noop: systemd.LookingOnly(machine) if noop else machine


def with_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "sysctl.d").mkdir()
    (tmp_path / "proc/vm").mkdir(parents=True)
    (tmp_path / "proc/vm/swappiness").write_text("60\n")
    monkeypatch.setattr(trusted_files, "PROC_SYS", str(tmp_path / "proc"))
    directories = (str(tmp_path / "sysctl.d"), str(tmp_path / "lib"))
    monkeypatch.setattr(sysctl_files, "DIRECTORIES", directories)
    monkeypatch.setattr(sysctl_files, "OLD", str(tmp_path / "sysctl.conf"))
    kernel = test_sysctl.Kernel(tmp_path / "proc")
    return lambda noop: NoopSystem() if noop else kernel


def with_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    zone, kernel = tmp_path / "zoneinfo/Europe/Berlin", tmp_path / "proc/kernel/hostname"
    for path in (zone, kernel, tmp_path / "etc/hosts"):
        path.parent.mkdir(parents=True)
    zone.write_bytes(b"TZif2")
    kernel.write_text("old\n")
    monkeypatch.setattr(trusted_files, "PROC_SYS", str(tmp_path / "proc"))
    monkeypatch.setattr(host_entry, "HOSTS", str(tmp_path / "etc/hosts"))
    monkeypatch.setattr(hostname, "HOSTNAME", str(tmp_path / "etc/hostname"))
    monkeypatch.setattr(timezone, "ETC", str(tmp_path / "etc"))
    monkeypatch.setattr(timezone, "ZONES", str(tmp_path / "zoneinfo"))
    return plain(tmp_path, monkeypatch)


def with_locales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    locales = make_locales(tmp_path)
    redirect_locales(tmp_path, monkeypatch)
    return lambda noop: LocalesInNoop(locales) if noop else LocalesHere(locales)


MACHINES: dict[str, Callable[[Path, pytest.MonkeyPatch], Machine]] = {
    "alternative": with_alternatives,
    "cron": with_cron,
    "diversion": with_diversions,
    "group": with_accounts,
    "host_entry": with_host,
    "hostname": with_host,
    "kernel_module": with_modules,
    "locale": with_locales,
    "mount": with_mounts,
    "package": with_packages,
    "repository": with_repositories,
    "service": with_systemd,
    "swap": with_swap,
    "sysctl": with_kernel,
    "unit": with_units,
    "timezone": with_host,
    "user": with_accounts,
}


# The words of the table


@pytest.fixture(scope="session")
def archives() -> dict[str, bytes]:
    packed = {}
    for number in ("1", "2"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            member = tarfile.TarInfo("bin/app")
            member.size = 1
            tar.addfile(member, io.BytesIO(number.encode()))
        packed[number] = buffer.getvalue()
    return packed


@pytest.fixture
def server(archives: dict[str, bytes]) -> Iterator[str]:
    with fileserver.serving() as server:
        for number, data in archives.items():
            server.files[f"/{number}.tgz"] = data
        yield str(server.url)


@pytest.fixture
def words(
    request: pytest.FixtureRequest, tmp_path: Path, type_name: str, archives: dict[str, bytes]
) -> dict[str, str]:
    """Return the meaning of the table's words in capitals."""
    import grp
    import pwd

    result = {
        "DIR": str(tmp_path),
        "OWNER": pwd.getpwuid(os.geteuid()).pw_name,
        "GROUP": grp.getgrgid(os.getegid()).gr_name,
        "SOURCE_SHA": hashlib.sha256(b"two").hexdigest(),
        "SOURCE": f"{tmp_path}/apt/sources.list.d/web.sources",
        "HASH": "x" * 86,
    }
    for number, data in archives.items():
        digest = hashlib.sha256(data).hexdigest()
        result |= {f"SHA{number}": digest, f"SHORT{number}": digest[:8]}
    for number, key in (("1", "A" * 43), ("2", "B" * 43)):
        result[f"KEY{number}"] = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{key}"
    if type_name == "archive":
        result["URL"] = request.getfixturevalue("server")
    if type_name == "checkout":
        result |= make_remotes(tmp_path)
    return dict(sorted(result.items(), key=lambda pair: -len(pair[0])))


def make_remotes(tmp_path: Path) -> dict[str, str]:
    first = Remote(tmp_path / "remotes")
    commits = [first.commit(tag, tag=tag) for tag in ("v1", "v2")]
    second = f"{tmp_path}/second.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(first.bare), second], check=True)
    named = {f"COMMIT{number}": commit[:12] for number, commit in enumerate(commits, 1)}
    return {"REMOTE1": str(first.bare), "REMOTE2": second, **named}


def filled(value: Any, words: Mapping[str, str]) -> Any:
    """Return a value of the table with its words replaced."""
    text = msgspec.json.encode(value).decode()
    for word, meaning in words.items():
        text = text.replace(word, msgspec.json.encode(meaning).decode()[1:-1])
    return msgspec.json.decode(text)


# The runs


class Bench:
    """A machine for the manifests of one type."""

    def __init__(self, type_name: str, tmp_path: Path, machine: Machine, load: Callable[..., Any]) -> None:
        self.type_name, self._directory, self._machine, self._load = type_name, tmp_path, machine, load
        for name, text in {
            "source": "two",
            "template": "{{ data.text }}",
            "named": "{{ text }}",
            "tree/b": "one",
            "other/b": "three",
            "templates/b": "{{ data.text }}",
            "empty/b": "",
        }.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        child = {"file": [{f"{tmp_path}/child": {"content": "{{ data.kind }}", **ours()}}]}
        (tmp_path / "child.yaml").write_text(yaml.safe_dump({"resources": [child]}))

    def run(self, name: str, properties: Entry, before: Entry, *, noop: bool = False) -> Event:
        provided = {key: value for key, value in properties.items() if value is not None}
        entries = [{self.type_name: [{name: provided}]}]
        for kind, declared in before.items():
            entries.insert(0, {kind: [{path: {**each, **ours()}} for path, each in declared.items()]})
        text = yaml.safe_dump({"resources": entries}, allow_unicode=True, sort_keys=False)
        facts = {"os": {"family": "Debian"}}
        manifest = self._load(text, facts=facts, sources=({"text": "two"},))
        pending = PendingRefreshes(self._directory / "pending.json", "web", noop=noop)
        settings = Settings(diffs=True, noop=noop, state_directory=self._directory / "state")
        engine = Engine(manifest, self._machine(noop), fetch, pending, settings)
        (event,) = [event for event in engine.apply() if event.type == self.type_name]
        return event


def fetch(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


def ours() -> Entry:
    return {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}


def test_every_type_has_a_row() -> None:
    assert {*ROWS} == {name for name in type_names() if is_ours(name)}


@each_row("type_name", ROWS)
def test_every_property_has_a_case_or_a_reason(type_name: str) -> None:
    row = ROWS[type_name]
    concerned = {case["property"] for case in row["cases"]}
    assert concerned.isdisjoint(row["inert"])
    assert concerned | {*row["inert"]} | {"ensure"} == own_properties(type_name) | {"ensure"}


@pytest.mark.parametrize(("type_name", "case"), CASES)
@pytest.mark.representatives(40)
def test_dry_run_shows_changes_of_the_real_run(
    type_name: str,
    case: dict[str, Any],
    words: dict[str, str],
    tmp_path: Path,
    load: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = filled(ROWS[type_name], words)
    case = filled(case, words)
    ((name, base),) = row["base"].items()
    name = case.get("name", name)
    earlier, before = case.get("before", ({}, {}))
    bench = Bench(type_name, tmp_path, MACHINES.get(type_name, plain)(tmp_path, monkeypatch), load)
    if not case.get("none"):
        first = bench.run(name, {**base, **case.get("from", {})}, earlier)
        assert first.state is not State.FAILED, first.errors
    for path, text in case.get("hand", {}).items():
        Path(path).unlink() if text is None else Path(path).write_text(text)
    for path, mode in case.get("mode", {}).items():
        os.chmod(path, int(mode, 8))
    properties = {**base, **case.get("to", {})}
    dry = bench.run(name, properties, before, noop=True)
    real = bench.run(name, properties, before)
    assert (dry.errors, real.errors) == ([], [])
    assert lines(dry.differences, is_predicted=True) == case["shows"]
    assert real.differences == dry.differences
    assert real.changed
    assert bench.run(name, properties, before).differences == []


def test_a_difference_of_content_carries_the_diff(tmp_path: Path, load: Callable[..., Any]) -> None:
    bench = Bench("file", tmp_path, lambda noop: NoopSystem() if noop else LocalSystem(), load)
    bench.run(f"{tmp_path}/a", {"content": "one\n", **ours()}, {})
    event = bench.run(f"{tmp_path}/a", {"content": "two\n", **ours()}, {}, noop=True)
    (difference,) = event.differences
    assert isinstance(difference, Difference)
    assert "-one\n+two\n" in difference.diff == event.diff
