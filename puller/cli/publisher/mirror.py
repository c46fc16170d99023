"""``puller site mirror``: a verified copy of a site, for a second server, a branch office or a USB drive."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.format.fields import parse_name
from bundles.format.index import parse_channel
from bundles.progress import watched_by
from bundles.publisher.mirroring.copy import Copied, SiteCopy
from bundles.publisher.mirroring.mirror_state import Selection
from bundles.transport.mirror import open_mirrors
from foundation.quantities import counted
from puller.cli.completing import files
from puller.cli.options import noop_option, text_format_option
from puller.cli.output import say, show
from puller.config.configuration import HttpOptions, load_configuration
from puller.config.transport import settings_for, transport_settings
from puller.errors import UsageError
from puller.reporting.fetching import Fetching

if TYPE_CHECKING:
    from bundles.transport.settings import TransportSettings

_SHOWN = 20
"""Number of files that a dry run names before it counts the rest."""


@click.command("mirror")
@click.argument("url", shell_complete=files)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--root",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The root.json of the site, required for the first run. The copy keeps it.",
)
@click.option(
    "--bundle", "bundles", metavar="BUNDLE", multiple=True, help="Copy only this bundle. Repeatable."
)
@click.option(
    "--channel",
    "channels",
    metavar="CHANNEL",
    multiple=True,
    help="Copy only the releases of this channel. Repeatable.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use the http settings of this config.yaml: proxy, certificates, credentials, timeouts.",
)
@noop_option("Show the files that would be copied and deleted, and change nothing.")
@text_format_option
def mirror(
    url: str,
    directory: Path,
    root: Path | None,
    bundles: tuple[str, ...],
    channels: tuple[str, ...],
    config: Path | None,
    *,
    noop: bool,
    output_format: str,
) -> None:
    """Copy the site at URL to DIRECTORY, with all checks of a host.

    Serve DIRECTORY/public with a web server, and nothing else of DIRECTORY. URL may also be a directory. The copy
    contains the publisher's own signatures, so hosts need no new settings. If a host would reject the site, the command
    fails and the copy stays unchanged. Hosts always see a complete old or new copy, even if the command is killed. The
    next run resumes it.

    \b
    Example:
      puller site mirror https://www.example.org/puller /srv/copy --root root.json
      puller site mirror https://www.example.org/puller /srv/copy

    Exit status: 0 if the copy matches the site. Otherwise hosts see the previous copy.
    """
    selection = Selection(tuple(map(parse_name, bundles)), tuple(map(parse_channel, channels)))
    if "://" not in url and not url.startswith("/"):
        raise UsageError(
            f"URL is {url!r}",
            expected="a URL such as https://www.example.org/puller, or an absolute directory",
        )
    [site] = open_mirrors([url], _settings(config, url))
    copy = SiteCopy(site, directory, root, selection)
    with watched_by(Fetching()):
        done = copy.plan() if noop else copy.run()
    if output_format == "json":
        show({"site": str(site), "directory": str(directory), "noop": noop} | _plain(done), "json")
    else:
        _print(done, directory, noop=noop)


def _settings(config: Path | None, url: str) -> "TransportSettings":
    if config is None or url.startswith("/"):
        return transport_settings(HttpOptions())
    return settings_for(load_configuration(config), url)


def _print(done: Copied, directory: Path, *, noop: bool) -> None:
    for note in done.notes:
        say(note, err=True)
    if noop:
        for verb, paths in (("copy", done.fetched + done.written), ("remove", done.removed)):
            for path in paths[:_SHOWN]:
                say(f"{verb:<6} {path}")
            if len(paths) > _SHOWN:
                say(f"{verb:<6} and {len(paths) - _SHOWN} more")
    say(f"{directory}: {_sentence(done, noop=noop)}")


def _sentence(done: Copied, *, noop: bool) -> str:
    later = f", {len(done.kept)} to remove later, when no host requests them" if done.kept else ""
    if done.is_empty:
        return f"up to date{later}"
    copied, removed = ("to copy", "to remove") if noop else ("copied", "removed")
    count = len(done.fetched) + len(done.written)
    text = f"{'dry run, ' if noop else ''}{counted(count, 'file')} {copied}"
    return text + (f", {len(done.removed)} {removed}" if done.removed else "") + later


def _plain(done: Copied) -> dict[str, object]:
    return {
        "copied": [*done.fetched, *done.written],
        "removed": list(done.removed),
        "kept": {path: until.isoformat() for path, until in done.kept.items()},
        "notes": list(done.notes),
    }
