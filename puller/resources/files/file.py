"""The ``file`` resource: a file or directory (``one_file``), optionally with everything below it (``file_tree``).

``one_file`` compares the content, owner, group and mode of a path, and changes them.
"""

from typing import Self, cast

from puller.resources.base import Context
from puller.resources.files.file_properties import FileProperties
from puller.resources.files.one_file import OneFile


class File(OneFile):
    """A file, a directory, or a directory tree."""

    def __new__(cls, properties: FileProperties, context: Context) -> Self:
        """Return a ``Tree`` for ``recurse`` or ``purge``, else a ``File``. The tree module is loaded only if needed."""
        if not properties.recurse and not properties.purge:
            return super().__new__(cls)
        from puller.resources.files.file_tree import Tree  # 0.5 % of an idle apply, and few files have it

        return cast(
            "Self", Tree(properties, context)
        )  # of another class, so Python does not call __init__ again
