"""One case, from its file to its result: the bundle is resolved for its machine, and judged.

Nothing but files is read, and nothing is written; where it is asked for, the bundle is applied in a private root, too.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from bundles.errors import BundleError
from foundation.formatting import place_text, text_without_place
from foundation.masking import mask_urls
from foundation.problems import Problem
from hiera.errors import HieraError
from puller.authoring.cases.case_files import CaseFile, LoadedCase, load_case
from puller.authoring.cases.expectations import judge, judge_refusal
from puller.authoring.cases.results import Failure, Result
from puller.authoring.cases.snapshots import (
    compare,
    is_of_this_format,
    read_snapshot,
    snapshot_of,
    snapshot_path,
)
from puller.authoring.resolution import Resolution, resolve
from puller.authoring.trials.asked import Trial
from puller.authoring.trials.trial import run_trial
from puller.data.sources import DataSource, Origin
from puller.errors import ConfigurationError, ManifestError, PullerError, UsageError, file_problem
from puller.facts.tree import described
from puller.manifest.manifest import Inputs
from puller.manifest.source import ManifestSource, open_source

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
