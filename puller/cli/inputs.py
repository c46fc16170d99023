"""The options that give data to commands, and what a manifest is resolved with in the end."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from puller.data import Origin, Surroundings, assigned
from puller.facts.given import facts_from
from puller.manifest.loader import Inputs
from puller.state import PRIVATE_KEY


def data_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--data FILE`` and ``--set KEY=VALUE``, each of which may be given several times, and ``--private-key``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--data",
        "data_files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Merge a data document over the manifest's own data.",
    ),
    click.option(
        "--set",
        "data_pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set one value, read as in a data file, over all other data: web.port=8080.",
    ),
    click.option(
        "--private-key",
        default=PRIVATE_KEY,
        show_default=True,
        metavar="FILE",
        help="The key for encrypted values in the bundle's Hiera tree.",
    ),
)


class CommandInputs(msgspec.Struct, frozen=True):
    """Facts and data as the command line gives them."""

    facts: Any
    options: Mapping[str, Any]

    def for_manifest(self) -> Inputs:
        """What a manifest is resolved with."""
        here = Surroundings(self.facts, dict(os.environ))
        sources = here.load(map(Path, self.options["data_files"]), Origin.COMMAND_LINE)
        given = assigned(self.options["data_pairs"])
        return Inputs(self.facts, here.environ, (*sources, *given), self.options["private_key"])

    def problems(self) -> list[str]:
        """What could not be read while facts were gathered so far."""
        return [str(problem) for problem in getattr(self.facts, "problems", ())]

    def warn(self) -> None:
        """Say them on stderr."""
        for problem in self.problems():
            click.echo(f"puller: {problem}", err=True)


def load_inputs(options: Mapping[str, Any]) -> CommandInputs:
    """From the values of ``fact_options`` and ``data_options``."""
    return CommandInputs(facts_from(options), options)
