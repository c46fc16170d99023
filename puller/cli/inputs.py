"""The options that give data to commands, and what a manifest is resolved with in the end."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from puller.data import load_sources
from puller.facts.given import facts_from
from puller.manifest.loader import Inputs


def data_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--data FILE``, which may be given several times; the later wins."""
    return click.option(
        "--data",
        "data_files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Merge a data document over the manifest's own data.",
    )(function)


class CommandInputs(msgspec.Struct, frozen=True):
    """Facts and data as the command line gives them."""

    facts: Any
    data_files: tuple[Path, ...]

    def for_manifest(self) -> Inputs:
        """What a manifest is resolved with."""
        environ: Mapping[str, str] = dict(os.environ)
        sources = load_sources(self.data_files, self.facts, environ)
        return Inputs(self.facts, environ, sources.data, sources.annotations)

    def problems(self) -> list[str]:
        """What could not be read while facts were gathered so far."""
        return [str(problem) for problem in getattr(self.facts, "problems", ())]

    def warn(self) -> None:
        """Say them on stderr."""
        for problem in self.problems():
            click.echo(f"puller: {problem}", err=True)


def load_inputs(options: Mapping[str, Any]) -> CommandInputs:
    """From the values of ``fact_options`` and ``data_options``."""
    return CommandInputs(facts_from(options), tuple(Path(name) for name in options["data_files"]))
