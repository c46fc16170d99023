"""The ``package`` resource: what is installed, and in which version (``resources.md`` section 5).

* All packages of a run are looked at together: one command for what is installed, one for what could be.
* Versions compare as the package manager compares them; ``latest`` acts only on what is newer.
* What an administrator put on hold is never changed: that is a failure, in noop too.
"""

import re
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Difference, Properties, PropertyError, Resource
from puller.values.duration import Duration

if TYPE_CHECKING:  # the package managers are imported when one is asked
    from puller.resources.packages.job import Job
    from puller.resources.packages.manager import Installed, Manager, Wanted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_:~-]*")
_VERSION = re.compile(r"(?=.*[0-9])[A-Za-z0-9][A-Za-z0-9.+_:~^-]*")
_OF_REPOSITORIES = re.compile("release|repo")  # epel-release, mysql-apt-repo
_STATES = ("present", "absent", "latest")

_PROVIDERS = {"apt": "puller.resources.packages.apt:Apt", "dnf": "puller.resources.packages.dnf:Dnf"}
_PROVIDER_OF_FAMILY = {"Debian": "apt", "RedHat": "dnf"}


class PackageProperties(Properties, frozen=True):
    """The properties of a package."""

    timeout: Duration = Duration(1800.0)
    """After so long the package manager and its children are killed."""
    lock_timeout: Duration = Duration(300.0)
    """How long apt waits while something else holds dpkg's lock; dnf waits within ``timeout``."""


class Action(Enum):
    """A change of one package."""

    INSTALL = "installed"
    UPGRADE = "upgraded to"
    DOWNGRADE = "downgraded to"
    REMOVE = "uninstalled"


class PackageState(msgspec.Struct, frozen=True):
    """The versions installed under a name, the newest first; and for ``latest``, what the repositories offer."""

    installed: "tuple[Installed, ...]" = ()
    candidate: str | None = None

    @property
    def newest(self) -> "Installed | None":
        """``None`` when nothing is installed."""
        return self.installed[0] if self.installed else None

    def __str__(self) -> str:
        words = (
            one.version if one.is_complete else f"{one.version} ({one.status})" for one in self.installed
        )
        # Those of several architectures are usually the same.
        return ", ".join(dict.fromkeys(words)) or "absent"


class Package(Resource[PackageProperties, PackageState]):
    """A package of the operating system."""

    type_name = "package"
    properties_type = PackageProperties
    providers = tuple(_PROVIDERS)
    removable = True

    @property
    def provider(self) -> str:
        """The package manager of this machine, by its facts; raises ``ResourceError`` when that is none of ours."""
        if self.properties.provider:
            return self.properties.provider
        family = self.context.scope.lookup("facts.os.family", None)
        if family in _PROVIDER_OF_FAMILY:
            return _PROVIDER_OF_FAMILY[family]
        known = " or ".join(f"{name} ({provider})" for name, provider in _PROVIDER_OF_FAMILY.items())
        raise ResourceError(f"the fact os.family is {family!r}, wanted {known}, or a provider named")

    def look(self) -> PackageState:
        manager, job, name = self._manager, self._job, self.properties.name
        installed = manager.installed(job, name)
        asks = self.properties.ensure == "latest" and installed and installed[0].is_complete
        return PackageState(installed, manager.candidate(job, name) if asks else None)

    def differences(self, actual: PackageState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        if self._action(actual) is None:
            return ()
        candidate = f" ({actual.candidate})" if actual.candidate else ""
        return [Difference("ensure", str(actual), self.properties.ensure + candidate)]

    def change(self, differences: Sequence[Difference], actual: PackageState) -> None:
        del differences
        self.change_together([(self, actual)])

    @classmethod
    def change_together(cls, members: "Sequence[tuple[Package, PackageState]]") -> None:
        """Change packages whose ``transaction`` is the same at once: all of them, or a ``ResourceError``.

        1. Refuse what is on hold.
        2. Take the work of the first for all, as ``transaction`` says that theirs does not differ.
        3. Remove them all; or
        4. find the full version that each asks for, and install them all.
        """
        # 1. Refuse
        for resource, actual in members:
            resource._refuse_held(actual)
        # 2. One job
        first, actual = members[0]
        manager, job = first._manager, first._job
        # 3. Remove
        if first.properties.ensure == "absent":
            manager.remove(job, [resource.properties.name for resource, _ in members])
        # 4. Install
        else:
            wanted = [resource._wanted(actual) for resource, actual in members]
            manager.install(job, wanted, downgrades=first._is_versioned)

    def transaction(self, actual: PackageState) -> Hashable | None:
        """A key that changes must have in common to be made at once; ``None`` for one that must be made alone."""
        properties = self.properties
        if any(one.held for one in actual.installed):
            return None  # it will be refused, and the others are not to fail with it
        return (
            self.provider,
            properties.ensure == "absent",
            self._is_versioned,
            properties.timeout,
            properties.lock_timeout,
        )

    def noop_message(self, differences: Sequence[Difference], actual: PackageState) -> str:
        del differences
        self._refuse_held(actual)
        action, ensure = self._action(actual), self.properties.ensure
        if action is not Action.REMOVE and (self._is_versioned or not actual.installed):
            self._require_offer()
        if action is Action.INSTALL:
            return (
                f"Would have installed {ensure}"
                if ensure == "latest"
                else f"Would have installed version {ensure}"
            )
        if action is Action.REMOVE or action is None:
            return "Would have uninstalled"
        return f"Would have {action.value} {ensure}"

    def reach(self) -> str:
        return "/"

    def final_ensure(self, actual: PackageState) -> str:
        return str(actual)

    def _action(self, actual: PackageState) -> Action | None:
        """The decision table; ``None`` is *as wanted*."""
        ensure, newest = self.properties.ensure, actual.newest
        if ensure == "absent":
            return Action.REMOVE if newest else None
        if newest is None or not newest.is_complete:
            return Action.INSTALL  # which also finishes an installation that was interrupted
        if ensure == "present":
            return None
        order = self._manager.order
        if ensure == "latest":
            is_newer = actual.candidate and order.compare(actual.candidate, newest.version) > 0
            return Action.UPGRADE if is_newer else None
        if any(order.compare_to_request(one.version, ensure) == 0 for one in actual.installed):
            return None
        return Action.UPGRADE if order.compare_to_request(newest.version, ensure) < 0 else Action.DOWNGRADE

    def _wanted(self, actual: PackageState) -> "Wanted":
        from puller.resources.packages.manager import Wanted

        name = self.properties.name
        if not self._is_versioned:
            return Wanted(name, actual.candidate)
        return Wanted(name, self._manager.find_version(self._job, name, self.properties.ensure))

    def _require_offer(self) -> None:
        """Raise for what no repository has, so that noop predicts it; not where this run may add repositories."""
        manager, context = self._manager, self.context
        comes = manager.may_get_repositories or any(
            context.uncertain(path, apart_from=self.type_name)
            or context.system.will_be_written(path, below=True)
            for path in manager.sources
        )
        if not comes:
            request = self.properties.ensure if self._is_versioned else None
            manager.require_offer(self._job, self.properties.name, request)
        manager.may_get_repositories |= bool(_OF_REPOSITORIES.search(self.properties.name))

    def _refuse_held(self, actual: PackageState) -> None:
        held = next((one for one in actual.installed if one.held and one.is_complete), None)
        if held:
            ensure = self.properties.ensure
            raise ResourceError(
                f"is held at {held.version} (apt-mark hold), so it is left as it is; wanted {ensure}"
            )

    @property
    def _is_versioned(self) -> bool:
        return self.properties.ensure not in _STATES

    @property
    def _manager(self) -> "Manager":
        """One for all packages of a run, as it keeps the answers."""
        module, _, name = _PROVIDERS[self.provider].partition(":")
        kind: type[Manager] = getattr(import_module(module), name)
        shared = self.context.shared
        if kind not in shared:
            shared[kind] = kind()
        manager: Manager = shared[kind]
        return manager

    @property
    def _job(self) -> "Job":
        from puller.resources.packages.job import Job

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
        name, ensure = properties.name, properties.ensure
        if not _NAME.fullmatch(name):
            yield PropertyError(
                "name", f"is {name!r}, wanted letters, digits and . + _ : ~ -, a letter or digit first"
            )
        elif name.endswith("-"):
            yield PropertyError(
                "name", f"is {name!r}, which apt takes for a wish to remove {name.rstrip('-')!r}"
            )
        if ensure not in _STATES and not _VERSION.fullmatch(ensure):
            wanted = ", ".join(_STATES)
            yield PropertyError("ensure", f"is {ensure!r}, wanted {wanted} or a version such as '1.24.0-1'")
        if properties.timeout <= 0:
            yield PropertyError("timeout", "is 0, wanted a time that the package manager can work in")

    @classmethod
    def agree(cls, first: PackageProperties, second: PackageProperties) -> PackageProperties:
        """A package that is only to be there may be so in any version that the other asks for."""
        from puller.resources.agreeing import agree  # few manifests declare a package twice

        return agree(first, second, rules={"ensure": _installed})


def _installed(one: str, other: str) -> str:
    if "present" not in (one, other) or "absent" in (one, other):
        raise ValueError(f"{one} is not {other}")
    return other if one == "present" else one
