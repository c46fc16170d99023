"""``puller preview``: what a new bundle changes on which machines, before it is published."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puller.cli.options import before_option, data_options
from puller.errors import UsageError, reason
from puller.exit_status import ExitStatus
from puller.manifest.source import ManifestSource, open_source

if TYPE_CHECKING:
    from puller.authoring.preview.groups import Preview

_FORMATS = ("text", "json", "markdown")


@click.command()
@click.argument("source")
@click.argument("more_facts", metavar="[FACTS]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--from", "old", metavar="OLD", help="What is in force now; with --to, as NAME=VERSION.")
@click.option("--to", "new", metavar="NAME=VERSION", help="The release in the site SOURCE to go to.")
@click.option(
    "--site",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Compare with what a channel of this site gives now.",
)
@click.option("--channel", default="stable", show_default=True, help="The channel of --site.")
@click.option("--name", help="What the bundle is called in --site.  [default: the name of the directory]")
@click.option(
    "--facts",
    multiple=True,
    required=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE|DIR",
    help="The facts of a machine, or of several by name; a directory of such files.",
)
@before_option
@data_options
@click.option(
    "--format",
    "output_format",
    type=click.Choice(_FORMATS),
    default=_FORMATS[0],
    show_default=True,
    help="Text for people, JSON for programs, markdown for a merge request.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)
def preview(
    source: str,
    more_facts: tuple[Path, ...],
    facts: tuple[Path, ...],
    before: tuple[str, ...],
    output_format: str,
    output: Path | None,
    **options: Any,
) -> int:
    """Show what the bundle SOURCE changes on every machine whose facts are given, machines with equal changes together.

    OLD is a directory, a bundle file, or with --site what a channel gives now. With --from NAME=VERSION and --to
    NAME=VERSION the directory SOURCE is a site, and two of its releases are compared. Files of facts may follow one
    --facts, so that a shell's fleet/*.json works. Nothing of any machine is looked at, and nothing is run.

    \b
      puller preview web --from web-1.4.0.tar.gz --facts fleet/*.json
      puller preview web --site site --facts fleet
      puller preview site --from web=1.4.0 --to web=1.5.0 --facts fleet
      puller preview web --site site --facts fleet --format markdown -o comment.md

    Exit status: 0 when nothing changes, 2 when something changes, 4 when anything fails that did not before, or the
    bundle is refused before and after; 10 when a site is not as it was signed.
    """
    with contextlib.ExitStack() as opened:
        sides = _sides(source, options, opened)
        others = tuple(opened.enter_context(open_source(one)) for one in before)
        found = _previewed(sides, others, (*facts, *more_facts), options)
    written = _written(found, output_format)
    if output is None:
        click.echo(written, nl=False)
    else:
        _write(output, written)
    return ExitStatus.FAILED if found.fails else ExitStatus.CHANGED if found.changes else ExitStatus.OK


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {reason(error)}") from error


_Sides = tuple[ManifestSource, ManifestSource]


def _sides(source: str, options: dict[str, Any], opened: contextlib.ExitStack) -> _Sides:
    """The old and the new bundle."""
    if options["new"] is not None:
        return _two_releases(Path(source), options, opened)
    new = opened.enter_context(open_source(source))
    if options["site"] is not None:
        if options["old"] is not None:
            raise click.UsageError("--from and --site both say what is in force now: give one of them")
        from puller.cli.author.preview_releases import open_published

        name = options["name"] or _name_of(source)
        return opened.enter_context(open_published(options["site"], name, options["channel"])), new
    if options["old"] is None:
        raise click.UsageError("what is in force now is not given: wanted --from OLD or --site DIR")
    return opened.enter_context(open_source(options["old"])), new


def _two_releases(site: Path, options: dict[str, Any], opened: contextlib.ExitStack) -> _Sides:
    if options["old"] is None or options["site"] is not None:
        raise click.UsageError("--to goes with --from, and the site is SOURCE")
    from puller.cli.author.preview_releases import open_release

    old, new = (opened.enter_context(open_release(site, options[side])) for side in ("old", "new"))
    return old, new


def _name_of(source: str) -> str:
    path = Path(os.path.abspath(source))
    if path.is_dir():
        return path.name
    from bundles.archive.unpack import inspect

    return inspect(path).name


def _previewed(
    sides: _Sides, before: tuple[ManifestSource, ...], facts: tuple[Path, ...], options: dict[str, Any]
) -> "Preview":
    from puller.authoring.preview import groups
    from puller.authoring.preview.machines import FactFiles
    from puller.authoring.preview.resolvers import Given, OneByOne, unknown_facts
    from puller.authoring.preview.sharing import Shared
    from puller.data.sources import assigned

    given = Given(
        os.urandom(32),
        tuple(map(Path, options["data_files"])),
        tuple(assigned(options["data_pairs"])),
        options["private_key"],
    )
    old, new = (Shared(OneByOne(side, given, before)) for side in sides)
    notes = dict.fromkeys(filter(None, map(unknown_facts, sides)))
    return groups.preview(old, new, FactFiles(facts), notes)


def _written(found: "Preview", output_format: str) -> str:
    write: Callable[[Preview], str]
    if output_format == "json":
        from puller.authoring.preview.formats.document import as_json as write
    elif output_format == "markdown":
        from puller.authoring.preview.formats.markdown import text as write
    else:
        from puller.authoring.preview.formats.text import text as write
    return write(found)
