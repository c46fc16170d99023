"""Answers of ``puller hiera`` as they are printed: secrets masked, explanations in colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from hiera.errors import HieraError
from hiera.tree.ruby.printable import printable, revealed, with_decrypted
from puller.cli.output import show, warn
from puller.errors import UsageError
from puller.values.visible import visible

if TYPE_CHECKING:
    from hiera.values.secrets import Secret
    from puller.data.queries import Answer


def secret_printer(reveal: bool, *, masked: bool) -> Callable[[Secret], Any]:
    """The function that makes a secret printable; raises ``UsageError`` where secrets may not be shown.

    A bare lookup shows what is encrypted in the data: that is what it was asked for.
    """
    if not reveal:
        return str if masked else with_decrypted

    # docs/secrets.md; on a terminal, so that no secret ends in a file or a pipe by mistake.
    if os.geteuid() != 0 or not sys.stdout.isatty():
        raise UsageError("--reveal is for root on a terminal only")
    return revealed


def made_printable(answer: Answer, secret: Callable[[Secret], Any]) -> Answer:
    """The answer with plain values in it; one that YAML and JSON cannot show becomes an error."""
    try:
        answer.value = printable(answer.value, secret)
    except HieraError as error:
        answer.found, answer.value, answer.error = False, None, f"{answer.key}: {error}"
    return answer


def member(answer: Answer, explain: bool) -> dict[str, Any]:
    """The answer to one key in ``--format json``."""
    record = {"explanation": printable(answer.record)} if explain else {}
    return {**answer.as_data(), **record}


def show_values(found: Mapping[str, Answer]) -> None:
    """Print one value by itself, several by name, and on stderr what has none."""
    values = {key: answer.value for key, answer in found.items() if answer.found}
    if values:
        show(values if len(found) > 1 else next(iter(values.values())), "yaml")
    for key, answer in found.items():
        if not answer.found:
            warn(answer.error or f"{key}: not found")


def show_explanation(answer: Answer) -> None:
    """Print the steps of a lookup."""
    for line in answer.lines:
        click.echo(_coloured(line))
    if not answer.found and not answer.error:
        click.echo(_coloured(f"Nothing has the key: {answer.key}"))


_COLOURS = {
    "Searching for": {"bold": True},
    "Found key": {"fg": "green"},
    "Merged result": {"fg": "green"},
    "Using merge options": {"fg": "cyan"},
    "Applying convert_to": {"fg": "cyan"},
    "No such key": {"dim": True},
    "Path not found": {"dim": True},
}


def _coloured(line: str) -> str:
    """Colour is taken out again by click where the output is no terminal."""
    line = visible(line)
    bare = line.lstrip()
    style = next((style for start, style in _COLOURS.items() if bare.startswith(start)), {})
    return click.style(line, **style) if style else line  # type: ignore[arg-type]  # click's own keywords
