"""Man pages of the commands, generated from their ``--help``."""

import re
from collections.abc import Iterator
from inspect import cleandoc

import click
from manual.roff import Page, bold, escape

Path = tuple[str, ...]


def commands(root: click.Group) -> Iterator[tuple[Path, click.Command, click.Context]]:
    """Yield every command with its words: ``puller`` first, each group before its commands."""
    yield from _below(root, click.Context(root, info_name="puller"), ("puller",))


def _below(
    command: click.Command, context: click.Context, path: Path
) -> Iterator[tuple[Path, click.Command, click.Context]]:
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            result = command.get_command(context, name)
            if result is not None and not result.hidden:
                yield from _below(
                    result, click.Context(result, info_name=name, parent=context), (*path, name)
                )


def page_name(path: Path) -> str:
    """Return the name of a page: ``puller-site-publish``."""
    return "-".join(path)


def command_page(path: Path, command: click.Command, context: click.Context) -> Page:
    """Return the page of a command, without the additional sections of ``puller(1)``."""
    page = Page(page_name(path), 1, summary_of(command))
    page.section_heading("Synopsis")
    page.add(f"{bold(' '.join(path))} {escape(' '.join(command.collect_usage_pieces(context)))}")
    page.section_heading("Description")
    _describe(page, cleandoc(command.help or ""))
    options = (parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option))
    records = [record for option in options if (record := option.get_help_record(context))]
    if records:
        page.section_heading("Options")
        for names, text in records:
            page.item(bold(names), plain(text))
    if isinstance(command, click.Group):
        page.section_heading("Commands")
        for name in command.list_commands(context):
            if (result := command.get_command(context, name)) is not None and not result.hidden:
                page.item(bold(name), plain(summary_of(result)))
    return page


def summary_of(command: click.Command) -> str:
    """Return the first sentence of a command's help, without the full stop."""
    return command.get_short_help_str(limit=1000).rstrip(".")


def plain(text: str) -> str:
    """Escape the text of a help. Text between backquotes becomes bold."""
    fields = re.split(r"`([^`\n]+)`", text)
    return "".join(bold(part) if number % 2 else escape(part) for number, part in enumerate(fields))


def _describe(page: Page, text: str) -> None:
    """Add paragraphs. By a rule of click, text after a backspace is preformatted."""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if part.lstrip().startswith("\b"):
            page.literal(part.lstrip().removeprefix("\b").strip("\n"))
        else:
            page.paragraph(plain(part.strip()))
