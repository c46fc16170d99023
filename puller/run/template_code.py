"""The code of templates, kept in the state directory for the next run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hiera.expressions.kept_code import kept_in

if TYPE_CHECKING:
    from puller.state.code_file import CodeFile


@contextlib.contextmanager
def kept_code(path: Path, *, noop: bool) -> Iterator[None]:
    """A context whose templates take their code from the file ``path``, and leave there what is new, except in noop.

    A problem with it costs time and nothing else, so it is nobody's problem.
    """
    files: list[CodeFile] = []

    def opened(maker: bytes) -> "CodeFile":
        from puller.state.code_file import CodeFile  # as a run without templates does not

        files.append(CodeFile(path, maker))
        return files[-1]

    with kept_in(opened):
        try:
            yield
        finally:
            for file in files:
                if not noop:
                    with contextlib.suppress(OSError):
                        file.save()
                file.close()
