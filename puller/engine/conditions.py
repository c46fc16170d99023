"""Conditions for managing a resource: its ``control``, and the ``control`` of its child manifests.

``managed = if and not unless``. An absent ``if`` is true, an absent ``unless`` false (``docs/resources/common.md``).
"""

from collections.abc import Iterable

import msgspec

from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, evaluate
from puller.bundle_paths import BundlePathError
from puller.checks.kinds import HealthCheck
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration, blocking_reason


def why_unmanaged(declaration: Declaration) -> str:
    """Return why a resource or all its child manifests are not managed. Empty if one path to it is open.

    Raise ``ResourceError`` and ``HieraError`` for a condition that is neither true nor false.
    """
    if declaration.properties.control is None and declaration.home.child is None and not declaration.united:
        return ""
    places = {id(place) for place in declaration.places()}

    def why(place: Declaration) -> str:
        text = _why_not(place)
        return text if not text or id(place) in places else f"{place.reference}: {text}"

    return blocking_reason(declaration, why)


def is_left_out(declaration: Declaration) -> bool:
    """Return whether a resource is certainly not managed. ``False`` if a condition cannot be evaluated."""
    return not _is_managed(declaration)


def health_checks_of(declaration: Declaration) -> Iterable[HealthCheck]:
    """Return the health checks of a managed resource. With several declarations, only managed ones count."""
    if not declaration.united or not declaration.properties.health_checks:
        return [_with_file(check, declaration) for check in declaration.properties.health_checks]
    managed = (place for place in declaration.united if _is_managed(place))
    checks = (_with_file(check, place) for place in managed for check in place.properties.health_checks)
    return dict.fromkeys(checks)


def _with_file(check: HealthCheck, place: Declaration) -> HealthCheck:
    """Return a check with the absolute path of its file. A path outside the bundle is kept."""
    if check.goss is None:
        return check
    try:
        return msgspec.structs.replace(check, goss=place.home.files.find(check.goss))
    except BundlePathError:
        return msgspec.structs.replace(check, goss=check.goss.lstrip("/"))


def _is_managed(declaration: Declaration) -> bool:
    try:
        return not why_unmanaged(declaration)
    except (ResourceError, HieraError):  # the resource fails later, and its checks stay
        return True


def _why_not(declaration: Declaration) -> str:
    control = declaration.properties.control
    if control is None:
        return ""
    scope = declaration.scope
    if control.if_ is not None and not _holds("if", control.if_, scope):
        return f"control: if {control.if_} is false"
    if control.unless is not None and _holds("unless", control.unless, scope):
        return f"control: unless {control.unless} is true"
    return ""


def _holds(name: str, condition: str | bool, scope: Scope) -> bool:
    if isinstance(condition, bool):
        return condition
    value = evaluate(condition, scope)
    if not isinstance(value, bool):
        raise ResourceError(f"control: {name} {condition} is {value!r}", expected="true or false")
    return value
