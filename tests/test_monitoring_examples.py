"""Alert rules and dashboard of examples/monitoring: they use existing metrics, and alerts fire as intended."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.reporting import monitoring
from puller.reporting.report import HoldReason, Phase, State

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples/monitoring"
VALUES = {
    "state": {state.replace(" ", "_") for state in State},
    "reason": {*HoldReason},
    "phase": {*Phase},
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads((EXAMPLES / "dashboard.json").read_bytes())["panels"]
    return results


def expressions() -> Iterator[str]:
    """Return all expressions, with values for Grafana's variables."""
    yield from (rule["expr"] for rule in rules())
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"].replace("$instance", ".*").replace("$bundle", ".*")


def labels_of(name: str) -> set[str]:
    """Return the labels of a metric from the page, which another test compares with the code."""
    page = (ROOT / "docs/monitoring.md").read_text()
    row = re.search(rf"^\| `{name}` \|([^|]*)\|", page, re.MULTILINE)
    assert row, name
    return {*re.findall(r"`(\w+)`", row[1])} | {"instance"}


def test_named_metrics_exist_and_all_are_used() -> None:
    named = {name for each in expressions() for name in re.findall(r"puller_\w+", each)}
    assert named == {*monitoring.HELP}


def test_named_labels_exist_with_their_values() -> None:
    chosen = [match for each in expressions() for match in re.findall(r"(puller_\w+)\{([^}]*)\}", each)]
    assert len(chosen) > 15
    for name, selector in chosen:
        pairs = re.findall(r'(\w+)(?:=~|!=|=)"([^"]*)"', selector)
        assert {label for label, _ in pairs} <= labels_of(name), name
        for label, value in pairs:
            assert {*value.split("|")} <= VALUES.get(label, {value}), (name, label)


def test_every_rule_has_severity_summary_and_tests() -> None:
    tests = yaml.safe_load((EXAMPLES / "alerts-test.yaml").read_text())["tests"]
    requested = [item for test in tests for item in test["alert_rule_test"]]
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
        fires = [bool(item.get("exp_alerts")) for item in requested if item["alertname"] == rule["alert"]]
        assert sorted(fires) == [False, False, True], rule["alert"]


def test_dashboard_panels_do_not_overlap_and_use_the_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not own & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= own
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    ids = [panel["id"] for panel in panels()]
    assert len({*ids}) == len(ids)


def promtool(*arguments: str, directory: Path, provided: str = "") -> tuple[int, str]:
    program = shutil.which("promtool")
    assert program, "promtool is not installed (Debian: apt-get install prometheus)"
    done = subprocess.run(
        [program, *arguments],
        cwd=directory,
        input=provided,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.promtool
def test_rules_fire_as_expected_by_promtool() -> None:
    status, output = promtool("test", "rules", "alerts-test.yaml", directory=EXAMPLES)
    assert status == 0, output


@pytest.mark.promtool
def test_a_rule_that_does_not_fire_is_found_by_these_tests(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "alerts.yaml").read_text()
    (tmp_path / "alerts.yaml").write_text(text.replace("> 2 * 3600", "> 3 * 3600"))
    status, output = promtool("test", "rules", "alerts-test.yaml", directory=tmp_path)
    assert status != 0
    assert "PullerSilent" in output


@pytest.mark.promtool
def test_prometheus_accepts_rules_and_dashboard_queries(tmp_path: Path) -> None:
    recorded = [
        {"record": f"of:query_{number}", "expr": expression}
        for number, expression in enumerate(expressions())
    ]
    queries = tmp_path / "queries.yaml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    status, output = promtool(
        "check", "rules", str(EXAMPLES / "alerts.yaml"), str(queries), directory=tmp_path
    )
    assert status == 0, output
    assert f"{len(recorded)} rules found" in output
