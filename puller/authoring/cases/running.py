"""Runs of test cases: one case from its file to its result, and all cases of a bundle in parallel.

* A case resolves the bundle for its machine and compares the outcome with the expectations. A case reads only files
  and writes none.
* With ``--apply`` a case also applies the bundle in a private root (``docs/trials.md``).
* The cases of a bundle run in several processes. Their results are in the order of the cases.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bundles.errors import BundleError
from bundles.filesystem.safe_paths import write_output
from foundation.formatting import place_text, text_without_place
from foundation.masking import mask_urls
from foundation.problems import Problem, ProblemCode
from hiera.errors import HieraError
from hiera.sops.identities import OPAQUE
from puller.authoring.cases.case_files import TESTS, CaseFile, LoadedCase, find_cases, load_case
from puller.authoring.cases.expectations import (
    compare,
    is_of_this_format,
    judge,
    judge_refusal,
    read_snapshot,
    snapshot_of,
    snapshot_path,
    stale_snapshots,
)
from puller.authoring.cases.results import Failure, Result
from puller.authoring.cases.trial import Trial, run_trial
from puller.authoring.resolution import Resolution, resolve
from puller.data.sources import DataSource, Origin
from puller.errors import ConfigurationError, ManifestError, PullerError, UsageError, file_problem
from puller.facts.fact_tree import described
from puller.manifest.manifest import Inputs, ManifestSource, open_source

_KEY: Final = b"digests in snapshots, of nothing secret"
"""A constant, so that digests in snapshots are equal everywhere. They are digests of non-secret contents."""


class Settings(msgspec.Struct, frozen=True):
    """The options of a run."""

    private_key: str
    """The file of the key for encrypted values in a bundle's Hiera tree."""
    update: bool = False
    """Whether to write snapshots instead of comparing them."""
    apply: bool = False
    """Whether to also apply each case to its tree."""
    tree: str = ""
    """The tree of cases without their own tree."""


class BundleWithCases(msgspec.Struct, frozen=True):
    """A bundle with cases."""

    manifest: Path
    shown: str
    """Its directory as the user named it. Empty for the working directory."""

    @property
    def directory(self) -> Path:
        return self.manifest.parent


def run_case(bundle: BundleWithCases, file: CaseFile, settings: Settings) -> Result:
    """Check one case. Problems of the case or the bundle are failures in the result."""
    start = time.perf_counter()
    snapshot: str | None = None
    failures: list[Failure]
    try:
        loaded = load_case(file)
        resolution = _resolved(bundle, loaded, settings)
        if isinstance(resolution, Resolution):
            failures = [_placed(failure, bundle) for failure in judge(loaded, resolution)]
            if loaded.case.snapshot:
                snapshot = snapshot_of(resolution, bundle.directory)
                failures += _compared(snapshot, bundle, file, loaded, settings)
            if settings.apply and not failures and not loaded.case.fails:
                failures = _tried(bundle, file, loaded, settings)
        else:
            failures = list(judge_refusal(loaded, resolution))
    except ManifestError as error:
        failures = [_of_case(problem, file) for problem in error.problems]
    except (PullerError, OSError, HieraError, BundleError) as error:
        failures = [Failure(where=file.shown, message=f"cannot be run: {error}")]
    return Result(
        bundle=bundle.shown,
        case=file.name,
        file=file.shown,
        failures=tuple(map(_masked, failures)),
        seconds=time.perf_counter() - start,
        snapshot=snapshot if settings.update else None,
    )


def _of_case(problem: Problem, file: CaseFile) -> Failure:
    """Return the failure for a problem of the case itself."""
    where = place_text(problem.location) if problem.location.file else file.shown
    return Failure(where=where, message=text_without_place(problem), problem=problem)


def _masked(failure: Failure) -> Failure:
    """Return a failure without passwords in URLs, which names of resources may contain."""
    return msgspec.structs.replace(
        failure,
        message=mask_urls(failure.message),
        expected=mask_urls(failure.expected),
        found=mask_urls(failure.found),
    )


def _placed(failure: Failure, bundle: BundleWithCases) -> Failure:
    """Return a failure with the path of the declaration as the user knows it."""
    if not failure.declared or not bundle.shown:
        return failure
    return msgspec.structs.replace(failure, declared=f"{bundle.shown}/{failure.declared}")


def _resolved(bundle: BundleWithCases, loaded: LoadedCase, settings: Settings) -> Resolution | list[Problem]:
    """Return the resolved bundle, or the problems of its manifest. Raises if the case itself cannot run."""
    # A name inside the bundle, so that messages do not depend on the bundle's location.
    source = ManifestSource(bundle.manifest, bundle.manifest.name)
    with _before(bundle, loaded) as before:
        try:
            return resolve(source, _inputs(loaded, settings), key=_KEY, before=before)
        except ManifestError as error:
            return list(error.problems)
        except HieraError as error:
            return list(error.problems)


def _tried(bundle: BundleWithCases, file: CaseFile, loaded: LoadedCase, settings: Settings) -> list[Failure]:
    """Apply the bundle twice, and return all failures. Raises ``UsageError`` without a tree."""
    tree = os.path.join(bundle.directory, loaded.case.tree) if loaded.case.tree else settings.tree
    if not tree:
        raise UsageError("requires a tree: set tree in the case, or pass --tree")
    case = loaded.case
    with _before(bundle, loaded) as before:
        sources = (*before, ManifestSource(bundle.manifest, bundle.manifest.name))
        trial = Trial(
            tree=os.path.abspath(tree),
            manifests=tuple((os.path.abspath(source.path), source.name) for source in sources),
            facts=loaded.facts,
            data=((f"{loaded.places.source}: data", case.data),) if case.data else (),
            environ=case.environ,
            private_key=os.path.abspath(settings.private_key),
        )
        return [Failure(where=file.shown, message=sentence) for sentence in run_trial(trial).failures]


@contextlib.contextmanager
def _before(bundle: BundleWithCases, loaded: LoadedCase) -> Iterator[list[ManifestSource]]:
    with contextlib.ExitStack() as opened:
        found = []
        for name in loaded.case.before:
            source = opened.enter_context(open_source(str(bundle.directory / name)))
            found.append(ManifestSource(source.path, f"{name.rstrip('/')}/{source.path.name}"))
        yield found


def _inputs(loaded: LoadedCase, settings: Settings) -> Inputs:
    case = loaded.case
    data = (DataSource(Origin.COMMAND_LINE, f"{loaded.places.source}: data", case.data),) if case.data else ()
    return Inputs(described(loaded.facts), case.environ, data, settings.private_key, OPAQUE)


def _compared(
    now: str, bundle: BundleWithCases, file: CaseFile, loaded: LoadedCase, settings: Settings
) -> Iterator[Failure]:
    """Yield the changes since the snapshot was written, or nothing if it is rewritten."""
    if settings.update:
        return
    where = loaded.places.where(("snapshot",))
    path = snapshot_path(bundle.directory, file.name)
    shown = str(path.relative_to(bundle.directory))
    advice = "`puller test --update` writes it"
    try:
        before = read_snapshot(path)
    except FileNotFoundError:
        yield Failure(where=where, message=f"{shown}: the snapshot is missing; {advice}")
        return
    except (OSError, ValueError) as error:
        said = file_problem(error, "cannot be read", where=path) if isinstance(error, OSError) else str(error)
        raise ConfigurationError(said) from error
    if not is_of_this_format(before):
        yield Failure(where=where, message=f"{shown}: has the format of another version of Puller; {advice}")
    elif diff := compare(before, now, shown):
        message = f"{shown}: differs from the result of the bundle; if the result is correct, {advice}"
        yield Failure(where=where, message=message, diff=diff)


# All cases of a bundle, in several processes.

_FEW: Final = 8
"""Number of cases that run faster than another process starts."""


class Suite(msgspec.Struct, frozen=True):
    """The selected cases of one bundle."""

    bundle: BundleWithCases
    cases: Sequence[CaseFile]
    all_names: Sequence[str]
    """Names of all cases of the bundle."""

    @property
    def without_any(self) -> str:
        """A sentence about a bundle without cases. Empty if it has some."""
        shown = self.bundle.shown or "."
        return (
            ""
            if self.all_names
            else f"{shown}: contains no cases, expected files such as {shown}/{TESTS}/web01.yaml"
        )


def suite_of(bundle: BundleWithCases, only: Sequence[str] = ()) -> Suite:
    """Return the cases of a bundle whose names match a pattern. Raises ``ConfigurationError``."""
    try:
        found = find_cases(bundle.directory, bundle.shown)
    except OSError as error:
        raise ConfigurationError(
            file_problem(error, "cannot be read"), code=ProblemCode.UNREADABLE_SOURCE
        ) from error
    chosen = [file for file in found if not only or any(fnmatchcase(file.name, pattern) for pattern in only)]
    return Suite(bundle, chosen, [file.name for file in found])


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def run_suite(suite: Suite, settings: Settings, jobs: int) -> Iterator[Result]:
    """Yield the results of all cases, from at most ``jobs`` processes. An interrupt ends it at once."""
    run = partial(run_case, suite.bundle, settings=settings)
    workers = min(jobs, -(-len(suite.cases) // _FEW))
    if workers < 2:
        yield from map(run, suite.cases)
    else:
        yield from _spread(run, suite.cases, workers)


def _spread(run: "partial[Result]", cases: Sequence[CaseFile], workers: int) -> Iterator[Result]:
    # Forked, so that the children have all imported modules and caches. A fork costs a few milliseconds.
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_die_with_the_user)
    try:
        with _undisturbed():
            parts = [cases[start : start + _FEW] for start in range(0, len(cases), _FEW)]
            futures = [executor.submit(_run_part, run, part) for part in parts]
        for future in futures:
            yield from future.result()
    except BaseException:
        # The caller does not want the remaining results. The futures are not cancelled, because the executor's thread
        # would fail on cancelled futures of dead processes. The shutdown waits here, because waiting at the exit of
        # Python fails.
        for child in multiprocessing.active_children():
            child.terminate()
        executor.shutdown()
        raise
    executor.shutdown()


def _run_part(run: "partial[Result]", cases: Sequence[CaseFile]) -> list[Result]:
    return list(map(run, cases))


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay Ctrl-C until all processes exist. Within a fork, Python cannot raise KeyboardInterrupt."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_the_user() -> None:
    """End silently at Ctrl-C, because there is nothing to clean up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def update_snapshots(suite: Suite, results: Sequence[Result]) -> list[str]:
    """Write the snapshots of these results, and remove stale ones. Return a sentence for each.

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
        done.append("no snapshot is written, because no case has `snapshot: true`")
    return done


def _written(path: Path, text: str) -> bool:
    """Write a snapshot. Return false if it is unchanged."""
    with contextlib.suppress(FileNotFoundError, ValueError):  # an invalid snapshot is replaced
        if read_snapshot(path) == text:
            return False
    write_output(path, text.encode(), make_directories=True)
    return True


def _stale(suite: Suite, results: Sequence[Result]) -> list[Path]:
    """Return the snapshots without a case that requests one. Snapshots of failed cases stay."""
    kept = [result.case for result in results if result.snapshot is not None or not result.passed]
    return stale_snapshots(suite.bundle.directory, kept)


def notes_on_snapshots(suite: Suite) -> list[str]:
    """Return sentences about snapshots whose case is missing."""
    stale = stale_snapshots(suite.bundle.directory, suite.all_names)
    return [
        f"{_shown(suite, path)}: does not belong to any case; `puller test --update` removes it"
        for path in stale
    ]


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
