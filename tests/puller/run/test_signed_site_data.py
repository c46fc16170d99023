"""Site data signed by the site: a host follows it like bundles, and keeps the last good version."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tuf.api.metadata import Metadata, Targets

from bundles.client.revalidation import first_expiry
from bundles.format.site_targets import custom_fields, data_path
from bundles.format.tuf import target_path
from bundles.publisher.publication import publish_data, withdraw_data
from bundles.publisher.signing_keys import make_key
from bundles.publisher.site import find_target
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.stories import Host, Outcome, Publisher, WebServer
    from tests.support.sweeps import Sweep

MANIFEST = """\
data: {exports: {web: {}}}
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/backends": {content: "{{ data.exports.web | join(' ') }}"}
"""
ONE, TWO = "data: {exports: {web: {w1: {}}}}\n", "data: {exports: {web: {w1: {}, w2: {}}}}\n"


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(key)


def publish(publisher: Publisher, text: str, name: str = "exports") -> None:
    publish_data(publisher.site, name, text.encode(), no_passphrase)
    publisher.deploy()


def document(publisher: Publisher, name: str = "exports") -> Path:
    """Return the path of the current document in the served directory."""
    info = find_target(publisher.site.published(), data_path(name))
    assert info is not None
    return publisher.served / target_path(info)


def backends(host: Host) -> str:
    return (host.machine / "backends").read_text()


def assert_refused(host: Host, outcome: Outcome, status: int, message: str, kept: str) -> None:
    """Check the outcome of the run, and that this and the next run enforce the earlier document."""
    assert outcome.status == status, outcome
    host.assert_told(message, outcome)
    assert backends(host) == kept
    assert host.run().status == status
    assert backends(host) == kept


@pytest.fixture
def followed(host: Host, publisher: Publisher) -> Iterator[None]:
    """Make the host follow the document and apply its first version."""
    publisher.publish("1.0.0", MANIFEST, files={})
    publish(publisher, ONE)
    host.configure(data=["site:exports"])
    assert host.run().status == 0
    assert backends(host) == "w1"
    yield
    for place in (host.state / "trust").rglob("*.unfinished"):
        raise AssertionError(place)


pytestmark = pytest.mark.usefixtures("followed")


def test_published_site_data_reach_the_host_and_back(host: Host, publisher: Publisher) -> None:
    for text, wanted in ((TWO, "w1 w2"), (ONE, "w1"), (TWO, "w1 w2")):
        publish(publisher, text)
        assert host.run().status == 0
        assert backends(host) == wanted
        outcome = host.run()
        assert outcome.status == 0
        assert "0 changed" in outcome.output


def test_a_run_that_finds_the_same_asks_for_two_small_files(host: Host, web: WebServer) -> None:
    web.requests.clear()
    assert host.run().status == 0
    assert len(web.requests) == 2, web.requests


def test_document_of_a_new_release_is_not_fetched_again(
    host: Host, publisher: Publisher, web: WebServer
) -> None:
    publisher.publish("1.1.0", MANIFEST, files={})
    web.requests.clear()
    assert host.run().status == 0
    assert not [path for path in web.requests if "_data" in path]
    assert backends(host) == "w1"


def test_a_host_that_was_away_for_a_month_follows(host: Host, publisher: Publisher) -> None:
    with publisher.at_another_time(days=-30):
        publish(publisher, TWO)
    for text in (ONE, TWO, ONE):
        publish(publisher, text)
    publisher.refresh()
    publish(publisher, TWO)
    assert host.run().status == 0
    assert backends(host) == "w1 w2"


def test_documents_are_merged_in_the_order_of_the_configuration(host: Host, publisher: Publisher) -> None:
    publish(publisher, "data: {exports: {web: {w9: {}}}}", "other")
    host.configure(data=["site:exports", "site:other"])
    assert host.run().status == 0
    assert backends(host) == "w1 w9"
    host.configure(data="site:other")
    assert host.run().status == 0
    assert backends(host) == "w9"
    assert len(list((host.state / "data").iterdir())) == 1
    publisher.refresh()
    assert host.run().status == 0
    assert [path.name for path in (host.state / "trust" / "indexes").glob("_*")] == ["_other.yaml"]


def test_noop_writes_nothing(host: Host, publisher: Publisher) -> None:
    publish(publisher, TWO)
    before = {path: path.read_bytes() for path in host.state.rglob("*") if path.is_file()}
    outcome = host.run("--noop")
    assert "would change" in outcome.output
    assert before == {path: path.read_bytes() for path in host.state.rglob("*") if path.is_file()}
    assert backends(host) == "w1"


def test_offline_and_without_the_site_the_last_good_copy_is_used(
    host: Host, publisher: Publisher, web: WebServer
) -> None:
    publish(publisher, TWO)
    assert host.run("--offline").status == 0
    assert backends(host) == "w1"
    web.stop()
    (host.machine / "backends").unlink()
    outcome = host.run()
    assert outcome.status == 14
    assert backends(host) == "w1"
    assert "site:exports" not in outcome.output, "the site's problem is told once"
    web.start()
    assert host.run().status == 0
    assert backends(host) == "w1 w2"


def test_first_run_without_the_site_omits_the_document(host: Host, web: WebServer) -> None:
    shutil.rmtree(host.state / "data")
    web.stop()
    outcome = host.run()
    assert outcome.status == 14
    host.assert_told("site:exports: the site was not reachable, continuing without", outcome)
    assert backends(host) == ""


@pytest.mark.parametrize("how", ["withdrawn", "misspelt"])
def test_a_document_that_is_not_published_is_told(host: Host, publisher: Publisher, how: str) -> None:
    if how == "withdrawn":
        withdraw_data(publisher.site, "exports", no_passphrase)
        publisher.deploy()
        assert_refused(
            host,
            host.run(),
            78,
            "site:exports: the site does not publish these data, using its last good",
            "w1",
        )
        publish(publisher, TWO)
        assert host.run().status == 0
        assert backends(host) == "w1 w2"
    else:
        host.configure(data=["site:exports", "site:export"])
        message = "site:export: the site does not publish these data, continuing without it"
        assert_refused(host, host.run(), 78, message, "w1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: [1]\n", "site:exports:1:1: data: is a list"),
        ("data: {exports: '{{ facts.nothing.here }}'}\n", "site:exports.* facts.nothing"),
        ("data: {a: 1, a: 2}\n", "site:exports.*'?a'? "),
        (b"data: \xff\n", "site:exports: is not UTF-8"),
        ("", "site:exports"),
    ],
)
def test_a_document_that_is_not_valid_here_is_told(
    host: Host, publisher: Publisher, text: str | bytes, message: str
) -> None:
    """The publisher refuses most of these documents, and hosts do not rely on that."""
    publish_data(publisher.site, "exports", text if isinstance(text, bytes) else text.encode(), no_passphrase)
    publisher.deploy()
    outcome = host.run()
    if text:
        assert_refused(host, outcome, outcome.status, message, "w1")
        assert outcome.status not in (0, 70)


def test_a_document_of_a_later_format_is_refused_in_words(host: Host, publisher: Publisher) -> None:
    """The host then refuses the whole site, as with an index of a later format."""

    def later(published: datetime) -> dict[str, Any]:
        return {**custom_fields(published), "format": 2}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bundles.publisher.publication.custom_fields", later)
        publish(publisher, TWO)
    assert_refused(
        host, host.run(), 13, "format: is 2, and this version of Puller reads 1: upgrade Puller", "w1"
    )


def test_metadata_of_the_document_count_for_when_trust_expires(host: Host, publisher: Publisher) -> None:
    trust = host.state / "trust"
    name = f"{bin_of(data_path('exports'))}.json"
    metadata = Metadata[Targets].from_bytes((trust / name).read_bytes())
    metadata.signed.expires = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    (trust / name).write_bytes(metadata.to_bytes())
    assert first_expiry(trust, ["web"], ["exports"]) == metadata.signed.expires
    assert first_expiry(trust, ["web"]) != metadata.signed.expires


def test_damaged_site_data_copy_is_repaired(host: Host, publisher: Publisher) -> None:
    for place in ("trust/indexes/_exports.yaml", "trust", "data"):
        result = host.state / place
        files = [result] if result.is_file() else [path for path in result.rglob("*") if path.is_file()]
        for path in files:
            path.write_bytes(b"damaged")
        publish(publisher, TWO)
        host.run()
        assert host.run().status == 0
        assert backends(host) == "w1 w2"
        publish(publisher, ONE)
        assert host.run().status == 0


# --- attacks ------------------------------------------------------------------------------------------------


@pytest.mark.attack("site-data.replayed")
def test_the_site_as_it_was_before_is_refused(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    shutil.copytree(publisher.served, tmp_path / "before")
    publish(publisher, TWO)
    assert host.run().status == 0
    shutil.rmtree(publisher.served / "metadata")
    shutil.copytree(tmp_path / "before" / "metadata", publisher.served / "metadata")
    assert_refused(host, host.run(), 12, "older", "w1 w2")


@pytest.mark.attack("site-data.replayed")
def test_the_document_as_it_was_before_is_refused(host: Host, publisher: Publisher) -> None:
    earlier = document(publisher).read_bytes()
    publish(publisher, TWO)
    document(publisher).write_bytes(earlier)
    assert_refused(host, host.run(), 10, "exports.yaml", "w1")


@pytest.mark.attack("site-data.replayed", "site-data.mixed")
def test_the_bin_as_it_was_before_is_refused(host: Host, publisher: Publisher) -> None:
    name = bin_of(data_path("exports"))
    earlier = publisher.newest(f"metadata/*.{name}.json").read_bytes()
    publish(publisher, TWO)
    publisher.newest(f"metadata/*.{name}.json").write_bytes(earlier)
    assert_refused(host, host.run(), 10, name, "w1")


@pytest.mark.attack("site-data.expired")
def test_a_document_under_expired_metadata_is_not_used(host: Host, publisher: Publisher) -> None:
    with publisher.at_another_time(days=-20):
        publish(publisher, TWO)
    assert_refused(host, host.run(), 11, "expired", "w1")


@pytest.mark.attack("site-data.withheld")
@pytest.mark.parametrize("what", ["document", "bin"])
def test_withheld_site_data_are_reported(host: Host, publisher: Publisher, what: str) -> None:
    publish(publisher, TWO)
    name = bin_of(data_path("exports"))
    (document(publisher) if what == "document" else publisher.newest(f"metadata/*.{name}.json")).unlink()
    assert_refused(host, host.run(), 14, "404", "w1")


@pytest.mark.attack("site-data.changed", "site-data.larger")
@pytest.mark.parametrize("how", ["changed", "longer", "endless"])
def test_bytes_that_were_not_signed_are_refused(host: Host, publisher: Publisher, how: str) -> None:
    publish(publisher, TWO)
    path = document(publisher)
    data = path.read_bytes()
    lies = {"changed": data.replace(b"w2", b"w3"), "longer": data + b" ", "endless": data + b" " * 20_000_000}
    path.write_bytes(lies[how])
    assert_refused(host, host.run(), 10, "exports.yaml", "w1")


@pytest.mark.attack("site-data.mixed")
def test_swapped_site_data_are_refused(host: Host, publisher: Publisher) -> None:
    publish(publisher, TWO, "other")
    publish(publisher, "data: {exports: {web: {w5: {}}}}")
    shutil.copyfile(document(publisher, "other"), document(publisher))
    assert_refused(host, host.run(), 10, "exports.yaml", "w1")


@pytest.mark.attack("site-data.key")
@pytest.mark.parametrize("whose", ["timestamp", "unknown"])
def test_a_document_that_another_key_has_signed_is_refused(
    host: Host, publisher: Publisher, whose: str
) -> None:
    """The attacker has the keys of the snapshot and the timestamp, and signs everything else correctly."""
    edition = publisher.site.edition(no_passphrase)
    assert list(edition.published.bins())
    root = edition.published.root
    if whose == "unknown":
        signer = make_key(None)
        edition.keyring.add(signer)
        root.add_key(signer.public, "targets")
        root.revoke_key(root.roles["targets"].keyids[0], "targets")
    else:
        (key,) = root.roles["timestamp"].keyids
        root.roles["targets"].keyids = [key]
        (file,) = publisher.site.keys.glob("timestamp-*")
        shutil.copy(file, file.with_name(file.name.replace("timestamp", "targets")))
    site = publisher.site
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(site), "edition", lambda *_: edition)
        publish_data(site, "exports", TWO.encode(), no_passphrase)
    publisher.deploy()
    assert_refused(host, host.run(), 10, "signed", "w1")


@pytest.mark.attack("site-data.killed")
def test_killed_while_a_document_is_kept_the_next_run_has_it(
    host: Host, publisher: Publisher, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    texts = {True: TWO, False: ONE}
    at = {"step": -1}
    import os

    rename = os.rename

    def stopped(*arguments: object, **options: object) -> None:
        if at["step"] == 0:
            raise Killed
        at["step"] -= 1
        rename(*arguments, **options)  # type: ignore[arg-type]

    def killed_at(step: int) -> bool:
        second = step % 2 == 0
        publish(publisher, texts[second])
        at["step"] = step
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", stopped)
            patch.setattr(os, "replace", stopped)
            try:
                host.run()
            except Killed:
                happened = True
            else:
                happened = False
        at["step"] = -1
        assert host.run().status == 0
        assert backends(host) == ("w1 w2" if second else "w1")
        return happened

    assert sweep(killed_at) > 2
