"""The page of a host: its state and next step, and its runs as a terminal shows them."""

import re
from datetime import datetime
from pathlib import Path

import pytest

from puller.fleet.pages.environment import make_environment, marked
from puller.fleet.pages.pages import make_pages
from puller.fleet.store.database import Store
from puller.fleet.store.queries import Reader
from puller.reporting.terminal_rows import Rows
from tests.puller.fleet.conftest import Import, ago
from tests.puller.fleet.pages.conftest import host_text, text_of
from tests.simulators import fleet

TIME = r"2\d{3}-\d\d-\d\d \d\d:\d\d UTC"


@pytest.fixture
def page(incident: Path) -> str:
    return (incident / "hosts/host00004.example.com.html").read_text()


@pytest.fixture
def rows(page: str) -> list[str]:
    newest = page[page.index("<details open>") : page.index("</details>")]
    return [text_of(row) for row in re.findall(r'<li class="row.*?</li>', newest, re.DOTALL)]


def test_page_begins_with_state_time_and_next_step(page: str) -> None:
    assert re.search(
        rf"State failed: user#deploy: .* Since {TIME} To do puller explain user#deploy Last report {TIME}",
        text_of(page),
    )


def test_rows_are_those_of_a_terminal(rows: list[str]) -> None:
    terminal = [
        " ".join(" ".join(Rows(width=120).resource(event)).split()) for event in fleet.every_outcome()
    ]
    hidden = r"(added|changed|removed|run|restarted|failed|skipped): "
    shown = [re.sub(rf"^(.){hidden}", r"\1 ", row).replace(" change-failed", "") for row in rows]
    assert [row.replace("`", "") for row in shown] == [row.replace("`", "") for row in terminal]
    assert [row[0] for row in shown] == ["+", "~", "-", "↻", "↻", "✗", "-"]


def test_diff_keeps_its_lines(page: str) -> None:
    (diff,) = re.findall(r'<pre class="below".*?>(@@.*?)</pre>', page, re.DOTALL)
    assert re.sub(r"<[^>]+>", "", diff) == "@@ -1,2 +1,2 @@\n listen 80\n-workers 2\n+workers 4\n"


def test_summary_counts_the_outcomes(page: str) -> None:
    text = (
        "1 added, 1 changed, 1 removed, 1 run, 1 restarted, 1 failed, 1 skipped, 20 unchanged, exit status 4"
    )
    assert text in text_of(page)


def test_problem_links_to_its_explanation(page: str, incident: Path) -> None:
    assert 'href="../problems.html#change-failed">change-failed</a>' in page
    assert 'id="change-failed"' in (incident / "problems.html").read_text()


def test_version_on_trial_is_marked(page: str) -> None:
    assert "1.6.0 (on trial)" in text_of(page)


def test_rolled_back_host_shows_quarantine_and_cause(incident: Path) -> None:
    text = host_text(incident, 5)
    assert "State rolled back" in text
    assert "To do correct the bundle and publish a new version, or puller quarantine clear web" in text
    assert "1.6.0 is in quarantine: its health checks failed 1.6.0" in text
    page = (incident / "hosts/host00005.example.com.html").read_text()
    assert page.count("<details open>") == 2  # the last run, and the last one with a failure


def test_waiting_host_shows_progress_and_its_turn(incident: Path) -> None:
    text = host_text(incident, 15)
    assert re.search(
        rf"web 1.6.0: 35 % 35 % of its hosts. The rollout reaches this host at about {TIME}", text
    )
    assert "To do nothing" in text


def test_paused_and_silent_hosts_have_a_next_step(incident: Path) -> None:
    assert "To do puller enable, if an operator has disabled the agent" in host_text(incident, 8)
    assert "To do puller doctor" in host_text(incident, 3)


def test_host_in_sync_waits_for_nothing(incident: Path) -> None:
    assert "Waiting for the rollout" not in host_text(incident, 12)


def test_stored_run_has_the_rows_of_the_last_one(store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent("a", ago(now, 9), events=fleet.every_outcome()), fleet.sent("a", ago(now, 5)))
    (view,) = Reader(store, now).details(["a"])
    stored = [item.content for item in view.runs[1].events]
    expected = [Rows(width=120).resource(event)[0].split()[0] for event in fleet.every_outcome()]
    assert [content.mark.symbol for content in stored] == expected
    assert stored[-1].details == "requires user#deploy"
    assert stored[-2].planned == "shell: /bin/bash"
    assert view.runs[1].outcomes[0] == ("added", 1)


@pytest.mark.everything
def test_progress_rewrites_pages_of_waiting_hosts(
    store: Store, arrive: Import, now: datetime, tmp_path: Path
) -> None:
    waiting = {"published": "1.1.0", "held": "later"}
    pages = tmp_path / "pages"
    page = pages / "hosts/a.html"

    def is_rewritten() -> bool:
        before = page.stat().st_mtime_ns if page.exists() else 0
        make_pages(Reader(store, now), pages)
        return page.stat().st_mtime_ns != before

    arrive(*(fleet.sent(name, ago(now, 9), **waiting) for name in "abc"))
    assert is_rewritten()
    arrive(fleet.sent("b", ago(now, 8), **waiting))
    assert not is_rewritten()
    arrive(fleet.sent("b", ago(now, 7), "1.1.0"))
    assert is_rewritten()
    assert "33 % of its hosts" in page.read_text()


def test_commands_in_texts_are_escaped_code() -> None:
    assert marked("read `a <b>`, then \u202ec") == "read <code>a &lt;b&gt;</code>, then \\u202ec"


def test_hostile_event_stays_text(store: Store, arrive: Import, now: datetime) -> None:
    name = "/etc/<script>\u202e\x1b[31m`x`"
    arrive(fleet.sent("a", ago(now, 5), failed={f"file#{name}": name}, diff=name))
    (view,) = Reader(store, now).details(["a"])
    template = make_environment().get_template("host.html")
    common = {"name": "x", "made": now, "heard": now, "puller": "1", "top": "", "section": ""}
    page = template.render(
        **common, view=view, waiting_for=[], resources_with_page=set(), releases_with_page=set()
    )
    assert "<script>" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
