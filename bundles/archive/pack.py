"""Creation of archives from directories.

* The same files give the same bytes, regardless of their order on disk, owners, dates and permissions, and of the
  umask, user and machine. `canonical_tar` describes the role of zlib.
* A file that a bundle cannot contain is an error that names it. Only files that `is_left_out` lists and empty
  directories are omitted silently (git omits empty directories, too).
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
from bundles.archive.canonical_tar import END_OF_ARCHIVE, description_header, file_header, gzipped, padding
from bundles.errors import FormatError, PublishError
from bundles.filesystem.atomic import replace_file
from bundles.filesystem.safe_paths import open_parent, require_replaceable
from bundles.filesystem.trees import Counted, kind_of, open_regular, pieces_of, walk
from bundles.format.description import BundleDescription, FileEntry, FileMode
from bundles.format.member_paths import MOST_ENTRIES, MemberPath, shown
from bundles.format.size_limits import LIMITS, Limits
from foundation.problems import ProblemCode


@dataclass(frozen=True, slots=True)
class BuiltBundle:
    """A finished archive at ``path``, with its ``size`` in bytes and its ``sha256``."""

    path: Path
    size: int
    sha256: str
    description: BundleDescription


Libraries = Mapping[str, Path]
"""Directories that are packed into the bundle, by their path in it: ``libraries/common``."""
NO_LIBRARIES: Libraries = MappingProxyType({})
SCHEMA_FILE = ".manifest.schema.json"
"""Schema of a manifest for editors."""
LINT_FILE = ".puller-lint.yaml"
"""Settings of the author for lint. Hosts do not need them."""


@dataclass(frozen=True, slots=True)
class DescribedBundle:
    """A bundle that is described and not yet packed. ``roots`` are the directories of its files."""

    description: BundleDescription
    roots: tuple[Path, ...]
    members: Mapping[MemberPath, Path]
    limits: Limits = LIMITS

    def pack(self, output: Path) -> BuiltBundle:
        """Pack the bundle into ``output``. Raises ``PublishError``, and an existing file then stays."""
        for root in self.roots:
            # The archive would contain a part of itself.
            if output.resolve().is_relative_to(root.resolve()):
                raise PublishError(
                    str(output),
                    f"is inside {str(root)!r}, the directory to pack",
                    code=ProblemCode.INVALID_COMMAND,
                )
        # To save memory, the files are read twice: to describe them, and to pack them.
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
    """Return the bundle of ``directory`` and ``libraries``. Raises ``PublishError``."""
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
    """Pack ``directory`` and ``libraries`` into ``output``. Raises like `DescribedBundle.pack` and `describe`."""
    return describe(directory, name=name, version=version, libraries=libraries, limits=limits).pack(output)


def _members(directory: Path, libraries: Libraries) -> dict[MemberPath, Path]:
    """Return every file of the bundle by its path there. Raises ``FormatError`` and ``OSError``."""
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
                    f"is a file of the bundle and also the place of the library {libraries[path.text]}",
                    code=ProblemCode.UNPACKABLE_FILE,
                )
            if stat.S_ISREG(status.st_mode):
                members[path] = root / text
            # Before any file is read: the directory may be the root of the machine by mistake.
            if len(members) > MOST_ENTRIES:
                raise FormatError(
                    shown(str(root)), f"more than {MOST_ENTRIES} files", code=ProblemCode.UNPACKABLE_FILE
                )
    return members


def is_left_out(name: str) -> bool:
    """Return whether to omit a name: version control, caches, files of editors, settings of lint.

    ``name`` is one component of a path.
    """
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
    """Read the file again. Raise ``PublishError`` if it no longer matches its description."""
    with open_regular(path) as stream:
        contents = Counted(pieces_of(stream))
        for piece in contents:
            if contents.size > entry.size:  # a log may grow as fast as it is read
                break
            yield piece
            progress.advance(len(piece))
        file_entry = FileEntry(_mode(stream), contents.sha256, contents.size)
    if file_entry != entry:
        raise PublishError(
            str(path),
            f"changed while it was packed, from {entry} to {file_entry}",
            code=ProblemCode.CHANGED_MEANWHILE,
        )


def _accepted(archive: Counted, description: BundleDescription, limits: Limits) -> Iterator[bytes]:
    """Yield ``archive``, and check the limits of the unpacker after the last piece, before the file gets its name."""
    yield from archive
    limits.check_archive(archive.size)
    limits.check_ratio(description, archive.size)


@contextmanager
def _explained(place: Path, failure: str, code: ProblemCode) -> Iterator[None]:
    """Name the place in errors. ``failure`` and ``code`` are used for system errors."""
    try:
        yield
    except FormatError as error:
        where = f"{place}: {error.where}".removesuffix(": ")
        raise error.under(where, PublishError, error.code) from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise PublishError(str(place), f"{failure}: {reason}", code=code) from error
