"""The process of a trial: ``python -m puller.authoring.trials.inside``, the first in its namespaces.

1. The trial is read from standard input, and the bundle from this machine, twice: each run has a catalog of its own.
2. All code that may be needed is loaded: the tree need not have any Python.
3. The root is changed.
4. The catalog is applied, and where nothing has failed applied again.
5. The outcome goes to standard output, which nobody else has had.
"""

import contextlib
import importlib
import os
import pkgutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from hiera.errors import HieraError
from puller.authoring.trials.asked import Trial, TrialOutcome
from puller.authoring.trials.private_root import enter_private_root
from puller.data.sources import DataSource, Origin
from puller.engine.apply import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import PullerError, ResourceError
from puller.facts.tree import described
from puller.manifest.host_catalog import HostCatalog, load_together
from puller.manifest.manifest import Inputs
from puller.manifest.source import ManifestSource
from puller.reporting.report import Event, State
from puller.system.signals import StopRequests

_STATE: Final = Path("/var/lib/puller")

_PACKAGES: Final = ("puller", "hiera", "bundles")
_NOT_HERE: Final = ("puller.cli", "puller.run", "puller.authoring", "puller.__main__", "bundles.client")
"""Packages with nothing that a resource needs."""

_COMPILED: Final = ("bz2", "ctypes", "hashlib", "lzma", "ssl", "uuid", "zlib", "yaml.cyaml", "encodings.idna")
"""Modules with libraries of this machine, which a tree may have in other versions or not at all."""


def main() -> None:
    """Make the trial that standard input describes."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    trial = msgspec.json.decode(sys.stdin.buffer.read(), type=Trial)
    outcome = _outcome(trial)
    with open(answer, "wb") as stream:
        stream.write(msgspec.json.encode(outcome))


def _outcome(trial: Trial) -> TrialOutcome:
    try:
        catalogs = [_load(trial) for _ in range(2)]
        _load_code()
        enter_private_root(trial.tree, _needed(trial, catalogs[0]))
        with contextlib.suppress(OSError):
            socket.sethostname(_host_name(trial))
        first = _apply(catalogs[0])
        has_failed = any(event.state is State.FAILED for event in first)
        return TrialOutcome(first=tuple(first), second=() if has_failed else tuple(_apply(catalogs[1])))
    except (PullerError, HieraError, OSError) as error:
        return TrialOutcome(error=str(error))


def _load(trial: Trial) -> HostCatalog:
    data = tuple(DataSource(Origin.COMMAND_LINE, place, values) for place, values in trial.data)
    inputs = Inputs(described(trial.facts), trial.environ, data, trial.private_key)
    return load_together([ManifestSource(Path(path), name) for path, name in trial.manifests], inputs)


def _host_name(trial: Trial) -> str:
    networking = trial.facts.get("networking")
    name = networking.get("hostname") if isinstance(networking, dict) else None
    return name if isinstance(name, str) and name else "host"


def _load_code() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda name: None):
            if not module.name.startswith(_NOT_HERE):
                importlib.import_module(module.name)
    for name in _COMPILED:
        importlib.import_module(name)


def _needed(trial: Trial, catalog: HostCatalog) -> Iterator[str]:
    """Paths of this machine: the modules of Python, each bundle, its libraries."""
    found = {path for entry in sys.path if os.path.exists(entry) for path in (entry, os.path.realpath(entry))}
    found -= {path for path in found if _is_of_system(path) and os.path.exists(trial.tree + path)}
    for path, _ in trial.manifests:
        found |= {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}
    for declaration in catalog.declarations:
        files = declaration.home.files
        found |= {tree.root for tree in (files.tree, *files.libraries.values())}
    yield from sorted(path for path in map(os.path.abspath, found) if path != "/")


def _is_of_system(path: str) -> bool:
    """Whether it is part of the standard library, where the tree may have its own of the same version."""
    return os.path.dirname(os.__file__) == path or path.endswith("lib-dynload")


def _apply(catalog: HostCatalog) -> list[Event]:
    _STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    stops = StopRequests()
    pending = PendingRefreshes(_STATE / "pending-refreshes.json", "trial")
    return apply_catalog(catalog, Settings(), stops, pending, state_directory=_STATE, fetch=_no_fetch).events


def _no_fetch(url: str) -> bytes:
    raise ResourceError(f"{url} is not fetched: a trial has no network")


if __name__ == "__main__":
    main()
