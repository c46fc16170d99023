"""The ``checkout`` resource: working trees of git (``docs/resources/checkout.md``).

* A tree is at one commit with a detached HEAD. It follows the branches of the remote without merging.
* Manual changes are discarded only with ``force: true``. Untracked files stay.
* For a fixed revision that is checked out, one process checks for changed files, and the network is not used.
* An undeclared working tree is removed, unless it contains local work.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence
from foundation.formatting import people
from foundation.masking import mask_location
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource, missing_property
from puller.resources.checkouts import working_tree
from puller.resources.checkouts.git import Git, Remote, is_installed
from puller.resources.checkouts.repository import Repository
from puller.resources.checkouts.working_tree import (
    Goal,
    find_work,
    latest,
    target_commit,
    unfinished_operation,
)
from puller.resources.claims import Claim, Use
from puller.resources.owned_paths import refuse_owned_below
from puller.resources.paths import (
    PathState,
    attribute_differences,
    check_managed,
    distrust_of_new_way,
    group_id,
    group_name,
    require_parent,
    user_id,
    user_name,
)
from puller.system.identity import Identity
from puller.system.local_paths import refuse_mounted
from puller.system.protocol import UNKNOWN_ID, Attributes

_ENSURE = ("present", "latest", "absent")
# git-check-ref-format(1), which also covers commits.
_NO_REVISION = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/.+]|[/.]$|\.lock(/|$)|/\.|^@$|^HEAD$")
_SHOWN = 5  # changed files named in a sentence
_GIT = "/usr/bin/git"


class CheckoutProperties(Properties, frozen=True):
    """The properties of a checkout. The name is its directory."""

    url: str = ""
    """The remote: ``http(s)://``, ``ssh://``, ``git://``, ``file://``, ``user@host:path`` or an absolute path."""
    revision: str = ""
    """Branch, tag or commit. The default is the current branch of the remote."""
    depth: int | None = None
    """Number of commits to fetch, by default all."""
    owner: str | int | None = None
    """Owner of the tree, and user of git: name, or numeric id."""
    group: str | int | None = None
    """Group of the tree: name, or numeric id. The default is the group of the owner."""
    force: bool = False
    """Discard local changes and commits."""


class CheckoutState(PathState, frozen=True):
    """The state of the directory and its repository."""

    is_repository: bool = False
    is_empty: bool = False
    is_left: bool = False
    """Whether a killed run has left part of the tree in the staging directory."""
    url: str = ""
    head: str = ""
    """The current commit."""
    goal: Goal = Goal()
    changed: tuple[str, ...] = ()
    """Files that differ from the commit."""
    is_cut_short: bool = False
    """Whether the changed files are only the remainder of a killed checkout, not a user's work."""

    @property
    def kind(self) -> str:
        """``present`` (a repository), ``absent`` (also an empty directory), or the name of another file type."""
        if self.is_repository:
            return "present"
        return "absent" if self.is_empty else {"present": "file"}.get(super().kind, super().kind)


class Checkout(Resource[CheckoutProperties, CheckoutState]):
    """A working tree of git."""

    type_name = "checkout"
    properties_type = CheckoutProperties
    providers = ("git",)
    secret_properties = frozenset({"url"})

    def __init__(self, properties: CheckoutProperties, context: Any) -> None:
        super().__init__(properties, context)
        self._notes: list[str] = []

    def look(self) -> CheckoutState:
        path, system = self.properties.name, self.context.system
        self._notes = []
        status = system.lstat(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            is_gone = status is None and self.properties.ensure == "absent"
            return CheckoutState(
                status, is_left=is_gone and system.lstat(working_tree.staging_of(path)) is not None
            )
        repository = Repository(path, status, system)
        if not repository.is_there():
            return CheckoutState(status, is_empty=not system.children(path))
        state = CheckoutState(status, is_repository=True, url=repository.url(), head=repository.head())
        # In a repository of an unexpected owner, git would execute that owner's configuration. The removal of a tree
        # checks for work later.
        if self.properties.ensure == "absent" or self._of_owner(state) or self._is_git_expected():
            return msgspec.structs.replace(state, goal=Goal(state.head, is_here=True))
        git = self._git(path, status.st_uid, status.st_gid)
        changed, cut_short = self._changed(repository, git)
        goal = self._goal(repository, git)
        return msgspec.structs.replace(state, goal=goal, changed=tuple(changed), is_cut_short=cut_short)

    def differences(self, actual: CheckoutState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        ensure = "absent" if self.properties.ensure == "absent" else "present"
        if actual.kind != ensure:
            return [presence(actual.kind, ensure)]
        if ensure == "absent":
            return [presence("removed in part", ABSENT)] if actual.is_left else ()
        return [*self._of_owner(actual), *self._of_repository(actual)]

    def change(self, differences: Sequence[Difference], actual: CheckoutState) -> None:
        """Apply the desired state (``docs/resources/checkout.md``).

        1. Refuse impossible changes, and changes that may lose manual work.
        2. Remove the tree, clone it, or check out another commit.
        """
        # 1. Refuse
        self._raise_predictable_failures(actual, differences)
        # 2. Change
        path, system, status = self.properties.name, self.context.system, actual.found
        if self.properties.ensure == "absent":
            if status is None:
                working_tree.remove_staging(path, system)
            else:
                working_tree.remove(path, status, system)
        elif status is None or actual.is_empty:
            attributes = self._attributes_of_new(status)
            git = self._git(working_tree.staging_of(path), attributes.uid, attributes.gid)
            self._notes = working_tree.make(path, attributes, self._desired_tree, git)
        else:
            properties = {difference.property for difference in differences}
            self._notes = working_tree.update(
                Repository(path, status, system),
                actual.goal,
                self._desired_tree,
                self._git(path, status.st_uid, status.st_gid),
                other_url="url" in properties,
                other_files="content" in properties,
            )

    def noop_message(self, differences: Sequence[Difference], actual: CheckoutState) -> str:
        self._raise_predictable_failures(actual, differences)
        path, system = self.properties.name, self.context.system
        if self.properties.ensure == "absent":
            system.expect(path, "absent")
            return "Would have removed the checkout"
        if actual.kind == "absent":
            system.expect(path, "directory")
            at = f" at {self.properties.revision}" if self.properties.revision else ""
            return f"Would have cloned {self._remote.url}{at}"
        properties = {difference.property for difference in differences}
        done = ["changed the url"] if "url" in properties else []
        done += ["discarded local changes"] if "content" in properties else []
        done += [self._move(actual)] if "revision" in properties else []
        return f"Would have {', would have '.join(done)}"

    def reach(self) -> str:
        return self.properties.name

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    def final_ensure(self, actual: CheckoutState) -> str:
        return actual.kind

    def describe(self, actual: CheckoutState) -> dict[str, Any]:
        status = actual.found
        if status is None or not actual.is_repository:
            return {"ensure": actual.kind}
        owners = {"owner": user_name(status.st_uid), "group": group_name(status.st_gid)}
        url, changed = mask_location(actual.url), list(actual.changed)
        return {"ensure": "present", "url": url, "commit": actual.head, "changed": changed, **owners}

    @classmethod
    def lasting(cls, properties: CheckoutProperties) -> CheckoutProperties:
        """Return properties without ``latest``, because the remote's latest commit may change during a run."""
        if properties.ensure != "latest":
            return properties
        return msgspec.structs.replace(properties, ensure="present", revision=None)

    def changed_paths(self, actual: CheckoutState) -> None:
        """Return ``None``: a tree is restored by applying its previous declaration, not by paths."""

    # Desired state

    @property
    def _remote(self) -> Remote:
        return Remote.parse(self.properties.url)

    @property
    def _desired_tree(self) -> working_tree.DesiredTree:
        return working_tree.DesiredTree(self.properties.revision, self.properties.depth)

    def _attributes_of_new(self, status: os.stat_result | None) -> Attributes:
        """Return the declared owner and group, by default those of the existing empty directory."""
        properties, context = self.properties, self.context
        uid, gid = (status.st_uid, status.st_gid) if status else (os.geteuid(), os.getegid())
        if properties.owner is not None:
            uid = user_id(properties.owner, context)
            gid = Identity.find(uid).gid if uid != UNKNOWN_ID else UNKNOWN_ID
        if properties.group is not None:
            gid = group_id(properties.group, context)
        return Attributes(uid, gid, stat.S_IMODE(status.st_mode) if status else 0o755)

    def _goal(self, repository: Repository, git: Git) -> Goal:
        revision = self.properties.revision
        if self.properties.ensure != "latest":
            return target_commit(revision if self.properties.ensure == "present" else "", repository, git)
        try:
            return latest(revision, repository, git)
        except ResourceError as error:
            if not self.context.noop or git.why_offline:
                raise
            self._notes.append(f"whether it is the latest is not known: {error}")
            return Goal(repository.head(), is_here=True)

    # Current state

    def _git(self, directory: str, uid: int, gid: int) -> Git:
        is_ours = (uid, gid) == (os.geteuid(), os.getegid())
        identity = None if is_ours else Identity.find(uid, gid)
        remote = self._remote if self.properties.url else None
        return Git(
            self.context.system,
            directory,
            identity,
            remote,
            self.properties.sensitive,
            why_offline=self._why_withheld(uid),
        )

    def _why_withheld(self, uid: int) -> str:
        """Return why git must not get the credentials of the URL in a tree of a user. Empty if it may.

        The owner of the tree can read them. Without a declared owner, only the user that runs Puller is allowed to.
        """
        if uid == os.geteuid() or self.properties.owner is not None or not self.properties.url:
            return ""
        if self._remote.authorization is None:
            return ""
        return (
            f"{self.properties.name} belongs to {user_name(uid)}, who could read the credentials of its url; declare"
            f" owner: {user_name(uid)} if this user may know them"
        )

    def _is_git_expected(self) -> bool:
        """In noop: return whether git is missing, and an earlier resource may install it."""
        return self.context.noop and not is_installed() and self.context.uncertain(_GIT)

    def _changed(self, repository: Repository, git: Git) -> tuple[list[str], bool]:
        """Return the changed files, and whether all of the changes come from a killed checkout."""
        changed, begun, head = git.changed_files(), repository.record.begun, repository.head()
        if not (changed and begun and head and git.resolve(begun)):
            return changed, False
        theirs = {*changed} - git.differing(head, begun)
        return [name for name in changed if name in theirs] or changed, not theirs

    def _of_owner(self, actual: CheckoutState) -> list[Difference]:
        owner, group, status = self.properties.owner, self.properties.group, actual.found
        if status is None or (owner is None and group is None):
            return []
        uid = status.st_uid if owner is None else user_id(owner, self.context)
        gid = status.st_gid if group is None else group_id(group, self.context)
        desired = Attributes(uid, gid, stat.S_IMODE(status.st_mode))
        return attribute_differences(status, desired, owner, group)

    def _of_repository(self, actual: CheckoutState) -> Iterator[Difference]:
        goal, url = actual.goal, self._remote.url
        if actual.url != url:
            yield changed("url", mask_location(actual.url), url)
        if goal.commit != actual.head or not goal.commit:
            desired = self.properties.revision or "the remote's HEAD"
            known = f" ({goal.commit[:12]})" if goal.commit and goal.commit != desired else ""
            yield changed("revision", actual.head[:12] or "no commit", f"{desired}{known}")
        if actual.changed:
            detail = "incomplete" if actual.is_cut_short else f"changed in {_listed(actual.changed)}"
            yield changed("content", detail, "as it was checked out")

    def _move(self, actual: CheckoutState) -> str:
        """Return the noop message of a change from one commit to another."""
        old, new = actual.head[:12] or "nothing", actual.goal.commit[:12]
        if self.properties.ensure == "latest" and new:
            return f"updated from {old} to {new}"
        at = f"checked out {self.properties.revision or 'HEAD'}"
        at += f" ({old}..{new})" if new else ""
        return at if actual.goal.is_here else f"{at} from {self._remote.url}"

    # Refusals

    def _raise_predictable_failures(self, actual: CheckoutState, differences: Sequence[Difference]) -> None:
        """Raise for a predictable failure of ``change``, so that noop reports it."""
        path, kind = self.properties.name, actual.kind
        if kind not in ("present", "absent"):
            detail = "a directory without a repository" if kind == "directory" else f"a {kind}"
            raise ResourceError(
                f"{path} is {detail}", code=ProblemCode.CHANGE_REFUSED, hint="remove it first"
            )
        if self.properties.ensure == "absent" or kind == "absent":
            refuse_mounted(path, "removed" if self.properties.ensure == "absent" else "replaced")
        if kind == "absent" and self.properties.ensure != "absent":
            require_parent(path, self.context)
            self._refuse_to_share(self._attributes_of_new(actual.found))
        if self.properties.ensure == "absent" and kind == "present":
            refuse_owned_below(path, self.context, f"{self.type_name}#{path}", "removed")
        if self.properties.ensure != "absent" and not is_installed() and not self._is_git_expected():
            raise ResourceError(
                "git is not installed", code=ProblemCode.MISSING_DEPENDENCY, hint="it is in the package git"
            )
        if self.properties.ensure != "absent":
            self._refuse_to_reveal(actual, differences)
        if kind == "present":
            self._refuse_another_owner(differences)
            self._refuse_to_lose(actual, differences)

    def _refuse_to_share(self, attributes: Attributes) -> None:
        """Raise ``ResourceError`` if another user could exchange the new tree while git runs in it."""
        uid, gid, path = attributes.uid, attributes.gid, self.properties.name
        if UNKNOWN_ID in (uid, gid):
            return
        if reason := self._git(working_tree.staging_of(path), uid, gid).why_refused():
            raise ResourceError(reason, code=ProblemCode.UNTRUSTED_PATH)
        if reason := distrust_of_new_way(path, self.context, uid):
            user = user_name(uid)
            raise ResourceError(
                f"git is not run as {user} where others could exchange the tree: {reason}",
                code=ProblemCode.UNTRUSTED_PATH,
            )

    def _refuse_another_owner(self, differences: Sequence[Difference]) -> None:
        other = [difference for difference in differences if difference.property in ("owner", "group")]
        if other:
            why = "commands of its configuration would run as another user"
            raise ResourceError(
                f"{people(other)}",
                code=ProblemCode.CHANGE_REFUSED,
                hint=f"a repository is not given away, because {why}: remove it first",
            )

    def _refuse_to_reveal(self, actual: CheckoutState, differences: Sequence[Difference]) -> None:
        """Raise if the change needs the remote, and its credentials must not be given to the owner of the tree."""
        status = actual.found
        is_new = actual.kind == "absent"
        if not is_new and (
            actual.goal.is_here or "revision" not in {difference.property for difference in differences}
        ):
            return
        uid = self._attributes_of_new(status).uid if is_new or status is None else status.st_uid
        if uid != UNKNOWN_ID and (why := self._why_withheld(uid)):
            raise ResourceError(why, code=ProblemCode.CHANGE_REFUSED)

    def _refuse_to_lose(self, actual: CheckoutState, differences: Sequence[Difference]) -> None:
        """Raise ``ResourceError`` if the change would lose work, unless ``force`` is set."""
        path, status = self.properties.name, actual.found
        if self.properties.force or status is None or self._is_git_expected():
            return
        if actual.changed and not actual.is_cut_short:
            detail = f"has local changes in {_listed(actual.changed)}"
            raise ResourceError(
                f"{path} {detail}", code=ProblemCode.CHANGE_REFUSED, hint="force: true gives them up"
            )

        repository = Repository(path, status, self.context.system)
        git = self._git(path, status.st_uid, status.st_gid)
        if self.properties.ensure == "absent":
            if work := find_work(repository, git, self.context.system, keeps_other_files=False):
                raise ResourceError(
                    f"{path} {work}", code=ProblemCode.CHANGE_REFUSED, hint="force: true gives it up"
                )
            return
        if "revision" not in {difference.property for difference in differences}:
            return
        if operation := unfinished_operation(repository):
            raise ResourceError(
                f"{path} {operation}", code=ProblemCode.CHANGE_REFUSED, hint="force: true gives it up"
            )
        known = repository.record.known
        if actual.head and actual.head not in known and (own := git.find_unpublished_head(known)):
            detail = f"has the commit {own[:12]}, which no branch of the remote has"
            raise ResourceError(
                f"{path} {detail}", code=ProblemCode.CHANGE_REFUSED, hint="force: true gives it up"
            )

    # Loading of the manifest

    @classmethod
    def check(cls, properties: CheckoutProperties) -> Iterator[PropertyError]:
        if properties.ensure not in _ENSURE:
            yield PropertyError(
                "ensure", f"is {properties.ensure!r}", expected=f"one of {', '.join(_ENSURE)}"
            )
        yield from check_managed(properties.name)
        if not properties.url and properties.ensure != "absent":
            yield missing_property(
                "url", "is missing", because=["ensure"], hint="it is required unless ensure is absent"
            )
        if properties.url:
            try:
                Remote.parse(properties.url)
            except ValueError as error:
                yield PropertyError("url", str(error))
        if properties.revision and _NO_REVISION.search(properties.revision):
            yield PropertyError("revision", f"is {properties.revision!r}", expected="a branch, tag or commit")
        if properties.depth is not None and properties.depth < 1:
            yield PropertyError("depth", f"is {properties.depth}", expected="at least 1")
        for name in ("owner", "group"):
            if getattr(properties, name) == "":
                yield PropertyError(name, "is empty", expected="a name or an id")

    @classmethod
    def claims(cls, properties: CheckoutProperties) -> Iterator[Claim]:
        yield Claim(properties.name, Use.ABSENT if properties.ensure == "absent" else Use.FILLED)

    @classmethod
    def fills(cls, properties: CheckoutProperties) -> Sequence[str]:
        return (properties.name,) if properties.ensure != "absent" else ()

    @classmethod
    def is_whole(cls, properties: CheckoutProperties) -> bool:
        return properties.ensure == "absent" or bool(properties.revision and properties.ensure == "present")


def _listed(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + suffix


class LeftoverCheckout(Checkout):
    """A leftover working tree. The desired state is ``absent``."""

    _why_kept = ""

    def differences(self, actual: CheckoutState, *, refresh: bool = False) -> Sequence[Difference]:
        # A tree with work now belongs to its user. It stays and counts as in sync.
        self._why_kept = self._find_reason_to_keep(actual)
        return () if self._why_kept else super().differences(actual, refresh=refresh)

    def _find_reason_to_keep(self, actual: CheckoutState) -> str:
        status, path, system = actual.found, self.properties.name, self.context.system
        if status is None or actual.is_empty:
            return ""
        if not actual.is_repository:
            return "it is no longer a repository"
        git = self._git(path, status.st_uid, status.st_gid)
        if reason := git.why_refused():
            return f"it may contain work: {reason}"
        work = find_work(Repository(path, status, system), git, system, keeps_other_files=True)
        return f"it {work}" if work else ""

    def work_left(self) -> Mapping[str, str]:
        status = self.context.system.lstat(self.properties.name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return {}
        try:
            reason = self._find_reason_to_keep(self.look())
        except (OSError, ResourceError) as error:
            reason = f"it may contain work: {error}"
        return {self.properties.name: f"is left behind, and {reason}"} if reason else {}

    @property
    def notes(self) -> Sequence[str]:
        return [f"{self._why_kept}, so it stays"] if self._why_kept else super().notes

    @classmethod
    def fills(cls, properties: CheckoutProperties) -> Sequence[str]:
        return ()  # the whole tree is removed, so not while paths below it are declared
