"""Resolution of a bundle for many machines, each described only by its facts.

`SeparateResolver` resolves the bundle for each machine. `Shared` reuses outcomes for machines of the same kind:

1. If a machine has the same values for all facts that an earlier resolution has read, it has the same outcome.
2. Otherwise `Shared` resolves the bundle for the machine, and once more with watched facts to record the facts that
   the bundle reads. After many machines without a shared outcome, it watches only a few.
3. If the two outcomes differ, watching has changed the outcome. From then on nothing is shared.

The time grows with the number of kinds of machines. Each further machine costs only the comparison of its facts:

* A resolution reads facts only through ``Watched``. It is not a dict, so every access is recorded: a value, a missing
  value, or the names in a mapping and their order.
* Machines with equal answers to all questions have equal outcomes.
* Answers are compared by their ``repr``: 1, 1.0, true and "1" are four answers.
"""

import contextlib
import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hiera.errors import HieraError
from hiera.sops.identities import Identities, Opaque
from puller.authoring.preview.differences import Outcome, Refusal
from puller.authoring.preview.groups import Machine
from puller.authoring.resolution import resolve
from puller.data.sources import DataSource, Origin, Surroundings, read
from puller.errors import ConfigurationError, ManifestError, PullerError
from puller.manifest.libraries import FACTS, files_in
from puller.manifest.manifest import Inputs, ManifestSource
from puller.reporting.report import SentFacts, dotted

_ABSENT = "absent"
_MAPPING = "mapping"


class Read(msgspec.Struct, frozen=True, order=True):
    """One question: the value at a path, or the names in it."""

    path: tuple[Any, ...]
    is_names: bool = False

    def answer(self, facts: Mapping[str, Any]) -> str:
        """Return the answer of a machine with these facts."""
        value: Any = facts
        for key in self.path:
            if not isinstance(value, Mapping) or key not in value:
                return _ABSENT
            value = value[key]
        if isinstance(value, Mapping):
            return repr([*value]) if self.is_names else _MAPPING
        return f"={value!r}"


class Reads:
    """The questions of one resolution, without duplicates, in order."""

    def __init__(self) -> None:
        self._asked: dict[Read, None] = {}

    def note(self, path: tuple[Any, ...], *, is_names: bool = False) -> None:
        """Record a question."""
        self._asked[Read(path, is_names)] = None

    def questions(self) -> tuple[Read, ...]:
        """Return all questions so far."""
        return tuple(self._asked)


def answers(reads: Iterable[Read], facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the answers of a machine to all questions."""
    return tuple(read.answer(facts) for read in reads)


def missing(
    reads: Sequence[Read], facts: Mapping[str, Any], sent: SentFacts, outcome: Outcome
) -> Iterator[str]:
    """Yield the dotted names of the facts that were read and that the report of a machine lacks.

    If a whole group is missing, the resolution could read only its name.
    """
    absent = {fact for fact in reads if fact.path and fact.answer(facts) == _ABSENT}
    may_suggest = bool(absent) and _has_failures(outcome)
    for fact in reads:
        is_absent = fact in absent
        if not fact.path:
            # The error about an unknown fact lists all names for its suggestions.
            if fact.is_names and not may_suggest:
                yield "facts (all of them)"
        elif fact.is_names and not is_absent and not sent.has_all_of(fact.path):
            yield f"{dotted(fact.path)} (all of its keys)"
        elif not fact.is_names and is_absent and not sent.knows(fact.path):
            yield dotted(fact.path)


def _has_failures(outcome: Outcome) -> bool:
    return isinstance(outcome, Refusal) or any(resource.failures for resource in outcome.resources)


class Watched(Mapping[Any, Any]):
    """Facts, or a mapping in them, that record every access. Lists are read as a whole."""

    unlisted = True
    """A template reads only the names that it uses."""

    def __init__(self, values: Mapping[Any, Any], reads: Reads, path: tuple[Any, ...] = ()) -> None:
        self._values = values
        self._reads = reads
        self._path = path

    def __getitem__(self, key: Any) -> Any:
        path = (*self._path, key)
        self._reads.note(path)
        value = self._values[key]
        if isinstance(value, Mapping):
            return Watched(value, self._reads, path)
        # Callers may append to a list, which must not change the recorded answer.
        return copy.deepcopy(value) if isinstance(value, list) else value

    def __iter__(self) -> Iterator[Any]:
        self._reads.note(self._path, is_names=True)
        return iter(self._values)

    def __len__(self) -> int:
        self._reads.note(self._path, is_names=True)
        return len(self._values)

    def __deepcopy__(self, memo: object) -> dict[Any, Any]:
        # A copy of this object would record accesses that belong to no resolution.
        return self._plain()

    def __copy__(self) -> dict[Any, Any]:
        return self._plain()

    def __repr__(self) -> str:
        return repr(self._plain())

    def _plain(self) -> dict[Any, Any]:
        """Return all values as a dict, and record all of them as read."""
        result = {key: self[key] for key in self}
        return {key: value._plain() if isinstance(value, Watched) else value for key, value in result.items()}


_OPAQUE = Identities(opaque=Opaque.BY_CIPHERTEXT)
"""A changed ciphertext is shown as a change, since the preview has no key to compare the values."""


class Given(msgspec.Struct, frozen=True):
    """Inputs that are equal for both sides of a preview and for all machines."""

    key: bytes
    """Key of the fingerprints: 16 to 64 random bytes."""
    data_files: tuple[Path, ...] = ()
    assigned: tuple[DataSource, ...] = ()
    """Data of ``--set``."""
    private_key: str = ""
    """The file of the key for encrypted values. Empty for this host's key."""

    def inputs(self, facts: Mapping[str, Any]) -> Inputs:
        """Return the inputs of a machine, with an unknown environment. Raises ``ConfigurationError``."""
        sources = Surroundings(facts, {}, _OPAQUE).load(self.data_files, Origin.COMMAND_LINE)
        inputs = Inputs(facts, {}, (*sources, *self.assigned), identities=_OPAQUE)
        return msgspec.structs.replace(inputs, private_key=self.private_key) if self.private_key else inputs


class SeparateResolver:
    """Resolves the bundle at ``source`` separately for each machine."""

    def __init__(self, source: ManifestSource, given: Given, before: Iterable[ManifestSource] = ()) -> None:
        self.source = source
        self.given = given
        self.before = tuple(before)

    def __call__(self, machine: Machine) -> Outcome:
        return self.of(machine.facts)

    def of(self, facts: Mapping[str, Any]) -> Outcome:
        """Return the outcome of the bundle on a machine with these facts. Raises ``SourceError``."""
        try:
            return resolve(self.source, self.given.inputs(facts), key=self.given.key, before=self.before)
        except (ManifestError, ConfigurationError, HieraError) as error:
            return Refusal(error.problems)


def empty_documents(data_files: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence for each data document without data, because hosts refuse it as a document of the site.

    Raises ``ConfigurationError`` for a document without any text, which hosts refuse from every source.
    """
    for path in data_files:
        text = read(path)
        if not text.strip():
            raise ConfigurationError(f"{path}: is empty, and hosts reject an empty document")
        with contextlib.suppress(HieraError):  # an invalid document fails on every machine
            if Surroundings({}, {}, _OPAQUE).parse(text, str(path)).is_empty:
                yield f"{path} has no data, so hosts reject the document and keep the last good copy"


def unknown_facts(source: ManifestSource) -> str:
    """Return a sentence about facts from programs of a bundle, which do not run for other machines. Empty without
    any.
    """
    root = source.path.parent
    results = [os.path.relpath(path, root) for place in _places(source) for path in _programs(place / FACTS)]
    if not results:
        return ""
    return f"{source.name}: {', '.join(results)}: not run for other machines. {_GIVEN}"


_GIVEN = "Resources that use these facts fail if the facts of a machine lack them"
_DOCUMENTS = (".json", ".yaml", ".yml", ".txt")


def _places(source: ManifestSource) -> Iterator[Path]:
    """Yield the known directories of a bundle and its libraries. With a broken manifest, libraries are unknown."""
    yield source.path.parent
    with contextlib.suppress(PullerError):
        yield from (Path(library.root) for library in files_in(source.path.parent).libraries.values())


def _programs(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix.lower() not in _DOCUMENTS)
    except OSError:  # most bundles have none, and reading it later reports other errors
        return []


# Outcomes that machines of the same kind share.

_MOST_KEPT = 512
"""Maximum cached outcomes. A bundle that reads the name of every machine must not exhaust the memory."""
_MOST_SHAPES = 64
"""Maximum lists of questions to compare with a machine."""
_MOST_IN_VAIN = 200
"""Machines in a row without a shared outcome, after which only some are watched."""
_SELDOM = 16
"""One of this many is then watched, because a fleet sorted by name may have its similar machines last."""


def joined_missing(sides: Iterable["Shared"]) -> dict[str, tuple[str, ...]]:
    """Return the missing facts of both sides of a preview, each with the names of its machines."""
    names: dict[str, dict[str, None]] = {}
    for side in sides:
        for fact, of_side in side.missing.items():
            names.setdefault(fact, {}).update(dict.fromkeys(of_side))
    return {fact: tuple(of_fact) for fact, of_fact in names.items()}


class Shared:
    """Resolves each kind of machine once."""

    def __init__(self, resolver: SeparateResolver) -> None:
        self._resolver = resolver
        self._kept: dict[tuple[Read, ...], dict[tuple[str, ...], Outcome]] = {}
        self._count = 0
        self._in_vain = 0
        self._is_trusted = True
        """Whether watching has never changed an outcome."""
        self._asked: tuple[Read, ...] = ()
        """The questions of the last watched resolution."""
        self.missing: dict[str, list[str]] = {}
        """Facts that the bundle reads, and the machines whose report lacks them."""
        self.resolved = 0
        """Number of machines that were resolved without a shared outcome."""

    def __call__(self, machine: Machine) -> Outcome:
        outcome = self._resolved(machine)
        if machine.sent is not None:
            for name in dict.fromkeys(missing(self._asked, machine.facts, machine.sent, outcome)):
                self.missing.setdefault(name, []).append(machine.name)
        return outcome

    def _resolved(self, machine: Machine) -> Outcome:
        # 1.
        if (known := self._find(machine.facts)) is not None:
            self._in_vain = 0
            return known
        # 2.
        self.resolved += 1
        outcome = self._resolver.of(machine.facts)
        self._in_vain += 1
        if self._is_trusted and (self._in_vain <= _MOST_IN_VAIN or self._in_vain % _SELDOM == 0):
            self._watch(machine.facts, outcome)
        return outcome

    def _find(self, facts: Mapping[str, Any]) -> Outcome | None:
        for reads, outcomes in self._kept.items():
            if (known := outcomes.get(answers(reads, facts))) is not None:
                self._asked = reads
                return known
        return None

    def _watch(self, facts: Mapping[str, Any], outcome: Outcome) -> None:
        reads = Reads()
        # 3.
        watched = self._resolver.of(Watched(facts, reads))
        self._asked = reads.questions()
        if watched != outcome:
            self._is_trusted = False
            self._kept.clear()
            return
        if self._count >= _MOST_KEPT or len(self._kept) >= _MOST_SHAPES:
            self._kept.clear()
            self._count = 0
        self._kept.setdefault(self._asked, {})[answers(self._asked, facts)] = outcome
        self._count += 1
