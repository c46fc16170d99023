"""The context of a bundle: ``puller.yaml``, the machines that the bundle is for, and the bundles that precede it there.

``puller.yaml`` lists the machines of a repository of bundles, with the bundles of each (``docs/repository.md``):

* Authors' commands read the file from the nearest parent directory of a bundle. The search ends at a directory with
  ``.git``. Hosts never read it.
* An invalid file is an error with all problems and their lines.

Contexts:

* The machines are those of its test cases, or those of the repository's ``puller.yaml`` that have the bundle.
* ``puller lint``, ``render`` and ``preview`` use them if the command line states no context.
* Cases that expect a rejection and invalid cases are left out, because ``puller test`` reports them.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foundation.problems import ProblemCode
from hiera import parsing
from hiera.errors import HieraError
from hiera.sops.identities import OPAQUE
from puller.authoring.cases.case_files import find_cases, load_case, machine_facts
from puller.data.sources import DataSource, Origin, read
from puller.errors import ManifestError, PullerError
from puller.facts.fact_tree import described
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource, open_source
from puller.manifest.problems import Problems
from puller.values.plain_values import explain

REPOSITORY_FILE = "puller.yaml"
_END_OF_SEARCH = ".git"


class MachineEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine, or a kind of machines, and its bundles."""

    bundles: list[str]
    """The directories of its bundles in the order of their application, relative to the file."""
    os: str | None = None
    """The known system whose facts it has."""
    facts: dict[str, Any] = {}
    """Merged over the facts of the system."""
    data: dict[str, Any] = {}
    """Merged over the data of the bundles, as with ``--data``."""


class RepositoryDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``puller.yaml``."""

    machines: dict[str, MachineEntry]
    """The machines by their names in messages."""


class RepositoryMachine(msgspec.Struct, frozen=True):
    """A machine that has a certain bundle."""

    name: str
    facts: dict[str, Any]
    data: dict[str, Any]
    before: tuple[str, ...]
    """The directories of the bundles that precede it."""
    origin: str
    """The place of the data in messages."""


def repository_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``puller.yaml``."""
    schema = msgspec.json.schema(RepositoryDocument)
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "The machines of a repository of bundles", **schema}


def find_repository(bundle: Path) -> Path | None:
    """Return the file in the nearest parent directory of a bundle."""
    directory = Path(os.path.abspath(bundle))
    for parent in directory.parents:
        if (parent / REPOSITORY_FILE).is_file():
            return parent / REPOSITORY_FILE
        if (parent / _END_OF_SEARCH).exists():
            return None
    return None


def machines_with(bundle: Path) -> list[RepositoryMachine]:
    """Return the machines that have a bundle. Empty without a file. Raises ``ManifestError`` and ``SourceError``."""
    if (path := find_repository(bundle)) is None:
        return []
    shown = os.path.relpath(path)
    machines = []
    for name, entry in _load(path, shown).machines.items():
        places = [os.path.normpath(os.path.join(os.path.dirname(shown), place)) for place in entry.bundles]
        number = next((number for number, place in enumerate(places) if _is_same(place, bundle)), None)
        if number is not None:
            facts = machine_facts(entry.os, entry.facts)
            origin = f"{shown}: machines.{name}.data"
            machines.append(RepositoryMachine(name, facts, entry.data, tuple(places[:number]), origin))
    return machines


def _is_same(place: str, bundle: Path) -> bool:
    return os.path.realpath(place) == os.path.realpath(bundle)


def _load(path: Path, shown: str) -> RepositoryDocument:
    text = read(path)
    try:
        value = parsing.load_yaml(text, shown)
    except HieraError as error:
        raise ManifestError(error.problems) from None
    problems = Problems.of_text(shown, text)
    if not isinstance(value, dict):
        problems.add((), "invalid repository file", expected="a mapping with the key machines")
        problems.raise_any()
    for mismatch in explain(RepositoryDocument, value, "key of a repository file"):
        problems.note(problems.placed(mismatch.problem(), mismatch.path))
    problems.raise_any()
    document = msgspec.convert(value, RepositoryDocument)
    for name, entry in document.machines.items():
        _check_machine(name, entry, path.parent, problems)
    problems.raise_any()
    return document


def _check_machine(name: str, entry: MachineEntry, directory: Path, problems: Problems) -> None:
    """Note an unknown system, and directories without a bundle."""
    place = ("machines", name)
    try:
        machine_facts(entry.os, {})
    except ValueError as error:
        problems.add((*place, "os"), f"os {error}")
    for number, bundle in enumerate(entry.bundles):
        if not (directory / bundle / MANIFEST).is_file():
            message = f"bundle {bundle!r} is missing: {os.path.join(bundle, MANIFEST)} does not exist"
            problems.add((*place, "bundles", number), message, code=ProblemCode.MISSING_FILE)


_MOST = 20
"""Maximum number of different contexts. Further machines rarely show other problems."""


class BundleContext(msgspec.Struct, frozen=True):
    """A machine of a test case or of the repository."""

    name: str
    facts: dict[str, Any]
    inputs: Inputs
    before: tuple[ManifestSource, ...]
    """The bundles that precede the bundle."""


class _Machine(msgspec.Struct, frozen=True):
    """A machine whose preceding bundles are not opened yet."""

    name: str
    facts: dict[str, Any]
    data: dict[str, Any]
    environ: dict[str, str]
    before: tuple[str, ...]
    origin: str
    """The place of the data in messages."""


def open_contexts(source: str, private_key: str, opened: contextlib.ExitStack) -> list[BundleContext]:
    """Return the different contexts of the bundle directory ``source``. Empty without cases and machines.

    Raises ``PullerError`` for an invalid ``puller.yaml``, and for a preceding bundle that cannot be read.
    """
    contexts: dict[bytes, BundleContext] = {}
    for machine in _machines(source):
        key = msgspec.json.encode(
            (machine.facts, machine.data, machine.environ, machine.before), order="sorted"
        )
        if key not in contexts and len(contexts) < _MOST:
            data = (DataSource(Origin.COMMAND_LINE, machine.origin, machine.data),) if machine.data else ()
            inputs = Inputs(described(machine.facts), machine.environ, data, private_key, OPAQUE)
            before = tuple(opened.enter_context(open_source(place)) for place in machine.before)
            contexts[key] = BundleContext(machine.name, machine.facts, inputs, before)
    return list(contexts.values())


def bundles_before(source: str) -> tuple[str, ...]:
    """Return the sources of the bundles that precede a bundle on all of its machines. Empty if the machines differ.

    Raises ``PullerError`` for an invalid ``puller.yaml``.
    """
    lists = {machine.before for machine in _machines(source)}
    return lists.pop() if len(lists) == 1 else ()


def machine_names(source: str) -> list[str]:
    """Return the names of the machines of a bundle. Raises ``PullerError`` for an invalid ``puller.yaml``."""
    return [machine.name for machine in _machines(source)]


def _machines(source: str) -> list[_Machine]:
    """Return the machines of the test cases of a bundle, or else those of the repository."""
    directory = Path(source)
    if not (directory / MANIFEST).is_file():
        return []
    if cases := list(_cases(directory, source)):
        return cases
    return [
        _Machine(machine.name, machine.facts, machine.data, {}, machine.before, machine.origin)
        for machine in machines_with(directory)
    ]


def _cases(directory: Path, shown: str) -> Iterator[_Machine]:
    """Yield the machines of valid cases that expect no rejection."""
    with contextlib.suppress(PullerError, OSError):
        for file in find_cases(directory, shown):
            with contextlib.suppress(PullerError, OSError):
                loaded = load_case(file)
                case = loaded.case
                if not case.fails:
                    before = tuple(os.path.normpath(os.path.join(shown, name)) for name in case.before)
                    origin = f"{loaded.places.source}: data"
                    yield _Machine(file.name, loaded.facts, case.data, case.environ, before, origin)
