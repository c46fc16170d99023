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

from puller.reporting import metrics
from puller.reporting.report import HeldBecause, Phase, State

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples/monitoring"
VALUES = {
    "state": {state.replace(" ", "_") for state in State},
    "reason": {*HeldBecause},
    "phase": {*Phase},
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((EXAMPLES / "dashboard.json").read_bytes())["panels"]
    return found


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


def test_every_metric_that_is_named_exists_and_every_metric_is_of_use() -> None:
    named = {name for each in expressions() for name in re.findall(r"puller_\w+", each)}
    assert named == {*metrics.HELP}


def test_every_label_that_is_named_is_one_of_its_metric_and_has_such_values() -> None:
    chosen = [found for each in expressions() for found in re.findall(r"(puller_\w+)\{([^}]*)\}", each)]
    assert len(chosen) > 15
    for name, selector in chosen:
        pairs = re.findall(r'(\w+)(?:=~|!=|=)"([^"]*)"', selector)
        assert {label for label, _ in pairs} <= labels_of(name), name
        for label, value in pairs:
            assert {*value.split("|")} <= VALUES.get(label, {value}), (name, label)


def test_every_rule_has_a_severity_a_summary_and_a_test_of_when_it_fires_and_when_not() -> None:
    tests = yaml.safe_load((EXAMPLES / "alerts-test.yaml").read_text())["tests"]
    asked = [one for test in tests for one in test["alert_rule_test"]]
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
        fires = [bool(one.get("exp_alerts")) for one in asked if one["alertname"] == rule["alert"]]
        assert sorted(fires) == [False, False, True], rule["alert"]


def test_the_dashboard_has_panels_beside_each_other_that_ask_the_chosen_source() -> None:
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


def promtool(*arguments: str, directory: Path, given: str = "") -> tuple[int, str]:
    program = shutil.which("promtool")
    assert program, "promtool is not installed (Debian: apt-get install prometheus)"
    done = subprocess.run(
        [program, *arguments],
        cwd=directory,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.promtool
def test_rules_fire_on_what_they_should_by_promtool() -> None:
    status, said = promtool("test", "rules", "alerts-test.yaml", directory=EXAMPLES)
    assert status == 0, said


@pytest.mark.promtool
def test_a_rule_that_does_not_fire_is_found_by_these_tests(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "alerts.yaml").read_text()
    (tmp_path / "alerts.yaml").write_text(text.replace("> 2 * 3600", "> 3 * 3600"))
    status, said = promtool("test", "rules", "alerts-test.yaml", directory=tmp_path)
    assert status != 0
    assert "PullerSilent" in said


@pytest.mark.promtool
def test_prometheus_understands_the_rules_and_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    recorded = [
        {"record": f"of:query_{number}", "expr": expression}
        for number, expression in enumerate(expressions())
    ]
    queries = tmp_path / "queries.yaml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    status, said = promtool("check", "rules", str(EXAMPLES / "alerts.yaml"), str(queries), directory=tmp_path)
    assert status == 0, said
    assert f"{len(recorded)} rules found" in said
