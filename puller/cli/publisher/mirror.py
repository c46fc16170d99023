"""``puller site mirror``: a verified copy of a site, for a second server, a branch office or a USB drive."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.format.identity import parse_name
from bundles.format.index import parse_channel
from bundles.progress import watched_by
from bundles.publisher.mirroring.copy import Copied, SiteCopy
from bundles.publisher.mirroring.mirror_state import Selection
from bundles.transport.mirror import open_mirrors
from foundation.quantities import counted
from puller.cli.options import text_format_option
from puller.cli.output import say, show
from puller.config.configuration import HttpOptions, load_configuration
from puller.config.transport import settings_for, transport_settings
from puller.reporting.fetching import Fetching

if TYPE_CHECKING:
    from bundles.transport.settings import TransportSettings

_SHOWN = 20
"""Number of files that a dry run names before it counts the rest."""


@click.command("mirror")
@click.argument("url")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="The root.json of the site, for the first run; it is kept with the copy.",
)
@click.option("--bundle", "bundles", multiple=True, help="Copy this bundle only; may be repeated.")
@click.option(
    "--channel", "channels", multiple=True, help="Copy what hosts of this channel run; may be repeated."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Reach the site as http of this config.yaml says: proxy, certificates, credentials, times.",
)
@click.option(
    "--noop", "--dry-run", is_flag=True, help="Say what would be copied and removed, and do neither."
)
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
    """Copy the site at URL to DIRECTORY, verified as a host verifies it.

    Hosts read DIRECTORY/public: let a web server give that out, and nothing else of DIRECTORY. URL may be a directory,
    too. Whatever a host would refuse is refused, and the copy stays as it was. Hosts that read meanwhile see all of
    what was there before or all of what is new, also when a run is killed; the next one goes on with it. Signatures
    are the publisher's own: hosts need nothing new.

    \b
    Example:
      puller site mirror https://www.example.org/puller /srv/copy --root root.json
      puller site mirror https://www.example.org/puller /srv/copy

    Exit status: 0 when the copy is as the site is; otherwise hosts see there what they saw before.
    """
    selection = Selection(tuple(map(parse_name, bundles)), tuple(map(parse_channel, channels)))
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
    later = f"; {len(done.kept)} stay until no host can ask for them" if done.kept else ""
    if done.is_empty:
        return f"is as the site is{later}"
    copied, removed = ("to copy", "to remove") if noop else ("copied", "removed")
    count = len(done.fetched) + len(done.written)
    said = f"{counted(count, 'file')} {copied}"
    return said + (f", {len(done.removed)} {removed}" if done.removed else "") + later


def _plain(done: Copied) -> dict[str, object]:
    return {
        "copied": [*done.fetched, *done.written],
        "removed": list(done.removed),
        "kept": {path: until.isoformat() for path, until in done.kept.items()},
        "notes": list(done.notes),
    }
