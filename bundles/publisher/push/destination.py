"""Destinations of a push: the interface of all kinds, retries, and the local directory.

A file appears under its name when it is complete. Failures are `PublishError`. A temporary failure is a
`PassingError` and is retried.

A destination on another machine by SSH, through the system's ``ssh`` and its configuration.

The remote side needs a POSIX shell with ``find``, ``ls``, ``cat``, ``tar``, ``mkdir``, ``mv``, ``rm`` and ``sync``.

* Files are sent as tar archives of many files, to a hidden directory beside the site. After they are flushed, ``mv``
  gives them their names in the requested order.
* One connection serves all commands of a push.
* A later push removes leftovers of killed pushes that are a day old.
"""

from __future__ import annotations

import io
import os
import secrets
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, Final, Protocol, TypeVar

import tenacity

from bundles.errors import PublishError
from bundles.filesystem.safe_paths import OutputTree
from bundles.filesystem.trees import open_regular, pieces_of
from bundles.publisher.push.plan import Source, files_of, kind_of_file
from bundles.publisher.site import explained
from foundation.problems import ProblemCode

_T = TypeVar("_T")
_SOCKET = "s"  # short, because the path of a socket has at most 108 bytes
_ATTEMPTS = 5
_LONGEST_PAUSE = 20.0
"""Seconds."""


class PassingError(PublishError):
    """A temporary failure of a destination."""


class Sending(Protocol):
    """Receives the progress of copying, in any thread."""

    def moved(self, path: str, have: int) -> None:
        """Receive the number of bytes of a file sent so far. The number decreases after a restart."""
        ...

    def sent(self, path: str, size: int) -> None:
        """Receive each completed file, with its size in bytes."""
        ...


class Destination(Protocol):
    """A place to copy a site to."""

    def files(self) -> dict[str, int] | None:
        """Return the files of the site with their sizes in bytes, or ``None`` if this kind cannot list files."""
        ...

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Request the sizes in bytes of the existing files among ``paths``. An unknown size is -1."""
        ...

    def read(self, path: str, limit: int) -> bytes | None:
        """Return the contents of one file of at most ``limit`` bytes, or ``None`` if it is missing."""
        ...

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        """Copy files. They become visible to readers in this order, or at the same time."""
        ...

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files. A missing file is not an error."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...

    def __str__(self) -> str:
        """Return the location, without credentials."""
        ...


def retried(action: Callable[[], _T]) -> _T:
    """Return the result of ``action``. After a temporary failure, retry it with increasing pauses."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(PassingError),
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_random_exponential(multiplier=0.5, max=_LONGEST_PAUSE),
        reraise=True,
    )(action)


# Local directories: a web server on this machine, a network file system, a USB drive.


class Directory:
    """The directory at ``location``, created by the first write. Methods raise `PublishError`."""

    def __init__(self, location: str) -> None:
        self._tree = OutputTree(location)
        self._root = Path(self._tree.root)

    def __str__(self) -> str:
        return str(self._root)

    def files(self) -> dict[str, int]:
        with explained(self._root):
            return files_of(self._root) if self._tree.exists() else {}

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return {path: size for path, size in self.files().items() if path in paths}

    def read(self, path: str, limit: int) -> bytes | None:
        with explained(self._root / path):
            try:
                return self._tree.read(path, limit)
            except FileNotFoundError:
                return None

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        with explained(self._root):
            for source in sources:
                self._write(source, watch)
                watch.sent(source.path, source.size)

    def _write(self, source: Source, watch: Sending) -> None:
        if source.data is not None:
            self._tree.write(source.path, [source.data])
        else:
            with open_regular(source.file) as stream:
                self._tree.write(source.path, _watched(stream, source, watch))

    def remove(self, paths: Iterable[str]) -> None:
        with explained(self._root):
            for path in paths:
                self._tree.remove(path)

    def close(self) -> None:
        with explained(self._root):
            self._tree.close()


def _watched(stream: BinaryIO, source: Source, watch: Sending) -> Iterator[bytes]:
    have = 0
    for piece in pieces_of(stream):
        yield piece
        have += len(piece)
        watch.moved(source.path, have)


_MOST_BYTES: Final = 32 * 1024 * 1024
_MOST_FILES: Final = 5000
"""Limits of one archive. A lost connection repeats a whole archive, and each archive waits for the remote disk."""
_NOT_CONNECTED: Final = 255
_NOT_FOUND: Final = 44
_LONGEST_MESSAGE: Final = 500
_PAUSE: Final = 0.3
"""Seconds between progress reports."""
_OPTIONS: Final = (
    "-o",
    "ConnectTimeout=30",
    "-o",
    "ServerAliveInterval=15",
    "-o",
    "ServerAliveCountMax=4",
    "-T",
)

# The format of `ls -l` must not depend on the settings of the remote shell.
_LIST: Final = """\
cd {root} 2>/dev/null || exit 0
unset TIME_STYLE BLOCK_SIZE LS_BLOCK_SIZE BLOCKSIZE QUOTING_STYLE
LC_ALL=C; export LC_ALL
find metadata/ targets/ -type f -exec ls -ln {{}} + 2>/dev/null
exit 0"""
_READ: Final = "cd {root} 2>/dev/null && [ -f {path} ] || exit 44; echo {mark}; exec cat {path}"
_REMOVE: Final = 'cd {root} || exit 1; while IFS= read -r path; do rm -f -- "$path" || exit 1; done'
_WRITE: Final = """\
umask 022
mkdir -p {root} && cd {root} || exit 1
find . -name '.puller-push-*' -prune -mtime +0 -exec rm -rf {{}} +
mkdir {staging} && cd {staging} || exit 1
tar -xof - || {{ cd ..; rm -rf {staging}; exit 1; }}
sync -f . 2>/dev/null || sync
while IFS= read -r path; do
  mkdir -p "../${{path%/*}}" && mv -f "$path" "../$path" || exit 1
done < .order
cd .. && rm -rf {staging}"""


class Remote:
    """The directory ``path`` of ``host``, which may contain a user name. Methods raise `PublishError`."""

    def __init__(self, host: str, path: str, port: str | None = None) -> None:
        self._host = host
        self._root = path.rstrip("/") or "/"
        self._port = port
        self._control: tempfile.TemporaryDirectory[str] | None = None
        """Local directory of the socket of the connection that all commands share."""

    def __str__(self) -> str:
        port = f":{self._port}" if self._port else ""
        return f"ssh://{self._host}{port}{self._root}"

    def files(self) -> dict[str, int]:
        output = retried(lambda: self._run(_LIST))
        result: dict[str, int] = {}
        for line in filter(str.strip, output.decode("utf-8", "replace").splitlines()):
            fields = line.split(None, 8)
            path = fields[-1].replace("//", "/")  # some versions of find print double slashes
            if (
                len(fields) == 9
                and (fields[4].isascii() and fields[4].isdecimal())
                and kind_of_file(path) is not None
            ):
                result[path] = int(fields[4])
        return result

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return {path: size for path, size in self.files().items() if path in paths}

    def read(self, path: str, limit: int) -> bytes | None:
        try:
            # The output of shell start files may come before the mark.
            mark = secrets.token_hex(16)
            data = retried(lambda: self._run(_READ, path=path, mark=mark)).partition(f"{mark}\n".encode())[2]
        except _MissingObjectError:
            return None
        if len(data) > limit:
            raise PublishError(f"{self}/{path}", f"has more than {limit} bytes")
        return data

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        for batch in _batches(sources):
            retried(lambda batch=batch: self._send(batch, watch))  # type: ignore[misc]  # bound now
            for source in batch:
                watch.sent(source.path, source.size)

    def remove(self, paths: Iterable[str]) -> None:
        names = "".join(f"{path}\n" for path in paths).encode()
        if names:
            retried(lambda: self._run(_REMOVE, names))

    def close(self) -> None:
        if self._control:
            if Path(self._control.name, _SOCKET).exists():
                subprocess.run([*self._ssh(), "-O", "exit", self._host], capture_output=True, check=False)
            self._control.cleanup()
            self._control = None

    def _send(self, batch: Sequence[Source], watch: Sending) -> None:
        with tempfile.TemporaryFile() as archive:
            _pack(batch, archive)
            archive.seek(0)
            size = sum(source.size for source in batch)

            def moved() -> None:
                # ssh shares the descriptor, and therefore its read position.
                watch.moved(batch[0].path, min(os.lseek(archive.fileno(), 0, os.SEEK_CUR), size))

            self._run(_WRITE, archive, moved, staging=f".puller-push-{secrets.token_hex(6)}")

    def _run(
        self,
        script: str,
        given: bytes | IO[bytes] = b"",
        waiting: Callable[[], None] = lambda: None,
        **words: str,
    ) -> bytes:
        """Return the output of a remote script. Raises `PassingError` if the connection failed.

        Calls ``waiting`` regularly.
        """
        quoted = {name: shlex.quote(word) for name, word in {"root": self._root, **words}.items()}
        command = [*self._ssh(), self._host, f"exec sh -c {shlex.quote(script.format(**quoted))}"]
        stdin, data = (subprocess.PIPE, given) if isinstance(given, bytes) else (given, None)
        try:
            process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except FileNotFoundError:
            raise PublishError(
                str(self), "ssh is not installed on this machine", code=ProblemCode.MISSING_DEPENDENCY
            ) from None
        with process:
            done = _ended(process, data, waiting)
        if done.returncode == _NOT_FOUND and script is _READ:
            raise _MissingObjectError(str(self), "is missing")
        if done.returncode:
            text = " ".join(done.stderr.decode("utf-8", "replace").split())[:_LONGEST_MESSAGE]
            failure = PassingError if done.returncode == _NOT_CONNECTED else PublishError
            raise failure(str(self), text or f"ended with status {done.returncode}")
        output: bytes = done.stdout
        return output

    def _ssh(self) -> list[str]:
        if self._control is None:
            self._control = tempfile.TemporaryDirectory(prefix="puller-", ignore_cleanup_errors=True)
        shared = ("ControlMaster=auto", f"ControlPath={self._control.name}/{_SOCKET}", "ControlPersist=60")
        options = [word for option in shared for word in ("-o", option)]
        return ["ssh", *_OPTIONS, *options, *(["-p", self._port] if self._port else [])]


def _ended(
    process: subprocess.Popen[bytes], data: bytes | None, waiting: Callable[[], None]
) -> subprocess.CompletedProcess[bytes]:
    try:
        while True:
            try:
                output, text = process.communicate(data, timeout=_PAUSE)
            except subprocess.TimeoutExpired:  # no data is lost
                data = None  # already passed, must not be passed twice
                waiting()
            else:
                return subprocess.CompletedProcess(process.args, process.returncode, output, text)
    except BaseException:
        process.kill()
        raise


class _MissingObjectError(PublishError):
    """The file does not exist at the destination."""


def _batches(sources: Sequence[Source]) -> Iterator[Sequence[Source]]:
    batch: list[Source] = []
    size = 0
    for source in sources:
        if batch and (size + source.size > _MOST_BYTES or len(batch) == _MOST_FILES):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += source.size
    if batch:
        yield batch


def _pack(batch: Sequence[Source], archive: IO[bytes]) -> None:
    order = "".join(f"{source.path}\n" for source in batch).encode()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, ".order", len(order), io.BytesIO(order))
        for source in batch:
            if source.data is not None:
                _add(tar, source.path, source.size, io.BytesIO(source.data))
            else:
                with open(source.file, "rb") as stream:
                    _add(tar, source.path, os.fstat(stream.fileno()).st_size, stream)


def _add(tar: tarfile.TarFile, name: str, size: int, stream: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    tar.addfile(member, stream)
