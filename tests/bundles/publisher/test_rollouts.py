"""Channels and rollouts of a real site: signed metadata, and the versions in a fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from bundles.errors import FormatError, PublishError, SignatureError
from bundles.format.release import Release, Rollout
from bundles.publisher.channels import Channels, RolloutRequest
from bundles.publisher.lifecycle import verify_site
from bundles.publisher.publication import publish_bundle

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sites import Clock, Host, Publisher


def never(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def publish(publisher: Publisher, version: str, request: RolloutRequest, channel: str = "stable") -> None:
    source = publisher.source(f"web {version}\n")
    publish_bundle(publisher.site, source, never, version=version, channel=channel, request=request)
    publisher.deploy()


@pytest.fixture
def channels(publisher: Publisher) -> Channels:
    return Channels(publisher.site, never)


class Fleet:
    """Ten thousand hosts that read the same site and each keep their running version."""

    def __init__(self, publisher: Publisher, host: Host, clock: Clock) -> None:
        self.running: dict[str, str | None] = {f"host{number}.example.com": None for number in range(10_000)}
        self.held: set[str] = set()
        self._publisher, self._host, self._clock = publisher, host, clock

    def run(self) -> Counter[str | None]:
        """Run every host once. Return the percentage of hosts for each version."""
        self._publisher.deploy()
        release = self._host.refresh().find("web", "stable")
        assert release is not None
        now = self._clock()
        self.held.clear()
        for host, version in self.running.items():
            selection = release.chosen_for(host, now, current=version == release.version)
            if selection.release is not None:
                self.running[host] = selection.release.version
            if selection.release != release:
                self.held.add(host)
        return Counter({version: count / 100 for version, count in Counter(self.running.values()).items()})

    def on(self, version: str) -> set[str]:
        return {host for host, running in self.running.items() if running == version}


@pytest.fixture
def fleet(publisher: Publisher, host: Host, clock: Clock) -> Fleet:
    """Return a fleet that runs ``web 1.0.0``."""
    made = Fleet(publisher, host, clock)
    assert made.run() == {"1.0.0": 100}
    return made


@pytest.mark.everything
def test_a_rollout_grows_halts_resumes_and_goes_back(
    publisher: Publisher, channels: Channels, fleet: Fleet
) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=10))
    assert fleet.run()["1.1.0"] == pytest.approx(10, abs=1)
    first = fleet.on("1.1.0")
    assert fleet.run()["1.1.0"] == len(first) / 100, "a second run changes nothing"
    assert len(fleet.held) == 10_000 - len(first)

    channels.steer("web", "stable", RolloutRequest(percent=50))
    assert fleet.run()["1.1.0"] == pytest.approx(50, abs=1)
    second = fleet.on("1.1.0")
    assert first < second

    channels.halt("web", "stable")
    fleet.running["new.example.com"] = None
    fleet.run()
    assert fleet.on("1.1.0") == second
    assert fleet.running["new.example.com"] == "1.0.0"
    assert len(fleet.held) == len(fleet.running) - len(second)

    channels.steer("web", "stable", RolloutRequest(percent=60), resume=True)
    assert fleet.run()["1.1.0"] == pytest.approx(60, abs=1)
    assert second < fleet.on("1.1.0")

    channels.roll_back("web", "stable")
    fleet.run()
    assert fleet.on("1.0.0") == set(fleet.running)
    assert fleet.held == set()


def test_a_rollout_grows_with_time_until_all_are_reached(
    publisher: Publisher, channels: Channels, fleet: Fleet, clock: Clock
) -> None:
    publish(publisher, "1.1.0", RolloutRequest(over=timedelta(hours=20), start=clock() + timedelta(hours=2)))
    before: set[str] = set()
    for hours, percent in [(1, 0), (1, 0), (2, 10), (3, 25), (5, 50), (5, 75), (5, 100), (1, 100)]:
        clock.advance(hours=hours)
        assert fleet.run()["1.1.0"] == pytest.approx(percent, abs=1)
        assert before <= fleet.on("1.1.0")
        before = fleet.on("1.1.0")
    assert fleet.held == set()
    assert channels.steer("web", "stable", RolloutRequest(percent=100)).after == Release.of("web", "1.1.0")


@pytest.mark.everything
def test_halted_growing_rollout_resumes_where_it_stopped(
    publisher: Publisher, channels: Channels, fleet: Fleet, clock: Clock
) -> None:
    publish(publisher, "1.1.0", RolloutRequest(over=timedelta(hours=24)))
    clock.advance(hours=6)
    assert fleet.run()["1.1.0"] == pytest.approx(25, abs=1)
    halted = channels.halt("web", "stable").after
    assert halted is not None
    assert halted.rollout == Rollout(percent=25, halted=True, before=Release.of("web", "1.0.0"))
    reached = fleet.on("1.1.0")
    clock.advance(hours=24)
    fleet.run()
    assert fleet.on("1.1.0") == reached
    channels.steer("web", "stable", RolloutRequest(over=timedelta(hours=3)), resume=True)
    fleet.run()
    assert reached <= fleet.on("1.1.0")
    assert len(fleet.on("1.1.0")) - len(reached) < 10
    clock.advance(hours=2)
    assert fleet.run()["1.1.0"] == pytest.approx(75, abs=1)
    clock.advance(hours=1, seconds=1)
    assert fleet.run()["1.1.0"] == 100


def test_absent_host_stays_with_a_halted_rollout(
    publisher: Publisher, channels: Channels, fleet: Fleet
) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=100 - 0.01))
    channels.halt("web", "stable")
    assert fleet.run()["1.1.0"] == 0
    assert fleet.held == set(fleet.running)


def test_hosts_outside_a_second_rollout_keep_their_version(publisher: Publisher, fleet: Fleet) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=30))
    fleet.run()
    publish(publisher, "1.2.0", RolloutRequest(percent=10))
    versions = fleet.run()
    assert versions["1.2.0"] == pytest.approx(10, abs=1)
    assert versions["1.0.0"] == 100 - versions["1.2.0"], "nobody is left on the release that was given up"


def test_second_rollout_over_a_finished_rollout_starts_there(
    publisher: Publisher, fleet: Fleet, clock: Clock
) -> None:
    publish(publisher, "1.1.0", RolloutRequest(over=timedelta(hours=1)))
    clock.advance(hours=1)
    assert fleet.run() == {"1.1.0": 100}
    publish(publisher, "1.2.0", RolloutRequest(percent=10))
    versions = fleet.run()
    assert versions["1.2.0"] == pytest.approx(10, abs=1)
    assert versions["1.1.0"] == 100 - versions["1.2.0"]


def test_hosts_that_never_ran_anything_wait_for_a_first_release(
    new_publisher: Callable[..., Publisher], new_host: Callable[..., Host], clock: Clock
) -> None:
    publisher = new_publisher("first")
    publish(publisher, "1.0.0", RolloutRequest(percent=10))
    host = new_host(publisher.served, name="first-host")
    host.anchor = publisher.site.anchor.read_bytes()
    versions = Fleet(publisher, host, clock).run()
    assert versions["1.0.0"] == pytest.approx(10, abs=1)
    assert versions[None] == 100 - versions["1.0.0"]


# --- channels -----------------------------------------------------------------------------------------------


def test_a_release_is_promoted_without_a_new_upload(
    publisher: Publisher, channels: Channels, host: Host
) -> None:
    publisher.publish("1.1.0", channel="canary")
    bundles = sorted((publisher.site.public / "targets/web").glob("*.tar.gz"))
    statement = channels.promote("web", "canary", "stable", RolloutRequest(percent=100))
    publisher.deploy()
    assert (statement.before, statement.after) == (Release.of("web", "1.0.0"), Release.of("web", "1.1.0"))
    assert sorted((publisher.site.public / "targets/web").glob("*.tar.gz")) == bundles
    assert host.version() == host.version(channel="canary") == "1.1.0"
    assert host.fetch()


def test_a_release_is_promoted_in_a_rollout_of_its_own(publisher: Publisher, channels: Channels) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=50), channel="canary")
    statement = channels.promote("web", "canary", "stable", RolloutRequest(percent=10))
    assert statement.after is not None
    assert statement.after.rollout == Rollout(percent=10, before=Release.of("web", "1.0.0"))
    canary = publisher.site.indexes().find("web", "canary")
    assert canary is not None
    assert canary.rollout == Rollout(percent=50)


def test_saying_the_same_again_signs_nothing(publisher: Publisher, channels: Channels) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=10), channel="canary")
    channels.promote("web", "canary", "stable", RolloutRequest(percent=10))
    channels.halt("web", "stable")
    before = {path: path.read_bytes() for path in publisher.site.public.rglob("*") if path.is_file()}
    assert not channels.halt("web", "stable").changed
    assert not channels.steer("web", "canary", RolloutRequest(percent=10)).changed
    publish(publisher, "1.1.0", RolloutRequest(percent=10), channel="canary")
    assert before == {path: path.read_bytes() for path in publisher.site.public.rglob("*") if path.is_file()}


def test_the_rollback_leads_to_any_published_version(
    publisher: Publisher, channels: Channels, host: Host
) -> None:
    for version in ("1.1.0", "1.2.0"):
        publisher.publish(version)
    assert channels.roll_back("web", "stable", "1.0.0").after == Release.of("web", "1.0.0")
    publisher.deploy()
    assert host.version() == "1.0.0"
    assert host.fetch()


@pytest.mark.parametrize("halted", [True, False])
def test_rollback_to_the_rollout_release_does_not_complete_it(
    publisher: Publisher, channels: Channels, halted: bool
) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=10))
    if halted:
        channels.halt("web", "stable")
    with pytest.raises(
        PublishError, match=r"web 1\.1\.0: is in a rollout at 10 %; `puller site rollout` changes it"
    ):
        channels.roll_back("web", "stable", "1.1.0")
    assert channels.roll_back("web", "stable").after == Release.of("web", "1.0.0")


def test_withdrawn_release_leaves_its_channel_only(
    publisher: Publisher, channels: Channels, host: Host
) -> None:
    channels.promote("web", "stable", "canary")
    assert channels.withdraw("web", "canary").after is None
    publisher.deploy()
    assert host.version(channel="canary") is None
    assert host.version() == "1.0.0"
    assert verify_site(publisher.site).targets == 3
    with pytest.raises(PublishError, match=r"web: is not in channel 'canary', only in stable$"):
        channels.withdraw("web", "canary")


def test_the_last_bundle_that_is_withdrawn_leaves_a_valid_site(
    publisher: Publisher, channels: Channels, host: Host
) -> None:
    channels.withdraw("web", "stable")
    publisher.deploy()
    assert host.refresh().find("web", "stable") is None
    publisher.publish("1.0.0")
    assert host.version() == "1.0.0"


Say = Callable[[Channels], object]


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (
            lambda channels: channels.promote("web", "canary", "stable"),
            "web: is not in channel 'canary', only in stable",
        ),
        (lambda channels: channels.promote("db", "stable", "canary"), "db: is not in channel 'stable'$"),
        (
            lambda channels: channels.promote("web", "stable", "stable"),
            "cannot be promoted from channel 'stable' to itself",
        ),
        (
            lambda channels: channels.steer("web", "stable", RolloutRequest(percent=50)),
            "web 1.0.0: is already the release of all hosts",
        ),
        (lambda channels: channels.halt("web", "stable"), "web 1.0.0: is already the release of all hosts"),
        (
            lambda channels: channels.roll_back("web", "stable"),
            "web 1.0.0: is the first version of this channel; specify the version",
        ),
        (
            lambda channels: channels.roll_back("web", "stable", "0.9"),
            "web 0.9: is not published in this site",
        ),
        (
            lambda channels: channels.withdraw("web", "stabel"),
            "web: is not in channel 'stabel', only in stable",
        ),
    ],
)
def test_invalid_requests_are_refused_and_sign_nothing(
    publisher: Publisher, channels: Channels, say: Say, message: str
) -> None:
    before = {path: path.read_bytes() for path in publisher.site.public.rglob("*") if path.is_file()}
    with pytest.raises(PublishError, match=message):
        say(channels)
    assert before == {path: path.read_bytes() for path in publisher.site.public.rglob("*") if path.is_file()}


def test_back_leads_before_a_publication_for_all(
    publisher: Publisher, channels: Channels, host: Host
) -> None:
    for version in ("1.1.0", "1.2.0"):
        publisher.publish(version)
    for expected in ("1.1.0", "1.0.0"):
        channels.roll_back("web", "stable")
        publisher.deploy()
        assert host.version() == expected
    with pytest.raises(PublishError, match="is the first version of this channel"):
        channels.roll_back("web", "stable")


def test_back_leads_before_a_completed_rollout(publisher: Publisher, channels: Channels, host: Host) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=50))
    channels.steer("web", "stable", RolloutRequest(percent=100))
    channels.roll_back("web", "stable")
    publisher.deploy()
    assert host.version() == "1.0.0"


@pytest.mark.parametrize("channel", ["St able", "", "../x"])
def test_a_channel_has_a_proper_name(channels: Channels, channel: str) -> None:
    with pytest.raises(FormatError, match=r"^channel: is "):
        channels.promote("web", "stable", channel)


def test_a_halted_release_is_not_promoted(publisher: Publisher, channels: Channels) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=50), channel="canary")
    channels.halt("web", "canary")
    with pytest.raises(
        PublishError, match=r"web 1\.1\.0: is halted in channel 'canary', so it is not promoted"
    ):
        channels.promote("web", "canary", "stable")


def test_release_of_unreached_hosts_is_checked_too(publisher: Publisher) -> None:
    publish(publisher, "1.1.0", RolloutRequest(percent=10))
    (before,) = publisher.site.public.glob("targets/web/*.web-1.0.0.tar.gz")
    before.write_bytes(b"")
    with pytest.raises(SignatureError, match=r"1 damaged: .*web-1\.0\.0\.tar\.gz"):
        verify_site(publisher.site)
