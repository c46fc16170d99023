"""``puller help CODE``: the meaning of a problem code, its causes and the fix."""

import click

from foundation.problem_pages import load_entries
from foundation.problems import ProblemCode
from foundation.suggestions import meant
from puller.cli.output import say
from puller.errors import UsageError


@click.command("help")
@click.argument("code")
def help_command(code: str) -> None:
    """Explain CODE, the code of a problem, as lint and reports show it.

    \b
    Example:
      puller help unknown-property
    """
    if code not in list(ProblemCode):
        raise UsageError(f"no problem has the code {code!r}", **meant(code, ProblemCode))
    say(f"{code}: {load_entries()[ProblemCode(code)].text()}")
