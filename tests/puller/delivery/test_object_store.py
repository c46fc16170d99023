"""Reports in an object store with an S3 API, which moto's server simulates."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from foundation.extras import how_to_install
from puller.delivery.report_document import unpack
from tests.support.object_store import served_store

if TYPE_CHECKING:
    from tests.support.stories import Host, Outcome

# boto3 and moto emit warnings about their own code and unclosed sockets.
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with served_store(tmp_path, "reports") as client:
        yield client


def run(host: Host) -> Outcome:
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert "very-secret" not in outcome.output
    assert "bug in Puller" not in outcome.output
    return outcome


def keys(store: Any) -> list[str]:
    return [item["Key"] for item in store.list_objects_v2(Bucket="reports").get("Contents", [])]


@pytest.mark.object_store
@pytest.mark.parametrize(
    ("location", "prefix"), [("s3://reports", ""), ("s3://reports/a/b/", "a/b/"), ("s3://reports/a", "a/")]
)
def test_a_report_is_an_object_below_the_prefix(
    settled: Host, store: Any, location: str, prefix: str
) -> None:
    settled.configure(reports={"to": [location], "send_timeout": "30s"})
    assert "WARN" not in run(settled).output
    key = f"{prefix}web01.example.com/{settled.report()['run']}.json.gz"
    assert keys(store) == [key]
    result = store.get_object(Bucket="reports", Key=key)
    assert result["ContentType"] == "application/gzip"
    assert unpack(result["Body"].read()).startswith(b"{")


@pytest.mark.object_store
def test_refused_report_waits_until_the_cause_is_fixed(settled: Host, store: Any) -> None:
    settled.configure(reports={"to": ["s3://nowhere/x"], "send_timeout": "30s"})
    assert "NoSuchBucket. Check the credentials" in run(settled).output
    store.create_bucket(Bucket="nowhere")
    assert "WARN" not in run(settled).output
    assert store.list_objects_v2(Bucket="nowhere")["KeyCount"] == 2


@pytest.mark.object_store
def test_silent_store_costs_its_time_limit(
    settled: Host, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    settled.configure(reports={"to": ["s3://reports"], "send_timeout": "5s"})
    began = time.monotonic()
    assert "1 report waits for the next run" in run(settled).output
    assert time.monotonic() - began < 30


def test_missing_boto3_names_the_install_command(settled: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    settled.configure(reports={"to": ["s3://reports"]})
    assert f"boto3, which is not installed. {how_to_install('s3')}" in run(settled).output
