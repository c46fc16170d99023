"""From a directory to an archive.

* The same files give the same bytes, whatever their order on the disk, their owners, dates and permissions,
  and the umask, user and machine of the build. `canonical_tar` says what that means for zlib.
* What cannot be in a bundle is an error that names it; nothing is left out silently but what `is_left_out`
  lists, and empty directories, which a bundle does not have (no more than git does).
* The archive appears under its name when it is complete, and only if the unpacker would accept it.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from bundles import progress
from bundles.archive.canonical_tar import (
    END_OF_ARCHIVE,
    description_header,
    file_header,
    padding,
)
from bundles.archive.compression import gzipped
from bundles.errors import FormatError, PublishError
from bundles.filesystem.atomic import replace_file
from bundles.filesystem.output import open_parent, require_replaceable
from bundles.filesystem.trees import Counted, kind_of, open_regular, pieces_of, walk
from bundles.format.description import BundleDescription, FileEntry, FileMode
from bundles.format.member_paths import MOST_ENTRIES, MemberPath, shown
from bundles.format.size_limits import LIMITS, Limits
from foundation.problems import ProblemCode


@dataclass(frozen=True, slots=True)
class BuiltBundle:
    """An archive that was written: ``size`` in bytes and ``sha256`` are those of the file at ``path``."""

    path: Path
    size: int
    sha256: str
    description: BundleDescription


Libraries = Mapping[str, Path]
"""Directories that are packed with that of the bundle, by where they stand in it: ``libraries/common``."""
NO_LIBRARIES: Libraries = MappingProxyType({})
SCHEMA_FILE = ".manifest.schema.json"
"""The schema that editors check a manifest against."""
LINT_FILE = ".puller-lint.yaml"
"""What the author of a bundle has told its checks; hosts have no use for it."""


@dataclass(frozen=True, slots=True)
class DescribedBundle:
    """A bundle whose files were read, and that was not packed yet; ``roots`` are the directories that they are in."""

    description: BundleDescription
    roots: tuple[Path, ...]
    members: Mapping[MemberPath, Path]
    limits: Limits = LIMITS

    def pack(self, output: Path) -> BuiltBundle:
        """Pack it into ``output``; raises ``PublishError``, and a file that was there before stays."""
        for root in self.roots:
            # The archive would hold what was written of itself so far.
            if output.resolve().is_relative_to(root.resolve()):
                raise PublishError(
                    str(output),
                    f"lies inside {str(root)!r}, which is to be packed",
                    code=ProblemCode.INVALID_COMMAND,
                )
        # Nothing is held in memory: the files are read once to describe them, and once more to pack them.
        archive = Counted(gzipped(_tar(self.members, self.description)))
        name, size = f"{self.description.name} {self.description.version}", self.description.size
        with (
            progress.transfer(name, size, doing="packing", done="packed"),
            _explained(output, "cannot be written", ProblemCode.UNWRITABLE_OUTPUT),
            open_parent(output) as (parent, name_of_file),
        ):
            require_replaceable(parent, name_of_file)
            pieces = _accepted(archive, self.description, self.limits)
            replace_file(parent, name_of_file, pieces, mode=0o644)
        return BuiltBundle(output, archive.size, archive.sha256, self.description)


def describe(
    directory: Path,
    *,
    name: str,
    version: str,
    libraries: Libraries = NO_LIBRARIES,
    limits: Limits = LIMITS,
) -> DescribedBundle:
    """The bundle of ``directory`` and ``libraries``; raises ``PublishError``."""
    with _explained(directory, "cannot be read", ProblemCode.UNREADABLE_SOURCE):
        members = _members(directory, libraries)
        description = BundleDescription(name, version, {path: _entry(file) for path, file in members.items()})
        limits.check_files(description)
        limits.check_description(len(description.to_bytes()))
    return DescribedBundle(description, (directory, *libraries.values()), members, limits)


def build_bundle(
    directory: Path,
    output: Path,
    *,
    name: str,
    version: str,
    libraries: Libraries = NO_LIBRARIES,
    limits: Limits = LIMITS,
) -> BuiltBundle:
    """Pack ``directory`` and ``libraries`` into ``output``; raises as `DescribedBundle.pack`, and `describe`."""
    return describe(directory, name=name, version=version, libraries=libraries, limits=limits).pack(output)


def _members(directory: Path, libraries: Libraries) -> dict[MemberPath, Path]:
    """Every file that belongs into the bundle, by its path there; raises ``FormatError`` and ``OSError``."""
    members: dict[MemberPath, Path] = {}
    for prefix, root in {"": directory, **libraries}.items():
        for text, status in walk(root, is_left_out):
            path = MemberPath.parse(f"{prefix}/{text}" if prefix else text)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                where = shown(str(root / text) if prefix else text)
                raise FormatError(
                    where,
                    f"is {kind_of(status.st_mode)}",
                    code=ProblemCode.UNPACKABLE_FILE,
                    expected="a regular file or a directory",
                )
            if path.text in libraries:
                raise FormatError(
                    shown(path.text),
                    f"is in the bundle, and so would be {libraries[path.text]}",
                    code=ProblemCode.UNPACKABLE_FILE,
                )
            if stat.S_ISREG(status.st_mode):
                members[path] = root / text
            # Before any of them is read: a path may have led to a whole machine.
            if len(members) > MOST_ENTRIES:
                raise FormatError(
                    shown(str(root)), f"more than {MOST_ENTRIES} files", code=ProblemCode.UNPACKABLE_FILE
                )
    return members


def is_left_out(name: str) -> bool:
    """Version control, caches, what editors need and leave behind, what lint is told; ``name`` is one component."""
    return (
        name in (".git", ".hg", ".svn", "__pycache__", LINT_FILE, SCHEMA_FILE)
        or name.endswith("~")
        or (name.startswith(".") and name.endswith(".swp"))
    )


def _entry(path: Path) -> FileEntry:
    with open_regular(path) as stream:
        contents = Counted(pieces_of(stream)).exhaust()
        return FileEntry(_mode(stream), contents.sha256, contents.size)


def _mode(stream: BinaryIO) -> FileMode:
    return FileMode.of(os.fstat(stream.fileno()).st_mode)


def _tar(members: Mapping[MemberPath, Path], description: BundleDescription) -> Iterator[bytes]:
    encoded = description.to_bytes()
    yield description_header(len(encoded))
    yield encoded
    yield padding(len(encoded))
    for path, entry in description.files.items():
        yield file_header(path, entry)
        yield from _contents(members[path], entry)
        yield padding(entry.size)
    yield END_OF_ARCHIVE


def _contents(path: Path, entry: FileEntry) -> Iterator[bytes]:
    """The file once more: if it is no longer what was described, the archive would contradict itself."""
    with open_regular(path) as stream:
        contents = Counted(pieces_of(stream))
        for piece in contents:
            if contents.size > entry.size:  # a log that grows as fast as it is read would never end
                break
            yield piece
            progress.advance(len(piece))
        found = FileEntry(_mode(stream), contents.sha256, contents.size)
    if found != entry:
        raise PublishError(
            str(path),
            f"changed while it was packed, from {entry} to {found}",
            code=ProblemCode.CHANGED_MEANWHILE,
        )


def _accepted(archive: Counted, description: BundleDescription, limits: Limits) -> Iterator[bytes]:
    """``archive``, and after its last piece, before it gets its name: would the unpacker take it?"""
    yield from archive
    limits.check_archive(archive.size)
    limits.check_ratio(description, archive.size)


@contextmanager
def _explained(place: Path, failure: str, code: ProblemCode) -> Iterator[None]:
    """Name the place in errors. ``failure`` and ``code`` are those of an error of the system."""
    try:
        yield
    except FormatError as error:
        where = f"{place}: {error.where}".removesuffix(": ")
        raise error.under(where, PublishError, error.code) from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise PublishError(str(place), f"{failure}: {reason}", code=code) from error
