"""``--format json``: the result of a command as one document on stdout (``puller.reporting.results``)."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from puller.cli.output import show
from puller.reporting.results import Result, described_problems
from puller.reporting.run_problems import described, status_of

_Result = TypeVar("_Result", bound=Result)


def print_result(result: Result) -> int:
    """Print a document. Return its exit status."""
    show(msgspec.to_builtins(result), "json")
    return result.exit_status


def print_result_of(kind: type[_Result], action: Callable[[], _Result]) -> int:
    """Print the result of an action, or a document with its problems after an error. Return the exit status.

    Raise the errors that are bugs.
    """
    try:
        result = action()
    except Exception as error:
        if (status := status_of(error)) is None:
            raise
        result = kind(exit_status=status, problems=described_problems(described(error)))
    return print_result(result)
