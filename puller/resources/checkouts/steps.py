"""Changes of a working tree: clone, update and removal, and the commit of a revision.

* A clone is made beside its destination, written to disk, and renamed when it is complete. An interrupted clone leaves
  a directory with a reserved name, which the next change removes.
* The record of a started change shows that an interrupted git may have left locks and files in a repository.
* A tag takes precedence over a branch of the same name. A branch means the branch of the remote, so local commits on it
  have no effect.
* git is called only if its files do not show that the requested commit is checked out.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from bundles.filesystem.trees import sync_filesystem
from puller.errors import ResourceError
from puller.resources.checkouts.git import Git, StillRunning
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


def goal_here(revision: str, repository: Repository, git: Git) -> Goal:
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
    return _commit_here(revision, head, git) if _SHORT.fullmatch(revision) else Goal(reference=revision)


def _commit_here(revision: str, head: str, git: Git) -> Goal:
    commit = head if head.startswith(revision) else git.resolve(revision)
    is_whole = _COMMIT.fullmatch(revision) is not None
    if commit or is_whole:
        return Goal(commit or revision, is_here=bool(commit), reference=revision if is_whole else "")
    return Goal()


def latest(revision: str, repository: Repository, git: Git) -> Goal:
    """Return the current commit of a revision on the remote. Raises ``ResourceError`` for an unknown revision."""
    if _COMMIT.fullmatch(revision):
        return goal_here(revision, repository, git)
    tag, branch = f"refs/tags/{revision}", f"refs/heads/{revision}"
    remote = git.list_remote(*([tag, f"{tag}^{{}}", branch] if revision else ["HEAD"]))
    goal = _latest_of(remote, revision, tag, branch)
    if goal is None and _SHORT.fullmatch(revision):
        return goal_here(revision, repository, git)
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


class Wanted(NamedTuple):
    """The revision of a remote, and the depth of its history."""

    revision: str
    depth: int | None


def staging_of(path: str) -> str:
    """Return the directory for a tree before its first rename and during its removal."""
    above, name = os.path.split(path)
    return os.path.join(above, f".{name[:200]}.puller-checkout")


def make(path: str, attributes: Attributes, wanted: Wanted, git: Git) -> list[str]:
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
        git.clone(wanted.depth)
        repository = _repository_at(staging, system)
        goal = goal_here(wanted.revision, repository, git)
        # 3. Check out
        branch = repository.branch()
        notes = _reach(goal, wanted, repository, git, Record(tags=repository.tag_objects()))
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
    repository: Repository, goal: Goal, wanted: Wanted, git: Git, *, other_url: bool, other_files: bool
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
            notes = _reach(goal, wanted, repository, git, before)
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


def _reach(goal: Goal, desired: Wanted, repository: Repository, git: Git, before: Record) -> list[str]:
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


def _fetch(goal: Goal, desired: Wanted, repository: Repository, git: Git) -> tuple[str, list[str]]:
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
