"""Package files that a dry run keeps in memory, to simulate their installation."""

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence

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
def named_files(files: Sequence[str | None], suffix: str) -> Iterator[list[str | None]]:
    """Yield the paths of package files, with names that end with ``suffix`` for kept files.

    Package managers read an argument as a file only if it ends with ``.deb`` or ``.rpm``. apt also resolves links, so
    the names belong to copies. Only this user can read the copies. They are removed at the end.
    """
    if not any(file and file.startswith(_MEMORY) for file in files):
        yield [*files]
        return
    with tempfile.TemporaryDirectory(prefix="puller-") as directory:

        def named(file: str | None, number: int) -> str | None:
            if file is None or not file.startswith(_MEMORY):
                return file
            return str(shutil.copyfile(file, f"{directory}/{number}{suffix}"))

        yield [named(file, number) for number, file in enumerate(files)]
