"""Edits in shared files: those of trials, and those of one object that several resources declare.

Edits of trials are recorded, reverted and kept apart from each other.

A shared file has edits of several bundles, versions and people, so it is never restored as a whole. Each edit of a
trial has its own record: the file without the edit, and the lines that the edit has replaced. To revert the edit,
Puller reverses these lines in the current file by a three-way merge:

* Later changes of the same lines stay.
* A part that the edit has added is absent afterwards, even if other lines around it have changed.
* An edit stays, in the file and on record, while its reversal would undo a declared edit of the same file.
* A reverted edit also leaves the records of all other edits of the file. Otherwise their reversal would restore it:
  of two successive values, the second trial has recorded the value of the first.

Several resources may declare one line, block or setting under different names, for example in two bundles:

* The *owner* is the resource with the receipt of the created part. An *heir* is another resource that declares the same
  object. The record does not state yet how its object was created.
* When the owner is not declared any longer, an heir whose bundle has passed its trial gets the receipt and becomes the
  owner.
"""

import contextlib
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from puller.engine.transactions import is_managed
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration
from puller.resources.base import Part, Resource
from puller.resources.claims import EditedPlace
from puller.resources.edits.edit import Edit, EditProperties
from puller.resources.edits.file_text import Text
from puller.resources.edits.leftover_edits import EDITS, without_part
from puller.resources.edits.planned_edits import Made, Receipt, Receipts
from puller.resources.registry import find_remover
from puller.run.leftovers.reversal_rules import Hunk, Now, hunks_between, with_hunks, without_change
from puller.run.leftovers.trial_copies import Edited, TrialCopies, key_of
from puller.values.common_properties import ABSENT


class EditRecorder:
    """Records the edits of one trial before they are made.

    ``begin`` puts the trial into the journal. ``lost`` returns why a copy of so many bytes cannot be kept: usually "".
    """

    def __init__(
        self, copies: TrialCopies, trial: str, begin: Callable[[], None], lost: Callable[[str, int], str]
    ) -> None:
        self._copies, self._trial, self._begin, self._lost = copies, trial, begin, lost
        self._planned: dict[str, tuple[bytes | None, bytes | None]] = {}
        """By path, a text, and the same text with all edits of this trial so far. They may be one write."""
        self._kept: dict[str, tuple[bytes, int]] = {}
        """By path, the last copied text, with the number of the copy."""

    def record(
        self, resource: Resource[Any, Any], place: EditedPlace, subscribers: tuple[str, ...], *, left: bool
    ) -> None:
        """Record an edit of a file. ``left``: the edit removes a leftover. Raises ``OSError``."""
        properties = resource.properties
        step = self._step(resource, place)
        if step is None:  # the edit fails, or does nothing
            return
        before, after = step
        reference = f"{resource.type_name}#{properties.name}"
        line = Edited(reference, place.real, self._trial, file=place.path, left=left, noted=time.time_ns())
        known = self._copies.objects.get(key_of(line))
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
            made = resource.made(properties) if isinstance(resource, Edit) else Made(place.path)
            line = msgspec.structs.replace(line, made=made)
        self._begin()
        self._copies.append(self._with_copy(line, before, after))

    def _step(self, resource: Resource[Any, Any], place: EditedPlace) -> tuple[bytes | None, bytes] | None:
        """Return a text without and with the edit. Both include earlier edits if the edit requires them."""
        begin, planned = self._planned.get(place.real, (place.content, place.content))
        if begin != place.content:
            planned = place.content
        steps = [
            (each, after)
            for each in (place.content, planned)
            if (after := _edited(resource, each)) is not None
        ]
        self._planned[place.real] = (place.content, steps[-1][1] if steps else planned)
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


def _edited(resource: Resource[Any, Any], text: bytes | None) -> bytes | None:
    with contextlib.suppress(ResourceError):
        return resource.edited_content(resource.properties, text)
    return None


def _has_part(resource: Resource[Any, Any], before: bytes | None) -> bool:
    """Return whether a text has such a part, in any form. ``True`` if the text cannot be read."""
    try:
        return before is not None and resource.finds_part(resource.properties, before)
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
    """Return the file before an edit and after it. Raise ``ResourceError`` for a missing copy."""
    before = copies.text_of(line)
    if before is None and line.copy:
        raise ResourceError(f"{copies.path_of(line)}: the copy is missing")
    return Texts(before, with_hunks(before or b"", line.hunks))


class TakenOut(NamedTuple):
    """The result of removing an edit from a text."""

    now: Now
    text: bytes | None = None
    """The text without the edit. ``None`` if reverting the edit removes the file."""
    needed_by: frozenset[str] = frozenset()
    """Bundles whose declared edits require the edit, which stays for them."""


def take_out(
    line: Edited, copies: TrialCopies, text: bytes, declared: Iterable[tuple[str, Part]]
) -> TakenOut:
    """Remove an edit from a text. ``declared`` are the declared edits of the file, each with its bundle.

    Raise ``ResourceError`` for a text that cannot be edited, and for a missing copy.
    """
    texts = texts_of(line, copies)
    Text.of(text)  # raises
    satisfied = [(bundle, part) for bundle, part in declared if _is_satisfied(part, text)]
    result, has_conflict = texts.reversed_in(text)
    result = _without_part(line, result)
    needed_by = _needing(satisfied, result)
    if needed_by and (result := _without_part(line, text)) != text:
        # Another edit may need the lines around the part, such as the header of a section.
        needed_by = _needing(satisfied, result)
    if needed_by:
        return TakenOut(Now.AS_TRIAL, text, needed_by)
    if result == text:
        return TakenOut(Now.FOREIGN if has_conflict and line.made is None else Now.AS_BEFORE, text)
    return TakenOut(Now.EDITED, result if result or texts.before is not None else None)


def _without_part(line: Edited, text: bytes) -> bytes:
    """Return a text without the part that an edit has added, if the part can be found."""
    type_name, _, name = line.reference.partition("#")
    if line.made is None:
        return text
    with contextlib.suppress(ResourceError):
        if type_name in EDITS:
            return without_part(line.reference, line.made, Text.of(text)).data
        if (remover := find_remover(type_name)) is not None:
            properties = remover.properties_type(name=name, ensure=str(ABSENT))
            return remover.edited_content(properties, text) or text
    return text


def _is_satisfied(part: Part, text: bytes | None) -> bool:
    with contextlib.suppress(ResourceError):
        return part.type.edited_content(part.properties, text) is None
    return False


def _needing(satisfied: Iterable[tuple[str, Part]], result: bytes) -> frozenset[str]:
    return frozenset(bundle for bundle, part in satisfied if not _is_satisfied(part, result or None))


def remove_from_other_records(
    taken_out: Mapping[str, Sequence[Texts]], journals: Iterable[TrialCopies]
) -> None:
    """Remove reverted edits from the records of all other edits. Raise ``OSError``."""
    for copies in journals:
        for line in [*copies.objects.values()]:
            if isinstance(line, Edited) and line.path in taken_out and not line.lost:
                _remove_from(line, copies, taken_out[line.path])


def _remove_from(line: Edited, copies: TrialCopies, taken_out: Sequence[Texts]) -> None:
    try:
        texts = texts_of(line, copies)
    except ResourceError:  # reported when this edit is removed
        return
    before, after = texts
    for other in taken_out:
        before, after = other.removed_from(before), other.removed_from(after) or b""
    hunks = tuple(hunks_between(before or b"", after))
    is_same = _replaced(before, hunks) == _replaced(texts.before, line.hunks)
    if is_same and (before is None) == (texts.before is None):
        return  # the lines around an edit may be outdated
    copy = 0 if before is None else copies.copy([before])
    copies.append(msgspec.structs.replace(line, hunks=hunks, copy=copy, size=len(before or b"")))


def _replaced(before: bytes | None, hunks: Iterable[Hunk]) -> list[tuple[list[bytes], tuple[bytes, ...]]]:
    lines = (before or b"").splitlines(keepends=True)
    return [(lines[hunk.first : hunk.last], hunk.lines) for hunk in hunks]


# Heirs of edits.

_TREES = ("yaml", "toml", "json")


class Heir(NamedTuple):
    """A declared edit of an object that another resource has created."""

    bundle: str
    reference: str
    file: str
    owner_file: str
    """The file in the spelling of the owner."""


class Inheritance:
    """The owners and heirs of one run. ``state`` is the state directory. Methods raise ``OSError``."""

    def __init__(self, state: Path, *, noop: bool = False) -> None:
        self._receipts = Receipts(state, noop=noop)

    @staticmethod
    def edits_in(bundle: str, declarations: Iterable[Declaration]) -> Iterator[tuple[str, Part]]:
        """Yield the managed edits of files among the declarations of a bundle, each with the bundle."""
        for declaration in declarations:
            if isinstance(declaration.properties, EditProperties) and is_managed(declaration):
                yield bundle, Part(declaration.reference, declaration.type, declaration.properties)

    def heirs(
        self,
        edits: Sequence[tuple[str, Part]],
        is_owner: Callable[[str], bool],
        canonical: Callable[[str], str],
    ) -> dict[str, list[Heir]]:
        """Return the heirs by owner. ``edits`` have an unknown origin.

        Files are compared in their ``canonical`` form, because two bundles may spell one path differently.
        """
        result: dict[str, list[Heir]] = {}
        receipts: dict[str, list[Receipt]] = {}
        for receipt in self._receipts.all() if edits else ():
            receipts.setdefault(canonical(receipt.path), []).append(receipt)
        for bundle, edit in edits:
            reference, file = str(edit.reference), edit.properties.file
            edited = _object_of(edit.type.made(edit.properties))  # type: ignore[attr-defined]  # it is an edit
            for receipt in receipts.get(canonical(file), ()):
                for owner, made in receipt.edits.items():
                    if owner != reference and _object_of(made) == edited and is_owner(owner):
                        result.setdefault(owner, []).append(Heir(bundle, reference, file, receipt.path))
        return result

    def copy(self, owner: str, heir: Heir) -> None:
        """Copy the receipt of the owner to an heir."""
        made = self._receipts.edits_of(heir.owner_file).get(owner)
        if made is not None:
            made = msgspec.structs.replace(made, path=heir.file)
            self._receipts.note(heir.file, {heir.reference: made}, {})

    def forget(self, owner: str, heir: Heir) -> None:
        """Remove the receipt of the former owner."""
        self._receipts.forget(heir.owner_file, owner)


def _object_of(made: Made) -> Hashable:
    """Return the object of a receipt, without its value."""
    is_tree = made.format in _TREES
    path = tuple(made.key.split(".")) if is_tree and isinstance(made.key, str) else made.key
    return made.lines[-1:], made.marker, is_tree, made.section, path
