"""``puller fleet page``: static pages of the fleet."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import click

from foundation.extras import how_to_install
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.cli.fleet.fleet_options import open_reader, opened_store, silent_option, store_option
from puller.cli.options import output_option
from puller.cli.output import say
from puller.errors import UsageError
from puller.values.colour import can_redraw

_REDRAWN_AFTER = 0.2


@click.command("page")
@store_option
@output_option("The directory for the pages.", "--to", metavar="DIR", required=True)
@click.option(
    "--name", metavar="NAME", default="Fleet", show_default=True, help="The name of the fleet on the pages."
)
@silent_option
def page(location: str, output: Path, name: str, silent_after: timedelta | None) -> None:
    """Create static pages of the fleet.

    The pages show the state of the fleet, and each release, failure, host and resource. They load no external files,
    and their filters need no server. Only changed pages are written. DIRECTORY must be new, empty, or contain earlier
    pages. The pages contain data of the reports, so protect them like the reports.

    \b
    Example:
      puller fleet page --store fleet.db -o /srv/www/fleet
    """
    with opened_store(location) as store:
        try:
            import matplotlib  # noqa: F401  asked for before the pages are begun
        except ImportError:
            detail = "the pages' pictures need matplotlib, which is not installed"
            raise UsageError(
                f"{detail}. {how_to_install('fleet')}", code=ProblemCode.MISSING_DEPENDENCY
            ) from None
        from puller.fleet.pages.pages import make_pages  # needs the extra fleet
        from puller.fleet.store.importer import refused_files  # needs the extra fleet

        refused, _ = refused_files(store)
        began = time.monotonic()
        reader = open_reader(store, silent_after)
        made = make_pages(reader, output, name=name, refused=refused, progress=_Progress().show)
    seconds = time.monotonic() - began
    gone = f", {made.removed} removed" if made.removed else ""
    written = f"pages of {counted(made.hosts, 'host')}, {counted(made.written, 'file')} written"
    say(f"{output}: {written}{gone} in {seconds:.1f} s")


class _Progress:
    """An overwritten progress line on stderr, if it is a terminal."""

    def __init__(self) -> None:
        self._is_watched = can_redraw(sys.stderr)
        self._drawn = time.monotonic()

    def show(self, done: int, count: int) -> None:
        now = time.monotonic()
        if self._is_watched and (now - self._drawn >= _REDRAWN_AFTER or done == count):
            self._drawn = now
            end = "" if done == count else f"pages of {done} of {counted(count, 'host')}"
            click.echo(f"\r\x1b[K{end}", err=True, nl=False)
