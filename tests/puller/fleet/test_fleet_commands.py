"""``puller fleet import | status | facts | forget``, and a preview from the store: output and exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.puller.fleet.conftest import ago
from tests.simulators import fleet
from tests.support.object_store import served_store

if TYPE_CHECKING:
    from tests.support.stories import Execute

DEBIAN = {"os": {"name": "Debian", "family": "Debian", "release": {"major": "12"}}}
ROCKY = {"os": {"name": "Rocky", "family": "RedHat", "release": {"major": "9"}}}


@pytest.fixture
def store(tmp_path: Path, place: Path, now: datetime, execute: Execute) -> str:
    """Store of a fleet: three hosts are in sync, two have failed with the same error, and one is silent."""
    error = {"service#web": "no start, pid 12345"}
    fleet.deliver(
        place,
        [
            *(fleet.sent(f"ok{number}", ago(now, 5), facts=DEBIAN) for number in range(3)),
            *(
                fleet.sent(f"bad{number}", ago(now, 5), "2.0.0", failed=error, facts=ROCKY)
                for number in range(2)
            ),
            fleet.sent("gone", ago(now, 300), facts=DEBIAN),
        ],
    )
    location = str(tmp_path / "fleet.db")
    status, output = execute("fleet", "import", str(place), "--store", location)
    assert status == 0, output
    assert "6 new reports" in output
    return location


def test_the_fleet_at_a_glance(store: str, execute: Execute) -> None:
    status, output = execute("fleet", "status", "--store", store)
    assert status == 0
    assert output.startswith("6 hosts: 2 failed, 1 silent, 3 in sync\n")
    assert "  2.0.0    2 hosts  2 failed\n" in output
    assert "  2 hosts: service#web: no start, pid 12345\n    bad0, bad1, since " in output
    assert "silent for 2 h:\n  gone, last " in output


@pytest.mark.parametrize(
    ("options", "hosts"),
    [
        (("--failed",), ["bad0", "bad1"]),
        (("--silent", "4h"), ["gone"]),
        (("--silent", "6h"), []),
        (("--where", "os.release.major=12"), ["gone", "ok0", "ok1", "ok2"]),
        (("--where", "os.release.major=12", "--where", "os.family=RedHat"), []),
        (("--where", "os.release.major=9", "--failed", "--bundle", "web"), ["bad0", "bad1"]),
        (("--failed", "--bundle", "other"), []),
        (("--failed", "--silent-after", "1m"), []),
    ],
)
def test_filters_list_hosts(options: tuple[str, ...], hosts: list[str], store: str, execute: Execute) -> None:
    status, output = execute("fleet", "status", "--store", store, *options, "--format", "json")
    assert status == 0
    assert [host["host"] for host in json.loads(output)] == hosts
    status, output = execute("fleet", "status", "--store", store, *options)
    assert [line.split()[0] for line in output.splitlines()[1:]] == hosts
    assert hosts or output == "no host matches\n"


def test_status_counts_hosts_on_trial(place: Path, tmp_path: Path, now: datetime, execute: Execute) -> None:
    goods = ["1.0.0", "1.1.0", "1.1.0"]
    sent = (fleet.sent(f"web{number}", ago(now, 5), "1.1.0", good=good) for number, good in enumerate(goods))
    fleet.deliver(place, sent)
    location = str(tmp_path / "fleet.db")
    assert execute("fleet", "import", str(place), "--store", location)[0] == 0
    assert "  1.1.0    3 hosts  3 in sync  1 on trial\n" in execute("fleet", "status", "--store", location)[1]
    output = json.loads(execute("fleet", "status", "--store", location, "--format", "json")[1])
    assert [(row["version"], row["on_trial"]) for row in output["bundles"]["web"]] == [("1.1.0", 1)]


def test_the_fleet_for_programs(store: str, place: Path, execute: Execute) -> None:
    (place / "ok0" / "x.json").write_bytes(b"{")
    assert execute("fleet", "import", str(place), "--store", store)[0] == 4
    output = json.loads(execute("fleet", "status", "--store", store, "--format", "json")[1])
    assert output["states"] == {"failed": 2, "silent": 1, "in-order": 3}
    assert [item["hosts"] for item in output["failures"]] == [["bad0", "bad1"]]
    assert (output["hosts"], output["silent"], output["refused"]) == (6, ["gone"], 1)
    _, text = execute("fleet", "status", "--store", store)
    assert f"1 file that arrived is not a report:\n  {place}/ok0/x.json: is not a report" in text


def test_host_text_cannot_control_terminal_or_lines(
    place: Path, tmp_path: Path, now: datetime, execute: Execute
) -> None:
    text = "\x1b[2J\x9b1m\r\nweb9: in order\n"
    document = fleet.sent(
        "bad",
        ago(now, 5),
        text,
        failed={f"file#{text}": text},
        restless={f"file#{text}": text},
        changed={},
        expires=ago(now, 1).isoformat(),
    )
    document.bundles[0].name = text
    fleet.deliver(place, [document])
    (place / "bad" / f"x{chr(27)}[2J\n.json").write_bytes(b"{")
    location = str(tmp_path / "fleet.db")
    outputs = [execute("fleet", "import", str(place), "--store", location)]
    requested = ((), ("--failed",), ("--where", "os.name=Debian"), ("--bundle", text))
    outputs += [execute("fleet", "status", "--store", location, *options) for options in requested]
    for _, output in outputs:
        assert not set(output) & {"\x1b", "\x9b", "\r"}
        assert not any(line.startswith("web9") for line in output.splitlines())
    assert "\\x1b[2J" in outputs[1][1]


def test_the_facts_of_hosts_go_into_files(store: str, tmp_path: Path, execute: Execute) -> None:
    options = ("--where", "os.family=RedHat", "--to", str(tmp_path / "facts"))
    assert execute("fleet", "facts", "--store", store, *options)[0] == 0
    result = {file.name: json.loads(file.read_text()) for file in (tmp_path / "facts").iterdir()}
    assert result == {"bad0.json": ROCKY, "bad1.json": ROCKY}


def test_a_preview_takes_the_machines_of_the_store(store: str, tmp_path: Path, execute: Execute) -> None:
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        resource = f"/x: {{owner: root, group: root, mode: '0644', content: '{version}'}}"
        (tmp_path / version / "manifest.yaml").write_text(f"resources:\n  - file:\n      - {resource}\n")
    status, output = execute(
        "preview", str(tmp_path / "new"), "--from", str(tmp_path / "old"), "--fleet", store
    )
    assert status == 2, output
    assert "6 machines" in output


def test_preview_names_facts_that_hosts_have_not_sent(store: str, tmp_path: Path, execute: Execute) -> None:
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "manifest.yaml").write_text(
            "data: {text: all}\n"
            "hierarchy: {order: ['host:{{ facts.networking.fqdn }}']}\n"
            f"overrides: {{'host:ok1': {{text: {version}}}}}\n"
            "resources:\n  - file:\n"
            "      - /x: {owner: root, group: root, mode: '0644', content: '{{ data.text }}'}\n"
        )
    words = ("preview", str(tmp_path / "new"), "--from", str(tmp_path / "old"), "--fleet", store)
    status, output = execute(*words)
    assert status == 0, output
    assert "6 of 6 machines (bad0, bad1, gone and 3 more): no known changes" in output
    assert "requires the fact networking, which is missing in the store for 6 of 6 machines (bad0" in output
    result = json.loads(execute(*words, "--format", "json")[1])
    assert result["missing_facts"]["networking"] == ["bad0", "bad1", "gone", "ok0", "ok1", "ok2"]
    assert "networking" in execute(*words, "--format", "markdown")[1]


def test_hosts_are_forgotten(store: str, execute: Execute) -> None:
    assert execute("fleet", "forget", "gone", "--store", store) == (0, "gone: forgotten\n")
    assert execute("fleet", "forget", "gone", "--store", store)[0] == 1
    assert execute("fleet", "status", "--store", store)[1].startswith("5 hosts: 2 failed, 3 in sync\n")


def test_a_store_that_is_not_there_is_said(tmp_path: Path, execute: Execute) -> None:
    status, output = execute("fleet", "status", "--store", str(tmp_path / "none.db"))
    assert (status, "the store is missing; `puller fleet import` creates it" in output) == (64, True)


# Object stores


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Any]:
    with served_store(tmp_path, "fleet") as client:
        yield client


@pytest.mark.object_store
@pytest.mark.filterwarnings("ignore")  # warnings of boto3 and moto
def test_object_store_reports_are_imported_once_and_removed(
    bucket: Any, place: Path, tmp_path: Path, now: datetime, execute: Execute
) -> None:
    for file in fleet.deliver(place, [fleet.sent(f"h{number}", ago(now, 5)) for number in range(5)]):
        bucket.upload_file(str(file), "fleet", f"reports/{file.parent.name}/{file.name}")
    for key in ("reports/h0/../h1/x.json", "reports/top.json", "reports/h0/large.json", "other/h9/x.json"):
        bucket.put_object(Bucket="fleet", Key=key, Body=b" " * (2 * 1024 * 1024 if "large" in key else 1))
    options = ("s3://fleet/reports", "--store", str(tmp_path / "fleet.db"))
    status, output = execute("fleet", "import", *options)
    assert (status, "5 new reports" in output, "3 files are not reports" in output) == (4, True, True), output
    assert "h0/large.json: has 2097152 bytes" in output
    assert "0 new reports" in execute("fleet", "import", *options)[1]
    status, output = execute("fleet", "import", *options, "--remove")
    assert "5 files removed" in output
    assert len(bucket.list_objects_v2(Bucket="fleet", Prefix="reports/")["Contents"]) == 3
    status, output = execute("fleet", "import", "s3://none/reports", "--store", str(tmp_path / "fleet.db"))
    assert status == 13
    assert "NoSuchBucket" in output


@pytest.mark.object_store
@pytest.mark.filterwarnings("ignore")
def test_an_object_that_is_removed_meanwhile_is_no_failure(
    bucket: Any, place: Path, tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch, execute: Execute
) -> None:
    from puller.fleet.store.import_sources import ObjectSource

    for file in fleet.deliver(place, [fleet.sent("h0", ago(now, 5)), fleet.sent("h1", ago(now, 5))]):
        bucket.upload_file(str(file), "fleet", f"later/{file.parent.name}/{file.name}")
    listed = ObjectSource.listed

    def then_removed(self: ObjectSource) -> Iterator[Any]:
        results = list(listed(self))
        bucket.delete_object(Bucket="fleet", Key=f"later/{results[0].path}")
        return iter(results)

    monkeypatch.setattr(ObjectSource, "listed", then_removed)
    status, output = execute("fleet", "import", "s3://fleet/later", "--store", str(tmp_path / "fleet.db"))
    assert (status, "1 new report " in output) == (0, True), output
