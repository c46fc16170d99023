"""The ``file`` resource: files and directories, their content, owner, group and mode (``resources.md`` section 3).

* A path is looked at by ``lstat``: links are never followed, and a FIFO, socket or device is never opened.
* A file never exists at its path with other than its final owner, mode and content.
* What may lose data (removing a directory that is not empty, replacing one, or a device) wants ``force: true``.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hiera.expressions.expressions import Scope
from puller.errors import ResourceError
from puller.resources.base import Difference, Properties, PropertyError, Resource
from puller.resources.content import OTHER, SENSITIVE, Bytes, Content, Pending, SourceFile, described, sha256
from puller.resources.owners import group_id, group_name, user_id, user_name
from puller.system.protocol import Attributes, require_one_name
from puller.values.file_mode import FileMode

if TYPE_CHECKING:
    from puller.templates.rendering import Rendered

_KINDS = {
    stat.S_IFREG: "present",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
_ENSURE = ("present", "absent", "directory", "exists")
_TINYCM_KEYS = frozenset({"contents", "type", "permission-mask"})
_CONTENT_SOURCES = ("content", "source", "template")


class FileProperties(Properties, frozen=True):
    """The properties of a file or directory."""

    content: str | None = None
    """The text of the file."""
    source: str | None = None
    """A file to copy: relative to the manifest, absolute, or an ``http(s)://`` URL."""
    checksum: str | None = None
    """SHA-256 of a remote source, in hexadecimal; nothing is downloaded while the file has it."""
    template: str | None = None
    """A template file, relative to the manifest or absolute."""
    engine: str | None = None
    """What renders ``template``: ``jinja``, ``jet`` or ``go``; by its name when not given, else ``jinja``."""
    owner: str | int | None = None
    """Name, or id when all digits."""
    group: str | int | None = None
    """Name, or id when all digits."""
    mode: FileMode | None = None
    """Permission bits, or a mask such as ``x00``."""
    encoding: str = "utf-8"
    """How text becomes bytes."""
    force: bool = False
    """Remove what is in the way, and directories that are not empty."""
    interpolate: bool = False
    """TinyCM's: replace ``{name}`` in ``content``, or render what was downloaded; templates see the data by name."""


class FileState(msgspec.Struct, frozen=True):
    """What is at the path: nothing, or a kind with attributes; and whether the content is the wanted one."""

    found: os.stat_result | None
    same_content: bool = True

    @property
    def kind(self) -> str:
        """``absent``, ``present``, ``directory``, or what else is in the way."""
        return (
            "absent"
            if self.found is None
            else _KINDS.get(stat.S_IFMT(self.found.st_mode), "unknown kind of file")
        )


class File(Resource[FileProperties, FileState]):
    """A file or directory."""

    type_name = "file"
    properties_type = FileProperties
    secret_properties = frozenset({"content"})
    spellings = {  # noqa: RUF012  declared as ClassVar in the base class
        "contents": {"type": "string"},
        "type": {"enum": ["constant", "http", "template"]},
        "permission-mask": {"type": "string"},
    }

    _content: Content | None = None
    _is_secret = False
    """Whether a secret went into the content, so that no diff of it may be shown."""

    def look(self) -> FileState:
        properties = self.properties
        found = self.context.system.lstat(properties.name)
        if found is None or properties.ensure != "present" or not stat.S_ISREG(found.st_mode):
            return FileState(found)
        return FileState(found, self._same_content(found))

    def differences(self, actual: FileState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        ensure = self.properties.ensure
        kind, wanted = actual.kind, "present" if ensure == "exists" else ensure
        if kind != wanted:
            return [Difference("ensure", kind, wanted)]
        if actual.found is None:
            return ()
        found = []
        if not actual.same_content:
            found.append(self._content_difference())
        found += self._attribute_differences(actual.found)
        return found

    def change(self, differences: Sequence[Difference], actual: FileState) -> None:
        from bundles.filesystem.free_space import needing  # for the few files that are changed

        self._refuse_what_cannot_be(actual, differences)
        ensure, name, system = self.properties.ensure, self.properties.name, self.context.system
        in_the_way = actual.found is not None and differences[0].property == "ensure"
        if ensure == "absent" or (in_the_way and "directory" in (ensure, actual.kind)):
            self._remove(actual)
            actual = FileState(None)
        if ensure == "absent":
            return
        if ensure == "directory" and actual.found is None:
            system.make_directory(name, self._wanted_attributes(FileMode.NEW_DIRECTORY))
        elif actual.found is not None and not self._must_write(differences, actual):
            system.set_attributes(name, self._wanted_attributes(actual.found.st_mode), actual.found)
        else:
            there = actual.found if actual.kind == "present" else None
            base = FileMode.NEW_FILE if there is None else there.st_mode
            content = self._wanted_content()
            with needing(content.size if content else 0):
                system.replace_file(
                    name, content.chunks() if content else (), self._wanted_attributes(base), actual.found
                )

    def noop_message(self, differences: Sequence[Difference], actual: FileState) -> str:
        self._refuse_what_cannot_be(actual, differences)
        ensure, system = self.properties.ensure, self.context.system
        if self._is_replaced(differences):
            kind = {"absent": "absent", "directory": "directory"}.get(ensure, "file")
            system.expect(self.properties.name, kind)
        if ensure == "absent":
            if actual.kind != "directory":
                return "Would have removed the file"
            return f"Would have {'recursively ' if self.properties.force else ''}removed the directory"
        if differences[0].property == "ensure":
            return "Would have created directory" if ensure == "directory" else "Would have created the file"
        return (
            "Would have updated the file"
            if self._must_write(differences, actual)
            else "Would have updated attributes"
        )

    def final_ensure(self, actual: FileState) -> str:
        return actual.kind

    def describe(self, actual: FileState) -> dict[str, Any]:
        found = actual.found
        if found is None:
            return {"ensure": actual.kind}
        described = {
            "ensure": actual.kind,
            "owner": user_name(found.st_uid),
            "group": group_name(found.st_gid),
            "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        }
        if not stat.S_ISREG(found.st_mode):
            return described
        digest = sha256(self.context.system.read_chunks(self.properties.name))
        return {**described, "size": found.st_size, "sha256": digest}

    def diff(self, actual: FileState) -> str | None:
        from puller.resources.diff import unified  # only when something is shown

        content = self._wanted_content()
        if (
            content is None
            or isinstance(content, Pending)
            or self._is_secret
            or self.properties.sensitive
            or self.properties.ensure in ("absent", "directory")
        ):
            return None
        if (actual.kind == "present" and actual.same_content) or actual.kind == "directory":
            return None
        name = self.properties.name
        old = b"" if actual.kind != "present" else self.context.system.read(name)
        return unified(old, b"".join(content.chunks()), name)

    # What is wanted

    def _wanted_content(self) -> Content | None:
        """``None``: only attributes are managed. Found once; whatever is wrong with it raises ``ResourceError``."""
        if self._content is None:
            self._content = self._find_content()
        return self._content

    def _find_content(self) -> Content | None:
        properties, system = self.properties, self.context.system
        if properties.content is not None:
            text = properties.content
            if properties.interpolate:
                from puller.resources.files.tinycm import interpolate  # a migration aid, rarely used

                return self._rendered(interpolate(text, self.context.scope.data))
            return Bytes(self._encoded(text), system)
        if properties.template is not None:
            return self._template(properties.template)
        if properties.source is not None:
            return self._remote() if _is_url(properties.source) else self._local(properties.source)
        return None

    def _template(self, template: str) -> Content:
        from puller.templates.engine import choose_engine  # the engines load what they need
        from puller.templates.rendering import render_file

        properties, context = self.properties, self.context
        engine = choose_engine(template, properties.engine)
        path, sensitive = self._resolved(template), properties.sensitive
        if self._is_pending(path):
            return Pending(path)
        return self._rendered(render_file(path, engine, self._scope, context.directory, sensitive=sensitive))

    @property
    def _scope(self) -> Scope:
        """What templates see; those of TinyCM's definitions also see its constants, the data, by their own names."""
        scope = self.context.scope
        return scope.with_names(scope.data) if self.properties.interpolate else scope

    def _local(self, source: str) -> Content:
        path = self._resolved(source)
        if self._is_pending(path):
            return Pending(path)
        try:
            found = os.lstat(path) if os.path.isabs(source) else os.stat(path)
        except OSError as error:
            raise ResourceError(f"source {path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            raise ResourceError(f"source {path} is not a regular file")
        real = path if os.path.isabs(source) else os.path.realpath(path)
        return SourceFile(real, found.st_size, self.context.system)

    def _is_pending(self, path: str) -> bool:
        """In noop: whether an earlier resource would bring this file, or may do so."""
        context = self.context
        return context.system.will_be_written(path) or (context.uncertain(path) and not os.path.lexists(path))

    def _remote(self) -> Content:
        source, wanted = self.properties.source or "", self.properties.checksum
        data = self.context.fetch(source)
        digest = sha256([data])
        if wanted is not None and digest != wanted:
            raise ResourceError(f"source {source} has sha256 {digest}, wanted {wanted}")
        if self.properties.interpolate:
            from puller.templates.rendering import render_text

            text, sensitive = self._decoded(data), self.properties.sensitive
            directory = self.context.directory
            return self._rendered(
                render_text(source, text, "jinja", self._scope, directory, sensitive=sensitive)
            )
        return Bytes(data, self.context.system)

    def _rendered(self, rendered: "Rendered") -> Content:
        self._is_secret |= rendered.is_secret
        return Bytes(self._encoded(rendered.text), self.context.system)

    def _resolved(self, path: str) -> str:
        """Where a source is; what an absolute path leads to through links is judged as that of a managed file is."""
        if os.path.isabs(path):
            return self.context.system.resolve(os.path.normpath(path))
        return os.path.normpath(os.path.join(self.context.directory, path))

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode(self.properties.encoding)
        except UnicodeEncodeError as error:
            raise ResourceError(
                f"content cannot be written as {self.properties.encoding}: {error.reason}"
            ) from error

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode(self.properties.encoding)
        except UnicodeDecodeError as error:
            raise ResourceError(
                f"source {self.properties.source} is not {self.properties.encoding}: {error.reason}"
            ) from error

    def _wanted_attributes(self, actual_mode: int) -> Attributes:
        properties = self.properties
        mode = properties.mode or FileMode(0, 0o777)  # absent needs none; nothing else gets here without one
        if properties.ensure == "directory":
            mode = mode.searchable()
        return Attributes(
            user_id(properties.owner, self.context),
            group_id(properties.group, self.context),
            mode.over(actual_mode),
        )

    # What is there

    def _same_content(self, found: os.stat_result) -> bool:
        properties, path = self.properties, self.properties.name
        if properties.checksum is not None and not properties.interpolate:
            # The checksum alone decides: a file that has it costs no download.
            return sha256(self.context.system.read_chunks(path)) == properties.checksum
        content = self._wanted_content()
        return content is None or (found.st_size == content.size and content.same_as(path))

    def _content_difference(self) -> Difference:
        content, chunks = self._wanted_content(), self.context.system.read_chunks
        if content is None:
            raise ResourceError("content differs, and none is wanted")
        if self._is_secret or self.properties.sensitive:
            return Difference("content", OTHER, SENSITIVE)
        if isinstance(content, Pending):
            return Difference("content", OTHER, f"what {content.path} will hold")
        path = self.properties.name
        found = self.context.system.lstat(path)
        actual = described(found.st_size if found else 0, sha256(chunks(path)))
        return Difference("content", actual, described(content.size, sha256(content.chunks())))

    def _attribute_differences(self, found: os.stat_result) -> list[Difference]:
        wanted = self._wanted_attributes(found.st_mode)
        differences = []
        if found.st_uid != wanted.uid:
            differences.append(Difference("owner", user_name(found.st_uid), str(self.properties.owner)))
        if found.st_gid != wanted.gid:
            differences.append(Difference("group", group_name(found.st_gid), str(self.properties.group)))
        if (mode := stat.S_IMODE(found.st_mode)) != wanted.mode:
            differences.append(Difference("mode", f"{mode:04o}", f"{wanted.mode:04o}"))
        return differences

    # What may be done

    def _must_write(self, differences: Sequence[Difference], actual: FileState) -> bool:
        if self.properties.ensure == "directory":
            return False
        return differences[0].property in ("ensure", "content") or self._is_replaced_for_its_names(actual)

    def _is_replaced_for_its_names(self, actual: FileState) -> bool:
        """A file with other names is somebody else's, too; where all of the content is known, a new one is made."""
        has_others = actual.kind == "present" and actual.found is not None and actual.found.st_nlink > 1
        return has_others and self.properties.ensure == "present" and self._wanted_content() is not None

    def _is_replaced(self, differences: Sequence[Difference]) -> bool:
        """Whether something else is at the path afterwards, and not only its attributes are others."""
        return differences[0].property in ("ensure", "content")

    def _refuse_what_cannot_be(self, actual: FileState, differences: Sequence[Difference]) -> None:
        """Raise for what ``change`` would fail at, so that noop predicts it."""
        ensure, kind, name = self.properties.ensure, actual.kind, self.properties.name
        if actual.found is not None and self._is_replaced(differences):
            from puller.system.mounts import refuse_mounted  # for the few files that are replaced

            refuse_mounted(name, "removed" if ensure == "absent" else "replaced")
        if ensure == "absent":
            if kind == "directory" and not self.properties.force and os.listdir(name):
                raise ResourceError(f"{name} is a directory that is not empty; removing it wants force: true")
            return
        wanted = "directory" if ensure == "directory" else "present"
        if kind not in ("absent", wanted) and not self.properties.force and not self._is_replaceable(kind):
            what = "directory" if ensure == "directory" else "file"
            found = "file" if kind == "present" else kind
            raise ResourceError(f"{name} is a {found}; replacing it by a {what} wants force: true")
        self._wanted_attributes(0)
        if ensure == "directory":
            self._require_parent_of_directory()
        else:
            self._require_parent()
            self._wanted_content()
        is_kept = kind == wanted == "present" and actual.same_content
        if is_kept and actual.found is not None and not self._is_replaced_for_its_names(actual):
            require_one_name(name, actual.found)

    def _is_replaceable(self, kind: str) -> bool:
        """By a file, and losing nothing: a link, FIFO or socket holds no data of its own."""
        if self.properties.ensure == "directory":
            return False
        has_content = self._wanted_content() is not None
        return kind in ("fifo", "socket") or (kind == "symbolic link" and has_content)

    def _require_parent(self) -> None:
        parent = os.path.dirname(self.properties.name)
        if not self.context.system.is_directory(parent) and not self.context.uncertain(parent):
            raise ResourceError(f"directory {parent} does not exist")

    def _require_parent_of_directory(self) -> None:
        """Missing parents are made; something else in the place of one is in the way."""
        parent = os.path.dirname(self.properties.name)
        while not self.context.system.is_directory(parent):
            if self.context.system.exists(parent):
                raise ResourceError(f"{parent} is not a directory")
            parent = os.path.dirname(parent)

    def _remove(self, actual: FileState) -> None:
        if actual.found is None:
            return
        system = self.context.system
        if actual.kind == "directory" and self.properties.force:
            system.remove_tree(self.properties.name, actual.found)
        else:
            system.remove(self.properties.name, actual.found)

    # At load

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        is_other = not _TINYCM_KEYS.isdisjoint(raw) or raw.get("ensure") in ("contents", "removed")
        if not is_other and not ("after" in raw and _is_other_reference(raw["after"])):
            return raw
        from puller.resources.files.tinycm import from_tinycm  # only for manifests that use its names

        return from_tinycm(raw)

    @classmethod
    def check(cls, properties: FileProperties) -> Iterator[PropertyError]:
        ensure, name = properties.ensure, properties.name
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}, wanted one of {', '.join(_ENSURE)}")
        if (
            not name.startswith("/")
            or name.startswith("//")
            or os.path.normpath(name) != name
            or "\0" in name
        ):
            yield PropertyError(
                "name", f"is {name!r}, wanted an absolute path without '.', '..' or doubled slashes"
            )
        if name == "/":
            yield PropertyError("name", "is '/', which is not managed")
        yield from _check_content(properties)
        for required in ("owner", "group", "mode") if ensure in _ENSURE and ensure != "absent" else ():
            if getattr(properties, required) in (None, ""):
                what = "is missing; it is required unless ensure is absent"
                yield PropertyError(required, what, because=["ensure"])

    @classmethod
    def merge(cls, first: FileProperties, second: FileProperties) -> FileProperties | None:
        """Two definitions of one path as one, where they agree (TinyCM); raises ``PropertyError`` where not."""
        from puller.resources.files.tinycm import merge_definitions

        return merge_definitions(first, second)


def _is_other_reference(after: object) -> bool:
    """TinyCM's: one text, or ``file::/etc/motd``."""
    return isinstance(after, str) or (isinstance(after, list) and any("::" in str(name) for name in after))


def _check_content(properties: FileProperties) -> Iterator[PropertyError]:
    given = [name for name in _CONTENT_SOURCES if getattr(properties, name) is not None]
    for other in given[1:]:
        yield PropertyError(other, f"cannot be given together with {given[0]}", because=[given[0]])
    if properties.ensure in ("absent", "directory"):
        for name in given:
            yield PropertyError(name, f"has no meaning with ensure: {properties.ensure}", because=["ensure"])
    if properties.engine is not None:
        yield from _check_engine(properties.template or "", properties.engine)
    if properties.checksum is not None:
        yield from _check_checksum(properties)
    try:
        "".encode(properties.encoding)
    except LookupError:
        yield PropertyError("encoding", f"is {properties.encoding!r}, which is not a known encoding")


def _check_engine(template: str, engine: str) -> Iterator[PropertyError]:
    from puller.templates.engine import ENGINES, choose_engine

    if engine not in ENGINES:
        yield PropertyError("engine", f"is {engine!r}, wanted jinja, jet or go")
        return
    try:
        choose_engine(template, engine)
    except ValueError as error:
        yield PropertyError("template", str(error), because=["engine"])


def _check_checksum(properties: FileProperties) -> Iterator[PropertyError]:
    checksum = properties.checksum or ""
    if len(checksum) != 64 or checksum.strip("0123456789abcdef"):
        wanted = "64 lower-case hexadecimal digits (SHA-256)"
        yield PropertyError("checksum", f"is {checksum!r}, wanted {wanted}")
    if properties.source is None or not _is_url(properties.source):
        yield PropertyError("checksum", "is only for a source that is a URL", because=["source"])


def _is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))
