"""The plan that reverts the changes of trials, for the bundles that are applied now.

* ``decisions`` decides about each object of the journals. The steps are resources of a plan beside the catalog, and
  declared resources do not see them.
* If several trials have changed one path, they are reverted from the newest to the oldest.
* A journal entry is removed after its step. If a run is interrupted before that, the next run reads the same journal
  and skips completed steps.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from puller.errors import ConfigurationError, PullerError, ResourceError
from puller.manifest.problems import decode
from puller.reporting.report import Event, State
from puller.resources.base import Part
from puller.resources.content_sources import sha256
from puller.resources.edits.planned_edits import Made as Receipt
from puller.resources.files.file_properties import FileProperties
from puller.resources.files.leftover_files import LeftoverFile, Original, Restored, RestoredProperties
from puller.resources.registry import find_type
from puller.run.leftovers import reversal_rules
from puller.run.leftovers.declared_resources import Declared
from puller.run.leftovers.observers import LARGEST_TEXT, original_of
from puller.run.leftovers.removals import Phase, Step, removal
from puller.run.leftovers.reversal_rules import Action, Before, Ending, Now, merged_text
from puller.run.leftovers.shared_edits import TakenOut, Texts, take_out, texts_of
from puller.run.leftovers.trial_copies import (
    Changed,
    Done,
    Edited,
    Made,
    NewState,
    Object,
    TrialCopies,
    Was,
    key_of,
)
from puller.system.local import LocalSystem
from puller.values.common_properties import ABSENT


class Undo(msgspec.Struct):
    """The plan for one journal."""

    bundle: str
    copies: TrialCopies
    ending: Ending
    objects: dict[str, Object]
    """The objects of trials that have ended."""
    steps: list[tuple[str, Object]] = []
    """The references of steps, each with an object that the step is for."""
    held: set[str] = set()
    """Keys of objects that declared resources handle."""
    forgotten: set[str] = set()
    """Keys of objects that need no action."""
    waiting: set[str] = set()
    """Keys of objects that the next run reverts."""
    reported: list[Object] = []
    """Objects that cannot be undone."""
    returned: dict[str, str] = {}
    """Objects that existed before Puller, by path or reference, with the steps that restore them. Empty: no step."""

    def returned_by(self, events: Iterable[Event]) -> set[str]:
        """Return the paths and references of objects that are again as they were before Puller."""
        failed = _failed(events)
        return {key for key, step in self.returned.items() if step not in failed}

    def restored(self) -> set[str]:
        """Return the files that existed before the trial, with any origin."""
        return {line.reference for _, line in self.steps if _existed_before(line)}

    def done(self, events: Iterable[Event]) -> set[str]:
        """Return the references of completely reverted resources."""
        unfinished = self.unfinished(events)
        pairs = [(step in unfinished, line.reference) for step, line in self.steps]
        open_ = {reference for is_failed, reference in pairs if is_failed}
        # An edit that another reversal has already removed.
        forgotten = (self.objects[key] for key in self.forgotten)
        edits = (line for line in forgotten if isinstance(line, Edited) and not line.left)
        pairs += [(False, line.reference) for line in edits]
        return {reference for _, reference in pairs} - open_ - {line.reference for line in self.reported}

    def unfinished(self, events: Iterable[Event]) -> set[str]:
        """Return the steps that the next run repeats.

        These are failed steps, and removals of directories in which another removal has failed.
        """
        events = [*events]
        failed = _failed(events)
        staying = {event.reference for event in events if event.reversal and event.final_ensure != ABSENT}
        waiting = {
            step
            for step, line in self.steps
            if step in staying
            and isinstance(line, Changed)
            and line.original.kind == ABSENT
            and any(reference.partition("#")[2].startswith(f"{line.path}/") for reference in failed)
        }
        return failed | waiting

    def not_undone(self) -> list[str]:
        """Return sentences about the objects that cannot be undone."""
        return [_sentence(line) for line in self.reported]

    def conclude(
        self, events: Iterable[Event], touched: Iterable[str], *, passed: bool, is_last: bool
    ) -> set[str]:
        """Remove reverted objects from the journal. Return the keys that are needed also if the bundle passes.

        ``touched`` are the objects that the run has changed again. Without ``passed`` the current version is on trial.
        It ``is_last`` if no other bundle of the host is on trial. Raise ``OSError``.
        """
        unfinished = self.unfinished(events)
        waiting = self.waiting | {key_of(line) for step, line in self.steps if step in unfinished}
        owed = waiting | (set() if is_last else self.held)
        if passed:
            self.copies.keep(owed)
        else:
            done = (*(line for _, line in self.steps), *self.reported)
            planned = {key_of(line) for line in done} | self.forgotten
            self.copies.keep(self.copies.objects.keys() - (planned - waiting - self.held - {*touched}))
        return owed


def is_decided(line: Object, copies: TrialCopies, declared: Declared) -> bool:
    """Return whether declared resources alone determine an object, independent of the trial."""
    if isinstance(line, Changed | Edited):
        if declared.part_in(line.path) in (reversal_rules.Declared.WHOLE, reversal_rules.Declared.PURGED):
            return True
        return isinstance(line, Edited) and _is_needed(line, copies, declared)
    return line.reference in declared.names or declared.find_successor(line.reference) is not None


def _is_needed(line: Edited, copies: TrialCopies, declared: Declared) -> bool:
    with contextlib.suppress(OSError, ResourceError):
        text = LocalSystem().read(line.path)
        return bool(take_out(line, copies, text, parts_of(line.path, declared)).needed_by)
    return False


def parts_of(path: str, declared: Declared) -> list[tuple[str, Part]]:
    """Return the declared edits of a file, each with its bundle."""
    edits = declared.edits_of(path)
    return [(bundle, Part(each.reference, each.type, each.properties)) for bundle, each in edits]


def _failed(events: Iterable[Event]) -> set[str]:
    return {event.reference for event in events if event.state in (State.FAILED, State.SKIPPED)}


class _Current(NamedTuple):
    """The planned state of a path. ``content`` is set if an earlier step determines it."""

    state: Original
    content: bytes | None = None
    size: int = 0


class Planner:
    """Plans the steps for several journals at once."""

    def __init__(self, declared: Declared, state: Path, *, packages: bool) -> None:
        """``state`` is the state directory. ``packages``: remove packages that a trial has installed."""
        self._declared, self._state = declared, state
        self._packages = packages
        self._system = LocalSystem()
        self._planned: dict[str, _Current] = {}
        """The planned states, by path."""
        self._held: set[str] = set()
        """The paths of trial objects that declared resources handle."""
        self.steps: dict[str, Step] = {}
        """By reference."""
        self.receipts: list[tuple[str, str, Receipt | None]] = []
        """Files and references of edits, each with the receipt from before the trial. The newest trial comes first."""
        self._edits: dict[str, list[tuple[str, Part]]] = {}
        self._taken_out: list[tuple[Undo, Edited]] = []
        self._undos: list[Undo] = []

    def plan(self, undos: list[Undo]) -> None:
        """Plan all steps. Paths below the state directory are Puller's own records, and are left out."""
        owned_below = f"{self._state}/"
        self._undos = undos
        lines = [(undo, line) for undo in undos for line in undo.objects.values()]
        for undo, line in self._in_order(lines):
            if not (isinstance(line, Changed) and line.path.startswith(owned_below)):
                self._plan_object(undo, line)
        self._clear_the_way()

    def _in_order(self, lines: list[tuple[Undo, Object]]) -> Iterator[tuple[Undo, Object]]:
        """Return the newest change first, so that the step for the oldest change has priority."""
        noted = {id(line): line.noted for _, line in lines if not isinstance(line, Done)}
        latest = 0
        ages = []
        for number, (_, line) in enumerate(
            lines
        ):  # lines without a time have the time of the line before them
            latest = noted.get(id(line), latest)
            ages.append((latest, number))
        order = sorted(range(len(lines)), key=ages.__getitem__, reverse=True)
        return (lines[number] for number in order)

    def _plan_object(self, undo: Undo, line: Object) -> None:
        match line:
            case Changed():
                action, step = self._path(undo, line)
            case Edited():
                action, step = self._edit(undo, line)
            case _:
                action, step = self._resource(undo, line)
        match action:
            case Action.HOLD:
                undo.held.add(key_of(line))
            case Action.FORGET:
                undo.forgotten.add(key_of(line))
            case _ if step is None:
                if undo.ending is Ending.GIVEN_UP:
                    undo.reported.append(line)
                else:
                    undo.forgotten.add(key_of(line))
            case _:
                reference = str(step.reference)
                undo.steps.append((reference, line))
                self.steps.pop(reference, None)
                self.steps[reference] = msgspec.structs.replace(step, bundle=undo.bundle)
        if isinstance(line, Changed | Was):
            self._note_returned(undo, line, action, step)

    def _note_returned(self, undo: Undo, line: Changed | Was, action: Action, step: Step | None) -> None:
        """Record an object that has its state before Puller again, or a later change by another program."""
        key = line.path if isinstance(line, Changed) else line.reference
        for other in self._undos:  # the oldest change of an object counts
            other.returned.pop(key, None)
        if line.foreign and action is not Action.HOLD:
            undo.returned[key] = "" if step is None else str(step.reference)

    # Resources

    def _resource(self, undo: Undo, line: Made | Was | Done) -> tuple[Action, Step | None]:
        before = {Made: Before.ABSENT, Was: Before.PRESENT, Done: Before.UNKNOWN}[type(line)]
        is_declared = line.reference in self._declared.names or self._declared.find_successor(line.reference)
        part = reversal_rules.Declared.WHOLE if is_declared else reversal_rules.Declared.NOTHING
        action = reversal_rules.decide(undo.ending, before, Now.AS_TRIAL, part)
        if isinstance(line, Was):
            return action, _as_it_was(line)
        type_name = line.reference.partition("#")[0]
        if isinstance(line, Done) or (type_name == "package" and not self._packages):
            return action, None
        step = removal(line.reference, line.subscribers)
        if step is None or undo.ending is Ending.REPLACED or self._is_replaced(step):
            return action, step
        return action, msgspec.structs.replace(step, phase=Phase.EARLY)

    def _is_replaced(self, step: Step) -> bool:
        """Return whether a declared resource may replace an object of the trial, so it is applied first."""
        if step.type.type_name == "package":  # removing it could remove dependencies of the new package
            return True
        return any(map(self._declared.fills_at, step.type.occupies(step.properties, self._state)))

    # Paths

    def _path(self, undo: Undo, line: Changed) -> tuple[Action, Step | None]:
        new_state = undo.copies.new_states.get(line.path)
        try:
            current = self._planned.get(line.path) or self._look(line.path)
            now, content = self._compare(undo.copies, line, new_state, current)
        except (OSError, PullerError):  # the step reports the error
            current, now, content = _Current(Original("unknown")), Now.AS_TRIAL, None
        part = self._declared.part_in(line.path)
        action = reversal_rules.decide(undo.ending, _before(line), now, part)
        if now is Now.FOREIGN and line.path in self._held:
            action = Action.HOLD  # the current state is that of a newer trial, which is held
        if action in (Action.HOLD, Action.FORGET, Action.REPORT):
            self._held |= {line.path} if action is Action.HOLD else set()
            return action, None
        if action is Action.MERGE and content is None:
            return action, None
        is_absent = line.original.kind == ABSENT and (
            action is not Action.MERGE or (not content and part is reversal_rules.Declared.NOTHING)
        )
        if is_absent:
            self._planned[line.path] = _Current(Original(ABSENT))
            is_late = undo.ending is Ending.REPLACED
            properties = FileProperties(name=line.path, ensure=str(ABSENT))
            return action, Step(
                LeftoverFile, properties, line.subscribers, Phase.LATE if is_late else Phase.EARLY
            )
        return action, self._restoration(undo.copies, line, new_state, current, content)

    # Edits

    def _edit(self, undo: Undo, line: Edited) -> tuple[Action, Step | None]:
        """Return the action for an edit, and the step that writes the file without all planned edits."""
        current, taken, is_copied = _Current(Original("unknown")), TakenOut(Now.FOREIGN), not line.lost
        with contextlib.suppress(OSError, ResourceError):  # the edit then stays and is reported
            current = self._planned.get(line.path) or self._look(line.path)
            if current.state.kind == ABSENT:
                taken = TakenOut(Now.AS_BEFORE)
            elif current.state.kind == "present" and is_copied:
                data = self._system.read(line.path) if current.content is None else current.content
                taken = take_out(line, undo.copies, data, self._edits_of(line.path))
        before = Before.PRESENT if line.made is None else Before.ABSENT
        before = Before.LEAVING if line.left else before if is_copied else Before.UNKNOWN
        action = reversal_rules.decide(undo.ending, before, taken.now, self._part_of(line, taken))
        if action is not Action.HOLD and not (line.left and undo.ending is Ending.REPLACED):
            self.receipts.append((line.file, line.reference, line.receipt))
            if is_copied and action is not Action.REPORT:
                self._taken_out.append((undo, line))
        if action is not Action.MERGE:
            return action, None
        return action, self._written(line, current, taken.text)

    def _edits_of(self, path: str) -> list[tuple[str, Part]]:
        if path not in self._edits:
            self._edits[path] = parts_of(path, self._declared)
        return self._edits[path]

    def _part_of(self, line: Edited, taken: TakenOut) -> reversal_rules.Declared:
        """Return the role of declared resources in the lines of an edit."""
        part = self._declared.part_in(line.path)
        if taken.needed_by or part is reversal_rules.Declared.WHOLE:
            return reversal_rules.Declared.WHOLE
        if part is reversal_rules.Declared.PURGED:
            return part
        is_declared = line.reference in self._declared.names and line.made is None
        return reversal_rules.Declared.PART if is_declared else reversal_rules.Declared.NOTHING

    def _written(self, line: Edited, current: _Current, content: bytes | None) -> Step:
        known = self.steps.get(f"file#{line.path}")
        subscribers = tuple(dict.fromkeys((*line.subscribers, *(known.subscribers if known else ()))))
        if content is None and self._declared.part_in(line.path) is reversal_rules.Declared.PART:
            content = b""  # declared edits of the file follow
        if content is None:
            self._planned[line.path] = _Current(Original(ABSENT))
            properties = FileProperties(name=line.path, ensure=str(ABSENT))
            return Step(LeftoverFile, properties, subscribers, Phase.EARLY)
        self._planned[line.path] = _Current(current.state, content)
        original = RestoredProperties(
            name=line.path, ensure="present", original=current.state, content=content
        )
        return Step(Restored, original, subscribers, Phase.EARLY)

    def taken_out(self, events: Iterable[Event]) -> dict[str, list[Texts]]:
        """Return the edits that a run has removed from their files, by path, the newest first."""
        failed, result = _failed(events), dict[str, list[Texts]]()
        for undo, line in self._taken_out:
            if f"file#{line.path}" not in failed:
                with contextlib.suppress(ResourceError):
                    result.setdefault(line.path, []).append(texts_of(line, undo.copies))
        return result

    # States

    def _look(self, path: str) -> _Current:
        status = self._system.lstat(path)
        return _Current(original_of(path, status, self._system), size=status.st_size if status else 0)

    def _compare(
        self, copies: TrialCopies, line: Changed, new_state: NewState | None, current: _Current
    ) -> tuple[Now, bytes | None]:
        """Compare the current state with those before and after the trial. Return also the merged text of a file."""
        before, now = line.original, current.state
        trial = new_state.state if new_state is not None else None
        if now.kind == ABSENT:
            is_by_trial = trial is None or trial.kind == ABSENT
            return (Now.GONE if is_by_trial and before.kind != ABSENT else Now.AS_BEFORE), None
        if now == before and now.kind != "present":
            return Now.AS_BEFORE, None
        if new_state is None or trial is None:
            return Now.AS_TRIAL, None
        if now.kind != trial.kind:
            return Now.FOREIGN, None
        if now.kind == "symbolic link":
            return (Now.AS_TRIAL if now.target == trial.target else Now.FOREIGN), None
        if now.kind != "present" or new_state.same_content or not new_state.sha256:
            return Now.AS_TRIAL, None
        return self._compare_content(copies, line, new_state, current)

    def _compare_content(
        self, copies: TrialCopies, line: Changed, new_state: NewState, current: _Current
    ) -> tuple[Now, bytes | None]:
        if current.content is None and (
            line.path in self._planned or self._digest(line.path) == new_state.sha256
        ):
            return Now.AS_TRIAL, None
        if current.content is not None and sha256([current.content]) == new_state.sha256:
            return Now.AS_TRIAL, None
        is_first = line.original.kind == ABSENT and not new_state.is_shared
        is_small = current.content is not None or current.size <= LARGEST_TEXT
        changed = copies.text_of(new_state) if is_small and not is_first else None
        before = b"" if line.original.kind == ABSENT else copies.text_of(line)
        if changed is None or before is None:
            return Now.FOREIGN, None
        now = self._system.read(line.path) if current.content is None else current.content
        if now == changed:
            return Now.AS_TRIAL, None
        merged = merged_text(before, changed, now)
        if merged is None or (merged == now and line.original.kind == ABSENT):
            return Now.FOREIGN, None
        if merged == now == before and line.original == current.state:
            return Now.AS_BEFORE, None
        return Now.EDITED, merged

    def _digest(self, path: str) -> str:
        return sha256(self._system.read_chunks(path))

    def _restoration(
        self,
        copies: TrialCopies,
        line: Changed,
        new_state: NewState | None,
        current: _Current,
        content: bytes | None,
    ) -> Step:
        """Return the step that restores a path. Attributes that another program has changed stay."""
        before, now = line.original, current.state
        trial = new_state.state if new_state is not None else None
        target = before if before.kind != ABSENT else now
        if trial is not None and now.kind == trial.kind == before.kind:
            names = ("uid", "gid", "mode", "labels")
            target = msgspec.structs.replace(
                before,
                **{each: getattr(now, each) for each in names if getattr(now, each) != getattr(trial, each)},
            )
        is_kept = new_state is not None and new_state.same_content and now.kind == "present"
        copy = "" if is_kept or content is not None else copies.path_of(line)
        properties = RestoredProperties(
            name=line.path, ensure=target.kind, original=target, copy=copy, content=content
        )
        if content is None and copy and line.size <= LARGEST_TEXT:
            content = copies.text_of(line)
        self._planned[line.path] = _Current(target, content)
        return Step(Restored, properties, line.subscribers, Phase.EARLY)

    def _clear_the_way(self) -> None:
        """Move removals first if they are at or below a path that is restored as another kind of file."""
        restored = {
            str(step.properties.name)
            for step in self.steps.values()
            if step.type is Restored and step.properties.ensure != "directory"
        }
        for reference, step in self.steps.items():
            name = str(step.properties.name)
            if step.phase is Phase.LATE and any(name.startswith(f"{path}/") for path in restored):
                self.steps[reference] = msgspec.structs.replace(step, phase=Phase.EARLY)


def _existed_before(line: Object) -> bool:
    """Return whether the object of a resource existed before the trial, as a file or a part of a file."""
    if isinstance(line, Changed):
        return line.original.kind != ABSENT and line.reference == f"file#{line.path}"
    return isinstance(line, Edited) and line.made is None


def _before(line: Changed) -> Before:
    if line.original.kind == ABSENT:
        return Before.ABSENT
    if line.left:
        return Before.LEAVING
    return Before.UNKNOWN if line.lost else Before.PRESENT


def _as_it_was(line: Was) -> Step | None:
    """Return the step that restores a resource. ``None`` if its type is missing or incompatible."""
    try:
        resource_type = find_type(line.reference.partition("#")[0])
        if resource_type is not None:
            return Step(resource_type, decode(resource_type, line.properties), line.subscribers, Phase.EARLY)
    except (ConfigurationError, msgspec.ValidationError):
        pass
    return None


def _sentence(line: Object) -> str:
    match line:
        case Changed():
            why = (
                f"it {line.lost}"
                if line.lost
                else "it has been changed outside Puller since then, so it stays"
            )
            return f"file#{line.path} was changed: {why}"
        case Edited():
            why = (
                f"it {line.lost}"
                if line.lost
                else "the same lines have been changed again since then, so they stay"
            )
            return f"{line.reference} has changed {line.path}: {why}"
        case Made():
            return f"{line.reference} was created, and stays"
        case _:
            return f"{line.reference} was changed or run"


def ordered_steps(steps: Mapping[str, Step]) -> list[Step]:
    """Return the steps in order: removals in the order of the plan, then directories before their contents."""
    removals = [step for step in steps.values() if step.type is not Restored]
    restored = [step for step in steps.values() if step.type is Restored]
    return [*removals, *sorted(restored, key=lambda step: str(step.properties.name))]
