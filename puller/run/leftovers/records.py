"""Receipts (Puller's own records of created parts), reverted together with the changes of a trial.

A receipt may refer to several bundles and to resources that are still declared, so it is merged and never replaced. A
receipt is not a resource: no bundle declares it, and no report lists it.
"""

import json
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from puller.errors import file_problem
from puller.reporting.report import Event
from puller.resources.edits.planned_edits import Made, Receipts
from puller.run.leftovers.declared_resources import Declared
from puller.run.leftovers.reversal_rules import Ending, merged_record
from puller.run.leftovers.trial_copies import Changed
from puller.run.leftovers.undo import Undo
from puller.state import write_state
from puller.values.common_properties import ABSENT

_CONTENTS = ("files", "directories")
"""The members of receipts with created objects. A receipt without them is removed."""


def restore_edit_receipts(
    receipts: Iterable[tuple[str, str, Made | None]],
    declared: Collection[str],
    state: Path,
    warn: Callable[[str], None],
) -> None:
    """Restore the receipts of edits from before a trial, except for ``declared`` resources."""
    try:
        for file, reference, made in receipts:
            if reference not in declared:
                Receipts(state).replace(file, reference, made)
    except OSError as error:  # as on a full disk
        warn(file_problem(error))


def restore_records(
    undos: Iterable[Undo], declared: Declared, owned_below: str, warn: Callable[[str], None]
) -> None:
    """Revert the changes of trials in all records below a directory. The next run retries failures.

    A newer version, and other bundles, need the receipts of the trees and scaffolds that they declare.
    """
    for undo in undos:
        heirs = _heirs(undo, declared)
        for line in undo.objects.values():
            if isinstance(line, Changed) and line.path.startswith(owned_below):
                try:
                    if undo.ending is Ending.REPLACED and _steps_of(undo, line):
                        undo.waiting.add(line.path)
                        continue
                    if undo.ending is Ending.GIVEN_UP or not line.left:
                        _restore(undo, line, heirs)
                    undo.forgotten.add(line.path)
                except OSError as error:  # as on a full disk
                    warn(file_problem(error))
                    undo.waiting.add(line.path)


def restore_waiting_records(
    undos: Iterable[Undo], declared: Declared, events: Iterable[Event], warn: Callable[[str], None]
) -> None:
    """Revert the receipts whose objects the run has removed. The others wait: their objects may be declared again."""
    events = [*events]
    for undo in undos:
        unfinished = undo.unfinished(events)
        lines = [
            line for key, line in undo.objects.items() if key in undo.waiting and isinstance(line, Changed)
        ]
        for line in lines:
            try:
                if unfinished.isdisjoint(_steps_of(undo, line)):
                    _restore(undo, line, _heirs(undo, declared))
                    undo.waiting.discard(line.path)
                    undo.forgotten.add(line.path)
            except OSError as error:  # as on a full disk
                warn(file_problem(error))


def _heirs(undo: Undo, declared: Declared) -> Collection[str]:
    """Return the resources that need receipts of a trial: those of a newer version, and of other bundles."""
    return declared.names_without({undo.bundle}) if undo.ending is Ending.GIVEN_UP else declared.names


def _steps_of(undo: Undo, line: Changed) -> set[str]:
    """Return the steps that remove the objects of a receipt."""
    record = _read(Path(line.path)) or {}
    root = record.get("root") or record.get("target")
    steps = [(step, each.path) for step, each in undo.steps if isinstance(each, Changed)]
    return {step for step, path in steps if root and (path == root or path.startswith(f"{root}/"))}


def _restore(undo: Undo, line: Changed, heirs: Collection[str]) -> None:
    copies, path = undo.copies, Path(line.path)
    now = _read(path)
    if now is None and line.original.kind == "directory":
        return
    new_state = copies.new_states.get(line.path)
    text = copies.text_of(new_state) if new_state is not None else None
    changed = now if text is None else _parsed(text)
    if now is None and changed is None and line.original.kind != "present":
        return
    before_text = copies.text_of(line)
    before = _parsed(before_text) if before_text is not None else None
    record = _merged(before, changed, now, heirs)
    if undo.ending is Ending.GIVEN_UP:
        record = _without_removed(record, undo)
    if any(record.get(name) for name in _CONTENTS):
        if record != now:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_state(path, json.dumps(record, separators=(",", ":")).encode())
    elif path.is_file():
        path.unlink()
        with suppress(OSError):  # the directory has other records
            path.parent.rmdir()


def _without_removed(record: dict[str, Any], undo: Undo) -> dict[str, Any]:
    """Return the receipt without the objects that the steps of a reversal remove."""
    removed = {
        line.path for _, line in undo.steps if isinstance(line, Changed) and line.original.kind == ABSENT
    }
    root = record.get("root") or record.get("target")

    def stays(name: str) -> bool:
        return (f"{root}/{name}" if name else root) not in removed

    results = {**record}
    if files := record.get("files"):
        results["files"] = {name: digest for name, digest in files.items() if stays(name)}
    if directories := record.get("directories"):
        results["directories"] = [name for name in directories if stays(name)]
    return results


def _merged(before: Any, changed: Any, now: Any, heirs: Collection[str]) -> dict[str, Any]:
    skeleton = {
        name: value if isinstance(value, str | int) else type(value)()
        for each in (changed, now, before)
        if each is not None
        for name, value in each.items()
    }
    records = [{**skeleton, **(each or {})} for each in (before, changed, now)]
    target = skeleton.get("target")
    if f"file#{target}" in heirs or f"scaffold#{target}" in heirs:
        return records[2]
    record: dict[str, Any] = merged_record(*records)
    return record


def _read(path: Path) -> Any:
    try:
        return _parsed(path.read_bytes()) if not path.is_dir() else None
    except FileNotFoundError:
        return None


def _parsed(text: bytes) -> Any:
    try:
        result = json.loads(text)
    except ValueError:
        return None
    return result if isinstance(result, dict) else None
