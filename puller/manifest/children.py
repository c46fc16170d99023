"""Child manifests: the file of an ``apply`` resource, its limits, and the inherited properties of its resources.

Reports, ``explain`` and ``render`` show the names and data with which a child manifest is applied.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from foundation.formatting import prefixed
from foundation.masking import HIDDEN, mask_urls
from foundation.problems import Problem, ProblemCode, replaced
from hiera.errors import HieraError
from hiera.expressions.expressions import resolve_tree
from hiera.tree.ruby_values import printable
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError, SourceError
from puller.manifest.declaration import Child, Declaration
from puller.manifest.problems import Problems
from puller.values.common_properties import Reference
from puller.values.plain_values import fingerprint

if TYPE_CHECKING:
    from puller.resources.apply import ApplyProperties


TYPE = "apply"
_DEEPEST = 10
_HANDED_DOWN = ("noop", "sensitive")

Read = Callable[[str, Child], list[Declaration]]
"""Reads a child manifest, by its name in messages. Returns its resources and those of its own children."""


class Family(msgspec.Struct):
    """A manifest and its children during reading: their files and problems."""

    path: Path
    """The top manifest."""
    name: str
    """The name in messages."""
    files: BundleFiles
    """The files of the top manifest."""
    children: dict[tuple[str, int], list[Child]] = {}
    """By real path and fingerprint of the data."""
    texts: list[Problems] = []
    """The problems of every text."""
    refused: list[Problem] = []
    """The problems of children that could not be read completely."""
    warnings: list[Problem] = []
    of_no_item: set[Reference] = set()
    """Written names of entries whose loops have no items here. References to them are valid and empty."""

    def known(self, child: Child) -> Child:
        """Return the earlier child with this file and data. Otherwise register this child and return it."""
        handed = fingerprint([source.data for source in child.given.handed if source.data])
        alike = self.children.setdefault((child.path, handed), [])
        for known in alike:
            if known.failures == child.failures and known.given.is_as(child.given):
                return known
        alike.append(child)
        return child

    def raise_any(self) -> None:
        """Raise ``ManifestError`` with all problems of all manifests, and of rendered texts."""
        problems = [problem for text in self.texts for problem in text.all()]
        # The same problem recurs for each set of data.
        if problems or self.refused:
            raise ManifestError(list(dict.fromkeys([*problems, *self.refused])))


def expand(declaration: Declaration, family: Family, read: Read) -> list[Declaration]:
    """Return the resources below an ``apply`` resource (``docs/resources/apply.md``). Empty after a problem.

    1. Resolve the name, which is relative to the parent, to a name relative to the top manifest.
    2. Find the file: inside the bundle, allowed by all parents, and not recursive.
    3. Resolve the data in the scope of the parent.
    4. If the file was applied before with the same data, use that child. Its resources are already in the list.
    5. Read the manifest with its children.
    6. If it cannot be applied on this machine, check its resources and leave them out.
    """
    if "name" in declaration.unknown:
        return []
    properties = cast("ApplyProperties", declaration.properties)
    if any(error.property == "name" for error in declaration.type.problems(properties)):
        return []  # recorded when all resources are checked
    files = declaration.home.files
    try:
        # 1. Name, relative to the top manifest: two children may use the same name for different files.
        name = files.name_of(properties.name)
        noop = properties.noop or properties.health_check_only
        declaration.properties = msgspec.structs.replace(properties, name=name, noop=noop)
        # 2. File.
        path = _find(declaration, files.find(properties.name), family)
        # 3. Data.
        provided = _given(declaration, properties)
        # 4. Child.
        child = family.known(Child(path, provided, declaration.failures))
        declaration.child = child
        child.applied.append(declaration)
        if len(child.applied) > 1:
            _require_room(declaration, child)
            return []
        # 5. Manifest.
        return _read(child, _shown(path, family), family, read)
    except (SourceError, BundlePathError) as error:
        for problem in error.problems:
            inner = replaced(prefixed(problem, ""), code=ProblemCode.INVALID_CHILD_MANIFEST)
            declaration.refuse("name", inner)
    except ManifestError as error:
        family.refused += error.problems
    finally:
        _count(declaration)
    return []


def hand_down(declarations: Iterable[Declaration]) -> None:
    """Set ``noop`` and ``sensitive`` of each resource if an ``apply`` resource above it has them."""
    known: dict[int, dict[str, bool]] = {}
    for declaration in declarations:
        if (child := declaration.home.child) is not None and (stronger := _stronger(child, known)):
            declaration.properties = msgspec.structs.replace(declaration.properties, **stronger)


def _stronger(child: Child, known: dict[int, dict[str, bool]]) -> dict[str, bool]:
    if id(child) not in known:
        result: dict[str, bool] = {}
        for declaration in child.applied:
            result |= {name: True for name in _HANDED_DOWN if getattr(declaration.properties, name)}
            if declaration.home.child is not None:
                result |= _stronger(declaration.home.child, known)
        known[id(child)] = result
    return known[id(child)]


def _given(declaration: Declaration, properties: "ApplyProperties") -> BundleData:
    """Return the data of a child, without its own document."""
    data, handed = _data_of(declaration, properties), None
    if data is not None:
        problems, path = declaration.problems, (*declaration.path, "data")
        handed = DataSource(Origin.PARENT, lambda: problems.where(path), data, joins_lists=True)
    return declaration.home.data.of_child(DataSource(Origin.MANIFEST, "", {}), handed)


def _data_of(declaration: Declaration, properties: "ApplyProperties") -> Mapping[str, Any] | None:
    """Return the data of a child. ``None``: the data of the parent. Empty if they are unknown."""
    if "data" in declaration.unknown:
        return {}
    if properties.data is None:
        return None
    try:
        return cast("Mapping[str, Any]", resolve_tree(dict(properties.data), declaration.scope))
    except HieraError as error:
        declaration.failures = tuple(
            replaced(prefixed(problem, "data"), property="data") for problem in error.problems
        )
        declaration.unknown |= {"data"}
        return {}


def _read(child: Child, name: str, family: Family, read: Read) -> list[Declaration]:
    if not child.failures:
        return read(name, child)
    # Problems of the resources are reported all the same, but none of them may be taken for a resource of the run.
    known, family.children = family.children, {}
    try:
        result = read(name, child)
        hand_down(result)
        for declaration in result:
            declaration.check()
    finally:
        family.children = known
    return []


def _find(declaration: Declaration, path: str, family: Family) -> str:
    """Return the real path of a child. Raise ``SourceError`` if it must not be applied here."""
    parents = list(_above(declaration))
    for parent in parents:
        if not cast("ApplyProperties", parent.properties).allow_apply:
            raise SourceError(_denied(parent))
    # Check recursion before depth, because its message shows the whole cycle.
    if path == os.path.realpath(family.path) or any(p.child and p.child.path == path for p in parents):
        between = (parent.properties.name for parent in reversed(parents))
        names = [family.path.name, *between, declaration.properties.name]
        raise SourceError(f"manifests apply each other in a cycle: {' → '.join(names)}")
    _require_depth(len(parents))
    return path


def _shown(path: str, family: Family) -> str:
    """Return the name of a child in messages: its file, relative like the name of the top manifest."""
    inner = os.path.relpath(path, family.files.directory)
    return os.path.normpath(os.path.join(os.path.dirname(family.name), inner))


def _above(declaration: Declaration) -> Iterator[Declaration]:
    """Yield the resources that apply the current manifest, the nearest first. Each is the only one so far."""
    child = declaration.home.child
    while child is not None:
        yield child.applied[0]
        child = child.applied[0].home.child


def _require_room(declaration: Declaration, child: Child) -> None:
    """Require that everything below a child is allowed here too. Raise ``SourceError``."""
    _require_depth(len(list(_above(declaration))) + child.height)
    if child.applies and not cast("ApplyProperties", declaration.properties).allow_apply:
        denied = Problem(code=ProblemCode.INVALID_CHILD_MANIFEST, message=_denied(declaration))
        child.applies[0].refuse("name", denied)


def _require_depth(depth: int) -> None:
    if depth >= _DEEPEST:
        raise SourceError(f"maximum apply depth of {_DEEPEST} exceeded")


def _denied(parent: Declaration) -> str:
    return f"apply resources are denied, because of allow_apply at {parent.where}"


def _count(declaration: Declaration) -> None:
    """Register an ``apply`` resource with its child manifest."""
    above, child = declaration.home.child, declaration.child
    if above is not None:
        above.applies.append(declaration)
        above.height = max(above.height, 1 + (child.height if child else 0))


_LONGEST = 60  # characters of the value of one key


def applied_as(declaration: Declaration) -> list[str]:
    """Return a sentence for each place that applies a child. Empty for other resources."""
    if declaration.child is None:
        return []
    return list(dict.fromkeys(_sentence(place) for place in declaration.places()))


def _sentence(place: Declaration) -> str:
    alias = f" as {place.properties.alias}" if place.properties.alias else ""
    return f"by {place.problems.source}{alias}, {_data(place)}"


def _data(place: Declaration) -> str:
    if place.child is None or getattr(place.properties, "data", None) is None:
        return "with its data"
    is_hidden = "data" in place.hidden
    pairs = [
        f"{key}: {HIDDEN if is_hidden else _shortened(value)}"
        for source in place.child.given.handed
        for key, value in source.data.items()
    ]
    return f"with {', '.join(pairs)}" if pairs else "without data"


def _shortened(value: object) -> str:
    text = mask_urls(msgspec.json.encode(printable(value), enc_hook=str).decode())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
