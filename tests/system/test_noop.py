"""Dry runs make no system call that could change the machine, and predict the real run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

pytestmark = pytest.mark.strace

FILES = "creat mkdir mkdirat mknod mknodat link linkat symlink symlinkat rename renameat renameat2"
REMOVALS = "unlink unlinkat rmdir"
CONTENTS = "truncate ftruncate fallocate copy_file_range utime utimes futimesat utimensat ioctl"
ATTRIBUTES = "chmod fchmod fchmodat chown lchown fchown fchownat"
EXTENDED = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"
MOUNTS = "mount umount2 move_mount pivot_root swapon swapoff init_module finit_module delete_module"
MACHINE = "sethostname setdomainname settimeofday clock_settime reboot"
CHANGING = " ".join([FILES, REMOVALS, CONTENTS, ATTRIBUTES, EXTENDED, MOUNTS, MACHINE]).split()
OPENING = ["open", "openat", "openat2"]

OPENS_FOR_CHANGE = re.compile(r"\bO_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b")
CHANGES_NOTHING = re.compile(r'"/dev/(null|tty|pts/\d+)"')
CHANGING_IOCTLS = re.compile(r"\b(FS_IOC_SETFLAGS|FS_IOC_FSSETXATTR|FICLONE|FICLONERANGE|BLK\w+)\b")


def changing_calls(command: list[str], trace: Path, **environment: str) -> tuple[str, list[str]]:
    """Run ``command`` and its children under strace. Return its output and the calls that could change a file."""
    options = [
        *("-f", "-qq", "-y", "-s", "500", "-e", "signal=none"),
        *("-e", f"trace={','.join(CHANGING + OPENING)}", "-o", str(trace)),
    ]
    done = subprocess.run(
        ["strace", *options, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        # Installations have bytecode. This working tree may lack it.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )
    return done.stdout, [line for line in trace.read_text().splitlines() if is_change(line)]


def is_change(line: str) -> bool:
    call = re.match(r"\d+ +(\w+)\((.*)", line)
    if not call:
        return False  # the second half of an interrupted call, or an exit
    name, arguments = call.groups()
    if name in OPENING:
        return bool(OPENS_FOR_CHANGE.search(arguments)) and not CHANGES_NOTHING.search(arguments)
    if name == "ioctl":
        return bool(CHANGING_IOCTLS.search(arguments))
    return True


# --- the harness itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "echo x > file",
        "echo x >> old",
        "touch old",
        "mkdir directory",
        "rm old",
        "mv old new",
        "ln -s old link",
        "ln old link",
        "chmod 600 old",
        "chown --reference=. old",
        "truncate --size=0 old",
        "mkfifo fifo",
        "(sleep 0.01; echo late > file) & wait",
    ],
)
def test_a_change_is_seen(script: str, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    _, changes = changing_calls(["sh", "-c", f"cd {tmp_path} && {script}"], tmp_path / "trace")
    assert changes


def test_looking_is_no_change(tmp_path: Path) -> None:
    look = "import os, subprocess; os.listdir('/etc'); subprocess.run(['ls', '/'], stdout=subprocess.DEVNULL)"
    assert changing_calls([sys.executable, "-c", look], tmp_path / "trace")[1] == []


# --- puller apply -------------------------------------------------------------------------------------------

BUNDLE = {
    "files/copied": "copied from the bundle\n",
    "templates/conf.j2": "port = {{ data.port }}\nkernel = {{ facts.kernel }}\n",
    "manifest.yaml": """\
data: {port: 80}
resources:
  - file:
      - defaults: {owner: "UID", group: "GID", mode: "0644"}
      - DIR/right: {content: "right\\n"}
      - DIR/content: {content: "right\\n"}
      - DIR/mode: {content: "right\\n"}
      - DIR/missing: {content: "right\\n", alias: anew}
      - DIR/link: {content: "right\\n"}
      - DIR/fifo: {content: "right\\n"}
      - DIR/conf: {template: templates/conf.j2}
      - DIR/copied: {source: files/copied}
      - DIR/secret: {content: "right\\n", sensitive: true}
      - DIR/there: {ensure: exists}
      - DIR/touched: {ensure: exists}
      - DIR/new: {ensure: directory, mode: "0750"}
      - DIR/new/below: {content: "in a directory of this run\\n"}
      - DIR/kept: {ensure: directory, mode: "0755"}
      - DIR/gone: {ensure: absent}
      - DIR/not-there: {ensure: absent}
      - DIR/empty: {ensure: absent}
      - DIR/full: {ensure: absent}
      - DIR/full-forced: {ensure: absent, force: true}
      - DIR/in-the-way: {content: "right\\n"}
      - DIR/in-the-way-forced: {content: "right\\n", force: true}
      - DIR/nowhere/file: {content: "right\\n"}
      - DIR/after-a-failure: {content: "right\\n", require: [file#DIR/nowhere/file]}
      - DIR/elsewhere: {content: "right\\n", control: {if: "data.port == 81"}}
      - DIR/typo: {content: "{{ facts.nowhere }}"}
  - exec:
      - done: {command: touch DIR/done, creates: DIR/right}
      - unwanted: {command: touch DIR/unwanted, onlyif: test -e DIR/not-there}
      - wanted: {command: touch DIR/wanted, onlyif: test -e DIR/right, creates: DIR/wanted}
      - once: {command: touch DIR/once, unless: test -e DIR/once}
      - reload: {command: touch DIR/reloaded, refreshonly: true, subscribe: [file#anew]}
      - stay: {command: touch DIR/stayed, refreshonly: true, subscribe: [file#DIR/right]}
""",
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle with resources of every kind, and a directory ``machine`` for its changes."""
    machine = tmp_path / "machine"
    for name in ("kept", "empty", "full/inside", "full-forced/inside", "in-the-way", "in-the-way-forced/x"):
        (machine / name).mkdir(parents=True)
    for name in ("right", "mode", "gone", "there", "target"):
        (machine / name).write_text("right\n")
    (machine / "content").write_text("wrong\nlines\n")
    (machine / "secret").write_text("hunter2\n")
    (machine / "mode").chmod(0o600)
    (machine / "link").symlink_to("target")
    os.mkfifo(machine / "fifo")
    values = {"DIR": str(machine), "UID": str(os.geteuid()), "GID": str(os.getegid())}
    for name, text in BUNDLE.items():
        path = tmp_path / "bundle" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub("DIR|UID|GID", lambda match: values[match[0]], text))
    return tmp_path / "bundle"


def told(output: str) -> dict[str, tuple[str, str]]:
    """Return the result of each resource, real or predicted, with its errors, unmet requirements and diff."""
    entry = re.compile(
        r"[A-Z]+ +(\w+#.+) (stable|changed|refreshed|would change|failed|skipped.*) ensure=\S* (.*)"
    )
    result: dict[str, tuple[str, str]] = {}
    for reference, state, rest in _entries(output, entry):
        details = re.sub(r"runtime=\S*|provider=\S*|noop=\".*?\"|differences=\".*\"", "", rest).strip()
        result[reference] = ("would change" if state in ("changed", "refreshed") else state, details)
    return result


def _entries(output: str, entry: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    for text in re.split(r"\n(?=[A-Z])", output.rstrip()):
        first, _, additional = text.partition("\n")
        if match := entry.fullmatch(first):
            yield match[1], match[2], f"{match[3]}\n{additional}"


def test_noop_makes_no_changing_call_and_predicts(bundle: Path, puller: str, tmp_path: Path) -> None:
    apply = [puller, "apply", str(bundle), "--verbose", "--diff", f"--state-directory={tmp_path / 'state'}"]
    foretold, changes = changing_calls([*apply, "--noop"], tmp_path / "trace")
    assert changes == []
    done, _ = changing_calls(apply, tmp_path / "trace")
    assert told(foretold) == told(done)
    assert Counter(state for state, _ in told(done).values()) == {
        "would change": 18,
        "stable": 7,
        "failed": 4,
        "skipped due to unmet requirements": 1,
        "skipped (control: if data.port == 81 is false)": 1,
    }
    assert "hunter2" not in foretold + done


def test_after_the_real_run_a_dry_run_has_nothing_to_tell(bundle: Path, puller: str, tmp_path: Path) -> None:
    apply = [puller, "apply", str(bundle), "--verbose", f"--state-directory={tmp_path / 'state'}"]
    changing_calls(apply, tmp_path / "trace")
    foretold, changes = changing_calls([*apply, "--noop"], tmp_path / "trace")
    assert changes == []
    assert "would change" not in {state for state, _ in told(foretold).values()}


# --- puller run ---------------------------------------------------------------------------------------------


@pytest.mark.nginx
def test_noop_writes_below_a_temporary_directory_only(
    publisher: Publisher, host: Host, puller: str, tmp_path: Path
) -> None:
    publisher.publish("1.0.0")
    host.run()
    publisher.publish("1.1.0")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = [puller, "run", "--noop", "--config", str(host.configuration)]
    output, changes = changing_calls(run, tmp_path / "trace", TMPDIR=str(scratch))
    assert "would change" in output
    assert changes
    assert [call for call in changes if str(scratch) not in call] == []
    assert list(scratch.iterdir()) == []
