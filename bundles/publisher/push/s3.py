"""An object store as a destination, by its S3 API, through boto3 (the extra ``s3``).

* Credentials, region and endpoint are those of boto3's own chain: environment, ``~/.aws``, the role of the machine;
  another store than Amazon's is ``AWS_ENDPOINT_URL``.
* An object appears when it is whole. ``timestamp.json`` is stored with ``Cache-Control: no-cache``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit

from bundles.errors import PublishError
from bundles.publisher.push.contents import TIMESTAMP, Source, kind_of_file
from bundles.publisher.push.destination import PassingError, Sending, retried
from foundation.problems import ProblemCode

_CONNECTIONS: Final = 8
_AT_ONCE: Final = 1000
"""Objects that one request may remove (DeleteObjects)."""
_NOT_FOUND: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_REFUSED: Final = frozenset(
    {"403", "AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)


class ObjectStore:
    """Objects of ``bucket`` whose keys begin with ``prefix``. Methods raise `PublishError`."""

    def __init__(self, bucket: str, prefix: str, client: Any) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client

    @classmethod
    def open(cls, location: str) -> ObjectStore:
        """``s3://bucket/prefix``; raises `PublishError`."""
        what = "wanted s3://BUCKET/PREFIX; credentials are those of the environment or ~/.aws"
        try:
            parts = urlsplit(location)
        except ValueError:
            raise PublishError("s3://", what, code=ProblemCode.INVALID_COMMAND) from None
        if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
            raise PublishError("s3://", what, code=ProblemCode.INVALID_COMMAND)
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            what = "needs boto3, which is not installed here: install puller with the extra s3"
            raise PublishError(location, what, code=ProblemCode.MISSING_DEPENDENCY) from None
        config = Config(
            retries={"mode": "standard", "max_attempts": 5}, max_pool_connections=_CONNECTIONS + 2
        )
        with _Explained(location):
            return cls(parts.netloc, parts.path.strip("/"), boto3.client("s3", config=config))

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def files(self) -> dict[str, int]:
        return retried(lambda: dict(self._listed()))

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return {path: size for path, size in self.files().items() if path in paths}

    def read(self, path: str, limit: int) -> bytes | None:
        try:
            data = retried(lambda: self._read(path, limit))
        except _NotThereError:
            return None
        if len(data) > limit:
            raise PublishError(f"{self}/{path}", f"has more than {limit} bytes")
        return data

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        """Several at once; what must come after another is in another call."""

        def one(source: Source) -> None:
            retried(lambda: self._put(source, watch))
            watch.sent(source.path, source.size)

        _each(one, sources)

    def remove(self, paths: Iterable[str]) -> None:
        keys = [{"Key": self._key(path)} for path in paths]
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]
            with _Explained(str(self)):
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": part, "Quiet": True}
                )
            if failed := answer.get("Errors"):
                raise PublishError(
                    f"{self}/{failed[0].get('Key', '')}",
                    f"cannot be removed: {failed[0].get('Code')}",
                    code=ProblemCode.NETWORK_FAILURE,
                )

    def close(self) -> None:
        self._client.close()

    def _listed(self) -> Iterator[tuple[str, int]]:
        with _Explained(str(self)):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            for page in pages:
                for found in page.get("Contents", ()):
                    path = found["Key"].removeprefix(self._prefix)
                    if kind_of_file(path) is not None:
                        yield path, int(found["Size"])

    def _read(self, path: str, limit: int) -> bytes:
        with _Explained(f"{self}/{path}"):
            data: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(path))["Body"].read(
                limit + 1
            )
            return data

    def _put(self, source: Source, watch: Sending) -> None:
        extra = {"ContentType": "application/octet-stream"}
        if source.path == TIMESTAMP:
            extra["CacheControl"] = "no-cache"
        with _Explained(f"{self}/{source.path}"):
            if source.data is not None:
                self._client.upload_fileobj(
                    io.BytesIO(source.data), self._bucket, self._key(source.path), extra
                )
            else:
                passed: list[int] = []  # of each piece, less than none for one that is sent again

                def moved(count: int) -> None:
                    passed.append(count)
                    watch.moved(source.path, sum(passed))

                self._client.upload_file(
                    str(source.file), self._bucket, self._key(source.path), extra, Callback=moved
                )

    def _key(self, path: str) -> str:
        return self._prefix + path


class _NotThereError(PublishError):
    """There is no such object."""


class _Explained:
    """Failures of boto3 within, in our words; what it says of requests has no credentials in it."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        if isinstance(error, ClientError):
            code = str(error.response.get("Error", {}).get("Code", ""))
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            if code in _NOT_FOUND:
                raise _NotThereError(self._where, "is not there") from None
            failure = PassingError if status >= 500 or status == 429 else PublishError
            raise failure(self._where, f"is refused: {code}{_hint(code)}") from None
        if isinstance(error, HTTPClientError):
            raise PassingError(self._where, " ".join(str(error).split())) from None
        if isinstance(error, BotoCoreError | Boto3Error):
            raise PublishError(
                self._where, " ".join(str(error).split()), code=ProblemCode.NETWORK_FAILURE
            ) from None
        if isinstance(error, OSError):
            raise PublishError(
                str(error.filename or self._where),
                error.strerror or str(error),
                code=ProblemCode.NETWORK_FAILURE,
            ) from None
        if isinstance(error, Exception) and not isinstance(error, PublishError):
            # An endpoint that is none, or answers that are not those of a store: boto3 has no class for these.
            what = f"boto3 cannot make sense of the endpoint or its answer ({type(error).__name__}): {error}"
            raise PublishError(
                self._where, " ".join(what.split()), code=ProblemCode.NETWORK_FAILURE
            ) from None


def _hint(code: str) -> str:
    return ": see which credentials, region and AWS_ENDPOINT_URL are in force" if code in _REFUSED else ""


def _each(action: Callable[[Source], None], sources: Sequence[Source]) -> None:
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        waiting = [pool.submit(action, source) for source in sources]
        try:
            for each in waiting:
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
