"""``--format json``: each command prints one document that conforms to its schema."""

import contextlib
import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from puller.cli import main
from puller.reporting.results import result_schema
from puller.system.processes import Stopped, StopRequests
from tests.support.stories import Host, Publisher

VALIDATOR = Draft202012Validator(result_schema())


def document(*arguments: str) -> dict[str, Any]:
    """Run a command, and return the document that is all of its stdout."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        main([*arguments, "--format", "json"])
    result: dict[str, Any] = json.loads(output.getvalue())
    VALIDATOR.validate(result)
    assert result["format"] == 1
    assert result["exit_status"] == ended.value.code
    assert arguments[: len(result["command"].split())] == tuple(result["command"].split())
    return result


@pytest.fixture
def options(settled: Host) -> tuple[str, str]:
    """Return the option for a host that enforces web 1.0.0."""
    return ("--config", str(settled.configuration))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.yaml"
    path.write_text(
        "pre_message: begin\nresources: [{exec: [{'true': {}}, {'false': {require: ['exec#true']}}]}]\n"
    )
    return path


def test_run_reports_each_resource(options: tuple[str, ...], settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    due = document("run", "--noop", "--detailed-exitcodes", *options)
    assert due["exit_status"] == 2
    done = document("run", *options)
    (bundle,) = done["report"]["bundles"]
    assert (bundle["version"], bundle["summary"]["changed"], len(bundle["events"])) == ("1.1.0", 1, 4)
    changed = [event for event in bundle["events"] if event.get("differences")]
    predicted = [event for event in due["report"]["bundles"][0]["events"] if event.get("differences")]
    assert [event["name"] for event in changed] == [event["name"] for event in predicted]


def test_problems_of_a_run_have_code_and_text(options: tuple[str, ...], settled: Host) -> None:
    settled.configure(site="http://127.0.0.1:1")
    result = document("run", *options)
    assert result["exit_status"] == 14
    assert result["problems"][0]["code"] == "network-failure"
    assert "Connection refused" in result["problems"][0]["text"]


def test_apply_reports_failures_and_messages(manifest: Path, tmp_path: Path) -> None:
    result = document("apply", str(manifest), "--state-directory", str(tmp_path / "state"))
    assert result["exit_status"] == 6
    assert result["messages"] == ["begin"]
    states = [event["state"] for event in result["report"]["bundles"][0]["events"]]
    assert states == ["changed", "failed"]


def test_stopped_command_has_a_problem(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: StopRequests) -> None:
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(StopRequests, "check", stop)
    result = document("apply", str(manifest), "--state-directory", str(tmp_path / "state"))
    assert (result["exit_status"], result["report"]) == (143, None)
    assert result["problems"][0]["code"] == "stopped"


def test_rollback_reports_both_versions(
    options: tuple[str, ...], settled: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0")
    assert settled.run().status == 0
    result = document("rollback", "web", *options)
    assert (result["before"], result["version"], result["exit_status"]) == ("1.1.0", "1.0.0", 0)
    assert result["report"]["bundles"][0]["version"] == "1.0.0"
    refused = document("rollback", "web", *options)
    assert refused["exit_status"] == 64
    assert refused["report"] is None
    assert refused["problems"]


def test_rollback_for_later_has_no_report(
    options: tuple[str, ...], settled: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0")
    assert settled.run().status == 0
    result = document("rollback", "web", "--later", *options)
    assert (result["version"], result["report"]) == ("1.0.0", None)


def test_pin_reports_the_enforced_version(options: tuple[str, ...]) -> None:
    result = document("pin", "web", "1.1.0", *options)
    assert (result["bundle"], result["version"], result["enforced"]) == ("web", "1.1.0", "1.0.0")
    assert document("pin", "wed", *options)["problems"][0]["suggestions"] == ["web"]


def test_disable_reports_the_hold(options: tuple[str, ...]) -> None:
    result = document("disable", "--reason", "audit", "--until", "2h", *options)
    assert result["reason"] == "audit"
    assert result["since"] < result["until"]
    assert document("disable", "--reason", "\x1b", *options)["exit_status"] == 64


def test_config_check_lists_every_problem(options: tuple[str, ...], settled: Host) -> None:
    result = document("config", "check", *options)
    assert result["problems"] == []
    assert result["bundles"] == [{"name": "web", "channel": "stable", "version": ""}]
    settled.configure(trust_anchor="/missing/root.json", facts_directory="/missing/facts.d")
    result = document("config", "check", *options)
    assert result["exit_status"] == 78
    assert result["problems"][0]["location"]["line"] > 0
    settled.configuration.write_text("bundle: []\n")
    assert document("config", "check", *options)["exit_status"] == 78


def test_site_verify_reports_roles_and_damage(publisher: Publisher) -> None:
    publisher.publish("1.0.0")
    site = publisher.site.directory
    result = document("site", "verify", str(site))
    assert result["targets"] > 0
    assert {role["role"] for role in result["roles"]} >= {"root", "timestamp"}
    archive = max((site / "public").rglob("*.tar.gz"))
    archive.write_bytes(b"damaged")
    damaged = document("site", "verify", str(site))
    assert damaged["exit_status"] == 10
    assert damaged["problems"]


def test_check_reports_health(options: tuple[str, ...]) -> None:
    result = document("check", *options)
    assert (result["health"], result["enforced"]) == ("OK", {"web": "1.0.0"})
    assert document("check", "wed", *options)["exit_status"] == 64


@pytest.mark.parametrize(
    "command", ["run", "pin web 1", "disable --reason x", "rollback web", "config check"]
)
def test_missing_configuration_is_a_document(command: str, tmp_path: Path) -> None:
    result = document(*command.split(), "--config", str(tmp_path / "missing.yaml"))
    assert result["exit_status"] == 78
    assert "missing.yaml" in result["problems"][0]["text"]


def test_schema_of_results_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["schema", "result"])
    result = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(result)
    assert result == json.loads(json.dumps(result_schema()))
