"""Roles, playbooks and repositories of Ansible as the draft of one bundle.

1. Read the variables of all sources, by precedence (``variables.py``, ``system_variables.py``).
2. Read each role: each file of tasks becomes a manifest, and includes become children (``role_importer.py``).
3. Move variables that tasks set and facts that templates name into the data of the manifest (``manifest_data.py``).
4. Divide the variables: the Hiera tree keeps plain values and references. The manifest keeps other expressions
   (``variables.py``).
5. Add handlers as subscribers (``task_lists.py``), and a test case for each system.
6. Declare units of systemd, and join declarations of the same resource (``conflicts.py``).

* Each play becomes references to the manifests of its tasks and roles.
* ``hosts`` becomes a condition on the groups of a host. The groups of a host become a file of facts, which you copy to
  the host.
* Variables of plays override the defaults of roles. Variables of the inventory become levels of the Hiera tree.
* A file below ``/etc/systemd/system`` becomes a ``unit`` if both write the same bytes with the same owner and mode. It
  stays a file if another resource removes it or changes its mode, or if its name or mode is an expression.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from puller.authoring.importing.ansible.jinja_expressions import (
    Names,
    conditions_of,
    has_expression,
    translate_condition,
)
from puller.authoring.importing.ansible.manifest_data import MANAGED, add_facts_of_templates, declare_missing
from puller.authoring.importing.ansible.modules import keep_guards_of_declared_files
from puller.authoring.importing.ansible.role_importer import RoleImporter, is_role
from puller.authoring.importing.ansible.tasks import table
from puller.authoring.importing.ansible.variables import Variables, divide_variables
from puller.authoring.importing.conflicts import resolve_conflicts
from puller.authoring.importing.draft import (
    Draft,
    ManifestDraft,
    Origin,
    Outcome,
    Resource,
    document_text,
    printable,
    slug,
)
from puller.authoring.importing.reading import Document, Secrets, SourceTree, as_list, as_mapping
from puller.authoring.importing.written_expressions import Untranslatable, all_of
from puller.errors import SourceError
from puller.values.foreign_text import EXPECTED_NAME, is_host_name

_UNIT_DIRECTORY: Final = "/etc/systemd/system/"
_UNIT_KIND: Final = "(?:service|socket|target|path|timer|mount|automount|swap|slice)"
_WORD: Final = r"(?:[\w.:\\@-]|{{[^{}]*}})"
_UNIT_NAME: Final = re.compile(rf"{_WORD}+\.{_UNIT_KIND}|(?:{_WORD}+\.)?{_UNIT_KIND}\.d/{_WORD}+\.conf")
_UNIT_PROPERTIES: Final = frozenset(
    {"content", "source", "template", "engine", "interpolate", "sensitive", "control"}
)
_UNIT_ATTRIBUTES: Final = {
    "owner": {"root", "0"},
    "group": {"root", "0"},
    "mode": {"0644", "xxx", "u=rw,g=r,o=r", "u=rw,go=r"},
}
_UNIT_DECISION: Final = (
    "Files in /etc/systemd/system are units. Puller verifies each unit, and reloads systemd."
)


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


def add_inventory(tree: SourceTree, draft: Draft, variables: Variables) -> None:
    """Add the variables and the groups of all hosts. Raises ``SourceError``."""
    for kind, level in (("group_vars", variables.groups), ("host_vars", variables.hosts)):
        for start in ("", "inventory", "inventories"):
            folder = "/".join(filter(None, [start, kind]))
            for path in tree.files(folder) if tree.is_directory(folder) else ():
                document = tree.find_document(path)
                if document is None:
                    draft.note_unreadable(path, tree.reason(path))
                    continue
                name = re.sub(r"\.(ya?ml|json)$", "", path[len(folder) + 1 :].split("/")[0])
                if kind == "group_vars" and name == "all":
                    variables.merge(variables.everywhere, "all.yaml", variables.read(document), Origin(path))
                else:
                    target = f"{'groups' if kind == 'group_vars' else 'hosts'}/{name}.yaml"
                    variables.merge(level, target, variables.read(document), Origin(path))
    groups: dict[str, set[str]] = {}
    for path in (
        "hosts",
        "inventory",
        "inventory.ini",
        "hosts.ini",
        "inventory/hosts",
        "inventory/hosts.ini",
        "hosts.yml",
        "inventory.yml",
        "inventory/hosts.yml",
    ):
        if tree.is_file(path):
            _read_inventory(tree, path, groups)
    for host, names in sorted(groups.items()):
        if not is_host_name(host):
            draft.check(f"The host {printable(host[:80])} of the inventory is left out: {EXPECTED_NAME}.")
            continue
        text = document_text(
            {"groups": sorted(names)}, ["Copy this file to /etc/puller/facts.d/groups.yaml of the host."]
        )
        draft.files[f"hosts/{host}.yaml"] = text.encode()


def _read_inventory(tree: SourceTree, path: str, groups: dict[str, set[str]]) -> None:
    """Add the groups of each host in an inventory file. Raises ``SourceError``."""
    if path.endswith((".yml", ".yaml")):
        document = tree.find_document(path)
        if document is not None and isinstance(document.value, dict):
            for name, group in document.value.items():
                _add_group(str(name), group, (), groups)
        return
    children: dict[str, set[str]] = {}
    section, kind = "ungrouped", "hosts"
    for line in tree.text(path).splitlines():
        text = line.split("#")[0].split(";")[0].strip()
        if match := re.fullmatch(r"\[([^:\]]+)(?::(\w+))?\]", text):
            section, kind = match[1], match[2] or "hosts"
        elif text and kind == "hosts":
            for host in _hosts_of(text.split()[0]):
                groups.setdefault(host, set()).add(section)
        elif text and kind == "children":
            children.setdefault(section, set()).add(text)
    for _ in range(len(children)):
        for parent, names in children.items():
            for members in groups.values():
                if members & names:
                    members.add(parent)


def _hosts_of(host: str) -> list[str]:
    """Return the hosts of a range such as ``web[01:20]``. Raises ``SourceError``."""
    match = re.match(r"([^\[]*)\[([0-9]{1,9}):([0-9]{1,9})\](.*)", host)
    if match is None:
        return [host.split(":")[0]]
    start, end = int(match[2]), int(match[3])
    if end - start > 1000:
        raise SourceError(f"the inventory has a range of more than 1000 hosts: {host}")
    return [f"{match[1]}{number:0{len(match[2])}d}{match[4]}" for number in range(start, end + 1)]


def _add_group(name: str, group: Any, parents: tuple[str, ...], groups: dict[str, set[str]]) -> None:
    """Add a group and its parents to the groups of its hosts. Raises ``SourceError``."""
    if not isinstance(group, dict) or len(parents) > 20:
        return
    names = (*parents, name)
    for host in as_mapping(group.get("hosts")):
        for expanded in _hosts_of(str(host)):
            groups.setdefault(expanded, set()).update(names)
    for child, inner in as_mapping(group.get("children")).items():
        _add_group(str(child), inner or {}, names, groups)


def find_playbooks(tree: SourceTree) -> list[str]:
    """Return the files of a repository that contain plays, in sorted order."""
    names = []
    for name in sorted(path.name for path in tree.root.iterdir()):
        if name.endswith((".yml", ".yaml")) and tree.is_file(name):
            document = tree.find_document(name)
            plays = document.value if document else None
            if isinstance(plays, list) and any(isinstance(play, dict) and "hosts" in play for play in plays):
                names.append(name)
    return names


class PlaybookImporter:
    """Adds the playbooks of a repository to a draft."""

    def __init__(self, tree: SourceTree, draft: Draft, variables: Variables, roles: RoleImporter) -> None:
        self.tree = tree
        self.draft = draft
        self.variables = variables
        self.roles = roles
        self.top = roles.top

    def add(self, playbooks: Sequence[str]) -> None:
        """Add all playbooks, with their roles and the inventory. Raises ``SourceError``."""
        add_inventory(self.tree, self.draft, self.variables)
        if not playbooks:
            for role in self._role_directories():
                self.roles.apply_role(role.rpartition("/")[2], self.top, [])
            if not self.roles.contexts:
                raise SourceError(f"{self.tree.root}: lacks tasks/main.yml, playbooks and roles")
            return
        for name in playbooks:
            document = self.tree.find_document(name)
            if document is None:
                self.draft.note_unreadable(name, self.tree.reason(name))
                continue
            for index, play in enumerate(document.value if isinstance(document.value, list) else []):
                if isinstance(play, dict):
                    self._add_play(document, index, play)

    def _role_directories(self) -> list[str]:
        if not self.tree.is_directory("roles"):
            return []
        names = sorted(path.name for path in (self.tree.root / "roles").iterdir())
        return [f"roles/{name}" for name in names if is_role(self.tree, f"roles/{name}")]

    def _add_play(self, document: Document, index: int, play: Mapping[str, Any]) -> None:
        origin = Origin(document.name, document.line((index,)))
        if "hosts" not in play:
            self.draft.note(
                origin,
                str(play.get("import_playbook") or play.get("name") or "play"),
                Outcome.UNMAPPED,
                "import the other playbook separately",
                "import_playbook",
            )
            return
        title = str(play.get("name") or play["hosts"])
        try:
            control = _control_of_hosts(play["hosts"])
        except Untranslatable as error:
            self.draft.note(origin, title, Outcome.UNMAPPED, str(error), "hosts")
            return
        variables = play.get("vars")
        self.variables.merge(
            self.variables.roles, "vars.yaml", variables if isinstance(variables, dict) else {}, origin
        )
        for file in as_list(play.get("vars_files")):
            path = str(file)
            loaded = None if has_expression(path) else self.tree.find_document(path)
            if loaded is not None:
                self.variables.merge(
                    self.variables.roles, "vars.yaml", self.variables.read(loaded), Origin(path)
                )
            else:
                self.draft.note(
                    origin,
                    title,
                    Outcome.UNMAPPED,
                    f"vars_files names {path}, which is variable or unreadable",
                    "vars_files",
                )
        before = len(self.top.resources)
        context = self.roles.context("", "", slug(title))
        number = sum(path.startswith("play-") for path in self.draft.manifests) + 1
        for key in ("pre_tasks", "roles", "tasks", "post_tasks"):
            if key == "roles":
                for role_index, role in enumerate(as_list(play.get("roles"))):
                    place = Origin(document.name, document.line((index, "roles", role_index)))
                    self._add_play_role(role, place)
            elif play.get(key):
                path = (
                    f"play-{number}.yaml" if key == "tasks" else f"play-{number}-{key.replace('_', '-')}.yaml"
                )
                manifest = self.roles.manifest(path, document.name)
                self.roles.add_tasks(document, (index, key), play[key], context, manifest, [], 0)
                self.top.resources.append(Resource("apply", path, comments=[f"{title} ({origin})"]))
        self.roles.collect_handlers(
            context, self.top, document, (index, "handlers"), play.get("handlers") or []
        )
        if control:
            for resource in self.top.resources[before:]:
                conditions = [control, resource.properties.get("control", {}).get("if", "true")]
                resource.properties["control"] = {"if": all_of(conditions)}

    def _add_play_role(self, role: Any, origin: Origin) -> None:
        values = role if isinstance(role, dict) else {"role": role}
        name = str(values.get("role") or values.get("name") or "")
        extra = sorted(set(values) - {"role", "name", "tags", "when", "become"})
        try:
            conditions = [
                translate_condition(condition, self.roles.names)
                for condition in conditions_of(values.get("when"))
            ]
        except Untranslatable as error:
            self.draft.note(origin, name, Outcome.UNMAPPED, str(error), "role")
            return
        self.roles.apply_role(name, self.top, conditions, origin)
        if extra:
            inner = (
                values.get("vars")
                if isinstance(values.get("vars"), dict)
                else {key: values[key] for key in extra if key != "vars"}
            )
            self.variables.merge(self.variables.roles, "vars.yaml", inner or {}, origin)


def _control_of_hosts(hosts: Any) -> str:
    """Return the condition for the ``hosts`` of a play. Raises ``Untranslatable``."""
    pattern = ":".join(hosts) if isinstance(hosts, list) else str(hosts).replace(",", ":")
    if pattern != "*" and (has_expression(pattern) or re.search(r"[*?\[~]", pattern)):
        raise Untranslatable(f"hosts is {pattern}, which is a pattern or a variable")
    included, required = [], []
    for part in pattern.split(":"):
        name = part.strip().lstrip("&!")
        test = "true" if name in ("all", "*") else f"'{name}' in lookup('facts.groups', [])"
        if name in ("localhost", "127.0.0.1"):
            raise Untranslatable("the play is for the control node")
        if part.startswith("!"):
            required.append(f"not ({test})")
        elif part.startswith("&"):
            required.append(test)
        else:
            included.append(test)
    first = "true" if "true" in included or not included else " or ".join(included)
    return all_of([first, *required])


def declare_units(draft: Draft) -> None:
    """Replace the files that contain units."""
    files = [
        resource
        for manifest in draft.manifests.values()
        for resource in manifest.resources
        if resource.type in ("file", "link") and resource.name.startswith(_UNIT_DIRECTORY)
    ]
    others = {resource.name for resource in files if not _is_unit(resource)}
    references: dict[str, str] = {}
    for resource in files:
        if resource.name in others:
            continue
        old = resource.reference
        resource.type, resource.name = "unit", resource.name.removeprefix(_UNIT_DIRECTORY)
        resource.properties = {
            key: value for key, value in resource.properties.items() if key in _UNIT_PROPERTIES
        }
        references[old] = resource.reference
        if not resource.disabled:
            draft.assume(_UNIT_DECISION)
    for manifest in draft.manifests.values():
        for resource in manifest.resources:
            for key in ("subscribe", "reload"):
                if key in resource.properties:
                    resource.properties[key] = [
                        references.get(reference, reference) for reference in resource.properties[key]
                    ]


def _is_unit(resource: Resource) -> bool:
    """Return whether a resource only writes a unit file, with the attributes of a unit."""
    properties = resource.properties
    return (
        resource.type == "file"
        and _UNIT_NAME.fullmatch(resource.name.removeprefix(_UNIT_DIRECTORY)) is not None
        and set(properties) <= _UNIT_PROPERTIES | set(_UNIT_ATTRIBUTES)
        and any(key in properties for key in ("content", "source", "template"))
        and not str(properties.get("source", "")).startswith(("http://", "https://", "{{"))
        and all(
            properties.get(key) in values for key, values in _UNIT_ATTRIBUTES.items() if key in properties
        )
    )
