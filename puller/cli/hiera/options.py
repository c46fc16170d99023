"""The options of ``puller hiera`` that say where data is and for which host."""

from __future__ import annotations

import click

from puller.cli.options import fact_options, no_system_facts_option, together

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
