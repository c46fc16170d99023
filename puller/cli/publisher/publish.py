"""``puller site publish``: publication of bundles for hosts, in one signed step.

``puller site data`` publishes documents of values that hosts read beside their bundles, with the same signatures.
"""

import contextlib
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from bundles.filesystem.atomic import read_limited
from bundles.format.index import Archive, Digest
from bundles.format.size_limits import LARGEST_SITE_DATA
from bundles.progress import watched_by
from bundles.publisher.publication import (
    Progress,
    Publication,
    PublishRequest,
    plan_bundles,
    plan_data,
    publish_bundles,
    publish_data,
    withdraw_data,
)
from bundles.publisher.published import AUTO, Changes
from bundles.publisher.push.plan import Plan
from bundles.publisher.site import Site
from foundation.problems import Location, Problem, ProblemCode
from foundation.quantities import counted, first_few
from foundation.times import zulu_text
from hiera.errors import HieraError
from hiera.sops.identities import OPAQUE
from puller.authoring.cases.results import text_lines
from puller.authoring.cases.running import Settings
from puller.cli.author.bundle import libraries_of, refuse_broken
from puller.cli.author.lint import open_bundles, run_tests
from puller.cli.completing import files
from puller.cli.options import noop_option, text_format_option, together
from puller.cli.output import say, show
from puller.cli.publisher.push import (
    finish_change,
    next_step,
    plain_plan,
    plan_push,
    print_plan,
    push_site,
    require_destination,
)
from puller.cli.publisher.rollouts import optional_store_option, print_reach, require_store
from puller.cli.publisher.site_options import (
    channel_option,
    ended_rollout,
    passphrase_of_keys,
    passphrase_option,
    print_statements,
    publication_line,
    rollout_options,
    rollout_request,
    site_directory,
    trial_options,
    trial_rule,
)
from puller.data.sources import Surroundings
from puller.errors import ManifestError, SourceError, UsageError
from puller.reporting.fetching import Fetching
from puller.state import PRIVATE_KEY
from puller.values.colour import can_redraw
from puller.values.foreign_text import visible

if TYPE_CHECKING:
    from bundles.archive.pack import Libraries


_MANIFEST = "manifest.yaml"
_CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class _Publication:
    """The options of a publication."""

    sources: tuple[Path, ...]
    name: str | None
    version: str | None
    channel: str
    percent: float | None
    over: timedelta | datetime | None
    start: str | None
    wave: str | None
    trial_duration: timedelta | None
    trial_runs: int | None
    passphrase_file: Path | None
    with_tests: bool
    noop: bool
    output_format: str
    location: str | None


_publication_options = together(
    site_directory,
    click.argument(
        "sources",
        metavar="SOURCE...",
        nargs=-1,
        required=True,
        type=click.Path(exists=True, path_type=Path),
    ),
    click.option(
        "--name", metavar="NAME", help="The name of the bundle.  [default: the name of the directory]"
    ),
    click.option(
        "--version",
        metavar="VERSION",
        help="The version of all sources, such as 1.4.0, or auto: the next version for changed "
        "bundles. A bundle file contains its version.",
    ),
    channel_option,
    rollout_options,
    trial_options,
    optional_store_option,
    passphrase_option,
    click.option(
        "--test",
        "with_tests",
        is_flag=True,
        help="Run the tests of all bundles first. Fail if a test fails or a bundle has no tests.",
    ),
    noop_option("Show the bundles that would be published, and sign nothing."),
    text_format_option,
)
"""The fields of ``_Publication``, and the site."""


@click.command()
@_publication_options
def publish(directory: Path, **options: Any) -> None:
    """Publish bundles in the site.

    Each SOURCE is a bundle directory or a bundle file. Hosts of the channel install these versions in their next
    run, even if they are older. With --percent or --over, a part of the hosts installs them first. The contents of
    a version never change. If you publish the same files again, only missing files of the site are restored.

    Several bundles are published in one signed step, so each host sees all of them or none. If one of them is
    invalid, no bundle is published. Errors of `puller lint` make a bundle invalid. With --version auto, bundles
    that match the release in the channel stay unchanged, including their rollout. Changed bundles get the next
    version: 1.4.1 after 1.4.0. The first version is 1.0.0.

    With --trial and --trial-runs, the release stays on trial longer or shorter than `trial` in its manifest requires.

    With --test, or with `require: {tests: true}` in DIR/site.yaml, the tests of the bundles run first.

    \b
    Example:
      puller site publish site web --version 1.4.0
      puller site publish site web-1.5.0.tar.gz --channel canary
      puller site publish site web --version 1.5.0 --percent 10
      puller site publish site web --version 1.5.0 --over 24h --start 2026-11-20T22:00Z
      puller site publish site app app-conf --version 1.5.0 --percent 10 --wave shop-7
      puller site publish site web --version 1.5.0 --trial 2h --trial-runs 3
      puller site publish site bundles/* --version auto --noop
      puller site publish site bundles/* --version auto

    Exit status: 0 if all bundles are published. 13 or 64 if a bundle is invalid or missing, and 10 if the site does not
    match its signatures. In these cases, nothing is published.
    """
    publication = _Publication(**options)
    publications = _publish(directory, publication)
    if publication.output_format == "json":
        show(_document(publication, publications), "json")
        return
    _print(publication, publications)
    if not publication.noop and any(one.changed for one in publications):
        say(next_step(directory))


@click.command()
@_publication_options
def release(directory: Path, **options: Any) -> None:
    """Publish bundles, and push the site.

    This command is `puller site publish` followed by `puller site push`. The destination is `push.destination` in
    DIR/site.yaml. If the push fails, repeat the command: it publishes nothing again, and resumes the push. A dry run
    compares the site and the destination, and lists the archives that would be published and the files to push.

    \b
    Example:
      puller site release web --version 1.4.0
      puller site release bundles/* --version auto --noop

    Exit status: that of the failed step, or 0.
    """
    publication = _Publication(**options)
    require_destination(directory)
    publications = _publish(directory, publication)
    site = Site(directory)
    if publication.output_format == "json":
        plan = _plan_release(site, publications) if publication.noop else push_site(site)
        pushed = plain_plan(plan, site.settings().destination, noop=publication.noop)
        show(_document(publication, publications) | {"push": pushed}, "json")
        return
    _print(publication, publications)
    if publication.noop:
        _print_planned_push(site, publications)
    else:
        finish_change(directory, changed=True, noop=False, no_push=False)


def _plan_release(site: Site, publications: Sequence[Publication]) -> Plan:
    """Return the plan of a push after the publications, without the new metadata. They exist only when signed.

    Raises ``PublishError`` if the push is impossible. An edition that the publication repairs is not compared.
    """
    archives = {path: size for item in publications for path, size in _new_archives(site, item).items()}
    is_repaired = any(item.restored for item in publications) or _has_expired(site)
    steps = Plan(()) if is_repaired else plan_push(site)
    changed = {f"targets/{item.release.bundle}" for item in publications if item.changed}
    groups = [tuple(path for path in group if not _is_history_of(path, changed)) for group in steps.groups]
    groups = [group for group in (tuple(archives), *groups) if group]
    return replace(steps, groups=tuple(groups), sizes={**steps.sizes, **archives})


def _is_history_of(path: str, directories: Collection[str]) -> bool:
    """Return whether a publication in one of ``directories`` replaces the file, so that it is never pushed."""
    return path.endswith(".history.json") and path.rpartition("/")[0] in directories


def _has_expired(site: Site) -> bool:
    return site.published().timestamp.expires <= site.now()


def _new_archives(site: Site, publication: Publication) -> dict[str, int]:
    """Return the path below ``public/`` and the size of the archive, if the site does not have it yet."""
    release, digest = publication.release, Digest(publication.size, publication.sha256)
    archive = Archive.of(release.bundle, release.version, digest)
    return {} if site.has(archive) else {f"targets/{archive.path}": archive.length}


def _print_planned_push(site: Site, publications: Sequence[Publication]) -> None:
    steps, destination = _plan_release(site, publications), site.settings().destination
    is_changed = any(item.changed for item in publications)
    if not steps.is_empty or not is_changed:
        print_plan(steps, destination)
    if is_changed:
        say(f"{destination}: the push also copies the metadata to sign, and the single files of new releases")
    say("Dry run: nothing was signed or pushed.")


def _publish(directory: Path, options: _Publication) -> list[Publication]:
    """Publish the sources, or with ``noop`` return the publications without signing them."""
    sources = options.sources
    _check_sources(sources, options.name)
    request = rollout_request(options.percent, options.over, options.start, options.wave)
    trial = trial_rule(options.trial_duration, options.trial_runs)
    libraries = _libraries_of_all(sources)
    wish = PublishRequest(options.version, options.channel, request, options.name, trial, libraries)
    refuse_broken(sources)
    require_store(options.location)
    site = Site(directory)
    if options.with_tests or site.settings().required.tests:
        _check_tests(sources)
    with watched_by(Fetching()), _progress(len(sources)) as progress:
        if options.noop:
            return plan_bundles(site, sources, wish, progress)
        passphrase = passphrase_of_keys(options.passphrase_file)
        return publish_bundles(site, sources, wish, passphrase, progress)


def _print(options: _Publication, publications: Sequence[Publication]) -> None:
    if len(publications) == 1 and options.version != AUTO and not options.noop:
        (item,) = publications
        details = f" ({item.size} bytes, sha256 {item.sha256})"
        print_statements([item.statement], details, more_lines(item))
    else:
        _print_all(publications, options.channel, options.noop)
    print_reach(options.location, [item.statement for item in publications])


def _document(options: _Publication, publications: Sequence[Publication]) -> dict[str, Any]:
    return {"channel": options.channel, "noop": options.noop, "bundles": list(map(_plain, publications))}


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
    libraries: dict[Path, Libraries] = {}
    problems: list[Problem] = []
    for source in sources:
        try:
            libraries[source] = libraries_of(source)
        except (ManifestError, SourceError) as error:
            problems += error.problems
    if problems:
        raise ManifestError(problems)
    return libraries


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


def _print_all(publications: Sequence[Publication], channel: str, noop: bool) -> None:
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
        say(f"channel {channel}: {count} would be published. Nothing was written")
    else:
        say(f"channel {channel}: {count} published, in one signed step")


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
        "trial": release.fields().get("trial"),
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


@click.command("data")
@site_directory
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False), shell_complete=files)
@click.option(
    "--name",
    metavar="NAME",
    help="The name of the document for hosts.  [default: the file name without its ending]",
)
@click.option("--withdraw", metavar="NAME", help="Withdraw this document.")
@noop_option("Show the document that would be published, and sign nothing.")
@passphrase_option
@text_format_option
def data(
    directory: Path,
    file: Path | None,
    name: str | None,
    withdraw: str | None,
    *,
    noop: bool,
    passphrase_file: Path | None,
    output_format: str,
) -> None:
    """Publish a data document as signed site data.

    FILE is YAML or JSON, in the format of docs/data.md. Hosts with `site:NAME` below `data:` in their configuration
    read it in their next run. They verify it like a bundle, and keep the last good copy. If the document is
    unchanged, the command does nothing. Anyone who can read the site can read the document, so do not publish
    secrets.

    After --withdraw, hosts keep their copy, and report that the document is not published.

    \b
    Example:
      puller fleet exports --store fleet.db --bundle web --site site --to exports.yaml
      puller site data site exports.yaml
      puller site data site --withdraw exports

    Exit status: 0 if the document is published, 64 if it is invalid and nothing is published.
    """
    if (file is None) == (withdraw is None):
        raise click.UsageError("expected either FILE or --withdraw NAME")
    site = Site(directory)
    if file is None or withdraw is not None:
        if name is not None or noop:
            raise click.UsageError("--withdraw takes neither --name nor --noop")
        withdraw_data(site, str(withdraw), passphrase_of_keys(passphrase_file))
        done: dict[str, Any] = {"name": withdraw, "withdrawn": True}
        sentence = f"{directory}: site data {withdraw} is no longer published"
    else:
        contents = _contents(file)
        name = name if name is not None else file.name.partition(".")[0]
        if noop:
            result = plan_data(site, name, contents)
        else:
            result = publish_data(site, name, contents, passphrase_of_keys(passphrase_file))
        done = {
            "name": result.name,
            "size": result.size,
            "sha256": result.sha256,
            "published": zulu_text(result.published),
            "changed": result.changed,
        }
        verb = "would be published" if noop else "is published"
        detail = verb if result.changed else "is as it was published before"
        sentence = f"{directory}: site data {name} {detail} ({result.size} bytes, sha256 {result.sha256})"
    if output_format == "json":
        show(done, "json")
        return
    say(sentence)


def _contents(path: Path) -> bytes:
    """Return the text of a valid document. Raises ``ManifestError`` for a document that hosts would refuse."""
    try:
        contents = read_limited(path, LARGEST_SITE_DATA)
        document = Surroundings({}, {}, OPAQUE).parse(contents.decode("utf-8"), str(path))
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}", code=ProblemCode.UNREADABLE_SOURCE
        ) from None
    except UnicodeDecodeError as error:
        raise _refused(path, f"is not UTF-8 text, at byte {error.start}") from None
    except HieraError as error:
        raise ManifestError(error.problems) from None
    except ValueError as error:
        raise _refused(path, str(error)) from None
    if document.is_empty:
        raise _refused(path, "is empty, and hosts reject an empty document")
    if document.annotations is not None and (secrets := document.annotations.sensitive):
        names = first_few(sorted(".".join(map(str, key)) for key in secrets), 20)
        detail = f"marks {names} as @sensitive, and every reader of the site can read site data"
        raise _refused(path, f"{detail}. Put secrets encrypted into bundles, or on each host separately")
    return contents


def _refused(path: Path, message: str) -> ManifestError:
    location = Location(str(path))
    return ManifestError([Problem(code=ProblemCode.INVALID_DOCUMENT, message=message, location=location)])
