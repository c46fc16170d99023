"""Package files that a dry run keeps in memory, to simulate their installation."""

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator

import msgspec

from puller.resources.packages.manager import Request, Wanted

_MEMORY = "/proc/"


class KeptFiles:
    """The package files of one dry run. They last as long as this object."""

    def keep(self, content: bytes) -> str:
        """Return the path of a file with this content."""
        descriptor = os.memfd_create("package", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        return f"{_MEMORY}{os.getpid()}/fd/{descriptor}"


@contextlib.contextmanager
def named_files(request: Request, suffix: str) -> Iterator[Request]:
    """Yield a request with names that end with ``suffix`` for its kept files.

    Package managers read an argument as a file only if it ends with ``.deb`` or ``.rpm``. apt also resolves links, so
    the names are those of copies, which only this user can read, and which are removed at the end.
    """
    if not any(wanted.file and wanted.file.startswith(_MEMORY) for wanted in request.install):
        yield request
        return
    with tempfile.TemporaryDirectory(prefix="puller-") as directory:

        def named(wanted: Wanted, number: int) -> Wanted:
            if wanted.file is None or not wanted.file.startswith(_MEMORY):
                return wanted
            shutil.copyfile(wanted.file, path := f"{directory}/{number}{suffix}")
            return msgspec.structs.replace(wanted, file=path)

        install = tuple(named(wanted, number) for number, wanted in enumerate(request.install))
        yield msgspec.structs.replace(request, install=install)
