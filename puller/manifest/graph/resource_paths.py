"""Paths from the top manifest to a resource.

Several manifests may declare one resource, and each manifest may be applied several times. A condition or a stopped
manifest blocks the resource only if every path has such a blocker.
"""

from collections.abc import Callable

from puller.manifest.declaration import Child, Declaration

Why = Callable[[Declaration], str]
"""Returns why a declaration, of a resource or of an ``apply`` resource above it, is blocked. Empty if it is not."""


def why_no_way(declaration: Declaration, why: Why) -> str:
    """Return why every path to a resource is blocked. Empty if one path is open, otherwise the first reason.

    All paths are checked, so the order of declarations does not matter.
    """
    known: dict[int, str] = {}

    def of_child(child: Child) -> str:
        if id(child) not in known:
            known[id(child)] = _of_all([of_place(place) for place in child.applied])
        return known[id(child)]

    def of_place(place: Declaration) -> str:
        if text := why(place):
            return text
        return "" if place.home.child is None else of_child(place.home.child)

    return _of_all([of_place(place) for place in declaration.places()])


def _of_all(reasons: list[str]) -> str:
    return "" if "" in reasons else reasons[0]


def has_conditions(declaration: Declaration) -> bool:
    """Return whether any condition decides if it is managed."""
    if declaration.properties.control is None and declaration.home.child is None and not declaration.united:
        return False  # the usual case
    return bool(why_no_way(declaration, _condition))


def _condition(declaration: Declaration) -> str:
    return "control" if declaration.properties.control is not None else ""
