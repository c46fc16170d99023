"""``puller site``: the group, and the site of a command line, which is DIR, else ``$PULLER_SITE``, else ``./site``.

Most commands of ``puller site`` have DIR as their first argument. It is omitted if

* too few arguments are given for the command, and the first one is not a site, or
* the first argument is not a site, the default is one, and the command accepts another argument.
"""

import os
from pathlib import Path

import click

from puller.cli.command_table import CommandGroup, LazyGroup

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


# Most of these modules import the libraries of TUF and HTTP.
_COMMANDS = {
    "back": ("puller.cli.publisher.rollouts:back", "Roll all hosts of a channel back to an older release."),
    "data": ("puller.cli.publisher.publish:data", "Publish a data document as signed site data."),
    "halt": ("puller.cli.publisher.rollouts:halt", "Stop a rollout: no further host gets the release."),
    "history": (
        "puller.cli.publisher.whole_site:history",
        "Show the versions of BUNDLE, and when each channel named them.",
    ),
    "init": ("puller.cli.publisher.whole_site:init", "Create a new site in DIR with new keys."),
    "keys": ("puller.cli.publisher.keys:keys", "Show and change the keys of a site."),
    "list": (
        "puller.cli.publisher.whole_site:list_",
        "Show the releases of the site, and when its signatures expire.",
    ),
    "mirror": (
        "puller.cli.publisher.push:mirror",
        "Copy the site at URL to DIRECTORY, with all checks of a host.",
    ),
    "promote": (
        "puller.cli.publisher.rollouts:promote",
        "Give the release of one channel to another channel.",
    ),
    "prune": ("puller.cli.publisher.whole_site:prune", "Delete unneeded versions and files from the site."),
    "publish": ("puller.cli.publisher.publish:publish", "Publish bundles in the site."),
    "push": ("puller.cli.publisher.push:push", "Copy the public files of the site to a server."),
    "refresh": (
        "puller.cli.publisher.whole_site:refresh",
        "Renew the signatures of the site before they expire.",
    ),
    "release": ("puller.cli.publisher.publish:release", "Publish bundles, and push the site."),
    "rollout": ("puller.cli.publisher.rollouts:rollout", "Extend a rollout to more hosts."),
    "root": ("puller.cli.publisher.keys:root", "Sign a change of the root on the machines of its signers."),
    "rotate": ("puller.cli.publisher.keys:rotate", "Replace the keys of ROLE, and sign its metadata again."),
    "serve": ("puller.cli.publisher.whole_site:serve", "Serve DIR/public over HTTP for tests."),
    "threshold": ("puller.cli.publisher.keys:threshold", "Require the signatures of NUMBER keys of ROLE."),
    "verify": (
        "puller.cli.publisher.whole_site:verify",
        "Check the signatures, the expiry and all files of the site.",
    ),
    "watch": ("puller.cli.publisher.watch:watch", "Halt rollouts that fail on hosts."),
    "withdraw": ("puller.cli.publisher.rollouts:withdraw", "Remove a bundle from a channel."),
}


@click.group("site", cls=LazySiteCommands, sections={"Commands": _COMMANDS})
def site() -> None:
    """Publish signed bundles in a static site.

    A site is a directory. Copy its directory public/ to any web server, object store or USB drive. Hosts trust only the
    signatures. The directory keys/ stays on the publisher's machine. DIR is by default $PULLER_SITE, or ./site.

    \b
    Example:
      puller site init site
      puller site publish site bundles/* --version auto
      puller site push site www:/srv/www/puller
    """
