"""Messages about an invalid command line: the error first, then the usage and the command for help."""

import sys

import click

from puller.cli.synonyms import unknown_option
from puller.values.colour import coloured, is_wanted
from puller.values.foreign_text import visible


def print_error(error: click.ClickException) -> None:
    """Print an error of click on stderr, in the form of all errors of Puller."""
    name = coloured("puller:", "red") if is_wanted(sys.stderr) else "puller:"
    click.echo(f"{name} {visible(_message(error))}", err=True)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(context.get_usage(), err=True)
        click.echo(f"Help: {context.command_path} --help", err=True)


def _message(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [
            name for option in error.ctx.command.params for name in (*option.opts, *option.secondary_opts)
        ]
        return unknown_option(error.ctx.command_path, error.option_name, [*known, "--help"])
    return error.format_message()
