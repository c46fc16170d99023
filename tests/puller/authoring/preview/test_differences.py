"""Two resolutions of one machine compared: every kind of change, and differences that are no change."""

from typing import Any

import msgspec
import pytest

from foundation.differences import DifferenceKind, secret
from foundation.masking import HIDDEN
from foundation.problems import Location, Problem, ProblemCode
from hiera.values import Secret
from puller.authoring.preview.differences import Change, Comparison, Kind, Refusal, compare
from puller.authoring.resolution import Resolution, ResolvedContent, ResolvedResource


def content(text: str) -> ResolvedContent:
    return ResolvedContent(len(text), text.encode(), text)


def one(reference: str, fingerprint: bytes = b"", **more: Any) -> ResolvedResource:
    properties = {"ensure": "running" if reference.startswith("service") else "present"}
    properties |= more.pop("properties", {})
    if message := more.pop("failure", ""):
        more["failures"] = (Problem(code=ProblemCode.EXPRESSION_FAILS, message=message),)
    return ResolvedResource(
        reference=reference,
        where=more.pop("where", "a:1"),
        properties=properties,
        fingerprint=fingerprint or repr(properties).encode(),
        **more,
    )


def file(name: str, text: str = "", **more: Any) -> ResolvedResource:
    return one(f"file#{name}", contents={name: content(text)}, **more)


def compared(old: list[ResolvedResource], new: list[ResolvedResource]) -> Comparison:
    return compare(Resolution(tuple(old), {}), Resolution(tuple(new), {}))


def changes(old: list[ResolvedResource], new: list[ResolvedResource]) -> list[Change]:
    return list(compared(old, new).changes)


def kinds(old: list[ResolvedResource], new: list[ResolvedResource]) -> dict[str, Kind]:
    return {change.reference: change.kind for change in changes(old, new)}


def test_another_order_and_other_lines_are_no_change() -> None:
    a, b = file("/a", "a"), file("/b", "b")
    assert changes([a, b], [file("/b", "b", where="x:9"), file("/a", "a", where="y:7")]) == []


def test_added_and_removed_resources_are_shown() -> None:
    assert kinds([file("/a")], [file("/b")]) == {"file#/b": Kind.ADDED, "file#/a": Kind.REMOVED}


@pytest.mark.parametrize(
    ("removed", "why"),
    [({"removed": "absent"}, "its changes are reverted"), ({}, "it stays unchanged")],
)
def test_removed_resource_states_its_fate(removed: dict[str, str], why: str) -> None:
    (change,) = changes([file("/a", properties=removed)], [])
    assert change.why == why


def test_properties_are_told_with_both_values() -> None:
    (change,) = changes([file("/a", properties={"mode": "0644"})], [file("/a", properties={"mode": "0600"})])
    (result,) = change.differences
    assert (result.property, result.current, result.desired) == ("mode", "0644", "0600")


def test_a_number_is_not_a_truth() -> None:
    (change,) = changes([one("x#a", properties={"n": 1})], [one("x#a", properties={"n": True})])
    (result,) = change.differences
    assert (result.current, result.desired) == ("1", "true")


def test_files_of_a_tree_are_listed() -> None:
    old = one(
        "scaffold#/s", contents={"/s/a": content("a\n"), "/s/b": content("b\n"), "/s/same": content("=")}
    )
    new = one(
        "scaffold#/s", contents={"/s/a": content("A\n"), "/s/c": content("c\n"), "/s/same": content("=")}
    )
    (change,) = changes([old], [new])
    assert {difference.path: difference.kind for difference in change.differences} == {
        "/s/a": DifferenceKind.CHANGED,
        "/s/b": DifferenceKind.REMOVED,
        "/s/c": DifferenceKind.ADDED,
    }
    assert "-a\n+A\n" in change.differences[0].diff


def test_binary_content_is_shown_by_size() -> None:
    old, new = (one("file#/a", contents={"/a": ResolvedContent(n, b"%d" % n)}) for n in (1, 2))
    (change,) = changes([old], [new])
    assert [*map(str, change.differences)] == ["content: 1 bytes → 2 bytes"]


def test_a_secret_has_changed_and_says_nothing_of_itself() -> None:
    old = one("file#/a", contents={"/a": ResolvedContent(6, b"1", is_secret=True)})
    new = one("file#/a", contents={"/a": content("canary2")})
    for was, is_now in ((old, new), (new, old)):
        (change,) = changes([was], [is_now])
        assert change.differences == (secret("content"),)
    masked = {"properties": {"environment": HIDDEN}, "hidden": frozenset({("environment",)})}
    (change,) = changes([one("x#a", b"1", **masked)], [one("x#a", b"2", **masked)])
    assert change.differences == (secret("environment"),)
    redacted = str(Secret("x"))
    for path, values in ((), (HIDDEN, "canary")), (("A",), ({"A": redacted}, {"A": "canary"})):
        old, new = (one("x#a", properties={"environment": value}) for value in values)
        old = msgspec.structs.replace(old, hidden=frozenset({("environment", *path)}))
        for sides in ([old], [new]), ([new], [old]):
            (change,) = changes(*sides)
            assert "canary" not in str(change)


def test_a_value_with_the_text_of_a_mask_is_not_hidden() -> None:
    old, new = (one("x#a", properties={"creates": text}) for text in (HIDDEN, "/srv/marker"))
    (change,) = changes([old], [new])
    assert [*map(str, change.differences)] == ["creates (sensitive) → /srv/marker"]


def test_conditions_that_turn_are_told() -> None:
    on, off = file("/a"), file("/a", unmanaged="control: if x is false")
    assert kinds([on], [off]) == {"file#/a": Kind.UNMANAGED}
    assert kinds([off], [on]) == {"file#/a": Kind.MANAGED}
    assert kinds([off], [off]) == {}
    assert kinds([], [off]) == {}


def test_unmanaged_objects_that_are_removed_are_shown() -> None:
    off = file("/a", unmanaged="control: if x is false", properties={"removed": "absent"})
    assert kinds([off], []) == {"file#/a": Kind.REMOVED}


def test_failures_are_new_or_gone_or_there_as_before() -> None:
    good, bad = file("/a"), one("file#/a", failure="no address")
    assert kinds([good], [bad]) == {"file#/a": Kind.FAILS}
    assert compared([good], [bad]).fails
    assert kinds([], [bad]) == {"file#/a": Kind.FAILS}
    assert kinds([bad], [good]) == {"file#/a": Kind.RECOVERS}
    assert not compared([bad], [good]).fails
    same = compared([bad], [one("file#/a", failure="other words")])
    assert same.changes == ()
    assert not same.fails
    assert [found.why for found in same.still_failing] == ["other words"]


def test_a_bundle_that_is_refused_fails_as_a_whole() -> None:
    place = Location(file="a", line=1)
    refused = Refusal((Problem(code=ProblemCode.INVALID_MANIFEST, message="no", location=place),))
    good, bad = Resolution((file("/a"),), {}), refused
    assert compare(good, bad).fails
    assert compare(bad, bad).fails, "nothing could be compared"
    assert not compare(bad, good).fails
    assert [change.kind for change in compare(bad, good).changes] == [Kind.RECOVERS]


def refreshed(
    *new: ResolvedResource, old: tuple[ResolvedResource, ...] = ()
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the refreshed resources if only the content of ``/a`` changes."""
    before = [file("/a", "old"), *(old or new)]
    return {
        change.reference: (change.refresh, change.because)
        for change in changes(before, [file("/a", "new"), *new])
        if change.refresh
    }


def test_subscribers_are_refreshed_transitively() -> None:
    script = one("exec#load", refreshed_by=("file#/a",))
    service = one("service#s", refreshed_by=("exec#load",))
    assert refreshed(script, service) == {
        "exec#load": ("runs", ("file#/a",)),
        "service#s": ("restarts", ("exec#load",)),
    }


def test_a_subscription_counts_more_than_a_reload() -> None:
    service = one("service#s", reloaded_by=("file#/a",))
    assert refreshed(service) == {"service#s": ("reloads", ("file#/a",))}
    both = one("service#s", reloaded_by=("file#/a",), refreshed_by=("file#/a",))
    assert refreshed(both) == {"service#s": ("restarts", ("file#/a",))}


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"ensure": "stopped"}},
        {"properties": {"noop": True}},
        {"unmanaged": "control: if x is false"},
        {"failure": "no"},
    ],
)
def test_skipped_service_is_not_restarted(more: dict[str, Any]) -> None:
    assert refreshed(one("service#s", refreshed_by=("file#/a",), **more)) == {}


def test_files_that_subscribe_are_not_refreshed() -> None:
    assert refreshed(one("file#/b", refreshed_by=("file#/a",))) == {}


@pytest.mark.parametrize("name", ["require", "health_checks", "control", "removed"])
def test_a_change_of_how_a_resource_is_treated_refreshes_nothing(name: str) -> None:
    service = one("service#s", refreshed_by=("file#/b",))
    old, new = file("/b"), file("/b", properties={name: "x"})
    result = changes([old, service], [new, service])
    assert [change.reference for change in result] == ["file#/b"]


def test_dependents_of_a_failure_are_skipped_transitively() -> None:
    app, last = one("service#app", requires=("file#/a",)), one("exec#x", requires=("service#app",))
    broken = one("file#/a", failure="no")
    result = compared([file("/a"), app, last], [broken, app, last])
    assert [(c.reference, c.kind, c.because) for c in result.changes] == [
        ("file#/a", Kind.FAILS, ()),
        ("service#app", Kind.SKIPPED, ("file#/a",)),
        ("exec#x", Kind.SKIPPED, ("service#app",)),
    ]
    assert kinds([broken, app, last], [file("/a"), app, last]) == {
        "file#/a": Kind.RECOVERS,
        "service#app": Kind.MANAGED,
        "exec#x": Kind.MANAGED,
    }
    assert kinds([broken, app], [broken, app]) == {}


def test_a_resource_that_is_new_and_skipped_fails_the_release() -> None:
    broken = one("file#/a", failure="no")
    result = compared([broken], [broken, one("service#app", requires=("file#/a",))])
    assert (result.fails, [change.kind for change in result.changes]) == (True, [Kind.SKIPPED])


def test_a_requirement_that_is_known_by_another_name_skips_too() -> None:
    broken = one("file#/a", failure="no", names=("file#/a", "file#config"))
    app = one("service#app", requires=("file#config",))
    assert kinds([file("/a"), app], [broken, app])["service#app"] is Kind.SKIPPED


def test_repairable_failure_skips_nothing() -> None:
    late, app = one("file#/a", failure="not yet", is_late=True), one("service#app", requires=("file#/a",))
    result = compared([file("/a"), app], [late, app])
    assert [(change.reference, change.kind) for change in result.changes] == [("file#/a", Kind.LATE)]
    assert not result.fails, "as in a test of a bundle, it may well be there by then"
    assert [change.kind for change in compared([late], [late]).still_failing] == [Kind.LATE]


def test_skipped_resource_refreshes_nothing() -> None:
    def side(text: str) -> list[ResolvedResource]:
        return [
            one("file#/broken", failure="no"),
            file("/a", text, requires=("file#/broken",)),
            one("service#app", refreshed_by=("file#/a",)),
        ]

    assert kinds(side("1"), side("2")) == {"file#/a": Kind.CHANGED}


def test_resources_with_equal_names_are_compared_in_pairs() -> None:
    """The resources come from a child manifest that is applied twice."""
    first, second, other = (one("apply#kid.yaml", properties={"n": n}) for n in (1, 2, 3))
    assert kinds([first, second], [first, second]) == {}
    assert kinds([first, second], [other, second]) == {"apply#kid.yaml": Kind.CHANGED}
    assert kinds([first, second], [first, other]) == {"apply#kid.yaml (2)": Kind.CHANGED}


def test_how_a_bundle_is_applied_is_a_change_of_the_bundle() -> None:
    old = Resolution((), {}, settings={"give_up_after": 2})
    new = Resolution((), {}, settings={"give_up_after": 2, "fail_on_error": True})
    (change,) = compare(old, new).changes
    assert (change.reference, change.kind) == ("the bundle", Kind.CHANGED)
    (result,) = change.differences
    assert (result.property, result.desired, result.kind) == ("fail_on_error", "true", DifferenceKind.ADDED)
    assert compare(new, new).changes == ()
