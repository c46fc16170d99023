"""Owner, group and mode of what a scaffold makes: what is given is managed, what is not is left as it is.

* Files are managed always; a directory gets its attributes when it is made, since one that was there before may be
  ``/etc``, and not for a scaffold to close.
"""

import os
import stat
from collections.abc import Callable, Sequence

import msgspec

from foundation.differences import Difference
from puller.resources.base import Context
from puller.resources.owners import attribute_differences, group_id, mode_owned_by, user_id
from puller.resources.tree_paths import printable
from puller.system.protocol import Attributes
from puller.values.file_mode import FileMode

IsProgram = Callable[[str], bool | None]
"""Whether the template at a path is executable, as ``Ownership.of_file`` takes it."""


class Ownership(msgspec.Struct, frozen=True):
    """The wanted attributes; ``None`` is not managed."""

    uid: int | None = None
    gid: int | None = None
    mode: FileMode | None = None
    owner: str = ""
    """As the author wrote it, for messages."""
    group: str = ""

    @classmethod
    def resolve(
        cls, owner: str | int | None, group: str | int | None, mode: FileMode | None, context: Context
    ) -> "Ownership":
        """An ownership with names looked up; raises ``ResourceError`` for one that there is not."""
        return cls(
            None if owner is None else user_id(owner, context),
            None if group is None else group_id(group, context),
            mode,
            str(owner),
            str(group),
        )

    def of_draft(self, found: os.stat_result | None, mode: int) -> Attributes:
        """Return the attributes of a file that is written. ``mode`` is that of the draft."""
        is_kept = found is not None and stat.S_ISREG(found.st_mode)
        uid, gid = (found.st_uid, found.st_gid) if found and is_kept else (os.geteuid(), os.getegid())
        return Attributes(
            uid if self.uid is None else self.uid,
            gid if self.gid is None else self.gid,
            mode if self.mode is None else self.mode.over(stat.S_IFREG | mode),
        )

    def of_file(
        self, found: os.stat_result, *, is_program: bool | None, is_written: bool = False
    ) -> Attributes:
        """Return the attributes of a regular file that exists. Attributes that are not managed stay.

        ``is_program``: whether its template is executable. ``None`` leaves the execute bits to ``mode``, because a post
        command may have set them. ``is_written``: the file gets new content.
        """
        uid = found.st_uid if self.uid is None else self.uid
        gid = found.st_gid if self.gid is None else self.gid
        mode, actual = self.mode or FileMode.ANY, mode_owned_by(uid, gid, found, is_written=is_written)
        if is_program is None:
            return Attributes(uid, gid, mode.over(actual))
        return Attributes(uid, gid, mode.over_copy(actual, is_program=is_program))

    def of_directory(self) -> Attributes:
        """For a new directory."""
        return Attributes(
            os.geteuid() if self.uid is None else self.uid,
            os.getegid() if self.gid is None else self.gid,
            stat.S_IMODE(FileMode.NEW_DIRECTORY)
            if self.mode is None
            else self.mode.searchable().over(FileMode.NEW_DIRECTORY),
        )

    def differences(
        self, path: str, found: os.stat_result, *, is_program: bool | None, is_written: bool
    ) -> Sequence[Difference]:
        """Return the differences of the attributes of a regular file. ``is_written``: it gets new content."""
        attributes = self.of_file(found, is_program=is_program, is_written=is_written)
        return attribute_differences(found, attributes, self.owner, self.group, printable(path))
