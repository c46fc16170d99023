"""The operating system and the running kernel.

* ``os`` has name, family, release and distribution, as Facter derives them from the release files.
* ``/etc/os-release`` names the system. If a distribution has a file with the minor release (``/etc/debian_version``,
  ``/etc/redhat-release``), the release comes from that file.
* A derivative is treated as the nearest system that it names in ``ID_LIKE``.
* The other groups have the running system: kernel, uptime, load, time zone, user and process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puller.facts.fact_values import present
from puller.facts.groups.hardware import container
from puller.version import __version__

if TYPE_CHECKING:
    from puller.facts.machine import Machine

_RED_HAT_FILE = "/etc/redhat-release"

_RELEASE_FILES = {
    "alpine": "/etc/alpine-release",
    "amzn": "/etc/system-release",
    "centos": _RED_HAT_FILE,
    "debian": "/etc/debian_version",
    "devuan": "/etc/devuan_version",
    "fedora": _RED_HAT_FILE,
    "gentoo": "/etc/gentoo-release",
    "mageia": "/etc/mageia-release",
    "ol": "/etc/oracle-release",
    "raspbian": "/etc/debian_version",
    "rhel": _RED_HAT_FILE,
}

_WITHOUT_RELEASE_FILE = ("linuxmint", "opensuse", "sles", "suse", "ubuntu")

_FAMILIES = {
    "RedHat": "rhel fedora centos redhat ol oel ovs amzn scientific cloudlinux virtuozzo photon mariner",
    "Debian": "debian ubuntu linuxmint devuan raspbian",
    "Suse": "suse sles sled opensuse",
    "Gentoo": "gentoo",
    "Archlinux": "arch manjaro",
    "Mandrake": "mandrake mandriva mageia",
}
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names.split()}


def operating_system(machine: Machine) -> dict[str, Any]:
    """Return the group ``os``."""
    description = os_release(machine)
    family = _family(description)
    hardware = machine.uname().machine
    release = _release(machine, description)
    return {
        "os": present(
            {
                "name": _name(description),
                "family": family,
                "release": release,
                "distro": _distribution(machine, description, family, release) or None,
                "architecture": _architecture(hardware, family),
                "hardware": hardware,
                "selinux": _selinux(machine),
            }
        )
    }


def os_release(machine: Machine) -> dict[str, str]:
    """Return the assignments in the ``os-release`` file, see os-release(5)."""
    text = machine.read("/etc/os-release")
    if text is None:
        text = machine.read("/usr/lib/os-release")
    if text is None:
        machine.note("/etc/os-release", "is missing, so the name and release of this system are unknown")
    assignments = (line.strip().partition("=") for line in (text or "").splitlines())
    return {name: _unquoted(value) for name, equals, value in assignments if equals and name[:1] != "#"}


def _unquoted(value: str) -> str:
    if value[:1] not in ("'", '"'):
        return value
    return value.strip(value[0]).replace("\\", "")


def kinds(description: dict[str, str]) -> list[str]:
    """Return names of this system and of similar systems, nearest first: ``["rocky", "rhel", "centos", "fedora"]``."""
    names = [description.get("ID", ""), *description.get("ID_LIKE", "").split()]
    return ["opensuse" if name.startswith("opensuse") else name.lower() for name in names if name]


def _name(description: dict[str, str]) -> str | None:
    """Return ``NAME`` in Facter's form: ``Debian``, ``RedHat``, ``OracleLinux``, ``openSUSE``."""
    name = description.get("NAME", "")
    words = name.split()
    match name.lower().split():
        case []:
            return None
        case ["linux", "mint", *_]:
            return "Linuxmint"
        case ["arch" | "manjaro", *_]:
            return "".join(words[:2]).capitalize()
        case ["red" | "oracle" | "virtuozzo", *_]:
            return "".join(words[:2])
        case [*_, "mariner"]:
            return words[-1]
    return words[0]


def _family(description: dict[str, str]) -> str | None:
    names = kinds(description)
    for name in names:
        if name in _FAMILY_OF:
            return _FAMILY_OF[name]
    return names[0].capitalize() if names else None


def _architecture(hardware: str, family: str | None) -> str:
    if family == "Debian" and hardware == "x86_64":
        return "amd64"
    if hardware in ("i386", "i486", "i586", "i686", "pentium"):
        return "i386"
    return hardware


def _release(machine: Machine, description: dict[str, str]) -> dict[str, str] | None:
    """Return ``full``, ``major`` and, if it exists, ``minor``."""
    for kind in kinds(description):
        if kind in _WITHOUT_RELEASE_FILE:
            return _release_by_id(kind, description)
        if kind in _RELEASE_FILES:
            version = _version(machine.read(_RELEASE_FILES[kind]) or "")
            return _split_release(version or _version_id(description))
    version = _version_id(description)
    return {"full": version, "major": version} if version else None


def _release_by_id(kind: str, description: dict[str, str]) -> dict[str, str] | None:
    version = _version_id(description)
    if not version or kind in ("opensuse", "sles", "suse"):
        return _split_release(version)
    # Ubuntu's 22.04 is a single name without major and minor number. Mint, based on Ubuntu, uses whole numbers.
    full = version.partition(".")[0] if kind == "linuxmint" else version
    return {"full": full, "major": full}


def _version_id(description: dict[str, str]) -> str | None:
    """Return ``VERSION_ID``, with Facter's ``.0`` after a single number."""
    version = description.get("VERSION_ID")
    return f"{version}.0" if version and "." not in version else version


def _version(text: str) -> str | None:
    """Return the version in the first line of a release file: the word after *release*, or the first word."""
    line = text.strip().partition("\n")[0]
    words = line.rpartition("release ")[2].split()
    return words[0] if words else None


def _split_release(version: str | None) -> dict[str, str] | None:
    if not version:
        return None
    major, *remainder = version.split(".")
    release = {"full": version, "major": major}
    if remainder:
        release["minor"] = remainder[0].lstrip("0") or "0"
    return release


def _distribution(
    machine: Machine, description: dict[str, str], family: str | None, release: dict[str, str] | None
) -> dict[str, Any]:
    path = "/etc/system-release" if "amzn" in kinds(description) else _RED_HAT_FILE
    line = (machine.read(path) or "").strip() if family == "RedHat" else ""
    if line:
        return _distribution_of_line(line)
    name = description.get("ID", "").capitalize()
    return present(
        {
            "id": "SUSE" if family == "Suse" else name or None,
            "codename": description.get("VERSION_CODENAME") or _codename(description.get("VERSION", "")),
            "description": description.get("PRETTY_NAME"),
            "release": release,
        }
    )


def _distribution_of_line(line: str) -> dict[str, Any]:
    """Return the distribution from ``Rocky Linux release 9.3 (Blue Onyx)``."""
    words = line.partition(" release ")[0].split()
    return present(
        {
            "id": "".join(word for word in words if word.lower() != "linux"),
            "codename": _codename(line),
            "description": line,
            "release": _split_release(_version(line)),
        }
    )


def _codename(text: str) -> str | None:
    """Return the text in parentheses: ``12 (bookworm)``."""
    return text.partition("(")[2].partition(")")[0] or None


def _selinux(machine: Machine) -> dict[str, Any]:
    """Return SELinux facts. Enabled if the kernel offers its file system and the system is configured for it."""
    enforce = machine.hint("/sys/fs/selinux/enforce").strip()
    configuration = machine.hint("/etc/selinux/config")
    if not enforce or not configuration:
        return {"enabled": False}
    settings = dict(line.strip().partition("=")[::2] for line in configuration.splitlines())
    return present(
        {
            "enabled": True,
            "enforced": enforce == "1",
            "current_mode": "enforcing" if enforce == "1" else "permissive",
            "config_mode": settings.get("SELINUX"),
            "config_policy": settings.get("SELINUXTYPE"),
            "policy_version": machine.value("/sys/fs/selinux/policyvers"),
        }
    )


def kernel(machine: Machine) -> dict[str, Any]:
    """Return ``kernel``, ``kernelrelease``, ``kernelversion`` and ``kernelmajversion``."""
    system = machine.uname()
    numbers = _numbers(system.release)
    return {
        "kernel": system.sysname,
        "kernelrelease": system.release,
        "kernelversion": ".".join(numbers[:3]),
        "kernelmajversion": ".".join(system.release.split(".")[:2]),
    }


def _numbers(release: str) -> list[str]:
    """Return the numbers in a release: ``6.1.0-37-amd64`` has 6, 1, 0, 37 and 64."""
    return "".join(letter if letter.isdigit() else " " for letter in release).split()


def filesystems(machine: Machine) -> dict[str, Any]:
    """Return ``filesystems``: the block file systems that the kernel can mount now, as one text."""
    lines = machine.need("/proc/filesystems").split("\n")
    names = [line.strip() for line in lines if line and not line.startswith("nodev")]
    return {"filesystems": ",".join(sorted(name for name in names if name != "fuseblk"))}


def fips(machine: Machine) -> dict[str, Any]:
    """Return ``fips_enabled``: whether the kernel allows only approved cryptography."""
    return {"fips_enabled": machine.value("/proc/sys/crypto/fips_enabled") == "1"}


def uptime(machine: Machine) -> dict[str, Any]:
    """Return ``system_uptime``. In an application container, it counts from the start of the first process."""
    result = container(machine)
    seconds = int(float(machine.need("/proc/uptime").split()[0]))
    if result and result[0] in ("docker", "podman"):
        seconds -= _first_process_started(machine)
    hours = seconds // 3600
    return {
        "system_uptime": {"seconds": seconds, "hours": hours, "days": hours // 24, "uptime": _words(seconds)}
    }


def _first_process_started(machine: Machine) -> int:
    """Return seconds after boot: field 22 of proc_pid_stat(5), counted after the name, which may contain anything."""
    fields = machine.need("/proc/1/stat").rpartition(")")[2].split()
    return int(fields[19]) // machine.clock_ticks()


def _words(seconds: int) -> str:
    days, remainder = divmod(seconds, 86400)
    if days:
        return "1 day" if days == 1 else f"{days} days"
    return f"{remainder // 3600}:{remainder // 60 % 60:02} hours"


def load(machine: Machine) -> dict[str, Any]:
    """Return ``load_averages`` of 1, 5 and 15 minutes."""
    numbers = [float(word) for word in machine.need("/proc/loadavg").split()[:3]]
    return {"load_averages": dict(zip(("1m", "5m", "15m"), numbers, strict=True))}


def zone(machine: Machine) -> dict[str, Any]:
    """Return ``timezone``: the current abbreviation, ``UTC`` or ``CEST``."""
    return {"timezone": machine.zone()}


def search_path(machine: Machine) -> dict[str, Any]:
    """Return ``path``: the directories in which this process searches programs."""
    return present({"path": machine.environ.get("PATH")})


def identity(machine: Machine) -> dict[str, Any]:
    """Return ``identity``, the current user. Names are left out for a user without an account."""
    uid = machine.user_id()
    facts: dict[str, Any] = {"uid": uid, "privileged": uid == 0}
    try:
        account = machine.account(uid)
        facts |= {"user": account.pw_name, "gid": account.pw_gid, "group": machine.group_name(account.pw_gid)}
    except KeyError as error:
        machine.note("identity", str(error.args[0]))
    return {"identity": facts}


def agent(_: Machine) -> dict[str, Any]:
    """Return ``puller`` with the running version. The agent adds the applied bundle."""
    return {"puller": {"version": __version__}}
