"""Which DHCP server an interface has its address from, by the lease files of the usual clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from puller.facts.machine import Machine

_CLIENT_DIRECTORIES = ("/var/lib/dhcp", "/var/lib/dhclient", "/var/lib/NetworkManager")


def dhcp_server(machine: Machine, index: int, name: str) -> str | None:
    """Of systemd-networkd, NetworkManager or dhclient, in this order; ``None`` where no file tells."""
    files = [f"/run/systemd/netif/leases/{index}"]
    files += _files(machine, "/var/lib/NetworkManager", "internal-", f"-{name}.lease")
    for file in files:
        server = _after("SERVER_ADDRESS=", machine.hint(file))
        if server:
            return server
    return _dhclient_server(machine, name)


def _dhclient_server(machine: Machine, name: str) -> str | None:
    for directory in _CLIENT_DIRECTORIES:
        for file in _files(machine, directory, "dhclient", ""):
            text = machine.hint(file)
            # Leases are appended: the last one is the one in force.
            if f'interface "{name}"' in text:
                return _after("dhcp-server-identifier ", text[text.rindex("lease {") :].replace(";", "\n"))
    return None


def _files(machine: Machine, directory: str, start: str, end: str) -> list[str]:
    # A directory that only root may list is no hint to others, and nothing to report.
    names = machine.names(directory) if machine.may_list(directory) else []
    names = [name for name in names if name.startswith(start) and name.endswith(end)]
    return [f"{directory}/{name}" for name in names if ".lease" in name]


def _after(mark: str, text: str) -> str | None:
    return text.partition(mark)[2].partition("\n")[0].strip() or None
