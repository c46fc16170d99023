"""Settings of the complete machine: name, hosts, zone, mounts, kernel parameters, and the databases of dpkg."""

import re
from collections.abc import Iterator
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.machine.machine_draft import MachineDraft
from puller.authoring.importing.written_expressions import escaped

_ZONES: Final = "/usr/share/zoneinfo/"
_DEFAULT_ZONES: Final = frozenset({"Etc/UTC", "UTC"})
_DEFAULT_HOSTS: Final = frozenset(
    "localhost ip6-localhost ip6-loopback ip6-localnet ip6-mcastprefix ip6-allnodes ip6-allrouters".split()  # noqa: SIM905  a list of words
)
_OWN_ADDRESSES: Final = frozenset({"127.0.0.1", "127.0.1.1", "::1"})
_INSTALLED_POINTS: Final = frozenset({"/", "/boot", "/boot/efi", "/usr"})
_DIVERSIONS: Final = "var/lib/dpkg/diversions"
_ALTERNATIVES: Final = "var/lib/dpkg/alternatives"
_OVERRIDES: Final = "var/lib/dpkg/statoverride"


def add_names(draft: MachineDraft) -> None:
    """Add the name of the machine, and the hosts of ``/etc/hosts``."""
    lines = (line.partition("#")[0].strip() for line in draft.machine.lines("etc/hostname"))
    name = next((line for line in lines if line), "")
    if name and name != "localhost":
        remark = "each machine has its own name. Remove the resource if the bundle is for several machines"
        draft.add(Resource("hostname", escaped(name), {}), "etc/hostname", remark)
    own = {*_DEFAULT_HOSTS, name}
    entries: dict[str, tuple[list[str], list[str]]] = {}
    for line in draft.machine.lines("etc/hosts"):
        address, *names = line.partition("#")[0].split() or [""]
        others = [item for item in names if item not in own and item.partition(".")[0] != name]
        if not others or (address in _OWN_ADDRESSES and len(others) < len(names) and names[0] != others[0]):
            if others:
                reason = "the line has further names of this machine. Declare each one as a host_entry"
                draft.leave_out("etc/hosts", " ".join(others), reason)
            continue
        addresses, aliases = entries.setdefault(names[0], ([], []))
        addresses.append(address)
        aliases += [alias for alias in names[1:] if alias not in aliases]
    for first, (addresses, aliases) in entries.items():
        properties: dict[str, Any] = {"address": addresses[0] if len(addresses) == 1 else addresses}
        properties |= {"aliases": aliases} if aliases else {}
        draft.add(Resource("host_entry", escaped(first), properties), "etc/hosts")


def add_zone(draft: MachineDraft) -> None:
    """Add the time zone."""
    target = draft.machine.link("etc/localtime") or ""
    _, separator, zone = target.partition(_ZONES[1:])
    if separator and zone and zone not in _DEFAULT_ZONES:
        draft.add(Resource("timezone", zone, {}), "etc/localtime")


def add_mounts(draft: MachineDraft) -> None:
    """Add the entries of fstab. Those of the installation belong to the machine."""
    for line in draft.machine.lines("etc/fstab"):
        fields = line.split()
        if len(fields) < 3 or fields[0].startswith("#"):
            continue
        device, point, kind, *rest = fields
        if point in _INSTALLED_POINTS or kind in ("iso9660", "udf") or "/floppy" in point:
            draft.leave_out("etc/fstab", point, "the installation of a machine creates this entry")
            continue
        remark = "the device belongs to this machine" if re.match(r"/dev/|\w+=", device) else ""
        if any("password=" in option for option in rest[:1]):
            reason = "the options contain a secret. Put it into an encrypted file of credentials"
            draft.leave_out("etc/fstab", point, reason)
        elif kind == "swap":
            properties = {"path": "/etc/fstab", "line": escaped(line.strip()), "create": True}
            draft.add(Resource("line", escaped(f"swap {device}"), properties), "etc/fstab", remark)
        elif not point.startswith("/"):
            draft.leave_out("etc/fstab", point, "the mount point is not a path")
        else:
            properties = {"ensure": "present", "device": _unescaped(device), "type": kind}
            properties |= {"options": rest[0].split(",")} if rest and rest[0] != "defaults" else {}
            for key, text in zip(("dump", "pass"), rest[1:3], strict=False):
                if text.isdecimal() and text != "0":
                    properties[key] = int(text)
            draft.add(Resource("mount", _unescaped(point), properties), "etc/fstab", remark)


def _unescaped(field: str) -> str:
    """Return a field of fstab(5) without octal escapes, and without expressions."""
    return escaped(re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), field))


def add_parameters(draft: MachineDraft) -> None:
    """Add the kernel parameters. The last file with a parameter decides."""
    names = [name for name in draft.machine.names("etc/sysctl.d") if name.endswith(".conf")]
    files = [f"etc/sysctl.d/{name}" for name in names]
    values: dict[str, tuple[str, str]] = {}
    for path in [*(path for path in files if path not in draft.owned), "etc/sysctl.conf"]:
        if draft.machine.status(path) is None or f"files/{path}" in draft.draft.files:
            continue
        for line in draft.machine.lines(path):
            match = re.fullmatch(r"\s*-?([\w./*-]+)\s*=\s*(.*?)\s*", line)
            if match:
                values[match[1]] = (match[2], path)
    for key, (value, path) in values.items():
        if "*" in key:
            draft.leave_out(path, key, "the key is a pattern. Declare each key")
        else:
            draft.add(Resource("sysctl", key, {"value": escaped(value), "path": f"/{path}"}), path)


def diverted_paths(draft: MachineDraft) -> Iterator[tuple[str, str]]:
    """Yield the files that an administrator has diverted, with the places of the packaged files."""
    lines = draft.machine.lines(_DIVERSIONS)
    for path, place, package in zip(lines[::3], lines[1::3], lines[2::3], strict=False):
        if package == ":":
            yield path, place


def add_diversions(draft: MachineDraft) -> None:
    """Add the local diversions, and the files at the diverted paths."""
    for path, place in diverted_paths(draft):
        properties = {} if place == f"{path}.distrib" else {"to": escaped(place)}
        draft.add(Resource("diversion", escaped(path), properties), _DIVERSIONS)
        if draft.machine.exists(path.lstrip("/")):
            draft.add_file(path.lstrip("/"))


def add_alternatives(draft: MachineDraft) -> None:
    """Add the names whose program an administrator has selected."""
    for name in draft.machine.names(_ALTERNATIVES):
        origin = f"{_ALTERNATIVES}/{name}"
        lines = draft.machine.lines(origin)
        target = draft.machine.link(f"etc/alternatives/{name}")
        if len(lines) < 2 or lines[0] != "manual" or target is None:
            continue
        properties: dict[str, Any] = {"path": escaped(target)}
        is_packaged = target.lstrip("/") in draft.owned or f"usr{target}" in draft.owned
        if not is_packaged:
            end = lines.index("", 2) if "" in lines[2:] else len(lines)
            slaves = list(zip(lines[2:end:2], lines[3:end:2], strict=False))
            start = lines.index(target, end) if target in lines[end:] else len(lines)
            if start + 1 < len(lines):
                properties |= {"link": lines[1], "priority": int(lines[start + 1])}
                places = dict(zip(slaves, lines[start + 2 :], strict=False))
                chosen = {
                    slave: {"link": link, "path": path} for (slave, link), path in places.items() if path
                }
                properties |= {"slaves": chosen} if chosen else {}
        draft.add(Resource("alternative", name, properties), origin)


def add_overrides(draft: MachineDraft) -> None:
    """Add the owners and modes that dpkg keeps. Packages register their own ones in their scripts."""
    entries = [line.split(" ", 3) for line in draft.machine.lines(_OVERRIDES)]
    entries = [fields for fields in entries if len(fields) == 4]
    if not entries:
        return
    for owner, group, mode, path in entries:
        if _is_override_of_package(draft, path):
            continue
        command = f"dpkg-statoverride --force-all --update --add {owner} {group} {mode} '{path}'"
        guard = f"dpkg-statoverride --list '{path}' | grep -qxF '{owner} {group} {mode} {path}'"
        if "'" in path:
            draft.leave_out(_OVERRIDES, path, "the path has a quote")
            continue
        properties = {"provider": "shell", "unless": escaped(guard)}
        draft.add(Resource("exec", escaped(command), properties), _OVERRIDES)


def _is_override_of_package(draft: MachineDraft, path: str) -> bool:
    """Return whether the package of a path, or of its nearest directory, registers overrides in its scripts."""
    place = path.lstrip("/")
    while place and place not in draft.owned:
        place = place.rpartition("/")[0]
    names = [
        name.removesuffix(".list")
        for name in draft.machine.names("var/lib/dpkg/info")
        if name.endswith(".list")
    ]
    owners = [name for name in names if f"/{place}" in draft.machine.lines(f"var/lib/dpkg/info/{name}.list")]
    scripts = [f"var/lib/dpkg/info/{name}.{script}" for name in owners for script in ("preinst", "postinst")]
    return any("dpkg-statoverride" in line for script in scripts for line in draft.machine.lines(script))
