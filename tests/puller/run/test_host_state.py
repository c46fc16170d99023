"""``status`` and sent reports describe the same state of the host."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.config.configuration import load_configuration
from puller.reporting.history import load_last_report
from puller.reporting.report import SentFacts
from puller.run.host_state import HostState, sent_report
from puller.run.policy.holds import Pins
from puller.state import Directories
from tests.support.stories import STORY, Host, Publisher

BROKEN = STORY.replace(
    "{source: files/app.conf}",
    "{source: files/app.conf, health_checks: [{name: app, command: sh -c 'exit 2'}]}",
)


def assert_agreement(host: Host) -> dict[str, Any]:
    """Compare ``status`` with the sent document, and return the bundle of the document."""
    directories = Directories(host.state, Path(host.settings["run_directory"]))
    configuration = load_configuration(str(host.configuration))
    report = load_last_report(directories)
    assert report is not None
    state = HostState(configuration, directories, datetime.now(UTC), pytest.fail)
    sent = msgspec.to_builtins(sent_report(state, report, [], SentFacts()))["bundles"][0]
    shown = host.status()["bundles"][0]
    assert (sent.get("enforced"), sent.get("enforced_since")) == (shown["enforced"], shown["since"])
    assert sent.get("good") == shown["good"]
    if held := sent.get("held"):  # of a version in quarantine, the status also states since when
        assert held.partition(": ")[2] == shown["held"].partition(": ")[2]
    quarantined = [entry["version"] for entry in host.status()["holds"]["quarantine"]]
    assert sent.get("quarantined", []) == quarantined
    assert sent.get("pin") == host.status()["holds"]["pins"].get("web")
    return dict(sent)


def test_status_and_sent_report_agree(host: Host, publisher: Publisher) -> None:
    host.run()
    assert "enforced" not in assert_agreement(host)
    publisher.publish("1.0.0", STORY)
    host.run()
    assert assert_agreement(host)["good"] == "1.0.0"
    publisher.publish("1.1.0", BROKEN)
    host.run()
    after_rollback = assert_agreement(host)
    assert (after_rollback["enforced"], after_rollback["quarantined"]) == ("1.0.0", ["1.1.0"])
    directories = Directories(host.state, Path(host.settings["run_directory"]))
    Pins.load(directories, pytest.fail).set("web", "1.0.0")
    host.run()
    assert assert_agreement(host)["pin"] == "1.0.0"
