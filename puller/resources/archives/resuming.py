"""Resumable downloads of archives with ``requests``."""

from collections.abc import Mapping
from typing import Any, BinaryIO

import requests

from bundles.deadline import Deadline
from bundles.errors import END_UNKNOWN, TransportError
from bundles.format.fields import shown
from bundles.transport.sessions import HttpSession
from bundles.transport.settings import Location, TransportSettings, taken_over
from bundles.transport.web import WebMirror
from puller.resources.archives.compression import STARTS
from puller.resources.archives.members import Kind

_ENCODINGS = {
    Kind.TAR_BZ2: ("bzip2", "x-bzip2"),
    Kind.TAR_GZ: ("gzip", "x-gzip"),
    Kind.TAR_XZ: ("xz", "x-xz"),
    Kind.TAR_ZST: ("zstd",),
}
"""The names that web servers give to the compression of a kind of archive."""


class ResumingMirror(WebMirror):
    """A web server that resumes partial downloads of one file."""

    def __init__(
        self,
        url: str,
        kind: Kind,
        place: tuple[Location, TransportSettings],
        *,
        is_known: bool,
    ) -> None:
        """Create the mirror. ``is_known``: a checksum verifies afterwards that all parts belong to one file."""
        super().__init__(*place)
        self._url = url.partition("#")[0]
        self._kind = kind
        self._is_known = is_known
        self._validator = ""
        """The server's version identifier (ETag or date) of the partial file."""

    def complete(self, limit: int, partial: BinaryIO, deadline: Deadline) -> bool:
        """Append the missing rest to ``partial``, or write it anew. Raises the exceptions of `WebMirror.fetch`.

        Returns whether the server has stated the length of the file, which is required without a checksum.
        """
        self.deadline = deadline
        is_whole = self.fetch(self._url, limit, partial, self._check_start, resume=True)
        if not is_whole and not self._is_known:
            raise TransportError(self._url, END_UNKNOWN)
        return is_whole

    def _check_start(self, response: requests.Response, start: bytes) -> None:
        """Raise for content that is obviously not an archive, such as a login page."""
        desired = STARTS.get(self._kind)
        if start.lstrip()[:1] == b"<" or (desired and not start.startswith(desired)):
            kind = "a web page" if start.lstrip()[:1] == b"<" else f"no {self._kind}"
            raise TransportError(response.url, f"is {kind}: it starts with {shown(start[:12])}")

    def _open_rest(self, url: str, held: int, conditions: Mapping[str, str]) -> tuple[requests.Response, int]:
        response, start = super()._open_rest(url, held, conditions)
        # A weak ETag identifies equivalent versions, not equal bytes, so it is not valid for a range request (RFC 9110
        # section 13.1.5).
        etag, date = (response.headers.get(name, "") for name in ("ETag", "Last-Modified"))
        self._validator = date if not etag or etag.startswith("W/") else etag
        return response, start

    def _rest(self, held: int) -> Mapping[str, str]:
        # Without a version, only a checksum can verify that both parts belong to one file.
        if not self._validator and not self._is_known:
            return {}
        condition = {"If-Range": self._validator} if self._validator else {}
        return {**super()._rest(held), **condition}

    def _check_encoding(self, response: requests.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        # Many web servers label .tar.gz files as gzip encoded, but send the unchanged bytes.
        own = {"identity", *_ENCODINGS.get(self._kind, ())}
        if encoding not in own:
            raise TransportError(
                response.url, f"Content-Encoding is {encoding[:40]!r}", expected="'identity'"
            )


class ArchiveSession(HttpSession):
    """The download of one archive in a worker. A call takes the limit, and returns the result of ``complete``."""

    def __init__(
        self, url: str, kind: Kind, location: Location, settings: TransportSettings, *, is_known: bool
    ) -> None:
        super().__init__(settings)
        self._mirror = ResumingMirror(url, kind, (location, self.settings), is_known=is_known)

    def do(self, asked: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """Download the archive (see `HttpSession`)."""
        (limit,) = asked
        return (b"%d" % self._mirror.complete(limit, into, deadline),)


def open_archive(arguments: Any) -> ArchiveSession:
    """Return the session of a worker from URL, kind, whether a checksum is known, and location."""
    url, kind, is_known, *place = arguments
    return ArchiveSession(url, Kind(kind), *taken_over(tuple(place)), is_known=is_known)
