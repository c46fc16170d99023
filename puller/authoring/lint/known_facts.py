"""The names that built-in facts can have on any host (``docs/facts.md``), and those that a bundle brings.

* Keys in capitals stand for those that differ from host to host: interfaces, disks, mount points.
* A top-level name that is not among them may be a custom fact of some hosts: that is not known here.
"""

import os
from collections.abc import Iterable
from functools import cache
from typing import Final

from hiera.errors import HieraError
from hiera.text import yaml_text
from puller.authoring.lint.shapes import ANY, Shape, of_value
from puller.authoring.lint.texts import read_text
from puller.facts import custom, legacy
from puller.facts.tree import BUILT_IN

RUN: Final = Shape(is_open=True, is_example=True)
"""What a program of the bundle prints."""

NAMES: Final = """
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
"""The names below each group, a path before the names that stand below it."""


@cache
def built_in() -> Shape:
    """The facts that Puller gathers; further top-level names are those of hosts."""
    top: dict[str, object] = {**dict.fromkeys(BUILT_IN), **dict.fromkeys(legacy.PATHS), "interfaces": None}
    for path, names in _groups():
        group = top
        for step in path:
            group = _below(group, step)
        group.update((name, group.get(name)) for name in names)
    return _shape(top)


def of_bundle(directories: Iterable[str]) -> dict[str, Shape]:
    """The facts in directories ``facts.d`` by name; anything for what is run."""
    found: dict[str, Shape] = {}
    for directory in directories:
        try:
            names = [name for name in sorted(os.listdir(directory)) if not custom.is_leftover(name)]
        except OSError:
            continue
        for name in names:
            found[os.path.splitext(name)[0]] = _of_file(os.path.join(directory, name))
    return found


def may_be_legacy(name: str) -> bool:
    """Whether hosts may have a fact of this flat name: ``ipaddress_eth0``."""
    return legacy.is_name(name)


def _groups() -> Iterable[tuple[list[str], list[str]]]:
    for word in NAMES.replace("\n", " ").split("}"):
        if path := word.partition("{")[0].strip():
            yield path.split("."), word.partition("{")[2].split()


def _below(group: dict[str, object], step: str) -> dict[str, object]:
    below = group.get(step)
    if not isinstance(below, dict):
        below = group[step] = {}
    return below


def _shape(names: object) -> Shape:
    if not isinstance(names, dict):
        return ANY
    keys = {str(name): _shape(below) for name, below in names.items()}
    others = next((keys.pop(name) for name in list(keys) if name.isupper()), None)
    return Shape(keys, others)


def _of_file(path: str) -> Shape:
    if not path.endswith((".yaml", ".yml", ".json")):
        return ANY if path.endswith(".txt") else RUN
    text = read_text(path)
    try:
        return ANY if text is None else of_value(yaml_text.load(text, path), mark="\0")
    except HieraError:
        return ANY
