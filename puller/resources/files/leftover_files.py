"""Removal of undeclared files, directories and links, and restoring of a path that a trial has changed.

* Leftovers are removed only if they are unchanged. A file that replaced the link stays.
* Only an empty directory is removed. For a directory filled from a source, the receipt lists the files to remove.
* A path is restored with content, attributes and labels from a private copy. The copy is read only when needed and
  never shown, because it may hold secrets.
* A kernel parameter is written in place, never replaced.
* Each step is atomic, and completed steps are not repeated, because a run may be killed at any time.
"""

import base64
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest

import msgspec

from foundation.differences import Difference, changed, presence
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Properties, Resource
from puller.resources.files.file import File, FileState
from puller.resources.files.link import Link, LinkState
from puller.resources.owned_paths import TREES, LeftoverFiles, LeftoverTreeState
from puller.resources.paths import PathState, attribute_differences, group_name, require_parent, user_name
from puller.system.protocol import Attributes
from puller.system.trusted_files import is_parameter


class LeftoverTree(LeftoverFiles):
    """The files that Puller created below a directory, and the directory itself, to be ``absent``."""

    type_name = "file"
    receipts = TREES
    noun = "files"


class LeftoverFileState(FileState, frozen=True):
    """The state of a path, and of the leftover files if the directory was filled from a source."""

    tree: LeftoverTreeState | None = None


class LeftoverFile(File):
    """A file or directory that Puller created, to be ``absent``."""

    _is_kept = False
    _had_tree = False

    def look(self) -> LeftoverFileState:
        status = self.context.system.lstat(self.properties.name)
        state = self._tree.look()
        if state.receipt.root:
            self._had_tree = True
        elif self._had_tree:  # the last file took the receipt with it: an older directory stays
            state = LeftoverTreeState(state.receipt, exists=False)
        return LeftoverFileState(status, tree=state if self._had_tree else None)

    def differences(self, actual: FileState, *, refresh: bool = False) -> Sequence[Difference]:
        tree = _tree_of(actual)
        if tree is not None and (self._tree.differences(tree) or "" not in tree.receipt.directories):
            return self._tree.differences(tree)
        # Files that others added are kept, so the directory stays and is in sync.
        self._is_kept = actual.kind == "directory" and self._holds_anything()
        return () if self._is_kept else super().differences(actual, refresh=refresh)

    def change(self, differences: Sequence[Difference], actual: FileState) -> None:
        if (tree := _tree_of(actual)) is not None and self._tree.differences(tree):
            self._tree.change(differences, tree)
        else:
            super().change(differences, actual)

    def noop_message(self, differences: Sequence[Difference], actual: FileState) -> str:
        if (tree := _tree_of(actual)) is not None and self._tree.differences(tree):
            return self._tree.noop_message(differences, tree)
        message = super().noop_message(differences, actual)
        self.context.system.expect_content(self.properties.name, None)
        return message

    def final_ensure(self, actual: FileState) -> str:
        tree = _tree_of(actual)
        return super().final_ensure(actual) if tree is None else self._tree.final_ensure(tree)

    def changed_paths(self, actual: FileState) -> Iterable[str] | None:
        tree = _tree_of(actual)
        return [self.properties.name, *(self._tree.changed_paths(tree) if tree is not None else ())]

    @property
    def notes(self) -> Sequence[str]:
        return ["it is not empty, so it stays"] if self._is_kept else ()

    @cached_property
    def _tree(self) -> LeftoverTree:
        return LeftoverTree(Properties(name=self.properties.name, ensure="absent"), self.context)


def _tree_of(actual: FileState) -> LeftoverTreeState | None:
    return actual.tree if isinstance(actual, LeftoverFileState) else None


class LeftoverLink(Link):
    """A link that Puller created, to be ``absent``."""

    _is_kept = False

    def differences(self, actual: LinkState, *, refresh: bool = False) -> Sequence[Difference]:
        self._is_kept = actual.kind not in ("absent", "present")
        return () if self._is_kept else super().differences(actual, refresh=refresh)

    @property
    def notes(self) -> Sequence[str]:
        return ["it is no longer a link, so it stays"] if self._is_kept else ()


_KEPT = "what was there before"
_CAPABILITY = "security.capability"
_IN_MEMORY = 1024 * 1024
"""Bytes. Later resources of a dry run see contents up to this size."""


class Original(msgspec.Struct, frozen=True, omit_defaults=True):
    """The original state of a path. ``kind`` is a word of ``PathState.kind``."""

    kind: str
    uid: int = 0
    gid: int = 0
    mode: int = 0
    """Permission bits."""
    target: str = ""
    """The target of a link."""
    labels: dict[str, str] = {}
    """Extended attributes, in Base64."""

    @classmethod
    def of(cls, kind: str, found: os.stat_result, target: str, labels: Mapping[str, bytes]) -> "Original":
        """Return the original with the ``lstat`` result ``found``."""
        encoded = {name: base64.b64encode(value).decode("ascii") for name, value in labels.items()}
        return cls(kind, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), target, encoded)

    @property
    def attributes(self) -> Attributes:
        """Owner, group and mode."""
        return Attributes(self.uid, self.gid, self.mode)

    def decoded_labels(self) -> dict[str, bytes]:
        """Return the extended attributes by name."""
        return {name: base64.b64decode(value) for name, value in self.labels.items()}


class RestoredProperties(Properties, frozen=True):
    """The properties of a restored path."""

    original: Original
    copy: str = ""
    """The path of the stored content. Without ``copy`` and ``content``, a file keeps its current content."""
    content: bytes | None = None
    """The merged content."""


class RestoredState(PathState, frozen=True):
    """The current state of a path, compared with its original state."""

    same_content: bool = True
    same_labels: bool = True


class Restored(Resource[RestoredProperties, RestoredState]):
    """A path that is restored. ``ensure`` is its original kind."""

    type_name = "file"
    properties_type = RestoredProperties

    def look(self) -> RestoredState:
        properties, system = self.properties, self.context.system
        status, original = system.lstat(properties.name), properties.original
        state = RestoredState(status)
        if status is None or state.kind != original.kind:
            return state
        if original.kind == "symbolic link":
            return RestoredState(status, os.readlink(properties.name) == original.target)
        same_labels = system.labels(properties.name) == original.decoded_labels()
        is_same = original.kind != "present" or self._keeps_content or self._has_content(status)
        return RestoredState(status, is_same, same_labels)

    @property
    def _keeps_content(self) -> bool:
        return not self.properties.copy and self.properties.content is None

    def _has_content(self, found: os.stat_result) -> bool:
        """Return whether the file equals the copy, compared chunk by chunk."""
        retained = self._copy_size()
        if found.st_size != retained and not is_parameter(
            self.properties.name
        ):  # kernel parameters have size 0
            return False
        pieces = self.context.system.read_chunks(self.properties.name)
        return all(item == other for item, other in zip_longest(pieces, self._chunks()))

    def differences(self, actual: RestoredState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        original = self.properties.original
        if actual.found is None or actual.kind != original.kind:
            return [presence(actual.kind, original.kind)]
        results = [] if actual.same_content else [changed("content", "", _KEPT)]
        owner, group = user_name(original.uid), group_name(original.gid)
        if original.kind == "symbolic link":  # a link has no mode of its own
            desired = Attributes(original.uid, original.gid, stat.S_IMODE(actual.found.st_mode))
            return [*results, *attribute_differences(actual.found, desired, owner, group)]
        results += attribute_differences(actual.found, original.attributes, owner, group)
        return results if actual.same_labels else [*results, changed("labels", "", _KEPT)]

    def change(self, differences: Sequence[Difference], actual: RestoredState) -> None:
        """Restore the path. Raises ``ResourceError`` if a directory that obstructs it is not empty.

        1. Remove an obstacle that a rename cannot replace. A directory must be empty.
        2. Restore the original at the path.
        3. Restore owner, group and mode of an existing path, then its labels, because chown(2) can drop labels.
        """
        name, original, system = self.properties.name, self.properties.original, self.context.system
        status = actual.found
        require_parent(name, self.context)
        # 1. In the way
        if (
            status is not None
            and actual.kind != original.kind
            and "directory" in (actual.kind, original.kind)
        ):
            if actual.kind == "directory" and system.children(name):
                raise ResourceError(
                    f"{name} is a directory that is not empty", code=ProblemCode.CHANGE_REFUSED
                )
            system.remove(name, status)
            status = None
        # 2. Place
        is_in_place = status is not None and actual.kind == original.kind and actual.same_content
        if is_in_place and _CAPABILITY in original.labels and not actual.same_labels:
            is_in_place = (
                False  # a process may still be able to write to this inode, so it gets no capability
            )
        if original.kind == "symbolic link":
            system.make_link(name, original.target, status, (original.uid, original.gid))
            return
        if original.kind == "directory" and status is None:
            system.make_directory(name, original.attributes)
        elif is_parameter(name) and not is_in_place:
            system.write_kernel(name, b"".join(self._chunks()))
        elif original.kind == "present" and not is_in_place:
            system.replace_file(name, self._chunks(), original.attributes, status)
        # 3. Attributes
        elif status is not None and any(d.property in ("owner", "group", "mode") for d in differences):
            content = self._chunks() if original.kind == "present" else None
            system.set_attributes(name, original.attributes, status, content)
        desired, now = original.decoded_labels(), system.lstat(name)
        if now is not None and system.labels(name) != desired:
            system.set_labels(name, desired, now)

    def noop_message(self, differences: Sequence[Difference], actual: RestoredState) -> str:
        del differences, actual
        name, original, system = self.properties.name, self.properties.original, self.context.system
        kind = {"present": "file", "directory": "directory"}.get(original.kind, "link")
        system.expect(name, "directory" if kind == "directory" else "file")
        if kind == "file" and not self._keeps_content and self._copy_size() <= _IN_MEMORY:
            system.expect_content(name, b"".join(self._chunks()), original.attributes)
        if kind == "link":
            system.expect_link(name, os.path.join(os.path.dirname(name), original.target))
        return f"Would have restored the {kind}"

    def final_ensure(self, actual: RestoredState) -> str:
        return actual.kind

    def _copy_size(self) -> int:
        if self.properties.content is not None:
            return len(self.properties.content)
        try:
            return os.stat(self.properties.copy).st_size
        except FileNotFoundError:
            raise ResourceError(f"{self.properties.copy}: the copy no longer exists") from None

    def _chunks(self) -> Iterator[bytes]:
        if self.properties.content is not None:
            if self.properties.content:  # an empty file has no chunks
                yield self.properties.content
            return
        with open(self.properties.copy, "rb", buffering=0) as stream:
            while piece := stream.read(1 << 20):
                yield piece
