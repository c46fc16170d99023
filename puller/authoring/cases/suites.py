"""All cases of a bundle, spread over processors; results come in the order of the cases."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bundles.filesystem.output import write_output
from foundation.problems import ProblemCode
from puller.authoring.cases.case_files import TESTS, CaseFile, find_cases
from puller.authoring.cases.results import Result
from puller.authoring.cases.running import BundleWithCases, Settings, run_case
from puller.authoring.cases.snapshots import read_snapshot, snapshot_path, stale_snapshots
from puller.errors import ConfigurationError, file_problem

_FEW: Final = 8
"""Cases that are run sooner than another process is started."""


class Suite(msgspec.Struct, frozen=True):
    """The cases of one bundle that are to be run."""

    bundle: BundleWithCases
    cases: Sequence[CaseFile]
    all_names: Sequence[str]
    """Of all cases that the bundle has."""

    @property
    def without_any(self) -> str:
        """A sentence about a bundle that has no case; empty where it has some."""
        shown = self.bundle.shown or "."
        return (
            ""
            if self.all_names
            else f"{shown}: has no cases, wanted files such as {shown}/{TESTS}/web01.yaml"
        )


def suite_of(bundle: BundleWithCases, only: Sequence[str] = ()) -> Suite:
    """The cases of a bundle whose names fit one of the patterns; raises ``ConfigurationError``."""
    try:
        found = find_cases(bundle.directory, bundle.shown)
    except OSError as error:
        raise ConfigurationError(
            file_problem(error, "cannot be read"), code=ProblemCode.UNREADABLE_SOURCE
        ) from error
    chosen = [file for file in found if not only or any(fnmatchcase(file.name, pattern) for pattern in only)]
    return Suite(bundle, chosen, [file.name for file in found])


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def run_suite(suite: Suite, settings: Settings, jobs: int) -> Iterator[Result]:
    """The results of all its cases, in ``jobs`` processes at most; ends at once when it is interrupted."""
    run = partial(run_case, suite.bundle, settings=settings)
    workers = min(jobs, -(-len(suite.cases) // _FEW))
    if workers < 2:
        yield from map(run, suite.cases)
    else:
        yield from _spread(run, suite.cases, workers)


def _spread(run: "partial[Result]", cases: Sequence[CaseFile], workers: int) -> Iterator[Result]:
    # Forked: all that is imported and found out by now is there, and a few milliseconds are all that it costs.
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_die_with_the_user)
    try:
        with _undisturbed():
            parts = [cases[start : start + _FEW] for start in range(0, len(cases), _FEW)]
            futures = [executor.submit(_run_part, run, part) for part in parts]
        for future in futures:
            yield from future.result()
    except BaseException:
        # Whoever does not want the rest does not wait for it either. Nothing is cancelled: the executor's thread would
        # fail when it finds that, and its processes gone. It is waited for, as Python would fail to do at its end.
        for child in multiprocessing.active_children():
            child.terminate()
        executor.shutdown()
        raise
    executor.shutdown()


def _run_part(run: "partial[Result]", cases: Sequence[CaseFile]) -> list[Result]:
    return list(map(run, cases))


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until all processes are there: within a fork it would be lost, as Python cannot raise there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_the_user() -> None:
    """End at once, and without a word, with Ctrl-C: there is nothing to clean up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def update_snapshots(suite: Suite, results: Sequence[Result]) -> list[str]:
    """Write the snapshots of these results, and remove those that belong to none; gives a sentence for each.

    Raises ``ConfigurationError``.
    """
    directory, done = suite.bundle.directory, []
    with _explained():
        for result in results:
            if result.snapshot is not None:
                path = snapshot_path(directory, result.case)
                if _written(path, result.snapshot):
                    done.append(f"{_shown(suite, path)}: written")
        if len(results) == len(suite.all_names):
            for path in _stale(suite, results):
                path.unlink()
                done.append(f"{_shown(suite, path)}: removed")
    if suite.cases and all(result.snapshot is None and result.passed for result in results) and not done:
        done.append("no snapshot is written: no case says `snapshot: true`")
    return done


def _written(path: Path, text: str) -> bool:
    """Write a snapshot; false where it is the same."""
    with contextlib.suppress(FileNotFoundError, ValueError):  # what cannot be a snapshot is replaced
        if read_snapshot(path) == text:
            return False
    write_output(path, text.encode(), make_directories=True)
    return True


def _stale(suite: Suite, results: Sequence[Result]) -> list[Path]:
    """Snapshots of no case that asks for one; those of a case that failed are kept."""
    kept = [result.case for result in results if result.snapshot is not None or not result.passed]
    return stale_snapshots(suite.bundle.directory, kept)


def notes_on_snapshots(suite: Suite) -> list[str]:
    """Sentences about snapshots whose case is gone."""
    stale = stale_snapshots(suite.bundle.directory, suite.all_names)
    return [f"{_shown(suite, path)}: belongs to no case; `puller test --update` removes it" for path in stale]


def _shown(suite: Suite, path: Path) -> str:
    return os.path.join(suite.bundle.shown, path.relative_to(suite.bundle.directory))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            file_problem(error, "cannot be written"), code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error
