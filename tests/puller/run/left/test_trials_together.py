"""Bundles that are on trial together, share resources or fail midway: each rollback is still exact."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from bundles.errors import StoreError
from bundles.store.store import Store
from puller.resources.files.leftover_files import Restored
from puller.run.trials import Trials
from tests.hostile.story_model import Item, Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.stories import Host, Publisher

FAILS = {"exec": [{"fails": {"command": "false"}}]}
"""Keeps a bundle on trial."""


def file(name: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a file resource on the host's machine."""
    output = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644", "content": content, **more}
    provided = {key: value for key, value in output.items() if value is not None}
    return {"file": [{f"{{{{ facts.machine }}}}/{name}": provided}]}


def checked(name: str, content: str) -> dict[str, Any]:
    """Return a file whose health check fails unless the file contains *good*."""
    command = f"sh -c 'grep -q good {{{{ facts.machine }}}}/{name} || exit 2'"
    return file(name, content, health_checks=[{"command": command}])


class Story:
    """A host with unmanaged files, and its published bundles."""

    def __init__(self, host: Host, publisher: Publisher) -> None:
        self.host, self.publisher, self.machine = host, publisher, host.machine
        host.machine.mkdir()

    def publish(self, name: str, version: str, *resources: dict[str, Any], **more: Any) -> None:
        manifest = json.dumps({"resources": list(resources), **more})
        self.publisher.publish(version, manifest, name=name, files={})

    def follow(self, *names: str) -> None:
        self.host.configure(bundles=[{"name": name} for name in names])

    def settle(self, *names: str) -> None:
        """Publish and apply version 1.0.0 of each bundle, with one file per bundle."""
        for name in names:
            self.publish(name, "1.0.0", checked(f"of-{name}", "good"))
        self.follow(*names)
        assert self.host.run().status == 0

    def enforced(self) -> dict[str, str | None]:
        return {bundle["name"]: bundle["enforced"] for bundle in self.host.status()["bundles"]}

    def names(self) -> set[str]:
        return {path.name for path in self.machine.iterdir()}

    def journals(self) -> list[str]:
        return sorted(path.name for path in (self.host.state / "trials").glob("*/*"))


@pytest.fixture
def story(host: Host, publisher: Publisher) -> Story:
    return Story(host, publisher)


@pytest.mark.everything
def test_object_of_two_trials_goes_with_the_last(story: Story) -> None:
    story.settle("a", "b")
    for name in ("a", "b"):
        story.publish(name, "2.0.0", checked(f"of-{name}", "good"), file("shared", "1"), FAILS)
    assert story.host.run().status == 6
    story.host.puller("rollback", "a")
    assert story.names() == {"of-a", "of-b", "shared"}
    story.publish("b", "3.0.0", checked("of-b", "bad"))
    assert story.host.run().status == 7
    assert story.names() == {"of-a", "of-b"}
    assert story.journals() == []


@pytest.mark.everything
def test_directory_of_a_trial_goes_when_it_is_empty(story: Story) -> None:
    story.settle("a", "b")
    story.publish("a", "2.0.0", file("d", ensure="directory", mode="0755"), FAILS)
    story.publish("b", "2.0.0", checked("of-b", "good"), file("d/f", "1"), FAILS)
    story.host.run()
    story.host.puller("rollback", "a")
    assert "d" in story.names()
    story.host.puller("rollback", "b")
    assert story.names() == {"of-a", "of-b"}


@pytest.mark.everything
@pytest.mark.parametrize("removed", ["keep", "absent"])
def test_object_moved_to_an_abandoned_bundle_is_restored(story: Story, removed: str) -> None:
    """The leftover stays even if the version that was rolled back declares ``removed: absent``."""
    story.publish("a", "1.0.0", checked("of-a", "good"))
    story.publish("b", "1.0.0", file("one", "of b"))
    story.follow("a", "b")
    assert story.host.run().status == 0
    story.publish("a", "2.0.0", checked("of-a", "bad"), file("one", "of a"), removed=removed)
    story.publish("b", "2.0.0", file("two", "of b"))
    assert story.host.run().status == 7
    assert story.host.run("--detailed-exitcodes").status == 20
    assert (story.machine / "one").read_text() == "of b"
    leftovers = [item for bundle in story.host.status()["bundles"] for item in bundle.get("left_behind", ())]
    assert [(item["reference"][-4:], item["made"]) for item in leftovers] == [("/one", True)]


@pytest.mark.everything
def test_first_trial_of_a_path_keeps_the_original(story: Story) -> None:
    story.settle("a", "b")
    (story.machine / "theirs").write_text("by hand")
    story.publish("b", "2.0.0", checked("of-b", "good"), file("theirs", "of b"), FAILS)
    story.host.run()
    story.publish("a", "2.0.0", checked("of-a", "bad"), file("theirs", "of a"))
    assert story.host.run().status == 7
    assert (story.machine / "theirs").read_text() == "of b", "which is on trial again"
    story.publish("b", "3.0.0", checked("of-b", "good"))
    assert story.host.run().status == 20
    assert (story.machine / "theirs").read_text() == "by hand"
    assert story.journals() == []


def test_objects_of_several_bundles_in_a_directory_go_together(story: Story) -> None:
    story.publish("a", "1.0.0", file("d", ensure="directory", mode="0755"), removed="absent")
    story.publish("b", "1.0.0", file("d/f", "1"), removed="absent")
    story.follow("a", "b")
    assert story.host.run().status == 0
    for name in ("a", "b"):
        story.publish(name, "2.0.0", file(f"of-{name}", "1"))
    assert story.host.run().status == 0
    assert story.names() == {"of-a", "of-b"}
    assert story.host.run("--detailed-exitcodes").status == 0


def test_trial_change_of_a_good_resource_is_undone(story: Story) -> None:
    (story.machine / "conf").write_text("by hand")
    story.publish("a", "1.0.0", file("conf", mode="0600"))
    story.publish("b", "1.0.0", checked("of-b", "good"))
    story.follow("a", "b")
    assert story.host.run().status == 0
    assert (story.machine / "conf").read_text() == "by hand"
    story.publish("b", "2.0.0", checked("of-b", "bad"), file("conf", "of b", mode="0600"))
    outcome = story.host.run()
    assert outcome.status == 7, outcome.output
    assert (story.machine / "conf").read_text() == "by hand", outcome.output


def test_failed_restoration_is_retried(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.settle("a")
    (story.machine / "theirs").write_text("by hand")
    story.publish("a", "2.0.0", checked("of-a", "bad"), file("theirs", "2"))

    def fails(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Restored, "change", fails)
        story.host.run()
        assert (story.machine / "theirs").read_text() == "2"
    story.host.run()
    assert (story.machine / "theirs").read_text() == "by hand"
    assert story.journals() == []
    assert story.host.run("--detailed-exitcodes").status == 20


def test_a_partial_run_forgets_nothing_of_a_trial_before(story: Story) -> None:
    story.settle("a")
    (story.machine / "theirs").write_text("by hand")
    story.publish("a", "2.0.0", checked("of-a", "good"), file("theirs", "2"), FAILS)
    story.host.run()
    assert (story.machine / "theirs").read_text() == "2"
    story.publish("a", "3.0.0", checked("of-a", "good"), file("new", "3"))
    story.host.run("--only", "file#*/new")
    assert story.host.run().status == 0
    assert (story.machine / "theirs").read_text() == "by hand"
    assert story.journals() == []


def test_partial_run_refreshes_subscribers(story: Story) -> None:
    reload = {
        "command": "sh -c 'cat {{ facts.machine }}/conf >> {{ facts.machine }}/said; true'",
        "refreshonly": True,
    }

    def release(version: str, code: str, *additional: dict[str, Any], subscribe: list[str]) -> None:
        reloading = {"exec": [{"reload": {**reload, "subscribe": subscribe}}]}
        story.publish("a", version, checked("of-a", code), file("quiet", "1"), *additional, reloading)

    release("1.0.0", "good", subscribe=["file#{{ facts.machine }}/quiet"])
    story.follow("a")
    assert story.host.run().status == 0
    (story.machine / "conf").write_text("by hand\n")
    (story.machine / "said").unlink(missing_ok=True)
    release("2.0.0", "bad", file("conf", "2\n"), subscribe=["file#{{ facts.machine }}/conf"])
    story.host.run("--only", "file#*/conf")
    assert (story.machine / "conf").read_text() == "2\n"
    story.host.run()
    assert (story.machine / "conf").read_text() == "by hand\n"
    assert (story.machine / "said").read_text() == "2\nby hand\n"


@pytest.mark.everything
def test_a_trial_that_cannot_be_put_on_record_keeps_its_copies(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.settle("a")
    (story.machine / "theirs").write_text("by hand")
    story.publish("a", "2.0.0", checked("of-a", "good"), file("theirs", "2"), FAILS)
    story.host.run()

    def is_full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Trials, "_save", is_full)
        story.host.run()
    story.host.puller("rollback", "a")
    assert (story.machine / "theirs").read_text() == "by hand"


@pytest.mark.everything
def test_a_rollback_that_cannot_become_current_ends(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.settle("a", "b")
    story.publish("a", "2.0.0", checked("of-a", "bad"))
    activate: Callable[..., Any] = Store.activate
    requested = []

    def activated(store: Store, name: str, sha256: str) -> Any:
        requested.append(sha256)
        assert len(requested) < 50, "it never ends"
        if len(requested) > 1:
            raise StoreError(name, "the disk is full")
        return activate(store, name, sha256)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "activate", activated)
        outcome = story.host.run()
    assert outcome.status == 8, outcome.output
    story.host.run()
    assert story.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    assert (story.machine / "of-a").read_text() == "good"


@pytest.mark.everything
def test_partial_run_stays_partial_without_a_bundle(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.settle("a", "b")
    story.publish("a", "2.0.0", checked("of-a", "good, 2"))
    story.publish("b", "2.0.0", checked("of-b", "good, 2"), file("more", "2"))

    activate: Callable[..., Any] = Store.activate

    def activated(store: Store, name: str, sha256: str) -> Any:
        if name == "a":
            raise StoreError(name, "the disk is full")
        return activate(store, name, sha256)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "activate", activated)
        story.host.run("--only", "file#*/of-a")
    assert (story.machine / "of-b").read_text() == "good"


@pytest.mark.everything
def test_rollback_in_a_partial_run_adopts_no_release(story: Story) -> None:
    story.settle("a", "b")
    story.publish("a", "2.0.0", checked("of-a", "bad"), file("new", "2"))
    story.publish("b", "2.0.0", checked("of-b", "good, 2"))
    assert story.host.run("--only", "file#*/of-a", "--only", "file#*/new").status == 7
    assert story.enforced() == {"a": "1.0.0", "b": "1.0.0"}
    assert (story.machine / "of-b").read_text() == "good"
    story.host.run()
    assert story.names() == {"of-a", "of-b"}
    assert story.enforced() == {"a": "1.0.0", "b": "2.0.0"}


@pytest.mark.parametrize("kind", ["scaffold", "tree"])
@pytest.mark.parametrize("purge", [True, False])
@pytest.mark.parametrize("ending", ["rolled back by hand", "replaced"])
@pytest.mark.representatives(2)
def test_successor_of_a_failed_trial_owns_its_directory(
    host: Host, publisher: Publisher, kind: str, purge: bool, ending: str
) -> None:
    """One run gives up the bundle that has made a directory, and applies another bundle that declares the same one."""
    host.machine.mkdir()
    host.configure(bundles=[{"name": "first"}, {"name": "second"}])

    def publish(name: str, number: str, *items: Item, fate: str = "passes") -> None:
        version = Version(items, "absent", fate)
        publisher.publish(number, version.manifest(name), name=name, files=version.files())

    publish("first", "1.0.0")
    publish("second", "1.0.0")
    assert host.run().status == 0
    directory = Item(kind, "p", "one\n", ("a", "s/b"), purge)
    publish("first", "2.0.0", directory, fate="unhealthy")
    publish("second", "2.0.0", directory)  # two sources of one directory conflict
    assert host.run().status == 7
    assert {each["name"]: each["enforced"] for each in host.status()["bundles"]} == {
        "first": "1.0.0",
        "second": "2.0.0",
    }
    assert (host.machine / "p/s/b").read_text() == "one\n"
    assert host.run().status == 20
    if ending == "replaced":
        publish("second", "3.0.0")
    else:
        host.puller("rollback", "second")
    host.run()
    assert not (host.machine / "p").exists()
