"""``puller site publish``: publication of bundles for hosts, in one signed step."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.first_few import first_few
from bundles.progress import watched_by
from bundles.publisher.publication import Progress, Publication, Wish, plan_bundles, publish_bundles
from bundles.publisher.published import AUTO, Changes
from bundles.publisher.site import Site
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from puller.authoring.cases.results import text_lines
from puller.authoring.cases.running import Settings
from puller.cli.author.bundle import libraries_of, refuse_broken
from puller.cli.author.test import open_bundles, run_tests
from puller.cli.options import text_format_option
from puller.cli.output import say, show
from puller.cli.publisher.key_sources import passphrase_of_keys
from puller.cli.publisher.site_options import (
    channel_option,
    ended_rollout,
    next_step,
    passphrase_option,
    print_statement,
    publication_line,
    rollout_options,
    rollout_request,
    site_directory,
)
from puller.errors import ManifestError, SourceError
from puller.reporting.fetching import Fetching
from puller.state.default_paths import PRIVATE_KEY
from puller.values.colour import can_redraw
from puller.values.visible import visible

if TYPE_CHECKING:
    from bundles.archive.pack import Libraries

_MANIFEST = "manifest.yaml"
_CLEAR_LINE = "\r\x1b[K"


@click.command()
@site_directory
@click.argument(
    "sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option("--name", help="What the bundle is called.  [default: the name of the directory]")
@click.option(
    "--version",
    help="The version of all that are named, such as 1.4.0; or auto: the next one, for those that have changed. "
    "A built bundle states its own.",
)
@channel_option
@rollout_options
@passphrase_option
@click.option(
    "--test",
    "with_tests",
    is_flag=True,
    help="Run the tests of all bundles first, and publish nothing when one fails or a bundle has none.",
)
@click.option("--noop", is_flag=True, help="Write and sign nothing; say what would be published.")
@text_format_option
def publish(
    directory: Path,
    sources: tuple[Path, ...],
    name: str | None,
    version: str | None,
    channel: str,
    percent: float | None,
    over: timedelta | None,
    start: str | None,
    wave: str | None,
    passphrase_file: Path | None,
    with_tests: bool,
    noop: bool,
    output_format: str,
) -> None:
    """Publish each SOURCE, a bundle's directory or a built .tar.gz, in the site DIR.

    The hosts that follow the channel get these versions with their next run, also when they are older
    ones: all of them, or with --percent or --over some of them first. The contents of a version never
    change; publishing the same again writes what the site has lost of it, and nothing else.

    Several bundles are published in one signed step: a host sees all of it or nothing, and what is wrong
    with one of them, such as what `puller lint` calls an error on any host, is told before anything is
    published. With --version auto a bundle whose files are
    those that the channel gives already is left as it is, its rollout too; the others get a version that
    sorts after all that were ever published of them: 1.4.1 after 1.4.0, and 1.0.0 is the first.

    With --test, or when DIR/site.yaml says `require: {tests: true}`, the cases of `puller test` are run first.

    \b
    Example:
      puller site publish site web --version 1.4.0
      puller site publish site web-1.5.0.tar.gz --channel canary
      puller site publish site web --version 1.5.0 --percent 10
      puller site publish site web --version 1.5.0 --over 24h --start 2026-11-20T22:00Z
      puller site publish site app app-conf --version 1.5.0 --percent 10 --wave shop-7
      puller site publish site bundles/* --version auto --noop
      puller site publish site bundles/* --version auto

    Exit status: 0 when all is published, or was before; 13 and 64 when a bundle cannot be published, and
    10 when what was published before is not as it was signed: then nothing is published.
    """
    _check_sources(sources, name)
    request = rollout_request(percent, over, start, wave)
    wish = Wish(version, channel, request, name, _libraries_of_all(sources))
    refuse_broken(sources)
    site = Site(directory)
    if with_tests or site.settings().required.tests:
        _check_tests(sources)
    with watched_by(Fetching()), _progress(len(sources)) as progress:
        if noop:
            publications = plan_bundles(site, sources, wish, progress)
        else:
            publications = publish_bundles(site, sources, wish, passphrase_of_keys(passphrase_file), progress)
    if output_format == "json":
        show({"channel": channel, "noop": noop, "bundles": list(map(_plain, publications))}, "json")
    elif len(publications) == 1 and version != AUTO and not noop:
        (one,) = publications
        print_statement(
            directory, one.statement, f" ({one.size} bytes, sha256 {one.sha256})", more_lines(one)
        )
    else:
        _print_all(directory, publications, channel, noop)


def _check_tests(sources: Sequence[Path]) -> None:
    """Run the tests of all bundles. Raises ``ManifestError`` with failures, and with bundles that have no tests."""
    with open_bundles(sources) as bundles:
        results, complaints = run_tests(bundles, Settings(PRIVATE_KEY), tell=lambda line: None)
    failed = [result for result in results if not result.passed]
    lines = [line for result in failed for line in text_lines(result)]
    if lines or complaints:
        texts = [*lines, *complaints, "nothing is published: tests do not pass"]
        raise ManifestError([Problem(code=ProblemCode.TESTS_FAIL, message=text) for text in texts])


def _check_sources(sources: Sequence[Path], name: str | None) -> None:
    """Check the sources before all other steps. Raises ``click.UsageError`` that names all invalid sources."""
    if name is not None and len(sources) > 1:
        raise click.UsageError(f"--name is for one bundle, and {len(sources)} are named")
    if wrong := [source for source in sources if source.is_dir() and not (source / _MANIFEST).exists()]:
        names = first_few(list(map(str, wrong)), 10)
        raise click.UsageError(f"{names}: no bundle, expected a directory with a {_MANIFEST} in it")


def _libraries_of_all(sources: Sequence[Path]) -> "dict[Path, Libraries]":
    """Return the libraries of each bundle. Raises ``ManifestError`` with all of their problems."""
    found: dict[Path, Libraries] = {}
    problems: list[Problem] = []
    for source in sources:
        try:
            found[source] = libraries_of(source)
        except (ManifestError, SourceError) as error:
            problems += error.problems
    if problems:
        raise ManifestError(problems)
    return found


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Progress]:
    """Provide a progress line on stderr for a terminal. The line is overwritten, and the last one stays."""
    watched = count > 1 and can_redraw(sys.stderr)

    def show_number(number: int, source: Path) -> None:
        if watched:
            click.echo(
                f"{_CLEAR_LINE}packing {number} of {count}: {visible(str(source))}",
                err=True,
                nl=number == count,
            )

    try:
        yield show_number
    finally:  # an error gets its own line
        if watched:
            click.echo(_CLEAR_LINE, err=True, nl=False)


def _print_all(directory: Path, publications: Sequence[Publication], channel: str, noop: bool) -> None:
    for publication in publications:
        say(publication_line(publication))
        for line in ended_rollout(publication.statement):
            say(f"  {line}")
        for line in more_lines(publication):
            say(line)
    changed = sum(publication.changed for publication in publications)
    count = f"{changed} of {counted(len(publications), 'bundle')}"
    if not changed:
        say(f"channel {channel}: nothing to do")
    elif noop:
        say(f"channel {channel}: {count} would be published; nothing was written")
    else:
        say(f"channel {channel}: {count} published, in one signed step")
        say(next_step(directory))


def more_lines(publication: Publication) -> list[str]:
    """Return the lines about restored files, and about versions that are pruned with a publication."""
    lines = ["  writes files again that the site has lost"] if publication.restored else []
    if versions := publication.pruned:
        lines.append(f"  prunes {first_few(versions, 5)}, by the rule of site.yaml")
    return lines


def _plain(publication: Publication) -> dict[str, Any]:
    release, changes = publication.release, publication.changes
    return {
        "bundle": release.bundle,
        "version": release.version,
        "before": publication.before,
        "published": publication.changed,
        "size": publication.size,
        "sha256": publication.sha256,
        "rollout": release.fields().get("rollout"),
        "pruned": list(publication.pruned),
        "restored": publication.restored,
        "changes": None if changes is None else _plain_changes(changes),
    }


def _plain_changes(changes: Changes) -> dict[str, tuple[str, ...]]:
    return {
        "added": changes.added,
        "removed": changes.removed,
        "changed": changes.changed,
        "libraries": changes.libraries,
    }
