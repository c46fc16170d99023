"""Differences between the current state of a resource and its desired state, and the one formatter of them.

* Each resource type returns differences. The dry run, the real run, reports, logs, fleet pages and previews show them.
* A secret is masked when the value is made: such a difference is ``secret`` and has neither value.
* No code reads the text of a difference. For people: ``owner nobody → root, mode 0600 → 0644, content``. Without UTF-8
  the arrow is ``->``. A checksum appears only where there is no diff.
* The journal gets the text for people, always with the arrow, and the JSON in a field.
"""

import _locale
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Any, Self

import msgspec

ABSENT = "absent"
ARROW, ASCII_ARROW = "→", "->"
_NO_VALUE = "(none)"


class DifferenceKind(StrEnum):
    """How a property differs."""

    ADDED = "added"
    """The property has no value yet, or the object does not exist."""
    CHANGED = "changed"
    REMOVED = "removed"
    UNKNOWN = "unknown until run"
    """An earlier resource of the run decides it, so a dry run cannot know it."""


class Action(StrEnum):
    """The act of a run on a resource of which no property changes."""

    RUN = "run"
    RESTART = "restart"
    RELOAD = "reload"


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One property whose current value is not the desired one."""

    property: str
    """As in manifests where the manifest has one: ``owner``."""
    current: str
    """For people. Empty: the property has no value, or the value is not shown."""
    desired: str
    kind: DifferenceKind
    path: str = ""
    """The file or directory, where a resource has several."""
    diff: str = ""
    """Of content: a unified diff."""
    secret: bool = False
    """Both values are left out, because they are sensitive."""
    action: Action | None = None
    refresh: bool = False
    """Done only because another resource changed."""
    because: tuple[str, ...] = ()
    """The other resources that changed in this run: ``type#name``. Empty if an earlier run changed them."""

    def __str__(self) -> str:
        """Return the text for people."""
        return people([self])

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


def changed(name: str, current: str, desired: str, path: str = "") -> Difference:
    """Return the difference of a property that has another value."""
    return Difference(name, current, desired, DifferenceKind.CHANGED, path)


def added(name: str, desired: str, path: str = "") -> Difference:
    """Return the difference of a property that has no value yet."""
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
    """Return the difference of a property that an earlier resource decides."""
    return Difference(name, "", reason, DifferenceKind.UNKNOWN)


def acting(name: str, action: Action, *, refresh: bool = False) -> Difference:
    """Return the difference of a resource that does something although no property has another value."""
    return Difference(name, "", "", DifferenceKind.CHANGED, action=action, refresh=refresh)


def with_diff(differences: Collection[Difference], diff: str) -> list[Difference]:
    """Return the differences with a diff at the one of the content; without one, at the first."""
    placed = list(differences)
    if diff and placed:
        at = next((place for place, one in enumerate(placed) if one.property == "content"), 0)
        placed[at] = msgspec.structs.replace(placed[at], diff=diff)
    return placed


def with_causes(differences: Collection[Difference], causes: Collection[str]) -> list[Difference]:
    """Return the differences. Those that are refreshes name the resources that changed."""
    return [
        msgspec.structs.replace(one, because=tuple(causes)) if one.refresh and causes else one
        for one in differences
    ]


# Text

_DONE = {Action.RUN: "ran", Action.RESTART: "restarted", Action.RELOAD: "reloaded"}


def people(differences: Sequence[Difference], *, is_predicted: bool = False, arrow: str = "") -> str:
    """Return the differences in one line. ``arrow`` is by default the one that the locale can show."""
    arrow = arrow or (ARROW if _is_utf8() else ASCII_ARROW)
    return ", ".join(_one(difference, arrow, is_predicted=is_predicted) for difference in differences)


def lines(differences: Sequence[Difference], *, is_predicted: bool = False, arrow: str = "") -> list[str]:
    """Return the text for people, one line for each difference."""
    return [people([one], is_predicted=is_predicted, arrow=arrow) for one in differences]


def journal(differences: Sequence[Difference]) -> str:
    """Return the differences as the value of a field of the journal, without their diffs."""
    plain = [msgspec.structs.replace(one, diff="") for one in differences]
    return msgspec.json.encode(plain).decode()


def json_values(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Return the differences as objects of a JSON document."""
    values: list[dict[str, Any]] = msgspec.to_builtins(differences)
    return values


def _one(difference: Difference, arrow: str, *, is_predicted: bool) -> str:
    if difference.action is not None:
        return _action(difference, difference.action, is_predicted=is_predicted)
    kind, is_content = difference.kind, difference.property == "content"
    if difference.path and difference.property == "ensure":
        if kind is not DifferenceKind.CHANGED:
            return f"{difference.path} {kind}"
        name = difference.path
    else:
        name = f"{difference.path} {difference.property}".lstrip()
    if difference.secret:
        return f"{name} (sensitive)"
    if kind is DifferenceKind.UNKNOWN:
        reason = f" ({difference.desired})" if difference.desired else ""
        return f"{name} {kind}{reason}"
    if is_content and difference.diff:
        return name
    if not difference.current:
        return f"{name}: {difference.desired or repr('')}"
    is_value_removed = kind is DifferenceKind.REMOVED and not difference.desired
    current, desired = (
        _value(difference.current),
        _NO_VALUE if is_value_removed else _value(difference.desired),
    )
    return f"{name}{':' if is_content else ''} {current} {arrow} {desired}"


def _action(difference: Difference, action: Action, *, is_predicted: bool) -> str:
    verb = f"would {action}" if is_predicted else _DONE[action]
    if not difference.refresh:
        return verb
    if not difference.because:
        return f"{verb}, because of a change in an earlier run"
    changed = "would change" if is_predicted else "changed"
    return f"{verb}, because {' and '.join(difference.because)} {changed}"


def _value(value: str) -> str:
    """Return a value that cannot be confused with the text around it."""
    is_quoted = len(value) > 1 and value[0] in "'\"" and value[0] == value[-1]
    is_clear = value != "" and value.isprintable() and value == value.strip()
    is_clear = is_clear and (is_quoted or not any(mark in value for mark in (", ", ARROW, ASCII_ARROW)))
    return value if is_clear else repr(value)


def _is_utf8() -> bool:
    # Python itself writes UTF-8 in the locale C, which a terminal of that locale does not show.
    return _locale.nl_langinfo(_locale.CODESET).upper().replace("-", "") == "UTF8"
