"""An object store as a destination of sites (the extra ``s3``, with the client in ``foundation/object_store.py``).

``timestamp.json`` is stored with ``Cache-Control: no-cache``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bundles.errors import PublishError
from bundles.publisher.push.destination import PassingError, Sending, retried
from bundles.publisher.push.plan import TIMESTAMP, Source, kind_of_file
from foundation.object_store import SCHEME, Failure, ObjectStore, ObjectStoreError
from foundation.object_store import Location as StoreLocation
from foundation.problems import ProblemCode

_STORE_CONNECTIONS: Final = 8
_CONTENT_TYPE: Final = "application/octet-stream"


class ObjectStoreDestination:
    """The files of a site as objects. Methods raise `PublishError`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @classmethod
    def open(cls, location: str) -> ObjectStoreDestination:
        """Open ``s3://BUCKET/PREFIX``. Raises `PublishError`."""
        try:
            place = StoreLocation.parse(location)
        except ValueError as error:
            raise PublishError(SCHEME, str(error), code=ProblemCode.INVALID_COMMAND) from None
        retries = {"mode": "standard", "max_attempts": 5}
        with _explained():
            return cls(ObjectStore(place, retries=retries, max_pool_connections=_STORE_CONNECTIONS + 2))

    def __str__(self) -> str:
        return str(self._store)

    def files(self) -> dict[str, int]:
        return retried(self._files)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return {path: size for path, size in self.files().items() if path in paths}

    def read(self, path: str, limit: int) -> bytes | None:
        try:
            data = retried(lambda: self._read(path, limit + 1))
        except _NotThereError:
            return None
        if len(data) > limit:
            raise PublishError(f"{self}/{path}", f"has more than {limit} bytes")
        return data

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        """Send several files at once. Use separate calls for files that need an order."""

        def one(source: Source) -> None:
            retried(lambda: self._put(source, watch))
            watch.sent(source.path, source.size)

        _each(one, sources)

    def remove(self, paths: Iterable[str]) -> None:
        with _explained():
            self._store.remove(paths)

    def close(self) -> None:
        self._store.close()

    def _files(self) -> dict[str, int]:
        with _explained():
            objects = self._store.objects()
            return {found.path: found.size for found in objects if kind_of_file(found.path) is not None}

    def _read(self, path: str, limit: int) -> bytes:
        with _explained():
            return self._store.read(path, limit)

    def _put(self, source: Source, watch: Sending) -> None:
        passed: list[int] = []  # sizes of pieces, negative before a piece is sent again

        def moved(count: int) -> None:
            passed.append(count)
            watch.moved(source.path, sum(passed))

        additional = {"CacheControl": "no-cache"} if source.path == TIMESTAMP else {}
        with _explained():
            if source.data is not None:
                self._store.write(source.path, source.data, content_type=_CONTENT_TYPE, **additional)
            else:
                self._store.upload(
                    source.path, source.file, content_type=_CONTENT_TYPE, moved=moved, **additional
                )


class _NotThereError(PublishError):
    """The object does not exist."""


_ERRORS: Final = {Failure.NOT_FOUND: _NotThereError, Failure.TEMPORARY: PassingError}


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except ObjectStoreError as error:
        kind = _ERRORS.get(error.kind, PublishError)
        raise kind(error.where, error.message, code=error.problem_code) from None
    except OSError as error:
        description = error.strerror or str(error)
        raise PublishError(
            str(error.filename or SCHEME), description, code=ProblemCode.NETWORK_FAILURE
        ) from None


def _each(action: Callable[[Source], None], sources: Sequence[Source]) -> None:
    with ThreadPoolExecutor(_STORE_CONNECTIONS) as pool:
        waiting = [pool.submit(action, source) for source in sources]
        try:
            for each in waiting:
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
