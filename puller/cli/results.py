"""``--format json``: the result of a command as one document on stdout (``puller.reporting.results``)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from foundation.problems import Problem, ProblemCode
from puller.cli.output import show
from puller.reporting.report import Report
from puller.reporting.results import DescribedProblem, Result, described_problems
from puller.reporting.run_problems import described, status_of

_Result = TypeVar("_Result", bound=Result)


def report_of(reports: Sequence[Report]) -> tuple[Report | None, list[DescribedProblem]]:
    """Return the report that a job has appended, and its problems. A job without a report was stopped by a signal."""
    if reports:
        return reports[0], described_problems(reports[0].problems)
    stopped = Problem(code=ProblemCode.STOPPED, message="stopped by a signal before the first change")
    return None, described_problems([stopped])


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
