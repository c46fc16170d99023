"""``puller.yaml``: the machines of a repository of bundles, with the bundles of each.

* Authors' commands read the file from the nearest parent directory of a bundle. The search ends at a directory with
  ``.git``. Hosts never read it.
* An invalid file is an error with all problems and their lines.

``docs/repository.md`` describes the format.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

from foundation.problems import ProblemCode
from hiera import parsing
from hiera.errors import HieraError
from puller.authoring.cases.case_files import machine_facts
from puller.data.sources import read
from puller.errors import ManifestError
from puller.manifest.manifest import MANIFEST
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
