"""An object store that documents arrive in, by its S3 API: keys are ``PREFIX/HOST/RUN.json.gz``.

Credentials, region and endpoint are those of boto3's own chain, as for `puller site push`.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from foundation.problems import ProblemCode
from puller.errors import SourceError, UsageError
from puller.fleet.document import MOST_BYTES, SUFFIXES
from puller.fleet.importing.source import Found, Gone, Refused
from puller.values.host_name import WANTED, is_host_name


class ObjectSource:
    """Methods are those of ``Source``."""

    def __init__(self, bucket: str, prefix: str, client: Any) -> None:
        self.name = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client
        self._arrived: dict[str, datetime] = {}

    @classmethod
    def open(cls, location: str) -> "ObjectSource":
        """``s3://BUCKET/PREFIX``; raises ``UsageError`` and ``SourceError``."""
        parts = urlsplit(location)
        if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
            raise UsageError("wanted s3://BUCKET/PREFIX; credentials are those of the environment or ~/.aws")
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            what = f"{location} needs boto3, which is not installed here: install puller with the extra s3"
            raise UsageError(what, code=ProblemCode.MISSING_DEPENDENCY) from None
        with _explained(location):
            client = boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 5}))
        return cls(parts.netloc, parts.path.strip("/"), client)

    def listed(self) -> Iterator[Found | Refused]:
        with _explained(self.name):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            for page in pages:
                for entry in page.get("Contents", ()):
                    yield self._found(entry)

    def _found(self, entry: Any) -> Found | Refused:
        path = entry["Key"].removeprefix(self._prefix)
        host, _, name = path.partition("/")
        if not name or "/" in name:
            return Refused(path, "is no document of a host: wanted HOST/RUN.json.gz")
        if not is_host_name(host):
            return Refused(path, f"is of no name of a host, {WANTED}")
        if not name.endswith(SUFFIXES):
            return Refused(path, f"has another name than a document, wanted {' or '.join(SUFFIXES)}")
        arrived = entry["LastModified"].astimezone(UTC)
        self._arrived[path] = arrived
        return Found(path, host, int(entry["Size"]), int(arrived.timestamp() * 1e9))

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """As ``Source`` says; raises ``ValueError``."""
        if found.size > MOST_BYTES:
            raise ValueError(f"has {found.size} bytes, at most {MOST_BYTES} are read")
        with _explained(f"{self.name}/{found.path}", may_be_gone=True):
            answer = self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}{found.path}")
            data: bytes = answer["Body"].read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES} bytes")
        return data, min(self._arrived.pop(found.path, datetime.now(UTC)), datetime.now(UTC))

    def remove(self, found: Found) -> None:
        with _explained(f"{self.name}/{found.path}"):
            self._client.delete_object(Bucket=self._bucket, Key=f"{self._prefix}{found.path}")

    def close(self) -> None:
        self._client.close()


@contextlib.contextmanager
def _explained(where: str, *, may_be_gone: bool = False) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        if may_be_gone and isinstance(error, ClientError) and error.response["Error"]["Code"] == "NoSuchKey":
            raise Gone from None
        raise SourceError(
            f"{where}: {' '.join(str(error).split())}", code=ProblemCode.NETWORK_FAILURE
        ) from error
