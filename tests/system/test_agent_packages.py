"""The packages of `packaging/build`: builds are reproducible, and hosts install, upgrade and remove them cleanly.

Packages are built in trees of both releases of Debian and installed in bare trees, one of which is booted. The checked
out commit is built. The next version is made from it: as rpm in a clone, as a Debian package by repacking.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.machines import copied, copy_tree, install, powered_on, run_checked, run_in

if TYPE_CHECKING:
    from tests.support.machines import Machine, SharedTree

pytestmark = [pytest.mark.packages, pytest.mark.root]

ROOT = Path(__file__).parents[2]
NEXT = "999.1"
"""A version after the checked out one."""
BROKEN = "999.2"
"""A version after ``NEXT`` that does not start."""
DYING = "999.3"
"""A version that starts, but whose runs are killed."""
KILLED = "def run(*_):\n    import os\n    os.kill(os.getpid(), 9)\n"

AGENT = ("--package", "puller")
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
MANIFEST = """\
resources:
  - file:
      - /etc/motd: {content: "kept by {{ facts.networking.hostname }}\\n", owner: root, group: root, mode: "0644"}
"""
CONFIGURATION = "site: /srv/site/public\nbundles: [{name: web}]\n"


class Built(NamedTuple):
    """Packages for a release: ``first`` and ``again`` from the same commit, ``next`` with a later version.

    ``again`` and ``next`` exist only for Debian 12, and ``again`` only with ``--thorough``.
    """

    codename: str
    bare: Path
    tree: Path
    first: Path
    again: Path
    next: Path

    def package(self, directory: Path, suffix: str, name: str = "puller") -> Path:
        start = re.compile(rf"{name}[-_]\d")
        (result,) = (
            path for path in directory.iterdir() if path.name.endswith(suffix) and start.match(path.name)
        )
        return result


def build(
    repository: Path,
    tree: Path,
    output: Path,
    codename: str,
    *words: str,
    umask: int = 0o022,
    **variables: str,
) -> None:
    """Build the packages, and keep the progress that the command prints beside them."""
    options: tuple[str | Path, ...] = ("--release", codename, "--tree", tree, "--output", output)
    command = (sys.executable, repository / "packaging/build", *words, *options)
    done = run_checked(*command, env=os.environ | variables, umask=umask)
    output.with_name(f"{output.name}.log").write_text(done.stdout)


def make_release(directory: Path, bare: Path, codename: str, *, is_thorough: bool) -> None:
    """Build the packages in a copy of a bare tree.

    All seven packages are built for Debian 12. The next version and the packages for Debian 13 have only the agent,
    because the libraries of ``puller-fleet`` take most of the time. ``--thorough`` adds them for Debian 13, and builds
    the agent for Debian 12 again.
    """
    tree = directory / "tree"
    directory.mkdir(mode=0o755)
    copy_tree(bare, tree)
    install(tree, "python3", "python3-venv", "ca-certificates", "rpm")
    commit = ("--commit", run_checked("git", "-C", ROOT, "rev-parse", "HEAD").stdout.strip())
    if codename == "bookworm":
        formats = ("deb", "rpm", "directory", *commit)
        build(ROOT, tree, directory / "first", codename, *formats)
        if is_thorough:
            scratch = directory / "scratch"
            scratch.mkdir()
            other = {"TZ": "Pacific/Auckland", "LANG": "C", "PYTHONHASHSEED": "7"}
            other |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
            build(ROOT, tree, directory / "again", codename, *formats, *AGENT, umask=0o077, **other)
        build(next_version(directory), tree, directory / "next", codename, "rpm", *AGENT)
        (package,) = (directory / "first").glob("puller_*.deb")
        packed_again(package, directory / "next", NEXT)
    else:
        build(ROOT, tree, directory / "first", codename, "deb", *commit, *([] if is_thorough else AGENT))


def packed_again(package: Path, output: Path, number: str, **appended: str) -> Path:
    """Return the package as another version. ``appended``: lines to append to modules of the agent, by module name."""
    made = output / package.name.replace(f"_{version()}-", f"_{number}-")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root")
        run_checked("dpkg-deb", "--raw-extract", package, root)
        (modules,) = root.glob("usr/lib/puller/package/lib/python3*/site-packages/puller")
        controls = (root / "DEBIAN/control", root / "DEBIAN/postinst", root / "usr/lib/puller/brought")
        for path in (modules / "version.py", *controls):
            path.write_text(path.read_text().replace(version(), number))
        for name, line in appended.items():
            with (modules / f"{name}.py").open("a") as module:
                module.write(f"{line}\n")
        (root / "DEBIAN/md5sums").unlink()
        run_checked("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", root, made)
    return made


def next_version(directory: Path) -> Path:
    """Return a clone with a commit of the next version."""
    clone = directory / "clone"
    run_checked("git", "clone", "--quiet", "--no-hardlinks", ROOT, clone)
    version = clone / "puller/version.py"
    version.write_text(re.sub('"[0-9.]+"', f'"{NEXT}"', version.read_text()))
    person = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    run_checked("git", "-C", clone, *person, "commit", "--quiet", "--all", "--message", "The next version")
    return clone


@pytest.fixture(scope="session")
def releases(
    shared_tree: SharedTree, bare_tree: Callable[[str], Path], pytestconfig: pytest.Config
) -> Releases:
    return Releases(shared_tree, bare_tree, is_thorough=pytestconfig.option.thorough)


class Releases:
    """Returns the packages of a release. One worker builds them while the others wait."""

    def __init__(
        self, shared_tree: SharedTree, bare_tree: Callable[[str], Path], *, is_thorough: bool
    ) -> None:
        self._shared_tree = shared_tree
        self._bare_tree = bare_tree
        self._is_thorough = is_thorough

    def __getitem__(self, codename: str) -> Built:
        bare = self._bare_tree(codename)
        made = self._shared_tree(
            f"packages-{codename}",
            lambda directory: make_release(directory, bare, codename, is_thorough=self._is_thorough),
        )
        return Built(codename, bare, *(made / name for name in ("tree", "first", "again", "next")))


def digests(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


@pytest.mark.thorough
def test_the_same_commit_gives_the_same_bytes(releases: Releases) -> None:
    built = releases["bookworm"]
    first, again = digests(built.first), digests(built.again)
    assert len(first) == 7 * 4  # packages, their bills of materials, and the checksums of both
    assert again == {name: digest for name, digest in first.items() if re.match(r"puller[-_]\d", name)}


def test_checksums_and_bills_describe_their_files(releases: Releases) -> None:
    built = releases["bookworm"]
    for sums in built.first.glob("*.sha256"):
        subprocess.run(["sha256sum", "--check", "--quiet", sums.name], cwd=built.first, check=True)
    bill: Any = json.loads(built.package(built.first, ".deb.cdx.json").read_bytes())
    locked = (ROOT / "packaging/requirements.lock").read_text()
    output = {f"{found['name']}=={found['version']}".lower() for found in bill["components"]}
    assert bill["metadata"]["component"]["name"] == "puller-agent"
    assert output - {f"puller-agent=={version()}"} == set(
        re.findall(r"^[-a-z0-9]+==[^ ]+", locked, re.MULTILINE)
    )


def test_build_reports_each_step_with_its_time(releases: Releases) -> None:
    log = releases["bookworm"].first.with_name("first.log").read_text()
    steps = re.findall(r"^packaging/build: +\d+ s: (.*)$", log, re.MULTILINE)
    assert [step.partition(" ")[0] for step in steps] == [
        *("checking", "preparing", "installing"),
        *["packing"] * 7,
        "complete",
    ]
    assert steps[1] == "preparing the tree of Debian 12"
    names = ("puller", "puller-fleet", "puller-s3")
    packages = [f"{name} ({form})" for form in ("deb", "rpm") for name in names]
    assert set(steps[3:10]) == {f"packing {package}" for package in (*packages, "puller (directory)")}


def version() -> str:
    from puller.version import __version__

    return __version__


@pytest.mark.parametrize(
    ("codename", "names"),
    [
        ("bookworm", ("puller", "puller-s3")),
        ("bookworm", ("puller-fleet",)),
        ("trixie", ("puller",)),
    ],
)
@pytest.mark.thorough
def test_lintian_has_no_errors(releases: Releases, codename: str, names: tuple[str, ...]) -> None:
    """Lintian reads every file, which takes half a minute for a package. The others differ only in their libraries."""
    built = releases[codename]
    packages = [built.package(built.first, ".deb", name) for name in names]
    command: list[str | Path] = ["lintian", "--fail-on", "error", "--allow-root", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_unknown_commit_and_wrong_release_tree_are_refused(releases: Releases, tmp_path: Path) -> None:
    tree = releases["bookworm"].tree
    for options, output in (
        (("--commit", "nowhere", "--tree", str(tree)), "nowhere"),
        (("--release", "trixie", "--tree", str(tree)), "is not Debian 13 (trixie)"),
    ):
        command: list[str | Path] = [
            sys.executable,
            ROOT / "packaging/build",
            "deb",
            "--output",
            tmp_path,
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert output in done.stderr
        assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


class Host:
    """A booted machine with Puller's package, and with its site on its own disk."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def type_in(self, command: str, check: bool = True) -> str:
        shell = f"export DEBIAN_FRONTEND=noninteractive PULLER_PASSPHRASE=correct-horse; {command}"
        return self.machine.run("bash", "-ec", shell, check=check, timeout=600).stdout

    def install(self, package: Path) -> None:
        shutil.copy(package, self.machine.root / "root")
        keep = "-o Dpkg::Options::=--force-confold"
        self.type_in(f"apt-get install -y --no-install-recommends {keep} /root/{package.name}")

    def publish(self, number: str) -> None:
        (self.machine.root / "srv/web").mkdir(exist_ok=True)
        (self.machine.root / "srv/web/manifest.yaml").write_text(MANIFEST)
        self.type_in(f"cd /srv && puller site publish site web --version {number}")

    def publish_agent(self, package: Path, number: str) -> None:
        """Publish a bundle that installs this package."""
        shutil.copy(package, self.machine.root / "srv")
        self.type_in(f"cd /srv && rm -rf agent && puller bundle new agent --agent {package.name}")
        self.type_in(f"cd /srv && puller site publish site agent --version {number}")

    def run(self, check: bool = True) -> dict[str, Any]:
        """Start the package's unit and return the report of the run."""
        self.type_in("systemctl start puller.service", check=check)
        report: dict[str, Any] = json.loads((self.machine.root / "var/lib/puller/last-run.json").read_bytes())
        return report

    def left(self) -> set[str]:
        """Return the remaining paths with Puller's name, except those that this test created."""
        result = self.type_in(
            "find / -xdev -name '*puller*' -not -path '/proc/*' -not -path '/root/*' -print"
        )
        return set(result.split()) - {"/etc/puller"}

    def byte_code(self, number: str) -> int:
        return len(list((self.machine.root / "usr/lib/puller" / number).rglob("*.pyc")))


@pytest.mark.booted
def test_package_manages_a_machine_through_upgrade_and_purge(releases: Releases) -> None:
    built = releases["bookworm"]
    with copied(built.bare) as root, powered_on(root) as machine:
        host = Host(machine)

        host.install(built.package(built.first, ".deb"))
        assert machine.run("which", "-a", "puller").stdout.splitlines()[0] == "/usr/bin/puller"
        assert machine.run("puller", "--version").stdout == f"puller, version {version()}\n"
        assert machine.show("puller.timer", "UnitFileState", "ActiveState") == {
            "UnitFileState": "disabled",
            "ActiveState": "inactive",
        }
        assert sorted(path.name for path in (root / "etc/puller").iterdir()) == ["config.yaml.sample"]
        assert machine.run("getent", "passwd", "_puller").stdout.endswith(":/:/usr/sbin/nologin\n")
        compiled = host.byte_code(version())
        assert compiled == len(list((root / "usr/lib/puller" / version()).rglob("*.py"))) > 900
        started = host.type_in("puller install-units --stdout | grep ^ExecStart=")
        assert started == "ExecStart=/usr/bin/puller run\nExecStart=/usr/bin/puller check --run\n"
        assert "has brought the units already" in host.type_in("puller install-units")
        assert not (root / "etc/systemd/system/puller.service").exists()
        for page in ("man1/puller-run.1.gz", "man5/puller.yaml.5.gz", "man7/puller-operating.7.gz"):
            assert (root / "usr/share/man" / page).exists(), page
        for place in ("bash-completion/completions/puller", "zsh/vendor-completions/_puller"):
            assert "puller" in (root / "usr/share" / place).read_text(), place

        host.type_in("cd /srv && puller site init site && cp site/root.json /etc/puller/root.json")
        (root / "etc/puller/config.yaml").write_text(CONFIGURATION)
        host.publish("1.0.0")
        assert host.run()["exit_status"] == 0
        assert (root / "etc/motd").read_text().startswith("kept by ")
        host.type_in(
            "systemctl enable --now puller.timer puller-check.timer puller-site-refresh@srv-site.timer"
        )
        host.type_in("systemctl enable puller-mirror.timer")

        with (root / "etc/puller/config.yaml.sample").open("a") as sample:
            sample.write("# mine\n")
        host.install(built.package(built.next, ".deb"))
        assert machine.run("puller", "--version").stdout == f"puller, version {NEXT}\n"
        assert (root / "etc/puller/config.yaml.sample").read_text().endswith("# mine\n")
        assert versions(root) == f"1 {NEXT} {version()}\n"
        assert host.byte_code(NEXT) == host.byte_code(version()) == compiled
        assert machine.show("puller.timer", "UnitFileState", "ActiveState") == {
            "UnitFileState": "enabled",
            "ActiveState": "active",
        }
        assert host.run()["exit_status"] == 0

        host.type_in("apt-get remove -y puller")
        for timer in ("puller.timer", "puller-check.timer"):
            assert machine.run("systemctl", "is-active", timer, check=False).stdout.strip() != "active", timer
        assert (root / "var/lib/puller/last-run.json").exists()
        assert (root / "etc/puller/config.yaml").exists()
        assert not (root / "usr/lib/puller").exists()
        assert not (root / "usr/bin/puller").exists()

        host.install(built.package(built.next, ".deb"))
        for timer in ("puller.timer", "puller-check.timer", "puller-site-refresh@srv-site.timer"):
            result = machine.show(timer, "UnitFileState", "ActiveState")
            assert result == {"UnitFileState": "enabled", "ActiveState": "active"}, timer
        assert machine.show("puller-boot.timer", "ActiveState")["ActiveState"] == "active"
        result = machine.show("puller-mirror.timer", "UnitFileState", "ActiveState")
        assert result == {"UnitFileState": "enabled", "ActiveState": "inactive"}, "it was stopped before"
        assert host.run()["exit_status"] == 0

        host.type_in("apt-get purge -y puller")
        assert host.left() == set()
        assert sorted(path.name for path in (root / "etc/puller").iterdir()) == ["config.yaml", "root.json"]


@pytest.mark.booted
@pytest.mark.thorough
def test_debian_13_package_manages_and_upgrades_a_machine(releases: Releases, tmp_path: Path) -> None:
    """The unit of the package upgrades to a later version, then to a version that does not start, and back."""
    built = releases["trixie"]
    first = built.package(built.first, ".deb")
    following = packed_again(first, tmp_path, NEXT)
    broken = packed_again(first, tmp_path, BROKEN, errors='raise ImportError("broken on purpose")')
    with copied(built.bare) as root, powered_on(root) as machine:
        host = Host(machine)
        host.install(first)
        assert host.type_in("puller --version") == f"puller, version {version()}\n"
        assert "refused" in host.type_in("puller demo")
        assert not list((root / "etc/systemd/system").rglob("puller*"))

        host.type_in("cd /srv && puller site init site && cp site/root.json /etc/puller/root.json")
        (root / "etc/puller/config.yaml").write_text(CONFIGURATION.replace("web", "agent"))
        host.publish_agent(first, "1.0.0")
        host.type_in("systemctl enable --now puller.timer")
        assert host.run()["exit_status"] == 0

        host.publish_agent(following, "1.1.0")
        assert host.run()["puller"] == version(), "the run that upgrades ends as it began"
        assert host.type_in("puller --version") == f"puller, version {NEXT}\n"
        assert versions(root) == f"1 {NEXT} {version()}\n"
        assert host.run()["puller"] == NEXT
        assert machine.show("puller.timer", "ActiveState")["ActiveState"] == "active"

        host.publish_agent(broken, "1.2.0")
        given_up = host.run(check=False)
        assert given_up["bundles"][0]["given_up"]["version"] == "1.2.0"
        assert host.type_in("puller --version") == f"puller, version {NEXT}\n"
        host.type_in("cd /srv && puller site back site agent --version 1.0.0")
        assert host.run()["puller"] == NEXT
        assert host.run()["puller"] == version()

        host.type_in("rm -r /srv/agent /srv/puller*; apt-get purge -y puller")
        assert host.left() == set()


def versions(root: Path) -> str:
    """Return the current and the previous version, as the launcher reads them."""
    return (root / "usr/lib/puller/versions").read_text()


AFTER_THE_UPGRADE = """\
  - file:
      - /opt/go: {template: files/go.tmpl, owner: root, group: root, mode: "0644", require: [package#puller]}
      - /opt/jet:
          template: files/hello.jet
          owner: root
          group: root
          mode: "0644"
          health_checks: [{disk: {path: /, free: 1}}, {file: {path: /opt/go, contains: go}}]
          require: [package#puller, file#/opt/go]
"""
"""Resources whose modules are imported late: template engines and kinds of checks."""


class Chroot:
    """A tree with Puller's package and a site on its disk, without a booted system."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root, self._work = root, work

    def type_in(self, command: str, *, status: int = 0) -> str:
        """Return the output of a command on both streams."""
        shell = f'export PULLER_PASSPHRASE=correct-horse; cd /srv; exec 2>&1; {command}; echo "status $?"'
        output, _, ended = run_in(self.root, "bash", "-c", shell).rstrip("\n").rpartition("status ")
        assert ended == str(status), output
        return output

    def publish(self, package: Path, number: str, more: str = "") -> None:
        """Publish a bundle that installs this package."""
        shutil.copy(package, self.root / "srv")
        self.type_in(f"rm -rf agent; puller bundle new agent --agent {package.name}")
        for path in self._work.iterdir():
            shutil.copy(path, self.root / "srv/agent/files")
        with (self.root / "srv/agent/manifest.yaml").open("a") as manifest:
            manifest.write(more)
        self.type_in(f"puller site publish site agent --version {number}")

    def run(self, status: int = 0) -> dict[str, Any]:
        """Run Puller and return the report."""
        self.type_in("puller run", status=status)
        report: dict[str, Any] = json.loads((self.root / "var/lib/puller/last-run.json").read_bytes())
        return report

    def agent(self) -> str:
        """Return the started version. A message about a fallback would be part of it."""
        return self.type_in("puller --version").removeprefix("puller, version ").strip()


def test_agent_bundle_upgrades_to_a_broken_version_and_back(releases: Releases, tmp_path: Path) -> None:
    built = releases["bookworm"]
    first, following = (built.package(where, ".deb") for where in (built.first, built.next))
    broken = packed_again(first, tmp_path, BROKEN, errors='raise ImportError("broken on purpose")')
    dying = packed_again(first, tmp_path, DYING, **{"run/jobs": KILLED})
    work = tmp_path / "files"
    work.mkdir()
    (work / "go.tmpl").write_text('{{ printf "%s" "go" }}\n')
    (work / "hello.jet").write_text('[[ len("four") ]]\n')

    with copied(built.tree) as root:
        host = Chroot(root, work)
        shutil.copy(first, root / "root")
        install(root, f"/root/{first.name}")
        host.type_in("puller site init site && cp site/root.json /etc/puller/root.json")
        (root / "etc/puller/config.yaml").write_text(CONFIGURATION.replace("web", "agent"))
        host.publish(first, "1.0.0")
        assert host.run()["bundles"][0]["summary"].get("changed", 0) == 0

        # The upgrading run completes with the old code. The next run uses the new version.
        host.publish(following, "1.1.0", AFTER_THE_UPGRADE)
        report = host.run()
        assert report["puller"] == version()
        assert "problems" not in report
        assert (root / "opt/go").read_text() == "go\n"
        assert (root / "opt/jet").read_text().strip() == "4"
        assert host.agent() == NEXT
        assert versions(root) == f"1 {NEXT} {version()}\n"
        report = host.run()
        assert report["puller"] == NEXT
        assert report["bundles"][0]["summary"].get("changed", 0) == 0

        # A version that does not start: its bundle is rolled back, and the previous bundle reinstalls its package.
        host.publish(broken, "1.2.0")
        (bundle,) = host.run(7)["bundles"]
        assert bundle["given_up"]["version"] == "1.2.0"
        assert "broken on purpose" in json.dumps(bundle)
        assert host.agent() == NEXT
        assert versions(root) == f"1 {NEXT} -\n"
        assert "problems" not in host.run(20), "the broken bundle is quarantined"

        # Installed by hand, without the bundle: the previous version runs, reports it, and repairs the package.
        shutil.copy(broken, root / "root")
        sentence = (
            f"version {BROKEN} does not start: ImportError: broken on purpose; {NEXT} is used in its place"
        )
        assert sentence in host.type_in(f"dpkg -i /root/{broken.name}")
        assert sentence in host.type_in("puller --version")
        report = host.run(16)
        assert [problem["message"] for problem in report["problems"]] == [f"the agent: {sentence}"]
        assert report["puller"] == NEXT
        assert host.agent() == NEXT
        assert "problems" not in host.run(20), "the broken bundle is quarantined"

        # A version that starts, but whose runs do not complete.
        shutil.copy(dying, root / "root")
        host.type_in(f"dpkg -i /root/{dying.name}")
        assert host.agent() == DYING
        for _ in range(3):
            host.type_in("puller run", status=137)
        sentence = f"version {DYING} has ended none of its last 3 runs; {NEXT} is used in its place"
        assert [problem["message"] for problem in host.run(16)["problems"]] == [f"the agent: {sentence}"]
        assert host.agent() == NEXT, "the bundle has brought its package back"

        # Back to the first version.
        host.type_in("puller site back site agent --version 1.0.0")
        assert host.run()["puller"] == NEXT
        assert host.agent() == version()
        assert host.run()["puller"] == version()

        # Without the directory of its version, the run cannot do the same as the first run.
        away = f"mv /usr/lib/puller/{version()} /usr/lib/puller/away"
        manifest = f"resources:\n  - exec: [away: {{command: {away}, path: /usr/bin}}]\n{AFTER_THE_UPGRADE}"
        (root / "srv/agent/manifest.yaml").write_text(manifest.replace("package#puller", "exec#away"))
        assert "No module named 'puller.templates" in host.type_in("puller apply agent", status=6)


def assert_demo_runs(root: Path, command: str = "puller") -> None:
    """Publish, pull, verify, apply, attack, with child processes of the installed Python: the package is complete."""
    assert "refused" in run_in(root, command, "demo")


def test_the_rpm_and_the_directory_run_and_go(releases: Releases) -> None:
    """Runs in the Debian tree, which has the same Python. The rpm names its requirements as in the Red Hat family."""
    built = releases["bookworm"]
    with copied(built.tree) as root:
        assert_directory_runs(root, built)
        assert_rpm_upgrades(root, built)


def assert_directory_runs(root: Path, built: Built) -> None:
    """Run it from its own path and by a link, with foreign modules on the path."""
    run_checked("tar", "-xzf", built.package(built.first, ".tar.gz"), "-C", root / "opt")
    directory = f"/opt/puller-{version()}"
    (root / "usr/local/bin/puller").symlink_to(f"{directory}/bin/puller")
    before = listing(root / "opt")
    assert run_in(root, f"{directory}/bin/puller", "--version") == f"puller, version {version()}\n"
    assert_demo_runs(root, "/usr/local/bin/puller")
    assert listing(root / "opt") == before, "running it writes nothing into it"

    extensions = root / "usr/local/lib/puller/site-packages"
    extensions.mkdir(parents=True)
    (extensions / "more.py").touch()
    (extensions / "click.py").touch()
    ask = "import click, more; print(more.__file__, click.__file__)"
    paths = run_in(root, f"{directory}/bin/python3", "-I", "-c", ask).split()
    assert paths[0] == "/usr/local/lib/puller/site-packages/more.py"
    assert paths[1].startswith(directory), "what is locked comes first"
    (root / "usr/local/bin/puller").unlink()
    shutil.rmtree(root / "usr/local/lib/puller")


def listing(directory: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in directory.rglob("*")}


def assert_rpm_upgrades(root: Path, built: Built) -> None:
    first, following = (built.package(where, ".rpm") for where in (built.first, built.next))
    for package in (first, following):
        shutil.copy(package, root / "root")
    requested = run_in(root, "rpm", "--query", "--requires", "--package", f"/root/{first.name}")
    assert {"python3.11", "/usr/bin/sh"} <= set(requested.split())

    run_in(root, "rpm", "--install", "--nodeps", f"/root/{first.name}")
    assert_demo_runs(root)
    assert run_in(root, "rpm", "--verify", "--nodeps", "puller") == "", "running it changes nothing of it"
    owners = run_in(root, "find", "/usr/lib/puller", "/etc/puller", "-not", "-user", "root", "-print")
    assert owners == ""

    assert_rpm_of_the_fleet_works(root, built.package(built.first, ".rpm", "puller-fleet"))
    (root / "var/lib/puller").mkdir(exist_ok=True)
    (root / "var/lib/puller/kept").touch()
    run_in(root, "rpm", "--upgrade", "--nodeps", f"/root/{following.name}")
    assert run_in(root, "puller", "--version") == f"puller, version {NEXT}\n"
    assert versions(root) == f"1 {NEXT} {version()}\n"
    assert {path.name for path in (root / "usr/lib/puller").iterdir()} == {
        *("arrange", "brought", "package", "versions"),
        *(NEXT, version()),
    }
    assert not list((root / "usr/lib/puller/package/lib").rglob(f"*{version()}*/RECORD"))
    run_in(root, "rpm", "--upgrade", "--oldpackage", "--nodeps", f"/root/{first.name}")
    assert run_in(root, "puller", "--version") == f"puller, version {version()}\n"
    assert versions(root) == f"1 {version()} {NEXT}\n"

    run_in(root, "rpm", "--erase", "puller")
    assert not [path for path in (root / "usr").rglob("*puller*") if "/share/doc/" not in str(path)]
    assert not (root / "var/lib/puller-launcher").exists()
    assert (root / "var/lib/puller/kept").exists()


def assert_rpm_of_the_fleet_works(root: Path, package: Path) -> None:
    shutil.copy(package, root / "root")
    (root / "srv/reports").mkdir()
    command = "cd /srv; puller fleet import reports --store fleet.db && puller fleet page --store fleet.db --to pages"
    assert "Run: dnf install puller-fleet" in run_in(root, "sh", "-c", f"({command}) 2>&1; true")
    run_in(root, "rpm", "--install", "--nodeps", f"/root/{package.name}")
    run_in(root, "sh", "-ec", command)
    assert (root / "srv/pages/index.html").exists()
    assert run_in(root, "rpm", "--verify", "--nodeps", "puller-fleet") == "", "its byte code is complete"
    run_in(root, "rpm", "--erase", "puller-fleet")
    assert not (root / "usr/lib/puller-fleet").exists()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-fleet.lock", "requirements-s3.lock"])
@pytest.mark.parametrize("python", ["3.12", "3.14"])
def test_locked_dependencies_install_without_compiling(python: str, lock: str, tmp_path: Path) -> None:
    """The packages of Debian 12 and 13 have those for Python 3.11 and 3.13."""
    run_checked(
        sys.executable, "-m", "pip", "--quiet", "download", "--require-hashes", "--only-binary=:all:", "--no-deps",
        "--python-version", python, "--dest", tmp_path, "--requirement", ROOT / "packaging" / lock,
    )  # fmt: skip
    assert len(list(tmp_path.glob("*.whl"))) > 5
