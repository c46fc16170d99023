"""The tree of facts: built-in facts with Facter's modern names, custom facts over them, given facts over both.

* Groups are lazy. A group is gathered, and its module imported, when one of its keys is read. ``facts['os']`` on a
  machine without custom facts reads only a few small files.
* A source that fails or exceeds its time limit yields no key and an entry in ``problems``. It raises no error.

The lookup of a key (``docs/facts.md``):

1. A key that was read before has the same value.
2. Custom facts are read, and their executables run, once before the first lookup, since they can change any key.
3. The layers over the built-in facts are searched: of the agent, custom, of the options. A later layer has priority.
4. The built-in group of the key is gathered within a time limit, unless a layer hides the group.
5. Mappings are merged. Any other value is replaced.
6. An unknown key may be one of Facter's legacy flat names, which is an alias of a modern name. It is looked up through
   the tree, so that a custom fact or ``--fact os.family=…`` shows under both names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foundation.quantities import megabytes
from puller.facts import custom
from puller.facts.fact_values import ABSENT, LIMIT, FactError, find, merged, within
from puller.facts.machine import Machine

if TYPE_CHECKING:  # only runs that send reports record accesses
    from puller.facts.fact_values import FactReads

CUSTOM_DIRECTORY = "/etc/puller/facts.d"

BUILT_IN = {
    "disks": "storage.disks",
    "dmi": "hardware.dmi",
    "filesystems": "operating_system.filesystems",
    "fips_enabled": "operating_system.fips",
    "host": "host_info.host",
    "hypervisors": "hardware.virtual",
    "identity": "operating_system.identity",
    "is_virtual": "hardware.virtual",
    "kernel": "operating_system.kernel",
    "kernelmajversion": "operating_system.kernel",
    "kernelrelease": "operating_system.kernel",
    "kernelversion": "operating_system.kernel",
    "load_averages": "operating_system.load",
    "memory": "hardware.memory",
    "mountpoints": "storage.mountpoints",
    "networking": "network.networking",
    "os": "operating_system.operating_system",
    "partitions": "storage.partitions",
    "path": "operating_system.search_path",
    "processors": "hardware.processors",
    "puller": "operating_system.agent",
    "ssh": "network.ssh",
    "system_uptime": "operating_system.uptime",
    "timezone": "operating_system.zone",
    "virtual": "hardware.virtual",
}
"""The function of each top-level key, below ``puller.facts.groups``, which gathers its group from a ``Machine``."""

FACT_NAMES = """
disks.DISK{model serial size size_bytes type vendor wwn}
dmi.bios{release_date vendor version} dmi.board{asset_tag manufacturer product serial_number}
dmi.chassis{asset_tag type} dmi{manufacturer} dmi.product{name serial_number uuid}
host.info{bootTime hostId hostname kernelArch kernelVersion os platform platformFamily platformVersion procs uptime}
host.info{virtualizationRole virtualizationSystem}
hypervisors{NAME}
identity{gid group privileged uid user}
load_averages{15m 1m 5m}
memory.swap{available available_bytes capacity total total_bytes used used_bytes}
memory.system{available available_bytes capacity total total_bytes used used_bytes}
mountpoints.PATH{available available_bytes capacity device filesystem options size size_bytes used used_bytes}
networking{dhcp domain fqdn hostname ip ip6 mac mtu netmask netmask6 network network6 primary scope6}
networking.interfaces.NAME{bindings bindings6 dhcp ip ip6 mac mtu netmask netmask6 network network6 scope6}
os{architecture family hardware name} os.distro{codename description id specification}
os.distro.release{full major minor} os.release{full major minor}
os.selinux{config_mode config_policy current_mode enabled enforced policy_version}
partitions.DEVICE{backing_file filesystem label mount partlabel partuuid size size_bytes uuid}
processors{cores count isa models physicalcount speed threads}
puller{version} puller.bundle{name version}
ssh.ALGORITHM{fingerprints key type} ssh.ALGORITHM.fingerprints{sha1 sha256}
system_uptime{days hours seconds uptime}
"""
"""The names below each group, as a path before its names. Lint rejects other names.

Names in capitals stand for names that differ between hosts, such as interfaces, disks and mount points.
"""


def gather(
    *,
    custom_directories: Iterable[str | os.PathLike[str]] = (CUSTOM_DIRECTORY,),
    overrides: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
    limit: float = LIMIT,
    machine: Machine | None = None,
) -> Facts:
    """Return the facts of this machine. Each fact is read when its key is looked up.

    ``overrides`` (``--fact`` over ``--facts``) are merged over custom facts, these over ``agent`` (facts of the agent
    itself: ``clientcert``, ``puller.bundle``), and these over the built-in facts. ``limit`` is the time in seconds that
    each group, and each custom executable, may take.
    """
    return Facts(
        machine or Machine(limit=limit),
        [os.fspath(directory) for directory in custom_directories],
        agent or {},
        overrides or {},
    )


def described(facts: Mapping[str, Any], *, overrides: Mapping[str, Any] | None = None) -> Facts:
    """Return the facts of another machine, which ``facts`` describe, without reading this machine.

    ``overrides`` as in ``gather``.
    """
    return _Described(facts, overrides or {})


class Facts(Mapping[str, "Any"]):
    """Facts by top-level key. Values are plain mappings, lists, text, numbers, booleans and ``None``.

    Legacy flat names are valid keys too. Iterating and ``len`` gather everything.
    """

    def __init__(
        self,
        machine: Machine,
        custom_directories: list[str],
        agent: Mapping[str, Any],
        overrides: Mapping[str, Any],
    ) -> None:
        self._machine = machine
        self._directories = custom_directories
        self._agent = agent
        self._overrides = overrides
        self._custom: dict[str, Any] | None = None
        self._gathered: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, Any] = {}
        self.of_bundles: dict[tuple[str, ...], Mapping[str, Any]] = {}
        """These facts combined with a bundle's facts, by the fact directories of the bundle (``bundled.py``)."""
        self.reads: FactReads | None = None
        """Records the facts that bundles read. ``None``: nothing is recorded."""

    def __getitem__(self, key: str) -> Any:
        # 1. Missing facts are cached too.
        if key not in self._answers:
            with self.unrecorded():
                self._answers[key] = self._find(key)
        value = self._answers[key]
        if self.reads is None:
            if value is ABSENT:
                raise KeyError(key)
            return value
        if value is ABSENT:
            self.reads.miss((key,))
            raise KeyError(key)
        return self.reads.read((key,), value)

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Record no access, such as for lookups by the agent itself."""
        reads, self.reads = self.reads, None
        try:
            yield
        finally:
            self.reads = reads

    @property
    def unlisted(self) -> bool:
        """Whether a template should read only the names that it uses."""
        return self.reads is not None

    def __iter__(self) -> Iterator[str]:
        with self.unrecorded():
            names = {*self._names(), *legacy_names(self)}
            return iter(sorted(name for name in names if name in self))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Return true. Without this method, a mere ``if facts`` would call ``len``, which gathers everything."""
        return True

    def as_dict(self, *, legacy: bool = False) -> dict[str, Any]:
        """Return all facts, gathered now. Legacy names repeat modern facts and are included only on request."""
        return {name: self[name] for name in (self if legacy else sorted(self._names())) if name in self}

    @property
    def limit(self) -> float | None:
        """Seconds that one source may take. ``None`` forbids executables."""
        return self._machine.limit

    @property
    def custom_directories(self) -> list[str]:
        """The directories of custom facts."""
        return list(self._directories)

    @property
    def problems(self) -> list[FactError]:
        """The failed sources so far, each with a sentence that names it."""
        return list(self._machine.problems)

    def _names(self) -> set[str]:
        return {*BUILT_IN, *(name for layer in self._layers() for name in layer)}

    def _find(self, key: str) -> Any:
        # 2. and 3.
        layers = [layer[key] for layer in self._layers() if key in layer]
        # 4. Only a mapping is merged with the facts below it.
        hidden = bool(layers) and not isinstance(layers[-1], dict)
        value = ABSENT if hidden else self._built_in(key)
        # 5.
        for layer in layers:
            value = merged(value, layer)
        # 6. A modern name without a value has no legacy name.
        if value is not ABSENT or key in BUILT_IN:
            return value
        return find_legacy(self, str(key))  # numeric steps of a path arrive as integers

    def _layers(self) -> tuple[Mapping[str, Any], ...]:
        """Return the facts over the built-in facts, lowest first."""
        if self._custom is None:
            self._custom = {}
            if any(_may_hold_facts(directory) for directory in self._directories):
                self._custom = self._load_custom()
        return self._agent, self._custom, self._overrides

    def _load_custom(self) -> dict[str, Any]:
        facts, problems = custom.load(self._directories, self._machine.limit)
        self._machine.problems += problems
        return facts

    def _built_in(self, key: str) -> Any:
        source = BUILT_IN.get(key)
        if source is None:
            return ABSENT
        if source not in self._gathered:
            self._gathered[source] = self._gather(source)
        return self._gathered[source].get(key, ABSENT)

    def _gather(self, source: str) -> dict[str, Any]:
        """Gather one source. A failure is recorded, so that it does not affect other sources."""
        module, _, name = source.partition(".")
        try:
            function = getattr(import_module(f"puller.facts.groups.{module}"), name)
            facts: dict[str, Any] = within(self._machine.limit, function, self._machine)
        except FactError as error:
            self._machine.note(error.where, error.what)
        except TimeoutError as error:
            self._machine.note(f"facts of {name}", error)
        except Exception as error:  # noqa: BLE001  input of any kind comes from kernels that we have not seen
            self._machine.note(f"facts of {name}", f"cannot be interpreted: {error!r}")
        else:
            return facts
        return {}


class _Described(Facts):
    """Facts of a description, which are not gathered."""

    def __init__(self, facts: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
        super().__init__(Machine(), [], facts, overrides)
        self._listed: list[str] | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def __len__(self) -> int:
        return len(self._list())

    def _list(self) -> list[str]:
        # Cached, since a preview reads ten thousand descriptions many times. A description never changes.
        if self._listed is None:
            self._listed = [*super().__iter__()]
        return self._listed

    @property
    def limit(self) -> None:
        """``None``: executables of a bundle would describe this machine, so only documents are read."""

    def _built_in(self, key: str) -> Any:
        return ABSENT

    def _names(self) -> set[str]:
        return {name for layer in self._layers() for name in layer}


def _may_hold_facts(directory: str) -> bool:
    """Return whether a directory may contain custom facts. On most machines it is empty, which saves the import."""
    try:
        return bool(os.listdir(directory))
    except FileNotFoundError:
        return False
    except OSError:  # the reader of custom facts reports the error
        return True


# Facter's legacy flat names, as aliases of facts in the tree.

LEGACY_PATHS = {
    "architecture": "os.architecture",
    "bios_release_date": "dmi.bios.release_date",
    "bios_vendor": "dmi.bios.vendor",
    "bios_version": "dmi.bios.version",
    "boardassettag": "dmi.board.asset_tag",
    "boardmanufacturer": "dmi.board.manufacturer",
    "boardproductname": "dmi.board.product",
    "boardserialnumber": "dmi.board.serial_number",
    "chassisassettag": "dmi.chassis.asset_tag",
    "chassistype": "dmi.chassis.type",
    "clientcert": "networking.fqdn",
    "domain": "networking.domain",
    "fqdn": "networking.fqdn",
    "gid": "identity.group",
    "hardwareisa": "processors.isa",
    "hardwaremodel": "os.hardware",
    "hostname": "networking.hostname",
    "id": "identity.user",
    "ipaddress": "networking.ip",
    "ipaddress6": "networking.ip6",
    "lsbdistcodename": "os.distro.codename",
    "lsbdistdescription": "os.distro.description",
    "lsbdistid": "os.distro.id",
    "lsbdistrelease": "os.distro.release.full",
    "lsbmajdistrelease": "os.distro.release.major",
    "lsbminordistrelease": "os.distro.release.minor",
    "macaddress": "networking.mac",
    "manufacturer": "dmi.manufacturer",
    "memoryfree": "memory.system.available",
    "memoryfree_mb": "memory.system.available_bytes",
    "memorysize": "memory.system.total",
    "memorysize_mb": "memory.system.total_bytes",
    "netmask": "networking.netmask",
    "netmask6": "networking.netmask6",
    "network": "networking.network",
    "network6": "networking.network6",
    "operatingsystem": "os.name",
    "operatingsystemmajrelease": "os.release.major",
    "operatingsystemrelease": "os.release.full",
    "osfamily": "os.family",
    "physicalprocessorcount": "processors.physicalcount",
    "processorcount": "processors.count",
    "productname": "dmi.product.name",
    "scope6": "networking.scope6",
    "selinux": "os.selinux.enabled",
    "selinux_config_mode": "os.selinux.config_mode",
    "selinux_config_policy": "os.selinux.config_policy",
    "selinux_current_mode": "os.selinux.current_mode",
    "selinux_enforced": "os.selinux.enforced",
    "selinux_policyversion": "os.selinux.policy_version",
    "serialnumber": "dmi.product.serial_number",
    "sshdsakey": "ssh.dsa.key",
    "sshecdsakey": "ssh.ecdsa.key",
    "sshed25519key": "ssh.ed25519.key",
    "sshrsakey": "ssh.rsa.key",
    "swapfree": "memory.swap.available",
    "swapfree_mb": "memory.swap.available_bytes",
    "swapsize": "memory.swap.total",
    "swapsize_mb": "memory.swap.total_bytes",
    "uptime": "system_uptime.uptime",
    "uptime_days": "system_uptime.days",
    "uptime_hours": "system_uptime.hours",
    "uptime_seconds": "system_uptime.seconds",
    "uuid": "dmi.product.uuid",
}

# ``ipaddress_eth0`` and similar names: the part before the interface's name, and the interface's fact.
LEGACY_INTERFACE_PATHS = {
    "ipaddress": "ip",
    "ipaddress6": "ip6",
    "macaddress": "mac",
    "mtu": "mtu",
    "netmask": "netmask",
    "netmask6": "netmask6",
    "network": "network",
    "network6": "network6",
    "scope6": "scope6",
}


def find_legacy(facts: Mapping[str, Any], name: str) -> Any:
    """Return the value of a legacy name, or ``ABSENT``."""
    if name in LEGACY_PATHS:
        value = find(facts, LEGACY_PATHS[name].split("."))
        return megabytes(value) if name.endswith("_mb") and isinstance(value, int) else value
    if name == "interfaces":
        return ",".join(sorted(_legacy_interfaces(facts))) or ABSENT
    start, _, interface = name.partition("_")
    if interface and start in LEGACY_INTERFACE_PATHS:
        return find(_legacy_interfaces(facts), (interface, LEGACY_INTERFACE_PATHS[start]))
    return ABSENT


def is_legacy_name(name: str) -> bool:
    """Return whether a fact may have this legacy name on some machine."""
    return (
        name in LEGACY_PATHS
        or name == "interfaces"
        or name.startswith(tuple(f"{start}_" for start in LEGACY_INTERFACE_PATHS))
    )


def legacy_names(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the legacy names that may have a value on this machine."""
    yield from LEGACY_PATHS
    yield "interfaces"
    for interface in _legacy_interfaces(facts):
        yield from (f"{start}_{interface}" for start in LEGACY_INTERFACE_PATHS)


def _legacy_interfaces(facts: Mapping[str, Any]) -> dict[str, Any]:
    result = find(facts, ("networking", "interfaces"))
    return result if isinstance(result, dict) else {}
