"""The model of the random stories: declarations of versions, and the expected state of each object.

* A version declares items: objects at a few paths, and entries of two files that several bundles edit.
* ``Model`` has the state of each object while no enforced version declares it. An object of a version that passed may
  have any state afterwards, unless the version has ``removed: absent``.
* The module does no I/O, except for ``snapshot`` and ``everything``, which read the disk.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

BUNDLES = ("a", "b", "c")
PATHS = ("p", "q", "d", "d/x")
SHARED = "shared.ini"
MADE = "made.conf"
"""A file that the first edit creates."""
START = "[main]\n# kept\n"
ENTRY_NAMES = (
    "setting k1",
    "setting k2",
    "line l1",
    "line l2",
    "block b1",
    "added m1",
    "added m2",
)
OWNER = {"owner": os.geteuid(), "group": os.getegid()}
MACHINE = "{{ facts.machine }}"

State = object
"""A snapshot of one object: ``None`` if it is absent, else text, a link target or the names in a directory."""


class Unknown:
    """The state of an object that the model cannot predict."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Item:
    """One resource of a version: an object at a path, or an entry of an edited file."""

    kind: str
    key: str
    value: str = ""
    files: tuple[str, ...] = ()
    purge: bool = False

    @property
    def is_entry(self) -> bool:
        return self.kind in ("setting", "line", "block", "added")

    @property
    def name(self) -> str:
        """The name of the object in the model."""
        return f"{self.kind} {self.key}" if self.is_entry else self.key

    @property
    def source(self) -> str:
        """The directory of a tree's files in the bundle."""
        return f"tree-{self.key.replace('/', '-')}"

    @property
    def covered(self) -> list[str]:
        """The names of the objects that the item determines."""
        below = [path for path in PATHS if path.startswith(f"{self.key}/")]
        replaces = self.purge or self.kind in ("file", "link", "absent")
        return [self.name, *(below if replaces and not self.is_entry else [])]

    @property
    def expected_state(self) -> State:
        """The snapshot of a file or an entry in its declared state."""
        states = {
            "absent": None,
            "link": f"-> {self.value}",
            "line": f"; line {self.key}",
            "added": f"added {self.key}",
            "block": f"; block {self.value}",
        }
        return states.get(self.kind, self.value)

    def declaration(self, bundle: str) -> dict[str, Any]:
        """Return the resource as a manifest declares it."""
        if self.is_entry:
            return self._entry(bundle)
        tree = {**OWNER, "source": self.source, "purge": self.purge}
        properties: dict[str, dict[str, Any]] = {
            "file": {**OWNER, "mode": "0644", "content": self.value, "force": True},
            "absent": {"ensure": "absent", "force": True},
            "directory": {**OWNER, "ensure": "directory", "mode": "0755", "force": True},
            "link": {"target": self.value, "force": True},
            "tree": {**tree, "mode": "u=rwX,go=rX", "ensure": "directory", "recurse": True, "force": True},
            "scaffold": {**tree, "mode": "0644"},
        }
        type_name = self.kind if self.kind in ("link", "scaffold") else "file"
        return {type_name: [{f"{MACHINE}/{self.key}": properties[self.kind]}]}

    def _entry(self, bundle: str) -> dict[str, Any]:
        shared, name = {"path": f"{MACHINE}/{SHARED}"}, f"{bundle}-{self.key}"
        match self.kind:
            case "setting":
                output = {"format": "ini", "section": "main", "key": self.key, "value": self.value}
                return {"setting": [{name: {**shared, **output}}]}
            case "line":
                return {"line": [{name: {**shared, "line": f"; line {self.key}"}}]}
            case "added":
                output = {"path": f"{MACHINE}/{MADE}", "line": f"added {self.key}"}
                return {"line": [{name: {**output, "create": True}}]}
            case _:  # bundles that declare it share one resource
                return {"block": [{f"block-{self.key}": {**shared, "content": f"; block {self.value}\n"}}]}


@dataclass(frozen=True)
class Version:
    """A published version of a bundle."""

    items: tuple[Item, ...] = ()
    removed: str = "keep"
    fate: str = "passes"

    @property
    def covered(self) -> set[str]:
        """The names of the objects that its items determine."""
        return {name for item in self.items for name in item.covered}

    def manifest(self, bundle: str) -> str:
        check = {"command": "sh -c 'exit 2'" if self.fate == "unhealthy" else "true"}
        checked = {"command": "true", "creates": "/", "health_checks": [check]}
        resources = [item.declaration(bundle) for item in self.items]
        resources.append({"exec": [{f"check {bundle}": checked}]})
        if self.fate in ("fails", "given up"):
            resources.append({"exec": [{f"fails {bundle}": {"command": "false"}}]})
        additional: dict[str, Any] = {}
        if self.fate == "given up":
            additional = {"give_up_after": 2}
        elif self.fate == "passes late":
            additional = {"trial": {"runs": 2}}
        return json.dumps({"removed": self.removed, **additional, "resources": resources})

    def files(self) -> dict[str, bytes]:
        """The sources of its trees and scaffolds."""
        return {f"{item.source}/{name}": item.value.encode() for item in self.items for name in item.files}


def is_planned(name: str) -> bool:
    """Return whether a command belongs to the planned failures of a version."""
    return name.startswith(("fails ", "check "))


TEXTS = st.sampled_from(["one\n", "two\n"])
FILES = st.sampled_from([("a",), ("a", "s/b"), ("s/b",), ("s/t/c", "z")])
PATH_ITEMS = st.one_of(
    st.builds(Item, st.just("file"), st.sampled_from(PATHS), TEXTS),
    st.builds(Item, st.just("absent"), st.sampled_from(PATHS)),
    st.builds(Item, st.just("directory"), st.sampled_from(PATHS)),
    st.builds(Item, st.just("link"), st.sampled_from(PATHS), st.sampled_from(["target", "q"])),
    st.builds(
        Item, st.sampled_from(["tree", "scaffold"]), st.sampled_from(PATHS), TEXTS, FILES, st.booleans()
    ),
)
ENTRIES = st.one_of(
    st.builds(Item, st.just("setting"), st.sampled_from(["k1", "k2"]), st.sampled_from(["1", "2"])),
    st.builds(Item, st.just("line"), st.sampled_from(["l1", "l2"])),
    st.builds(Item, st.just("block"), st.sampled_from(["b1"]), st.sampled_from(["1", "2"])),
    st.builds(Item, st.just("added"), st.sampled_from(["m1", "m2"])),
)
FATES = st.sampled_from(["passes", "passes", "passes late", "fails", "given up", "unhealthy"])


def in_order(items: list[Item]) -> tuple[Item, ...]:
    """Return items that are valid together: ``d`` before ``d/x``, which needs a directory."""
    by_name = {item.name: item for item in items}
    directory = by_name.get("d")
    if directory is None or directory.kind not in ("directory", "tree"):
        by_name.pop("d/x", None)
    return tuple(sorted(by_name.values(), key=lambda item: item.name))


VERSIONS = st.builds(
    lambda paths, entries, removed, fate: Version(in_order([*paths, *entries]), removed, fate),
    st.lists(PATH_ITEMS, max_size=3),
    st.lists(ENTRIES, max_size=3),
    st.sampled_from(["absent", "absent", "keep"]),
    FATES,
)


def snapshot(path: Path) -> State:
    """Return the state of a path, without the contents of its subdirectories."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"-> {path.readlink()}"
    return tuple(sorted(os.listdir(path))) if stat.S_ISDIR(status.st_mode) else path.read_text()


def everything(root: Path) -> dict[str, tuple[State, int]]:
    """Return the states and modes of all files below a directory."""
    return {
        str(path.relative_to(root)): (snapshot(path), path.lstat().st_mode)
        for path in sorted(root.rglob("*"))
    }


def state_of(machine: Path, name: str) -> State:
    """Return the state of an object by its name in the model."""
    kind, _, key = name.partition(" ")
    if not key:
        return snapshot(machine / name)
    patterns = {
        "setting": rf"^{key} *= *(.*)$",
        "line": rf"^(; line {key})$",
        "added": rf"^(added {key})$",
        "block": r"^(; block .*)$",
    }
    text = snapshot(machine / (MADE if kind == "added" else SHARED))
    match = re.search(patterns[kind], text, re.MULTILINE) if isinstance(text, str) else None
    return match[1] if match else None


@dataclass
class Model:
    """The state of each object while no enforced version declares it."""

    base: dict[str, State | Unknown] = field(default_factory=dict)
    managed: set[str] = field(default_factory=set)
    """Objects that a passed version has declared."""
    person_lines: list[str] = field(default_factory=list)

    def take_over(self, version: Version) -> None:
        """Note that a version has passed. Its objects belong to Puller from now on."""
        for item in version.items:
            for name in item.covered:
                is_removed = item.kind == "absent" or (
                    name == item.name and version.removed == "absent" and self.base[name] is None
                )
                self.base[name] = None if is_removed else UNKNOWN
                self.managed.add(name)

    def keep(self, version: Version) -> None:
        """Note that a version on trial keeps objects of a version that passed."""
        self.forget(self.managed.intersection(version.covered))

    def forget(self, names: Collection[str]) -> None:
        """Predict nothing about these objects."""
        self.base |= dict.fromkeys(names, UNKNOWN)

    def set_by_person(self, path: str, state: State | Unknown) -> None:
        """Note the state that a person has given to a path."""
        self.base[path] = state
        # A directory with a file of a person stays.
        self.forget([above for above in PATHS if path.startswith(f"{above}/")])

    def problem_of(self, name: str, actual: State, *, is_listed: bool) -> str:
        """Compare the state of an undeclared object. Return a problem, or an empty text.

        ``is_listed``: it is a leftover. If the state of an object was unknown, its first state must stay.
        """
        base = self.base[name]
        if isinstance(base, Unknown):
            self.base[name] = UNKNOWN if is_listed or isinstance(actual, tuple) else actual
            return ""
        return "" if actual == base else f"{name} is {actual!r}, and nobody declares it: it was {base!r}"
