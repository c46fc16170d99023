"""A trial and its outcome, as they are handed to the process that makes it, and back."""

from typing import Any

import msgspec

from foundation.formatting import lines
from puller.reporting.report import Event, State


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle, the machine that it is resolved for, and the tree that it is applied to."""

    tree: str
    """The absolute path of the directory with an installed system."""
    manifests: tuple[tuple[str, str], ...]
    """Path and name of the bundle's manifest, after those of the bundles that come before it on its hosts."""
    facts: dict[str, Any] = {}
    data: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Place and values of data over that of the bundle, lowest precedence first."""
    environ: dict[str, str] = {}
    private_key: str = ""
    """The path of the key for encrypted values."""


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of each resource in both runs; of the second run nothing where something failed in the first."""

    first: tuple[Event, ...] = ()
    second: tuple[Event, ...] = ()
    error: str = ""
    """Why nothing, or not all, was applied."""

    @property
    def failures(self) -> list[str]:
        """A sentence for all that is not as it must be; none when the trial has passed."""
        return [
            *([self.error] if self.error else []),
            *(_of_first(event) for event in self.first if event.state is State.FAILED),
            *(_of_second(event) for event in self.second if event.state is State.FAILED or event.changed),
        ]


def _of_first(event: Event) -> str:
    return f"{event.reference}: cannot be applied: {'; '.join(event.errors)}"


def _of_second(event: Event) -> str:
    why = (
        "; ".join((*event.errors, *lines(event.differences, is_predicted=event.is_predicted)))
        or "is refreshed again"
    )
    return f"{event.reference}: is not stable when it is applied a second time: {why}"
