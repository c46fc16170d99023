"""Roles, playbooks and repositories of Ansible as the draft of one bundle.

1. Read the variables of all sources, by precedence (``variables.py``, ``inventory.py``, ``system_variables.py``).
2. Read each role: each file of tasks becomes a manifest, and includes become children (``role_importer.py``).
3. Move variables that tasks set and facts that templates name into the data of the manifest (``set_facts.py``,
   ``unset_names.py``).
4. Divide the variables: the Hiera tree keeps plain values and references. The manifest keeps other expressions
   (``division.py``).
5. Add handlers as subscribers, and a test case for each system.
6. Declare units of systemd (``units.py``), and join declarations of the same resource (``conflicts.py``).
"""

from collections.abc import Iterable
from pathlib import Path

from puller.authoring.importing.ansible.expressions import Names
from puller.authoring.importing.ansible.manifest_data import MANAGED, add_facts_of_templates, declare_missing
from puller.authoring.importing.ansible.modules import keep_guards_of_declared_files
from puller.authoring.importing.ansible.playbooks import PlaybookImporter, find_playbooks
from puller.authoring.importing.ansible.role_importer import RoleImporter, is_role
from puller.authoring.importing.ansible.tasks import table
from puller.authoring.importing.ansible.units import declare_units
from puller.authoring.importing.ansible.variables import Variables, divide_variables
from puller.authoring.importing.conflicts import resolve_conflicts
from puller.authoring.importing.draft import Draft, ManifestDraft, document_text
from puller.authoring.importing.reading import Secrets, SourceTree


def import_ansible(source: Path, name: str, secrets: Secrets | None = None) -> Draft:
    """Return the draft for a role, a playbook or a repository. Raises ``SourceError``.

    ``secrets`` converts values of Vault. Without it, they are left out.
    """
    tree = SourceTree(source.parent if source.is_file() else source)
    top = ManifestDraft("manifest.yaml")
    draft = Draft(name, "ansible", {top.path: top})
    variables = Variables(draft, secrets)
    names = _names()
    roles = RoleImporter(tree, draft, variables, names)
    if source.is_file():
        PlaybookImporter(tree, draft, variables, roles).add([source.name])
    elif is_role(tree, ""):
        roles.add_role("", "", tree.root.name)
    else:
        PlaybookImporter(tree, draft, variables, roles).add(find_playbooks(tree))
    roles.map_handlers()
    roles.set_facts.add_to(top)
    add_facts_of_templates(draft, top, variables, names)
    divide_variables(draft, top, variables, names)
    declare_missing(draft, top, variables, names)
    _add_tests(draft, roles.tests)
    for path, reason in sorted(tree.rejected.items()):
        draft.check(f"{path} {reason}.")
    declare_units(draft)
    keep_guards_of_declared_files(draft)
    resolve_conflicts(draft)
    return draft


def _names() -> Names:
    """Return the names that have the same meaning in all roles."""
    return Names(
        facts=table()["facts"],
        constants={
            "inventory_hostname": "facts.networking.fqdn",
            "inventory_hostname_short": "facts.networking.hostname",
            "ansible_host": "facts.networking.fqdn",
            "ansible_check_mode": "false",
            "ansible_user": "'root'",
            "ansible_user_id": "'root'",
            "ansible_managed": f"'{MANAGED}'",
            "group_names": "lookup('facts.groups', [])",
        },
    )


def _add_tests(draft: Draft, systems: Iterable[str]) -> None:
    for system in list(systems) or ["debian-12"]:
        text = document_text(
            {"os": system}, ["The defaults of the source. Add expected resources under `expect`."]
        )
        draft.files[f"tests/{system}.yaml"] = text.encode()
