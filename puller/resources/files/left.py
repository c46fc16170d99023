"""A file or directory that Puller has made and nobody declares any more: removed, a directory only when it is empty."""

from collections.abc import Sequence

from puller.resources.base import Difference
from puller.resources.files.file import File, FileState


class LeftFile(File):
    """A file or directory that was made, to be ``absent``."""

    _is_kept = False

    def differences(self, actual: FileState, *, refresh: bool = False) -> Sequence[Difference]:
        # What somebody has put into it is theirs: nothing is wrong with that, and the directory stays.
        self._is_kept = actual.kind == "directory" and self._holds_anything()
        return () if self._is_kept else super().differences(actual, refresh=refresh)

    @property
    def notes(self) -> Sequence[str]:
        return ["it is not empty, so it stays"] if self._is_kept else ()
