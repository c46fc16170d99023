"""Measure `puller import puppet` over public modules.

    python -m tests.benchmarks.bench_import_puppet MODULES [--list unmapped|remark|errors|sources|templates]
        [--keep DIRECTORY] [--all-classes]

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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from puller.authoring.importing.draft import Draft, Remark, Resource
from puller.authoring.importing.puppet.puppet_importer import import_puppet
from tests.benchmarks.import_measurements import (
    add_options,
    exit_status,
    measure_all,
    print_counts,
    print_list,
    print_outcomes,
)

APART = frozenset({"", "class", "variable", "function"})


def find_modules(root: Path) -> Iterator[Path]:
    """Yield the modules below a directory."""
    for manifests in sorted(root.rglob("manifests")):
        parts = set(manifests.relative_to(root).parts)
        if manifests.is_dir() and any(manifests.rglob("*.pp")) and not parts & {"spec", "examples", "tests"}:
            yield manifests.parent


def import_all_classes(module: Path, name: str) -> Draft:
    """Return the draft of a module that applies all its classes."""
    draft = import_puppet(module, name)
    applied = {
        item.name for manifest in draft.manifests.values() for item in manifest.resources if not item.disabled
    }
    top = draft.manifests["manifest.yaml"]
    top.resources = [item for item in top.resources if not item.disabled]
    for path in draft.manifests:
        if path.startswith("classes/") and f"bundle:{path}" not in applied:
            top.resources.append(Resource("apply", f"bundle:{path}"))
    return draft


def is_apart(remark: Remark) -> bool:
    """Return whether an object is no resource."""
    return remark.kind in APART


def main() -> int:
    """Run the measurement. Return 1 after a crash."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", type=Path)
    add_options(parser, "templates")
    parser.add_argument("--all-classes", action="store_true")
    arguments = parser.parse_args()
    make = import_all_classes if arguments.all_classes else import_puppet
    results = measure_all(arguments.modules, find_modules(arguments.modules), arguments.keep, make)
    print_outcomes(results, "resources", is_apart)
    drafts = [result.draft for result in results if result.draft]
    templates = [path for draft in drafts for path in draft.files if path.startswith("templates/")]
    converted = sum(path.endswith(".j2") for path in templates)
    print(f"templates: {converted} converted, {len(templates) - converted} kept")
    if arguments.list == "templates":
        checks = [check for draft in drafts for check in draft.checks if "is not converted" in check]
        print_counts(Counter(re.sub(r".*is not converted: ", "", check)[:110] for check in checks))
    print_list(arguments.list, results, lambda _: False)
    return exit_status(results)


if __name__ == "__main__":
    sys.exit(main())
