"""``web/index.json``: strict parsing, one encoding."""

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
from bundles.format.index import Archive, Artifact, Digest, Index, Indexes
from bundles.format.release import (
    LONGEST_ROLLOUT,
    LONGEST_TRIAL,
    MOST_RUNS,
    Release,
    Rollout,
    Runs,
    Selection,
    TrialRule,
    place,
)
from foundation.times import Duration
from tests.support.rows import each_row

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


trials = some.builds(
    TrialRule,
    some.integers(0, LONGEST_TRIAL).map(Duration) | some.none(),
    some.integers(1, MOST_RUNS).map(Runs) | some.none(),
).filter(lambda rule: rule != TrialRule())
sizes = some.integers(0, 2**53 - 1)
digests = some.binary(min_size=32, max_size=32).map(bytes.hex)


@some.composite
def indexes(draw: some.DrawFn) -> Index:
    bundle = draw(names)
    offered = draw(some.dictionaries(versions, some.builds(Digest, sizes, digests), min_size=1))
    artifacts = {
        version: Artifact(Archive.of(bundle, version, digest), draw(some.builds(Digest, sizes, digests)))
        for version, digest in offered.items()
    }
    channels = {name: release_of(draw, bundle, sorted(offered)) for name in draw(some.sets(names))}
    return Index(bundle, channels, artifacts)


def release_of(draw: some.DrawFn, bundle: str, offered: list[str]) -> Release:
    release = Release(bundle, draw(some.sampled_from(offered)), trial=draw(some.none() | trials))
    if (rollout := draw(some.none() | rollouts)) is None:
        return release
    earlier = some.builds(Release, some.just(bundle), some.sampled_from(offered), trial=some.none() | trials)
    before = draw(some.none() | earlier)
    return replace(release, rollout=replace(rollout, before=before, wave=draw(some.none() | names)))


@given(indexes())
def test_an_index_survives_being_written_and_read(index: Index) -> None:
    assert Index.parse(index.to_bytes(), index.bundle) == index
    assert Index.parse(index.to_bytes(), index.bundle).to_bytes() == index.to_bytes()


@given(indexes())
def test_the_order_of_publishing_leaves_no_trace(index: Index) -> None:
    channels, releases = dict(reversed([*index.channels.items()])), dict(reversed([*index.releases.items()]))
    assert Index(index.bundle, channels, releases).to_bytes() == index.to_bytes()


def artifact(version: str) -> Artifact:
    return Artifact(Archive.of("web", version, Digest(10, "a" * 64)), Digest(5, "b" * 64))


def test_a_release_is_found_by_channel_and_bundle() -> None:
    web = Index("web", {"stable": Release.of("web", "1.4.0")}, {"1.4.0": artifact("1.4.0")})
    index = Indexes({"web": web})
    assert index.find("web", "stable") == Release("web", "1.4.0")
    assert index.find("web", "canary") is None
    assert index.find("db", "stable") is None


def test_the_files_of_a_release_are_those_of_its_version() -> None:
    index = Indexes({"web": Index("web", {}, {"1.4.0": artifact("1.4.0")})})
    result = index.artifact(Release.of("web", "1.4.0"))
    assert result.archive == Archive(f"web/{'a' * 64}.web-1.4.0.tar.gz", 10, "a" * 64)
    assert list(index.artifacts()) == [result]
    for bundle, version in (("web", "1.5.0"), ("db", "1.4.0")):
        with pytest.raises(FormatError, match=f"^site: {bundle} {version} is not published$"):
            index.artifact(Release.of(bundle, version))


BEFORE = "1.3.0"


@each_row(
    ("fields", "rollout"),
    [
        ({"percent": 10}, Rollout(percent=10)),
        ({"percent": "12.5"}, Rollout(percent=12.5)),
        ({"percent": "0.07", "halted": True}, Rollout(percent=0.07, halted=True)),
        ({"percent": 0}, Rollout(percent=0)),
        ({"percent": 100, "before": BEFORE}, Rollout(percent=100, before=Release.of("web", "1.3.0"))),
        ({"percent": 5, "wave": "app-7"}, Rollout(percent=5, wave="app-7")),
        (
            {"start": "2026-11-20T12:00:00Z", "duration": 86400},
            Rollout(start=datetime(2026, 11, 20, 12, tzinfo=UTC), duration=timedelta(days=1)),
        ),
    ],
)
def test_a_rollout_is_read_and_written_as_documented(fields: dict[str, Any], rollout: Rollout) -> None:
    document = document_with({"rollout": fields})
    index = Index.parse(document, "web")
    assert index.find("stable") == replace(Release.of("web", "1.4.0"), rollout=rollout)
    assert json.loads(index.to_bytes()) == json.loads(document)


def test_the_example_of_the_documents_is_an_index() -> None:
    page = (Path(__file__).parents[3] / "docs/rollouts.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    release = Index.parse(example.encode(), "web").find("stable")
    rollout = Rollout(percent=10, before=Release.of("web", "1.4.0"), wave="shop-7")
    rule = TrialRule(Duration(7200), Runs(5))
    assert release == replace(Release.of("web", "1.5.0"), rollout=rollout, trial=rule)


def test_remarks_are_passed_over() -> None:
    document = json.loads(document_with({"rollout": {"percent": 5, "x-why": "careful"}, "x-ticket": "OPS-1"}))
    document["x-by"] = {"name": "someone"}
    document["releases"]["1.4.0"]["archive"]["x-built-on"] = "a laptop"
    plain = document_with({"rollout": {"percent": 5}})
    assert Index.parse(json.dumps(document).encode(), "web") == Index.parse(plain, "web")


def document_with(changes: dict[str, Any], **others: Any) -> bytes:
    releases = {version: artifact(version).fields() for version in ("1.3.0", "1.4.0")}
    channels = {"stable": {"version": "1.4.0", **changes}}
    document = {"format": 2, "bundle": "web", "channels": channels, "releases": releases, **others}
    return json.dumps(document).encode()


def document_of(version: str, *place: str, **fields: Any) -> bytes:
    """Return a document with changed fields of a release or of one of its files."""
    document = json.loads(document_with({}))
    described = document["releases"].setdefault(version, artifact("1.4.0").fields())
    for part in place:
        described = described[part]
    described.update(fields)
    return json.dumps(document).encode()


STABLE = r"channels\.'stable'"
ARCHIVE = r"releases\.'1\.4\.0'\.archive"


@each_row(
    ("document", "message"),
    [
        (
            b'{"format": 3, "new": {}}',
            r"^web/index\.json: format: is 3, and this version of Puller reads 2: upgrade Puller on this host$",
        ),
        (b'{"format": 1, "channels": {}}', "format: is 1, .* reads 2: the site was made by another version"),
        (b'{"format": true}', "format: is true, expected the number 2"),
        (b'{"format": "2"}', 'format: is "2", expected the number 2'),
        (b"{}", "format: is null, expected the number 2"),
        (b"[]", r"web/index\.json: is \[\], expected an object"),
        (b"<html>", "is not an index: Expecting value"),
        (b'{"format": 2, "format": 2}', "the key 'format' is duplicate"),
        (b'{"format": 2}', "index.bundle: is null, expected a string"),
        (document_with({}, bundle="db"), 'bundle: is "db", expected "web"'),
        (document_with({}, channels=None), "channels: is null, expected an object"),
        (document_with({}, channels=[]), r"channels: is \[\], expected an object"),
        (document_with({}, releases=[]), r"releases: is \[\], expected an object"),
        (document_with({}, channels={"stable": "1.4.0"}), f'{STABLE}: is "1.4.0", expected an object'),
        (
            document_with({}, halt=True),
            "index: unknown keys 'halt', expected bundle, channels, format, releases: upgrade",
        ),
        (document_with({}, channels={"St able": {}}), "channel: is 'St able', expected"),
        (document_with({"version": 1}), rf"{STABLE}\.version: is 1, expected a string"),
        (document_with({"version": "../1"}), "version: is '../1', expected"),
        (document_with({"version": "1..2"}), r"version: is '1\.\.2', expected"),
        (document_with({"version": "9"}), f"{STABLE}: refers to version 9, which is missing in the releases"),
        (document_with({"rollout": 25}), rf"{STABLE}\.rollout: is 25, expected an object"),
        (document_with({"rollout": None}), rf"{STABLE}\.rollout: is null, expected an object"),
        (document_with({"halted": True}), f"{STABLE}: unknown keys 'halted'"),
        (document_of("../1"), "version: is '../1', expected"),
        (document_of("1.4.0", archive=None), f"{ARCHIVE}: is null, expected an object"),
        (document_of("1.4.0", description=5), r"'1\.4\.0'\.description: is 5, expected an object"),
        (document_of("1.4.0", withdrawn=True), "unknown keys 'withdrawn', expected archive, description"),
        (document_of("1.4.0", "archive", path=None), rf"{ARCHIVE}\.path: is null, expected a string"),
        (document_of("1.4.0", "archive", path="/etc/passwd"), "'/etc/passwd': the name is absolute"),
        (document_of("1.4.0", "archive", path="web/../../x"), r"the name contains the component '\.\.'"),
        (
            document_of("1.4.0", "archive", length=-1),
            rf"{ARCHIVE}\.length: is -1, expected a number of bytes from 0",
        ),
        (
            document_of("1.4.0", "archive", length=True),
            rf"{ARCHIVE}\.length: is true, expected a number of bytes",
        ),
        (document_of("1.4.0", "archive", sha256="A" * 64), "expected 64 hexadecimal digits in lower case"),
        (document_of("1.4.0", "description", sha256="a" * 63), "expected 64 hexadecimal digits"),
        (
            document_of("1.4.0", "archive", patch="x"),
            f"{ARCHIVE}: unknown keys 'patch', expected length, path",
        ),
    ],
)
def test_invalid_index_is_refused_with_its_location(document: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Index.parse(document, "web")


ROLLOUT = r"^web/index\.json: channels\.'stable'\.rollout"
START = "2026-11-20T12:00:00Z"


@each_row(
    ("rollout", "message"),
    [
        ({}, r"\.percent: expected either 'percent', or both 'start' and 'duration'"),
        ({"percent": 5, "start": START, "duration": 60}, r"\.percent: expected either 'percent', or both"),
        ({"percent": 5, "duration": 60}, r"\.percent: expected either 'percent', or both"),
        ({"start": START}, r"\.percent: expected either 'percent', or both"),
        ({"percent": None}, r"\.percent: is null, expected a whole number, or text such as \"12.5\""),
        ({"percent": True}, r"\.percent: is true, expected a whole number"),
        ({"percent": "10"}, r"\.percent: is \"10\", expected a whole number"),
        ({"percent": "10.50"}, r"\.percent: is \"10.50\", expected a whole number"),
        ({"percent": "0.001"}, r"\.percent: is \"0.001\", expected a whole number"),
        ({"percent": "NaN"}, r"\.percent: is \"NaN\", expected a whole number"),
        ({"percent": "100.5"}, r"\.percent: is \"100.5\", expected a whole number"),
        ({"percent": 101}, r"\.percent: is 101.0, expected a number from 0 to 100"),
        ({"percent": -1}, r"\.percent: is -1.0, expected a number from 0 to 100"),
        ({"start": 5, "duration": 60}, r"\.start: is 5, expected a time in UTC such as"),
        ({"start": "2026-11-20T12:00:00", "duration": 60}, r"\.start: is \"2026-11-20T12:00:00\", expected"),
        ({"start": "2026-11-20T12:00:00+01:00", "duration": 60}, r"\.start: is .*, expected a time in UTC"),
        ({"start": "2026-02-30T12:00:00Z", "duration": 60}, r"\.start: is .*, expected a time in UTC"),
        ({"start": "٢٠٢٦-11-20T12:00:00Z", "duration": 60}, r"\.start: is .*, expected a time in UTC"),
        ({"start": START, "duration": 0}, r"\.duration: is 0, expected from 1 to \d+ whole seconds"),
        ({"start": START, "duration": True}, r"\.duration: is true, expected from 1"),
        ({"start": START, "duration": "1d"}, r"\.duration: is \"1d\", expected from 1"),
        ({"start": START, "duration": 2**53 - 1}, r"\.duration: is 9007199254740991, expected from 1"),
        ({"percent": 5, "halted": 1}, r"\.halted: is 1, expected true or false"),
        (
            {"start": START, "duration": 60, "halted": True},
            r"\.halted: is true, and 'percent' with the reached share",
        ),
        (
            {"percent": 5, "hosts": ["a"]},
            ": unknown keys 'hosts', expected before, before_trial, duration, halted, percent, start, wave",
        ),
        ({"percent": 5, "before": None}, r"\.before: is null, expected a string"),
        ({"percent": 5, "before": "../1"}, r": version: is '\.\./1'"),
        ({"percent": 5, "before_trial": {"runs": 2}}, r"\.before_trial: has no release"),
        ({"percent": 5, "before": "1.2.0", "before_trial": {}}, r"\.before_trial: is empty"),
        ({"percent": 5, "wave": 7}, r"\.wave: is 7, expected a string"),
        ({"percent": 5, "wave": "the first"}, r": wave: is 'the first', expected"),
    ],
)
def test_invalid_rollout_is_refused_with_its_location(rollout: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=ROLLOUT + message):
        Index.parse(document_with({"rollout": rollout}), "web")


@each_row(
    ("trial", "message"),
    [
        (5, r": is 5, expected an object"),
        (None, r": is null, expected an object"),
        ({}, r": is empty, expected duration, runs, or both"),
        ({"times": 2}, r": unknown keys 'times', expected duration, runs: upgrade Puller on this host"),
        ({"duration": "10m"}, r"\.duration: is \"10m\", expected from 0 to \d+ whole seconds"),
        ({"duration": None, "runs": 2}, r"\.duration: is null, expected from 0"),
        ({"duration": -1}, r"\.duration: is -1, expected from 0"),
        ({"duration": LONGEST_TRIAL + 1}, r"\.duration: is \d+, expected from 0"),
        ({"runs": 0}, r"\.runs: is 0, expected a number from 1 to 10000"),
        ({"runs": True}, r"\.runs: is true, expected a number from 1"),
        ({"runs": 10_001}, r"\.runs: is 10001, expected a number from 1"),
    ],
)
def test_invalid_trial_is_refused_with_its_location(trial: object, message: str) -> None:
    with pytest.raises(FormatError, match=rf"^web/index\.json: channels\.'stable'\.trial{message}"):
        Index.parse(document_with({"trial": trial}), "web")


def test_a_release_before_a_rollout_is_among_the_releases_too() -> None:
    document = document_with({"rollout": {"percent": 5, "before": "1.2.0"}})
    with pytest.raises(
        FormatError, match=f"{STABLE}: refers to version 1.2.0, which is missing in the releases"
    ):
        Index.parse(document, "web")


def test_a_fraction_is_no_number_that_an_index_may_hold() -> None:
    with pytest.raises(FormatError, match=r"is not an index: '12\.5' is not a whole number"):
        Index.parse(document_with({"rollout": {"percent": 12.5}}), "web")
    with pytest.raises(FormatError, match="'NaN' is not a whole number"):
        Index.parse(document_with({"rollout": {"percent": float("nan")}}), "web")


# --- the release for a host ---------------------------------------------------------------------------------

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
STORIES: list[tuple[dict[str, Any], bool, str]] = [
    ({"percent": 10}, False, ""),
    ({"percent": PLACE}, False, ""),
    ({"percent": 25}, True, ""),
    ({"percent": 100}, True, ""),
    ({"start": NOW, "duration": DAY}, False, "2026-11-20 18:00"),
    ({"start": NOW + DAY, "duration": DAY}, False, "2026-11-21 18:00"),
    ({"start": NOW - DAY / 10, "duration": DAY}, False, "2026-11-20 15:36"),
    ({"start": NOW - DAY, "duration": DAY}, True, ""),
    ({"percent": 10, "halted": True}, False, ""),
    ({"percent": 80, "halted": True}, False, ""),
]


@each_row(("fields", "is_taken", "waits_until"), STORIES)
def test_rollout_takes_a_host_or_keeps_the_old_release(
    fields: dict[str, Any], is_taken: bool, waits_until: str
) -> None:
    release = rolling_out(**fields)
    selection = release.chosen_for(HOST, NOW, current=False)
    assert selection.release == (release if is_taken else OLD)
    assert (f"{selection.waits_until:%Y-%m-%d %H:%M}" if selection.waits_until else "") == waits_until


@each_row("fields", [fields for fields, *_ in STORIES])
def test_a_host_that_runs_the_release_stays_on_it(fields: dict[str, Any]) -> None:
    release = rolling_out(**fields)
    assert release.chosen_for(HOST, NOW, current=True) == Selection(release)


def test_host_outside_a_first_release_keeps_its_version() -> None:
    selection = rolling_out(percent=10, before=None).chosen_for(HOST, NOW, current=False)
    assert selection.release is None
