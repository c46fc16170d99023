"""The way back from a bundle on trial: what it has changed, as resources of the run that brings back another bundle.

* What it has made is taken away, the last made first; then what it has changed is made what it was, a directory before
  what is in it. All of it before what the bundle that is applied now declares.
* What is declared now is left to that declaration, unless that does not say all of its content.
* The journal is shortened when the run has done it. Cut short before that, the next run finds the same journal, and
  nothing to do for what is done.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from puller.errors import ConfigurationError
from puller.manifest.properties import decode
from puller.reporting.report import Event, State
from puller.resources.files.left import LeftFile
from puller.resources.files.properties import FileProperties
from puller.resources.files.restored import Restored, RestoredProperties
from puller.resources.registry import find_type
from puller.run.left.declared import Declared
from puller.run.left.removals import TakenBack, removal
from puller.run.left.trial_copies import Began, Changed, Done, Line, Made, TrialCopies, Was
from puller.values.removed import ABSENT


class Undo(msgspec.Struct, frozen=True):
    """The plan for one journal: ``resources`` do it, and ``remaining`` are lines that nothing can be done for."""

    copies: TrialCopies
    resources: list[TakenBack]
    lines: dict[str, Line]
    """The lines that the resources are for, by their references."""
    kept: list[Line]
    """The lines of what is declared now: they are needed if that is given up, too."""
    remaining: list[Line]
    """The lines of what cannot be undone."""
    began: Began
    """The trial that is undone."""

    def done(self, events: Iterable[Event]) -> set[str]:
        """The resources of which everything is undone, by the references under which they were declared."""
        failed = _failed(events)
        pairs = [(reference in failed, line) for reference, line in self.lines.items()]
        not_done = {_owner(line) for is_failed, line in pairs if is_failed} | {*map(_owner, self.remaining)}
        return {_owner(line) for _, line in pairs} - not_done

    def noted(self, taken_back: TakenBack) -> int:
        """When it was kept what one of the resources brings back; see ``Changed.noted``."""
        line = self.lines[taken_back.reference]
        return line.noted if isinstance(line, Changed | Was) else 0

    def restored(self) -> set[str]:
        """The files that were there before the trial, whoever made them."""
        paths = (line for line in self.lines.values() if isinstance(line, Changed) and _was_there(line))
        return {line.reference for line in paths if line.reference == f"file#{line.path}"}

    def not_undone(self) -> list[str]:
        """Sentences of what cannot be undone."""
        return [_sentence(line) for line in self.remaining]

    def conclude(self, events: Iterable[Event], *, passed: bool, is_last: bool) -> list[Line]:
        """Shorten the journal by what is done; gives what of it is needed also when the bundle applied now passes.

        Without ``passed`` that is on trial itself; it ``is_last`` when no other bundle of the host is. Raises
        ``OSError``.
        """
        failed = _failed(events)
        not_done = [line for reference, line in self.lines.items() if reference in failed]
        owed = self._with_its_begin([*not_done, *(() if is_last else self.kept)])
        if passed:
            self.copies.keep(owed)
        else:
            dropped = {*map(id, self.lines.values()), *map(id, self.remaining)} - {*map(id, not_done)}
            lines = [line for line in self.copies.lines if id(line) not in dropped]
            self.copies.keep(lines if any(not isinstance(line, Began) for line in lines) else [])
        return owed

    def _with_its_begin(self, lines: list[Line]) -> list[Line]:
        """These lines in the order of the journal, as those of the trial that made them; nothing without any."""
        wanted = {*map(id, lines)}
        in_order = [line for line in self.copies.lines if id(line) in wanted]
        return [self.began, *in_order] if in_order else []


def _failed(events: Iterable[Event]) -> set[str]:
    return {event.reference for event in events if event.state in (State.FAILED, State.SKIPPED)}


def _owner(line: Line) -> str:
    return "" if isinstance(line, Began) else line.reference


def plan(copies: TrialCopies, declared: Declared, *, packages: bool) -> Undo:
    """Decide about every line of the journal; ``packages`` says whether those that were installed are removed."""
    began = next(line for line in reversed(copies.lines) if isinstance(line, Began))
    undo = Undo(copies, [], {}, [], [], began)
    for line in _in_order(copies.lines):
        if isinstance(line, Began):
            continue
        if _is_declared(line, declared):
            undo.kept.append(line)
        elif (found := _taken_back(line, copies, packages=packages)) is None:
            undo.remaining.append(line)
        elif found.reference not in undo.lines:
            undo.resources.append(found)
            undo.lines[found.reference] = line
    return undo


def _in_order(lines: Sequence[Line]) -> Iterator[Line]:
    """What was made, the last first; then what was there, a directory before what is in it."""
    yield from (line for line in reversed(lines) if not _was_there(line))
    paths = [line for line in lines if isinstance(line, Changed) and _was_there(line)]
    yield from sorted(paths, key=lambda line: line.path)


def _was_there(line: Line) -> bool:
    return isinstance(line, Changed) and line.original.kind != ABSENT


def _is_declared(line: Line, declared: Declared) -> bool:
    """Whether the bundles that are applied now make of it what it should be."""
    if not isinstance(line, Changed):
        return isinstance(line, Began) or line.reference in declared.names
    if _was_there(line):
        return declared.is_whole(line.path)
    return declared.has_place(line.path) or declared.has_below(line.path)


def _taken_back(line: Line, copies: TrialCopies, *, packages: bool) -> TakenBack | None:
    if isinstance(line, Made):
        is_kept = line.reference.startswith("package#") and not packages
        return None if is_kept else removal(line.reference, line.subscribers)
    if isinstance(line, Was):
        return _as_it_was(line)
    if not isinstance(line, Changed) or line.lost:
        return None
    if not _was_there(line):
        return TakenBack(LeftFile, FileProperties(name=line.path, ensure=str(ABSENT)), line.subscribers)
    properties = RestoredProperties(
        name=line.path, ensure=line.original.kind, original=line.original, copy=copies.path_of(line)
    )
    return TakenBack(Restored, properties, line.subscribers)


def _as_it_was(line: Was) -> TakenBack | None:
    """The resource that makes of another what it was; ``None`` when its type is not there any more, or is another."""
    try:
        found = find_type(line.reference.partition("#")[0])
        if found is not None:
            return TakenBack(found, decode(found, line.properties), line.subscribers)
    except (ConfigurationError, msgspec.ValidationError):
        pass
    return None


def _sentence(line: Line) -> str:
    if isinstance(line, Changed):
        return f"file#{line.path} was changed: it {line.lost}"
    if isinstance(line, Made):
        return f"{line.reference} was made, and stays"
    return f"{line.reference} was changed or run" if isinstance(line, Done | Was) else ""
