"""The context of a bundle, from its test cases: the machines that it is for, and the bundles that precede it there.

``puller lint``, ``render`` and ``preview`` use it if the command line states no context. Cases that expect a rejection
and invalid cases are left out, because ``puller test`` reports them.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from puller.authoring.cases.case_files import LoadedCase, find_cases, load_case
from puller.data.sources import DataSource, Origin
from puller.errors import PullerError
from puller.facts.fact_tree import described
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource, open_source

_MOST = 20
"""Maximum number of different contexts. Further cases rarely show other problems."""


class Context(msgspec.Struct, frozen=True):
    """A machine of a test case."""

    name: str
    facts: dict[str, Any]
    inputs: Inputs
    before: tuple[ManifestSource, ...]
    """The bundles that precede the bundle."""


def open_contexts(source: str, private_key: str, opened: contextlib.ExitStack) -> list[Context]:
    """Return the different contexts in the test cases of the bundle directory ``source``. Empty without cases."""
    directory = Path(source)
    if not (directory / MANIFEST).is_file():
        return []
    contexts: dict[bytes, Context] = {}
    for name, loaded in _cases(directory, source):
        case = loaded.case
        key = msgspec.json.encode((loaded.facts, case.data, case.environ, case.before), order="sorted")
        if key not in contexts and len(contexts) < _MOST:
            data = (DataSource(Origin.COMMAND_LINE, f"{loaded.places.source}: data", case.data),)
            inputs = Inputs(described(loaded.facts), case.environ, data if case.data else (), private_key)
            before = _sources(directory, case.before, opened)
            contexts[key] = Context(name, loaded.facts, inputs, before)
    return list(contexts.values())


def bundles_before(source: str) -> tuple[str, ...]:
    """Return the sources of the bundles that precede a bundle in all of its test cases. Empty if the cases differ."""
    directory = Path(source)
    if not (directory / MANIFEST).is_file():
        return ()
    lists = {tuple(loaded.case.before) for _, loaded in _cases(directory, source)}
    if len(lists) != 1:
        return ()
    return tuple(os.path.normpath(os.path.join(source, name)) for name in lists.pop())


def _cases(directory: Path, shown: str) -> list[tuple[str, LoadedCase]]:
    """Return the valid cases that expect no rejection, by name."""
    cases = []
    with contextlib.suppress(PullerError, OSError):
        for file in find_cases(directory, shown):
            with contextlib.suppress(PullerError, OSError):
                loaded = load_case(file)
                if not loaded.case.fails:
                    cases.append((file.name, loaded))
    return cases


def _sources(
    directory: Path, names: Sequence[str], opened: contextlib.ExitStack
) -> tuple[ManifestSource, ...]:
    return tuple(opened.enter_context(open_source(os.path.join(directory, name))) for name in names)
