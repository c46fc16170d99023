"""The options that give facts to commands: ``--fact``, ``--facts`` and ``--facts-dir``, and ``--no-system-facts``.

* ``--fact NAME=VALUE`` beats ``--facts FILE``, which beats custom facts, which beat the built-in ones.
* Facts that are asked for by name must be readable: unlike a custom fact, a broken ``--facts`` file is an error.
"""

from collections.abc import Callable
from typing import Any

import click


def fact_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; their values are for ``puller.facts.given.facts_from``, by way of ``**options``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


no_system_facts_option = click.option(
    "--no-system-facts",
    is_flag=True,
    help="Leave this machine's facts out: there are only those of --fact and --facts.",
)

_OPTIONS = (
    click.option(
        "--fact",
        "fact_pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a fact, as text; a dot leads into the tree: os.family=Debian.",
    ),
    click.option(
        "--facts",
        "facts_files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Merge facts from a YAML, JSON or NAME=VALUE (*.txt) file over this machine's.",
    ),
    click.option(
        "--facts-dir",
        "facts_directories",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="Take custom facts from DIR instead of /etc/puller/facts.d.",
    ),
)
