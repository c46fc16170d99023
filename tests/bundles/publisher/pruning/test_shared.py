"""Shared files are removed when no kept version contains them and no host can request them."""

from __future__ import annotations

import hashlib
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.lifecycle import verify_site
from bundles.publisher.pruning import NOTES, Pruned, plan_pruning, prune_site
from bundles.publisher.settings import PruningRule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sites import Clock, Publisher

ONE = PruningRule(versions=1, after=timedelta(minutes=1))


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def has(publisher: Publisher, text: str) -> bool:
    return publisher.site.files.path(hashlib.sha256(text.encode()).hexdigest()).exists()


def prune(publisher: Publisher) -> Pruned:
    return prune_site(publisher.site, ONE, no_passphrase)


def prune_twice(publisher: Publisher, clock: Clock) -> None:
    """Prune twice: to announce the removal, and to remove when no host can request the files any more."""
    clock.advance(minutes=2)
    prune(publisher)
    clock.advance(days=9)
    publisher.refresh()
    prune(publisher)
    verify_site(publisher.site)


@pytest.fixture
def outdated(publisher: Publisher, clock: Clock) -> Publisher:
    """Return a site with three more versions, of which the rule keeps the last two."""
    for version, text in (("2.0.0", "old\n"), ("2.1.0", "before\n"), ("2.2.0", "now\n")):
        clock.advance(hours=1)
        publisher.publish(version, text=text)
    return publisher


def test_files_of_a_pruned_version_go_when_unreachable(outdated: Publisher, clock: Clock) -> None:
    clock.advance(minutes=2)
    assert any("/files/" in path for path in prune(outdated).swept.waiting)
    assert has(outdated, "old\n")
    prune_twice(outdated, clock)
    assert (has(outdated, "old\n"), has(outdated, "before\n"), has(outdated, "now\n")) == (False, True, True)
    assert has(outdated, "resources: []\n")


def test_a_file_that_another_bundle_has_stays(outdated: Publisher, clock: Clock) -> None:
    outdated.publish("1.0.0", name="db", text="old\n")
    prune_twice(outdated, clock)
    assert has(outdated, "old\n")


def test_a_file_that_is_published_again_while_it_waits_stays(outdated: Publisher, clock: Clock) -> None:
    clock.advance(minutes=2)
    prune(outdated)
    outdated.publish("2.3.0", text="old\n")
    prune_twice(outdated, clock)
    assert has(outdated, "old\n")


def test_where_a_description_cannot_be_read_no_file_goes(outdated: Publisher, clock: Clock) -> None:
    description = outdated.site.indexes().of["web"].releases["2.2.0"].description
    path = outdated.site.files.path(description.sha256)
    retained = path.read_bytes()
    path.write_bytes(b"damaged")
    clock.advance(minutes=2)
    prune(outdated)
    shutil.rmtree(outdated.site.directory / NOTES, ignore_errors=True)
    clock.advance(days=9)
    outdated.refresh()
    prune(outdated)
    assert has(outdated, "old\n")
    path.write_bytes(retained)
    prune_twice(outdated, clock)
    assert not has(outdated, "old\n")


@pytest.mark.parametrize("note", [b"", b"x", bytes(96)])
def test_a_note_that_is_damaged_is_made_anew(outdated: Publisher, clock: Clock, note: bytes) -> None:
    clock.advance(minutes=2)
    prune(outdated)
    (outdated.site.directory / NOTES / "web").write_bytes(note)
    prune_twice(outdated, clock)
    assert (has(outdated, "old\n"), has(outdated, "now\n")) == (False, True)


def test_publishing_prunes_files_by_itself_within_days(outdated: Publisher, clock: Clock) -> None:
    settings = outdated.site.directory / "site.yaml"
    settings.write_text(settings.read_text() + "prune: {versions: 1, after: 1m}\n")
    for version in ("2.3.0", "2.4.0", "2.5.0"):
        clock.advance(days=9)
        outdated.publish(version)
    assert not has(outdated, "old\n")
    verify_site(outdated.site)


def test_a_plan_says_the_same_and_writes_nothing_below_public(outdated: Publisher, clock: Clock) -> None:
    clock.advance(minutes=2)
    before = sorted(outdated.site.public.rglob("*"))
    planned = plan_pruning(outdated.site, ONE)
    assert sorted(outdated.site.public.rglob("*")) == before
    done = prune(outdated)
    files = {path for path in planned.swept.waiting if "/files/" in path}
    assert files == {path for path in done.swept.waiting if "/files/" in path}
    assert len(files) == 4  # the old text and three descriptions
