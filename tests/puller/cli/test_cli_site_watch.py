"""``puller site watch`` halts rollouts when hosts report failures, and continues them otherwise."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import responses

from bundles.publisher.channels import AT_ONCE, Channels, RolloutRequest
from bundles.publisher.publication import publish_bundle
from bundles.publisher.settings import SiteSettings, WatchRule
from bundles.publisher.site import Site
from tests.simulators import fleet as simulated

if TYPE_CHECKING:
    from tests.support.stories import Execute

HOSTS = simulated.names(60)
OVER = timedelta(hours=10)


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


@pytest.fixture(scope="module")
def rollout(new_site: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, datetime]:
    """A directory with a site that has a ten-hour rollout of web 1.5.0, and its start, nine hours ago."""
    directory = tmp_path_factory.mktemp("rollout")
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        shutil.copytree(new_site, "site")
        publish("web", "1.4.0", begin - timedelta(days=1), AT_ONCE)
        publish("web", "1.5.0", begin, RolloutRequest(over=OVER, start=begin))
    return directory, begin


@pytest.fixture(autouse=True)
def began(rollout: tuple[Path, datetime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Copy the site of ``rollout`` to the working directory, and return the start of its rollout."""
    directory, begin = rollout
    monkeypatch.chdir(shutil.copytree(directory, tmp_path, dirs_exist_ok=True))
    return begin


def publish(name: str, version: str, when: datetime, request: RolloutRequest) -> None:
    source = Path(name)
    source.mkdir(exist_ok=True)
    (source / "manifest.yaml").write_text(f"# {version}\nresources: []\n")
    site = Site(Path("site").resolve(), lambda: when)
    publish_bundle(site, source, no_passphrase, name=name, version=version, request=request)


def allow(text: str) -> None:
    with Path("site/site.yaml").open("a") as settings:
        settings.write(f"watch: {text}\n")


@pytest.fixture
def reported(began: datetime, execute: Execute) -> Callable[..., None]:
    """Return a function that delivers reports: ``bad`` hosts send ``provided`` with 1.5.0, ``good`` hosts succeed."""

    def report(good: int, bad: int, *, before: bool = False, silent: bool = False, **provided: Any) -> None:
        documents = []
        for number, host in enumerate(HOSTS):
            first = began - timedelta(minutes=number % 50 + 1)
            fails = {"failed": {"service#web": "it does not come up"}}
            documents.append(simulated.sent(host, first, "1.4.0", **(fails if before else {})))
            if number >= good + bad:
                documents.append(simulated.sent(host, now() - timedelta(minutes=5), "1.4.0"))
                continue
            got = began + timedelta(minutes=5 + number % 30)
            is_bad = number < bad
            version = "1.4.0" if is_bad and "given_up" in provided else "1.5.0"
            documents.append(simulated.sent(host, got, version, **(provided if is_bad else {})))
            if not (is_bad and silent):
                last = now() - timedelta(minutes=number % 7 + 1)
                documents.append(simulated.sent(host, last, version, **(provided if is_bad else {})))
        simulated.deliver(Path("reports"), documents)
        assert execute("fleet", "import", "reports")[0] == 0

    return report


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def halted() -> bool:
    site = Site(Path("site").resolve())
    release = site.record("web").index.find("stable")
    assert release is not None
    return release.rollout is not None and release.rollout.halted


FAILED = {"failed": {"service#web": "it does not come up"}}


def test_a_release_that_is_in_order_goes_on(execute: Execute, reported: Callable[..., None]) -> None:
    reported(good=50, bad=0)
    status, output = execute("site", "watch", "site")
    assert (status, "goes on" in output, halted()) == (0, True, False), output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (FAILED, "5 of 45 hosts failed or rolled back (limit 2%)"),
        (
            {"given_up": ("1.5.0", "its check failed"), "quarantined": ["1.5.0"], "published": "1.5.0"},
            "gave it up",
        ),
        ({"silent": True}, "5 of 45 hosts have been silent since they received it (limit 5%)"),
    ],
)
def test_release_without_good_reports_is_halted_once(
    execute: Execute, reported: Callable[..., None], given: dict[str, Any], words: str
) -> None:
    reported(good=40, bad=5, **given)
    status, output = execute("site", "watch", "site", "--noop")
    assert (status, halted()) == (4, False)
    assert words in output
    assert "would be halted" in output
    status, output = execute("site", "watch", "site")
    assert (status, words in output, halted()) == (4, True, True), output
    before = (Path("site/public/metadata/timestamp.json")).read_bytes()
    status, output = execute("site", "watch", "site")
    assert (status, "It is halted" in output) == (4, True)
    assert Path("site/public/metadata/timestamp.json").read_bytes() == before
    publish("web", "1.5.1", now(), RolloutRequest(over=OVER, start=now()))
    assert execute("site", "watch", "site")[0] == 0


def test_hosts_that_failed_before_say_nothing_against_it(
    execute: Execute, reported: Callable[..., None]
) -> None:
    reported(good=0, bad=40, before=True, **FAILED)
    status, output = execute("site", "watch", "site")
    assert (status, halted()) == (0, False), output


def test_two_hosts_are_too_few(execute: Execute, reported: Callable[..., None]) -> None:
    reported(good=10, bad=2, **FAILED)
    assert execute("site", "watch", "site")[0] == 0
    allow("{at_least: 2}")
    assert execute("site", "watch", "site")[0] == 4


def test_a_kind_of_machines_is_judged_by_itself(execute: Execute, began: datetime) -> None:
    documents = []
    for host in HOSTS:
        documents.append(simulated.sent(host, began - timedelta(minutes=1), "1.4.0"))
        is_bad = simulated.facts_of(host)["os"]["name"] == "Rocky" and len(documents) < 25
        documents.append(
            simulated.sent(host, now() - timedelta(minutes=2), "1.5.0", **(FAILED if is_bad else {}))
        )
    simulated.deliver(Path("reports"), documents)
    execute("fleet", "import", "reports")
    allow("{failed: 15%}")
    status, output = execute("site", "watch", "site")
    assert (status, "of Rocky 9 failed" in output, " of 60 hosts failed" in output) == (4, True, False), (
        output
    )


def test_site_yaml_limits_the_watcher(execute: Execute, reported: Callable[..., None]) -> None:
    reported(good=40, bad=5, **FAILED)
    allow("{may: nothing, notify: {command: [sh, -c, 'echo \"$0\" > told']}}")
    status, output = execute("site", "watch", "site")
    assert (status, "is to be halted" in output, halted()) == (4, True, False)
    assert "5 of 45 hosts failed" in Path("told").read_text()


def test_it_can_go_back_by_itself(execute: Execute, reported: Callable[..., None]) -> None:
    reported(good=40, bad=5, **FAILED)
    allow("{may: back}")
    status, output = execute("site", "watch", "site")
    assert (status, "taken back" in output) == (4, True), output
    release = Site(Path("site").resolve()).record("web").index.find("stable")
    assert release is not None
    assert (release.version, release.rollout) == ("1.4.0", None)
    assert execute("site", "watch", "site") == (0, "site: no active rollout\n")


def test_a_wave_is_halted_as_a_whole(
    execute: Execute, reported: Callable[..., None], began: datetime
) -> None:
    reported(good=40, bad=5, **FAILED)
    wave = RolloutRequest(over=OVER, start=began, wave="shop-7")
    publish("web-conf", "1.0.0", began, AT_ONCE)
    publish("web-conf", "1.5.0", began, wave)
    assert execute("site", "withdraw", "site", "web")[0] == 0
    publish("web", "1.5.0", began, wave)
    assert execute("site", "watch", "site")[0] == 4
    result = Site(Path("site").resolve()).record("web-conf").index.find("stable")
    assert result is not None
    assert result.rollout is not None
    assert result.rollout.halted
    assert halted()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}, 0),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "0"]}}, 4),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, 4),
        ({"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "NaN"]}]}}, 4),
        ({"status": "error"}, 4),
        (None, 4),
    ],
)
@pytest.mark.representatives(2)
def test_prometheus_is_a_judge_whose_silence_is_no_consent(
    execute: Execute, reported: Callable[..., None], answer: Any, status: int
) -> None:
    reported(good=50, bad=0)
    allow("{prometheus: {url: 'http://127.0.0.1:9/', query: 'errors < 1'}}")
    with responses.RequestsMock() as server:
        if answer is None:
            server.get("http://127.0.0.1:9/api/v1/query", status=503)
        else:
            server.get("http://127.0.0.1:9/api/v1/query", json=answer)
        assert execute("site", "watch", "site")[0] == status
    assert halted() is (status == 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{fails: 2%}", "unknown key 'fails'"),
        ("{failed: 2}", "is '2', expected a share of the hosts such as 2%"),
        ("{may: stop}", "is 'stop', expected nothing or halt or back"),
        ("{prometheus: {url: 'http://x'}}", "expected both 'url' and 'query'"),
        ("{at_least: 0}", "expected a number of hosts"),
        ("{each: 1h}", "requires 'grow', which is missing"),
    ],
)
def test_invalid_rule_is_refused(execute: Execute, text: str, words: str) -> None:
    allow(text)
    status, output = execute("site", "watch", "site")
    assert status != 0
    assert words in output


def test_programs_read_all_of_it(execute: Execute, reported: Callable[..., None]) -> None:
    reported(good=40, bad=5, **FAILED)
    status, output = execute("site", "watch", "site", "--format", "json")
    (item,) = json.loads(output)
    assert status == 4
    assert item["hosts"] == {
        "in order": 40,
        "on trial": 0,
        "failed": 5,
        "gave it up": 0,
        "not heard of since": 0,
    }
    assert item["done"] == "halted"


def test_the_rule_in_the_documents_is_understood() -> None:
    page = (Path(__file__).parents[3] / "docs/rollouts.md").read_text()
    text, growing = re.findall(r"```yaml\n(watch:\n.*?)```", page, re.DOTALL)
    assert SiteSettings.parse(growing.encode(), "site.yaml").watching == replace(WatchRule(), grow=10)
    rule = SiteSettings.parse(text.encode(), "site.yaml").watching
    standard = WatchRule()
    assert rule.query
    assert rule.command
    assert replace(rule, command=(), url="", prometheus="", query="", silent_after=None) == standard


def test_fix_published_during_judgement_is_left_alone(
    execute: Execute, reported: Callable[..., None]
) -> None:
    reported(good=40, bad=5, **FAILED)
    allow("{may: back, prometheus: {url: 'http://127.0.0.1:9/', query: 'errors < 1'}}")

    def publish_the_fix(request: Any) -> tuple[int, dict[str, str], str]:
        publish("web", "1.5.1", now(), RolloutRequest(over=OVER, start=now()))
        return (
            200,
            {},
            json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1, "0"]}}),
        )

    with responses.RequestsMock() as server:
        server.add_callback("GET", "http://127.0.0.1:9/api/v1/query", publish_the_fix)
        status, output = execute("site", "watch", "site")
    release = Site(Path("site").resolve()).record("web").index.find("stable")
    assert release is not None
    assert (release.version, halted()) == ("1.5.1", False)
    assert (status, "has another release now" in output) == (4, True), output


def test_silent_hosts_do_not_halt_a_release(execute: Execute, reported: Callable[..., None]) -> None:
    reported(good=40, bad=5, silent=True)
    allow("{may: back}")
    assert execute("site", "watch", "site")[0] == 4
    assert halted()


def test_a_prometheus_that_is_down_is_no_reason_to_go_back(
    execute: Execute, reported: Callable[..., None]
) -> None:
    reported(good=50, bad=0)
    allow("{may: back, prometheus: {url: 'http://127.0.0.1:9/', query: 'errors < 1'}}")
    assert execute("site", "watch", "site")[0] == 4
    assert halted()


def test_unsigned_halt_is_reported(execute: Execute, reported: Callable[..., None]) -> None:
    reported(good=40, bad=5, **FAILED)
    allow("{notify: {command: [sh, -c, 'echo \"$0\" > told']}}")
    shutil.move("site/keys", "elsewhere")
    status, output = execute("site", "watch", "site")
    assert (status, halted(), "could not be halted" in output) == (4, False, True), output
    assert "is to be halted, which failed (" in Path("told").read_text()
    shutil.move("elsewhere", "site/keys")
    assert execute("site", "watch", "site")[0] == 4
    assert halted()


@pytest.mark.parametrize("hours", [1, 3])
def test_reports_that_stop_altogether_halt_it(execute: Execute, began: datetime, hours: int) -> None:
    last = now() - timedelta(hours=hours)
    documents = [simulated.sent(host, last, "1.4.0") for host in HOSTS]
    simulated.deliver(Path("reports"), documents)
    execute("fleet", "import", "reports")
    status, output = execute("site", "watch", "site")
    assert (status, halted()) == ((0, False) if hours == 1 else (4, True)), output
    assert ("the result of the release is unknown" in output) is (hours == 3)


def test_a_store_without_hosts_is_no_consent(execute: Execute) -> None:
    Path("reports").mkdir()
    execute("fleet", "import", "reports")
    status, output = execute("site", "watch", "site")
    assert (status, halted()) == (4, True), output


def test_old_release_is_not_halted_for_new_failures(
    execute: Execute, reported: Callable[..., None], began: datetime
) -> None:
    publish("web", "1.6.0", began, AT_ONCE)
    long_ago = now() - timedelta(days=20)
    publish("web", "1.5.0", long_ago, RolloutRequest(over=OVER, start=long_ago))
    reported(good=40, bad=15, **FAILED)
    assert execute("site", "watch", "site") == (0, "site: no active rollout\n")
    assert not halted()


def halt_at(when: datetime, bundle: str) -> None:
    Channels(Site(Path("site").resolve(), lambda: when), no_passphrase).halt(bundle, "stable")


def reached() -> float | None:
    release = Site(Path("site").resolve()).record("web").index.find("stable")
    assert release is not None
    return release.rollout.percent if release.rollout is not None else 100


def test_unscheduled_rollout_grows_a_step_per_good_look(
    execute: Execute, reported: Callable[..., None], began: datetime
) -> None:
    publish("web", "1.6.0", began, RolloutRequest(percent=10))
    reported(good=0, bad=0)
    assert execute("site", "watch", "site")[0] == 0
    assert reached() == 10, "nothing grows where site.yaml does not say so"
    allow("{grow: 50%, each: 1h}")
    status, output = execute("site", "watch", "site")
    assert (status, "goes on, grown to 60 %" in output, reached()) == (0, True, 60), output
    assert execute("site", "watch", "site")[0] == 0
    assert reached() == 60, "a second look within the hour lets nothing grow"


def test_rollout_does_not_grow_while_all_hosts_are_on_trial(
    execute: Execute, reported: Callable[..., None], began: datetime
) -> None:
    publish("web", "1.6.0", began, RolloutRequest(percent=10))
    reported(good=0, bad=0)
    allow("{grow: 50%, each: 1h}")

    def tell(hosts: list[str], minutes: int, good: str) -> None:
        at = now() - timedelta(minutes=minutes)
        simulated.deliver(Path("more"), [simulated.sent(host, at, "1.6.0", good=good) for host in hosts])
        assert execute("fleet", "import", "more")[0] == 0

    tell(HOSTS[:3], 3, "1.4.0")
    status, output = execute("site", "watch", "site")
    assert (status, "3 on trial" in output, "in order" in output, reached()) == (0, True, False, 10), output
    tell(HOSTS[:1], 2, "1.6.0")
    status, output = execute("site", "watch", "site")
    assert (status, "1 in order, 2 on trial" in output, reached()) == (0, True, 60), output


def test_it_does_not_grow_unseen(execute: Execute, began: datetime) -> None:
    publish("web", "1.6.0", began, RolloutRequest(percent=10))
    allow("{grow: 50%, each: 1h}")
    simulated.deliver(
        Path("reports"), [simulated.sent(host, began - timedelta(minutes=1), "1.4.0") for host in HOSTS]
    )
    execute("fleet", "import", "reports")
    execute("site", "watch", "site")
    assert reached() == 10


def test_manually_halted_rollout_does_not_grow(
    execute: Execute, reported: Callable[..., None], began: datetime
) -> None:
    publish("web", "1.6.0", began, RolloutRequest(percent=60))
    reported(good=0, bad=0)
    allow("{grow: 50%, each: 1h}")
    halt_at(began + timedelta(minutes=1), "web")
    assert execute("site", "watch", "site")[0] == 4
    assert (reached(), halted()) == (60, True)


def test_the_last_step_is_for_all(execute: Execute, reported: Callable[..., None], began: datetime) -> None:
    publish("web", "1.6.0", began, RolloutRequest(percent=60))
    reported(good=0, bad=0)
    allow("{grow: 50%, each: 1h}")
    status, output = execute("site", "watch", "site")
    assert (status, "goes on, grown to 100 %" in output, reached()) == (0, True, 100), output


def test_a_clock_that_was_set_back_lets_nothing_grow(execute: Execute, reported: Callable[..., None]) -> None:
    publish("web", "1.6.0", now() + timedelta(days=1), RolloutRequest(percent=10))
    reported(good=0, bad=0)
    allow("{grow: 50%, each: 1h}")
    assert execute("site", "watch", "site")[0] == 0
    assert reached() == 10


def test_bundles_of_a_wave_grow_together(
    execute: Execute, reported: Callable[..., None], began: datetime
) -> None:
    wave = RolloutRequest(percent=10, wave="shop-8")
    publish("web", "1.6.0", began, wave)
    publish("web-conf", "1.0.0", began, AT_ONCE)
    publish("web-conf", "1.6.0", began, wave)
    reported(good=0, bad=0)
    allow("{grow: 50%, each: 1h}")
    halt_at(began + timedelta(minutes=1), "web-conf")
    assert execute("site", "watch", "site")[0] == 4
    assert reached() == 10
