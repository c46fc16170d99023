"""Measure `puller import ansible` over public roles.

    python tests/benchmarks/bench_import.py ROLES [--list unmapped|remark|errors] [--keep DIRECTORY]

``ROLES`` is a directory with checkouts of roles and collections, which do not belong to this project. Each directory
with ``tasks/main.yml`` is a role. The program imports each role into a temporary directory, and runs lint with the test
cases of the draft.

The output has the number of tasks by outcome, the number of drafts without an error of lint, and the crashes. Tasks
that change nothing on a host (messages, queries, includes, variables) are counted apart. ``--list`` shows the most
frequent reasons, or the most frequent errors of lint.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec

from puller.authoring.cases.contexts import open_contexts
from puller.authoring.importing.ansible.importer import import_ansible
from puller.authoring.importing.draft import Draft, Outcome, write_draft
from puller.authoring.lint.check import Linted, lint_on_each
from puller.authoring.lint.findings import Severity
from puller.errors import PullerError
from puller.manifest.manifest import open_source

STRUCTURE = frozenset(
    {
        "include_tasks",
        "import_tasks",
        "include",
        "include_role",
        "import_role",
        "set_fact",
        "include_vars",
        "role",
        "variable",
    }
)


class Measured(msgspec.Struct):
    """The result for one role."""

    name: str
    draft: Draft | None = None
    linted: Linted | None = None
    crash: str = ""
    rejection: str = ""


def find_roles(root: Path) -> Iterator[Path]:
    """Yield the roles below a directory."""
    for tasks in sorted(root.rglob("tasks/main.y*ml")):
        role = tasks.parent.parent
        if not {"molecule", "tests", "test", "examples"} & set(role.relative_to(root).parts):
            yield role


def measure(role: Path, name: str, target: Path) -> Measured:
    """Import one role and lint the draft."""
    result = Measured(name)
    try:
        result.draft = import_ansible(role, name)
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


def main() -> int:
    """Run the measurement. Return 1 after a crash."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roles", type=Path)
    parser.add_argument("--list", choices=("unmapped", "remark", "errors", "roles"), default=None)
    parser.add_argument("--keep", type=Path, default=None)
    arguments = parser.parse_args()
    begin, results = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        for role in find_roles(arguments.roles):
            name = str(role.relative_to(arguments.roles))
            target = (arguments.keep or Path(directory)) / name.replace("/", "+")
            results.append(measure(role, name, target))
    outcomes: Counter[str] = Counter()
    apart = 0
    for result in results:
        for remark in result.draft.remarks if result.draft else ():
            if remark.outcome is Outcome.NO_CHANGE or remark.kind in STRUCTURE or not remark.kind:
                apart += 1
            else:
                outcomes[remark.outcome] += 1
    total = sum(outcomes.values()) or 1
    clean = [result for result in results if result.linted is not None and not result.linted.has_errors]
    print(f"{len(results)} roles, {time.monotonic() - begin:.1f} s")
    print(f"{total} tasks that change a host, {apart} other tasks")
    for outcome in (Outcome.MAPPED, Outcome.REMARK, Outcome.UNMAPPED):
        print(f"{outcome:10} {outcomes[outcome]:5} {100 * outcomes[outcome] / total:5.1f} %")
    print(f"drafts without an error of lint: {len(clean)} ({100 * len(clean) / max(1, len(results)):.0f} %)")
    print(f"rejected: {sum(bool(result.rejection) for result in results)}")
    print(f"crashes: {sum(bool(result.crash) for result in results)}")
    _print_list(arguments.list, results)
    for result in results:
        if result.crash:
            print(f"{result.name}\n{result.crash}", file=sys.stderr)
        if result.rejection:
            print(f"{result.name}: {result.rejection}", file=sys.stderr)
    return 1 if any(result.crash for result in results) else 0


def _print_list(kind: str | None, results: list[Measured]) -> None:
    counts: Counter[str] = Counter()
    for result in results:
        if kind in ("unmapped", "remark") and result.draft:
            for remark in result.draft.remarks:
                if remark.outcome == kind and remark.kind not in STRUCTURE:
                    counts.update(f"{remark.kind}: {reason[:150]}" for reason in remark.reasons)
        if kind in ("errors", "roles") and result.linted:
            for finding in result.linted.of(Severity.ERROR):
                text = f"{result.name}: {finding}" if kind == "roles" else finding.message
                counts[text[:300]] += 1
    for text, number in counts.most_common(80 if kind != "roles" else 1000):
        print(f"{number:4} {text}")


if __name__ == "__main__":
    sys.exit(main())
