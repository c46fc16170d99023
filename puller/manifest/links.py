"""References between the declared resources of a run, and the order that follows from them.

* What names nothing, what is named twice and what waits for itself are problems of the manifest.
* What an ``apply`` resource requires, each resource of its child manifest requires; subscribing to one subscribes to
  every resource below it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from puller.bundle_paths import BundleFiles, BundlePathError
from puller.manifest.declaration import Declaration
from puller.manifest.order import CycleError, ordered
from puller.values.reference import Reference
from puller.values.suggestions import did_you_mean

APPLY = "apply"
_APPLY = f"{APPLY}#"
Found = list[tuple[Reference, int]]


class Links(msgspec.Struct):
    """References as indexes; only resources that have any are in here."""

    requirements: dict[int, Found] = {}
    subscriptions: dict[int, list[int]] = {}
    subscribers: dict[int, list[Reference]] = {}
    first: dict[int, list[int]] = {}
    """All that comes before a resource, whatever the reason."""
    children: dict[int, list[int]] = {}
    """Of an ``apply`` resource: the resources of its manifest."""
    outside: dict[int, list[tuple[str, Reference]]] = {}
    """References to resources of other manifests, each with the property that holds it."""

    def copied(self) -> "Links":
        """A copy to which links may be added."""
        return Links(
            *({index: list(found) for index, found in each.items()} for each in msgspec.structs.astuple(self))
        )


def link(declarations: Sequence[Declaration], known: Collection[Reference] = ()) -> Links:
    """Find what every reference means; notes problems. Those that are ``known`` are resources of other manifests."""
    index = _index(declarations)
    links = Links(children=_children(declarations))
    for position, declaration in enumerate(declarations):
        properties = declaration.properties
        subscriptions = declaration.type.subscriptions(properties)
        # Most have none: of ten thousand resources only those with links cost anything here.
        if not (properties.require or properties.after or subscriptions):
            continue
        outside: list[tuple[str, Reference]] = []
        find_all = partial(_find_all, declaration, index, known, outside)
        required = find_all("require", properties.require)
        after = find_all("after", properties.after)
        subscribed = find_all("subscribe", subscriptions)
        if outside:
            links.outside[position] = outside
        links.requirements[position] = required
        links.first[position] = [other for _, other in (*required, *after, *subscribed)]
        links.subscriptions[position] = [
            below for _, other in subscribed for below in _with_children(other, links.children)
        ]
        for other in links.subscriptions[position]:
            links.subscribers.setdefault(other, []).append(declaration.reference)
    _hand_down(links)
    return links


def order(declarations: Sequence[Declaration], links: Links) -> list[int]:
    """The order in which resources are applied; a cycle is noted as a problem."""
    try:
        return ordered(len(declarations), lambda index: links.first.get(index, ()))
    except CycleError as cycle:
        chain = [declarations[index] for index in cycle.indexes]
        sentence = "resources wait for each other: " + " → ".join(str(d.reference) for d in chain)
        chain[0].problems.add(chain[0].path, sentence, chain[0].label)
        return list(range(len(declarations)))  # any will do: it is never applied


def _index(declarations: Sequence[Declaration]) -> dict[Reference, int]:
    index: dict[Reference, int] = {}
    for position, declaration in enumerate(declarations):
        for name in declaration.names():
            if (other := index.setdefault(name, position)) != position:
                sentence = f"{name} is also a name of the resource at {declarations[other].where}"
                declaration.problems.add(declaration.path, sentence, declaration.label)
    return index


def _find_all(
    declaration: Declaration,
    index: Mapping[Reference, int],
    known: Collection[Reference],
    outside: list[tuple[str, Reference]],
    name: str,
    references: Iterable[Reference],
) -> Found:
    found = []
    for reference in references:
        # Relative to its own manifest first, then as the top manifest writes it.
        other = index.get(_from_top(reference, declaration.home.files))
        if other is None and (other := index.get(reference)) is None:
            if reference in known:
                outside.append((name, reference))
                continue
            declaration.refuse(
                name, f"{name} names {reference}, which is not declared{did_you_mean(reference, index)}"
            )
        else:
            found.append((reference, other))
    return found


def _from_top(reference: Reference, files: BundleFiles) -> Reference:
    """A reference as the top manifest would write it: child manifests are named relative to their parent."""
    if not reference.startswith(_APPLY):
        return reference
    try:
        return Reference(_APPLY + files.name_of(reference.removeprefix(_APPLY)))
    except BundlePathError:  # an alias may be any text
        return reference


def _children(declarations: Sequence[Declaration]) -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    for position, declaration in enumerate(declarations):
        if declaration.home.parent is not None:
            below.setdefault(id(declaration.home.parent), []).append(position)
    if not below:
        return {}
    return {
        position: below[id(declaration)]
        for position, declaration in enumerate(declarations)
        if id(declaration) in below
    }


def _with_children(position: int, children: Mapping[int, list[int]]) -> Iterable[int]:
    yield position
    for child in children.get(position, ()):
        yield from _with_children(child, children)


def _hand_down(links: Links) -> None:
    """Children wait for what their parent waits for, and the parent waits for its children."""
    # A parent stands after its children, so from the back each one has all of its own before its children get it.
    for position in sorted(links.children, reverse=True):
        requirements, first = links.requirements.get(position, []), links.first.get(position, [])
        outside = [found for found in links.outside.get(position, ()) if found[0] != "subscribe"]
        for child in links.children[position]:
            if requirements:
                links.requirements[child] = [*requirements, *links.requirements.get(child, [])]
            if outside:
                links.outside[child] = [*outside, *links.outside.get(child, [])]
            if first:
                links.first[child] = [*first, *links.first.get(child, [])]
        links.first[position] = [*first, *links.children[position]]
