"""Random stories of three bundles on one host, checked from outside.

A hypothesis state machine publishes versions that declare objects of random types at the same few paths, and lets
trials pass, fail and be given up. Between runs a person edits files, bundles leave the configuration and return, an
operator rolls back, runs are killed at a random change of the disk, and the disk fills up. The machine uses only its
publications, ``puller status`` and the report. It checks the disk itself:

* After a run without failures each declared object is on the disk as declared.
* An object that no enforced version declares is as it was before Puller changed it. Objects of versions that passed
  without ``removed: absent`` may stay.
* A line that a person wrote into a shared file is never lost, and files outside the bundles never change.
* The next run changes nothing. A dry run changes nothing and lists exactly the changes of the next run.
* No command ends with an internal error.

The gate tries 63 stories (3 without and 60 with the mark ``crash``), and ``--thorough`` 5,003. Their seeds are fixed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.hostile.story_model import (
    BUNDLES,
    ENTRY_NAMES,
    PATHS,
    SHARED,
    START,
    UNKNOWN,
    VERSIONS,
    Item,
    Model,
    Version,
    everything,
    is_planned,
    snapshot,
    state_of,
)

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Outcome, Publisher

CALLS = (
    "replace",
    "rename",
    "unlink",
    "remove",
    "rmdir",
    "mkdir",
    "symlink",
    "link",
    "fchmod",
    "chmod",
    "fsync",
)
WRITES = ("open", "write", "mkdir", "symlink", "link")


@contextlib.contextmanager
def at_call(names: tuple[str, ...], step: int, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` before functions of ``os`` that change the disk, from call number ``step`` on."""
    remaining = [step]

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if method.__name__ != "open" or (len(arguments) > 1 and arguments[1] & os.O_CREAT):
                remaining[0] -= 1
                if remaining[0] <= 0:
                    act()
            return method(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(os, name, wrapped(getattr(os, name)))
        yield


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def refuse() -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Story(RuleBasedStateMachine):
    """A host, its bundles, and all publications for it."""

    new_host: Callable[[Path], tuple[Host, Publisher]]
    execute: Execute

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.host, self.publisher = type(self).new_host(self.directory)
        self.machine = self.host.machine
        self.outside = self.directory / "outside"
        self.published: dict[tuple[str, str], Version] = {}
        self.configured = list(BUNDLES)
        self.model = Model()
        self.is_settled = False
        self.events: list[str] = []
        self.status: list[dict[str, Any]] = []
        """The bundles in ``puller status`` after the last command."""

    def teardown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    # Events

    @initialize(person=st.sampled_from([None, "p", "q"]))
    def begin(self, person: str | None) -> None:
        self.machine.mkdir()
        self.outside.mkdir()
        (self.outside / "file").write_text("outside\n")
        (self.machine / SHARED).write_text(START)
        if person:
            (self.machine / person).write_text("by a person\n")
        for name in (*PATHS, *ENTRY_NAMES):
            self.model.base[name] = state_of(self.machine, name)
        for bundle in BUNDLES:
            self.publish(bundle, Version())
        self.configure(list(BUNDLES))

    @rule(bundle=st.sampled_from(BUNDLES), version=VERSIONS)
    def publish_and_settle(self, bundle: str, version: Version) -> None:
        self.publish(bundle, version)
        self.settle()

    @rule(
        bundle=st.sampled_from(BUNDLES),
        version=VERSIONS,
        other=st.sampled_from(BUNDLES),
        beside=VERSIONS,
    )
    def publish_two(self, bundle: str, version: Version, other: str, beside: Version) -> None:
        self.publish(bundle, version)
        self.publish(other, beside)
        self.settle()

    @rule(bundle=st.sampled_from(BUNDLES), version=VERSIONS)
    def publish_and_run_once(self, bundle: str, version: Version) -> None:
        self.publish(bundle, version)
        self.run()

    @rule(bundle=st.sampled_from(BUNDLES), version=VERSIONS, step=st.integers(1, 60))
    def publish_and_kill(self, bundle: str, version: Version, step: int) -> None:
        self.publish(bundle, version)
        self.kill(step)
        self.settle()

    @rule(bundle=st.sampled_from(BUNDLES), version=VERSIONS, step=st.integers(1, 40))
    def publish_on_a_full_disk(self, bundle: str, version: Version, step: int) -> None:
        self.publish(bundle, version)
        with at_call(WRITES, step, refuse):
            self.run()
        self.settle()

    @rule(bundle=st.sampled_from(BUNDLES))
    def roll_back(self, bundle: str) -> None:
        outcome = self.host.puller("rollback", bundle)
        self.note(f"rollback {bundle}", outcome)
        self.settle()

    @rule(bundles=st.permutations(BUNDLES), count=st.integers(2, 3))
    def configure_bundles(self, bundles: list[str], count: int) -> None:
        self.configure(bundles[:count])
        self.settle()

    @rule(path=st.sampled_from(PATHS))
    def person_writes(self, path: str) -> None:
        target = self.machine / path
        if target.is_symlink() or target.is_dir() or not target.parent.is_dir() or target.parent.is_symlink():
            return
        target.write_text("by a person, later\n")
        self.events.append(f"a person writes {path}")
        self.person_changed(path)

    @rule(path=st.sampled_from(PATHS))
    def person_removes(self, path: str) -> None:
        target = self.machine / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif not (target.is_symlink() or target.exists()):
            return
        else:
            target.unlink()
        self.events.append(f"a person removes {path}")
        for below in PATHS:
            if below.startswith(path):
                self.person_changed(below)

    @rule()
    def person_adds_a_line(self) -> None:
        line = f"# person {len(self.model.person_lines)}"
        shared = self.machine / SHARED
        shared.write_text(f"{shared.read_text()}{line}\n")
        self.model.person_lines.append(line)
        self.events.append(f"a person adds {line!r}")

    # Steps of events

    def publish(self, bundle: str, version: Version) -> None:
        number = f"{len(self.published) + 1}.0.0"
        self.published[bundle, number] = version
        self.events.append(f"publish {bundle} {number} {version}")
        self.publisher.publish(number, version.manifest(bundle), name=bundle, files=version.files())
        self.is_settled = False

    def configure(self, bundles: list[str]) -> None:
        # Objects of a removed bundle are unmanaged. When the bundle returns, its next version undoes an open trial.
        for bundle in {*self.configured} ^ {*bundles}:
            for (name, _), version in self.published.items():
                if name == bundle:
                    self.model.forget(version.covered)
        self.configured = list(bundles)
        self.events.append(f"configure {bundles}")
        self.host.configure(bundles=[{"name": name} for name in bundles])
        self.is_settled = False

    def person_changed(self, path: str) -> None:
        is_known = self.is_settled and path not in self.declared()
        self.model.set_by_person(path, snapshot(self.machine / path) if is_known else UNKNOWN)

    def run(self, *options: str) -> Outcome:
        outcome = self.host.run(*options)
        self.note(f"run {' '.join(options)}", outcome, is_dry="--noop" in options)
        return outcome

    def note(self, event: str, outcome: Outcome, *, is_dry: bool = False) -> None:
        self.events.append(f"{event}: {outcome.status}\n{outcome.output}")
        self.expect("Traceback" not in outcome.output, "a traceback")
        self.expect(outcome.status != 1, "an error of Puller's own")
        self.observe(is_dry=is_dry)

    def kill(self, step: int) -> None:
        """Run in another process, and kill it at a change of the disk."""
        child = os.fork()
        if child == 0:
            status = 70
            try:
                with at_call(CALLS, step, die):
                    status = self.host.run().status
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.events.append(f"killed at change {step}: {status}")
        self.expect(status not in (1, 70), "an error of Puller's own")
        self.observe()

    def settle(self) -> None:
        """Run until nothing changes, and check the disk."""
        before = everything(self.machine)
        foretold = changes(self.run("--noop").output)
        self.expect(everything(self.machine) == before, "the dry run changed something")
        outcome = self.run()
        if outcome.status in (0, 20):
            self.expect(
                changes(outcome.output) == foretold,
                f"the dry run listed {sorted(foretold)}",
            )
        for _ in range(2):
            if outcome.status == 0 and everything(self.machine) == before:
                break  # nothing changed and nothing is pending, so two more runs would repeat the next one
            before = everything(self.machine)
            outcome = self.run()
        before = everything(self.machine)
        self.run("--detailed-exitcodes")
        self.expect(
            everything(self.machine) == before,
            "a run of a settled host changed something",
        )
        self.check()

    # Checks

    def observe(self, *, is_dry: bool = False) -> None:
        """Check the conditions that hold after every command, with any outcome."""
        self.status = self.host.status()["bundles"]
        enforced, on_trial = self.enforced()
        # A dry run enforces nothing, so later changes of a person stay.
        for bundle, version in () if is_dry else enforced.items():
            if bundle not in on_trial:
                self.model.take_over(version)
            elif version.removed == "keep":
                self.model.keep(version)
        self.expect((self.outside / "file").read_text() == "outside\n", "a file outside changed")
        lines = (self.machine / SHARED).read_text().splitlines()
        for line in ("# kept", *self.model.person_lines):
            self.expect(line in lines, f"a person's line was lost: {line}")

    def check(self) -> None:
        """Compare the disk with the declarations of the enforced versions if the last run had no other failures."""
        self.is_settled = False
        report = self.host.report()
        events = [event for bundle in report["bundles"] for event in bundle.get("events", ())]
        failures = [
            event
            for event in events
            if event["state"] in ("failed", "skipped") and not is_planned(event["name"])
        ]
        outcomes = {
            bundle["name"] for bundle in report["bundles"] if bundle["outcome"] != "nothing to enforce"
        }
        if failures or outcomes != {*self.configured}:
            return
        self.is_settled = True
        enforced, _ = self.enforced()
        declared: set[str] = set()
        for version in enforced.values():
            for item in version.items:
                self.check_declared(item, enforced)
            declared |= version.covered
        leftovers = self.left_behind()
        trees = [
            f"{item.key}/"
            for version in enforced.values()
            for item in version.items
            if item.kind in ("tree", "scaffold")
        ]
        for name in self.model.base:
            if name in leftovers and name.startswith(tuple(trees)):
                continue  # a leftover in the directory of a declared tree is listed, and stays
            if name not in declared and not any(each.startswith(f"{name}/") for each in declared):
                actual = state_of(self.machine, name)
                problem = self.model.problem_of(name, actual, is_listed=name in leftovers)
                self.expect(not problem, problem)

    def check_declared(self, item: Item, enforced: Mapping[str, Version]) -> None:
        actual = state_of(self.machine, item.name)
        declared = [other for version in enforced.values() for other in version.items if not other.is_entry]
        others = {other.key for other in declared}
        others |= {f"{other.key}/{name}" for other in declared for name in other.files}
        if item.kind in ("tree", "scaffold"):
            root = self.machine / item.key
            for name in item.files:
                self.expect(
                    snapshot(root / name) == item.value,
                    f"{item}: {name} is not as declared",
                )
            expected = {
                *item.files,
                *(os.path.relpath(key, item.key) for key in others if f"{key}/".startswith(f"{item.key}/")),
            }
            if item.purge:
                files = {
                    str(path.relative_to(root))
                    for path in root.rglob("*")
                    if path.is_symlink() or not path.is_dir()
                }
                self.expect(files <= expected, f"{item}: {files} is more than {expected}")
        elif item.kind == "directory":
            self.expect(isinstance(actual, tuple), f"{item} is {actual!r}")
        else:
            self.expect(actual == item.expected_state, f"{item} is {actual!r}")

    def declared(self) -> set[str]:
        enforced, _ = self.enforced()
        return {name for version in enforced.values() for name in version.covered}

    def enforced(self) -> tuple[dict[str, Version], set[str]]:
        """Return the enforced version of each bundle, and the bundles that are on trial."""
        bundles = [each for each in self.status if each["name"] in self.configured]
        versions = {
            each["name"]: self.published[each["name"], each["enforced"]]
            for each in bundles
            if each["enforced"]
        }
        return versions, {each["name"] for each in bundles if each.get("trial")}

    def left_behind(self) -> set[str]:
        leftovers = [each for bundle in self.status for each in bundle.get("left_behind") or ()]
        paths = [each["reference"].partition("#")[2] for each in leftovers]
        return (
            {os.path.relpath(path, self.machine) for path in paths if path.startswith("/")}
            | {
                f"{kind} {key}"
                for each in leftovers
                for kind, _, name in [each["reference"].partition("#")]
                for key in [name.rpartition("-")[2]]
            }
            | {f"added {each['reference'].rpartition('-')[2]}" for each in leftovers}
        )

    def expect(self, condition: bool, problem: str) -> None:
        if not condition:
            story = "\n".join(self.events).replace(str(self.directory), "DIR")
            files = "\n".join(f"{path}: {state}" for path, state in everything(self.machine).items())
            raise AssertionError(
                f"{problem}\n{story}\n--- the disk\n{files}".replace(str(self.directory), "DIR")
            )


def changes(output: str) -> set[str]:
    """Return the resources that a run changed, or that a dry run would change."""
    matches = re.findall(
        r"^\S+ +(\S+#.*?) (?:\(.*\) )?(?:would change|changed|refreshed) ",
        output,
        re.MULTILINE,
    )
    return {name for name in matches if not is_planned(name.partition("#")[2])}


PLAIN, MANY, LONG, PARTS = 3, 6, 500, 10
"""Stories of part 0, of each other part, and of each other part with ``--thorough``, and the number of other parts."""


def parts() -> list[Any]:
    """Return the parts. Every run tries part 0. The others have the mark ``crash``."""
    return [0, *(pytest.param(part, marks=pytest.mark.crash) for part in range(1, PARTS + 1))]


@pytest.mark.everything
@pytest.mark.parametrize("part", parts())
@pytest.mark.sample(5)
def test_random_stories_of_three_bundles(
    part: int, publisher: Publisher, host: Host, execute: Execute, thorough: bool
) -> None:
    site, make_publisher, make_host = publisher.site, type(publisher), type(host)

    def new_host(directory: Path) -> tuple[Host, Publisher]:
        served = directory / "served"
        served.mkdir()
        made = make_publisher(directory / "publisher", served, like=site.directory)
        return make_host(directory / "host", site.anchor, str(served), execute), made

    machine = seed(part)(type("StoryOfOneHost", (Story,), {"new_host": staticmethod(new_host)}))
    stories = LONG if thorough else MANY
    limits = settings(
        max_examples=stories if part else PLAIN,
        stateful_step_count=8,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        # Shrinking takes minutes, and the failed story is readable without it.
        phases=[Phase.generate],
    )
    run_state_machine_as_test(machine, settings=limits)
