"""Fragments of several bundles form one file, with each release, and when a bundle leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.puller.run.test_bundles_together import Fleet, reload

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

PATH = "{{ facts.machine }}/made"


@pytest.fixture
def fleet(host: Host, publisher: Publisher) -> Fleet:
    return Fleet(host, publisher)


def target(**more: Any) -> dict[str, Any]:
    own = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}
    return {"file": [{PATH: {"fragments": True, "alias": "made", **own, **more}}]}


def part(name: str, content: str, **more: Any) -> dict[str, Any]:
    return {"fragment": [{name: {"path": PATH, "content": content, **more}}]}


@pytest.fixture
def two(fleet: Fleet) -> Fleet:
    """Return a host with two bundles. The first one declares the file."""
    fleet.publish("a", "1.0.0", target(), part("of a", "a"), reload("tell", "file#made"))
    fleet.publish("b", "1.0.0", part("of b", "{{ data.text }}"), data={"text": "b of data"})
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0, fleet.host.report()
    assert fleet.read("made") == "a\nb of data\n"
    fleet.said()
    return fleet


def test_parts_of_all_bundles_form_one_file(two: Fleet) -> None:
    two.assert_in_order()
    two.publish("b", "1.1.0", part("of b", "more"), part("first", "head", order=1))
    assert two.host.run().status == 0
    assert two.read("made") == "head\na\nmore\n"
    assert two.said() == ["tell"], "the service of the first bundle follows the parts of the second one"
    two.assert_in_order()


def test_a_dry_run_lists_the_change_by_another_bundle(two: Fleet) -> None:
    two.publish("b", "1.1.0", part("of b", "more"))
    outcome = two.host.run("--noop", "--detailed-exitcodes")
    assert outcome.status == 2
    assert "Would have updated the file" in outcome.output
    assert two.read("made") == "a\nb of data\n"
    assert two.host.run().status == 0
    assert two.read("made") == "a\nmore\n"


def test_a_part_leaves_with_its_version_and_with_its_bundle(two: Fleet) -> None:
    two.publish("b", "1.1.0", part("of b", "b"), part("more", "more"))
    two.host.run()
    assert two.read("made") == "more\na\nb\n"
    two.publish("b", "1.2.0", part("of b", "b"))
    two.host.run()
    assert two.read("made") == "a\nb\n"
    two.follow("a")
    assert two.host.run().status == 0
    assert two.read("made") == "a\n"
    two.assert_in_order()


def test_the_file_leaves_as_any_other_file(fleet: Fleet) -> None:
    for version, resources in (("1.0.0", [target(removed="absent"), part("one", "1")]), ("1.1.0", [])):
        fleet.publish("a", version, *resources, reload("unused", "file#made") if resources else part_free())
        fleet.follow("a")
        assert fleet.host.run().status == 0, fleet.host.report()
        assert (fleet.host.machine / "made").exists() is bool(resources)


def part_free() -> dict[str, Any]:
    return {"exec": [{"nothing": {"command": "true", "refreshonly": True}}]}


def test_a_bad_part_rolls_back_only_its_own_bundle(fleet: Fleet) -> None:
    """The file belongs to the first bundle, which is not on trial."""
    check = "sh -c '! grep -q bad \"$0\"' {}"
    fleet.publish("a", "1.0.0", target(validate=check), part("of a", "a"))
    fleet.publish("b", "1.0.0", part("of b", "good"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    fleet.publish("b", "1.1.0", part("of b", "bad"), give_up_after=1)
    fleet.host.run()
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    assert fleet.read("made") == "a\ngood\n"
    fleet.publish("b", "1.2.0", part("of b", "better"))
    assert fleet.host.run().status == 0
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.2.0"}
    assert fleet.read("made") == "a\nbetter\n"


def test_the_file_must_be_declared_in_an_earlier_bundle(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", target(), part("of a", "a"))
    fleet.publish("b", "1.0.0", part("of b", "b"))
    fleet.follow("b", "a")
    outcome = fleet.host.run()
    assert outcome.status == 6
    assert "which is not declared" in outcome.output
    assert fleet.events("b") == {"of b": "failed"}
    assert fleet.read("made") == "a\n"


def test_both_bundles_may_declare_the_file(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", target(), part("of a", "a"))
    fleet.publish("b", "1.0.0", target(), part("of b", "b"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    assert fleet.read("made") == "a\nb\n"
    fleet.follow("b")
    assert fleet.host.run().status == 0
    assert fleet.read("made") == "b\n"
    fleet.publish("b", "1.1.0", target(mode="0600"), part("of b", "b"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 13


def test_a_file_without_fragments_refuses_the_later_bundle(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", target(fragments=False, content="of a"))
    fleet.publish("b", "1.0.0", part("of b", "b"))
    fleet.follow("a", "b")
    outcome = fleet.host.run()
    assert outcome.status == 13
    assert "which has no fragments" in outcome.output
    assert fleet.read("made") == "of a"


def test_a_failed_requirement_in_a_later_bundle_keeps_the_file(two: Fleet) -> None:
    fails = {"exec": [{"fails": {"command": "false"}}]}
    two.publish("b", "1.1.0", fails, part("of b", "more", require=["exec#fails"]))
    two.host.run()
    assert two.read("made") == "a\nb of data\n"
    assert two.events("a")["made"] == "skipped"


def test_a_later_bundle_that_waits_for_the_service_is_a_cycle(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", target(), reload("tell", "file#made"))
    fleet.publish("b", "1.0.0", part("of b", "b", require=["exec#tell"]))
    fleet.follow("a", "b")
    outcome = fleet.host.run()
    assert outcome.status == 13
    assert "resources wait for each other" in outcome.output


def test_a_killed_run_leaves_the_old_or_the_new_file(two: Fleet) -> None:
    """The validation of the whole content kills Puller, so the new file is complete and not in place."""
    killing = f"sh -c 'test -e {two.host.machine}/stop || kill -KILL $PPID' {{}}"
    two.publish("a", "1.1.0", target(validate=killing), part("of a", "a"))
    two.publish("b", "1.1.0", part("of b", "new"))
    command = [sys.executable, "-m", "puller", "run", "--config", str(two.host.configuration)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert two.read("made") == "a\nb of data\n"
    (two.host.machine / "stop").touch()
    assert two.host.run().status == 0, two.host.report()
    assert two.read("made") == "a\nnew\n"
    assert {path.name for path in two.host.machine.iterdir()} == {"made", "stop"}
