"""The command ``puller preview``: changes that a new bundle makes on each machine, before it is published.

The machines come from files with facts or from the store of a fleet. On a terminal, stderr shows the progress in one
line, which is cleared at the end.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from bundles.archive.unpack import inspect
from bundles.filesystem.safe_paths import write_output
from foundation.problems import ProblemCode
from puller.authoring.cases.contexts import bundles_before, open_contexts
from puller.authoring.preview import groups, preview_formats
from puller.authoring.preview.groups import FactFiles, Machine, Machines, Several
from puller.authoring.preview.preview_formats import as_json, as_text
from puller.authoring.preview.resolvers import (
    Given,
    SeparateResolver,
    Shared,
    empty_documents,
    joined_missing,
    unknown_facts,
)
from puller.cli.author import preview_releases as releases
from puller.cli.author.preview_releases import open_release, open_site
from puller.cli.completing import files
from puller.cli.fleet.fleet import open_reader, opened_store
from puller.cli.options import before_option, data_options, output_option
from puller.data.sources import assigned
from puller.errors import UsageError, reason
from puller.exit_status import ExitStatus
from puller.facts.fact_tree import described
from puller.manifest.manifest import ManifestSource, open_source
from puller.values.colour import can_redraw, is_wanted

if TYPE_CHECKING:
    from puller.authoring.preview.groups import Preview
    from puller.fleet.store.queries import Reader


# Progress on a terminal.

_CLEAR_LINE = "\r\x1b[K"
_SECONDS = 0.5
"""Seconds between two updates of the line, and before the first."""


@contextlib.contextmanager
def watched_on_a_terminal(machines: Machines) -> Iterator[Machines]:
    """Show a count on stderr while the machines are iterated, if it is a terminal."""
    if not can_redraw(sys.stderr):
        yield machines
        return
    try:
        yield _Counted(machines)
    finally:  # an error gets its own line
        _show(_CLEAR_LINE)


class _Counted:
    """Machines that are counted during iteration."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def __iter__(self) -> Iterator[Machine]:
        shown = time.monotonic()
        for number, machine in enumerate(self._machines, 1):
            yield machine
            if time.monotonic() - shown >= _SECONDS:
                shown = time.monotonic()
                _show(f"{_CLEAR_LINE}machine {number}")


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


# Machines from the store of a fleet.


class StoredHosts:
    """The hosts of a store. Raises ``UsageError`` on iteration if no host has sent facts."""

    def __init__(self, reader: "Reader", location: str) -> None:
        self._reader = reader
        self._location = location

    def __iter__(self) -> Iterator[Machine]:
        hosts = self._reader.sent_facts()
        without = []
        for name, sent in hosts:
            if sent.facts:
                break
            without.append(Machine(name, described({}), sent))
        else:
            detail = "no host in it has sent facts: `reports: used_facts` in their configuration sends them"
            raise UsageError(f"{self._location}: {detail}")
        yield from without
        yield Machine(name, described(sent.facts), sent)
        yield from (Machine(name, described(sent.facts), sent) for name, sent in hosts)


@contextmanager
def open_fleet(location: str) -> Iterator[StoredHosts]:
    """Open the hosts of the store at ``location``. Raises ``SourceError`` and ``UsageError``."""
    with opened_store(location) as store:
        yield StoredHosts(open_reader(store, None), location)


_FORMATS = ("text", "json", "markdown")


@click.command()
@click.argument("source", shell_complete=files)
@click.argument("more_facts", metavar="[FACTS]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--from",
    "old",
    metavar="OLD",
    shell_complete=files,
    help="The current release: a directory or a bundle file, or NAME=VERSION with --to.",
)
@click.option("--to", "new", metavar="NAME=VERSION", help="The new release in the site SOURCE.")
@click.option(
    "--site",
    metavar="DIR|URL",
    shell_complete=files,
    help="Compare with the release in a channel of this site.  [default: $PULLER_SITE, or the "
    "directory site here or beside SOURCE]",
)
@click.option(
    "--root",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The root.json to verify a site at a URL.",
)
@click.option(
    "--channel", metavar="CHANNEL", default="stable", show_default=True, help="The channel of --site."
)
@click.option(
    "--name", metavar="NAME", help="The name of the bundle in --site.  [default: the name of the directory]"
)
@click.option(
    "--facts",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE|DIR",
    help="The facts of one machine, of several machines by name, or a directory of such files.",
)
@click.option(
    "--fleet",
    metavar="FILE|URL",
    shell_complete=files,
    help="A store of `puller fleet` with the latest facts of its hosts.",
)
@before_option
@data_options
@click.option(
    "--format",
    "output_format",
    type=click.Choice(_FORMATS),
    default=_FORMATS[0],
    show_default=True,
    help="Text for people, JSON for programs, or Markdown for a merge request.",
)
@output_option("Write the preview to FILE.")
def preview(
    source: str,
    more_facts: tuple[Path, ...],
    facts: tuple[Path, ...],
    fleet: str | None,
    before: tuple[str, ...],
    output_format: str,
    output: Path | None,
    **options: Any,
) -> int:
    """Show the changes of a new release on each machine.

    SOURCE is a bundle. Its changes are shown for each machine in --facts or --fleet. By default, these are the machines
    of its test cases, or those of `puller.yaml` in a parent directory (docs/repository.md). Machines with equal changes
    are grouped.

    The current release comes from a channel of the site, or from --from. With --from NAME=VERSION and --to
    NAME=VERSION, SOURCE is a site, and the preview compares two of its releases. A site is a directory, or a URL with
    --root. Several files may follow one --facts, so that you can write fleet/*.json. The preview reads no machine and
    runs no commands.

    \b
      puller preview web --facts fleet/*.json
      puller preview web --site https://bundles.example.com --root root.json --facts fleet
      puller preview web --from web-1.4.0.tar.gz --facts fleet
      puller preview site --from web=1.4.0 --to web=1.5.0 --facts fleet
      puller preview web --fleet fleet.db
      puller preview web --facts fleet --format markdown -o comment.md

    Exit status: 0 without changes, 2 with changes, 4 for new failures or if the bundle is rejected before and after, 10
    if a site does not match its signatures.
    """
    with contextlib.ExitStack() as opened:
        tested = _tested_machines(source, opened) if not facts and fleet is None else ()
        if not facts and fleet is None and not tested:
            raise click.UsageError(
                "no machines are given: expected --facts FILE|DIR, or --fleet with a store"
            )
        before = before or bundles_before(source)
        sides, notes = _sides(source, options, opened)
        others = tuple(opened.enter_context(open_source(item)) for item in before)
        machines = tested or _machines((*facts, *more_facts), fleet, opened)
        result = _previewed(sides, others, machines, options, notes)
    written = _written(result, output_format, colours=output is None and is_wanted(sys.stdout))
    if output is None:
        click.echo(written, nl=False)
    else:
        _write(output, written)
    return ExitStatus.FAILED if result.fails else ExitStatus.CHANGED if result.changes else ExitStatus.OK


def _tested_machines(source: str, opened: contextlib.ExitStack) -> tuple[Machine, ...]:
    """Return the machines of the test cases of the bundle at ``source``."""
    contexts = open_contexts(source, "", opened)
    return tuple(Machine(context.name, context.facts) for context in contexts)


def _write(path: Path, text: str) -> None:
    try:
        write_output(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {reason(error)}", code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error


def _machines(facts: tuple[Path, ...], fleet: str | None, opened: contextlib.ExitStack) -> Machines:
    """Return the machines of the files, and of the store of a fleet."""
    if fleet is None:
        return FactFiles(facts)

    hosts = opened.enter_context(open_fleet(fleet))
    return Several((FactFiles(facts), hosts)) if facts else hosts


_Sides = tuple[ManifestSource, ManifestSource]


def _sides(
    source: str, options: dict[str, Any], opened: contextlib.ExitStack
) -> tuple[_Sides, tuple[str, ...]]:
    """Return the old and the new bundle, and notes about them."""
    if options["new"] is not None:
        return _two_releases(source, options, opened), ()
    if options["site"] is not None and options["old"] is not None:
        raise click.UsageError("--from and --site exclude each other")
    new = opened.enter_context(open_source(source))
    if options["old"] is not None:
        return (opened.enter_context(open_source(options["old"])), new), ()
    old, note = _published(source, options, opened)
    return (old, new), (note,)


def _published(
    source: str, options: dict[str, Any], opened: contextlib.ExitStack
) -> tuple[ManifestSource, str]:
    """Return the current release of the bundle at ``source``, and a note about it."""
    if (where := options["site"] or releases.find_site(source)) is None:
        detail = "the directory site is missing here and beside the bundle"
        raise click.UsageError(
            f"the current release is unknown: {detail}: expected --site DIR|URL or --from OLD"
        )
    site = opened.enter_context(releases.open_site(where, options["root"]))
    release = releases.find_published(site, options["name"] or _name_of(source), options["channel"])
    old = opened.enter_context(releases.open_bundle(site, release))
    return old, releases.published_note(site, release, options["channel"])


def _two_releases(source: str, options: dict[str, Any], opened: contextlib.ExitStack) -> _Sides:
    if options["old"] is None or options["site"] is not None:
        raise click.UsageError("--to goes with --from, and the site is SOURCE")

    site = opened.enter_context(open_site(source, options["root"]))
    old, new = (opened.enter_context(open_release(site, options[side])) for side in ("old", "new"))
    return old, new


def _name_of(source: str) -> str:
    path = Path(os.path.abspath(source))
    if path.is_dir():
        return path.name
    if path.suffix in (".yaml", ".yml"):
        return path.parent.name

    return inspect(path).name


def _previewed(
    sides: _Sides,
    before: tuple[ManifestSource, ...],
    machines: Machines,
    options: dict[str, Any],
    notes: tuple[str, ...],
) -> "Preview":
    provided = Given(
        os.urandom(32),
        tuple(map(Path, options["data_files"])),
        tuple(assigned(options["data_pairs"])),
        options["private_key"],
    )
    old, new = (Shared(SeparateResolver(side, provided, before)) for side in sides)
    unknown = dict.fromkeys((*empty_documents(provided.data_files), *filter(None, map(unknown_facts, sides))))
    with watched_on_a_terminal(machines) as watched:
        result = groups.preview(old, new, watched, (*notes, *unknown))
    return msgspec.structs.replace(result, missing=joined_missing((old, new)))


def _written(result: "Preview", output_format: str, *, colours: bool) -> str:
    write: Callable[[Preview], str]
    if output_format == "json":
        write = as_json
    elif output_format == "markdown":
        write = preview_formats.as_markdown
    else:
        return as_text(result, colours=colours)
    return write(result)
