"""The judgement of a release by what became of it on the hosts that have it. Nothing here reads, writes or asks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bundles.publisher.watch_rule import WatchRule

_NAMED = 3


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

    @property
    def hosts(self) -> int:
        """The number of hosts that have the release, or were to get it."""
        return sum(self.counts.values())


def judge(outcomes: Iterable[HostOutcome], rule: WatchRule) -> Verdict:
    """Whether so many hosts, or so large a part of them or of one kind, failed or fell silent that it must stop."""
    by_kind: dict[str, list[HostOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    every = [outcome for of_kind in by_kind.values() for outcome in of_kind]
    reasons = list(_reasons(every, "", rule))
    if len(by_kind) > 1:
        for kind, of_kind in sorted(by_kind.items()):
            reasons += _reasons(of_kind, kind or "an unknown kind", rule)
    counts = {became: sum(one.became is became for one in every) for became in Became}
    return Verdict(counts, reasons)


def _reasons(outcomes: Sequence[HostOutcome], kind: str, rule: WatchRule) -> Iterable[str]:
    for what, limit, words in (
        ((Became.FAILED, Became.GAVE_UP), rule.failed, "failed or gave it up"),
        ((Became.SILENT,), rule.silent, "were not heard of since they got it"),
    ):
        bad = [one for one in outcomes if one.became in what]
        part = 100 * len(bad) / len(outcomes) if outcomes else 0.0
        if len(bad) >= rule.at_least and part > limit:
            of = f" of {kind}" if kind else ""
            names = ", ".join(one.host for one in bad[:_NAMED])
            more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
            why = next((f": {one.why}" for one in bad if one.why), "")
            yield f"{len(bad)} of {len(outcomes)} hosts{of} {words} (limit {limit:g}%): {names}{more}{why}"
