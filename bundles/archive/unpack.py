"""From an archive to a directory.

* Nothing is created, changed or touched outside the directory that is being filled, whatever the archive
  holds.
* The destination exists once it is complete, checked against ``bundle.json`` and on the disk; until then it
  does not.
* What is unpacked is read-only, and is never written to again.

``tarfile`` is not used: its filters have been escaped several times, and Python 3.11.2 has none.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bundles.archive.new_tree import FILE_MODE, NewTree, fill_and_place
from bundles.archive.reader import BundleReader
from bundles.errors import FormatError, SignatureError, StoreError, UnpackError
from bundles.filesystem.free_space import check_free_space
from bundles.filesystem.trees import Counted, open_regular, pieces_of
from bundles.format.description import BundleDescription, FileEntry
from bundles.format.identity import DESCRIPTION
from bundles.format.limits import LIMITS, Limits
from bundles.format.paths import MemberPath
from foundation.problems import ProblemCode

Members = Iterator[tuple[FileEntry, Iterator[bytes]]]
"""Files of a bundle, and the contents of each in pieces, to be read before the next file."""


def inspect(archive: Path, *, limits: Limits = LIMITS) -> BundleDescription:
    """Check an archive as thoroughly as ``unpack`` does, and write nothing; raises what ``unpack`` raises."""
    with _explained(archive, "cannot be read"), _opened(archive, None, limits, lambda: None) as reader:
        for path in reader.description.files:
            for _ in reader.contents(path):
                pass
        reader.finish()
        return reader.description


@contextmanager
def read_members(archive: Path, *, limits: Limits = LIMITS) -> Iterator[tuple[BundleDescription, Members]]:
    """The description of an archive that was checked, and its files with their contents, to be read in that order.

    Raises ``OSError``, and ``FormatError`` all the same.
    """
    with _opened(archive, None, limits, lambda: None) as reader:
        files = reader.description.files.items()
        yield reader.description, ((entry, reader.contents(path)) for path, entry in files)


def read_description(archive: Path, sha256: str, *, limits: Limits = LIMITS) -> BundleDescription:
    """The description of an archive that was checked before it got this SHA-256; raises what ``unpack`` raises."""
    with _explained(archive, "cannot be read"), _opened(archive, sha256, limits, lambda: None) as reader:
        return reader.description


def unpack(
    archive: Path,
    destination: Path,
    *,
    name: str | None = None,
    version: str | None = None,
    sha256: str | None = None,
    limits: Limits = LIMITS,
    check: Callable[[], None] = lambda: None,
) -> BundleDescription:
    """Unpack ``archive`` into ``destination``, which must not exist; its parent must.

    ``name``, ``version`` and ``sha256`` are what the signed index says; ``None`` takes what comes. Raises
    ``SignatureError`` when the file has another SHA-256, before anything in it is looked at; ``UnpackError``
    when the archive is not what it should be; ``StoreError`` when this machine cannot read or write; what ``check``
    raises, which is asked all the time. Nothing is left then.

    1. Open the archive, once: its SHA-256 is the signed one, before a byte of it is interpreted.
    2. Read ``bundle.json``, its first member: within the limits, and of the name and version that were asked for.
    3. Is there space for all that it lists?
    4. Make a directory beside the destination, under a hidden name and for its owner alone.
    5. Write each file into it, in the order of ``bundle.json``; its header, size and SHA-256 are as promised there.
    6. The archive ends here. Close all directories to writing, and wait until everything is on the disk.
    7. Rename the directory to the destination, and bring that to the disk, too.
    """
    with (
        _explained(archive, f"cannot be unpacked into {destination}"),
        _opened(archive, sha256, limits, check) as reader,  # 1.
    ):
        # 2.
        description = reader.description
        check_identity(description, name, version)
        # 3. Better to say so now than to fill the disk for everybody else first.
        check_space(description, destination)
        # 4. to 7.
        fill_and_place(destination, lambda tree: _fill(tree, reader, check))
        return description


@contextmanager
def _explained(archive: Path, failure: str) -> Iterator[None]:
    try:
        yield
    except FormatError as error:
        raise error.under(f"{archive}: {error.where}".removesuffix(": "), UnpackError) from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise StoreError(str(archive), f"{failure}: {reason}") from error


@contextmanager
def _opened(
    archive: Path, sha256: str | None, limits: Limits, check: Callable[[], None]
) -> Iterator[BundleReader]:
    with open_regular(archive, follow=True) as stream:
        if sha256 is not None:
            # The same open file is read again below: one that is renamed into its place is never looked at.
            found = Counted(asking(check, pieces_of(stream))).exhaust().sha256
            if found != sha256:
                what = f"sha256 is {found}, the signed index says {sha256}"
                raise SignatureError(str(archive), what, code=ProblemCode.CHECKSUM_MISMATCH)
            stream.seek(0)
        yield BundleReader(stream, os.fstat(stream.fileno()).st_size, limits)


def asking(check: Callable[[], None], pieces: Iterator[bytes]) -> Iterator[bytes]:
    """``pieces`` with a question before each; raises what ``check`` raises."""
    for piece in pieces:
        check()
        yield piece


def check_space(description: BundleDescription, destination: Path) -> None:
    """Raises ``StoreError`` when there is no space for all that a bundle lists, and ``OSError``."""
    files = len(description.files) + len(description.directories) + 2
    check_free_space(destination, destination.parent, size=description.size, files=files)


def check_identity(description: BundleDescription, name: str | None, version: str | None) -> None:
    """Raises ``FormatError`` for a bundle of another name or version than was asked for."""
    for field, found, wanted in (("name", description.name, name), ("version", description.version, version)):
        if wanted is not None and found != wanted:
            raise FormatError(f"{DESCRIPTION}: {field}", f"is {found!r}", expected=f"{wanted!r}")


def _fill(tree: NewTree, reader: BundleReader, check: Callable[[], None]) -> None:
    # 5.
    tree.write(MemberPath(DESCRIPTION), iter([reader.description.to_bytes()]), FILE_MODE)
    for path, entry in reader.description.files.items():
        check()
        tree.write(path, asking(check, reader.contents(path)), entry.mode.unpacked)
    # 6.
    reader.finish()
