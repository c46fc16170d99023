"""``puller facts``: what is known about this machine."""

from collections.abc import Mapping
from typing import Any

import click

from puller.cli.options import fact_options, format_option
from puller.cli.output import show, warn
from puller.exit_status import ExitStatus
from puller.facts.given import facts_from


@click.command()
@click.argument("path", required=False)
@format_option
@click.option("--legacy", is_flag=True, help="Show Facter's legacy flat names too.")
@fact_options
def facts(path: str | None, output_format: str, legacy: bool, **options: Any) -> int:
    """Show all facts of this machine, or the one at PATH.

    Only what PATH needs is gathered. A single value is printed plain, for scripts.

    \b
      puller facts
      puller facts os.release.major
      puller facts networking.interfaces.eth0.ip
      puller facts --format json > host.json

    Exit status: 0, or 1 when there is no fact at PATH. What could not be read is said on stderr.
    """
    found = facts_from(options)
    status = ExitStatus.OK
    if path:
        status = _show_at(path, found, output_format)
    else:
        show(found.as_dict(legacy=legacy), output_format)
    # Last: a source is tried, and fails, when a fact of it is asked for.
    for problem in found.problems:
        warn(str(problem))
    return status


def _show_at(path: str, found: Any, output_format: str) -> ExitStatus:
    from hiera.values import paths

    steps = _steps(path)
    value = paths.find(found, steps)
    if value is paths.MISSING:
        warn(_missing(found, steps))
        return ExitStatus.NO
    show(_plain_text(value) if output_format == "yaml" else value, output_format)
    return ExitStatus.OK


def _steps(path: str) -> tuple[str, ...]:
    from hiera.errors import ExpressionError
    from hiera.values.paths import parse_path
    from puller.errors import UsageError

    try:
        return parse_path(path)
    except ExpressionError as error:
        raise UsageError(str(error)) from error


def _plain_text(value: Any) -> Any:
    """A scalar as a shell script wants it: ``true``, ``12``, ``bookworm``, and nothing for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _missing(found: Any, steps: tuple[str, ...]) -> str:
    """Why there is nothing at a path, with the nearest names that there are."""
    from hiera.values.paths import first_missing, path_text
    from puller.values.suggestions import did_you_mean

    above, count = first_missing(found, steps)
    place = path_text(steps[:count])
    what = f"no fact {path_text(steps)!r}"
    if isinstance(above, list):
        return f"{what}: {place} is a list of {len(above)}, counted from 0"
    if not isinstance(above, Mapping):
        return f"{what}: {place} is {above!r}, which has nothing below it"
    names = [path_text([*steps[:count], name]) for name in above]
    return what + did_you_mean(path_text(steps[: count + 1]), names)
