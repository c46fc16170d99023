"""The start page: what is broken, where, since when, and what to do."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from foundation.problems import Problem, ProblemCode
from puller.fleet.attention import find_attention
from puller.fleet.pages.pages import make_pages
from puller.fleet.store.database import Store
from puller.fleet.store.queries import Reader
from puller.fleet.views import Attention, Condition, FailureView, HostRow
from puller.values.maintenance import PendingReboot
from tests.puller.fleet.conftest import Import, ago
from tests.puller.fleet.pages.conftest import text_of
from tests.simulators import fleet
from tests.support.stories import Execute

TIME = r"2\d{3}-\d\d-\d\d \d\d:\d\d UTC"
AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
def page(incident: Path) -> str:
    return (incident / "index.html").read_text()


@pytest.fixture
def cards(page: str) -> list[str]:
    return [text_of(card) for card in re.findall(r'<li class="card.*?</li>', page, re.DOTALL)]


def test_heading_counts_hosts_that_need_attention(page: str) -> None:
    assert "<h1>15 of 40 hosts need attention</h1>" in page


def test_states_have_the_words_of_the_command_line(page: str) -> None:
    words = re.findall(r"<b>\d+</b> ([a-z ]+)</a>", page)
    assert words == [
        "failed",
        "rolled back",
        "held",
        "silent",
        "paused",
        "waiting for the rollout",
        "in sync",
    ]
    for dialect in ("in order", "heard of", "gave", "wave", "Made"):
        assert dialect not in text_of(page)


def test_problems_come_before_charts_and_bundles(page: str) -> None:
    places = [page.index(f"<h2>{title}</h2>") for title in ("Needs attention", "Rollouts", "Bundles")]
    assert places == sorted(places)
    assert places[-1] < page.index("<svg")


def test_failure_names_hosts_time_and_command(cards: list[str]) -> None:
    assert re.fullmatch(
        rf"service#web: web.service on <host> failed with pid \d+ change-failed in web "
        rf"Where 8 hosts: host00017.example.com, .*host00038.example.com "
        rf"Since {TIME} To do on host\d+.example.com: puller explain service#web",
        cards[0],
    )


def test_rollback_has_its_cause_and_halts_the_rollout(cards: list[str]) -> None:
    (card,) = [card for card in cards if "was rolled back" in card]
    assert card.startswith(
        "web 1.6.0 was rolled back Where 3 hosts: host00005.example.com, host00007.example.com, host00009.example.com"
    )
    assert "Cause service#web: manifest.yaml:31: health check web: exit status 22" in card
    assert card.endswith("To do puller site halt web, then correct the bundle and publish a new version")


@pytest.mark.parametrize(
    ("title", "step"),
    [
        ("connection refused", "on host00011.example.com: check the network and the address of the site"),
        (
            "web is pinned to 1.4.0",
            "on host00006.example.com: puller unpin web, if the pin is no longer needed",
        ),
        ("The last report is too old", "on host00003.example.com: puller doctor"),
        ("The signed metadata expire", "puller site refresh, then puller site push"),
    ],
)
def test_every_problem_has_a_next_step(cards: list[str], title: str, step: str) -> None:
    (card,) = [card for card in cards if title in card]
    assert card.endswith(f"To do {step}")


def test_waiting_hosts_are_named_with_their_turn(page: str) -> None:
    text = text_of(page)
    assert (
        "35 %: 7 of 28 hosts have it, 3 rolled back, 17 waiting, 1 held, failed or silent without it" in text
    )
    assert re.search(rf"Next: host00015.example.com \({TIME}\), host00016.example.com .* and 9 more", text)


def test_fleet_without_problems_says_so(store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent("a", ago(now, 5)), fleet.sent("b", ago(now, 5)))
    view = Reader(store, now).fleet()
    assert (view.troubled, view.attention) == (0, [])


def test_empty_fleet_leads_to_the_import(store: Store, now: datetime, tmp_path: Path) -> None:
    make_pages(Reader(store, now), tmp_path / "pages")
    text = text_of((tmp_path / "pages/index.html").read_text())
    assert "No host has sent a report puller fleet import imports reports into the store" in text


def test_expired_metadata_lead_to_the_publisher(store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent("a", ago(now, 5), expires=(now - timedelta(minutes=1)).isoformat()))
    (group,) = Reader(store, now).attention
    assert (group.condition, group.todo_host) == (Condition.FAILED, "")
    assert "puller site refresh" in group.todo
    assert group.since == now - timedelta(minutes=1)


def test_each_host_with_a_problem_is_in_a_group(incident: Path) -> None:
    store = Store.open(str(incident.parent / "fleet.db"))
    reader = Reader(store, datetime.now(UTC))
    grouped = {host.name for group in reader.attention for host in group.hosts}
    store.close()
    assert grouped == {name for name, row in reader.hosts.items() if not Condition(row.state).is_well}


# The groups themselves


def groups_of(
    hosts: list[HostRow], failures: list[FailureView] | None = None, **given: list[HostRow]
) -> list[Attention]:
    rolled_back = {("web", version.replace("_", ".")): rows for version, rows in given.items()}
    return find_attention(
        hosts,
        failures or [],
        rolled_back,
        [],
        next_step=lambda name: (f"look at {name}", name),
        last_failures=lambda bundle, rows: [],
    )


def test_equal_reasons_of_hosts_are_one_group() -> None:
    hosts = [
        HostRow(name, "held", f"web on {name} is pinned", since=AT + timedelta(hours=number))
        for number, name in enumerate(["web2", "web1"])
    ]
    (group,) = groups_of(hosts)
    assert (group.title, group.since) == ("web on <host> is pinned", AT)
    assert (group.todo, group.todo_host) == ("look at web2", "web2")


def test_well_hosts_are_in_no_group() -> None:
    assert groups_of([HostRow(state, state) for state in ("in-order", "waiting", "paused")]) == []


def test_serious_groups_come_first() -> None:
    hosts = [
        HostRow(f"{state}{number}", state) for state in ("silent", "held", "failed") for number in (1, 2)
    ]
    assert [group.condition for group in groups_of(hosts)] == ["failed", "held", "silent"]


@pytest.mark.parametrize(
    ("reference", "command"),
    [
        ("service#web", "`puller explain service#web`"),
        ("file#/etc/my file", "`puller explain 'file#/etc/my file'`"),
        ("exec#$(reboot)", "`puller explain 'exec#$(reboot)'`"),
        ("file#/srv/<host>", "look at web1"),
    ],
)
def test_command_of_a_failure_is_safe_to_copy(reference: str, command: str) -> None:
    host = HostRow("web1", "failed")
    problem = Problem(code=ProblemCode.CHANGE_FAILED, message="no")
    failure = FailureView("key", "web", reference, problem, [host], AT, AT, problem, "web1")
    (group,) = groups_of([host], [failure])
    assert (group.todo, group.todo_host) == (command, "web1")


def test_failure_of_rolled_back_hosts_is_no_second_group() -> None:
    host = HostRow("web1", "gave-up", since=AT)
    problem = Problem(code=ProblemCode.CHANGE_FAILED, message="no")
    failure = FailureView("key", "web", "service#web", problem, [host], AT, AT, problem, "web1")
    (group,) = groups_of([host], [failure], **{"1_6": [host]})
    assert (group.title, group.version) == ("web 1.6 was rolled back", "1.6")


def test_start_page_and_status_count_pending_reboots(
    tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reboot = PendingReboot(
        resource="reboot#updates", reasons=["/run/reboot-required (libc6)"], since="2026-11-28T01:00:00+00:00"
    )
    at = fleet.now()
    fleet.deliver(tmp_path / "reports", [fleet.sent("web1", at, reboots=[reboot]), fleet.sent("web2", at)])
    for words in (["import", "reports"], ["page", "--to", "pages"]):
        status, output = execute("fleet", *words, "--store", "fleet.db")
        assert status == 0, output
    page = text_of((tmp_path / "pages/index.html").read_text())
    assert "Reboots that are due on 1 host" in page
    assert str(reboot) in page
    status, output = execute("fleet", "status", "--store", "fleet.db")
    assert "pending reboots on 1 host:\n  web1, reboot#updates: a reboot is due since" in output
    status, output = execute("fleet", "status", "--store", "fleet.db", "--format", "json")
    assert [*json.loads(output)["reboots"]] == ["web1"]
