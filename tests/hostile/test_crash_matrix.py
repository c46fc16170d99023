"""Kills and disk errors at every step of an update.

A settled host updates from 1.0.0 to 2.0.0 with files, a secret, a tree of templates, an archive, a command and a
service. Each call that changes the disk is a point of the matrix. At each point the run is killed or a call fails, on a
fresh copy of the settled host. Then the following holds:

* ``puller status`` succeeds, all state is readable, and links name complete bundles.
* Every managed file is as in 1.0.0 or as in 2.0.0. Only the owner can read a secret, even in temporary files.
* The next plain run reaches 2.0.0 with each pending refresh. No leftovers remain, and no files are set aside.
* Waiting reports are complete, and the next run sends them.
* The run after that changes nothing.

Runs try a random part of large rows. ``--thorough`` tries each point.

A second story tests the rollback. A host on 1.0.0 receives a 2.0.0 with a failing health check, and the run that rolls
back is killed at every point. Each time the next run leaves 1.0.0 enforced and 2.0.0 in quarantine. It undoes all
changes of 2.0.0: files, links, directories, a tree of templates.

A comparison with strace proves that the matrix has every call.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import pytest

from bundles.store.store import Store
from puller.delivery.report_document import unpack
from puller.exit_status import ExitStatus
from tests.simulators import archivewriter as writer
from tests.simulators import faultpoints as simulator

if TYPE_CHECKING:
    from tests.simulators.faultpoints import Call, Ended, Fault, Launcher
    from tests.support.stories import Host, Publisher, WebServer

SIMULATORS = Path(__file__).parents[1] / "simulators"

pytestmark = pytest.mark.crash

# VERSION and the words in angle brackets are replaced below.
MANIFEST = """\
data: {release: VERSION}
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "Hello from VERSION\\n"}
      - "{{ facts.machine }}/app.conf": {source: files/app.conf}
      - "{{ facts.machine }}/token": {content: "CANARY VERSION\\n", mode: "0600", sensitive: true}
      - "{{ facts.machine }}/tool": {content: "the same\\n", owner: <owner>, group: <group>, mode: <mode>}
      - "{{ facts.machine }}/all": {content: "all of VERSION\\n", owner: <owner>, group: <group>, mode: <mode>}
      - "{{ facts.machine }}/old": {<old>}
      - "{{ facts.machine }}/new.d": {<new directory>}
      - "{{ facts.machine }}/new.d/file": {<new file>}
  - scaffold:
      - "{{ facts.machine }}/pages": {source: templates, purge: true, owner: "{{ facts.uid }}", mode: "0640"}
  - archive:
      - "{{ facts.machine }}/app.tar.gz":
          url: "{{ facts.url }}/archives/app-VERSION.tar.gz"
          checksum: <checksum>
          extract_parent: "{{ facts.machine }}/app"
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
  - exec:
      - migrate:
          command: sh -c 'echo VERSION > {{ facts.machine }}/migrated-VERSION'
          creates: "{{ facts.machine }}/migrated-VERSION"
      - reload:
          command: sh -c 'cat {{ facts.machine }}/motd > {{ facts.machine }}/loaded.motd'
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/motd"]
  - service:
      - app: {ensure: running, subscribe: ["file#{{ facts.machine }}/app.conf"]}
"""
OTHER = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
WORDS: dict[str, dict[str, str]] = {
    "1.0.0": {
        "owner": '"{{ facts.uid }}"',
        "group": '"{{ facts.gid }}"',
        "mode": '"0750"',
        "old": 'content: "goes with 2.0.0\\n"',
        "new directory": "ensure: absent",
        "new file": "ensure: absent",
    },
    "2.0.0": {
        "owner": f'"{OTHER[0]}"',
        "group": f'"{OTHER[1]}"',
        "mode": '"0604"',
        "old": "ensure: absent",
        "new directory": 'ensure: directory, mode: "0700"',
        "new file": 'content: "came with 2.0.0\\n"',
    },
}
TEMPLATES = {
    "1.0.0": {"index": "page of [[ data.release ]]\n", "a/same": "same\n", "b/goes": "goes\n"},
    "2.0.0": {"index": "page of [[ data.release ]]\n", "a/same": "same\n", "c/d/comes": "comes\n"},
}
LOADED = {"loaded.motd": "motd", "units/app.service/loaded": "app.conf"}
"""Copies that the command and the service load, and their source files. A lost refresh leaves an old copy."""

SYSTEMCTL = """\
#!/bin/sh
# systemctl, as far as one service needs it; a unit is a directory, and what it has loaded is a copy of its file.
while [ "${1#--}" != "$1" ]; do shift; done
verb=$1
# It has no files to read again, and does not tell when it has read some.
case "$* " in *" -- "*) ;; *) exit 0 ;; esac
while [ "$1" != -- ]; do shift; done
unit=UNITS/${2%.service}.service
case $verb in
show)
    shift
    for name; do
        unit=UNITS/${name%.service}.service
        active=inactive sub=dead enabled=disabled
        [ -e "$unit/running" ] && active=active sub=running
        case $name in *.target) unit=multi-user.target active=active sub=active enabled=static ;; esac
        printf 'Id=%s\\nLoadState=loaded\\nActiveState=%s\\nSubState=%s\\nUnitFileState=%s\\n' \\
            "${unit##*/}" $active $sub $enabled
        printf 'NeedDaemonReload=no\\n\\n'
    done ;;
start | restart) mkdir -p "$unit" && cat MACHINE/app.conf > "$unit/loaded" && : > "$unit/running" ;;
*) echo "unknown verb $verb" >&2; exit 1 ;;
esac
"""


# --- a host that can be restored -----------------------------------------------------------------------------


class Found(NamedTuple):
    """A path of a tree. Equal if type, owner, mode and content are equal."""

    kind: int
    owner: tuple[int, int]
    mode: int
    content: bytes | str

    @classmethod
    def at(cls, path: Path) -> Found:
        status = path.lstat()
        content: bytes | str = b""
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        return cls(
            stat.S_IFMT(status.st_mode), (status.st_uid, status.st_gid), stat.S_IMODE(status.st_mode), content
        )


def tree(root: Path) -> dict[str, Found]:
    """Return all paths below ``root``."""
    paths = [Path(directory, name) for directory, *names in os.walk(root) for name in (*names[0], *names[1])]
    return {str(path.relative_to(root)): Found.at(path) for path in paths}


class Stage:
    """A host, its settled state to restore, and a launcher for its runs."""

    def __init__(self, host: Host, launcher: Launcher, programs: Path) -> None:
        self.host, self.launcher, self.programs = host, launcher, programs
        self.directory = host.state.parent
        self._settled = self.directory.with_name(f"{self.directory.name}.settled")
        self.passing = re.compile("(?!)")
        """Paths with an unpredictable state directly after a fault."""
        self.promised: set[str] = set()
        """Runs whose reports waited to be sent after a fault."""

    def keep(self) -> None:
        """Save the current state for ``restore``."""
        subprocess.run(["cp", "-a", self.directory, self._settled], check=True)
        self.before = tree(self.host.machine)

    def restore(self) -> None:
        shutil.rmtree(self.directory)
        subprocess.run(["cp", "-a", self._settled, self.directory], check=True)

    def run(self, fault: Fault | None = None) -> Ended:
        return self.launcher.run("run", "--config", str(self.host.configuration), fault=fault)

    def learn(self) -> list[Call]:
        """Update without a fault. Return the calls, and record the resulting state."""
        self.restore()
        ended = self.run()
        assert ended.status == 0, ended.output
        self.host.run()
        self.after, self.state = tree(self.host.machine), self.names_of_state()
        return ended.calls

    # Conditions at every point

    def check_now(self) -> None:
        """Check the state directly after the fault."""
        self.host.status()
        for path in (*self.host.state.rglob("*.json"), *(self.directory / "run").glob("*.json")):
            assert is_leftover(str(path.relative_to(self.directory))) or is_json(path.read_bytes()), path
        waiting = list(self.host.state.glob("spool/*/*.gz"))
        self.promised = {path.name.rpartition("-")[0] for path in waiting}
        for path in (*waiting, *self.directory.glob("sent/*/*.gz")):
            assert is_json(unpack(path.read_bytes())), path
        self._check_bundles()
        for name, found in tree(self.host.machine).items():
            assert not self._is_exposed(found), f"{name}: a secret with mode {found.mode:04o}"
            if not is_leftover(name) and not self.passing.match(name):
                self._check_old_or_new(name, found)
        for name in (self.before.keys() & self.after.keys()) - tree(self.host.machine).keys():
            assert self.passing.match(name), f"{name}: neither old nor new: it is gone"

    def check_next(self) -> None:
        """Check the state after the next run without faults."""
        ended = self.run()
        assert ended.status == 0, ended.output
        assert tree(self.host.machine) == self.after, different(tree(self.host.machine), self.after)
        for loaded, source in LOADED.items():
            assert (self.host.machine / loaded).read_bytes() == (self.host.machine / source).read_bytes(), (
                loaded
            )
        bundle = self.host.status()["bundles"][0]
        assert (bundle["enforced"], bundle["good"]) == ("2.0.0", "2.0.0")
        self.check_quiet(0)
        assert self.names_of_state() == self.state, self.names_of_state() ^ self.state
        if (self.directory / "sent").exists():
            last = json.loads((self.host.state / "last-run.json").read_bytes())["run"]
            sent = {path.name.partition(".json")[0] for path in self.directory.glob("sent/*/*.gz")}
            assert {last, *self.promised} <= sent

    def check_quiet(self, status: int) -> None:
        """Check that further runs end with ``status`` and change nothing."""
        inodes = {path: path.lstat().st_ino for path in self.host.machine.rglob("*")}
        ended = self.run()
        assert ended.status == status, ended.output
        assert re.search(" 0 changed(, 1 health OK)? in ", ended.output), ended.output
        assert {path: path.lstat().st_ino for path in self.host.machine.rglob("*")} == inodes

    def _check_bundles(self) -> None:
        store = Store(self.host.state / "bundles")
        current, good = store.current("web"), store.good("web")
        assert current
        assert good
        assert (good.version, current.version) in (("1.0.0", "1.0.0"), ("1.0.0", "2.0.0"), ("2.0.0", "2.0.0"))
        for bundle in store.installed("web"):
            assert store.verify("web", bundle.sha256) == []

    def _check_old_or_new(self, name: str, result: Found) -> None:
        old, new = self.before.get(name), self.after.get(name)
        if result in (old, new):
            return
        if name in LOADED:  # the shell of a command or service may be writing it
            return
        assert old, f"{name}: came from nowhere: {result}"
        assert new, f"{name}: is neither old nor gone: {result}"
        # Owner and mode take two calls. Between them, access is narrower than before and after.
        assert old.content == new.content, (
            f"{name}: has neither the old nor the new content, owner and mode: {result}"
        )
        assert result.owner in (old.owner, new.owner), name
        assert result == old._replace(owner=result.owner, mode=old.mode & new.mode), name

    def _is_exposed(self, result: Found) -> bool:
        return isinstance(result.content, bytes) and b"CANARY" in result.content and bool(result.mode & 0o077)

    def names_of_state(self) -> set[str]:
        """Return the names of all state files except reports and their lists, which change in each run."""
        return {name for name in tree(self.host.state) if not re.fullmatch(r"runs/.+\.json(\.gz)?", name)}


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def is_leftover(name: str) -> bool:
    """Return whether a path is unfinished, or below an unfinished directory."""
    return any(re.fullmatch(r"\..*\.(new|part|old)", part) for part in name.split("/"))


def different(actual: Mapping[str, Found], desired: Mapping[str, Found]) -> str:
    names = [name for name in sorted({*actual, *desired}) if actual.get(name) != desired.get(name)]
    return "\n".join(f"{name}: {actual.get(name)}, expected {desired.get(name)}" for name in names)


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a fast file system for a thousand copies of hosts, if available."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="puller-crash-", dir=memory) as directory:
        yield Path(directory)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    built: Path = simulator.build(tmp_path)
    return built


@pytest.fixture
def new_stages(
    tmp_path: Path, quick_disk: Path, library: Path, host: Host, publisher: Publisher, web: WebServer
) -> Iterator[list[Stage]]:
    """Yield new hosts, one for each processor that other tests leave free."""
    with contextlib.ExitStack() as launchers:
        stages = []
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        for number in range(max(1, min(os.cpu_count() or 1, 4) // workers)):
            own = tmp_path / f"launcher{number}"
            own.mkdir()
            launcher = simulator.Launcher(library, own, programs=own)
            launchers.callback(launcher.close)
            directory = quick_disk / f"host{number}"
            its_host = type(host)(directory, publisher.site.anchor, web.url, launcher.execute)
            stages.append(Stage(its_host, launcher, own))
        yield stages


@pytest.fixture
def stages(new_stages: list[Stage], publisher: Publisher, web: WebServer) -> list[Stage]:
    """Return settled hosts after the publication of 2.0.0."""
    publish(publisher, web, "1.0.0")
    for stage in new_stages:
        prepare(stage, web)
    publish(publisher, web, "2.0.0")
    return new_stages


def prepare(stage: Stage, web: WebServer) -> None:
    """Settle a host on the published version."""
    host = stage.host
    facts = {"machine": str(host.machine), "url": web.url, "uid": os.geteuid(), "gid": os.getegid()}
    (stage.directory / "facts.d" / "story.json").write_text(json.dumps(facts))
    (host.machine / "units").mkdir(parents=True)
    units, machine = str(host.machine / "units"), str(host.machine)
    systemctl = stage.programs / "systemctl"
    systemctl.write_text(SYSTEMCTL.replace("UNITS", units).replace("MACHINE", machine))
    systemctl.chmod(0o755)
    (stage.directory / "sent").mkdir()
    host.configure(reports={"to": [str(stage.directory / "sent")]})
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    stage.keep()


def publish(publisher: Publisher, web: WebServer, version: str) -> None:
    archives = {
        each: writer.gzip(writer.tar(writer.Member("bin/app", f"app {each}\n".encode()))) for each in WORDS
    }
    words = {**WORDS[version], "checksum": hashlib.sha256(archives[version]).hexdigest()}
    manifest = re.sub(r"<([a-z ]+)>", lambda match: words[match[1]], MANIFEST)
    files = {f"templates/{name}": text.encode() for name, text in TEMPLATES[version].items()}
    files["files/app.conf"] = f"workers of {version}\n".encode()
    publisher.publish(version, manifest, files=files)
    (web.root / "archives").mkdir()
    for each, archive in archives.items():
        (web.root / "archives" / f"app-{each}.tar.gz").write_bytes(archive)


# --- the matrix ---------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A kind of fault: its mode, its error, and the calls where it happens."""

    mode: str
    error: int = 0
    at: Callable[[Call], bool] = lambda call: True
    every: int = 1


MATRIX = {
    "killed before it": Row("BEFORE"),
    "killed as a command has just begun": Row("AFTER", at=lambda call: call.name == "fork"),
    "killed in the middle of a write": Row("TORN", at=lambda call: call.name == "write"),
    "the disk is full from there on": Row("FULL", errno.ENOSPC, at=lambda call: call.room),
    "the quota is used up from there on": Row("FULL", errno.EDQUOT, at=lambda call: call.room, every=5),
    "the file system is read-only from there on": Row("BROKEN", errno.EROFS, every=5),
    "it fails with an input/output error": Row("ONCE", errno.EIO, every=2),
}
FAILS = frozenset({"ONCE", "FULL", "BROKEN"})


CASES = {
    "killed before it": ("crash.write", "crash.rename", "crash.link", "crash.command"),
    "killed as a command has just begun": ("crash.command",),
    "killed in the middle of a write": ("crash.write",),
    "the disk is full from there on": ("disk.full", "disk.readable"),
    "the quota is used up from there on": ("disk.quota", "disk.readable"),
    "the file system is read-only from there on": ("disk.read-only", "disk.readable"),
    "it fails with an input/output error": ("disk.readable",),
}


@pytest.fixture
def at_most(thorough: bool) -> int | None:
    """Return the number of points per row. ``None``: all points. A point takes 0.7 seconds of processor time."""
    return None if thorough else 4


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=name, marks=pytest.mark.attack(*CASES[name])) for name, row in MATRIX.items()],
)
def test_next_run_repairs_a_failure_at_any_step(
    stages: list[Stage],
    row: Row,
    request: pytest.FixtureRequest,
    tell: Callable[[str], None],
    at_most: int | None,
) -> None:
    calls, *_ = [stage.learn() for stage in stages]
    tell(f"{request.node.callspec.id}: {sweep(stages, calls, row, Stage.check_next, at_most)}")


def sweep(
    stages: list[Stage],
    calls: list[Call],
    row: Row,
    check_next: Callable[[Stage], None],
    at_most: int | None,
) -> str:
    """Cause the fault of ``row`` at its calls, on all stages in parallel. Return the count.

    ``at_most`` limits the number of random calls. ``None``: all calls.
    """
    points = [number for number, call in enumerate(calls, start=1) if row.at(call)][:: row.every]
    if at_most and len(points) > at_most:
        points = sorted(random.sample(points, at_most))
    free: SimpleQueue[Stage] = SimpleQueue()
    for stage in stages:
        free.put(stage)

    def judge(position: int) -> str:
        stage = free.get()
        try:
            return verdict(stage, simulator.Fault(simulator.Mode[row.mode], position, row.error), check_next)
        finally:
            free.put(stage)

    with ThreadPoolExecutor(len(stages)) as threads:
        failures = [
            f"{position} of {len(calls)}, {calls[position - 1].name} {calls[position - 1].path}: {failure}"
            for position, failure in zip(points, threads.map(judge, points), strict=True)
            if failure
        ]
    assert not failures, f"{len(failures)} of {len(points)}:\n" + "\n".join(failures)
    kinds = Counter(calls[position - 1].name for position in points)
    counted = ", ".join(f"{count} {name}" for name, count in kinds.most_common())
    return f"{len(points)} points ({counted})"


def verdict(stage: Stage, fault: Fault, check_next: Callable[[Stage], None]) -> str:
    """Return the problem after this fault, or an empty text."""
    stage.restore()
    ended = stage.run(fault)
    try:
        check_ending(stage, fault, ended)
        stage.check_now()
        check_next(stage)
    except AssertionError as error:
        return f"{error}\n--- the run with the fault:\n{ended.output}"
    return ""


def check_ending(stage: Stage, fault: Fault, ended: Ended) -> None:
    """Check that a killed run is dead, and that other runs ended with a status and report each failure."""
    if fault.mode.name not in FAILS:
        assert ended.status == -signal.SIGKILL
        assert len(ended.calls) == fault.at
        return
    assert ended.status in set(ExitStatus) - {ExitStatus.BUG}, ended.output
    assert "internal error" not in ended.output
    if ended.status == 0:
        assert tree(stage.host.machine) == stage.after, "nothing was said, and something is missing"
    else:
        assert re.search("ERROR|puller: ", ended.output), ended.output


# --- the rollback -------------------------------------------------------------------------------------------

# The check of app.conf passes only while 1.0.0 is on the machine.
CHECKED = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "Hello from VERSION\\n"}
      - "{{ facts.machine }}/app.conf":
          content: "workers of VERSION\\n"
          health_checks:
            - {name: app, command: "sh -c 'grep -q 1.0.0 {{ facts.machine }}/app.conf || exit 2'"}
MORE  - exec:
      - reload:
          command: sh -c 'cat {{ facts.machine }}/motd > {{ facts.machine }}/loaded.motd'
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/motd"]
"""


# Only in 2.0.0: it replaces or removes objects of other owners, and adds new objects.
UNDONE = """\
      - "{{ facts.machine }}/new": {ensure: directory, mode: "0700"}
      - "{{ facts.machine }}/new/file": {content: "new\\n"}
      - "{{ facts.machine }}/theirs": {content: "ours\\n", mode: "0600"}
      - "{{ facts.machine }}/link": {content: "no link\\n"}
      - "{{ facts.machine }}/tree": {ensure: absent, force: true}
  - scaffold: [{"{{ facts.machine }}/deep/pages": {source: templates}}]
"""


def checked(more: str = "") -> str:
    """Return the manifest of the rollback story with additional resources."""
    return CHECKED.replace("MORE", more)


@pytest.mark.attack("crash.write", "crash.rename", "crash.link", "crash.command")
def test_killed_rollback_is_completed_by_the_next_run(
    new_stages: list[Stage], publisher: Publisher, tell: Callable[[str], None], at_most: int | None
) -> None:
    publisher.publish("1.0.0", checked(), files={})
    for stage in new_stages:
        facts = {"machine": str(stage.host.machine), "uid": os.geteuid(), "gid": os.getegid()}
        (stage.directory / "facts.d" / "story.json").write_text(json.dumps(facts))
        assert stage.host.run().status == 0
        (stage.host.machine / "theirs").write_text("by hand\n")
        (stage.host.machine / "link").symlink_to("theirs")
        (stage.host.machine / "tree").mkdir()
        (stage.host.machine / "tree/file").write_text("in a tree\n")
        stage.keep()
    templates = {f"templates/{name}": text.encode() for name, text in TEMPLATES["1.0.0"].items()}
    publisher.publish("2.0.0", "data: {release: 2}\n" + checked(UNDONE), files=templates)
    calls, *_ = [learn_the_rollback(stage) for stage in new_stages]
    tell(f"the rollback, killed before it: {sweep(new_stages, calls, Row('BEFORE'), check_back, at_most)}")


def learn_the_rollback(stage: Stage) -> list[Call]:
    """Apply 2.0.0 without a fault. Return the calls, including those of the rollback."""
    ended = stage.run()
    assert ended.status == ExitStatus.HEALTH_FAILED, ended.output
    assert tree(stage.host.machine) == stage.before
    stage.after = {
        name: found._replace(content=found.content.replace(b"1.0.0", b"2.0.0"))
        if isinstance(found.content, bytes)
        else found
        for name, found in stage.before.items()
    }
    stage.passing = UNDONE_PATHS
    return ended.calls


UNDONE_PATHS = re.compile(r"(new|theirs|link|tree|deep)(/|$)")
"""Paths that may exist or not during the trial of 2.0.0."""


def check_back(stage: Stage) -> None:
    """Check the next run: this run or the killed run rolled 2.0.0 back completely."""
    ended = stage.run()
    assert ended.status in (ExitStatus.HEALTH_FAILED, ExitStatus.HELD), ended.output
    assert tree(stage.host.machine) == stage.before, different(tree(stage.host.machine), stage.before)
    status = stage.host.status()
    assert (status["bundles"][0]["enforced"], status["bundles"][0]["good"]) == ("1.0.0", "1.0.0")
    assert [entry["version"] for entry in status["holds"]["quarantine"]] == ["2.0.0"]
    stage.check_quiet(ExitStatus.HELD)
    assert not any(name.startswith("trials/") for name in stage.names_of_state())
    assert not any("unreadable" in name or "damaged" in name for name in stage.names_of_state())


# --- the count ----------------------------------------------------------------------------------------------

CHANGES = """
    open openat openat2 creat write writev pwrite64 pwritev pwritev2 sendfile copy_file_range splice truncate ftruncate
    fallocate fsync fdatasync sync syncfs rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat
    mkdir mkdirat rmdir mknod mknodat chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat
    utime utimes futimesat utimensat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
    fork vfork clone clone3 io_uring_setup
"""
"""System calls by which a process can change a disk or start another process."""

FUNCTIONS = {"open64": "openat", "openat64": "openat", "ftruncate64": "ftruncate", "futimens": "utimensat"}
"""Functions of the C library that use a system call with another name."""


@pytest.mark.strace
def test_strace_sees_the_calls_that_are_counted_and_no_others(
    stages: list[Stage], tmp_path: Path, library: Path
) -> None:
    """Trace a separate process, as the timer starts it, from start to end of the interpreter."""
    stage = stages[0]
    stage.restore()
    search = f"commands.SEARCH_PATH = {str(stage.programs)!r} + ':' + commands.SEARCH_PATH"
    run = f"cli.main(['run', '--config', {str(stage.host.configuration)!r}])"
    counted, seen = tmp_path / "counted", tmp_path / "seen"
    preloaded = {"LD_PRELOAD": library, "FAULTPOINTS_RECORD": counted, "PYTHONDONTWRITEBYTECODE": 1}
    command: list[str | Path] = [
        *(
            "strace",
            "-f",
            "-qq",
            "-y",
            "-o",
            seen,
            "-e",
            "trace=" + ",".join(f"?{call}" for call in CHANGES.split()),
        ),
        *(word for name, value in preloaded.items() for word in ("-E", f"{name}={value}")),
        *(
            sys.executable,
            "-c",
            f"from puller import cli; from puller.system import commands; {search}; {run}",
        ),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    functions = Counter(FUNCTIONS.get(call.name, call.name) for call in simulator.read_log(counted))
    assert Counter(changes(seen.read_text(), but=counted)) == functions
    assert functions.total() > 200


def changes(log: str, but: Path) -> Iterator[str]:
    """Yield the calls of the first process in ``log`` that change the disk, except for the file ``but``."""
    ours: set[str] = set()
    for line in log.splitlines():
        process, _, call = line.partition(" ")
        ours = ours or {process}
        name, _, arguments = call.strip().partition("(")
        if process not in ours or name not in CHANGES.split() or f"{but}" in arguments:
            continue
        if name.startswith("clone") and "CLONE_THREAD" in arguments:
            ours.add(re.findall(r"\d+", arguments)[-1])
        elif name in ("fork", "vfork", "clone", "clone3"):
            yield "fork"
        elif name.startswith("open"):
            if re.search("O_CREAT|O_TRUNC|O_TMPFILE", arguments):
                yield name
        elif "write" not in name or re.match(r"([3-9]|\d\d+)</(?!dev/(null|tty|pts))", arguments):
            yield name
