"""Downloads of archives into a temporary file beside the destination.

* The file is verified and gets its owner and mode before it is renamed to its destination.
* An interrupted download resumes if the server confirms that the file is unchanged. A download with a known checksum
  also resumes in the next run.
* A signal that stops the run ends a download at once.
* Messages never contain a password, a header or the query of a URL.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import BinaryIO

import msgspec

from bundles import progress
from bundles.confined.current import current
from bundles.deadline import Deadline, DeadlineError
from bundles.errors import BundleError, TransportError
from bundles.filesystem.trees import Counted, pieces_of
from bundles.transport.settings import Location, TransportSettings, handed_over, too_late
from foundation.masking import Hidden
from foundation.problems import ProblemCode
from foundation.quantities import size_text
from puller.errors import ResourceError, StoppedDownload
from puller.resources.archives.members import Kind, Opened, needing_space
from puller.system import processes
from puller.system.local_paths import open_safely

# The request for an archive. This process or an unprivileged worker sends it.


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A download: ``timeout`` is the limit of the whole in seconds, ``limit`` is in bytes."""

    url: str
    kind: Kind
    checksum: str | None
    """SHA-256, in hexadecimal."""
    timeout: float
    limit: int
    username: str | None = None
    password: Hidden | None = None
    headers: Mapping[str, Hidden] = {}

    @property
    def place(self) -> tuple[Location, TransportSettings]:
        """The location without the URL's query, and the settings of its origin. Raises `SettingsError`."""
        location = Location.parse(self.url.partition("#")[0].partition("?")[0])
        own = any(name.lower() == "authorization" for name in self.headers)
        settings = TransportSettings(
            total_timeout=self.timeout,
            username=None if own else self.username,
            password=None if own else self.password,
            headers=self.headers,
        )
        return Location(location.base) if own else location, settings


def fetch_archive(request: Request, partial: BinaryIO) -> bool:
    """Append the missing rest of the archive to ``partial``, or write it anew.

    Returns whether the server has stated the length of the archive. Raises `TransportError`, ``StoppedDownload``, and
    the ``OSError`` of ``partial``.
    """
    deadline = Deadline(request.timeout, processes.check_download)
    if (network := current()) is None:
        from puller.resources.archives.resuming import ResumingMirror  # requests takes 80 % of an idle run

        mirror = ResumingMirror(
            request.url, request.kind, request.place, is_known=request.checksum is not None
        )
        return mirror.complete(request.limit, partial, deadline)

    place, settings = request.place
    arguments = (request.url, request.kind.value, request.checksum is not None, *handed_over(place, settings))
    connection = network.open("puller.resources.archives.resuming:open_archive", arguments, request.url)
    try:
        call = (request.limit, deadline.left)
        return [*connection.call(call, deadline, partial, request.limit, resume=True)] == [b"1"]
    except DeadlineError:
        raise too_late(request.url, deadline) from None
    finally:
        connection.close()


MODE = 0o600
"""The mode of the archive file."""

_PARTIAL = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def download(
    request: Request,
    path: str,
    *,
    uid: int,
    gid: int,
    before_placing: Callable[[str], None] = lambda sha256: None,
) -> Opened:
    """Download ``request`` to ``path``, readable only by its owner. Returns it open, and the caller closes it.

    1. Open the directory without following links of other users. In it, open the temporary file, or an own one of an
       interrupted run.
    2. Download the missing bytes.
    3. Verify the checksum. Without a checksum, verify only the first bytes of the format.
    4. Set owner and mode, and write the file to disk.
    5. Call ``before_placing`` with the checksum.
    6. Rename the file to its destination.

    Raises ``ResourceError``, ``StoppedDownload`` after a signal, and ``OSError``. An invalid download changes nothing
    at ``path``.
    """
    directory, name = os.path.split(path)
    with (
        progress.transfer(name) as moving,
        # 1. Open
        open_safely(directory) as parent,
        # Outside of the file, because flushing its buffer may fail on close.
        needing_space(directory, parent, name, lambda: moving.size),
        _partial_download(parent, name, request.checksum) as (partial, partial_name, is_new),
    ):
        # 2. and 3. Fetch and verify
        try:
            digest = _fetch(request, partial)
        except BundleError as error:
            detail = f"{error}{_progress(request, partial)}"
            raise ResourceError(detail, code=error.code) from None
        except StoppedDownload as stop:
            raise StoppedDownload(f"{stop}{_progress(request, partial)}") from None
        # 4. Owner before mode, because chown clears bits of the mode
        os.fchown(partial.fileno(), uid, gid)
        os.fchmod(partial.fileno(), MODE)
        os.fsync(partial.fileno())
        # 5. Update the receipt before the archive is in place
        before_placing(digest)
        # 6. Place
        os.rename(partial_name, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
        stream = open(os.dup(partial.fileno()), "rb")  # noqa: SIM115  the caller's to close
        return Opened(path, stream, digest, is_ours=is_new and uid in (0, os.geteuid()))


def _progress(request: Request, partial: BinaryIO) -> str:
    """Return how far a download came, if the next run resumes it."""
    held = partial.seek(0, os.SEEK_END)
    return (
        f"; {size_text(held)} are stored, and the next run resumes from there"
        if request.checksum and held
        else ""
    )


def _fetch(request: Request, partial: BinaryIO) -> str:
    desired = request.checksum
    resumes = os.fstat(partial.fileno()).st_size > 0
    # A run that was killed between the last byte and the rename has left a complete file, so no request is needed.
    if resumes and (digest := _sha256(partial)) == desired:
        return digest
    digest, is_whole = _fetch_once(request, partial)
    if resumes and digest != desired:
        # The partial file belonged to another version.
        partial.truncate(0)
        digest, is_whole = _fetch_once(request, partial)
    if desired is not None and digest != desired and not is_whole:
        detail = "may have ended early, as the server states no length"
        raise TransportError(request.url, f"{detail}: sha256 is {digest}, expected {desired}")
    if desired is not None and digest != desired:
        partial.truncate(0)  # otherwise the next run would resume a wrong file
        detail = f"has sha256 {digest}, expected {desired}"
        raise TransportError(request.url, detail, code=ProblemCode.CHECKSUM_MISMATCH)
    return digest


def _fetch_once(request: Request, partial: BinaryIO) -> tuple[str, bool]:
    is_whole = fetch_archive(request, partial)
    return _sha256(partial), is_whole


def _sha256(partial: BinaryIO) -> str:
    partial.seek(0)
    return Counted(pieces_of(partial)).exhaust().sha256


@contextmanager
def _partial_download(parent: int, name: str, checksum: str | None) -> Iterator[tuple[BinaryIO, str, bool]]:
    """Yield the temporary file, its name, and whether it is new.

    With a checksum, it is kept for the next run if this one fails.
    """
    stem = f".{name[:180]}."
    partial_name = f"{stem}{checksum[:16]}.part" if checksum else f"{stem}{os.urandom(8).hex()}.part"
    for other in os.listdir(parent):
        if other.startswith(stem) and other.endswith(".part") and other != partial_name:
            with suppress(OSError):
                os.unlink(other, dir_fd=parent)
    descriptor, is_new = _open_partial(parent, partial_name)
    with open(descriptor, "r+b") as partial:
        try:
            yield partial, partial_name, is_new
        except BaseException:
            with suppress(OSError):  # a full disk, which the original error already reports
                partial.flush()
            if checksum is None or os.fstat(partial.fileno()).st_size == 0:
                os.unlink(partial_name, dir_fd=parent)
            raise


def _open_partial(parent: int, name: str) -> tuple[int, bool]:
    """Return a descriptor, and whether the file is new."""
    with suppress(FileNotFoundError):
        if (descriptor := _open_own(parent, name)) is not None:
            return descriptor, False
        os.unlink(name, dir_fd=parent)
    return os.open(name, _PARTIAL | os.O_CREAT | os.O_EXCL, MODE, dir_fd=parent), True


def _open_own(parent: int, name: str) -> int | None:
    """Return a descriptor if the file is our own and private. In /tmp, for example, any user can create it."""
    try:
        descriptor = os.open(name, _PARTIAL, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError:  # a link, a socket
        return None
    status = os.fstat(descriptor)
    private = stat.S_IMODE(status.st_mode) == MODE and status.st_uid == os.geteuid() and status.st_nlink == 1
    if stat.S_ISREG(status.st_mode) and private:
        return descriptor
    os.close(descriptor)
    return None
