"""Resource types and providers by name: built-in ones, and those of other distributions (entry points).

* ``puller.resources`` holds types, each under its name.
* ``puller.providers`` holds providers, each as ``type.provider``: a subclass of the type that uses another tool.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from puller.errors import ConfigurationError, PullerError, ResourceError
from puller.resources.base import Resource, ResourceType

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

TYPES = "puller.resources"
PROVIDERS = "puller.providers"

_OWN = {
    "alternative": "puller.resources.packages.alternative:Alternative",
    "apply": "puller.resources.apply:Apply",
    "archive": "puller.resources.archives.archive:Archive",
    "block": "puller.resources.edits.lines:Block",
    "checkout": "puller.resources.checkouts.checkout:Checkout",
    "cron": "puller.resources.services.cron:Cron",
    "diversion": "puller.resources.packages.diversion:Diversion",
    "exec": "puller.resources.exec:Exec",
    "file": "puller.resources.files.file_or_tree:FileOrTree",
    "fragment": "puller.resources.files.fragment:Fragment",
    "group": "puller.resources.accounts.group:Group",
    "host_entry": "puller.resources.host.host_entry:HostEntry",
    "hostname": "puller.resources.host.hostname:Hostname",
    "kernel_module": "puller.resources.kernel.kernel_module:KernelModule",
    "line": "puller.resources.edits.lines:Line",
    "link": "puller.resources.files.link:Link",
    "locale": "puller.resources.locale:Locale",
    "mount": "puller.resources.kernel.mount:Mount",
    "package": "puller.resources.packages.package:Package",
    "reboot": "puller.resources.reboots.reboot:Reboot",
    "repository": "puller.resources.packages.repository:Repository",
    "scaffold": "puller.resources.scaffolds.scaffold:Scaffold",
    "service": "puller.resources.services.service:Service",
    "setting": "puller.resources.edits.setting:Setting",
    "swap": "puller.resources.kernel.swap:Swap",
    "sysctl": "puller.resources.kernel.sysctl:Sysctl",
    "unit": "puller.resources.unit:Unit",
    "timezone": "puller.resources.host.timezone:Timezone",
    "user": "puller.resources.accounts.user:User",
}


_REMOVERS = {
    "archive": "puller.resources.archives.leftover_archive:LeftoverArchive",
    "block": "puller.resources.edits.leftover_edits:LeftoverBlock",
    "checkout": "puller.resources.checkouts.checkout:LeftoverCheckout",
    "file": "puller.resources.files.leftover_files:LeftoverFile",
    "host_entry": "puller.resources.host.host_entry:LeftoverHostEntry",
    "kernel_module": "puller.resources.kernel.kernel_module:LeftoverKernelModule",
    "line": "puller.resources.edits.leftover_edits:LeftoverLine",
    "link": "puller.resources.files.leftover_files:LeftoverLink",
    "locale": "puller.resources.locale:LeftoverLocale",
    "scaffold": "puller.resources.scaffolds.scaffold:LeftoverScaffold",
    "setting": "puller.resources.edits.leftover_edits:LeftoverSetting",
    "sysctl": "puller.resources.kernel.sysctl:LeftoverSysctl",
}


def find_remover(name: str) -> ResourceType | None:
    """Return the type that removes leftovers of a type with ``ensure: absent``. ``None`` if they cannot be removed.

    Raises the exceptions of ``find_type``.
    """
    if (own := _REMOVERS.get(name)) is not None:
        return _imported(own)
    result = find_type(name)
    return result if result is not None and result.removable else None


def is_ours(name: str) -> bool:
    """Return whether a type belongs to this package."""
    return name in _OWN


@cache
def find_type(name: str) -> ResourceType | None:
    """Return the type with this name, imported on the first call. ``None`` if the name is unknown.

    Raises ``ConfigurationError`` if a type of another distribution cannot be loaded.
    """
    if (own := _OWN.get(name)) is not None:
        return _imported(own)
    point = next((point for point in _entry_points(TYPES) if point.name == name), None)
    return None if point is None else _load(point, Resource, ConfigurationError)


def type_names() -> list[str]:
    """Return all names that ``find_type`` accepts."""
    return sorted({*_OWN, *(point.name for point in _entry_points(TYPES))})


@cache
def find_providers(type_name: str) -> dict[str, ResourceType]:
    """Return the providers of other distributions for a type, by name. Raises ``ResourceError``."""
    of = find_type(type_name) or Resource
    points = [(point.name.partition("."), point) for point in _entry_points(PROVIDERS)]
    return {name: _load(point, of, ResourceError) for (own, _, name), point in points if own == type_name}


def choose_provider(
    resource_type: ResourceType, forced: str | None, facts: Mapping[str, Any]
) -> ResourceType:
    """Return the class for this machine: the type itself, or a provider of another distribution.

    The type's own providers take precedence. Raises ``ResourceError`` if a forced provider is unknown or unusable here.
    """
    if forced is None and resource_type.available(facts):
        return resource_type  # the usual case: skips the slow search for other providers
    if forced in resource_type.providers:
        return resource_type
    others = find_providers(resource_type.type_name)
    if forced is None:
        usable = [other for other in others.values() if other.available(facts)]
        return max(usable, key=lambda other: other.priority, default=resource_type)
    if forced not in others:
        known = ", ".join([*resource_type.providers, *others])
        raise ResourceError(f"provider is {forced!r}", expected=f"one of {known}")
    if not others[forced].available(facts):
        raise ResourceError(f"provider {forced} cannot be used on this machine")
    return others[forced]


def _entry_points(group: str) -> "Iterable[EntryPoint]":
    from importlib.metadata import entry_points  # 19 % of an idle run, which uses no other distribution

    return entry_points(group=group)


def _imported(place: str) -> ResourceType:
    module, _, attribute = place.partition(":")
    return cast(ResourceType, getattr(import_module(module), attribute))


def _load(point: "EntryPoint", desired: type, failure: type[PullerError]) -> ResourceType:
    """Return the class of an entry point. Any error in its code raises ``failure`` with the entry point's name."""
    try:
        result = point.load()
    # Importing runs foreign code, which may raise anything.
    except Exception as error:
        raise failure(f"{point.group} {point.name} ({point.value}) cannot be loaded: {error}") from error
    if not (isinstance(result, type) and issubclass(result, desired)):
        raise failure(f"{point.group} {point.name} ({point.value}) is not a subclass of {desired.__name__}")
    return cast(ResourceType, result)
