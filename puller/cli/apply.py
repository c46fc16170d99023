"""``puller apply``: apply a manifest, a directory or a bundle file; needs no site and no configuration."""

import contextlib
import sys
import time
from typing import Any

import click

from puller.applying import apply_manifest
from puller.cli.inputs import data_options, load_inputs
from puller.cli.options import fact_options
from puller.engine import Settings
from puller.exit_status import ExitStatus, worst
from puller.lock import only_run
from puller.log import Log, verbosity
from puller.manifest.loader import load_manifest
from puller.manifest.source import open_source
from puller.report import Summary
from puller.signals import Stopped, StopRequests
from puller.state import Directories


@click.command()
@click.argument("source")
@click.option("--noop", is_flag=True, help="Change nothing; say what would be changed.")
@click.option("--diff/--no-diff", default=None, help="Show what changes in files.  [default: on a terminal]")
@click.option(
    "--detailed-exitcodes", is_flag=True, help="Exit with 2 when changes were made (6 with failures)."
)
@click.option("-v", "--verbose", is_flag=True, help="Show stable resources too.")
@click.option("-q", "--quiet", is_flag=True, help="Show only what failed.")
@fact_options
@data_options
def apply(
    source: str,
    noop: bool,
    diff: bool | None,
    detailed_exitcodes: bool,
    verbose: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Apply SOURCE to this machine: a manifest, a directory with a manifest.yaml, or a bundle file.

    A resource is changed only where it differs; a second run changes nothing.

    \b
      puller apply web --noop --diff
      puller apply web-1.4.0.tar.gz
      puller apply manifest.yaml --fact role=db --data local.yaml

    Exit status: 0 in the desired state, 4 resources failed, 6 some failed and others changed, 13 the manifest is not
    valid, 75 another run is at work.
    """
    log = Log(sys.stdout, level=verbosity(verbose=verbose, quiet=quiet))
    stops = StopRequests()
    started = time.perf_counter()
    directories = Directories.of_user()
    with stops.handled(), contextlib.ExitStack() as stack:
        try:
            if not noop:  # a dry run writes nothing, so it needs no lock, and may run beside another
                stack.enter_context(only_run(directories.run))
            found = stack.enter_context(open_source(source))
            inputs = load_inputs(options)
            for problem in inputs.problems():
                log.warn(problem)
            manifest = load_manifest(found.path, found.name, inputs.for_manifest())
            if manifest.pre_message:
                click.echo(manifest.pre_message)
            settings = Settings(
                noop=noop,
                diffs=sys.stdout.isatty() if diff is None else diff,
                listener=log.event,
                log=log.notice,
                stopping=lambda: stops.reason,
            )
            applied = apply_manifest(
                manifest, settings, stops, owed=directories.owed, scope=str(found.path), fetch=_fetch
            )
        except Stopped as stop:
            log.error(f"{stop}; nothing was changed")
            return stop.exit_status
    for note in applied.notes:
        log.warn(note)
    summary = Summary.of(applied.events, time.perf_counter() - started)
    log.notice(str(summary))
    status = worst(stops.exit_status, summary.exit_status(detailed=detailed_exitcodes))
    if status is ExitStatus.OK and manifest.post_message:
        click.echo(manifest.post_message)
    return status


def _fetch(url: str) -> bytes:
    """The content of a URL, for remote sources; what talks HTTP is imported only for them."""
    from puller.fetching import fetch_url

    return fetch_url(url)
