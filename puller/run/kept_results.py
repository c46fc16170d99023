"""Results of reading texts, kept in the state directory for the next run.

They are the code of templates, the values of YAML texts, and what the resources of long manifests declare.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hiera.expressions import kept_code
from hiera.text import kept_values
from puller.manifest.kept_store import STORE
from puller.state.directories import Directories

if TYPE_CHECKING:
    from puller.state.kept_file import KeptFile

_BEGINNING = 1 << 16  # bytes


@contextlib.contextmanager
def kept_results(directory: Path, *, noop: bool) -> Iterator[None]:
    """A context whose texts take what was made of them from files in ``directory``; what is new is left there.

    Not in noop, and not where the directory above it is not there. A problem with a file costs time and nothing else,
    so it is nobody's problem.
    """
    files: list[KeptFile] = []

    def opening(name: str) -> "Callable[[bytes], KeptFile]":
        def opened(maker: bytes) -> "KeptFile":
            from puller.state.kept_file import KeptFile  # for who has anything to read

            files.append(KeptFile(directory / name, maker))
            return files[-1]

        return opened

    with (
        kept_code.kept_in(opening("templates")),
        kept_values.kept_in(opening("texts")),
        STORE.kept_in(opening("declarations")),
    ):
        try:
            yield
        finally:
            for file in files:
                if not noop and os.path.isdir(directory.parent):
                    with contextlib.suppress(OSError):
                        file.save()
                file.close()


def kept_of_configuration(path: str) -> Path:
    """Where the results for the configuration at ``path`` may be, which says itself where that is.

    Another place than it means has none of them, and no harm is done: they are found by all of its text.
    """
    state = Directories.of_user().state
    with contextlib.suppress(OSError):
        lines = _lines(path)
        words = next((words for line in lines if (words := line.split())[:1] == [b"state_directory:"]), [])
        if len(words) > 1 and words[1].startswith(b"/"):
            state = Path(os.fsdecode(words[1]))
    return Directories(state, state).kept


def _lines(path: str) -> list[bytes]:
    """The lines of the beginning of a file; none of what comes by a pipe, which comes once. Raises ``OSError``."""
    if not os.path.isfile(path):
        return []
    with open(path, "rb") as file:
        return file.read(_BEGINNING).splitlines()
