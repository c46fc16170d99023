"""Sites in an object store with the S3 API. The test server is moto."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from bundles.errors import PublishError
from bundles.publisher.push.plan import files_of
from bundles.publisher.push.push import Push, open_destination
from tests.bundles.publisher.push.conftest import Silent
from tests.support.object_store import served_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sites import Publisher

# boto3 warns about calls of botocore, and moto leaves sockets to the garbage collector.
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with served_store(tmp_path, "sites") as client:
        yield client


def _keys(store: Any) -> dict[str, int]:
    result = store.list_objects_v2(Bucket="sites").get("Contents", [])
    return {item["Key"]: item["Size"] for item in result}


@pytest.mark.object_store
def test_push_to_an_object_store_copies_only_changes(publisher: Publisher, store: Any) -> None:
    watch = Silent()

    def push() -> tuple[str, ...]:
        destination = open_destination("s3://sites/puller")
        try:
            return Push(publisher.site, destination).run(watch).plan.copied
        finally:
            destination.close()

    push()
    (archive,) = (path for path in files_of(publisher.site.public) if path.endswith(".tar.gz"))
    assert dict(watch.parts)[archive] == files_of(publisher.site.public)[archive]
    desired = {f"puller/{path}": size for path, size in files_of(publisher.site.public).items()}
    assert _keys(store) == desired
    timestamp = store.get_object(Bucket="sites", Key="puller/metadata/timestamp.json")
    assert timestamp["Body"].read() == (publisher.site.metadata / "timestamp.json").read_bytes()
    assert timestamp["CacheControl"] == "no-cache"
    assert push() == ()
    publisher.publish("1.1.0")
    assert len(push()) == len(files_of(publisher.site.public)) - len(desired) + 1
    assert push() == ()


@pytest.mark.object_store
@pytest.mark.everything
def test_removed_files_go_and_foreign_files_stay(publisher: Publisher, store: Any) -> None:
    store.put_object(Bucket="sites", Key="index.html", Body=b"mine")
    store.put_object(Bucket="sites", Key="metadata/77.snapshot.json", Body=b"old")
    destination = open_destination("s3://sites")
    Push(publisher.site, destination, timedelta(0)).run(Silent())
    destination.close()
    assert "index.html" in _keys(store)
    assert "metadata/77.snapshot.json" not in _keys(store)


@pytest.mark.object_store
def test_a_bucket_that_is_not_there_is_told_without_credentials(publisher: Publisher, store: Any) -> None:
    destination = open_destination("s3://nowhere/puller")
    with pytest.raises(PublishError) as failure:
        Push(publisher.site, destination).run(Silent())
    destination.close()
    assert "s3://nowhere" in str(failure.value)
    assert "NoSuchBucket" in str(failure.value)
    assert "very-secret" not in str(failure.value)


@pytest.mark.object_store
@pytest.mark.parametrize("endpoint", ["none", "http://[::1"])
def test_invalid_endpoint_is_reported(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(PublishError, match=r"s3://sites/puller: .*[Ii]nvalid"):
        open_destination("s3://sites/puller").read("metadata/timestamp.json", 10)


class _Nonsense(http.server.BaseHTTPRequestHandler):
    """Answers for which boto3 has no exceptions."""

    def do_GET(self) -> None:
        if self.path.startswith("/length"):
            self.send_response(200)
            self.send_header("Content-Length", "abc")
        else:
            self.send_response(302)
            self.send_header("Location", "http://user:geheim@elsewhere.invalid/")
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.object_store
@pytest.mark.parametrize("bucket", ["length", "elsewhere"])
def test_invalid_answer_of_a_store_is_reported(
    bucket: str, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Nonsense)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    try:
        with pytest.raises(PublishError, match=f"s3://{bucket}/") as failure:
            open_destination(f"s3://{bucket}").read("metadata/timestamp.json", 10)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "geheim" not in str(failure.value)


@pytest.mark.parametrize(
    "location", ["s3://", "s3://[bucket/x", "s3://key:secret@bucket/x", "s3://bucket/x?versionId=1"]
)
def test_invalid_location_is_refused_without_showing_it(location: str) -> None:
    with pytest.raises(PublishError, match=r"expected s3://BUCKET/PREFIX") as failure:
        open_destination(location)
    assert "secret" not in str(failure.value)
