"""``puller site prune`` and ``history``: removal of old versions, and the list of all published versions."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.errors import PublishError
from bundles.format.identity import parse_name
from bundles.format.index import named_by
from bundles.publisher.pruning import Pruned, plan_pruning, prune_site
from bundles.publisher.site import Site
from foundation.problems import ProblemCode
from foundation.quantities import counted, size_text
from foundation.timestamps import iso_text, minute_text
from puller.cli.completing import bundles_of_site
from puller.cli.options import DURATION, noop_option, text_format_option
from puller.cli.output import print_table, say, show
from puller.cli.publisher.key_sources import passphrase_of_keys
from puller.cli.publisher.site_options import passphrase_option, reach, site_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bundles.format.index import History, Said, Version
    from bundles.publisher.published import Record
    from bundles.publisher.settings import PruningRule

_HEAD = ("BUNDLE", "VERSION", "PUBLISHED", "SIZE", "CHANNELS", "FILES")


@click.command("prune")
@site_directory
@click.option(
    "--versions",
    type=click.IntRange(1),
    metavar="N",
    help="The number of latest versions of each bundle to keep.  [default: prune in site.yaml, else 20]",
)
@click.option(
    "--after",
    type=DURATION,
    help="How long to keep unreferenced versions: 12h, 90d.  [default: prune in site.yaml, else 90d]",
)
@noop_option("Show the files that would be deleted, and change nothing.")
@passphrase_option
@text_format_option
def prune(
    directory: Path,
    versions: int | None,
    after: timedelta | None,
    *,
    noop: bool,
    passphrase_file: Path | None,
    output_format: str,
) -> None:
    """Delete unneeded versions and files from the site.

    A version is deleted if no channel and no rollout names it, it is not the previous version of a channel, it is not
    among the latest versions, and no channel has named it for the time of --after. The command first signs the list of
    pruned versions. The archives are deleted after all timestamps that lead hosts to them have expired. The command
    also deletes metadata of earlier editions and files of killed publishers. It keeps all roots. `puller site history`
    still lists pruned versions.

    Each publication and each refresh also prunes, unless `prune` in DIR/site.yaml contains `automatic: false`.

    \b
    Example:
      puller site prune site --noop
      puller site prune site --versions 5 --after 30d
    """
    site = Site(directory)
    rule = _rule(site, versions, after)
    pruned = plan_pruning(site, rule) if noop else prune_site(site, rule, passphrase_of_keys(passphrase_file))
    if output_format == "json":
        show(_plain(pruned, noop=noop), "json")
        return
    for line in _lines(directory, pruned, noop=noop):
        say(line)


@click.command("history")
@site_directory
@click.argument("bundle", shell_complete=bundles_of_site)
@text_format_option
def history(directory: Path, bundle: str, output_format: str) -> None:
    """Show the versions of BUNDLE, and when each channel named them.

    Pruned versions are listed, too. They cannot be published again with other contents.

    \b
    Example:
      puller site history site web
    """
    record = Site(directory).record(parse_name(bundle))
    if not record.history.versions:
        raise PublishError(bundle, f"was never published in {directory}", code=ProblemCode.NOT_PUBLISHED)
    if output_format == "json":
        show(
            {"bundle": bundle, **plain_history(record), "statements": _plain_statements(record.history)},
            "json",
        )
        return
    print_versions([record])
    click.echo()
    print_table(("WHEN", "CHANNEL", "SAID"), [_row_of_statement(text) for text in record.history.statements])


def print_versions(records: "list[Record]") -> None:
    """Print all versions of some bundles that were ever published."""
    print_table(_HEAD, [_row(record, version) for record in records for version in _versions(record)])


def plain_history(record: "Record") -> dict[str, Any]:
    """Return the versions of a bundle, for programs."""
    return {
        "versions": [
            {
                "version": version.version,
                "published": iso_text(version.published),
                "sha256": version.artifact.archive.sha256,
                "size": version.artifact.archive.length,
                "channels": _channels(record, version.version),
                "pruned": version.pruned and iso_text(version.pruned),
            }
            for version in _versions(record)
        ]
    }


def _rule(site: "Site", versions: int | None, after: timedelta | None) -> "PruningRule":
    rule = site.settings().pruning
    if versions is not None:
        rule = replace(rule, versions=versions)
    return rule if after is None else replace(rule, after=after)


def _lines(directory: Path, pruned: Pruned, *, noop: bool) -> "Iterator[str]":
    swept, would = pruned.swept, "would be " if noop else ""
    for bundle, versions in pruned.versions.items():
        for version in versions:
            size = size_text(version.artifact.archive.length)
            yield f"{bundle} {version.version} {would or 'is '}pruned, {size}, published {_day(version)}"
    if swept.removed:
        yield f"{directory}: {_files(swept.removed)} that no host can ask for {would or 'are '}removed"
    if swept.waiting and swept.until:
        when = minute_text(swept.until)
        yield f"{directory}: {_files(swept.waiting)} stay until no host can be led to them, the last until {when}"
    if not (pruned.versions or swept.removed or swept.waiting):
        yield f"{directory}: nothing to prune"


def _plain(pruned: Pruned, *, noop: bool) -> dict[str, Any]:
    swept = pruned.swept
    return {
        "noop": noop,
        "versions": [
            {"bundle": bundle, "version": version.version, "size": version.artifact.archive.length}
            for bundle, versions in pruned.versions.items()
            for version in versions
        ],
        "removed": [{"path": path, "size": size} for path, size in swept.removed.items()],
        "waiting": [{"path": path, "size": size} for path, size in swept.waiting.items()],
        "until": swept.until and swept.until.isoformat(),
    }


def _files(files: "Mapping[str, int]") -> str:
    return f"{counted(len(files), 'file')} ({size_text(sum(files.values()))})"


def _versions(record: "Record") -> "list[Version]":
    return list(record.history.versions.values())


def _row(record: "Record", version: "Version") -> tuple[str, ...]:
    channels = ", ".join(_channels(record, version.version)) or "-"
    files = "there" if version.pruned is None else f"pruned {version.pruned:%Y-%m-%d}"
    size = size_text(version.artifact.archive.length)
    return record.index.bundle, version.version, _day(version), size, channels, files


def _channels(record: "Record", version: str) -> list[str]:
    """Return the channels that name a version, also as the previous version of a rollout."""
    result = record.index.channels.items()
    return sorted(name for name, release in result if version in {each.version for each in named_by(release)})


def _row_of_statement(text: "Said") -> tuple[str, ...]:
    when = minute_text(text.at)
    if text.release is None:
        return when, text.channel, "nothing any more"
    # As planned at that time: a rollout begins without hosts.
    return when, text.channel, f"{text.release.version} {reach(text.release, text.at)}"


def _plain_statements(history: "History") -> list[dict[str, Any]]:
    return [text.fields() for text in history.statements]


def _day(version: "Version") -> str:
    return f"{version.published:%Y-%m-%d}"
