"""Edits that trials have made in shared files: recorded, taken out, and kept apart from each other.

A shared file has edits of several bundles, of several versions, and of people, so it is never restored as a whole. Each
edit of a trial is on record by itself, as the file without the edit and the lines that the edit has replaced. To take
it out, Puller reverses these lines in the current file by a three-way merge:

* Later changes of the same lines stay.
* A part that the edit has added is absent afterwards, even if other lines around it have changed.
* An edit stays, and stays on record, while taking it out would undo a declared edit of the same file.
* An edit that is taken out also leaves the records of all other edits of the file. Otherwise their reversal would bring
  it back: of two values in a row, the second trial has recorded the value of the first.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Part
from puller.resources.edits.edit import Edit, EditState
from puller.resources.edits.left import without_part
from puller.resources.edits.plan import ask
from puller.resources.edits.receipts import Receipts
from puller.resources.edits.text import Text
from puller.run.left.decisions import Now
from puller.run.left.merging import Hunk, hunks_between, with_hunks, without_change
from puller.run.left.trial_copies import Edited, TrialCopies, key_of


class EditRecorder:
    """Records the edits of one trial before they are made.

    ``begin`` puts the trial into the journal. ``lost`` returns why a copy of so many bytes cannot be kept: usually "".
    """

    def __init__(
        self, copies: TrialCopies, trial: str, begin: Callable[[], None], lost: Callable[[str, int], str]
    ) -> None:
        self._copies, self._trial, self._begin, self._lost = copies, trial, begin, lost
        self._planned: dict[str, tuple[Text, Text]] = {}
        """By path, a text, and the same text with all edits of this trial so far: they may be one write."""
        self._kept: dict[str, tuple[bytes, int]] = {}
        """By path, the text that was copied last, with the number of the copy."""

    def record(
        self, resource: Edit[Any], actual: EditState, subscribers: tuple[str, ...], *, left: bool
    ) -> None:
        """Record an edit. ``left``: the edit removes a leftover. Raises ``OSError``."""
        place, properties = actual.place, resource.properties
        step = self._step(resource, place.real, place.text)
        if step is None:  # the edit fails, or does nothing
            return
        now, after = step
        reference = f"{resource.type_name}#{properties.name}"
        line = Edited(reference, place.real, self._trial, file=place.path, left=left, noted=time.time_ns())
        known = self._copies.objects.get(key_of(line))
        before = now.data if now.exists else None
        if isinstance(known, Edited):
            with contextlib.suppress(ResourceError):
                before = texts_of(known, self._copies).removed_from(before)
            line = msgspec.structs.replace(
                line, receipt=known.receipt, noted=known.noted, subscribers=known.subscribers
            )
        else:
            receipt = Receipts.of(resource.context).edits_of(place.path).get(reference)
            line = msgspec.structs.replace(line, receipt=receipt, subscribers=subscribers)
        if properties.ensure == "present" and not _has_part(resource, before):
            line = msgspec.structs.replace(line, made=resource.made(properties))
        self._begin()
        self._copies.append(self._with_copy(line, before, after.data))

    def _step(self, resource: Edit[Any], path: str, text: Text) -> tuple[Text, Text] | None:
        """Return a text without and with the edit. Both include earlier edits if the edit requires them."""
        begin, planned = self._planned.get(path, (text, text))
        if begin.data != text.data or begin.exists != text.exists:
            planned = text
        steps = [(each, after) for each in (text, planned) if (after := _edited(resource, each)) is not None]
        self._planned[path] = (text, steps[-1][1] if steps else planned)
        return steps[0] if steps else None

    def _with_copy(self, line: Edited, before: bytes | None, after: bytes) -> Edited:
        hunks = tuple(hunks_between(before or b"", after))
        if before is None:
            return msgspec.structs.replace(line, hunks=hunks)
        text, number = self._kept.get(line.path, (b"", 0))
        if not number or text != before:
            if lost := self._lost(line.path, len(before)):
                return msgspec.structs.replace(line, lost=lost)
            number = self._copies.copy([before])
            self._kept[line.path] = before, number
        return msgspec.structs.replace(line, hunks=hunks, copy=number, size=len(before))


def _edited(resource: Edit[Any], text: Text) -> Text | None:
    with contextlib.suppress(ResourceError):
        edited = resource.edited(resource.properties, text)
        return edited.text if edited is not None else None
    return None


def _has_part(resource: Edit[Any], before: bytes | None) -> bool:
    """Return whether a text has such a part, in any shape. If the text cannot be read, return true."""
    try:
        return before is not None and resource.finds(resource.properties, Text.of(before))
    except ResourceError:
        return True


class Texts(NamedTuple):
    """A file before and after an edit. ``before`` is ``None`` if the edit has made the file."""

    before: bytes | None
    after: bytes

    def reversed_in(self, text: bytes) -> tuple[bytes, bool]:
        """Return a text without the edit, and whether later changes of the same lines keep a part of the edit."""
        return without_change(self.before or b"", self.after, text)

    def removed_from(self, text: bytes | None) -> bytes | None:
        """Return a text without the edit. ``None`` stands for a missing file."""
        if text is None:
            return None
        result, _ = self.reversed_in(text)
        return result if result or self.before is not None else None


def texts_of(line: Edited, copies: TrialCopies) -> Texts:
    """Return the file before an edit and after it. Raises ``ResourceError`` for a missing copy."""
    before = copies.text_of(line)
    if before is None and line.copy:
        raise ResourceError(f"{copies.path_of(line)}: the copy is missing")
    return Texts(before, with_hunks(before or b"", line.hunks))


class TakenOut(NamedTuple):
    """The outcome of taking an edit out of a text."""

    now: Now
    text: bytes | None = None
    """The text without the edit. ``None`` if the file goes with the edit."""
    needed_by: frozenset[str] = frozenset()
    """Bundles whose declared edits require the edit, which stays for them."""


def take_out(
    line: Edited, copies: TrialCopies, text: bytes, declared: Iterable[tuple[str, Part]]
) -> TakenOut:
    """Take an edit out of a text. ``declared`` are the declared edits of the file, each with its bundle.

    Raises ``ResourceError`` for a text that cannot be edited, and for a missing copy.
    """
    texts, current = texts_of(line, copies), Text.of(text)
    satisfied = [(bundle, part) for bundle, part in declared if ask(part, current) is None]
    result, has_conflict = texts.reversed_in(text)
    result = _without_part(line, result)
    needed_by = _needing(satisfied, result)
    if needed_by and (result := _without_part(line, text)) != text:
        # Another edit may use the lines around the part by now, such as the header of a section.
        needed_by = _needing(satisfied, result)
    if needed_by:
        return TakenOut(Now.AS_TRIAL, text, needed_by)
    if result == text:
        return TakenOut(Now.FOREIGN if has_conflict and line.made is None else Now.AS_BEFORE, text)
    return TakenOut(Now.EDITED, result if result or texts.before is not None else None)


def _without_part(line: Edited, text: bytes) -> bytes:
    """Return a text without the part that an edit has added, if the part can be found."""
    if line.made is not None:
        with contextlib.suppress(ResourceError):
            return without_part(line.reference, line.made, Text.of(text)).data
    return text


def _needing(satisfied: Iterable[tuple[str, Part]], result: bytes) -> frozenset[str]:
    text = Text.of(result) if result else Text.missing()
    return frozenset(bundle for bundle, part in satisfied if ask(part, text) is not None)


def remove_from_others(taken_out: Mapping[str, Sequence[Texts]], journals: Iterable[TrialCopies]) -> None:
    """Take edits, which are no longer in their files, out of the records of all other edits. Raises ``OSError``."""
    for copies in journals:
        for line in [*copies.objects.values()]:
            if isinstance(line, Edited) and line.path in taken_out and not line.lost:
                _remove_from(line, copies, taken_out[line.path])


def _remove_from(line: Edited, copies: TrialCopies, taken_out: Sequence[Texts]) -> None:
    try:
        texts = texts_of(line, copies)
    except ResourceError:  # reported when this edit is taken out
        return
    before, after = texts
    for other in taken_out:
        before, after = other.removed_from(before), other.removed_from(after) or b""
    hunks = tuple(hunks_between(before or b"", after))
    is_same = _replaced(before, hunks) == _replaced(texts.before, line.hunks)
    if is_same and (before is None) == (texts.before is None):
        return  # the lines around an edit need not be up to date
    copy = 0 if before is None else copies.copy([before])
    copies.append(msgspec.structs.replace(line, hunks=hunks, copy=copy, size=len(before or b"")))


def _replaced(before: bytes | None, hunks: Iterable[Hunk]) -> list[tuple[list[bytes], tuple[bytes, ...]]]:
    lines = (before or b"").splitlines(keepends=True)
    return [(lines[hunk.first : hunk.last], hunk.lines) for hunk in hunks]
