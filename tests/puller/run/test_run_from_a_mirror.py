"""Hosts of a mirror: news of the publisher reach them with the next run of the mirror."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.channels import RolloutRequest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Execute, Host, Publisher

Follow = Callable[[], None]
BEFORE = RolloutRequest(percent=0)


@pytest.fixture
def follow(host: Host, publisher: Publisher, execute: Execute, tmp_path: Path) -> Follow:
    """Point the host to a mirror, and return a function that updates the mirror."""
    copy = tmp_path / "copy"

    def run() -> None:
        anchor = () if copy.exists() else ("--root", str(publisher.site.anchor))
        status, output = execute("site", "mirror", str(publisher.served), str(copy), *anchor)
        assert status == 0, output

    publisher.publish("1.0.0")
    run()
    host.configure(site=str(copy / "public"))
    assert host.run().status == 0
    return run


def test_a_rollout_grows_is_halted_and_arrives_by_way_of_a_copy(
    follow: Follow, host: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0", request=BEFORE)
    assert host.run().status == 0, "the copy does not know of it"
    follow()
    assert host.run().status == 20
    host.assert_enforces("1.0.0")

    publisher.say(lambda channels: channels.halt("web", "stable"))
    assert "halted" not in host.run().output, "the copy is of before"
    follow()
    outcome = host.run()
    assert outcome.status == 20
    assert "was halted by the publisher at 0 %" in outcome.output
    host.assert_enforces("1.0.0")

    everywhere = RolloutRequest(percent=100)
    publisher.say(lambda channels: channels.steer("web", "stable", everywhere, resume=True))
    assert host.run().status == 20
    follow()
    for _ in range(2):
        assert host.run().status == 0
        host.assert_enforces("1.1.0")


@pytest.mark.everything
def test_a_release_is_taken_back_by_way_of_a_copy(follow: Follow, host: Host, publisher: Publisher) -> None:
    """Rollbacks also work to a version that the mirror has dropped or never had."""
    publisher.publish("1.1.0")
    follow()
    assert host.run().status == 0
    host.assert_enforces("1.1.0")

    publisher.say(lambda channels: channels.roll_back("web", "stable", "1.0.0"))
    assert host.run().status == 0
    host.assert_enforces("1.1.0")
    follow()
    assert host.run().status == 0
    host.assert_enforces("1.0.0")

    publisher.publish("1.2.0")
    publisher.publish("1.3.0")
    publisher.say(lambda channels: channels.roll_back("web", "stable", "1.2.0"))
    follow()
    assert host.run().status == 0
    host.assert_enforces("1.2.0")


def test_host_trust_is_newer_than_a_stale_copy(
    follow: Follow, host: Host, publisher: Publisher, tmp_path: Path
) -> None:
    """A host that switches to the site and back to an outdated mirror keeps the newer release."""
    copy = host.settings["site"]
    publisher.publish("1.1.0")
    host.configure(site=str(publisher.served))
    assert host.run().status == 0
    host.configure(site=copy)
    assert host.run().status == 12
    host.assert_enforces("1.1.0")
    follow()
    assert host.run().status == 0
    host.assert_enforces("1.1.0")
