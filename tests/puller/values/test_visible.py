"""Text from other sources is printed visibly and does not move the cursor."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.cli.output import print_table, say, show, warn
from puller.values.foreign_text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb", "a\nb"),
        ("a\rb", r"a\x0db"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\x9b2J\x7f\x00", r"\x9b2J\x7f\x00"),
        ("größer → ✓", "größer → ✓"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    assert not {*visible(text)} & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
    assert visible(visible(text)) == visible(text)


def test_printed_text_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    text = "a\x1b[2J\x9b2Jb"
    say(text)
    warn(text)
    print_table(("name",), [(text,)])
    show({"text": text}, "json")
    show({"text": text}, "yaml")
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert "\x9b" not in printed
    assert printed.count("2J") == 10


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "a\x1b\x7f\x9b\nö"}
    show(value, "json")
    assert json.loads(capsys.readouterr().out) == value


class Terminal(io.StringIO):
    """An output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), "a\\x1bb\n"), (io.StringIO(), "a\x1bb\n")])
def test_a_text_alone_is_as_it_is_but_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: str
) -> None:
    monkeypatch.setattr("sys.stdout", stream)
    show("a\x1bb", "yaml")
    assert stream.getvalue() == shown
