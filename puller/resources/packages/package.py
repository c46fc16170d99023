"""The ``package`` resource: installed packages and their versions (``docs/resources/package.md``).

* All packages of a run are queried together, by one command for installed and one for available packages.
* Versions compare as in the package manager. ``latest`` only upgrades.
* A package that an administrator put on hold is never changed, and the resource fails, also in noop. A package that the
  manifest holds is changed to its declared version and held again.
* A name that installed packages provide is present. It has no version and cannot be removed.
"""

import contextlib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec

from foundation.differences import Difference, changed, presence
from foundation.problems import ProblemCode
from puller.errors import NeededByAnother, ResourceError
from puller.resources.base import ANYTHING, Content, PropertyError, Resource
from puller.resources.claims import agree
from puller.resources.content_sources import bundled_contents
from puller.resources.packages.installation import PackageFile, find_other_answers, give_answers
from puller.resources.packages.manager import Installed, Job, Manager, Plan, Request, RequestedPackage
from puller.resources.packages.package_state import REMOVALS, Action, Claims, DryRun, PackageState, culprit
from puller.resources.packages.properties import DEFAULTS, GONE, PackageProperties, check_package
from puller.resources.packages.providers import PROVIDERS, canonical_name, load_class, provider_of
from puller.system.local_paths import Spellings

_OF_REPOSITORIES = re.compile("release|repo")  # epel-release, mysql-apt-repo


class Package(Resource[PackageProperties, PackageState]):
    """A package of the operating system."""

    type_name = "package"
    properties_type = PackageProperties
    providers = tuple(PROVIDERS)
    removable = True
    relative_paths = frozenset({"source"})
    secret_properties = frozenset({"debconf"})

    _notes: Sequence[str] = ()
    _removed: Sequence[str] = ()
    """Other packages that the package manager removed for this change."""

    @property
    def provider(self) -> str:
        """The package manager of this machine, by its facts. Raises ``ResourceError`` for an unsupported one."""
        return provider_of(self.properties.provider, self.context)

    def look(self) -> PackageState:
        manager, job, properties = self._manager, self._job, self.properties
        if not self._is_to_go:
            manager.refuse_options(properties.options or DEFAULTS, has_debconf=bool(properties.debconf))
        self._notes = ()
        status = manager.found(job, properties.name)
        installed = manager.installed(job, properties.name)
        is_held = status.held or any(item.held for item in installed)
        if properties.held is not None:
            is_held = manager.is_held(job, properties.name, to_hold=properties.held)
        is_automatic = bool(installed) and not self._is_to_go and manager.is_automatic(job, properties.name)
        if installed and properties.debconf and not self._is_to_go:
            self._notes = self._find_other_answers()
        return PackageState(
            installed,
            self._candidate(installed),
            tuple(status.providers),
            status.has_configuration,
            is_held,
            is_automatic,
        )

    @property
    def notes(self) -> Sequence[str]:
        """Late answers, and packages that were removed by a change."""
        removed = [f"removed {', '.join(self._removed)} with it"] if self._removed else []
        return [*self._notes, *removed]

    def _find_other_answers(self) -> Sequence[str]:
        return [
            f"debconf has another answer to {question}, but installed packages do not read it again (dpkg-reconfigure)"
            for question in find_other_answers(self.properties.debconf, self.context)
        ]

    def differences(self, actual: PackageState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        results = []
        if (action := self._action(actual)) is not None:
            candidate = f" ({actual.candidate})" if actual.candidate else ""
            there = f"{actual} with its configuration files" if actual.has_configuration else str(actual)
            results.append(presence(there, self.properties.ensure + candidate))
        held = self.properties.held
        # Report only the removal, because a removal also releases the package.
        if held is not None and held != actual.held:
            results.append(changed("held", _word(actual.held), _word(held)))
        if action is None and actual.is_automatic:
            results.append(changed("installed", "only for other packages", "by request"))
        return results if action not in REMOVALS else results[:1]

    def change(self, differences: Sequence[Difference], actual: PackageState) -> None:
        del differences
        self.change_together([(self, actual)])

    @classmethod
    def change_together(cls, members: "Sequence[tuple[Package, PackageState]]") -> None:
        """Change packages with the same ``transaction`` at once, or raise ``ResourceError``.

        1. Refuse packages on hold and names that are not packages.
        2. Use the job of the first package, because ``transaction`` is equal for all.
        3. Release held packages that will change.
        4. Remove all packages, or set their debconf answers and install all. After a failure, hold the released ones
           again.
        5. Hold packages.
        6. Mark packages as installed by request that were installed as dependencies. An installation does this itself.
        """
        # 1. Refuse
        for resource, actual in members:
            resource._refuse(actual)
        # 2. One job
        first = members[0][0]
        manager, job, held = first._manager, first._job, first.properties.held
        changing = [member for member in members if member[0]._action(member[1]) is not None]
        # 3. Release
        to_release = members if held is False else changing if held else ()
        if released := _names([(item, seen) for item, seen in to_release if seen.held]):
            manager.hold(job, released, held=False)
        try:
            # 4. Remove or install
            if changing:
                cls._remove_or_install(changing)
        except BaseException:
            if held and released:
                manager.hold(job, released, held=True)
            raise
        # 5. Hold
        if held:
            manager.hold(job, _names(members), held=True)
        # 6. Mark
        if automatic := [item.properties.name for item, seen in members if seen.is_automatic]:
            manager.mark_manual(job, automatic)

    @classmethod
    def _remove_or_install(cls, members: "Sequence[tuple[Package, PackageState]]") -> None:
        first = members[0][0]
        manager, job, properties = first._manager, first._job, first.properties
        if first._is_to_go:
            purge = properties.ensure == "purged"
            manager.remove(job, _names(members), purge=purge, approve=first._approve)
            return
        cls._answer(job, members)
        with contextlib.ExitStack() as files:
            desired = [resource._wanted(actual, files) for resource, actual in members]
            options = properties.options or DEFAULTS
            manager.install(
                job, desired, downgrades=properties.is_versioned, options=options, approve=first._approve
            )

    def _approve(self, plan: Plan, request: "Request") -> None:
        claims = self._claims
        claims.require(plan, request)
        self._removed = claims.extra_removals(plan, request)

    @property
    def _claims(self) -> "Claims":
        return Claims(self._manager, self._job, self.context, self.type_name)

    @staticmethod
    def _answer(job: "Job", members: "Sequence[tuple[Package, PackageState]]") -> None:
        """Set the answers of packages that are not installed. Installed packages do not ask again."""
        answers = [
            (resource.properties.name.partition(":")[0], answer)
            for resource, actual in members
            if not actual.installed
            for answer in resource.properties.debconf
        ]
        if answers:
            give_answers(job, answers)

    def transaction(self, actual: PackageState) -> Hashable | None:
        """Return a key that is equal for changes in the same transaction, ``None`` for a change that must be alone."""
        properties = self.properties
        if actual.held and properties.held is None:
            return None  # it will be refused, and must not make others fail
        return (
            self.provider,
            properties.ensure if self._is_to_go else "",
            properties.is_versioned,
            properties.options or DEFAULTS,
            properties.held,
            properties.timeout,
            properties.lock_timeout,
        )

    def noop_message(self, differences: Sequence[Difference], actual: PackageState) -> str:
        del differences
        self._refuse(actual)
        action, held = self._action(actual), self.properties.held
        holding = "held it" if held else "released the hold"
        if action is None:
            changes = [holding] if held not in (None, actual.held) else []
            changes += ["marked it as installed by request"] if actual.is_automatic else []
            return f"Would have {' and '.join(changes)}"
        is_asked_for = self.properties.is_versioned or not actual.installed
        if is_asked_for and not self._is_to_go and not self.properties.source:
            self._require_offer()
        message = f"Would have {self._done(action, actual)}"
        removed = self._foretell_removals(action, actual)
        if removed is None:
            message += " (changes of other packages are unknown until the run)"
        elif removed:
            message += f", and removed {', '.join(removed)} with it"
        is_as_wanted = held in (None, actual.held) or action in REMOVALS
        return message if is_as_wanted else f"{message}, and {holding}"

    def _done(self, action: Action, actual: PackageState) -> str:
        if action in REMOVALS:
            return action.value
        of_file = self.properties.source and not self.properties.is_versioned
        ensure = (actual.candidate if of_file else None) or self.properties.ensure
        if action is Action.INSTALL:
            return f"installed {ensure}" if ensure == "latest" else f"installed version {ensure}"
        return f"{action.value} {ensure}"

    def reach(self) -> str:
        return "/"

    @classmethod
    def subjects(cls, properties: PackageProperties) -> Iterable[str]:
        del properties
        return (cls.type_name,)

    def touched(self, actual: PackageState) -> Iterable[str]:
        """Return everything, because package scripts may change anything."""
        del actual
        return (self.type_name, ANYTHING)

    @classmethod
    def lasting(cls, properties: PackageProperties) -> PackageProperties:
        """Replace ``latest`` by ``present``, because package lists fetched meanwhile may have a newer version."""
        is_latest = properties.ensure == "latest"
        return msgspec.structs.replace(properties, ensure="present") if is_latest else properties

    def contents(self) -> Mapping[str, Content]:
        source = self.properties.source
        return bundled_contents(
            [source] if source and self.properties.ensure != "absent" else [], self.context
        )

    def final_ensure(self, actual: PackageState) -> str:
        return str(actual)

    def _action(self, actual: PackageState) -> Action | None:
        """Return the action, ``None`` if the package is in sync."""
        ensure, newest = self.properties.ensure, actual.newest
        if self._is_to_go:
            if ensure == "purged" and (newest or actual.has_configuration) and self._manager.can_purge:
                return Action.PURGE
            return Action.REMOVE if newest or actual.providers else None
        if newest is None and actual.providers and ensure == "present" and not self.properties.source:
            return None
        if newest is None or not newest.is_complete:
            return Action.INSTALL  # also completes an interrupted installation
        if self.properties.is_versioned:
            return self._action_for_version(actual, newest)
        order = self._manager.order
        is_newer = actual.candidate and order.compare(actual.candidate, newest.version) > 0
        return Action.UPGRADE if is_newer else None

    def _action_for_version(self, actual: PackageState, newest: Installed) -> Action | None:
        order, ensure = self._manager.order, self.properties.ensure
        if any(order.compare_to_request(item.version, ensure) == 0 for item in actual.installed):
            return None
        return Action.UPGRADE if order.compare_to_request(newest.version, ensure) < 0 else Action.DOWNGRADE

    def _candidate(self, installed: Sequence[Installed]) -> str | None:
        """Return the version to compare with: of the source, or for ``latest`` of the repositories, else ``None``."""
        properties, manager, job = self.properties, self._manager, self._job
        if self._file is not None:
            return self._version_of(self._file)
        if properties.ensure != "latest" or not installed or not installed[0].is_complete:
            return None
        try:
            return manager.candidate(job, properties.name, (properties.options or DEFAULTS).release)
        except ResourceError:
            if self.context.noop and self._may_get_repositories():
                return None  # a repository of this run would provide the release
            raise

    def _version_of(self, file: "PackageFile") -> str | None:
        manager, request = self._manager, self.properties.ensure
        record = file.record(manager, self._job)
        if record is None:
            return None
        if self.properties.is_versioned and manager.order.compare_to_request(record.version, request) != 0:
            raise ResourceError(
                f"source {self.properties.source} is version {record.version}", expected=request
            )
        return record.version

    def _wanted(self, actual: PackageState, files: contextlib.ExitStack) -> "RequestedPackage":
        name = self.properties.name
        if self._file is not None:
            path = files.enter_context(self._file.at_hand(self._manager.suffix))
            return RequestedPackage(name, actual.candidate, path)
        if not self.properties.is_versioned:
            return RequestedPackage(name, actual.candidate)
        return RequestedPackage(name, self._manager.find_version(self._job, name, self.properties.ensure))

    @property
    def _file(self) -> "PackageFile | None":
        if self.properties.source is None or self._is_to_go:
            return None

        return PackageFile(self.properties, self.properties.source, self.context)

    def _require_offer(self) -> None:
        """In noop, raise for a missing package, unless this run may add repositories."""
        manager, properties = self._manager, self.properties
        if not self._may_get_repositories():
            request = properties.ensure if properties.is_versioned else None
            if properties.options and properties.options.release:
                manager.candidate(
                    self._job, properties.name, properties.options.release
                )  # raises for an unknown release
            manager.require_offer(self._job, properties.name, request)
        manager.may_get_repositories |= bool(_OF_REPOSITORIES.search(properties.name))

    def _foretell_removals(self, action: Action, actual: PackageState) -> Sequence[str] | None:
        """Return the packages that the change would remove, for a dry run.

        ``None`` if an earlier resource provides the file or the repository, so that the change cannot be simulated.
        Raises ``ResourceError`` if the change would be refused.

        All predicted changes of the dry run are simulated together, because each one builds on the others.
        """
        if action in REMOVALS and not actual.installed:  # only configuration files are removed
            return ()
        dry_run: DryRun = self.context.shared.setdefault(DryRun, DryRun())
        if (request := self._request(action, actual, dry_run)) is None:
            return None
        manager, job, claims = self._manager, self._job, self._claims
        if dry_run.harmless is None:
            dry_run.harmless = claims.find_harmless()
        if self.properties.name in dry_run.harmless:
            dry_run.accept(request, ())
            return ()
        whole = dry_run.with_next(request)
        try:
            plan = manager.plan(job, whole)
        except ResourceError as error:
            raise self._explained(error, dry_run, request) from error
        claims.require(plan, whole)
        removed = dry_run.new_removals(claims.extra_removals(plan, whole))
        dry_run.accept(request, removed)
        return removed

    def _explained(self, error: ResourceError, dry_run: "DryRun", request: "Request") -> ResourceError:
        """Return the error. If the change succeeds without another package of this run, name that package."""

        def is_possible(first: int) -> bool:
            with contextlib.suppress(ResourceError):
                self._manager.plan(self._job, dry_run.with_next(request, first))
                return True
            return False

        other = culprit(is_possible, dry_run.accepted)
        return (
            NeededByAnother(f"cannot be combined with {self.type_name}#{other}: {error}") if other else error
        )

    def _request(self, action: Action, actual: PackageState, dry_run: "DryRun") -> "Request | None":
        """Return the change for a simulation. ``None`` if an earlier resource provides the file or the repository."""
        properties, manager, job = self.properties, self._manager, self._job
        if action in REMOVALS:
            purge = properties.ensure == "purged"
            return Request(remove=(properties.name,), purge=purge, changes_held=properties.held is not None)
        options = properties.options or DEFAULTS
        if properties.source is not None:
            path = self._file.path_to_plan(dry_run.files.keep) if self._file is not None else None
            desired = RequestedPackage(properties.name, actual.candidate, path) if path else None
        elif self._may_get_repositories() or not manager.knows_repositories(job, properties.name):
            return None
        else:
            desired = self._wanted(actual, contextlib.ExitStack())
        if desired is None:
            return None
        return Request(
            (desired,),
            downgrades=properties.is_versioned,
            changes_held=properties.held is not None,
            options=options,
        )

    def _may_get_repositories(self) -> bool:
        """Return whether, in noop, an earlier resource may add repositories."""
        context = self.context
        return self._manager.may_get_repositories or any(
            context.uncertain(path, apart_from=self.type_name)
            or context.system.will_be_written(path, below=True)
            for path in self._manager.sources
        )

    def _refuse(self, actual: PackageState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        ensure = self.properties.ensure
        held = next((item for item in actual.installed if item.held and item.is_complete), None)
        if self.properties.held is None and self._action(actual) is not None:
            if held:
                raise ResourceError(
                    f"is held at {held.version} (apt-mark hold), so it is left as it is",
                    code=ProblemCode.CHANGE_REFUSED,
                    expected=ensure,
                )
            if actual.held and not actual.installed:
                raise ResourceError(
                    "is held while it is not installed (apt-mark hold)",
                    code=ProblemCode.CHANGE_REFUSED,
                    expected=ensure,
                )
        if actual.providers and self._file is None:
            self._refuse_provided(actual)

    def _refuse_provided(self, actual: PackageState) -> None:
        """Raise ``ResourceError`` if the action is impossible for a name that only other packages provide."""
        action, ensure = self._action(actual), self.properties.ensure
        if action is Action.REMOVE:
            raise ResourceError(
                f"is not a package here, but {actual}, which would have to be removed",
                code=ProblemCode.CHANGE_REFUSED,
                expected=ensure,
            )
        if action is None:
            raise ResourceError(
                f"is a name, not a package: {actual}, and cannot be held", code=ProblemCode.CHANGE_REFUSED
            )
        if action is not Action.INSTALL or self._manager.is_offered(self._job, self.properties.name):
            return
        if not (self.context.noop and self._may_get_repositories()):
            raise ResourceError(
                f"is a name, not a package: {actual}, and has no version",
                code=ProblemCode.CHANGE_REFUSED,
                expected=ensure,
            )

    @property
    def _is_to_go(self) -> bool:
        return self.properties.ensure in GONE

    @property
    def _manager(self) -> Manager:
        """The package manager, shared by all packages of a run because it caches results."""
        kind: type[Manager] = load_class(PROVIDERS[self.provider].manager)
        shared = self.context.shared
        if kind not in shared:
            shared[kind] = kind()
        manager: Manager = shared[kind]
        return manager

    @property
    def _job(self) -> "Job":
        context, properties = self.context, self.properties
        return Job(
            context.system,
            lambda: context.declared(self.type_name),
            context.log,
            context.noop,
            properties.timeout,
            properties.lock_timeout,
        )

    @classmethod
    def check(cls, properties: PackageProperties) -> Iterator[PropertyError]:
        yield from check_package(properties)

    @classmethod
    def identity(cls, properties: PackageProperties, spellings: Spellings) -> Hashable:
        return canonical_name(properties.name, spellings.facts)

    @classmethod
    def agree(cls, first: PackageProperties, second: PackageProperties) -> PackageProperties:
        """Combine ``present`` with any version that the other declaration requires."""
        return agree(first, second, rules={"ensure": _one_ensure})


def _one_ensure(first: str, other: str) -> str:
    if first in GONE and other in GONE:
        return "purged"  # purging includes removal
    if "present" not in (first, other) or first in GONE or other in GONE:
        raise ValueError(f"{first} is not {other}")
    return other if first == "present" else first


def _names(members: "Iterable[tuple[Package, PackageState]]") -> list[str]:
    return [resource.properties.name for resource, _ in members]


def _word(value: bool) -> str:
    return "true" if value else "false"
