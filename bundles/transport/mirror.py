"""Mirrors, which are copies of a site on a web server or in a local directory, and downloads of URLs outside of sites.

* A mirror returns untrusted bytes, and bounds their number and the transfer time.
* Failures outside this machine are `TransportError`, whose message never contains a password.
* A local directory, such as a mounted USB drive, is verified and bounded exactly like a web server.
* If the network is confined, an unprivileged worker runs `bundles.transport.web`. Otherwise this process does.
* Downloads of URLs raise the errors of `Mirror.download`, and `SettingsError` for an invalid URL.
"""

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from bundles import progress
from bundles.confined.current import current
from bundles.confined.network import Connection, Network
from bundles.deadline import Deadline, DeadlineError
from bundles.errors import NotFoundError, OversizeError, TransportError
from bundles.filesystem.atomic import open_directory
from bundles.filesystem.trees import open_regular
from bundles.transport.settings import (
    CHUNK,
    LONGEST_VALIDATOR,
    Location,
    Received,
    TransportSettings,
    Validators,
    deadline_of,
    handed_over,
    locate,
    require_files,
    too_late,
)

# Links are not followed, because a USB drive of unknown origin must not choose which files of this machine are read.

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectoryMirror:
    """A mirror in ``directory``, whose path may contain links. ``deadline`` applies to all downloads."""

    is_remote = False

    def __init__(self, directory: str, deadline: Deadline | None = None) -> None:
        self._directory = directory
        self._deadline = deadline

    def __str__(self) -> str:
        return self._directory

    def download(
        self, path: str, limit: int, into: BinaryIO, *, resume: bool = False, is_exact: bool = False
    ) -> bool:
        """Copy a file, as in `Mirror.download`, always from the start because a local file is fast.

        A file that is too short counts as complete, because it differs from the signed one. Raises `NotFoundError`,
        `OversizeError` and other `TransportError`.
        """
        source = Path(self._directory, path)
        into.seek(0)
        into.truncate()
        with self._open(source, path.split("/")) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                raise OversizeError(str(source), f"has {size} bytes, at most {limit} are allowed")
            remaining = limit
            progress.begin_file(source.name, 0, size)
            # Limited again: the file may grow while it is read.
            while remaining and (chunk := _read(stream, min(CHUNK, remaining), source)):
                self._check_deadline(source)
                into.write(chunk)
                remaining -= len(chunk)
                progress.note(source.name, limit - remaining)
        return True

    def _check_deadline(self, source: Path) -> None:
        if self._deadline is None:
            return
        try:
            self._deadline.verify()
        except DeadlineError:
            detail = f"took longer than the {self._deadline.seconds:g} s of total_timeout"
            raise TransportError(str(source), detail) from None

    def _open(self, source: Path, parts: list[str]) -> BinaryIO:
        if not {"", ".", ".."}.isdisjoint(parts):
            raise TransportError(str(source), "is not a path in a site")
        try:
            return _open_below(self._directory, parts)
        except FileNotFoundError:
            if not os.path.isdir(self._directory):
                # Not `NotFoundError`: an unmounted medium says nothing about the published files.
                raise TransportError(
                    self._directory, "the directory is missing", hint="check that the medium is mounted"
                ) from None
            raise NotFoundError(str(source), "the file is missing") from None
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            detail = (
                "is a symbolic link, expected a regular file" if is_link else error.strerror or str(error)
            )
            raise TransportError(str(source), detail) from None


def _open_below(directory: str, pieces: list[str]) -> BinaryIO:
    """Open a regular file below ``directory``, whose path may contain links. Raises ``OSError``."""
    *directories, name = pieces
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


class Mirror(Protocol):
    """One location that serves a site."""

    @property
    def is_remote(self) -> bool:
        """Return whether a server sends the files. A server may send an error page instead."""
        ...

    def download(
        self, path: str, limit: int, into: BinaryIO, *, resume: bool = False, is_exact: bool = False
    ) -> bool:
        """Write the file at ``path``, relative to the site, to ``into``.

        With ``resume``, the contents of ``into`` count as the start of the file, and only the rest is requested if
        possible. The caller must verify the complete file.

        With ``is_exact`` the file has ``limit`` bytes. Fewer bytes mean a truncated transfer and raise
        `TransportError`. The exception is a file that is not resumed and whose server stated that length: then it is
        another file.

        Returns whether the end of the file is certain, and not only the end of a connection. Raises `NotFoundError`,
        `OversizeError` beyond ``limit`` bytes, and other `TransportError`. A part of the file may be written then. A
        problem with ``into`` itself is an ``OSError``.
        """
        ...

    def __str__(self) -> str:
        """Return the location without credentials."""
        ...


def open_mirrors(
    locations: Sequence[str], settings: TransportSettings | None = None, deadline: Deadline | None = None
) -> list[Mirror]:
    """Return a mirror for each location, in order, without connecting. Raises `SettingsError`.

    ``deadline`` applies to all downloads from all mirrors together. By default, each file has its own limit.
    """
    return [_open(place, own, deadline) for place, own in locate(locations, settings or TransportSettings())]


def _open(location: Location, settings: TransportSettings, deadline: Deadline | None) -> Mirror:
    if location.is_directory:
        return DirectoryMirror(location.base, deadline)
    if (network := current()) is not None:
        return ConfinedMirror(network, location, settings, deadline)
    from bundles.transport.web import WebMirror  # requests takes 80 % of an idle run

    return WebMirror(location, settings, deadline=deadline)


_SESSIONS = "bundles.transport.sessions"
"""Module of the operations of a worker."""


class ConfinedMirror:
    """A `Mirror` whose requests an unprivileged worker makes."""

    is_remote = True

    def __init__(
        self,
        network: Network,
        location: Location,
        settings: TransportSettings,
        deadline: Deadline | None,
    ) -> None:
        """Raises `SettingsError` for an unreadable file of ``settings``. Does not connect."""
        require_files(settings)
        self._network = network
        self._location = location
        self._settings = settings
        self._common_deadline = deadline
        self._connection: Connection | None = None

    def __str__(self) -> str:
        return str(self._location)

    def download(
        self, path: str, limit: int, into: BinaryIO, *, resume: bool = False, is_exact: bool = False
    ) -> bool:
        """Download a file, as in ``Mirror``. Raises the same errors, and the errors of the deadline's ``check``."""
        url = f"{self._location.base}/{quote(path, safe='/+~%')}"
        deadline = deadline_of(url, self._settings, self._common_deadline)
        if self._connection is None or self._connection.is_over:
            arguments = handed_over(self._location, self._settings)
            self._connection = self._network.open(f"{_SESSIONS}:open_mirror", arguments, str(self))
        try:
            call = (path, limit, resume, is_exact, deadline.left)
            return [*self._connection.call(call, deadline, into, limit, resume=resume)] == [b"1"]
        except DeadlineError:
            raise too_late(url, deadline) from None


def fetch_file(
    network: Network,
    url: str,
    limit: int,
    into: BinaryIO,
    known: Validators,
    settings: TransportSettings,
    common: Deadline | None,
) -> Received | None:
    """Download a URL in a worker, like `download_if_changed`. Raises the same errors."""
    require_files(settings)
    deadline = deadline_of(url, settings, common)
    base = url.partition("#")[0].partition("?")[0]
    arguments = (url, *handed_over(Location(base), settings))
    connection = network.open(f"{_SESSIONS}:open_file", arguments, url)
    try:
        call = (limit, (known.etag, known.last_modified), deadline.left)
        fields = connection.call(call, deadline, into, limit)
    except DeadlineError:
        raise too_late(url, deadline) from None
    finally:
        connection.close()
    if len(fields) != 3:
        return None
    etag, date, is_whole = (field.decode("ascii", "replace")[: LONGEST_VALIDATOR + 1] for field in fields)
    return Received(Validators.of({"ETag": etag, "Last-Modified": date}), is_whole == "1")


def download_url(
    url: str,
    limit: int,
    into: BinaryIO,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> bool:
    """Download an http or https URL to the empty ``into``. Raises like `Mirror.download`.

    Returns whether the server has stated where the file ends. Credentials in the URL are sent to its origin only.
    ``settings`` must not contain the credentials of a site.
    """
    received = download_if_changed(url, limit, into, Validators(), settings, deadline)
    return received is not None and received.is_whole


def download_if_changed(
    url: str,
    limit: int,
    into: BinaryIO,
    known: Validators,
    settings: TransportSettings | None = None,
    deadline: Deadline | None = None,
) -> Received | None:
    """Download like `download_url`, or return ``None`` if the server still has the version ``known``."""
    settings = settings or TransportSettings()
    if (network := current()) is not None:
        return fetch_file(network, url, limit, into, known, settings, deadline)
    from bundles.transport.web_transfers import WebFile  # requests takes 80 % of an idle run

    return WebFile(url, settings).download(limit, into, known, deadline)
