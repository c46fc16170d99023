"""The machine of a case: facts of a known system, and those that the case gives over them."""

from collections.abc import Mapping
from typing import Any

from puller.facts.systems import facts_of, known_systems
from puller.facts.values import merged
from puller.values.suggestions import did_you_mean


def machine_facts(system: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a machine with this system, with those that are ``given`` over them; raises ``ValueError``."""
    if system is not None and system not in known_systems():
        raise ValueError(f"is {system!r}, which is no known system{did_you_mean(system, known_systems())}")
    facts: dict[str, Any] = merged({} if system is None else facts_of(system), given)
    return facts
