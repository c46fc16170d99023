"""All man pages: one for each command, for user-written files, and for each document of operators and authors."""

import gzip
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from manual.commands import command_page, commands, page_name
from manual.documents import add_document, document_page
from manual.roff import Page

from puller.cli.command_table import cli

_FILES = {
    "data.md": "data",
    "facts.md": "facts",
    "templates.md": "templates",
    "resources/common.md": "manifest",
}
"""Documents of section 5, by the file in ``docs/``. Documents of resource types are added."""

_LEFT_OUT = {"architecture.md", "design-decisions.md", "adding-a-type.md", "installing.md", "commands.md"}
"""Documents for developers, who have the source, and the commands, which have a page each."""

_CONFIGURATION = "configuration.md"


def write_all(source: Path, root: Path) -> None:
    """Write every page below ``root``, as gzip. Their date is SOURCE_DATE_EPOCH.

    Raises ``UnknownMarkup`` for a document with unsupported markup.
    """
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    for page in pages(source):
        path = root / f"usr/share/man/man{page.section}/{page.name}.{page.section}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(page.text(epoch).encode(), compresslevel=9, mtime=0))


def pages(source: Path) -> Iterator[Page]:
    """Yield every page: for the documents of a checkout, and for the commands of this installation."""
    known = references(source)
    yield from _command_pages(source, known)
    yield _configuration_page(source, known)
    for document, reference in known.items():
        if document == _CONFIGURATION:
            continue
        name, _, section = reference.rstrip(")").partition("(")
        text = (source / "docs" / document).read_text(encoding="utf-8")
        page = document_page(name, int(section), text, known)
        if document.startswith("resources/") and document not in _FILES:
            page.summary = f"the resource type {page.summary}"
        page.see_also(
            ["puller(1)", "puller.yaml(5)"]
            if name == "puller-manifest"
            else ["puller(1)", "puller-manifest(5)"]
        )
        yield page


def references(source: Path) -> dict[str, str]:
    """Return the page of each document: ``puller-operating(7)`` for ``operating.md``."""
    result = {}
    for path in sorted((source / "docs").rglob("*.md")):
        document = str(path.relative_to(source / "docs"))
        if document == _CONFIGURATION:
            result[document] = "puller.yaml(5)"
        elif document in _FILES:
            result[document] = f"puller-{_FILES[document]}(5)"
        elif document.startswith("resources/"):
            result[document] = f"puller-resource-{path.stem.replace('_', '-')}(5)"
        elif document not in _LEFT_OUT:
            result[document] = f"puller-{path.stem}(7)"
    return result


def _command_pages(source: Path, known: dict[str, str]) -> Iterator[Page]:
    for path, command, context in commands(cli):
        page = command_page(path, command, context)
        if len(path) == 1:
            page.summary = "keep Linux machines in a published state"
            statuses = (source / "docs/exit-statuses.md").read_text(encoding="utf-8")
            add_document(page, statuses.partition("\n## Exit statuses\n")[2], known, first="Exit statuses")
            below = [f"{page_name((*path, name))}(1)" for name in cli.list_commands(context)]
            page.see_also([*known.values(), *below])
        else:
            above = [f"{page_name(path[:end])}(1)" for end in range(1, len(path))]
            page.see_also([*above, *_below(path, command, context)])
        yield page


def _below(path: tuple[str, ...], command: click.Command, context: click.Context) -> list[str]:
    if not isinstance(command, click.Group):
        return []
    return [f"{page_name((*path, name))}(1)" for name in command.list_commands(context)]


def _configuration_page(source: Path, known: Mapping[str, str]) -> Page:
    sample = (source / "puller/config/samples/config.yaml").read_text(encoding="utf-8")
    document = (source / "docs" / _CONFIGURATION).read_text(encoding="utf-8")
    page = Page("puller.yaml", 5, "what a machine pulls, and how: /etc/puller/config.yaml")
    add_document(page, document.partition("\n")[2], known, first="Description")
    page.section_heading("Example")
    page.paragraph("Every key with its default, or with an example:")
    page.literal(sample)
    page.section_heading("Files")
    page.item(
        "/etc/puller/config.yaml", "What runs read, unless they are told otherwise by \\fB\\-\\-config\\fR."
    )
    page.see_also(["puller-config(1)", "puller-run(1)", "puller-manifest(5)"])
    return page
