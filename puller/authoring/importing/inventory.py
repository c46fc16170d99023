"""Inventories of Ansible: ``group_vars``, ``host_vars``, and the groups of each host.

* Variables become levels of the Hiera tree.
* The groups of a host become a file of facts, which you copy to the host.
"""

import re
from typing import Any

from puller.authoring.importing.draft import Draft, Origin, document_text, printable
from puller.authoring.importing.reading import SourceTree, as_mapping
from puller.authoring.importing.variables import Variables
from puller.errors import SourceError
from puller.values.host_name import WANTED, is_host_name


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
            draft.check(f"The host {printable(host[:80])} of the inventory is left out: {WANTED}.")
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
