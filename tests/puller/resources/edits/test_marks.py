"""Byte order marks, and carriage returns in declared lines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Apply = Callable[..., Any]

MARK = b"\xef\xbb\xbf"
EDITS: dict[str, dict[str, Any]] = {
    "line#first": {"line": "a = 2", "match": "^a"},
    "line#top": {"line": "; top", "insert_before": "BOF"},
    "block#b": {"content": "x\n", "insert_before": "BOF"},
    "setting#a": {"format": "ini", "key": "a", "value": "2"},
    "setting#gone": {"format": "ini", "key": "a", "ensure": "absent"},
}


@pytest.mark.parametrize("name", EDITS)
def test_byte_order_mark_stays_first_and_is_no_text(apply: Apply, place: Path, name: str) -> None:
    marked, plain = place / "marked", place / "plain"
    marked.write_bytes(MARK + b"a = 1\r\n")
    plain.write_bytes(b"a = 1\r\n")
    for path in (marked, plain):
        edit = {name: {"path": str(path), **EDITS[name]}}
        assert [apply(edit)[name].state for _ in range(2)] == ["changed", "stable"]
    assert marked.read_bytes() == MARK + plain.read_bytes()


def test_byte_order_mark_belongs_to_no_section_name(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_bytes(MARK + b"[main]\r\na = 1\r\n")
    apply({"setting#a": {"path": str(path), "format": "ini", "section": "main", "key": "a", "value": "2"}})
    assert path.read_bytes() == MARK + b"[main]\r\na = 2\r\n"


@pytest.mark.parametrize("format_", ["shell", "keyvalue", "yaml", "toml", "json"])
@pytest.mark.parametrize("noop", [True, False])
def test_byte_order_mark_is_refused(apply: Apply, place: Path, format_: str, noop: bool) -> None:
    path, content = place / "file", MARK + b"A=1\n"
    path.write_bytes(content)
    setting = {"path": str(path), "format": format_, "key": "A", "value": "1"}
    (event,) = apply({"setting#a": setting}, noop=noop).values()
    assert event.state == "failed"
    assert "begins with a byte order mark" in event.errors[0]
    assert path.read_bytes() == content


@pytest.mark.parametrize("text", ["\ufeffa = 1\n", "a = 1\n"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_utf_16_is_refused(apply: Apply, place: Path, encoding: str, text: str) -> None:
    path, content = place / "file", text.encode(encoding)
    path.write_bytes(content)
    events = apply({"line#a": {"path": str(path), "line": "b"}})
    assert events["line#a"].errors == [f"{path} is text in UTF-16 or UTF-32, expected UTF-8"]
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\n", b"a\r\n# BEGIN puller b\r\nx\r\ny\r\n# END puller b\r\n"),
        (b"a\n", b"a\n# BEGIN puller b\nx\r\ny\r\n# END puller b\n"),
    ],
)
def test_carriage_returns_of_a_block_are_not_doubled(
    apply: Apply, place: Path, before: bytes, after: bytes
) -> None:
    path = place / "file"
    path.write_bytes(before)
    edit = {"block#b": {"path": str(path), "content": "x\r\ny\r\n"}}
    assert [apply(edit)["block#b"].state for _ in range(2)] == ["changed", "stable"]
    assert path.read_bytes() == after
