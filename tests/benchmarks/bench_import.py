"""Measure `puller import ansible` over public roles.

    python -m tests.benchmarks.bench_import ROLES [--list unmapped|remark|errors|sources] [--keep DIRECTORY]

``ROLES`` is a directory with checkouts of roles and collections, which do not belong to this project. Each directory
with ``tasks/main.yml`` is a role. The program imports each role into a temporary directory, and runs lint with the test
cases of the draft.

The output has the number of tasks by outcome, the number of drafts without an error of lint, and the crashes. Tasks
that change nothing on a host (messages, queries, includes, variables) are counted apart. ``--list`` shows the most
frequent reasons, or the most frequent errors of lint.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from puller.authoring.importing.ansible.ansible_importer import import_ansible
from puller.authoring.importing.draft import Remark
from tests.benchmarks.import_measurements import (
    add_options,
    exit_status,
    measure_all,
    print_list,
    print_outcomes,
)

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
        "",
    }
)


def find_roles(root: Path) -> Iterator[Path]:
    """Yield the roles below a directory."""
    for tasks in sorted(root.rglob("tasks/main.y*ml")):
        role = tasks.parent.parent
        if not {"molecule", "tests", "test", "examples"} & set(role.relative_to(root).parts):
            yield role


def is_structure(remark: Remark) -> bool:
    """Return whether a task is an include or sets a variable."""
    return remark.kind in STRUCTURE


def main() -> int:
    """Run the measurement. Return 1 after a crash."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roles", type=Path)
    add_options(parser)
    arguments = parser.parse_args()
    roles = find_roles(arguments.roles)
    results = measure_all(arguments.roles, roles, arguments.keep, import_ansible)
    print_outcomes(results, "tasks that change a host", is_structure)
    print_list(arguments.list, results, is_structure)
    return exit_status(results)


if __name__ == "__main__":
    sys.exit(main())
