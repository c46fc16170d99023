"""Facts for a command: the facts of the host or of a known system, with overrides from the options.

The priority is ``--fact NAME=VALUE``, ``--facts FILE``, custom facts, built-in facts. A known system (``--of``,
``--os``) does not use custom facts.

Known systems are for checking bundles without such a machine:

* They are the facts of a small virtual machine with that system: one disk, one network interface with a documentation
  address (RFC 5737, RFC 3849), the name host.example.com. They contain no personal data.
* They are the files in ``systems``, made from the recorded machines of ``tests/cases/facts/known.yaml``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foundation.problems import problems_of
from foundation.suggestions import meant
from puller.errors import UsageError
from puller.facts.fact_tree import CUSTOM_DIRECTORY, Facts, described, gather
from puller.facts.fact_values import FactError, assignment, merged, read
from puller.version import __version__

_DIRECTORY = Path(__file__).parent / "systems"


def known_systems() -> list[str]:
    """Return the names of known systems: ``debian-12``, ``rocky-9``."""
    return sorted(file.stem for file in _DIRECTORY.glob("*.json"))


def facts_of(name: str) -> dict[str, Any]:
    """Return all facts of a system, as a new mapping. Raises ``UsageError`` for an unknown name."""
    if name not in known_systems():
        raise UsageError(f"unknown system {name!r}", **meant(name, known_systems()))

    import json  # 1 % of an idle apply, which needs no JSON

    facts: dict[str, Any] = json.loads((_DIRECTORY / f"{name}.json").read_text())
    return facts | {"puller": {"version": __version__}}


def chosen_facts(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts of this machine or of a known system (``of``) with overrides, or only the overrides.

    Raises ``UsageError``.
    """
    if system := options.get("of"):
        return described(facts_of(system), overrides=given_facts(options))
    return given_facts(options) if options.get("no_system_facts") else facts_from(options)


def facts_from(
    options: Mapping[str, Any],
    *,
    directories: Sequence[str] | None = None,
    agent: Mapping[str, Any] | None = None,
) -> Facts:
    """Return the facts of this machine with the overrides of the options.

    ``directories`` are the default directories of custom facts, ``agent`` is passed to ``gather``. Raises
    ``UsageError``.
    """
    return gather(
        custom_directories=options["facts_directories"] or directories or (CUSTOM_DIRECTORY,),
        overrides=given_facts(options),
        agent=agent,
    )


def given_facts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the overrides of the options, for commands that ignore this machine. Raises ``UsageError``."""
    if not options["facts_files"] and not options["fact_pairs"]:
        return {}
    facts: dict[str, Any] = {}
    try:
        for path in options["facts_files"]:
            facts = merged(facts, read(path))
        for pair in options["fact_pairs"]:
            facts = merged(facts, assignment(pair, "--fact"))
    except (FactError, OSError) as error:
        raise UsageError(problems=problems_of(error)) from error
    return facts
