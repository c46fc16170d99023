"""Groups of commands: suggestions for unknown names, and commands that are imported on first use."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from puller.cli.output import with_colour_option

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
            from puller.cli.synonyms import unknown_command

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
