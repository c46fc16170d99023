"""The ``file`` resource: a file or directory (``one_file``), or all that is below a directory, too (``tree``)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from puller.resources.base import Content, Context, Difference
from puller.resources.files.one_file import FileState, OneFile
from puller.resources.files.properties import FileProperties
from puller.values.file_mode import FileMode

if TYPE_CHECKING:  # few files are trees
    from puller.resources.files.tree import Tree


class File(OneFile):
    """A file or directory, with what is below it where that is asked for."""

    _tree: "Tree | None" = None

    def __init__(self, properties: FileProperties, context: Context) -> None:
        super().__init__(properties, context)
        if properties.recurse or properties.purge:
            from puller.resources.files.tree import Tree

            self._tree = Tree(properties, context)

    def look(self) -> FileState:
        return super().look() if self._tree is None else self._tree.look()

    def differences(self, actual: FileState, *, refresh: bool = False) -> Sequence[Difference]:
        if self._tree is None:
            return super().differences(actual, refresh=refresh)
        return self._tree.differences(actual, refresh=refresh)

    def change(self, differences: Sequence[Difference], actual: FileState) -> None:
        if self._tree is None:
            super().change(differences, actual)
        else:
            self._tree.change(differences, actual)

    def noop_message(self, differences: Sequence[Difference], actual: FileState) -> str:
        if self._tree is None:
            return super().noop_message(differences, actual)
        return self._tree.noop_message(differences, actual)

    def is_there(self, actual: FileState) -> bool:
        return super().is_there(actual) if self._tree is None else self._tree.is_there(actual)

    def contents(self) -> Mapping[str, Content]:
        properties = self.properties
        if properties.ensure == "present":
            from puller.resources.files.content import bundled_content  # asked for by authors only

            content = bundled_content(properties, self.context)
            return {} if content is None else {properties.name: content}
        if properties.ensure != "directory" or properties.source is None:
            return {}
        from puller.resources.bundled_contents import bundled_contents, plain_files

        found = bundled_contents([properties.source], self.context, below=properties.name)
        return found if (properties.mode or FileMode.ANY).leaves_programs else plain_files(found)

    def changed_paths(self, actual: FileState) -> Iterable[str] | None:
        return super().changed_paths(actual) if self._tree is None else self._tree.changed_paths(actual)

    def reach(self) -> str:
        return super().reach() if self._tree is None else self._tree.reach()

    def diff(self, actual: FileState) -> str | None:
        return super().diff(actual) if self._tree is None else self._tree.diff(actual)
