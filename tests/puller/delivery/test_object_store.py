"""Reports in an object store with an S3 API, which moto's server simulates."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

from foundation.extras import how_to_install
from puller.delivery.report_document import unpack

if TYPE_CHECKING:
    from tests.support.stories import Host, Outcome

# boto3 and moto emit warnings about their own code and unclosed sockets.
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Yield a client of a local store with an empty bucket ``reports``. boto3 finds the store in the environment."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "host",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    requests.post(f"http://{host}:{port}/moto-api/reset", timeout=30)  # all moto servers share one state
    client = boto3.client("s3")
    client.create_bucket(Bucket="reports")
    yield client
    client.close()
    server.stop()


def run(host: Host) -> Outcome:
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert "very-secret" not in outcome.output
    assert "bug in Puller" not in outcome.output
    return outcome


def keys(store: Any) -> list[str]:
    return [item["Key"] for item in store.list_objects_v2(Bucket="reports").get("Contents", [])]


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


def test_refused_report_waits_until_the_cause_is_fixed(settled: Host, store: Any) -> None:
    settled.configure(reports={"to": ["s3://nowhere/x"], "send_timeout": "30s"})
    assert "NoSuchBucket. Check the credentials" in run(settled).output
    store.create_bucket(Bucket="nowhere")
    assert "WARN" not in run(settled).output
    assert store.list_objects_v2(Bucket="nowhere")["KeyCount"] == 2


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
