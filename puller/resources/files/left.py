"""Files, directories and links that Puller has made and nobody declares any more: removed while they are what was made.

* A directory goes only when it is empty.
* What somebody has put in the place of a link stays.
"""

from collections.abc import Sequence

from puller.resources.base import Difference
from puller.resources.files.file import File, FileState
from puller.resources.files.link import Link, LinkState


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


class LeftLink(Link):
    """A link that was made, to be ``absent``."""

    _is_kept = False

    def differences(self, actual: LinkState, *, refresh: bool = False) -> Sequence[Difference]:
        self._is_kept = actual.kind not in ("absent", "present")
        return () if self._is_kept else super().differences(actual, refresh=refresh)

    @property
    def notes(self) -> Sequence[str]:
        return ["it is no link any more, so it stays"] if self._is_kept else ()
