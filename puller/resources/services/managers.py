"""The managers of units: the system's, and one for each user who is logged in or lingers.

Commands to a user's manager run as that user, so that root never acts in directories that the user owns.
"""

import time
from collections.abc import Callable, Mapping

import msgspec

from puller.errors import ResourceError
from puller.resources.services.unit_files import UNIT_DIRECTORIES
from puller.system.identity import Identity
from puller.system.protocol import System


class Manager(msgspec.Struct, frozen=True):
    """One manager: its systemctl options and unit directories."""

    scope: str
    """The option of systemctl that selects it."""
    directories: tuple[str, ...]
    """Directories of unit files (systemd.unit(5)) that a manifest may write to."""
    masks: str
    """The directory of its masks."""
    generated_from: tuple[str, ...] = ()
    """Directories of files from which generators make units."""
    records: str = ""
    """The suffix of Puller's record files for it."""
    identity: Identity | None = None
    environment: Mapping[str, str] = {}
    journal: tuple[str, ...] = ()
    """Options of journalctl that select its entries."""
    unit_option: str = "--unit"
    """The option of journalctl that selects a unit."""

    def require(self, system: System, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait for a manager that is about to start. Raises ``ResourceError`` for a user without one."""
        if self.identity is None:
            return
        name = self.identity.name
        for _ in range(_LOOKS):
            if system.exists(f"{self.environment[_RUNTIME]}/systemd/private"):
                return
            if not system.exists(f"{_LINGERING}/{name}"):
                break
            sleep(_PAUSE)
        detail = f"user {name} has no systemd, being neither logged in nor lingering"
        raise ResourceError(f"{detail}", hint=f"to let it run from boot on: loginctl enable-linger {name}")


_LINGERING = "/var/lib/systemd/linger"
_LOOKS = 80
_PAUSE = 0.25  # seconds between looks
_RUNTIME = "XDG_RUNTIME_DIR"

SYSTEM = Manager(
    "--system",
    UNIT_DIRECTORIES,
    UNIT_DIRECTORIES[0],
    (
        "/etc/init.d",
        *(f"/etc/rc{level}.d" for level in range(2, 6)),
        "/etc/containers/systemd",
        "/usr/share/containers/systemd",
    ),
)


def manager_of(identity: Identity) -> Manager:
    """Return the manager of a user."""
    own = f"{identity.home}/.config/systemd/user"
    return Manager(
        "--user",
        (
            own,
            "/etc/systemd/user",
            "/run/systemd/user",
            f"{identity.home}/.local/share/systemd/user",
            "/usr/local/lib/systemd/user",
            "/usr/lib/systemd/user",
        ),
        own,
        (f"{identity.home}/.config/containers/systemd",),
        f"-{identity.uid}",
        identity,
        {_RUNTIME: f"/run/user/{identity.uid}"},
        (f"_UID={identity.uid}",),
        "--user-unit",
    )
