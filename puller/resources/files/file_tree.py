"""A managed directory tree: bundle files (``source``), attributes (``recurse``) and purging (``purge``).

* One walk finds all differences (``tree_plan``). Files and directories are written like single resources.
* Files are created before others are removed, so a crash in between leaves extra files, not missing ones. Only
  obstacles are removed first, and only with ``force``.
* A receipt records the created files, so that they can be removed when the tree is no longer declared.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from functools import cached_property

from bundles.filesystem.trees import needing
from foundation.differences import DIFF_LIMIT, Difference, changed, unified, unknown
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.errors import ResourceError
from puller.resources.content_sources import sha256
from puller.resources.files.content import resolved
from puller.resources.files.file import File, FileState
from puller.resources.files.tree_plan import DesiredAttributes, Plan, Walk, is_text
from puller.resources.owned_paths import TREES, OwnedPaths, Receipts, is_own_directory, own_file, owned_below
from puller.resources.paths import printable
from puller.system.local_paths import refuse_mount_points, refuse_mounted
from puller.system.protocol import require_one_name, requires_new_file
from puller.values.common_properties import ABSENT

_MOST_TOLD = 1000
"""Differences that are listed one by one. Longer lists are not readable."""
_DIFF_LIMIT = 256 * 1024  # characters of all diffs of a tree together


class TreeState(FileState, frozen=True):
    """The state of a directory, and the planned changes below it. ``None``: not known yet."""

    below: Plan | None = Plan()


class Tree(File):
    """A directory whose contents are managed."""

    def look(self) -> TreeState:
        if self._is_pending:
            return TreeState(self.context.system.lstat(self.properties.name), below=None)
        status = self.context.system.lstat(self.properties.name)
        if status is None and not self.properties.create:
            return TreeState(None)
        is_there = status is not None and stat.S_ISDIR(status.st_mode)
        return TreeState(status, below=self._look_below(is_there=is_there))

    def differences(self, actual: FileState, *, refresh: bool = False) -> Sequence[Difference]:
        itself = super().differences(actual, refresh=refresh)
        if (plan := _below(actual)) is None:
            return [*itself, unknown("content", f"from {self._source}")]
        below = [difference for found in plan.differences.values() for difference in found]
        if len(below) > _MOST_TOLD:
            suffix = changed("files", "", f"{len(below) - _MOST_TOLD} more")
            below = [*below[:_MOST_TOLD], suffix]
        return [*itself, *below]

    def change(self, differences: Sequence[Difference], actual: FileState) -> None:
        """Create or update the tree.

        1. Refuse impossible changes.
        2. Record in the receipt the files that will be created.
        3. Change the directory itself, then its contents.
        """
        del differences
        # 1. Refuse
        itself, plan = super().differences(actual), _below(actual) or Plan()
        self._refuse(itself, plan, actual)
        # 2. Note
        self._note(plan, is_new=actual.kind != "directory")
        # 3. Itself, then below
        if itself:
            super().change(itself, actual)
        self._change_below(plan)

    def noop_message(self, differences: Sequence[Difference], actual: FileState) -> str:
        del differences
        if (plan := _below(actual)) is None:
            self.context.system.expect(self._root, "directory")
            return "Would have copied a source that is not there yet"
        itself = super().differences(actual)
        self._refuse(itself, plan, actual)
        message = super().noop_message(itself, actual) if itself else ""
        if not plan.differences:
            return message
        self._expect(plan)
        changed = {*plan.changed, *plan.in_the_way}
        return f"Would have changed {counted(len(changed), 'file')}, removed {len(plan.removed)}"

    @property
    def notes(self) -> Sequence[str]:
        additional = self._owned.notes(self._root) if self.properties.purge else ()
        return [*super().notes, *additional]

    def is_there(self, actual: FileState) -> bool:
        plan = _below(actual) or Plan()
        return actual.kind == "directory" and not plan.made and None not in plan.written.values()

    def changed_paths(self, actual: FileState) -> Iterator[str]:
        plan = _below(actual) or Plan()
        if self._source:
            yield self._receipts.path
        yield self._root
        for path in plan.in_the_way:
            yield from self._all_below(self._path(path))
        yield from map(self._path, (*plan.changed, *plan.removed))

    def reach(self) -> str:
        return self._root if self._is_pending else ""

    def diff(self, actual: FileState) -> str | None:
        plan = _below(actual)
        if plan is None or self.properties.sensitive:
            return None
        return "".join(self._diffs(plan)) or None

    # Desired and current state

    @property
    def _root(self) -> str:
        return self.properties.name

    @cached_property
    def _source(self) -> str:
        source = self.properties.source
        return "" if source is None else resolved(source, self.context)

    @property
    def _is_pending(self) -> bool:
        """Whether, in noop, the source is missing and an earlier resource would or may create it."""
        if not self._source or os.path.lexists(self._source):
            return False
        return self.context.uncertain(self._source) or self.context.system.is_directory(self._source)

    def _look_below(self, *, is_there: bool) -> Plan:
        properties = self.properties
        if self._source:
            self._require_source()
        walk = Walk(
            self._root,
            self._source,
            self._desired_attributes,
            self._owned,
            self.context.system,
            purge=properties.purge,
            sensitive=properties.sensitive,
        )
        plan = walk.plan(is_there=is_there)
        if self._source and properties.removed == ABSENT and not properties.purge:
            self._add_own_leftovers(plan)
        return plan

    @property
    def _desired_attributes(self) -> DesiredAttributes:
        properties = self.properties
        return DesiredAttributes(properties.owner, properties.group, properties.mode, self.context)

    @cached_property
    def _owned(self) -> OwnedPaths:
        return owned_below(self._root, self.context, f"{self.type_name}#{self._root}")

    def _require_source(self) -> None:
        source, target = self._source, os.path.realpath(self._root)
        if not os.path.isdir(source) or os.path.islink(source):
            raise ResourceError(f"source {source} is not a directory")
        if os.path.commonpath((source, target)) in (source, target):
            raise ResourceError(f"source {source} and {target} hold one another")

    def _add_own_leftovers(self, plan: Plan) -> None:
        """Plan to remove files that this tree created and that its source does not contain any more."""
        receipt, system, going = self._receipts.load(), self.context.system, {}
        for path in receipt.files:
            is_kept = path in plan.in_source or self._owned.is_owned(path)
            status = None if is_kept else own_file(system, receipt.root, path, receipt)
            if status is not None:
                going[path] = status
        directories = {}
        for path in sorted({*receipt.directories} - plan.in_source - {""}, reverse=True):
            place = f"{self._root}/{path}"
            status = system.lstat(place)
            if status is None or not stat.S_ISDIR(status.st_mode) or self._owned.is_kept(path):
                continue
            if all(f"{path}/{name}" in going for name, _ in system.children(place)):
                directories[path] = going[path] = status
        for path in reversed(directories):
            plan.remove(path, directories[path])
        for path in going.keys() - directories.keys():
            plan.remove(path, going[path])

    # Changes

    def _refuse(self, itself: Sequence[Difference], plan: Plan, actual: FileState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        if itself:
            self._raise_predictable_failures(actual, itself)
        if plan.removed:
            self._owned.refuse_around(self._root)
        if plan.differences:
            self._refuse_below(plan)

    def _refuse_below(self, plan: Plan) -> None:
        if plan.in_the_way and not self.properties.force:
            first, *additional = plan.in_the_way.values()
            remainder = f", and {len(additional)} more" if additional else ""
            raise ResourceError(
                f"{self._root}: {first}{remainder}",
                code=ProblemCode.CHANGE_REFUSED,
                hint="replacing it requires force: true",
            )
        for path in plan.in_the_way:
            if path in self._owned.above:
                raise ResourceError(
                    f"{self._path(path)} is in the way, and another resource is declared below it",
                    code=ProblemCode.CHANGE_REFUSED,
                )
            refuse_mounted(self._path(path), "replaced")
        renewed = [*self._renewed(plan)]
        for path in plan.removed:
            if not is_text(path):
                raise ResourceError(
                    f"{printable(self._path(path))}: its name is not UTF-8, so it is not removed",
                    code=ProblemCode.CHANGE_REFUSED,
                )
        replaced = [path for path, found in plan.written.items() if found is not None]
        refuse_mount_points(self._root, [*replaced, *renewed], ())

    def _renewed(self, plan: Plan) -> Iterator[str]:
        """Yield the files that are replaced to get other attributes. Raises ``ResourceError`` for a hard link."""
        for path, found in plan.attributes.items():
            source = plan.source.get(path)
            if source is None:
                require_one_name(self._path(path), found)
            has_names = found.st_nlink > 1 and stat.S_ISREG(found.st_mode)
            if has_names or requires_new_file(found, self._desired_attributes.of(found, source)):
                yield path

    def _note(self, plan: Plan, *, is_new: bool) -> None:
        """Record in the receipt the files to create, and the directory itself if it ``is_new``."""
        if not self._source:
            return
        made = [path for path, found in plan.written.items() if found is None]
        read = self.context.system.read_chunks
        digests = {path: sha256(read(f"{self._source}/{path}")) for path in plan.written}
        is_own = is_new or is_own_directory(self._root, self.context)
        self._receipts.note(self._root, made, [*([""] if is_own else []), *plan.made], digests)

    def _change_below(self, plan: Plan) -> None:
        """Make the planned changes below the directory, which exists.

        1. Remove obstacles. Then plan again, because their removal changes the plan.
        2. Make the directories, parents first. Write the files. Set the attributes.
        3. Remove the other paths.
        """
        # 1. In the way
        if plan.in_the_way:
            for path in plan.in_the_way:
                self._clear(path)
            plan = self._look_below(is_there=True)
            self._note(plan, is_new=False)
        # 2. Make, write, set
        desired, system = self._desired_attributes, self.context.system
        for path in plan.made:
            attributes = desired.of_new(plan.source[path])
            system.make_directory(self._path(path), attributes, within=self._root)
        for path, found in plan.written.items():
            self._write(path, plan.source[path], found, desired)
        for path, found in plan.attributes.items():
            source = plan.source.get(path)
            is_copy = source is not None and stat.S_ISREG(source.st_mode)
            content = system.read_chunks(f"{self._source}/{path}") if is_copy else None
            attributes = desired.of(found, source)
            system.set_attributes(self._path(path), attributes, found, content, within=self._root)
        # 3. Remove
        if plan.removed:
            with system.removing(self._root):
                for path, found in plan.removals():
                    self._remove_below(path, found)

    def _write(
        self, path: str, entry: os.stat_result, found: os.stat_result | None, expected: DesiredAttributes
    ) -> None:
        is_kept = found is not None and stat.S_ISREG(found.st_mode)
        attributes = (
            expected.of(found, entry, is_written=True) if found and is_kept else expected.of_new(entry)
        )
        chunks = self.context.system.read_chunks(f"{self._source}/{path}")
        with needing(entry.st_size):
            self.context.system.replace_file(self._path(path), chunks, attributes, found, within=self._root)

    def _clear(self, path: str) -> None:
        place = self._path(path)
        status = self.context.system.lstat(place)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self.context.system.remove_tree(place, status)
        elif status is not None:
            self.context.system.remove(place, status, within=self._root)

    def _remove_below(self, path: str, status: os.stat_result) -> None:
        place = self._path(path)
        # Removing its contents changed its timestamps.
        now = self.context.system.lstat(place) if stat.S_ISDIR(status.st_mode) else status
        if now is not None:
            self.context.system.remove(place, now, within=self._root)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    # Reporting

    def _expect(self, plan: Plan) -> None:
        """In noop, record the expected state for later resources."""
        expect = self.context.system.expect
        for path in plan.in_the_way:
            expect(self._path(path), "directory" if os.path.isdir(f"{self._source}/{path}") else "file")
        for path in plan.made:
            expect(self._path(path), "directory")
        for path in plan.written:
            expect(self._path(path), "file")
        for path in plan.removed:
            expect(self._path(path), "absent")

    def _diffs(self, plan: Plan) -> Iterator[str]:
        """Yield a unified diff of each written file, up to a total size limit."""
        size = 0
        for path, found in plan.written.items():
            is_file = found is not None and stat.S_ISREG(found.st_mode)
            if found and is_file and max(found.st_size, plan.source[path].st_size) > DIFF_LIMIT:
                continue
            old = self.context.system.read(self._path(path)) if is_file else b""
            piece = (
                unified(old, self.context.system.read(f"{self._source}/{path}"), printable(self._path(path)))
                or ""
            )
            yield piece
            size += len(piece)
            if size > _DIFF_LIMIT:
                yield f"{self._root}: and more, which is too much to show\n"
                return

    def _all_below(self, place: str) -> Iterator[str]:
        yield place
        status = self.context.system.lstat(place)
        if status is not None and stat.S_ISDIR(status.st_mode):
            for name, _ in self.context.system.children(place):
                yield from self._all_below(f"{place}/{name}")

    @property
    def _receipts(self) -> Receipts:
        return Receipts(TREES, self._root, self.context.state_directory, noop=self.context.noop)


def _below(actual: FileState) -> Plan | None:
    return actual.below if isinstance(actual, TreeState) else Plan()
