"""Two bundles on trial edit one file: each rollback removes only its own edits, in both orders of endings."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.run.leftovers.reversal_rules import hunks_between, with_hunks, without_change
from puller.run.leftovers.shared_edits import Texts, remove_from_other_records, texts_of
from puller.run.leftovers.trial_copies import Began, Edited, TrialCopies

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

MACHINE = "{{ facts.machine }}"
FAILS = {"exec": [{"fails": {"command": "false"}}]}
START = "# by hand\n[one]\nold = 1\n"


def setting(name: str, key: str, value: str, section: str = "one") -> dict[str, Any]:
    output = {"format": "ini", "section": section, "key": key, "value": value}
    return {"setting": [{name: {"path": f"{MACHINE}/shared.ini", **output}}]}


def line(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"line": [{name: {"path": f"{MACHINE}/shared.ini", "line": text, **more}}]}


def block(name: str, content: str) -> dict[str, Any]:
    return {"block": [{name: {"path": f"{MACHINE}/shared.ini", "content": content}}]}


def sysctl(key: str, value: str) -> dict[str, Any]:
    return {"sysctl": [{key: {"path": f"{MACHINE}/shared.ini", "value": value}}]}


def changes(output: str, word: str) -> list[str]:
    """Return the resources that a run changes, without the command that fails on purpose."""
    lines = [each.split() for each in output.splitlines() if f" {word} ensure=" in each]
    return [words[1] for words in lines if words[1] != "exec#fails"]


class Story:
    """A host with two passed bundles, and a file that later versions of both edit."""

    def __init__(self, host: Host, publisher: Publisher) -> None:
        self.host, self.publisher = host, publisher
        host.machine.mkdir()
        self.shared = host.machine / "shared.ini"
        self.shared.write_text(START)
        self.numbers = {"a": 0, "b": 0}
        host.configure(bundles=[{"name": "a"}, {"name": "b"}])
        self.publish("a")
        self.publish("b")
        self.run()

    def publish(self, name: str, *resources: dict[str, Any], removed: str = "absent") -> None:
        self.numbers[name] += 1
        own = {"content": "x", "mode": "0644", "owner": os.geteuid(), "group": os.getegid()}
        listed = [{"file": [{f"{MACHINE}/of-{name}": own}]}, *resources]
        manifest = json.dumps({"removed": removed, "resources": listed})
        self.publisher.publish(f"{self.numbers[name]}.0.0", manifest, name=name, files={})

    def run(self) -> str:
        """Compare a dry run with a run, and return the output of the run."""
        predicted = changes(self.host.run("--noop").output, "would change")
        output = self.host.run().output
        assert changes(output, "changed") == predicted, output
        return str(output)

    def end(self, name: str, ending: str, edits: list[dict[str, Any]]) -> None:
        match ending:
            case "passes":
                self.publish(name, *edits)
                self.run()
            case "is replaced":
                self.publish(name)
                self.run()
            case _:
                self.host.puller("rollback", name)
        before = self.shared.read_text()
        self.run()
        assert self.shared.read_text() == before

    def lines(self) -> list[str]:
        return sorted(self.shared.read_text().splitlines())

    def left(self) -> list[str]:
        """Return leftovers that Puller created."""
        leftovers = [
            each for bundle in self.host.status()["bundles"] for each in bundle.get("left_behind", ())
        ]
        return [each["reference"] for each in leftovers if each["made"]]


@pytest.fixture
def story(host: Host, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.setattr("puller.system.trusted_files.PROC_SYS", str(tmp_path / "proc"))
    (tmp_path / "proc/vm").mkdir(parents=True)
    for name in ("swappiness", "dirty_ratio"):
        (tmp_path / "proc/vm" / name).write_text("60\n")
    return Story(host, publisher)


EDITS = {
    "one setting": ([setting("a-k", "k", "1")], [setting("b-k", "k", "1")]),
    "one line": ([line("a-l", "# both")], [line("b-l", "# both"), line("b-m", "# b")]),
    "one block": ([block("x", "# both\n")], [block("x", "# both\n"), setting("b-k", "k", "1")]),
    "a changed value": ([setting("a-old", "old", "2")], [setting("b-old", "old", "2")]),
    "a new section": ([setting("a-k", "k", "1", "new")], [setting("b-m", "m", "1", "new")]),
    "a removed line": (
        [line("a-old", "# by hand", ensure="absent")],
        [line("b-old", "# by hand", ensure="absent")],
    ),
    "two parameters": ([sysctl("vm.swappiness", "10")], [sysctl("vm.dirty_ratio", "5")]),
    "one parameter": (
        [sysctl("vm.swappiness", "10")],
        [sysctl("vm.swappiness", "10"), setting("b-k", "k", "1")],
    ),
    "a replaced line": (
        [line("a-old", "# a", match="^# by hand")],
        [setting("b-k", "k", "1"), block("b-x", "# b\n")],
    ),
}
LINES = {
    "one setting": (["k = 1"], ["k = 1"]),
    "one line": (["# both"], ["# both", "# b"]),
    "one block": (
        ["# BEGIN puller x", "# both", "# END puller x"],
        ["# BEGIN puller x", "# both", "# END puller x", "k = 1"],
    ),
    "a changed value": (["old = 2"], ["old = 2"]),
    "a new section": (["", "[new]", "k = 1"], ["", "[new]", "m = 1"]),
    "a removed line": ([], []),
    "two parameters": (["vm.swappiness = 10"], ["vm.dirty_ratio = 5"]),
    "one parameter": (["vm.swappiness = 10"], ["vm.swappiness = 10", "k = 1"]),
    "a replaced line": (["# a"], ["k = 1", "# BEGIN puller b-x", "# b", "# END puller b-x"]),
}
REPLACED = {
    "a changed value": (["old = 1"], ["old = 1"]),
    "a removed line": (["# by hand"], ["# by hand"]),
    "a replaced line": (["# by hand"], []),
}

RECEIPTS = {
    "a changed value": "",
    "a removed line": "",
    "a replaced line": "b",
    "two parameters": "",
    "one parameter": "b",
}
"""The bundles that have added their own edits."""


def expected(kind: str, bundles: set[str]) -> list[str]:
    """Return the lines of the file with the edits of these bundles."""
    lines = START.splitlines()
    for name, added, replaced in zip("ab", LINES[kind], REPLACED.get(kind, ([], [])), strict=True):
        if name in bundles:
            lines = [each for each in lines if each not in replaced]
            lines += [each for each in added if each not in lines]
    return sorted(lines)


ENDINGS = ("passes", "is replaced", "is rolled back")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Use a sixth of the matrix: all combinations of each two of the four parameters. ``--thorough`` adds the rest."""
    if "order" in metafunc.fixturenames:
        names = ("second", "first", "order", "kind")
        positions = product(*(range(len(values)) for values in (ENDINGS, ENDINGS, "ab", EDITS)))
        cases = [
            (ENDINGS[second], ENDINGS[first], ("ab", "ba")[order], [*EDITS][kind])
            for second, first, order, kind in positions
            if metafunc.config.option.thorough
            or (second, order) == ((first + kind) % len(ENDINGS), (first + kind // len(ENDINGS)) % 2)
        ]
        metafunc.parametrize(names, cases, ids=["-".join(case) for case in cases])


@pytest.mark.everything
@pytest.mark.representatives(1)
def test_each_trial_takes_out_its_own_edits(
    story: Story, kind: str, order: str, first: str, second: str
) -> None:
    """If the first trial to start is also the first to end, both trials start in one run."""
    edits = dict(zip("ab", EDITS[kind], strict=True))
    for name in "ab":
        story.publish(name, *edits[name], FAILS)
        if order == "ba":
            story.run()
    story.run()
    assert story.lines() == expected(kind, {"a", "b"})
    counted = {"a", "b"}
    for name, ending in zip(order, (first, second), strict=True):
        counted -= set() if ending == "passes" else {name}
        story.end(name, ending, edits[name])
        assert story.lines() == expected(kind, counted), story.shared.read_text()
    assert story.left() == []
    assert not [*(story.host.state / "trials").glob("*/*")]
    assert bool([*(story.host.state / "edits").glob("*")]) is bool(
        counted.intersection(RECEIPTS.get(kind, "ab"))
    )


@pytest.mark.everything
@pytest.mark.parametrize("ending", ["is replaced", "is rolled back"])
@pytest.mark.representatives(1)
def test_of_two_values_in_a_row_the_first_comes_back(story: Story, ending: str) -> None:
    """The second trial recorded the value of the first trial, which has ended."""
    story.publish("a", setting("a-old", "old", "2"), FAILS)
    story.run()
    story.publish("a", FAILS)
    story.publish("b", setting("b-old", "old", "3"), FAILS)
    story.run()
    assert story.lines() == sorted(START.replace("old = 1", "old = 3").splitlines())
    story.end("b", ending, [])
    assert story.shared.read_text() == START


@pytest.mark.everything
def test_a_leftover_goes_with_the_trial_that_took_it(story: Story) -> None:
    """Bundle a drops a block that has to be removed. A trial of bundle b declares it with other content."""
    story.publish("a", block("x", "# of a\n"))
    story.run()
    story.publish("a")
    story.publish("b", block("x", "# of b\n"), FAILS, removed="keep")
    story.run()
    assert "# of b" in story.lines()
    assert story.left() == []
    story.end("b", "is rolled back", [])
    assert story.shared.read_text() == START
    assert story.left() == []


def test_a_leftover_stays_with_the_bundle_that_passed(story: Story) -> None:
    story.publish("a", block("x", "# of a\n"))
    story.run()
    story.publish("a")
    story.publish("b", block("x", "# of b\n"), FAILS, removed="keep")
    story.run()
    story.end("b", "passes", [block("x", "# of b\n")])
    assert "# of b" in story.lines()
    story.publish("b")
    story.run()
    assert story.shared.read_text() == START
    assert story.left() == []


def test_lines_of_a_person_stay_beside_those_of_a_trial(story: Story) -> None:
    story.publish("a", setting("a-k", "k", "1", "new"), setting("a-m", "m", "1", "new"), FAILS)
    story.run()
    story.shared.write_text(f"{story.shared.read_text()}p = 1\n")
    story.publish("b", setting("b-k", "k", "1", "new"), FAILS)
    story.run()
    story.end("a", "is rolled back", [])
    assert story.shared.read_text() == f"{START}\n[new]\nk = 1\np = 1\n"
    story.end("b", "is rolled back", [])
    assert "p = 1" in story.lines()
    assert "k = 1" not in story.lines()


@pytest.mark.everything
def test_a_file_goes_with_the_last_trial_that_edits_it(story: Story) -> None:
    """The first trial creates the file, and the next version also edits it."""
    made = story.host.machine / "made"
    added = {"path": f"{MACHINE}/made", "create": True}
    story.publish("a", {"line": [{"one": {"line": "one", **added}}]}, FAILS)
    story.run()
    made.chmod(0o600)
    story.publish("a", {"line": [{"two": {"line": "two", **added}}]}, FAILS)
    story.run()
    assert (made.read_text(), made.stat().st_mode & 0o777) == ("two\n", 0o600)
    story.end("a", "is rolled back", [])
    assert not made.exists()


@pytest.mark.everything
def test_an_empty_file_is_empty_again(story: Story) -> None:
    empty = story.host.machine / "empty"
    empty.touch()
    story.publish("a", {"line": [{"one": {"line": "one", "path": f"{MACHINE}/empty"}}]}, FAILS)
    story.run()
    story.end("a", "is rolled back", [])
    assert empty.read_text() == ""


# Rules without a host

TEXTS = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n"]), max_size=6).map(b"".join)


@given(TEXTS, TEXTS)
def test_hunks_convert_the_old_text_into_the_new(before: bytes, after: bytes) -> None:
    assert with_hunks(before, hunks_between(before, after)) == after


@given(TEXTS, TEXTS)
def test_a_change_is_taken_back_once(before: bytes, after: bytes) -> None:
    assert without_change(before, after, after) == (before, False)
    assert without_change(before, after, before) == (before, False)


@pytest.mark.parametrize(
    ("before", "changed", "now", "result"),
    [
        ("a\nb\n", "a=2\nb\nc\n", "a=3\nb\nc\n", ("a=3\nb\n", True)),
        ("a\n", "a\nx\n", "a\ny\n", ("a\ny\n", True)),
        ("a\nb\n", "a\n", "a\nc\n", ("a\nb\nc\n", False)),
    ],
)
def test_later_changes_of_a_line_stay(before: str, changed: str, now: str, result: tuple[str, bool]) -> None:
    text, has_conflict = without_change(before.encode(), changed.encode(), now.encode())
    assert (text.decode(), has_conflict) == result


def test_an_edit_leaves_the_records_of_later_edits(tmp_path: Path) -> None:
    first, second, third = b"# x\nold = 1\n", b"# x\nold = 2\n", b"# x\nold = 3\n"
    journal = TrialCopies(tmp_path / "b", print)
    journal.append(Began("2", "b"))
    for reference, before, after in (("setting#k", second, third), ("line#l", third, third + b"l\n")):
        hunks = tuple(hunks_between(before, after))
        journal.append(Edited(reference, "/f", "b", hunks, journal.copy([before]), len(before)))
    unchanged = journal.objects["line#l in /f by b"]
    remove_from_other_records({"/f": [Texts(first, second)]}, [journal])
    journal.close()
    changed, other = TrialCopies(tmp_path / "b", print).objects.values()
    assert isinstance(changed, Edited)
    assert texts_of(changed, journal) == (first, third)
    assert other == unchanged, "the lines around an edit need not be up to date"


@pytest.mark.everything
@pytest.mark.parametrize(
    ("old", "new", "line_of_new"),
    [
        (setting("a-k", "k", "1"), setting("b-k", "k", "2"), "k = 2"),
        (block("x", "# 1\n"), block("x", "# 2\n"), "# 2"),
    ],
    ids=["setting", "block"],
)
@pytest.mark.representatives(1)
def test_edit_with_another_value_replaces_a_leftover(
    story: Story, old: dict[str, Any], new: dict[str, Any], line_of_new: str
) -> None:
    story.publish("a", old)
    story.run()
    story.publish("a", setting("a-first", "first", "1"))  # one write contains all edits of the file
    story.publish("b", new)
    story.run()
    assert line_of_new in story.lines()
    story.publish("a")
    story.publish("b")
    story.run()
    assert story.lines() == sorted(START.splitlines())


@pytest.mark.everything
@pytest.mark.parametrize("is_one_write", [True, False])
@pytest.mark.representatives(1)
def test_a_pattern_takes_the_place_of_a_leftover(story: Story, is_one_write: bool) -> None:
    """The dry run can predict a removal only if a separate write removes the leftover first."""
    story.publish("a", line("a-l", "# 1"))
    story.run()
    story.publish("a", *([setting("a-first", "first", "1")] if is_one_write else []))
    story.publish("b", line("b-l", "# 2", match="^# 1"))
    story.run()
    assert [each for each in story.lines() if each in ("# 1", "# 2")] == ["# 2"]
    assert not story.left()
