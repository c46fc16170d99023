"""Apply Ansible roles with ansible-core and with the draft of `puller import ansible`, and compare the two systems.

    python tests/benchmarks/compare_applied_roles.py ROLE... --tree DIRECTORY --ansible VENV [--inputs DIRECTORY]

``ROLE`` is a directory with a role. ``--tree`` is a Debian with systemd, Python and python3-apt. Each run boots a copy
of it without a network, so its package sources must be local. ``--ansible`` is an environment with ansible-core. Both
programs run with the Python of the tree, which needs the minor version of this one.

``--inputs`` has optional files for a role: ``ROLE.yaml`` with variables for both sides, and ``ROLE.patch`` with the
lines of the draft that you edit, for ``patch -p1``. The program counts the added and the removed lines.

The output has the result of both programs and their differences: files with content, owner, group and mode, links,
packages, enabled and active units, users and groups. A second run of the draft must change nothing. The exit status is
1 if a role has a difference.
"""

import argparse
import difflib
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from puller.authoring.importing.ansible.ansible_importer import import_ansible
from puller.authoring.importing.ansible.manifest_data import MANAGED
from puller.authoring.importing.draft import Draft, Outcome, write_draft
from tests.support.machines import REPOSITORY
from tests.support.system_states import KINDS, apply_twice, differences


def playbook_of(role: Path, inputs: Path | None, target: Path) -> None:
    """Write a repository with the role, its variables, an inventory and a playbook."""
    shutil.copytree(role, target / "roles" / role.name, ignore=shutil.ignore_patterns(".git"))
    (target / "site.yml").write_text(f"- hosts: all\n  roles: [{role.name}]\n")
    (target / "hosts").write_text("web01.example.com ansible_connection=local\n")
    (target / "group_vars").mkdir()
    if inputs is not None and (inputs / f"{role.name}.yaml").is_file():
        shutil.copy(inputs / f"{role.name}.yaml", target / "group_vars/all.yml")


def edit(draft: Path, patch: Path) -> tuple[int, int]:
    """Apply a patch to a draft. Return the number of added and removed lines."""
    subprocess.run(["patch", "-p1", "--quiet", f"--input={patch}"], cwd=draft, check=True)
    lines = patch.read_text().splitlines()
    return (
        sum(line.startswith("+") and not line.startswith("+++") for line in lines),
        sum(line.startswith("-") and not line.startswith("---") for line in lines),
    )


def compare(role: Path, options: argparse.Namespace) -> bool:
    """Apply one role both ways, and print the result. Return whether the systems are equal."""
    tree, python = options.tree.resolve(), "/usr/bin/python3"
    ansible = next(options.ansible.resolve().glob("lib/python3*/site-packages"))
    with tempfile.TemporaryDirectory(prefix="puller-roles-") as directory:
        source, target = (
            Path(directory, "playbook"),
            options.keep / role.name if options.keep else Path(directory, "draft"),
        )
        playbook_of(role, options.inputs, source)
        draft: Draft = import_ansible(source, role.name)
        write_draft(draft, target)
        patch = options.inputs / f"{role.name}.patch" if options.inputs else None
        added, removed = edit(target, patch) if patch and patch.is_file() else (0, 0)
        theirs = apply_twice(
            *(tree, {"/ansible": ansible, "/playbook": source}, "PYTHONPATH=/ansible", "LANG=C.UTF-8"),
            *("ANSIBLE_DEPRECATION_WARNINGS=0", python, "-m", "ansible", "playbook", "/playbook/site.yml"),
            *("--inventory=/playbook/hosts", "--extra-vars", json.dumps({"ansible_managed": MANAGED})),
        )
        libraries = Path(sysconfig.get_paths()["purelib"])
        ours = apply_twice(
            *(tree, {"/puller": libraries, "/repository": REPOSITORY, "/draft": target}),
            *(
                "PYTHONPATH=/repository:/puller",
                "PYTHONDONTWRITEBYTECODE=1",
                python,
                "-m",
                "puller",
                "apply",
                "/draft",
            ),
        )
    counts = ", ".join(
        f"{sum(remark.outcome is outcome for remark in draft.remarks)} {outcome}" for outcome in Outcome
    )
    print(f"{role.name}: {counts}, edited lines: {added} added, {removed} removed")
    expected = (0, 0)
    for name, applied in (("Ansible", theirs), ("draft", ours)):
        statuses = tuple(status for status, _ in applied.runs)
        print(f"  {name}: exit statuses {statuses}, {len(applied.system.files)} paths")
        if statuses != expected or options.verbose:
            print(
                *(f"    {line}" for _, text in applied.runs for line in text.splitlines()[-options.lines :]),
                sep="\n",
            )
    equal = " 0 changed" in ours.runs[1][1]
    if not equal:
        print(f"  draft: the second run changed resources\n{ours.runs[1][1]}")
    for kind in KINDS:
        lines = list(differences(getattr(ours.system, kind), getattr(theirs.system, kind)))
        equal = equal and not lines
        print(f"  {kind}: {'equal' if not lines else f'{len(lines)} differences'}")
        for line in lines[: options.lines]:
            print(f"    {line}")
            name = line.partition(": ")[0]
            texts = [applied.system.texts.get(name, "").splitlines() for applied in (theirs, ours)]
            for change in difflib.unified_diff(texts[0], texts[1], "Ansible", "draft", lineterm="", n=0):
                print(f"      {change}")
    return equal


def main() -> int:
    """Compare each role. Return 1 if a role has a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roles", type=Path, nargs="+", metavar="ROLE")
    parser.add_argument("--tree", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--ansible", type=Path, required=True, metavar="VENV")
    parser.add_argument("--inputs", type=Path, metavar="DIRECTORY")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep the drafts here")
    parser.add_argument("--lines", type=int, default=40, help="maximum lines of a list")
    parser.add_argument("--verbose", action="store_true", help="print the output of both programs")
    options = parser.parse_args()
    results = [compare(role.resolve(), options) for role in options.roles]
    print(f"{sum(results)} of {len(results)} roles are equal")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
