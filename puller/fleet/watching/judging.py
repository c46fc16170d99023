"""The judgement of a release by what became of it on the hosts that have it. Nothing here reads, writes or asks."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bundles.publisher.watch_rule import WatchRule
from foundation.quantities import counted

_NAMED = 3
_CHANCE = 1e-5
"""Of a look: a rollout is looked at hundreds of times."""


class Became(StrEnum):
    """The end of a release on a host."""

    IN_ORDER = "in order"
    FAILED = "failed"
    GAVE_UP = "gave it up"
    SILENT = "not heard of since"


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """The end of the release on a host that has got it, or was to get it."""

    host: str
    kind: str
    """``Debian 12``; empty where its facts do not say."""
    became: Became
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rollout may go on."""

    counts: Mapping[Became, int]
    reasons: Sequence[str]
    """Why not, a sentence each; none when it may."""
    is_told: bool = False
    """Whether failures were told of. What is only not known is a reason to halt, and none to go back."""

    @property
    def hosts(self) -> int:
        """The number of hosts that have the release, or were to get it."""
        return sum(self.counts.values())


def judge(outcomes: Iterable[HostOutcome], rule: WatchRule, usual: float = 0.0) -> Verdict:
    """Whether so many hosts, or so large a part of them or of one kind, failed or fell silent that it must stop.

    ``usual`` is the part of hosts, from 0 to 1, that fail without the release: so many that fail with it say nothing.
    """
    by_kind: dict[str, list[HostOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    every = [outcome for of_kind in by_kind.values() for outcome in of_kind]
    reasons = list(_reasons(every, "", rule, usual))
    if len(by_kind) > 1:
        for kind, of_kind in sorted(by_kind.items()):
            reasons += _reasons(of_kind, kind or "an unknown kind", rule, usual)
    counts = {became: sum(one.became is became for one in every) for became in Became}
    return Verdict(counts, [sentence for sentence, _ in reasons], any(is_told for _, is_told in reasons))


def _reasons(
    outcomes: Sequence[HostOutcome], kind: str, rule: WatchRule, usual: float
) -> Iterable[tuple[str, bool]]:
    """Sentences, each with whether hosts have told so."""
    for what, limit, words in (
        ((Became.FAILED, Became.GAVE_UP), rule.failed, "failed or gave it up"),
        ((Became.SILENT,), rule.silent, "were not heard of since they got it"),
    ):
        bad = [one for one in outcomes if one.became in what]
        part = 100 * len(bad) / len(outcomes) if outcomes else 0.0
        expected = usual * len(outcomes) if Became.FAILED in what else 0.0
        if len(bad) >= rule.at_least and part > limit and not _is_chance(len(bad), expected):
            of = f" of {kind}" if kind else ""
            names = ", ".join(one.host for one in bad[:_NAMED])
            more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
            why = next((f": {one.why}" for one in bad if one.why), "")
            said = f"{len(bad)} of {counted(len(outcomes), 'host')}{of} {words} (limit {limit:g}%): {names}{more}{why}"
            yield said, Became.FAILED in what


def _is_chance(count: int, expected: float) -> bool:
    """Whether ``count`` or more come up now and then where ``expected`` are usual (Poisson distribution)."""
    term = below = math.exp(-expected)
    for number in range(1, count):
        term *= expected / number
        below += term
    return 1 - below > _CHANCE
