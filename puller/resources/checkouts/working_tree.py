"""Changes of a working tree (clone, update, removal, the commit of a revision), and work that would be lost with it.

Changes:

* A clone is made beside its destination, written to disk, and renamed when it is complete. An interrupted clone leaves
  a directory with a reserved name, which the next change removes.
* The record of a started change shows that an interrupted git may have left locks and files in a repository.
* A tag takes precedence over a branch of the same name. A branch means the branch of the remote, so local commits on it
  have no effect.
* git is called only if its files do not show that the requested commit is checked out.

Work is everything that the remote does not have: changed files, commits, stashes, refs, linked worktrees, an
unfinished merge or rebase, and the same in submodules.

* A commit counts as the remote's if a remote-tracking ref reaches it, if Puller has checked it out, or if Puller has
  fetched it with a tag. A tag alone proves nothing, because users create tags as well.
* The search changes nothing, and any doubt counts as work.
"""

import contextlib
import enum
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from bundles.filesystem.trees import sync_filesystem
from foundation.quantities import first_few
from puller.errors import ResourceError
from puller.resources.checkouts.git import Git, IndexEntry, StillRunning
from puller.resources.checkouts.repository import Record, Repository
from puller.system.local_paths import open_safely
from puller.system.protocol import Attributes, System

# The commit of a revision. Local files resolve a fixed revision, and the remote resolves the latest one.

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT = re.compile(r"[0-9a-f]{7,64}")


class Goal(msgspec.Struct, frozen=True):
    """The commit to check out."""

    commit: str = ""
    """Empty if only the remote can resolve it."""
    is_here: bool = False
    """Whether the local repository has the commit."""
    reference: str = ""
    """The reference to fetch. Empty if all history is needed."""
    note: str = ""
    """A note about the name, for the report."""


def target_commit(revision: str, repository: Repository, git: Git) -> Goal:
    """Return the commit of a revision in a repository. Without a revision, return the current commit."""
    head = repository.head()
    if not revision:
        return Goal(head, is_here=bool(head), reference="HEAD")
    note = (
        f"{revision} is a tag and a branch, and Puller uses the tag"
        if repository.is_twofold(revision)
        else ""
    )
    named = repository.named(revision)
    if head and head in (named.object, named.commit):
        return Goal(head, is_here=True, reference=revision, note=note)
    if named.object:
        commit = named.commit or git.resolve(named.reference or named.object)
        return Goal(commit, is_here=bool(commit), reference=revision, note=note)
    return _commit_of(revision, head, git) if _SHORT.fullmatch(revision) else Goal(reference=revision)


def _commit_of(revision: str, head: str, git: Git) -> Goal:
    commit = head if head.startswith(revision) else git.resolve(revision)
    is_whole = _COMMIT.fullmatch(revision) is not None
    if commit or is_whole:
        return Goal(commit or revision, is_here=bool(commit), reference=revision if is_whole else "")
    return Goal()


def latest(revision: str, repository: Repository, git: Git) -> Goal:
    """Return the current commit of a revision on the remote. Raises ``ResourceError`` for an unknown revision."""
    if _COMMIT.fullmatch(revision):
        return target_commit(revision, repository, git)
    tag, branch = f"refs/tags/{revision}", f"refs/heads/{revision}"
    remote = git.list_remote(*([tag, f"{tag}^{{}}", branch] if revision else ["HEAD"]))
    goal = _latest_of(remote, revision, tag, branch)
    if goal is None and _SHORT.fullmatch(revision):
        return target_commit(revision, repository, git)
    if goal is None:
        raise ResourceError(f"{git.url} has no {revision or 'HEAD'}")
    return msgspec.structs.replace(goal, is_here=goal.commit == repository.head())


def _latest_of(result: Mapping[str, str], revision: str, tag: str, branch: str) -> Goal | None:
    if not revision:
        return Goal(result["HEAD"], reference="HEAD") if "HEAD" in result else None
    if tag in result:
        note = f"{revision} is a tag and a branch, and Puller uses the tag" if branch in result else ""
        return Goal(result.get(f"{tag}^{{}}", result[tag]), reference=f"+{tag}:{tag}", note=note)
    if branch in result:
        return Goal(result[branch], reference=f"+{branch}:refs/remotes/origin/{revision}")
    return None


_ALL = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")


class DesiredTree(NamedTuple):
    """The revision of a remote, and the depth of its history."""

    revision: str
    depth: int | None


def staging_of(path: str) -> str:
    """Return the directory for a tree before its first rename and during its removal."""
    above, name = os.path.split(path)
    return os.path.join(above, f".{name[:200]}.puller-checkout")


def make(path: str, attributes: Attributes, desired: DesiredTree, git: Git) -> list[str]:
    """Clone into a missing or empty directory. Returns notes. Raises ``ResourceError``.

    1. Create a directory beside the destination, in which ``git`` works.
    2. Clone without files, and without a local branch, which would never be updated.
    3. Check out the desired revision.
    4. Write the tree to disk, and rename it.
    """
    system, staging = git.system, staging_of(path)
    # 1. Directory
    remove_staging(path, system)
    system.make_directory(staging, attributes)
    try:
        # 2. Clone
        git.clone(desired.depth)
        repository = _repository_at(staging, system)
        goal = target_commit(desired.revision, repository, git)
        # 3. Check out
        branch = repository.branch()
        notes = _reach(goal, desired, repository, git, Record(tags=repository.tag_objects()))
        repository.remove(branch)
        # 4. Place
        _sync(staging)
        if (now := system.lstat(staging)) is None:
            raise ResourceError(f"{staging} was removed by another process")
        system.rename(staging, path, now)
    except Exception:
        with contextlib.suppress(OSError, ResourceError):  # keep the original error
            remove_staging(path, system)
        raise
    return notes


def update(
    repository: Repository, goal: Goal, desired: DesiredTree, git: Git, *, other_url: bool, other_files: bool
) -> list[str]:
    """Set the remote of a repository and check out a commit. Returns notes.

    ``other_files``: discard changes in files of the commit.
    """
    before = repository.record
    if before.begun:
        repository.remove_locks()
    head = repository.head()
    with _begun(repository, before, goal.commit if goal.is_here else head):
        if other_url:
            git.set_url(is_new=not repository.url())
        if other_files and before.begun:
            git.checkout(before.begun, again=True)
        elif other_files:
            git.discard()
        notes = []
        if not goal.is_here or goal.commit != repository.head():
            notes = _reach(goal, desired, repository, git, before)
        else:
            repository.save(msgspec.structs.replace(before, begun=""))
        _sync(repository.path)
    return notes


@contextlib.contextmanager
def _begun(repository: Repository, before: Record, commit: str) -> Iterator[None]:
    """Record that a change has started. The record stays if git or this process is killed."""
    repository.save(msgspec.structs.replace(before, begun=commit))
    try:
        yield
    except StillRunning:
        raise
    except Exception:
        with contextlib.suppress(OSError, ResourceError):  # keep the original error
            repository.save(msgspec.structs.replace(before, begun=""))
        raise


def _reach(goal: Goal, desired: DesiredTree, repository: Repository, git: Git, before: Record) -> list[str]:
    """Check out a commit, and fetch it if necessary."""
    notes = [goal.note] if goal.note else []
    result = goal.commit
    if not goal.is_here:
        result, additional = _fetch(goal, desired, repository, git)
        notes += additional
        tags = tuple(sorted({*before.tags, *repository.fetched_tags()}))
        before = msgspec.structs.replace(before, begun=result, tags=tags)
        repository.save(before)
    if not result:
        raise ResourceError(f"{git.url} has no commit")
    git.checkout(result)
    repository.save(Record(desired.revision, result, repository.head(), tags=before.tags))
    return notes


def _fetch(goal: Goal, desired: DesiredTree, repository: Repository, git: Git) -> tuple[str, list[str]]:
    """Fetch a commit. Returns the remote's object, and notes."""
    depth = desired.depth if repository.is_shallow else None
    if goal.reference and goal.reference != goal.commit:
        git.fetch(goal.reference, depth=depth)
        return repository.fetched(), []
    if goal.reference:
        try:
            git.fetch(goal.reference, depth=depth)
        except StillRunning:
            raise
        except ResourceError:  # many servers only send commits of a branch or tag
            pass
        else:
            return goal.commit, []
    git.fetch(*_ALL, complete=repository.is_shallow)
    if result := git.resolve(desired.revision):
        return result, ["the commit alone could not be fetched, so all history was"]
    raise ResourceError(f"{git.url} has no commit {desired.revision}, or several that begin so")


def remove(path: str, found: os.stat_result, system: System) -> None:
    """Remove a tree. It is renamed first, so that a partial tree never has its name."""
    remove_staging(path, system)
    system.rename(path, staging_of(path), found)
    remove_staging(path, system)


def remove_staging(path: str, system: System) -> None:
    """Remove the directory that a killed run has left beside the destination."""
    staging = staging_of(path)
    if (status := system.lstat(staging)) is not None:
        system.remove_tree(staging, status)


def _repository_at(path: str, system: System) -> Repository:
    status = system.lstat(path)
    repository = Repository(path, status, system) if status is not None else None
    if repository is None or not repository.is_there():
        raise ResourceError(f"git has left no repository in {path}")
    return repository


def _sync(path: str) -> None:
    """Write the whole file system to disk. Files lost in a crash would count as a local change."""
    with open_safely(path) as descriptor:
        sync_filesystem(descriptor)


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
        yield from self._paths_kept_by_git(repository)
        yield from self._files(repository, git)
        entries = git.index_entries()
        yield from self._marked(repository, entries)
        yield from self._commits(repository, git, recorded)
        yield from self._submodules(repository, git, entries)
        yield from self._unused_modules(repository, git)

    def _paths_kept_by_git(self, repository: Repository) -> Iterator[Work]:
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
            yield from _located(self._paths_kept_by_git(module), name)
            yield from _located(self._commits(module, bare), name)
            yield from _located(self._unused_modules(module, bare), name)


def _located(works: Iterator[Work], submodule: str) -> Iterator[Work]:
    """Add the path of a submodule to work in it."""
    for work in works:
        inner = f"{submodule}/{work.submodule}" if work.submodule else submodule
        yield msgspec.structs.replace(work, submodule=inner)
