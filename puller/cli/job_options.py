"""The options that ``run`` and ``apply`` share."""

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option("--noop", is_flag=True, help="Change nothing; say what would be changed."),
    click.option(
        "--diff/--no-diff", default=None, help="Show what changes in files.  [default: on a terminal]"
    ),
    click.option(
        "--detailed-exitcodes", is_flag=True, help="Exit with 2 when changes were made (6 with failures)."
    ),
    click.option("-v", "--verbose", is_flag=True, help="Show stable resources too."),
    click.option("-q", "--quiet", is_flag=True, help="Show only what failed."),
)


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add them; their values are the fields of ``puller.run.jobs.Options``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
