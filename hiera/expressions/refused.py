"""Unsupported filters, tests and lookups of Ansible, each with the reason and a replacement.

A template that names one is rejected when it is compiled, at its line, even in an unreachable place.
"""

from __future__ import annotations

from typing import Final

from hiera.errors import ExpressionError

_DISK: Final = "reads the disk of the machine, so runs would differ"
_FACT: Final = f"{_DISK}: use a fact of your own (facts.d), or control of the resource"
_VAULT: Final = "requires a password of the controller: encrypt secrets with eyaml"

REFUSED_FILTERS: Final = {
    "append": "does not exist: a longer list is list + [item]",
    "expanduser": f"{_DISK}: write the home directory, or take it from data",
    "expandvars": "reads the environment of the controller: write environ.NAME",
    "fileglob": f"{_DISK}: list the files in data, or use a scaffold",
    "ipsubnet": "does not exist: write the subnet into data, or take a fact of your own (facts.d)",
    "json_query": "is not part of Ansible's core: write an expression, or map and selectattr",
    "realpath": f"{_DISK}: use normpath, which only reads the text",
    "unvault": _VAULT,
    "update": "does not exist: a larger mapping is a | combine(b)",
    "vault": _VAULT,
}
REFUSED_TESTS: Final = {
    **dict.fromkeys(("directory", "is_dir", "exists", "file", "is_file", "link", "is_link"), _FACT),
    **dict.fromkeys(("link_exists", "mount", "is_mount", "same_file", "is_same_file"), _FACT),
    "vaulted_file": _VAULT,
}
LOOKUPS: Final = {
    **dict.fromkeys(("env", "vars", "varnames"), "write environ.NAME, or data.name"),
    **dict.fromkeys(("file", "unvault"), "use read_file('path'), for a file of the bundle"),
    "template": "use template('path')",
    **dict.fromkeys(("fileglob", "filetree", "first_found"), "list the files in data, or use a scaffold"),
    **dict.fromkeys(("csvfile", "ini", "config"), "put the values into data"),
    **dict.fromkeys(("pipe", "lines", "url", "dig"), "use a fact of your own (facts.d)"),
    **dict.fromkeys(("password", "random_choice"), "use a secret of data, or random(seed=facts.fqdn)"),
    **dict.fromkeys(
        ("dict", "list", "items", "indexed_items", "nested", "together"), "use a filter such as dict2items"
    ),
    **dict.fromkeys(("sequence", "subelements", "inventory_hostnames"), "use range(), subelements, or facts"),
}
"""Lookups of Ansible by name, with their replacements."""

_COLLECTIONS: Final = ("ansible.builtin.", "community.general.", "ansible.utils.", "ansible.netcommon.")


def refused(name: str, *, is_filter: bool) -> str | None:
    """Return the sentence that rejects a filter or test, or ``None`` if the name is not rejected."""
    short = next((name.removeprefix(c) for c in _COLLECTIONS if name.startswith(c)), name)
    why = (REFUSED_FILTERS if is_filter else REFUSED_TESTS).get(short)
    return f"the {'filter' if is_filter else 'test'} {name} {why}" if why else None


def refuse_lookup(name: str) -> None:
    """Raise ExpressionError for a lookup of Ansible, such as ``lookup('env', 'HOME')``."""
    if instead := LOOKUPS.get(name.removeprefix("ansible.builtin.")):
        raise ExpressionError("", f"lookup takes a path of facts or data, not the plugin {name!r}: {instead}")


ABSENT: Final = {
    **dict.fromkeys(
        ("query", "q"), "lookup(path, default) finds facts and data, and filters take them apart"
    ),
    **dict.fromkeys(
        ("hostvars", "groups", "group_names"), "Puller has no data of other hosts: put it into data"
    ),
    "ansible_facts": "facts are facts.name",
    "inventory_hostname": "it is facts.networking.fqdn, or data",
    "now": "the current time differs in every run: use a time of data",
    "omit": "leave the property out, or use control",
    "playbook_dir": "paths start at the manifest's directory",
    "role_path": "paths start at the manifest's directory",
}
"""Names in Ansible's templates, with their replacements."""
