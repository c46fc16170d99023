"""A bundle resolved for one machine after the other, each of which is nothing but its facts."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from puller.authoring.preview.differences import Outcome, Refusal
from puller.authoring.preview.machines import Machine
from puller.authoring.resolution import resolve
from puller.data.sources import DataSource, Origin, Surroundings
from puller.errors import ConfigurationError, ManifestError
from puller.manifest.bundle_facts import FACTS
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
        except (ManifestError, ConfigurationError) as error:
            return Refusal(str(error))


def unknown_facts(source: ManifestSource) -> str:
    """A sentence about facts that a bundle gathers by programs, which run for no other machine; empty without any."""
    try:
        found = sorted(
            path for path in (source.path.parent / FACTS).iterdir() if path.suffix not in _DOCUMENTS
        )
    except OSError:
        return ""
    if not found:
        return ""
    names = ", ".join(f"{FACTS}/{path.name}" for path in found)
    return f"{source.name}: {names}: not run for other machines; {_GIVEN}"


_GIVEN = "what asks for these facts fails where the facts of a machine do not have them"
_DOCUMENTS = (".json", ".yaml", ".yml", ".txt")
