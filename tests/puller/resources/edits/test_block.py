"""The table of the block type: declared state, current state, action, and errors at load."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ManifestError

Apply = Callable[..., Any]

BEGIN, END = "# BEGIN puller edit", "# END puller edit"
TWO: dict[str, Any] = {"content": "x\ny\n"}
ABSENT: dict[str, Any] = {"ensure": "absent"}


def written(*lines: str, end: str = "\n") -> str:
    return end.join((BEGIN, *lines, END)) + end


ROWS: list[tuple[str, dict[str, Any], str, str]] = [
    ("the same lines", TWO, "a\n" + written("x", "y") + "b\n", "a\n" + written("x", "y") + "b\n"),
    ("other lines", TWO, "a\n" + written("z") + "b\n", "a\n" + written("x", "y") + "b\n"),
    ("no lines", TWO, written(), written("x", "y")),
    ("no block", TWO, "a\n", "a\n" + written("x", "y")),
    ("no block, before a line", {**TWO, "insert_before": "^a"}, "a\n", written("x", "y") + "a\n"),
    ("no block, behind the last line, without newline", TWO, "a", "a\n" + written("x", "y")),
    ("no content, a block", {"content": ""}, "a\n\n" + written("x") + "\nb\n", "a\n\n\nb\n"),
    ("no content, no block", {"content": ""}, "a\n", "a\n"),
    ("only a newline is no content", {"content": "\n"}, "a\n", "a\n"),
    ("absent, a block", ABSENT, "a\n" + written("x"), "a\n"),
    ("absent, no block", ABSENT, "a", "a"),
    ("absent, with content", {**ABSENT, **TWO}, written("z"), ""),
    ("the last marker without newline is one", TWO, written("x", "y")[:-1], written("x", "y")[:-1]),
    ("a block that ends the file without newline", TWO, written("z")[:-1], written("x", "y")[:-1]),
    ("absent, the last one without newline", ABSENT, "a\n" + written("z")[:-1], "a\n"),
    ("blank lines are kept", {"content": "\nx\n\n\n"}, "", written("", "x", "", "")),
    ("CRLF", TWO, "a\r\n", "a\r\n" + written("x", "y", end="\r\n")),
    ("CRLF, the same lines", TWO, written("x", "y", end="\r\n"), written("x", "y", end="\r\n")),
    ("CRLF, other lines", TWO, written("z", end="\r\n"), written("x", "y", end="\r\n")),
    ("a marker with a blank before is none", ABSENT, f" {BEGIN}\n", f" {BEGIN}\n"),
]


@pytest.mark.parametrize(
    ("properties", "before", "after"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_block(apply: Apply, place: Path, properties: dict[str, Any], before: str, after: str) -> None:
    path = place / "file"
    path.write_bytes(before.encode())
    edit = {"block#edit": {"path": str(path), **properties}}
    (foretold,) = apply(edit, noop=True).values()
    assert path.read_bytes() == before.encode()
    (event,) = apply(edit).values()
    assert path.read_bytes() == after.encode()
    expected = ("stable", "stable") if before == after else ("changed", "would change")
    assert (event.state, foretold.state) == expected
    (again,) = apply(edit).values()
    assert (again.state, path.read_bytes()) == ("stable", after.encode())


WANTED = ", expected one of each, in this order"
REFUSED = [
    (f"{BEGIN}\nx\n", f"'{BEGIN}' is at line 1, '{END}' is missing{WANTED}"),
    (f"x\n{END}\n", f"'{BEGIN}' is missing, '{END}' is at line 2{WANTED}"),
    (f"{END}\nx\n{BEGIN}\n", f"'{BEGIN}' is at line 3, '{END}' is at line 1{WANTED}"),
    (f"{BEGIN}\n{BEGIN}\n{END}\n", f"'{BEGIN}' is at lines 1 and 2, '{END}' is at line 3{WANTED}"),
    (f"{BEGIN}\n{END}\n{END}\n", f"'{BEGIN}' is at line 1, '{END}' is at lines 2 and 3{WANTED}"),
]


@pytest.mark.parametrize(("before", "said"), REFUSED)
@pytest.mark.parametrize("properties", [TWO, ABSENT, {"content": ""}])
@pytest.mark.parametrize("noop", [True, False])
def test_incomplete_markers_are_refused(
    apply: Apply, place: Path, properties: dict[str, Any], before: str, said: str, noop: bool
) -> None:
    path = place / "file"
    path.write_text(before)
    (event,) = apply({"block#edit": {"path": str(path), **properties}}, noop=noop).values()
    assert (event.errors, path.read_text()) == ([f"{path}: {said}"], before)


WRONG = [
    ({}, "content is missing; it is required unless ensure is absent"),
    ({**TWO, "marker": "# mine"}, "marker is '# mine', expected a line with {mark}"),
    ({**TWO, "marker": "# {mark}\n"}, "marker is .*, expected one line"),
    ({"content": f"a\n{END}\n"}, f"content has the marker '{END}' in it"),
    (
        {"content": "a\n# BEGIN mine", "marker": "# {mark} mine"},
        "content has the marker '# BEGIN mine' in it",
    ),
    ({"content": "a\0"}, "content has a NUL in it"),
    (
        {**TWO, "insert_after": "a", "insert_before": "b"},
        "insert_before cannot be given together with insert_after",
    ),
    ({**TWO, "insert_after": "("}, "insert_after is '\\(', which is not a pattern"),
]


@pytest.mark.parametrize(("properties", "said"), WRONG)
def test_invalid_properties_are_refused_at_load(
    apply: Apply, place: Path, properties: dict[str, Any], said: str
) -> None:
    with pytest.raises(ManifestError, match=f"block#edit: .*{said}"):
        apply({"block#edit": {"path": str(place / "file"), **properties}})


def test_a_name_of_several_lines_wants_a_marker(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("")
    with pytest.raises(ManifestError, match=r"name is .*, expected one line"):
        apply({"block#a\nb": {"path": str(path), **TWO}})
    apply({"block#a\nb": {"path": str(path), **TWO, "marker": "; {mark} ab"}})
    assert path.read_text() == "; BEGIN ab\nx\ny\n; END ab\n"


def test_two_blocks_with_their_names_for_markers_are_two(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("")
    edits = {f"block#{name}": {"path": str(path), "content": name} for name in ("a", "b")}
    apply(edits)
    apply({**edits, "block#a": {"path": str(path), "content": "c"}})
    assert path.read_text() == "".join(
        f"# BEGIN puller {name}\n{line}\n# END puller {name}\n" for name, line in (("a", "c"), ("b", "b"))
    )
