"""HTTP operations without privileges, for ``bundles.confined.server``.

This module imports everything that the operations need, because their user may be unable to read the agent's code.
"""

import encodings.idna  # noqa: F401
import os
from typing import Any

import msgspec
import tenacity  # noqa: F401

from bundles.confined.worker import AgentsFile
from bundles.deadline import Deadline
from bundles.errors import BundleError
from bundles.transport.location import Location
from bundles.transport.settings import TransportSettings, Validators
from bundles.transport.uploads import open_uploads_here
from bundles.transport.web import WebMirror, authorities, certificate
from bundles.transport.web_transfers import WebFile
from bundles.transport.worker_arguments import taken_over

# Copies in memory of files that only the agent may read, made before the process drops its privileges.


class HeldFiles:
    """The files of settings, held."""

    def __init__(self, settings: TransportSettings) -> None:
        """Raises `SettingsError` for a file that cannot be read, and ``OSError``."""
        self._names: dict[str, str] = {}
        trusted, _ = authorities(settings), certificate(settings)
        paths = {
            "ca_bundle": trusted if isinstance(trusted, str) else None,
            "client_cert": settings.client_cert,
            "client_key": settings.client_key,
        }
        self.settings = msgspec.structs.replace(
            settings, **{name: path and self._hold(path) for name, path in paths.items()}
        )
        """With the copies in their places."""
        self.readable = tuple(path for path in paths.values() if path)
        """What they name; of these a directory stays where it is."""

    def named(self, text: str) -> str:
        """A sentence with the names of the files instead of those of the copies."""
        for copy, path in self._names.items():
            text = text.replace(copy, path)
        return text

    def _hold(self, path: str) -> str:
        if os.path.isdir(path):
            return path
        with open(path, "rb") as stream:
            data = stream.read()
        descriptor = os.memfd_create("held")
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(data)
        copy = f"/proc/self/fd/{descriptor}"
        self._names[copy] = path
        return copy


class HttpSession:
    """A session whose settings may name files."""

    def __init__(self, settings: TransportSettings) -> None:
        """Raises as `HeldFiles`."""
        self._held = HeldFiles(settings)
        self.readable = self._held.readable
        """See ``bundles.confined.worker.Session``."""
        self.settings = self._held.settings

    def __call__(self, arguments: Any, into: AgentsFile) -> tuple[bytes, ...]:
        """See ``bundles.confined.worker.Session``; the last of ``arguments`` are the seconds that all may take."""
        *asked, seconds = arguments
        try:
            return self.do(asked, into, Deadline(seconds))
        except BundleError as error:
            (problem,) = error.problems
            what, names = self._held.named(problem.message), {"expected": error.expected, "hint": error.hint}
            raise type(error)(error.where, what, code=error.code, **names) from None

    def do(self, asked: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """The call itself; raises `BundleError`, and what ``into`` raises."""
        raise NotImplementedError


class MirrorSession(HttpSession):
    """Files of a site; a call has the arguments of ``Mirror.download``, and gives what that returns."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        super().__init__(settings)
        self._mirror = WebMirror(location, self.settings)

    def do(self, asked: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """See `HttpSession`."""
        path, limit, resume, is_exact = asked
        self._mirror.deadline = deadline
        return (b"%d" % self._mirror.download(path, limit, into, resume=resume, is_exact=is_exact),)


class FileSession(HttpSession):
    """One URL; a call has the limit, and the validators of what is there already, and gives the new ones,
    and whether the server has stated where the file ends.

    Without a field in the answer the file has not changed.
    """

    def __init__(self, url: str, settings: TransportSettings) -> None:
        super().__init__(settings)
        self._file = WebFile(url, self.settings)

    def do(self, asked: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """See `HttpSession`."""
        limit, known = asked
        received = self._file.download(limit, into, Validators(*known), deadline)
        if received is None:
            return ()
        validators = received.validators
        return validators.etag.encode(), validators.last_modified.encode(), b"%d" % received.is_whole


class UploadSession(HttpSession):
    """Documents for one origin; a call has method, URL, document and media type, and gives the status."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        super().__init__(settings)
        self._uploads = open_uploads_here(location, self.settings)

    def do(self, asked: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """See `HttpSession`."""
        method, url, data, kind = asked
        return (b"%d" % self._uploads.send(method, url, data, kind, deadline),)


def open_mirror(arguments: Any) -> MirrorSession:
    """The operation for files of a site."""
    return MirrorSession(*taken_over(arguments))


def open_file(arguments: Any) -> FileSession:
    """The operation for a URL, which comes before the rest of the arguments."""
    url, *rest = arguments
    return FileSession(url, taken_over(tuple(rest))[1])


def open_uploads(arguments: Any) -> UploadSession:
    """The operation for documents."""
    return UploadSession(*taken_over(arguments))
