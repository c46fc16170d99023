"""A file or directory: its content, owner, group and mode (``docs/resources/file.md``).

* The state is read by ``lstat``: links are never followed, and a FIFO, socket or device is never opened.
* A file appears at its path only with its final owner, mode and content.
* Changes that may lose data (removing a non-empty directory, replacing a directory or device) require ``force: true``.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bundles.filesystem.trees import needing
from foundation.differences import Difference, changed, presence, secret, unified, unknown
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources import base
from puller.resources.base import PropertyError, Resource
from puller.resources.claims import Claim, Use
from puller.resources.content_sources import bundled_contents, is_url, plain_files, sha256, short, verified
from puller.resources.files.content import Content, Pending, SourceFile, bundled_content, find_content
from puller.resources.files.file_properties import (
    UNUSED,
    FileProperties,
    check_attributes,
    check_content,
    check_validation,
    content_sources,
)
from puller.resources.owned_paths import refuse_owned_below
from puller.resources.paths import (
    PathState,
    attribute_differences,
    check_managed,
    describe_attributes,
    group_id,
    is_plain,
    mode_owned_by,
    require_makeable,
    require_parent,
    user_id,
)
from puller.system.local_paths import refuse_mounted
from puller.system.protocol import Attributes, require_one_name, requires_new_file
from puller.values.file_mode import FileMode

_ENSURE = ("present", "absent", "directory", "exists")
_NOT_VALIDATED = (None, False, None)
_TINYCM_KEYS = frozenset({"contents", "type", "permission-mask"})


class FileState(PathState, frozen=True):
    """The state of a file's path, and whether its content is in sync."""

    same_content: bool = True


class File(Resource[FileProperties, FileState]):
    """A file or directory, without the contents of the directory."""

    type_name = "file"
    properties_type = FileProperties
    secret_properties = frozenset({"content", "data"})
    relative_paths = frozenset({"source", "template"})
    rendered = frozenset({"template", "interpolate"})
    unused = UNUSED
    claims_only_its_name = True
    command_lines = frozenset({"validate", "health_checks"})
    providers = ("posix", "shell")
    spellings = {  # noqa: RUF012  declared as ClassVar in the base class
        "contents": {"type": "string"},
        "type": {"enum": ["constant", "http", "template"]},
        "permission-mask": {"type": "string"},
    }

    _content: Content | None = None

    def look(self) -> FileState:
        """Read the path. Content is compared only for a regular file. A file without declared content has the same."""
        properties = self.properties
        status = self.context.system.lstat(properties.name)
        if status is None or properties.ensure != "present" or not stat.S_ISREG(status.st_mode):
            return FileState(status)
        return FileState(status, self._same_content(status))

    def differences(self, actual: FileState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        desired = self._desired_kind(kind := actual.kind)
        if kind != desired:
            return [presence(kind, desired)]
        if actual.found is None:
            return ()
        differences = []
        if not actual.same_content:
            differences.append(self._content_difference())
        properties = self.properties
        # A change of the content drops the set-id bits.
        wanted_attributes = self._wanted_attributes(actual.found, is_written=not actual.same_content)
        differences += attribute_differences(
            actual.found, wanted_attributes, properties.owner, properties.group
        )
        return differences

    def change(self, differences: Sequence[Difference], actual: FileState) -> None:
        """Create, update or remove the file (``docs/resources/file.md``).

        1. Refuse impossible changes, and changes that may lose data without ``force``.
        2. Remove a path that should be absent. Also remove a directory that obstructs a file, or a file that obstructs
           a directory, because a rename cannot replace it.
        3. Make the directory, set the attributes of an existing path, or write the file with its final attributes and
           the labels of the previous file (``puller.system.local``).
        """
        # 1. Refuse
        self._raise_predictable_failures(actual, differences)
        # 2. Remove
        ensure, name, system = self.properties.ensure, self.properties.name, self.context.system
        in_the_way = actual.found is not None and differences[0].property == "ensure"
        if ensure == "absent" or (in_the_way and "directory" in (ensure, actual.kind)):
            self._remove(actual)
            actual = FileState(None)
        if ensure == "absent":
            return
        # 3. Make, set or write
        if ensure == "directory" and actual.found is None:
            system.make_directory(name, self._wanted_attributes(None))
        elif actual.found is not None and not self._must_write(differences):
            attributes = self._wanted_attributes(actual.found)
            system.set_attributes(name, attributes, actual.found, self._compared_content())
        else:
            # Mode bits that the mode does not set come from the previous file, but not from a link or FIFO.
            before = actual.found if actual.kind == "present" else None
            content = self._desired_content()
            chunks = content.chunks() if content else ()
            with needing(content.size if content else 0):
                verify = self._verifier(differences)
                desired = self._wanted_attributes(before, is_written=True)
                system.replace_file(name, chunks, desired, actual.found, verify=verify)

    def noop_message(self, differences: Sequence[Difference], actual: FileState) -> str:
        self._raise_predictable_failures(actual, differences)
        ensure, system = self.properties.ensure, self.context.system
        if self._is_replaced(differences):
            kind = {"absent": "absent", "directory": "directory"}.get(ensure, "file")
            system.expect(self.properties.name, kind)
        if ensure == "absent":
            if actual.kind != "directory":
                return "Would have removed the file"
            return f"Would have {'recursively ' if self.properties.force else ''}removed the directory"
        validated = " (not validated)" if self._is_validated(differences) else ""
        if differences[0].property == "ensure":
            made = "Would have created the file" + validated
            return "Would have created directory" if ensure == "directory" else made
        is_renewed = actual.found is not None and self._compares_content and self._is_renewed(actual.found)
        is_written = is_renewed or self._must_write(differences)
        return "Would have updated the file" + validated if is_written else "Would have updated attributes"

    def final_ensure(self, actual: FileState) -> str:
        return actual.kind

    def describe(self, actual: FileState) -> dict[str, Any]:
        status = actual.found
        if status is None:
            return {"ensure": actual.kind}
        described = {"ensure": actual.kind, **describe_attributes(status)}
        if not stat.S_ISREG(status.st_mode):
            return described
        digest = sha256(self.context.system.read_chunks(self.properties.name))
        return {**described, "size": status.st_size, "sha256": digest}

    def diff(self, actual: FileState) -> str | None:
        content = self._desired_content()
        if (
            content is None
            or isinstance(content, Pending)
            or content.is_secret
            or self.properties.sensitive
            or self.properties.ensure in ("absent", "directory")
        ):
            return None
        if (actual.kind == "present" and actual.same_content) or actual.kind == "directory":
            return None
        name = self.properties.name
        old = b"" if actual.kind != "present" else self.context.system.read(name)
        return unified(old, b"".join(content.chunks()), name)

    def contents(self) -> Mapping[str, base.Content]:
        properties = self.properties
        if properties.ensure == "present":
            content = bundled_content(properties, self.context)
            if isinstance(content, SourceFile) and not (properties.mode or FileMode.ANY).leaves_programs:
                content = msgspec.structs.replace(content, executable=False)
            return {} if content is None else {properties.name: content}
        if properties.ensure != "directory" or properties.source is None:
            return {}

        result = bundled_contents([properties.source], self.context, below=properties.name)
        return result if (properties.mode or FileMode.ANY).leaves_programs else plain_files(result)

    # Desired state

    def _desired_content(self) -> Content | None:
        """Return the desired content, ``None`` if only attributes are managed. Raises ``ResourceError``. Cached."""
        if self._content is None:
            self._content = find_content(self.properties, self.context)
        return self._content

    def _desired_kind(self, result: str) -> str:
        """Return the desired kind, in the words of ``PathState.kind``."""
        ensure = self.properties.ensure
        if not self.properties.create and (result == "absent" or ensure != "directory"):
            return result if result != "symbolic link" else "what it leads to"
        return "present" if ensure == "exists" else ensure

    def _wanted_attributes(self, found: os.stat_result | None, *, is_written: bool = False) -> Attributes:
        """Return the desired attributes.

        ``found``: the current state, or ``None``. ``is_written``: the content changes.
        """
        properties = self.properties
        mode = properties.mode or FileMode.ANY
        if properties.ensure == "directory":
            mode = mode.searchable()
        if found is None:
            uid, gid = user_id(properties.owner, self.context), group_id(properties.group, self.context)
            actual = FileMode.NEW_DIRECTORY if properties.ensure == "directory" else FileMode.NEW_FILE
            return Attributes(uid, gid, self._mode_over(mode, actual))
        uid = found.st_uid if properties.owner is None else user_id(properties.owner, self.context)
        gid = found.st_gid if properties.group is None else group_id(properties.group, self.context)
        # Set-id bits were granted to this owner and content, so drop them if either changes.
        actual = mode_owned_by(uid, gid, found, is_written=is_written)
        is_copy = is_written or properties.ensure == "present"
        return Attributes(uid, gid, self._mode_over(mode, actual) if is_copy else mode.over(actual))

    def _mode_over(self, mode: FileMode, actual: int) -> int:
        """Return the permission bits. A copy is executable if its local source is and the mode allows both."""
        source = self.properties.source
        if (
            source is None
            or not stat.S_ISREG(actual)
            or mode.is_independent(directory=False)
            or is_url(source)
        ):
            return mode.over(actual)
        return mode.over_copy(actual, is_program=getattr(self._desired_content(), "executable", False))

    # Current state

    def _same_content(self, status: os.stat_result) -> bool:
        properties, path = self.properties, self.properties.name
        if properties.checksum is not None and not properties.interpolate:
            # The checksum alone decides, so a file in sync needs no download.
            return sha256(self.context.system.read_chunks(path)) == properties.checksum
        content = self._desired_content()
        return content is None or (status.st_size == content.size and content.same_as(path))

    def _content_difference(self) -> Difference:
        content, chunks = self._desired_content(), self.context.system.read_chunks
        if content is None:
            raise ResourceError("content differs, but content is not declared")
        if content.is_secret or self.properties.sensitive:
            return secret("content")
        if isinstance(content, Pending):
            return unknown("content", f"from {content.path}")
        current = short(sha256(chunks(self.properties.name)))
        return changed("content", current, short(sha256(content.chunks())))

    # Validation of new content

    def _is_validated(self, differences: Sequence[Difference]) -> bool:
        """Return whether ``validate`` runs. Unchanged content is not validated."""
        return self.properties.validate is not None and self._is_replaced(differences)

    def _verifier(self, differences: Sequence[Difference]) -> Callable[[str], None] | None:
        validation, content = self.properties.validation, self._desired_content()
        if validation is None or not self._is_validated(differences):
            return None
        secret = self.properties.sensitive or (content is not None and content.is_secret)
        return validation.verifier(self.properties.name, self.context, secret=secret)

    # Refusals

    def _must_write(self, differences: Sequence[Difference]) -> bool:
        return self.properties.ensure != "directory" and self._is_replaced(differences)

    @property
    def _compares_content(self) -> bool:
        """Whether the content of an existing file is managed."""
        return self.properties.ensure == "present" and bool(content_sources(self.properties))

    def _compared_content(self) -> Iterable[bytes] | None:
        """Return the bytes that the file was compared with, ``None`` if its content is not managed."""
        properties = self.properties
        if not self._compares_content:
            return None
        if properties.checksum is not None and not properties.interpolate:
            # The file has this checksum. Copying it costs no download.
            chunks = self.context.system.read_chunks(properties.name)
            return verified(chunks, properties.checksum, properties.name)
        content = self._desired_content()
        return None if content is None else content.chunks()

    def _is_renewed(self, status: os.stat_result) -> bool:
        """Return whether new attributes require a new file in place of this one."""
        if not stat.S_ISREG(status.st_mode):
            return False
        return status.st_nlink > 1 or requires_new_file(status, self._wanted_attributes(status))

    def _refuse_new_file(self, status: os.stat_result) -> None:
        """Raise ``ResourceError`` if the attributes require a new file that cannot take the place of this one."""
        if not self._compares_content:
            require_one_name(self.properties.name, status)
        if self._is_renewed(status):
            refuse_mounted(self.properties.name, "replaced")

    def _is_replaced(self, differences: Sequence[Difference]) -> bool:
        """Return whether the path is created, replaced or removed, instead of only getting new attributes."""
        return differences[0].property in ("ensure", "content")

    def _raise_predictable_failures(self, actual: FileState, differences: Sequence[Difference]) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        ensure, kind, name = self.properties.ensure, actual.kind, self.properties.name
        if not self.properties.create:
            self._refuse_unmanaged_attributes(actual, differences)
            return
        if actual.found is not None and self._is_replaced(differences):
            refuse_mounted(name, "removed" if ensure == "absent" else "replaced")
        if ensure == "absent":
            self._refuse_owned_below(kind, "removed")
            # Removing an empty directory loses no data.
            if kind == "directory" and not self.properties.force and self._holds_anything():
                raise ResourceError(
                    f"{name} is a directory that is not empty",
                    code=ProblemCode.CHANGE_REFUSED,
                    hint="removing it requires force: true",
                )
            return
        expected = "directory" if ensure == "directory" else "present"
        if kind not in ("absent", expected) and not self.properties.force and not self._is_replaceable(kind):
            detail = "directory" if ensure == "directory" else "file"
            result = "file" if kind == "present" else kind
            raise ResourceError(
                f"{name} is a {result}",
                code=ProblemCode.CHANGE_REFUSED,
                hint=f"replacing it by a {detail} requires force: true",
            )
        if expected == "present":
            self._refuse_owned_below(kind, "replaced")
        if self._is_validated(differences):
            self._refuse_unvalidated_change(kind)
        self._wanted_attributes(None)  # raises for an unknown owner or group
        if ensure == "directory":
            require_makeable(os.path.dirname(name), self.context.system)
        else:
            require_parent(name, self.context)
            if kind == expected and actual.same_content and actual.found is not None:
                self._refuse_new_file(actual.found)
            else:
                self._desired_content()  # raises for an unreadable source or a failing template

    def _refuse_owned_below(self, kind: str, verb: str) -> None:
        """Raise if the path is a directory and another resource owns something below it."""
        if kind == "directory":
            name = self.properties.name
            refuse_owned_below(name, self.context, f"{self.type_name}#{name}", verb)

    def _refuse_unmanaged_attributes(self, actual: FileState, differences: Sequence[Difference]) -> None:
        name, status = self.properties.name, actual.found
        if self._is_replaced(differences):
            raise ResourceError(
                f"{name} is a {actual.kind}, expected {self._desired_kind(actual.kind)}, and create is false",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if status is not None:
            self._wanted_attributes(status)  # raises for an unknown owner or group
            self._refuse_new_file(status)

    def _refuse_unvalidated_change(self, kind: str) -> None:
        if kind == "directory":  # it would already be removed when validate rejects the new content
            name = self.properties.name
            raise ResourceError(
                f"{name} is a directory, which is not replaced where validate may refuse the file",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if (validation := self.properties.validation) is not None:
            validation.require_possible(self.context)

    def _is_replaceable(self, kind: str) -> bool:
        """Return whether replacing it loses no data. Links, FIFOs and sockets hold no data."""
        if self.properties.ensure == "directory":
            return False
        has_content = self._desired_content() is not None
        return kind in ("fifo", "socket") or (kind == "symbolic link" and has_content)

    def _holds_anything(self) -> bool:
        """Return whether the directory is not empty. In noop, ignore children that the run would have removed."""
        name, system = self.properties.name, self.context.system
        result = (child for child, _ in system.children(name))
        return any(not self.context.noop or system.exists(f"{name}/{child}") for child in result)

    def _remove(self, actual: FileState) -> None:
        if actual.found is None:
            return
        system = self.context.system
        if actual.kind == "directory" and self.properties.force:
            system.remove_tree(self.properties.name, actual.found)
        else:
            system.remove(self.properties.name, actual.found)

    # Loading

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        is_other = not _TINYCM_KEYS.isdisjoint(raw) or raw.get("ensure") in ("contents", "removed")
        if not is_other and not ("after" in raw and _is_other_reference(raw["after"])):
            return raw
        # 4 % of an idle apply, and few manifests use its names
        from puller.resources.files.tinycm import from_tinycm

        return from_tinycm(raw)

    @classmethod
    def check(cls, properties: FileProperties) -> Iterator[PropertyError]:
        ensure, name = properties.ensure, properties.name
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected=f"one of {', '.join(_ENSURE)}")
        if not is_plain(name) or name == "/":
            yield from check_managed(name)
        yield from check_content(properties)
        if (properties.validate, properties.validate_in_place, properties.provider) != _NOT_VALIDATED:
            yield from check_validation(properties)
        if ensure in _ENSURE and ensure != "absent":
            yield from check_attributes(properties)
        elif not properties.create:
            yield PropertyError("create", f"has no effect with ensure: {ensure}", because=["ensure"])

    @classmethod
    def claims(cls, properties: FileProperties) -> Iterator[Claim]:
        owner, group, mode = properties.owner, properties.group, properties.mode
        yield Claim(properties.name, _use(properties), owner=owner, group=group, mode=mode)

    @classmethod
    def joins_parts(cls, properties: FileProperties) -> bool:
        return properties.fragments and properties.ensure == "present"

    @classmethod
    def purges(cls, properties: FileProperties) -> Sequence[str]:
        return [properties.name] if properties.purge and properties.ensure == "directory" else ()

    @classmethod
    def subjects(cls, properties: FileProperties) -> Iterable[str]:
        below = properties.ensure == "directory" and (properties.recurse or properties.purge)
        return (f"{properties.name}/" if below else properties.name,)

    def touched(self, actual: FileState) -> Iterable[str]:
        """Return no paths below a directory that stays and changes only its attributes."""
        properties = self.properties
        stays = properties.ensure == actual.kind == "directory" and not (
            properties.recurse or properties.purge
        )
        return (properties.name,) if stays else super().touched(actual)

    @classmethod
    def lasting(cls, properties: FileProperties) -> FileProperties | None:
        """Return None for a remote source without a checksum, which would be downloaded again."""
        is_remote = properties.source is not None and is_url(properties.source)
        return None if is_remote and properties.checksum is None else properties

    @classmethod
    def fills(cls, properties: FileProperties) -> Sequence[str]:
        is_filled = properties.recurse and properties.source is not None
        return [properties.name] if is_filled and properties.ensure == "directory" else ()

    @classmethod
    def is_whole(cls, properties: FileProperties) -> bool:
        if properties.ensure == "absent":
            return True
        is_directory = properties.ensure == "directory"
        if not properties.create or not (properties.mode or FileMode.ANY).is_independent(
            directory=is_directory
        ):
            return False
        return is_directory or (bool(content_sources(properties)) and properties.ensure == "present")

    @classmethod
    def agree(cls, first: FileProperties, second: FileProperties) -> FileProperties:
        # 4 % of an idle apply, and few files are declared twice
        from puller.resources.files.tinycm import agree_on_file

        return agree_on_file(first, second)


def _use(properties: FileProperties) -> Use:
    if properties.ensure == "absent":
        return Use.ABSENT
    if properties.ensure == "directory":
        return Use.DIRECTORY
    # With ``exists`` the content is written once.
    return Use.WHOLE if content_sources(properties) and properties.ensure == "present" else Use.FILE


def _is_other_reference(after: object) -> bool:
    """Return whether ``after`` is in TinyCM's form: a string, or ``file::/etc/motd``."""
    return isinstance(after, str) or (isinstance(after, list) and any("::" in str(name) for name in after))
