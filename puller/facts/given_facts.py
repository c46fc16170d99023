"""Facts for a command: the facts of the host with overrides from the options.

The priority is ``--fact NAME=VALUE``, ``--facts FILE``, custom facts, built-in facts. A known system (``--of``,
``--os``) does not use custom facts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from foundation.problems import problems_of
from puller.errors import UsageError
from puller.facts.fact_tree import CUSTOM_DIRECTORY, Facts, described, gather
from puller.facts.fact_values import FactError, merged


def chosen_facts(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts of this machine or of a known system (``of``) with overrides, or only the overrides.

    Raises ``UsageError``.
    """
    if system := options.get("of"):
        from puller.facts.systems import facts_of

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
    from puller.facts import documents

    facts: dict[str, Any] = {}
    try:
        for path in options["facts_files"]:
            facts = merged(facts, documents.read(path))
        for pair in options["fact_pairs"]:
            facts = merged(facts, documents.assignment(pair, "--fact"))
    except (FactError, OSError) as error:
        raise UsageError(problems=problems_of(error)) from error
    return facts
