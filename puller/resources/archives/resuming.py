"""An archive fetched by ``requests``: what is here already is not asked for again."""

from collections.abc import Mapping
from typing import Any, BinaryIO

import requests

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.format.member_paths import shown
from bundles.transport.location import Location
from bundles.transport.sessions import HttpSession
from bundles.transport.settings import END_UNKNOWN, TransportSettings
from bundles.transport.web import WebMirror
from bundles.transport.worker_arguments import taken_over
from puller.resources.archives.members import Kind

_STARTS = {Kind.TAR_GZ: (b"\x1f\x8b",), Kind.ZIP: (b"PK\3\4", b"PK\5\6")}


class ResumingMirror(WebMirror):
    """A web server that is asked for the rest of a file, when a part of it is there already."""

    def __init__(
        self,
        url: str,
        kind: Kind,
        place: tuple[Location, TransportSettings],
        *,
        is_known: bool,
    ) -> None:
        """``is_known``: a checksum tells afterwards whether all parts are of one file."""
        super().__init__(*place)
        self._url = url.partition("#")[0]
        self._kind = kind
        self._is_known = is_known
        self._validator = ""
        """What the server calls the version of the file that the bytes so far belong to."""

    def complete(self, limit: int, partial: BinaryIO, deadline: Deadline) -> bool:
        """Add to ``partial`` what it does not hold yet, or write it anew; raises as `WebMirror.fetch`.

        Returns whether the server has stated where the file ends. Without a checksum, it must.
        """
        self.deadline = deadline
        is_whole = self.fetch(self._url, limit, partial, self._check_start, resume=True)
        if not is_whole and not self._is_known:
            raise TransportError(self._url, END_UNKNOWN)
        return is_whole

    def _check_start(self, response: requests.Response, start: bytes) -> None:
        """Refuse what is plainly no archive, such as the page of a login."""
        wanted = _STARTS.get(self._kind)
        if start.lstrip()[:1] == b"<" or (wanted and not start.startswith(wanted)):
            kind = "a web page" if start.lstrip()[:1] == b"<" else f"no {self._kind}"
            raise TransportError(response.url, f"is {kind}: it starts with {shown(start[:12])}")

    def _open_rest(self, url: str, held: int, conditions: Mapping[str, str]) -> tuple[requests.Response, int]:
        response, start = super()._open_rest(url, held, conditions)
        # A weak one says that two versions mean the same, not that their bytes are: no range is asked for by it (RFC
        # 9110 section 13.1.5).
        etag, date = (response.headers.get(name, "") for name in ("ETag", "Last-Modified"))
        self._validator = date if not etag or etag.startswith("W/") else etag
        return response, start

    def _rest(self, held: int) -> Mapping[str, str]:
        # Without a name for its version, only a checksum can tell whether both parts are of one file.
        if not self._validator and not self._is_known:
            return {}
        condition = {"If-Range": self._validator} if self._validator else {}
        return {**super()._rest(held), **condition}

    def _check_encoding(self, response: requests.Response) -> None:
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        # Web servers are often set up to call a .tar.gz file gzip encoded; its bytes are right all the same.
        if encoding != "identity" and not (self._kind is Kind.TAR_GZ and encoding.endswith("gzip")):
            raise TransportError(
                response.url, f"Content-Encoding is {encoding[:40]!r}", expected="'identity'"
            )


class ArchiveSession(HttpSession):
    """One archive, fetched by a worker; a call has the limit, and gives what ``complete`` returns."""

    def __init__(
        self, url: str, kind: Kind, location: Location, settings: TransportSettings, *, is_known: bool
    ) -> None:
        super().__init__(settings)
        self._mirror = ResumingMirror(url, kind, (location, self.settings), is_known=is_known)

    def do(self, asked: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """See `HttpSession`."""
        (limit,) = asked
        return (b"%d" % self._mirror.complete(limit, into, deadline),)


def open_archive(arguments: Any) -> ArchiveSession:
    """The operation for a worker: URL, kind, whether a checksum is known, and its place."""
    url, kind, is_known, *place = arguments
    return ArchiveSession(url, Kind(kind), *taken_over(tuple(place)), is_known=is_known)
