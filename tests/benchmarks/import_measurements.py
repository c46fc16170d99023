"""Measure an importer over public sources: each one is imported and linted, and the outcomes are counted.

A source that cannot be imported is a rejection, and any other exception a crash. Both are results of the measurement.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from puller.authoring.cases.contexts import open_contexts
from puller.authoring.importing.draft import Draft, Outcome, Remark, write_draft
from puller.authoring.lint.check import Linted, lint_on_each
from puller.authoring.lint.findings import Severity
from puller.errors import PullerError
from puller.manifest.manifest import open_source

LISTS = ("unmapped", "remark", "errors", "sources")


class Measured(msgspec.Struct):
    """The result for one source."""

    name: str
    draft: Draft | None = None
    linted: Linted | None = None
    crash: str = ""
    rejection: str = ""


def measure(name: str, target: Path, make: Callable[[], Draft]) -> Measured:
    """Import one source and lint the draft."""
    result = Measured(name)
    try:
        result.draft = make()
        write_draft(result.draft, target)
        with ExitStack() as opened:
            source = opened.enter_context(open_source(str(target)))
            contexts = open_contexts(str(target), "", opened)
            result.linted = lint_on_each(source, [(context.inputs, context.before) for context in contexts])
    except PullerError as error:
        result.rejection = str(error)
    except Exception:  # noqa: BLE001  a crash is a result of the measurement
        result.crash = traceback.format_exc()
    return result


def measure_all(
    root: Path, sources: Iterable[Path], keep: Path | None, make: Callable[[Path, str], Draft]
) -> list[Measured]:
    """Import all sources below a directory, and print their number and the time."""
    begin, results = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        for path in sources:
            name = str(path.relative_to(root))
            target = (keep or Path(directory)) / name.replace("/", "+")
            results.append(measure(name, target, lambda path=path, name=name: make(path, name)))  # type: ignore[misc]
    print(f"{len(results)} sources, {time.monotonic() - begin:.1f} s")
    return results


def add_options(parser: argparse.ArgumentParser, *lists: str) -> None:
    """Add the options of both programs."""
    parser.add_argument("--list", choices=(*LISTS, *lists), default=None)
    parser.add_argument("--keep", type=Path, default=None)


def print_outcomes(results: Iterable[Measured], subject: str, is_apart: Callable[[Remark], bool]) -> None:
    """Print the number of source objects by outcome, and of drafts without errors."""
    results = list(results)
    outcomes: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for result in results:
        for remark in result.draft.remarks if result.draft else ():
            others = remark.outcome is Outcome.NO_CHANGE or is_apart(remark)
            (apart if others else outcomes)[remark.outcome] += 1
    total = sum(outcomes.values()) or 1
    print(f"{total} {subject}, {sum(apart.values())} other objects")
    for outcome in (Outcome.MAPPED, Outcome.REMARK, Outcome.UNMAPPED):
        part = 100 * outcomes[outcome] / total
        print(f"{outcome:10} {outcomes[outcome]:5} {part:5.1f} %   others {apart[outcome]}")
    clean = [result for result in results if result.linted is not None and not result.linted.has_errors]
    print(f"drafts without an error of lint: {len(clean)} ({100 * len(clean) / max(1, len(results)):.0f} %)")
    print(f"rejected: {sum(bool(result.rejection) for result in results)}")
    print(f"crashes: {sum(bool(result.crash) for result in results)}")


def print_list(kind: str | None, results: Iterable[Measured], is_apart: Callable[[Remark], bool]) -> None:
    """Print the most frequent reasons or errors of lint. ``sources`` names the source of each error."""
    counts: Counter[str] = Counter()
    for result in results:
        if kind in ("unmapped", "remark") and result.draft:
            for remark in result.draft.remarks:
                if remark.outcome == kind and not is_apart(remark):
                    counts.update(f"{remark.kind}: {reason[:150]}" for reason in remark.reasons)
        if kind in ("errors", "sources") and result.linted:
            for finding in result.linted.of(Severity.ERROR):
                text = f"{result.name}: {finding}" if kind == "sources" else finding.message
                counts[text[:300]] += 1
    print_counts(counts, 80 if kind != "sources" else 1000)


def print_counts(counts: Counter[str], most: int = 80) -> None:
    """Print texts with their numbers, the most frequent first."""
    for text, number in counts.most_common(most):
        print(f"{number:4} {text}")


def exit_status(results: Iterable[Measured]) -> int:
    """Print crashes and rejections. Return 1 after a crash."""
    results = list(results)
    for result in results:
        if result.crash:
            print(f"{result.name}\n{result.crash}", file=sys.stderr)
        if result.rejection:
            print(f"{result.name}: {result.rejection}", file=sys.stderr)
    return 1 if any(result.crash for result in results) else 0
