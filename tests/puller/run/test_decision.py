"""The function that decides between versions agrees with its documented table for all inputs."""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from puller.run.policy.decision import Decision, Result, Situation, Step, Usability, Version, decide

STATES = {
    "quarantined": Version("", Usability.FITS, quarantined=True),
    "absent": Version("", Usability.ABSENT),
    "unread": Version("", Usability.UNREAD),
    "fits": Version("", Usability.FITS, interruptions=1),
    "cut short": Version("", Usability.FITS, interruptions=2),
    "refused": Version("", Usability.CONFLICTS),
}
"""One version for each state that the table distinguishes."""
BEFORE = ("pinned", "published", "current", "good", "previous")
AFTER = ("applied", "current", "good", "previous")
RETURNED = ("returned_to", "published", "current", "good", "previous")


def table(first_column: str) -> list[list[str]]:
    """Return the rows of the table in the documentation of ``decide`` that begins with this column."""
    lines = (decide.__doc__ or "").splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:1] == [first_column])
    columns = [match.span() for match in re.finditer("=+", lines[start - 1])]
    end = lines.index(lines[start - 1], start + 2)
    starts = [begin for begin, _ in columns]
    return [
        [line[begin:stop].strip() for begin, stop in zip(starts, [*starts[1:], None], strict=True)]
        for line in lines[start + 2 : end]
    ]


CANDIDATES = [(name, condition) for name, condition in table("candidate")]
ROWS = table("result")


def fallback_of(situation: Situation, version: Version | None) -> Version | None:
    """Return the version to return to, as the documentation defines it."""
    sha256 = version.sha256 if version else ""
    others = [other for other in (situation.good, situation.previous) if other and other.sha256 != sha256]
    return next((other for other in others if not other.quarantined), None)


def candidate_of(situation: Situation) -> Version | None:
    """Return the candidate that decides, by the table of candidates."""
    current = situation.current
    versions = {
        "returned": situation.returned_to,
        "pinned": situation.pinned,
        "published": situation.published,
        "current": current,
        "good": situation.good,
        "fallback": fallback_of(situation, current),
    }
    conditions = {
        "if it is set, and no other candidate": situation.returned_to is not None,
        "always": situation.returned_to is None,
        "if no version is pinned": situation.returned_to is None and situation.pinned is None,
        "if the current version is quarantined": situation.returned_to is None
        and current is not None
        and current.quarantined,
    }
    for name, condition in CANDIDATES:
        version = versions[name]
        if version is None or version.quarantined or not conditions[condition]:
            continue
        if version.usability in (Usability.ABSENT, Usability.UNREAD, Usability.FITS):
            return version
    return None


def decision_of_table(situation: Situation) -> Decision:
    """Return the decision of the first row that fits."""
    candidate = candidate_of(situation)
    is_applied = situation.result is not Result.NONE
    fallback = fallback_of(situation, situation.applied if is_applied else candidate)
    cells = (
        str(situation.result),
        str(candidate.usability) if candidate else "no",
        "twice" if candidate and candidate.interruptions >= 2 else "no",
        "yes" if situation.gave_up else "no",
        "yes" if situation.on_trial else "no",
        "yes" if fallback else "no",
    )
    versions = {"-": None, "candidate": candidate, "fallback": fallback, "applied": situation.applied}
    for *conditions, step, version in ROWS:
        if all(condition in ("-", cell) for condition, cell in zip(conditions, cells, strict=True)):
            return Decision(Step(step), versions[version])
    raise AssertionError("no row fits")


def assignments(slots: int, used: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield every way to fill slots with versions. Slots with one number have one version, 0 is an empty slot."""
    if slots == 0:
        yield ()
        return
    for number in range(used + 2):
        for rest in assignments(slots - 1, max(used, number)):
            yield (number, *rest)


def situations(slots: Sequence[str]) -> Iterator[Situation]:
    """Yield every combination of versions in these slots, each version in every state."""
    for numbers in assignments(len(slots)):
        for states in product(STATES.values(), repeat=max(numbers)):
            versions: list[Version | None] = [None]
            for number, state in enumerate(states):
                versions.append(Version(f"{number}", state.usability, state.quarantined, state.interruptions))
            filled: Any = {slot: versions[number] for slot, number in zip(slots, numbers, strict=True)}
            yield Situation(**filled)


@pytest.mark.parametrize("slots", [BEFORE, RETURNED], ids=["first choice", "after a rollback"])
def test_decision_before_applying_is_that_of_the_table(slots: Sequence[str]) -> None:
    steps = set()
    for situation in situations(slots):
        decision = decide(situation)
        assert decision == decision_of_table(situation), situation
        steps.add(decision.step)
    assert steps == {Step.NOTHING, Step.FETCH, Step.READ, Step.GIVE_UP, Step.APPLY}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("result", [result for result in Result if result is not Result.NONE])
def test_decision_after_applying_is_that_of_the_table(result: Result) -> None:
    for versions in situations(AFTER):
        if versions.applied is None:
            continue
        for on_trial, gave_up in product((False, True), repeat=2):
            situation = replace(versions, result=result, on_trial=on_trial, gave_up=gave_up)
            assert decide(situation) == decision_of_table(situation), situation


def test_every_value_of_a_version_is_a_state() -> None:
    good = Version("good", Usability.FITS)
    for usability, quarantined, interruptions in product(Usability, (False, True), range(4)):
        version = Version("new", usability, quarantined, interruptions)
        for slot, other in product(("pinned", "published", "current", "returned_to"), (None, good)):
            situation = replace(Situation(good=other), **{slot: version})
            assert decide(situation) == decision_of_table(situation), situation


def test_no_decision_applies_a_quarantined_version() -> None:
    for situation in situations(BEFORE):
        version = decide(situation).version
        assert version is None or not version.quarantined


def test_no_decision_gives_up_the_only_version() -> None:
    for state in STATES.values():
        only = Version("only", state.usability, state.quarantined, interruptions=2)
        situation = Situation(published=only, current=only, good=only, previous=only)
        assert decide(situation).step is not Step.GIVE_UP
        broken = Situation(
            current=only, good=only, previous=only, applied=only, result=Result.BROKEN, on_trial=True
        )
        assert decide(broken) == Decision(Step.STAY, only)
