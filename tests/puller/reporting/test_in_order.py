"""Resources in sync, which reports omit: stored once, restored completely, and never confused with no resources."""

import hashlib
import random
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import differences
from puller.reporting.history import Retention, load_all_events, load_last_report, save_report
from puller.reporting.in_order import complete, shorten
from puller.reporting.report import BundleReport, Event, Health, HealthResult, Report, State, Summary
from puller.state import Directories
from tests.puller.problems import failure

NOW = datetime(2026, 11, 22, tzinfo=UTC)
KEEP_ALL = Retention(keep=100, quiet_for=0, eventful_for=0, most=100, most_bytes=10**9)


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    made = Directories(tmp_path / "state", tmp_path / "run")
    made.make()
    return made


def report(*events: Event, run: str = "20261122T000000.000000Z") -> Report:
    bundle = BundleReport(name="web", summary=Summary.of(events, 1.0), events=list(events))
    moment = NOW.isoformat()
    return Report(
        run=run, started=moment, finished=moment, host="a", puller="1", exit_status=0, bundles=[bundle]
    )


def stable(name: str, **additional: Any) -> Event:
    return Event(type="file", name=name, state=State.STABLE, provider="posix", **additional)


def changed(name: str) -> Event:
    return Event(
        type="file", name=name, state=State.CHANGED, differences=[differences.changed("content", "a", "b")]
    )


def lists(directories: Directories) -> set[str]:
    return {path.name for path in directories.in_order.iterdir()}


def save(kept: Report, directories: Directories, retention: Retention = KEEP_ALL) -> None:
    save_report(kept, directories, retention, NOW)


TOLD = {
    "changed": changed("/b"),
    "a remark": stable("/b", notes=["the file belongs to a package, too"]),
    "a health check": stable("/b", health_checks=[HealthResult("up", Health.OK, 1)]),
    "failed": Event(type="file", name="/b", state=State.FAILED, problems=[failure("no space")]),
    "not reached": Event(type="file", name="/b", state=State.SKIPPED, reached=False),
    "unmet": Event(type="file", name="/b", state=State.SKIPPED, unmet_requirements=["file#/x"]),
    "would change": Event(type="file", name="/b", state=State.WOULD_CHANGE, noop=True, noop_message="x"),
    "a difference that stays": stable("/b", differences=[differences.changed("owner", "joe", "root")]),
}


@pytest.mark.parametrize("what", TOLD)
def test_report_contains_details_of_resources(what: str, directories: Directories) -> None:
    save(report(stable("/a"), TOLD[what], stable("/c")), directories)
    retained = load_last_report(directories)
    assert retained is not None
    (bundle,) = retained.bundles
    assert bundle.events == [TOLD[what]]
    assert bundle.in_order is not None
    assert (bundle.in_order.resources, bundle.in_order.others_at) == (2, [1])
    assert bundle.summary.resources == 3, "the summary counts all"


@pytest.mark.everything
def test_report_of_100000_stable_resources_is_a_kilobyte(
    directories: Directories,
) -> None:
    for run in range(3):
        events = [stable(f"/srv/{number}", duration=run + number / 10**6) for number in range(100_000)]
        save(report(*events, run=f"20261122T00000{run}.000000Z"), directories)
    assert len(lists(directories)) == 1
    assert directories.last_run.stat().st_size < 1000
    all_events = load_all_events(directories)
    assert all_events is not None
    assert [event.name for event in all_events.bundles[0].events] == [event.name for event in events]


@given(st.lists(st.sampled_from(["stable", "skipped", *TOLD]), max_size=12))
def test_all_events_come_back_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("lists")
    quiet = {
        "stable": stable("/a", alias="a", item="x", requested_ensure="present", final_ensure="present"),
        "skipped": Event(
            type="exec", name="b", state=State.SKIPPED, skip_reason="control", children={"stable": 1}
        ),
    }
    events = [{**TOLD, **quiet}[kind] for kind in kinds]
    whole = report(*events)
    whole.bundles[0].given_up = BundleReport(name="web", events=list(reversed(events)))
    assert complete(shorten(whole, directory), directory) == whole


def test_a_list_is_forgotten_with_the_last_report_that_names_it(directories: Directories) -> None:
    newest_two = Retention(keep=2, quiet_for=0, eventful_for=0, most=100, most_bytes=10**9)
    names: list[str] = []
    for number in range(4):
        run = f"2026112{number}T000000.000000Z"
        save(report(stable(f"/{number}"), run=run), directories, newest_two)
        retained = load_last_report(directories)
        assert retained is not None
        assert retained.bundles[0].in_order is not None
        names.append(f"{retained.bundles[0].in_order.sha256}.json.gz")
    assert lists(directories) == set(names[2:])


def test_lists_count_among_the_bytes_of_all_reports(directories: Directories) -> None:
    bounded = Retention(keep=100, quiet_for=0, eventful_for=0, most=100, most_bytes=30_000)
    for number in range(12):
        names = random.Random(number).sample(range(10**9), 1000)
        save(
            report(*(stable(f"/{name}") for name in names), run=f"202611{number + 10}T000000.000000Z"),
            directories,
            bounded,
        )
    retained = [path for path in directories.runs.rglob("*") if path.is_file()]
    assert 15_000 < sum(path.stat().st_size for path in retained) <= 30_000
    assert load_all_events(directories) is not None


def test_while_a_report_cannot_be_read_no_list_is_forgotten(directories: Directories) -> None:
    save(report(stable("/a")), directories)
    before = lists(directories)
    (directories.runs / "20261121T000000.000000Z-quiet.json").write_text("{")
    save(report(stable("/b"), run="20261123T000000.000000Z"), directories)
    assert lists(directories) > before


def harm(path: Path, how: str) -> None:
    data = path.read_bytes()
    other = zlib.compress(b'{"format":1,"resources":[]}', wbits=31)
    harmed = {
        "cut": data[:-9],
        "garbage": b"\0" * 40,
        "another list": other,
        "more": data + b"x",
        "empty": b"",
    }
    path.write_bytes(harmed[how])


@pytest.mark.parametrize("how", ["cut", "garbage", "another list", "more", "empty", "missing", "a link"])
def test_changed_stable_list_is_an_error_and_repaired(how: str, directories: Directories) -> None:
    save(report(stable("/a")), directories)
    (path,) = directories.in_order.iterdir()
    if how in ("missing", "a link"):
        path.unlink()
        if how == "a link":
            path.symlink_to("/dev/null")
    else:
        harm(path, how)
    with pytest.raises(ValueError, match=r"in-order/.*\.json\.gz: .*so the unchanged resources are unknown"):
        load_all_events(directories)
    assert load_last_report(directories) is not None, "what was not in order is in the report itself"

    save(report(stable("/a"), run="20261123T000000.000000Z"), directories)
    assert load_all_events(directories) is not None


def test_stable_list_of_another_length_is_an_error(directories: Directories) -> None:
    whole = report(stable("/a"), stable("/b"))
    retained = shorten(whole, directories.in_order)
    for wrong in ({"resources": 3}, {"others_at": [0]}, {"others_at": [0, 1]}):
        in_order = retained.bundles[0].in_order
        assert in_order is not None
        bundle = msgspec.structs.replace(
            retained.bundles[0], in_order=msgspec.structs.replace(in_order, **wrong)
        )
        with pytest.raises(ValueError, match="in-order/"):
            complete(msgspec.structs.replace(retained, bundles=[bundle]), directories.in_order)


def test_a_list_is_read_by_every_gunzip_and_named_by_its_hash(directories: Directories) -> None:
    save(report(stable("/a")), directories)
    (path,) = directories.in_order.iterdir()
    data = zlib.decompress(path.read_bytes(), wbits=31)
    assert path.name == f"{hashlib.sha256(data).hexdigest()}.json.gz"
    resource = b'{"type":"file","name":"/a","state":"stable","provider":"posix"}'
    assert data == b'{"format":1,"resources":[' + resource + b"]}"
