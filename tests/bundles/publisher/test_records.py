"""Records of each bundle in a site: available and published versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.errors import PublishError, SignatureError
from bundles.format.release import Release
from bundles.publisher.channels import Channels, RolloutRequest
from bundles.publisher.lifecycle import refresh_site, verify_site
from bundles.publisher.publication import publish_bundle
from bundles.publisher.published import OFFERED, Record
from bundles.publisher.site import Site

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher


def never(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def announce(site: Site, record: Record) -> None:
    with site.locked():
        site.announce(site.edition(never), [record])


def test_all_that_was_published_and_said_is_on_record(publisher: Publisher, clock: Clock) -> None:
    first = clock.now
    clock.advance(days=1)
    publish_bundle(
        publisher.site, publisher.source("new"), never, version="1.1.0", request=RolloutRequest(percent=10)
    )
    Channels(publisher.site, never).halt("web", "stable")
    Channels(publisher.site, never).withdraw("web", "stable")
    history = publisher.site.record("web").history
    assert {name: version.published for name, version in history.versions.items()} == {
        "1.0.0": first,
        "1.1.0": clock.now,
    }
    output = [each.release for each in history.statements]
    assert [str(release) for release in output] == ["web 1.0.0", "web 1.1.0", "web 1.1.0", "None"]
    assert [bool(each and each.rollout and each.rollout.halted) for each in output] == [
        False,
        False,
        True,
        False,
    ]


def test_history_keeps_its_previous_file(publisher: Publisher) -> None:
    for number in range(4):
        publisher.publish(f"1.{number}.0")
    histories = list(publisher.site.public.glob("targets/web/*.history.json"))
    assert len(histories) == 2
    assert verify_site(publisher.site)


def test_index_offers_latest_and_named_versions(publisher: Publisher) -> None:
    publisher.publish("1.0.0", channel="old")
    for number in range(OFFERED + 2):
        publisher.publish(f"2.{number}.0")
    offered = publisher.site.record("web").index.releases
    assert sorted(offered) == sorted(["1.0.0", *(f"2.{number}.0" for number in range(2, OFFERED + 2))])


def test_a_version_that_is_offered_no_more_comes_back_by_name(publisher: Publisher, host: Host) -> None:
    for number in range(OFFERED + 2):
        publisher.publish(f"2.{number}.0")
    assert "1.0.0" not in publisher.site.record("web").index.releases
    Channels(publisher.site, never).roll_back("web", "stable", "1.0.0")
    publisher.deploy()
    assert host.version() == "1.0.0"
    assert host.fetch()


def test_the_next_version_follows_from_all_that_were_published(publisher: Publisher) -> None:
    publisher.publish("3.0.0", channel="canary")
    Channels(publisher.site, never).withdraw("web", "canary")
    for number in range(OFFERED + 1):
        publisher.publish(f"2.{number}.0")
    assert (
        str(publish_bundle(publisher.site, publisher.source("x"), never, version="auto").release)
        == "web 3.0.1"
    )


def test_pruned_version_is_named_and_not_offered(publisher: Publisher, clock: Clock) -> None:
    publisher.publish("1.1.0")
    record = publisher.site.record("web").without_files(["1.0.0", "1.1.0"], clock())
    announce(publisher.site, record)
    (archive,) = publisher.site.public.glob("targets/web/*.web-1.0.0.tar.gz")
    archive.unlink()
    record = publisher.site.record("web")
    assert set(record.index.releases) == {"1.1.0"}, "a channel names it"
    assert record.find_artifact("1.0.0") is None
    assert verify_site(publisher.site)
    with pytest.raises(
        PublishError, match=rf"web 1\.0\.0: was pruned on {clock():%Y-%m-%d}: publish it again"
    ):
        Channels(publisher.site, never).roll_back("web", "stable", "1.0.0")


def test_pruned_version_is_republished_with_equal_bytes_only(
    publisher: Publisher, host: Host, clock: Clock
) -> None:
    (archive,) = publisher.site.public.glob("targets/web/*.web-1.0.0.tar.gz")
    retained = shutil.copy(archive, publisher.site.directory / "kept.tar.gz")
    publisher.publish("1.1.0")
    announce(publisher.site, publisher.site.record("web").without_files(["1.0.0"], clock()))
    archive.unlink()
    with pytest.raises(
        PublishError, match=r"web 1\.0\.0: is already published with sha256 .*; specify a new version"
    ):
        publisher.publish("1.0.0", text="other files")
    publish_bundle(publisher.site, Path(retained), never)
    publisher.deploy()
    assert host.version() == "1.0.0"
    assert host.fetch()
    assert publisher.site.record("web").history.versions["1.0.0"].pruned is None


def test_the_index_and_the_history_agree(publisher: Publisher) -> None:
    """Both are signed, so only a publisher can make them differ."""
    forge = publisher.forge(publisher.site.metadata)
    (index,) = publisher.site.public.glob("targets/web/*.index.json")
    document = json.loads(index.read_bytes())
    document["releases"]["1.0.0"]["description"]["length"] += 1
    forge.put_index(json.dumps(document).encode())
    forge.publish()
    with pytest.raises(SignatureError, match=r"web 1\.0\.0: the index and the history list different files"):
        verify_site(publisher.site)


def test_a_site_of_the_layout_before_is_refused(publisher: Publisher) -> None:
    forge = publisher.forge(publisher.site.metadata)
    forge.targets.delegations = None
    forge.publish()
    actions: list[Callable[[], object]] = [
        lambda: publisher.publish("1.1.0"),
        lambda: refresh_site(publisher.site, never),
        publisher.site.releases,
        lambda: verify_site(publisher.site),
    ]
    for action in actions:
        with pytest.raises(
            PublishError, match=r"targets\.json: contains the published files, .* create a new site"
        ):
            action()


def test_a_bin_is_found_to_be_another_one(publisher: Publisher) -> None:
    forge = publisher.forge(publisher.site.metadata)
    forge.bin().unrecognized_fields["x-puller-bin"] = "bin-0"
    forge.publish()
    with pytest.raises(SignatureError, match=r"bin-5\.json: contains another bin than bin-5"):
        publisher.publish("1.1.0")


def test_publication_signs_changed_roles_only(publisher: Publisher) -> None:
    before = {path.name for path in publisher.site.metadata.iterdir()}
    publisher.publish("1.0.0", name="db")
    new = {path.name for path in publisher.site.metadata.iterdir()} - before
    assert new == {"2.bin-6.json", "2.bin-8.json", "3.snapshot.json"}


def test_the_bins_are_signed_anew_together(publisher: Publisher, host: Host, clock: Clock) -> None:
    clock.advance(days=40)
    refresh_site(publisher.site, never)
    publisher.publish("1.1.0")
    clock.advance(days=22)  # 28 days remain for old bins, over half of a lifetime for two bins
    assert refresh_site(publisher.site, never).signed == ["targets", "snapshot", "timestamp"]
    published = publisher.site.published()
    assert sorted(of_bin.version for of_bin in published.bins())[-3:] == [2, 3, 3]
    assert min(published.expiries().values()) > clock.now
    clock.advance(days=1)
    assert refresh_site(publisher.site, never).signed == ["timestamp"]
    publisher.deploy()
    assert host.version() == "1.1.0"


def test_hosts_get_an_empty_answer_after_a_withdrawal(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.0.0", channel="canary")
    Channels(publisher.site, never).withdraw("web", "stable")
    publisher.deploy()
    indexes = host.refresh()
    assert indexes.find("web", "stable") is None
    assert indexes.find("web", "canary") == Release.of("web", "1.0.0")
