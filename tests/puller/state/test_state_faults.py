"""Damage to every file, link and directory that a run stores.

The test finds its targets in the directories of a host, and so includes files of later versions of Puller. After each
kind of damage:

* ``puller status`` works before and after the run;
* the run follows no links, enforces the last good bundle, and ends with status 0;
* the run reports the problem, unless it loses nothing (``SILENT``);
* the next run reports no problem.

If a run cannot start (``NOT_BEGUN``), it exits with status 78, and works after a repair.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.filesystem.trees import remove_tree
from bundles.store.contents import Installed
from puller.engine.pending_refreshes import PendingRefreshes
from puller.exit_status import ExitStatus
from puller.run.policy.holds import Pins, Quarantine
from puller.run.trials import Trials
from puller.state import Directories

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher, WebServer

VICTIM = b"a file of somebody else\n"


# --- kinds of damage ------------------------------------------------------------------------------------------


def truncate(path: Path, victim: Path) -> None:
    rewrite(path, path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path, victim: Path) -> None:
    rewrite(path, b"")


def fill_with_garbage(path: Path, victim: Path) -> None:
    rewrite(path, b"\0 not what belongs here")


def rewrite(path: Path, data: bytes) -> None:
    mode = path.stat().st_mode
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(mode)


def give_away(path: Path, victim: Path) -> None:
    os.chown(path, 65534, 65534)


def close_to_all(path: Path, victim: Path) -> None:
    path.chmod(0)


def open_to_all(path: Path, victim: Path) -> None:
    path.chmod(path.stat().st_mode | 0o022)


def remove(path: Path, victim: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink()


def replace_by_link(path: Path, victim: Path) -> None:
    remove(path, victim)
    path.symlink_to(victim)


def move_behind_link(path: Path, victim: Path) -> None:
    if path.is_dir():
        path.chmod(0o755)  # otherwise an ordinary user cannot move it
    path.rename(victim.parent / "moved")
    path.symlink_to(victim.parent / "moved")


def replace_by_dangling_link(path: Path, victim: Path) -> None:
    remove(path, victim)
    path.symlink_to(victim.with_name("nowhere"))


def replace_by_loop(path: Path, victim: Path) -> None:
    remove(path, victim)
    path.symlink_to(path.name)


def replace_by_hard_link(path: Path, victim: Path) -> None:
    remove(path, victim)
    path.hardlink_to(victim)


def replace_by_directory(path: Path, victim: Path) -> None:
    remove(path, victim)
    (path / "in it").mkdir(parents=True)


def replace_by_file(path: Path, victim: Path) -> None:
    remove(path, victim)
    path.write_bytes(VICTIM)


def replace_by_fifo(path: Path, victim: Path) -> None:
    remove(path, victim)
    os.mkfifo(path)


Damage = Callable[[Path, Path], None]
DAMAGE: dict[Damage, str] = {
    truncate: "file",
    empty: "file",
    fill_with_garbage: "file",
    open_to_all: "file",
    give_away: "file directory",
    close_to_all: "file directory",
    remove: "file directory link",
    move_behind_link: "file directory",
    replace_by_link: "file link",
    replace_by_dangling_link: "file directory link",
    replace_by_loop: "link",
    replace_by_hard_link: "file",
    replace_by_file: "directory link",
    replace_by_directory: "file link",
    replace_by_fifo: "file directory link",
}
"""The kinds of objects for each damage."""

QUICK = (fill_with_garbage,)
"""Damage in plain test runs."""

NEEDS_ROOT = (give_away, close_to_all)
"""Damage that requires root, or that only affects ordinary users."""

ATTACKS: dict[Damage, str] = {
    truncate: "state.truncated",
    empty: "state.emptied",
    fill_with_garbage: "state.garbage",
    give_away: "state.owner",
    replace_by_directory: "state.directory",
    replace_by_link: "state.link",
    replace_by_dangling_link: "state.link",
    replace_by_loop: "state.link",
    replace_by_hard_link: "state.link",
}
"""The cases of attacks.yaml."""

HARMLESS = (give_away, close_to_all, open_to_all, move_behind_link, remove)
"""Damage that changes no content or removes all of it, so that a run cannot detect or need not report it."""

SILENT = {
    r"run/(status\.json|lock)": "nothing in it outlives a run",
    r"state/(last-run\.json|runs/.+)": "it tells of earlier runs, and decides nothing",
    r"state/kept(/.+)?": "what was made of texts, which are read again",
    r"state/data/.+": "a copy; the server has the document",
    r"state/trust/(indexes/web|root)\.json": "what it should be follows from what is signed",
    r"state/bundles/\.seals(/.+)?": "it saves a comparison",
    r"state/bundles/web/good": "a run that passes puts it right",
    r"state/bundles/web/OLD(/.+)?": "it is compared when it is needed",
    r"state/spool/[0-9a-f]+/.+": "it is compared when it is sent",
}
"""Paths that a run repairs silently, and the reason why nothing is lost."""

NOT_BEGUN = r"run|state|run/lock"
"""Paths that stop a run if another object replaces them. The operator must remove that object."""


# --- a host with all kinds of state ---------------------------------------------------------------------------


@pytest.fixture
def full(settled: Host, publisher: Publisher, web: WebServer) -> Host:
    """Return a host with every kind of state.

    It has two bundles, site data, a pending refresh, a pin, a quarantine, a trial, and a report in the spool.
    """
    settled.configure(data=f"{web.url}/data.yaml", reports={"to": ["http://127.0.0.1:1/reports/"]})
    publisher.publish("1.1.0")
    (web.root / "data.yaml").write_text("data: {a: 1}\n")
    directories = Directories(settled.state, Path(settled.settings["run_directory"]))
    other = Installed("other", "3.0.0", "0" * 64, settled.state)
    Quarantine.load(directories, print).add("other", "2.0.0", "1" * 64, "it failed")
    Pins.load(directories, print).set("other", "1.0.0")
    Trials(directories, print, noop=False).begin(other, {})
    outcome = settled.run()
    assert outcome.status == 0, outcome.output
    PendingRefreshes(directories.pending_refreshes, "other").record(["exec#other"])
    return settled


# --- the test -------------------------------------------------------------------------------------------------


class Hung(BaseException):
    """A timeout. Not an ``Exception``, because a run would handle that."""


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Kept:
    """A backup of a host's directory, and an unrelated file that must not change."""

    def __init__(self, host: Host, elsewhere: Path) -> None:
        self.directory = host.state.parent
        self._copy = self.directory.with_name("kept")
        self._elsewhere = elsewhere
        self.victim = elsewhere / "victim"
        shutil.copytree(self.directory, self._copy, symlinks=True)
        self._old = os.readlink(host.state / "bundles/web/previous")

    def paths(self, kinds: str) -> list[str]:
        """Return the paths of all state of these kinds, relative to the directory."""
        tops = [self._copy / "state", self._copy / "run"]
        below = [path for top in tops for path in top.rglob("*")]
        names = [str(path.relative_to(self._copy)) for path in (*tops, *below)]
        return sorted(name for name in names if kind_of(self._copy / name) in kinds)

    def restore(self) -> None:
        for directory in (self.directory, self._elsewhere):
            if directory.exists():
                remove_tree(directory)
        shutil.copytree(self._copy, self.directory, symlinks=True)
        self._elsewhere.mkdir()
        self.victim.write_bytes(VICTIM)

    def is_silent(self, name: str) -> bool:
        name = name.replace(self._old, "OLD")
        return any(re.fullmatch(pattern, name) for pattern in SILENT)


def kind_of(path: Path) -> str:
    return "link" if path.is_symlink() else "directory" if path.is_dir() else "file"


def marks(damage: Damage) -> list[pytest.MarkDecorator]:
    return [
        *([] if damage in QUICK else [pytest.mark.crash]),
        *([pytest.mark.root] if damage in NEEDS_ROOT else []),
        *([pytest.mark.attack(ATTACKS[damage])] if damage in ATTACKS else []),
    ]


@pytest.mark.parametrize(
    "damage",
    [pytest.param(each, id=each.__name__.replace("_", " "), marks=marks(each)) for each in DAMAGE],
)
def test_a_host_gets_over_damage_to_anything_that_it_keeps(
    full: Host, tmp_path: Path, damage: Damage
) -> None:
    retained = Kept(full, tmp_path / "elsewhere")
    names = retained.paths(DAMAGE[damage])
    assert len(names) > 3
    wrong = [
        f"{name}: {problem}" for name in names if (problem := problem_with(full, retained, name, damage))
    ]
    assert not wrong, "\n".join(wrong)


def problem_with(host: Host, retained: Kept, name: str, damage: Damage) -> str:
    """Return the problem after this damage, or an empty text."""
    retained.restore()
    (host.machine / "motd").unlink()
    (retained.directory / name).parent.chmod(0o755)
    damage(retained.directory / name, retained.victim)
    before = retained.victim.stat()
    try:
        with bounded(20):
            check(host, retained, name, damage)
        after = retained.victim.stat()
        assert retained.victim.read_bytes() == VICTIM
        assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (
            before.st_mode,
            before.st_uid,
            before.st_mtime_ns,
        )
    except Hung:
        return "hangs"
    except AssertionError as error:
        return str(error)
    return ""


def check(host: Host, kept: Kept, name: str, damage: Damage) -> None:
    is_directory_lost = name == "state" and damage in (replace_by_file, replace_by_fifo)
    if not is_directory_lost:
        host.status()
    outcome = host.run()
    if outcome.status == ExitStatus.CONFIGURATION and re.fullmatch(NOT_BEGUN, name):
        assert f"puller: {kept.directory / name}" in outcome.output
        assert not (host.machine / "motd").exists()
        remove(kept.directory / name, kept.victim)
    else:
        assert outcome.status == 0, outcome.output
        assert is_told(name, outcome.output) or damage in HARMLESS or kept.is_silent(name), outcome.output
        host.assert_enforces("1.1.0")
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert host.report().get("problems", []) == [], outcome.output
    host.assert_enforces("1.1.0")


def is_told(name: str, output: str) -> bool:
    """Return whether the output names the damaged file, other than in lines about resources."""
    lines = [line for line in output.splitlines() if not re.match(r"\w+ +(file|exec)#", line)]
    return any(name.rpartition("/")[2] in line for line in lines)
