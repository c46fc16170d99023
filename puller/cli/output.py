"""Plain values as YAML for people or JSON for programs; tables."""

import re
import sys
from collections.abc import Sequence
from typing import Any

from puller.values.visible import visible

_LATE_CONTROL = re.compile(r"[\x7f-\x9f]")


def show(value: Any, output_format: str) -> None:
    """Print a plain value as ``yaml`` or ``json``.

    A text alone is printed as it is, so that scripts can use it; on a terminal no control character of it is.
    """
    if output_format == "json":
        import json

        text = json.dumps(value, indent=2, ensure_ascii=False)
        # JSON leaves these as they are, and some terminals take them for the start of a command.
        sys.stdout.write(_LATE_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        return
    if isinstance(value, str):
        text = visible(value) if sys.stdout.isatty() else value
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        return
    import yaml

    yaml.dump(
        value,
        sys.stdout,
        Dumper=_dumper(),
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        explicit_end=False,
        width=110,
    )


def say(sentence: object, colour: str | None = None) -> None:
    """Print a line for people, in which others may have had words: none of them is a command of the terminal.

    ``colour`` is for terminals that want it (``puller.values.colour``).
    """
    import click  # takes longer to import than some commands to answer

    text = visible(str(sentence))
    click.echo(click.style(text, fg=colour) if colour else text)


def warn(sentence: str) -> None:
    """Say on stderr something that is amiss, and keep it apart from the answer."""
    import click

    click.echo(visible(f"puller: {sentence}"), err=True)


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns that are as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def _dumper() -> type[Any]:
    """PyYAML's, with text of several lines as the author would write it."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # &id001 and *id001 would be about Python's objects, not about the data

    def represent_text(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent_text)
    return Dumper
