"""All that an operator has said against changing this machine, read once, with the sentences that tell of it."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from foundation.timestamps import iso_text
from puller.config.configuration import Configuration
from puller.config.maintenance_windows import Window, next_opening, why_closed
from puller.run.policy.disable import Disabled, find_disabled
from puller.run.policy.pins import Pins
from puller.run.policy.quarantine import Quarantine
from puller.state.directories import Directories


class Holds(msgspec.Struct, frozen=True):
    """All that is in force."""

    disabled: Disabled | None
    windows: tuple[Window, ...]
    pins: Pins
    quarantine: Quarantine

    @classmethod
    def load(
        cls,
        configuration: Configuration,
        directories: Directories,
        now: datetime,
        warn: Callable[[str], None],
        *,
        noop: bool = False,
    ) -> "Holds":
        """Read them; ``warn`` is told what is damaged. With ``noop`` nothing is written. Raises ``OSError``."""
        return cls(
            find_disabled(directories, now),
            configuration.windows,
            Pins.load(directories, warn, noop=noop),
            Quarantine.load(directories, warn, noop=noop),
        )

    def why_not_applying(self, now: datetime) -> str:
        """Why this host may not be changed ``now``; empty when it may."""
        return str(self.disabled) if self.disabled else why_closed(self.windows, now)

    def lines(self, now: datetime, published: Mapping[str, str]) -> list[str]:
        """Sentences for people, one for each thing in force; ``published`` is as for ``Quarantine.in_force``."""
        return [
            *([why] if (why := self.why_not_applying(now)) else []),
            *(f"{bundle} is pinned to {version}" for bundle, version in sorted(self.pins.entries.items())),
            *(map(str, self.quarantine.in_force(published))),
        ]

    def data(self, now: datetime) -> dict[str, object]:
        """All of it for programs, as plain values."""
        opening = next_opening(self.windows, now) if self.windows else None
        return {
            "disabled": msgspec.to_builtins(self.disabled),
            "not_applying": self.why_not_applying(now) or None,
            "next_window": iso_text(opening) if opening and opening > now else None,
            "pins": self.pins.entries,
            "quarantine": [msgspec.to_builtins(entry) for entry in self.quarantine.entries],
        }
