"""Keys and thresholds of a site's roles, and their changes.

* Every change is a new root. If enough keys are available, the root is signed and published immediately, together with
  all metadata that needs new signatures. Nothing is written before everything is verified.
* Otherwise, the change waits in ``pending-root.json`` for more signatures. Publications continue under the current
  root. Further changes are added to it, and invalidate its signatures.
* Private keys are never deleted. Key files that neither the current nor the pending root names move to
  ``keys/retired/``.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bundles.errors import PublishError
from bundles.filesystem.atomic import read_limited, sync_directory, write_file
from bundles.format.size_limits import LARGEST_METADATA
from bundles.format.tuf import Metadata, Root
from bundles.publisher.ceremony import Proposal, check_thresholds, needed
from bundles.publisher.edition import Edition
from bundles.publisher.published import ROLES
from bundles.publisher.signing_keys import (
    PEM,
    URI,
    NewKey,
    Passphrase,
    change_passphrase,
    find_key_file,
    key_file,
    load_uri,
    make_key,
    shown_id,
)
from bundles.publisher.site import Site
from foundation.problems import ProblemCode

RETIRED = "retired"

_OURS = re.compile(rf"({'|'.join(ROLES)})-[0-9a-f]{{12}}({PEM}|{URI})")

Change = Callable[[Root], None]
_NewKeys = dict[str, list[NewKey]]


@dataclass(frozen=True, slots=True)
class RoleKey:
    """A key of a role. ``place`` is the location of the private key. ``None``: another person holds it."""

    role: str
    key_id: str
    scheme: str
    needed: str
    place: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change of the root.

    ``pending`` lists missing signatures. If it is empty, the change is published, and ``signed`` lists the roles signed
    again. Empty ``changes``: the root was already so.
    """

    changes: list[str]
    pending: list[str]
    signed: list[str] = field(default_factory=list)
    retired: list[Path] = field(default_factory=list)
    void: int = 0
    """Signatures of the pending change that this change has invalidated."""
    failures: list[str] = field(default_factory=list)
    """Available tokens that failed to sign, with the reasons."""


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """The effects of a rotation: the ids of replaced keys, and the roles that are signed again.

    Without ``is_signed_here``, the change waits for signatures of other root keys.
    """

    replaced: list[str]
    signed: list[str]
    is_signed_here: bool


class RoleKeys:
    """The keys of ``site``. ``passphrase`` opens the available ones. Methods raise `PublishError`.

    A change of the root has these steps (TUF specification, 6.1), all within one lock of the site:

    1. Start with the pending root, if any, otherwise with the current one.
    2. Create the next root with the changes, the next version and a new expiry. Stop if nothing changes.
    3. Reject a root with a role that could never be signed.
    4. Sign with the available keys of the current and the next root, because both must have signed (TUF 5.3.4).
    5. Reject a root that requires new signatures by unavailable keys.
    6. If signatures are missing, save new keys, and store the change for other signers
       (``bundles.publisher.ceremony``).
    7. Otherwise, sign metadata that the next root does not verify, also with the old keys.
    8. Save new keys, write the edition, and delete the pending change.
    9. Retire the files of unused keys.
    """

    def __init__(self, site: Site, passphrase: Passphrase) -> None:
        self.site = site
        self.passphrase = passphrase

    def held_keys(self) -> list[RoleKey]:
        """Return the keys of all roles in the current root."""
        root = self.site.root()
        return [
            RoleKey(role, key_id, root.get_key(key_id).scheme, needed(root, role), self._place(role, key_id))
            for role in ROLES
            for key_id in root.roles[role].keyids
        ]

    def add(self, role: str, key: NewKey, threshold: int | None = None) -> Outcome:
        """Add a key to ``role``."""

        def change(root: Root) -> None:
            if key.public.keyid in root.keys:
                users = [name for name in ROLES if key.public.keyid in root.roles[name].keyids]
                raise PublishError(shown_id(key.public.keyid), f"is already a key of {', '.join(users)}")
            root.add_key(key.public, role)
            _set_threshold(root, role, threshold)

        return self._change(change, {role: [key]})

    def remove(self, key: str, role: str | None = None, threshold: int | None = None) -> Outcome:
        """Remove a key from its role. ``key`` is the start of its id."""

        def change(root: Root) -> None:
            holder, key_id = find_key(root, key, role)
            root.revoke_key(key_id, holder)
            _set_threshold(root, holder, threshold)
            _check_still_signable(root, holder, key_id)

        return self._change(change)

    def rotate(self, role: str, make: Callable[[], NewKey], key: str | None = None) -> Outcome:
        """Replace the keys of ``role``, or one of them, with keys from ``make``."""
        made: list[NewKey] = []

        def change(root: Root) -> None:
            for key_id in self._replaced(root, role, key):
                made.append(make())
                root.revoke_key(key_id, role)
                root.add_key(made[-1].public, role)

        return self._change(change, {role: made})

    def plan_rotation(self, role: str, key: str | None = None) -> RotationPlan:
        """Return the effects of `rotate`, without opening, making or saving any key."""
        pending, edition = self._pending(), self._edition()
        following = edition.following_root(pending.root if pending else self.site.root()).signed
        replaced = self._replaced(following, role, key)
        for key_id in replaced:
            stand_in = make_key(None)  # the new key, as far as the plan depends on it
            edition.keyring.add(stand_in)
            following.revoke_key(key_id, role)
            following.add_key(stand_in.public, role)
        check_thresholds(following, str(self.site.directory))
        is_signed_here = edition.keyring.holds(Root.type, edition.published.root)
        return RotationPlan(replaced, ["root", *edition.stale_under(following)], is_signed_here)

    def set_threshold(self, role: str, threshold: int) -> Outcome:
        """Set the number of keys that must sign for ``role``."""
        return self._change(lambda root: _set_threshold(root, role, threshold))

    def renew(self) -> Outcome:
        """Renew the expiry of the root without other changes."""
        return self._change(None)

    def pending(self) -> Proposal | None:
        """Return the change that waits for signatures."""
        return self._pending()

    def take_signatures(self, source: Path) -> tuple[int, Outcome]:
        """Add the signatures in ``source`` to the pending change. Returns their number, and the outcome."""
        with self.site.locked():
            pending = self._desired_proposal()
            new = pending.merge(Proposal.load(source), str(source))
            return new, self._settle(self._edition(), pending, {})

    def discard(self) -> list[Path]:
        """Delete the pending change, even if it is damaged, and retire its new keys.

        Raises `PublishError` if there is no pending change.
        """
        with self.site.locked():
            if not self.site.pending_root.exists():
                raise self._nothing_pending()
            self.site.pending_root.unlink()
            sync_directory(self.site.directory)
            return self._retire()

    def change_passphrase(self, new: bytes | None) -> list[Path]:
        """Encrypt the available key files with another passphrase, or decrypt them. Returns the written files.

        An interrupted change is completed by a repetition. Raises `KeyFileError`.
        """
        with self.site.locked():
            files = sorted(self.site.keys.glob(f"*{PEM}"))
            # All files are opened before the first is written, so that a wrong passphrase changes nothing.
            changed = {path: change_passphrase(path, self.passphrase, new) for path in files}
            for path, contents in changed.items():
                if contents is not None:
                    write_file(path, contents, mode=0o600)
            return [path for path, contents in changed.items() if contents is not None]

    def _change(self, change: Change | None, new: _NewKeys | None = None) -> Outcome:
        with self.site.locked():
            # 1.
            pending, edition = self._pending(), self._edition()
            path = self.site.metadata / f"{edition.published.root.version}.root.json"
            current = Metadata[Root].from_bytes(read_limited(path, LARGEST_METADATA["root"]))
            base = pending.root if pending else current.signed
            # 2.
            following = edition.following_root(base)
            if change is not None:
                change(following.signed)
                if (base.keys, base.roles) == (following.signed.keys, following.signed.roles):
                    return Outcome([], [])
            # 3.
            check_thresholds(following.signed, str(self.site.directory))
            void = len(pending.signed_by()) if pending else 0
            return self._settle(edition, Proposal(current, following), new or {}, void)

    def _settle(self, edition: Edition, proposal: Proposal, new: _NewKeys, void: int = 0) -> Outcome:
        """Sign with the available keys, and publish if they suffice. Otherwise store the change for other signers."""
        # 4.
        for key in (key for keys in new.values() for key in keys):
            edition.keyring.add(key)
        failures = [
            str(failure)
            for root in (proposal.current.signed, proposal.root)
            for failure in edition.keyring.sign_as_far_as_possible(proposal.following, Root.type, root)
        ]
        # 5. Before others have to sign.
        for role in edition.stale_under(proposal.root):
            edition.keyring.check_holds(role, proposal.root)
        if proposal.is_complete:
            return self._publish(edition, proposal, new)
        # 6.
        self._save(new)
        proposal.save(self.site.pending_root)
        return Outcome(proposal.changes(), proposal.missing(), void=void, failures=failures)

    def _publish(self, edition: Edition, proposal: Proposal, new: _NewKeys) -> Outcome:
        changes = proposal.changes()
        # 7.
        edition.adopt_root(proposal.following)
        signed = ["root", *edition.sign_stale()]
        # 8. Keys before the root that names them: a key lost in a crash could never sign again.
        self._save(new)
        self.site.write(edition)
        self.site.pending_root.unlink(missing_ok=True)
        # 9.
        return Outcome(changes, [], signed, self._retire())

    def _save(self, new: _NewKeys) -> None:
        for role, keys in new.items():
            for key in keys:
                key.save(self.site.keys, role)

    def _replaced(self, root: Root, role: str, key: str | None) -> list[str]:
        if key is not None:
            return [find_key(root, key, role)[1]]
        key_ids = list(root.roles[role].keyids)
        away = [shown_id(key_id) for key_id in key_ids if not find_key_file(self.site.keys, role, key_id)]
        # With several keys, this would remove keys of other people without their consent.
        if away and len(key_ids) > 1:
            detail = f"other people hold the keys {', '.join(away)}"
            raise PublishError(role, detail, hint="select the key to replace with --key")
        return key_ids

    def _edition(self) -> Edition:
        return self.site.edition(self.passphrase)

    def _pending(self) -> Proposal | None:
        """Return the pending change, unless the current root has overtaken it."""
        if not self.site.pending_root.exists():
            return None
        pending = Proposal.load(self.site.pending_root)
        return pending if pending.follows(self.site.root()) else None

    def _desired_proposal(self) -> Proposal:
        if (pending := self._pending()) is None:
            raise self._nothing_pending()
        return pending

    def _nothing_pending(self) -> PublishError:
        return PublishError(str(self.site.directory), "no change of the root is pending")

    def _place(self, role: str, key_id: str) -> str | None:
        path = find_key_file(self.site.keys, role, key_id)
        if path is None or path.suffix == PEM:
            return str(path) if path else None
        return f"{load_uri(path)} ({path})"

    def _retire(self) -> list[Path]:
        """Retire the files of keys that neither root names. Returns their new paths."""
        roots = [self.site.root(), *([pending.root] if (pending := self._pending()) else [])]
        named = {
            key_file(self.site.keys, role, key_id, suffix)
            for root in roots
            for role in ROLES
            for key_id in root.roles[role].keyids
            for suffix in (PEM, URI)
        }
        match = {path for path in self.site.keys.glob("*.*") if _OURS.fullmatch(path.name)}
        return [_moved(path, self.site.keys / RETIRED) for path in sorted(match - named)]


def find_key(root: Root, start: str, role: str | None = None) -> tuple[str, str]:
    """Return role and id of the only key whose id begins with ``start``. Raises `PublishError`."""
    results = [
        (name, key_id)
        for name in ROLES
        for key_id in root.roles[name].keyids
        if key_id.startswith(start) and role in (None, name)
    ]
    of_role = f" of {role}" if role else ""
    if not results:
        raise PublishError(
            start,
            f"no key id{of_role} starts with this text",
            code=ProblemCode.INVALID_COMMAND,
            hint="`puller site keys list` prints all keys",
        )
    if len(results) > 1:
        ids = ", ".join(f"{name} {shown_id(key_id)}" for name, key_id in results)
        raise PublishError(
            start, f"several key ids{of_role} start with this text: {ids}", code=ProblemCode.INVALID_COMMAND
        )
    return results[0]


def _set_threshold(root: Root, role: str, threshold: int | None) -> None:
    if threshold is None:
        return
    if threshold < 1:
        raise PublishError(role, f"the threshold is {threshold}", expected="1 or more")
    root.roles[role].threshold = threshold


def _check_still_signable(root: Root, role: str, key_id: str) -> None:
    keys, threshold = len(root.roles[role].keyids), root.roles[role].threshold
    if keys >= threshold:
        return
    how = "add another key first" if keys == 0 else f"add another key first, or pass --threshold {keys}"
    detail = f"cannot be removed, because {role} would have {keys} of the {threshold} keys that must sign"
    raise PublishError(shown_id(key_id), detail, hint=f"{how} (puller site keys add, or puller site rotate)")


def _moved(path: Path, directory: Path) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    os.rename(path, directory / path.name)
    sync_directory(directory)
    return directory / path.name
