"""Destinations over HTTP: a web server by WebDAV (RFC 4918), and an object store (the extra ``s3``).

WebDAV, by PUT, MOVE, DELETE, GET and HEAD:

* The built-in module of nginx is enough: ``dav_methods PUT DELETE MOVE; create_full_put_path on;``. It cannot list
  files, so each file is requested by name.
* A file is sent under a hidden name and then moved, so that readers never see a partial file.
* User and password come from the URL or from ``~/.netrc``. Authorities, client certificates and proxies come from the
  environment, as for other programs that use ``requests``.

An object store, with the client in ``foundation/object_store.py``:

* ``timestamp.json`` is stored with ``Cache-Control: no-cache``.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, Final, TypeVar
from urllib.parse import quote

import requests
import urllib3.exceptions as urllib3

from bundles.errors import PublishError, SettingsError
from bundles.publisher.push.destination import PassingError, Sending, retried
from bundles.publisher.push.plan import TIMESTAMP, Source, kind_of_file
from bundles.publisher.site import explained
from bundles.transport.settings import Location, TransportSettings
from bundles.transport.web import session as new_session
from bundles.transport.web_failures import explain
from foundation.object_store import SCHEME, Failure, ObjectStore, ObjectStoreError
from foundation.object_store import Location as StoreLocation
from foundation.problems import ProblemCode

_T = TypeVar("_T")
_CONNECTIONS: Final = 8
_TIMEOUTS: Final = (30.0, 300.0)
"""Timeouts in seconds, to connect and for a response."""
_LIMITS: Final = TransportSettings(connect_timeout=_TIMEOUTS[0], read_timeout=_TIMEOUTS[1])
_PASSING: Final = frozenset({408, 423, 425, 429, 500, 502, 503, 504})
_GONE: Final = frozenset({404, 410})


class WebDav:
    """The collection at ``location``. Methods raise `PublishError`."""

    def __init__(self, location: str) -> None:
        try:
            self._location = Location.parse(location)
        except SettingsError as error:
            raise error.under(error.where, PublishError, code=ProblemCode.INVALID_COMMAND) from None
        self._own = threading.local()
        self._sessions: list[requests.Session] = []

    def __str__(self) -> str:
        return str(self._location)

    def files(self) -> None:
        """Return ``None``, because most servers cannot list files."""

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        result: dict[str, int] = {}

        def one(path: str) -> None:
            answer = retried(lambda: self._ask("HEAD", path, headers={"Accept-Encoding": "identity"}))
            if answer.status_code not in _GONE:
                length = answer.headers.get("Content-Length", "")
                result[path] = int(length) if (length.isascii() and length.isdecimal()) else -1

        self._each(one, list(paths))
        return result

    def read(self, path: str, limit: int) -> bytes | None:
        return retried(lambda: self._read(path, limit))

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        """Send several files at once. Use separate calls for files that need an order."""

        def one(source: Source) -> None:
            retried(lambda: self._put(source, watch))
            watch.sent(source.path, source.size)

        self._each(one, sources)

    def remove(self, paths: Iterable[str]) -> None:
        self._each(lambda path: retried(lambda: self._ask("DELETE", path)), list(paths))

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        self._sessions.clear()

    def _each(self, action: Callable[[_T], Any], items: Sequence[_T]) -> None:
        if len(items) < 2:
            for item in items:
                action(item)
            return
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            waiting = [pool.submit(action, item) for item in items]
            try:
                for each in waiting:
                    each.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _put(self, source: Source, watch: Sending) -> None:
        directory, _, name = source.path.rpartition("/")
        hidden = f"{directory}/.puller-push-{secrets.token_hex(6)}"
        try:
            if source.data is not None:
                self._ask("PUT", hidden, data=source.data)
            else:
                with explained(source.file), _Watched(source, watch) as stream:
                    # requests would send an empty stream in chunks
                    self._ask("PUT", hidden, data=stream if source.size else b"")
            destination = self._url(f"{directory}/{name}")
            self._ask("MOVE", hidden, headers={"Destination": destination, "Overwrite": "T"})
        except PublishError:
            self._forget(hidden)
            raise

    def _forget(self, hidden: str) -> None:
        try:
            self._ask("DELETE", hidden)
        except PublishError:
            return  # a hidden leftover is harmless, and the first failure matters

    def _read(self, path: str, limit: int) -> bytes | None:
        answer = self._ask("GET", path, headers={"Accept-Encoding": "identity"}, stream=True)
        with answer:
            if answer.status_code in _GONE:
                return None
            try:
                data: bytes = answer.raw.read(limit + 1)
            except (urllib3.HTTPError, HTTPException, OSError) as error:
                raise self._failure(error, path) from None
        if len(data) > limit:
            raise PublishError(f"{self}/{path}", f"has more than {limit} bytes")
        return data

    def _ask(self, method: str, path: str, **options: Any) -> requests.Response:
        """Return the response of the server. Raises `PublishError` for an error status other than *not found*."""
        try:
            answer = self._session().request(
                method, self._url(path), timeout=_TIMEOUTS, allow_redirects=False, **options
            )
        except requests.RequestException as error:
            raise self._failure(error, path) from None
        if answer.ok and not answer.is_redirect:
            return answer
        answer.close()
        if answer.status_code in _GONE and method not in ("PUT", "MOVE"):
            return answer
        failure = PassingError if answer.status_code in _PASSING else PublishError
        raise failure(
            f"{self}/{path}", f"the server refused {method} with status {answer.status_code}{_hint(answer)}"
        )

    def _failure(self, error: Exception, path: str) -> PublishError:
        passing, sentence = explain(error, _LIMITS)
        return (PassingError if passing else PublishError)(f"{self}/{path}", sentence)

    def _url(self, path: str) -> str:
        return f"{self._location.base}/{quote(path, safe='/+~%')}"

    def _session(self) -> requests.Session:
        """Return the session of this thread, because sessions are not thread-safe."""
        session: requests.Session | None = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = new_session()
            if self._location.username is not None:
                session.auth = (self._location.username, self._location.password or "")
            self._sessions.append(session)
        return session


class _Watched(io.BufferedReader):
    """A file that reports how much of it was read."""

    def __init__(self, source: Source, watch: Sending) -> None:
        super().__init__(io.FileIO(source.file))
        self._path = source.path
        self._watch = watch

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._watch.moved(self._path, self.tell())
        return data


def _hint(answer: requests.Response) -> str:
    if answer.is_redirect:
        return ": it redirects, so use the new location"
    return {
        401: ": specify a user and password in the URL or in ~/.netrc",
        403: ": the user cannot write there",
        405: ": the server does not support WebDAV there",
        409: ": the server does not create directories (nginx: create_full_put_path on)",
        413: ": the file is too large for the server (nginx: client_max_body_size 0)",
        507: ": the disk of the server is full",
    }.get(answer.status_code, "")


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
        except _MissingObjectError:
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


class _MissingObjectError(PublishError):
    """The object does not exist."""


_ERRORS: Final = {Failure.NOT_FOUND: _MissingObjectError, Failure.TEMPORARY: PassingError}


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
