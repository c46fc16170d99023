"""Canonical forms of resource names on the machine that applies the manifest."""

from collections.abc import Mapping
from typing import Any

from puller.system.real_paths import RealPaths


class Spellings(RealPaths):
    """Canonical paths, and the facts that other canonical names depend on."""

    def __init__(self, facts: Mapping[str, Any], links: Mapping[str, str] | None = None) -> None:
        super().__init__(links)
        self.facts = facts
