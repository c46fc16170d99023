"""Several edits of one file: one read, one plan, one write, and no write if they contradict each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ResourceError
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem

Apply = Callable[..., Any]


class Watched(LocalSystem):
    """This machine, with a record of each file read or written, and of each process."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.asked: list[str] = []
        self.refused = ""

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        self.reads.append(path)
        return super().read(path, looked_at)

    def replace_file(self, path: str, *rest: Any, **named: Any) -> None:
        self.writes.append(path)
        if self.refused:
            raise ResourceError(self.refused)
        super().replace_file(path, *rest, **named)

    def query(self, command: Command) -> Completed:
        self.asked.append(" ".join(command.arguments[:1]))
        return super().query(command)

    def execute(self, command: Command) -> Completed:
        self.asked.append(" ".join(command.arguments[:1]))
        return super().execute(command)


@pytest.fixture
def path(place: Path) -> Path:
    path = place / "app.conf"
    path.write_text("[main]\nlevel = 1\n# end\n")
    return path


def line(path: Path, text: str, **others: Any) -> dict[str, Any]:
    return {"path": str(path), "line": text, **others}


def setting(path: Path, key: str, value: str, **others: Any) -> dict[str, Any]:
    return {"path": str(path), "format": "ini", "section": "main", "key": key, "value": value, **others}


def block(path: Path, content: str, **others: Any) -> dict[str, Any]:
    return {"path": str(path), "content": content, **others}


def three(path: Path) -> dict[str, dict[str, Any]]:
    return {
        "line#a": line(path, "# first", insert_before="BOF"),
        "setting#b": setting(path, "level", "2"),
        "block#c": block(path, "one\ntwo\n"),
    }


AFTER = "# first\n[main]\nlevel = 2\n# end\n# BEGIN puller c\none\ntwo\n# END puller c\n"


def states(events: Any) -> list[str]:
    return [str(event.state) for event in events.values()]


def test_edits_of_three_types_are_written_together(apply: Apply, path: Path) -> None:
    system = Watched()
    events = apply(three(path), system=system)
    assert path.read_text() == AFTER
    assert system.writes == [str(path)]
    assert states(events) == ["changed"] * 3
    diff = events["line#a"].diff
    assert all(part in diff for part in ("+# first", "-level = 1", "+level = 2", "+one"))
    assert events["setting#b"].diff == events["block#c"].diff == ""


def test_matching_edits_cost_a_read_and_no_process(apply: Apply, path: Path) -> None:
    apply(three(path))
    system = Watched()
    events = apply({**three(path), **{f"line#{n}": line(path, "# end") for n in range(50)}}, system=system)
    assert set(states(events)) == {"stable"}
    assert (system.reads, system.writes, system.asked) == ([str(path)], [], [])


def test_the_diff_of_noop_is_that_of_all(apply: Apply, path: Path) -> None:
    events = apply(three(path), noop=True)
    assert states(events) == ["would change"] * 3
    assert {event.noop_message for event in events.values()} == {f"Would have changed {path}"}
    assert "+level = 2" in events["line#a"].diff
    assert events["block#c"].diff == ""
    assert path.read_text().startswith("[main]")


def test_the_order_of_the_run_is_the_order_of_the_edits(apply: Apply, path: Path) -> None:
    apply(
        {"line#a": line(path, "a"), "line#b": line(path, "b"), "line#c": line(path, "c", insert_after="^b")}
    )
    assert path.read_text().endswith("# end\na\nb\nc\n")


def test_an_edit_that_waits_has_its_own_write(apply: Apply, path: Path) -> None:
    system = Watched()
    edits = {
        "line#a": line(path, "a"),
        "exec#test -e /": {},
        "line#b": line(path, "b", require=["exec#test -e /"]),
        "line#c": line(path, "c"),
    }
    assert states(apply(edits, system=system)) == ["changed"] * 4
    assert len(system.writes) == 2
    assert path.read_text().endswith("a\nc\nb\n")


def test_a_write_that_fails_fails_all_that_changed_something(apply: Apply, path: Path) -> None:
    before, system = path.read_text(), Watched()
    system.refused = "the disk is on fire"
    events = apply({**three(path), "line#d": line(path, "# end")}, system=system)
    assert states(events) == ["failed"] * 3 + ["stable"]
    assert {tuple(event.errors) for event in events.values()} == {("the disk is on fire",), ()}
    assert path.read_text() == before
    assert states(apply(three(path))) == ["changed"] * 3
    assert path.read_text() == AFTER


# Rejected edits do not affect other edits


def test_refused_edit_does_not_block_others(apply: Apply, path: Path) -> None:
    path.write_text("a=1\na=2\n")
    events = apply({"line#bad": line(path, "a=3", match="^a="), "line#good": line(path, "b")})
    assert states(events) == ["failed", "changed"]
    assert events["line#bad"].errors == [f"{path}: lines 1 and 2 match; narrow match or set match_all"]
    assert path.read_text() == "a=1\na=2\nb\n"


@pytest.mark.parametrize("noop", [False, True])
def test_edit_blocked_by_an_earlier_edit_fails_alone(apply: Apply, path: Path, noop: bool) -> None:
    path.write_text("a=1\n")
    edits = {"line#new": line(path, "a=2"), "line#change": line(path, "a=3", match="^a=")}
    events = apply(edits, noop=noop)
    assert states(events) == ["would change" if noop else "changed", "failed"]
    assert events["line#change"].errors == [f"{path}: lines 1 and 2 match; narrow match or set match_all"]


def test_edit_enabled_by_an_earlier_edit_is_made_with_it(apply: Apply, path: Path) -> None:
    path.write_text("a=1\na=2\n")
    edits = {
        "line#gone": {"path": str(path), "ensure": "absent", "line": "a=2"},
        "line#change": line(path, "a=3", match="^a="),
    }
    assert states(apply(edits, noop=True)) == ["would change", "would change"]
    system = Watched()
    assert states(apply(edits, system=system)) == ["changed", "changed"]
    assert path.read_text() == "a=3\n"
    assert len(system.writes) == 1


def test_edit_depending_on_a_failed_edit_fails(apply: Apply, path: Path) -> None:
    path.write_text("a=1\na=2\n")
    edits = {
        "exec#false": {},
        "line#gone": {"path": str(path), "ensure": "absent", "line": "a=2", "require": ["exec#false"]},
        "line#change": line(path, "a=3", match="^a="),
        "line#other": line(path, "b"),
    }
    assert states(apply(edits)) == ["failed", "skipped", "failed", "changed"]
    assert path.read_text() == "a=1\na=2\nb\n"


def test_an_edit_that_would_differ_again_is_not_written(apply: Apply, path: Path) -> None:
    path.write_text("a\n")
    growing = line(path, r"\1!", match="^(a.*)$", back_references=True)
    for noop in (True, False, False):
        events = apply({"line#growing": growing, "line#b": line(path, "b")}, noop=noop)
        assert events["line#growing"].errors == [
            f"{path}: line 'a' → 'a!', and after the change it would differ again"
        ]
    assert path.read_text() == "a\nb\n"


@pytest.mark.attack("secrets.sensitive")
def test_unstable_sensitive_edit_is_masked(apply: Apply, path: Path) -> None:
    path.write_text("a\n")
    growing = line(path, r"canary\1", match="^(a.*|canary.*)$", back_references=True, sensitive=True)
    events = apply({"line#growing": growing})
    assert events["line#growing"].errors == [
        f"{path}: it differs, and after the change it would differ again"
    ]


# Contradictions


@pytest.mark.attack("edits.way-back")
@pytest.mark.parametrize("noop", [False, True])
@pytest.mark.parametrize("waits", [{}, {"require": ["exec#test -e /"]}])
def test_edits_that_undo_each_other_are_never_written(
    apply: Apply, path: Path, waits: dict[str, Any], noop: bool
) -> None:
    edits = {
        "exec#test -e /": {},
        "setting#s": setting(path, "key", "1"),
        "line#l": {"path": str(path), "ensure": "absent", "match": "^key", **waits},
        "line#other": line(path, "other"),
    }
    output = f"setting#s and line#l contradict each other: they undo each other in {path}"
    for _ in range(2):
        events = apply(edits, noop=noop)
        assert [events[name].errors for name in ("setting#s", "line#l")] == [[output], [output]]
    assert ("other" in path.read_text()) is not noop
    assert "key" not in path.read_text()


@pytest.mark.parametrize("order", [("setting#s", "line#l"), ("line#l", "setting#s")])
def test_mutually_undoing_edits_fail(apply: Apply, path: Path, order: tuple[str, str]) -> None:
    path.write_text("[main]\nkey = 1\n")
    both = {
        "setting#s": setting(path, "key", "1"),
        "line#l": {"path": str(path), "ensure": "absent", "match": "^key"},
    }
    events = apply({name: both[name] for name in order})
    assert states(events) == ["failed", "failed"]
    assert path.read_text() == "[main]\nkey = 1\n"


def test_three_edits_of_which_two_pairs_contradict_fail_all(apply: Apply, path: Path) -> None:
    edits = {
        "setting#s": setting(path, "key", "1"),
        "setting#t": setting(path, "key", "2", section="other"),
        "line#l": {"path": str(path), "ensure": "absent", "match": r"^key = [12]"},
    }
    events = apply(edits)
    assert states(events)[0] == states(events)[2] == "failed"
    assert "key = 1" not in path.read_text()


# Validation


def validated(path: Path, text: str, command: str, **others: Any) -> dict[str, Any]:
    return line(path, text, validate=command, **others)


def test_each_validation_command_runs_once(apply: Apply, path: Path) -> None:
    system = Watched()
    edits = {
        "line#a": validated(path, "a", "grep -q a {}"),
        "line#b": validated(path, "b", "grep -q a {}"),
        "line#c": validated(path, "c", "grep -q c {}"),
    }
    assert states(apply(edits, system=system)) == ["changed"] * 3
    assert system.asked == ["grep", "grep"]
    assert states(apply(edits, system=(again := Watched()))) == ["stable"] * 3
    assert again.asked == []


def test_a_text_that_is_not_valid_takes_no_place_and_fails_all(apply: Apply, path: Path) -> None:
    before = path.read_bytes()
    edits = {"line#a": validated(path, "a", "grep -q nothing {}"), "line#b": line(path, "b")}
    for _ in range(2):
        events = apply(edits)
        assert states(events) == ["failed", "failed"]
        assert events["line#a"].errors == events["line#b"].errors
        assert "grep -q nothing" in events["line#a"].errors[0]
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == [path.name]


def test_validated_copy_is_beside_the_link_target(apply: Apply, path: Path) -> None:
    (path.parent / "lib").mkdir()
    target = path.parent / "lib" / "real.conf"
    target.write_text("x\n")
    path.unlink()
    path.symlink_to(target)
    requested = f"sh -c 'test \"$(dirname $0)\" = {target.parent} && grep -q a $0' {{}}"
    assert states(apply({"line#a": validated(path, "a", requested)})) == ["changed"]
    events = apply({"line#b": validated(path, "b", "false {}")})
    assert f"so {target} stays as it was" in events["line#b"].errors[0]
    assert (target.read_text(), path.is_symlink()) == ("x\na\n", True)


def test_unchanged_content_edit_is_validated_with_others(apply: Apply, path: Path) -> None:
    edits = {"line#a": validated(path, "# end", "grep -qv b {}"), "line#b": line(path, "b")}
    system = Watched()
    apply(edits, system=system)
    assert system.asked == ["grep"]


def test_noop_starts_no_validation_and_states_it(apply: Apply, place: Path) -> None:
    path = place / "new"
    events = apply({"line#a": validated(path, "a", "grep -q b {}", create=True)}, noop=True)
    assert events["line#a"].noop_message == f"Would have changed {path} (not validated)"


def test_a_command_that_is_not_there_fails_in_noop_too(apply: Apply, path: Path) -> None:
    for noop in (True, False):
        events = apply({"line#a": validated(path, "a", "no-such-program {}")}, noop=noop)
        assert states(events) == ["failed"]
        assert "no-such-program" in events["line#a"].errors[0]


# Secrets


@pytest.mark.attack("secrets.sensitive")
def test_a_sensitive_edit_hides_the_diff_of_its_file_for_good(apply: Apply, path: Path) -> None:
    edits = {
        "setting#s": setting(path, "password", "canary", sensitive=True),
        "line#b": line(path, "b"),
    }
    first = apply(edits)
    second = apply({"setting#s": edits["setting#s"], "line#c": line(path, "c")})
    for events in (
        first,
        second,
        apply({**edits, "setting#s": setting(path, "password", "other", sensitive=True)}),
    ):
        output = " ".join(f"{event.diff} {event.differences} {event.errors}" for event in events.values())
        assert "canary" not in output
    assert "password = other" in path.read_text()


# Concurrent changes


@pytest.mark.attack("edits.exchange")
def test_a_file_that_is_changed_meanwhile_is_left_alone(apply: Apply, path: Path) -> None:
    class Racing(Watched):
        def replace_file(self, path: str, *remainder: Any, **named: Any) -> None:
            Path(path).write_text("theirs\n")
            super().replace_file(path, *remainder, **named)

    events = apply(three(path), system=Racing())
    assert states(events) == ["failed"] * 3
    assert path.read_text() == "theirs\n"


@pytest.mark.attack("edits.exchange")
def test_file_changed_within_a_clock_tick_stays(apply: Apply, path: Path) -> None:
    class Racing(Watched):
        def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
            data = super().read(path, looked_at)
            return data if len(self.reads) == 1 else data + b"theirs\n"

    events = apply(three(path), system=Racing())
    assert events["line#a"].errors == [f"{path}: another process changed it while Puller inspected it"]


def test_change_by_an_exec_between_edits_is_seen(apply: Apply, path: Path) -> None:
    edits = {
        "line#a": line(path, "# end"),
        f"exec#cp /dev/null {path}": {"after": ["line#a"]},
        "line#b": line(path, "# end ", after=[f"exec#cp /dev/null {path}"]),
        "line#c": line(path, "[main]", after=[f"exec#cp /dev/null {path}"]),
    }
    events = apply(edits)
    assert states(events) == ["failed", "changed", "changed", "changed"]
    assert "at the end of the run, " in events["line#a"].errors[0]
    assert path.read_text() == "# end \n[main]\n"


def test_two_paths_of_a_file_lose_nothing(apply: Apply, path: Path) -> None:
    link = path.parent / "link.conf"
    link.symlink_to("app.conf")
    edits = {
        "line#a": line(path, "a"),
        "line#b": line(link, "b"),
        "line#c": line(path, "c"),
        "line#d": line(link, "a"),
    }
    assert states(apply(edits)) == ["changed", "changed", "changed", "stable"]
    assert path.read_text().splitlines()[-3:] == ["a", "c", "b"]
    assert link.is_symlink()
    assert states(apply(edits)) == ["stable"] * 4


def test_kill_before_the_write_keeps_the_file(apply: Apply, path: Path) -> None:
    class Killed(Watched):
        def replace_file(self, path: str, *remainder: Any, **named: Any) -> None:
            raise KeyboardInterrupt

    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        apply(three(path), system=Killed())
    assert path.read_bytes() == before
    apply(three(path))
    assert path.read_text() == AFTER


# Edits with noop, and paths known only during the run


def test_noop_edit_is_reported_and_not_written(apply: Apply, path: Path) -> None:
    edits = {"line#a": line(path, "a"), "line#b": line(path, "b", noop=True), "line#c": line(path, "c")}
    assert states(apply(edits)) == ["changed", "would change", "changed"]
    assert path.read_text().endswith("a\nc\n")


def test_an_edit_with_noop_contradicts_nothing(apply: Apply, path: Path) -> None:
    edits = {
        "setting#s": setting(path, "key", "1"),
        "line#l": {"path": str(path), "ensure": "absent", "match": "^key", "noop": True},
    }
    assert states(apply(edits)) == ["changed", "would change"]


def test_an_edit_whose_path_is_known_late_has_its_own_write(apply: Apply, path: Path) -> None:
    named = path.parent / "named"
    edits = {
        "line#a": line(path, "a"),
        f"file#{named}": {"content": str(path), "owner": os.geteuid(), "group": os.getegid(), "mode": "0644"},
        "line#late": line(Path(f"{{{{ read_file('{named}') }}}}"), "late"),
        "line#b": line(path, "b"),
    }
    assert states(apply(edits)) == ["changed"] * 4
    assert path.read_text().endswith("a\nb\nlate\n")
    assert states(apply(edits)) == ["stable"] * 4


def test_a_condition_that_does_not_hold_keeps_an_edit_out(apply: Apply, path: Path) -> None:
    edits = {"line#a": line(path, "a", control={"if": "false"}), "line#b": line(path, "b")}
    assert states(apply(edits)) == ["skipped", "changed"]
    assert path.read_text().endswith("# end\nb\n")


def test_a_form_feed_is_no_line_of_the_diff(apply: Apply, path: Path) -> None:
    path.write_text("a\fb\nc\n")
    (event,) = apply({"line#x": line(path, "x\fy", match="^a")}).values()
    assert event.diff.splitlines(keepends=False)[2:] == "@@ -1,2 +1,2 @@\n-a\fb\n+x\fy\n c".splitlines(
        keepends=False
    )
