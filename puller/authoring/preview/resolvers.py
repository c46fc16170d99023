"""A bundle resolved for one machine after the other, each of which is nothing but its facts."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hiera.document.document import Document
from hiera.errors import HieraError
from puller.authoring.preview.differences import Outcome, Refusal
from puller.authoring.preview.machines import Machine
from puller.authoring.resolution import resolve
from puller.data.sources import DataSource, Origin, Surroundings, read
from puller.errors import ConfigurationError, ManifestError, PullerError
from puller.manifest.bundle_facts import FACTS
from puller.manifest.libraries import files_in
from puller.manifest.manifest import Inputs
from puller.manifest.source import ManifestSource


class Given(msgspec.Struct, frozen=True):
    """All that is the same for both sides of a preview, and all its machines."""

    key: bytes
    """Of the fingerprints: 16 to 64 random bytes."""
    data_files: tuple[Path, ...] = ()
    assigned: tuple[DataSource, ...] = ()
    """Of ``--set``."""
    private_key: str = ""
    """The file of the key for encrypted values; empty for this host's."""

    def inputs(self, facts: Mapping[str, Any]) -> Inputs:
        """The inputs of a machine, whose environment nobody knows; raises ``ConfigurationError``."""
        sources = Surroundings(facts, {}).load(self.data_files, Origin.COMMAND_LINE)
        inputs = Inputs(facts, {}, (*sources, *self.assigned))
        return msgspec.structs.replace(inputs, private_key=self.private_key) if self.private_key else inputs


class OneByOne:
    """Resolves the bundle at ``source`` anew for each machine."""

    def __init__(self, source: ManifestSource, given: Given, before: Iterable[ManifestSource] = ()) -> None:
        self.source = source
        self.given = given
        self.before = tuple(before)

    def __call__(self, machine: Machine) -> Outcome:
        return self.of(machine.facts)

    def of(self, facts: Mapping[str, Any]) -> Outcome:
        """The bundle on a machine with these facts; raises ``SourceError``."""
        try:
            return resolve(self.source, self.given.inputs(facts), key=self.given.key, before=self.before)
        except (ManifestError, ConfigurationError, HieraError) as error:
            return Refusal(error.problems)


def empty_documents(data_files: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence for each data document without data: a run refuses it as a document of the site.

    Raises ``ConfigurationError`` for a document without any text, which a run refuses wherever it comes from.
    """
    for path in data_files:
        text = read(path)
        if not text.strip():
            raise ConfigurationError(f"{path}: is empty, and hosts refuse an empty document")
        with contextlib.suppress(HieraError):  # an invalid document fails on every machine
            if Document.parse(text, str(path)).is_empty:
                yield f"{path} has no data: hosts refuse such a document of the site, and keep the last good copy"


def unknown_facts(source: ManifestSource) -> str:
    """A sentence about facts that a bundle gathers by programs, which run for no other machine; empty without any."""
    root = source.path.parent
    found = [os.path.relpath(path, root) for place in _places(source) for path in _programs(place / FACTS)]
    if not found:
        return ""
    return f"{source.name}: {', '.join(found)}: not run for other machines; {_GIVEN}"


_GIVEN = "what asks for these facts fails where the facts of a machine do not have them"
_DOCUMENTS = (".json", ".yaml", ".yml", ".txt")


def _places(source: ManifestSource) -> Iterator[Path]:
    """The directories of a bundle and its libraries, as far as they can be told: a broken manifest tells none."""
    yield source.path.parent
    with contextlib.suppress(PullerError):
        yield from (Path(library.root) for library in files_in(source.path.parent).libraries.values())


def _programs(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix.lower() not in _DOCUMENTS)
    except OSError:  # as most bundles have none; what cannot be read is told when it is asked for
        return []
