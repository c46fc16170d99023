"""Several bundles on one host: read before a run applies them, applied as one catalog, judged separately."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Execute, Host, Publisher


def file(name: str, content: str, **more: Any) -> dict[str, Any]:
    """Return a file resource on the host's machine."""
    owner = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}
    return {
        "file": [{f"{{{{ facts.machine }}}}/{name}": {"content": content, "alias": name, **owner, **more}}]
    }


def execute(name: str, **more: Any) -> dict[str, Any]:
    """Return a command that appends a line to the file ``said`` of the host's machine."""
    command = f'sh -c "echo {name} >> {{{{ facts.machine }}}}/said"'
    return {"exec": [{name: {"command": command, **more}}]}


def reload(name: str, *subscribe: str, **more: Any) -> dict[str, Any]:
    """Return a command that only runs on refresh."""
    return execute(name, refreshonly=True, subscribe=list(subscribe), **more)


def manifest(*resources: dict[str, Any], **more: Any) -> str:
    return json.dumps({"resources": list(resources), **more})


class Fleet:
    """A host and its published bundles."""

    def __init__(self, host: Host, publisher: Publisher) -> None:
        self.host = host
        self.publisher = publisher
        host.machine.mkdir()

    def publish(self, name: str, version: str, *resources: dict[str, Any], **more: Any) -> None:
        self.publisher.publish(version, manifest(*resources, **more), name=name, files={})

    def follow(self, *names: str) -> None:
        self.host.configure(bundles=[{"name": name} for name in names])

    def enforced(self) -> dict[str, str | None]:
        return {bundle["name"]: bundle["enforced"] for bundle in self.host.status()["bundles"]}

    def events(self, name: str) -> dict[str, str]:
        """Return states of the resources of one bundle, by alias or name."""
        (result,) = (bundle for bundle in self.host.report()["bundles"] if bundle["name"] == name)
        return {event.get("alias") or event["name"]: event["state"] for event in result.get("events", ())}

    def read(self, name: str) -> str:
        return (self.host.machine / name).read_text()

    def said(self) -> list[str]:
        """Return the lines that commands have written since the last call."""
        path = self.host.machine / "said"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def assert_in_order(self) -> None:
        """Check that a run changes nothing."""
        assert self.host.run("--detailed-exitcodes").status == 0, self.host.report()

    def assert_held(self) -> None:
        """Check that a run changes nothing and reports a quarantined version."""
        assert self.host.run("--detailed-exitcodes").status == 20, self.host.report()


@pytest.fixture
def fleet(host: Host, publisher: Publisher) -> Fleet:
    return Fleet(host, publisher)


# Shared resources


@pytest.mark.parametrize("order", list(permutations(["a", "b", "c"])), ids=" ".join)
@pytest.mark.representatives(1)
def test_equal_declarations_belong_to_the_first_bundle(fleet: Fleet, order: tuple[str, ...]) -> None:
    for name in order:
        own = file(f"of {name}", name)
        fleet.publish(name, "1.0.0", file("motd", "hello"), own, reload(f"tell {name}", "file#motd"))
    fleet.follow(*order)
    assert fleet.host.run().status == 0
    first, *others = order
    assert fleet.events(first) == {"motd": "changed", f"of {first}": "changed", f"tell {first}": "refreshed"}
    for name in others:
        assert fleet.events(name) == {f"of {name}": "changed", f"tell {name}": "refreshed"}
    assert sorted(fleet.said()) == ["tell a", "tell b", "tell c"]
    fleet.assert_in_order()


def test_shared_resource_has_requirements_of_all_bundles(fleet: Fleet) -> None:
    """The second bundle requires a command before a file that both bundles declare."""
    fleet.publish("a", "1.0.0", file("motd", "hello"))
    fleet.publish("b", "1.0.0", execute("before"), file("motd", "hello", require=["exec#before"]))
    fleet.follow("a", "b")
    outcome = fleet.host.run("--verbose")
    assert outcome.status == 0
    assert re.search(r"exec#before changed .*\n.*file#motd .* changed", outcome.output)
    fleet.publish(
        "b", "1.1.0", execute("fails", command="false"), file("motd", "hello", require=["exec#fails"])
    )
    fleet.host.run()
    assert fleet.events("a") == {"motd": "skipped"}


@pytest.mark.parametrize("first", ["a", "b"])
def test_contradictions_are_found_before_any_change(fleet: Fleet, first: str) -> None:
    fleet.publish("a", "1.0.0", file("motd", "of a"))
    fleet.publish("b", "1.0.0", file("other", "of b"), file("motd", "of b"))
    second = "b" if first == "a" else "a"
    fleet.follow(first, second)
    outcome = fleet.host.run()
    assert outcome.status == 13
    detail = (
        rf"{second}-1\.0\.0/manifest\.yaml:1: .*declared twice, first at {first}-1\.0\.0/manifest\.yaml:1"
    )
    assert re.search(rf"{detail}.*content is 'of {second}' here and 'of {first}' there", outcome.output)
    assert fleet.enforced() == {first: "1.0.0", second: None}
    assert fleet.read("motd") == f"of {first}"
    assert (fleet.host.machine / "other").exists() is (first == "b")
    assert fleet.host.run().status == 13, "it is so in each run"
    assert fleet.read("motd") == f"of {first}"


@pytest.mark.everything
def test_last_good_version_replaces_a_contradicting_release(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("motd", "of a"))
    fleet.publish("b", "1.0.0", file("other", "one"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    fleet.publish("b", "1.1.0", file("other", "two"), file("motd", "of b"))
    (fleet.host.machine / "other").unlink()
    assert fleet.host.run().status == 13
    assert (fleet.read("motd"), fleet.read("other")) == ("of a", "one")
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    fleet.publish("b", "1.2.0", file("other", "three"))
    assert fleet.host.run().status == 0
    assert fleet.read("other") == "three"


def test_release_of_a_bundle_keeps_other_bundles_enforced(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("other", "one"))
    fleet.publish("b", "1.0.0", file("motd", "of b"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    fleet.publish("a", "1.1.0", file("other", "two"), file("motd", "of a"))
    outcome = fleet.host.run()
    assert outcome.status == 13
    assert (
        "a 1.1.0 is rejected, because every version of b conflicts with it: b-1.0.0/manifest.yaml:1: "
        in outcome.output
    )
    assert (fleet.read("motd"), fleet.read("other")) == ("of b", "one")
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    fleet.publish("b", "1.1.0", file("third", "3"))
    assert fleet.host.run().status == 0, "when the second has left it to the first, both are as published"
    assert (fleet.read("motd"), fleet.read("other")) == ("of a", "two")
    fleet.assert_in_order()


# References between bundles


def test_a_bundle_follows_the_resources_of_those_before_it(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("conf", "one"))
    fleet.publish("b", "1.0.0", reload("reload", "file#conf", require=["file#conf"]))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    assert fleet.said() == ["reload"]
    fleet.assert_in_order()
    fleet.publish("a", "1.1.0", file("conf", "two"))
    assert fleet.host.run().status == 0
    assert fleet.said() == ["reload"]
    fleet.assert_in_order()


@pytest.mark.everything
def test_own_name_precedes_a_name_of_another_bundle(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("one", "1", alias="conf"))
    fleet.publish("b", "1.0.0", file("two", "2", alias="conf"), reload("reload", "file#conf"))
    fleet.follow("a", "b")
    fleet.host.run()
    fleet.said()
    fleet.publish("a", "1.1.0", file("one", "1.1", alias="conf"))
    fleet.host.run()
    assert fleet.said() == []


@pytest.mark.parametrize("order", [("b", "a"), ("b",)], ids=["it comes later", "it is not of this host"])
def test_a_reference_to_a_bundle_that_is_not_before_is_refused(fleet: Fleet, order: tuple[str, ...]) -> None:
    fleet.publish("a", "1.0.0", file("conf", "one"))
    fleet.publish("b", "1.0.0", reload("reload", "file#conf"))
    fleet.follow(*order)
    outcome = fleet.host.run()
    assert outcome.status == 13
    assert (
        "b-1.0.0/manifest.yaml:1: resources[0] exec#reload: subscribe names file#conf, which is not declared"
        in (outcome.output)
    )
    assert fleet.enforced()["b"] is None


def test_removed_bundle_removes_references_to_it(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("conf", "one"))
    fleet.publish("b", "1.0.0", reload("reload", "file#conf"), file("other", "1"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    fleet.follow("b")
    outcome = fleet.host.run()
    assert outcome.status == 13, "nothing of b fits with what is left"
    assert "file#conf, which is not declared" in outcome.output
    fleet.publish("b", "1.1.0", file("other", "2"))
    assert fleet.host.run().status == 0
    assert fleet.read("other") == "2"


def test_leftover_belongs_to_the_next_declaring_bundle(fleet: Fleet) -> None:
    for name in ("a", "b"):
        fleet.publish(name, "1.0.0", file("motd", "hello"), reload("tell", "file#motd", command="false"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 6
    fleet.follow("b")
    outcome = fleet.host.run()
    assert fleet.events("b") == {"motd": "stable", "tell": "failed"}, "its refresh is pending still"
    assert outcome.status == 4


@pytest.mark.everything
def test_a_pending_refresh_across_bundles_survives(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("conf", "one"))
    fleet.publish("b", "1.0.0", reload("reload", "file#conf", command="false"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 6
    fleet.publish("b", "1.1.0", reload("reload", "file#conf"))
    assert fleet.host.run().status == 0
    assert fleet.said() == ["reload"]
    fleet.assert_in_order()


# Trials


def wants(path: str) -> str:
    """Return a health check command that requires a file to contain *good*."""
    return f"sh -c 'grep -q good {{{{ facts.machine }}}}/{path} || exit 2'"


def checked(name: str, path: str, **more: Any) -> dict[str, Any]:
    """Return a command with a health check that requires a file to contain *good*."""
    check = {"command": wants(path), "name": name}
    return execute(name, creates="/", health_checks=[check], **more)


def test_release_that_breaks_another_bundle_is_abandoned(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("conf", "good"))
    fleet.publish("b", "1.0.0", reload("web", "file#conf", health_checks=[
        {"command": wants("conf")}
    ]))  # fmt: skip
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    fleet.said()
    fleet.publish("a", "1.1.0", file("conf", "bad"))
    outcome = fleet.host.run()
    assert outcome.status == 7
    assert re.search(r"a: 1\.1\.0 is given up: exec#web: health check sh", outcome.output)
    assert fleet.read("conf") == "good"
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    assert fleet.said() == ["web", "web"], "the way there, and the way back"
    fleet.assert_held()


def test_failed_release_goes_and_the_other_stays(fleet: Fleet) -> None:
    for name in ("a", "b"):
        fleet.publish(name, "1.0.0", file(f"of {name}", "good"), checked(f"check {name}", f"of\\ {name}"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    fleet.publish("a", "1.1.0", file("of a", "good too"), checked("check a", "of\\ a"))
    fleet.publish("b", "1.1.0", file("of b", "bad"), checked("check b", "of\\ b"))
    assert fleet.host.run().status == 7
    assert fleet.enforced() == {"a": "1.1.0", "b": "1.0.0"}
    assert (fleet.read("of a"), fleet.read("of b")) == ("good too", "good")
    assert fleet.events("a")["of a"] == "changed", (
        "what this run has done is told, though all was applied again"
    )
    fleet.assert_held()


@pytest.mark.everything
def test_release_waits_for_an_abandoned_dependency(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("conf", "good"), checked("check", "conf"))
    fleet.publish("b", "1.0.0", file("other", "1"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    fleet.publish("a", "1.1.0", file("conf", "bad"), checked("check", "conf"), file("new", "1"))
    fleet.publish("b", "1.1.0", file("other", "2", require=["file#new"]))
    outcome = fleet.host.run()
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}, outcome.output
    assert fleet.read("other") == "1"
    fleet.publish("a", "1.2.0", file("conf", "good"), checked("check", "conf"), file("new", "1"))
    assert fleet.host.run().status == 0
    assert fleet.enforced() == {"a": "1.2.0", "b": "1.1.0"}
    assert fleet.read("other") == "2"


def lasting(fleet: Fleet) -> None:
    """Let further trials last as the manifests require."""
    fleet.host.lasting_trials = True
    fleet.follow("a", "b")


def test_dependent_trials_are_given_up_together(fleet: Fleet) -> None:
    """The check of b fails between two runs. It refreshes for a file of a, so either release may be the cause."""
    web = reload("web", "file#conf", health_checks=[{"command": wants("conf")}])
    fleet.publish("a", "1.0.0", file("conf", "good"))
    fleet.publish("b", "1.0.0", web)
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    lasting(fleet)
    fleet.publish("a", "1.1.0", file("conf", "good too"), trial={"duration": "10m"})
    fleet.publish("b", "1.1.0", web, trial={"duration": "10m"})
    assert fleet.host.run().status == 0
    assert fleet.enforced() == {"a": "1.1.0", "b": "1.1.0"}
    (fleet.host.machine / "conf").write_text("bad")
    assert fleet.host.run().status == 7
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    assert fleet.read("conf") == "good"
    fleet.assert_held()


@pytest.mark.everything
def test_trial_ends_with_the_release_that_it_requires(fleet: Fleet) -> None:
    """a is given up, and b cannot stay without it. When both come back, b has a new trial."""
    fleet.publish("a", "1.0.0", file("conf", "good"), checked("check", "conf"))
    fleet.publish("b", "1.0.0", file("other", "1"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    lasting(fleet)
    rule = {"trial": {"duration": "10m"}}
    fleet.publish("a", "1.1.0", file("conf", "good"), checked("check", "conf"), file("new", "1"), **rule)
    fleet.publish("b", "1.1.0", file("other", "2", require=["file#new"]), **rule)
    assert fleet.host.run().status == 0
    (fleet.host.machine / "conf").write_text("bad")
    outcome = fleet.host.run()
    assert "a: 1.1.0 is given up: the trial has failed between two runs" in outcome.output
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    assert (fleet.read("other"), "trial" in fleet.host.status()["bundles"][1]) == ("1", False)
    fleet.publish("a", "1.2.0", file("conf", "good"), checked("check", "conf"), file("new", "1"), **rule)
    assert fleet.host.run().status == 0
    assert fleet.enforced() == {"a": "1.2.0", "b": "1.1.0"}
    assert "trial" in fleet.host.status()["bundles"][1]


@pytest.mark.everything
def test_manual_rollback_of_a_bundle_leaves_the_other(fleet: Fleet) -> None:
    for version in ("1.0.0", "1.1.0"):
        for name in ("a", "b"):
            fleet.publish(name, version, file(f"of {name}", version), file("shared", "same"))
        fleet.follow("a", "b")
        assert fleet.host.run().status == 0
    assert fleet.host.puller("rollback", "a").status == 0
    fleet.host.run()
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.1.0"}
    assert (fleet.read("of a"), fleet.read("of b")) == ("1.0.0", "1.1.0")


def test_noop_predicts_bundles_together(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("conf", "one"))
    fleet.publish("b", "1.0.0", reload("reload", "file#conf"), file("conf", "one"))
    fleet.follow("a", "b")
    outcome = fleet.host.run("--noop")
    assert outcome.status == 0
    assert "a 1.0.0: 1 resource, 0 stable, 0 changed, 1 would change" in outcome.output
    assert "b 1.0.0: 1 resource, 0 stable, 0 changed, 1 would change" in outcome.output
    assert list(fleet.host.machine.iterdir()) == []


@pytest.mark.everything
@pytest.mark.parametrize("killer", ["a", "b"])
@pytest.mark.representatives(1)
def test_killed_runs_count_for_the_reached_trial_only(fleet: Fleet, killer: str) -> None:
    for name in ("a", "b"):
        fleet.publish(name, "1.0.0", file(f"of {name}", "1"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    for name in ("a", "b"):
        kills = (
            [{"exec": [{f"kill {name}": {"command": "sh -c 'kill -KILL $PPID'"}}]}] if name == killer else []
        )
        fleet.publish(name, "1.1.0", file(f"of {name}", "2"), *kills)
    for _ in range(2):
        command = [sys.executable, "-m", "puller", "run", "--config", str(fleet.host.configuration)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert fleet.host.run().status == 7
    # Bundle a comes first, so the run reached it in both cases. Any reached bundle may have killed the run.
    expected = {"a": {"a": "1.0.0", "b": "1.1.0"}, "b": {"a": "1.0.0", "b": "1.0.0"}}[killer]
    assert fleet.enforced() == expected


@pytest.mark.everything
def test_release_that_kills_by_a_shared_resource_is_abandoned(fleet: Fleet) -> None:
    """All resources of bundle b also belong to bundle a, which comes first."""
    fleet.publish("a", "1.0.0", execute("shared", unless="true"))
    fleet.publish("b", "1.0.0", execute("shared", unless="true"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    kill = {"command": "sh -c 'kill -KILL $PPID'"}
    fleet.publish("a", "1.1.0", execute("shared", unless="true"), {"exec": [{"kill": kill}]})
    fleet.publish("b", "1.1.0", execute("shared", unless="true"), {"exec": [{"kill": kill}]})
    for _ in range(2):
        command = [sys.executable, "-m", "puller", "run", "--config", str(fleet.host.configuration)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert fleet.host.run().status == 7
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}


def test_a_contradiction_shows_no_credentials_of_a_url(fleet: Fleet) -> None:
    for name, user in (("a", "ann:hunter22"), ("b", "bob:hunter23")):
        source = f"https://{user}@www.example.com/motd"
        owner = {"owner": "root", "group": "root", "mode": "0644"}
        fleet.publish(name, "1.0.0", {"file": [{"/srv/motd": {"source": source, **owner}}]})
    fleet.follow("a", "b")
    outcome = fleet.host.run("--noop")
    assert "and the two differ: source is " in outcome.output
    assert "hunter2" not in outcome.output


# Output for authors and operators


def test_explain_lists_a_shared_resource_once(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("motd", "hello"))
    fleet.publish("b", "1.0.0", file("motd", "hello"), reload("tell", "file#motd"))
    fleet.follow("a", "b")
    fleet.host.run()
    outcome = fleet.host.puller("explain", "file#motd")
    assert outcome.output.count("file#") == 1
    assert "declared at a-1.0.0/manifest.yaml:1, b-1.0.0/manifest.yaml:1" in outcome.output
    assert "refreshes exec#tell" in outcome.output
    assert "subscribes file#" in fleet.host.puller("explain", "exec#tell").output


def test_lint_checks_a_bundle_with_those_that_come_before_it(tmp_path: Path, execute: Execute) -> None:
    for name, resources in {
        "base": [file("motd", "of base")],
        "fits": [reload("tell", "file#motd")],
        "contradicts": [file("motd", "of another")],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.yaml").write_text(manifest(*resources))
    base = str(tmp_path / "base")
    facts = ("--fact", "machine=/srv")
    status, output = execute("lint", str(tmp_path / "fits"), *facts)
    assert status == 1
    assert "use --with BUNDLE or a puller.yaml" in output
    assert execute("lint", str(tmp_path / "fits"), "--with", base, *facts)[0] == 0
    assert execute("lint", str(tmp_path / "contradicts"), *facts)[0] == 0
    status, output = execute("lint", str(tmp_path / "contradicts"), "--with", base, *facts)
    assert status == 1
    assert "content is 'of another' here and 'of base' there" in output
    assert execute("render", str(tmp_path / "fits"), *facts)[0] == 13
    status, shown = execute("render", str(tmp_path / "fits"), "--with", base, "--format", "json", *facts)
    assert (status, [list(item) for item in json.loads(shown)["resources"]]) == (0, [["exec"]])
    for subject in ("exec#tell", "file#/srv/motd"):
        assert execute("explain", subject, str(tmp_path / "fits"), "--with", base, *facts)[0] == 0
    status, output = execute("explain", "exec#tell", "--with", base)
    assert (status, "--with requires a SOURCE" in output) == (64, True)


def test_manual_apply_may_include_prerequisites(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "machine").mkdir()
    for name, resources in {
        "base": [file("motd", "of base")],
        "shop": [reload("tell", "file#motd")],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.yaml").write_text(
            manifest(*resources, pre_message=f"begin {name}", post_message=f"end {name}")
        )
    words = (str(tmp_path / "shop"), "--fact", f"machine={tmp_path}/machine")
    assert execute("apply", *words)[0] == 13
    status, output = execute("apply", *words, "--with", str(tmp_path / "base"))
    assert status == 0
    assert [word for word in output.split("\n") if word[:5] in ("begin", "end b", "end s")] == [
        "begin base", "begin shop", "end base", "end shop",
    ]  # fmt: skip
    assert "2 resources, 0 stable, 1 changed, 1 refreshed" in output
    assert (tmp_path / "machine/said").read_text() == "tell\n"
    assert "2 stable" in execute("apply", *words, "--with", str(tmp_path / "base"))[1]


def test_bundle_is_judged_by_its_undone_changes(fleet: Fleet) -> None:
    fleet.publish("a", "1.0.0", file("conf", "one"))
    fleet.publish("b", "1.0.0", file("other", "one"))
    fleet.follow("a", "b")
    assert fleet.host.run().status == 0
    path = "{{ facts.machine }}/conf"
    undo = {"exec": [{"undo": {"command": f"rm -f {path}", "onlyif": f"test -e {path}"}}]}
    fleet.publish("b", "1.1.0", file("other", "two"), undo, give_up_after=1)
    outcome = fleet.host.run()
    assert "b: 1.1.0 is given up: resources failed: file#" in outcome.output
    assert "another resource of this run, exec#undo, may have changed it" in outcome.output
    assert fleet.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    assert (fleet.read("conf"), fleet.read("other")) == ("one", "one")
    fleet.assert_held()
