"""The running system: kernel, uptime, load, time zone, user and process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puller.facts.fact_values import present
from puller.facts.groups.virtual import container
from puller.version import __version__

if TYPE_CHECKING:
    from puller.facts.machine import Machine


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
