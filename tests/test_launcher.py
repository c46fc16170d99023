"""The launcher of the packages: it starts the newest version that works, or reports a fallback to the previous one.

Tests run the scripts of ``packaging/launcher`` with versions that are scripts, too. Only root writes records. Here the
shim of ``id`` decides which user counts as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECONDS = 1
PROVES = 'echo "$0" >>"$(dirname "$0")/../../../tried"'
"""A self-test that appends a line to a file."""
CRASHES = 'echo "Traceback" >&2; echo "ImportError: no module" >&2; exit 1'
HANGS = 'echo "$0" >>"$(dirname "$0")/../../../tried"; exec sleep 60'
COMMAND = 'echo "$VERSION $* ${PULLER_FELL_BACK-}"; [ -z "${PULLER_BEGUN-}" ] || rm "$PULLER_BEGUN"'
"""A command that prints its version, and removes the note of a run as a completed run does."""
DIES = 'echo "$VERSION $* ${PULLER_FELL_BACK-}"; kill -9 $$'


class Place:
    """Libraries and records below a directory, and the functions that run the scripts there."""

    def __init__(self, root: Path, script: object) -> None:
        self.root = root
        self.libraries, self.records = root / "lib", root / "records"
        self.command, self.arrange_script = root / "puller", root / "arrange"
        self.shims = root / "shims"
        for directory in (self.libraries, self.shims):
            directory.mkdir()
        places = {
            "LIBRARIES": str(self.libraries), "RECORDS": str(self.records), "COMMAND": str(self.command),
            "SECONDS": str(SECONDS), "RUNS": "3",
        }  # fmt: skip
        assert callable(script)
        for path, name in ((self.command, "puller"), (self.arrange_script, "arrange")):
            self.write(path, script(ROOT, name, **places))
        self.python = root / "python"
        self.write(self.python, "#!/bin/sh\n")
        self.be_root(True)

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # dpkg, too, makes a new file
        path.write_text(text)
        path.chmod(0o755)

    def be_root(self, is_root: bool) -> None:
        self.write(self.shims / "id", f"#!/bin/sh\necho {0 if is_root else 1000}\n")

    def bring(self, version: str, self_test: str = PROVES, command: str = COMMAND) -> None:
        """Unpack the files of a version, as a package manager does before it runs the arrange script."""
        package = self.libraries / "package"
        shutil.rmtree(package, ignore_errors=True)
        self.write(package / "bin/puller", f"#!/bin/sh\nVERSION={version}\n{command}\n")
        self.write(package / "bin/self-test", f"#!/bin/sh\n{self_test}\n")
        self.write(package / "lib/module.py", f"VERSION = {version!r}\n")
        (package / "bin/python3").symlink_to(self.python)
        (self.libraries / "brought").write_text(f"1 {version}\n")

    def arrange(self, version: str, path: str = "") -> subprocess.CompletedProcess[str]:
        return self.execute(str(self.arrange_script), version, path=path)

    def install(self, version: str, self_test: str = PROVES, command: str = COMMAND) -> str:
        """Install a version and return standard error."""
        self.bring(version, self_test, command)
        done = self.arrange(version)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def execute(self, *command: str, path: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{path or self.shims}:{self.shims}:/usr/bin:/bin"}
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.execute(str(self.command), *arguments)

    def tried(self) -> int:
        """Return the number of self-tests that were run."""
        path = self.root / "tried"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def after_another_boot(self, version: str) -> None:
        """Change the record of a version as if the machine had been booted since."""
        record = self.records / version
        times = record.stat()
        this = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        record.write_text(record.read_text().replace(this, "0-0"))
        os.utime(record, ns=(times.st_atime_ns, times.st_mtime_ns))

    def versions(self) -> str:
        return (self.libraries / "versions").read_text()

    def directories(self) -> set[str]:
        return {path.name for path in self.libraries.iterdir() if path.is_dir()} - {"package"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.syspath_prepend(ROOT / "packaging")
    from steps.launcher import script

    return Place(tmp_path, script)


def test_proven_version_starts_without_another_process(place: Place) -> None:
    place.install("1.0")
    assert place.tried() == 1, "it proves itself when it is installed"
    for name in ("timeout", "id", "mktemp", "cat", "sed"):  # other external programs would be found here
        place.write(place.shims / name, "#!/bin/sh\necho started >&2\nexit 1\n")
    done = place.start("run", "--noop", "two words")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1.0 run --noop two words \n", "")
    assert place.tried() == 1


def test_previous_version_is_kept_and_older_removed(place: Place) -> None:
    for version in ("1.0", "1.1", "1.2"):
        assert place.install(version) == ""
    assert place.directories() == {"1.1", "1.2"}
    assert place.versions() == "1 1.2 1.1\n"
    assert place.start().stdout.startswith("1.2 ")
    assert {path.name for path in place.records.iterdir()} == {"1.1", "1.2"}


def test_arranging_again_changes_nothing(place: Place) -> None:
    place.install("1.0")
    place.install("1.1")
    before = {
        path: path.lstat().st_mtime_ns for path in place.libraries.rglob("*") if path.name != "versions"
    }
    assert place.arrange("1.1").returncode == 0
    after = {path: path.lstat().st_mtime_ns for path in place.libraries.rglob("*") if path.name != "versions"}
    assert after == before
    assert place.versions() == "1 1.1 1.0\n"


def test_crashing_version_falls_back_with_a_message(place: Place) -> None:
    place.install("1.0")
    sentence = "version 1.1 does not start: ImportError: no module; 1.0 is used in its place"
    assert sentence in place.install("1.1", CRASHES)
    done = place.start("run")
    assert done.returncode == 0
    assert done.stdout == f"1.0 run {sentence}\n", "the run is told, for its report"
    assert done.stderr == f"puller: {sentence}\n"


def test_a_crash_is_tried_again_by_the_next_start(place: Place) -> None:
    place.install("1.0")
    broken = place.root / "broken"
    broken.touch()
    place.install("1.1", f"[ ! -e {broken} ] || exit 3")
    assert "its self-test ended with status 3" in place.start().stderr
    broken.unlink()
    assert (place.start().stdout, place.start().stderr) == ("1.1  \n", "")


def test_a_version_that_hangs_is_waited_for_once_in_a_boot(place: Place) -> None:
    place.install("1.0")
    began = time.monotonic()
    assert f"1.1 is not ready after {SECONDS} s; 1.0 is used" in place.install("1.1", HANGS)
    assert time.monotonic() - began < 40  # the self-test hangs for 60 seconds
    tried = place.tried()
    assert f"1.1 is not ready after {SECONDS} s; 1.0 is used" in place.start().stderr
    assert place.tried() == tried

    place.after_another_boot("1.1")
    place.start()
    assert place.tried() == tried + 1, "another boot"


NO_END = "version 1.1 has ended none of its last 3 runs; 1.0 is used in its place"


def test_hanging_version_falls_back_until_the_next_boot(place: Place) -> None:
    """The version starts, but its runs are killed or end with a bug."""
    place.install("1.0")
    place.install("1.1", command=DIES)
    for _ in range(3):
        assert place.start("run", "--offline").stdout == "1.1 run --offline \n"
    for _ in range(5):
        done = place.start("run")
        assert (done.returncode, done.stdout) == (0, f"1.0 run {NO_END}\n"), "the run is told, for its report"
        assert done.stderr == f"puller: {NO_END}\n"
    assert place.start("status").stdout == f"1.0 status {NO_END}\n", "every command is of the same version"
    assert place.tried() == 2, "it proves itself when it is installed, and is not tried again"
    assert {path.name for path in place.records.iterdir()} == {"1.0", "1.1"}

    place.after_another_boot("1.1")
    assert place.start("status").stdout == "1.1 status \n"
    for _ in range(3):
        assert place.start("run").stdout == "1.1 run \n"
    assert place.start("run").stdout == f"1.0 run {NO_END}\n"
    assert place.install("1.2") == ""
    assert place.versions() == "1 1.2 1.0\n"
    assert place.start("run").stdout == "1.2 run \n"


def test_a_run_that_ends_starts_the_count_anew(place: Place) -> None:
    place.install("1.0")
    place.install("1.1", command=f'[ "${{2-}}" = well ] || {{ {DIES}; }}; {COMMAND}')
    for _ in range(3):
        for how in ("badly", "badly", "well"):
            assert place.start("run", how).stdout == f"1.1 run {how} \n"
    for _ in range(5):
        for words in (("status",), ("check", "--run"), ("run", "-v", "--noop"), ("run", "--dry-run")):
            place.start(*words)
    assert place.start("run", "well").stdout == "1.1 run well \n", "only a run that changes something counts"


@pytest.mark.representatives(3)
@pytest.mark.parametrize("text", ["", "1", "1 x\n", "2 9\n", "1 -4\n", "1 99\n", "\0\n", "1 3 9\n"])
def test_invalid_count_is_reset(place: Place, text: str) -> None:
    place.install("1.0")
    place.install("1.1")
    (place.records / "1.1.begun").write_text(text)
    done = place.start("run")
    assert (done.stdout, done.stderr) == ("1.1 run \n", "")
    assert not (place.records / "1.1.begun").exists()


def test_hanging_version_continues_without_alternatives(place: Place) -> None:
    place.install("1.0", command=DIES)
    for _ in range(12):
        assert place.start("run").stdout == "1.0 run \n", "there is no other"
    place.install("1.1", command=DIES)
    place.write(place.libraries / "1.0/bin/self-test", f"#!/bin/sh\n{CRASHES}\n")
    (place.records / "1.0").unlink()
    for _ in range(12):
        done = place.start("run")
        assert (done.stdout, done.stderr) == ("1.1 run \n", ""), "the other does not start"


def test_a_version_that_is_installed_again_has_begun_no_runs(place: Place) -> None:
    place.install("1.0")
    place.install("1.1", command=DIES)
    for _ in range(3):
        place.start("run")
    place.install("1.0")
    place.install("1.1", command=DIES)
    assert place.start("run").stdout == "1.1 run \n"


def test_long_output_of_a_failed_version_is_a_line(place: Place) -> None:
    place.install("1.0")
    loud = "i=0; while [ $i -lt 3000 ]; do echo 'the same again and again and again' >&2; i=$((i+1)); done"
    output = place.install("1.1", f"{loud}; printf 'red \\033[31m end' >&2; exit 1")
    assert "\033" not in output
    assert len(output) < 1000
    assert "1.0 is used in its place" in output


@pytest.mark.parametrize("missing", ["bin/puller", "bin/self-test", "bin/python3", ""])
def test_a_version_that_is_not_whole_gives_way(place: Place, missing: str) -> None:
    place.install("1.0")
    place.install("1.1")
    gone = place.libraries / "1.1" / missing
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    done = place.start()
    assert done.stdout.startswith("1.0 ")
    assert "version 1.1" in done.stderr


def test_a_version_that_was_brought_and_not_arranged_is_told(place: Place) -> None:
    place.install("1.0")
    place.bring("1.1")
    sentence = (
        "version 1.1 is not in its place, as its installation was not finished; 1.0 is used in its place"
    )
    done = place.start("run")
    assert (done.stdout, done.stderr) == (f"1.0 run {sentence}\n", f"puller: {sentence}\n")
    assert place.arrange("1.1").stderr == ""
    assert (place.start().stdout, place.start().stderr) == ("1.1  \n", "")


def test_unexecutable_command_falls_back(place: Place) -> None:
    place.install("1.0")
    place.install("1.1")
    os.chmod(place.libraries / "1.1/bin/puller", 0o644)
    assert place.start().stdout.startswith("1.0 ")


def test_another_python_is_a_reason_to_try_again(place: Place) -> None:
    """The clock does not matter: any other modification time counts."""
    place.install("1.0")
    for seconds in (2_000_000_000, 1_000_000_000):
        tried = place.tried()
        os.utime(place.python, (seconds, seconds))
        for _ in range(3):
            assert (place.start().returncode, place.start().stderr) == (0, "")
        assert place.tried() == tried + 1


def test_who_is_not_root_tries_and_leaves_no_record(place: Place) -> None:
    place.install("1.0")
    place.install("1.1", CRASHES)
    shutil.rmtree(place.records)
    place.be_root(False)
    done = place.start()
    assert done.stdout.startswith("1.0 ")
    assert "version 1.1 does not start: its self-test ended with status 1" in done.stderr
    assert not place.records.exists()
    assert place.start("run").stdout.startswith("1.0 ")
    assert not place.records.exists(), "nor is its run counted"


def test_records_that_cannot_be_written_stop_nothing(place: Place) -> None:
    place.install("1.0")
    shutil.rmtree(place.records)
    place.records.write_text("in the way")
    assert (place.start("a").stdout, place.start("a").stderr) == ("1.0 a \n", "")


@pytest.mark.representatives(3)
@pytest.mark.parametrize("text", ["", "1", "2 proven\n", "1 proven", "9 hung\n", "\0\n", "1 hung\n"])
def test_damaged_and_later_records_are_no_records(place: Place, text: str) -> None:
    place.install("1.0")
    record, times = place.records / "1.0", place.python.stat()
    record.write_text(text)
    os.utime(record, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):
        assert (place.start().stdout, place.start().stderr) == ("1.0  \n", "")


@pytest.mark.parametrize("text", [None, "", "2 1.0 0.9\n", "1.0\n", "1\n", "1 ../../tmp -\n", "1 - -\n"])
def test_without_a_list_of_versions_nothing_is_guessed(place: Place, text: str | None) -> None:
    place.install("1.0")
    (place.libraries / "versions").unlink()
    if text is not None:
        (place.libraries / "versions").write_text(text)
    done = place.start()
    assert done.returncode == 126
    assert done.stderr.startswith("puller: ")
    assert "install" in done.stderr
    assert done.stdout == ""


def test_where_no_version_starts_each_is_named(place: Place) -> None:
    place.install("1.0")
    place.install("1.1", CRASHES)
    place.write(place.python, "#!/bin/sh\nexit 0\n")
    os.utime(place.python, (1, 1))
    place.write(place.libraries / "1.0/bin/self-test", f"#!/bin/sh\n{CRASHES}\n")
    done = place.start()
    assert done.returncode == 126
    assert "version 1.1 does not start" in done.stderr
    assert "version 1.0 does not start" in done.stderr


def test_fallback_leaves_the_broken_version_behind(place: Place) -> None:
    place.install("1.0")
    place.install("1.1", CRASHES)
    assert place.install("1.0") == ""
    assert place.versions() == "1 1.0 -\n"
    assert place.directories() == {"1.0"}
    assert place.start().stderr == ""


def test_broken_version_never_replaces_a_good_one(place: Place) -> None:
    place.install("1.0")
    place.install("1.1", CRASHES)
    place.install("1.2", CRASHES)
    assert place.versions() == "1 1.2 1.0\n"
    assert place.start().stdout.startswith("1.0 ")
    assert place.install("1.3") == ""
    assert place.versions() == "1 1.3 1.0\n"


def test_changed_files_of_a_version_get_their_own_directory(place: Place) -> None:
    place.install("1.0")
    place.bring("1.0", CRASHES)
    assert "version 1.0+2 does not start" in place.arrange("1.0").stderr
    assert place.versions() == "1 1.0+2 1.0\n"
    place.install("1.0")
    assert place.versions() == "1 1.0 -\n"


def test_failed_version_is_replaced_when_reinstalled(place: Place) -> None:
    """The old bytecode or links may have caused the failure."""
    place.install("1.0")
    place.install("1.1")
    place.write(place.libraries / "1.1/bin/self-test", f"#!/bin/sh\n{CRASHES}\n")
    os.utime(place.python, (1, 1))
    assert place.start().stdout.startswith("1.0 ")
    assert place.install("1.1") == ""
    assert place.start().stdout.startswith("1.1 ")
    assert place.versions() == "1 1.1+2 1.0\n"


def test_a_version_that_something_runs_with_is_kept(place: Place) -> None:
    place.install("1.0")
    program = place.libraries / "1.0/bin/python3"
    with subprocess.Popen(["sleep", "60"], executable="/bin/sleep") as other:
        with subprocess.Popen([str(program), "60"], executable="/bin/sleep") as process:
            for version in ("1.1", "1.2", "1.3"):
                place.install(version)
            assert place.directories() == {"1.0", "1.2", "1.3"}
            process.kill()
        other.kill()
    place.install("1.4")
    assert place.directories() == {"1.3", "1.4"}


_COMMANDS = (
    "rm",
    "cp",
    "mv",
    "sync",
    "diff",
    "timeout",
    "touch",
    "chmod",
    "mkdir",
    "mktemp",
    "grep",
    "tail",
    "cat",
)


@pytest.mark.everything
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("self_test", [PROVES, CRASHES])
@pytest.mark.representatives(1)
def test_killed_installation_starts_and_is_completed(place: Place, moment: str, self_test: str) -> None:
    killers = place.root / "killers"
    count = place.root / "count"
    for name in _COMMANDS:
        kill = '[ "$n" != "$(/bin/cat "$0.at" 2>/dev/null)" ] || kill -9 $PPID'
        steps = [
            f"n=$(( $(/bin/cat {count}) + 1 )); echo $n >{count}",
            f'/usr/bin/env PATH=/usr/bin:/bin {name} "$@"; s=$?',
        ]
        lines = [steps[0], kill, steps[1]] if moment == "before" else [steps[0], steps[1], kill]
        text = "\n".join(["#!/bin/sh", *lines, "exit $s"]).replace('"$0.at"', f"{place.root}/at")
        place.write(killers / name, text + "\n")

    place.install("1.0")
    place.install("1.1")
    step = 0
    while True:
        step += 1
        place.bring(f"2.{step}", self_test)
        count.write_text("0\n")
        (place.root / "at").write_text(f"{step}\n")
        killed = place.arrange(f"2.{step}", path=str(killers)).returncode != 0
        done = place.start()
        assert done.returncode == 0, f"step {step}: {done.stderr}"
        ended = place.arrange(f"2.{step}")
        assert ended.returncode == 0
        good = self_test == PROVES
        assert place.start().stdout.startswith(f"2.{step} " if good else "1.1 "), f"step {step}"
        assert len(place.directories()) == 2
        assert not [path.name for path in place.libraries.iterdir() if path.name.startswith(".")]
        assert not list(place.records.glob(".*"))
        if not killed and int(count.read_text()) < step:
            break
    assert step > 8
