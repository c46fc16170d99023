"""The ``file`` resource: a file or directory (``one_file``), or all that is below a directory, too (``file_tree``).

``one_file`` compares the content, owner, group and mode of a path, and changes them.
"""

from typing import Self, cast

from puller.resources.base import Context
from puller.resources.files.file_properties import FileProperties
from puller.resources.files.one_file import OneFile


class File(OneFile):
    """A file or directory, with what is below it where that is asked for."""

    def __new__(cls, properties: FileProperties, context: Context) -> Self:
        """The resource for these properties: few files are trees, and only those have anything to do with them."""
        if not properties.recurse and not properties.purge:
            return super().__new__(cls)
        from puller.resources.files.file_tree import Tree

        return cast(
            "Self", Tree(properties, context)
        )  # of another class, and so not initialised a second time
