"""Unit files of systemd that tasks write as files.

* A file below ``/etc/systemd/system`` becomes a ``unit`` if both write the same bytes with the same owner and mode.
* A path stays a file if another resource removes it or changes its mode, or if its name or mode is an expression.
* References of subscribers follow the new type.
"""

import re
from typing import Final

from puller.authoring.importing.draft import Draft, Resource

_DIRECTORY: Final = "/etc/systemd/system/"
_KIND: Final = "(?:service|socket|target|path|timer|mount|automount|swap|slice)"
_WORD: Final = r"(?:[\w.:\\@-]|{{[^{}]*}})"
_NAME: Final = re.compile(rf"{_WORD}+\.{_KIND}|(?:{_WORD}+\.)?{_KIND}\.d/{_WORD}+\.conf")
_KEPT: Final = frozenset({"content", "source", "template", "engine", "interpolate", "sensitive", "control"})
_ATTRIBUTES: Final = {
    "owner": {"root", "0"},
    "group": {"root", "0"},
    "mode": {"0644", "xxx", "u=rw,g=r,o=r", "u=rw,go=r"},
}
_DECISION: Final = "Files in /etc/systemd/system are units. Puller verifies each unit, and reloads systemd."


def declare_units(draft: Draft) -> None:
    """Replace the files that contain units."""
    files = [
        resource
        for manifest in draft.manifests.values()
        for resource in manifest.resources
        if resource.type in ("file", "link") and resource.name.startswith(_DIRECTORY)
    ]
    others = {resource.name for resource in files if not _is_unit(resource)}
    references: dict[str, str] = {}
    for resource in files:
        if resource.name in others:
            continue
        old = resource.reference
        resource.type, resource.name = "unit", resource.name.removeprefix(_DIRECTORY)
        resource.properties = {key: value for key, value in resource.properties.items() if key in _KEPT}
        references[old] = resource.reference
        if not resource.disabled:
            draft.assume(_DECISION)
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
        and _NAME.fullmatch(resource.name.removeprefix(_DIRECTORY)) is not None
        and set(properties) <= _KEPT | set(_ATTRIBUTES)
        and any(key in properties for key in ("content", "source", "template"))
        and not str(properties.get("source", "")).startswith(("http://", "https://", "{{"))
        and all(properties.get(key) in values for key, values in _ATTRIBUTES.items() if key in properties)
    )
