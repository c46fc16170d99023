"""``puller history`` and ``puller diff``: earlier runs, and the drift of the enforced versions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from puller.reporting.results import result_schema
from tests.support.stories import Execute, Host, Publisher


@pytest.fixture
def config(host: Host, publisher: Publisher) -> tuple[str, str]:
    """The options for a host that enforces web 1.0.0."""
    publisher.publish("1.0.0")
    assert host.run().status == 0
    return "--config", str(host.configuration)


def motd(host: Host) -> Path:
    """The file of the bundle on the host."""
    return host.machine / "motd"


def document(output: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(output)
    jsonschema.validate(value, result_schema())
    return value


def test_runs_are_listed_newest_first(
    host: Host, publisher: Publisher, config: tuple[str, str], execute: Execute
) -> None:
    file = motd(host)
    assert host.run().status == 0
    assert host.run().status == 0
    file.write_text("drift\n")
    assert host.run().status == 0
    status, output = execute("history", *config)
    assert status == 0
    heads = [line for line in output.splitlines() if not line.startswith(" ")]
    assert len(heads) == 3
    assert heads[1].endswith("2 runs without changes")
    changed, _, added = output.partition("2 runs without changes")
    assert f"~ file     {file}" in changed
    assert "+ file" in added


def test_diffs_are_kept_and_shown_on_request(host: Host, config: tuple[str, str], execute: Execute) -> None:
    file = motd(host)
    file.write_text("drift\n")
    assert "-drift" not in host.run().output
    events = host.report()["bundles"][0]["events"]
    assert "-drift" in "".join(
        each.get("diff", "") for event in events for each in event.get("differences", ())
    )
    assert "-drift" not in execute("history", *config)[1]
    assert "-drift" in execute("history", "--diff", *config)[1]
    assert "-drift" in execute("history", f"file#{file}", *config)[1]
    assert "-drift" not in execute("history", f"file#{file}", "--no-diff", *config)[1]
    host.configure(reports={"diffs": False})
    file.write_text("other drift\n")
    host.run()
    assert "-other drift" not in execute("history", "--diff", *config)[1]


def test_no_diff_of_a_private_file_is_kept(host: Host, publisher: Publisher) -> None:
    edit = {"path": "{{ facts.machine }}/app.conf", "line": "port = 81", "match": "^port"}
    publisher.publish("1.0.0", json.dumps({"resources": [{"line": [{"port": edit}]}]}))
    host.machine.mkdir()
    file = host.machine / "app.conf"
    kept = []
    for mode in (0o600, 0o644):
        file.write_text("password = of-the-administrator\nport = 80\n")
        file.chmod(mode)
        assert host.run().status == 0
        kept.append("of-the-administrator" in json.dumps(host.report()))
    assert kept == [False, True]


@pytest.mark.parametrize("mode", ["0600", "u=rw,go=", "0644"])
def test_no_diff_of_a_file_that_becomes_private_is_kept(host: Host, publisher: Publisher, mode: str) -> None:
    attributes = {"owner": os.geteuid(), "group": os.getegid(), "mode": mode, "content": "password = plain\n"}
    resources = [{"file": [{"{{ facts.machine }}/made": attributes}]}]
    publisher.publish("1.0.0", json.dumps({"resources": resources}))
    host.machine.mkdir()
    assert host.run().status == 0
    events = host.report()["bundles"][0]["events"]
    diffs = "".join(each.get("diff", "") for event in events for each in event["differences"])
    assert ("password" in diffs) == (mode == "0644")


@pytest.mark.usefixtures("config")
def test_without_kept_diffs_the_option_only_prints(host: Host) -> None:
    file = motd(host)
    host.configure(reports={"diffs": False})
    file.write_text("drift\n")
    assert "-drift" in host.run("--diff").output
    assert "-drift" not in json.dumps(host.report())


def test_kept_diffs_have_a_limit(host: Host, publisher: Publisher) -> None:
    text = "".join(f"line {number}\n" for number in range(5000))
    attributes = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}
    names = [f"{number:02}" for number in range(20)]
    files = [
        {f"{{{{ facts.machine }}}}/{name}": {**attributes, "content": f"{name}\n{text}"}} for name in names
    ]
    host.machine.mkdir()
    for name in names:
        (host.machine / name).write_text("before\n")
    publisher.publish("1.0.0", json.dumps({"resources": [{"file": files}]}))
    assert host.run().status == 0
    diffs = [
        difference.get("diff", "")
        for event in host.report()["bundles"][0]["events"]
        for difference in event["differences"]
    ]
    assert 15 * 1024 < max(map(len, diffs)) < 17 * 1024
    assert sum(map(len, diffs)) > 240 * 1024
    assert diffs[0].endswith(" more lines\n")
    assert sum(map(len, diffs)) <= 257 * 1024
    assert diffs[-1] == ""


def test_a_resource_and_a_bundle_select_events(host: Host, config: tuple[str, str], execute: Execute) -> None:
    file = motd(host)
    status, output = execute("history", f"file#{file}", *config)
    assert (status, str(file) in output) == (0, True)
    assert execute("history", "file#/none", *config) == (1, "No stored run matches.\n")
    assert execute("history", "--bundle", "none", *config)[0] == 1
    assert execute("history", "--bundle", "web", *config)[0] == 0
    assert execute("history", "fil#/x", *config)[0] == 64
    assert execute("history", "nonsense", *config)[0] == 64


def test_since_excludes_older_runs(config: tuple[str, str], execute: Execute) -> None:
    assert execute("history", "--since", "1h", *config)[0] == 0
    assert execute("history", "--since", "yesterday", *config)[0] == 0
    assert execute("history", "--since", "0s", *config)[0] == 1
    status, output = execute("history", "--since", "tomorrow", *config)
    assert (status, "--since is" in output) == (64, True)


def test_history_as_json_has_the_reports(config: tuple[str, str], host: Host, execute: Execute) -> None:
    assert host.run().status == 0
    status, output = execute("history", *config, "--format", "json")
    value = document(output)
    assert (status, len(value["runs"]), value["quiet"]) == (0, 1, 1)
    assert value["runs"][0]["bundles"][0]["name"] == "web"


def test_a_damaged_report_is_reported(host: Host, config: tuple[str, str], execute: Execute) -> None:
    next(host.state.glob("runs/*-eventful.json")).write_text("{")
    assert host.run().status == 0
    status, output = execute("history", *config)
    assert (status, "cannot be read" in output, "1 run without changes" in output) == (0, True, True)


def test_diff_shows_drift_without_the_site(host: Host, config: tuple[str, str], execute: Execute) -> None:
    file = motd(host)
    assert execute("diff", *config)[0] == 0
    host.configure(site="http://127.0.0.1:1/")
    before = file.read_text()
    file.write_text("drift\n")
    status, output = execute("diff", *config)
    assert (status, "would change" in output) == (2, True)
    assert file.read_text() == "drift\n"
    status, output = execute("diff", *config, "--format", "json")
    value = document(output)
    assert (status, value["report"]["noop"], value["report"]["exit_status"]) == (2, True, 2)
    assert host.run("--offline").status == 0
    assert file.read_text() == before
    assert execute("diff", *config)[0] == 0


def test_diff_ignores_new_releases(
    host: Host, publisher: Publisher, config: tuple[str, str], execute: Execute
) -> None:
    publisher.publish("2.0.0", "resources: [{exec: [{'true': {}}]}]\n", files={})
    assert execute("diff", *config)[0] == 0
    assert host.enforced == "1.0.0"


def test_diff_works_while_the_host_is_disabled(host: Host, config: tuple[str, str], execute: Execute) -> None:
    motd(host).write_text("drift\n")
    assert execute("disable", "--reason", "maintenance", *config)[0] == 0
    assert execute("diff", *config)[0] == 2


def test_diff_saves_no_report(host: Host, config: tuple[str, str], execute: Execute) -> None:
    before = sorted(path.name for path in (host.state / "runs").iterdir())
    motd(host).write_text("drift\n")
    assert execute("diff", *config)[0] == 2
    assert sorted(path.name for path in (host.state / "runs").iterdir()) == before
