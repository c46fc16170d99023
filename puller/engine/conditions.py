"""Conditions for managing a resource, its parts in their own contexts, and health checks. They only read the machine.

* The ``control`` of a resource and of its child manifests: ``managed = if and not unless``. An absent ``if`` is true,
  an absent ``unless`` false (``docs/resources/common.md``).
* Health checks are commands with the exit codes of Nagios plugins (0 OK, 1 WARNING, 2 CRITICAL, else UNKNOWN), and
  kinds. A failed kind is CRITICAL. A check that cannot be carried out, or not in time, is UNKNOWN. Neither is in order.
* The module of a kind is imported when a check uses it (``puller.checks``). It only reads.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

import msgspec

from bundles.deadline import Deadline, DeadlineError, aside
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, evaluate
from puller.bundle_paths import BundlePathError
from puller.checks.kinds import Answer, HealthCheck, NotCarriedOut
from puller.errors import PullerError, ResourceError, StoppedCommand, reason
from puller.manifest.declaration import Declaration, blocking_reason
from puller.manifest.graph.catalog import Catalog
from puller.reporting.report import Health, HealthResult
from puller.resources.base import Context, Resource
from puller.system import processes
from puller.system.commands import Command, split_words
from puller.system.protocol import System

_BY_EXIT_CODE = {0: Health.OK, 1: Health.WARNING, 2: Health.CRITICAL}
_LAST_OF_NAGIOS = 3
_ROOM = 60.0  # seconds: a pause ends before its deadline
_MODULES = {
    "disk": "local_checks",
    "dns": "network_checks",
    "file": "local_checks",
    "goss_rules": "goss",
    "process": "local_checks",
    "tcp": "network_checks",
    "unix": "network_checks",
}
"""Modules of ``puller.checks`` by kind. The module of any other kind has its name."""
_STARTS_PROGRAMS = frozenset({"goss", "goss_rules", "service"})
"""Kinds that start programs. They run in the main thread and have their own time limits."""


def check_health(check: HealthCheck, system: System) -> HealthResult:
    """Try until the result is OK or the tries are used up. Return a result also if the check cannot be started."""
    name = check.name or _name_of(check)
    tries = 1
    while True:
        result = _try_once(name, tries, check, system)
        if result.status is Health.OK or tries >= check.tries:
            return result
        Deadline(check.try_sleep + _ROOM, processes.check_command).pause(check.try_sleep)
        tries += 1


def _name_of(check: HealthCheck) -> str:
    if check.command is None:
        return check.kind
    return next(map(os.path.basename, check.command.split()), "without a command")


def _try_once(name: str, tries: int, check: HealthCheck, system: System) -> HealthResult:
    if check.command is not None:
        return _try_command(name, tries, check.command, check.timeout, system)
    try:
        answer = _answer(check, system)
    except StoppedCommand:  # the stop leaves the result unknown
        raise
    except NotCarriedOut as why:
        return HealthResult(name, Health.UNKNOWN, tries, "cannot be carried out", str(why))
    except DeadlineError:
        why_not = f"it exceeded its timeout of {check.timeout:g} s"
        return HealthResult(name, Health.UNKNOWN, tries, "timed out", why_not)
    except (OSError, PullerError) as error:
        text = reason(error) if isinstance(error, OSError) else str(error)
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        return HealthResult(name, Health.UNKNOWN, tries, "cannot be carried out", f"{where}{text}")
    if answer.wrong:
        return HealthResult(name, Health.CRITICAL, tries, str(Health.CRITICAL), "; ".join(answer.wrong))
    return HealthResult(name, Health.OK, tries, str(Health.OK), answer.found)


def _answer(check: HealthCheck, system: System) -> Answer:
    kind, desired = check.kind, check.desired
    module = import_module(f"puller.checks.{_MODULES.get(kind, kind)}")
    deadline = Deadline(check.timeout, processes.check_command)
    if kind in _STARTS_PROGRAMS:
        answer: Answer = module.ask(desired, deadline, system)
        deadline.verify()
        return answer
    # A lost file server or a slow resolver may block longer than any time limit.
    result: Answer = aside(lambda: module.ask(desired, deadline), deadline)
    return result


def _try_command(name: str, tries: int, command: str, timeout: float, system: System) -> HealthResult:
    try:
        if not (words := split_words(command)):
            raise ValueError("its command is empty")
        completed = system.query(Command(words, timeout=timeout))
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        return HealthResult(name, Health.UNKNOWN, tries, "cannot be started", error_output=why)
    code = completed.exit_code
    if code is None:
        status, outcome = Health.UNKNOWN, completed.outcome
    else:
        status = _BY_EXIT_CODE.get(code, Health.UNKNOWN)
        # Other programs define their own higher exit statuses.
        outcome = f"exit status {code} ({status})" if code <= _LAST_OF_NAGIOS else f"exit status {code}"
    return HealthResult(name, status, tries, outcome, completed.stdout.strip(), completed.stderr.strip())


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


class JoinedParts:
    """The parts of all resources of one catalog.

    ``context_of`` returns the context of a part. With ``noop``, resources with failed parts are already skipped.
    """

    def __init__(
        self, catalog: Catalog, context_of: Callable[[Declaration], Context], *, noop: bool = False
    ) -> None:
        self._catalog = catalog
        self._context_of = context_of
        self._noop = noop

    def of(self, reference: str) -> Sequence[Resource[Any, Any]] | None:
        """Return the managed parts of a resource. ``None`` if one is unknown in noop.

        Raise ``ResourceError`` if one cannot be applied, and the errors of its condition.
        """
        declared = [self._catalog.declarations[part] for part in self._indexes(reference)]
        parts = [declaration for declaration in declared if not is_left_out(declaration)]
        if unknown := next((part for part in parts if part.failure or part.late is not None), None):
            if self._noop:  # an earlier resource would create a file that its properties read
                return None
            raise ResourceError(f"{unknown.reference} cannot be applied, so the content is unknown")
        return [part.type(part.properties, self._context_of(part)) for part in parts]

    def _indexes(self, reference: str) -> Sequence[int]:
        catalog = self._catalog
        for whole, parts in catalog.links.parts.items():
            if catalog.declarations[whole].reference == reference:
                return parts
        return ()
