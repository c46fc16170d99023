"""Random stories of three bundles: the disk has exactly the resources of the enforced versions.

A seed determines each story: versions pass, fail their health check or stay on trial, and declare equal, different or
contradicting files. Stories include manual rollbacks, partial runs, killed runs, and bundles that leave the
configuration and return.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from puller.system.local import LocalSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.stories import Host, Publisher

STORIES = 20
BUNDLES = ("a", "b", "c")
POOL = ("d", "d/f", "one", "two", "theirs")
"""Paths that any version may declare. ``d`` is a directory, and ``theirs`` is older than Puller."""
THEIRS = "by hand"


class Version(NamedTuple):
    """Contents by path of a version (empty for a directory), and how its trial ends."""

    files: dict[str, str]
    fate: str = "passes"


class Died(BaseException):
    """Raised to simulate a killed run."""


def manifest(name: str, version: Version) -> str:
    owner = {"owner": os.geteuid(), "group": os.getegid()}
    entries: list[dict[str, Any]] = []
    for path, content in version.files.items():
        output = {"content": content, "mode": "0644"} if content else {"ensure": "directory", "mode": "0755"}
        entries.append({f"{{{{ facts.machine }}}}/{path}": {**owner, **output}})
    health = f"sh -c 'grep -q good {{{{ facts.machine }}}}/of-{name} || exit 2'"
    own = {"content": "bad" if version.fate == "fails" else "good", "mode": "0644", **owner}
    entries.append({f"{{{{ facts.machine }}}}/of-{name}": {**own, "health_checks": [{"command": health}]}})
    stays = {"exec": [{f"fails {name}": {"command": "false"}}]}
    resources = [{"file": entries}, *([stays] if version.fate == "stays on trial" else [])]
    return json.dumps({"removed": "absent", "resources": resources})


class Story:
    """A host, its bundles, and their published versions."""

    def __init__(self, host: Host, publisher: Publisher, chance: random.Random) -> None:
        self.host, self.publisher, self.chance = host, publisher, chance
        self.published: dict[tuple[str, str], Version] = {}
        self.configured = list(BUNDLES)
        self.told: list[str] = []
        self._kept: dict[str, set[str]] = {}
        """The paths that were last applied for each bundle."""
        self.is_taken = False
        """Whether a passed version has replaced the original ``theirs``, so that Puller does not restore it."""
        host.machine.mkdir()
        (host.machine / "theirs").write_text(THEIRS)
        for name in BUNDLES:
            self._publish(name, Version({}))
        self._configure()

    # Events

    def happen(self) -> None:
        """Do one random action, and start a run that may be killed."""
        items = [self.publish] * 6 + [self.roll_back, self.configure]
        self.chance.choice(items)()
        if self.chance.random() < 0.2:
            self.publish()
        if self.chance.random() < 0.3:
            self._die(self.chance.randrange(1, 12))
        elif self.chance.random() < 0.2:
            self._run("--only", f"file#*/{self.chance.choice((*POOL, 'of-a'))}")

    def publish(self) -> None:
        name, number = self.chance.choice(BUNDLES), len(self.published)
        texts = ("shared", "shared", f"of {name} {number}")
        paths = [path for path in POOL if self.chance.random() < 0.35]
        files = {path: "" if path == "d" else self.chance.choice(texts) for path in paths}
        if "d/f" in files and self.chance.random() < 0.8:
            files = {"d": "", **files}
        if "d/f" in files and "d" not in files:
            del files["d/f"]
        fates = ("passes", "passes", "fails", "stays on trial")
        self._publish(name, Version(files, self.chance.choice(fates)))

    def _publish(self, name: str, version: Version) -> None:
        number = f"{len(self.published) + 1}.0.0"
        self.published[name, number] = version
        self.told.append(f"publish {name} {number} {version}")
        self.publisher.publish(number, manifest(name, version), name=name, files={})

    def roll_back(self) -> None:
        name = self.chance.choice(BUNDLES)
        self.told.append(f"rollback {name}: {self.host.puller('rollback', name).status}")

    def configure(self) -> None:
        if len(self.configured) < len(BUNDLES):
            self.configured = list(BUNDLES)
        else:
            self.configured.remove(self.chance.choice(BUNDLES))
        self.chance.shuffle(self.configured)
        self._configure()

    def _configure(self) -> None:
        self.told.append(f"configure {self.configured}")
        self.host.configure(bundles=[{"name": name} for name in self.configured])

    def _run(self, *options: str) -> int:
        outcome = self.host.run(*options)
        self.told.append(f"run {options}: {outcome.status} {self.enforced()}")
        self.told.append(outcome.output)
        self._note_passed()
        return outcome.status

    def _die(self, step: int) -> None:
        """Start a run that dies before its change number ``step``, if it has that many changes."""
        leftovers = [step]

        def counted(method: Any) -> Any:
            def change(*arguments: Any, **named: Any) -> Any:
                leftovers[0] -= 1
                if leftovers[0] == 0:
                    raise Died
                return method(*arguments, **named)

            return change

        self.told.append(f"die at {step}")
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace_file", "make_directory", "remove", "set_attributes"):
                patch.setattr(LocalSystem, name, counted(getattr(LocalSystem, name)))
            try:
                self._run()
            except Died:
                self.told.append("died")

    # Checks

    def enforced(self) -> dict[str, str | None]:
        return {bundle["name"]: bundle["enforced"] for bundle in self.host.status()["bundles"]}

    def _note_passed(self) -> None:
        for bundle in self.host.status()["bundles"]:
            if bundle["enforced"] and not bundle.get("trial"):
                version = self.published[bundle["name"], bundle["enforced"]]
                self.is_taken |= "theirs" in version.files

    def settle(self) -> None:
        """Run twice. The second run must not change anything."""
        self._run()
        self._run()
        before = list(state(self.host.machine))
        status = self._run("--detailed-exitcodes")
        assert status in (0, 4, 13, 20), self.story()
        assert list(state(self.host.machine)) == before, self.story()

    def check(self) -> None:
        """Compare the disk with the enforced versions. Only bundles that left the host may have other files."""
        desired, result = self._wanted(), dict(state(self.host.machine))
        there = {path: content for path, (content, _) in result.items()}
        for path, content in desired.items():
            assert there.get(path) == content, (
                f"{path}: {there.get(path)!r}, expected {content!r}\n{self.story()}"
            )
        assert "theirs" in there, self.story()
        remaining = {path for name in self._gone() for path in self._kept.get(name, ())}
        additional = {
            path for path in there if path not in desired and path not in remaining and path != "theirs"
        }
        additional -= self._left()
        additional -= {
            path for path in additional if any(each.startswith(f"{path}/") for each in (*desired, *remaining))
        }
        assert not additional, f"{additional}\n{self.story()}"
        if "theirs" not in desired and "theirs" not in remaining and not self.is_taken:
            assert there["theirs"] == THEIRS, self.story()

    def _left(self) -> set[str]:
        """Return the paths of the listed leftovers."""
        leftovers = [
            item for bundle in self.host.status()["bundles"] for item in bundle.get("left_behind", ())
        ]
        return {os.path.relpath(item["reference"].partition("#")[2], self.host.machine) for item in leftovers}

    def _gone(self) -> set[str]:
        return {*BUNDLES} - self._in_force()

    def _in_force(self) -> set[str]:
        """Return bundles with an applied version. A bundle may contradict a rolled-back one in all its versions."""
        bundles = self.host.report()["bundles"]
        return {bundle["name"] for bundle in bundles if bundle["outcome"] != "nothing to enforce"}

    def _wanted(self) -> dict[str, str]:
        desired: dict[str, str] = {}
        for name, number in self.enforced().items():
            if name in self._in_force() and number is not None:
                version = self.published[name, number]
                fails = version.fate == "fails"
                files = {**version.files, f"of-{name}": "bad" if fails else "good"}
                desired |= files
                self._kept = {**self._kept, name: {*files}}
        return desired

    def story(self) -> str:
        return "\n".join(self.told)


def state(root: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield each path with its content and inode, which differs after a replacement."""
    for path in sorted(root.rglob("*")):
        content = "" if path.is_dir() else path.read_text()
        yield str(path.relative_to(root)), (content, path.lstat().st_ino)


@pytest.mark.everything
@pytest.mark.parametrize("seed", range(STORIES))
@pytest.mark.representatives(1)
@pytest.mark.sample(4)
def test_random_stories_end_in_the_enforced_state(host: Host, publisher: Publisher, seed: int) -> None:
    story = Story(host, publisher, random.Random(seed))
    story.settle()
    story.check()
    for _ in range(6):
        story.happen()
        story.settle()
        story.check()
