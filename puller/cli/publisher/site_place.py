"""The site of a command line: DIR, else ``$PULLER_SITE``, else ``./site``.

Most commands of ``puller site`` have DIR as their first argument. It is omitted if

* too few arguments are given for the command, and the first one is not a site, or
* the first argument is not a site, the default is one, and the command accepts another argument.
"""

import os
from pathlib import Path

import click

from puller.cli.lazy_group import CommandGroup, LazyGroup

SITE_VARIABLE = "PULLER_SITE"
_METAVARS = ("[DIR]", "[DIR|FILE]")


def default_site() -> str:
    """Return the site of command lines without DIR."""
    return os.environ.get(SITE_VARIABLE) or "site"


def with_site(command: click.Command, arguments: list[str], *, is_complete: bool = True) -> list[str]:
    """Return the arguments of a command with DIR. For a completion, ``is_complete`` is false."""
    parameters = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    if not parameters or parameters[0].metavar not in _METAVARS:
        return arguments
    words = _positionals(command, arguments)
    required = sum(parameter.required for parameter in parameters)
    is_full = all(parameter.nargs == 1 for parameter in parameters) and len(words) >= len(parameters)
    if not words or (is_complete and len(words) < required and not _is_site(words[0])):
        return [default_site(), *arguments]
    if (is_full and is_complete) or _is_site(words[0]) or not _is_site(default_site()):
        return arguments
    return [default_site(), *arguments]


def _is_site(directory: str) -> bool:
    return Path(directory, "public", "metadata").is_dir()


def _positionals(command: click.Command, arguments: list[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    with_value = {
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag
        for name in option.opts
    }
    positionals: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            positionals.extend(words)
        elif not word.startswith("-") or word == "-":
            positionals.append(word)
        elif word in with_value:
            next(words, None)
    return positionals


class SiteCommands(CommandGroup):
    """A group whose commands have DIR as their first argument, with a default."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, and its arguments with DIR."""
        name, command, remainder = super().resolve_command(ctx, args)
        is_group = command is None or isinstance(command, click.Group)
        return (
            name,
            command,
            remainder
            if command is None or is_group
            else with_site(command, remainder, is_complete=not ctx.resilient_parsing),
        )


class LazySiteCommands(SiteCommands, LazyGroup):
    """The commands of ``puller site``."""
