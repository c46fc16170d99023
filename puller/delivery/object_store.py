"""An object store as a destination of reports (the extra ``s3``). ``foundation/object_store.py`` has the client.

The configuration may name a proxy and authorities. boto3 finds credentials, region and endpoint.
"""

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.transport.settings import TransportSettings
from foundation.object_store import Location, ObjectStore, ObjectStoreError, require_library
from puller.config.configuration import Configuration
from puller.config.destinations import DestinationOptions
from puller.config.transport import settings_for_destination, verify_files
from puller.delivery.destination import RefusedError

_REFUSED = frozenset({"EntityTooLarge", "InvalidDigest"})


class ObjectStoreDestination:
    """The bucket and the prefix of ``options``. Methods are those of ``Destination``."""

    def __init__(self, configuration: Configuration, options: DestinationOptions) -> None:
        self._location = Location.parse(options.location)
        self._settings = settings_for_destination(configuration, options)
        self._store: ObjectStore | None = None

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """See ``Destination`` for the errors that it raises."""
        try:
            if (
                self._store is None
            ):  # here, within the deadline: opening reads files and may request the machine's role
                self._store = _open(self._location, self._settings, deadline)
            deadline.verify()
            self._store.write(f"{host}/{run}.json.gz", data, content_type="application/gzip")
        except ObjectStoreError as error:
            failure = RefusedError if error.code in _REFUSED else TransportError
            raise failure(error.where, error.message) from None

    def verify(self) -> None:
        """See ``Destination`` for the errors that it raises."""
        verify_files(self._settings)
        require_library()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _open(location: Location, settings: TransportSettings, deadline: Deadline) -> ObjectStore:
    proxy = settings.proxy.reveal() if settings.proxy else ""
    return ObjectStore(
        location,
        retries={"total_max_attempts": 1, "mode": "standard"},  # the next run tries again
        connect_timeout=deadline.at_most(settings.connect_timeout),
        read_timeout=deadline.at_most(settings.read_timeout),
        proxies={"http": proxy, "https": proxy} if proxy else None,
        verify=settings.ca_bundle,
    )
