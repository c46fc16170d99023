"""Editing of an encrypted file in an editor.

* The plain text is in a private directory in memory (tmpfs). A separate process removes the directory when this process
  ends, also if it is killed. During the edit, no process writes a core dump.
* A text that cannot be encrypted is kept: encrypted for the author's own key, in the state directory of the author. The
  next edit of the file resumes it.
* A file that another process changed during the edit is not overwritten.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from bundles.filesystem.atomic import read_limited
from bundles.filesystem.safe_paths import open_output_directory, write_output
from foundation.problems import Location, ProblemCode
from hiera.errors import DocumentError, EnvelopeError, HieraError
from hiera.sops import MARK
from hiera.sops.identities import Identities
from hiera.sops.writing import Opened, Readers, decrypt, encrypt, find_metadata
from puller.errors import SourceError, UsageError, file_problem

_SIZE_LIMIT: Final = 64 * 1024 * 1024
_GUARD: Final = "trap '' HUP INT QUIT TERM; cat > /dev/null; rm -rf -- \"$1\""
"""Waits for the end of its standard input, which is the end of this process, and removes the directory."""
_IN_MEMORY: Final = ("tmpfs", "ramfs")


class Edited(StrEnum):
    """The result of an edit."""

    SAVED = "saved"
    UNCHANGED = "unchanged"
    DISCARDED = "discarded"
    """The editor returned an error before the text changed."""


class Edit(msgspec.Struct, frozen=True):
    """An edit of one file."""

    path: str
    identities: Identities
    new_readers: Callable[[], Readers]
    """Returns the readers of a new file. Raises if no rule selects the file."""
    editor: str
    drafts: str
    """The directory for texts that could not be saved."""
    warn: Callable[[str], None]
    ask_again: Callable[[HieraError], bool]
    """Prints why a text cannot be saved. Returns whether the author edits it again."""

    def run(self) -> Edited:
        """Edit the file. Raises ``HieraError``, ``SourceError`` and ``UsageError``, and keeps the author's text."""
        target = os.path.realpath(self.path)
        before = read_file(target) if os.path.lexists(target) else None
        opened, readers = self._open(before)
        start = (opened.text if opened is not None else "").encode()
        draft = self._load_draft()
        with private_file(os.path.basename(target), start if draft is None else draft, self.warn) as path:
            while True:
                status = self._run_editor(path)
                data = path.read_bytes()
                if data != start:
                    self._save_draft(data)
                if status != 0:
                    if data == start:
                        return Edited.DISCARDED
                    raise UsageError(f"the editor failed with status {status}", hint=self._resume)
                if data == start:
                    self._forget_draft()
                    return Edited.UNCHANGED
                try:
                    result = encrypt(_decoded(data, self.path), self.path, readers, opened)
                except HieraError as error:
                    if self.ask_again(error):
                        continue
                    raise
                if (read_file(target) if os.path.lexists(target) else None) != before:
                    raise SourceError(f"{self.path}: was changed during the edit", hint=self._resume)
                write_text(target, result)
                self._forget_draft()
                return Edited.SAVED

    @property
    def _resume(self) -> str:
        return "the text is kept, encrypted for your own key: edit the file again to resume"

    def _open(self, before: bytes | None) -> tuple[Opened | None, Readers]:
        if before is None:
            if not list(self.identities.recipients()):
                files = " and ".join(self.identities.files)
                raise EnvelopeError("", f"you have no key: {files}", hint="create one with `age-keygen`")
            return None, self.new_readers()
        text = _decoded(before, self.path)
        if find_metadata(text, self.path) is None and MARK not in text:
            hint = f"`puller secrets encrypt {shlex.quote(self.path)}` encrypts it"
            raise UsageError(f"{self.path}: is not encrypted", hint=hint)
        opened = decrypt(text, self.path, self.identities)
        metadata = opened.metadata
        recipients = {recipient: metadata.names.get(recipient, "") for recipient in metadata.sealed}
        return opened, Readers(recipients, metadata.rule, metadata.mac_only_encrypted)

    def _run_editor(self, path: Path) -> int:
        """Return the exit status of the editor. The terminal's signals are for the editor alone."""
        try:
            words = shlex.split(self.editor)
        except ValueError as error:
            raise UsageError(f"EDITOR is {self.editor!r}: {error}") from None
        ignored = {
            number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)
        }
        try:
            return subprocess.run([*words, str(path)], check=False, restore_signals=True).returncode
        except OSError as error:
            raise UsageError(
                file_problem(error, "cannot be executed", where=words[0] if words else "EDITOR")
            ) from None
        finally:
            for number, handler in ignored.items():
                signal.signal(number, handler)

    # Drafts.

    @property
    def _draft(self) -> str:
        name = sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:32]
        return os.path.join(self.drafts, f"{name}.age")

    def _load_draft(self) -> bytes | None:
        try:
            data = self.identities.unseal(read_file(self._draft))
        except FileNotFoundError:
            return None
        if data is None:
            raise UsageError(
                f"{self._draft}: is a text of an earlier edit for another key",
                hint="use --identity with this key, or delete the file",
            )
        self.warn(f"{self.path}: resuming the text of an earlier edit, which was not saved")
        return data

    def _save_draft(self, data: bytes) -> None:
        sealed = self.identities.seal(data)
        with open_output_directory(os.path.dirname(self._draft), make=True, mode=0o700):
            write_output(self._draft, sealed, mode=0o600)

    def _forget_draft(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._draft)


@contextlib.contextmanager
def private_file(name: str, data: bytes, warn: Callable[[str], None]) -> Iterator[Path]:
    """Yield a file in a new private directory in memory, and remove the directory at the end."""
    parent = _place_in_memory()
    if parent is None:
        warn("no directory in memory was found, so the plain text is on a disk during the edit")
    directory = tempfile.mkdtemp(prefix="puller-edit-", dir=parent)
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "sh", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # a core dump of the editor would have the plain text
    try:
        path = Path(directory, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        yield path
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        shutil.rmtree(directory, ignore_errors=True)
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()


def _place_in_memory() -> str | None:
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}", "/dev/shm"):  # noqa: S108
        if os.path.isabs(place) and os.access(place, os.W_OK | os.X_OK) and _type_of(place) in _IN_MEMORY:
            return place
    return None


def _type_of(path: str) -> str:
    """Return the type of the file system of a directory, empty if it is unknown."""
    kind, longest, real = "", -1, os.path.realpath(path)
    with (
        contextlib.suppress(OSError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts,
    ):
        for line in mounts:
            before, _, after = line.partition(" - ")
            point = before.split()[4]
            is_above = real == point or real.startswith(f"{point.rstrip('/')}/")
            if is_above and len(point) >= longest and after:
                kind, longest = after.split()[0], len(point)
    return kind


# Files.


def read_file(path: str) -> bytes:
    """Return the content of a file. Raises ``SourceError``, and ``FileNotFoundError`` for a missing file."""
    try:
        return read_limited(path, _SIZE_LIMIT)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(file_problem(error, "cannot be read", where=path)) from error
    except ValueError as error:
        raise SourceError(str(error)) from error


def read_encrypted(path: str) -> str:
    """Return the text of a file. Raises ``SourceError`` and ``DocumentError``."""
    try:
        return _decoded(read_file(path), path)
    except FileNotFoundError as error:
        raise SourceError(file_problem(error, "cannot be read", where=path)) from error


def write_text(path: str, text: str) -> None:
    """Write a file atomically, with the mode of the old file. Raises ``SourceError``."""
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o644
        write_output(target, text.encode(), mode=mode)
    except OSError as error:
        raise SourceError(
            file_problem(error, "cannot be written", where=path), code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(Location(source, line), "is not UTF-8 text") from None
