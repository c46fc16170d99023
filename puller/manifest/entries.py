"""The shape of a list of resources: entries of one type each, with named bodies, loops and defaults.

``docs/resources/common.md``: an entry has one type. Its body is a list of ``{name: properties}``, with optional
``defaults`` for that list, or one mapping with ``name``. A property replaces the whole default, ``null`` keeps it. A
plain text is a name with the defaults alone. ``for`` beside the name makes a loop. ``label`` beside a name, among its
properties or among the defaults is a name for all resources of the loop or list.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.problems import KeyPath, ProblemCode
from foundation.suggestions import meant
from puller.manifest.loops import Loop, parse_clauses
from puller.manifest.problems import Problems
from puller.resources.registry import find_type, type_names
from puller.values.common_properties import LABEL

if TYPE_CHECKING:
    from puller.manifest.loops import Item, Loop

_SHAPE = ProblemCode.INVALID_MANIFEST
DEFAULTS = "defaults"
FOR = "for"
_NO_NAMES = (DEFAULTS, FOR)
"""Keywords that are not names of resources when they stand alone."""
_CLAUSE = r"\w+(?: *, *\w+)? in "  # compiled on first use
"""A second clause of ``for`` that YAML reads as a key, because it follows a comma."""
_BRACKETS = "write several clauses in brackets, such as for: [a in data.a, b in data.b]"


class Entry(msgspec.Struct, frozen=True):
    """One resource as written."""

    type_name: str
    properties: dict[str, Any]
    """With ``name``, and with the defaults of its list."""
    path: KeyPath
    """The path of its properties."""
    loop: "Loop | None" = None
    """The loop that makes one resource of each item."""
    item: "Item | None" = None
    """The item of a loop that this entry is for."""
    label: str = ""
    """Its label. ``label#maps`` refers to all resources with this label."""

    @property
    def key(self) -> KeyPath:
        """The unique place in its text, with the number of the item."""
        return self.path if self.item is None else (*self.path, self.item.number)


def read_entries(value: object, path: KeyPath, problems: Problems) -> list[Entry]:
    """Return all resources of a list, in order. Record entries with an invalid shape."""
    if not isinstance(value, list):
        problems.add(path, f"resources is {_described(value)}", code=_SHAPE, expected="a list")
        return []
    entries: list[Entry] = []
    for index, item in enumerate(value):
        entries.extend(_read_item(item, (*path, index), problems))
    return entries


def _read_item(item: object, path: KeyPath, problems: Problems) -> Iterator[Entry]:
    if not isinstance(item, dict) or len(item) != 1:
        result = (
            "several types: " + ", ".join(map(str, item))
            if isinstance(item, dict) and item
            else _described(item)
        )
        problems.add(path, f"is {result}", code=_SHAPE, expected="one type with its resources")
    types = item if isinstance(item, dict) else {}
    for type_name, body in types.items():
        # An unknown type beside others may be a property with too little indentation.
        if len(types) == 1 or find_type(str(type_name)) is not None:
            yield from _read_type(type_name, body, path, problems)


def _read_type(type_name: str, body: object, path: KeyPath, problems: Problems) -> Iterator[Entry]:
    if find_type(str(type_name)) is None:
        problems.add(
            (*path, type_name),
            f"unknown resource type {type_name!r}",
            code=ProblemCode.UNKNOWN_TYPE,
            name=str(type_name),
            **meant(str(type_name), type_names()),
        )
        return
    path = (*path, type_name)
    if isinstance(body, list) and body:
        yield from _read_list(type_name, body, path, problems)
    elif isinstance(body, dict) and "name" in body:
        properties, loop = dict(body), None  # a copy: an alias may share the mapping
        if FOR in properties:
            reference = f"{type_name}#{body['name']}"
            loop = _read_loop(properties.pop(FOR), reference, path, problems)
        label = _read_label(properties, path, problems)
        yield Entry(type_name, properties, path, loop, label=label)
    elif isinstance(body, dict):
        is_list = body and all(value is None or isinstance(value, dict) for value in body.values())
        hint = "write '- ' before each name" if is_list else "add the key 'name'"
        problems.add(path, "has no name", type_name, _SHAPE, hint=hint)
    else:
        problems.add(
            path,
            f"is {_described(body)}",
            type_name,
            _SHAPE,
            expected="a list of names, or one mapping with a name",
        )


def _read_list(type_name: str, body: list[Any], path: KeyPath, problems: Problems) -> Iterator[Entry]:
    # Defaults apply to the whole list, at any position.
    defaults = _read_defaults(body, path, problems)
    of_list = _read_label(defaults, path, problems) if LABEL in defaults else ""
    for index, item in enumerate(body):
        place, has_loop = (*path, index), isinstance(item, dict) and FOR in item
        if isinstance(item, str) and item not in _NO_NAMES:
            yield Entry(type_name, {**defaults, "name": item}, place, label=of_list)
            continue
        has_label = isinstance(item, dict) and len(item) > 1 and isinstance(item.get(LABEL), str)
        beside = ((FOR,) if has_loop else ()) + ((LABEL,) if has_label else ())
        named = {key: value for key, value in item.items() if key not in beside} if beside else item
        if not isinstance(named, dict) or len(named) != 1 or (has_loop and DEFAULTS in named):
            detail = f"{_described_item(item)}, expected one name with its properties"
            is_cut = has_loop and any(re.match(_CLAUSE, str(key)) for key in item)
            problems.add(place, detail, type_name, _SHAPE, hint=_BRACKETS if is_cut else "")
            continue
        ((name, provided),) = named.items()
        if name == DEFAULTS:
            continue
        if provided is not None and not isinstance(provided, dict):
            detail = f"is {_described(provided)}, expected properties"
            problems.add((*place, name), detail, f"{type_name}#{name}", _SHAPE)
            continue
        provided = provided or {}
        if None in provided.values():
            provided = {
                key: value for key, value in provided.items() if value is not None or key not in defaults
            }
        properties = {**defaults, **provided, "name": name}
        loop = _read_loop(item[FOR], f"{type_name}#{name}", place, problems) if has_loop else None
        label = _read_label(properties, (*place, name), problems) if LABEL in properties else of_list
        if has_label:
            label = _read_label(dict(item), place, problems)
        yield Entry(type_name, properties, (*place, name), loop, label=label)


def _read_loop(value: object, reference: str, path: KeyPath, problems: Problems) -> "Loop":
    """Return the loop of the resource with the written ``reference``. Record problems."""
    try:
        return Loop.of(parse_clauses(value), reference)
    except ValueError as error:
        problems.add((*path, FOR), f"for {error}", reference, ProblemCode.INVALID_LOOP, property=FOR)
        return Loop.of((), reference)


def _read_label(properties: dict[str, Any], path: KeyPath, problems: Problems) -> str:
    """Remove the label from properties and return it. Record problems."""
    if LABEL not in properties:
        return ""
    label = properties.pop(LABEL)
    if isinstance(label, str) and label and not {"#", "{", "*"} & set(label):
        return label
    detail = f"label is {label!r}, expected text without #, * and expressions"
    problems.add((*path, LABEL), detail, code=ProblemCode.INVALID_VALUE, property=LABEL)
    return ""


def _read_defaults(body: list[Any], path: KeyPath, problems: Problems) -> dict[str, Any]:
    result: dict[str, Any] | None = None
    for index, item in enumerate(body):
        if not isinstance(item, dict) or DEFAULTS not in item or len(item) != 1:
            continue
        defaults = item[DEFAULTS]
        if result is not None:
            problems.add((*path, index), "defaults occurs twice in this list", code=_SHAPE)
        elif not isinstance(defaults, dict):
            detail = f"defaults is {_described(defaults)}, expected properties"
            problems.add((*path, index, DEFAULTS), detail, code=_SHAPE)
        else:
            result = defaults
    return dict(result or {})


def _described_item(item: object) -> str:
    if not isinstance(item, dict) or not item:
        return f"is {_described(item)}"
    names = ", ".join(str(name) for name in item if name != FOR)
    if FOR not in item:
        return f"has several names: {names}"
    return f"has for beside {names}" if names else "has for without a name beside it"


def _described(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return repr(value)
