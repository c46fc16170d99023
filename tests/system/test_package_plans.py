"""Compare the plans that Puller reads from simulations with the changes of the real package managers.

* A plan must contain every package that changes, and no other.
* apt is that of Debian 12 and of Debian 13, dnf is dnf 4. With ``--thorough``, dnf 5 of Debian unstable is tested, too.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from puller.errors import ResourceError
from puller.resources.packages.apt import Apt, parse_database
from puller.resources.packages.dnf import Dnf, parse_records
from puller.resources.packages.manager import Job, Plan, Record, Request, RequestedPackage
from puller.resources.packages.properties import Options
from puller.system.commands import Command, Completed, run
from puller.system.local import LocalSystem
from tests.support import machines
from tests.system import test_packages_apt as apt
from tests.system import test_packages_dnf as dnf

if TYPE_CHECKING:
    from tests.support.machines import SharedTree
    from tests.system.test_packages_apt import Repository
    from tests.system.test_packages_dnf import Fedora

pytestmark = [pytest.mark.packages, pytest.mark.root]


Packages = dict[str, set[Record]]
"""The packages of a machine, by their canonical names."""


class Case(NamedTuple):
    """A change, the commands before it, and the names that it installs and removes."""

    request: Request
    before: Sequence[str] = ()
    installs: Sequence[str] = ()
    removals: Sequence[str] = ()


def installing(*names: str, **options: Any) -> Request:
    """Return the request for packages by ``name`` or ``name=version``."""
    packages = (name.partition("=") for name in names)
    return Request(tuple(RequestedPackage(name, version or None) for name, _, version in packages), **options)


def removing(*names: str, **options: Any) -> Request:
    return Request(remove=names, **options)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "generation" in metafunc.fixturenames:
        generations = (4, 5) if metafunc.config.option.thorough else (4,)
        metafunc.parametrize("generation", generations, scope="module")


def expect(machine: Debian | Distribution, case: Case) -> None:
    """Simulate a change, make it, and compare."""
    before = machine.packages()
    plan = machine.manager().plan(machine.job(noop=True), case.request)
    assert machine.packages() == before
    plans: list[Plan] = []
    machine.manager().fulfil(machine.job(), case.request, lambda plan, _: plans.append(plan))
    after = machine.packages()
    assert plans == [plan]
    installed = {record for name in after for record in after[name] - before.get(name, set())}
    assert {*plan.installs} == installed
    assert {*plan.removals} == before.keys() - after.keys()
    assert {record.name for record in plan.installs} == {*case.installs}
    assert {*plan.removals} == {*case.removals}
    assert len(plan.installs) == len(installed)


def expect_refusal(machine: Debian | Distribution, request: Request) -> None:
    """Expect the simulation to fail, and the change to fail before it changes anything."""
    before = machine.packages()
    with pytest.raises(ResourceError, match=r"exit code|cannot install|not going to be"):
        machine.manager().plan(machine.job(noop=True), request)
    with pytest.raises(ResourceError):
        machine.manager().fulfil(machine.job(), request)
    assert machine.packages() == before


# apt


class Debian(LocalSystem):
    """A Debian on disk. Commands run in it."""

    manager = Apt

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.machine = apt.Machine(root)
        self.own = self.packages().keys()

    def query(self, command: Command) -> Completed:
        words = ("unshare", "--mount", "sh", "-c", apt.WITH_PROC, str(self.root), *command.arguments)
        return run(Command(words, command.environment, "/", command.timeout, command.output_limit))

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        return self.query(command)

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        return super().children(f"{self.root}{path}")

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        return super().read(f"{self.root}{path}", looked_at)

    def job(self, *, noop: bool = False) -> Job:
        return Job(self, tuple, print, noop, 120, 10)

    def packages(self) -> Packages:
        """Include packages with leftover configuration files, with an empty version."""
        fields = "\\t".join(f"${{{field}}}" for field in apt.FIELDS)
        text = self.machine.run("dpkg-query", "-W", f"-f={fields}\\n").stdout
        database, packages = parse_database(text), Packages()
        for name, versions in database.installed.items():
            for version in versions:
                key = name if version.architecture in ("amd64", "all") else f"{name}:{version.architecture}"
                packages[key] = {Record(name, version.version, version.architecture)}
        return packages

    def make_repository(self) -> None:
        repository: Repository = apt.Repository(self.machine)
        repository.add("tool", "1.0-1", "2.0-1", "1:0.9-1")
        repository.add("g++-tool", "1:2.4.57-2+deb12u1~rc1+really2.4.50-0.1")
        repository.add("aaa", "1.0", Conflicts="bbb", Replaces="bbb", Provides="mail (= 1.0)")
        repository.add("bbb", "1.0", Provides="mail")
        repository.add("lib", "1.0", "2.0")
        repository.add("app", "1.0", Depends="lib")
        repository.add("app", "2.0", Depends="lib (>= 2.0)")
        repository.add("extra", "1.0", Recommends="tool")
        repository.add("broken", "1.0", Depends="nowhere")
        for architecture in ("amd64", "i386"):
            repository.add("multi", "1.0", architecture=architecture, Multi_Arch="same")
        self.machine.run("dpkg", "--add-architecture", "i386")
        repository.publish()

    def do(self, step: str) -> None:
        self.machine.run(*apt.command(step))

    def clean(self) -> None:
        added = [name for name in apt.dpkg(self.machine) if name.removesuffix(":all") not in self.own]
        added = [name for name in added if name.removesuffix(":amd64") not in self.own]
        if added:
            self.machine.run("dpkg", "--purge", "--force-all", *added)
        configuration = self.root / "etc/apt/apt.conf.d/99test"
        configuration.unlink(missing_ok=True)


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def of_release(request: pytest.FixtureRequest, shared_tree: SharedTree) -> Iterator[Debian]:
    tree = shared_tree(f"apt-{request.param}", lambda directory: make_release(directory, request.param))
    with machines.copied(tree) as root:
        machine = Debian(root)
        machine.make_repository()
        yield machine


def make_release(tree: Path, codename: str) -> None:
    with machines.sources(codename) as lists:
        machines.run_checked("mmdebstrap", "--quiet", "--variant=apt", codename, tree, *lists)
    (tree / "etc/dpkg/dpkg.cfg.d/99test").write_text("force-unsafe-io\n")


@pytest.fixture
def debian(of_release: Debian) -> Iterator[Debian]:
    """A Debian with only its own packages."""
    yield of_release
    of_release.clean()


OF_APT = {
    "install": Case(installing("tool=1.0-1"), (), ["tool"]),
    "install with an epoch": Case(installing("tool"), (), ["tool"]),
    "a long version": Case(installing("g++-tool"), (), ["g++-tool"]),
    "nothing": Case(installing("tool"), ["install tool"]),
    "dependencies": Case(installing("app"), (), ["app", "lib"]),
    "recommended": Case(installing("extra", options=Options(recommends=True)), (), ["extra", "tool"]),
    "not recommended": Case(installing("extra", options=Options(recommends=False)), (), ["extra"]),
    "upgrade": Case(installing("tool=2.0-1"), ["install tool=1.0-1"], ["tool"]),
    "downgrade": Case(installing("tool=1.0-1", downgrades=True), ["install tool"], ["tool"]),
    "upgrade of two": Case(installing("app=2.0"), ["install app=1.0 lib=1.0"], ["app", "lib"]),
    "some are kept back": Case(installing("tool"), ["install app=1.0 lib=1.0"], ["tool"]),
    "another architecture": Case(installing("multi:i386"), (), ["multi"]),
    "two architectures": Case(installing("multi", "multi:i386"), (), ["multi"]),
    "a part of two architectures": Case(removing("multi:i386"), ["install multi multi:i386"], (), ["multi:i386"]),
    "the native part": Case(removing("multi"), ["install multi multi:i386"], (), ["multi"]),
    "replacement": Case(installing("aaa"), ["install bbb"], ["aaa"], ["bbb"]),
    "both": Case(Request((RequestedPackage("tool"),), ("bbb",)), ["install bbb"], ["tool"], ["bbb"]),
    "removal": Case(removing("tool"), ["install tool"], (), ["tool"]),
    "purge": Case(removing("tool", purge=True), ["install tool"], (), ["tool"]),
    "dependents": Case(removing("lib"), ["install app lib"], (), ["app", "lib"]),
    "purge of dependents": Case(removing("lib", purge=True), ["install app lib"], (), ["app", "lib"]),
    "on hold": Case(
        installing("tool=2.0-1", changes_held=True), ["install tool=1.0-1", "hold tool"], ["tool"]
    ),
}  # fmt: skip

REFUSED_BY_APT = {
    "hold": (installing("tool=2.0-1"), ["install tool=1.0-1", "hold tool"]),
    "a dependency on hold": (installing("app=2.0"), ["install app=1.0 lib=1.0", "hold lib"]),
    "removal on hold": (removing("tool"), ["install tool", "hold tool"]),
    "dependent on hold": (removing("lib"), ["install app lib", "hold app"]),
    "downgrade": (installing("tool=1.0-1"), ["install tool"]),
    "missing dependency": (installing("broken"), []),
    "exclusion": (installing("aaa", "bbb"), []),
    "several providers": (installing("mail"), []),
}


@pytest.mark.parametrize("name", OF_APT)
@pytest.mark.sample(6)
def test_apt_changes_exactly_the_packages_of_the_plan(debian: Debian, name: str) -> None:
    for step in OF_APT[name].before:
        debian.do(step)
    expect(debian, OF_APT[name])


@pytest.mark.parametrize("name", REFUSED_BY_APT)
def test_a_refusal_of_apt_is_never_an_empty_plan(debian: Debian, name: str) -> None:
    request, steps = REFUSED_BY_APT[name]
    for step in steps:
        debian.do(step)
    expect_refusal(debian, request)


def test_the_purge_of_configuration_files_is_a_removal(debian: Debian) -> None:
    debian.do("install tool")
    debian.do("remove tool")
    plan = Apt().plan(debian.job(noop=True), removing("tool", purge=True))
    assert plan == Plan((), ("tool",))


def test_a_package_file_is_in_the_plan_of_apt(debian: Debian) -> None:
    (path,) = (debian.root / apt.REPOSITORY).glob("tool_2.0-1_all.deb")
    request = Request((RequestedPackage("tool", None, f"/{path.relative_to(debian.root)}"),))
    expect(debian, Case(request, (), ["tool"]))


@pytest.mark.parametrize(
    "setting",
    ['quiet "2";', 'APT::Output-Version "30";', 'APT::Get::Show-Versions "true";', 'APT::Color "yes";'],
)
def test_the_configuration_of_apt_hides_no_plan(debian: Debian, setting: str) -> None:
    (debian.root / "etc/apt/apt.conf.d/99test").write_text(f"{setting}\n")
    debian.do("install bbb")
    expect(debian, OF_APT["replacement"])


# dnf


class Distribution:
    """The packages of dnf 4 or 5 below a directory."""

    manager = Dnf

    def __init__(self, fedora: Fedora) -> None:
        self.fedora = fedora
        self.configuration = (fedora.work / "dnf.conf").read_text()

    def job(self, *, noop: bool = False) -> Job:
        return Job(self.fedora, tuple, print, noop, 120, 10)

    def packages(self) -> Packages:
        pattern = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"
        records, others = parse_records(self.fedora.do("rpm", "-qa", "--queryformat", pattern).stdout)
        assert not others
        return {record.name: {one for one in records if one.name == record.name} for record in records}

    def make_repository(self) -> None:
        add = self.fedora.add
        add("tool", "1.0-1", "2.0-1", "1:0.9-1")
        add("python3.11", "3.11.1-1", "3.11.2-1")
        add("lib", "1.0-1", "2.0-1")
        add("app", "1.0-1", more="Requires: lib")
        add("app", "2.0-1", more="Requires: lib >= 2.0")
        add("kept", "1.0-1")
        add("kept", "2.0-1", more="Requires: nowhere")
        add("old", "1.0-1")
        add("new", "1.0-1", more="Obsoletes: old < 2\nProvides: old = 3")
        add("python3.11-old", "1-1")
        add("python3.11-new", "1-1", more="Obsoletes: python3.11-old < 2")
        add("aaa", "1.0-1", more="Conflicts: bbb")
        add("bbb", "1.0-1")
        add("extra", "1.0-1", more="Recommends: tool")
        add("broken", "1.0-1", more="Requires: nowhere")
        add("kernel", "1.0-1", "2.0-1", file="kernel-{version}")
        add(LONG, "1:2.4.57-2.el9_4.20240101git1234567")
        self.fedora.publish()

    def do(self, step: str) -> None:
        verb, *words = step.split()
        done = self.fedora.do("dnf", verb, "-y", *words)
        assert done.exit_code == 0, done

    def configure(self, *settings: str) -> None:
        text = self.configuration.replace("[main]", "\n".join(("[main]", *settings)))
        (self.fedora.work / "dnf.conf").write_text(text)

    def clean(self) -> None:
        self.configure()
        if names := self.packages():
            assert self.fedora.do("rpm", "-e", "--allmatches", *names).exit_code == 0


LONG = "a-package-with-a-name-that-is-much-longer-than-any-column-of-a-table-of-eighty-characters"
IN_TREE = (
    'mount -t proc proc "$0/proc" && mount --bind "$1" "$0$1" && root=$0 && shift && exec chroot "$root" "$@"'
)


def dnf_5(work: Path, root: Path) -> Fedora:
    """Return a machine with the dnf 5 of a tree."""

    class Fedora5(dnf.Fedora):
        def run(self, command: Command) -> Completed:
            tool, *remainder = command.arguments
            config = f"--config={work}/dnf.conf"
            tools = {
                "dnf": ("dnf5", config, f"--installroot={self.root}", "--use-host-config", "--releasever=9"),
                "rpm": ("rpm", "--root", str(self.root)),
            }
            words = (
                "unshare",
                "--mount",
                "sh",
                "-c",
                IN_TREE,
                str(root),
                str(work),
                *tools[tool],
                *remainder,
            )
            return run(Command(words, command.environment, "/", command.timeout, command.output_limit))

    (root / str(work)[1:]).mkdir(parents=True)
    machine: Fedora = Fedora5(work)
    return machine


def make_unstable(tree: Path) -> None:
    """Make a Debian unstable with dnf 5, from the mirror of this machine."""
    with machines.sources("sid") as lists:
        text = "".join(path.read_text() for path in lists)
    url = next(word for word in text.split() if word.startswith("http") and word.endswith("/debian"))
    machines.run_checked(
        "mmdebstrap", "--quiet", "--variant=apt", "--aptopt=Acquire::Check-Valid-Until false",
        "--include=dnf5,rpm", "sid", tree, url,
    )  # fmt: skip


@pytest.fixture(scope="module")
def distribution(generation: int, shared_tree: SharedTree) -> Iterator[Distribution]:
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="puller-dnf-")))
        if generation == 5:
            root = stack.enter_context(machines.copied(shared_tree("dnf-5", make_unstable)))
            machine = Distribution(dnf_5(work, root))
        else:
            machine = Distribution(dnf.Fedora(work))
        for name in ("vars", "repositories", "plugins"):
            (work / name).mkdir()
        machine.make_repository()
        yield machine


@pytest.fixture
def fedora(distribution: Distribution) -> Iterator[Distribution]:
    """A machine without packages."""
    yield distribution
    distribution.clean()


OF_DNF = {
    "install": Case(installing("tool=1.0-1"), (), ["tool"]),
    "install with an epoch": Case(installing("tool"), (), ["tool"]),
    "long names and versions": Case(installing(LONG, "bbb"), (), [LONG, "bbb"]),
    "nothing": Case(installing("bbb"), ["install bbb"]),
    "nothing to remove": Case(removing("bbb")),
    "dependencies": Case(installing("app"), (), ["app", "lib"]),
    "recommended": Case(installing("extra"), (), ["extra", "tool"]),
    "not recommended": Case(installing("extra", options=Options(recommends=False)), (), ["extra"]),
    "upgrade": Case(installing("tool=2.0-1"), ["install tool-0:1.0-1"], ["tool"]),
    "upgrade to an epoch": Case(installing("tool=1:0.9-1"), ["install tool-0:2.0-1"], ["tool"]),
    "downgrade": Case(installing("tool=1.0-1", downgrades=True), ["install tool-0:2.0-1"], ["tool"]),
    "a name with a dot": Case(installing("python3.11=3.11.2-1"), ["install python3.11-3.11.1-1"], ["python3.11"]),
    "upgrade of two": Case(installing("app=2.0-1"), ["install app-1.0-1 lib-1.0-1"], ["app", "lib"]),
    "an architecture": Case(installing("tool.noarch=1.0-1"), (), ["tool"]),
    "removal of an architecture": Case(removing("tool:noarch"), ["install tool"], (), ["tool"]),
    "side by side": Case(installing("kernel=2.0-1"), ["install kernel-0:1.0-1"], ["kernel"]),
    "several": Case(removing("kernel"), ["install kernel-0:1.0-1 kernel-0:2.0-1"], (), ["kernel"]),
    "replacement": Case(installing("new"), ["install --setopt=obsoletes=0 old"], ["new"], ["old"]),
    "replacement of a name with a dot": Case(
        installing("python3.11-new", "python3.11=3.11.2-1"),
        ["install --setopt=obsoletes=0 python3.11-old", "install python3.11-3.11.1-1"],
        ["python3.11-new", "python3.11"],
        ["python3.11-old"],
    ),
    "removal": Case(removing("tool"), ["install tool"], (), ["tool"]),
    "dependents": Case(removing("lib"), ["install app"], (), ["app", "lib"]),
    "unused dependencies": Case(removing("app"), ["install app"], (), ["app", "lib"]),
}  # fmt: skip

REFUSED_BY_DNF = {
    "missing dependency": (installing("broken"), []),
    "exclusion": (installing("aaa", "bbb"), []),
    "exclusion of an installed package": (installing("aaa"), ["install bbb"]),
    "unknown package": (installing("missing"), []),
}


@pytest.mark.parametrize("name", OF_DNF)
@pytest.mark.sample(4)
def test_dnf_changes_exactly_the_packages_of_the_plan(fedora: Distribution, name: str) -> None:
    for step in OF_DNF[name].before:
        fedora.do(step)
    expect(fedora, OF_DNF[name])


@pytest.mark.parametrize("name", REFUSED_BY_DNF)
def test_a_refusal_of_dnf_is_never_an_empty_plan(fedora: Distribution, name: str) -> None:
    request, steps = REFUSED_BY_DNF[name]
    for step in steps:
        fedora.do(step)
    expect_refusal(fedora, request)


def test_a_skipped_package_is_no_part_of_the_plan(fedora: Distribution) -> None:
    """dnf lists the newest version, which cannot be installed, beside the older version, which can."""
    fedora.configure("best=0")
    expect(fedora, Case(installing("kept"), (), ["kept"]))
    assert {record.version for record in fedora.packages()["kept"]} == {"1.0-1"}


def test_a_package_file_is_in_the_plan_of_dnf(fedora: Distribution) -> None:
    (path,) = fedora.fedora.repository.rglob("tool-2.0-1.noarch.rpm")
    expect(fedora, Case(Request((RequestedPackage("tool", None, str(path)),)), (), ["tool"]))


def test_dnf_marks_packages_as_installed_by_request(fedora: Distribution) -> None:
    fedora.do("install app")
    Dnf().mark_manual(fedora.job(), ["lib"])
    expect(fedora, Case(removing("app"), (), (), ["app"]))


@pytest.mark.parametrize("setting", ["color=always", "debuglevel=0", "assumeyes=1"])
def test_the_configuration_of_dnf_hides_no_plan(fedora: Distribution, setting: str) -> None:
    fedora.do("install app")
    fedora.configure(setting)
    expect(fedora, OF_DNF["dependents"])


@pytest.mark.parametrize("setting", ["color=always", "debuglevel=0"])
def test_the_configuration_of_dnf_hides_no_newer_version(fedora: Distribution, setting: str) -> None:
    fedora.do("install tool-0:2.0-1 python3.11-3.11.1-1")
    fedora.configure(setting)
    manager = Dnf()
    assert manager.candidate(fedora.job(), "tool") == "1:0.9-1"
    assert manager.candidate(fedora.job(), "python3.11") == "3.11.2-1"
    assert manager.available(fedora.job(), "python3.11") == ["3.11.1-1", "3.11.2-1"]


def test_the_language_of_the_caller_hides_no_plan(
    fedora: Distribution, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de", "LANG": "de_DE.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    fedora.do("install app")
    expect(fedora, OF_DNF["dependents"])
