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
    """The versions installed under a name, the newest first; and what it could be, where that is asked."""

    installed: "tuple[Installed, ...]" = ()
    candidate: str | None = None
    """For ``latest``: what the repositories offer; with a ``source``: its version."""
    providers: tuple[str, ...] = ()
    """The installed packages that provide a name of which none is installed."""
    has_configuration: bool = False
    """It was removed, and its configuration files are there still."""
    held: bool = False
    """The package manager was told to leave it in its version."""
    is_automatic: bool = False
    """It was installed only because others need it."""

    @property
    def newest(self) -> "Installed | None":
        """``None`` when nothing is installed."""
        return self.installed[0] if self.installed else None

    def __str__(self) -> str:
        if self.providers:
            return f"provided by {', '.join(self.providers)}"
        words = (
            one.version if one.is_complete else f"{one.version} ({one.status})" for one in self.installed
        )
        # Those of several architectures are usually the same.
        return ", ".join(dict.fromkeys(words)) or "absent"
