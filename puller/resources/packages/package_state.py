"""The state of a package, and the changes between states."""

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from puller.resources.packages.manager import Installed


class Action(Enum):
    """A change of one package."""

    INSTALL = "installed"
    UPGRADE = "upgraded to"
    DOWNGRADE = "downgraded to"
    REMOVE = "uninstalled"
    PURGE = "purged"


REMOVALS = (Action.REMOVE, Action.PURGE)


class PackageState(msgspec.Struct, frozen=True):
    """The installed versions of a package, the newest first, and the candidate version."""

    installed: "tuple[Installed, ...]" = ()
    candidate: str | None = None
    """For ``latest``: the newest version in the repositories. With a ``source``: its version."""
    providers: tuple[str, ...] = ()
    """Installed packages that provide the name, if no package of this name is installed."""
    has_configuration: bool = False
    """Whether it was removed without its configuration files."""
    held: bool = False
    """Whether the package manager keeps it at its version."""
    is_automatic: bool = False
    """Whether it was installed only as a dependency."""

    @property
    def newest(self) -> "Installed | None":
        """The newest installed version, ``None`` if no version is installed."""
        return self.installed[0] if self.installed else None

    def __str__(self) -> str:
        if self.providers:
            return f"provided by {', '.join(self.providers)}"
        words = (
            one.version if one.is_complete else f"{one.version} ({one.status})" for one in self.installed
        )
        # Several architectures usually have the same version.
        return ", ".join(dict.fromkeys(words)) or "absent"
