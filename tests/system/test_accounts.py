"""Users and groups with the real tools, in a Debian on disk: this machine's accounts stay unchanged.

The table of cases is that of the simulated tools (``tests/puller/resources/accounts``): both must give the same
results.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.machines import Completed

pytestmark = [pytest.mark.packages, pytest.mark.root]

CASES: dict[str, list[dict[str, Any]]] = yaml.load(
    (Path(__file__).parents[1] / "cases/accounts.yaml").read_text(), yaml.CSafeLoader
)
TABLE = [
    pytest.param(kind, case, id=f"{kind}, {case['case']}") for kind, cases in CASES.items() for case in cases
]
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
DATABASES = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
VALUES = {
    "HOMES": "/home",
    "HASH": "$6$salt$" + "a" * 86,
    "OTHER": "$y$j9T$salt$" + "b" * 43,
    "KEY": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINENO5BBHYBbDqOgk1cPiqa+N259bg97G1XeVSYa0YiN a",
}


def filled(value: Any) -> Any:
    """Return a value of the table with its placeholders replaced."""
    if isinstance(value, dict):
        return {filled(name): filled(item) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, str):
        for name, text in VALUES.items():
            value = value.replace(name, text)
    return value


class Machine:
    """A Debian on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str, text: str = "", check: bool = True) -> Completed:
        done = subprocess.run(
            ["chroot", str(self.root), *command],
            env=ENVIRONMENT, cwd="/", input=text, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert not (check and done.returncode), (
            f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def bring(self, line: str) -> None:
        words = shlex.split(line)
        text = f"{words.pop()}\n" if words[0] == "chpasswd" else ""
        self.run(*words, text=text)

    def apply(self, kind: str, name: str, properties: Mapping[str, Any], *options: str) -> str:
        """Apply the one resource and return its log line or its failure."""
        manifest = yaml.safe_dump({"resources": [{kind: {"name": name, **properties}}]})
        (self.root / "root/manifest.yaml").write_text(manifest)
        done = self.run("puller", "apply", "/root/manifest.yaml", "--verbose", *options, check=False)
        return done.stdout + done.stderr

    def state(self, kind: str, name: str) -> dict[str, Any]:
        result: dict[str, Any] = yaml.safe_load(self.run("puller", "state", kind, name).stdout)
        return result

    def databases(self) -> list[bytes]:
        return [(self.root / "etc" / name).read_bytes() for name in DATABASES]

    def field(self, user: str) -> str:
        lines = (self.root / "etc/shadow").read_text().splitlines()
        return next(line.split(":")[1] for line in lines if line.startswith(f"{user}:"))


@pytest.fixture(scope="module")
def tree(
    debian_tree: Path, copied: Callable[[Path], contextlib.AbstractContextManager[Path]]
) -> Iterator[Path]:
    with copied(debian_tree) as root:
        subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
        yield root
        subprocess.run(["umount", str(root / "proc")], check=True)


@pytest.fixture
def debian(tree: Path) -> Iterator[Machine]:
    """A Debian with only its own accounts, before and after the test."""
    retained = {name: (tree / "etc" / name).read_bytes() for name in DATABASES}
    yield Machine(tree)
    for name, content in retained.items():
        (tree / "etc" / name).write_bytes(content)
    for path in (tree / "home").iterdir():
        path.unlink() if path.is_symlink() else shutil.rmtree(path)


@pytest.mark.parametrize(("kind", "case"), TABLE)
@pytest.mark.sample(12)
def test_every_state_becomes_every_other_as_the_dry_run_said(
    debian: Machine, kind: str, case: dict[str, Any]
) -> None:
    for name in case.get("users", ()):
        debian.bring(f"useradd -M -d /x -- {name}")
    for line in filled(case.get("found", [])):
        debian.bring(line)
    name, wants, before = "g" if kind == "group" else "a", filled(case["wants"]), debian.databases()
    output = debian.apply(kind, name, wants, "--noop")
    assert debian.databases() == before
    done = debian.apply(kind, name, wants)
    if "refused" in case:
        assert filled(case["refused"]) in output
        assert filled(case["refused"]) in done
        assert debian.databases() == before, "nothing is half done"
        return
    changes = bool(case.get("commands") or case.get("changes"))
    assert re.search(rf"{kind}#{name} {'would change' if changes else 'stable'}", output), output
    assert filled(case.get("noop", "")) in output
    assert re.search(rf"{kind}#{name} {'changed' if changes else 'stable'}", done), done
    check_after(debian, kind, name, filled(case))
    after = debian.databases()
    again = debian.apply(kind, name, wants)
    assert f"{kind}#{name} stable" in again, again
    assert debian.databases() == after


def check_after(debian: Machine, kind: str, name: str, case: Mapping[str, Any]) -> None:
    result = debian.state(kind, name)
    assert {key: result[key] for key in case.get("after", {})} == case.get("after", {})
    for path, uid in case.get("owner", {}).items():
        assert os.stat(f"{debian.root}{path}").st_uid == uid
    if "missing" in case:
        assert not Path(f"{debian.root}{case['missing']}").exists()
    if "there" in case:
        assert Path(f"{debian.root}{case['there']}").is_dir()
    if "field" in case:
        assert debian.field(name) == case["field"]
    if "keys" in case:
        path = debian.root / "home/a/.ssh/authorized_keys"
        assert path.read_text().splitlines() == case["keys"]
        assert path.stat().st_uid == result["uid"]


@pytest.fixture
def at_work(debian: Machine) -> Iterator[int]:
    """Id of a running process of user ``a``."""
    debian.bring("useradd -u 3001 -m -d /home/a -- a")
    command = ["chroot", "--userspec=3001:3001", str(debian.root), "/bin/sleep", "300"]
    with subprocess.Popen(command, env=ENVIRONMENT) as process:
        status = Path(f"/proc/{process.pid}/status")
        while "\nUid:\t3001" not in status.read_text() or "Name:\tsleep" not in status.read_text():
            assert process.poll() is None
        yield process.pid
        process.kill()


@pytest.mark.parametrize("change", [{"uid": 3002}, {"home": "/home/b"}, {"ensure": "absent"}])
def test_user_with_a_process_is_refused_before_the_tools(
    debian: Machine, at_work: int, change: dict[str, Any]
) -> None:
    before = debian.databases()
    for options in (["--noop"], []):
        assert f"user a is used by process {at_work} (sleep); end it first" in debian.apply(
            "user", "a", change, *options
        )
    assert debian.databases() == before
    assert "user#a changed" in debian.apply(
        "user", "a", {"shell": "/bin/bash", "groups": ["users"], "comment": "x"}
    )


def test_no_process_of_the_run_shows_the_hash(debian: Machine) -> None:
    tool = debian.root / "usr/sbin/chpasswd"
    original = tool.with_suffix(".real")
    tool.rename(original)
    try:
        tool.write_text(
            '#!/bin/sh\ntr "\\0" "\\n" < /proc/$$/cmdline > /root/seen\nexec chpasswd.real "$@"\n'
        )
        tool.chmod(0o755)
        assert "user#a changed" in debian.apply("user", "a", {"password": VALUES["HASH"]})
    finally:
        original.rename(tool)
    assert "salt" not in (debian.root / "root/seen").read_text()
    assert debian.field("a") == VALUES["HASH"]


def test_a_machine_without_the_tools_is_told_their_package(debian: Machine) -> None:
    path = debian.root / "usr/sbin/groupadd"
    path.rename(path.with_suffix(".away"))
    try:
        output = debian.apply("group", "g", {})
    finally:
        path.with_suffix(".away").rename(path)
    assert "groupadd cannot be started" in output
    assert "package passwd (Debian) or shadow-utils" in output
