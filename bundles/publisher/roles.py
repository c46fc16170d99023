"""Who may sign for a site: keys and thresholds of its roles, and how they change.

* Every change is a new root. When enough keys are here it is signed and published at once, together with all that
  must be signed anew for it; nothing is written before all of it was verified.
* When they are not, the change waits in one place, ``pending-root.json``, for the signatures of others. Publishing
  goes on under the current root meanwhile. Further changes join it, and make signatures given before void.
* No private key is deleted. Files of keys that neither the current root nor the pending one names move to
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
from bundles.publisher.keys import (
    PEM,
    URI,
    NewKey,
    Passphrase,
    change_passphrase,
    find_key_file,
    key_file,
    load_uri,
    shown_id,
)
from bundles.publisher.published import ROLES
from bundles.publisher.site import Site
from foundation.problems import ProblemCode

RETIRED = "retired"

_OURS = re.compile(rf"({'|'.join(ROLES)})-[0-9a-f]{{12}}({PEM}|{URI})")

Change = Callable[[Root], None]
_NewKeys = dict[str, list[NewKey]]


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key of a role. ``place`` says where the private part is; ``None`` when somebody else has it."""

    role: str
    key_id: str
    scheme: str
    needed: str
    place: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a change of the root.

    It is ``pending`` until others have signed; otherwise it is published, and ``signed`` are the roles signed anew.
    No ``changes``: it was so before.
    """

    changes: list[str]
    pending: list[str]
    signed: list[str] = field(default_factory=list)
    retired: list[Path] = field(default_factory=list)
    void: int = 0
    """Signatures that were given to the change before this one joined it."""
    failures: list[str] = field(default_factory=list)
    """Tokens here that could have signed and did not, with their reasons."""


class RoleKeys:
    """The keys of ``site``; ``passphrase`` opens those that are here. Methods raise `PublishError`.

    A change of the root goes these steps (TUF specification, 6.1), all within one lock of the site:

    1. Begin with the root that is pending, if one is, otherwise with the current one.
    2. The next root: one version up, with a new expiry and what is to change. No change: nothing is done.
    3. Refuse a root by which some role could never be signed.
    4. Sign with the keys that are here: those of the current root and those of the next, because both must have signed
       (TUF 5.3.4).
    5. Refuse a root for which metadata would have to be signed anew by keys that are not here.
    6. Not enough signatures: save new keys, and keep the change for others to sign (``bundles.publisher.ceremony``).
    7. Enough: sign anew what the next root does not stand behind, by the old keys as well.
    8. Save new keys, write the edition, and forget that anything was pending.
    9. Retire the files of keys that nothing names any more.
    """

    def __init__(self, site: Site, passphrase: Passphrase) -> None:
        self.site = site
        self.passphrase = passphrase

    def held_keys(self) -> list[HeldKey]:
        """The keys of all roles, by the current root."""
        root = self.site.root()
        return [
            HeldKey(role, key_id, root.get_key(key_id).scheme, needed(root, role), self._place(role, key_id))
            for role in ROLES
            for key_id in root.roles[role].keyids
        ]

    def add(self, role: str, key: NewKey, threshold: int | None = None) -> Outcome:
        """Let one more key sign for ``role``."""

        def change(root: Root) -> None:
            if key.public.keyid in root.keys:
                users = [name for name in ROLES if key.public.keyid in root.roles[name].keyids]
                raise PublishError(shown_id(key.public.keyid), f"is a key of {', '.join(users)} already")
            root.add_key(key.public, role)
            _set_threshold(root, role, threshold)

        return self._change(change, {role: [key]})

    def remove(self, key: str, role: str | None = None, threshold: int | None = None) -> Outcome:
        """Take a key, given by the start of its id, away from the role that has it."""

        def change(root: Root) -> None:
            holder, key_id = find_key(root, key, role)
            root.revoke_key(key_id, holder)
            _set_threshold(root, holder, threshold)
            _check_still_signable(root, holder, key_id)

        return self._change(change)

    def rotate(self, role: str, make: Callable[[], NewKey], key: str | None = None) -> Outcome:
        """Replace the keys of ``role``, or one of them, by keys that ``make`` gives."""
        made: list[NewKey] = []

        def change(root: Root) -> None:
            for key_id in self._replaced(root, role, key):
                made.append(make())
                root.revoke_key(key_id, role)
                root.add_key(made[-1].public, role)

        return self._change(change, {role: made})

    def set_threshold(self, role: str, threshold: int) -> Outcome:
        """Say how many keys must sign for ``role``."""
        return self._change(lambda root: _set_threshold(root, role, threshold))

    def renew(self) -> Outcome:
        """Give the root a new expiry, and change nothing else."""
        return self._change(None)

    def pending(self) -> Proposal | None:
        """The change that waits for signatures."""
        return self._pending()

    def take_signatures(self, source: Path) -> tuple[int, Outcome]:
        """Add the signatures in ``source`` to the pending change; how many, and what has come of it."""
        with self.site.locked():
            pending = self._wanted()
            new = pending.merge(Proposal.load(source), str(source))
            return new, self._settle(self._edition(), pending, {})

    def discard(self) -> list[Path]:
        """Forget the pending change, damaged or not; the keys that were made for it are retired.

        Raises `PublishError` when there is none.
        """
        with self.site.locked():
            if not self.site.pending_root.exists():
                raise self._nothing_pending()
            self.site.pending_root.unlink()
            sync_directory(self.site.directory)
            return self._retire()

    def change_passphrase(self, new: bytes | None) -> list[Path]:
        """Encrypt the key files here with another passphrase, or with none; the files written.

        All are read before any is written. What was cut off is completed by doing it again. Raises `KeyFileError`.
        """
        with self.site.locked():
            files = sorted(self.site.keys.glob(f"*{PEM}"))
            # All are opened before the first is written: a wrong passphrase leaves no mixture behind.
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
        """Sign with the keys that are here, and publish when that is enough; otherwise keep for others to sign."""
        # 4.
        for key in (key for keys in new.values() for key in keys):
            edition.keyring.add(key)
        failures = [
            str(failure)
            for root in (proposal.current.signed, proposal.root)
            for failure in edition.keyring.sign_as_far_as_possible(proposal.following, Root.type, root)
        ]
        # 5. Now, and not when others have signed.
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
        # 8. Keys before the root that names them: a key that was lost in a crash could never sign again.
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
        # Of several keys, those that others hold would be taken away from them unasked.
        if away and len(key_ids) > 1:
            what = f"others hold {', '.join(away)}; say which key to replace: --key"
            raise PublishError(role, what)
        return key_ids

    def _edition(self) -> Edition:
        return self.site.edition(self.passphrase)

    def _pending(self) -> Proposal | None:
        """The pending change; one that the current root has overtaken is none."""
        if not self.site.pending_root.exists():
            return None
        pending = Proposal.load(self.site.pending_root)
        return pending if pending.follows(self.site.root()) else None

    def _wanted(self) -> Proposal:
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
        """Move the files of keys away that nothing names any more; where they are now."""
        roots = [self.site.root(), *([pending.root] if (pending := self._pending()) else [])]
        named = {
            key_file(self.site.keys, role, key_id, suffix)
            for root in roots
            for role in ROLES
            for key_id in root.roles[role].keyids
            for suffix in (PEM, URI)
        }
        found = {path for path in self.site.keys.glob("*.*") if _OURS.fullmatch(path.name)}
        return [_moved(path, self.site.keys / RETIRED) for path in sorted(found - named)]


def find_key(root: Root, start: str, role: str | None = None) -> tuple[str, str]:
    """Role and id of the one key whose id begins with ``start``; raises `PublishError`."""
    found = [
        (name, key_id)
        for name in ROLES
        for key_id in root.roles[name].keyids
        if key_id.startswith(start) and role in (None, name)
    ]
    of_role = f" of {role}" if role else ""
    if not found:
        raise PublishError(
            start,
            f"no key{of_role} has an id that begins so",
            code=ProblemCode.INVALID_COMMAND,
            hint="see: puller site keys list",
        )
    if len(found) > 1:
        ids = ", ".join(f"{name} {shown_id(key_id)}" for name, key_id in found)
        raise PublishError(
            start, f"is the start of several key ids{of_role}: {ids}", code=ProblemCode.INVALID_COMMAND
        )
    return found[0]


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
    how = "add another key first" if keys == 0 else f"add another key first, or give --threshold {keys}"
    what = f"is needed: {role} would have {keys} of the {threshold} keys that must sign; {how}"
    raise PublishError(shown_id(key_id), f"{what} (puller site keys add, or puller site rotate)")


def _moved(path: Path, directory: Path) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    os.rename(path, directory / path.name)
    sync_directory(directory)
    return directory / path.name
