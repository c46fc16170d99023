"""Command lines as new users type them, with the answer to each (``tests/cases/mistyped.yaml``)."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml

from puller.cli import _status
from puller.cli.command_table import cli
from puller.cli.synonyms import _COMMANDS, _OPTIONS, unknown_option

CASES: dict[str, str] = yaml.safe_load((Path(__file__).parents[2] / "cases/mistyped.yaml").read_text())


@pytest.mark.representatives(60)
@pytest.mark.parametrize("line", CASES)
def test_a_mistyped_line_leads_to_the_right_one(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _status(line.split())[0] == 64
    answer = capsys.readouterr().err.splitlines()[0]
    assert answer.startswith("puller: ")
    assert CASES[line] in answer


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 150


def resolve(line: str) -> tuple[click.Command, list[str]]:
    """Return the command of a line, and the remaining words."""
    context = click.Context(cli, info_name="puller")
    command: click.Command = cli
    words = line.split()[1:]
    while isinstance(command, click.Group) and words:
        child = command.get_command(context, words[0])
        assert child is not None, f"{line}: no command {words[0]}"
        command, words = child, words[1:]
    return command, words


def test_each_answer_is_a_command() -> None:
    for group, table in _COMMANDS.items():
        known = resolve(group)[0]
        assert isinstance(known, click.Group)
        assert not {*table} & {*known.list_commands(click.Context(known))}, f"{group}: a synonym is a command"
        for answer in (answer for answers in table.values() for answer in answers):
            command, words = resolve(answer.replace("TYPE", "file"))
            options = {name for parameter in command.params for name in parameter.opts}
            assert {word for word in words if word.startswith("-")} <= options, answer


def test_each_option_answer_is_an_option_somewhere() -> None:
    options: set[str] = set()

    def collect(command: click.Command, context: click.Context) -> None:
        options.update(name for parameter in command.params for name in parameter.opts)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                collect(child, context)

    collect(cli, click.Context(cli))
    for answers in _OPTIONS.values():
        for answer in answers:
            assert answer.startswith("-") is False or answer.split()[0] in options, answer


def test_at_most_three_similar_names_are_listed() -> None:
    message = unknown_option("puller x", "--aaaa", [f"--aaa{letter}" for letter in "bcdefg"])
    assert message == "Unknown option `--aaaa` of `puller x`. Similar: `--aaag`, `--aaaf`, `--aaae`."
