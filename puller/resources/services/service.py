"""The ``service`` resource: whether a service runs, and whether it starts at boot (``docs/resources/service.md``).

* Running and enabled are independent. Properties that are not declared are not managed.
* A change of a resource in ``subscribe`` restarts a running service once. It starts a stopped service that should run,
  and does not affect a service that should be stopped.
* A change of a resource in ``reload`` reloads a service that was running before. A start or restart includes a reload.
* A missing unit counts as stopped and disabled. Impossible requests (to run a missing unit, start a masked one, or
  disable one without an [Install] section) fail before any change.
"""

import re
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

from foundation.differences import Action, Difference, acting, changed
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context, Declared, Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Use, agree
from puller.resources.services.systemd import SYSTEM, Manager, Systemd, manager_of
from puller.resources.services.unit_files import UNIT_DIRECTORIES
from puller.resources.services.unit_links import aliased_unit, contradictory_links, links_of, unit_of
from puller.resources.services.unit_state import Unit
from puller.system import systemd_units
from puller.system.identity import Identity
from puller.system.local_paths import Spellings
from puller.values.common_properties import Reference

_ENSURE = ("running", "stopped")
_MASKED = "masked"
_CONFIGURATION = "configuration"
_ESCAPE = r"\\x[0-9a-f]{2}"
_NAME = re.compile(rf"(?:[A-Za-z0-9]|{_ESCAPE})(?:[A-Za-z0-9._+:~@-]|{_ESCAPE})*")
_USER = re.compile(r"[^-:/@\s\0][^:/@\s\0]*")
_LONGEST_NAME = 255  # bytes; systemd's limit

_RECENT = 600.0  # seconds of journal before an existing failure
_DISABLED = ("disabled", "linked", "linked-runtime")
_WHY_NOT_DISABLED = {
    "static": "it lacks an [Install] section, so other units start it and it cannot be enabled or disabled",
    "indirect": "it is enabled through another unit, which its [Install] section names",
    "generated": "it was made by a generator from something else, such as /etc/fstab or /etc/init.d",
    "transient": "it was made by a program and is gone with the next boot",
    "alias": "it is another name of a unit: disable that unit",
}


class ServiceProperties(Properties, frozen=True):
    """The properties of a service."""

    ensure: str = "running"
    """``running`` or ``stopped``."""
    enable: bool | Literal["masked"] | None = None
    """Whether the service starts at boot. ``masked``: the service cannot start. Unset: unmanaged."""
    scope: Literal["system", "user"] = "system"
    """The manager of the service: ``system``, or ``user`` for a service of the given ``user``."""
    user: str | None = None
    """The owner of the service, with ``scope: user``."""
    subscribe: tuple[Reference, ...] = ()
    """Resources whose change restarts the service."""
    reload: tuple[Reference, ...] = ()
    """Resources whose change reloads the service without a restart."""


class Service(Resource[ServiceProperties, Unit]):
    """A service of this machine."""

    type_name = "service"
    properties_type = ServiceProperties
    providers = ("systemd",)

    @classmethod
    def may_replace(cls, properties: ServiceProperties) -> bool:
        del properties
        return False

    _is_guessed = False
    """In noop: whether its manager does not exist yet."""

    def look(self) -> Unit:
        try:
            self._manager.require(self.context.system)
        except ResourceError:
            if not self._may_manager_start():
                raise
            self._is_guessed = True
            return Unit.unknown(self.properties.name)
        unit = self._systemd.unit(self.properties.name)
        self._require_reload(unit)
        return (
            self._systemd.settled(self.properties.name, unit) if self.properties.ensure == "running" else unit
        )

    @classmethod
    def subjects(cls, properties: ServiceProperties) -> Iterable[str]:
        """Return all units together, because units start, stop and enable each other, and the unit files."""
        del properties
        return (cls.type_name, *(f"{directory}/" for directory in (*UNIT_DIRECTORIES, "/etc/init.d")))

    @classmethod
    def tool_paths(cls, properties: ServiceProperties) -> Iterator[str]:
        if properties.scope == "system":
            yield from links_of(properties.name)

    @classmethod
    def identity(cls, properties: ServiceProperties, spellings: Spellings) -> Hashable:
        if properties.scope != "system":
            return properties.scope, properties.user, unit_of(properties.name)

        return aliased_unit(unit_of(properties.name), spellings)

    @classmethod
    def claims(cls, properties: ServiceProperties) -> Iterator[Claim]:
        if properties.scope == "system" and properties.enable == _MASKED:
            # A mask is a link in place of the unit file.
            yield Claim(f"{UNIT_DIRECTORIES[0]}/{unit_of(properties.name)}", Use.LINK)

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterator[tuple[Any, Any, str]]:
        services = [item for item in declared(cls.type_name) if isinstance(item, ServiceProperties)]
        return contradictory_links(services, declared)

    def differences(self, actual: Unit, *, refresh: bool = False) -> Sequence[Difference]:
        """Return the differences. Raises ``ResourceError`` for a unit in a crash loop."""
        ensure = self.properties.ensure
        differences = []
        if actual.crash and not refresh:
            raise ResourceError(
                f"{actual.id} does not keep running: {actual.crash}{self._journal(actual, _RECENT)}"
            )
        if not (actual.is_running if ensure == "running" else actual.is_stopped):
            differences.append(changed("ensure", actual.state, ensure))
        elif refresh and ensure == "running":
            differences.append(acting("ensure", Action.RESTART, refresh=True))
        if self.properties.enable is not None and (at_boot := self._differs_at_boot(actual)):
            differences.append(changed("enable", at_boot, self._desired_at_boot))
        return differences

    def reload_differences(self, actual: Unit) -> Sequence[Difference]:
        if actual.crash:  # the next start reads the configuration
            return self.differences(actual, refresh=True)
        differences = self.differences(actual)
        if self.properties.ensure == "stopped" or not actual.is_running:
            return differences
        return [acting(_CONFIGURATION, Action.RELOAD, refresh=True), *differences]

    @property
    def _desired_at_boot(self) -> str:
        enable = self.properties.enable
        return "masked" if enable == _MASKED else "enabled" if enable else "disabled"

    def _differs_at_boot(self, actual: Unit) -> str:
        """Return the state of the unit at boot if ``enable`` requires another state, else empty."""
        enable, state = self.properties.enable, actual.file_state or "disabled"
        if enable == _MASKED:
            return "" if actual.file_state == "masked" else state  # a runtime mask ends at the next boot
        if actual.is_masked:
            return state
        if self._is_guessed:
            return state if enable else ""
        if not enable:
            is_started = actual.has_links or (
                state not in _DISABLED and self._systemd.at_boot.started_by(actual) != ""
            )
            return state if is_started else ""
        if not self._systemd.at_boot.is_started(actual):
            return f"{state} without effect" if actual.has_links or state in _WHY_NOT_DISABLED else state
        return (
            "enabled by an earlier [Install] section"
            if self._systemd.is_enabled_by_old_section(actual)
            else ""
        )

    def change(self, differences: Sequence[Difference], actual: Unit) -> None:
        """Start or stop the service, and enable or disable it (``docs/resources/service.md``).

        1. Query the unit alone, because its file may have changed since all units were queried.
        2. Let systemd read its file if it is outdated.
        3. Compute the differences again from the current state.
        4. Refuse impossible changes: a missing or masked unit, or a unit that cannot be disabled or reloaded.
        5. Unmask a unit that Puller masked, and compute the differences again.
        6. Start, stop, restart or reload it once for all subscriptions, and verify that it stays in this state. Enable
           or disable it independently.
        """
        systemd, name = self._systemd, self.properties.name
        # 1. Query
        unit = systemd.ask(name, waits=False)
        # 2. Reload
        if unit.needs_reload:
            systemd.read_files()
            unit = systemd.ask(name, waits=False)
        # 3. Decide
        due = next((difference.property for difference in differences if difference.refresh), "")
        differences = self._decide(unit, due)
        # 4. Refuse
        self._require_reload(unit)
        self._raise_predictable_failures(unit, differences)
        # 5. Unmask
        if self._is_to_be_unmasked(unit):
            systemd.unmask(unit)
            unit = systemd.ask(name, waits=False)
            differences = self._decide(unit, due)
            self._raise_predictable_failures(unit, differences)
        # 6. Act
        for difference in differences:
            if difference.property == "enable":
                self._enable(unit)
            else:
                self._act(unit, difference)

    def _decide(self, unit: Unit, due: str) -> Sequence[Difference]:
        """Return the current differences. ``due`` is the property of a pending refresh."""
        if due == _CONFIGURATION:
            return self.reload_differences(unit)
        return self.differences(unit, refresh=bool(due))

    def noop_message(self, differences: Sequence[Difference], actual: Unit) -> str:
        self._raise_predictable_failures(actual, differences)
        words = ["unmasked"] if self._is_to_be_unmasked(actual) else []
        for difference in differences:
            if difference.property == "enable":
                words.append(self._desired_at_boot)
            elif difference.refresh:
                is_reload = difference.property == _CONFIGURATION
                words.append("reloaded" if is_reload else "restarted via subscribe")
            else:
                words.append("started" if self.properties.ensure == "running" else "stopped")
        return f"Would have {', would have '.join(words)}"

    def _is_to_be_unmasked(self, unit: Unit) -> bool:
        """Return whether Puller masked the unit and it should not be masked."""
        if not unit.is_masked or not isinstance(self.properties.enable, bool):
            return False
        return self._systemd.is_masked_by_us(unit)

    def final_ensure(self, actual: Unit) -> str:
        return "running" if actual.is_running else "stopped"

    @cached_property
    def _manager(self) -> Manager:
        """The manager of the service. Raises ``ResourceError`` for an unknown user."""
        user = self.properties.user
        return SYSTEM if user is None else manager_of(Identity.find(user))

    def _may_manager_start(self) -> bool:
        """Return whether, in noop, an earlier resource may create the user or start the user's manager."""
        context, user = self.context, self.properties.user
        if not context.noop or user is None:
            return False
        try:
            return context.uncertain(f"/run/user/{Identity.find(user).uid}")
        except ResourceError:
            return context.system.user_id(user) is not None or context.uncertain("/etc/passwd")

    @property
    def _systemd(self) -> Systemd:
        return Systemd.of(self.context, lambda: names_of_services(self.context), self._manager)

    def _may_come(self, unit: Unit) -> bool:
        """Return whether, in noop, an earlier resource may create the unit."""
        context = self.context
        if self._is_guessed:
            return True
        return context.noop and any(
            context.uncertain(path) or context.system.exists(path)
            for path in unit.files(self._manager.directories)
        )

    def _require_reload(self, unit: Unit) -> None:
        """Raise ``ResourceError`` for a unit that cannot reload, before any change that would require it."""
        properties = self.properties
        if not properties.reload or properties.ensure == "stopped":
            return
        # Unknown if systemd has not read the current file.
        if unit.load == "loaded" and not unit.can_reload and not unit.needs_reload:
            detail = "cannot reload (CanReload=no): let it subscribe to its files, which restarts it"
            raise ResourceError(f"{unit.id} {detail}")

    def _raise_predictable_failures(self, unit: Unit, differences: Sequence[Difference]) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        goals = (self._desired_at_boot, self.properties.ensure)
        desired = {goals[difference.property != "enable"] for difference in differences}
        if _MASKED in desired:
            self._refuse_in_the_way_of_a_mask(unit)
        if not desired - {"stopped", _MASKED}:
            return
        if unit.is_masked:
            if not self._is_to_be_unmasked(unit):
                user = self.properties.user
                how = "systemctl" if user is None else f"systemctl --user --machine={user}@"
                raise ResourceError(
                    f"{unit.id} is masked",
                    code=ProblemCode.CHANGE_REFUSED,
                    hint=f"to allow it: {how} unmask {unit.id}",
                )
            return
        if unit.is_missing and not self._may_come(unit):
            raise ResourceError(f"unknown unit {unit.id}")
        if desired - {"stopped", "disabled"} and unit.load in ("bad-setting", "error"):
            raise ResourceError(f"systemd refuses {unit.fragment or unit.id}: {unit.load_error}")
        why = "" if unit.is_init_script else _WHY_NOT_DISABLED.get(unit.file_state)
        if why and "disabled" in desired:
            raise ResourceError(
                f"{unit.id} is {unit.file_state} and cannot be disabled: {why}",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if "enabled" in desired and not self._is_effect_open(unit):
            self._require_effect(unit)

    def _is_effect_open(self, unit: Unit) -> bool:
        """Return whether, in noop, an earlier resource may change the unit file."""
        context = self.context
        if unit.is_missing or self._is_guessed:
            return True
        return context.noop and any(
            context.uncertain(path)
            or context.system.will_be_written(path)
            or context.system.will_be_written(f"{path}.d", below=True)
            for path in unit.files(self._manager.directories)
        )

    def _require_effect(self, unit: Unit) -> None:
        """Raise ``ResourceError`` for a unit that would not start at boot even if enabled."""
        if why := self._systemd.at_boot.why_not(unit):
            how = "add WantedBy= to an [Install] section, or leave enable out"
            raise ResourceError(
                f"{unit.id} is {unit.file_state} and would not start at boot: {why}",
                code=ProblemCode.CHANGE_REFUSED,
                hint=how,
            )

    def _refuse_in_the_way_of_a_mask(self, unit: Unit) -> None:
        if not unit.fragment:
            return
        place = f"{self._manager.masks}/{unit.id}"
        if unit.fragment == place and not unit.is_masked and self.context.system.exists(place):
            detail = "occupies the place of the mask link: remove it, or disable the service instead"
            raise ResourceError(f"{place} {detail}")

    def _act(self, unit: Unit, difference: Difference) -> None:
        started = time.time()  # the journal of a failure begins here
        wants_running = self.properties.ensure == "running"
        try:
            if not wants_running:
                self._systemd.stop(unit)
            elif difference.property == _CONFIGURATION:
                self._systemd.reload(unit)
            elif difference.refresh:
                self._systemd.restart(unit)
            else:
                self._systemd.start(unit)
            # systemctl succeeds when a process was started, but the process may have ended since.
            after = self._systemd.ask(self.properties.name)
            if wants_running:
                after = self._systemd.settled(self.properties.name, after)
            if after.crash:
                raise ResourceError(f"{unit.id} does not keep running: {after.crash}")
            if after.is_running is not wants_running:
                ended = systemd_units.last_exit(after.fields)
                how = f", its process ended with {ended}" if ended else ""
                raise ResourceError(f"{unit.id} is {after.state}, though systemctl reports success{how}")
        except ResourceError as error:
            raise ResourceError(f"{error}{self._journal(unit, time.time() - started)}") from error

    def _enable(self, unit: Unit) -> None:
        if self.properties.enable == _MASKED:
            self._systemd.mask(unit)
        elif self.properties.enable:
            self._systemd.enable(unit)
            after = self._systemd.ask(self.properties.name, waits=False)
            self._require_effect(after)
            if not self._systemd.at_boot.is_started(after):
                raise ResourceError(f"{unit.id} was enabled, but no unit that starts at boot requires it")
        else:
            self._systemd.disable(unit)

    def _journal(self, unit: Unit, seconds: float) -> str:
        """Return the unit's journal lines of the last ``seconds``."""
        if self.properties.sensitive:
            return ""
        lines = self._systemd.journal(unit, time.time() - seconds)
        return "\n".join([". Its journal:", *lines]) if lines else ""

    @classmethod
    def follows(cls, properties: ServiceProperties, declared: Declared) -> Iterator[Reference]:
        """Yield the unit file of the service, its template, and their drop-ins."""
        name = unit_of(properties.name)
        template, mark, instance = name.partition("@")
        names = {name, f"{template}@.{instance.rpartition('.')[2]}"} if mark else {name}
        if properties.scope == "system":
            for unit in declared("unit"):
                if unit.ensure == "present" and unit.main in names:
                    yield Reference.to("unit", unit.name)

    @classmethod
    def reloads(cls, properties: Properties) -> tuple[Reference, ...]:
        return getattr(properties, "reload", ())

    @classmethod
    def agree(cls, first: ServiceProperties, second: ServiceProperties) -> ServiceProperties:
        """Merge ``reload``, and require the same scope and user."""
        rules = {"reload": lambda left_side, other: tuple(dict.fromkeys((*left_side, *other)))}
        return agree(first, second, exact=("scope", "user"), rules=rules)

    @classmethod
    def check(cls, properties: ServiceProperties) -> Iterator[PropertyError]:
        if properties.ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="running or stopped")
        if properties.enable == _MASKED and properties.ensure == "running":
            expected = "expected ensure: stopped with it, as a masked service cannot start"
            yield PropertyError("enable", f"is 'masked', {expected}", because=["ensure"])
        scope, user = properties.scope, properties.user
        if scope == "user" and user is None:
            yield missing_property(
                "user", "is missing", because=["scope"], hint="it is required with scope: user"
            )
        elif scope == "system" and user is not None:
            yield PropertyError("user", "is given, but requires scope: user", because=["scope"])
        elif user is not None and not _USER.fullmatch(user):
            yield PropertyError("user", f"is {user!r}", expected="the name of a user")
        if problem := _problem_of_name(properties.name):
            yield PropertyError("name", f"is {properties.name!r}, {problem}")


def names_of_services(context: Context) -> list[str]:
    """Return the declared services that systemctl can query."""
    return [name for name in context.declared(Service.type_name) if _problem_of_name(name) is None]


def _problem_of_name(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        if "\\" in name:
            return r"expected escapes of systemd-escape, such as 'srv-a\x2db.mount'"
        return "expected letters, digits and . _ + : ~ - @, the first a letter or digit"
    if len(name) > _LONGEST_NAME:
        return f"expected at most {_LONGEST_NAME} characters"
    template, mark, instance = name.partition("@")
    if mark and (not instance or instance == ".service"):
        return f"which is a template, expected an instance such as '{template}@name'"
    return None
