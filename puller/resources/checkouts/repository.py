"""Repositories, read from their files: without a process, and without trusting them.

* They belong to whoever the working tree belongs to. Nothing is believed but names of commits; a link that leads
  elsewhere is not followed, and a FIFO is not opened.
* Of one that is root's, all that says what git runs must be root's alone, because git runs as root there.
"""

import os
import re
import stat
from functools import cached_property
from typing import NamedTuple

import msgspec

from puller.errors import ResourceError
from puller.system.protocol import Attributes, System

_LARGEST = 64 * 1024 * 1024  # bytes
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_REFTABLE = re.compile(r"\s*refstorage\s*=\s*reftable", re.IGNORECASE)
# Quoted, plain, comment; a quote without an end is one, too, or each would be searched for its end anew.
_PARTS = re.compile(r'"((?:[^"\\]|\\.)*)"?|([^"#;]+)|([#;].*)')
_LOCKS = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock")


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """The last work of Puller in a repository, kept there: it is lost with it, and says nothing of another one."""

    revision: str = ""
    """What was checked out last, as it was declared."""
    object: str = ""
    """What the remote had by that name: a commit, or a tag."""
    commit: str = ""
    """What it came to."""
    begun: str = ""
    """What a git that may have been killed was about to check out; empty when it has ended."""

    @property
    def known(self) -> frozenset[str]:
        """The commits that were not made by hand here."""
        return frozenset({self.commit, self.begun}) - {""}


class Named(NamedTuple):
    """The meaning of a name in a repository."""

    reference: str
    """In full; empty when there is no such ref."""
    object: str
    """A commit, or a tag; empty when the name means nothing."""
    commit: str
    """Empty when only git can tell."""


class Repository:
    """The repository of the working tree at ``path``, which ``found`` is the ``lstat`` of.

    Methods raise ``OSError``, and ``ResourceError`` for one that is not as git makes it.
    """

    def __init__(self, path: str, found: os.stat_result, system: System) -> None:
        self.path = path
        self._system = system
        self._git = f"{path}/.git"
        self._found = found

    def is_there(self) -> bool:
        """Whether there is one. Raises ``ResourceError`` for one that somebody else may have a hand in."""
        git = self._system.lstat(self._git)
        if git is None:
            return False
        if not stat.S_ISDIR(git.st_mode):
            raise ResourceError(f"{self._git} is not a directory, as that of a worktree or submodule is not")
        for path, found in ((self._git, git), (f"{self._git}/config", self._lstat("config"))):
            self._require_own(path, found)
        return True

    def head(self) -> str:
        """The commit that is checked out; empty when there is none yet."""
        text = self._text("HEAD").strip()
        name = text.removeprefix("ref: ")
        return _id(text) if name == text else self._ref(name)

    def named(self, revision: str) -> Named:
        """The meaning of a revision here: a tag, a branch of the remote, or what was checked out by that name."""
        record = self.record
        if found := self._ref(tag := f"refs/tags/{revision}"):
            packed, peeled = self._packed.get(tag, ("", ""))
            commit = peeled if packed == found else ""
            return Named(tag, found, commit or (record.commit if record.object == found else ""))
        if found := self._ref(branch := f"refs/remotes/origin/{revision}"):
            return Named(branch, found, found)
        return Named("", record.commit, "") if record.revision == revision else Named("", "", "")

    def is_twofold(self, revision: str) -> bool:
        """Whether a revision is the name of a tag and of a branch of the remote."""
        return all(self._ref(f"{kind}/{revision}") for kind in ("refs/tags", "refs/remotes/origin"))

    def url(self) -> str:
        """Where it was cloned from, as its configuration has it; empty when that does not say."""
        section, found = None, ""
        for line in self._config.splitlines():
            if match := _SECTION.match(line):
                section, line = (match[1].lower(), match[2]), line[match.end() :]
            key, mark, value = line.partition("=")
            if mark and section == ("remote", "origin") and key.strip().lower() == "url":
                found = found or _unquoted(value)
        return found

    def fetched(self) -> str:
        """The id that the last fetch has brought: of a commit, or of a tag."""
        return _id(self._text("FETCH_HEAD")[:64].split("\t")[0])

    @property
    def is_shallow(self) -> bool:
        """Whether only a part of its history is there."""
        return self._lstat("shallow") is not None

    @cached_property
    def record(self) -> Record:
        """The record that Puller keeps here; one that is not understood is none."""
        try:
            record = msgspec.json.decode(self._text("puller"), type=Record)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return Record()
        # It is in the tree of its owner: what is no id would be an option to git.
        ids = {name: _id(getattr(record, name)) for name in ("object", "commit", "begun")}
        return msgspec.structs.replace(record, **ids)

    def save(self, record: Record) -> None:
        """Keep what Puller has done, or is about to do."""
        path, found = f"{self._git}/puller", self._lstat("puller")
        attributes = Attributes(self._found.st_uid, self._found.st_gid, 0o644)
        self._system.replace_file(path, [msgspec.json.encode(record)], attributes, found)
        self.__dict__.pop("record", None)

    def branch(self) -> str:
        """The branch of this machine that is checked out, in full; empty when none is."""
        name = self._text("HEAD").strip().removeprefix("ref: ")
        return name if name.startswith("refs/heads/") and ".." not in name else ""

    def remove(self, name: str) -> None:
        """Remove one of its files, if it is there."""
        if name and (found := self._lstat(name)) is not None:
            self._system.remove(f"{self._git}/{name}", found)

    def remove_locks(self) -> None:
        """Remove the locks of a git that was killed."""
        for name in _LOCKS:
            self.remove(name)

    def _require_own(self, path: str, found: os.stat_result | None) -> None:
        """Raise ``ResourceError`` for a part of a repository that somebody else than its owner may change."""
        if found is None:
            raise ResourceError(f"{path} is missing")
        if found.st_uid != self._found.st_uid:
            who = f"belongs to user {found.st_uid}, and {self.path} to user {self._found.st_uid}"
            raise ResourceError(f"{path} {who}: what it says may be somebody else's")
        if found.st_uid == 0 and (found.st_mode & 0o002 or (found.st_mode & 0o020 and found.st_gid != 0)):
            what = f"is root's and others may write it (mode {stat.S_IMODE(found.st_mode):04o})"
            raise ResourceError(f"{path} {what}: git would run as root what they put there")

    @cached_property
    def _config(self) -> str:
        text = self._text("config")
        if any(_REFTABLE.match(line) for line in text.splitlines()):
            raise ResourceError(f"{self._git}: its refs are in a reftable, which is not read")
        return text

    @cached_property
    def _packed(self) -> dict[str, tuple[str, str]]:
        """The refs that are packed: what each is, and of a tag the commit."""
        found: dict[str, tuple[str, str]] = {}
        name = ""
        for line in self._text("packed-refs").splitlines():
            if line.startswith("^") and name:
                found[name] = (found[name][0], _id(line[1:]))
            elif _id(one := line.partition(" ")[0]):
                name = line.partition(" ")[2]
                found[name] = (one, "")
        return found

    def _ref(self, name: str) -> str:
        if ".." in name or "\0" in name or not name.startswith("refs/"):
            return ""
        loose = self._text(name).strip()
        return _id(loose) or self._packed.get(name, ("", ""))[0]

    def _lstat(self, name: str) -> os.stat_result | None:
        return self._system.lstat(f"{self._git}/{name}")

    def _text(self, name: str) -> str:
        """The content of one of its files; nothing when it is not there, or is none."""
        found = self._lstat(name)
        if found is None or not stat.S_ISREG(found.st_mode):
            return ""
        if found.st_size > _LARGEST:
            raise ResourceError(f"{self._git}/{name} has {found.st_size} bytes, wanted at most {_LARGEST}")
        return self._system.read(f"{self._git}/{name}", found).decode(errors="replace")


def _id(text: str) -> str:
    """The id of an object; empty for any other text."""
    return text if _ID.fullmatch(text) else ""


def _unquoted(value: str) -> str:
    """A value of git's configuration without its quotes and what is behind it."""
    parts = _PARTS.findall(value.strip())
    text = "".join(quoted or plain for quoted, plain, comment in parts if not comment).strip()
    return re.sub(r"\\(.)", r"\1", text)
