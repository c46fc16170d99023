"""Access to the files of git repositories without git, and without trusting them.

* A repository belongs to the owner of its working tree. Only commit ids are accepted from its files. Links that lead
  elsewhere are not followed, and FIFOs are not opened.
* In a repository of root, only root may write the files that name programs for git, because git runs as root there.
"""

import os
import re
import stat
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.system.protocol import Attributes, System

_LARGEST = 64 * 1024 * 1024  # bytes
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_REFTABLE = re.compile(r"\s*refstorage\s*=\s*reftable", re.IGNORECASE)
# Quoted, plain or comment. An unterminated quote is a match, too, to avoid quadratic searches for its end.
_PARTS = re.compile(r'"((?:[^"\\]|\\.)*)"?|([^"#;]+)|([#;].*)')
_TRUE = ("true", "yes", "on", "1", "")
# Reflog entries of commands that only move HEAD to an existing commit. All entries of Puller are among them.
_MOVING_ONLY = ("checkout:", "clone:", "reset:", "branch:", "fetch")
_LOCKS = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock")


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """The last work of Puller in a repository. It is stored there, so that it always describes this repository."""

    revision: str = ""
    """The last revision that was checked out, as declared."""
    object: str = ""
    """The remote's object with that name: a commit or a tag."""
    commit: str = ""
    """The commit of the object."""
    begun: str = ""
    """The commit of a checkout that may have been killed. Empty after its end."""
    tags: tuple[str, ...] = ()
    """Objects that tags of the remote named when Puller fetched them. Excludes manual tags."""

    @property
    def known(self) -> frozenset[str]:
        """Commits that were not created here."""
        return frozenset({self.commit, self.object, self.begun}) - {""}


class Named(NamedTuple):
    """The objects of a name in a repository."""

    reference: str
    """The full name. Empty if no such ref exists."""
    object: str
    """A commit or a tag. Empty if the name is unknown."""
    commit: str
    """Empty if only git can determine it."""


class Repository:
    """The repository of the working tree at ``path``, with its ``lstat`` in ``found``.

    Methods raise ``OSError``, and ``ResourceError`` for a repository in another layout than git's.
    """

    def __init__(self, path: str, found: os.stat_result, system: System, git_directory: str = "") -> None:
        self.path = path
        self._system = system
        self._git = git_directory or f"{path}/.git"
        self._found = found

    @property
    def git_directory(self) -> str:
        """The git directory of the repository."""
        return self._git

    def is_there(self) -> bool:
        """Return whether a repository exists. Raises ``ResourceError`` if another user may have changed it."""
        git = self._system.lstat(self._git)
        if git is None:
            return False
        if not stat.S_ISDIR(git.st_mode):
            raise ResourceError(f"{self._git} is not a directory, as in a worktree or submodule")
        self._require_plain(git)
        self._require_own_working_tree()
        return True

    def _require_plain(self, git: os.stat_result | None) -> None:
        """Raise ``ResourceError`` if other users may write the configuration of git."""
        for path, found in ((self._git, git), (f"{self._git}/config", self._lstat("config"))):
            self._require_own(path, found)
        worktree = self._lstat("config.worktree")
        if worktree is not None:
            self._require_own(f"{self._git}/config.worktree", worktree)

    def _require_own_working_tree(self) -> None:
        """Raise ``ResourceError`` if git uses another directory as the working tree."""
        for name in ("config", "config.worktree"):
            settings = dict(_settings(self._text(name)))
            if settings.get("core.worktree"):
                raise ResourceError(f"{self._git}/{name} names another working tree (core.worktree)")
            if settings.get("core.bare", "false").lower() in _TRUE:
                raise ResourceError(
                    f"{self._git}/{name} declares a repository without a working tree (core.bare)"
                )

    def head(self) -> str:
        """Return the current commit. Empty if the repository has none yet."""
        text = self._text("HEAD").strip()
        name = text.removeprefix("ref: ")
        return _id(text) if name == text else self._ref(name)

    def named(self, revision: str) -> Named:
        """Return the objects of a revision: a tag, a branch of the remote, or the recorded checkout with that name."""
        record = self.record
        if result := self._ref(tag := f"refs/tags/{revision}"):
            packed, peeled = self._packed.get(tag, ("", ""))
            commit = peeled if packed == result else ""
            return Named(tag, result, commit or (record.commit if record.object == result else ""))
        if result := self._ref(branch := f"refs/remotes/origin/{revision}"):
            return Named(branch, result, result)
        return Named("", record.commit, "") if record.revision == revision else Named("", "", "")

    def is_twofold(self, revision: str) -> bool:
        """Return whether a revision is the name of both a tag and a branch of the remote."""
        return all(self._ref(f"{kind}/{revision}") for kind in ("refs/tags", "refs/remotes/origin"))

    def url(self) -> str:
        """Return the URL of the remote in the configuration. Empty if it is not set."""
        return next(
            (value for key, value in _settings(self._config) if key == "remote.origin.url" and value), ""
        )

    def fetched(self) -> str:
        """Return the id of the last fetched commit or tag."""
        return _id(self._text("FETCH_HEAD")[:64].split("\t")[0])

    def fetched_tags(self) -> tuple[str, ...]:
        """Return the objects of all tags in the last fetch, including those that git fetches automatically."""
        lines = (line.split("\t") for line in self._text("FETCH_HEAD").splitlines())
        return tuple(_id(fields[0]) for fields in lines if fields[-1].startswith("tag '") and _id(fields[0]))

    def tag_objects(self) -> tuple[str, ...]:
        """Return the objects of all tags."""
        packed = (object_id for name, (object_id, _) in self._packed.items() if name.startswith("refs/tags/"))
        loose = (_id(self._text(name).strip()) for name in self._files_below("refs/tags"))
        return tuple(sorted({*packed, *loose} - {""}))

    def reference(self, name: str) -> str:
        """Return the object of a ref. Empty if the ref is missing."""
        return self._ref(name)

    def has(self, name: str) -> bool:
        """Return whether the git directory has an entry of this name."""
        return self._lstat(name) is not None

    def linked_worktrees(self) -> list[str]:
        """Return the paths of the working trees that ``git worktree add`` has linked to this repository."""
        paths = (
            (name, self._text(f"worktrees/{name}/gitdir").strip().removesuffix("/.git"))
            for name in self._children("worktrees")
        )
        return [path or name for name, path in paths]

    def reflog_commits(self) -> list[str]:
        """Return the commits that were made in HEAD or on a branch, from the reflogs.

        Entries that only moved HEAD are skipped, because their commits may be former commits of the remote.
        """
        commits: dict[str, None] = {}
        for log in ("logs/HEAD", *self._files_below("logs/refs/heads")):
            for line in self._text(log).splitlines():
                ids, _, message = line.partition("\t")
                _, _, new = ids.partition(" ")
                if (
                    not message.startswith(_MOVING_ONLY)
                    and _id(new := new.partition(" ")[0])
                    and new.strip("0")
                ):
                    commits[new] = None
        return [*commits]

    def submodule(self, path: str) -> "Repository | None":
        """Return the repository of a submodule at a path below the tree. ``None`` for another layout than git's.

        Raises ``ResourceError`` if other users may write it.
        """
        dot_git, modules = f"{path}/.git", f"{self._git}/modules/"
        status = self._system.lstat(dot_git)
        if status is None:
            return None
        directory = dot_git
        if stat.S_ISREG(status.st_mode):
            target = (
                self._system.read(dot_git, status).decode(errors="replace").strip().removeprefix("gitdir: ")
            )
            directory = os.path.normpath(os.path.join(path, target))
        if directory != dot_git and not directory.startswith(modules):
            return None
        return self._checked(Repository(path, self._found, self._system, directory))

    def module(self, directory: str) -> "Repository":
        """Return the repository of a submodule by its git directory. Raises the exceptions of ``submodule``."""
        return self._checked(Repository(directory, self._found, self._system, directory))

    def _checked(self, submodule: "Repository") -> "Repository":
        submodule._require_plain(self._system.lstat(submodule.git_directory))
        return submodule

    def module_directories(self) -> list[str]:
        """Return the git directories of all submodules, including those without a working tree."""
        return [*self._modules_below("modules")]

    def _modules_below(self, name: str) -> Iterator[str]:
        for child in self._children(name):
            inner = f"{name}/{child}"
            if self.has(f"{inner}/HEAD"):
                yield f"{self._git}/{inner}"
            else:
                yield from self._modules_below(inner)

    def _children(self, name: str) -> list[str]:
        status = self._lstat(name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return []
        return sorted(child for child, _ in self._system.children(f"{self._git}/{name}"))

    def _files_below(self, name: str) -> Iterator[str]:
        for child in self._children(name):
            inner = f"{name}/{child}"
            status = self._lstat(inner)
            if status is not None and stat.S_ISDIR(status.st_mode):
                yield from self._files_below(inner)
            else:
                yield inner

    @property
    def is_shallow(self) -> bool:
        """Whether the history is incomplete."""
        return self._lstat("shallow") is not None

    @cached_property
    def record(self) -> Record:
        """The record of Puller in this repository. Empty if it is invalid."""
        try:
            record = msgspec.json.decode(self._text("puller"), type=Record)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return Record()
        # The owner of the tree can edit it. Text other than an id could be an option of git.
        ids = {name: _id(getattr(record, name)) for name in ("object", "commit", "begun")}
        return msgspec.structs.replace(record, **ids, tags=tuple(filter(_id, record.tags)))

    def save(self, record: Record) -> None:
        """Save the record of a finished or started change."""
        path, status = f"{self._git}/puller", self._lstat("puller")
        attributes = Attributes(self._found.st_uid, self._found.st_gid, 0o644)
        self._system.replace_file(path, [msgspec.json.encode(record)], attributes, status)
        self.__dict__.pop("record", None)

    def branch(self) -> str:
        """Return the full name of the current local branch. Empty if HEAD is detached."""
        name = self._text("HEAD").strip().removeprefix("ref: ")
        return name if name.startswith("refs/heads/") and ".." not in name else ""

    def remove(self, name: str) -> None:
        """Remove a file of the git directory, if it exists."""
        if name and (status := self._lstat(name)) is not None:
            self._system.remove(f"{self._git}/{name}", status)

    def remove_locks(self) -> None:
        """Remove the locks of a killed git process."""
        for name in _LOCKS:
            self.remove(name)

    def _require_own(self, path: str, found: os.stat_result | None) -> None:
        """Raise ``ResourceError`` for a part of a repository that another user than its owner may change."""
        if found is None:
            raise ResourceError(f"{path} is missing")
        if found.st_uid != self._found.st_uid:
            who = f"belongs to user {found.st_uid}, and {self.path} to user {self._found.st_uid}"
            raise ResourceError(
                f"{path} {who}: its content may be from another user", code=ProblemCode.UNTRUSTED_PATH
            )
        if found.st_uid == 0 and (found.st_mode & 0o002 or (found.st_mode & 0o020 and found.st_gid != 0)):
            detail = f"is root's and others may write it (mode {stat.S_IMODE(found.st_mode):04o})"
            raise ResourceError(
                f"{path} {detail}: git would run their files as root", code=ProblemCode.UNTRUSTED_PATH
            )

    @cached_property
    def _config(self) -> str:
        text = self._text("config")
        if any(_REFTABLE.match(line) for line in text.splitlines()):
            raise ResourceError(f"{self._git}: its refs are in a reftable, which is not read")
        return text

    @cached_property
    def _packed(self) -> dict[str, tuple[str, str]]:
        """Packed refs by name: the object, and for a tag also its commit."""
        result: dict[str, tuple[str, str]] = {}
        name = ""
        for line in self._text("packed-refs").splitlines():
            if line.startswith("^") and name:
                result[name] = (result[name][0], _id(line[1:]))
            elif _id(item := line.partition(" ")[0]):
                name = line.partition(" ")[2]
                result[name] = (item, "")
        return result

    def _ref(self, name: str) -> str:
        if ".." in name or "\0" in name or not name.startswith("refs/"):
            return ""
        loose = self._text(name).strip()
        return _id(loose) or self._packed.get(name, ("", ""))[0]

    def _lstat(self, name: str) -> os.stat_result | None:
        return self._system.lstat(f"{self._git}/{name}")

    def _text(self, name: str) -> str:
        """Return the content of a file of the git directory. Empty if it is missing or not a regular file."""
        status = self._lstat(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            return ""
        if status.st_size > _LARGEST:
            raise ResourceError(
                f"{self._git}/{name} has {status.st_size} bytes", expected=f"at most {_LARGEST}"
            )
        return self._system.read(f"{self._git}/{name}", status).decode(errors="replace")


def _id(text: str) -> str:
    """Return the id of an object. Empty for any other text."""
    return text if _ID.fullmatch(text) else ""


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of git's configuration as pairs of ``section.subsection.key`` and value."""
    section = ""
    for line in text.splitlines():
        if match := _SECTION.match(line):
            section, line = ".".join(filter(None, (match[1].lower(), match[2]))), line[match.end() :]
        key, _, value = line.partition("=")
        if key.strip():
            yield f"{section}.{key.strip().lower()}", _unquoted(value)


def _unquoted(value: str) -> str:
    """Return a value of git's configuration without quotes and trailing comment."""
    pieces = _PARTS.findall(value.strip())
    text = "".join(quoted or plain for quoted, plain, comment in pieces if not comment).strip()
    return re.sub(r"\\(.)", r"\1", text)
