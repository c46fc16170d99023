"""Hosts follow key rotations automatically, in their regular runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher


def test_runs_go_on_while_the_keys_of_all_roles_are_replaced(settled: Host, publisher: Publisher) -> None:
    for number, role in enumerate(["timestamp", "snapshot", "targets", "root", "timestamp"], start=1):
        publisher.rotate(role)
        done = settled.run()
        assert done.status == 0, done.output
        assert settled.report().get("problems", []) == []
        settled.assert_enforces("1.0.0" if number == 1 else f"1.{number - 1}.0")
        publisher.publish(f"1.{number}.0")
        assert settled.run().status == 0
        settled.assert_enforces(f"1.{number}.0")


@pytest.mark.everything
def test_a_host_that_was_off_for_years_follows(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    anchor = Path(shutil.copyfile(publisher.site.anchor, tmp_path / "old-root.json"))
    publisher.publish("1.0.0")
    for _ in range(3):
        for role in ("root", "targets", "snapshot", "timestamp"):
            publisher.rotate(role)
    publisher.publish("2.0.0")
    host.configure(trust_anchor=str(anchor))
    assert host.run().status == 0
    host.assert_enforces("2.0.0")
    assert publisher.site.root().version == 13
