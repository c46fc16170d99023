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
from bundles.filesystem.output import write_output
from foundation.formatting import place_text, text_without_place
from foundation.masking import mask_urls
from foundation.problems import Problem, ProblemCode
from hiera.errors import HieraError
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
from puller.authoring.resolution import Resolution, resolve
from puller.authoring.trials.trial import Trial, run_trial
from puller.data.sources import DataSource, Origin
from puller.errors import ConfigurationError, ManifestError, PullerError, UsageError, file_problem
from puller.facts.fact_tree import described
from puller.manifest.manifest import Inputs, ManifestSource, open_source

_KEY: Final = b"digests in snapshots, of nothing secret"
"""The same everywhere, so that digests in snapshots are; they are of contents that may be shown."""


class Settings(msgspec.Struct, frozen=True):
    """The choices of whoever runs cases."""

    private_key: str
    """The file of the key for encrypted values in a bundle's Hiera tree."""
    update: bool = False
    """Whether snapshots are written anew instead of compared."""
    apply: bool = False
    """Whether each case is applied for real, too, on the tree that it names."""
    tree: str = ""
    """The tree of cases that name none."""


class BundleWithCases(msgspec.Struct, frozen=True):
    """A bundle with cases."""

    manifest: Path
    shown: str
    """As the user has named its directory; empty for the working directory."""

    @property
    def directory(self) -> Path:
        return self.manifest.parent


def run_case(bundle: BundleWithCases, file: CaseFile, settings: Settings) -> Result:
    """Check one case; whatever is wrong with it or with the bundle is a failure in the result."""
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
    """A failure without passwords in URLs, as all that commands say: names of resources may have some."""
    return msgspec.structs.replace(
        failure,
        message=mask_urls(failure.message),
        expected=mask_urls(failure.expected),
        found=mask_urls(failure.found),
    )


def _placed(failure: Failure, bundle: BundleWithCases) -> Failure:
    """A failure with the place of the declaration as the user knows it."""
    if not failure.declared or not bundle.shown:
        return failure
    return msgspec.structs.replace(failure, declared=f"{bundle.shown}/{failure.declared}")


def _resolved(bundle: BundleWithCases, loaded: LoadedCase, settings: Settings) -> Resolution | list[Problem]:
    """What the bundle comes to, or why its manifest is refused; raises where the case itself cannot be run."""
    # Named as in the bundle, so that messages are the same wherever it lies.
    source = ManifestSource(bundle.manifest, bundle.manifest.name)
    with _before(bundle, loaded) as before:
        try:
            return resolve(source, _inputs(loaded, settings), key=_KEY, before=before)
        except ManifestError as error:
            return list(error.problems)
        except HieraError as error:
            return list(error.problems)


def _tried(bundle: BundleWithCases, file: CaseFile, loaded: LoadedCase, settings: Settings) -> list[Failure]:
    """All that goes wrong when the bundle is applied twice; raises ``UsageError`` where there is no tree for it."""
    tree = os.path.join(bundle.directory, loaded.case.tree) if loaded.case.tree else settings.tree
    if not tree:
        raise UsageError("names no tree to be applied to, and there is no --tree")
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
    return Inputs(described(loaded.facts), case.environ, data, settings.private_key)


def _compared(
    now: str, bundle: BundleWithCases, file: CaseFile, loaded: LoadedCase, settings: Settings
) -> Iterator[Failure]:
    """What has changed since the snapshot was written; nothing where it is written anew."""
    if settings.update:
        return
    where = loaded.places.where(("snapshot",))
    path = snapshot_path(bundle.directory, file.name)
    shown = str(path.relative_to(bundle.directory))
    advice = "`puller test --update` writes it"
    try:
        before = read_snapshot(path)
    except FileNotFoundError:
        yield Failure(where=where, message=f"{shown}: is not there; {advice}")
        return
    except (OSError, ValueError) as error:
        said = file_problem(error, "cannot be read", where=path) if isinstance(error, OSError) else str(error)
        raise ConfigurationError(said) from error
    if not is_of_this_format(before):
        yield Failure(where=where, message=f"{shown}: is of another format than this version's; {advice}")
    elif diff := compare(before, now, shown):
        message = f"{shown}: is not what the bundle comes to; if that is as it must be, {advice}"
        yield Failure(where=where, message=message, diff=diff)


# All cases of a bundle, in several processes.

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
