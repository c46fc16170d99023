"""The commit that a revision means: what is here says it of a fixed one, the remote of the latest.

* A name is that of a tag before that of a branch. A branch is the remote's: what is done by hand on a branch of this
  machine is no news of the remote.
* Git is asked only where its files do not tell: when something else is checked out than what is wanted.
"""

import re
from collections.abc import Mapping

import msgspec

from puller.errors import ResourceError
from puller.resources.checkouts.git import Git
from puller.resources.checkouts.repository import Repository

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT = re.compile(r"[0-9a-f]{7,64}")


class Goal(msgspec.Struct, frozen=True):
    """The commit to be checked out."""

    commit: str = ""
    """Empty when only the remote knows it."""
    is_here: bool = False
    """Whether the repository has it."""
    reference: str = ""
    """What to fetch for it; empty when all history is needed."""
    note: str = ""
    """What should be known about the name."""


def goal_here(revision: str, repository: Repository, git: Git) -> Goal:
    """The goal that a revision means in a repository; without one, whatever is checked out."""
    head = repository.head()
    if not revision:
        return Goal(head, is_here=bool(head), reference="HEAD")
    note = f"{revision} is a tag and a branch; the tag is taken" if repository.is_twofold(revision) else ""
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
    """The goal that a revision means to the remote now; raises ``ResourceError`` when that has nothing of this name."""
    if _COMMIT.fullmatch(revision):
        return goal_here(revision, repository, git)
    tag, branch = f"refs/tags/{revision}", f"refs/heads/{revision}"
    found = git.list_remote(*([tag, f"{tag}^{{}}", branch] if revision else ["HEAD"]))
    goal = _latest_of(found, revision, tag, branch)
    if goal is None and _SHORT.fullmatch(revision):
        return goal_here(revision, repository, git)
    if goal is None:
        raise ResourceError(f"{git.url} has no {revision or 'HEAD'}")
    return msgspec.structs.replace(goal, is_here=goal.commit == repository.head())


def _latest_of(found: Mapping[str, str], revision: str, tag: str, branch: str) -> Goal | None:
    if not revision:
        return Goal(found["HEAD"], reference="HEAD") if "HEAD" in found else None
    if tag in found:
        note = f"{revision} is a tag and a branch; the tag is taken" if branch in found else ""
        return Goal(found.get(f"{tag}^{{}}", found[tag]), reference=f"+{tag}:{tag}", note=note)
    if branch in found:
        return Goal(found[branch], reference=f"+{branch}:refs/remotes/origin/{revision}")
    return None
