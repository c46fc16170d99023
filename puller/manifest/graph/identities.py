"""Identities of declared resources: the managed object, whatever its name in a manifest.

* ``cron`` and ``cron.service`` are one service. ``/lib/x`` and ``/usr/lib/x`` are one file. Types define the object
  (``Resource.identity``).
* Two declarations of one object are united if they agree. Otherwise they are an error of the manifest.
* Ten thousand files cost one lookup for each of their directories.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from puller.errors import ConfigurationError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.implied_order import has_own
from puller.resources.base import Properties
from puller.resources.registry import find_type
from puller.system.local_paths import Spellings

Key = tuple[str, Hashable]
"""The type and the object."""


def spellings_of(declarations: Sequence[Declaration], facts: Mapping[str, Any]) -> Spellings:
    """Return the canonical names of a machine, on which all declared links exist."""
    links: dict[str, str] = {}
    if all(kind.type_name != "link" for kind in {declaration.type for declaration in declarations}):
        return Spellings(facts, links)
    for declaration in declarations:
        if declaration.type.type_name == "link" and declaration.loop is None:
            target = getattr(declaration.properties, "target", "")
            if target and declaration.properties.ensure == "present":
                links[declaration.properties.name] = target
    return Spellings(facts, links)


def objects_of(declarations: Sequence[Declaration], spellings: Spellings) -> dict[int, Key]:
    """Return the objects of all declarations whose name is another text, by the ``id`` of the declaration."""
    types = {declaration.type for declaration in declarations}
    special = {kind for kind in types if has_own(kind, "identity")}
    if not special and not spellings.moved(declaration.properties.name for declaration in declarations):
        return {}  # the usual case
    known = [
        declaration
        for declaration in declarations
        if declaration.loop is None and "name" not in declaration.unknown and declaration.child is None
    ]
    paths = [
        declaration
        for declaration in known
        if declaration.type not in special and declaration.properties.name.startswith("/")
    ]
    objects: dict[int, Key] = {}
    if moved := spellings.moved(declaration.properties.name for declaration in paths):
        for declaration in paths:
            name = declaration.properties.name
            if name.rpartition("/")[0] in moved:
                objects[id(declaration)] = declaration.type.type_name, spellings.of(name)
    for declaration in known if special else ():
        kind, properties = declaration.type, declaration.properties
        # If a resource cannot be evaluated here, only its name is known.
        if kind in special and isinstance(properties, kind.properties_type):
            identity = kind.identity(properties, spellings)
            if identity != properties.name:
                objects[id(declaration)] = kind.type_name, identity
    return objects


def identity_of(reference: str, spellings: Spellings) -> Key | None:
    """Return the object that a reference of an earlier run means, ``None`` if its type is unknown now."""
    type_name, _, name = reference.partition("#")
    try:
        kind = find_type(type_name)
    except ConfigurationError:  # a type of another distribution that cannot be used now
        return None
    if kind is None:
        return None
    properties: Properties = Properties(name=name)
    if has_own(kind, "identity"):
        try:
            properties = kind.properties_type(name=name)
        except TypeError:  # its name does not identify it alone
            return None
    return type_name, kind.identity(properties, spellings)


def key_of(declaration: Declaration) -> Key:
    """Return the type and the name of a declaration."""
    return declaration.type.type_name, declaration.properties.name
