"""Applying a manifest: one flow for all resource types, one event for each resource.

* A resource is changed only where it differs, and looked at again afterwards: what still differs is a failure.
* Whatever goes wrong with one resource is that resource's failure; the run goes on.
* In noop nothing is changed, and what is reported is what the real run would do.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bundles.errors import BundleError
from hiera.errors import HieraError
from puller.errors import MutationInNoop, PullerError, ResourceError
from puller.manifest.loader import Declaration, Manifest
from puller.owed import OwedRefreshes
from puller.report import Event, Health, State
from puller.resources.base import Context, Difference, Resource
from puller.system import NoopSystem, System, reason


class Settings(msgspec.Struct, frozen=True):
    """How a manifest is applied."""

    noop: bool = False
    diffs: bool = False
    """Make diffs of changed text, for people."""
    listener: Callable[[Event], None] = lambda event: None
    """Told of each event as it happens."""
    log: Callable[[str], None] = lambda line: None
    """Lines that resources want in the log."""
    stopping: Callable[[], str] = lambda: ""
    """Why the run should stop before the next resource; empty to go on."""


class Engine:
    """Applies one manifest, once."""

    def __init__(
        self,
        manifest: Manifest,
        system: System,
        fetch: Callable[[str], bytes],
        owed: OwedRefreshes,
        settings: Settings,
    ) -> None:
        self._manifest = manifest
        self._settings = settings
        self._owed = owed
        self._events: list[Event | None] = [None] * len(manifest.declarations)
        self._uncertain = False
        self._context = Context(
            system=system,
            directory=manifest.directory,
            scope=manifest.scope,
            fetch=fetch,
            shared={},
            declared=manifest.names_of,
            log=settings.log,
            noop=settings.noop,
            uncertain=lambda: self._uncertain,
        )
        # A resource with noop of its own in a real run looks at the machine as it is, and may not change it either.
        self._noop_context = self._context
        if not settings.noop:
            self._noop_context = msgspec.structs.replace(self._context, system=NoopSystem(), noop=True)

    def apply(self) -> list[Event]:
        """Attend to every resource, in order; gives the events in that order. Raises nothing for a resource."""
        self._owed.keep_only(self._manifest.subscribers())
        events: list[Event] = []
        for index in self._manifest.order:
            declaration = self._manifest.declarations[index]
            if why := self._settings.stopping() or self._stopped_by_failure(events):
                event = _event(declaration, State.SKIPPED, skip_reason=why, reached=False)
            else:
                event = self._attend(index, declaration)
            self._events[index] = event
            events.append(event)
            self._settings.listener(event)
        return events

    def _stopped_by_failure(self, events: Sequence[Event]) -> str:
        if self._manifest.fail_on_error and events:
            last = events[-1]
            if last.state is State.FAILED:
                return f"{last.reference} failed, and fail_on_error is set"
            if not last.reached:
                return last.skip_reason
        return ""

    def _attend(self, index: int, declaration: Declaration) -> Event:
        started = time.perf_counter()
        try:
            event = self._event_of(index, declaration)
        except (ResourceError, HieraError, BundleError) as error:
            event = _event(declaration, State.FAILED, errors=[str(error)])
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            event = _event(declaration, State.FAILED, errors=[where + reason(error)])
        except (MutationInNoop, PullerError):
            raise
        except Exception as error:  # noqa: BLE001  promise: one resource's trouble, even a bug, never ends the run
            import traceback

            trouble = traceback.format_exception(error, limit=-3)
            event = _event(
                declaration, State.FAILED, errors=[f"internal error: {error!r}\n{''.join(trouble)}"]
            )
        event.duration = time.perf_counter() - started
        return event

    def _event_of(self, index: int, declaration: Declaration) -> Event:
        if declaration.failure:
            return _event(declaration, State.FAILED, errors=[f"{declaration.where}: {declaration.failure}"])
        if unmanaged := self._why_unmanaged(declaration):
            self._owed.clear([declaration.reference])
            return _event(declaration, State.SKIPPED, skip_reason=unmanaged)
        if unmet := self._unmet_requirements(index):
            return _event(
                declaration, State.SKIPPED, skip_reason="unmet requirements", unmet_requirements=unmet
            )
        noop = self._settings.noop or declaration.properties.noop
        resource = declaration.type(declaration.properties, self._noop_context if noop else self._context)
        _require_provider(resource)
        refresh = self._is_refresh_due(index, declaration, noop=noop)
        return self._converge(index, declaration, resource, refresh=refresh, noop=noop)

    def _converge(
        self, index: int, declaration: Declaration, resource: Resource[Any, Any], *, refresh: bool, noop: bool
    ) -> Event:
        actual = resource.look()
        differences = resource.differences(actual, refresh=refresh)
        event = _event(
            declaration,
            State.STABLE,
            provider=resource.provider,
            noop=noop,
            differences=[str(difference) for difference in differences],
        )
        if differences:
            if self._settings.diffs and not declaration.properties.sensitive:
                event.diff = resource.diff(actual) or ""
            if noop:
                event.noop_message = resource.noop_message(differences, actual)
                event.state = State.WOULD_CHANGE
                self._uncertain |= resource.unpredictable and self._settings.noop
            else:
                actual = self._change(index, resource, differences, actual)
                event.state = State.REFRESHED if any(d.refresh for d in differences) else State.CHANGED
        event.final_ensure = resource.final_ensure(actual)
        if not noop:
            if refresh:
                self._owed.clear([declaration.reference])
            self._check_health(declaration, event)
        return event

    def _change(
        self, index: int, resource: Resource[Any, Any], differences: Sequence[Difference], actual: Any
    ) -> Any:
        """Change, and look again; raises ``ResourceError`` when something still differs."""
        newly_owed = self._owed.record(self._manifest.subscribers_of(index))
        try:
            resource.change(differences, actual)
        except Exception:
            # Nobody is owed a refresh for a change that did not happen at all.
            if newly_owed and _is_unchanged(resource, differences):
                self._owed.clear(newly_owed)
            raise
        actual = resource.look()
        if remaining := resource.differences(actual):
            raise ResourceError("; ".join(f"after the change, {difference}" for difference in remaining))
        return actual

    # Questions about other resources

    def _why_unmanaged(self, declaration: Declaration) -> str:
        """``managed = if and not unless``; an absent ``if`` is true, an absent ``unless`` false."""
        control = declaration.properties.control
        if control is None:
            return ""
        if control.if_ is not None and not self._holds("if", control.if_):
            return f"control: if {control.if_} is false"
        if control.unless is not None and self._holds("unless", control.unless):
            return f"control: unless {control.unless} is true"
        return ""

    def _holds(self, name: str, condition: str | bool) -> bool:
        if isinstance(condition, bool):
            return condition
        value = self._manifest.evaluate(condition)
        if not isinstance(value, bool):
            raise ResourceError(f"control: {name} {condition} gives {value!r}, wanted true or false")
        return value

    def _unmet_requirements(self, index: int) -> list[str]:
        """What failed, or was skipped for its own requirements. Skipped by ``control`` counts as met."""
        unmet = []
        for reference, other in self._manifest.requirements(index):
            event = self._events[other]
            if event is None or event.state is State.FAILED or event.unmet_requirements or not event.reached:
                unmet.append(str(reference))
        return unmet

    def _is_refresh_due(self, index: int, declaration: Declaration, *, noop: bool) -> bool:
        subscriptions = [self._events[other] for other in self._manifest.subscriptions(index)]
        if not subscriptions:
            return False
        if declaration.reference in self._owed.before or any(
            event and event.changed for event in subscriptions
        ):
            return True
        # What an upstream would have changed refreshes only what is itself predicted (a noop resource changed nothing).
        return noop and any(event and event.state is State.WOULD_CHANGE for event in subscriptions)

    def _check_health(self, declaration: Declaration, event: Event) -> None:
        if not declaration.properties.health_checks:
            return
        from puller.health import check_health  # and with it what starts programs

        for check in declaration.properties.health_checks:
            result = check_health(check, self._context.system)
            event.health_checks.append(result)
            if result.status is not Health.OK:
                event.state = State.FAILED
                event.errors.append(
                    f"health check {result.name}: {result.status}: {result.output or 'no output'}"
                )


def _event(declaration: Declaration, state: State, **fields: Any) -> Event:
    properties = declaration.properties
    return Event(
        type=declaration.type.type_name,
        name=properties.name,
        state=state,
        alias=properties.alias or "",
        requested_ensure=properties.ensure,
        **fields,
    )


def _require_provider(resource: Resource[Any, Any]) -> None:
    if resource.provider not in resource.providers:
        raise ResourceError(
            f"provider is {resource.provider!r}, wanted one of {', '.join(resource.providers)}"
        )


def _is_unchanged(resource: Resource[Any, Any], before: Sequence[Difference]) -> bool:
    """Whether the same differs as before; when that cannot be told, no."""
    try:
        return list(resource.differences(resource.look(), refresh=any(d.refresh for d in before))) == list(
            before
        )
    except (OSError, PullerError, HieraError, BundleError):
        return False
