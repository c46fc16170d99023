"""Declarations of one resource in several places of a draft.

* Puller accepts one declaration of each resource. Declarations with different conditions are joined, if an expression
  can join their values. Otherwise the later declaration becomes a proposal.
* References to proposals are removed, and references to joined resources are replaced.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from puller.authoring.importing.draft import Draft, Resource


def resolve_conflicts(draft: Draft) -> None:
    """Join or separate declarations of the same resource, and repair the references to them."""
    labels: dict[str, str] = {}
    for manifest in draft.manifests.values():
        labels |= merge_alternatives(manifest.resources)
        unique_names(manifest.resources)
    separate_manifests(draft)
    _repair_references(draft, labels)


def _repair_references(draft: Draft, labels: Mapping[str, str]) -> None:
    """Remove references to proposals, and replace labels of joined resources."""
    active = [
        resource
        for manifest in draft.manifests.values()
        for resource in manifest.resources
        if not resource.disabled
    ]
    known = {name for item in active for name in (item.reference, f"{item.type}#{item.name}")}
    for manifest in draft.manifests.values():
        for resource in manifest.resources:
            for key in ("subscribe", "reload"):
                references = [
                    f"label#{labels.get(reference.removeprefix('label#'), '')}"
                    if reference.removeprefix("label#") in labels
                    else reference
                    for reference in resource.properties.pop(key, [])
                ]
                kept = [reference for reference in dict.fromkeys(references) if reference in known]
                if kept:
                    resource.properties[key] = kept


def unique_names(resources: Sequence[Resource]) -> None:
    """Append a number to names of edits and commands that several different resources have."""
    seen: dict[tuple[str, str], Resource] = {}
    for resource in resources:
        if resource.disabled or resource.type not in ("line", "block", "setting", "exec"):
            continue
        name, number = resource.name, 2
        while resource.identity in seen and not _is_same(seen[resource.identity], resource):
            if resource.type == "exec" and "command" not in resource.properties:
                resource.properties = {"command": name, **resource.properties}
            resource.name = f"{name} {number}"
            number += 1
        seen.setdefault(resource.identity, resource)


def _is_same(first: Resource, second: Resource) -> bool:
    return first.properties == second.properties and first.loop == second.loop


def merge_alternatives(resources: list[Resource]) -> dict[str, str]:
    """Join declarations of one resource with different conditions. Puller accepts one declaration of each resource.

    As in the source, a later declaration overrides an earlier one where both apply. Returns new labels by old labels.
    """
    first: dict[tuple[str, ...], Resource] = {}
    labels: dict[str, str] = {}
    for resource in list(resources):
        if resource.disabled or resource.type in ("exec", "apply", "line", "block", "setting"):
            continue
        if resource.type == "user" and set(resource.properties) <= _OF_KEYS:
            continue
        other = first.setdefault((*resource.identity, resource.loop), resource)
        if other is resource:
            continue
        conditions = [_condition_of(item) for item in (other, resource)]
        if other.properties == resource.properties and other.label == resource.label:
            continue
        joined = _joined(other, resource)
        if joined is None:
            resource.disabled = True
            resource.comments = [
                *resource.comments,
                f"Not mapped: {resource.type}#{resource.name} is declared above with other values.",
            ]
            continue
        if all(conditions):
            joined["control"] = {
                "if": " or ".join(f"({condition})" for condition in dict.fromkeys(conditions))
            }
        other.properties = joined
        if resource.label and other.label:
            labels[resource.label] = other.label
        other.label = other.label or resource.label
        other.comments += resource.comments
        resources[:] = [item for item in resources if item is not resource]
    return labels


_OF_KEYS: Final = frozenset({"authorized_keys", "control", "require", "after"})
"""Properties of a declaration that only adds keys. Puller merges the keys of all declarations of a user."""


def _condition_of(resource: Resource) -> str:
    return str(resource.properties.get("control", {}).get("if", ""))


def _joined(first: Resource, second: Resource) -> dict[str, Any] | None:
    """Return the properties of two declarations. ``None`` if an expression cannot join them."""
    condition = _condition_of(second)
    result: dict[str, Any] = {}
    is_absent = [item.properties.get("ensure") == "absent" for item in (first, second)]
    for key in dict.fromkeys([*first.properties, *second.properties]):
        if key == "control":
            continue
        old, new = first.properties.get(key), second.properties.get(key)
        if key in ("subscribe", "reload", "require", "after"):
            result[key] = list(dict.fromkeys([*(old or []), *(new or [])]))
        elif old == new or (is_absent[0] and key != "ensure"):
            result[key] = new if new is not None else old
        elif is_absent[1] and key != "ensure":
            result[key] = old
        elif not condition:
            result[key] = new
        else:
            default = _DEFAULTS.get((first.type, key))
            values = [_as_literal(default if value is None else value) for value in (old, new)]
            if None in values:
                return None
            result[key] = f"{{{{ {values[1]} if {condition} else {values[0]} }}}}"
    return {key: value for key, value in result.items() if value is not None}


_DEFAULTS: Final = {
    ("file", "ensure"): "present",
    ("link", "ensure"): "present",
    ("package", "ensure"): "present",
    ("service", "ensure"): "running",
    ("repository", "ensure"): "present",
}


def _as_literal(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        return None
    match = re.fullmatch(r"{{((?:(?!}}).)*)}}", value)
    if match:
        return f"({match[1].strip()})"
    return None if "{{" in value or "'" in value or "\n" in value or "\\" in value else f"'{value}'"


def separate_manifests(draft: Draft) -> None:
    """Resolve contradictions between manifests: repositories get another name, other resources become proposals."""
    first: dict[tuple[str, str], tuple[str, Resource]] = {}
    for path, manifest in draft.manifests.items():
        for resource in manifest.resources:
            if resource.disabled or resource.loop or resource.type in ("apply", "exec"):
                continue
            place, other = first.setdefault(resource.identity, (path, resource))
            if place == path or not _contradict(other, resource):
                continue
            if resource.type in ("repository", "line", "block", "setting"):
                resource.name = f"{resource.name}-{path.rpartition('/')[2].removesuffix('.yaml')}"
            else:
                resource.disabled = True
                reference = f"{resource.type}#{resource.name}"
                note = f"Not mapped: {reference} is declared in {place} with other values."
                resource.comments = [*resource.comments, note]
                draft.check(
                    f"{path} contains {reference} as a comment. {place} declares it with other values."
                )


def _contradict(first: Resource, second: Resource) -> bool:
    keys = set(first.properties) & set(second.properties) | (
        {"ensure", "content", "template", "source"} & (set(first.properties) | set(second.properties))
    )
    keys -= {"control", "subscribe", "reload", "require", "after", "sensitive", "groups", "authorized_keys"}
    defaults = {
        "package": {"present", "latest", None},
        "file": {"present", None},
        "service": {"running", None},
    }
    for key in keys:
        values = {
            str(item.properties.get(key)) if item.properties.get(key) is not None else None
            for item in (first, second)
        }
        if len(values) > 1 and not (
            key == "ensure" and values <= defaults.get(first.type, {"present", None})
        ):
            return True
    return False
