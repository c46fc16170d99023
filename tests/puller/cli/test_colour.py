"""Colour is only for terminals: one option and one set of rules for all commands."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from puller.cli.command_table import cli
from puller.values import colour
from tests.support.stories import execute_here

ROOT = Path(__file__).parents[3]
VARIABLES = ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM")
MANIFEST = """\
resources:
  - file:
      - {directory}/made: {{content: "new\\n", owner: {user}, group: {group}, mode: "0600"}}
"""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def test_every_command_has_the_option_once() -> None:
    result = dict(commands(cli))
    assert {"run", "site publish", "site root sign", "ensure file", "fleet import", "hiera lookup"} <= set(
        result
    )
    for name, command in [("", cli), *result.items()]:
        having = [parameter for parameter in command.params if "--color" in parameter.opts]
        assert len(having) == 1, name


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "pipe"),
    [
        ("auto", {}, True, False),
        ("auto", {"TERM": "xterm"}, True, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("auto", {"NO_COLOR": "1"}, False, False),
        ("auto", {"NO_COLOR": ""}, True, False),
        ("auto", {"CLICOLOR": "0"}, False, False),
        ("auto", {"CLICOLOR": "1"}, True, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, True, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, True, False),
        ("auto", {"CLICOLOR_FORCE": "1", "TERM": "dumb"}, True, True),
        ("auto", {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
        ("never", {"CLICOLOR_FORCE": "1"}, False, False),
        ("always", {"NO_COLOR": "1"}, True, True),
    ],
)
def test_the_option_decides_then_the_environment_then_the_stream(
    choice: colour.Choice,
    environment: dict[str, str],
    terminal: bool,
    pipe: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(colour, "_choice", choice)
    assert (colour.is_wanted(Terminal()), colour.is_wanted(io.StringIO())) == (terminal, pipe)


def test_lines_of_a_diff_are_coloured_and_other_lines_are_not() -> None:
    text = "- an item\nchanged\n--- a\n+++ a\n@@ -1 +1 @@\n-old\n+new\n same"
    assert colour.coloured_diff(text) == (
        "- an item\nchanged\n--- a\n+++ a\n"
        "\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-old\x1b[0m\n\x1b[32m+new\x1b[0m\n same"
    )


def said(arguments: list[str], *, terminal: bool, **environment: str) -> str:
    """Return the output of a command on both streams. Only a terminal needs a process of its own."""
    retained = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if not terminal:
        with pytest.MonkeyPatch.context() as patch:
            for name in VARIABLES:
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            return execute_here(*arguments)[1]
    command = [sys.executable, "-m", "puller", *arguments]
    where = {"env": {"TERM": "xterm"} | retained | environment, "cwd": ROOT}
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, **where) as process:  # type: ignore[call-overload]
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # the other side of the terminal was closed
            pass
        process.wait()
    os.close(ours)
    return text.decode()


@pytest.fixture
def lines(tmp_path: Path) -> dict[str, list[str]]:
    """Return command lines by the kind of their output: a change with its diff, findings, an error."""
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST.format(directory=tmp_path, user=os.geteuid(), group=os.getegid()))
    (tmp_path / "made").write_text("old\n")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/manifest.yaml").write_text("resources: [{file: [{/x: {colour: red}}]}]\n")
    state = ["--state-directory", str(tmp_path / "state")]
    return {
        "apply": ["apply", str(tmp_path), "--noop", "--diff", *state],
        "lint": ["lint", str(tmp_path / "wrong")],
        "error": ["apply", str(tmp_path / "nothing-here"), *state],
    }


@pytest.mark.parametrize("about", ["apply", "lint", "error"])
@pytest.mark.representatives(2)
def test_terminal_output_is_the_coloured_pipe_output(lines: dict[str, list[str]], about: str) -> None:
    assert "\x1b[3" in said(lines[about], terminal=True)
    plain = said(lines[about], terminal=False)
    assert plain
    assert "\x1b" not in plain


@pytest.mark.everything
def test_a_terminal_shows_no_colour_to_who_wants_none(lines: dict[str, list[str]]) -> None:
    for plain in (
        said(lines["error"], terminal=True, NO_COLOR="1"),
        said(lines["error"], terminal=True, TERM="dumb"),
        said([*lines["error"], "--color", "never"], terminal=True),
        said(["--color", "always", *lines["error"], "--color=never"], terminal=False),
    ):
        assert "nothing-here" in plain
        assert "\x1b" not in plain
    assert "\x1b[3" in said(["--color", "always", *lines["apply"]], terminal=False)


def test_machine_readable_output_is_never_coloured(lines: dict[str, list[str]], tmp_path: Path) -> None:
    always = ["--color", "always"]
    text = said([*lines["lint"], "--format", "json", *always], terminal=True)
    assert text.lstrip().startswith(("{", "["))
    assert "\x1b" not in text
    said([*(word for word in lines["apply"] if word != "--noop"), *always], terminal=True)
    assert (tmp_path / "made").read_text() == "new\n"
    retained = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert retained
    assert not [path for path in retained if b"\x1b[3" in path.read_bytes()]
