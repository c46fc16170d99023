"""The condition of a host in one word: each row of the table, and hosts that are never in sync."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from puller.exit_status import ExitStatus
from puller.fleet.views import Condition, condition_of, conditions_of_bundles
from puller.reporting.report import BundleReport, HoldReason, SentReport
from tests.simulators.fleet import sent
from tests.support.rows import each_row

_AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
_HOST = "web1.example.com"


def test_host_with_the_published_version_is_in_sync() -> None:
    assert condition_of(sent(_HOST, _AT)) == (Condition.IN_ORDER, "")
    assert condition_of(sent(_HOST, _AT, exit_status=2, changed={"file#/a": "content differs"})) == (
        Condition.IN_ORDER,
        "",
    )


@each_row(
    ("given", "condition", "why"),
    [
        ({"failed": {"service#web": "it is dead"}}, "failed", "service#web: it is dead"),
        ({"exit_status": 14, "problems": ["the site is away"]}, "failed", "the site is away"),
        ({"exit_status": 11}, "failed", "exit status 11"),
        ({"exit_status": 99}, "failed", "exit status 99"),
        (
            {"given_up": ("1.5.0", "its health checks failed")},
            "gave-up",
            "web 1.5.0: its health checks failed",
        ),
        ({"exit_status": 8}, "gave-up", "exit status 8"),
        ({"published": "1.5.0", "quarantined": ["1.5.0"]}, "gave-up", "web 1.5.0 is quarantined"),
        ({"held": "not understood", "held_because": HoldReason.REJECTED}, "held", "not understood"),
        ({"held": "not fetched", "held_because": HoldReason.UNAVAILABLE}, "held", "not fetched"),
        ({"held": "given up", "held_because": HoldReason.QUARANTINE}, "held", "given up"),
        ({"pin": "1.0.0", "published": "1.5.0"}, "held", "web is pinned to 1.0.0, and 1.5.0 is published"),
        ({"exit_status": 20, "held": "by the operator"}, "waiting", "by the operator"),
        ({"exit_status": 20, "paused": "disabled: repair"}, "paused", "disabled: repair"),
        ({"published": "1.5.0", "held": "not reached"}, "waiting", "not reached"),
        ({"exit_status": 20}, "held", ""),
        ({"published": "1.5.0"}, "held", "web 1.0.0 is enforced, and 1.5.0 is published"),
        ({"problems": ["a fact is broken"]}, "in-order", ""),
    ],
)
def test_the_first_row_that_holds_decides(given: dict[str, Any], condition: str, why: str) -> None:
    assert condition_of(sent(_HOST, _AT, **given)) == (condition, why)


def test_a_failure_outranks_all_that_holds_besides() -> None:
    worst = sent(
        _HOST,
        _AT,
        failed={"file#/a": "no"},
        paused="x",
        held="y",
        given_up=("1.5.0", "z"),
        quarantined=["1.0.0"],
    )
    assert condition_of(worst)[0] is Condition.FAILED


def test_failed_resources_override_the_exit_status() -> None:
    assert condition_of(sent(_HOST, _AT, failed={"file#/a": "no"}, exit_status=0))[0] is Condition.FAILED


def test_a_host_on_which_nothing_is_enforced_is_not_in_order() -> None:
    assert condition_of(sent(_HOST, _AT, ""))[0] is Condition.FAILED
    without = msgspec.structs.replace(sent(_HOST, _AT), bundles=[])
    assert condition_of(without)[0] is Condition.FAILED


def test_single_unenforced_bundle_is_enough() -> None:
    document = sent(_HOST, _AT)
    document.bundles.append(msgspec.structs.replace(document.bundles[0], name="db", enforced=""))
    assert condition_of(document) == (Condition.FAILED, "no version of db is enforced")


def test_a_partial_run_says_nothing_of_the_rest() -> None:
    document = sent(_HOST, _AT)
    document.report.only = ["file#/a"]
    assert condition_of(document)[0] is Condition.HELD


def test_no_exit_status_of_a_failure_is_in_order() -> None:
    for status in range(256):
        result, _ = condition_of(sent(_HOST, _AT, exit_status=status))
        assert (result is Condition.IN_ORDER) == (status in (ExitStatus.OK, ExitStatus.CHANGED)), status


def test_reason_is_a_short_line() -> None:
    _, why = condition_of(sent(_HOST, _AT, exit_status=14, problems=["a\n\n b" + "c" * 5000]))
    assert why.startswith("a bccc")
    assert len(why) == 301


def test_conditions_without_action_are_listed() -> None:
    assert {item for item in Condition if item.is_well} == {"in-order", "waiting", "paused"}
    assert all(item.label for item in Condition)


def test_abandoned_version_names_its_failures() -> None:
    document: SentReport = sent(_HOST, _AT, exit_status=4)
    inner = sent(_HOST, _AT, failed={"exec#check": "exit status 3"}).report.bundles[0]
    document.report.bundles[0].given_up = BundleReport(name="web", events=inner.events)
    assert condition_of(document) == (Condition.FAILED, "exec#check: exit status 3")


def of_two(first: dict[str, Any], second: dict[str, Any], **report: Any) -> SentReport:
    """The report of a host with the bundles ``web`` and ``db``."""
    web, db = sent(_HOST, _AT, **first), sent(_HOST, _AT, **second)
    standing = msgspec.structs.replace(db.bundles[0], name="db")
    bundle = msgspec.structs.replace(db.report.bundles[0], name="db")
    status = max(web.report.exit_status, db.report.exit_status)
    joined = msgspec.structs.replace(
        web.report, **{"exit_status": status, **report}, bundles=[*web.report.bundles, bundle]
    )
    return msgspec.structs.replace(web, bundles=[*web.bundles, standing], report=joined)


@pytest.mark.parametrize(
    ("first", "second", "conditions"),
    [
        ({}, {}, ("in-order", "in-order")),
        ({"failed": {"service#a": "dead"}}, {}, ("failed", "in-order")),
        ({}, {"failed": {"service#a": "dead"}}, ("in-order", "failed")),
        ({"failed": {"service#a": "dead"}}, {"published": "2", "held": "later"}, ("failed", "waiting")),
        ({"given_up": ("1.5.0", "unhealthy")}, {}, ("gave-up", "in-order")),
        ({"published": "2"}, {}, ("held", "in-order")),
    ],
)
def test_bundle_is_not_judged_by_another_bundle(
    first: dict[str, Any], second: dict[str, Any], conditions: tuple[str, str]
) -> None:
    result = conditions_of_bundles(of_two(first, second))
    assert tuple(map(str, result.values())) == conditions


def test_failure_without_a_bundle_counts_for_all_bundles() -> None:
    report = of_two({}, {}, exit_status=14, problems=["the site is away"])
    assert set(conditions_of_bundles(report).values()) == {Condition.FAILED}
