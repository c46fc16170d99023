"""Applying a manifest: one flow for all resource types, one event for each resource.

* A resource is changed only where it differs, and looked at again afterwards: what still differs is a failure.
* Whatever goes wrong with one resource is that resource's failure; the run goes on.
* In noop nothing is changed, and what is reported is what the real run would do.
"""

import contextlib
import errno
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bundles.errors import BundleError
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, evaluate
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import MutationInNoop, PullerError, ResourceError, StoppedDownload, reason
from puller.manifest.declaration import Declaration, Home
from puller.manifest.manifest import Manifest
from puller.manifest.masking import Masks
from puller.reporting.report import Event, Health, State
from puller.resources.base import Context, Difference, Resource
from puller.resources.registry import choose_provider
from puller.system.local import NoopSystem, System


class Settings(msgspec.Struct, frozen=True):
    """How a manifest is applied."""

    noop: bool = False
    diffs: bool = False
    """Make diffs of changed text, for people."""
    listener: Callable[[Event], None] = lambda event: None
    """Told of each event as it happens."""
    log: Callable[[str], None] = lambda line: None
    """Lines that resources want in the log."""
    state_directory: Path | None = None
    """Where resources keep what they must remember between runs; ``None``: the user's own place."""
    stopping: Callable[[], str] = lambda: ""
    """Why the run should stop before the next resource; empty to go on."""
    attending: Callable[[Declaration], None] = lambda declaration: None
    """Told of each resource before it is looked at."""


class Begun(msgspec.Struct, frozen=True):
    """A resource that was changed together with one before it: what differed, and which refreshes are pending since."""

    differences: list[str]
    newly_pending: frozenset[str]


class Engine:
    """Applies one manifest, once."""

    def __init__(
        self,
        manifest: Manifest,
        system: System,
        fetch: Callable[[str], bytes],
        pending: PendingRefreshes,
        settings: Settings,
        before: Sequence[Event] = (),
    ) -> None:
        """``before``: what other processes did to resources that the manifest's links number from its last on."""
        self._manifest = manifest
        self._settings = settings
        self._pending = pending
        self._events: list[Event | None] = [*([None] * len(manifest.declarations)), *before]
        self._stopped: dict[int, str] = {}
        """Manifests that nothing more is applied of, by the identity of their ``Home``, and why."""
        self._masks = Masks()
        self._reaches: list[tuple[str, str]] = []
        """In noop: below which directories resources of a type would have done what cannot be predicted."""
        self._changes = 0
        self._begun: dict[int, Begun] = {}
        self._context = Context(
            system=system,
            directory=manifest.directory,
            scope=manifest.scope,
            fetch=fetch,
            shared={},
            declared=manifest.names_of,
            state_directory=settings.state_directory,
            log=self._log_below(manifest.scope),
            noop=settings.noop,
            changes=lambda: self._changes,
            uncertain=self._is_uncertain,
        )
        # A resource with noop of its own in a real run looks at the machine as it is, and may not change it either.
        self._noop_context = self._context
        if not settings.noop:
            self._noop_context = msgspec.structs.replace(self._context, system=NoopSystem(), noop=True)

    def apply(self) -> list[Event]:
        """Attend to every resource, in order; gives the events in that order. Raises nothing for a resource."""
        self._pending.keep_only(self._manifest.subscribers())
        events: list[Event] = []
        for index in self._manifest.order:
            declaration = self._manifest.declarations[index]
            if why := self._settings.stopping() or self._why_stopped(declaration):
                event = self._not_reached(index, declaration, why)
            else:
                event = self._attend(index, declaration)
                self._stop_after(declaration, event)
            self._events[index] = event
            events.append(event)
            self._settings.listener(event)
        return events

    def _not_reached(self, index: int, declaration: Declaration, why: str) -> Event:
        """A child manifest has failed with its resources, although the run stopped before its own turn."""
        children = self._manifest.children(index)
        if any((child := self._events[other]) and child.state is State.FAILED for other in children):
            event = _event(declaration, State.STABLE)
            self._stand_for(children, event)
            return event
        return _event(declaration, State.SKIPPED, skip_reason=why, reached=False)

    def _stop_after(self, declaration: Declaration, event: Event) -> None:
        if event.state is State.FAILED:
            for home in _homes(declaration):
                if home.fail_on_error:
                    self._stopped[id(home)] = f"{event.reference} failed, and fail_on_error is set"

    def _why_stopped(self, declaration: Declaration) -> str:
        if not self._stopped:
            return ""
        return next(
            (self._stopped[id(home)] for home in _homes(declaration) if id(home) in self._stopped), ""
        )

    def _attend(self, index: int, declaration: Declaration) -> Event:
        started = time.perf_counter()
        self._settings.attending(declaration)
        try:
            event = self._event_of(index, declaration)
        except StoppedDownload as stop:
            event = _event(declaration, State.SKIPPED, skip_reason=str(stop), reached=False)
        except (ResourceError, HieraError, BundleError) as error:
            event = _event(declaration, State.FAILED, errors=[str(error)])
        except OSError as error:
            event = _event(declaration, State.FAILED, errors=[_of_system(error, declaration)])
        except (MutationInNoop, PullerError):
            raise
        except Exception as error:  # noqa: BLE001  promise: one resource's failure, even a bug, never ends the run
            event = _event(declaration, State.FAILED, errors=[_bug(error, declaration)])
        event.duration = time.perf_counter() - started
        self._masks.apply(event, declaration)
        return event

    def _log_below(self, scope: Scope) -> Callable[[str], None]:
        """Takes lines for the log from the resources of a manifest."""
        return lambda line: self._settings.log(self._masks.of(scope.data)(line))

    def _event_of(self, index: int, declaration: Declaration) -> Event:
        if declaration.failure:
            return _event(declaration, State.FAILED, errors=[f"{declaration.where}: {declaration.failure}"])
        if unmanaged := self._why_unmanaged(declaration):
            self._pending.clear([declaration.reference])
            return _event(declaration, State.SKIPPED, skip_reason=unmanaged)
        if unmet := self._unmet_requirements(index):
            return _event(
                declaration, State.SKIPPED, skip_reason="unmet requirements", unmet_requirements=unmet
            )
        noop = self._settings.noop or declaration.properties.noop
        context, properties = self._context_of(declaration, noop=noop), declaration.properties
        worker = choose_provider(declaration.type, properties.provider, context.scope.facts)
        resource = worker(properties, context)
        refresh = self._is_refresh_due(index, declaration, noop=noop)
        return self._converge(index, declaration, resource, refresh=refresh, noop=noop)

    def _context_of(self, declaration: Declaration, *, noop: bool) -> Context:
        context, home = self._noop_context if noop else self._context, declaration.home
        # What commands of the real run have changed makes answers old for those that only look, too.
        context.system.executed = self._context.system.executed
        if home.parent is None:
            return context
        log = self._log_below(home.scope)
        return msgspec.structs.replace(context, directory=home.directory, scope=home.scope, log=log)

    def _converge(
        self, index: int, declaration: Declaration, resource: Resource[Any, Any], *, refresh: bool, noop: bool
    ) -> Event:
        actual = resource.look()
        differences = resource.differences(actual, refresh=refresh)
        begun = self._begun.pop(index, None)
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
                self._foretell(event, resource, differences, actual)
            else:
                actual = self._change(index, resource, differences, actual, begun)
                event.state = State.REFRESHED if any(d.refresh for d in differences) else State.CHANGED
        elif begun:  # changed already, in one transaction with a resource before it
            event.differences = begun.differences
            event.state = State.CHANGED
        event.final_ensure = resource.final_ensure(actual)
        event.notes = list(resource.notes)
        if children := self._manifest.children(index):
            self._stand_for(children, event)
        if not noop and event.state is not State.FAILED:
            if refresh:
                self._pending.clear([declaration.reference])
            self._check_health(declaration, event)
        return event

    def _foretell(
        self, event: Event, resource: Resource[Any, Any], differences: Sequence[Difference], actual: Any
    ) -> None:
        event.noop_message = resource.noop_message(differences, actual)
        event.state = State.WOULD_CHANGE
        if self._settings.noop and (reach := resource.reach()):
            self._reaches.append((f"{reach.rstrip('/')}/", resource.type_name))

    def _change(
        self,
        index: int,
        resource: Resource[Any, Any],
        differences: Sequence[Difference],
        actual: Any,
        begun: Begun | None,
    ) -> Any:
        """Change, and look again; raises ``ResourceError`` when something still differs."""
        if begun:
            self._pending.clear(begun.newly_pending)
        newly_pending = self._pending.record(self._manifest.subscribers_of(index))
        self._changes += 1
        try:
            if begun or not self._change_together(index, resource, actual):
                resource.change(differences, actual)
        except Exception:
            # No refresh is pending for a change that did not happen at all.
            if newly_pending and _is_unchanged(resource, differences):
                self._pending.clear(newly_pending)
            raise
        actual = resource.look()
        if remaining := resource.differences(actual):
            raise ResourceError("; ".join(f"after the change, {difference}" for difference in remaining))
        return actual

    def _stand_for(self, children: Sequence[int], event: Event) -> None:
        """Make the event of a child manifest what those of its resources come to."""
        events = [found for index in children if (found := self._events[index]) is not None]
        for found in events:
            event.children[found.state] = event.children.get(found.state, 0) + 1
        failed = event.children.get(State.FAILED, 0)
        unmet = sum(bool(found.unmet_requirements) or not found.reached for found in events)
        if failed or unmet:
            and_skipped = f", and {unmet} that were not reached" if unmet else ""
            event.state = State.FAILED
            event.errors.append(f"child manifest had {failed} failed resources{and_skipped}")
            return
        changed = sum(found.changed for found in events)
        expected = event.children.get(State.WOULD_CHANGE, 0)
        if changed:
            event.state = State.CHANGED
            event.differences.append(f"{changed} of {len(events)} resources were not as wanted")
        elif expected:
            event.state = State.WOULD_CHANGE
            event.noop_message = f"Would have changed {expected} of {len(events)} resources"

    def _change_together(self, index: int, resource: Resource[Any, Any], actual: Any) -> bool:
        """Change this and what follows it in one transaction; false when that cannot be, or has not done for this one.

        When their turn comes the others are looked at as always. What the transaction has done they have changed; what
        it has not done each tries alone, so that one that fails takes no other with it.
        """
        key = resource.transaction(actual)
        followers = [] if key is None else list(self._followers(index, resource, key))
        if not followers:
            return False
        for other, member, found in followers:
            newly_pending = self._pending.record(self._manifest.subscribers_of(other))
            self._begun[other] = Begun(
                [str(difference) for difference in member.differences(found)], newly_pending
            )
        members = [(resource, actual), *((member, found) for _, member, found in followers)]
        try:
            type(resource).change_together(members)
        except (OSError, ResourceError):
            return not resource.differences(resource.look())
        return True

    def _followers(
        self, index: int, first: Resource[Any, Any], key: Hashable
    ) -> Iterator[tuple[int, Resource[Any, Any], Any]]:
        """What comes right after a resource and is to be changed in the same way; it ends at the first doubt."""
        following = self._manifest.order[self._manifest.order.index(index) + 1 :]
        for other in following:
            declaration = self._manifest.declarations[other]
            properties = declaration.properties
            if (
                declaration.type is not type(first)
                or declaration.failure
                or properties.control
                or properties.noop
            ):
                return
            if any(home.fail_on_error for home in _homes(declaration)):
                return
            if self._manifest.requirements(other) and self._unmet_requirements(other):
                return
            member = declaration.type(properties, self._context_of(declaration, noop=False))
            try:
                found = member.look()
                if not member.differences(found):
                    continue
                if member.transaction(found) != key:
                    return
            except (OSError, ResourceError):
                return
            yield other, member, found

    # Questions about other resources

    def _is_uncertain(self, path: str, apart_from: str = "") -> bool:
        """Whether what an earlier resource would have done reaches to a path, or below it: that makes it, too."""
        if not self._reaches:
            return False
        below = f"{path.rstrip('/')}/"
        reaches = (reach for reach, type_name in self._reaches if type_name != apart_from)
        return any(below.startswith(reach) or reach.startswith(below) for reach in reaches)

    def _why_unmanaged(self, declaration: Declaration) -> str:
        """A resource is managed when it and all child manifests that it is in are."""
        if declaration.properties.control is None and declaration.home.parent is None:
            return ""
        for level in (declaration, *declaration.parents()):
            if why := _why_not(level):
                return why if level is declaration else f"{level.reference}: {why}"
        return ""

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
        if declaration.reference in self._pending.before or any(
            event and event.changed for event in subscriptions
        ):
            return True
        # What an upstream would have changed refreshes only what is itself predicted (a noop resource changed nothing).
        return noop and any(event and event.state is State.WOULD_CHANGE for event in subscriptions)

    def _check_health(self, declaration: Declaration, event: Event) -> None:
        if not declaration.properties.health_checks:
            return
        from puller.engine.health_checks import check_health  # and with it what starts programs

        for check in declaration.properties.health_checks:
            result = check_health(check, self._context.system)
            self._masks.hide(result, declaration)
            event.health_checks.append(result)
            if result.status is not Health.OK:
                event.state = State.FAILED
                event.errors.append(str(result))


def _homes(declaration: Declaration) -> Iterator[Home]:
    """The manifest that a resource is in, and those that it is in by child manifests."""
    yield declaration.home
    yield from (parent.home for parent in declaration.parents())


def _why_not(declaration: Declaration) -> str:
    """``managed = if and not unless``; an absent ``if`` is true, an absent ``unless`` false."""
    control, scope = declaration.properties.control, declaration.home.scope
    if control is None:
        return ""
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
        raise ResourceError(f"control: {name} {condition} gives {value!r}, wanted true or false")
    return value


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


def _of_system(error: OSError, declaration: Declaration) -> str:
    """What the system has refused, at which path, and of a full disk how full it is."""
    name = declaration.properties.name
    path = error.filename or (name if name.startswith("/") else "")
    what = reason(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(path, str) and path.startswith("/"):
        from bundles.filesystem.free_space import free_space

        known = [*getattr(error, "__notes__", [])]
        with contextlib.suppress(OSError):
            known.append(free_space(Path(path)))
        what = ": ".join([what, *([", ".join(known)] if known else [])])
    return f"{path}: {what}" if path else what


def _bug(error: Exception, declaration: Declaration) -> str:
    """An error that nobody has expected, with the end of its traceback; what it says of itself may be a secret."""
    import traceback

    said = type(error).__name__ if declaration.properties.sensitive else repr(error)
    return f"internal error: {said}\n{''.join(traceback.format_tb(error.__traceback__, limit=-3))}"


def _is_unchanged(resource: Resource[Any, Any], before: Sequence[Difference]) -> bool:
    """Whether the same differs as before; when that cannot be told, no."""
    try:
        return list(resource.differences(resource.look(), refresh=any(d.refresh for d in before))) == list(
            before
        )
    except (OSError, PullerError, HieraError, BundleError):
        return False
