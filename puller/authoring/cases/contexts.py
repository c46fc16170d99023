"""The context of a bundle: the machines that it is for, and the bundles that precede it there.

* The machines are those of its test cases, or those of the repository's ``puller.yaml`` that have the bundle.
* ``puller lint``, ``render`` and ``preview`` use them if the command line states no context.
* Cases that expect a rejection and invalid cases are left out, because ``puller test`` reports them. An invalid
  ``puller.yaml`` is an error.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hiera.sops.identities import OPAQUE
from puller.authoring.cases.case_files import find_cases, load_case
from puller.authoring.cases.repository import machines_with
from puller.data.sources import DataSource, Origin
from puller.errors import PullerError
from puller.facts.fact_tree import described
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource, open_source

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
