"""``puller ensure api pipe``: a request on standard input, the answer on standard output."""

import io
import sys
from typing import Any

import click

from foundation.problems import Problem, ProblemCode
from puller.cli.ensure.options import ensure_options, run_one
from puller.cli.output import show
from puller.engine.requests import parse_request, response
from puller.errors import UsageError
from puller.exit_status import ExitStatus
from puller.reporting.log import Log

_LIMIT = 16 * 1024 * 1024  # bytes of a request
_STOPPED = Problem(code=ProblemCode.STOPPED, message="stopped")


@click.group()
def api() -> None:
    """Ensure resources for other programs."""


@api.command()
@click.option("--yaml", "as_yaml", is_flag=True, help="Answer in YAML instead of JSON.")
@ensure_options
def pipe(as_yaml: bool, **options: Any) -> int:
    """Read one request from standard input, ensure the resource, and answer on standard output.

    \b
      echo '{"protocol": "io.choria.ccm.v1.resource.ensure.request", "type": "file",
             "properties": {"name": "/etc/motd", "ensure": "absent"}}' | puller ensure api pipe

    A request is JSON or YAML. The answer has the protocol, the error if there is one, and the state: what became of
    the resource. Exit status: as for the other types of puller ensure.
    """
    event, status = None, int(ExitStatus.USAGE)
    try:
        wanted = parse_request(_read())
        # Only the answer may be on standard output; and a diff is not for programs unless one asks for it.
        events, status = run_one(wanted, options, Log(io.StringIO()), diff=bool(options["diff"]))
        event = events[-1] if events else None
        problems = event.problems if event else [_STOPPED]
    except UsageError as refused:
        problems = list(refused.problems)
    show(response(event, problems), "yaml" if as_yaml else "json")
    return status


def _read() -> bytes:
    text = sys.stdin.buffer.read(_LIMIT + 1)  # one more tells a longer request from one that just fits
    if len(text) > _LIMIT:
        raise UsageError(f"request: is longer than {_LIMIT} bytes")
    return text
