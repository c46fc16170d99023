"""Applying a catalog: one flow for all resource types, one event for each resource.

* A resource is changed only if it is out of sync, and read again afterwards. Remaining differences are a failure.
* Any error of a resource is the failure of that resource. The run continues.
* With noop, nothing is changed, and the report predicts the changes of the real run.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.errors import BundleError
from foundation.differences import Difference, unknown, with_causes, with_diff
from foundation.formatting import people
from foundation.problems import Problem, ProblemCode
from hiera.errors import HieraError
from puller.engine.conditions import JoinedParts, check_health, health_checks_of, is_left_out, why_unmanaged
from puller.engine.pending_refreshes import PendingRefreshes
from puller.engine.progress import FinalLook, Progress, failures_of
from puller.engine.transactions import Begun, Diffs, Member, Observer, Parts, Transactions
from puller.errors import MutationInNoop, NeededByAnother, PullerError, ResourceError, StoppedDownload
from puller.manifest.children import applied_as
from puller.manifest.declaration import Declaration, Home
from puller.manifest.declare import evaluate_again
from puller.manifest.graph.catalog import Catalog
from puller.manifest.masking import Masks
from puller.reporting.report import Event, Health, State
from puller.resources.base import Context, Resource
from puller.resources.claims import MADE_FILES
from puller.resources.registry import choose_provider
from puller.system.noop import NoopSystem
from puller.system.protocol import System
from puller.values.common_properties import Refresh

if TYPE_CHECKING:  # few bundles reboot machines
    from puller.resources.reboots.plan import RebootPlan


class Settings(msgspec.Struct, frozen=True):
    """How a manifest is applied."""

    noop: bool = False
    only: Sequence[str] = ()
    """The references that select a part of the catalog, whose order is already shortened. Empty: all of it."""
    diffs: bool = False
    """Make diffs of changed text, for people."""
    diff_limit: int | None = None
    """Maximum length of all diffs together, in characters. ``None``: no limit."""
    listener: Callable[[Declaration, Event], None] = lambda declaration, event: None
    """Receives the event of each resource at once."""
    log: Callable[[str], None] = lambda line: None
    """Writes a line of a resource to the log."""
    state_directory: Path | None = None
    """The directory of the records of resources between runs. ``None``: the directory of the user."""
    stopping: Callable[[], str] = lambda: ""
    """Returns why the run should stop before the next resource. Empty: continue."""
    attending: Callable[[Declaration], None] = lambda declaration: None
    """Receives each resource before it is read."""
    observer: Observer = Observer()
    elsewhere: Callable[[], Sequence[str]] = tuple
    """Paths of this host that other owners manage, with everything below them. The catalog lacks them."""
    leftovers: Callable[[], Sequence[str]] = tuple
    """The references of leftover resources."""
    is_created_at: Callable[[str], bool] = lambda path: False
    """Whether an earlier run has created the object at a path."""
    reboots: "RebootPlan | None" = None
    """The reboots of this run. ``None``: the command never restarts the machine."""


class Engine:
    """Applies one catalog, once.

    The steps for one resource (``docs/resources/common.md``):

    1. A resource that cannot be resolved here, that ``control`` excludes (``puller.engine.conditions``), or that has
       unmet requirements gets its event at once. So does a subscriber of a resource that has not succeeded. Its refresh
       stays pending.
    2. Choose the provider. A change of a subscription, in this run or in an interrupted run, makes a refresh due. A
       change of a resource in ``reload`` makes a reload due.
    3. Read the current state.
    4. Describe the differences. Without differences the resource is *stable*.
    5. With noop, describe the predicted change, and stop here.
    6. Record the refreshes of its subscribers as pending, before any change.
    7. Change the resource, alone or together with later ones.
    8. Read the state again. Remaining differences are a failure.
    9. Clear its own pending refresh.
    10. Run its health checks. A result other than OK is a failure of the resource.
    """

    def __init__(
        self,
        catalog: Catalog,
        system: System,
        fetch: Callable[[str], bytes],
        pending: PendingRefreshes,
        settings: Settings,
        before: Sequence[Event] = (),
    ) -> None:
        """``before``: events of other processes. The links of the catalog number them after its last resource."""
        self._catalog = catalog
        self._settings = settings
        self._pending = pending
        self._progress = Progress(catalog, before)
        self._observer = settings.observer
        self._parts = Parts(catalog, noop=settings.noop)
        self._transactions = Transactions(
            catalog, self._parts, self._progress, pending, self._context_of, settings.observer
        )
        self._masks = Masks()
        self._changes = 0
        self._diffs = Diffs(system, are_made=settings.diffs, limit=settings.diff_limit)
        self._planned: Sequence[Difference] = ()
        """The differences of the current resource, without secrets. A failure shows them."""
        self._final_look = FinalLook(catalog)
        self.undone: dict[int, int] = {}
        """The resources that a later change of this run has undone, by index, with the index of the later resource."""
        self._system = system
        self._fetch = fetch
        self._shared: dict[type, Any] = {}
        self._contexts: dict[tuple[int, bool], Context] = {}
        """By the identity of the manifest of a resource, and whether the context only reads."""

    def apply(self) -> list[Event]:
        """Apply every resource in order. Return the events in that order.

        Errors of a resource become its event. Raise only ``MutationInNoop``, and a ``PullerError`` that ends the run.

        1. Discard the pending refreshes of resources that do not subscribe any longer.
        2. Apply each resource, unless the run or one of its manifests has been stopped.
        3. A failure stops the surrounding manifests that have ``fail_on_error``.
        4. Pass the event to later resources and to the listener.
        5. After the last change, read the resources again that a later one may have undone. An undone resource has
           failed, and the listener receives its event once more.
        """
        # 1. Outdated refreshes.
        self._pending.keep_only(self._catalog.subscribers(), self._catalog.may_declare)
        progress, events = self._progress, []
        for place, index in enumerate(self._catalog.order):
            declaration = self._catalog.attended(index)
            self._final_look.begin(place)
            # 2. Application.
            if why := self._settings.stopping() or progress.why_stopped(declaration):
                event = self._event_of_transaction(index, declaration) or self._not_reached(
                    index, declaration, why
                )
            else:
                event = self._attend(index, declaration)
                # 3. Failure.
                if event.state is State.FAILED:
                    progress.stop_after(declaration, event)
            # 4. Event.
            event.reversal = index >= len(self._catalog.declarations)
            progress.events[index] = event
            events.append(event)
            self._settings.listener(declaration, event)
        # 5. Final look.
        if not (self._settings.noop or self._settings.stopping()):
            self._look_again(events)
        return events

    def _look_again(self, events: list[Event]) -> None:
        """Fail each resource that a later change of this run has undone."""
        failed = set()
        self._changes += 1  # answers read during the last change are outdated
        for place, by in self._final_look.to_look_at(events):
            index = self._catalog.order[place]
            if reason := self._read_again(index):
                message = f"at the end of the run, {reason}{by.sentence(events)}"
                self._fail_afterwards(events[place], index, message)
                failed.add(index)
                if by.place >= 0:
                    self.undone[index] = self._catalog.order[by.place]
        for place, index in enumerate(self._catalog.order) if failed else ():
            if failed.isdisjoint(children := self._catalog.children(index)):
                continue
            declaration = self._catalog.declarations[index]
            event = _event(
                declaration, State.STABLE, duration=events[place].duration, noop=events[place].noop
            )
            self._progress.sum_up_children(children, event)
            events[place] = self._progress.events[index] = event
            failed.add(index)
            self._settings.listener(declaration, event)

    def _read_again(self, index: int) -> str:
        """Read a resource again. Return its differences, or why it cannot be read."""
        declaration = self._catalog.declarations[index]
        lasting = declaration.type.lasting(declaration.properties)
        if lasting is None:
            return ""
        context = self._context_of(declaration)
        worker = choose_provider(declaration.type, lasting.provider, context.scope.facts)
        resource = worker(lasting, context)
        try:
            differences = resource.differences(resource.look())
            return f"it is out of sync again: {people(differences)}" if differences else ""
        except (MutationInNoop, StoppedDownload):
            raise
        except ResourceError as error:
            return str(error)
        except PullerError:
            raise
        except Exception as error:  # noqa: BLE001  promise: one resource's failure, even a bug, never ends the run
            return ", ".join(map(str, failures_of(error, declaration)))

    def _fail_afterwards(self, event: Event, index: int, message: str) -> None:
        """Turn the event of a resource into a failure."""
        declaration = self._catalog.declarations[index]
        event.state = State.FAILED
        event.problems = [*event.problems, Problem(code=ProblemCode.UNDONE_CHANGE, message=message)]
        if event.item:
            event.item = f"{declaration.where}: {event.item}"
        self._masks.apply(event, declaration)
        self._settings.listener(declaration, event)

    def _not_reached(self, index: int, declaration: Declaration, why: str) -> Event:
        # The resources of a child manifest have failed, although the run stopped before the manifest itself.
        if self._progress.has_failed_children(index):
            event = _event(declaration, State.STABLE)
            self._progress.sum_up_children(self._catalog.children(index), event)
            return event
        return _event(declaration, State.SKIPPED, skip_reason=why, reached=False)

    def _event_of_transaction(self, index: int, declaration: Declaration) -> Event | None:
        """Return the event of a resource that a transaction changed before the run stopped, otherwise ``None``."""
        begun = self._transactions.begun.pop(index, None)
        if begun is None:
            return None
        resource = self._transactions.made(index)
        try:
            actual = resource.look()
            if resource.differences(actual):
                return None
        except (OSError, ResourceError):
            return None
        event = _event(declaration, State.CHANGED, final_ensure=resource.final_ensure(actual))
        event.provider = resource.provider
        event.differences = self._masks.differences(begun.differences, declaration)
        self._observer.after_change(declaration, resource, actual)
        return event

    def _attend(self, index: int, declaration: Declaration) -> Event:
        started = time.perf_counter()
        self._planned = ()
        self._settings.attending(declaration)
        try:
            event = self._event_of(index, declaration)
        except StoppedDownload as stop:
            event = _event(declaration, State.SKIPPED, skip_reason=str(stop), reached=False)
        except NeededByAnother as error:
            # A leftover that a declared resource needs is in order. It is removed when no resource needs it.
            if index >= len(self._catalog.declarations):
                event = _event(declaration, State.SKIPPED, skip_reason=str(error))
            else:
                event = self._failed(declaration, error)
        except ResourceError as error:
            event = self._failed(declaration, error)
        except PullerError:
            raise
        except Exception as error:  # noqa: BLE001  promise: one resource's failure, even a bug, never ends the run
            event = self._failed(declaration, error)
        event.duration = time.perf_counter() - started
        if event.item and event.state is State.FAILED:
            event.item = f"{declaration.where}: {event.item}"
        self._masks.apply(event, declaration)
        return event

    def _failed(self, declaration: Declaration, error: Exception) -> Event:
        """Return the event of a resource that raised an error, with the differences that were planned."""
        planned = list(self._planned)
        problems = failures_of(error, declaration)
        return _event(
            declaration, State.FAILED, problems=problems, differences=planned, is_planned=bool(planned)
        )

    def _event_of(self, index: int, declaration: Declaration) -> Event:
        # 1. Immediate events. The condition comes first, because it may guard a value that is missing here.
        if (declaration.failure or declaration.late is not None) and is_left_out(declaration):
            return self._left_out(declaration, why_unmanaged(declaration))
        if declaration.late is not None and (foretold := self._evaluate_late(declaration)):
            differences = [unknown("properties", f"evaluated with {foretold}")]
            message = f"Would have been evaluated with {foretold}, which an earlier resource creates"
            return _event(
                declaration, State.WOULD_CHANGE, noop=True, noop_message=message, differences=differences
            )
        if declaration.failure:
            return _event(declaration, State.FAILED, problems=declaration.located_failures)
        if unmanaged := why_unmanaged(declaration):
            return self._left_out(declaration, unmanaged)
        if unmet := self._progress.unmet_requirements(index):
            return _event(
                declaration, State.SKIPPED, skip_reason="unmet requirements", unmet_requirements=unmet
            )
        # 2. Provider and due refresh.
        noop = self._settings.noop or declaration.properties.noop
        context, properties = self._context_of(declaration, noop=noop), declaration.properties
        worker = choose_provider(declaration.type, properties.provider, context.scope.facts)
        resource = worker(properties, context)
        refresh = self._progress.due_refresh(index, declaration, self._pending.before, noop=noop)
        return self._converge(index, declaration, resource, refresh=refresh, noop=noop)

    def _left_out(self, declaration: Declaration, why: str) -> Event:
        self._pending.conclude(declaration.reference)
        return _event(declaration, State.SKIPPED, skip_reason=why)

    def _evaluate_late(self, declaration: Declaration) -> str:
        """Evaluate expressions again that had no result when the manifest was read.

        In a dry run, return the first missing path that an earlier resource of this run would create. Otherwise empty.
        """
        requested = evaluate_again(declaration)
        if not declaration.failure or not self._settings.noop:
            return ""
        is_brought, uncertain = self._system.will_be_written, self._is_uncertain
        missing = (path for path in requested if not os.path.lexists(path))
        return next((path for path in missing if is_brought(path) or uncertain(path)), "")

    def _context_of(self, declaration: Declaration, *, noop: bool = False) -> Context:
        """Return the context of a resource. With ``noop``, its system only reads the machine."""
        home = declaration.home
        context = self._contexts.get((id(home), noop))
        if context is None:
            context = self._contexts[id(home), noop] = self._new_context(home, looks_only=noop)
        # Commands of the real run make cached answers outdated, also for resources with noop.
        context.system.executed = self._system.executed
        return (
            context
            if declaration.looped is None
            else msgspec.structs.replace(context, scope=declaration.scope)
        )

    def _new_context(self, home: Home, *, looks_only: bool) -> Context:
        noop = looks_only or self._settings.noop
        context_of = partial(self._context_of, noop=looks_only)
        return Context(
            system=self._looking_only if looks_only else self._system,
            files=home.files,
            scope=home.scope,
            fetch=self._fetch,
            shared=self._shared,
            declared=self._catalog.names_of,
            parts=self._parts.of,
            joined_parts=JoinedParts(self._catalog, context_of, noop=noop).of,
            resources=self._parts.all,
            elsewhere=self._settings.elsewhere,
            leftovers=self._settings.leftovers,
            is_created_at=self._settings.is_created_at,
            state_directory=self._settings.state_directory,
            reboots=self._settings.reboots,
            log=lambda line: self._settings.log(self._masks.of(home.scope.data)(line)),
            noop=noop,
            changes=lambda: self._changes,
            uncertain=self._is_uncertain,
        )

    def _is_uncertain(self, path: str, apart_from: str = "") -> bool:
        """Return whether an unpredictable effect may reach a path, or the end of a link that this run would create."""
        return any(
            self._progress.is_uncertain(place, apart_from)
            for place in dict.fromkeys((path, self._system.through_links(path)))
        )

    @cached_property
    def _looking_only(self) -> System:
        """The system of resources with noop."""
        return self._system if self._settings.noop else NoopSystem()

    def _converge(
        self,
        index: int,
        declaration: Declaration,
        resource: Resource[Any, Any],
        *,
        refresh: Refresh,
        noop: bool,
    ) -> Event:
        # 3. Current state. 4. Differences.
        actual, differences = _look(resource, refresh)
        begun = self._transactions.begun.pop(index, None)
        event = _event(declaration, State.STABLE)
        event.provider, event.noop = resource.provider, noop
        if differences:
            event.recurring = resource.is_recurring
            members = self._members(index, resource, actual, alone=bool(begun), noop=noop)
            causes = self._progress.causes(index, refresh, noop=noop) if refresh else ()
            shown = with_causes(with_diff(differences, self._diffs.of(members)), causes)
            event.differences = self._diffs.shortened(self._masks.differences(shown, declaration))
            self._planned = event.differences
            if noop:
                self._predict(event, resource, differences, actual)
            else:
                actual = self._change(members, differences, begun, refresh)
                event.state = State.REFRESHED if any(d.refresh for d in differences) else State.CHANGED
        elif begun:  # changed by the transaction of an earlier resource
            event.differences = self._masks.differences(begun.differences, declaration)
            event.state = State.CHANGED
            self._observer.after_change(declaration, resource, actual)
        event.final_ensure = resource.final_ensure(actual)
        event.notes += resource.notes
        if children := self._catalog.children(index):
            self._progress.sum_up_children(children, event)
        if event.state is State.FAILED:
            return event
        # 9. Its own pending refresh.
        if refresh and not noop:
            self._pending.conclude(declaration.reference)
        # 10. Its health checks.
        if not noop or (not self._settings.noop and declaration.is_only_checked):
            self._check_health(declaration, event)
        return event

    def _members(
        self, index: int, resource: Resource[Any, Any], actual: Any, *, alone: bool, noop: bool
    ) -> list[Member]:
        """Return a resource that is out of sync with those that change with it. With noop, they share one diff."""
        if noop:  # no change: only the diff can cover all members
            is_all = self._settings.noop and self._diffs.may_include(index)
            alone = not is_all or resource.whole(resource.properties) is None
        return [(index, resource, actual)] if alone else self._transactions.members(index, resource, actual)

    def _predict(
        self, event: Event, resource: Resource[Any, Any], differences: Sequence[Difference], actual: Any
    ) -> None:
        # 5. Prediction.
        event.noop_message = resource.noop_message(differences, actual)
        event.state = State.WOULD_CHANGE
        # A real run never makes the predicted change of a resource with noop, so other predictions stay certain.
        if not self._settings.noop:
            return
        if reach := resource.reach():
            self._progress.note_reach(reach, resource.type_name)
        system = resource.context.system
        for claim in resource.claims(resource.properties):
            is_made = claim.use in MADE_FILES and not system.exists(claim.path)
            if is_made and system.is_directory(os.path.dirname(claim.path)):
                system.expect(claim.path, "file")

    def _change(
        self,
        members: Sequence[Member],
        differences: Sequence[Difference],
        begun: Begun | None,
        refresh: Refresh,
    ) -> Any:
        """Change the first member and read it again. Raise ``ResourceError`` if it is still out of sync."""
        index, resource, actual = members[0]
        declaration = self._catalog.attended(index)
        # 6. Record the refreshes of its subscribers. A transaction that has not changed the resource leaves its
        # records. If the resource cannot be changed alone either, both are removed.
        self._observer.before_change(declaration, resource, actual, differences)
        newly_pending = self._pending.record(self._catalog.subscribers_of(index))
        if begun:
            newly_pending |= begun.newly_pending
        self._changes += 1
        for _, member, seen in members:
            self._final_look.note_change(member, seen)
        # 7. Change.
        try:
            if not self._transactions.change(members):
                self._observer.begin_changes()
                resource.change(differences, actual)
        except Exception:
            # A change that did not happen at all leaves no pending refreshes.
            if newly_pending and _is_unchanged(resource, differences, refresh):
                self._pending.clear(newly_pending)
            raise
        # 8. New state.
        actual = resource.look()
        if remaining := resource.differences(actual):
            detail = f"is still out of sync after the change: {people(remaining)}"
            raise ResourceError(detail, code=ProblemCode.STILL_DIFFERS)
        self._observer.after_change(declaration, resource, actual)
        return actual

    def _check_health(self, declaration: Declaration, event: Event) -> None:
        if not declaration.properties.health_checks:
            return
        for check in health_checks_of(declaration):
            result = check_health(check, self._system)
            self._masks.hide(result, declaration)
            event.health_checks.append(result)
            if result.status is not Health.OK:
                event.state = State.FAILED
                code = ProblemCode.HEALTH_CHECK_FAILED
                event.problems = [*event.problems, Problem(code=code, message=str(result), name=result.name)]


def _event(declaration: Declaration, state: State, **fields: Any) -> Event:
    properties = declaration.properties
    return Event(
        type=declaration.type.type_name,
        name=properties.name,
        state=state,
        alias=properties.alias or "",
        applied=applied_as(declaration),
        requested_ensure=properties.ensure,
        item=declaration.item,
        **fields,
    )


def _look(resource: Resource[Any, Any], refresh: Refresh) -> tuple[Any, Sequence[Difference]]:
    """Return the current state and the differences. A ``ResourceError`` without its own code is a failed look."""
    try:
        actual = resource.look()
        return actual, _differences(resource, actual, refresh)
    except ResourceError as error:
        if error.code is ProblemCode.CHANGE_FAILED:
            error.code = ProblemCode.LOOK_FAILED
        raise


def _differences(resource: Resource[Any, Any], actual: Any, refresh: Refresh) -> Sequence[Difference]:
    if refresh is Refresh.RELOAD:
        return resource.reload_differences(actual)
    return resource.differences(actual, refresh=refresh is Refresh.WHOLE)


def _is_unchanged(resource: Resource[Any, Any], before: Sequence[Difference], refresh: Refresh) -> bool:
    """Return whether the differences are the same as before. ``False`` if they cannot be determined."""
    try:
        return list(_differences(resource, resource.look(), refresh)) == list(before)
    except (OSError, PullerError, HieraError, BundleError):
        return False
