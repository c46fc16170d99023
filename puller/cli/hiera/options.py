"""The options of ``puller hiera`` that say where data is and for which host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from puller.cli.options import fact_options, no_system_facts_option, together
from puller.errors import UsageError

_EXISTING = click.Path(exists=True, dir_okay=False)
_DIRECTORY = click.Path(exists=True, file_okay=False)
data_place_options = together(
    fact_options,
    click.option(
        "--hiera", "config", type=_EXISTING, metavar="FILE", help="A hiera.yaml, with its data beside it."
    ),
    click.option(
        "--environment",
        type=_DIRECTORY,
        metavar="DIR",
        help="Puppet's: hiera.yaml, data and modules.",
    ),
    click.option("--document", type=_EXISTING, metavar="FILE", help="A single document."),
    click.option(
        "--global", "global_config", type=click.Path(), metavar="FILE", help="The global hiera.yaml."
    ),
    click.option("--modules", multiple=True, type=_DIRECTORY, metavar="DIR", help="A directory of modules."),
    click.option(
        "--environment-name",
        default="production",
        show_default=True,
        metavar="NAME",
        help="What %{environment} is.",
    ),
    click.option(
        "--private-key", type=_EXISTING, metavar="FILE", help="The eyaml key for levels that name none."
    ),
    no_system_facts_option,
)
"""For ``open_answers``."""


def source_of(arguments: tuple[str, ...], options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """The keys among ``arguments``, and SOURCE: the last of several, unless an option says where the data is.

    Raises ``UsageError`` for two options that say so, and for a SOURCE that is not there.
    """
    if sum(options[name] is not None for name in ("config", "environment", "document")) > 1:
        raise UsageError("--hiera, --environment and --document: only one of them may be given")
    if any(options[name] is not None for name in ("config", "environment", "document", "global_config")):
        return arguments, None
    if len(arguments) == 1:
        return arguments, "."
    *keys, source = arguments
    if not os.path.exists(source):
        raise UsageError(
            f"{source}: the last argument names the data when no option does, and there is no such file or directory"
        )
    return tuple(keys), source
