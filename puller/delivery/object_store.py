"""An object store as a destination of reports, by its S3 API, through boto3 (the extra ``s3``).

Credentials, region and endpoint are those of boto3's own chain: environment, ``~/.aws``, the role of the machine;
another store than Amazon's is ``AWS_ENDPOINT_URL``. Proxy and authorities may be said in the configuration.
"""

from typing import Any

from bundles.deadline import Deadline
from bundles.errors import SettingsError, TransportError
from bundles.transport.settings import TransportSettings
from puller.config.configuration import Configuration
from puller.config.destinations import S3, DestinationOptions
from puller.config.transport import settings_for_destination
from puller.delivery.destination import RefusedError

_REFUSED = frozenset({"EntityTooLarge", "InvalidDigest"})
_OF_CREDENTIALS = frozenset(
    {"403", "AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)


class ObjectStore:
    """The bucket and the prefix of ``options``; methods are those of ``Destination``."""

    def __init__(self, configuration: Configuration, options: DestinationOptions) -> None:
        self._location = options.location.rstrip("/")
        self._bucket, _, prefix = self._location.removeprefix(S3).partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._settings = settings_for_destination(configuration, options)
        self._client: Any = None

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """See ``Destination``; raises as it says."""
        try:
            from boto3.exceptions import Boto3Error
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            what = "needs boto3, which is not installed here: install puller with the extra s3"
            raise SettingsError(self._location, what) from None
        key = f"{self._prefix}{host}/{run}.json.gz"
        try:
            if self._client is None:  # here, aside: it reads files, and may ask the machine's role
                self._client = _client(self._settings, deadline)
            deadline.verify()
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data, ContentType="application/gzip")
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            failure = RefusedError if code in _REFUSED else TransportError
            raise failure(f"{S3}{self._bucket}/{key}", f"is refused: {code}{_hint(code)}") from None
        except (BotoCoreError, Boto3Error) as error:
            raise TransportError(f"{S3}{self._bucket}/{key}", " ".join(str(error).split())) from None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _client(settings: TransportSettings, deadline: Deadline) -> Any:
    import boto3
    from botocore.config import Config

    proxy = settings.proxy.reveal() if settings.proxy else ""
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},  # the next run tries again
        connect_timeout=deadline.at_most(settings.connect_timeout),
        read_timeout=deadline.at_most(settings.read_timeout),
        proxies={"http": proxy, "https": proxy} if proxy else None,
    )
    return boto3.client("s3", config=config, verify=settings.ca_bundle)


def _hint(code: str) -> str:
    return (
        ": see which credentials, region and AWS_ENDPOINT_URL are in force" if code in _OF_CREDENTIALS else ""
    )
