"""HTTP operations without privileges, for ``bundles.confined.worker``.

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
from bundles.transport.settings import Location, TransportSettings, Validators, taken_over
from bundles.transport.uploads import open_uploads_here
from bundles.transport.web import WebMirror, authorities, certificate
from bundles.transport.web_transfers import WebFile

# Copies in memory of files that only the agent may read, made before the process drops its privileges.


class CachedFiles:
    """The files of settings, kept in memory."""

    def __init__(self, settings: TransportSettings) -> None:
        """Read the files. Raises `SettingsError` for an unreadable file, and ``OSError``."""
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
        """The settings with the paths of the copies."""
        self.readable = tuple(path for path in paths.values() if path)
        """The original paths. Directories are not copied."""

    def named(self, text: str) -> str:
        """Replace the paths of the copies by the original paths in a sentence."""
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
        """Raises like `CachedFiles`."""
        self._held = CachedFiles(settings)
        self.readable = self._held.readable
        """Readable paths, as in ``bundles.confined.worker.Session``."""
        self.settings = self._held.settings

    def __call__(self, arguments: Any, into: AgentsFile) -> tuple[bytes, ...]:
        """Process a call, as in ``bundles.confined.worker.Session``. The last argument is the time limit in seconds."""
        *requested, seconds = arguments
        try:
            return self.do(requested, into, Deadline(seconds))
        except BundleError as error:
            (problem,) = error.problems
            what, names = self._held.named(problem.message), {"expected": error.expected, "hint": error.hint}
            raise type(error)(error.where, what, code=error.code, **names) from None

    def do(self, arguments: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """Process the call. Raises `BundleError`, and the errors of ``into``."""
        raise NotImplementedError


class MirrorSession(HttpSession):
    """Files of a site. Calls have the arguments and the result of ``Mirror.download``."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        super().__init__(settings)
        self._mirror = WebMirror(location, self.settings)

    def do(self, arguments: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """Download a file, as in `HttpSession`."""
        path, limit, resume, is_exact = arguments
        self._mirror.deadline = deadline
        return (b"%d" % self._mirror.download(path, limit, into, resume=resume, is_exact=is_exact),)


class FileSession(HttpSession):
    """One URL. Calls have the limit and the validators of the existing file.

    The answer contains the new validators, and whether the server has stated where the file ends. An answer without
    fields means that the file has not changed.
    """

    def __init__(self, url: str, settings: TransportSettings) -> None:
        super().__init__(settings)
        self._file = WebFile(url, self.settings)

    def do(self, arguments: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """Download the file, as in `HttpSession`."""
        limit, known = arguments
        received = self._file.download(limit, into, Validators(*known), deadline)
        if received is None:
            return ()
        validators = received.validators
        return validators.etag.encode(), validators.last_modified.encode(), b"%d" % received.is_whole


class UploadSession(HttpSession):
    """Documents for one origin. Calls have method, URL, document and media type. The answer is the status."""

    def __init__(self, location: Location, settings: TransportSettings) -> None:
        super().__init__(settings)
        self._uploads = open_uploads_here(location, self.settings)

    def do(self, arguments: list[Any], into: Any, deadline: Deadline) -> tuple[bytes, ...]:
        """Send a document, as in `HttpSession`."""
        method, url, data, kind = arguments
        return (b"%d" % self._uploads.send(method, url, data, kind, deadline),)


def open_mirror(arguments: Any) -> MirrorSession:
    """Return the operation for files of a site."""
    return MirrorSession(*taken_over(arguments))


def open_file(arguments: Any) -> FileSession:
    """Return the operation for a URL, which is the first argument."""
    url, *remainder = arguments
    return FileSession(url, taken_over(tuple(remainder))[1])


def open_uploads(arguments: Any) -> UploadSession:
    """Return the operation for documents."""
    return UploadSession(*taken_over(arguments))
