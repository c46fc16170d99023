"""``puller site push``: copies of a site's public files on the servers that hosts read.

The end of a command that has changed a site is its result, and the push or the next step.

``puller site mirror``: a verified copy of a site, for a second server, a branch office or a USB drive.
"""

import contextlib
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.format.fields import parse_name
from bundles.format.index import parse_channel
from bundles.progress import watched_by
from bundles.publisher.mirroring.copy import Copied, SiteCopy
from bundles.publisher.mirroring.mirror_state import Selection
from bundles.publisher.push.push import Push, open_destination
from bundles.publisher.roles import Outcome
from bundles.publisher.site import SETTINGS, Site
from bundles.transport.mirror import open_mirrors
from foundation.problems import ProblemCode
from foundation.quantities import counted, size_text
from puller.cli.completing import files
from puller.cli.options import DURATION, Decorator, noop_option, text_format_option
from puller.cli.output import say, show
from puller.cli.publisher.site_options import print_list, site_directory
from puller.config.configuration import HttpOptions, load_configuration
from puller.config.transport import settings_for, transport_settings
from puller.errors import UsageError
from puller.reporting.fetching import Fetching
from puller.values.colour import can_redraw
from puller.values.foreign_text import visible

if TYPE_CHECKING:
    from bundles.publisher.push.plan import Plan
    from bundles.transport.settings import TransportSettings


_REDRAWN_AFTER = 0.2
"""Seconds between two updates of a progress line."""
_SHOWN = 20
"""Number of files that a plan names before it counts the rest."""


@click.command("push")
@site_directory
@click.argument("destination", required=False, shell_complete=files)
@click.option(
    "--keep",
    type=DURATION,
    help="How long to keep deleted files at the destination: 12h, 7d.  [default: the lifetime of "
    "the timestamp]",
)
@click.option("--replace", is_flag=True, help="Replace a newer or damaged edition at the destination.")
@click.option(
    "--compare",
    is_flag=True,
    help="Compare all files at the destination, which others may have changed.",
)
@noop_option("Show the files that would be copied and deleted, and change nothing.")
@text_format_option
def push(
    directory: Path,
    destination: str | None,
    keep: timedelta | None,
    *,
    replace: bool,
    compare: bool,
    noop: bool,
    output_format: str,
) -> None:
    """Copy the public files of the site to a server.

    Hosts read the site at DESTINATION:

    \b
      /srv/www/puller                    a directory
      www:/srv/www/puller                a machine by SSH, or ssh://user@www:22/srv/www/puller
      https://dav.example.com/puller     a web server with WebDAV
      s3://bucket/prefix                 an object store, with the credentials of boto3 and AWS_ENDPOINT_URL

    By default, DESTINATION is `push.destination` in DIR/site.yaml. Only changed files are copied. Hosts always see a
    complete old or new edition, even if the push is killed. The next push resumes it. An edition that hosts would
    reject, or that is older than that of the destination, is not pushed. Files that were deleted from the site are
    deleted from the destination when no host can request them. Other files stay.

    \b
    Example:
      puller site push site www:/srv/www/puller --noop
      puller site push
      puller site push site www:/srv/www/puller

    Exit status: 0 if DESTINATION matches the site. Otherwise hosts see the previous edition.
    """
    site = Site(directory)
    with contextlib.closing(open_destination(destination_of(site, destination))) as there:
        work = Push(site, there, keep, replace=replace, compare=compare)
        steps = work.plan() if noop else work.run(_Progress(str(there))).plan
        if output_format == "json":
            show(plain_plan(steps, str(there), noop=noop), "json")
        elif noop:
            print_plan(steps, str(there))
        elif steps.is_empty:
            say(f"{there}: {up_to_date(steps)}")


def destination_of(site: Site, destination: str | None) -> str:
    """Return the destination, by default that of the settings. Raises ``UsageError`` if both are missing."""
    if chosen := destination or site.settings().destination:
        return chosen
    raise UsageError(
        f"{site.directory}: DESTINATION is missing",
        hint=f"add it, or set push.destination in {site.directory / SETTINGS}",
        code=ProblemCode.INVALID_COMMAND,
    )


def push_site(site: Site) -> "Plan":
    """Push a site to the destination of its settings. Raises the errors of the push."""
    with contextlib.closing(open_destination(destination_of(site, None))) as there:
        return Push(site, there).run(_Progress(str(there))).plan


def plan_push(site: Site) -> "Plan":
    """Return the plan of a push to the destination of the settings, and change nothing. Raises like the push."""
    with contextlib.closing(open_destination(destination_of(site, None))) as there:
        return Push(site, there).plan()


class _Progress:
    """Progress on stderr: on a terminal one overwritten line, otherwise one line at the start and one at the end."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self._is_watched = can_redraw(sys.stderr)
        self._files = self._bytes = self._all_files = self._all_bytes = 0
        self._started = self._drawn = 0.0
        self._parts: dict[str, int] = {}
        """Transferred bytes of incomplete files."""
        self._lock = threading.Lock()

    def planned(self, steps: "Plan") -> None:
        self._all_files, self._all_bytes = len(steps.copied), steps.copied_bytes
        self._started = time.monotonic()
        if not steps.is_empty:
            say(f"{self._destination}: {_sentence(steps)}", err=True)

    def moved(self, path: str, have: int) -> None:
        with self._lock:
            self._parts[path] = have
            self._show(is_last=False)

    def sent(self, path: str, size: int) -> None:
        with self._lock:
            self._parts.pop(path, None)
            self._files += 1
            self._bytes += size
            self._show(is_last=self._files == self._all_files)

    def _show(self, *, is_last: bool) -> None:
        now = time.monotonic()
        if is_last or (self._is_watched and now - self._drawn >= _REDRAWN_AFTER):
            self._drawn = now
            clear = "\r\x1b[K" if self._is_watched else ""
            click.echo(
                clear + visible(self._line(now - self._started, is_last=is_last)), err=True, nl=is_last
            )

    def _line(self, seconds: float, *, is_last: bool) -> str:
        have = self._bytes + sum(self._parts.values())
        rate = have / seconds if seconds > 0 else 0.0
        done = f"{self._files} of {counted(self._all_files, 'file')}, {size_text(have)} of {size_text(self._all_bytes)}"
        if is_last:
            return f"{self._destination}: {done} in {seconds:.1f} s"
        remaining = f", {(self._all_bytes - have) / rate:.0f} s left" if rate else ""
        return f"{done}, {size_text(rate)}/s{remaining}"


def print_plan(steps: "Plan", destination: str) -> None:
    """Print the files that a push would copy and remove."""
    for verb, paths in (("copy", steps.copied), ("remove", steps.removed)):
        for path in paths[:_SHOWN]:
            say(f"{verb:<6} {path} ({size_text(steps.sizes[path])})")
        if len(paths) > _SHOWN:
            say(f"{verb:<6} and {len(paths) - _SHOWN} more")
    if steps.is_empty:
        say(f"{destination}: {up_to_date(steps)}")
    else:
        say(f"{destination}: dry run, {_sentence(steps)}")


def up_to_date(steps: "Plan") -> str:
    """Return the result of a push without changes."""
    if steps.is_remembered:
        return "up to date since the last push (to check every file there: --compare)"
    return "up to date"


def _sentence(steps: "Plan") -> str:
    parts = [f"{counted(len(steps.copied), 'file')} to copy ({size_text(steps.copied_bytes)})"]
    if steps.removed:
        parts.append(f"{len(steps.removed)} to remove ({size_text(steps.removed_bytes)})")
    if steps.gone:
        parts.append(f"{len(steps.gone)} to remove later, when no host requests them")
    return ", ".join(parts)


def plain_plan(steps: "Plan", destination: str, *, noop: bool) -> dict[str, object]:
    """Return a plan for JSON documents."""
    return {
        "destination": destination,
        "noop": noop,
        "remembered": steps.is_remembered,
        "copied": list(steps.copied),
        "copied_bytes": steps.copied_bytes,
        "removed": list(steps.removed),
        "removed_bytes": steps.removed_bytes,
        "kept": {path: since.isoformat() for path, since in steps.gone.items()},
    }


no_push_option: Decorator = click.option(
    "--no-push", is_flag=True, help="Do not push to the destination in site.yaml."
)


def require_destination(directory: Path) -> None:
    """Raise ``UsageError`` if the settings of a site have no destination."""
    destination_of(Site(directory), None)


def finish_change(directory: Path, *, changed: bool, noop: bool, no_push: bool) -> None:
    """Push a site after a change, if its settings have a destination. Otherwise print the next step.

    The push also follows an unchanged statement, because the push of an earlier one may have failed.
    """
    site = Site(directory)
    destination = "" if no_push else site.settings().destination
    if noop:
        if destination:
            say(f"{destination}: would be pushed")
        say(f"Dry run: nothing was signed{' or pushed' if destination else ''}.")
    elif destination:
        if (steps := push_site(site)).is_empty:
            say(f"{destination}: {up_to_date(steps)}")
    elif changed:
        say(next_step(directory))


def next_step(directory: Path) -> str:
    """Return the advice after every change: push the public part to the web servers."""
    destination = "" if Site(directory).settings().destination else " www:/srv/www/puller"
    return f"Next:\n  puller site push {directory}{destination}"


def finish_key_change(directory: Path, outcome: Outcome, *, no_push: bool = False) -> None:
    """Print the result of a change of keys, and push the site or print the next step."""
    if not outcome.changes:
        say(f"{directory}: unchanged")
        return
    if outcome.void:
        count = counted(outcome.void, "signature is", "signatures are")
        say(f"{directory}: this change joins the pending change, so {count} void")
    if outcome.pending:
        say(f"{directory}: NOT in force yet. This change of the root waits for signatures:")
    else:
        say(f"{directory}: in force, signed again: {', '.join(outcome.signed)}")
    print_list(outcome.changes)
    for sentence in outcome.pending:
        say(f"Missing: {sentence}")
    for sentence in dict.fromkeys(outcome.failures):
        say(sentence, err=True)
    for path in outcome.retired:
        say(f"{path}: an unused key. Delete it when you no longer need it.")
    if outcome.pending:
        say(f"Next:\n  puller site root export {directory} next-root.json")
    else:
        finish_change(directory, changed=True, noop=False, no_push=no_push)


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
        _print_copy(done, directory, noop=noop)


def _settings(config: Path | None, url: str) -> "TransportSettings":
    if config is None or url.startswith("/"):
        return transport_settings(HttpOptions())
    return settings_for(load_configuration(config), url)


def _print_copy(done: Copied, directory: Path, *, noop: bool) -> None:
    for note in done.notes:
        say(note, err=True)
    if noop:
        for verb, paths in (("copy", done.fetched + done.written), ("remove", done.removed)):
            for path in paths[:_SHOWN]:
                say(f"{verb:<6} {path}")
            if len(paths) > _SHOWN:
                say(f"{verb:<6} and {len(paths) - _SHOWN} more")
    say(f"{directory}: {_mirror_sentence(done, noop=noop)}")


def _mirror_sentence(done: Copied, *, noop: bool) -> str:
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
