"""The sent document: complete if it fits, and always with the result of the run."""

import gzip
import json
import random
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.differences import Difference, changed, with_diff
from puller.delivery.report_document import LARGEST, LARGEST_JSON, chosen_facts, pack, unpack
from puller.reporting.report import (
    BundleReport,
    Event,
    PublishedBundle,
    Report,
    RestlessResource,
    SentReport,
    State,
    Summary,
)
from tests.puller.problems import failure
from tests.support.rows import each_row

NOISE = random.Random(3)


def noise(size: int) -> str:
    """Return text that compresses badly."""
    return NOISE.randbytes(size // 2).hex()


def event(name: str, state: State, **fields: Any) -> Event:
    return Event(type="file", name=name, state=state, **fields)


def content(desired: str, diff: str = "") -> list[Difference]:
    return with_diff([changed("content", "", desired)], diff)


def sent(events: list[Event], *, bundles: int = 1, **fields: Any) -> SentReport:
    reports = [
        BundleReport(
            name=f"web{number}",
            version="1.0.0",
            outcome="applied",
            events=events,
            summary=Summary.of(events, 1.0),
        )
        for number in range(bundles)
    ]
    report = Report(
        run="20261123T080000.000000Z",
        started="2026-11-23T08:00:00.000+00:00",
        finished="2026-11-23T08:00:01.000+00:00",
        host="web01.example.com",
        puller="1.0.0",
        exit_status=4,
        bundles=reports,
    )
    return SentReport(host=report.host, sent=report.finished, report=report, **fields)


def read(data: bytes) -> SentReport:
    return msgspec.json.decode(unpack(data), type=SentReport)


def test_a_document_says_all_and_the_same_gives_the_same_bytes() -> None:
    events = [
        event("/a", State.STABLE),
        event("/b", State.CHANGED, differences=content("a", "-old\n+new\n")),
        event("/c", State.STABLE),
    ]
    item = sent(events, facts={"os": {"family": "Debian"}}, bundles=2)
    data = pack(item)
    assert data == pack(item)
    assert data[4:8] == bytes(4)  # no time in the header
    result = read(data)
    assert (result.host, result.facts, result.left_out) == (item.host, item.facts, "")
    bundle = result.report.bundles[1]
    assert bundle.events == events[1:2]
    assert bundle.in_order is not None
    assert bundle.in_order.resources == 2
    assert bundle.summary == item.report.bundles[1].summary
    assert item.report.bundles[0].events == events
    assert json.loads(gzip.decompress(data))["format"] == 3


def test_differences_of_contents_go_first() -> None:
    events = [event(f"/{n}", State.CHANGED, differences=content(str(n), noise(40_000))) for n in range(20)]
    result = read(pack(sent(events)))
    assert "differences of contents" in result.left_out
    assert "texts" not in result.left_out
    (bundle,) = result.report.bundles
    assert [one.differences for one in bundle.events] == [content(str(n)) for n in range(20)]
    assert not any(one.diff for one in bundle.events)


def test_then_texts_are_shortened() -> None:
    events = [event(f"/{n}", State.FAILED, problems=[failure(noise(100_000))]) for n in range(20)]
    result = read(pack(sent(events)))
    assert result.left_out.endswith("the ends of long texts and lists")
    (bundle,) = result.report.bundles
    for told, was in zip(bundle.events, events, strict=True):
        assert told.errors[0] == f"{was.errors[0][:400]}…"


def test_then_resources_go_and_those_that_failed_are_the_last() -> None:
    events = [event(f"/{n}", State.CHANGED, differences=content(noise(390))) for n in range(3000)]
    events[2500:2500] = [event("/broken", State.FAILED, problems=[failure("it is broken")])]
    events += [event("/skipped", State.SKIPPED, unmet_requirements=["file#/broken"])]
    result = read(pack(sent(events)))
    (bundle,) = result.report.bundles
    reported = [one.name for one in bundle.events]
    assert {"/broken", "/skipped"} <= {*reported}
    assert f"{len(events) - len(reported)} resources" in result.left_out
    assert bundle.summary.resources == len(events)
    assert bundle.summary.failed == 1


def test_many_facts_go_before_resources() -> None:
    events = [event("/broken", State.FAILED, problems=[failure("it is broken")])]
    result = read(pack(sent(events, facts={"blob": noise(1_000_000)})))
    assert "facts" in result.left_out
    assert (result.facts, result.report.bundles[0].events) == ({}, events)


@pytest.mark.everything
@pytest.mark.timeout(600)  # a hundred reports of up to a hundred megabytes
@settings(max_examples=settings().max_examples // 4)
@given(
    bundles=st.integers(0, 1000),
    texts=st.sampled_from(["", "x" * 50_000, "\x00" * 5000, "\U0001f600" * 2000]),
    count=st.integers(0, 50),
)
def test_any_report_fits_and_states_the_end_of_the_run(bundles: int, texts: str, count: int) -> None:
    events = [event(f"{texts}{n}", State.FAILED, problems=[failure(texts)] * 20) for n in range(count)]
    whole = sent(events, bundles=min(bundles, 20) if count and texts else bundles)
    whole.bundles = [PublishedBundle(name=f"b{n}{texts[:200]}", held=texts[:500]) for n in range(bundles)]
    whole.restless = [RestlessResource(bundle="a", reference=texts, runs=1, changes=1)] * 3
    whole.report.problems = [failure(texts)] * 100
    data = pack(whole)
    assert len(data) <= LARGEST
    text = unpack(data)
    assert len(text) <= LARGEST_JSON
    result = msgspec.json.decode(text, type=SentReport)
    assert (result.host, result.report.run, result.report.exit_status) == (whole.host, whole.report.run, 4)


@each_row(
    ("data", "message"),
    [
        (b"", "cut off"),
        (b"{}", "not a compressed report"),
        (gzip.compress(b"{}", mtime=0)[:-3], "cut off"),
        (gzip.compress(b"{}", mtime=0) + b"x", "further data behind it"),
        (gzip.compress(bytes(LARGEST_JSON + 1), mtime=0), "more than 1048576 bytes after decompression"),
        (bytes(LARGEST + 1), "more than 262144 bytes"),
        (zlib.compress(b"{}"), "not a compressed report"),
    ],
)
def test_invalid_document_is_refused_with_a_message(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack(data)


class Broken(dict[str, Any]):
    """Facts with a fact ``broken``, which cannot be gathered."""

    def __getitem__(self, key: str) -> Any:
        if key == "broken":
            raise OSError("the disk is gone")
        return super().__getitem__(key)


def test_facts_are_those_that_are_listed_nested_and_plain() -> None:
    facts = Broken(
        os={"name": "Debian", "release": {"major": "12", "full": "12.1"}, "other": 1},
        list=[{"a": 1}, {"a": 2}],
        path="/\udcff",
        strange=object(),
        broken=1,
    )
    names = [
        "os.name",
        "os.release",
        "os.release.major",
        "list.1.a",
        "path",
        "strange",
        "broken",
        "none.x",
        "os.name.x",
    ]
    assert chosen_facts(facts, names).facts == {
        "os": {"name": "Debian", "release": {"major": "12", "full": "12.1"}},
        "list": {"1": {"a": 2}},
        "path": "/\\udcff",
    }
    assert chosen_facts(facts, ["os.release.major", "os"]).facts == {"os": facts["os"]}
