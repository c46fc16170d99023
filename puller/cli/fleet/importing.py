"""``puller fleet import``: import of received reports into the store."""

import contextlib
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from foundation.quantities import counted
from puller.cli.completing import files
from puller.cli.fleet.fleet_options import opened_store, store_option
from puller.cli.options import DURATION, text_format_option
from puller.cli.output import say, show, warn
from puller.exit_status import ExitStatus
from puller.fleet.store.import_sources import open_source
from puller.values.colour import can_redraw

if TYPE_CHECKING:
    from puller.fleet.store.importer import Imported

_REDRAWN_AFTER = 0.2
"""Seconds between two updates of a progress line."""


@click.command("import")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=files)
@store_option
@click.option("--remove", is_flag=True, help="Delete each report file after its import.")
@click.option(
    "--keep",
    type=DURATION,
    help="Set how long the store keeps runs with events. The initial setting is 90d.",
)
@click.option(
    "--silent-after",
    "silent",
    type=DURATION,
    help="Set the time without reports until a host is silent. The initial setting is 2h.",
)
@text_format_option
def import_reports(
    sources: tuple[str, ...],
    location: str,
    *,
    remove: bool,
    keep: timedelta | None,
    silent: timedelta | None,
    output_format: str,
) -> int:
    """Import reports from SOURCE into the store.

    SOURCE is the directory that hosts send to, with HOST/RUN.json.gz in it, or an object store such as
    s3://BUCKET/PREFIX. The command creates a missing store and skips reports that it has already imported. Several
    imports may run at once, and the next import resumes an interrupted one. The store keeps the complete last report of
    each host. It keeps earlier reports with changes, failures or rejections for the time of --keep.

    Reports are untrusted input. A host can only report about itself. An invalid report is skipped, and reported once.

    \b
    Example:
      puller fleet import /srv/reports
      puller fleet import s3://fleet/reports --store postgresql+psycopg://db.example.com/fleet --remove

    Exit status: 0, or 4 if some files are invalid reports. All valid reports are imported.
    """
    with opened_store(location, make=True) as store:
        from puller.fleet.store.importer import import_documents  # needs the extra fleet

        values = {}
        if keep is not None:
            values["keep"] = str(keep / timedelta(days=1))
        if silent is not None:
            values["silent"] = str(silent / timedelta(hours=1))
        if values:
            with store.writing() as connection:
                for name, value in values.items():
                    store.set(connection, name, value)
        began = time.monotonic()
        with contextlib.ExitStack() as opened:
            places = []
            for source in sources:
                places.append(open_source(source))
                opened.callback(places[-1].close)
            progress = _Progress()
            opened.callback(progress.clear)
            imported = import_documents(store, places, remove=remove, progress=progress.show)
        seconds = time.monotonic() - began
    if output_format == "json":
        show(_plain(imported), "json")
    else:
        for refused in imported.listed:
            warn(f"{refused.path}: {refused.why}")
        if imported.unlisted:
            warn(f"and {imported.unlisted} more that are not reports")
        say(_sentence(imported, seconds))
    return ExitStatus.FAILED if imported.refused else ExitStatus.OK


class _Progress:
    """An overwritten progress line on stderr, if it is a terminal."""

    def __init__(self) -> None:
        self._is_watched = can_redraw(sys.stderr)
        self._drawn = time.monotonic()
        self._is_drawn = False

    def show(self, imported: "Imported") -> None:
        now = time.monotonic()
        if self._is_watched and now - self._drawn >= _REDRAWN_AFTER:
            self._drawn = now
            self._is_drawn = True
            click.echo(f"\r\x1b[K{imported.read} reports read", err=True, nl=False)

    def clear(self) -> None:
        """Remove the line."""
        if self._is_drawn:
            click.echo("\r\x1b[K", err=True, nl=False)


def _sentence(imported: "Imported", seconds: float) -> str:
    pieces = [
        f"{counted(imported.read, 'new report')} in {seconds:.1f} s",
        f"{imported.newest} of them the last of their host",
    ]
    if imported.unchanged:
        pieces.append(f"{imported.unchanged} were imported before")
    if imported.refused:
        pieces.append(f"{counted(imported.refused, 'file is not a report', 'files are not reports')}")
    if imported.removed:
        pieces.append(f"{counted(imported.removed, 'file')} removed")
    return "; ".join(pieces)


def _plain(imported: "Imported") -> dict[str, object]:
    return {
        "read": imported.read,
        "newest": imported.newest,
        "late": imported.late,
        "known": imported.known,
        "imported_before": imported.unchanged,
        "refused": imported.refused,
        "newly_refused": [{"path": item.path, "why": item.why} for item in imported.listed],
        "removed": imported.removed,
        "forgotten_runs": imported.forgotten,
    }
