"""The ``file`` resource: a file or directory (``file.py``), or a directory with its contents (``file_tree.py``)."""

from typing import Self, cast

from puller.resources.base import Context
from puller.resources.files.file import File
from puller.resources.files.file_properties import FileProperties


class FileOrTree(File):
    """A file, a directory, or a directory tree."""

    def __new__(cls, properties: FileProperties, context: Context) -> Self:
        """Return a ``Tree`` for ``recurse`` or ``purge``. Its module is imported only if needed."""
        if not properties.recurse and not properties.purge:
            return super().__new__(cls)
        from puller.resources.files.file_tree import Tree  # 0.5 % of an idle apply, and few files have it

        # A ``Tree`` is an instance of another class, so Python does not call ``__init__`` again.
        return cast("Self", Tree(properties, context))
