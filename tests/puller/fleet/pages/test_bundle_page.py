"""The page of a bundle: its versions over time, and a bounded size for large fleets."""

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from puller.fleet.host_document import read_document
from puller.fleet.pages.environment import share
from puller.fleet.pages.pages import make_pages
from puller.fleet.store.database import Store
from puller.fleet.store.queries import Reader
from puller.fleet.store.writing import put
from tests.puller.fleet.conftest import Import, ago
from tests.puller.fleet.pages.conftest import text_of
from tests.simulators import fleet


def test_history_has_shares_failures_and_rollbacks(incident: Path) -> None:
    page = (incident / "bundles/web.html").read_text()
    rows = [text_of(row).split() for row in re.findall(r"<tr><td><a[^>]*>1\..*?</tr>", page)]
    # Version, first host (three words), last use, hosts now, share (two words), hosts ever
    assert [(row[0], row[4:9]) for row in rows] == [
        ("1.6.0", ["now", "7", "17", "%", "7"]),
        ("1.5.0", ["now", "32", "80", "%", "40"]),
        ("1.4.0", ["now", "1", "2", "%", "40"]),
    ]
    assert rows[0][9:] == ["2", "18", "1", "3"]  # on trial, without it, failed, rolled back
    assert "<svg" in page


def test_waiting_hosts_are_listed_in_their_order(incident: Path) -> None:
    text = text_of((incident / "bundles/web.html").read_text())
    waiting = text[text.index("Hosts that wait for 1.6.0") :]
    names = re.findall(r"host000\d\d", waiting)[:3]
    assert names == ["host00015", "host00016", "host00018"]


def test_past_version_stays_in_the_history(store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent("a", ago(now, 60), "1.0.0", failed={"exec#a": "no"}))
    arrive(fleet.sent("a", ago(now, 30), "1.1.0"))
    history = Reader(store, now).bundle("web")
    assert [record.row.version for record in history.records] == ["1.1.0", "1.0.0"]
    past = history.records[1]
    assert (past.row.hosts, past.hosts, past.failed, past.last) == (0, 1, 1, ago(now, 30))
    assert history.records[0].last is None


def test_pinned_host_does_not_wait_for_a_rollout(store: Store, arrive: Import, now: datetime) -> None:
    arrive(
        fleet.sent("a", ago(now, 5), "1.0.0", published="1.1.0", pin="1.0.0"),
        fleet.sent("b", ago(now, 5), "1.0.0", published="1.1.0", held="later"),
        fleet.sent("c", ago(now, 5), "1.1.0"),
    )
    (rollout,) = Reader(store, now).bundle("web").bundle.rollouts
    assert [item.row.name for item in rollout.waiting] == ["b"]
    assert (rollout.published_for, rollout.reached, rollout.others, rollout.percent) == (3, 1, 1, 33)


def test_invalid_turn_of_a_host_is_unknown(store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent("b", ago(now, 5), "1.0.0", published="1.1.0", held="later", waits_until="<soon>"))
    (rollout,) = Reader(store, now).bundle("web").bundle.rollouts
    assert rollout.waiting[0].turn is None


@pytest.mark.parametrize(
    ("count", "whole", "text"),
    [(0, 10, "0 %"), (1, 1000, "<1 %"), (1, 3, "33 %"), (3, 3, "100 %"), (0, 0, "0 %")],
)
def test_share_of_some_hosts_is_never_zero(count: int, whole: int, text: str) -> None:
    assert share(count, whole) == text


@pytest.mark.everything
def test_pages_of_a_large_fleet_stay_small(store: Store, now: datetime, tmp_path: Path) -> None:
    """A version for each of many hosts, which all wait, is the worst case."""
    at = now - timedelta(minutes=10)
    documents = []
    for number, name in enumerate(fleet.names(600)):
        sent = fleet.sent(name, at, f"1.0.{number}", published="2.0.0", held="later")
        documents.append(read_document(fleet.json_of(sent), name, at))
    with store.writing() as connection:
        put(connection, documents)
    reader = Reader(store, now)
    history = reader.bundle("web")
    assert (len(history.records), history.omitted) == (100, 501)
    made = tmp_path / "pages"
    make_pages(reader, made)
    for page, most in (("index.html", 60_000), ("bundles.html", 20_000), ("bundles/web.html", 120_000)):
        assert (made / page).stat().st_size < most, page
    assert "501 older versions are omitted" in (made / "bundles/web.html").read_text()
