"""Words that the forms for people share."""

from collections.abc import Sequence

from bundles.first_few import first_few
from foundation.differences import Difference, DifferenceKind
from foundation.formatting import people
from foundation.quantities import counted
from puller.authoring.preview.differences import Change, Kind
from puller.authoring.preview.groups import Group, Preview
from puller.values.visible import visible_line

_MOST_NAMES = 3
_LONGEST = 200


def machines(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """``web01, web02, web03 and 9 more``."""
    return first_few(list(map(one_line, names)), most)


def of_machines(count: int, total: int) -> str:
    """``412 of 418 machines``."""
    return f"{count} of {counted(total, 'machine')}"


def title(group: Group, preview: Preview) -> str:
    """The machines of a group: counted and, as far as there is room, named."""
    return f"{of_machines(len(group.machines), preview.total)} ({machines(group.machines)})"


def headline(change: Change) -> str:
    """One change in one line."""
    reference = one_line(change.reference)
    if change.kind is Kind.FAILS:
        return f"{reference} fails: {one_line(change.why)}"
    if change.kind is Kind.REFRESHED:
        return f"{reference} {_refresh(change)}"
    if change.kind is Kind.SKIPPED:
        return f"{reference} is skipped, because of {_because(change)}"
    why = f": {one_line(change.why)}" if change.why else ""
    also = f"; {_refresh(change)}" if change.refresh else ""
    return f"{reference} {change.kind}{why}{also}"


def _refresh(change: Change) -> str:
    return f"{change.refresh}, because of {_because(change)}"


def _because(change: Change) -> str:
    return ", ".join(map(one_line, change.because))


def difference_line(change: Change, difference: Difference, arrow: str = "") -> str:
    """Return a line such as ``mode 0644 → 0600``; empty where the headline contains it."""
    is_presence = difference.property == "ensure" and difference.kind is not DifferenceKind.CHANGED
    if is_presence and not difference.path and change.kind in (Kind.ADDED, Kind.REMOVED):
        return ""
    return people([difference.map_texts(one_line)], arrow=arrow)


def unchanged_line(preview: Preview) -> str:
    """The machines on which nothing changes; empty when there are none."""
    if not preview.unchanged:
        return ""
    parts = (
        ("nothing changes", [name for name in preview.unchanged if name not in preview.incomplete]),
        (
            "nothing changes as far as is known: facts are missing",
            [name for name in preview.unchanged if name in preview.incomplete],
        ),
    )
    return "; ".join(
        f"{of_machines(len(names), preview.total)} ({machines(names)}): {what}"
        for what, names in parts
        if names
    )


def still_failing_lines(preview: Preview) -> list[str]:
    """Failures of before and after, so that nobody takes *nothing changes* for *all is well*."""
    return [
        f"{of_machines(len(found.machines), preview.total)} ({machines(found.machines)}):"
        f" {one_line(found.change.reference)} {_as_before(found.change)}: {one_line(found.change.why)}"
        for found in preview.still_failing
    ]


def _as_before(change: Change) -> str:
    return f"{change.kind}, as before" if change.kind is Kind.LATE else "fails as before"


def note_lines(preview: Preview) -> list[str]:
    """All notes, each in one line; one may name many programs."""
    missing = [
        f"the bundle asks for the fact {one_line(fact)}, which the store does not have of "
        f"{of_machines(len(names), preview.total)} ({machines(names)}): "
        f"add it to `reports: facts` of their configuration"
        for fact, names in preview.missing.items()
    ]
    return [one_line(note, 1000) for note in (*missing, *preview.notes)]


def one_line(text: str, most: int = _LONGEST) -> str:
    """A value in one line of at most so many characters, without control characters."""
    found = visible_line(text)
    return found if len(found) <= most else f"{found[:most]}…"
