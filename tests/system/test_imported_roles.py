"""Three roles, applied by ansible-core and by their draft without an edit: the two Debians are equal."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.authoring.importing.ansible.ansible_importer import import_ansible
from puller.authoring.importing.draft import Outcome, write_draft
from tests.support.system_states import KINDS, apply_twice, differences

pytestmark = [pytest.mark.packages, pytest.mark.root]

ROLES = Path(__file__).parents[1] / "cases/ansible_roles"


def test_draft_and_ansible_leave_the_same_system(make_tree: Callable[..., Path], tmp_path: Path) -> None:
    tree = make_tree("ansible-core", "python3-apt")
    source, target = tmp_path / "playbook", tmp_path / "draft"
    shutil.copytree(ROLES, source / "roles")
    names = sorted(path.name for path in ROLES.iterdir())
    (source / "site.yml").write_text(f"- hosts: all\n  roles: [{', '.join(names)}]\n")
    (source / "hosts").write_text("web01.example.com ansible_connection=local\n")
    draft = import_ansible(source, "site")
    write_draft(draft, target)

    ansible = apply_twice(
        tree, {"/playbook": source}, "ansible-playbook", "--inventory=/playbook/hosts", "/playbook/site.yml"
    )
    puller = apply_twice(tree, {"/draft": target}, "puller", "apply", "/draft")

    assert not [remark for remark in draft.remarks if remark.outcome is Outcome.UNMAPPED]
    assert [status for status, _ in ansible.runs] == [0, 0], ansible.runs
    assert [status for status, _ in puller.runs] == [0, 0], puller.runs
    assert " 0 changed" in puller.runs[1][1]
    for kind in KINDS:
        assert not [*differences(getattr(puller.system, kind), getattr(ansible.system, kind))]
    assert {"/etc/systemd/system/ticker.service", "/etc/systemd/system/ticker-clean.timer"} <= {
        *puller.system.files
    }
    assert puller.system.units["ticker.service"] == "enabled active"
