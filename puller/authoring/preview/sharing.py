"""Resolutions that machines share: one that has seen nothing of the facts but what another machine has too is its own.

1. A machine that answers all that an earlier resolution has asked as the machine of that one did, has its outcome.
2. Any other is resolved by itself, and once more with watched facts, which tells what was asked. After many machines
   that share nothing this is done for few.
3. Where the two differ, watching has got in the way: nothing is shared any more.

It grows with the kinds of machines, and with the number of machines only by the questions that they are asked.
"""

from collections.abc import Mapping
from typing import Any

from puller.authoring.preview.differences import Outcome
from puller.authoring.preview.machines import Machine
from puller.authoring.preview.reads import Read, Reads, Watched, answers
from puller.authoring.preview.resolvers import OneByOne

_MOST_KEPT = 512
"""Outcomes that are kept; so that a bundle that looks at the name of every machine does not fill the memory."""
_MOST_SHAPES = 64
"""Lists of questions that a machine is asked, at most."""
_MOST_IN_VAIN = 200
"""Machines in a row that share nothing, after which few are asked what they could share."""
_SELDOM = 16
"""The one of how many is asked then: a fleet in the order of its names may have its like machines last."""


class Shared:
    """Resolves each kind of machine once."""

    def __init__(self, resolver: OneByOne) -> None:
        self._resolver = resolver
        self._kept: dict[tuple[Read, ...], dict[tuple[str, ...], Outcome]] = {}
        self._count = 0
        self._in_vain = 0
        self._is_trusted = True
        """Whether watching has never got in the way."""
        self.resolved = 0
        """Machines that were resolved, and did not share another's outcome."""

    def __call__(self, machine: Machine) -> Outcome:
        # 1.
        if (known := self._find(machine.facts)) is not None:
            self._in_vain = 0
            return known
        # 2.
        self.resolved += 1
        outcome = self._resolver.of(machine.facts)
        self._in_vain += 1
        if self._is_trusted and (self._in_vain <= _MOST_IN_VAIN or self._in_vain % _SELDOM == 0):
            self._watch(machine.facts, outcome)
        return outcome

    def _find(self, facts: Mapping[str, Any]) -> Outcome | None:
        for reads, outcomes in self._kept.items():
            if (known := outcomes.get(answers(reads, facts))) is not None:
                return known
        return None

    def _watch(self, facts: Mapping[str, Any], outcome: Outcome) -> None:
        reads = Reads()
        # 3.
        if self._resolver.of(Watched(facts, reads)) != outcome:
            self._is_trusted = False
            self._kept.clear()
            return
        if self._count >= _MOST_KEPT or len(self._kept) >= _MOST_SHAPES:
            self._kept.clear()
            self._count = 0
        asked = reads.questions()
        self._kept.setdefault(asked, {})[answers(asked, facts)] = outcome
        self._count += 1
