"""``index.json``: strict in, one spelling out."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from bundles.errors import FormatError
from bundles.format.index import Index
from bundles.format.release import LONGEST_ROLLOUT, Release, Rollout, Selection, place

names = some.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
versions = some.from_regex(r"[0-9A-Za-z][0-9A-Za-z+~_-]{0,20}", fullmatch=True)


percentages = some.integers(0, 10_000).map(lambda hundredths: hundredths / 100)
times = some.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31)).map(
    lambda at: at.replace(microsecond=0, tzinfo=UTC)
)
durations = some.integers(1, LONGEST_ROLLOUT // timedelta(seconds=1)).map(
    lambda seconds: timedelta(seconds=seconds)
)
rollouts = some.one_of(
    some.builds(
        lambda percent, halted: Rollout(percent=percent, halted=halted), percentages, some.booleans()
    ),
    some.builds(lambda start, duration: Rollout(start=start, duration=duration), times, durations),
)


@some.composite
def releases(draw: some.DrawFn) -> Release:
    release = Release.of(draw(names), draw(versions))
    if (rollout := draw(some.none() | rollouts)) is None:
        return release
    before = draw(some.none() | versions.map(lambda version: Release.of(release.bundle, version)))
    return replace(release, rollout=replace(rollout, before=before))


@given(some.lists(some.tuples(names, releases())))
def test_an_index_survives_being_written_and_read(entries: list[tuple[str, Release]]) -> None:
    index = Index()
    for channel, release in entries:
        index = index.with_release(release, channel)
    assert Index.parse(index.to_bytes()) == index
    assert Index.parse(index.to_bytes()).to_bytes() == index.to_bytes()


@given(some.permutations([("stable", "web"), ("stable", "db"), ("canary", "web")]))
def test_the_order_of_publishing_leaves_no_trace(order: list[tuple[str, str]]) -> None:
    index, other = Index(), Index()
    for channel, bundle in sorted(order):
        index = index.with_release(Release.of(bundle, "1.0.0"), channel)
    for channel, bundle in order:
        other = other.with_release(Release.of(bundle, "1.0.0"), channel)
    assert index.to_bytes() == other.to_bytes()


def test_a_release_is_found_by_channel_and_bundle() -> None:
    index = Index().with_release(Release.of("web", "1.4.0"), "stable")
    assert index.find("web", "stable") == Release("web", "1.4.0", "web/web-1.4.0.tar.gz")
    assert index.find("web", "canary") is None
    assert index.find("db", "stable") is None


BEFORE = {"version": "1.3.0", "target": "web/web-1.3.0.tar.gz"}


@pytest.mark.parametrize(
    ("fields", "rollout"),
    [
        ({"percent": 10}, Rollout(percent=10)),
        ({"percent": "12.5"}, Rollout(percent=12.5)),
        ({"percent": "0.07", "halted": True}, Rollout(percent=0.07, halted=True)),
        ({"percent": 0}, Rollout(percent=0)),
        ({"percent": 100, "before": BEFORE}, Rollout(percent=100, before=Release.of("web", "1.3.0"))),
        (
            {"start": "2026-11-20T12:00:00Z", "duration": 86400},
            Rollout(start=datetime(2026, 11, 20, 12, tzinfo=UTC), duration=timedelta(days=1)),
        ),
    ],
)
def test_a_rollout_is_read_and_written_as_documented(fields: dict[str, Any], rollout: Rollout) -> None:
    document = document_with({"rollout": fields})
    assert Index.parse(document).find("web", "stable") == replace(Release.of("web", "1.4.0"), rollout=rollout)
    assert json.loads(Index.parse(document).to_bytes()) == json.loads(document)


def test_the_example_of_the_documents_is_an_index() -> None:
    page = (Path(__file__).parents[3] / "docs/rollouts.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    release = Index.parse(example.encode()).find("web", "stable")
    rollout = Rollout(percent=10, before=Release.of("web", "1.4.0"))
    assert release == replace(Release.of("web", "1.5.0"), rollout=rollout)


def test_the_sentences_of_the_documents_are_those_that_hosts_say() -> None:
    page = (Path(__file__).parents[3] / "docs/rollouts.md").read_text()
    documented = re.findall(r"^    held: (.*)$", page, re.MULTILINE)
    said = [held for _, held in STORIES if held is not None]
    assert len(documented) == 4
    for sentence in documented:
        assert any(without_numbers(sentence) == without_numbers(held) for held in said), sentence


def without_numbers(sentence: str) -> str:
    return re.sub(r"[0-9.:-]+(?= (%|UTC|[0-9]))", "N", sentence)


def test_remarks_in_a_rollout_are_passed_over() -> None:
    remarked = {"percent": 5, "x-why": "careful", "before": {**BEFORE, "x-by": 1}}
    plain = document_with({"rollout": {"percent": 5, "before": BEFORE}})
    assert Index.parse(document_with({"rollout": remarked})) == Index.parse(plain)


def test_remarks_are_passed_over() -> None:
    document = json.loads(document_with({"x-ticket": "OPS-1"}))
    document["x-by"] = {"name": "someone"}
    assert Index.parse(json.dumps(document).encode()) == Index.parse(document_with({}))


def document_with(changes: dict[str, Any]) -> bytes:
    release = {"version": "1.4.0", "target": "web/web-1.4.0.tar.gz", **changes}
    return json.dumps({"format": 1, "channels": {"stable": {"web": release}}}).encode()


RELEASE = r"channels\.'stable'\.'web'"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b'{"format": 2, "new": {}}', r"index\.json: format: is 2, this version of Puller reads 1: upgrade"),
        (b'{"format": 0}', "format: is 0"),
        (b'{"format": true}', "format: is true, wanted the number 1"),
        (b'{"format": "1"}', 'format: is "1", wanted the number 1'),
        (b"{}", "format: is null, wanted the number 1"),
        (b"[]", r"index\.json: is \[\], wanted an object"),
        (b"<html>", "is not an index: Expecting value"),
        (b'{"format": 1, "format": 1}', "the key 'format' stands there twice"),
        (b'{"format": 1}', "channels: is null, wanted an object"),
        (b'{"format": 1, "channels": []}', r"channels: is \[\], wanted an object"),
        (b'{"format": 1, "channels": {"stable": 5}}', "channels.'stable': is 5, wanted an object"),
        (b'{"format": 1, "channels": {"stable": {"web": "1.4"}}}', f'{RELEASE}: is "1.4", wanted an object'),
        (
            b'{"format": 1, "channels": {}, "halt": true}',
            "unknown keys 'halt', wanted channels, format: upgrade",
        ),
        (b'{"format": 1, "channels": {"St able": {}}}', "channel: is 'St able', wanted"),
        (b'{"format": 1, "channels": {"stable": {"../web": {}}}}', "name: is '../web', wanted"),
        (document_with({"version": 1}), rf"{RELEASE}\.version: is 1, wanted a string"),
        (document_with({"version": "../1"}), "version: is '../1', wanted"),
        (document_with({"version": "1..2"}), r"version: is '1\.\.2', wanted"),
        (document_with({"target": None}), rf"{RELEASE}\.target: is null, wanted a string"),
        (
            document_with({"target": "../../etc/passwd"}),
            r"'../../etc/passwd': the name holds the component '\.\.'",
        ),
        (document_with({"target": "/etc/passwd"}), "the name is absolute"),
        (document_with({"rollout": 25}), rf"{RELEASE}\.rollout: is 25, wanted an object"),
        (document_with({"rollout": None}), rf"{RELEASE}\.rollout: is null, wanted an object"),
        (document_with({"halted": True}), f"{RELEASE}: unknown keys 'halted'"),
    ],
)
def test_what_an_index_cannot_be_is_refused_with_its_place(document: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Index.parse(document)


ROLLOUT = r"^index\.json: channels\.'stable'\.'web'\.rollout"
START = "2026-11-20T12:00:00Z"


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({}, r"\.percent: wanted either this, or both 'start' and 'duration'"),
        ({"percent": 5, "start": START, "duration": 60}, r"\.percent: wanted either this, or both"),
        ({"percent": 5, "duration": 60}, r"\.percent: wanted either this, or both"),
        ({"start": START}, r"\.percent: wanted either this, or both"),
        ({"percent": None}, r"\.percent: is null, wanted a whole number, or text such as \"12.5\""),
        ({"percent": True}, r"\.percent: is true, wanted a whole number"),
        ({"percent": "10"}, r"\.percent: is \"10\", wanted a whole number"),
        ({"percent": "10.50"}, r"\.percent: is \"10.50\", wanted a whole number"),
        ({"percent": "0.001"}, r"\.percent: is \"0.001\", wanted a whole number"),
        ({"percent": "NaN"}, r"\.percent: is \"NaN\", wanted a whole number"),
        ({"percent": "100.5"}, r"\.percent: is \"100.5\", wanted a whole number"),
        ({"percent": 101}, r"\.percent: is 101.0, wanted a number from 0 to 100"),
        ({"percent": -1}, r"\.percent: is -1.0, wanted a number from 0 to 100"),
        ({"start": 5, "duration": 60}, r"\.start: is 5, wanted a time in UTC such as"),
        ({"start": "2026-11-20T12:00:00", "duration": 60}, r"\.start: is \"2026-11-20T12:00:00\", wanted"),
        ({"start": "2026-11-20T12:00:00+01:00", "duration": 60}, r"\.start: is .*, wanted a time in UTC"),
        ({"start": "2026-02-30T12:00:00Z", "duration": 60}, r"\.start: is .*, wanted a time in UTC"),
        ({"start": "٢٠٢٦-11-20T12:00:00Z", "duration": 60}, r"\.start: is .*, wanted a time in UTC"),
        ({"start": START, "duration": 0}, r"\.duration: is 0, wanted from 1 to \d+ whole seconds"),
        ({"start": START, "duration": True}, r"\.duration: is true, wanted from 1"),
        ({"start": START, "duration": "1d"}, r"\.duration: is \"1d\", wanted from 1"),
        ({"start": START, "duration": 2**53 - 1}, r"\.duration: is 9007199254740991, wanted from 1"),
        ({"percent": 5, "halted": 1}, r"\.halted: is 1, wanted true or false"),
        (
            {"start": START, "duration": 60, "halted": True},
            r"\.halted: is true, and 'percent' does not say how far",
        ),
        (
            {"percent": 5, "hosts": ["a"]},
            ": unknown keys 'hosts', wanted before, duration, halted, percent, start",
        ),
        ({"percent": 5, "before": None}, r"\.before: is null, wanted an object"),
        ({"percent": 5, "before": {"version": "1"}}, r"\.before\.target: is null, wanted a string"),
        ({"percent": 5, "before": {"version": "../1", "target": "a"}}, r"\.before: version: is '\.\./1'"),
        (
            {"percent": 5, "before": {**BEFORE, "rollout": {"percent": 1}}},
            r"\.before: unknown keys 'rollout'",
        ),
    ],
)
def test_what_a_rollout_cannot_be_is_refused_with_its_place(rollout: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=ROLLOUT + message):
        Index.parse(document_with({"rollout": rollout}))


def test_a_fraction_is_no_number_that_an_index_may_hold() -> None:
    with pytest.raises(FormatError, match=r"is not an index: '12\.5' is not a whole number"):
        Index.parse(document_with({"rollout": {"percent": 12.5}}))
    with pytest.raises(FormatError, match="'NaN' is not a whole number"):
        Index.parse(document_with({"rollout": {"percent": float("nan")}}))


# --- which release a host runs ------------------------------------------------------------------------------

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OLD, NEW = Release.of("web", "1.4.0"), Release.of("web", "1.5.0")
HOST = "web37781.example.com"
PLACE = place(HOST, "web", "1.5.0")


def rolling_out(**fields: Any) -> Release:
    return replace(NEW, rollout=Rollout(**{"before": OLD, **fields}))


def test_the_place_in_these_stories() -> None:
    assert PLACE == 24.99


def test_a_release_without_a_rollout_is_for_every_host() -> None:
    assert NEW.chosen_for(HOST, NOW, current=False) == Selection(NEW)
    assert NEW.chosen_for(HOST, NOW, current=True) == Selection(NEW)


DAY = timedelta(days=1)
STORIES: list[tuple[dict[str, Any], str | None]] = [
    ({"percent": 10}, "web 1.5.0 reaches this host at 25 %, now 10 %"),
    ({"percent": PLACE}, "web 1.5.0 reaches this host at 25 %, now 24.99 %"),
    ({"percent": 25}, None),
    ({"percent": 100}, None),
    (
        {"start": NOW, "duration": DAY},
        "web 1.5.0 reaches this host at 25 %, now 0 %, at about 2026-11-20 18:00 UTC",
    ),
    (
        {"start": NOW + DAY, "duration": DAY},
        "web 1.5.0 reaches this host at 25 %, now 0 %, at about 2026-11-21 18:00 UTC",
    ),
    (
        {"start": NOW - DAY / 10, "duration": DAY},
        "web 1.5.0 reaches this host at 25 %, now 10 %, at about 2026-11-20 15:36 UTC",
    ),
    ({"start": NOW - DAY, "duration": DAY}, None),
    (
        {"percent": 10, "halted": True},
        "web 1.5.0 is halted by the publisher at 10 %, this host's place is 24.99 %",
    ),
    (
        {"percent": 80, "halted": True},
        "web 1.5.0 is halted by the publisher at 80 %, before this host took it",
    ),
]


@pytest.mark.parametrize(("fields", "held"), STORIES)
def test_a_host_is_taken_or_told_why_not(fields: dict[str, Any], held: str | None) -> None:
    release = rolling_out(**fields)
    expected = Selection(release) if held is None else Selection(OLD, held)
    assert release.chosen_for(HOST, NOW, current=False) == expected


@pytest.mark.parametrize("fields", [fields for fields, _ in STORIES])
def test_a_host_that_runs_the_release_stays_on_it(fields: dict[str, Any]) -> None:
    release = rolling_out(**fields)
    assert release.chosen_for(HOST, NOW, current=True) == Selection(release)


def test_a_host_that_is_not_reached_by_a_first_release_keeps_what_there_is() -> None:
    selection = rolling_out(percent=10, before=None).chosen_for(HOST, NOW, current=False)
    assert selection.release is None
    assert selection.held
