"""The managers of units: that of the system, and those of users, who each have one while they are logged in or linger.

A user's manager is asked and told by that user, so that nothing of root's is done in a directory that is theirs.
"""

import time
from collections.abc import Callable, Mapping

import msgspec

from puller.errors import ResourceError
from puller.resources.services.unit_files import UNIT_DIRECTORIES
from puller.system.identity import Identity
from puller.system.protocol import System


class Manager(msgspec.Struct, frozen=True):
    """One manager: how to speak to it, and where it looks for units."""

    scope: str
    """The option of systemctl."""
    directories: tuple[str, ...]
    """Where unit files are looked for (systemd.unit(5)), as far as a manifest may write them."""
    masks: str
    """The directory that its masks are in."""
    generated_from: tuple[str, ...] = ()
    """What others write into these becomes units, too, when it reads its files."""
    records: str = ""
    """The end of the names of what Puller remembers of it."""
    identity: Identity | None = None
    environment: Mapping[str, str] = {}
    journal: tuple[str, ...] = ()
    """Options of journalctl that choose its entries."""
    unit_option: str = "--unit"
    """The option of journalctl that chooses a unit."""

    def require(self, system: System, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait for a manager that is about to start; raises ``ResourceError`` for a user who has none."""
        if self.identity is None:
            return
        name = self.identity.name
        for _ in range(_LOOKS):
            if system.exists(f"{self.environment[_RUNTIME]}/systemd/private"):
                return
            if not system.exists(f"{_LINGERING}/{name}"):
                break
            sleep(_PAUSE)
        what = f"user {name} has no systemd, being neither logged in nor lingering"
        raise ResourceError(f"{what}", hint=f"to let it run from boot on: loginctl enable-linger {name}")


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
    """The manager of a user."""
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
