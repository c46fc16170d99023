"""Previews as text and Markdown: bounded, without control sequences or markup from a bundle."""

import re
from collections.abc import Callable

import msgspec
import pytest

from foundation.differences import changed as of_property
from puller.authoring.preview import preview_formats
from puller.authoring.preview.differences import Change, Comparison, Kind
from puller.authoring.preview.groups import Group, Preview, StillFailing
from tests.support.rows import each_row

DIFF = "--- /x (now)\n+++ /x (wanted)\n@@ -1 +1 @@\n"
FORMS = [preview_formats.as_text, preview_formats.as_markdown]


def changed(name: str, *diff_lines: str, **more: object) -> Change:
    diff = DIFF + "".join(f"+{line}\n" for line in diff_lines)
    content = msgspec.structs.replace(of_property("content", "1", "2"), diff=diff)
    differences = (*more.pop("differences", ()), content)  # type: ignore[misc]
    return Change(reference=f"file#{name}", kind=Kind.CHANGED, differences=differences, **more)  # type: ignore[arg-type]


def preview(*changes: Change, **more: object) -> Preview:
    groups = (Group(Comparison(changes), ("web01",)),) if changes else ()
    return Preview(total=1, groups=groups, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_no_character_of_a_bundle_steers_a_terminal(form: Callable[[Preview], str]) -> None:
    evil = "a\x1b[31m\u202e\x9bb"
    change = changed(evil, evil, differences=(of_property("owner", evil, evil + "2"),), why=evil)
    failing = StillFailing(Change(reference=evil, kind=Kind.FAILS, why=evil), (evil,))
    shown = form(preview(change, notes=(f"{evil}\nnote",), still_failing=(failing,), unchanged=(evil,)))
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert "\nnote" not in shown.replace("\nnote: ", "")


@pytest.mark.parametrize("form", FORMS)
def test_values_unknown_until_applied_are_not_failures(form: Callable[[Preview], str]) -> None:
    late = Change(reference="file#/a", kind=Kind.LATE, why="no file b")
    output = "is not known before its turn comes"
    assert f"file#/a {output}: no file b" in form(preview(late))
    shown = form(preview(still_failing=(StillFailing(late, ("web01",)),)))
    assert f"file#/a {output}, as before: no file b" in shown


@pytest.mark.parametrize("form", FORMS)
def test_a_long_line_and_a_long_diff_say_how_much_is_left_out(form: Callable[[Preview], str]) -> None:
    shown = form(preview(changed("/x", "y" * 1000, *("line" for _ in range(300)))))
    assert "… 601 more characters" in shown
    assert re.search(r"… \d+ more lines", shown)


def test_group_too_long_for_a_comment_states_the_changes() -> None:
    lines = [f"{'x' * 80} {number}" for number in range(300)]
    shown = preview_formats.as_markdown(
        preview(*(changed(f"/etc/{number}", *lines) for number in range(100)))
    )
    assert len(shown) <= preview_formats.MARKDOWN_LIMIT
    assert all(f"`file#/etc/{number} changed`" in shown for number in range(100))
    assert "Shortened: too long for a comment." in shown


def test_a_group_of_very_many_changes_names_the_first() -> None:
    shown = preview_formats.as_markdown(
        preview(*(changed(f"/{'long' * 40}/{number}", "x") for number in range(5000)))
    )
    assert len(shown) <= preview_formats.MARKDOWN_LIMIT
    assert "* … and 4950 more changes" in shown


def test_omitted_groups_are_counted() -> None:
    groups = tuple(
        Group(Comparison(tuple(changed(f"/{'g' * 150}{n}/{m}", "x") for m in range(50))), (f"web{n}",))
        for n in range(40)
    )
    shown = preview_formats.as_markdown(Preview(total=40, groups=groups))
    assert len(shown) <= preview_formats.MARKDOWN_LIMIT
    assert re.search(r"… and \d+ more groups: too long for a comment\n$", shown)


def test_failures_and_notes_that_are_not_listed_are_counted() -> None:
    failing = tuple(
        StillFailing(Change(reference=f"file#/{number}", kind=Kind.FAILS, why="no"), ("web01",))
        for number in range(50)
    )
    shown = preview_formats.as_markdown(
        preview(still_failing=failing, notes=tuple("n" * 5000 for _ in range(500)))
    )
    assert "… and 30 more failures" in shown
    assert "… and 480 more notes" in shown
    assert len(shown) <= preview_formats.MARKDOWN_LIMIT


@each_row("evil", ["`", "``", "a`b|c", "\n\n# out", "```\n<img>", "[x](y)", "@all", "<b>"])
def test_bundle_text_stays_inside_code_spans(evil: str) -> None:
    change = changed("/x", evil, differences=(of_property("owner", evil, evil + "2"),), why=evil)
    shown = preview_formats.as_markdown(preview(change, notes=(evil,)))
    remainder = re.sub(r"(?ms)^ *(`{3,})diff\n.*?^ *\1$", "", shown)
    remainder = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", remainder)
    assert not re.search(r"[`<\[@#|](?!## )", remainder.replace("### 1 of", "")), remainder
