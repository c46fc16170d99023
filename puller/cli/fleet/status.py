"""``puller fleet status``, ``facts`` and ``page``: an overview of the fleet, as text, files and static pages.

``facts`` writes files like those of `puller facts -o`.
"""

import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from bundles.filesystem.safe_paths import OutputTree
from foundation.extras import how_to_install
from foundation.formatting import plain
from foundation.problems import ProblemCode
from foundation.quantities import counted, first_few
from foundation.times import iso_text, minute_text
from puller.cli.fleet.fleet import (
    open_reader,
    opened_store,
    parse_conditions,
    silent_option,
    store_option,
    where_option,
)
from puller.cli.options import DURATION, output_option, text_format_option
from puller.cli.output import print_table, say, show
from puller.errors import SourceError, UsageError, file_problem
from puller.fleet.views import Condition
from puller.values.colour import can_redraw

if TYPE_CHECKING:
    from puller.fleet.store.queries import Reader
    from puller.fleet.views import FailureView, HostRow


_MOST = 10
_SHORT = 110


@click.command("status")
@store_option
@click.option("--bundle", metavar="NAME", help="Only hosts that enforce this bundle, or that should.")
@click.option("--failed", is_flag=True, help="Only hosts that failed, rolled back, or are held.")
@click.option("--silent", type=DURATION, help="Only hosts without a report for this time, such as 2h.")
@where_option
@silent_option
@text_format_option
def status(
    location: str,
    bundle: str | None,
    *,
    failed: bool,
    silent: timedelta | None,
    conditions: tuple[str, ...],
    silent_after: timedelta | None,
    output_format: str,
) -> None:
    """Show the state of the fleet.

    The summary has the hosts by state, the versions of each bundle, failures, and silent hosts. With --failed,
    --silent or --where, the command lists hosts, one a line. Repeated conditions must all match.

    \b
    Example:
      puller fleet status
      puller fleet status --bundle web
      puller fleet status --failed --where os.release.major=12
      puller fleet status --silent 1d --format json
    """
    desired = parse_conditions(conditions)
    with opened_store(location) as store:
        reader = open_reader(store, silent_after)
        if failed or silent or conditions:
            rows = list(reader.hosts.values())
            if silent:
                since = reader.now - silent
                rows = [row for row in rows if row.heard is not None and row.heard < since]
            if failed:
                rows = [row for row in rows if row.state in _FAILED]
            if bundle:
                of_bundle = {row["host"] for row in reader.standings(bundle)}
                rows = [row for row in rows if row.name in of_bundle]
            if conditions:
                holds = {name for name, facts in reader.facts([row.name for row in rows]) if desired(facts)}
                rows = [row for row in rows if row.name in holds]
            _print_hosts(rows, output_format)
            return
        if output_format == "json":
            show(_plain(reader, bundle, reader.refused_files(0)[0]), "json")
        elif bundle:
            _print_bundle(reader, bundle)
        else:
            _print_fleet(reader, *reader.refused_files(5))


_FAILED = ("failed", "gave-up", "held")


def _print_hosts(rows: "Sequence[HostRow]", output_format: str) -> None:
    if output_format == "json":
        show([_plain_host(row) for row in rows], "json")
    elif rows:
        print_table(("host", "state", "last report", "bundles", "reason"), [_line(row) for row in rows])
    else:
        say("no host matches")


def _line(row: "HostRow") -> tuple[str, ...]:
    versions = _short(", ".join(map(" ".join, row.bundles.items())))
    return row.name, Condition(row.state).label, _time(row.heard), versions, _short(row.why)


def _print_fleet(reader: "Reader", refused: int, files: Any) -> None:
    fleet = reader.fleet(refused)

    counts = ", ".join(f"{count} {Condition(word).label}" for word, count in fleet.states.items())
    say(f"{counted(fleet.hosts, 'host')}: {counts}" if fleet.hosts else "no report of any host was imported")
    for bundle in fleet.bundles:
        _print_bundle(reader, bundle.name)
    if fleet.failures:
        say("\nfailures:")
        _print_failures(fleet.failures)
    if fleet.silent:
        say(f"\nsilent for {_hours(reader)}:")
        for row in fleet.silent[:_MOST]:
            say(f"  {row.name}, last {_time(row.heard)}")
        _print_more(len(fleet.silent))
    if fleet.expiring:
        say("\nmetadata of the site expire:")
        for row, when in fleet.expiring[:_MOST]:
            say(f"  {row.name}, {_time(when)}")
        _print_more(len(fleet.expiring))
    if fleet.rebooting:
        say(f"\npending reboots on {counted(len(fleet.rebooting), 'host')}:")
        for name in list(fleet.rebooting)[:_MOST]:
            for reboot in fleet.rebooting[name]:
                say(f"  {name}, {_short(str(reboot))}")
        _print_more(len(fleet.rebooting))
    if fleet.restless:
        say("\nrestless, changed in run after run:")
        for resource in fleet.restless[:_MOST]:
            say(
                f"  {_short(resource.reference)} ({_short(resource.bundle)}) on {counted(len(resource.hosts), 'host')}"
            )
        _print_more(len(fleet.restless))
    if refused:
        say(
            f"\n{counted(refused, 'file that arrived is not a report', 'files that arrived are not reports')}:"
        )
        for path, why in files.items():
            say(f"  {path}: {_short(why)}")


def _print_bundle(reader: "Reader", name: str) -> None:
    result = next((bundle for bundle in reader.bundles if bundle.name == name), None)
    say(f"\n{_short(name)}:" if result else f"no host has or follows a bundle {name!r}")
    if result is None:
        return
    rows = []

    for version in result.versions:
        states = ", ".join(f"{count} {Condition(word).label}" for word, count in version.states.items())
        remainder = [f"{version.on_trial} on trial"] if version.on_trial else []
        remainder += [f"{version.gave_up} rolled back"] if version.gave_up else []
        remainder += [f"{version.waiting} without it"] if version.waiting else []
        rows.append(
            (f"  {_short(version.version)}", counted(version.hosts, "host"), states, ", ".join(remainder))
        )
    print_table(("  version", "hosts", "states", ""), rows)


def _print_failures(failures: "Sequence[FailureView]") -> None:
    for failure in failures[:_MOST]:
        detail = f"{failure.reference}: " if failure.reference else ""
        say(f"  {counted(len(failure.hosts), 'host')}: {_short(detail + failure.message)}")
        say(f"    {first_few([host.name for host in failure.hosts])}, since {_time(failure.first)}")
    _print_more(len(failures))


def _print_more(count: int) -> None:
    if count > _MOST:
        say(f"  and {count - _MOST} more")


def _hours(reader: "Reader") -> str:
    hours = reader.silent_after.total_seconds() / 3600
    return f"{hours:g} h" if hours >= 1 else f"{hours * 60:g} min"


def _time(when: datetime | None) -> str:
    return minute_text(when) if when else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]}…"


# For programs


def _plain(reader: "Reader", bundle: str | None, refused: int) -> dict[str, Any]:
    fleet = reader.fleet(refused)
    return {
        "hosts": fleet.hosts,
        "states": dict(fleet.states),
        "heard": _iso(fleet.heard),
        "bundles": {
            item.name: [
                {
                    "version": version.version,
                    "hosts": version.hosts,
                    "states": dict(version.states),
                    "on_trial": version.on_trial,
                    "gave_up": version.gave_up,
                    "waiting": version.waiting,
                    "first": _iso(version.first),
                }
                for version in item.versions
            ]
            for item in fleet.bundles
            if bundle in (None, item.name)
        },
        "failures": [
            {
                "bundle": item.bundle,
                "resource": item.reference,
                "problem": plain(item.problem),
                "hosts": [host.name for host in item.hosts],
                "first": _iso(item.first),
                "last": _iso(item.last),
            }
            for item in fleet.failures
            if bundle in (None, item.bundle)
        ],
        "silent": [row.name for row in fleet.silent],
        "expiring": {row.name: _iso(when) for row, when in fleet.expiring},
        "reboots": {name: to_builtins(items) for name, items in fleet.rebooting.items()},
        "restless": [
            {"bundle": item.bundle, "resource": item.reference, "hosts": list(item.hosts)}
            for item in fleet.restless
        ],
        "refused": fleet.refused,
    }


def _plain_host(row: "HostRow") -> dict[str, Any]:
    return {
        "host": row.name,
        "state": row.state,
        "why": row.why,
        "heard": _iso(row.heard),
        "system": row.system,
        "bundles": dict(row.bundles),
    }


def _iso(when: datetime | None) -> str | None:
    return iso_text(when) if when else None


@click.command("facts")
@store_option
@where_option
@output_option("The directory for the files.", "--to", metavar="DIR", required=True)
def facts(location: str, conditions: tuple[str, ...], output: Path) -> None:
    """Write the latest facts of each host to a file HOST.json.

    Hosts send the facts that `reports: facts` in their configuration names. `puller preview` reads these files, or the
    store itself.

    \b
    Example:
      puller fleet facts --where os.family=Debian -o facts
      puller preview web --fleet fleet.db
    """
    desired = parse_conditions(conditions)
    count = 0
    with opened_store(location) as store:
        reader = open_reader(store, None)
        try:
            tree = OutputTree(output)
            tree.sync()  # also makes the directory, if no host matches
            for name, found in reader.facts():
                if desired(found):
                    text = json.dumps(found, indent=2, sort_keys=True)
                    tree.write(f"{name}.json", [f"{text}\n".encode()])
                    count += 1
            tree.close()
        except OSError as error:
            raise SourceError(
                file_problem(error, "cannot be written", where=error.filename or output),
                code=ProblemCode.UNWRITABLE_OUTPUT,
            ) from error
    say(f"{output}: facts of {counted(count, 'host')}")


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
            from puller.fleet.pages.pages import make_pages  # needs matplotlib of the extra fleet
        except ImportError:
            detail = "the pages' pictures need matplotlib, which is not installed"
            raise UsageError(
                f"{detail}. {how_to_install('fleet')}", code=ProblemCode.MISSING_DEPENDENCY
            ) from None
        began = time.monotonic()
        reader = open_reader(store, silent_after)
        refused, _ = reader.refused_files()
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
