"""Custom facts: files that are read and run, their order, and refused files with the reason."""

import os
from pathlib import Path
from typing import Any

import pytest

from puller.facts.custom import load
from puller.facts.fact_values import SIZE_LIMIT
from puller.system.trusted_files import Judged, judge


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    directory = tmp_path / "facts.d"
    directory.mkdir(mode=0o755)
    return directory


def put(directory: Path, name: str, text: str, mode: int = 0o644) -> Path:
    path = directory / name
    path.write_text(text)
    path.chmod(mode)
    return path


def script(directory: Path, name: str, body: str) -> Path:
    return put(directory, name, f"#!/bin/sh\n{body}\n", 0o755)


def facts_in(*directories: Path, limit: float = 20) -> dict[str, Any]:
    """Return the facts of directories without problems."""
    facts, problems = load([str(directory) for directory in directories], limit)
    assert [str(problem) for problem in problems] == []
    return facts


def problems_in(directory: Path, limit: float = 20) -> list[str]:
    """Return the problems of a directory without facts, with a short name for the directory."""
    facts, problems = load([str(directory)], limit)
    assert facts == {}
    return [str(problem).replace(str(directory), "facts.d") for problem in problems]


def test_files_and_executables_are_read_in_name_order(custom: Path) -> None:
    put(custom, "10.json", '{"from": "json", "json": true, "deep": {"a": 1, "list": [1]}}')
    put(custom, "20.yaml", "from: yaml\nyaml: 1.5\ndeep: {b: 2, list: [2]}\n")
    put(custom, "25.yml", "yml: ~\n")
    put(custom, "30.txt", "# a comment\n\nfrom=text\nversion = 5.10\ndeep.c=3\nempty=\nequation=a=b\n")
    script(custom, "40.sh", "echo from=executable")

    assert facts_in(custom) == {
        "from": "executable",
        "json": True,
        "yaml": 1.5,
        "yml": None,
        "version": "5.10",
        "empty": "",
        "equation": "a=b",
        "deep": {"a": 1, "b": 2, "c": "3", "list": [2]},
    }


def test_a_later_directory_wins(custom: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    later.mkdir(mode=0o755)
    put(custom, "z.yaml", "role: web\n")
    put(later, "a.yaml", "role: db\n")

    assert facts_in(custom, later) == {"role": "db"}


@pytest.mark.parametrize(
    ("output", "facts"),
    [
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("a: {b: 1}\nc: [x, y]", {"a": {"b": 1}, "c": ["x", "y"]}),
        ("a=1\n# note\nb.c=two words", {"a": "1", "b": {"c": "two words"}}),
        ("url: http://x/?a=1", {"url": "http://x/?a=1"}),
        ("", {}),
    ],
)
def test_an_executable_prints_any_of_the_forms(custom: Path, output: str, facts: dict[str, Any]) -> None:
    put(custom, ".answer", output)
    script(custom, "answer", f"cat '{custom}/.answer'")

    assert facts_in(custom) == facts


def test_executables_run_in_a_fixed_environment(custom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    script(custom, "environment", 'echo "token=$SECRET_TOKEN"; echo "directory=$(pwd)"; echo "path=$PATH"')

    facts = facts_in(custom)
    assert facts["token"] == ""
    assert facts["directory"] == "/"
    assert facts["path"].endswith("/usr/sbin:/usr/bin:/sbin:/bin")


def test_hidden_files_leftovers_and_subdirectories_are_no_facts(custom: Path) -> None:
    (custom / "lib").mkdir()
    for name in (".hidden.yaml", "a.yaml~", "b.yaml.dpkg-old", "c.rpmsave", "d.swp"):
        put(custom, name, "role: stale\n", 0o755)

    assert facts_in(custom) == {}


def test_a_directory_that_is_not_there_has_no_facts(tmp_path: Path) -> None:
    assert facts_in(tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", '{"a": 1', "facts.d/a.json:1:8: Expecting ',' delimiter"),
        ("a.json", '{"a": 1, "a": 2}', "facts.d/a.json: the key 'a' is duplicate"),
        ("a.json", '{"a": NaN}', "facts.d/a.json: NaN is not a JSON value"),
        ("a.json", '{"a": 1e999}', "facts.d/a.json: 1e999 is too large for a number"),
        (
            "a.json",
            '{"a": "\\ud800"}',
            r"facts.d/a.json: an escaped half of a surrogate pair, such as \ud800, is not valid text",
        ),
        ("a.json", '{"a":' * 101 + "1" + "}" * 101, "facts.d/a.json: is nested more than 100 deep"),
        ("a.json", "[1]", "facts.d/a.json: holds a list, expected a mapping of fact names to values"),
        ("a.json", "7", "facts.d/a.json: holds only 7, expected a mapping of fact names to values"),
        ("a.json", "", "facts.d/a.json:1:1: Expecting value"),
        ("a.yaml", "a: 1\na: 2\n", "facts.d/a.yaml:2:1: the key 'a' is duplicate, first in line 1"),
        (
            "a.yaml",
            "just text",
            "facts.d/a.yaml: holds only 'just text', expected a mapping of fact names to values",
        ),
        ("a.yaml", "\n", "facts.d/a.yaml: is empty, so remove it, or write a comment into it"),
        ("a.txt", "", "facts.d/a.txt: is empty, so remove it, or write a comment into it"),
        ("a.txt", "role web\n", "facts.d/a.txt:1: is 'role web', expected NAME=VALUE or NAME.NAME=VALUE"),
        ("a.txt", "ok=1\n.x=1\n", "facts.d/a.txt:2: is '.x=1', expected NAME=VALUE or NAME.NAME=VALUE"),
        ("a.sh", "echo a=1", "facts.d/a.sh: must be executable, or named *.json, *.yaml, *.yml or *.txt"),
    ],
)
def test_a_broken_file_is_named_with_its_place(custom: Path, name: str, text: str, problem: str) -> None:
    put(custom, name, text)

    assert problems_in(custom) == [problem]


def test_broken_files_do_not_stop_the_others(custom: Path) -> None:
    put(custom, "10-broken.json", "{")
    put(custom, "20-good.yaml", "role: web\n")
    script(custom, "30-failing", "echo 'no database' >&2; echo role=db; exit 3")

    facts, problems = load([str(custom)], 20)
    assert facts == {"role": "web"}
    assert [str(problem).replace(str(custom), "facts.d") for problem in problems] == [
        "facts.d/10-broken.json:1:2: Expecting property name enclosed in double quotes",
        "facts.d/30-failing: exit code 3: role=db\nno database",
    ]


def test_deep_nesting_and_invalid_utf8_are_refused(custom: Path) -> None:
    put(custom, "deep.json", "[" * 100_000)
    put(custom, "deep.yaml", "[\n" * 1000)
    (custom / "latin.txt").write_bytes(b"ok=1\nname=caf\xe9\n")

    deep_json, deep_yaml, latin = problems_in(custom)
    assert deep_json == "facts.d/deep.json: is nested more than 100 deep"
    assert deep_yaml == "facts.d/deep.yaml:101:1: is nested more than 100 deep"
    assert latin == "facts.d/latin.txt:2: is not UTF-8 text"


def test_a_file_and_an_output_that_never_end_are_cut_off(custom: Path) -> None:
    put(custom, "big.txt", "a=" + "x" * SIZE_LIMIT)
    script(custom, "talkative", f"head -c {SIZE_LIMIT + 9} /dev/zero | tr '\\0' x")

    assert problems_in(custom) == [
        f"facts.d/big.txt: has more than {SIZE_LIMIT} bytes",
        f"output of facts.d/talkative: has more than {SIZE_LIMIT} bytes",
    ]


def test_an_executable_that_hangs_is_killed_with_its_children(custom: Path, tmp_path: Path) -> None:
    script(custom, "slow", f"sleep 60 & echo $! > '{tmp_path}/child'; sleep 60")

    (problem,) = problems_in(custom, limit=0.5)
    assert problem.startswith("facts.d/slow: killed after ")
    assert not is_running(int((tmp_path / "child").read_text()))


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# Trusted owners of facts


def test_files_writable_by_others_are_not_read(custom: Path) -> None:
    put(custom, "open.yaml", "role: evil\n", 0o646)
    put(custom, "group.yaml", "role: evil\n", 0o664)
    script(custom, "run", "echo role=evil").chmod(0o757)

    expected = "expected it writable by its owner only"
    assert problems_in(custom) == [
        f"facts.d/group.yaml: is not read: facts.d/group.yaml has mode 0664, {expected}",
        f"facts.d/open.yaml: is not read: facts.d/open.yaml has mode 0646, {expected}",
        f"facts.d/run: is not read: facts.d/run has mode 0757, {expected}",
    ]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_directory_that_others_may_write_is_not_read_at_all(custom: Path, mode: int) -> None:
    put(custom, "role.yaml", "role: web\n")
    custom.chmod(mode)

    assert problems_in(custom) == [
        f"facts.d: is not read: facts.d has mode {mode:04o}, expected it writable by its owner only"
    ]


def test_directory_below_a_writable_directory_is_not_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    custom = shared / "facts.d"
    custom.mkdir(parents=True, mode=0o755)
    put(custom, "role.yaml", "role: evil\n")
    shared.chmod(0o777)

    (problem,) = problems_in(custom)
    assert problem == f"facts.d: is not read: {shared} has mode 0777, expected it writable by its owner only"


def test_a_sticky_directory_above_is_no_danger(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    custom = shared / "facts.d"
    custom.mkdir(parents=True, mode=0o755)
    put(custom, "role.yaml", "role: web\n")
    shared.chmod(0o1777)

    assert facts_in(custom) == {"role": "web"}


def test_link_is_followed_to_a_trusted_file_only(custom: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    put(tmp_path, "good.yaml", "role: web\n")
    put(shared, "evil.yaml", "role: evil\n")
    shared.chmod(0o777)
    (custom / "a.yaml").symlink_to(tmp_path / "good.yaml")
    (custom / "b.yaml").symlink_to(shared / "evil.yaml")
    (custom / "c.yaml").symlink_to(tmp_path / "absent")

    facts, problems = load([str(custom)], 20)
    assert facts == {"role": "web"}
    assert [str(problem) for problem in problems] == [
        f"{custom}/b.yaml: is not read: {shared} has mode 0777, expected it writable by its owner only",
        f"{custom}/c.yaml: No such file or directory",
    ]


def test_pipe_in_place_of_a_file_is_refused_at_once(custom: Path) -> None:
    os.mkfifo(custom / "pipe.yaml", 0o644)

    assert problems_in(custom) == ["facts.d/pipe.yaml: is not a regular file"]


@pytest.mark.root
def test_file_of_another_user_is_not_read_by_root(custom: Path) -> None:
    os.chown(put(custom, "role.yaml", "role: evil\n"), 65534, 65534)

    assert problems_in(custom) == [
        "facts.d/role.yaml: is not read: facts.d/role.yaml belongs to user 65534, expected root or the running user 0"
    ]


JOE = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory of an ordinary user with a script."""
    home = tmp_path / "home"
    home.mkdir()
    script(home, "joes", "echo role=joes")
    for path in (home, home / "joes"):
        os.chown(path, JOE, JOE)
    return home


def joes_link(home: Path, target: Path, name: str = "link") -> Path:
    (home / name).symlink_to(target)
    os.chown(home / name, JOE, JOE, follow_symlinks=False)
    return home / name


@pytest.mark.root
@pytest.mark.attack("facts.link")
@pytest.mark.parametrize("owner", [JOE, 0])
def test_user_controlled_link_is_never_followed(custom: Path, home: Path, tmp_path: Path, owner: int) -> None:
    """The user could change the link's target later, or has moved a link of root there."""
    good = script(tmp_path, "good", "echo role=good")
    (custom / "role").symlink_to(joes_link(home, good))
    os.chown(home / "link", owner, owner, follow_symlinks=False)

    assert problems_in(custom) == [
        f"facts.d/role: is not read: {home} belongs to user 65534, expected root or the running user 0"
    ]


@pytest.mark.root
@pytest.mark.attack("facts.link")
def test_user_link_on_the_way_to_facts_is_not_followed(custom: Path, tmp_path: Path) -> None:
    put(tmp_path, "good.yaml", "role: good\n")
    joes_link(custom, tmp_path / "good.yaml", "role.yaml")
    link = joes_link(tmp_path, custom, "facts")

    expected = "belongs to user 65534, expected root or the running user 0"
    assert problems_in(custom) == [f"facts.d/role.yaml: is not read: facts.d/role.yaml {expected}"]
    assert problems_in(link) == [f"facts.d: is not read: facts.d {expected}"]


@pytest.mark.root
@pytest.mark.attack("facts.link")
def test_in_a_sticky_directory_a_second_name_may_be_anybodys(custom: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    good = script(tmp_path, "good", "echo role=good")
    os.link(good, shared / "good")
    (custom / "role").symlink_to(shared / "good")

    detail = "has 2 names (hard links), in a directory that others may write"
    assert problems_in(custom) == [f"facts.d/role: is not read: {shared}/good {detail}"]
    good.unlink()
    assert facts_in(custom) == {"role": "good"}


@pytest.mark.root
@pytest.mark.attack("facts.swap")
def test_checked_file_is_the_file_that_runs(
    custom: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links belong to root, and their targets change right after the check."""
    for name, text in (("run", "#!/bin/sh\necho ran=$0\n"), ("read.yaml", "read: good\n")):
        put(tmp_path, name, text, 0o755)
        (custom / name).symlink_to(tmp_path / name)

    def judge_and_swap(path: str) -> Judged:
        judged = judge(path)
        if os.path.islink(path):
            os.unlink(path)
            os.symlink(home / "joes", path)
        return judged

    monkeypatch.setattr("puller.facts.custom.judge", judge_and_swap)
    assert facts_in(custom) == {"ran": f"{tmp_path}/run", "read": "good"}


@pytest.mark.parametrize("name", ["a.txt", "a.yaml"])
def test_byte_order_mark_is_no_part_of_a_name(custom: Path, name: str) -> None:
    put(custom, name, "\ufeffrole=web\nrack=b4\n" if name == "a.txt" else "\ufeffrole: web\nrack: b4\n")
    assert facts_in(custom) == {"role": "web", "rack": "b4"}
