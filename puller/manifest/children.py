"""Child manifests: which file an ``apply`` resource means, whether it may be applied, and what its resources inherit.

* A child is a file of the same bundle, is applied once, and never within itself; ten are the most within each other.
* The resources of a child join the one list of the run. What holds for the ``apply`` resource holds for each of them:
  ``noop`` and ``sensitive`` here, requirements in ``links.py``, conditions in the engine.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from hiera.errors import HieraError
from hiera.expressions.expressions import resolve_tree
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.errors import ManifestError, SourceError
from puller.manifest.declaration import Declaration
from puller.manifest.problems import Problems

if TYPE_CHECKING:
    from puller.resources.apply import ApplyProperties

TYPE = "apply"
_DEEPEST = 10

Read = Callable[[Path, str, Mapping[str, Any] | None, Declaration], list[Declaration]]
"""Reads a manifest, by its path, its name in messages, the data it is given (``None``: the parent's own) and the
resource that brings it."""


class Family(msgspec.Struct):
    """A manifest and its children while they are read: the files so far, and all that is said of them."""

    path: Path
    """The top manifest."""
    name: str
    """What messages call it."""
    files: BundleFiles
    """As the top manifest sees them."""
    applied: dict[str, Declaration] = {}
    """Children by their real path."""
    texts: list[Problems] = []
    """Of everything that was read."""
    refused: list[str] = []
    """The problems of children that could not be read to their end."""
    warnings: list[str] = []

    def raise_any(self) -> None:
        """Raise ``ManifestError`` with all problems of all manifests, and of the texts that templates rendered."""
        sentences = [sentence for text in self.texts for sentence in text.sentences()]
        if sentences or self.refused:
            raise ManifestError([*sentences, *self.refused])


def expand(declaration: Declaration, family: Family, read: Read) -> list[Declaration]:
    """The resources below an ``apply`` resource (``resources.md`` section 9); what is wrong is noted, and then none.

    1. Its name, which is relative to its parent, becomes one that is relative to the top manifest.
    2. The file is found: inside of the bundle, allowed by all parents, applied once and not within itself.
    3. The data that it is handed is resolved in its parent's scope.
    4. Its manifest is read, with the children of that.
    5. ``noop`` and ``sensitive`` are handed down.
    6. When it cannot be applied on this machine its resources are checked, and left out.
    """
    if "name" in declaration.unknown:
        return []
    properties = cast("ApplyProperties", declaration.properties)
    if any(error.property == "name" for error in declaration.type.problems(properties)):
        return []  # noted when all resources are checked
    files = declaration.home.files
    try:
        # 1. Its name, as the top manifest would call it: two children may name different files alike.
        name = files.name_of(properties.name)
        declaration.properties = msgspec.structs.replace(properties, name=name)
        # 2. Its file.
        path = _find(declaration, files.find(properties.name), family)
        # 3. Its data.
        data = _data_of(declaration, properties)
        # 4. Its manifest.
        children = read(Path(path), _shown(path, family), data, declaration)
    except (SourceError, BundlePathError) as error:
        declaration.refuse("name", str(error))
    except ManifestError as error:
        family.refused += error.problems
    else:
        # 5. What it hands down.
        _hand_down(properties, children)
        if not declaration.failure:
            return children
        # 6. What is wrong with them is to be seen all the same.
        for child in children:
            child.check()
    return []


def _data_of(declaration: Declaration, properties: "ApplyProperties") -> Mapping[str, Any] | None:
    """The data of a child; ``None`` is the parent's own, and nothing when it is not known."""
    if "data" in declaration.unknown:
        return {}
    if properties.data is None:
        return None
    try:
        return cast("Mapping[str, Any]", resolve_tree(dict(properties.data), declaration.home.scope))
    except HieraError as error:
        declaration.failure = f"data: {error}"
        declaration.unknown |= {"data"}
        return {}


def _find(declaration: Declaration, path: str, family: Family) -> str:
    """The file of a child, at a real path; raises ``SourceError`` when it must not be applied here."""
    name, parents = declaration.properties.name, list(declaration.parents())
    for parent in parents:
        if not cast("ApplyProperties", parent.properties).allow_apply:
            raise SourceError(f"apply resources are denied, by allow_apply at {parent.where}")
    # Recursion before depth and repetition, which it would also be: its sentence shows the whole circle.
    _refuse_recursion(declaration, parents, path, family)
    if len(parents) >= _DEEPEST:
        raise SourceError(f"maximum apply depth of {_DEEPEST} exceeded")
    if (first := family.applied.setdefault(path, declaration)) is not declaration:
        raise SourceError(f"{name} is applied twice, first at {first.where}")
    return path


def _shown(path: str, family: Family) -> str:
    """What messages call a child: its file, from where the name of the top manifest starts."""
    inner = os.path.relpath(path, family.files.directory)
    return os.path.normpath(os.path.join(os.path.dirname(family.name), inner))


def _refuse_recursion(
    declaration: Declaration, parents: Sequence[Declaration], path: str, family: Family
) -> None:
    first = family.applied.get(path)
    if path == os.path.realpath(family.path) or any(parent is first for parent in parents):
        names = [family.path.name, *(parent.properties.name for parent in reversed(parents))]
        raise SourceError(f"manifests apply each other: {' → '.join([*names, declaration.properties.name])}")


def _hand_down(properties: "ApplyProperties", children: Sequence[Declaration]) -> None:
    """``noop`` and ``sensitive`` of the parent, which are only ever strengthened."""
    stronger = {name: True for name in ("noop", "sensitive") if getattr(properties, name)}
    for child in children if stronger else ():
        child.properties = msgspec.structs.replace(child.properties, **stronger)
