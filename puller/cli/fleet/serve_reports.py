"""``puller fleet serve-reports``: a server for reports of hosts, for first steps and tests."""

import ipaddress
import logging
import signal
import threading
from pathlib import Path
from typing import Any

import click

from bundles.errors import SettingsError
from bundles.filesystem.safe_paths import open_output_directory
from foundation.problems import ProblemCode
from puller.cli.output import say, warn
from puller.fleet.receiving import ReportServer

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
