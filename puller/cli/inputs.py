"""The options that give data to commands; ``puller.run.inputs`` makes of them what a manifest is resolved with."""

from collections.abc import Callable
from typing import Any

import click

from puller.state.directories import PRIVATE_KEY


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
