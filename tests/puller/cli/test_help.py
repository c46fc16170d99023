"""``puller --help``, ``puller help`` and ``puller version``."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from foundation.problem_pages import load_entries
from puller.cli import _status
from puller.cli.command_table import LazyGroup, cli

HEADINGS = ["Options", "Host", "Hold", "Author", "Publisher", "Fleet", "Shell", "Setup"]


def groups(command: click.Command, context: click.Context) -> Iterator[tuple[click.Group, click.Context]]:
    """Yield a group and all groups below it, with their contexts."""
    if isinstance(command, click.Group):
        yield command, context
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from groups(child, click.Context(child, info_name=name, parent=context))


def test_commands_are_grouped_by_their_users() -> None:
    text = cli.get_help(click.Context(cli, info_name="puller", terminal_width=80))
    assert [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "] == HEADINGS


def test_each_summary_fits_its_line() -> None:
    for group, context in groups(cli, click.Context(cli, info_name="puller")):
        formatter = click.HelpFormatter(width=80)
        group.format_commands(context, formatter)
        lines = [line for line in formatter.getvalue().splitlines() if line.startswith("  ")]
        names = [line.split()[0] for line in lines]
        assert names == group.list_commands(context), f"{context.command_path}: a summary has two lines"
        cut = [line for line in lines if line.endswith("...")]
        assert not cut, f"{context.command_path}: a summary is cut"


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("", "Usage: puller [OPTIONS] COMMAND"),
        ("run", "Usage: puller run [OPTIONS]"),
        ("site publish", "Usage: puller site publish [OPTIONS]"),
        ("ensure file", "Usage: puller ensure file [OPTIONS] NAME"),
        ("unknown-property", f"unknown-property: {load_entries()['unknown-property'].meaning}"),  # type: ignore[index]
    ],
)
def test_help_explains_commands_and_codes(words: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _status(["help", *words.split()])[0] == 0
    assert capsys.readouterr().out.startswith(start)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("unknown-propert", "unknown command or code 'unknown-propert' (did you mean 'unknown-property'?)"),
        ("pull", "unknown command or code 'pull' (did you mean 'puller run'?)"),
        ("site publsh", "unknown command `puller site publsh` (did you mean 'puller site publish' or"),
        ("run now", "unknown command `puller run now`"),
    ],
)
def test_help_on_an_unknown_topic_suggests(
    words: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status(["help", *words.split()])[0] == 64
    assert answer in capsys.readouterr().err


def test_version_is_that_of_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for arguments in (["version"], ["--version"]):
        assert _status(arguments)[0] == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_summaries_of_tables_are_those_of_the_commands() -> None:
    for group, context in groups(cli, click.Context(cli, info_name="puller")):
        if isinstance(group, LazyGroup):
            for name, summary in group.summaries.items():
                command = group.get_command(context, name)
                assert command is not None
                assert command.get_short_help_str(200) == summary, f"{context.command_path} {name}"


def test_output_files_have_one_option() -> None:
    spellings = {
        tuple(parameter.opts[:2])
        for group, context in groups(cli, click.Context(cli, info_name="puller"))
        for name in group.list_commands(context)
        for parameter in getattr(group.get_command(context, name), "params", ())
        if {"-o", "--output"} & {*parameter.opts}
    }
    assert spellings == {("-o", "--output")}
