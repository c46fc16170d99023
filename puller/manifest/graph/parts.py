"""Parts of resources: each fragment with the file that writes it (``Resource.part_of``), also across manifests.

* A resource with parts follows and requires them, so it is not applied without one of them.
* Other resources that refer to a part mean the resource that applies it: a subscriber of a fragment is refreshed when
  its file changes.
* A part whose path is unknown here belongs to every resource with parts, because it may belong to each of them.
* The resource with parts is in the same manifest, or in an earlier one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from foundation.problems import DependsOn, Problem, ProblemCode
from foundation.suggestions import meant_reference
from puller.manifest.declaration import Declaration
from puller.manifest.graph.catalog import Links, has_own
from puller.system.local_paths import Spellings
from puller.values.common_properties import Reference


def link_parts(
    declarations: Sequence[Declaration], links: Links, known: Collection[Reference], spellings: Spellings
) -> None:
    """Link the parts of one manifest. Record a problem for each part without its resource.

    ``known`` are resources of earlier manifests.
    """
    parts = list(_parts(declarations))
    if not parts:  # the usual case
        return
    joining = _joining(declarations, spellings)
    for position, reference in parts:
        if reference is None:
            _add(position, joining.values(), links)
            links.outside_parts[position] = []
            continue
        key = _key(reference, spellings)
        outside = _find_outside(reference, known, spellings)
        if key in joining:
            _add(position, [joining[key]], links)
        elif (other := _find_declared(reference, declarations, spellings)) is not None:
            _refuse(declarations[position], _not_joined(reference, other))
        elif outside is not None:
            links.outside_parts[position] = [outside]
        else:
            _refuse(declarations[position], _undeclared(reference, declarations, known))
    _refer_to_wholes(declarations, links)


def link_outside_parts(
    declarations: Sequence[Declaration],
    outside: Mapping[int, Sequence[Reference]],
    links: Links,
    spellings: Spellings,
) -> Iterator[Problem]:
    """Link parts of a joined manifest with resources of earlier ones. Yield the problems.

    ``outside`` has the resource of each part, by the index of the part. Empty if it is unknown here.
    """
    joining = _joining(declarations, spellings) if outside else {}
    for position, references in outside.items():
        if not references:
            _add(position, joining.values(), links)
        for reference in references:
            if (other := joining.get(_key(reference, spellings))) is not None:
                _add(position, [other], links)
            else:
                first = _find_declared(reference, declarations, spellings)
                declaration = declarations[position]
                yield declaration.located(declaration.type.part_property, _not_joined(reference, first))
    if links.parts:
        _refer_to_wholes(declarations, links)


def _refer_to_wholes(declarations: Sequence[Declaration], links: Links) -> None:
    """Let resources that refer to a part refer to the resource that applies it."""
    wholes = {part: whole for whole, parts in links.parts.items() for part in parts}
    for edges in (links.subscriptions, links.reloads, links.first):
        for index, others in edges.items():
            edges[index] = list(dict.fromkeys(_whole(index, other, wholes) for other in others))
    for index, required in links.requirements.items():
        links.requirements[index] = [(name, _whole(index, other, wholes)) for name, other in required]
    for part, whole in wholes.items():
        if subscribers := links.subscribers.pop(part, None):
            all_of_them = (*links.subscribers.get(whole, ()), *subscribers)
            links.subscribers[whole] = list(dict.fromkeys(all_of_them))
    for whole, parts in links.parts.items():
        required = [(declarations[part].reference, part) for part in parts]
        links.first[whole] = list(dict.fromkeys((*links.first.get(whole, ()), *parts)))
        links.requirements[whole] = list(dict.fromkeys((*links.requirements.get(whole, ()), *required)))


def _whole(index: int, other: int, wholes: dict[int, int]) -> int:
    """Return the resource that a reference of ``index`` to ``other`` means.

    Two parts of one resource, and the resource itself, refer to the parts.
    """
    whole = wholes.get(other, other)
    return other if whole in (index, wholes.get(index)) else whole


def _parts(declarations: Sequence[Declaration]) -> Iterator[tuple[int, Reference | None]]:
    """Yield all parts with their resource. ``None`` if the path is unknown here."""
    types = {kind for kind in {declaration.type for declaration in declarations} if has_own(kind, "part_of")}
    if not types:
        return
    for position, declaration in enumerate(declarations):
        if declaration.type not in types:
            continue
        properties = declaration.properties
        is_known = isinstance(properties, declaration.type.properties_type)
        if (
            not is_known
            or declaration.type.part_property in declaration.unknown
            or declaration.loop is not None
        ):
            yield position, None
        elif (reference := declaration.type.part_of(properties)) is not None:
            yield position, reference


def _joining(declarations: Sequence[Declaration], spellings: Spellings) -> dict[Reference, int]:
    """Return the resources that can have parts."""
    types = {kind for kind in {one.type for one in declarations} if has_own(kind, "joins_parts")}
    return {
        _key(declaration.reference, spellings): position
        for position, declaration in enumerate(declarations)
        if declaration.type in types
        and isinstance(declaration.properties, declaration.type.properties_type)
        and declaration.type.joins_parts(declaration.properties)
    }


def _key(reference: Reference, spellings: Spellings) -> Reference:
    """Return one reference for all spellings of a path."""
    kind, _, name = reference.partition("#")
    return Reference.to(kind, spellings.of(name)) if name.startswith("/") else reference


def _find_outside(
    reference: Reference, known: Collection[Reference], spellings: Spellings
) -> Reference | None:
    if reference in known:
        return reference
    key, kind = _key(reference, spellings), reference.partition("#")[0]
    others = (other for other in known if other.startswith(f"{kind}#"))
    return next((other for other in others if _key(other, spellings) == key), None)


def _find_declared(
    reference: Reference, declarations: Sequence[Declaration], spellings: Spellings
) -> Declaration | None:
    key = _key(reference, spellings)
    return next((one for one in declarations if _key(one.reference, spellings) == key), None)


def _add(part: int, wholes: Iterable[int], links: Links) -> None:
    for whole in wholes:
        if part not in (parts := links.parts.setdefault(whole, [])):
            parts.append(part)


def _refuse(declaration: Declaration, problem: Problem) -> None:
    name = declaration.type.part_property
    if name in declaration.dynamic:  # another host may have another value
        declaration.failures = (*declaration.failures, problem)
    else:
        declaration.refuse(name, problem)


def _undeclared(
    reference: Reference, declarations: Sequence[Declaration], known: Collection[Reference]
) -> Problem:
    names = [*(declaration.reference for declaration in declarations), *known]
    kind = reference.partition("#")[0]
    desired = "the file with fragments: true" if kind == "file" else f"the {kind}"
    return Problem(
        code=ProblemCode.UNDECLARED_REFERENCE,
        message=f"is a part of {reference}, which is not declared",
        name=str(reference),
        **meant_reference(reference, [name for name in names if name.startswith(f"{kind}#")]),
        hint=f"declare {desired}, in this bundle or an earlier one",
        depends_on=DependsOn.BUNDLES,
    )


def _not_joined(reference: Reference, other: Declaration | None) -> Problem:
    where = f" at {other.origin}" if other is not None else ""
    related = (other.problems.location(other.path),) if other is not None else ()
    is_file = reference.startswith("file#")
    return Problem(
        code=ProblemCode.RESOURCE_CONFLICT,
        message=f"is a part of {reference}{where}, which has no {'fragments' if is_file else 'parts'}",
        name=str(reference),
        related=related,
        hint="declare the file with fragments: true and ensure: present" if is_file else "",
    )
