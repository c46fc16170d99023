"""Work in a repository that would be lost with its tree.

* Work is everything that the remote does not have: changed files, commits, stashes, refs, linked worktrees, an
  unfinished merge or rebase, and the same in submodules.
* A commit counts as the remote's if a remote-tracking ref reaches it, if Puller has checked it out, or if Puller has
  fetched it with a tag. A tag alone proves nothing, because users create tags as well.
* The search changes nothing, and any doubt counts as work.
"""

import enum
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence

import msgspec

from foundation.quantities import first_few
from puller.resources.checkouts.git import Git, IndexEntry
from puller.resources.checkouts.repository import Repository
from puller.system.protocol import System

_MOST_NAMED = 5
_GITLINK = "160000"
_OF_GIT_DIRECTORY = {"HEAD", "objects", "refs"}
_SYMBOLIC_LINK = "120000"
# Files and directories that git keeps while an operation is unfinished (gitrepository-layout(5), builtin/*.c).
_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}


class WorkKind(enum.Enum):
    """Kinds of work that would be lost."""

    CHANGED = "changed-files"
    UNKNOWN_FILES = "files-of-no-commit"
    MARKED = "marked-files"
    OPERATION = "unfinished-operation"
    STASH = "stash"
    COMMIT = "commit"
    WORKTREE = "linked-worktree"
    SUBMODULE = "submodule"


_SENTENCES = {
    WorkKind.CHANGED: "has local changes in {}",
    WorkKind.UNKNOWN_FILES: "has files that are not of its commit: {}",
    WorkKind.MARKED: "has local changes in {}, which are marked as assume-unchanged or skip-worktree",
    WorkKind.OPERATION: "has an unfinished {}",
    WorkKind.STASH: "has the stash {}",
    WorkKind.COMMIT: "has the commit {}, which no branch of the remote has",
    WorkKind.WORKTREE: "has the linked worktree {}, which needs this repository",
    WorkKind.SUBMODULE: "has the submodule {}, which was filled by hand",
}


class Work(msgspec.Struct, frozen=True):
    """Work that would be lost: its kind, its name, and the submodule that contains it."""

    kind: WorkKind
    name: str
    submodule: str = ""

    def __str__(self) -> str:
        sentence = _SENTENCES[self.kind].format(self.name)
        return f"{sentence} in its submodule {self.submodule}" if self.submodule else sentence


def unfinished_operation(repository: Repository) -> Work | None:
    """Return an unfinished merge, rebase or the like. A bisect survives every checkout, so it does not count."""
    for name, operation in _OPERATIONS.items():
        if operation != "bisect" and repository.has(name):
            return Work(WorkKind.OPERATION, operation)
    return None


def find_work(repository: Repository, git: Git, system: System, *, keeps_other_files: bool) -> Work | None:
    """Return the first work in a repository that removing its tree would lose.

    With ``keeps_other_files``, untracked and ignored files are work. Without it, only repositories among them are.
    Raises ``ResourceError`` and ``OSError`` if git or a file cannot be read.
    """
    return next(_Search(system, keeps_other_files).in_tree(repository, git), None)


class _Search:
    """One search, from the repository at the top down to the submodules."""

    def __init__(self, system: System, keeps_other_files: bool) -> None:
        self._system = system
        self._keeps_other_files = keeps_other_files
        self._seen: set[str] = set()
        """The git directories that have been searched."""

    def in_tree(self, repository: Repository, git: Git, recorded: str = "") -> Iterator[Work]:
        """Search a repository with a working tree, in the order of cost.

        ``recorded`` is the commit of a submodule in the repository above.
        """
        self._seen.add(repository.git_directory)
        yield from self._kept_by_git(repository)
        yield from self._files(repository, git)
        entries = git.index_entries()
        yield from self._marked(repository, entries)
        yield from self._commits(repository, git, recorded)
        yield from self._submodules(repository, git, entries)
        yield from self._unused_modules(repository, git)

    def _kept_by_git(self, repository: Repository) -> Iterator[Work]:
        for name, operation in _OPERATIONS.items():
            if repository.has(name):
                yield Work(WorkKind.OPERATION, operation)
        for path in repository.linked_worktrees():
            yield Work(WorkKind.WORKTREE, path)
        if stash := repository.reference("refs/stash"):
            yield Work(WorkKind.STASH, stash[:12])

    def _files(self, repository: Repository, git: Git) -> Iterator[Work]:
        entries = git.status()
        changed = [path for code, path in entries if code not in ("??", "!!")]
        others = [path for code, path in entries if code in ("??", "!!")]
        if changed:
            yield Work(WorkKind.CHANGED, first_few(changed, _MOST_NAMED))
        if not self._keeps_other_files:
            others = [path for path in others if self._holds_repository(f"{repository.path}/{path}")]
        if others:
            yield Work(WorkKind.UNKNOWN_FILES, first_few(others, _MOST_NAMED))

    def _holds_repository(self, path: str) -> bool:
        """Return whether a separate repository is at or below an untracked path."""
        path = path.rstrip("/")
        status = self._system.lstat(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return False
        children = self._system.children(path)
        names = {name for name, _ in children}
        if ".git" in names or names >= _OF_GIT_DIRECTORY:
            return True
        return any(self._holds_repository(f"{path}/{name}") for name in sorted(names))

    def _marked(self, repository: Repository, entries: Sequence[IndexEntry]) -> Iterator[Work]:
        """Search files that are marked so that ``status`` does not list their changes."""
        changed = [
            entry.path for entry in entries if entry.is_marked and self._differs(repository.path, entry)
        ]
        if changed:
            yield Work(WorkKind.MARKED, first_few(changed, _MOST_NAMED))

    def _differs(self, root: str, entry: IndexEntry) -> bool:
        """Return whether a file has other bytes than the index. A missing file loses nothing."""
        path = f"{root}/{entry.path}"
        status = self._system.lstat(path)
        if status is None:
            return False
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            content = self._system.read(path, status)
        else:
            return True
        digest = hashlib.sha256 if len(entry.object) == 64 else hashlib.sha1  # as in git's object ids
        named = digest(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return named != entry.object or stat.S_ISLNK(status.st_mode) is not (entry.mode == _SYMBOLIC_LINK)

    def _commits(self, repository: Repository, git: Git, recorded: str = "") -> Iterator[Work]:
        record = repository.record
        known = {*record.known, *record.tags, recorded} - {""}
        if own := git.find_own_commit(known, repository.reflog_commits(), has_head=bool(repository.head())):
            yield Work(WorkKind.COMMIT, own[:12])

    def _submodules(self, repository: Repository, git: Git, entries: Sequence[IndexEntry]) -> Iterator[Work]:
        for entry in entries:
            if entry.mode != _GITLINK:
                continue
            path = f"{repository.path}/{entry.path}"
            status = self._system.lstat(path)
            if status is None or not stat.S_ISDIR(status.st_mode) or not self._system.children(path):
                continue
            submodule, inner = repository.submodule(path), git.at(path)
            if submodule is None or inner.why_refused():
                yield Work(WorkKind.SUBMODULE, entry.path)
            else:
                yield from _located(self.in_tree(submodule, inner, entry.object), entry.path)

    def _unused_modules(self, repository: Repository, git: Git) -> Iterator[Work]:
        """Search the git directories of submodules that have no working tree now."""
        for directory in repository.module_directories():
            if directory in self._seen:
                continue
            name = directory.removeprefix(f"{repository.git_directory}/modules/")
            module, bare = repository.module(directory), git.at(directory, is_bare=True)
            if bare.why_refused():
                yield Work(WorkKind.SUBMODULE, name)
                continue
            self._seen.add(directory)
            yield from _located(self._kept_by_git(module), name)
            yield from _located(self._commits(module, bare), name)
            yield from _located(self._unused_modules(module, bare), name)


def _located(works: Iterator[Work], submodule: str) -> Iterator[Work]:
    """Add the path of a submodule to work in it."""
    for work in works:
        inner = f"{submodule}/{work.submodule}" if work.submodule else submodule
        yield msgspec.structs.replace(work, submodule=inner)
