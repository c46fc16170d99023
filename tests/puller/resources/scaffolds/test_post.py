"""Post commands run only for changed files, on a private copy, without a shell, and never in a dry run."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from hiera.values import Secret
from puller.errors import ResourceError
from puller.resources.scaffolds.changes import Draft, PostCommand, PostCommands, compiled
from puller.system.local import LocalSystem
from tests.support.rows import each_row


@pytest.fixture
def tool(tmp_path: Path) -> Any:
    """Return a maker of executables that record their arguments, then run a script: ``tool(script)``."""
    return Tool(tmp_path)


SORT = 'sort -o "$1" "$1"'


class Tool:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "tool"
        self.noted = directory / "noted"

    def __call__(self, script: str = "") -> str:
        self.path.write_text(
            f'#!/bin/sh\nprintf "%s|" "$@" >> {self.noted}\necho >> {self.noted}\n{script}\n'
        )
        self.path.chmod(0o755)
        return str(self.path)

    def runs(self) -> list[list[str]]:
        """Return the arguments of each run so far, with paths shortened to their names."""
        if not self.noted.exists():
            return []
        lines = self.noted.read_text().splitlines()
        return [[os.path.basename(word) for word in line.split("|")[:-1]] for line in lines]


def test_they_run_only_for_files_that_really_change(bench: Any, tool: Any) -> None:
    """The reference ran them for every file during checks, in dry runs, and three times for each change."""
    for name in ("a.conf", "b.conf", "d/c.conf", "other"):
        bench.template(name)
    bench.present("b.conf")
    post = [{"*.conf": tool()}]
    bench.predict(post=post)
    assert tool.runs() == []
    bench.apply(post=post)
    assert tool.runs() == [["a.conf"], ["c.conf"]]
    bench.present("a.conf", "drifted\n")
    (bench.target / "d/c.conf").chmod(0o600)
    bench.apply(post=post, mode="0644")
    assert tool.runs() == [["a.conf"], ["c.conf"], ["a.conf"]], "a mode alone is no reason"
    bench.apply(post=post, ensure="absent")
    assert len(tool.runs()) == 3


def test_the_path_takes_the_place_of_braces_or_comes_last(bench: Any, tool: Any) -> None:
    bench.template("a b.conf")
    program = tool()
    bench.apply(post=[{"*": f"{program} -f {{}} 'two words' x={{}}"}, {"*": f"{program} $HOME ;"}])
    first, second = tool.noted.read_text().splitlines()
    *flags, assignment = first.split("|")[:-1]
    assert flags[0] == "-f"
    assert flags[2] == "two words"
    assert flags[1].endswith("/a b.conf")
    assert assignment == f"x={flags[1]}"
    assert second == f"$HOME|;|{flags[1]}|", "there is no shell"


def test_the_mode_that_a_command_sets_stays(bench: Any) -> None:
    bench.template("run.sh", "#!/bin/sh\n")
    bench.template("app.conf")
    bench.apply(post=[{"*.sh": "chmod 0755 {}"}])
    assert (bench.target / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (bench.target / "app.conf").stat().st_mode & 0o777 == 0o644
    bench.template("run.sh", "#!/bin/sh\ntrue\n")
    bench.apply(post=[{"*.sh": "chmod u-w {}"}])
    assert (bench.target / "run.sh").stat().st_mode & 0o777 == 0o555


def test_a_mode_that_is_given_wins_over_a_command(bench: Any) -> None:
    bench.template("run.sh", "#!/bin/sh\n")
    bench.apply(mode="0600", post=[{"*.sh": "chmod 0755 {}"}])
    assert (bench.target / "run.sh").stat().st_mode & 0o777 == 0o600


def test_post_processed_file_is_recognised_without_a_run(bench: Any, tool: Any) -> None:
    bench.template("a.conf", "b\na\n")
    post = [{"*.conf": tool(SORT)}]
    bench.apply(post=post)
    assert bench.files() == {"a.conf": "a\nb\n"}
    assert bench.apply(post=post).noop == "stable"
    assert len(tool.runs()) == 1


@pytest.mark.parametrize("change", ["template", "command", "drift", "replaced"])
def test_it_is_not_known_again_when_anything_has_changed(bench: Any, tool: Any, change: str) -> None:
    bench.template("a.conf", "b\na\n")
    post = [{"*.conf": tool(SORT)}]
    bench.apply(post=post)
    if change == "template":
        bench.template("a.conf", "d\nc\n")
    elif change == "command":
        post = [{"*.conf": f"{tool.path} {{}} again"}]
    elif change == "drift":
        with (bench.target / "a.conf").open("a") as stream:
            stream.write("c\n")
    else:
        (bench.target / "a.conf").unlink()
        bench.present("a.conf", "a\nb\n")
    assert bench.apply(post=post).noop == "Would have changed 1 scaffold files"
    assert bench.files() == {"a.conf": "c\nd\n" if change == "template" else "a\nb\n"}
    assert len(tool.runs()) == 2


def test_a_command_that_fails_leaves_the_whole_target_as_it_was(bench: Any, tool: Any) -> None:
    bench.template("a.conf", "new\n")
    bench.template("b.conf", "bad\n")
    bench.present("a.conf", "old\n")
    bench.present("foreign")
    post = [{"*.conf": tool("echo checking; echo no good >&2; ! grep bad $1")}]
    scaffold = bench.scaffold(post=post, purge=True)
    actual, before = scaffold.look(), bench.files()
    with pytest.raises(ResourceError) as failed:
        scaffold.change(scaffold.differences(actual), actual)
    command = f"post command {str(tool.path)!r} on b.conf"
    assert str(failed.value) == f"{command}: exit code 1, expected 0; it printed:\nchecking\nbad\nno good"
    assert bench.files() == before
    assert tool.runs() == [["a.conf"], ["b.conf"]]
    bench.template("b.conf", "good\n")
    bench.apply(post=post, purge=True)
    assert tool.runs()[2:] == [["a.conf"], ["b.conf"]], "what did not get there is done again"


def test_unrecognisable_post_command_is_reported(
    bench: Any, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*arguments: object, **options: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    monkeypatch.setattr(os, "getxattr", unsupported)
    bench.template("a.conf", "b\na\n")
    scaffold = bench.scaffold(post=[{"*.conf": tool(SORT)}])
    actual = scaffold.look()
    with pytest.raises(
        ResourceError, match=r"cannot be noted on this file system.*: operation not supported"
    ):
        scaffold.change(scaffold.differences(actual), actual)
    assert bench.files() == {"a.conf": "a\nb\n"}
    bench.template("a.conf", "a\nb\n")
    bench.apply(post=[{"*.conf": tool(SORT)}])


@pytest.mark.parametrize("properties", [{"sensitive": True}, {"data": {"password": Secret("hunter2")}}])
def test_secret_output_of_a_post_command_is_masked(bench: Any, tool: Any, properties: dict[str, Any]) -> None:
    bench.template("a.conf", "[[ data.password ]]\n")
    bench.data = {"password": "hunter2"}
    scaffold = bench.scaffold(post=[{"*": tool('cat "$1"; false')}], **properties)
    actual = scaffold.look()
    with pytest.raises(ResourceError) as failed:
        scaffold.change(scaffold.differences(actual), actual)
    assert str(failed.value).endswith("on a.conf: exit code 1, expected 0")


@pytest.mark.parametrize("script", ['rm "$1"', 'rm "$1"; mkdir "$1"', 'ln -sf /etc/passwd "$1"'])
def test_a_command_must_leave_a_file(bench: Any, tool: Any, script: str) -> None:
    bench.template("a.conf")
    scaffold = bench.scaffold(post=[{"*": tool(script)}])
    actual = scaffold.look()
    with pytest.raises(ResourceError, match=r"a\.conf: is no longer a file after its post commands"):
        scaffold.change(scaffold.differences(actual), actual)
    assert not bench.target.exists()


def test_a_program_that_there_is_not_is_named(bench: Any) -> None:
    bench.template("a.conf")
    scaffold = bench.scaffold(post=[{"*": "no-such-program {}"}])
    actual = scaffold.look()
    with pytest.raises(ResourceError, match=r"'no-such-program \{\}' on a\.conf cannot be started"):
        scaffold.change(scaffold.differences(actual), actual)


def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    command = PostCommand("*", f"sh -c 'sleep 60 & echo $! > {tmp_path}/child; wait'")
    commands, started = PostCommands((command,), LocalSystem(), timeout=0.3), time.monotonic()
    with pytest.raises(ResourceError, match=r"killed after \d+\.\d s, its time limit, expected 0"):
        commands.finish({"a": Draft(b"", 0o600)})
    assert time.monotonic() - started < 30
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not child.exists() or child.read_text().split(") ")[1].startswith("Z")


def test_a_copy_is_private_and_gone_afterwards(
    bench: Any, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = bench.directory / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    bench.template("d/secret", "s\n")
    script = f'stat -c "%a %n" "$1" {scratch}/* > {bench.directory}/seen'
    bench.apply(mode="0600", post=[{"secret": tool(script)}])
    seen = (bench.directory / "seen").read_text().split()
    assert seen[0] == "600"
    assert seen[1].endswith("/d/secret")
    assert seen[2] == "700"
    assert list(scratch.iterdir()) == []


@each_row(
    ("pattern", "names", "others"),
    [
        ("*.conf", ["a.conf", ".conf", "a.b.conf"], ["conf", "a.conf.bak", "A.CONF"]),
        ("*", ["a", ".hidden", "new\nline"], []),
        ("?x", ["ax", ".x"], ["x", "abx"]),
        ("[a-c]1", ["a1", "c1"], ["d1", "-1", "ab1"]),
        ("[^a-c]1", ["d1", "^1"], ["a1"]),
        (r"\*", ["*"], ["a"]),
        (r"[\]]", ["]"], ["\\"]),
        ("[a^!]", ["a", "^", "!"], ["b"]),
        ("a{b,c}", ["a{b,c}"], ["ab"]),
        ("**.go", ["x.go"], ["x.g"]),
    ],
)
def test_patterns_are_those_of_go(pattern: str, names: list[str], others: list[str]) -> None:
    assert [name for name in (*names, *others) if compiled(pattern).fullmatch(name)] == names


@each_row("pattern", ["[", "[a", "[]", "[a-", "[a-]", "[z-a]", "a\\", "[\\", "[-a]", "[]-a]x"])
def test_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^(ends|has) "):
        compiled(pattern)
