"""``puller fleet import``, ``serve-reports`` and ``forget``: reports of hosts into and out of the store."""

import contextlib
import ipaddress
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.errors import SettingsError
from bundles.filesystem.safe_paths import open_output_directory
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.cli.completing import files, offer
from puller.cli.fleet.fleet import open_reader, opened_store, store_option
from puller.cli.options import DURATION, text_format_option
from puller.cli.output import say, show, warn
from puller.exit_status import ExitStatus
from puller.fleet.receiving import ReportServer
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


_DEFAULT = "127.0.0.1:8765"


@click.command("serve-reports")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--listen",
    default=_DEFAULT,
    show_default=True,
    metavar="ADDRESS:PORT",
    help="The address to listen on. Port 0 selects a free port.",
)
def serve_reports(directory: Path, listen: str) -> None:
    """Receive reports of hosts, for tests.

    Reports are stored as DIRECTORY/HOST/RUN.json.gz. Hosts send to http://ADDRESS:PORT/ by PUT, as `reports` of
    their configuration specifies. Stop with Ctrl-C.

    Do not use it in production, because it does not authenticate hosts. docs/fleet.md has a configuration for nginx
    that does.

    \b
    Example:
      puller fleet serve-reports /srv/reports
      puller fleet serve-reports reports --listen [::1]:8765
    """
    address, port = _parsed(listen)

    try:
        with open_output_directory(directory, make=True):
            server = ReportServer(directory, address, port)
    except OSError as error:
        raise SettingsError(
            str(error.filename or listen), error.strerror or str(error), code=ProblemCode.SYSTEM_ERROR
        ) from None
    if not ipaddress.ip_address(address).is_loopback:
        warn(f"{listen}: any client of this address can write reports of any host")
    with server:
        shown = f"[{address}]" if ":" in address else address
        say(f"{directory} takes reports at http://{shown}:{server.server_port}/")
        _log_requests()
        _serve(server)


def _serve(server: "ReportServer") -> None:
    """Serve until SIGTERM or SIGINT."""

    def stop(*_: Any) -> None:
        # In a thread, because shutdown waits for the serving loop, which this handler has interrupted.
        threading.Thread(target=server.shutdown, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.serve_forever()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parsed(listen: str) -> tuple[str, int]:
    address, _, port = listen.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(address)
        if not (port.isascii() and port.isdecimal()) or int(port) > 65535:
            raise ValueError
    except ValueError:
        detail = f"{listen!r}, expected the address and port of this machine, such as {_DEFAULT}"
        raise click.BadParameter(detail, param_hint="--listen") from None
    return address, int(port)


def _log_requests() -> None:
    logger = logging.getLogger("puller.fleet.receiving")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)


@offer
def _hosts(context: click.Context) -> Iterable[str]:
    """Return the hosts of a store in a file. Hosts in a database server are left out."""
    location = context.params.get("location") or ""
    if "://" in location:
        return []
    with opened_store(location) as store:
        return list(open_reader(store, None).hosts)


@click.command("forget")
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...", shell_complete=_hosts)
@store_option
def forget(hosts: tuple[str, ...], location: str) -> int:
    """Delete decommissioned hosts from the store.

    Their reports and runs are deleted, too. If a host sends another report, it reappears.

    \b
    Example:
      puller fleet forget web7.example.com

    Exit status: 0, or 1 for an unknown host.
    """
    with opened_store(location) as store:
        from puller.fleet.store.importer import forget_hosts  # needs the extra fleet

        with store.writing() as connection:
            known = forget_hosts(connection, hosts)
    for name in known:
        say(f"{name}: forgotten")
    unknown = [name for name in hosts if name not in known]
    for name in unknown:
        warn(f"{name}: the store has no report of this host")
    return ExitStatus.NO if unknown else ExitStatus.OK
