"""The next root, signed by several people at other places."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tuf.api.metadata import Metadata, Root

from bundles.errors import BundleError, FormatError, KeyFileError, PublishError, SignatureError
from bundles.publisher.ceremony import Proposal
from bundles.publisher.lifecycle import refresh_site
from bundles.publisher.roles import RoleKeys
from bundles.publisher.signing_keys import NewKey, make_key

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher

PEOPLE = ("alice", "bob", "carol")


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def plain_key() -> NewKey:
    return make_key(None)


class Office:
    """A site whose root needs signatures of two of three people, all at other places."""

    def __init__(self, publisher: Publisher, directory: Path) -> None:
        self.publisher = publisher
        self.role_keys = RoleKeys(publisher.site, no_passphrase)
        self.people = {name: plain_key() for name in PEOPLE}
        self.file = directory / "next-root.json"
        own = next(key.key_id for key in self.role_keys.held_keys() if key.role == "root")
        for key in self.people.values():
            self.role_keys.add("root", NewKey(key.public))
        self.role_keys.remove(own, threshold=2)
        self.ceremony("carol", "alice")

    def export(self, name: str = "next-root.json") -> Path:
        pending = self.role_keys.pending()
        assert pending is not None
        pending.save(self.file.with_name(name))
        return self.file.with_name(name)

    def sign(self, file: Path, *people: str) -> None:
        for name in people:
            proposal = Proposal.load(file)
            signer = self.people[name].signer
            assert signer is not None
            assert proposal.sign(signer, name)
            proposal.save(file)

    def ceremony(self, *people: str) -> list[str]:
        """Export, let these people sign, and import. Return the signed roles."""
        file = self.export()
        self.sign(file, *people)
        outcome = self.role_keys.take_signatures(file)[1]
        self.publisher.deploy()
        return outcome.signed


@pytest.fixture
def office(publisher: Publisher, host: Host, tmp_path: Path) -> Office:
    host.refresh()
    return Office(publisher, tmp_path)


def test_the_root_of_a_site_can_go_to_several_people(
    office: Office, publisher: Publisher, host: Host
) -> None:
    held = [(key.role, key.needed, key.place is None) for key in office.role_keys.held_keys()]
    assert held[:3] == [("root", "2 of 3", True)] * 3
    assert len([*(publisher.site.keys / "retired").glob("root-*.pem")]) == 1
    assert not publisher.site.pending_root.exists()
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"


@pytest.mark.parametrize("people", [("alice", "bob"), ("bob", "alice"), ("carol", "bob"), PEOPLE])
@pytest.mark.representatives(1)
def test_any_two_of_them_renew_it_in_any_order(
    people: tuple[str, ...], office: Office, publisher: Publisher, host: Host, clock: Clock
) -> None:
    clock.advance(days=3)
    outcome = office.role_keys.renew()
    assert outcome.pending
    assert not outcome.signed
    assert office.ceremony(*people) == ["root"]
    assert publisher.site.root().version == 6
    assert publisher.site.roles()[0].expires == clock.now + timedelta(days=365)
    assert host.version() == "1.0.0"


@pytest.mark.everything
def test_copies_that_were_signed_apart_are_brought_together(office: Office, host: Host) -> None:
    office.role_keys.renew()
    for name in ("alice", "bob"):
        office.sign(office.export(f"{name}.json"), name)
    new, outcome = office.role_keys.take_signatures(office.file.with_name("alice.json"))
    assert new == 1
    assert outcome.pending[0].startswith("1 more signature by the root keys: ")
    assert office.role_keys.take_signatures(office.file.with_name("alice.json"))[0] == 0
    new, outcome = office.role_keys.take_signatures(office.file.with_name("bob.json"))
    assert (new, outcome.pending, outcome.signed) == (1, [], ["root"])
    office.publisher.deploy()
    assert host.version() == "1.0.0"


@pytest.mark.attack("keys.threshold")
def test_single_signature_below_the_threshold_has_no_effect(
    office: Office, publisher: Publisher, host: Host
) -> None:
    office.role_keys.renew()
    assert office.ceremony("alice") == []
    assert publisher.site.root().version == 5
    file = publisher.served / "metadata/6.root.json"
    file.write_bytes(Proposal.load(office.file).following.to_bytes())
    with pytest.raises(SignatureError, match=r"6\.root\.json.*signed by 1 of the 2 keys"):
        host.refresh()


@pytest.mark.attack("keys.twice")
def test_key_signs_once(office: Office) -> None:
    office.role_keys.renew()
    file = office.export()
    office.sign(file, "alice")
    proposal = Proposal.load(file)
    signer = office.people["alice"].signer
    assert signer is not None
    assert not proposal.sign(signer, "alice")
    assert not proposal.is_complete
    document = json.loads(file.read_bytes())
    document["next"]["signatures"] *= 2
    file.write_text(json.dumps(document))
    with pytest.raises(BundleError, match=r"next-root\.json: next"):
        Proposal.load(file)


def test_a_key_that_has_no_say_does_not_sign(office: Office) -> None:
    office.role_keys.renew()
    proposal = Proposal.load(office.export())
    stranger = plain_key().signer
    assert stranger is not None
    with pytest.raises(
        PublishError, match=r"dave\.pem: the key [0-9a-f]{12} is not a key of the current or the next root"
    ):
        proposal.sign(stranger, "dave.pem")


@pytest.mark.everything
def test_publishing_goes_on_while_a_change_waits(
    office: Office, publisher: Publisher, host: Host, clock: Clock
) -> None:
    office.role_keys.rotate("timestamp", plain_key)
    publisher.publish("1.1.0")
    clock.advance(days=6)
    publisher.refresh()
    assert host.version() == "1.1.0"
    assert office.ceremony("alice", "bob") == ["root", "timestamp"]
    assert host.version() == "1.1.0"
    publisher.publish("1.2.0")
    assert host.version() == "1.2.0"
    assert len([*(publisher.site.keys / "retired").glob("timestamp-*.pem")]) == 1


@pytest.mark.everything
def test_new_change_voids_signatures_of_the_pending_one(office: Office, host: Host) -> None:
    office.role_keys.rotate("timestamp", plain_key)
    before = office.export("before.json")
    office.sign(before, "alice")
    office.role_keys.take_signatures(before)
    outcome = office.role_keys.add("snapshot", plain_key(), threshold=2)
    assert outcome.void == 1
    assert len([text for text in outcome.changes if "new key" in text]) == 2
    with pytest.raises(
        SignatureError, match=r"before\.json: differs from the pending change of this site; export it"
    ):
        office.role_keys.take_signatures(before)
    assert office.ceremony("bob", "carol") == ["root", "snapshot", "timestamp"]
    assert host.version() == "1.0.0"


def test_a_root_key_is_replaced_by_the_others(office: Office, publisher: Publisher, host: Host) -> None:
    dave = office.people["dave"] = plain_key()
    office.role_keys.rotate("root", lambda: NewKey(dave.public), key=office.people["alice"].public.keyid)
    office.sign(office.export(), "bob")
    assert not Proposal.load(office.export()).is_complete
    assert office.ceremony("bob", "carol") == ["root"]
    assert office.people["alice"].public.keyid not in publisher.site.root().keys
    office.role_keys.renew()
    assert office.ceremony("dave", "carol") == ["root"]
    assert host.version() == "1.0.0"


@pytest.mark.everything
def test_replaced_key_of_another_holder_is_named(office: Office) -> None:
    with pytest.raises(
        PublishError, match=r"root: other people hold the keys .*; select the key to replace with --key"
    ):
        office.role_keys.rotate("root", plain_key)


def test_impossible_change_asks_for_no_signature(office: Office, publisher: Publisher) -> None:
    away = NewKey(plain_key().public)
    with pytest.raises(KeyFileError, match="contains 1 of the 2 keys required to sign for targets"):
        office.role_keys.add("targets", away, threshold=2)
    assert not publisher.site.pending_root.exists()


@pytest.mark.everything
def test_discarded_change_removes_its_new_keys(office: Office, publisher: Publisher) -> None:
    before = {path.name for path in publisher.site.keys.glob("*.pem")}
    office.role_keys.rotate("timestamp", plain_key)
    (made,) = {path.name for path in publisher.site.keys.glob("*.pem")} - before
    assert office.role_keys.discard() == [publisher.site.keys / "retired" / made]
    assert {path.name for path in publisher.site.keys.glob("*.pem")} == before
    assert office.role_keys.pending() is None
    with pytest.raises(PublishError, match="no change of the root is pending"):
        office.role_keys.discard()


@pytest.mark.everything
def test_expiring_root_waits_for_the_pending_change(publisher: Publisher, host: Host, clock: Clock) -> None:
    role_keys = RoleKeys(publisher.site, no_passphrase)
    role_keys.add("root", NewKey(plain_key().public), threshold=2)
    clock.advance(days=300)
    renewal = refresh_site(publisher.site, no_passphrase)
    assert "root" in renewal.due
    assert "root" not in renewal.signed
    role_keys.discard()
    assert "root" in refresh_site(publisher.site, no_passphrase).signed


def test_change_left_by_a_crash_does_not_block_the_root(publisher: Publisher, clock: Clock) -> None:
    role_keys = RoleKeys(publisher.site, no_passphrase)
    role_keys.add("root", NewKey(plain_key().public), threshold=2)
    waiting = publisher.site.pending_root.read_bytes()
    role_keys.discard()
    role_keys.renew()
    publisher.site.pending_root.write_bytes(waiting)
    clock.advance(days=300)
    assert "root" in refresh_site(publisher.site, no_passphrase).signed


def test_damaged_change_does_not_block_the_timestamp(publisher: Publisher, clock: Clock) -> None:
    publisher.site.pending_root.write_bytes(b"{")
    clock.advance(days=300)
    renewal = refresh_site(publisher.site, no_passphrase)
    assert "a change of the root is pending" in renewal.due["root"]
    assert renewal.signed == ["targets", "snapshot", "timestamp"]
    role_keys = RoleKeys(publisher.site, no_passphrase)
    with pytest.raises(FormatError, match=r"pending-root\.json: is not the next root of a site"):
        role_keys.pending()
    role_keys.discard()
    assert role_keys.pending() is None


def test_change_overtaken_by_a_newer_root_is_not_pending(office: Office, publisher: Publisher) -> None:
    office.role_keys.renew()
    waiting = publisher.site.pending_root.read_bytes()
    office.ceremony("alice", "bob")
    publisher.site.pending_root.write_bytes(waiting)
    assert office.role_keys.pending() is None
    office.role_keys.renew()
    assert office.ceremony("carol", "bob") == ["root"]


# --- information for signers --------------------------------------------------------------------------------


@pytest.mark.everything
def test_change_is_described_with_full_key_ids(office: Office) -> None:
    dave = plain_key()
    office.role_keys.rotate("root", lambda: NewKey(dave.public), key=office.people["alice"].public.keyid)
    office.role_keys.add("timestamp", plain_key(), threshold=2)
    changes = Proposal.load(office.export()).changes()
    assert changes[0] == "version 5 becomes 6"
    assert changes[1].startswith("expires 20")
    assert changes[2:4] == [
        f"root: new key {dave.public.keyid} (ed25519)",
        f"root: the key {office.people['alice'].public.keyid} (ed25519) is removed",
    ]
    assert changes[5] == "timestamp: 2 of 2 keys must sign, previously 1 of 1"
    assert json.loads(office.file.read_bytes())["changes"] == changes


def proposed(office: Office) -> dict[str, Any]:
    office.role_keys.renew()
    document: dict[str, Any] = json.loads(office.export().read_bytes())
    return document


def test_words_in_the_file_are_not_believed(office: Office) -> None:
    document = proposed(office)
    document["changes"] = ["nothing, really"]
    office.file.write_text(json.dumps(document))
    assert Proposal.load(office.file).changes()[0] == "version 5 becomes 6"


@pytest.mark.everything
def test_undescribed_change_is_pointed_out(office: Office) -> None:
    document = proposed(office)
    document["next"]["signed"]["x-other"] = "surprise"
    office.file.write_text(json.dumps(document))
    assert Proposal.load(office.file).changes()[-1].startswith("OTHER FIELDS")


def another_id(signed: dict[str, Any]) -> None:
    """Give a key a wrong ID."""
    key_id = signed["roles"]["root"]["keyids"][0]
    signed["keys"][key_id] = Metadata[Root](root_with_a_key()).to_dict()["signed"]["keys"].popitem()[1]


def root_with_a_key() -> Root:
    root = Root()
    root.add_key(plain_key().public, "root")
    return root


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda signed: signed.update(version=7), "the next root has version 7, expected 6"),
        (another_id, "lists the key [0-9a-f]{64} under the id '[0-9a-f]{64}'"),
        (
            lambda signed: signed["roles"]["timestamp"].update(threshold=2),
            "timestamp would have 1 key and require 2",
        ),
        (lambda signed: signed["roles"]["timestamp"].update(threshold=0), "is not a root"),
        (lambda signed: signed["roles"].pop("timestamp"), "is not a root"),
        (lambda signed: signed.update(_type="timestamp"), "is"),
        (lambda signed: signed.update(spec_version="2.0.0"), "follows version 2.0.0 of TUF"),
    ],
)
def test_impossible_proposals_are_not_signed(
    change: Callable[[dict[str, Any]], object], message: str, office: Office
) -> None:
    document = proposed(office)
    change(document["next"]["signed"])
    office.file.write_text(json.dumps(document))
    with pytest.raises(BundleError, match=message):
        Proposal.load(office.file)


def test_current_root_in_the_file_needs_valid_signatures(office: Office) -> None:
    document = proposed(office)
    document["current"]["signed"]["roles"]["root"]["threshold"] = 1
    office.file.write_text(json.dumps(document))
    with pytest.raises(SignatureError, match="the current root, version 5, is not signed by its keys"):
        Proposal.load(office.file)


@pytest.mark.parametrize(
    "contents", [b"", b"{}", b"[]", b'{"format": 2}', b'{"format": 1}', b"\xff", b"-" * 3_000_000]
)
def test_invalid_exported_file_is_reported(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(contents)
    with pytest.raises(BundleError, match="file: "):
        Proposal.load(tmp_path / "file")
    with pytest.raises(PublishError, match="missing: cannot be read: No such file"):
        Proposal.load(tmp_path / "missing")


@pytest.mark.everything
def test_ids_that_are_shown_are_ids_also_in_the_current_root(office: Office) -> None:
    """The creator of a fake site can sign for it, and would control the text on a signer's terminal."""
    office.role_keys.renew()
    proposal, signer = Proposal.load(office.export()), plain_key().signer
    assert signer is not None
    signer.public_key.keyid = "\x1b[2Jnothing changes"
    current = proposal.current.signed
    for key_id in list(current.roles["root"].keyids):
        current.revoke_key(key_id, "root")
    current.roles["root"].threshold = 1
    current.add_key(signer.public_key, "root")
    proposal.current.sign(signer)
    proposal.save(office.file)
    with pytest.raises(SignatureError, match=r"lists the key [0-9a-f]{64} under the id '.x1b\[2Jnothing"):
        Proposal.load(office.file)


def test_a_signature_that_does_not_hold_counts_for_nothing(office: Office) -> None:
    document = proposed(office)
    alice, bob = (office.people[name].public.keyid for name in ("alice", "bob"))
    document["next"]["signatures"] = [{"keyid": alice, "sig": "00" * 64}, {"keyid": bob, "sig": "00" * 64}]
    office.file.write_text(json.dumps(document))
    new, outcome = office.role_keys.take_signatures(office.file)
    assert new == 0
    assert outcome.pending
    assert office.ceremony("alice", "bob") == ["root"]


@pytest.mark.everything
def test_the_pending_file_can_be_signed_itself(office: Office, publisher: Publisher, tmp_path: Path) -> None:
    office.role_keys.renew()
    copy = Path(shutil.copyfile(publisher.site.pending_root, tmp_path / "copy.json"))
    office.sign(copy, "alice", "bob")
    assert office.role_keys.take_signatures(copy)[1].signed == ["root"]


@pytest.mark.everything
def test_a_damaged_pending_change_is_named(office: Office, publisher: Publisher) -> None:
    office.role_keys.renew()
    publisher.site.pending_root.write_bytes(b"{")
    with pytest.raises(FormatError, match=r"pending-root\.json: is not the next root of a site"):
        office.role_keys.pending()
    publisher.publish("1.1.0")
