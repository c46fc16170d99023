"""The package resource with real apt and dpkg, and a comparison with the simulated ones.

Tests work in a Debian on disk with Puller installed. This machine's packages stay unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from puller.resources.packages.apt import parse_database, parse_policies
from tests.simulators import packages as simulator

if TYPE_CHECKING:
    from tests.support.machines import Completed

pytestmark = [pytest.mark.packages, pytest.mark.root]

CASES = Path(__file__).parents[1] / "cases" / "packages"
REPOSITORY = "srv/repository"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
HOLD_THE_LOCK = """
import fcntl, time
with open("/var/lib/dpkg/lock-frontend", "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep({seconds})
"""


WITH_PROC = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
"""Run a command in a tree with ``/proc`` mounted for this command alone."""


class Machine:
    """A Debian on disk. Its commands see nothing else, and this machine's packages stay unchanged."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str, timeout: float = 120, check: bool = True) -> Completed:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", WITH_PROC, str(self.root), *command],
            env=ENVIRONMENT, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
        assert not (check and done.returncode), (
            f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    @contextlib.contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """Hold dpkg's lock in another process, for a limited time."""
        command = ["chroot", str(self.root), "python3", "-c", HOLD_THE_LOCK.format(seconds=seconds)]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            yield
            holder.kill()


class Repository:
    """An apt repository on the machine's own disk, its only one."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.directory = machine.root / REPOSITORY
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.index: list[str] = []
        for pattern in ("etc/apt/sources.list.d/*", "var/lib/apt/lists/*_Packages*", "var/cache/apt/*.bin"):
            for path in machine.root.glob(pattern):
                path.unlink()
        (machine.root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:/{REPOSITORY} ./\n")

    def add(
        self, name: str, *versions: str, architecture: str = "all", postinst: str = "", **fields: str
    ) -> None:
        """Build a package in some versions, with a configuration file that differs between versions."""
        for version in versions:
            self._build(name, version, architecture, postinst, fields)

    def _build(
        self, name: str, version: str, architecture: str, postinst: str, fields: dict[str, str]
    ) -> None:
        file = f"{name}_{version.replace(':', '_')}_{architecture}.deb"
        tree = self.directory / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "etc").mkdir()
        (tree / f"etc/{name}.{architecture}.conf").write_text(f"version = {version}\n")
        (tree / "DEBIAN/conffiles").write_text(f"/etc/{name}.{architecture}.conf\n")
        control = {"Package": name, "Version": version, "Architecture": architecture,
                   "Maintainer": "Nobody <nobody@example.com>", "Description": "for a test", **fields}  # fmt: skip
        text = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in control.items())
        (tree / "DEBIAN/control").write_text(text)
        if postinst:
            (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\nset -e\n{postinst}\n")
            (tree / "DEBIAN/postinst").chmod(0o755)
        self.machine.run(
            "dpkg-deb", "--build", "--root-owner-group", f"/{REPOSITORY}/tree", f"/{REPOSITORY}/{file}"
        )
        self.machine.run("rm", "-r", f"/{REPOSITORY}/tree")
        built = (self.directory / file).read_bytes()
        digest = hashlib.sha256(built).hexdigest()
        self.index.append(f"{text}Filename: ./{file}\nSize: {len(built)}\nSHA256: {digest}\n")

    def publish(self, *, update: bool = True) -> None:
        (self.directory / "Packages").write_text("\n".join(self.index))
        if update:
            self.machine.run("apt-get", "update")


@pytest.fixture(scope="module")
def tree(
    debian_tree: Path, copied: Callable[[Path], contextlib.AbstractContextManager[Path]]
) -> Iterator[Path]:
    """A tree for all tests here: each test uses its own packages, or removes them."""
    with copied(debian_tree) as root:
        yield root


@pytest.fixture
def debian(tree: Path) -> Iterator[Machine]:
    """A Debian with only its own packages, before and after the test."""
    machine = Machine(tree)
    own = dpkg(machine).keys()
    yield machine
    if added := dpkg(machine).keys() - own:
        machine.run("dpkg", "--purge", "--force-all", *added)


@pytest.fixture
def repository(debian: Machine) -> Repository:
    return Repository(debian)


def apply(machine: Machine, packages: dict[str, dict[str, Any]], *options: str) -> Completed:
    resources = [{"package": [{name: properties}]} for name, properties in packages.items()]
    (machine.root / "root/manifest.yaml").write_text(yaml.safe_dump({"resources": resources}))
    return machine.run(
        "puller", "apply", "/root/manifest.yaml", "--verbose", *options, check=False, timeout=300
    )


def outcomes(done: Completed) -> dict[str, str]:
    """Return the state of each package, or the prediction of noop."""
    result = {}
    for name, state, rest in re.findall(
        r"package#(\S+) (stable|changed|failed|would change)(.*)", done.stdout
    ):
        message = re.search(r'noop="Would have (.*?)"', rest)
        result[name] = message[1] if message else state
    return result


def dpkg(machine: Machine) -> dict[str, tuple[str, str]]:
    """Return the version and status of each package according to dpkg."""
    done = machine.run("dpkg-query", "-W", "-f=${Package}:${Architecture} ${Version} ${db:Status-Status}\\n")
    rows = (line.split(" ") for line in done.stdout.splitlines())
    return {name: (version, status) for name, version, status in rows}


# All transitions between states: one package for each pair, all in one run.


def test_every_state_converges_as_noop_predicts(debian: Machine, repository: Repository) -> None:
    decisions: dict[str, dict[str, str]] = yaml.load((CASES / "decisions.yaml").read_text(), yaml.CSafeLoader)
    rows = {**decisions, "config-files": decisions["absent"]}
    table = {
        f"tool{number}": (actual, desired, says)
        for number, (actual, desired, says) in enumerate(
            (actual, desired, says) for actual, row in rows.items() for desired, says in row.items()
        )
    }
    versions = {"absent": "", "config-files": "1.0-1"}
    for name, (actual, _, _) in table.items():
        repository.add(name, versions.get(actual, actual) or "1.0-1")
    repository.publish()
    start = [
        f"{name}={result}"
        for name, (actual, _, _) in table.items()
        if (result := versions.get(actual, actual))
    ]
    debian.run("apt-get", "install", "-y", *start)
    debian.run("apt-get", "remove", "-y", *(name for name, row in table.items() if row[0] == "config-files"))
    repository.index.clear()
    for name in table:
        repository.add(name, "1.0-1", "1.1-1", "2.0-1")
    repository.publish()

    manifest = {name: {"ensure": desired} for name, (_, desired, _) in table.items()}
    before = dpkg(debian)
    output = outcomes(apply(debian, manifest, "--noop"))
    assert output == {name: says for name, (_, _, says) in table.items()}
    assert dpkg(debian) == before
    done = apply(debian, manifest)
    expected = {name: "stable" if says == "stable" else "changed" for name, says in output.items()}
    assert outcomes(done) == expected, done.stdout
    after = dpkg(debian)
    for name, (actual, desired, _) in table.items():
        version, status = after.get(f"{name}:all", ("", "not-installed"))
        assert (status == "installed") == (desired != "absent"), name
        if desired == "latest":
            assert version == ("1:0.9-1" if actual == "1:0.9-1" else "2.0-1")
        elif desired not in ("absent", "present"):
            assert version == "1.1-1"
    assert set(outcomes(apply(debian, manifest)).values()) == {"stable"}
    assert dpkg(debian) == after


# Problems


def is_running(pid: str) -> bool:
    """A zombie is not running: it waits for this process, which adopts orphans once Puller has run a command in it."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.attack("apt.conffile")
def test_changed_configuration_file_is_kept_unattended(debian: Machine, repository: Repository) -> None:
    repository.add("tool", "1.0", "2.0")
    repository.publish()
    assert outcomes(apply(debian, {"tool": {"ensure": "1.0"}})) == {"tool": "changed"}
    (debian.root / "etc/tool.all.conf").write_text("mine\n")
    assert outcomes(apply(debian, {"tool": {"ensure": "latest"}})) == {"tool": "changed"}
    assert (debian.root / "etc/tool.all.conf").read_text() == "mine\n"
    assert (debian.root / "etc/tool.all.conf.dpkg-dist").read_text() == "version = 2.0\n"


@pytest.mark.attack("apt.lock")
def test_the_lock_is_waited_for_but_not_for_ever(debian: Machine, repository: Repository) -> None:
    repository.add("tool", "1.0")
    repository.publish()
    with debian.locked(60):
        done = apply(debian, {"tool": {"lock_timeout": 1}})
    assert outcomes(done) == {"tool": "failed"}
    assert "Unable to acquire the dpkg frontend lock" in done.stdout
    with debian.locked(3):
        assert outcomes(apply(debian, {"tool": {"lock_timeout": 60}})) == {"tool": "changed"}


@pytest.mark.attack("apt.interrupted")
def test_dpkg_killed_at_the_limit_is_repaired_next_run(debian: Machine, repository: Repository) -> None:
    """The first run leaves an interrupted dpkg, and no process. The second run completes the interrupted work."""
    repository.add("slow", "1.0", postinst="echo $$ > /slow.pid; test -e /quick || sleep 1000")
    repository.add("tool", "1.0")
    repository.publish()
    done = apply(debian, {"slow": {"timeout": 3, "lock_timeout": 0}})
    assert outcomes(done) == {"slow": "failed"}
    assert "its time limit" in done.stdout
    assert not is_running((debian.root / "slow.pid").read_text().strip())
    assert dpkg(debian)["slow:all"] == ("1.0", "half-configured")
    (debian.root / "quick").touch()
    done = apply(debian, {"tool": {}})
    assert outcomes(done) == {"tool": "changed"}
    assert "dpkg had been interrupted; dpkg --configure -a has finished its work" in done.stdout
    assert dpkg(debian)["slow:all"] == ("1.0", "installed")


def test_failed_maintainer_script_is_reported_and_repaired(debian: Machine, repository: Repository) -> None:
    repository.add("bad", "1.0", postinst="test -e /works || { echo 'the database is full' >&2; exit 3; }")
    repository.publish()
    done = apply(debian, {"bad": {}})
    assert outcomes(done) == {"bad": "failed"}
    assert "the database is full" in done.stdout
    assert "subprocess returned error exit status 3" in done.stdout
    output = apply(debian, {"bad": {}}, "--noop")
    assert outcomes(output) == {"bad": "installed version present"}
    (debian.root / "works").touch()
    assert outcomes(apply(debian, {"bad": {}})) == {"bad": "changed"}
    assert outcomes(apply(debian, {"bad": {}})) == {"bad": "stable"}


def test_half_installed_package_can_be_removed(debian: Machine, repository: Repository) -> None:
    repository.add("bad", "1.0", postinst="exit 3")
    repository.publish()
    assert outcomes(apply(debian, {"bad": {}})) == {"bad": "failed"}
    assert outcomes(apply(debian, {"bad": {"ensure": "absent"}})) == {"bad": "changed"}
    assert dpkg(debian)["bad:all"] == ("1.0", "config-files")
    assert outcomes(apply(debian, {"bad": {"ensure": "absent"}})) == {"bad": "stable"}


def test_a_machine_without_package_lists_fetches_them(debian: Machine, repository: Repository) -> None:
    repository.add("tool", "1.0")
    repository.publish(update=False)
    done = apply(debian, {"tool": {}})
    assert outcomes(done) == {"tool": "changed"}
    assert "apt: fetching the package lists anew" in done.stdout


def test_package_lists_that_are_out_of_date_are_fetched_anew(debian: Machine, repository: Repository) -> None:
    repository.add("tool", "1.0-1")
    repository.publish()
    (repository.directory / "tool_1.0-1_all.deb").unlink()
    repository.index.clear()
    repository.add("tool", "1.0-2")
    repository.publish(update=False)
    assert outcomes(apply(debian, {"tool": {}})) == {"tool": "changed"}
    assert dpkg(debian)["tool:all"] == ("1.0-2", "installed")


@pytest.mark.attack("apt.missing")
def test_unknown_package_fails_alone(debian: Machine, repository: Repository) -> None:
    repository.add("tool", "1.0")
    repository.publish()
    done = apply(debian, {"no-such-tool": {}, "tool": {}})
    assert outcomes(done) == {"no-such-tool": "failed", "tool": "changed"}
    assert "Unable to locate package no-such-tool" in done.stdout
    assert "no-such-tool:all" not in dpkg(debian)
    done = apply(debian, {"tool": {"ensure": "9.9"}})
    assert outcomes(done) == {"tool": "failed"}
    assert "9.9" in done.stdout
    assert dpkg(debian)["tool:all"] == ("1.0", "installed")


def test_noop_predicts_unavailable_packages(debian: Machine, repository: Repository) -> None:
    """Tests a misspelt name, a version that never existed, a name that packages provide, and a fresh machine."""
    repository.add("tool", "1.0", "1.1")
    repository.add("postfix", "3.0", Provides="mail-agent")
    repository.add("exim", "4.0", Provides="mail-agent")
    repository.publish()
    desired: dict[str, dict[str, Any]] = {"tool": {}, "misspelt": {}, "latest-of-none": {"ensure": "latest"},
                                         "postfix": {"ensure": "9.9"}, "mail-agent": {}}  # fmt: skip
    output, done = apply(debian, desired, "--noop"), apply(debian, desired)
    failed = dict.fromkeys(list(desired)[1:], "failed")
    assert outcomes(output) == {"tool": "installed version present", **failed}, output.stdout
    assert outcomes(done) == {"tool": "changed", **failed}, done.stdout
    assert "version 9.9 is not available (available: 3.0)" in output.stdout
    assert "no configured repository offers a package misspelt" in output.stdout
    debian.run("apt-get", "purge", "-y", "tool")
    for path in debian.root.glob("var/lib/apt/lists/*_Packages*"):  # apt may compress them
        path.unlink()
    unknown = "(changes of other packages are unknown until the run)"
    assert outcomes(apply(debian, {"tool": {}}, "--noop")) == {"tool": f"installed version present {unknown}"}
    assert outcomes(apply(debian, {"tool": {}})) == {"tool": "changed"}


@pytest.mark.attack("apt.mirror")
def test_dead_mirror_fails_in_bounded_time(debian: Machine, repository: Repository) -> None:
    """No server listens at the mirror: neither lists nor packages of older lists can be downloaded."""
    repository.add("tool", "1.0")
    repository.publish(update=False)
    sources = debian.root / "etc/apt/sources.list"
    up = sources.read_text()
    sources.write_text("deb [trusted=yes] http://127.0.0.1:9/debian ./\n")
    done = apply(debian, {"tool": {"timeout": 60}})
    assert outcomes(done) == {"tool": "failed"}
    assert "Unable to locate package tool" in done.stdout
    assert "fetching the package lists anew" in done.stdout

    sources.write_text(up)
    debian.run("apt-get", "update")
    package = next(repository.directory.glob("tool_*.deb"))
    package.rename(package.with_suffix(".away"))
    done = apply(debian, {"tool": {}})
    assert outcomes(done) == {"tool": "failed"}
    assert "Unable to fetch some archives" in done.stdout
    assert "tool:all" not in dpkg(debian)

    package.with_suffix(".away").rename(package)
    assert outcomes(apply(debian, {"tool": {}})) == {"tool": "changed"}


@pytest.mark.attack("apt.held")
def test_a_held_package_is_left_alone(debian: Machine, repository: Repository) -> None:
    repository.add("tool", "1.0", "2.0")
    repository.publish()
    debian.run("apt-get", "install", "-y", "tool=1.0")
    debian.run("apt-mark", "hold", "tool")
    for options in ((), ("--noop",)):
        done = apply(debian, {"tool": {"ensure": "latest"}}, *options)
        assert outcomes(done) == {"tool": "failed"}
        assert "is held at 1.0 (apt-mark hold), so it is left as it is, expected latest" in done.stdout
    assert dpkg(debian)["tool:all"] == ("1.0", "installed")


def test_packages_of_two_architectures_are_two(debian: Machine, repository: Repository) -> None:
    native = debian.run("dpkg", "--print-architecture").stdout.strip()
    for architecture in (native, "riscv64"):
        repository.add("multi", "1.0", architecture=architecture, Multi_Arch="same")
    debian.run("dpkg", "--add-architecture", "riscv64")
    repository.publish()
    assert outcomes(apply(debian, {"multi:riscv64": {}})) == {"multi:riscv64": "changed"}
    both: dict[str, dict[str, Any]] = {"multi": {"ensure": "latest"}, "multi:riscv64": {"ensure": "latest"}}
    assert outcomes(apply(debian, both)) == {"multi": "changed", "multi:riscv64": "stable"}
    assert set(outcomes(apply(debian, both)).values()) == {"stable"}
    assert outcomes(apply(debian, {"multi": {"ensure": "absent"}})) == {"multi": "changed"}
    assert outcomes(apply(debian, {"multi:riscv64": {}})) == {"multi:riscv64": "stable"}


def test_a_name_is_never_a_pattern(debian: Machine, repository: Repository) -> None:
    """By default, apt takes ``too.`` for a regular expression and installs all matching packages."""
    repository.add("tool", "1.0")
    repository.publish()
    assert outcomes(apply(debian, {"too.": {}, "t.": {"ensure": "latest"}})) == {
        "too.": "failed",
        "t.": "failed",
    }
    assert "tool:all" not in dpkg(debian)


# The simulated Debian behaves like the real one


SITUATIONS = {
    "install": ["install tool"],
    "install what there is": ["install tool=1.0-1", "install tool=1.0-1"],
    "upgrade": ["install tool=1.0-1", "install tool"],
    "upgrade to a version": ["install tool=1.0-1", "install tool=1.1-1"],
    "downgrade without leave": ["install tool", "install tool=1.0-1"],
    "downgrade": ["install tool", "install --allow-downgrades tool=1.0-1"],
    "remove": ["install tool", "remove tool"],
    "install again": ["install tool=1.0-1", "remove tool", "install tool"],
    "two at once": ["install tool other", "remove tool other"],
    "no such package": ["install missing"],
    "no such version": ["install tool=7"],
    "one of two is missing": ["install tool missing"],
    "a script that fails": ["install bad", "remove bad"],
    "upgrade on hold": ["install tool=1.0-1", "hold tool", "install tool=2.0-1"],
    "same version on hold": ["install tool=1.0-1", "hold tool", "install tool=1.0-1"],
    "remove on hold": ["install tool", "hold tool", "remove tool"],
    "upgrade after a hold": ["install tool=1.0-1", "hold tool", "unhold tool", "install tool=2.0-1"],
    "purge": ["install tool", "purge tool"],
    "purge what is left": ["install tool", "remove tool", "purge tool"],
}
NAMES = ("tool", "other", "bad", "missing")
KNOWN_WORDS = (
    "Unable to locate package", "was not found", "Packages were downgraded", "Held packages were changed",
    "error processing package bad",
)  # fmt: skip
FIELDS = ("db:Status-Want", "db:Status-Status", "Package", "Architecture", "Version", "Provides")


def command(step: str) -> list[str]:
    verb, *remainder = step.split()
    if verb in ("hold", "unhold"):
        return ["apt-mark", verb, "--", *remainder]
    options = [word for word in remainder if word.startswith("--")]
    packages = [word for word in remainder if word not in options]
    return ["apt-get", verb, "-y", "-q", "-o", "Dpkg::Use-Pty=0", *options, "--", *packages]


def seen_by_puller(run: Callable[[list[str]], Any]) -> Any:
    """Return Puller's view of the packages and of the available ones."""
    fields = "\\t".join(f"${{{field}}}" for field in FIELDS)
    installed = parse_database(run(["dpkg-query", "-W", f"-f={fields}\\n"]).stdout).installed
    policies = parse_policies(run(["apt-cache", "policy", "--", *NAMES]).stdout)
    return (
        {name: installed[name] for name in NAMES if name in installed},
        {name: (policy.candidate, sorted(policy.versions)) for name, policy in policies.items()},
    )


def test_simulated_debian_behaves_like_debian(debian: Machine, repository: Repository) -> None:
    repository.add("tool", "1.0-1", "1.1-1", "2.0-1")
    repository.add("other", "1.0")
    repository.add("bad", "1.0", postinst="exit 3")
    repository.publish()

    def real(words: list[str]) -> Completed:
        return debian.run(*words, check=False)

    for situation, steps in SITUATIONS.items():
        imitation = simulator.Debian(
            repository={"tool": ["1.0-1", "1.1-1", "2.0-1"], "other": ["1.0"], "bad": ["1.0"]},
            architecture=dict.fromkeys(NAMES, "all"),
            fails={"bad"},
        )
        for step in steps:
            done, imitated = real(command(step)), imitation.run(command(step))
            assert imitated.exit_code == done.returncode, (situation, step, done.stderr)
            output = [words for words in KNOWN_WORDS if words in done.stderr]
            assert [words for words in KNOWN_WORDS if words in imitated.stderr] == output, (situation, step)
            assert seen_by_puller(imitation.run) == seen_by_puller(real), (situation, step)
        debian.run("apt-mark", "unhold", "tool")
        debian.run("apt-get", "purge", "-y", *NAMES[:3])
