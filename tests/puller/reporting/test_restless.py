"""Rules for restless resources, on reports in order of their runs."""

from collections.abc import Iterator
from typing import Any

import pytest

from foundation.differences import changed
from puller.reporting.report import BundleReport, Event, Report, RestlessResource, State, Summary
from puller.reporting.restless import find_restless, sentences
from tests.support.rows import each_row


def run(*states: State, sha256: str = "1", **fields: Any) -> Report:
    """Return a report with these states for ``file#/0``, ``file#/1``, and so on."""
    own = {name: fields.pop(name) for name in ("outcome", "given_up") if name in fields}
    events = [
        Event(type="file", name=f"/{number}", state=state, differences=[changed("content", "A", "B")])
        for number, state in enumerate(states)
    ]
    bundle = BundleReport(
        name="web",
        sha256=sha256,
        summary=Summary.of(events, 0),
        events=events,
        **{"outcome": "applied", **own},
    )
    return Report(
        run="", started="", finished="", host="a", puller="1", exit_status=0, bundles=[bundle], **fields
    )


C, S, F, R, X = State.CHANGED, State.STABLE, State.FAILED, State.REFRESHED, State.SKIPPED


def found(runs: list[Report], known: list[RestlessResource] | None = None) -> list[tuple[str, int, int]]:
    """Return restless resources after an update and these runs."""
    *earlier, last = [run(C, C), *runs]
    every = find_restless(last, reversed(earlier), known or [])
    return [(item.reference, item.changes, item.runs) for item in every]


KNOWN = RestlessResource(bundle="web", reference="file#/0", runs=5, changes=3)


@each_row(
    ("states", "expected"),
    [
        ([C, C], []),
        ([C, C, C], [("file#/0", 3, 3)]),
        ([C, S, C, S, C], [("file#/0", 3, 5)]),
        ([C, C, S, S, S, C], []),
        ([C, C, S, S, C], [("file#/0", 3, 5)]),
        ([C, C, C, C, C, C], [("file#/0", 5, 5)]),
        ([C, C, C, S], []),  # a run without a change makes no resource restless
        ([F, F, F], []),  # failures are reported as failures
        ([R, R, R], []),  # the subject of the refresh is restless instead
        ([C, X, X, X, C, X, C], [("file#/0", 3, 3)]),  # skipped runs do not count
    ],
)
def test_three_changes_in_five_runs_make_a_resource_restless(
    states: list[State], expected: list[tuple[str, int, int]]
) -> None:
    assert found([run(state) for state in states]) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([C, S, C, S, C, S], [("file#/0", 2, 5)]),  # every other run: reported once
        ([C, C, C, S, S, S], [("file#/0", 2, 5)]),
        ([C, C, C, S, S, S, S], []),
        ([S, S, S, S, S], []),
    ],
)
def test_restless_resource_recovers_after_quiet_runs(
    states: list[State], expected: list[tuple[str, int, int]]
) -> None:
    assert found([run(state) for state in states], [KNOWN]) == expected


def test_each_resource_is_counted_for_itself() -> None:
    assert found([run(C, S), run(C, C), run(C, C), run(S, C)]) == [("file#/1", 3, 4)]


def test_a_release_in_every_run_is_not_restless() -> None:
    assert found([run(C, sha256=version) for version in "12345"]) == []


def test_the_run_that_brings_a_version_does_not_count() -> None:
    runs = [run(C, sha256="0"), run(C), run(C), run(C)]
    assert find_restless(runs[-1], reversed(runs[:-1]), []) == []
    assert find_restless(runs[-1], reversed(runs[1:-1]), []) == [], "nor the first that there is a report of"


def test_release_resets_restless_resources() -> None:
    assert found([run(C), run(C), run(C), run(C, sha256="2")], [KNOWN]) == []
    assert found([run(C), run(C), run(C, sha256="2"), run(C)]) == []


@pytest.mark.parametrize(
    "other",
    [
        {"only": ["file#/0"]},
        {"paused": "disabled"},
        {"noop": True},
        {"outcome": "not applied: why"},
        {"given_up": BundleReport(name="web", sha256="2")},
    ],
)
def test_partial_run_does_not_count(other: dict[str, Any]) -> None:
    assert found([run(C), run(C), run(C, **other), run(C, **other)]) == []
    assert found([run(C), run(C), run(C, **other), run(C)]) == [("file#/0", 3, 3)]
    assert found([run(S, **other)], [KNOWN]) == [("file#/0", 3, 5)], "as it was before"


def test_a_resource_that_a_run_did_not_come_to_was_not_in_it() -> None:
    cut = run(X)
    cut.bundles[0].events[0].reached = False
    assert found([run(C), run(C), cut, run(C)]) == [("file#/0", 3, 3)]


def test_a_bundle_that_has_left_takes_its_resources_along() -> None:
    last = run(C)
    last.bundles = []
    assert find_restless(last, [], [KNOWN]) == []


def test_repeated_command_by_declaration_is_not_restless() -> None:
    runs = [run(C) for _ in range(5)]
    for one in runs:
        one.bundles[0].events[0].recurring = True
    assert found(runs) == []


def test_differences_are_the_last_ones_each_once_and_bounded() -> None:
    runs = [run(C) for _ in range(5)]
    for number, each in enumerate(runs):
        each.bundles[0].events[0].differences = [
            changed("value", str(number % 2), str((number + 1) % 2)),
            changed("value", "x" * 1000, ""),
        ]
    (item,) = find_restless(runs[-1], [*reversed(runs[:-1]), run(C)], [])
    assert item.differences == [
        changed("value", "0", "1"),
        changed("value", "x" * 200 + "…", ""),
        changed("value", "1", "0"),
    ]
    runs[-1].bundles[0].events[0].differences = [
        changed(f"property {number}", "", "") for number in range(20)
    ]
    (item,) = find_restless(runs[-1], [*reversed(runs[:-1]), run(C)], [])
    assert len(item.differences) == 6


def test_number_of_remembered_resources_is_bounded() -> None:
    runs = [run(*[C] * 1500) for _ in range(4)]
    many = find_restless(runs[-1], reversed(runs[:-1]), [])
    assert len(many) == 1000
    output = sentences(many)
    assert len(output) == 21
    assert output[-1] == "and 980 more restless resources"


def reading(reports: list[Report], read: list[Report]) -> Iterator[Report]:
    for report in reports:
        read.append(report)
        yield report


@pytest.mark.parametrize(("last", "count"), [(run(S), 0), (run(R), 0), (run(C), 5), (run(C, sha256="2"), 1)])
def test_no_more_reports_are_read_than_it_takes(last: Report, count: int) -> None:
    read: list[Report] = []
    find_restless(last, reading([run(C) for _ in range(20)], read), [])
    assert len(read) == count
