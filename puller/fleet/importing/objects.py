"""An object store that documents arrive in: keys are ``PREFIX/HOST/RUN.json.gz``."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

from foundation.object_store import Failure, Location, ObjectStore, ObjectStoreError, StoredObject
from puller.errors import SourceError, UsageError
from puller.fleet.document import MOST_BYTES, SUFFIXES
from puller.fleet.importing.source import Found, Gone, Refused
from puller.values.host_name import WANTED, is_host_name


class ObjectSource:
    """Methods are those of ``Source``."""

    def __init__(self, store: ObjectStore) -> None:
        self.name = str(store)
        self._store = store
        self._arrived: dict[str, datetime] = {}

    @classmethod
    def open(cls, location: str) -> "ObjectSource":
        """Open ``s3://BUCKET/PREFIX``. Raises ``UsageError``."""
        try:
            return cls(ObjectStore(Location.parse(location), retries={"mode": "standard", "max_attempts": 5}))
        except ValueError as error:
            raise UsageError(str(error)) from None
        except ObjectStoreError as error:
            raise UsageError(str(error), code=error.problem_code) from None

    def listed(self) -> Iterator[Found | Refused]:
        with _explained():
            yield from map(self._found, self._store.objects())

    def _found(self, entry: StoredObject) -> Found | Refused:
        path = entry.path
        host, _, name = path.partition("/")
        if not name or "/" in name:
            return Refused(path, "is no document of a host: wanted HOST/RUN.json.gz")
        if not is_host_name(host):
            return Refused(path, f"is of no name of a host, {WANTED}")
        if not name.endswith(SUFFIXES):
            return Refused(path, f"has another name than a document, wanted {' or '.join(SUFFIXES)}")
        self._arrived[path] = entry.modified
        return Found(path, host, entry.size, int(entry.modified.timestamp() * 1e9))

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """As ``Source`` says; raises ``ValueError``."""
        if found.size > MOST_BYTES:
            raise ValueError(f"has {found.size} bytes, at most {MOST_BYTES} are read")
        with _explained(may_be_gone=True):
            data = self._store.read(found.path, MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES} bytes")
        return data, min(self._arrived.pop(found.path, datetime.now(UTC)), datetime.now(UTC))

    def remove(self, found: Found) -> None:
        with _explained():
            self._store.remove([found.path])

    def close(self) -> None:
        self._store.close()


@contextlib.contextmanager
def _explained(*, may_be_gone: bool = False) -> Iterator[None]:
    try:
        yield
    except ObjectStoreError as error:
        if may_be_gone and error.kind is Failure.NOT_FOUND:
            raise Gone from None
        raise SourceError(str(error), code=error.problem_code) from error
