"""``--only``: selected resources and their requirements are applied, and a partial run cannot pass a trial."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher


def file(name: str, content: str = "1", **more: Any) -> dict[str, Any]:
    owner = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}
    return {f"{{{{ facts.machine }}}}/{name}": {"content": content, "alias": name, **owner, **more}}


def tell(name: str, **more: Any) -> dict[str, Any]:
    return {name: {"command": f'sh -c "echo {name} >> {{{{ facts.machine }}}}/said"', **more}}


RESOURCES = [
    {
        "file": [
            file("needed"),
            file("also needed"),
            file("wanted", require=["file#needed", "apply#base.yaml"]),
        ]
    },
    {"file": [file("other"), file("last", after=["file#wanted"])]},
    {"apply": [{"base.yaml": {}}]},
    {"exec": [tell("reload", refreshonly=True, subscribe=["file#wanted"])]},
]
BASE = {"resources": [{"file": [file("of base")]}]}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    directory = tmp_path / "web"
    directory.mkdir()
    (tmp_path / "machine").mkdir()
    (directory / "manifest.yaml").write_text(json.dumps({"resources": RESOURCES}))
    (directory / "base.yaml").write_text(json.dumps(BASE))
    return directory


def made(machine: Path) -> set[str]:
    return {path.name for path in machine.iterdir()}


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["file#wanted"], {"needed", "of base", "wanted"}),
        (["file#*/wanted"], {"needed", "of base", "wanted"}),
        (["apply#base.yaml"], {"of base"}),
        (["file#also needed", "file#other"], {"also needed", "other"}),
        (["file#l*t"], {"last"}),
        (["*"], {"needed", "also needed", "wanted", "other", "last", "of base", "said"}),
    ],
    ids=lambda found: " ".join(sorted(found)),
)
def test_what_is_named_and_what_it_requires_is_applied_and_nothing_else(
    bundle: Path, tmp_path: Path, execute: Execute, only: list[str], expected: set[str]
) -> None:
    machine = tmp_path / "machine"
    words = [word for one in only for word in ("--only", one)]
    status, said = execute("apply", str(bundle), "--fact", f"machine={machine}", *words)
    assert status == 0, said
    assert made(machine) == expected
    assert "this was a partial run, of " in said


def test_the_refresh_of_what_was_left_out_is_pending_for_the_next_whole_run(
    bundle: Path, tmp_path: Path, execute: Execute
) -> None:
    machine = tmp_path / "machine"
    facts = ("--fact", f"machine={machine}", "--state-directory", str(tmp_path / "state"))
    status, said = execute("apply", str(bundle), *facts, "--only", "file#wanted")
    assert status == 0
    assert "this was a partial run, of 4 of 8 resources: it says nothing of the others" in said
    assert "said" not in made(machine)
    assert execute("apply", str(bundle), *facts)[0] == 0
    assert (machine / "said").read_text() == "reload\n"


@pytest.mark.parametrize("only", ["file#wante", "file#/etc/*", "nothing"])
def test_a_reference_that_names_nothing_is_refused_before_anything_is_changed(
    bundle: Path, tmp_path: Path, execute: Execute, only: str
) -> None:
    machine = tmp_path / "machine"
    status, said = execute(
        "apply", str(bundle), "--fact", f"machine={machine}", "--only", "file#wanted", "--only", only
    )
    assert status == 64
    assert f"--only {only}: matches no resource" in said
    assert made(machine) == set()


def test_a_partial_run_makes_no_bundle_good(host: Host, publisher: Publisher) -> None:
    host.machine.mkdir()
    publisher.publish("1.0.0", json.dumps({"resources": [{"file": [file("a"), file("b")]}]}), files={})
    assert host.run("--only", "file#a").status == 0
    assert made(host.machine) == {"a"}
    assert host.report()["only"] == ["file#a"]
    status = host.status()
    assert status["bundles"][0]["trial"], "it is on trial still"
    assert status["last_run"]["only"] == ["file#a"]
    judged = host.puller("status", "--check")
    assert judged.status == 1
    assert "the last run was limited to file#a, and says nothing of the rest" in judged.output
    assert host.run().status == 0
    assert host.status()["bundles"][0].get("trial") is None
    assert host.puller("status", "--check").status == 0


def test_a_partial_run_takes_up_no_release_of_which_nothing_was_asked_for(
    host: Host, publisher: Publisher
) -> None:
    host.machine.mkdir()
    for name in ("web", "db"):
        publisher.publish("1.0.0", json.dumps({"resources": [{"file": [file(name)]}]}), name=name, files={})
    host.configure(bundles=[{"name": "web"}, {"name": "db"}])
    assert host.run("--only", "file#db").status == 0
    assert [bundle["enforced"] for bundle in host.status()["bundles"]] == [None, "1.0.0"]
    assert host.report()["bundles"][0]["outcome"] == "not applied: --only selects none of its resources"
    assert host.run().status == 0
    assert made(host.machine) == {"web", "db"}


def test_a_run_that_is_asked_for_nothing_says_so_and_is_no_run_that_was_cut_short(
    host: Host, publisher: Publisher
) -> None:
    publisher.publish("1.0.0")
    outcome = host.run("--only", "file#none")
    assert outcome.status == 64
    host.assert_told("--only file#none: matches no resource", outcome)
    assert host.status()["cut_short"] in (None, "")
    assert host.enforced is None


def test_what_fails_its_trial_in_part_is_rolled_back_as_a_whole(host: Host, publisher: Publisher) -> None:
    host.machine.mkdir()
    check = {"command": "sh -c 'grep -q good {{ facts.machine }}/a || exit 2'"}

    def release(version: str, a: str, b: str) -> None:
        files = [file("a", a, health_checks=[check]), file("b", b)]
        publisher.publish(version, json.dumps({"resources": [{"file": files}]}), files={})

    release("1.0.0", "good", "1")
    assert host.run().status == 0
    release("1.1.0", "bad", "2")
    (host.machine / "b").write_text("by hand")
    assert host.run("--only", "file#a").status == 7
    assert ((host.machine / "a").read_text(), (host.machine / "b").read_text()) == ("good", "1")
