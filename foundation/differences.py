"""Differences between the current state of a resource and its desired state.

* Each resource type returns differences. The dry run, the real run, reports, logs, fleet pages and previews show them.
* A secret is masked when the value is made: such a difference is ``secret`` and has neither value.
* Only ``foundation.formatting`` turns differences into text. No code reads that text.
"""

import re
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Self

import msgspec

ABSENT = "absent"


class DifferenceKind(StrEnum):
    """How a property differs."""

    ADDED = "added"
    """The property has no value, or the object does not exist."""
    CHANGED = "changed"
    REMOVED = "removed"
    UNKNOWN = "unknown until run"
    """An earlier resource of the run determines it, so a dry run cannot know it."""


class Action(StrEnum):
    """The action of a run on a resource without changed properties."""

    RUN = "run"
    RESTART = "restart"
    RELOAD = "reload"


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One property whose current value differs from the desired one."""

    property: str
    """The name in manifests, if it exists there: ``owner``."""
    current: str
    """For users. Empty: the property has no value, or the value is hidden."""
    desired: str
    kind: DifferenceKind
    path: str = ""
    """The file or directory, for a resource with several."""
    diff: str = ""
    """Unified diff of the content."""
    secret: bool = False
    """Whether both values are omitted, because they are sensitive."""
    action: Action | None = None
    refresh: bool = False
    """Whether the action only runs because another resource changed."""
    because: tuple[str, ...] = ()
    """The other resources that changed in this run: ``type#name``. Empty if an earlier run changed them."""

    def __str__(self) -> str:
        """Return the text for users."""
        return _formatters[-1]([self])

    def map_texts(self, change: Callable[[str], str]) -> Self:
        """Return the difference with other texts, such as masked or shortened ones."""
        return msgspec.structs.replace(
            self,
            property=change(self.property),
            current=change(self.current),
            desired=change(self.desired),
            path=change(self.path),
            diff=change(self.diff),
            because=tuple(map(change, self.because)),
        )


def register_formatter(formatter: Callable[[Sequence[Difference]], str]) -> None:
    """Register the function that formats differences. ``foundation.formatting`` calls this when it is imported."""
    _formatters.append(formatter)


_formatters: list[Callable[[Sequence[Difference]], str]] = []


def changed(name: str, current: str, desired: str, path: str = "") -> Difference:
    """Return the difference of a property with another value."""
    return Difference(name, current, desired, DifferenceKind.CHANGED, path)


def added(name: str, desired: str, path: str = "") -> Difference:
    """Return the difference of a property without a value."""
    return Difference(name, "", desired, DifferenceKind.ADDED, path)


def removed(name: str, current: str, path: str = "") -> Difference:
    """Return the difference of a property that must not have a value."""
    return Difference(name, current, "", DifferenceKind.REMOVED, path)


def presence(current: str, desired: str, path: str = "") -> Difference:
    """Return the difference of an object that is missing, not wanted, or of another kind."""
    kind = DifferenceKind.ADDED if current == ABSENT else DifferenceKind.CHANGED
    return Difference("ensure", current, desired, DifferenceKind.REMOVED if desired == ABSENT else kind, path)


def secret(name: str, path: str = "") -> Difference:
    """Return the difference of a sensitive value. A checksum or a length would help to guess a short one."""
    return Difference(name, "", "", DifferenceKind.CHANGED, path, secret=True)


def unknown(name: str, reason: str) -> Difference:
    """Return the difference of a property that an earlier resource determines."""
    return Difference(name, "", reason, DifferenceKind.UNKNOWN)


def acting(name: str, action: Action, *, refresh: bool = False) -> Difference:
    """Return the difference of a resource that acts although no property differs."""
    return Difference(name, "", "", DifferenceKind.CHANGED, action=action, refresh=refresh)


def with_diff(differences: Collection[Difference], diff: str) -> list[Difference]:
    """Return the differences with a diff added to the content, or to the first difference without one."""
    placed = list(differences)
    if diff and placed:
        at = next((place for place, item in enumerate(placed) if item.property == "content"), 0)
        placed[at] = msgspec.structs.replace(placed[at], diff=diff)
    return placed


def without_diffs(differences: Collection[Difference]) -> list[Difference]:
    """Return the differences without their diffs."""
    return [msgspec.structs.replace(item, diff="") if item.diff else item for item in differences]


def with_short_diffs(differences: Collection[Difference], most: int) -> list[Difference]:
    """Return the differences with diffs of at most ``most`` characters in all, cut between two lines.

    A line states how many lines are left out.
    """
    results = []
    for item in differences:
        kept, text = "", item.diff
        if len(text) > most:
            lines = text.splitlines(keepends=True)
            for index, line in enumerate(lines):
                if len(kept) + len(line) > most:
                    kept += f"... {len(lines) - index} more lines\n"
                    break
                kept += line
            item = msgspec.structs.replace(item, diff=kept)
        most = max(0, most - len(item.diff))
        results.append(item)
    return results


def with_causes(differences: Collection[Difference], causes: Collection[str]) -> list[Difference]:
    """Return the differences, with the resources that caused them added to refreshes."""
    return [
        msgspec.structs.replace(difference, because=tuple(causes))
        if difference.refresh and causes
        else difference
        for difference in differences
    ]


# Unified diffs of text, for people.

DIFF_LIMIT = 64 * 1024
"""The largest content, in bytes, for which a diff is computed."""

_LINE = r"[^\n]*\n|[^\n]+"  # unlike splitlines(), does not split at a form feed or a lone CR


def unified(old: bytes, new: bytes, name: str) -> str | None:
    """Return a unified diff from ``old`` to ``new``, or a sentence if the content is binary or too large."""
    if max(len(old), len(new)) > DIFF_LIMIT:
        return f"{name}: {len(old)} bytes become {len(new)} bytes, too large for a diff\n"
    try:
        before, after = old.decode("utf-8"), new.decode("utf-8")
    except UnicodeDecodeError:
        return f"{name}: binary content, {len(old)} bytes become {len(new)} bytes\n"
    import difflib  # 1 % of an idle run, which prints no diff

    lines = difflib.unified_diff(
        re.findall(_LINE, before), re.findall(_LINE, after), f"{name} (now)", f"{name} (wanted)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)
