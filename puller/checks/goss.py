"""The tests of a gossfile. Each attribute that differs is reported as a sentence.

Unsupported parts are errors, and the check's deadline limits every test.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from bundles.deadline import Deadline, DeadlineError, aside
from hiera.errors import HieraError
from puller.checks.check_outcome import Answer, NotCarriedOut
from puller.checks.gossfile.machine import Machine, explained
from puller.checks.gossfile.matchers import Lines, matches
from puller.checks.gossfile.parsing import LARGEST, read
from puller.checks.kinds import GossRules
from puller.errors import PullerError, StoppedCommand, reason
from puller.system.protocol import System

_MOST_SHOWN = 80  # characters of a value
_STARTS_PROGRAMS = frozenset({"command", "interface", "package", "service"})
"""Kinds that start programs. They run in the main thread, and have their own timeout."""

_Answer = TypeVar("_Answer")


def ask(wanted: str | GossRules, deadline: Deadline, system: System) -> Answer:
    """Run all tests of the gossfile at an absolute path, or the tests of a manifest.

    Raises ``NotCarriedOut`` for an unreadable or unsupported file, and if some tests have no result while no other test
    fails. Raises ``DeadlineError``.
    """
    is_inline = isinstance(wanted, GossRules)
    name = "goss_rules" if is_inline else os.path.basename(wanted)
    tests, problems = read(wanted if is_inline else _text(wanted), name)
    if problems:
        suffix = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise NotCarriedOut(f"{name}: {problems[0]}{suffix}")
    machine = Machine(system, deadline)
    wrong, unknown, requested = [], [], 0
    for test in tests:
        if test.skip:
            continue
        where = f"{test.kind} {test.name}"
        try:
            values = _bounded(test.kind, deadline, partial(machine.values, test))
            for attribute, matcher in test.wanted.items():
                deadline.verify()
                requested += 1
                if attribute not in values:
                    if not _is_about_nothing(test.wanted, values):
                        wrong.append(f"{where}: {attribute} is missing, expected {_shown(matcher)}")
                elif not matches(result := _bounded(test.kind, deadline, values[attribute]), matcher):
                    wrong.append(f"{where}: {attribute} is {_shown(result)}, expected {_shown(matcher)}")
        except (DeadlineError, StoppedCommand):
            raise
        except (NotCarriedOut, HieraError, PullerError) as error:
            unknown.append(f"{where}: {error}")
        except OSError as error:
            deadline.verify()
            unknown.append(f"{where}: {explained(error)}")
    if not wrong and unknown:
        raise NotCarriedOut("; ".join(unknown))
    skipped = sum(test.skip for test in tests)
    return Answer(
        [*wrong, *unknown], f"{requested} tests passed" + (f", {skipped} skipped" if skipped else "")
    )


def _bounded(kind: str, deadline: Deadline, work: Callable[[], _Answer]) -> _Answer:
    """Run a test, in another thread if a file server or a resolver may block it beyond the deadline."""
    return work() if kind in _STARTS_PROGRAMS else aside(work, deadline)


def _is_about_nothing(desired: Any, values: Any) -> bool:
    """Return whether the test requires absence, which makes its other attributes irrelevant, as in Goss."""
    first = next(iter(values))
    return desired.get(first) is False and values[first]() is False


def _text(path: str) -> str:
    if not os.path.isabs(path):
        raise NotCarriedOut(f"{path}: is not a file of the bundle")
    try:
        with open(path, "rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise NotCarriedOut(f"{path}: {reason(error)}") from error
    if len(data) > LARGEST:
        raise NotCarriedOut(f"{path}: has more than {LARGEST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotCarriedOut(f"{path}: is not valid UTF-8: {error}") from error


def _shown(value: Any) -> str:
    # Command output and file contents are long and may be confidential.
    if isinstance(value, Lines):
        return f"a text of {len(value)} characters"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
