"""Site data for the publisher: signed when changed, always consistent, and removed when no host can request them."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from bundles.errors import FormatError, PublishError, SignatureError
from bundles.format.site_targets import data_name, data_path
from bundles.format.size_limits import LARGEST_SITE_DATA
from bundles.publisher.lifecycle import refresh_site, verify_site
from bundles.publisher.mirroring.copy import SiteCopy
from bundles.publisher.mirroring.mirror_state import Selection
from bundles.publisher.pruning import prune_site
from bundles.publisher.publication import plan_data, publish_data, published_data, withdraw_data
from bundles.publisher.push.plan import files_of
from bundles.publisher.settings import Lifetimes, PruningRule
from bundles.publisher.site import Site
from bundles.transport.mirror import DirectoryMirror

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Publisher
    from tests.support.sweeps import Sweep

ONE, TWO = b"data: {a: 1}\n", b"data: {a: 2}\n"
LIFETIME = Lifetimes.parse({}, "").timestamp


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(key)


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(new_site: Path, tmp_path: Path, clock: Clock) -> Site:
    return Site(shutil.copytree(new_site, tmp_path / "site"), clock)


def kept(site: Site) -> list[str]:
    """Return the files of stored documents."""
    return sorted(path for path in files_of(site.public) if "/_data/" in path)


def contents(site: Site, name: str = "exports") -> bytes | None:
    result = site.data_of(site.published(), name)
    return result.contents if result else None


def test_the_same_text_is_neither_written_nor_signed_again(site: Site) -> None:
    first = publish_data(site, "exports", ONE, no_passphrase)
    assert first.changed
    before = {path: (site.public / path).stat().st_mtime_ns for path in files_of(site.public)}
    again = publish_data(site, "exports", ONE, no_passphrase)
    assert not again.changed
    assert (again.sha256, again.published, again.size) == (first.sha256, first.published, len(ONE))
    assert before == {path: (site.public / path).stat().st_mtime_ns for path in files_of(site.public)}


def test_another_version_and_back(site: Site) -> None:
    for text in (ONE, TWO, ONE):
        assert publish_data(site, "exports", text, no_passphrase).changed
        assert contents(site) == text
        assert verify_site(site).targets == 1


def test_documents_are_apart_from_each_other_and_from_bundles(site: Site, publisher: Publisher) -> None:
    publish_data(publisher.site, "web", ONE, no_passphrase)
    publish_data(publisher.site, "index", TWO, no_passphrase)
    publisher.publish("1.0.0")
    site = publisher.site
    assert [each.name for each in published_data(site)] == ["index", "web"]
    assert site.bundles() == ["web"]
    withdraw_data(site, "web", no_passphrase)
    assert [each.name for each in published_data(site)] == ["index"]
    assert site.bundles() == ["web"]
    assert verify_site(site).targets == 4


@pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "a b", "-a", "_a", "x" * 65, "a\n"])
def test_names_follow_the_rules_for_bundles(site: Site, name: str) -> None:
    with pytest.raises(FormatError):
        publish_data(site, name, ONE, no_passphrase)
    with pytest.raises((FormatError, PublishError)):
        withdraw_data(site, name, no_passphrase)
    assert kept(site) == []


def test_names_and_paths_of_site_data_match() -> None:
    assert data_name(data_path("exports")) == "exports"
    for path in (
        "web/index.json",
        "_data/A.yaml",
        "_data/a.json",
        "_data/a/b.yaml",
        "data/a.yaml",
        "_data/.yaml",
    ):
        assert data_name(path) is None


def test_unreadable_site_data_are_refused(site: Site) -> None:
    with pytest.raises(
        PublishError, match=r"4000001 bytes, and hosts read at most 4000000, so nothing was published"
    ):
        publish_data(site, "exports", b" " * (LARGEST_SITE_DATA + 1), no_passphrase)
    assert publish_data(site, "exports", b" " * LARGEST_SITE_DATA, no_passphrase).changed


def test_absent_site_data_are_not_withdrawn(site: Site) -> None:
    with pytest.raises(PublishError, match=r"site data 'exports' is not published \(no site data"):
        withdraw_data(site, "exports", no_passphrase)
    publish_data(site, "other", ONE, no_passphrase)
    with pytest.raises(PublishError, match="published site data: other"):
        withdraw_data(site, "exports", no_passphrase)


def test_a_plan_writes_nothing(site: Site) -> None:
    before = files_of(site.public)
    assert plan_data(site, "exports", ONE).changed
    assert files_of(site.public) == before
    publish_data(site, "exports", ONE, no_passphrase)
    assert not plan_data(site, "exports", ONE).changed
    assert plan_data(site, "exports", TWO).changed


def test_earlier_site_data_stay_while_hosts_may_fetch_them(site: Site, clock: Clock) -> None:
    publish_data(site, "exports", ONE, no_passphrase)
    publish_data(site, "exports", TWO, no_passphrase)
    assert len(kept(site)) == 2
    clock.now += LIFETIME - timedelta(days=1)
    refresh_site(site, no_passphrase)
    publish_data(site, "exports", ONE + b" ", no_passphrase)
    assert len(kept(site)) == 3
    clock.now += LIFETIME + timedelta(days=2)
    publish_data(site, "exports", TWO + b" ", no_passphrase)
    assert len(kept(site)) == 2
    withdraw_data(site, "exports", no_passphrase)
    clock.now += LIFETIME + timedelta(days=2)
    refresh_site(site, no_passphrase)
    prune_site(site, PruningRule(), no_passphrase)
    assert kept(site) == []


def test_a_document_that_is_published_again_is_not_pruned(site: Site, clock: Clock) -> None:
    for text in (ONE, TWO, ONE):
        publish_data(site, "exports", text, no_passphrase)
    clock.now += LIFETIME + timedelta(days=2)
    refresh_site(site, no_passphrase)
    prune_site(site, PruningRule(), no_passphrase)
    assert contents(site) == ONE
    assert len(kept(site)) == 1


def test_damaged_site_data_are_found(site: Site) -> None:
    publish_data(site, "exports", ONE, no_passphrase)
    (path,) = kept(site)
    (site.public / path).write_bytes(TWO)
    for look in (
        lambda: verify_site(site),
        lambda: published_data(site),
        lambda: publish_data(site, "exports", TWO, no_passphrase),
    ):
        with pytest.raises(SignatureError, match=r"exports\.yaml"):
            look()


def test_killed_at_any_step_site_data_are_old_or_new(
    site: Site, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    publish_data(site, "exports", ONE, no_passphrase)
    rename, remaining = os.rename, {"moves": -1}

    def stopped(*arguments: object, **options: object) -> None:
        if remaining["moves"] == 0:
            raise Killed
        remaining["moves"] -= 1
        rename(*arguments, **options)  # type: ignore[arg-type]

    def killed_at(step: int) -> bool:
        text = b"data: {a: %d}\n" % (step + 10)
        before = contents(site)
        remaining["moves"], happened = step, False
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", stopped)
            patch.setattr(os, "replace", stopped)
            try:
                publish_data(site, "exports", text, no_passphrase)
            except Killed:
                happened = True
        remaining["moves"] = -1
        assert contents(site) in (before, text)
        assert verify_site(site).targets == 1
        publish_data(site, "exports", text, no_passphrase)
        assert contents(site) == text
        return happened

    assert sweep(killed_at) >= 4


@pytest.mark.parametrize("bundles", [(), ("web",)])
def test_copies_of_a_site_have_all_documents(
    publisher: Publisher, tmp_path: Path, bundles: tuple[str, ...]
) -> None:
    publisher.publish("1.0.0")
    publisher.publish("1.0.0", name="other")
    site, mirror = publisher.site, DirectoryMirror(str(publisher.site.public))
    for text in (ONE, TWO, ONE):
        publish_data(site, "exports", text, no_passphrase)
        SiteCopy(mirror, tmp_path / "copy", site.anchor, Selection(bundles)).run()
        result = {path for path in files_of(tmp_path / "copy" / "public") if "/_data/" in path}
        info = [path for path in kept(site) if (site.public / path).read_bytes() == text]
        assert set(info) <= result
    assert SiteCopy(mirror, tmp_path / "copy", None, Selection(bundles)).run().is_empty
