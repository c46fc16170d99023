"""Pruning: which files a site removes and when. Files that hosts may still request stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bundles.errors import KeyFileError, PublishError
from bundles.publisher.channels import Channels
from bundles.publisher.lifecycle import verify_site
from bundles.publisher.pruning import NOTES_FILE, Pruned, load_notes, plan_pruning, prune_site, save_notes
from bundles.publisher.settings import PruningRule
from bundles.publisher.site import SETTINGS
from tests.support.sites import Clock, Host, Publisher
from tests.support.sweeps import Sweep

LITTLE = PruningRule(versions=2, after=timedelta(days=1))
SETTLED = {"days": 9}
"""After this time, today's timestamp has expired on all hosts: seven days, and one day of grace."""


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def prune(publisher: Publisher, rule: PruningRule = LITTLE) -> Pruned:
    pruned = prune_site(publisher.site, rule, no_passphrase)
    publisher.deploy()
    return pruned


def settle(publisher: Publisher, rule: str) -> None:
    """Add a pruning rule to the settings of the site."""
    path = publisher.site.directory / SETTINGS
    path.write_text(f"{path.read_text()}prune: {rule}\n")


def archives(publisher: Publisher, bundle: str = "web") -> list[str]:
    """Return the versions that have an archive."""
    names = os.listdir(publisher.site.public / "targets" / bundle)
    return sorted(name.split("-", 1)[1].removesuffix(".tar.gz") for name in names if name.endswith(".tar.gz"))


def metadata(publisher: Publisher) -> set[str]:
    return set(os.listdir(publisher.site.metadata))


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def four_days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, datetime]:
    """Return the directory of a publisher with a release of each of four days, and the time after them."""
    clock = Clock()
    directory = tmp_path_factory.mktemp("four-days")
    publisher = Publisher(directory, clock)
    for minor in range(4):
        publisher.publish(f"1.{minor}.0")
        clock.advance(days=1)
    return directory, clock.now


@pytest.fixture
def publisher(tmp_path: Path, four_days: tuple[Path, datetime], clock: Clock) -> Publisher:
    """Return a publisher with ``web`` 1.0.0 to 1.3.0, one each day, all in channel stable."""
    directory, clock.now = four_days
    return Publisher(tmp_path / "publisher", clock, like=directory)


def test_pruned_version_is_recorded_before_its_archive_goes(publisher: Publisher, clock: Clock) -> None:
    pruned = prune(publisher)
    assert [version.version for version in pruned.versions["web"]] == ["1.0.0", "1.1.0"]
    assert archives(publisher) == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]
    assert set(publisher.site.record("web").index.releases) == {"1.2.0", "1.3.0"}
    clock.advance(days=8)
    publisher.refresh()
    assert archives(publisher) == ["1.2.0", "1.3.0"]
    assert prune(publisher).versions == {}
    verify_site(publisher.site)


def test_nothing_goes_a_second_before_its_time(publisher: Publisher, clock: Clock) -> None:
    until = prune(publisher).swept.until
    assert until is not None
    clock.now = until - timedelta(seconds=1)
    publisher.refresh()
    assert archives(publisher) == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]
    clock.now = until
    publisher.refresh()
    assert archives(publisher) == ["1.2.0", "1.3.0"]


def test_metadata_that_no_host_can_ask_for_goes_and_roots_stay(publisher: Publisher, clock: Clock) -> None:
    before = metadata(publisher)
    clock.advance(**SETTLED)
    publisher.refresh()
    after = metadata(publisher)
    published = publisher.site.published()
    named = {f"{meta.version}.{name}" for name, meta in published.snapshot.meta.items()}
    assert after == {
        *named,
        "1.root.json",
        "timestamp.json",
        f"{published.timestamp.snapshot_meta.version}.snapshot.json",
    }
    assert len(before - after) >= 3 * 2
    verify_site(publisher.site)


def test_metadata_versions_are_never_reused(publisher: Publisher, clock: Clock) -> None:
    for _ in range(3):
        before = publisher.site.published().snapshot.version
        clock.advance(**SETTLED)
        publisher.refresh()
        publisher.publish(f"2.{before}.0")
        assert publisher.site.published().snapshot.version > before


def test_prune_plan_predicts_and_writes_nothing(publisher: Publisher, clock: Clock) -> None:
    clock.advance(**SETTLED)
    before = {path: path.read_bytes() for path in publisher.site.directory.rglob("*") if path.is_file()}
    planned = plan_pruning(publisher.site, LITTLE)
    assert [version.version for version in planned.versions["web"]] == ["1.0.0", "1.1.0"]
    assert any(path.endswith(".snapshot.json") for path in planned.swept.removed)
    assert {path.rsplit("-", 1)[-1] for path in planned.swept.waiting if path.endswith(".tar.gz")} == {
        "1.0.0.tar.gz",
        "1.1.0.tar.gz",
    }
    assert before == {
        path: path.read_bytes() for path in publisher.site.directory.rglob("*") if path.is_file()
    }
    # Publishing the pruned versions also removes histories.
    assert prune(publisher).swept.removed.items() <= planned.swept.removed.items()


def test_publication_prunes_by_the_rule_of_the_site(publisher: Publisher, clock: Clock) -> None:
    settle(publisher, "{versions: 1, after: 36h}")
    publisher.publish("1.4.0")
    history = publisher.site.record("web").history
    assert [name for name, of in history.versions.items() if of.pruned] == ["1.0.0", "1.1.0"]
    clock.advance(**SETTLED)
    publisher.publish("1.0.0", name="other")
    assert archives(publisher) == ["1.2.0", "1.3.0", "1.4.0"]


def test_manually_pruned_site_keeps_everything_with_dates(publisher: Publisher, clock: Clock) -> None:
    settle(publisher, "{automatic: false}")
    publisher.publish("1.4.0")
    before = metadata(publisher)
    clock.advance(**SETTLED)
    publisher.refresh()
    assert before <= metadata(publisher)
    assert prune(publisher).swept.removed
    assert len(metadata(publisher)) < len(before)


def test_republished_version_stays(publisher: Publisher, clock: Clock) -> None:
    prune(publisher)
    clock.advance(days=1)
    publisher.publish("1.0.0", text="web 1.0.0\n")
    clock.advance(**SETTLED)
    publisher.refresh()
    assert archives(publisher) == ["1.0.0", "1.2.0", "1.3.0"]
    verify_site(publisher.site)


def test_rollback_to_a_pruned_version_names_the_day(publisher: Publisher) -> None:
    prune(publisher)
    with pytest.raises(PublishError, match=r"web 1\.0\.0: was pruned on 2\d{3}-\d\d-\d\d"):
        Channels(publisher.site, no_passphrase).roll_back("web", "stable", "1.0.0")


def test_long_lived_timestamp_keeps_its_files(new_publisher: Callable[..., Publisher], clock: Clock) -> None:
    publisher = new_publisher(timestamp="30d")
    publisher.publish("1.0.0")
    held = metadata(publisher)
    path = publisher.site.directory / SETTINGS
    path.write_text(path.read_text().replace("timestamp: 30d", "timestamp: 1d"))
    publisher.publish("1.1.0")
    clock.advance(days=3)
    publisher.refresh()
    assert held <= metadata(publisher)
    clock.advance(days=28)
    publisher.refresh()
    assert not held <= metadata(publisher)


def test_files_of_others_and_roots_are_never_touched(publisher: Publisher, clock: Clock) -> None:
    ours = [publisher.site.public / name for name in ("index.html", "metadata/README", "targets/web/notes")]
    for path in ours:
        path.write_text("mine\n")
    (publisher.site.public / "targets/My Files").mkdir()
    shared = publisher.site.public / f"targets/files/{'a' * 64}"
    shared.write_text("named by something else\n")
    prune(publisher)
    clock.advance(**SETTLED)
    prune(publisher)
    assert all(path.exists() for path in (*ours, shared, publisher.site.metadata / "1.root.json"))


def test_a_link_among_the_files_is_removed_and_not_followed(
    publisher: Publisher, clock: Clock, tmp_path: Path
) -> None:
    (outside := tmp_path / "outside").write_text("not of the site\n")
    (link := publisher.site.metadata / "1.elsewhere.json").symlink_to(outside)
    prune(publisher)
    clock.advance(**SETTLED)
    prune(publisher)
    assert not link.is_symlink()
    assert outside.read_text() == "not of the site\n"


def test_files_of_a_killed_publisher_are_pruned(publisher: Publisher, clock: Clock) -> None:
    leftovers = [
        publisher.site.metadata / "900.snapshot.json",
        publisher.site.public / f"targets/web/{'a' * 64}.web-9.tar.gz",
        publisher.site.public / f"targets/new/{'b' * 64}.new-1.tar.gz",
    ]
    leftovers[-1].parent.mkdir()
    for path in leftovers:
        path.write_text("half of an edition")
    half = publisher.site.metadata / ".timestamp.json.0123456789ab.new"
    half.write_text("half a file")
    prune(publisher)
    assert (all(path.exists() for path in leftovers), half.exists()) == (True, False)
    clock.advance(**SETTLED)
    prune(publisher)
    assert not any(path.exists() for path in leftovers)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"format": 2}',
        '{"format": 1, "until": {"metadata/1.snapshot.json": "2020-01-01T00:00:00"}}',
    ],
)
@pytest.mark.representatives(3)
def test_notes_that_cannot_be_read_let_files_stay_longer(
    publisher: Publisher, clock: Clock, text: str
) -> None:
    (publisher.site.directory / NOTES_FILE).write_text(text)
    before = metadata(publisher)
    assert prune(publisher).swept.removed == {}
    assert before <= metadata(publisher)
    clock.advance(**SETTLED)
    assert prune(publisher).swept.removed


def test_false_notes_remove_no_named_or_foreign_file(
    publisher: Publisher, clock: Clock, tmp_path: Path
) -> None:
    (outside := tmp_path / "outside.json").write_text("mine")
    path = publisher.site.directory / NOTES_FILE
    notes = load_notes(path)
    files = [each.relative_to(publisher.site.public) for each in publisher.site.public.rglob("*.*")]
    lies = [*map(str, files), "metadata/../../../../outside.json", str(outside), "targets/../../keys/a.pem"]
    notes.until = dict.fromkeys(lies, clock.now - timedelta(days=1))
    save_notes(path, notes)
    publisher.refresh()
    assert outside.exists()
    verify_site(publisher.site)


def test_pruning_without_outdated_versions_needs_no_key(publisher: Publisher) -> None:
    for key in publisher.site.keys.iterdir():
        key.unlink()
    assert prune(publisher, PruningRule()).versions == {}
    with pytest.raises(KeyFileError):
        prune(publisher)


def test_a_failure_to_remove_does_not_undo_a_publication(
    publisher: Publisher, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock.advance(**SETTLED)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        publisher.publish("1.4.0")
    assert "unneeded files cannot be removed: " in caplog.text
    publisher.refresh()
    assert len([name for name in metadata(publisher) if "snapshot" in name]) <= 3


class Killed(BaseException):
    """An exception that no code handles."""


def killed_at(moment: int, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Kill ``action`` at its n-th moment just before or after a rename or a removal. Return whether it was killed."""
    moments = iter(range(100_000))

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> None:
            if next(moments) == moment:
                raise Killed
            call(*arguments, **options)
            if next(moments) == moment:
                raise Killed

        return wrapper

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(os, "rename", dying(os.rename))
        patch.setattr(os, "unlink", dying(os.unlink))
        action()
        return False
    return True


@pytest.mark.everything
def test_killed_pruning_leaves_a_complete_site_and_is_resumed(
    publisher: Publisher,
    clock: Clock,
    new_host: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sweep: Sweep,
) -> None:
    settle(publisher, "{automatic: false}")
    clock.advance(**SETTLED)
    publisher.refresh()
    site, before = publisher.site.directory, tmp_path / "before"
    shutil.copytree(site, before)
    prune(publisher)
    pruned, host = archives(publisher), new_host(publisher.site.public)

    def is_killed_at(moment: int) -> bool:
        shutil.rmtree(site)
        shutil.copytree(before, site)
        pruning = partial(prune_site, publisher.site, LITTLE, no_passphrase)
        if not killed_at(moment, pruning, monkeypatch):
            return False
        assert host.fetch()
        pruning()
        assert archives(publisher) == pruned
        return True

    assert sweep(is_killed_at) > 20
    verify_site(publisher.site)


@pytest.mark.everything
def test_a_host_that_was_away_for_a_month_comes_back_by_itself(
    publisher: Publisher, clock: Clock, new_host: Callable[..., Host]
) -> None:
    settle(publisher, "{versions: 1, after: 1d}")
    host, missing = new_host(), new_host(name="missing")
    assert host.fetch()
    for day in range(30):
        clock.advance(days=1)
        publisher.publish(f"2.{day}.0")
    assert len(archives(publisher)) < 12
    assert "1.3.0" not in archives(publisher)
    assert (host.version(), missing.version()) == ("2.29.0", "2.29.0")
    assert host.fetch() == missing.fetch()


def test_host_that_just_saw_the_site_gets_its_files(publisher: Publisher, clock: Clock, host: Host) -> None:
    client = host.client()
    release = client.refresh().find("web", "stable")
    assert release is not None
    settle(publisher, "{versions: 1, after: 1m}")
    clock.advance(minutes=2)
    publisher.publish("2.0.0")
    clock.advance(days=3)
    publisher.publish("2.1.0")
    prune(publisher, PruningRule(versions=1, after=timedelta(minutes=1)))
    assert client.fetch(release, host.downloads / "bundle").path.exists()


@pytest.mark.crash
@pytest.mark.thorough
def test_disk_usage_stays_flat_over_hundreds_of_releases(
    publisher: Publisher, clock: Clock, host: Host, thorough: bool
) -> None:
    settle(publisher, "{versions: 5, after: 7d}")
    sizes = []
    for number in range(500 if thorough else 200):
        clock.advance(hours=12)
        publisher.publish(f"3.{number}.0", text=f"{number}\n")
        if number % 25 == 24:
            publisher.refresh()
            assert host.version() == f"3.{number}.0"
            histories = sum(path.stat().st_size for path in publisher.site.public.rglob("*.history.json"))
            assert histories < 2 * 1000 * (number + 10)  # a line for each version, in two histories
            sizes.append(size(publisher.site.public) - histories)
    assert max(sizes[4:]) < 1.25 * min(sizes[4:])  # for a while, bins that are signed again exist twice
    assert len(archives(publisher)) < 50
    verify_site(publisher.site)
