"""Measure `puller import puppet` over public modules.

    python tests/benchmarks/bench_import_puppet.py MODULES [--list unmapped|remark|errors|templates] [--keep DIRECTORY]

``MODULES`` is a directory with modules, which do not belong to this project. Debian has about 90 of them in packages
named ``puppet-module-…``. Each directory with ``manifests/*.pp`` is a module. The program imports each module into a
temporary directory, and runs lint with the test cases of the draft.

The output has the number of resources by outcome, the number of drafts without an error of lint, the number of
converted templates, and the crashes. Classes, variables and checks are counted apart. ``--all-classes`` also applies
the classes that no other class includes, so that lint reads them too.
"""

import argparse
import re
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
from puller.authoring.importing.draft import Draft, Outcome, Resource, write_draft
from puller.authoring.importing.puppet.importer import import_puppet
from puller.authoring.lint.check import Linted, lint_on_each
from puller.authoring.lint.findings import Severity
from puller.errors import PullerError
from puller.manifest.manifest import open_source

APART = frozenset({"", "class", "variable", "function"})


class Measured(msgspec.Struct):
    """The result for one module."""

    name: str
    draft: Draft | None = None
    linted: Linted | None = None
    crash: str = ""
    rejection: str = ""


def find_modules(root: Path) -> Iterator[Path]:
    """Yield the modules below a directory."""
    for manifests in sorted(root.rglob("manifests")):
        parts = set(manifests.relative_to(root).parts)
        if manifests.is_dir() and any(manifests.rglob("*.pp")) and not parts & {"spec", "examples", "tests"}:
            yield manifests.parent


def apply_all(draft: Draft) -> None:
    """Apply the classes that no manifest applies."""
    applied = {
        item.name for manifest in draft.manifests.values() for item in manifest.resources if not item.disabled
    }
    top = draft.manifests["manifest.yaml"]
    top.resources = [item for item in top.resources if not item.disabled]
    for path in draft.manifests:
        if path.startswith("classes/") and f"bundle:{path}" not in applied:
            top.resources.append(Resource("apply", f"bundle:{path}"))


def measure(module: Path, name: str, target: Path, *, all_classes: bool) -> Measured:
    """Import one module and lint the draft."""
    result = Measured(name)
    try:
        result.draft = import_puppet(module, name)
        if all_classes:
            apply_all(result.draft)
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
    parser.add_argument("modules", type=Path)
    parser.add_argument(
        "--list", choices=("unmapped", "remark", "errors", "modules", "templates"), default=None
    )
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--all-classes", action="store_true")
    arguments = parser.parse_args()
    begin, results = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        for module in find_modules(arguments.modules):
            name = str(module.relative_to(arguments.modules))
            target = (arguments.keep or Path(directory)) / name.replace("/", "+")
            results.append(measure(module, name, target, all_classes=arguments.all_classes))
    outcomes: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for result in results:
        for remark in result.draft.remarks if result.draft else ():
            is_apart = remark.outcome is Outcome.NO_CHANGE or remark.kind in APART
            (apart if is_apart else outcomes)[remark.outcome] += 1
    total = sum(outcomes.values()) or 1
    clean = [result for result in results if result.linted is not None and not result.linted.has_errors]
    converted = sum(path.endswith(".j2") for result in results if result.draft for path in result.draft.files)
    kept = sum(
        path.startswith("templates/") and not path.endswith(".j2")
        for result in results
        if result.draft
        for path in result.draft.files
    )
    print(f"{len(results)} modules, {time.monotonic() - begin:.1f} s")
    print(f"{total} resources, {sum(apart.values())} classes, variables and checks")
    for outcome in (Outcome.MAPPED, Outcome.REMARK, Outcome.UNMAPPED):
        print(
            f"{outcome:10} {outcomes[outcome]:5} {100 * outcomes[outcome] / total:5.1f} %   apart {apart[outcome]}"
        )
    print(f"templates: {converted} converted, {kept} kept")
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
                if remark.outcome == kind:
                    counts.update(f"{remark.kind}: {reason[:150]}" for reason in remark.reasons)
        if kind == "templates" and result.draft:
            counts.update(
                re.sub(r".*is not converted: ", "", check)[:110]
                for check in result.draft.checks
                if "is not converted" in check
            )
        if kind in ("errors", "modules") and result.linted:
            for finding in result.linted.of(Severity.ERROR):
                text = f"{result.name}: {finding}" if kind == "modules" else finding.message
                counts[text[:300]] += 1
    for text, number in counts.most_common(80 if kind != "modules" else 1000):
        print(f"{number:4} {text}")


if __name__ == "__main__":
    sys.exit(main())
