"""The options of every way to ensure a resource, and the run that they ask for."""

import time
from pathlib import Path
from typing import Any

import click

from puller.cli.options import Decorator, data_options, fact_options, job_options, together
from puller.engine import sessions
from puller.engine.ensure import Wanted, ensure
from puller.engine.sessions import Session
from puller.reporting.log import Log
from puller.reporting.report import Event, Summary
from puller.run.host import load_inputs
from puller.run.jobs import Options
from puller.system.signals import Stopped, StopRequests

session_option: Decorator = click.option(
    "--session",
    "session_directory",
    envvar=sessions.VARIABLE,
    metavar="DIR",
    help=f"Record what happens in this session, and let references mean its events.  [env: {sessions.VARIABLE}]",
)
ensure_options = together(job_options, session_option, fact_options, data_options)
"""For ``run_one``."""


def run_one(
    wanted: Wanted, options: dict[str, Any], log: Log, *, diff: bool | None
) -> tuple[list[Event], int]:
    """Ensure a resource as the options of ``ensure_options`` say; gives its events and the exit status."""
    started, stops = time.perf_counter(), StopRequests(log.at_once)
    directory = options["session_directory"]
    session = Session.open(Path(directory)) if directory else None
    inputs = load_inputs(options).for_manifest()
    settings = Options(noop=options["noop"], diff=diff).settings(log, stops)
    with stops.handled():
        try:
            events = ensure(wanted, inputs, settings, stops, session)
        except Stopped as stop:
            log.error(f"{stop}; nothing was changed")
            return [], stop.exit_status
    summary = Summary.of(events, time.perf_counter() - started)
    return events, stops.exit_status or summary.exit_status(detailed=options["detailed_exitcodes"])
