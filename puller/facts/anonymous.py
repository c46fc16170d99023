"""Facts of a machine without identifying values, for sharing or for keeping beside a bundle.

* Only facts listed here are kept. A fact of a later version, or a custom fact in a built-in group, is left out until it
  is reviewed and listed.
* Identifying names, addresses and numbers become neutral values. Equal values stay equal, so that an address that
  occurs three times still does. Types stay the same.
* Nothing is read here, and the original facts stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from ipaddress import IPv4Network, ip_address, ip_interface
from typing import Any

from puller.facts.fact_tree import BUILT_IN
from puller.facts.fact_values import ABSENT
from puller.facts.groups.network import FLAGS

_Rule = Callable[[Any], Any]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UUID = "00000000-0000-4000-8000-000000000001"
_BOOTED = 1750000000  # seconds since 1970
_DHCP_SERVER = "192.0.2.254"
_NETWORKS = [IPv4Network(net) for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]  # RFC 5737

# Interface names that the kernel and udev assign. ``enx0123456789ab`` is excluded, since it contains the MAC address.
_INTERFACE = re.compile(
    r"lo|(eth|wlan|ib|bond|br|team|tun|tap|wg|docker|virbr)[0-9]{1,3}|en(o|s|p[0-9]+s)[0-9]+(f[0-9]+)?"
)
_DEVICE = re.compile(
    r"/dev/(([sv]|xv)d[a-z]{1,2}[0-9]*|nvme[0-9]+n[0-9]+(p[0-9]+)?|mmcblk[0-9]+(p[0-9]+)?|(md|dm-|sr|loop)[0-9]+)"
)
_PLACES = re.compile(
    r"/(boot(/efi)?|home|opt|root|srv|tmp|usr(/local)?|var(/(cache|lib|log(/audit)?|opt|spool|tmp))?"
    r"|dev(/(shm|pts|mqueue|hugepages))?|run(/lock)?|sys/fs/cgroup)?"
)
_OPTION = re.compile(
    r"[a-z0-9_-]{1,16}|(size|nr_inodes|mode|fmask|dmask|errors|data|compress)=[a-z0-9:%-]{1,16}"
)
_FILESYSTEM = re.compile(r"[a-zA-Z0-9_.]{1,16}")

_SIZES = ("size", "size_bytes", "available", "available_bytes", "used", "used_bytes", "capacity")
_HOST_INFO = (
    *("os", "platform", "platformFamily", "platformVersion", "kernelVersion", "kernelArch"),
    *("virtualizationSystem", "virtualizationRole", "uptime", "procs"),
)
_SELINUX = ("enabled", "enforced", "current_mode", "config_mode", "config_policy", "policy_version")


def anonymous(facts: Mapping[str, Any], *, keep: Collection[str] = ()) -> dict[str, Any]:
    """Return all built-in facts without identifying values, and other facts only if ``keep`` names them."""
    rules = _Replacing().rules
    result = {name: rules[name](facts[name]) for name in facts if name in rules}
    retained = {name: facts[name] for name in facts if name in keep and name not in BUILT_IN}
    return _present(result) | retained


def _present(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not ABSENT}


def _scalar(value: Any) -> Any:
    """Keep a scalar that describes a machine without identifying it."""
    return value if isinstance(value, str | int | float | bool | None) else ABSENT


def _scalars(value: Any) -> Any:
    return [item for item in value if _scalar(item) is not ABSENT] if isinstance(value, list) else ABSENT


def _always(replacement: Any) -> _Rule:
    """Return a rule that replaces an identifying value by a neutral one."""
    return lambda _: replacement


def _only(*names: str, **rules: _Rule) -> _Rule:
    """Return a rule that keeps the named keys of a mapping, as scalars or by their own rule."""
    of = dict.fromkeys(names, _scalar) | rules

    def keep(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return ABSENT
        return _present({name: of[name](item) for name, item in value.items() if name in of})

    return keep


def _matching(pattern: re.Pattern[str]) -> _Rule:
    return lambda value: value if isinstance(value, str) and pattern.fullmatch(value) else ABSENT


def _options(value: Any) -> Any:
    """Keep options of a mount that contain no server, user, password or path."""
    texts = value if isinstance(value, list) else []
    return [text for text in texts if isinstance(text, str) and _OPTION.fullmatch(text)]


class _Replacing:
    """A consistent replacement of each name and address."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        release = _only("full", "major", "minor")
        mount = _only("filesystem", *_SIZES, device=self._device, options=_options)
        partition = _only("size", "size_bytes", filesystem=_matching(_FILESYSTEM), mount=_matching(_PLACES))
        usage = _only("total", "total_bytes", *_SIZES)
        disk = _only("size", "size_bytes", "model", "vendor", "type", serial=_always("0"), wwn=_always("0x0"))
        self.rules: dict[str, _Rule] = {
            "disks": self._by_name(lambda name: self._name("disk", name, _matching(_DISK)), disk),
            "dmi": _only(
                "manufacturer",
                bios=_only("release_date", "vendor", "version"),
                board=_only("manufacturer", "product", asset_tag=_always("0"), serial_number=_always("0")),
                chassis=_only("type", asset_tag=_always("0")),
                product=_only("name", serial_number=_always("0"), uuid=_always(_UUID)),
            ),
            "filesystems": _scalar,
            "fips_enabled": _scalar,
            "host": _only(
                info=_only(
                    *_HOST_INFO, hostname=_always("host"), hostId=_always(_UUID), bootTime=_always(_BOOTED)
                )
            ),
            "hypervisors": self._by_name(_matching(_HYPERVISOR), _hypervisor),
            "identity": _only("privileged", uid=_number, gid=_number, user=_account, group=_account),
            "is_virtual": _scalar,
            "kernel": _scalar,
            "kernelmajversion": _scalar,
            "kernelrelease": _scalar,
            "kernelversion": _scalar,
            "load_averages": _only("1m", "5m", "15m"),
            "memory": _only(system=usage, swap=usage),
            "mountpoints": self._by_name(_matching(_PLACES), mount),
            "networking": self._networking,
            "os": _only(
                "name", "family", "architecture", "hardware",
                release=release,
                distro=_only("id", "codename", "description", release=release),
                selinux=_only(*_SELINUX),
            ),
            "partitions": self._by_name(self._device, partition),
            "path": _always(_PATH),
            "processors": _only(
                "count", "physicalcount", "isa", "speed", "cores", "threads", models=_scalars
            ),
            "puller": _only("version"),
            "ssh": self._by_name(_matching(_KEY_KIND), _ssh_key),
            "system_uptime": _only("seconds", "hours", "days", "uptime"),
            "timezone": _scalar,
            "virtual": _scalar,
        }  # fmt: skip

    def _by_name(self, name_of: _Rule, rule: _Rule) -> _Rule:
        """Return a rule for a mapping with keys that the machine named. Keys with an identifying name are left out."""

        def keep(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return ABSENT
            result = {name_of(name): rule(item) for name, item in value.items()}
            return _present({name: item for name, item in result.items() if name is not ABSENT})

        return keep

    def _name(self, kind: str, name: str, allowed: _Rule) -> str:
        """Return the name itself if it is a common name, else the kind with a number."""
        return name if allowed(name) is not ABSENT else f"{kind}{self._nth(kind, name)}"

    def _nth(self, kind: str, value: str) -> str:
        """Return the number of a value within its kind, by first occurrence, from 0."""
        if (kind, value) not in self._known:
            count = self._counts.get(kind, 0)
            self._counts[kind] = count + 1
            self._known[kind, value] = str(count)
        return self._known[kind, value]

    def _device(self, value: Any) -> Any:
        """Replace names of file servers, and of volumes, which often contain the machine's name."""
        if not isinstance(value, str):
            return ABSENT
        if value in _PSEUDO or _DEVICE.fullmatch(value):
            return value
        return f"/dev/mapper/volume{self._nth('volume', value)}"

    def _interface(self, value: Any) -> Any:
        return self._name("net", value, _matching(_INTERFACE)) if isinstance(value, str) else ABSENT

    def _networking(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return ABSENT
        names: dict[str, _Rule] = {
            "hostname": _always("host"),
            "domain": _always("example.com"),
            "fqdn": _always("host.example.com" if "domain" in value else "host"),
            "interfaces": self._by_name(self._interface, self._link),
            "primary": self._interface,
        }
        own = {name: rule(value[name]) for name, rule in names.items() if name in value}
        return _present(own | self._link(value))

    def _link(self, value: Any) -> Any:
        """Keep facts of an interface, of an address, or of the machine as a whole: they have the same keys."""
        if not isinstance(value, Mapping):
            return ABSENT
        rules: dict[str, _Rule] = {
            "address": self._address,
            "ip": self._address,
            "ip6": self._address,
            "netmask": _mask,
            "netmask6": _mask,
            "mac": lambda mac: f"52:54:00:00:00:{int(self._nth('mac', str(mac))) % 256:02x}",
            "mtu": _number,
            "dhcp": _always(_DHCP_SERVER),
            "scope6": lambda scope: scope if scope in ("host", "link", "site", "global") else ABSENT,
            "flags": lambda flags: [flag for flag in FLAGS if flag in flags],
            "bindings": self._bindings,
            "bindings6": self._bindings,
        }
        result = _present({name: rules[name](item) for name, item in value.items() if name in rules})
        for network, address, mask in _NETWORK_OF:
            if network in value and address in result and mask in result:
                result[network] = _network(result[address], result[mask])
        return result

    def _bindings(self, value: Any) -> Any:
        links = map(self._link, value) if isinstance(value, list) else ()
        return [link for link in links if link is not ABSENT]

    def _address(self, value: Any) -> Any:
        try:
            address = ip_address(str(value))
        except ValueError:
            return ABSENT
        if address.is_loopback:
            return str(address) if str(address) in ("127.0.0.1", "::1") else ABSENT
        if address.version == 4:
            number = int(self._nth("ip", str(address)))
            return str(_NETWORKS[number // 240 % 3][10 + number % 240])
        kind = "fe80::" if address.is_link_local else "2001:db8::"
        return str(ip_address(kind) + 16 + int(self._nth(kind, str(address))))


_DISK = re.compile(r"([sv]|xv)d[a-z]{1,2}|nvme[0-9]+n[0-9]+|mmcblk[0-9]+|sr[0-9]+")
_PSEUDO = ("tmpfs", "devtmpfs", "udev", "devpts", "cgroup", "cgroup2", "proc", "sysfs", "mqueue", "overlay")
_HYPERVISOR = re.compile(
    r"kvm|xen|openvz|docker|podman|lxc|systemd_nspawn|vmware|virtualbox|hyperv|qemu|bochs|rhev|ovirt|parallels|bhyve|vmm"
)
_KEY_KIND = re.compile(r"rsa|dsa|ecdsa|ed25519")
_NETWORK_OF = (
    ("network", "address", "netmask"),
    ("network", "ip", "netmask"),
    ("network6", "ip6", "netmask6"),
)


_hypervisor = _only("privileged", "context", "google", "openstack", "amazon")


def _number(value: Any) -> Any:
    return value if isinstance(value, int) else ABSENT


def _account(value: Any) -> str:
    """Keep ``root``, which shows permissions. Other names identify a user."""
    return "root" if value == "root" else "user"


def _mask(value: Any) -> Any:
    try:
        mask = ip_address(str(value))
    except ValueError:
        return ABSENT
    bits = f"{int(mask):0{mask.max_prefixlen}b}"
    return value if "01" not in bits else ABSENT


def _network(address: str, mask: str) -> str:
    prefix = f"{int(ip_address(mask)):b}".count("1")
    return str(ip_interface(f"{address}/{prefix}").network.network_address)


def _ssh_key(value: Any) -> Any:
    """Return a fake key in the shape of the original."""
    rule = _only(
        type=_matching(re.compile(r"[a-z0-9-]{1,24}")),
        key=_always("AAAA"),
        fingerprints=_only(sha1=_always("SSHFP 4 1 00"), sha256=_always("SSHFP 4 2 00")),
    )
    return rule(value)
