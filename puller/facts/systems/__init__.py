"""The facts of common systems, for checking bundles without such a machine.

* They are the facts of a small virtual machine with that system: one disk, one network interface with a documentation
  address (RFC 5737, RFC 3849), the name host.example.com. They contain no personal data.
* They are files in this directory, made from the recorded machines of ``tests/cases/facts/known.yaml``.
"""

import json
from pathlib import Path
from typing import Any

from foundation.suggestions import meant
from puller.errors import UsageError
from puller.version import __version__

_DIRECTORY = Path(__file__).parent


def known_systems() -> list[str]:
    """Return the names of known systems: ``debian-12``, ``rocky-9``."""
    return sorted(file.stem for file in _DIRECTORY.glob("*.json"))


def facts_of(name: str) -> dict[str, Any]:
    """Return all facts of a system, as a new mapping. Raises ``UsageError`` for an unknown name."""
    if name not in known_systems():
        raise UsageError(f"unknown system {name!r}", **meant(name, known_systems()))

    facts: dict[str, Any] = json.loads((_DIRECTORY / f"{name}.json").read_text())
    return facts | {"puller": {"version": __version__}}
