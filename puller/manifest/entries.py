"""The shape of a list of resources: entries of one type each, with named bodies and defaults.

``resources.md`` section 1: an entry has one type; its body is a list of ``{name: properties}``, with an optional
``defaults`` for that list, or one mapping with ``name``. A property that is given replaces the default whole; ``null``
keeps it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from puller.manifest.problems import Problems
from puller.resources.registry import find_type, type_names
from puller.values.suggestions import Path, did_you_mean

DEFAULTS = "defaults"


class Entry(NamedTuple):
    """One resource as written."""

    type_name: str
    properties: dict[str, Any]
    """With ``name``, and with the defaults of its list."""
    path: Path
    """Where its properties stand."""


def read_entries(value: object, path: Path, problems: Problems) -> list[Entry]:
    """All resources of a list, in order; what has the wrong shape becomes a problem."""
    if not isinstance(value, list):
        problems.add(path, f"resources is {_described(value)}, wanted a list")
        return []
    entries: list[Entry] = []
    for index, item in enumerate(value):
        entries.extend(_read_item(item, (*path, index), problems))
    return entries


def _read_item(item: object, path: Path, problems: Problems) -> Iterator[Entry]:
    label = f"resources[{path[-1]}]"
    if not isinstance(item, dict) or len(item) != 1:
        found = (
            "several types: " + ", ".join(map(str, item))
            if isinstance(item, dict) and item
            else _described(item)
        )
        problems.add(path, f"is {found}, wanted one type with its resources", label)
    types = item if isinstance(item, dict) else {}
    for type_name, body in types.items():
        # One of several that is no type may be a property, indented too little.
        if len(types) == 1 or find_type(str(type_name)) is not None:
            yield from _read_type(type_name, body, path, problems)


def _read_type(type_name: str, body: object, path: Path, problems: Problems) -> Iterator[Entry]:
    label = f"resources[{path[-1]}]"
    if find_type(str(type_name)) is None:
        problems.add(
            (*path, type_name),
            f"unknown resource type {type_name!r}{did_you_mean(str(type_name), type_names())}",
            label,
        )
        return
    path = (*path, type_name)
    if isinstance(body, list) and body:
        yield from _read_list(type_name, body, path, label, problems)
    elif isinstance(body, dict) and "name" in body:
        yield Entry(type_name, dict(body), path)  # a copy: an alias may share the mapping
    elif isinstance(body, dict):
        problems.add(path, "has no name", f"{label} {type_name}")
    else:
        problems.add(
            path,
            f"is {_described(body)}, wanted a list of names, or one mapping with a name",
            f"{label} {type_name}",
        )


def _read_list(
    type_name: str, body: list[Any], path: Path, label: str, problems: Problems
) -> Iterator[Entry]:
    # Wherever defaults stand in a list, they are for the whole of it.
    defaults = _read_defaults(body, path, label, problems)
    for index, item in enumerate(body):
        if not isinstance(item, dict) or len(item) != 1:
            problems.add(
                (*path, index),
                f"is {_described(item)}, wanted one name with its properties",
                f"{label} {type_name}",
            )
            continue
        ((name, given),) = item.items()
        if name == DEFAULTS:
            continue
        place = (*path, index, name)
        if given is not None and not isinstance(given, dict):
            problems.add(place, f"is {_described(given)}, wanted properties", f"{label} {type_name}#{name}")
            continue
        properties = {
            **defaults,
            **{
                key: value for key, value in (given or {}).items() if value is not None or key not in defaults
            },
        }
        properties["name"] = name
        yield Entry(type_name, properties, place)


def _read_defaults(body: list[Any], path: Path, label: str, problems: Problems) -> dict[str, Any]:
    found: dict[str, Any] | None = None
    for index, item in enumerate(body):
        if not isinstance(item, dict) or DEFAULTS not in item or len(item) != 1:
            continue
        defaults = item[DEFAULTS]
        if found is not None:
            problems.add((*path, index), "defaults is given a second time for this list", label)
        elif not isinstance(defaults, dict):
            problems.add(
                (*path, index, DEFAULTS), f"defaults is {_described(defaults)}, wanted properties", label
            )
        else:
            found = defaults
    return found or {}


def _described(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return repr(value)
