"""Client of object stores with the S3 API, through boto3 (the extra ``s3``).

* Credentials, region and endpoint come from boto3's own chain: environment, ``~/.aws``, the role of the machine.
  ``AWS_ENDPOINT_URL`` selects another store than Amazon's.
* All failures are ``ObjectStoreError``, whose text contains no credentials. Errors of local files are ``OSError``.
* An object appears when it is complete.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from foundation.extras import how_to_install
from foundation.problems import ProblemCode

SCHEME = "s3://"

_REMOVED_AT_ONCE = 1000
"""Limit of objects in one request (DeleteObjects)."""
_NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})
_OF_CREDENTIALS = frozenset(
    {"403", "AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)


class Failure(Enum):
    """The kind of a failure."""

    NOT_FOUND = "not found"
    """The object does not exist."""
    TEMPORARY = "temporary"
    """The network or the server failed, so that another attempt may succeed."""
    MISSING_LIBRARY = "missing library"
    """boto3 is not installed."""
    OTHER = "other"


class ObjectStoreError(Exception):
    """A failed request."""

    def __init__(self, where: str, message: str, kind: Failure = Failure.OTHER, code: str = "") -> None:
        super().__init__(f"{where}: {message}")
        self.where = where
        self.message = message
        self.kind = kind
        self.code = code
        """The code of the S3 API, such as ``AccessDenied``."""
        is_missing = kind is Failure.MISSING_LIBRARY
        self.problem_code = ProblemCode.MISSING_DEPENDENCY if is_missing else ProblemCode.NETWORK_FAILURE


class StoredObject(NamedTuple):
    """An object in a list."""

    path: str
    """Its key without the prefix."""
    size: int
    modified: datetime


class Location(NamedTuple):
    """A bucket, and a prefix of keys that is empty or ends with a slash."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> "Location":
        """Read ``s3://BUCKET/PREFIX``. Raises ``ValueError``."""
        try:
            url_parts = urlsplit(text)
            is_valid = (
                bool(url_parts.hostname)
                and "@" not in url_parts.netloc
                and not url_parts.query + url_parts.fragment
            )
        except ValueError:
            is_valid = False
        if not is_valid or not text.startswith(SCHEME):
            raise ValueError(
                "expected s3://BUCKET/PREFIX without credentials, which come from the environment or ~/.aws"
            )
        prefix = url_parts.path.strip("/")
        return cls(url_parts.netloc, f"{prefix}/" if prefix else "")

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


def require_library() -> None:
    """Raise ``ValueError`` if boto3 is not installed."""
    try:
        import boto3  # noqa: F401  optional
    except ImportError:
        detail = "object stores need boto3, which is not installed"
        raise ValueError(f"{detail}. {how_to_install('s3')}") from None


class ObjectStore:
    """The objects of a location. Methods raise ``ObjectStoreError``."""

    def __init__(self, location: Location, **options: Any) -> None:
        """Create the client without connecting.

        ``options`` are arguments of ``botocore.config.Config``, and ``verify``.
        """
        self.location = location
        try:
            require_library()
        except ValueError as error:
            raise ObjectStoreError(str(location), str(error), Failure.MISSING_LIBRARY) from None
        import boto3  # optional
        from botocore.config import Config  # optional

        verify = options.pop("verify", None)
        with _translated(str(location)):
            self._client = boto3.client("s3", config=Config(**options), verify=verify)

    def __str__(self) -> str:
        return str(self.location)

    def objects(self) -> Iterator[StoredObject]:
        """Yield all objects."""
        with _translated(str(self)):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.location.bucket, Prefix=self.location.prefix
            )
            for page in pages:
                for entry in page.get("Contents", ()):
                    path = entry["Key"].removeprefix(self.location.prefix)
                    yield StoredObject(path, int(entry["Size"]), entry["LastModified"].astimezone(UTC))

    def read(self, path: str, limit: int) -> bytes:
        """Return at most ``limit`` bytes of an object."""
        with _translated(f"{self}/{path}"):
            answer = self._client.get_object(Bucket=self.location.bucket, Key=self._key(path))
            data: bytes = answer["Body"].read(limit)
            return data

    def write(self, path: str, data: bytes, *, content_type: str, **more: str) -> None:
        """Write an object. ``more`` are parameters of PutObject, such as ``CacheControl``."""
        with _translated(f"{self}/{path}"):
            self._client.put_object(
                Bucket=self.location.bucket, Key=self._key(path), Body=data, ContentType=content_type, **more
            )

    def upload(
        self, path: str, file: Path, *, content_type: str, moved: Callable[[int], None], **additional: str
    ) -> None:
        """Write an object from a file, in parts. ``moved`` gets their sizes, negative before a repetition."""
        with _translated(f"{self}/{path}"):
            self._client.upload_file(
                str(file),
                self.location.bucket,
                self._key(path),
                {"ContentType": content_type, **additional},
                Callback=moved,
            )

    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects. A missing object is not an error."""
        keys = [{"Key": self._key(path)} for path in paths]
        for start in range(0, len(keys), _REMOVED_AT_ONCE):
            part = {"Objects": keys[start : start + _REMOVED_AT_ONCE], "Quiet": True}
            with _translated(str(self)):
                answer = self._client.delete_objects(Bucket=self.location.bucket, Delete=part)
            if errors := answer.get("Errors"):
                path = str(errors[0].get("Key", "")).removeprefix(self.location.prefix)
                code = str(errors[0].get("Code", ""))
                raise ObjectStoreError(f"{self}/{path}", f"cannot be removed: {code}", code=code)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _key(self, path: str) -> str:
        return self.location.prefix + path


@contextlib.contextmanager
def _translated(where: str) -> Iterator[None]:
    from boto3.exceptions import Boto3Error  # optional
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # optional

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _NOT_FOUND:
            raise ObjectStoreError(where, "is missing", Failure.NOT_FOUND, code) from None
        kind = Failure.TEMPORARY if status >= 500 or status == 429 else Failure.OTHER
        hint = ". Check the credentials, the region and AWS_ENDPOINT_URL"
        message = f"was rejected: {code}{hint if code in _OF_CREDENTIALS else ''}"
        raise ObjectStoreError(where, message, kind, code) from None
    except HTTPClientError as error:
        raise ObjectStoreError(where, " ".join(str(error).split()), Failure.TEMPORARY) from None
    except (BotoCoreError, Boto3Error) as error:
        raise ObjectStoreError(where, " ".join(str(error).split())) from None
    except (OSError, ObjectStoreError):
        raise
    except Exception as error:  # noqa: BLE001  see below
        # boto3 lacks error classes for an invalid endpoint, and for responses that are not from an object store.
        message = f"boto3 cannot read the endpoint or its answer ({type(error).__name__}): {error}"
        raise ObjectStoreError(where, " ".join(message.split())) from None
