"""Sending reports after a run, to servers with all kinds of problems: the run itself is not affected."""

import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bundles.publisher.channels import RolloutRequest
from puller.delivery.delivery import Spool
from puller.delivery.report_document import unpack
from puller.reporting.report import SentReport
from tests.simulators import authority, reportserver

if TYPE_CHECKING:
    from tests.support.stories import Host, Outcome, Publisher, WebServer


NAME = "web01.example.com"
BREAKS = """\
resources:
  - exec: {name: "false"}
"""


class Sender:
    """A host that sends its reports, and a report server."""

    def __init__(self, host: "Host", server: Any) -> None:
        self.host, self.server = host, server
        self.to(f"{server.url}/reports/")

    def to(self, *destinations: Any, **options: Any) -> None:
        reports = {"to": list(destinations), "facts": ["os.family", "story.none"], "send_timeout": "10s"}
        self.host.configure(reports={**reports, **options})

    def run(self, *options: str, status: int = 0) -> "Outcome":
        outcome = self.host.run(*options)
        assert outcome.status == status, outcome.output
        assert "bug in Puller" not in outcome.output, outcome.output
        return outcome

    def documents(self) -> list[SentReport]:
        """Return the documents of the server, in order of arrival."""
        return [read(data) for data in self.server.documents.values()]

    def waiting(self) -> list[str]:
        """Return the runs in the spool, of all destinations."""
        return sorted(path.name.partition("-")[0] for path in self.host.state.glob("spool/*/*.json.gz"))

    def report(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.host.state / "last-run.json").read_text())
        return result


def read(data: bytes) -> SentReport:
    return msgspec.json.decode(unpack(data), type=SentReport)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def warnings(outcome: "Outcome") -> list[str]:
    return [line for line in outcome.output.splitlines() if line.startswith("WARN")]


@pytest.fixture
def server() -> Iterator[Any]:
    with reportserver.receiving() as running:
        yield running


@pytest.fixture
def sender(settled: "Host", server: Any) -> Sender:
    return Sender(settled, server)


# --- delivery -----------------------------------------------------------------------------------------------------


def test_a_run_with_nothing_to_do_is_heard_of(sender: Sender) -> None:
    outcome = sender.run()
    assert warnings(outcome) == []
    ((path, data),) = sender.server.documents.items()
    retained = sender.report()
    assert path == f"/reports/{NAME}/{retained['run']}.json.gz"
    ((method, _, headers),) = sender.server.requests
    assert (method, headers["Content-Type"]) == ("PUT", "application/gzip")
    result = read(data)
    assert json.loads(msgspec.json.encode(result.report)) == retained
    assert (result.host, result.facts["os"]) == (NAME, {"family": "Debian"})
    assert datetime.fromisoformat(result.metadata_expire) > datetime.now(UTC)
    (bundle,) = result.bundles
    assert (bundle.name, bundle.channel, bundle.published) == ("web", "stable", "1.0.0")
    assert (bundle.enforced, bundle.good, bundle.held) == ("1.0.0", "1.0.0", "")
    assert sender.waiting() == []


def test_a_dry_run_sends_nothing_and_writes_nothing(sender: Sender) -> None:
    sender.run("--noop")
    assert sender.server.requests == []
    assert not (sender.host.state / "spool").exists()


def test_a_run_that_fails_early_is_sent(sender: Sender, web: "WebServer") -> None:
    web.stop()
    outcome = sender.run(status=14)
    (result,) = sender.documents()
    assert result.report.exit_status == 14
    assert result.report.problems
    assert (result.bundles[0].published, result.bundles[0].enforced) == ("", "1.0.0")
    assert len(warnings(outcome)) == len([w for w in warnings(outcome) if "reports to" not in w])


def test_broken_host_data_are_sent_as_the_failure(sender: Sender) -> None:
    Path(sender.host.settings["host_data"]).write_text("data: [")
    sender.run(status=78)
    (result,) = sender.documents()
    assert result.report.exit_status == 78
    assert result.bundles[0].enforced == "1.0.0"


def test_a_host_that_is_disabled_is_heard_of(sender: Sender) -> None:
    sender.host.puller("disable", "--reason", "for a while")
    sender.run(status=20)
    (result,) = sender.documents()
    assert "for a while" in result.report.paused


def test_a_wave_that_has_not_come_says_when_it_will(sender: Sender, publisher: "Publisher") -> None:
    start = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)
    publisher.publish("1.1.0", request=RolloutRequest(start=start, over=timedelta(days=1)))
    sender.run(status=20)
    (bundle,) = sender.documents()[0].bundles
    assert (bundle.published, bundle.enforced) == ("1.1.0", "1.0.0")
    assert start < datetime.fromisoformat(bundle.waits_until) <= start + timedelta(days=1)
    assert "reaches this host" in bundle.held
    publisher.publish("1.2.0", request=RolloutRequest(percent=0))
    sender.run(status=20)
    (bundle,) = sender.documents()[1].bundles
    assert (bundle.published, bundle.waits_until) == ("1.2.0", "")


def test_pin_and_abandoned_version_are_sent(sender: Sender, publisher: "Publisher") -> None:
    sender.host.puller("pin", "web", "1.0.0")
    publisher.publish("1.1.0")
    sender.run()
    (bundle,) = sender.documents()[0].bundles
    assert (bundle.pin, bundle.published, bundle.enforced) == ("1.0.0", "1.1.0", "1.0.0")


def test_sent_document_has_problem_and_metrics(sender: Sender, tmp_path: Path) -> None:
    sender.to(f"{sender.server.url}/reports/", textfile=str(tmp_path / "none/puller.prom"))
    sender.run(status=78)
    (result,) = sender.documents()
    assert result.report.exit_status == sender.report()["exit_status"] == 78


def test_a_post_goes_to_the_url_as_it_is(sender: Sender) -> None:
    sender.to({"url": f"{sender.server.url}/take/", "method": "POST"})
    sender.run()
    assert [(method, path) for method, path, _ in sender.server.requests] == [("POST", "/take/")]


def test_names_stand_in_a_url_where_it_says(sender: Sender) -> None:
    sender.to(f"{sender.server.url}/{{run}}/of/{{host}}.gz", f"{sender.server.url}/x/{{host}}/")
    sender.run()
    run = sender.report()["run"]
    assert list(sender.server.documents) == [f"/{run}/of/{NAME}.gz", f"/x/{NAME}/{run}.json.gz"]


# --- credentials, certificates, proxies -------------------------------------------------------------------------


def test_credentials_of_the_site_go_to_the_site_only(sender: Sender, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of reports\n")
    sender.host.configure(http={"retries": 0, "username": "u", "password": "p", "headers": {"X-Site": "s"}})
    sender.run()
    assert {"Authorization", "X-Site"}.isdisjoint(sender.server.requests[0][2])
    sender.to(
        {"url": f"{sender.server.url}/r/", "token_file": str(tmp_path / "token"), "headers": {"X-R": "r"}}
    )
    sender.run()
    headers = sender.server.requests[1][2]
    assert (headers["Authorization"], headers["X-R"]) == ("Bearer of reports", "r")
    sender.to(f"{sender.server.url.replace('//', '//me:secret@')}/r/")
    outcome = sender.run()
    assert sender.server.requests[2][2]["Authorization"].startswith("Basic ")
    assert "secret" not in outcome.output


def test_destination_at_the_site_uses_its_credentials(sender: Sender, web: "WebServer") -> None:
    sender.host.configure(http={"retries": 0, "headers": {"X-Site": "s"}})
    sender.to(f"{web.url}/reports/")
    outcome = sender.run()  # the server of the site accepts no documents
    assert "status 501" in "".join(warnings(outcome))


def test_tls_is_verified_and_a_client_certificate_shown(settled: "Host", tmp_path: Path) -> None:
    trusted = authority.Authority(tmp_path)
    identity = trusted.identity(NAME)
    with reportserver.receiving(trusted.server(demand_client=True)) as server:
        sender = Sender(settled, server)
        assert "certificate is not trusted" in "".join(warnings(sender.run()))
        url = f"{server.url}/reports/"
        sender.to({"url": url, "ca_bundle": str(trusted.bundle)})
        assert len(warnings(sender.run())) == 1
        assert server.documents == {}
        sender.to({"url": url, "ca_bundle": str(trusted.bundle), "client_certificate": str(identity)})
        assert warnings(sender.run()) == []
        assert len(server.documents) == 3


def test_a_proxy_is_asked(sender: Sender) -> None:
    sender.to({"url": "http://fleet.example.com/r/", "proxy": sender.server.url})
    assert warnings(sender.run()) == []
    assert next(iter(sender.server.documents)).startswith("http://fleet.example.com/r/")
    sender.to({"url": "http://fleet.example.com/r/", "proxy": f"http://u:secret@127.0.0.1:{free_port()}"})
    outcome = sender.run()
    assert "the proxy cannot be used" in "".join(warnings(outcome))
    assert "secret" not in outcome.output


# --- failures -----------------------------------------------------------------------------------------------------


def test_missed_reports_are_sent_later_newest_first(sender: Sender, publisher: "Publisher") -> None:
    url = f"http://127.0.0.1:{(port := free_port())}/reports/"
    sender.to(url)
    sent: list[str] = []

    def miss(status: int = 0) -> None:
        outcome = sender.run(status=status)
        (warning,) = [line for line in warnings(outcome) if "reports to" in line]
        sent.append(sender.report()["run"])
        waiting = "1 report waits" if len(sent) == 1 else f"{len(sent)} reports wait"
        assert f"{waiting} for the next run" in warning

    miss()
    publisher.publish("1.1.0", BREAKS)
    miss(status=4)
    sender.host.puller("pin", "web", "1.0.0")
    miss()
    assert sender.waiting() == sent
    (unsent,) = sender.host.status()["unsent"]
    assert (unsent["to"], unsent["reports"], unsent["oldest"]) == (url, 3, sent[0])
    assert f"3 reports wait to be sent to {url}" in sender.host.puller("status").output
    with reportserver.receiving(port=port) as server:
        assert warnings(sender.run()) == []
        newest = sender.report()["run"]
        arrived = [path.split("/")[-1].removesuffix(".json.gz") for path in server.documents]
        assert arrived == [newest, sent[1], sent[2], sent[0]]
        assert [read(data).report.exit_status for data in server.documents.values()] == [0, 4, 0, 0]
    assert sender.waiting() == sender.host.status()["unsent"] == []


def test_monitoring_hears_of_reports_that_wait_for_long(sender: Sender) -> None:
    sender.to(f"http://127.0.0.1:{free_port()}/reports/")
    sender.run()
    assert "to be sent" not in sender.host.puller("status", "--check").output
    (waiting,) = sender.host.state.glob("spool/*/*.json.gz")
    run, remainder = waiting.name[:4], waiting.name[4:]
    waiting.rename(waiting.with_name(f"{int(run) - 1}{remainder}"))
    judged = sender.host.puller("status", "--check")
    assert judged.output.startswith("PULLER WARNING - "), judged.output
    assert "1 report waits to be sent" in judged.output


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 408, 429, 500, 503, 507])
def test_possibly_temporary_error_keeps_the_report(sender: Sender, status: int) -> None:
    sender.server.answer = lambda path: status
    sender.server.headers = {"Location": f"{sender.server.url}/elsewhere"}
    (warning,) = warnings(sender.run())
    assert f"status {status}" in warning
    assert len(sender.waiting()) == 1
    assert len(sender.server.requests) == 1  # redirects are not followed
    sender.server.answer = lambda path: 204
    assert warnings(sender.run()) == []
    assert len(sender.server.documents) == 2
    assert sender.waiting() == []


@pytest.mark.parametrize("status", [413, 415, 422])
def test_a_document_that_is_refused_is_dropped_and_said(sender: Sender, status: int) -> None:
    sender.server.answer = lambda path: status
    (warning,) = warnings(sender.run())
    assert "was rejected and is removed" in warning
    assert sender.waiting() == []


def test_bad_request_drops_a_document_if_others_pass(sender: Sender) -> None:
    """nginx answers 400 if a client certificate has expired, and then the document itself is valid."""
    sender.server.answer = lambda path: 400
    for count in (1, 2):
        (warning,) = warnings(sender.run())
        assert "status 400" in warning
        assert len(sender.waiting()) == count
    bad = sender.waiting()[0]
    sender.server.answer = lambda path: 400 if bad in path else 201
    (warning,) = warnings(sender.run())
    assert f"the report of {bad} was rejected and is removed" in warning
    assert sender.waiting() == []
    assert len(sender.server.documents) == 2


@pytest.mark.parametrize("mood", ["silent", "dripping", "chatty"])
def test_a_server_that_wastes_time_gets_no_more_than_its_part(sender: Sender, mood: str) -> None:
    sender.server.mood = mood
    sender.to(f"{sender.server.url}/reports/", send_timeout="1s")
    before = sender.report()
    began = time.monotonic()
    outcome = sender.run()
    assert time.monotonic() - began < 40  # the server wastes 60 s and more
    assert len(warnings(outcome)) == 1
    assert len(sender.waiting()) == 1
    assert sender.report().keys() == before.keys()


def test_unknown_and_slow_names_are_handled(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    sender.to("http://nowhere.invalid/reports/", send_timeout="1s")
    assert len(warnings(sender.run())) == 1
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60))
    began = time.monotonic()
    (warning,) = warnings(sender.run("--offline"))
    over.set()
    assert time.monotonic() - began < 40  # a resolver that takes 60 s
    assert "took longer than 1.0 s" in warning
    assert len(sender.waiting()) == 2


def test_dead_destination_does_not_affect_the_other(sender: Sender, tmp_path: Path) -> None:
    """Working destinations get everything, in any order. This includes a directory."""
    (tmp_path / "there").mkdir()
    with reportserver.receiving() as silent:
        silent.mood = "silent"
        sender.to(
            f"{silent.url}/r/",
            f"{sender.server.url}/reports/",
            str(tmp_path / "there"),
            str(tmp_path / "missing"),
            send_timeout="2s",
        )
        outcome = sender.run()
    assert len(warnings(outcome)) == 2
    assert "1 report waits for the next run" in warnings(outcome)[0]
    assert "missing" in warnings(outcome)[1]
    (result,) = sender.documents()
    (file,) = (tmp_path / "there").rglob("*.json.gz")
    assert file.relative_to(tmp_path / "there") == Path(NAME, f"{result.report.run}.json.gz")
    assert file.read_bytes() == next(iter(sender.server.documents.values()))
    assert file.stat().st_mode & 0o777 == 0o644
    assert file.parent.stat().st_mode & 0o777 == 0o755
    assert len(sender.waiting()) == 2


def test_a_name_that_is_no_name_of_a_directory_is_not_sent(sender: Sender, execute: Any) -> None:
    sender.host.configure(host_name="../../etc")
    assert "which is invalid as the sender of reports" in sender.run(status=78).output
    sender.host.configure(host_name="")
    Path(sender.host.settings["facts_directory"], "name.json").write_text('{"networking": {"fqdn": "../x"}}')
    (warning,) = warnings(sender.run())
    assert "the name of this host is '../x'" in warning
    assert sender.server.requests == []


def test_unreadable_authority_is_a_single_warning(sender: Sender) -> None:
    sender.to({"url": f"{sender.server.url}/r/", "password_file": "/nonexistent", "username": "u"})
    (warning,) = warnings(sender.run())
    assert "/nonexistent: cannot be read" in warning
    assert len(sender.waiting()) == 1


def test_full_disk_costs_the_spool_but_sends_the_report(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("puller.delivery.delivery.write_state", full)
    (warning,) = warnings(sender.run())
    assert "this report is sent now, and not again" in warning
    assert "no space left on the file system" in warning
    (result,) = sender.documents()
    assert result.report.run == sender.report()["run"]
    sender.server.answer = lambda path: 500
    assert len(warnings(sender.run())) == 2
    assert sender.waiting() == []


def test_waiting_report_keeps_its_host_name(sender: Sender) -> None:
    sender.server.answer = lambda path: 500
    sender.run()
    sender.server.answer = lambda path: 201
    sender.host.configure(host_name="renamed.example.com")
    assert warnings(sender.run()) == []
    hosts = [path.split("/")[2] for path in sender.server.documents]
    assert hosts == [document.host for document in sender.documents()] == ["renamed.example.com", NAME]


def test_bug_in_sending_does_not_change_the_result(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puller.delivery.destination.WebDestination.send", lambda *_: 1 / 0)
    outcome = sender.host.run()
    assert outcome.status == 0
    assert "bug in Puller" in warnings(outcome)[0]
    monkeypatch.setattr("puller.delivery.delivery.pack", lambda *_: 1 / 0)
    outcome = sender.host.run()
    assert outcome.status == 0
    assert "bug in Puller" in "".join(warnings(outcome))


def test_beyond_its_bound_the_spool_forgets_and_says_so(sender: Sender) -> None:
    sender.to(f"http://127.0.0.1:{free_port()}/r/", spool={"count": 2, "bytes": 1_000_000})
    runs = []
    for _ in range(3):
        outcome = sender.run()
        runs.append(sender.report()["run"])
    assert sender.waiting() == runs[1:]
    assert "the oldest unsent reports (1) are removed" in "".join(warnings(outcome))


# --- kills, signals, other runs ---------------------------------------------------------------------------------


class Killed(BaseException):
    """An exception that no code handles."""


def test_kill_between_spooling_and_sending_loses_nothing(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = Spool.remove

    def kill(*_: Any) -> None:
        raise Killed

    for place in ("puller.delivery.delivery.Delivery.send", "puller.delivery.delivery.Spool.remove"):
        with monkeypatch.context() as patch:
            patch.setattr(place, kill)
            with pytest.raises(Killed):
                sender.host.run()
    assert len(sender.waiting()) == 2
    assert Spool.remove is remove
    assert warnings(sender.run()) == []
    assert len(sender.server.documents) == 3  # one of them was sent twice, under the same name
    assert sender.waiting() == []


def started(sender: Sender) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "puller", "run", "--config", str(sender.host.configuration)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.representatives(1)
def test_signal_ends_sending_and_keeps_the_result(sender: Sender, number: signal.Signals) -> None:
    sender.server.mood = "silent"
    sender.to(f"{sender.server.url}/reports/", send_timeout="30s")
    process = started(sender)
    wait_for(lambda: sender.server.requests)
    began = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=50)
    assert time.monotonic() - began < 20  # of the 30 s that sending may take
    assert process.returncode == sender.report()["exit_status"] == 0, output
    assert f"stopped by {number.name}: the next run will send the reports" in output
    assert len(sender.waiting()) == 1


def test_sending_run_does_not_block_another(sender: Sender) -> None:
    sender.server.mood = "silent"
    sender.to(f"{sender.server.url}/reports/", send_timeout="30s")
    process = started(sender)
    wait_for(lambda: sender.server.requests)
    sender.to(f"{sender.server.url}/reports/", send_timeout="1s")
    sender.run()  # it has the lock, completes, and leaves sending to the first run
    assert len(sender.waiting()) == 2
    process.terminate()
    process.communicate(timeout=20)
    sender.server.mood = ""
    sender.run()
    assert len(sender.server.documents) == 3


def test_a_run_says_and_keeps_the_same_whether_it_is_sent_or_not(sender: Sender) -> None:
    def told() -> tuple[Any, ...]:
        outcome = sender.run("-v")
        report = sender.report()
        lines = [line.partition(" in ")[0] for line in outcome.output.splitlines() if "runtime" not in line]
        return report["exit_status"], report.get("problems"), report.keys(), lines

    sent = told()
    sender.to()
    assert told() == sent


def test_documents_of_a_destination_that_was_taken_away_go(sender: Sender) -> None:
    sender.to(f"http://127.0.0.1:{free_port()}/r/")
    sender.run()
    sender.to(f"{sender.server.url}/reports/")
    outcome = sender.run()
    assert "1 report was removed: the destination is no longer configured" in "".join(warnings(outcome))
    assert len(sender.server.documents) == 1
    assert list(itertools.chain(sender.host.state.glob("spool/*/*.gz"))) == []


PROBE = """\
import sys
from puller.cli import _status
status, _ = _status(sys.argv[1:])
print(*(name for name in sys.modules if name in ("requests", "boto3") or name.startswith("puller.delivery")))
sys.exit(status)
"""


def imported(sender: Sender) -> set[str]:
    command = [sys.executable, "-c", PROBE, "run", "--config", str(sender.host.configuration)]
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return set(output.splitlines()[-1].split())


@pytest.mark.everything
def test_run_imports_only_required_destinations(sender: Sender, tmp_path: Path) -> None:
    sender.to()
    assert imported(sender) == set()
    for destination in (str(tmp_path), f"{sender.server.url}/r/"):
        sender.to(destination)
        result = imported(sender)
        assert "puller.delivery.destination" in result
        assert {"requests", "boto3"}.isdisjoint(result)  # importing either takes longer than the run
