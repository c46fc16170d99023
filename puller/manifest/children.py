"""Child manifests: which file an ``apply`` resource means, whether it may be applied, and what its resources inherit.

* A child is a file of the same bundle, and never applied within itself; ten are the most within each other.
* The same file with the same data is one child, wherever it is applied from: its resources are there once, and belong
  to every ``apply`` resource that applies it. With other data it is another one.
* The resources of a child join the one list of the run. What holds for the ``apply`` resource holds for each of them:
  ``noop`` and ``sensitive`` here, requirements in ``links.py``, conditions in the engine.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from foundation.formatting import prefixed
from foundation.problems import Problem, ProblemCode, replaced
from hiera.errors import HieraError
from hiera.expressions.expressions import resolve_tree
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError, SourceError
from puller.manifest.declaration import Child, Declaration
from puller.manifest.problems import Problems
from puller.values.identical import fingerprint
from puller.values.references import Reference

if TYPE_CHECKING:
    from puller.resources.apply import ApplyProperties

TYPE = "apply"
_DEEPEST = 10
_HANDED_DOWN = ("noop", "sensitive")

Read = Callable[[str, Child], list[Declaration]]
"""Reads a child manifest, by its name in messages: its resources, with those of its own children."""


class Family(msgspec.Struct):
    """A manifest and its children while they are read: the files so far, and all that is said of them."""

    path: Path
    """The top manifest."""
    name: str
    """What messages call it."""
    files: BundleFiles
    """As the top manifest sees them."""
    children: dict[tuple[str, int], list[Child]] = {}
    """By their real path and a number of what they are handed; with the same data there is one."""
    texts: list[Problems] = []
    """Of everything that was read."""
    refused: list[Problem] = []
    """The problems of children that could not be read to their end."""
    warnings: list[Problem] = []
    of_no_item: set[Reference] = set()
    """The names, written out, of entries whose loops have no item here: whoever names them means nothing."""

    def known(self, child: Child) -> Child:
        """The child that was read before with this file and data; else this one, from now on."""
        handed = fingerprint([source.data for source in child.given.handed if source.data])
        alike = self.children.setdefault((child.path, handed), [])
        for known in alike:
            if known.failures == child.failures and known.given.is_as(child.given):
                return known
        alike.append(child)
        return child

    def raise_any(self) -> None:
        """Raise ``ManifestError`` with all problems of all manifests, and of the texts that templates rendered."""
        problems = [problem for text in self.texts for problem in text.all()]
        # What is wrong with a file is found each time that it is applied with other data.
        if problems or self.refused:
            raise ManifestError(list(dict.fromkeys([*problems, *self.refused])))


def expand(declaration: Declaration, family: Family, read: Read) -> list[Declaration]:
    """The resources below an ``apply`` resource (``docs/resources/apply.md``); what is wrong is noted, and then none.

    1. Its name, which is relative to its parent, becomes one that is relative to the top manifest.
    2. The file is found: inside of the bundle, allowed by all parents, and not within itself.
    3. The data that it is handed is resolved in its parent's scope.
    4. With a file and data that were applied before it is the same child, whose resources are there already.
    5. Its manifest is read, with the children of that.
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
        given = _given(declaration, properties)
        # 4. Which child it is.
        child = family.known(Child(path, given, declaration.failures))
        declaration.child = child
        child.applied.append(declaration)
        if len(child.applied) > 1:
            _require_room(declaration, child)
            return []
        # 5. Its manifest.
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
    """Give the resources of children the ``noop`` and ``sensitive`` of all that they are below: never taken back."""
    known: dict[int, dict[str, bool]] = {}
    for declaration in declarations:
        if (child := declaration.home.child) is not None and (stronger := _stronger(child, known)):
            declaration.properties = msgspec.structs.replace(declaration.properties, **stronger)


def _stronger(child: Child, known: dict[int, dict[str, bool]]) -> dict[str, bool]:
    if id(child) not in known:
        found: dict[str, bool] = {}
        for declaration in child.applied:
            found |= {name: True for name in _HANDED_DOWN if getattr(declaration.properties, name)}
            if declaration.home.child is not None:
                found |= _stronger(declaration.home.child, known)
        known[id(child)] = found
    return known[id(child)]


def _given(declaration: Declaration, properties: "ApplyProperties") -> BundleData:
    """The data of a child but for its own document."""
    data, handed = _data_of(declaration, properties), None
    if data is not None:
        problems, path = declaration.problems, (*declaration.path, "data")
        handed = DataSource(Origin.PARENT, lambda: problems.where(path), data, joins_lists=True)
    return declaration.home.data.of_child(DataSource(Origin.MANIFEST, "", {}), handed)


def _data_of(declaration: Declaration, properties: "ApplyProperties") -> Mapping[str, Any] | None:
    """The data of a child; ``None`` is the parent's own, and nothing when it is not known."""
    if "data" in declaration.unknown:
        return {}
    if properties.data is None:
        return None
    try:
        return cast("Mapping[str, Any]", resolve_tree(dict(properties.data), declaration.scope))
    except HieraError as error:
        declaration.failures = tuple(
            replaced(prefixed(one, "data"), property="data") for one in error.problems
        )
        declaration.unknown |= {"data"}
        return {}


def _read(child: Child, name: str, family: Family, read: Read) -> list[Declaration]:
    if not child.failures:
        return read(name, child)
    # What is wrong with its resources is to be seen all the same. None of them may be taken for one of the run.
    known, family.children = family.children, {}
    try:
        found = read(name, child)
        hand_down(found)
        for declaration in found:
            declaration.check()
    finally:
        family.children = known
    return []


def _find(declaration: Declaration, path: str, family: Family) -> str:
    """The file of a child, at a real path; raises ``SourceError`` when it must not be applied here."""
    parents = list(_above(declaration))
    for parent in parents:
        if not cast("ApplyProperties", parent.properties).allow_apply:
            raise SourceError(_denied(parent))
    # Recursion before depth, which it would also be: its sentence shows the whole circle.
    if path == os.path.realpath(family.path) or any(p.child and p.child.path == path for p in parents):
        between = (parent.properties.name for parent in reversed(parents))
        names = [family.path.name, *between, declaration.properties.name]
        raise SourceError(f"manifests apply each other: {' → '.join(names)}")
    _require_depth(len(parents))
    return path


def _shown(path: str, family: Family) -> str:
    """The name of a child in messages: its file, from where the name of the top manifest starts."""
    inner = os.path.relpath(path, family.files.directory)
    return os.path.normpath(os.path.join(os.path.dirname(family.name), inner))


def _above(declaration: Declaration) -> Iterator[Declaration]:
    """The resources that apply the manifest that is being read, the nearest first; each is the only one by now."""
    child = declaration.home.child
    while child is not None:
        yield child.applied[0]
        child = child.applied[0].home.child


def _require_room(declaration: Declaration, child: Child) -> None:
    """Require that all below a child is allowed here as well as where it was read; raises ``SourceError``."""
    _require_depth(len(list(_above(declaration))) + child.height)
    if child.applies and not cast("ApplyProperties", declaration.properties).allow_apply:
        denied = Problem(code=ProblemCode.INVALID_CHILD_MANIFEST, message=_denied(declaration))
        child.applies[0].refuse("name", denied)


def _require_depth(depth: int) -> None:
    if depth >= _DEEPEST:
        raise SourceError(f"maximum apply depth of {_DEEPEST} exceeded")


def _denied(parent: Declaration) -> str:
    return f"apply resources are denied, by allow_apply at {parent.where}"


def _count(declaration: Declaration) -> None:
    """Note an ``apply`` resource with the child that it stands in."""
    above, child = declaration.home.child, declaration.child
    if above is not None:
        above.applies.append(declaration)
        above.height = max(above.height, 1 + (child.height if child else 0))
