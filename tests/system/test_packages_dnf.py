"""The package resource with real dnf and rpm, and a comparison with the simulated ones.

All installed files, databases and logs are below a directory, and this machine's packages stay unchanged. Needs dnf,
rpm, rpmbuild and createrepo_c (Debian: ``apt-get install dnf rpm createrepo-c``).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event
from puller.resources.packages.dnf import parse_providing, parse_records, parse_updates
from puller.system.commands import Command, Completed, run
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import System
from tests.simulators import packages as simulator

pytestmark = [pytest.mark.packages, pytest.mark.root]

CASES = Path(__file__).parents[1] / "cases" / "packages"
SPECIFICATION = """
Name: {name}
Version: {version}
Release: {release}
Epoch: {epoch}
Summary: For a test
License: none
BuildArch: noarch
AutoReqProv: no
{more}
%description
For a test
%install
mkdir -p %{{buildroot}}/usr/share
echo {version}-{release} > %{{buildroot}}/usr/share/{file}
%files
/usr/share/{file}
{scripts}
"""
CONFIGURATION = """
[main]
installroot={root}
reposdir={work}/repositories
cachedir={root}/var/cache/dnf
persistdir={root}/var/lib/dnf
logdir=/var/log
varsdir={work}/vars
pluginpath={work}/plugins
plugins=0
installonlypkgs=kernel
[local]
name=local
baseurl=file://{work}/repository
gpgcheck=0
metadata_expire=1h
"""


class Fedora(LocalSystem):
    """A machine whose packages are below a directory, with one repository."""

    def __init__(self, work: Path) -> None:
        super().__init__()
        self.work, self.root, self.repository = work, work / "root", work / "repository"
        self.root.mkdir()
        self.repository.mkdir()
        (work / "dnf.conf").write_text(CONFIGURATION.format(root=self.root, work=work))
        self.looked: list[str] = []

    def query(self, command: Command) -> Completed:
        self.looked.append(" ".join(command.arguments[:2]))
        return self.run(command)

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        return self.run(command)

    def run(self, command: Command) -> Completed:
        tool, *remainder = command.arguments
        here = {
            "dnf": ("dnf", f"--config={self.work}/dnf.conf", f"--installroot={self.root}", "--releasever=9"),
            "rpm": ("rpm", "--root", str(self.root)),
        }
        return run(
            Command(
                (*here[tool], *remainder), command.environment, "/", command.timeout, command.output_limit
            )
        )

    def do(self, *words: str) -> Completed:
        return self.run(Command(words))

    def add(self, name: str, *versions: str, file: str = "", scripts: str = "", more: str = "") -> None:
        """Build a package in some versions. ``file``: the file that it installs."""
        for full in versions:
            epoch, _, remainder = f"0:{full}".removeprefix("0:" if ":" in full else "").partition(":")
            version, _, release = remainder.rpartition("-")
            values = {
                "name": name,
                "epoch": epoch,
                "version": version,
                "release": release,
                "scripts": scripts,
            }
            text = SPECIFICATION.format(**values, more=more, file=file.format(**values) or name)
            (self.work / "package.spec").write_text(text)
            places = {"_topdir": "build", "_rpmdir": "repository", "_dbpath": "database"}
            output = [f"--define={name} {self.work}/{place}" for name, place in places.items()]
            subprocess.run(["rpmbuild", "-bb", "--quiet", *output, f"{self.work}/package.spec"], check=True)

    def publish(self, *, fetch: bool = True) -> None:
        subprocess.run(["createrepo_c", "--quiet", str(self.repository)], check=True)
        if fetch:
            assert self.do("dnf", "-q", "makecache", "--refresh").exit_code == 0

    def versions(self, name: str) -> list[str]:
        text = self.do("rpm", "-q", "--queryformat", "%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n", name).stdout
        return [line.removeprefix("0:") for line in text.splitlines() if ":" in line]


class LookingOnly(NoopSystem):
    """The same machine for a noop run."""

    def __init__(self, machine: Fedora) -> None:
        super().__init__()
        self.machine = machine

    def query(self, command: Command) -> Completed:
        return self.machine.query(command)


@pytest.fixture
def fedora(tmp_path: Path) -> Iterator[Fedora]:
    machine = Fedora(tmp_path)
    yield machine
    shutil.rmtree(machine.root)


Apply = Callable[..., dict[str, Event]]


@pytest.fixture
def apply(fedora: Fedora, tmp_path: Path) -> Apply:
    """Return ``apply({"tool": {"ensure": "latest"}}, noop=…)``, which returns the events by name."""

    def build(packages: dict[str, dict[str, Any]], *, noop: bool = False) -> dict[str, Event]:
        resources = [{"package": [{name: properties}]} for name, properties in packages.items()]
        path = tmp_path / "manifest.yaml"
        path.write_text(yaml.safe_dump({"resources": resources}))
        manifest = load_manifest(path, "manifest.yaml", Inputs({"os": {"family": "RedHat"}}, {}))
        system: System = LookingOnly(fedora) if noop else fedora
        pending = PendingRefreshes(tmp_path / "owed.json", "test", noop=True)
        engine = Engine(manifest, system, lambda url: b"", pending, Settings(noop=noop))
        return {event.name: event for event in engine.apply()}

    return build


def test_noop_predicts_unavailable_packages(fedora: Fedora, apply: Apply) -> None:
    fedora.add("tool", "1.0-1", "1.1-1")
    desired: dict[str, dict[str, Any]] = {
        "tool": {"ensure": "9.9"},
        "misspelt": {},
        "latest": {"ensure": "latest"},
    }
    fedora.publish(fetch=False)
    fresh = apply({"tool": {}, "misspelt": {}}, noop=True)
    assert states(fresh) == dict.fromkeys(fresh, "would change"), "nothing is known of the repository yet"
    fedora.publish()
    fedora.looked.clear()
    output, done = apply(desired, noop=True), apply(desired)
    assert states(output) == states(done) == dict.fromkeys(desired, "failed")
    assert output["tool"].errors == ["version 9.9 is not available (available: 1.0-1, 1.1-1)"]
    assert output["misspelt"].errors == ["no configured repository offers a package misspelt"]
    assert states(apply({"tool": {}}, noop=True)) == {"tool": "would change"}


def states(events: dict[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


def test_every_state_converges_as_noop_predicts(fedora: Fedora, apply: Apply) -> None:
    decisions: dict[str, dict[str, str]] = yaml.load((CASES / "decisions.yaml").read_text(), yaml.CSafeLoader)
    table = {
        f"tool{number}": (actual, desired, says)
        for number, (actual, desired, says) in enumerate(
            (actual, desired, says) for actual, row in decisions.items() for desired, says in row.items()
        )
    }
    for name, (actual, _, _) in table.items():
        fedora.add(name, "1.0-1", "1.1-1", "2.0-1", *({actual} - {"absent", "1.0-1", "1.1-1", "2.0-1"}))
    fedora.publish()
    start = [f"{name}-{actual}" for name, (actual, _, _) in table.items() if actual != "absent"]
    assert fedora.do("dnf", "-q", "install", "-y", *start).exit_code == 0
    before = {name: fedora.versions(name) for name in table}

    manifest = {name: {"ensure": desired} for name, (_, desired, _) in table.items()}
    fedora.looked.clear()
    predicted = apply(manifest, noop=True)
    requested = ["rpm -q", "dnf -q", "dnf -q"]  # one query each for installed, newer and available packages
    assert fedora.looked == [*requested, "dnf install", "dnf remove"], "one simulation for all"
    output = {
        name: event.noop_message.removeprefix("Would have ") or "stable" for name, event in predicted.items()
    }
    assert output == {name: says for name, (_, _, says) in table.items()}
    assert {name: fedora.versions(name) for name in table} == before
    events = apply(manifest)
    assert states(events) == {
        name: "stable" if says == "stable" else "changed" for name, says in output.items()
    }
    for name, (actual, desired, _) in table.items():
        (version,) = fedora.versions(name) or [""]
        assert bool(version) == (desired != "absent"), name
        if desired == "latest":
            assert version == ("1:0.9-1" if actual == "1:0.9-1" else "2.0-1")
        elif desired not in ("absent", "present"):
            assert version == "1.1-1"
    assert set(states(apply(manifest)).values()) == {"stable"}


def test_a_release_and_an_epoch_may_be_left_out(fedora: Fedora, apply: Apply) -> None:
    fedora.add("nginx", "1:1.24.0-1.el9", "1:1.24.0-2.el9", "1:1.26.0-1.el9")
    fedora.publish()
    for desired, found in [
        ("1.24.0-1.el9", "1:1.24.0-1.el9"),
        ("1:1.24.0-2.el9", "1:1.24.0-2.el9"),
        ("1.26.0", "1:1.26.0-1.el9"),
        ("1:1.24.0", "1:1.24.0-2.el9"),
    ]:
        events = apply({"nginx": {"ensure": desired}})
        assert states(events) == {"nginx": "changed"}
        assert events["nginx"].final_ensure == found
        assert fedora.versions("nginx") == [found]
        assert states(apply({"nginx": {"ensure": desired}})) == {"nginx": "stable"}


def test_several_versions_are_installed_side_by_side(fedora: Fedora, apply: Apply) -> None:
    fedora.add(
        "kernel", "5.14.0-70.el9", "5.14.0-427.el9", "5.14.0-503.el9", file="kernel-{version}-{release}"
    )
    fedora.publish()
    assert states(apply({"kernel": {"ensure": "5.14.0-427.el9"}})) == {"kernel": "changed"}
    assert states(apply({"kernel": {"ensure": "latest"}})) == {"kernel": "changed"}
    assert fedora.versions("kernel") == ["5.14.0-427.el9", "5.14.0-503.el9"]
    for stable in ("present", "latest", "5.14.0-427.el9", "5.14.0-503.el9", "5.14.0"):
        assert states(apply({"kernel": {"ensure": stable}})) == {"kernel": "stable"}, stable
    assert states(apply({"kernel": {"ensure": "5.14.0-70.el9"}})) == {"kernel": "changed"}
    assert len(fedora.versions("kernel")) == 3
    assert states(apply({"kernel": {"ensure": "absent"}})) == {"kernel": "changed"}
    assert fedora.versions("kernel") == []


def test_a_name_may_carry_an_architecture(fedora: Fedora, apply: Apply) -> None:
    fedora.add("tool", "1.0-1", "2.0-1")
    fedora.publish()
    assert states(apply({"tool.noarch": {"ensure": "1.0"}})) == {"tool.noarch": "changed"}
    assert states(apply({"tool:noarch": {"ensure": "latest"}, "tool.x86_64": {"ensure": "absent"}})) == {
        "tool:noarch": "changed",
        "tool.x86_64": "stable",
    }


def test_unavailable_version_is_refused_with_alternatives(fedora: Fedora, apply: Apply) -> None:
    fedora.add("tool", "1.0-1", "2.0-1")
    fedora.publish()
    events = apply({"tool": {"ensure": "3.0"}, "missing": {}})
    assert events["tool"].errors == ["version 3.0 is not available (available: 1.0-1, 2.0-1)"]
    assert states(events) == {"tool": "failed", "missing": "failed"}
    assert "Unable to find a match: missing" in events["missing"].errors[0]


def test_metadata_that_is_out_of_date_is_fetched_anew(fedora: Fedora, apply: Apply) -> None:
    fedora.add("other", "1.0-1")
    fedora.publish()
    fedora.add("tool", "1.0-1")
    fedora.publish(fetch=False)
    assert states(apply({"tool": {}})) == {"tool": "changed"}


def test_noop_downloads_no_metadata(fedora: Fedora, apply: Apply) -> None:
    fedora.add("tool", "1.0-1")
    fedora.publish()
    apply({"tool": {}})
    fedora.do("dnf", "-q", "clean", "all")
    (event,) = apply({"tool": {"ensure": "latest"}}, noop=True).values()
    assert event.state == "failed"
    assert "Cache-only enabled but no cache for 'local'" in event.errors[0]


def test_a_scriptlet_that_fails_is_a_failure_that_says_why(fedora: Fedora, apply: Apply) -> None:
    fedora.add("bad", "1.0-1", scripts="%pre -p <lua>\nerror('the database is full')")
    fedora.publish()
    (event,) = apply({"bad": {}}).values()
    assert event.state == "failed"
    assert "dnf install bad: exit code 1; it printed:" in event.errors[0]
    assert fedora.versions("bad") == []


def test_the_time_limit_ends_dnf(fedora: Fedora, apply: Apply) -> None:
    fedora.add(
        "slow", "1.0-1", scripts="%pre -p <lua>\nlocal stop = os.time() + 600\nwhile os.time() < stop do end"
    )
    fedora.publish()
    (event,) = apply({"slow": {"timeout": 4}}).values()
    assert event.state == "failed"
    assert "its time limit" in event.errors[0]
    assert fedora.versions("slow") == []


def test_a_database_that_cannot_be_read_is_not_an_empty_one(fedora: Fedora, apply: Apply) -> None:
    fedora.add("tool", "1.0-1")
    fedora.publish()
    apply({"tool": {}})
    (database,) = fedora.root.rglob("rpmdb.sqlite")
    database.write_bytes(b"not a database at all" * 1000)
    (event,) = apply({"tool": {"ensure": "absent"}}).values()
    assert event.state == "failed"
    assert event.errors[0].startswith("rpm -q: ")


# The simulated Fedora behaves like the real one


SITUATIONS = {
    "install": ["install tool"],
    "install what there is": ["install tool-1.0-1", "install tool-1.0-1"],
    "upgrade": ["install tool-1.0-1", "install tool-0:2.0-1"],
    "the name alone upgrades nothing": ["install tool-0:1.0-1", "install tool"],
    "downgrade": ["install tool-0:2.0-1", "install tool-0:1.0-1"],
    "an epoch": ["install tool-0:2.0-1", "install tool-1:1.5-1"],
    "remove": ["install tool", "remove tool"],
    "side by side": ["install kernel-0:5-1", "install kernel-0:6-1", "remove kernel"],
    "an architecture": ["install tool-0:1.0-1.noarch", "remove tool.noarch"],
    "two at once": ["install tool kernel", "remove tool kernel"],
    "no such package": ["install missing"],
    "no such version": ["install tool-0:7-1"],
}
NAMES = ("tool", "kernel", "missing", "tool.noarch", "tool-1.0")
INSTALLED = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\t[%{PROVIDENAME} ]\\n"
AVAILABLE = "%{name}\t%{epoch}:%{version}-%{release}\t%{arch}\n"


def seen_by_puller(ask: Callable[[list[str]], Completed]) -> Any:
    """Return Puller's view of the packages and of the available ones."""
    installed = ask(["rpm", "-q", "--queryformat", INSTALLED, "--whatprovides", "--", *NAMES])
    updates = ask(["dnf", "-q", "check-update", "--", *NAMES])
    available = ask(["dnf", "-q", "repoquery", f"--queryformat={AVAILABLE}", "--", *NAMES])
    result, others = parse_providing(installed.stdout)
    return (
        result, others, installed.exit_code,
        set(parse_updates(updates.stdout)), updates.exit_code,
        set(parse_records(available.stdout)[0]),
    )  # fmt: skip


def test_simulated_fedora_behaves_like_fedora(fedora: Fedora) -> None:
    fedora.add("tool", "1.0-1", "2.0-1", "1:1.5-1")
    fedora.add("kernel", "5-1", "6-1", file="kernel-{version}")
    fedora.publish()
    offered = [
        ("tool", "1.0-1"),
        ("tool", "2.0-1"),
        ("tool", "1:1.5-1"),
        ("kernel", "5-1"),
        ("kernel", "6-1"),
    ]
    for situation, steps in SITUATIONS.items():
        imitation = simulator.Fedora(
            repository=[simulator.Rpm(name, version, "noarch") for name, version in offered],
            side_by_side={"kernel"},
        )
        for step in steps:
            verb, *packages = step.split()
            words = ["dnf", verb, "-y", "--", *packages]
            done, imitated = fedora.do(*words), imitation.run(words)
            assert imitated.exit_code == done.exit_code, (situation, step, done.stderr)
            unknown = "Unable to find a match"
            assert (unknown in imitated.stderr) == (unknown in done.stderr), (situation, step, done.stderr)
            assert seen_by_puller(imitation.run) == seen_by_puller(lambda words: fedora.do(*words)), (
                situation,
                step,
            )
        fedora.do(
            "rpm", "-e", "--allmatches", *(name for name in ("tool", "kernel") if fedora.versions(name))
        )
