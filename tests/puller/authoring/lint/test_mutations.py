"""The example bundles with a misspelt name: a bundle that passes lint does not fail on a host.

A mutation changes one name within an expression or a template. If a machine then fails to load the bundle, or an
additional resource fails, lint must report the same file.
"""

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from hiera.errors import HieraError
from puller.authoring.lint.check import lint_bundle
from puller.authoring.lint.checks import names
from puller.authoring.lint.findings import Finding, Severity, Subject
from puller.authoring.resolution import resolve
from puller.errors import PullerError
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource
from tests.support.rows import each_row

ROOT = Path(__file__).parents[4] / "examples"
BUNDLES = sorted(
    path.parent.relative_to(ROOT) for path in ROOT.rglob(MANIFEST) if "expected" not in path.parts
)
KEY = b"0123456789abcdef"
SEED = 14
EACH = 6
"""Failing mutations to try for each bundle."""
LEAVES = min(10, settings().max_examples)
"""Failing leaf mutations to try for each bundle. A plain run tries fewer."""

_NETWORK = {"hostname": "web01", "domain": "example.com", "fqdn": "web01.example.com", "ip": "192.0.2.7"}
MACHINES: list[dict[str, Any]] = [
    {
        "os": {
            "name": name,
            "family": family,
            "hardware": "x86_64",
            "architecture": "amd64",
            "release": {"full": f"{major}.1", "major": major, "minor": "1"},
            "distro": {"codename": codename, "id": name},
        },
        "networking": {**_NETWORK, "interfaces": {"eth0": {"ip": "192.0.2.7"}}},
        "memory": {"system": {"total_bytes": 4 << 30}},
        "processors": {"count": 4},
        "hostname": "web01",
        "fqdn": "web01.example.com",
        "kernel": "Linux",
        "is_virtual": True,
        "reboot": {"required": True},
    }
    for name, family, major, codename in [
        ("Debian", "Debian", "12", "bookworm"),
        ("Rocky", "RedHat", "9", ""),
    ]
]
_EXPRESSION = re.compile(
    r"\{\{.+?\}\}|\{%.+?%\}|\[\[.+?\]\]|^\s*(?:- )?for: [^\n]+$|\b(?:if|unless): [^}\n]+",
    re.DOTALL | re.MULTILINE,
)
_NAME = re.compile(r"(?<![\w'\"/-])[A-Za-z_]\w{3,}(?![\w'\"/-])")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_UNKNOWN = "facts.reboot."
"""The output of an example's program, which lint cannot predict. Lint reports it once for the file."""
_WORDS = frozenset(
    {"else", "elif", "endfor", "endif", "range", "with", "true", "false", "None", "unless", "include"}
)
"""Words that name no value or function."""


class Mutation:
    """One name, misspelt."""

    def __init__(self, file: Path, text: str, match: re.Match[str], chance: random.Random) -> None:
        word = match[0]
        at = chance.randrange(1, len(word) - 1)
        self.word = word
        self.misspelt = chance.choice([word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]])
        self.file = file
        self.text = text[: match.start()] + self.misspelt + text[match.end() :]

    def __str__(self) -> str:
        return f"{self.file}: {self.word} → {self.misspelt}"


def mutations(directory: Path, seed: int) -> Iterator[Mutation]:
    """Yield all mutations of a bundle in random order."""
    chance = random.Random(seed)
    results = []
    for file in sorted(
        path for path in directory.rglob("*") if path.is_file() and "expected" not in path.parts
    ):
        text = file.read_text()
        for expression in _EXPRESSION.finditer(text):
            bare = text[: expression.start()] + _QUOTED.sub(
                lambda quoted: " " * len(quoted[0]), expression[0]
            )
            results += [
                (file, text, match)
                for match in _NAME.finditer(bare, expression.start())
                if match[0] not in _WORDS and not text.endswith(_UNKNOWN, 0, match.start())
            ]
    chance.shuffle(results)
    for file, text, match in results:
        yield Mutation(file, text, match, chance)


def failures(directory: Path, facts: dict[str, Any]) -> set[str]:
    """Return the failures of a bundle on a machine with these facts."""
    try:
        resolution = resolve(ManifestSource(directory / MANIFEST, MANIFEST), Inputs(facts, {}), key=KEY)
    except (HieraError, PullerError) as error:
        return {str(error)}
    return {
        f"{resource.reference}: {resource.failure}"
        for resource in resolution.resources
        if resource.failure and not resource.unmanaged
    }


def findings(directory: Path) -> set[Finding]:
    return set(names.check(Subject(directory, "", Inputs({}, {}), None, ())))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the examples, which use each other as libraries."""
    return Path(shutil.copytree(ROOT, tmp_path / "examples"))


@each_row("bundle", BUNDLES, ids=str)
def test_an_example_has_no_wrong_name(bundle: Path) -> None:
    assert [
        str(finding) for finding in findings(ROOT / bundle) if finding.severity is not Severity.UNCHECKED
    ] == []


@pytest.mark.parametrize("bundle", BUNDLES, ids=str)
@pytest.mark.representatives(1)
@pytest.mark.sample(8)
def test_a_misspelt_name_that_fails_on_a_host_is_found(bundle: Path, copied: Path) -> None:
    directory = copied / bundle
    before = [failures(directory, facts) for facts in MACHINES]
    said_before = findings(directory)
    missed, result = [], 0
    for mutation in mutations(directory, SEED):
        original = mutation.file.read_text()
        mutation.file.write_text(mutation.text)
        after = [failures(directory, facts) for facts in MACHINES]
        if any(new - old for old, new in zip(before, after, strict=True)):
            output = findings(directory) - said_before
            result += 1
            # If a mutation renames a definition, lint reports its uses as unknown.
            if not any(
                mutation.misspelt in item.message or repr(mutation.word) in item.message for item in output
            ):
                new = next(iter(after[0] - before[0] or after[1] - before[1]))
                missed.append(f"{mutation}: {[*map(str, output)]} {new[:300]}")
        mutation.file.write_text(original)
        if result == EACH:
            break
    assert missed == [], "\n".join(missed)


# Other mistakes: a missing file, a missing quote or bracket.

_DROPPED = re.compile(r"['\"{}\[\]()%]")


def removed(directory: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield each file but the manifest, to be removed."""
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        # Lint accepts missing programs that print facts: hosts may have such facts of their own.
        if file.name != MANIFEST and not {"expected", "facts.d", "tests"} & {
            *file.relative_to(directory).parts
        }:
            yield file, None


def dropped(directory: Path, seed: int) -> Iterator[tuple[Path, str | None]]:
    """Yield texts without one of their quotes or brackets, in random order."""
    chance = random.Random(seed)
    places = []
    for file, _ in [*removed(directory), (directory / MANIFEST, None)]:
        text = file.read_text()
        places += [(file, text, match.start()) for match in _DROPPED.finditer(text)]
    chance.shuffle(places)
    for file, text, at in places:
        yield file, text[:at] + text[at + 1 :]


def linted(directory: Path, facts: dict[str, Any]) -> set[str]:
    """Return lint's errors and its warnings of failing resources."""
    source = ManifestSource(directory / MANIFEST, MANIFEST)
    output = lint_bundle(source, Inputs(facts, {})).findings
    return {str(item) for item in output if item.severity is Severity.ERROR or item.rule == "resource-fails"}


@pytest.mark.parametrize("kind", ["a file removed", "a quote or bracket dropped"])
@pytest.mark.parametrize("bundle", BUNDLES, ids=str)
@pytest.mark.representatives(1)
@pytest.mark.sample(12)
def test_mutations_that_break_a_host_are_found(bundle: Path, kind: str, copied: Path) -> None:
    directory = copied / bundle
    before = [failures(directory, facts) for facts in MACHINES]
    passed = [linted(directory, facts) for facts in MACHINES]
    missed, result = [], 0
    for file, text in [*removed(directory)] if "removed" in kind else dropped(directory, SEED):
        original = file.read_bytes()
        file.unlink() if text is None else file.write_text(text)
        for facts, old, output in zip(MACHINES, before, passed, strict=True):
            if new := failures(directory, facts) - old:
                result += 1
                if not linted(directory, facts) - output:
                    missed.append(f"{file.relative_to(copied)}: {min(new)[:300]}")
        file.write_bytes(original)
        if result >= EACH:
            break
    assert missed == [], "\n".join(missed)


# Every leaf of the manifests and the data with a misspelt word: keys, references, names of files, values.

_LETTERS = re.compile(r"[A-Za-z_]{3,}")


def misspelt_leaves(directory: Path, seed: int) -> Iterator[tuple[Path, str]]:
    """Yield the YAML files of a bundle, each with a letter of one scalar missing, in random order."""
    chance = random.Random(seed)
    results = []
    for file, _ in [*removed(directory), (directory / MANIFEST, None)]:
        if file.suffix in (".yaml", ".yml"):
            text = file.read_text()
            for start, end in scalars(text):
                if words := [*_LETTERS.finditer(text, start, end)]:
                    at = chance.randrange((word := chance.choice(words)).start() + 1, word.end())
                    results.append((file, text[:at] + text[at + 1 :]))
    chance.shuffle(results)
    yield from results


def scalars(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each scalar of a text, including keys."""
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.ScalarEvent):
            start: Any = event.start_mark
            end: Any = event.end_mark
            yield start.index, end.index


@pytest.mark.parametrize("bundle", BUNDLES, ids=str)
@pytest.mark.hypothesis  # the gate tries more leaves
@pytest.mark.representatives(1)
@pytest.mark.sample(8)
def test_a_misspelt_leaf_that_fails_on_a_host_is_found(bundle: Path, copied: Path) -> None:
    directory = copied / bundle
    before = [failures(directory, facts) for facts in MACHINES]
    passed = [linted(directory, facts) for facts in MACHINES]
    missed, result = [], 0
    for file, text in misspelt_leaves(directory, SEED):
        original = file.read_bytes()
        file.write_text(text)
        for facts, old, output in zip(MACHINES, before, passed, strict=True):
            if new := failures(directory, facts) - old:
                result += 1
                if not linted(directory, facts) - output:
                    missed.append(f"{file.relative_to(copied)}: {min(new)[:300]}")
        file.write_bytes(original)
        if result >= LEAVES:
            break
    assert missed == [], "\n".join(missed)
