"""A site over months: releases, rollbacks, pruning, pushes to a quick and a late place, a copy of the quick place."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.client.client import TrustClient
from bundles.errors import ExpiredError, PublishError
from bundles.format.index import Index
from bundles.format.release import Release
from bundles.publisher.channels import Channels, RolloutRequest
from bundles.publisher.files import Files
from bundles.publisher.mirroring.copy import SiteCopy
from bundles.publisher.pruning import prune_site
from bundles.publisher.push.push import Push, open_destination
from bundles.transport.mirror import open_mirrors
from tests.bundles.publisher.push.conftest import Silent
from tests.bundles.publisher.push.test_push import Dying, Killed

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher

_BUNDLES = ("app", "web")


@dataclass
class Told:
    """A host that has selected a release and fetches it later."""

    client: TrustClient
    release: Release
    expires: datetime


@dataclass
class Place:
    """A place that hosts read, its expected contents, and hosts with a pending fetch."""

    public: Path
    lag: float
    """The fraction of days without an update."""
    host: Host
    indexes: dict[str, Index] = field(default_factory=dict)
    expires: datetime | None = None
    told: list[Told] = field(default_factory=list)


@pytest.mark.everything
def test_every_host_gets_the_announced_files_over_months(
    publisher: Publisher,
    new_host: Callable[..., Host],
    clock: Clock,
    tmp_path: Path,
    thorough: bool,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # shown if this test fails
    chance = random.Random(seed)
    settings = publisher.site.directory / "site.yaml"
    settings.write_text(settings.read_text() + "prune: {versions: 2, after: 2d}\n")
    places = [
        Place(tmp_path / name, lag, new_host(tmp_path / name, name=f"{name}-host"))
        for name, lag in (("quick", 0.0), ("late", 0.8))
    ]
    copy = tmp_path / "copy"
    places.append(Place(copy / "public", 0.5, new_host(copy / "public", name="copy-host")))
    number = 0
    for _ in range(60 if thorough else 15):
        clock.advance(hours=chance.choice([1, 6, 24, 24, 72]))
        number = _publish(publisher, chance, number)
        for place in places:
            if chance.random() >= place.lag:
                _bring(publisher, place, copy, clock, chance)
            _look(place, clock, tmp_path)


def _publish(publisher: Publisher, chance: random.Random, number: int) -> int:
    site, bundle = publisher.site, chance.choice(_BUNDLES)
    channels = Channels(site, lambda _: b"")
    what = chance.choice(["publish", "publish", "rollout", "back", "withdraw", "prune", "again", "nothing"])
    with suppress(PublishError):
        if what == "publish":
            publisher.publish(f"2.{number}.0", bundle, text=f"{bundle} {number // 3}\n")
        elif what == "rollout":
            publisher.publish(f"2.{number}.0", bundle, channel="canary", text=f"{number}\n")
            channels.promote(bundle, "canary", "stable", RolloutRequest(percent=10))
        elif what == "back":
            versions = list(site.record(bundle).history.versions) or ["none"]
            channels.roll_back(bundle, "stable", chance.choice(versions))
        elif what == "withdraw":
            channels.withdraw(bundle, "canary")
        elif what == "prune":
            prune_site(site, site.settings().pruning, lambda _: b"")
        elif what == "again":
            publisher.publish("1.0.0", text="web 1.0.0\n")
    publisher.refresh()
    return number + 1


def _bring(publisher: Publisher, place: Place, copy: Path, clock: Clock, chance: random.Random) -> None:
    """Update the place. The copy follows the quick place. Earlier attempts may be killed."""
    if place.public.parent == copy:
        [mirror] = open_mirrors([str(copy.parent / "quick")])
        SiteCopy(mirror, copy, publisher.site.anchor, None, clock).run()
    else:
        for writes in (chance.randrange(30), 10_000):
            destination = open_destination(str(place.public))
            with suppress(Killed):
                Push(publisher.site, Dying(destination, writes)).run(Silent())
            if place.indexes:
                with suppress(ExpiredError):  # of the previous edition, which is still there
                    place.host.refresh()
    published = publisher.site.published()
    place.indexes = {
        name: publisher.site.index_of(published, name) for name in publisher.site.bundles(published)
    }
    place.expires = published.timestamp.expires


def _look(place: Place, clock: Clock, tmp_path: Path) -> None:
    place.told = [told for told in place.told if told.expires > clock.now]
    for told in place.told:
        _fetch(told, tmp_path)
    if place.expires is None:
        return
    if place.expires <= clock.now:
        with pytest.raises(ExpiredError):
            place.host.refresh()
        return
    for bundle, index in place.indexes.items():
        place.host.follow(bundle)
        client = place.host.client()
        indexes = client.refresh()
        assert indexes.of[bundle].to_bytes() == index.to_bytes()
        release = indexes.find(bundle, "stable")
        if release is not None:
            place.told.append(Told(client, release, place.expires))
            _fetch(place.told[-1], tmp_path)
        files = Files(place.public / "targets")
        for artifact in index.releases.values():
            assert (
                place.public / "targets" / artifact.archive.path
            ).stat().st_size == artifact.archive.length
            for digest in files.named_by(artifact.description).values():
                for _ in files.verified(digest):
                    pass


def _fetch(reported: Told, tmp_path: Path) -> None:
    place = tmp_path / "fetched"
    place.unlink(missing_ok=True)
    reported.client.fetch(reported.release, place)
