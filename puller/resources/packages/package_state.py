"""The state of a package, the changes between states, and conflicts of a planned change with other packages.

* A package manager simulates every change first. The simulation lists the packages that it installs and removes.
* A plan is refused if it removes a package that is declared present, installs a package that is declared absent, or
  installs a version that its declaration excludes. Without the refusal, the two resources undo each other in every run.
* A plan is also refused if it lacks the requested package: apt reads ``tool+`` as a request for ``tool``.
"""

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from puller.errors import NeededByAnother, ResourceError
from puller.resources.base import Context, Part
from puller.resources.packages.manager import Job, KeptFiles, Manager, Plan, Record, Request, RequestedPackage
from puller.resources.packages.properties import GONE, PackageProperties

if TYPE_CHECKING:
    from puller.resources.packages.manager import Installed


class Action(Enum):
    """A change of one package."""

    INSTALL = "installed"
    UPGRADE = "upgraded to"
    DOWNGRADE = "downgraded to"
    REMOVE = "uninstalled"
    PURGE = "purged"


REMOVALS = (Action.REMOVE, Action.PURGE)


class PackageState(msgspec.Struct, frozen=True):
    """The installed versions of a package, the newest first, and the candidate version."""

    installed: "tuple[Installed, ...]" = ()
    candidate: str | None = None
    """For ``latest``: the newest version in the repositories. With a ``source``: its version."""
    providers: tuple[str, ...] = ()
    """Installed packages that provide the name, if no package of this name is installed."""
    has_configuration: bool = False
    """Whether it was removed without its configuration files."""
    held: bool = False
    """Whether the package manager keeps it at its version."""
    is_automatic: bool = False
    """Whether it was installed only as a dependency."""

    @property
    def newest(self) -> "Installed | None":
        """The newest installed version, ``None`` if no version is installed."""
        return self.installed[0] if self.installed else None

    def __str__(self) -> str:
        if self.providers:
            return f"provided by {', '.join(self.providers)}"
        words = (
            item.version if item.is_complete else f"{item.version} ({item.status})" for item in self.installed
        )
        # Several architectures usually have the same version.
        return ", ".join(dict.fromkeys(words)) or "absent"


# Conflicts between a planned change and other declared packages.


class Claims:
    """The packages that the catalog declares, by the canonical name that the package manager uses."""

    def __init__(self, manager: Manager, job: Job, context: Context, type_name: str) -> None:
        self._manager = manager
        self._job = job
        self._context = context
        self._type_name = type_name

    def require(self, plan: Plan, request: Request) -> None:
        """Raise ``ResourceError`` for a plan that breaks another declared package or misses a requested one."""
        manager, job = self._manager, self._job
        for desired in request.install:
            if not desired.file and not manager.delivers(job, plan, desired.name):
                chosen = (
                    ", ".join(f"{item.name} ({item.architecture})" for item in plan.installs) or "nothing"
                )
                raise ResourceError(
                    f"no package has the name {desired.name}. The package manager offers {chosen}"
                )
        own = {
            manager.canonical(job, name)
            for name in (*(item.name for item in request.install), *request.remove)
        }
        removed = [name for name in map(self._canonical, plan.removals) if name not in own]
        if not plan.installs and not plan.removals:
            return
        declared = self._declared(is_destructive=bool(removed))
        for name in removed:
            if (part := declared.get(name)) is not None and part.properties.ensure not in GONE:
                raise NeededByAnother(_cannot("remove", f"{name}, which {part.reference} declares present"))
        for item in plan.installs:
            part = declared.get(name := manager.canonical(job, manager.full_name(job, item)))
            if part is not None and name not in own and (why := self._excluded(part, name, item)):
                raise NeededByAnother(_cannot("install", why))
        self._require_providers(plan, {*removed, *map(self._canonical, request.remove)}, own, declared)

    def find_harmless(self) -> frozenset[str]:
        """Return the declared packages whose changes together affect no other package, by one simulation."""
        request = self._whole_request()
        names = frozenset((*(desired.name for desired in request.install), *request.remove))
        if len(names) < 2:
            return frozenset()
        try:
            plan = self._manager.plan(self._job, request)
            self.require(plan, request)
        except ResourceError:
            return frozenset()
        return frozenset() if self.extra_removals(plan, request) else names

    def _whole_request(self) -> Request:
        """Return all changes of declared packages that the repositories of this machine can make."""
        install: list[RequestedPackage] = []
        remove: list[str] = []
        held = False
        for part in self._declared(is_destructive=False).values():
            properties = part.properties
            is_known = isinstance(properties, PackageProperties)
            if not is_known or properties.source or properties.options:
                continue
            held |= properties.held is not None
            if properties.ensure in GONE:
                remove += (
                    [properties.name] if self._manager.found(self._job, properties.name).installed else []
                )
                continue
            with contextlib.suppress(ResourceError):  # reported by the package itself
                install += self._wanted(properties)
        return Request(tuple(install), tuple(remove), downgrades=True, changes_held=held)

    def _wanted(self, properties: PackageProperties) -> Iterator[RequestedPackage]:
        """Yield the package to install for a declaration, if it differs and is offered."""
        manager, job, name = self._manager, self._job, properties.name
        installed = manager.found(job, name).installed
        if properties.is_versioned:
            versions = (version.version for version in installed)
            if not any(
                manager.order.compare_to_request(version, properties.ensure) == 0 for version in versions
            ):
                yield RequestedPackage(name, manager.find_version(job, name, properties.ensure))
        elif not installed and manager.is_offered(job, name):
            yield RequestedPackage(name)
        elif installed and properties.ensure == "latest" and (newest := manager.candidate(job, name)):
            yield RequestedPackage(name, newest)

    def extra_removals(self, plan: Plan, request: Request) -> list[str]:
        """Return the packages that a plan removes without a request."""
        own = {*map(self._canonical, request.remove)}
        return sorted(name for name in {*map(self._canonical, plan.removals)} if name not in own)

    def _canonical(self, name: str) -> str:
        return self._manager.canonical(self._job, name)

    def _declared(self, *, is_destructive: bool) -> Mapping[str, Part]:
        try:
            pieces = self._context.resources()
        except ResourceError:  # a loop or child manifest of unknown content may declare any package
            if is_destructive:
                raise
            return {}
        return {
            self._canonical(part.properties.name): part
            for part in pieces
            if part.type.type_name == self._type_name
        }

    def _excluded(self, part: Part, name: str, item: Record) -> str:
        """Return why a declaration excludes an installed or changed package, empty if it allows it."""
        ensure = getattr(part.properties, "ensure", "present")
        if ensure in GONE:
            is_new = not self._manager.found(self._job, name).installed
            return f"{name}, which {part.reference} declares {ensure}" if is_new else ""
        if (
            ensure in ("present", "latest")
            or self._manager.order.compare_to_request(item.version, ensure) == 0
        ):
            return ""
        is_met = any(
            self._manager.order.compare_to_request(other.version, ensure) == 0
            for other in self._manager.found(self._job, name).installed
        )
        return f"{name} {item.version}, while {part.reference} declares {ensure}" if is_met else ""

    def _require_providers(
        self,
        plan: Plan,
        removed: set[str],
        own: Container[str],
        declared: Mapping[str, Part],
    ) -> None:
        """Raise if the last provider of a declared name, such as ``mail-transport-agent``, is removed."""
        for name, part in declared.items() if removed else ():
            if part.properties.ensure in GONE or name in own:
                continue
            status = self._manager.found(self._job, name)
            if status.installed or not status.providers or not removed.issuperset(status.providers):
                continue
            offered = {*self._manager.offered_providers(self._job, name)}
            if offered.isdisjoint(item.name for item in plan.installs):
                detail = f"{', '.join(status.providers)}, which provides {part.reference}"
                raise NeededByAnother(_cannot("remove", detail))


class DryRun:
    """The predicted changes of a dry run so far, which are simulated together with the next change."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.accepted: list[str] = []
        self.files = KeptFiles()
        self._removed: set[str] = set()
        self.harmless: frozenset[str] | None = None
        """Packages that need no separate simulation. ``None`` before the first simulation."""

    def with_next(self, request: Request, first: int | None = None) -> Request:
        """Combine the first accepted changes, by default all, with the next change into one request."""
        names = self.accepted if first is None else self.accepted[:first]
        before = self.request
        if before is None or not names:
            return request
        return msgspec.structs.replace(
            request,
            install=(*(item for item in before.install if item.name in names), *request.install),
            remove=(*(name for name in before.remove if name in names), *request.remove),
            downgrades=before.downgrades or request.downgrades,
            changes_held=before.changes_held or request.changes_held,
        )

    def new_removals(self, removals: Sequence[str]) -> list[str]:
        """Return the removals that no earlier change has caused."""
        return [name for name in removals if name not in self._removed]

    def accept(self, request: Request, removals: Sequence[str]) -> None:
        """Record a change and the removals that it causes."""
        self.request = self.with_next(request)
        self._removed.update(removals)
        self.accepted += [*(item.name for item in request.install), *request.remove]


def culprit(is_possible: Callable[[int], bool], accepted: Sequence[str]) -> str:
    """Return the accepted package that excludes a new one, by bisection. Empty if the new package is impossible alone.

    ``is_possible(n)`` returns whether the new package can be combined with the first ``n`` accepted packages.
    """
    if not accepted or not is_possible(0):
        return ""
    low, high = 0, len(accepted)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_possible(middle) else (low, middle)
    return accepted[high - 1]


def _cannot(verb: str, description: str) -> str:
    return f"is left as it is: the package manager would {verb} {description}"
