"""The table of the commands below ``puller``, groups of commands, and the start of one command by click.

* Each command is in its own module, imported on first use.
* A message about an invalid command line has the error first, then the usage and the command for help. An unknown name
  has suggestions.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from puller.cli.output import with_colour_option
from puller.cli.synonyms import unknown_command, unknown_option
from puller.exit_status import ExitStatus
from puller.values import colour
from puller.values.colour import coloured, is_wanted
from puller.values.foreign_text import visible
from puller.version import __version__

Table = Mapping[str, tuple[str, str]]
"""``module:attribute`` and the summary of each command, by its name."""


class CommandGroup(click.Group):
    """A group of commands. An unknown command is an error with the right command or similar ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises ``click.UsageError`` for an unknown name."""
        name = args[0]
        # click itself suggests no synonyms, and before version 8.4 no similar names either.
        if not name.startswith("-") and name not in self.list_commands(ctx):
            ctx.fail(unknown_command(ctx, name, self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """A group with a table of its commands, so that help and completion import none of their modules."""

    def __init__(self, *arguments: Any, sections: Mapping[str, Table], **options: Any) -> None:
        """``sections`` has the commands below the headings of ``--help``."""
        super().__init__(*arguments, **options)
        self._sections = sections
        self._table = {name: entry for table in sections.values() for name, entry in table.items()}

    @property
    def summaries(self) -> dict[str, str]:
        """The summary of each command."""
        return {name: summary for name, (_, summary) in self._table.items()}

    @property
    def headings(self) -> dict[str, list[str]]:
        """The names of the commands below each heading."""
        return {heading: list(table) for heading, table in self._sections.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Return ``None`` for an unknown name."""
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return with_colour_option(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and summaries of the table, aligned across all sections."""
        width = max(map(len, self._table))
        for heading, table in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), summary) for name, (_, summary) in table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names of commands from the table, and the options of the group."""
        names = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


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


# Sections of `puller --help`, with summaries of at most 62 characters, so that each fits its line.
_SECTIONS: Mapping[str, Table] = {
    "Host": {
        "run": ("puller.cli.host.run:run", "Fetch the published bundles, verify and apply them."),
        "status": (
            "puller.cli.host.status:status",
            "Show the enforced bundles, the last run and held releases.",
        ),
        "explain": (
            "puller.cli.author.explain:explain",
            "Explain the value of a data key or the state of a resource.",
        ),
        "history": ("puller.cli.host.history:history", "Show earlier runs and their changes, newest first."),
        "diff": ("puller.cli.host.run:diff", "Show the drift of this host from its enforced bundles."),
        "doctor": ("puller.cli.host.check:doctor", "Check this host, and print the fix for each problem."),
        "check": ("puller.cli.host.check:check", "Run the health checks of the enforced bundles."),
        "facts": ("puller.cli.host.facts:facts", "Show the facts of this machine."),
    },
    "Hold": {
        "disable": ("puller.cli.host.hold:disable", "Stop applying bundles on this host."),
        "enable": ("puller.cli.host.hold:enable", "Apply bundles again after `puller disable`."),
        "pin": ("puller.cli.host.hold:pin", "Hold a bundle at one version on this host."),
        "unpin": ("puller.cli.host.hold:unpin", "Let a bundle follow its channel again."),
        "rollback": ("puller.cli.host.hold:rollback", "Roll a bundle back to its last good version."),
        "quarantine": ("puller.cli.host.hold:quarantine", "List or clear quarantined versions."),
        "forget": ("puller.cli.host.hold:forget", "Delete the stored data of an unconfigured bundle."),
    },
    "Author": {
        "bundle": ("puller.cli.author.bundle:bundle", "Create, build and inspect bundles."),
        "import": (
            "puller.cli.author.import_draft:import_group",
            "Create a draft of a bundle from an existing configuration.",
        ),
        "lint": ("puller.cli.author.lint:lint", "Find errors in a manifest or a bundle."),
        "test": ("puller.cli.author.lint:test", "Run the test cases of bundles."),
        "render": (
            "puller.cli.author.render:render",
            "Print a manifest or template with its values for a machine.",
        ),
        "preview": (
            "puller.cli.author.preview:preview",
            "Show the changes of a new release on each machine.",
        ),
        "apply": ("puller.cli.author.apply:apply", "Apply a manifest or a bundle to this machine."),
        "secrets": ("puller.cli.author.secrets:secrets", "Encrypt data files for the hosts that need them."),
        "hiera": ("puller.cli.hiera.lookup:hiera", "Look up and encrypt hierarchical data."),
    },
    "Publisher": {
        "site": ("puller.cli.publisher.site:site", "Publish signed bundles in a static site."),
    },
    "Fleet": {
        "fleet": ("puller.cli.fleet.fleet:fleet", "Show all hosts, based on their reports."),
    },
    "Shell": {
        "ensure": ("puller.cli.ensure:ensure_group", "Bring one resource into a state."),
        "state": ("puller.cli.ensure:state", "Show the current state of a resource."),
        "session": ("puller.cli.ensure:session", "Share events between `puller ensure` commands."),
        "schema": ("puller.cli.author.schema:schema", "Print the JSON Schema of a document format."),
    },
    "Setup": {
        "config": (
            "puller.cli.host.config:config",
            "Check the configuration of this host, or print a sample.",
        ),
        "keys": (
            "puller.cli.host.keys:keys",
            "Show or create the key of this host for encrypted files.",
        ),
        "install-units": ("puller.cli.host.units:install_units", "Install the systemd services and timers."),
        "completion": ("puller.cli.host.help:completion", "Print the completion script of a shell."),
        "demo": ("puller.cli.publisher.demo:demo", "Try Puller in a temporary directory."),
        "help": ("puller.cli.host.help:help_command", "Explain a command or a problem code."),
        "version": ("puller.cli.host.help:version", "Print the version of Puller."),
    },
}


@click.group(
    cls=LazyGroup,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="puller")
def cli() -> None:
    """Keep Linux machines in the state that you publish on a plain web server.

    \b
    Authors:     puller bundle new web, puller lint web, puller apply web --noop
    Publishers:  puller site init site, puller site publish site web --version 1.0.0
    Hosts:       puller run, systemctl enable --now puller.timer
    """


with_colour_option(cli)


def run_click(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status. Raises the errors of commands."""
    colour.choose("auto")
    try:
        # In standalone mode click ends the process with its own statuses.
        status = cli.main(
            args=list(arguments), prog_name="puller", standalone_mode=False, color=colour.decided()
        )
        return status if isinstance(status, int) else ExitStatus.OK
    except click.ClickException as error:
        print_error(error)
        return ExitStatus.USAGE
    except click.Abort:
        click.echo("puller: stopped", err=True)
        return ExitStatus.INTERRUPTED
