"""Output of commands: YAML, JSON, lines, warnings, tables, and the option ``--color``.

With ``--format json``, the result of a command is one document on stdout (``puller.reporting.results``).
"""

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec
import yaml

from foundation.masking import mask_urls
from foundation.problems import Problem, ProblemCode
from puller.reporting.report import Report
from puller.reporting.results import DescribedProblem, Result, described_problems
from puller.reporting.run_log import described, status_of
from puller.values import colour
from puller.values.foreign_text import has_invisible, visible, visible_json


def show(value: Any, output_format: str) -> None:
    """Print a plain value as ``yaml`` or ``json``.

    A single text is printed unchanged, so that scripts can use it. On a terminal its control characters are escaped.
    """
    if output_format == "json":
        sys.stdout.write(visible_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")
        return
    if isinstance(value, str):
        text = visible(value) if sys.stdout.isatty() else value
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        return
    sys.stdout.write(visible_yaml(value, _dumper(), default_flow_style=False, sort_keys=False, width=110))


def visible_yaml(value: Any, dumper: type[Any], **options: Any) -> str:
    """Return a value as YAML. If a text has invisible characters, all non-ASCII characters are escaped."""
    text: str = yaml.dump(value, Dumper=dumper, allow_unicode=True, **options)
    return yaml.dump(value, Dumper=dumper, **options) if has_invisible(text) else text


def say(sentence: object, colour: str | None = None, *, err: bool = False, nl: bool = True) -> None:
    """Print a line for people. Control characters are escaped, because texts may come from other users.

    ``colour`` is used on terminals with colours (``puller.values.colour``). ``err`` and ``nl`` are those of click.
    """
    text = visible(str(sentence))
    click.echo(click.style(text, fg=colour) if colour else text, err=err, nl=nl)


def warn(sentence: str) -> None:
    """Print a warning on stderr, separate from the output."""
    click.echo(visible(f"puller: {sentence}"), err=True)


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns of the necessary width."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def _dumper() -> type[Any]:
    """Return PyYAML's dumper, with multi-line texts in block style."""

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # &id001 and *id001 would refer to Python's objects

    def represent_text(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent_text)
    return Dumper


# ``--color``. Every command has it, even commands that are created on demand.


def _choose(context: click.Context, _: click.Parameter, choice: colour.Choice | None) -> None:
    if choice is not None:  # without a choice, an earlier option on the line applies
        colour.choose(choice)
        context.color = colour.decided()


def with_colour_option(command: click.Command) -> click.Command:
    """Add ``--color`` to a command and its subcommands, unless they have it. Return the command."""
    if not any("--color" in parameter.opts for parameter in command.params):
        command.params.append(
            click.Option(
                ["--color"],
                type=click.Choice(["auto", "always", "never"]),
                expose_value=False,
                is_eager=True,  # so that it applies to messages about other options
                callback=_choose,
                help="Use colours. auto: on terminals, unless NO_COLOR or CLICOLOR=0 is set.",
            )
        )
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_colour_option(below)
    return command


_Result = TypeVar("_Result", bound=Result)


def report_of(reports: Sequence[Report]) -> tuple[Report | None, list[DescribedProblem]]:
    """Return the report that a job has appended, and its problems. A job without a report was stopped by a signal."""
    if reports:
        return reports[0], described_problems(reports[0].problems)
    stopped = Problem(code=ProblemCode.STOPPED, message="stopped by a signal before the first change")
    return None, described_problems([stopped])


def print_result(result: Result) -> int:
    """Print a document. Return its exit status."""
    show(msgspec.to_builtins(result), "json")
    return result.exit_status


def print_result_of(kind: type[_Result], action: Callable[[], _Result]) -> int:
    """Print the result of an action, or a document with its problems after an error. Return the exit status.

    Raise the errors that are bugs.
    """
    try:
        result = action()
    except Exception as error:
        if (status := status_of(error)) is None:
            raise
        result = kind(exit_status=status, problems=described_problems(described(error)))
    return print_result(result)


def report_error(error: Exception) -> int:
    """Print the error and return its exit status. Print the traceback of a bug."""
    if (status := status_of(error)) is not None:
        name = colour.coloured("puller:", "red") if colour.is_wanted(sys.stderr) else "puller:"
        for line in str(error).splitlines():
            print(f"{name} {visible(mask_urls(line))}", file=sys.stderr)
        return status
    traceback.print_exception(error)
    print("puller: this is a bug in Puller. Please report it with the lines above", file=sys.stderr)
    return 1
