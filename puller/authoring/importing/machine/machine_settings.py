"""Settings, units and accounts of a machine as resources.

* Settings are the names, hosts, zone, mounts and kernel parameters, and the changed entries of the databases of dpkg.
* Packages record the links of their units, so a missing link shows a disabled unit.
* Whether a unit runs is known only on a running machine, by its control group.
* Accounts are users, groups, their keys, and their cron jobs.
"""

import datetime
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.machine.machine_draft import FILE_LIMIT, SYSTEM_UNITS, MachineDraft, number_of
from puller.authoring.importing.reading import has_secret
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
_PACKAGED: Final = ("usr/lib/systemd/system", "lib/systemd/system")
_ENABLED: Final = "var/lib/systemd/deb-systemd-helper-enabled"
_GROUPS: Final = "sys/fs/cgroup/system.slice"
_MANAGED: Final = (".service", ".timer", ".socket", ".path")
_INITIAL: Final = frozenset({"getty@tty1.service", "systemd-pstore.service", "systemd-timesyncd.service"})
"""Units that a new installation enables without a record."""
_STOPPED: Final = "A disabled unit is stopped in the draft, unless its processes run"
_USER_IDS: Final = range(1000, 60000)
_EPOCH: Final = datetime.date(1970, 1, 1)
_AGES: Final = (
    ("password_min_days", 3, ("", "0")),
    ("password_max_days", 4, ("", "99999")),
    ("password_warn_days", 5, ("", "7")),
)
"""Properties of a user, with their field of shadow(5) and its defaults."""


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


def add_units(draft: MachineDraft) -> None:
    """Add the units whose state differs from a new installation."""
    for name in draft.machine.names(SYSTEM_UNITS):
        path = f"{SYSTEM_UNITS}/{name}"
        link = draft.machine.link(path)
        if link == "/dev/null" and name.endswith(_MANAGED) and path not in draft.owned:
            _add_service(draft, name, {"ensure": "stopped", "enable": "masked"}, path)
        elif link is not None and name == "default.target" and path not in draft.owned:
            draft.add(Resource("link", f"/{path}", {"target": link}), path)
    recorded = {
        name.removesuffix(".dsh-also"): [
            path.lstrip("/") for path in draft.machine.lines(f"{_ENABLED}/{name}")
        ]
        for name in draft.machine.names(_ENABLED)
        if name.endswith(".dsh-also")
    }
    for unit, paths in sorted(recorded.items()):
        if (
            unit.endswith(_MANAGED)
            and _is_packaged(draft, unit)
            and paths
            and not any(draft.machine.exists(path) for path in paths)
        ):
            properties: dict[str, Any] = {"enable": False}
            if not draft.machine.exists(f"{_GROUPS}/{unit}"):
                draft.draft.assume(_STOPPED)
                properties = {"ensure": "stopped", **properties}
            _add_service(draft, unit, properties, f"{_ENABLED}/{unit}.dsh-also")
    for unit, path in _enabled_units(draft):
        if path not in recorded.get(unit, []) and path not in draft.owned and unit not in _INITIAL:
            _add_service(draft, unit, {"enable": True}, path)
    _subscribe(draft)
    draft.draft.check(
        "An enabled unit runs in the draft, whether it runs on this machine or not. "
        "A unit that was only started or stopped by hand is not part of the draft."
    )


def _is_packaged(draft: MachineDraft, unit: str) -> bool:
    return any(draft.machine.exists(f"{place}/{unit}") for place in _PACKAGED)


def _add_service(draft: MachineDraft, unit: str, properties: dict[str, Any], origin: str) -> None:
    """Add the state of a unit, unless an earlier rule has added it."""
    name = unit.removesuffix(".service")
    if unit.endswith(_MANAGED) and draft.find("service", name) is None:
        draft.add(Resource("service", name, properties), origin)


def _subscribe(draft: MachineDraft) -> None:
    """Restart the services whose unit files or drop-ins are part of the draft."""
    for resource in [*draft.manifest.resources]:
        if resource.type not in ("unit", "file") or not str(resource.properties.get("source", "")).startswith(
            f"files/{SYSTEM_UNITS}/"
        ):
            continue
        path = str(resource.properties["source"]).removeprefix(f"files/{SYSTEM_UNITS}/")
        directory = path.rpartition("/")[0]
        unit = directory.removesuffix(".d") if directory.endswith(".d") else path
        service = draft.find("service", unit.removesuffix(".service"))
        if service is None and _is_enabled_by_package(draft, unit):
            # The draft has no other resource of the unit. The drop-in needs a restart.
            _add_service(draft, unit, {"enable": True}, f"{SYSTEM_UNITS}/{path}")
            service = draft.find("service", unit.removesuffix(".service"))
        if service is not None and service.properties.get("enable") is True:
            service.properties.setdefault("subscribe", []).append(resource.reference)


def _is_enabled_by_package(draft: MachineDraft, unit: str) -> bool:
    recorded = draft.machine.lines(f"{_ENABLED}/{unit}.dsh-also")
    return any(draft.machine.exists(path.lstrip("/")) for path in recorded)


def _enabled_units(draft: MachineDraft) -> Iterator[tuple[str, str]]:
    """Yield the enabled units with the paths of their links."""
    seen = set()
    for directory in draft.machine.names(SYSTEM_UNITS):
        if not directory.endswith((".wants", ".requires")):
            continue
        for unit in draft.machine.names(f"{SYSTEM_UNITS}/{directory}"):
            path = f"{SYSTEM_UNITS}/{directory}/{unit}"
            if unit not in seen and draft.machine.link(path) is not None:
                seen.add(unit)
                yield unit, path


def add_accounts(draft: MachineDraft) -> None:
    """Add the groups and users of people, and the keys of root."""
    members: dict[str, list[str]] = {}
    for line in draft.machine.lines("etc/group"):
        parts = line.split(":")
        if len(parts) != 4 or (gid := number_of(parts[2])) is None:
            continue
        for member in filter(None, parts[3].split(",")):
            members.setdefault(member, []).append(parts[0])
        if gid in _USER_IDS:
            draft.add(Resource("group", parts[0], {"gid": gid}), "etc/group")
    secrets = {line.split(":")[0]: line.split(":") for line in draft.machine.lines("etc/shadow")}
    for line in draft.machine.lines("etc/passwd"):
        parts = line.split(":")
        if len(parts) != 7:
            continue
        if parts[0] == "root":
            if keys := _keys_of(draft, parts[5]):
                draft.add(Resource("user", "root", {"authorized_keys": keys}), "etc/passwd")
        elif number_of(parts[2]) in _USER_IDS and number_of(parts[3]) is not None:
            _add_user(draft, parts, members.get(parts[0], []), secrets.get(parts[0], []))


def _add_user(
    draft: MachineDraft, parts: Sequence[str], groups: Sequence[str], secret: Sequence[str]
) -> None:
    name, _, uid, gid, comment, home, shell = parts
    properties: dict[str, Any] = {"uid": int(uid), "group": draft.groups.get(int(gid), gid)}
    properties |= {"groups": groups} if groups else {}
    properties |= {"home": home, "shell": shell}
    if not draft.machine.exists(home.strip("/")):
        properties["manage_home"] = False
    properties |= {"comment": escaped(comment.rstrip(","))} if comment.rstrip(",") else {}
    keys = _keys_of(draft, home)
    properties |= {"authorized_keys": keys} if keys else {}
    for key, index, defaults in _AGES:
        if len(secret) > index and secret[index] not in defaults and secret[index].lstrip("-").isdecimal():
            properties[key] = int(secret[index])
    if len(secret) > 7 and (days := number_of(secret[7])) is not None and days < 1_000_000:
        properties["expires"] = str(_EPOCH + datetime.timedelta(days))
    password = secret[1] if len(secret) > 1 else ""
    remark = ""
    if password.startswith("!"):
        properties["locked"] = True
    elif password not in ("", "*"):
        remark = "the password hash is a secret, and is left out"
        draft.draft.check(
            f"The password of {name} is left out. Encrypt its hash with `puller hiera encrypt`."
        )
    draft.add(Resource("user", name, properties), "etc/passwd", remark)


def _keys_of(draft: MachineDraft, home: str) -> list[str]:
    """Return the public keys of a user."""
    path = f"{home.strip('/')}/.ssh/authorized_keys"
    if not home.startswith("/") or ".." in home or draft.machine.link(os.path.dirname(path)) is not None:
        return []
    lines = map(str.strip, draft.machine.lines(path, FILE_LIMIT))
    return [escaped(line) for line in lines if line and not line.startswith("#")]


def add_jobs(draft: MachineDraft) -> None:
    """Add the jobs of the crontabs of users."""
    for user in draft.machine.names("var/spool/cron/crontabs"):
        path = f"var/spool/cron/crontabs/{user}"
        environment: dict[str, str] = {}
        for number, line in enumerate(draft.machine.lines(path), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            if match := re.fullmatch(r"(\w+)\s*=\s*(.*)", text):
                environment[match[1]] = match[2].strip("\"'")
                continue
            match = re.fullmatch(r"(@\w+|(?:\S+\s+){4}\S+)\s+(.*)", text)
            if match is None:
                draft.leave_out(path, f"line {number}", "the line is invalid")
                continue
            texts = [text, *(f"{name}={value}" for name, value in environment.items())]
            if any(has_secret(item.encode(errors="replace")) for item in texts):
                reason = "the job can contain a secret. Encrypt it, and use a cron job with a file"
                draft.leave_out(path, f"line {number}", reason)
                continue
            properties: dict[str, Any] = {
                "schedule": " ".join(match[1].split()),
                "command": escaped(match[2]),
            }
            properties |= {"user": user} if user != "root" else {}
            properties |= {"environment": dict(environment)} if environment else {}
            remark = "the job moves to /etc/cron.d. Remove it from the crontab"
            name = f"{re.sub(r'[^A-Za-z0-9_-]', '-', user)}-{number}"
            draft.add(Resource("cron", name, properties), path, remark)
