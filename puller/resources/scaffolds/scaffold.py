"""The ``scaffold`` resource: a directory of templates, rendered into a directory (``docs/resources/scaffold.md``).

* The tree is rendered in memory and compared file by file, so checks and noop runs write nothing.
* Reads stay inside the source and the manifest's directory, and writes inside the target, even if links lead elsewhere.
* A tree that renders differently each time is refused, because the second run would change it again.
* When a scaffold is no longer declared, its files are removed by the receipt, without the templates.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foundation.differences import Difference, presence
from hiera.expressions.expressions import Scope
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource
from puller.resources.claims import Claim, Use, agree
from puller.resources.content_sources import plain_files, sha256
from puller.resources.owned_paths import (
    SCAFFOLDS,
    LeftoverFiles,
    OwnedPaths,
    Receipts,
    is_own_directory,
    owned_below,
)
from puller.resources.paths import check_managed, kind
from puller.resources.scaffolds.changes import Draft, PostCommand, PostCommands, clear, place
from puller.resources.scaffolds.scaffold_state import (
    Ownership,
    ScaffoldState,
    Target,
    compare,
    diff,
    look_at,
    remaining,
    require_possible,
    with_own_leftovers,
)
from puller.resources.scaffolds.scaffold_tree import (
    Rendered,
    RenderRequest,
    Tree,
    render_source,
    require_same,
)
from puller.system.local_paths import refuse_mount_points
from puller.system.protocol import Attributes, requires_new_file
from puller.templates.functions import over_data
from puller.templates.rendering import ENGINES, choose_engine
from puller.values.common_properties import ABSENT
from puller.values.file_mode import FileMode

OWN_ENGINE = "jet"
"""The default engine of a directory of templates."""

_ENSURE = ("present", "absent")
_DIFF_LIMIT = 256 * 1024  # characters of all diffs of a scaffold together


class ScaffoldProperties(Properties, frozen=True):
    """The properties of a scaffold. The name is the target directory."""

    source: str
    """The directory of templates, relative to the manifest or absolute."""
    engine: str | None = None
    """The engine: ``jet``, ``go`` or ``jinja``. The default follows the name of ``source``, otherwise ``jet``."""
    left_delimiter: str = ""
    """The start of an action. The default depends on the engine."""
    right_delimiter: str = ""
    """The end of an action. The default depends on the engine."""
    skip_empty: bool = False
    """Omit files with blank results."""
    purge: bool = False
    """Remove everything in the target, except for files of the scaffold and of other resources."""
    post: tuple[dict[str, str], ...] = ()
    """Commands for changed files, by pattern of the file name: ``- "*.go": "gofmt -w {}"``."""
    data: dict[Any, Any] | None = None
    """Data for the templates, instead of the data of the manifest."""
    owner: str | int | None = None
    """Owner of files and new directories: name, or numeric id. Unset: unmanaged."""
    group: str | int | None = None
    """Group of files and new directories: name, or numeric id. Unset: unmanaged."""
    mode: FileMode | None = None
    """Mode of the files. New directories get search permission where the mode gives read permission."""


class Scaffold(Resource[ScaffoldProperties, ScaffoldState]):
    """A directory of rendered templates.

    1. Render the source into memory (``scaffold_tree.render_source``).
    2. Compare the target with it (``target.look_at``), and find changed, stable and purged paths (``compare``). For
       ``absent``, find its existing files (``remaining``).
    3. Refuse protected obstacles, mount points, and a tree that renders differently each time.
    4. Run the post commands on changed files, in private copies (``post.finish``).
    5. Write the files, set attributes and purge (``changes.place``). For ``absent``, remove (``changes.clear``).
    6. For each file that a command has changed, note digests of its input and result, so that the next run recognises
       it.
    """

    type_name = "scaffold"
    properties_type = ScaffoldProperties
    # Delimiters may contain the braces of expressions.
    expressions_kept = frozenset({"control", "left_delimiter", "right_delimiter"})
    secret_properties = frozenset({"data"})
    relative_paths = frozenset({"source"})
    rendered = frozenset({"source"})
    command_lines = frozenset({"post", "health_checks"})
    providers = ("posix", "choria")  # the second is for manifests of the reference implementation

    _tree: Tree | None = None
    _spared = OwnedPaths()
    """The paths that the last purge kept."""

    def look(self) -> ScaffoldState:
        properties, system = self.properties, self.context.system
        wants_files = properties.ensure == "present"
        if not wants_files and (system.lstat(properties.name) is None or not system.exists(properties.name)):
            return ScaffoldState()  # the source may be missing as well
        if wants_files and self._is_source_pending:
            return ScaffoldState()
        self._refuse_overlap()
        # 1. Render
        tree, purge = self._wanted(), wants_files and properties.purge
        # 2. Look and decide
        purged = self._owned if purge else None
        target = look_at(system, properties.name, tree, recognise=self._post.made, purged=purged)
        if wants_files and not purge and properties.removed == ABSENT:
            receipt = self._receipts.load()
            if {*receipt.files, *receipt.directories} - {*tree.files, *tree.directories, ""}:
                target = with_own_leftovers(system, target, tree, receipt, self._owned())
        if not wants_files:
            return remaining(target)
        return compare(target, tree, self._ownership(), system, self._is_program)

    def differences(self, actual: ScaffoldState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        result = [difference for differences in actual.differences.values() for difference in differences]
        if self.properties.ensure == "present" and not actual.exists:
            itself = actual.target.itself if actual.target else None
            result.insert(0, presence(kind(itself.st_mode) if itself else "absent", "a directory"))
        return result

    def change(self, differences: Sequence[Difference], actual: ScaffoldState) -> None:
        del differences
        if actual.target is None:
            return
        if self.properties.ensure == "present":
            self._require_possible(actual.target, actual)
            self._place(actual.target, actual)
        else:
            # 5. Remove. A directory behind a link existed before the scaffold, so it stays.
            is_link = actual.target.root != self.properties.name
            clear(self.context.system, actual.target, self._wanted().directories, keep_root=is_link)

    def noop_message(self, differences: Sequence[Difference], actual: ScaffoldState) -> str:
        del differences
        if self._is_source_pending and self.properties.ensure == "present":
            self.context.system.expect(self.properties.name, "directory")
            return "Would have rendered a source that is not there yet"
        if actual.target is not None:
            if self.properties.ensure == "present":
                self._require_possible(actual.target, actual)
            self._expect(actual.target, actual)
        if self.properties.ensure == "absent":
            return f"Would have removed {len(actual.changed) + len(actual.stable)} scaffold files"
        if count := len(actual.changed) + len(actual.purged):
            return f"Would have changed {count} scaffold files"
        return "Would have created the target directory"

    @property
    def notes(self) -> Sequence[str]:
        return self._spared.notes(self.properties.name)

    def final_ensure(self, actual: ScaffoldState) -> str:
        return "present" if actual.exists else "absent"

    def is_there(self, actual: ScaffoldState) -> bool:
        target = actual.target
        if target is None or target.itself is None:
            return False
        # An obstacle at the path, which a scaffold never replaces, existed before it.
        return not actual.exists or all(file is not None for file in target.files.values())

    def changed_paths(self, actual: ScaffoldState) -> Iterator[str]:
        if (target := actual.target) is None:
            return
        yield self._receipts.path
        yield target.root
        yield from map(
            target.path, (*target.directories, *actual.purged, *target.foreign.directories, *actual.changed)
        )

    def reach(self) -> str:
        return self.properties.name if self._is_source_pending else ""

    def diff(self, actual: ScaffoldState) -> str | None:
        if self._is_source_pending:
            return None
        tree = self._wanted()
        if tree.secret:
            return None
        pieces, size = [], 0
        for piece in diff(actual, tree, self.context.system):
            pieces.append(piece)
            size += len(piece)
            if size > _DIFF_LIMIT:
                pieces.append(f"{self.properties.name}: and more, which is too much to show\n")
                break
        return "".join(pieces) or None

    def contents(self) -> Mapping[str, Rendered]:
        properties = self.properties
        if properties.ensure == "absent" or os.path.isabs(properties.source):
            return {}

        tree = self._wanted()
        require_same(tree, self._render())
        result = {os.path.join(properties.name, path): file for path, file in tree.files.items()}
        return result if (properties.mode or FileMode.ANY).leaves_programs else plain_files(result)

    # Desired state

    def _wanted(self) -> Tree:
        """Return the rendered tree. Raises ``ResourceError``. Cached."""
        if self._tree is None:
            self._tree = self._render()
        return self._tree

    def _render(self) -> Tree:
        properties, context = self.properties, self.context
        source = properties.source.rstrip("/")
        request = RenderRequest(
            self._source,
            source,
            choose_engine(source, properties.engine, OWN_ENGINE),
            (properties.left_delimiter, properties.right_delimiter),
            properties.skip_empty,
            properties.sensitive,
        )
        return render_source(request, self._scope(), context.files, context.system)

    @property
    def _is_source_pending(self) -> bool:
        """Whether, in noop, the source is missing and an earlier resource may create it."""
        context, source = self.context, self._source
        return context.uncertain(source) and not os.path.lexists(source)

    @property
    def _source(self) -> str:
        source, context = self.properties.source, self.context
        return (
            context.system.resolve(os.path.normpath(source))
            if os.path.isabs(source)
            else context.files.find(source)
        )

    def _scope(self) -> Scope:
        """Return the template scope: the manifest's scope, or a scope with the scaffold's own data."""
        scope, data = self.context.scope, self.properties.data
        if data is None:
            return scope

        return over_data(scope, data, self.context.files)

    def _owned(self) -> OwnedPaths:
        """Return the paths below the target that belong to other resources."""
        name = self.properties.name
        self._spared = owned_below(name, self.context, f"{self.type_name}#{name}")
        return self._spared

    def _ownership(self) -> Ownership:
        properties = self.properties
        return Ownership.resolve(properties.owner, properties.group, properties.mode, self.context)

    # Refusals

    def _refuse_overlap(self) -> None:
        """Raise ``ResourceError`` if source and target overlap: output would become templates, or templates would be
        purged.
        """
        source, target = os.path.realpath(self._source), os.path.realpath(self.properties.name)
        if os.path.commonpath((source, target)) in (source, target):
            raise ResourceError(f"source {source} and target {target} hold one another")

    def _require_possible(self, target: Target, actual: ScaffoldState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        # 3. Refuse
        if actual.purged:
            self._owned().refuse_around(self.properties.name)
        require_possible(self.context.system, self.properties.name, target)
        replaced = [path for path in self._written(target, actual) if target.files[path] is not None]
        if replaced or actual.purged:
            refuse_mount_points(target.root, replaced, actual.purged)
        self._refuse_other_writers(target, actual)
        # Render again only before a write, so that a stable tree is rendered once.
        if any(path not in target.same for path in actual.changed):
            require_same(self._wanted(), self._render())

    def _refuse_other_writers(self, target: Target, actual: ScaffoldState) -> None:
        """Raise for a file that another resource also writes, because each run would change it twice."""
        written = [path for path in actual.changed if path not in target.same]
        owners = self._owned().owners if written else {}
        for path in written:
            mine = Claim(target.path(path), Use.WHOLE)
            for owner in owners.get(path, ()):
                if why := mine.contradicts(owner.claim):
                    raise ResourceError(f"{why}: {owner.reference}")

    def _place(self, target: Target, actual: ScaffoldState) -> None:
        system, desired, ownership = self.context.system, self._wanted(), self._ownership()
        written = self._written(target, actual)
        # 4. Finish
        drafts = self._post.finish({path: self._draft(target.files[path], path) for path in written})
        # 5. Place
        made = [path for path in drafts if target.files[path] is None]
        digests = {path: sha256([draft.data]) for path, draft in drafts.items()}
        own = [""] if is_own_directory(target.root, self.context) else []
        self._receipts.note(target.root, made, [*own, *target.missing_directories()], digests)
        attributes = {path: self._attributes(target, path) for path in actual.changed if path not in drafts}
        place(system, target, ownership, drafts, attributes)
        # 6. Note
        for path, draft in drafts.items():
            if draft.data != (rendered := desired.files[path].data):
                self._post.remember(path, rendered, draft, target.root)

    def _written(self, target: Target, actual: ScaffoldState) -> list[str]:
        """Return the files to write: files with other content, and files that require a new inode.

        Other hard links of a file keep their content.
        """
        return [
            path
            for path in actual.changed
            if path not in target.same
            or ((result := target.files[path]) is not None and result.st_nlink > 1)
            or (result is not None and requires_new_file(result, self._attributes(target, path)))
        ]

    def _draft(self, status: os.stat_result | None, path: str) -> Draft:
        """Return a rendered file with its mode. A post command may change the mode."""
        rendered, ownership = self._wanted().files[path], self._ownership()
        if status is None or not stat.S_ISREG(status.st_mode):
            return Draft(rendered.data, ownership.of_draft(None, rendered.mode).mode)
        attributes = ownership.of_file(status, is_program=self._is_program(path), is_written=True)
        return Draft(rendered.data, attributes.mode)

    def _attributes(self, target: Target, path: str) -> Attributes:
        """Return the attributes of a file whose content stays."""
        result = target.files[path]
        if result is None:
            raise ResourceError(f"{target.path(path)} is missing")
        return self._ownership().of_file(result, is_program=self._is_program(path))

    def _is_program(self, path: str) -> bool | None:
        """Return whether a file is executable like its template. ``None`` if a post command may set the bit."""
        return self._wanted().files[path].executable or (None if self._post.of(path) else False)

    def _expect(self, target: Target, actual: ScaffoldState) -> None:
        """In noop, record the expected state for later resources."""
        expect = self.context.system.expect
        for path in actual.purged:
            expect(target.path(path), "absent")
        if self.properties.ensure == "present":
            expect(target.root, "directory")
            for path in target.directories:
                expect(target.path(path), "directory")
        is_present = self.properties.ensure == "present"
        for path in (*actual.changed, *actual.stable):
            if not is_present or path not in target.same:
                expect(target.path(path), "file" if is_present else "absent")

    @property
    def _receipts(self) -> Receipts:
        return Receipts(SCAFFOLDS, self.properties.name, self.context.state_directory, noop=self.context.noop)

    @property
    def _post(self) -> PostCommands:
        is_secret = self._wanted().secret
        return PostCommands(_post_commands(self.properties), self.context.system, quiet=is_secret)

    # Loading

    @classmethod
    def fills(cls, properties: ScaffoldProperties) -> tuple[str]:
        return (properties.name,)

    @classmethod
    def claims(cls, properties: ScaffoldProperties) -> Iterator[Claim]:
        # An absent scaffold removes only its own files.
        yield Claim(properties.name, Use.FILLED if properties.ensure == "present" else Use.KEPT)

    @classmethod
    def purges(cls, properties: ScaffoldProperties) -> Sequence[str]:
        return [properties.name] if properties.purge and properties.ensure == "present" else ()

    @classmethod
    def check(cls, properties: ScaffoldProperties) -> Iterator[PropertyError]:
        ensure, name, source = properties.ensure, properties.name, properties.source
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        yield from check_managed(name)
        if not source or "\0" in source or "://" in source:
            yield PropertyError("source", f"is {source!r}", expected="a directory of templates")
        for who in ("owner", "group"):
            if getattr(properties, who) == "":
                yield PropertyError(who, "is empty")
        if properties.mode is not None and properties.mode.gives_set_id and os.path.isabs(source):
            fact = f"is {str(properties.mode)!r}, but the templates of set-id files must be in the bundle"
            yield PropertyError("mode", fact, because=["source"])
        yield from _check_engine(source, properties.engine)
        for item in properties.post:
            if len(item) != 1:
                yield PropertyError("post", f"has {len(item)} patterns in one entry", expected="one")
        for command in _post_commands(properties):
            try:
                command.check()
            except ValueError as error:
                yield PropertyError("post", str(error))

    @classmethod
    def agree(cls, first: ScaffoldProperties, second: ScaffoldProperties) -> ScaffoldProperties:
        """Require equality of all properties that affect rendering."""
        rendering = ("engine", "left_delimiter", "right_delimiter", "skip_empty", "post", "data")
        return agree(first, second, exact=rendering)


def _check_engine(source: str, engine: str | None) -> Iterator[PropertyError]:
    if engine not in (None, *ENGINES):
        yield PropertyError("engine", f"is {engine!r}", expected="jet, go or jinja")
        return
    try:
        choose_engine(source.rstrip("/"), engine)
    except ValueError as error:
        yield PropertyError("source", str(error), because=["engine"])


def _post_commands(properties: ScaffoldProperties) -> tuple[PostCommand, ...]:
    return tuple(PostCommand(pattern, text) for item in properties.post for pattern, text in item.items())


class LeftoverScaffold(LeftoverFiles):
    """A scaffold's own files and directories, to be ``absent``."""

    type_name = "scaffold"
    receipts = SCAFFOLDS
    noun = "scaffold files"
