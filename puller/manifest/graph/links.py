"""Links between the declared resources of a run: resolves references, and derives the order from them.

* Unknown names, ambiguous names and cycles are problems of the manifest.
* A pattern (``file#/etc/nginx/*``) and a label (``label#maps``) refer to all matching resources except the resource
  with the reference. A pattern without matches is a problem, unless a loop without items could produce matches.
* A child manifest that is applied with several data sets has one name. A reference to it refers to each application.
* Each resource of a child manifest requires the prerequisites of its ``apply`` resource. Subscribing to an ``apply``
  resource subscribes to every resource below it. A resource in several manifests waits for the requirements of all
  these manifests. If some of them are applied unconditionally, it waits only for their common requirements.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from foundation.problems import DependsOn, Problem, ProblemCode
from foundation.suggestions import meant_reference
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.manifest.declaration import Declaration, has_conditions
from puller.manifest.graph.catalog import (
    CycleError,
    Links,
    Outside,
    PrerequisiteLinks,
    ordered,
    with_implied,
    with_last,
)
from puller.manifest.graph.parts import link_parts
from puller.resources.registry import type_names
from puller.system.local_paths import Spellings
from puller.values.common_properties import LABEL, Reference, reload_of

APPLY = "apply"
_APPLY = f"{APPLY}#"
_LABEL = f"{LABEL}#"
T = TypeVar("T")


def link(
    declarations: Sequence[Declaration],
    known: Collection[Reference] = (),
    of_no_item: Collection[Reference] = (),
    spellings: Spellings | None = None,
) -> Links:
    """Resolve all references. Record problems.

    ``known`` are resources of other manifests, ``of_no_item`` are names of loops without items. ``spellings`` are the
    canonical names of the machine.
    """
    names = _names(declarations, known, of_no_item)
    applied_by = _applied_by(declarations)
    links = Links(children=_children(applied_by))
    for position, declaration in enumerate(declarations):
        properties = declaration.properties
        # Most resources have no links, so they cost almost nothing here.
        kind = declaration.type
        if (
            properties.require
            or properties.after
            or kind.subscriptions(properties)
            or kind.reloads(properties)
        ):
            _link(position, declaration, names, links)
    link_parts(declarations, links, known, spellings or Spellings({}))
    _hand_down(declarations, applied_by, links)
    links.first = with_implied(declarations, links.first)
    return links


def _link(position: int, declaration: Declaration, names: "Names", links: Links) -> None:
    required: PrerequisiteLinks = []
    after: PrerequisiteLinks = []
    subscribed: PrerequisiteLinks = []
    reloaded: PrerequisiteLinks = []
    outside: Outside = []
    # Each place has its own relative names and its own problems.
    for place in declaration.places():
        properties = place.properties
        required += _find_all(position, place, "require", properties.require, names, outside)
        after += _find_all(position, place, "after", properties.after, names, outside)
        subscribed += _find_all(
            position, place, "subscribe", place.type.subscriptions(properties), names, outside
        )
        reloaded += _find_all(position, place, "reload", place.type.reloads(properties), names, outside)
    if outside:
        links.outside[position] = _once(outside)
    links.requirements[position] = _once(required)
    links.first[position] = _once(other for _, other in (*required, *after, *subscribed, *reloaded))
    reference = declaration.reference
    for found, each, listed in (
        (subscribed, links.subscriptions, reference),
        (reloaded, links.reloads, reload_of(reference)),
    ):
        if found:
            each[position] = list(_with_children((other for _, other in found), links.children))
            for other in each[position]:
                links.subscribers.setdefault(other, []).append(listed)


def order(declarations: Sequence[Declaration], links: Links) -> list[int]:
    """Return the order of application. Record a cycle as a problem."""

    def first(index: int) -> Sequence[int]:
        return links.first.get(index, ())

    try:
        return with_last(declarations, ordered(len(declarations), first), first)
    except CycleError as cycle:
        problem = cycle_problem(declarations, cycle)
        declarations[cycle.indexes[0]].problems.note(problem)
        return list(range(len(declarations)))  # never applied


def cycle_problem(declarations: Sequence[Declaration], cycle: CycleError) -> Problem:
    """Return the problem of the first resource of a cycle."""
    chain = [declarations[index] for index in cycle.indexes]
    message = f"resources wait for each other: {' → '.join(str(item.reference) for item in chain)}"
    related = tuple(item.problems.location(item.path) for item in chain[1:-1])
    first = chain[0]
    code = ProblemCode.DEPENDENCY_CYCLE
    return first.problems.problem(first.path, message, code=code, name=str(first.reference), related=related)


class Names(msgspec.Struct):
    """The resources of each reference."""

    declared: Sequence[Declaration]
    index: dict[Reference, int] = {}
    """The resource by its names. Of child manifests with one name, the first."""
    alike: dict[Reference, list[int]] = {}
    """Further child manifests of one file, applied with other data."""
    loops: list[tuple[int, Declaration]] = []
    """The loops that cannot be evaluated on this machine."""
    outside: Collection[Reference] = ()
    """Names of resources of other manifests."""
    of_no_item: Collection[Reference] = ()
    """Names of entries whose loops have no item on this machine."""
    labels: dict[Reference, list[int]] = {}
    by_pattern: dict[Reference, list[int]] = {}
    """The resources of patterns, cached because resources share patterns."""

    def find(self, reference: Reference) -> list[int]:
        """Return all resources of a reference. Empty for an unknown reference."""
        first = self.index.get(reference)
        return [] if first is None else [first, *self.alike.get(reference, ())]

    def matching(self, reference: Reference, of: int) -> list[int]:
        """Return the resources that match a pattern or a label, without the resource that refers to them."""
        if reference.startswith(_LABEL):
            return [position for position in self.labels.get(reference, ()) if position != of]
        if not reference.is_pattern:
            return []
        if reference not in self.by_pattern:
            matches = reference.matcher()
            results = [self.find(name) for name in self.index if matches(name)]
            results.append([position for position, loop in self.loops if matches(loop.loop_reference)])
            self.by_pattern[reference] = _once(position for positions in results for position in positions)
        return [position for position in self.by_pattern[reference] if position != of]

    def outside_matching(self, reference: Reference) -> list[Reference]:
        """Return the resources of other manifests that match a pattern."""
        if not reference.is_pattern or reference.startswith(_LABEL):
            return []
        matches = reference.matcher()
        return [name for name in self.outside if matches(name)]

    def means_nothing(self, reference: Reference) -> bool:
        """Return whether a loop without items would have declared a matching resource."""
        if reference in self.of_no_item:
            return True
        return reference.is_pattern and any(map(reference.matcher(), self.of_no_item))

    def of_loop(self, reference: Reference) -> list[int]:
        """Return the loop that may declare a matching resource."""
        return [position for position, loop in self.loops if loop.may_expand_to(reference)][:1]


def _names(
    declarations: Sequence[Declaration], outside: Collection[Reference], of_no_item: Collection[Reference]
) -> Names:
    loops = [(position, found) for position, found in enumerate(declarations) if found.loop is not None]
    names = Names(declarations, loops=loops, outside=outside, of_no_item=of_no_item)
    for position, declaration in enumerate(declarations):
        for label in declaration.labels():
            names.labels.setdefault(label, []).append(position)
        for name in declaration.names():
            if (other := names.index.setdefault(name, position)) == position:
                continue
            if _is_instance(declaration, declarations[other], name):
                names.alike.setdefault(name, []).append(position)
                continue
            first = declarations[other]
            declaration.problems.add(
                declaration.path,
                f"{name} is also the name of the resource at {first.origin}",
                code=ProblemCode.DECLARED_TWICE,
                name=str(name),
                related=(first.problems.location(first.path),),
            )
    return names


def _is_instance(declaration: Declaration, other: Declaration, name: Reference) -> bool:
    """Return whether a name is the file that both apply, with different data."""
    first, two = declaration.child, other.child
    return first is not None and two is not None and first.path == two.path and name == declaration.reference


def _find_all(
    position: int,
    declaration: Declaration,
    name: str,
    references: Iterable[Reference],
    names: Names,
    outside: Outside,
) -> PrerequisiteLinks:
    result = []
    for reference in references:
        # Relative to its own manifest first, then to the top manifest, then in another manifest.
        own = _from_top(reference, declaration.home.files)
        meant = names.find(own) or names.find(reference)
        if not meant and (several := names.matching(own, position) or names.matching(reference, position)):
            result += [(names.declared[other].reference, other) for other in several]
            outside += [(name, other) for other in names.outside_matching(reference)]
            continue
        if not meant and reference in names.outside:
            outside.append((name, reference))
            continue
        if not meant and (others := names.outside_matching(reference)):
            outside += [(name, other) for other in others]
            continue
        if not meant:  # an unevaluated loop may declare it
            meant = names.of_loop(own) or names.of_loop(reference)
        result += [(reference, other) for other in meant]
        if not (meant or names.means_nothing(own) or names.means_nothing(reference)):
            declared = [item for item in (*names.index, *names.outside) if item != declaration.reference]
            declaration.refuse(name, _undeclared(name, reference, declared))
    return result


def _undeclared(name: str, reference: Reference, declared: Sequence[Reference]) -> Problem:
    """Return the problem of a reference without a resource. Another bundle may declare one of a type that exists."""
    of, separator, _ = reference.partition("#")
    is_type_unknown = bool(separator) and of not in (*type_names(), LABEL)
    detail = f"and the type {of!r} is unknown" if is_type_unknown else "which is not declared"
    return Problem(
        code=ProblemCode.UNKNOWN_TYPE if is_type_unknown else ProblemCode.UNDECLARED_REFERENCE,
        message=f"{name} names {reference}, {detail}",
        name=str(reference),
        **meant_reference(reference, declared),
        depends_on=DependsOn.NOTHING if is_type_unknown else DependsOn.BUNDLES,
    )


def _from_top(reference: Reference, files: BundleFiles) -> Reference:
    """Return a reference relative to the top manifest. Names of child manifests are relative to their parent."""
    if not reference.startswith(_APPLY):
        return reference
    try:
        return Reference(_APPLY + files.name_of(reference.removeprefix(_APPLY)))
    except BundlePathError:  # an alias may be any text
        return reference


def _applied_by(declarations: Sequence[Declaration]) -> dict[int, list[int]]:
    """Return the ``apply`` resources that apply each resource of a child manifest."""
    positions = {
        id(declaration.child): position
        for position, declaration in enumerate(declarations)
        if declaration.child is not None
    }
    if not positions:
        return {}
    result: dict[int, list[int]] = {}
    for position, declaration in enumerate(declarations):
        if declaration.united:
            children = {id(place.home.child) for place in declaration.united}
            parents = sorted(positions[child] for child in children if child in positions)
            result |= {position: parents} if parents else {}
        elif (child := declaration.home.child) is not None and id(child) in positions:
            result[position] = [positions[id(child)]]
    return result


def _children(applied_by: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for position, parents in applied_by.items():
        for parent in parents:
            children.setdefault(parent, []).append(position)
    return children


def _with_children(positions: Iterable[int], children: Mapping[int, list[int]]) -> dict[int, None]:
    """Return resources and all resources below them, without duplicates."""
    result: dict[int, None] = {}
    waiting = list(positions)[::-1]
    while waiting:
        if (position := waiting.pop()) not in result:
            result[position] = None
            waiting += reversed(children.get(position, ()))
    return result


def _hand_down(
    declarations: Sequence[Declaration], applied_by: Mapping[int, Sequence[int]], links: Links
) -> None:
    """Let children wait for the prerequisites of their parents, and parents for their children."""
    # A parent follows its children. In reverse order, each parent has all its prerequisites before its children get
    # them.
    each: tuple[dict[int, list[Any]], ...] = (links.requirements, links.first, links.outside)
    for position in sorted(applied_by, reverse=True):
        parents, united = applied_by[position], declarations[position].united
        by_child = {id(declarations[parent].child): parent for parent in parents} if united else {}
        for found in each:
            handed = _handed(united, by_child, found) if united else found.get(parents[0])
            if not handed:
                continue
            # Resources without own prerequisites share one list.
            own = found.get(position)
            found[position] = _once((*handed, *own)) if own else handed
    for position, below in links.children.items():
        links.first[position] = _once((*links.first.get(position, ()), *below))


def _handed(
    places: Sequence[Declaration], by_child: Mapping[int, int], result: Mapping[int, list[Any]]
) -> list[Any]:
    """Return the prerequisites that a united resource gets from the manifests of its ``places``.

    If some manifests are applied without conditions, it waits only for their common prerequisites. Otherwise it waits
    for the prerequisites of all manifests, because any of them may be applied.
    """
    parents = [(place, by_child.get(id(place.home.child))) for place in places]
    waits = [(place, [] if parent is None else result.get(parent, [])) for place, parent in parents]
    certain = [items for place, items in waits if not has_conditions(place)]
    if certain:
        return [item for item in certain[0] if all(item in other for other in certain)]
    return [item for _, items in waits for item in items]


def _once(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))
