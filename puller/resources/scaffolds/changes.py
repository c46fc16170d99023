"""Changes of a scaffold's target: post commands finish a rendered file, and each file is then written atomically.

* Nothing is written through a link or outside the target.
* Files are written before foreign files are removed, so a crash in between leaves extra files, not missing ones. Only
  obstacles are removed first.
* A directory is removed as soon as it is empty, so that after a crash its remaining files still lead to it.
* A post command (``gofmt -w {}``, ``visudo -cf {}``) runs on a private copy with the name of the file, and only if the
  file is going to change. The resulting content is written to the target. If a command fails, nothing is written.
* Commands run without a shell, with a time limit and the fixed environment of every command.
* A note on the file records the result for a rendered text, so the next run does not run the command again.
* Patterns for file names follow Go's ``filepath.Match`` (``docs/templates.md``): ``*``, ``?``, ``[a-z]``, ``[^a-z]``
  and escapes with a backslash. Wildcards match a leading dot.
"""

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from bundles.filesystem.trees import needing
from hiera.regex import starred
from puller.errors import ResourceError, reason
from puller.resources.content_sources import sha256
from puller.resources.paths import parents, printable
from puller.resources.scaffolds.scaffold_state import Ownership, Target, in_the_way
from puller.system.commands import Command, split_words
from puller.system.protocol import Attributes, System

# Patterns for file names.


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern as a regular expression for a whole name. Raises ``ValueError``."""
    pieces: list[str | None] = []
    position = 0
    while position < len(pattern):
        piece, position = _piece(pattern, position)
        pieces.append(piece)
    return re.compile(starred(pieces), re.DOTALL)


def _piece(pattern: str, position: int) -> tuple[str | None, int]:
    """Return the piece at a position as a regular expression, None for a star, and the position after it."""
    character = pattern[position]
    if character in "*?":
        return (None if character == "*" else "."), position + 1
    if character == "[":
        return _character_class(pattern, position + 1)
    literal, after = _character(pattern, position)
    return re.escape(literal), after


def _character(pattern: str, position: int) -> tuple[str, int]:
    if pattern.startswith("\\", position):
        position += 1
    if position == len(pattern):
        raise ValueError("ends in a backslash or within brackets")
    return pattern[position], position + 1


def _character_class(pattern: str, position: int) -> tuple[str, int]:
    negated = pattern.startswith("^", position)
    position += negated
    ranges: list[str] = []
    while not (pattern.startswith("]", position) and ranges):
        first, position = _of_class(pattern, position)
        last = first
        if pattern.startswith("-", position):
            last, position = _of_class(pattern, position + 1)
        if last < first:
            raise ValueError(f"has the range {first}-{last}, which is empty")
        ranges.append(f"{re.escape(first)}-{re.escape(last)}")
    return f"[{'^' * negated}{''.join(ranges)}]", position + 1


def _of_class(pattern: str, position: int) -> tuple[str, int]:
    if pattern.startswith(("]", "-"), position):
        raise ValueError(f"has {pattern[position]!r} in brackets where a character is wanted")
    return _character(pattern, position)


TIMEOUT = 300.0
"""Seconds for one command on one file."""

_PLACEHOLDER = "{}"
_NOTE = "scaffold"


class PostCommand(msgspec.Struct, frozen=True):
    """A command for the files whose name matches a pattern."""

    pattern: str
    text: str

    def check(self) -> None:
        """Raise ``ValueError`` if the pattern or the command is invalid."""
        if not self.pattern:
            raise ValueError("has an empty pattern")
        if not self.text:
            raise ValueError(f"has no command for {self.pattern!r}")
        try:
            compiled(self.pattern)
        except ValueError as error:
            raise ValueError(f"has the pattern {self.pattern!r}, which {error}") from None
        try:
            words = split_words(self.text)
        except ValueError as error:
            raise ValueError(f"has the command {self.text!r}, which {error}") from None
        if not words or not words[0]:
            raise ValueError(f"has the command {self.text!r}, which names no program")

    def is_for(self, path: str) -> bool:
        """Return whether the last component of a path matches."""
        return compiled(self.pattern).fullmatch(path.rpartition("/")[2]) is not None

    def arguments(self, path: str) -> list[str]:
        """Return the command line for a file. The path replaces ``{}``, or is appended."""
        program, *words = split_words(self.text)
        if not any(_PLACEHOLDER in word for word in words):
            return [program, *words, path]
        return [program, *(word.replace(_PLACEHOLDER, path) for word in words)]


class Draft(msgspec.Struct, frozen=True):
    """A file to write to the target: rendered, or the result of its post commands."""

    data: bytes
    mode: int
    """Permission bits. A command may change them."""


class PostCommands(msgspec.Struct, frozen=True):
    """All post commands of a scaffold, in order."""

    commands: tuple[PostCommand, ...]
    system: System
    timeout: float = TIMEOUT
    quiet: bool = False
    """Whether the output of commands may contain secrets."""

    def of(self, path: str) -> list[PostCommand]:
        """Return the commands for the file at a path."""
        return [command for command in self.commands if command.is_for(path)]

    def finish(self, drafts: Mapping[str, Draft]) -> dict[str, Draft]:
        """Run the commands and return the resulting drafts. Raises ``ResourceError`` if a command fails.

        1. Write a private copy with the name and the mode of the file.
        2. Run the commands on it, in order.
        3. Read the result, which must still be a file.
        """
        if not any(map(self.of, drafts)):
            return dict(drafts)

        with tempfile.TemporaryDirectory(prefix="puller-scaffold-") as directory:
            return {path: self._finished(path, draft, directory) for path, draft in drafts.items()}

    def _finished(self, path: str, draft: Draft, directory: str) -> Draft:
        if not (commands := self.of(path)):
            return draft
        # 1. A private copy
        copy = os.path.join(directory, path)
        os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
        with open(copy, "xb") as stream:
            os.fchmod(stream.fileno(), draft.mode)
            stream.write(draft.data)
        # 2. Run
        for command in commands:
            self._run(command, path, copy)
        # 3. Read back
        status = self.system.lstat(copy)
        if status is None or not stat.S_ISREG(status.st_mode):
            raise ResourceError(f"{printable(path)}: is no longer a file after its post commands")
        return Draft(self.system.read(copy), stat.S_IMODE(status.st_mode) & 0o777)

    def _run(self, command: PostCommand, path: str, copy: str) -> None:
        where = f"post command {command.text!r} on {printable(path)}"
        try:
            completed = self.system.execute(Command(command.arguments(copy), timeout=self.timeout))
        except OSError as error:
            raise ResourceError(f"{where} cannot be started: {reason(error)}") from error
        if completed.exit_code == 0:
            return
        printed = "" if self.quiet else completed.tail()
        raise ResourceError(
            f"{where}: {completed.outcome}, expected 0" + (f"; it printed:\n{printed}" if printed else "")
        )

    # The note on a file that a command has changed: digests of its rendered text with the commands, and of the result.

    def remember(self, path: str, rendered: bytes, draft: Draft, target: str) -> None:
        """Note on the file in ``target`` that it is the result of the commands. Raises ``ResourceError``."""
        place = f"{target}/{path}"
        try:
            self.system.set_note(place, _NOTE, self._note(path, rendered, [draft.data]), within=target)
        except OSError as error:
            detail = "its post commands have changed it, and that cannot be noted on this file system"
            raise ResourceError(
                f"{place}: {detail}, so every run would do it again: {reason(error)}"
            ) from error

    def made(self, path: str, rendered: bytes, target: str) -> bool:
        """Return whether the file in ``target`` is the recorded result of the commands for the rendered text."""
        place = f"{target}/{path}"
        if not self.of(path) or (note := self.system.note(place, _NOTE)) is None:
            return False
        return note == self._note(path, rendered, self.system.read_chunks(place))

    def _note(self, path: str, rendered: bytes, result: Iterable[bytes]) -> str:
        made_from = b"\0".join([*(command.text.encode() for command in self.of(path)), rendered])
        return f"{sha256([made_from])} {sha256(result)}"


def place(
    system: System,
    target: Target,
    ownership: Ownership,
    files: Mapping[str, Draft],
    attributes: Mapping[str, Attributes],
) -> None:
    """Write ``files``, set the ``attributes`` of other files, and purge the foreign files in ``target``.

    1. Purge obstacles.
    2. Make the directories, parents first.
    3. Write the files.
    4. Set the attributes of files whose content stays.
    5. Purge the other foreign files, so that a crash before leaves extra files, not missing ones.
    """
    # 1. Purge obstacles
    blocking = set(in_the_way(target))
    _purge(system, target, sorted(blocking))
    # 2. Directories
    _make_directories(system, target, ownership)
    # 3. Files
    for path, draft in files.items():
        result = target.files[path]
        if path in blocking or _is_directory(result):
            result = None  # removed in step 1
        desired = ownership.of_draft(result, draft.mode)
        with needing(len(draft.data)):
            system.replace_file(target.path(path), [draft.data], desired, result, within=target.root)
    # 4. Attributes
    for path, desired in attributes.items():
        if (result := target.files[path]) is not None:
            system.set_attributes(target.path(path), desired, result, within=target.root)
    # 5. Purge the rest
    # In the order of paths, which visits each directory of a deep tree once.
    _purge(system, target, [path for path in target.foreign.things if path not in blocking])


def clear(system: System, target: Target, directories: Iterable[str], *, keep_root: bool) -> None:
    """Remove the scaffold's files, then its ``directories`` and the target if they are empty."""
    # Innermost directories first, each right after its files: see the second rule at the top.
    found_in: dict[str, list[str]] = {}
    for path, found in target.files.items():
        if found is not None and not stat.S_ISDIR(found.st_mode):
            found_in.setdefault(path.rpartition("/")[0], []).append(path)
    with system.removing(target.root):
        for directory in (*reversed(_real(system, target, directories)), ""):
            for path in found_in.get(directory, ()):
                _remove(system, target, path, target.files[path])
            if directory:
                _remove_if_empty(system, target.path(directory), within=target.root)
    if not keep_root:
        _remove_if_empty(system, target.root)


def _real(system: System, target: Target, directories: Iterable[str]) -> list[str]:
    """Return the paths that are directories of the target and not links, parents first."""
    real = {"": None}
    for directory in sorted(directories, key=lambda path: (path.count("/"), path)):
        if directory.rpartition("/")[0] in real and _is_directory(system.lstat(target.path(directory))):
            real[directory] = None
    return [*real][1:]


def _make_directories(system: System, target: Target, ownership: Ownership) -> None:
    if target.itself is None:
        system.make_directory(target.root, ownership.of_directory())
    for path, found in target.directories.items():
        if not _is_directory(found):
            system.make_directory(target.path(path), ownership.of_directory(), within=target.root)


def _purge(system: System, target: Target, items: Iterable[str]) -> None:
    """Remove foreign files, then foreign directories that become empty."""
    emptied: set[str] = set()
    with system.removing(target.root):
        for path in items:
            _remove(system, target, path, target.foreign.things[path])
            for above in parents(path):
                if above in emptied:
                    break
                emptied.add(above)
        for directory in target.foreign.directories:
            if directory in emptied:
                _remove_if_empty(system, target.path(directory), within=target.root)


def _remove(system: System, target: Target, path: str, status: os.stat_result | None) -> None:
    if status is not None:
        with contextlib.suppress(FileNotFoundError):  # another process removed it first
            system.remove(target.path(path), status, within=target.root)


def _remove_if_empty(system: System, path: str, within: str = "") -> None:
    status = system.lstat(path)
    if status is None or not _is_directory(status) or system.children(path):
        return
    try:
        system.remove(path, status, within=within)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):  # filled meanwhile, or a mount point
            raise


def _is_directory(status: os.stat_result | None) -> bool:
    return status is not None and stat.S_ISDIR(status.st_mode)
