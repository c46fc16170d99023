"""Cache file for the code of templates, in the state directory.

* The code is executed as the user who runs Puller. So it is read only if the file and its directory belong to this
  user, and are closed to all others. Both are checked by their descriptors, not by their names.
* The code is in the format of ``marshal``, as in Python's own cache files. No other module can write code objects.
  ``marshal`` trusts its input, so a checksum is verified first.
* Code of another compiler, and damaged files, are ignored. The next run writes the file again.
* The whole file is written atomically, at the end of a run that has compiled a template. A dry run never writes it.
* The file never exceeds ``MAX_BYTES``: the code that this run has used comes first.

The file is a checksum, followed by the identity of the compiler and a mapping of the digest of each key to its code.
"""

import contextlib
import marshal
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Final

from bundles.filesystem.atomic import open_directory, remove_leftovers, replace_file
from hiera.expressions.template_code import stored_in

MAX_BYTES: Final = 64 * 1024 * 1024
"""Size of all code. The code of a template with twenty lines has 4 KiB."""

_CHECKSUM_BYTES: Final = 32
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def cached_templates(directory: Path, *, noop: bool) -> Iterator[None]:
    """Let templates take their code from the cache in ``directory``, and store new code there.

    Problems with the cache cost time only, so they are not reported. The state directory must exist.
    """
    caches: list[TemplateCache] = []

    def open_store(compiler: str) -> TemplateCache:
        caches.append(TemplateCache(directory / "templates", compiler))
        return caches[-1]

    with stored_in(open_store):
        try:
            yield
        finally:
            if not noop and os.path.isdir(directory.parent):
                for cache in caches:
                    with contextlib.suppress(OSError):
                        cache.save()


class TemplateCache:
    """The code of one compiler in the file ``path``, whose directory contains nothing else."""

    def __init__(self, path: Path, compiler: str) -> None:
        self._path = path
        self._compiler = compiler
        self._stored: Mapping[bytes, bytes] = {}
        self._used: dict[bytes, bytes] = {}
        self._new: dict[bytes, bytes] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, EOFError):
            stored_compiler, stored = marshal.loads(_read_private(path))  # noqa: S302  see above
            if stored_compiler == compiler:
                self._stored = stored

    def find(self, key: str) -> CodeType | None:
        """Return the code of ``key``, or ``None`` if the file does not contain it."""
        digest = _digest(key.encode("utf-8", "surrogatepass"))
        data = self._stored.get(digest)
        if data is None:
            return None
        self._used[digest] = data
        code: CodeType = marshal.loads(data)  # noqa: S302  see above
        return code

    def add(self, key: str, code: CodeType) -> None:
        """Store the code of ``key`` when ``save`` is called."""
        self._new[_digest(key.encode("utf-8", "surrogatepass"))] = marshal.dumps(code)

    def save(self) -> None:
        """Write the file if it gets new code. Raise ``OSError``."""
        chosen = self._chosen()
        if chosen.keys() <= self._stored.keys():
            return
        data = marshal.dumps((self._compiler, chosen))
        directory = self._path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_directory(directory) as descriptor:
            if not _is_private(os.fstat(descriptor)):
                return
            remove_leftovers(descriptor)
            # Without waiting for the disk: the checksum detects a file that a power cut has damaged.
            replace_file(descriptor, self._path.name, [_digest(data), data], mode=0o600, durable=False)

    def _chosen(self) -> dict[bytes, bytes]:
        """Return the code that fits into the file: used code first, then new code, then all other code."""
        chosen: dict[bytes, bytes] = {}
        size = 0
        for digest, data in (self._used | self._new | {**self._stored}).items():
            size += len(data)
            if size > MAX_BYTES:
                break
            chosen[digest] = data
        return chosen


def _digest(data: bytes) -> bytes:
    from hashlib import blake2b  # 2 % of an idle run without templates

    return blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


def _read_private(path: Path) -> bytes:
    """Return the content after the checksum.

    Raise ``OSError``, and ``ValueError`` if another user may have written the file, or if it is damaged.
    """
    directory = os.open(path.parent, _FLAGS | os.O_DIRECTORY)
    try:
        if not _is_private(os.fstat(directory)):
            raise ValueError(f"{path.parent}: not private")
        descriptor = os.open(path.name, _FLAGS, dir_fd=directory)
    finally:
        os.close(directory)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_private(status):
            raise ValueError(f"{path}: not a private file")
        checksum, data = file.read(_CHECKSUM_BYTES), file.read(2 * MAX_BYTES)
    if _digest(data) != checksum:
        raise ValueError(f"{path}: damaged")
    return data


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077
