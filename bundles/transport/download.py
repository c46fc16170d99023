"""Files of a site, from wherever it is.

* A mirror gives bytes, and none of them are trusted: it bounds their number and the time they take.
* Whatever goes wrong outside this machine leaves as a `TransportError` that shows no password.
* Credentials belong to the first location, and to others of the same origin. Another mirror gets only what
  its own URL says, because whoever runs it is not trusted with the passwords of the first.
"""

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from bundles.deadline import Deadline, DeadlineError
from bundles.errors import NotFoundError, OversizeError, SettingsError, TransportError
from bundles.filesystem.atomic import open_directory
from bundles.filesystem.trees import open_regular
from bundles.masking import Hidden
from bundles.transport.location import Location

if TYPE_CHECKING:
    import requests

    from bundles.transport.web import WebMirror

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

CHUNK = 64 * 1024
LONGEST_VALIDATOR = 1024  # characters
MOST_RETRIES_OF_SEVERAL = 1
"""What is tried again on each of several mirrors, whatever is configured."""


class TransportSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a site over HTTP; times are seconds."""

    connect_timeout: float = 10.0
    """For one address of the host; also for the TLS handshake."""
    read_timeout: float = 30.0
    """Without a single byte; and the time over which a transfer must keep a pace (`bundles.transport.reading`)."""
    total_timeout: float = 300.0
    """For one file, with its redirects and retries, where there is no deadline for several together."""
    retries: int = 3
    """After the first attempt, for what can pass: lost connections, time limits, status 408, 429 and 5xx."""
    proxy: Hidden | None = None
    """URL of a proxy, which may hold a password. Empty: none, whatever the environment says."""
    ca_bundle: str | None = None
    """PEM file or directory of certificate authorities; otherwise the system's."""
    client_cert: str | None = None
    client_key: str | None = None
    """When it is not in the same file as the certificate."""
    username: str | None = None
    password: Hidden | None = None
    token: Hidden | None = None
    """Sent as ``Authorization: Bearer``."""
    headers: Mapping[str, Hidden] = {}
    """Sent to the site only, as credentials are."""
    user_agent: str | None = None
    """Instead of ``puller/<version>``."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "read_timeout", "total_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, wanted more than 0 seconds")
        if not 0 <= self.retries <= 100:
            raise ValueError(f"retries is {self.retries}, wanted 0 to 100")
        if self.token is not None and self.username is not None:
            raise ValueError("only one of token and username may be given")
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key is given without client_cert")
        for name, value in self.headers.items():
            if not (name.isascii() and name.replace("-", "").isalnum() and _is_header_text(value.reveal())):
                raise ValueError(f"headers: {name!r} or its value is not printable ASCII")
        if self.token is not None and not _is_header_text(self.token.reveal()):
            raise ValueError("token is empty or holds something other than printable ASCII")

    def without_credentials(self) -> "TransportSettings":
        """The same, for a mirror whose operator is not the one that the credentials are for."""
        changes = {"username": None, "password": None, "token": None, "client_cert": None, "client_key": None}
        return msgspec.structs.replace(self, **changes, headers={})


def _is_header_text(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()


class Mirror(Protocol):
    """One place that a site is served from."""

    def download(self, path: str, limit: int, into: BinaryIO, *, resume: bool = False) -> None:
        """Write the file at ``path``, relative to the site, to ``into``, and nothing else.

        With ``resume``, what ``into`` holds is taken for the beginning of the file, and only the rest is asked
        for where that can be done. Whether it was the beginning of this file, the caller has to verify.

        Raises `NotFoundError`, `OversizeError` beyond ``limit`` bytes, and any other `TransportError`; a part
        of the file may have been written then. A problem with ``into`` itself is an ``OSError``.
        """
        ...

    def __str__(self) -> str:
        """Its location, safe to show."""
        ...


def open_mirrors(
    locations: Sequence[str], settings: TransportSettings | None = None, deadline: Deadline | None = None
) -> list[Mirror]:
    """A mirror for each location, in that order; connects to nothing yet. Raises `SettingsError`.

    ``deadline`` is for all that is downloaded from all of them; without one each file has a limit of its own.
    """
    return [_open(place, own, deadline) for place, own in locate(locations, settings or TransportSettings())]


def locate(locations: Sequence[str], settings: TransportSettings) -> list[tuple[Location, TransportSettings]]:
    """Each location with the settings that hold for it; raises `SettingsError`."""
    parsed = [Location.parse(location) for location in locations]
    if not parsed:
        raise SettingsError(
            "site", "no location is configured, wanted a URL such as https://www.example.org/puller"
        )
    if len(parsed) > 1:
        # The next mirror is the better retry: one that hangs is to cost a minute, not the whole run.
        settings = msgspec.structs.replace(settings, retries=min(settings.retries, MOST_RETRIES_OF_SEVERAL))
    own = settings.without_credentials()
    return [(place, settings if place.origin == parsed[0].origin else own) for place in parsed]


def _open(location: Location, settings: TransportSettings, deadline: Deadline | None) -> Mirror:
    if location.is_directory:
        return DirectoryMirror(location.base, deadline)
    from bundles.transport.web import (
        WebMirror,  # requests takes long to import, and a directory needs none of it
    )

    return WebMirror(location, settings, deadline=deadline)


def download_url(
    url: str,
    limit: int,
    into: BinaryIO,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> None:
    """Write what any http or https URL gives to the empty ``into``; raises as `Mirror.download`.

    Credentials in the URL are for its origin; those of a site do not belong in ``settings`` here.
    """
    mirror, place = _open_url(url, settings, deadline)
    mirror.fetch(place, limit, into)


class Validators(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server calls the version of a file that it gave; sent back, it asks whether there is another by now."""

    etag: str = ""
    last_modified: str = ""

    def headers(self) -> dict[str, str]:
        """The conditions of a request."""
        conditions = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in conditions.items() if value}


def download_if_changed(
    url: str,
    limit: int,
    into: BinaryIO,
    known: Validators,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> Validators | None:
    """Like `download_url`, unless what ``known`` stands for is still what the server has: then ``None``."""
    from bundles.transport.web import UnchangedError

    mirror, place = _open_url(url, settings, deadline)
    found = Validators()

    def note(response: "requests.Response", _start: bytes) -> None:
        nonlocal found
        found = Validators(*(_storable(response.headers.get(name, "")) for name in ("ETag", "Last-Modified")))

    try:
        mirror.fetch(place, limit, into, note, known.headers())
    except UnchangedError:
        return None
    return found


def _storable(value: str) -> str:
    """A header's value that can be sent back, else none."""
    return value if _is_header_text(value) and len(value) <= LONGEST_VALIDATOR else ""


def _open_url(
    url: str, settings: TransportSettings | None, deadline: Deadline | None
) -> "tuple[WebMirror, str]":
    """What fetches a URL, and the URL as it is asked for."""
    from bundles.transport.web import WebMirror

    base, mark, query = url.partition("#")[0].partition("?")
    location = Location.parse(base)
    if location.is_directory:
        raise SettingsError(url, "wanted an http or https URL")
    slash = "/" if base.endswith("/") else ""
    opened = WebMirror(location, settings or TransportSettings(), deadline=deadline)
    return opened, f"{location.base}{slash}{mark}{query}"


class DirectoryMirror:
    """A copy of a site below a local directory, verified exactly as one on the web.

    Links in it are not followed: a stick that comes from anywhere is not to say which files of this machine are read.
    """

    def __init__(self, directory: str, deadline: Deadline | None = None) -> None:
        self._directory = directory
        self._deadline = deadline

    def __str__(self) -> str:
        return self._directory

    def download(self, path: str, limit: int, into: BinaryIO, *, resume: bool = False) -> None:
        """As `Mirror.download`; always from the start, because a local file is there at once."""
        source = Path(self._directory, path)
        into.seek(0)
        into.truncate()
        with self._open(source, path.split("/")) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                raise OversizeError(str(source), f"has {size} bytes, at most {limit} are allowed")
            left = limit
            # A bound of its own: the file may grow while it is read.
            while left and (chunk := _read(stream, min(CHUNK, left), source)):
                self._check_deadline(source)
                into.write(chunk)
                left -= len(chunk)

    def _check_deadline(self, source: Path) -> None:
        if self._deadline is None:
            return
        try:
            self._deadline.verify()
        except DeadlineError:
            what = f"took longer than the {self._deadline.seconds:g} s of total_timeout"
            raise TransportError(str(source), what) from None

    def _open(self, source: Path, parts: list[str]) -> BinaryIO:
        if not {"", ".", ".."}.isdisjoint(parts):
            raise TransportError(str(source), "is not a path within a site")
        try:
            return _open_below(self._directory, parts)
        except FileNotFoundError:
            if not os.path.isdir(self._directory):
                # Not *missing*: a medium that is not mounted says nothing about what was published.
                raise TransportError(self._directory, "no such directory; is the medium mounted?") from None
            raise NotFoundError(str(source), "there is no such file") from None
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            what = "is a symbolic link, wanted a regular file" if is_link else error.strerror or str(error)
            raise TransportError(str(source), what) from None


def _open_below(directory: str, parts: list[str]) -> BinaryIO:
    """A regular file below ``directory``, which may itself be reached through links; raises ``OSError``."""
    *directories, name = parts
    with contextlib.ExitStack() as opened:
        descriptor = opened.enter_context(open_directory(directory))
        for each in directories:
            descriptor = os.open(each, _DIRECTORY, dir_fd=descriptor)
            opened.callback(os.close, descriptor)
        return open_regular(Path(name), directory=descriptor)


def _read(stream: BinaryIO, size: int, source: Path) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise TransportError(str(source), error.strerror or str(error)) from None
