"""An object store with the S3 API, simulated by moto, for tests with the mark ``object_store``."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def served_store(tmp_path: Path, bucket: str) -> Iterator[Any]:
    """Serve a store with one empty bucket, and yield a client of boto3. boto3 finds the store in the environment."""
    import boto3
    import requests
    from moto.server import ThreadedMotoServer  # of the extra `check`: only tests with the mark need it

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        stack.callback(server.stop)
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "publisher",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, value)
        requests.post(f"http://{host}:{port}/moto-api/reset", timeout=30)  # all moto servers share one state
        client = stack.enter_context(closing(boto3.client("s3")))
        client.create_bucket(Bucket=bucket)
        yield client
