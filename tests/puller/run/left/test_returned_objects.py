"""Objects older than Puller: its records never claim them after a trial, a failure or a kill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.puller.run.left.test_trial_endings import BAD, FAILS, MACHINE, OBJECTS, Story, file

if TYPE_CHECKING:
    from collections.abc import Callable

ABSENT = {"file": [{f"{MACHINE}/T": {"ensure": "absent", "force": True}}]}
NO_LINK = {"link": [{f"{MACHINE}/T": {"ensure": "absent", "force": True}}]}


def person_file(path: Path) -> None:
    path.write_text("by a person\n")


def person_link(path: Path) -> None:
    path.symlink_to("by-a-person")


def person_directory(path: Path) -> None:
    (path / "sub").mkdir(parents=True)
    (path / "sub/precious").write_text("by a person\n")


PEOPLE = {"file": person_file, "link": person_link, "directory": person_directory}
AT_T = ["file", "directory", "link", "tree", "tree that purges", "scaffold", "line of a new file"]


@pytest.fixture
def two(story: Story) -> Story:
    """Return a story with two passed bundles."""
    story.host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    story.publish("1", name="web")
    story.publish("1", name="base")
    story.run()
    return story


def of_person(story: Story) -> dict[str, object]:
    return {
        name: each
        for name, each in story.picture().items()
        if name != "cron.d" and name.partition("/")[0] in ("T", "cron.d")
    }


def made_and_left(story: Story) -> list[str]:
    leftovers = [each for bundle in story.host.status()["bundles"] for each in bundle.get("left_behind", ())]
    return [each["reference"] for each in leftovers if each["made"]]


@pytest.mark.parametrize("made", AT_T)
@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("last", ["replaced", "given up"])
@pytest.mark.representatives(1)
@pytest.mark.sample(6)
def test_object_of_a_person_survives_two_trials(two: Story, person: str, made: str, last: str) -> None:
    """A trial removes the object, another bundle creates an object at its path, and both trials end."""
    PEOPLE[person](two.machine / "T")
    before = of_person(two)
    two.publish("2", NO_LINK if person == "link" else ABSENT, FAILS, name="base")
    two.run(6)
    assert not of_person(two)
    two.publish("2", OBJECTS[made], FAILS)
    two.run(13)
    two.publish("3", BAD if last == "given up" else file("more", "x"))
    two.publish("3", name="base")
    two.run(0, 7)
    two.settle(0, 20)
    assert of_person(two) == before
    two.publish("4")
    two.settle()
    assert of_person(two) == before
    assert not made_and_left(two)


@pytest.mark.everything
def test_a_file_stays_after_the_trial_that_restored_it(two: Story) -> None:
    """The next trial declares another object at its path, fails and is rolled back."""
    person_file(two.machine / "T")
    before = of_person(two)
    two.publish("2", ABSENT, FAILS, name="base")
    two.run(6)
    two.publish("2", OBJECTS["file"], FAILS)
    two.run(13)
    two.publish("3", name="base")
    two.publish("3", OBJECTS["scaffold"], BAD)
    two.run(7, 13)
    two.settle(20)
    assert of_person(two) == before


@pytest.mark.everything
def test_a_file_stays_though_the_run_that_restored_it_died(
    two: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    from puller.run.leftovers.leftovers import Leftovers

    person_file(two.machine / "T")
    before = of_person(two)
    two.publish("2", ABSENT, FAILS, name="base")
    two.run(6)
    two.publish("2", OBJECTS["file"], FAILS)
    two.run(13)
    two.publish("3")
    two.publish("3", name="base")

    class Died(BaseException):
        pass

    def die(*arguments: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Leftovers, "after", die)
        with pytest.raises(Died):
            two.host.run()
    assert of_person(two) == before
    two.settle(0, 20)
    assert of_person(two) == before


CRON = {"cron": [{"job": {"schedule": "@hourly", "command": "true"}}]}


@pytest.mark.everything
def test_a_cron_file_of_a_person_survives_two_trials(two: Story) -> None:
    """The second trial declares the same path with another type."""
    path = two.machine / "cron.d/job"
    path.write_text("# by a person\n")
    before = of_person(two)
    gone = {"file": [{f"{MACHINE}/cron.d/job": {"ensure": "absent"}}]}
    two.publish("2", gone, FAILS, name="base")
    two.run(6)
    two.publish("2", CRON, FAILS)
    two.run(13)
    two.publish("3")
    two.publish("3", name="base")
    two.settle(0, 20)
    assert of_person(two) == before


@pytest.mark.everything
@pytest.mark.root
@pytest.mark.parametrize("kind", ["mount", "mount in fstab"])
@pytest.mark.representatives(1)
def test_a_mount_of_a_person_survives_two_trials(two: Story, kind: str) -> None:
    """Packages and accounts are left out, because Puller cannot restore them after a trial."""
    declared = two.resource(kind)
    two.publish("2", declared)
    two.run()
    (two.host.state / "managed.json").unlink()  # without the record, Puller does not own it
    two.publish("3")
    two.run()
    before = two.picture()
    [(name, _)] = next(iter(declared.values()))[0].items()
    two.publish("2", {"mount": [{name: {"ensure": "absent"}}]}, FAILS, name="base")
    two.run(6)
    two.publish("4", declared, FAILS)
    two.run(13)
    two.publish("5")
    two.publish("3", name="base")
    two.settle(0, 20)
    assert two.picture() == before


def in_the_way(story: Story) -> None:
    person_file(story.machine / "T")


def nothing(story: Story) -> None:
    del story


FAILING: dict[str, tuple[Callable[[Story], None], dict[str, Any]]] = {
    "scaffold": (in_the_way, OBJECTS["scaffold"]),
    "file": (nothing, file("missing/f", "x")),
    "link": (nothing, {"link": [{f"{MACHINE}/missing/f": {"target": "z"}}]}),
}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("is_partial", [False, True])
def test_a_resource_that_always_fails_was_not_made(story: Story, kind: str, is_partial: bool) -> None:
    prepare, declared = FAILING[kind]
    prepare(story)
    [name] = declared[kind][0]
    options = ("--only", f"{kind}#{name.replace(MACHINE, str(story.machine))}") if is_partial else ()
    story.publish("1", declared)
    for _ in range(3):
        outcome = story.host.run(*options)
        assert outcome.status in (4, 6), outcome.output
    if kind != "scaffold":  # a person creates the directory
        (story.machine / "missing").mkdir()
        person = PEOPLE["link" if kind == "link" else "file"]
        person(story.machine / "missing/f")
    before = of_person(story)
    story.publish("2")
    story.settle()
    assert of_person(story) == before
    assert not story.left()


def test_a_file_in_the_place_of_a_failed_scaffold_stays(story: Story) -> None:
    in_the_way(story)
    story.publish("1", OBJECTS["scaffold"])
    story.run(4, 6)
    story.run(4)
    story.publish("2", OBJECTS["file"])
    story.run()
    story.publish("3")
    story.run()
    assert (story.machine / "T").is_file()


@pytest.mark.everything
@pytest.mark.parametrize("made", ["file", "tree", "link"])
@pytest.mark.representatives(1)
def test_object_made_before_a_trial_is_still_removed(two: Story, made: str) -> None:
    two.publish("2", OBJECTS[made])
    two.run()
    two.publish("2", file("other", "x"), FAILS, name="base")
    two.publish("3", FAILS)
    two.run(6)
    two.publish("3", name="base")
    two.publish("4")
    two.settle()
    assert not of_person(two)
    assert not two.left()


@pytest.mark.parametrize("made", [name for name in AT_T if "line" not in name])
@pytest.mark.parametrize("between", [1, 2])
@pytest.mark.representatives(1)
def test_object_that_waits_for_its_removal_is_declared_again(story: Story, made: str, between: int) -> None:
    """Two trials fail. The second one does not declare the object of the first, and the third version does."""
    story.publish("1", OBJECTS[made], FAILS)
    story.run(4, 6)
    before = of_person(story)
    story.publish("2", FAILS)
    for _ in range(between):
        story.run(4, 6)
    assert of_person(story) == before
    story.publish("3", OBJECTS[made])
    story.run()
    assert of_person(story) == before
    story.publish("4")
    story.settle()
    assert not of_person(story)


@pytest.mark.parametrize("made", [name for name in AT_T if "line" not in name])
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.representatives(1)
def test_object_of_puller_stays_its_own_after_a_removal_on_trial(story: Story, made: str, runs: int) -> None:
    """A version on trial declares the object as absent and is given up. The next version does not declare it."""
    story.publish("1")
    story.run()
    story.publish("2", OBJECTS[made])
    story.run()
    before = of_person(story)
    story.publish("3", NO_LINK if made == "link" else ABSENT, FAILS, give_up_after=runs)
    for _ in range(runs - 1):
        story.run(4, 6)
    story.run(7)
    assert of_person(story) == before
    story.publish("4")
    story.run()
    assert not of_person(story)


@pytest.mark.parametrize("made", AT_T)
@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("first", ["absent", "file"])
@pytest.mark.representatives(1)
@pytest.mark.sample(14)
def test_object_returns_after_trials_without_any_pass(
    story: Story, person: str, made: str, first: str
) -> None:
    """No version has passed. The third one does not declare the object that two others have replaced."""
    PEOPLE[person](story.machine / "T")
    before = of_person(story)
    absent = NO_LINK if person == "link" else ABSENT
    story.publish("1", absent if first == "absent" else file("T", "first", force=True), FAILS)
    story.run(4, 6)
    assert of_person(story) != before
    story.publish("2", OBJECTS[made], FAILS, removed="absent")
    story.run(4, 6, 13)
    story.publish("3")
    story.settle()
    assert of_person(story) == before
    assert not made_and_left(story)
