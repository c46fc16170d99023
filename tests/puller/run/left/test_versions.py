"""Versions of a bundle in random order: the disk has exactly the resources of the enforced version."""

import random
from pathlib import Path

import pytest

from tests.support.stories import Host, Publisher

TOP = """\
removed: absent
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/health":
          content: "CODE\\n"
          health_checks: [{name: app, command: "sh -c 'exit $(cat {{ facts.machine }}/health)'"}]
"""
PIECES = {
    "a": ['"{{ facts.machine }}/a": {ensure: directory, mode: "MODE"}'],
    "a/file": [
        '"{{ facts.machine }}/a": {ensure: directory, mode: "0755"}',
        '"{{ facts.machine }}/a/f": {content: TEXT}',
    ],
    "b": ['"{{ facts.machine }}/b": {content: TEXT, force: true}'],
    "b as a directory": [
        '"{{ facts.machine }}/b": {ensure: directory, mode: "0755", force: true}',
        '"{{ facts.machine }}/b/f": {content: TEXT}',
    ],
    "theirs": ['"{{ facts.machine }}/theirs": {content: TEXT}'],
}
"""File entries by name of the part. Each version has a random selection of the parts, with its own text."""
Version = tuple[frozenset[str], bool, bool]
"""Parts of the version, whether it has a scaffold, and whether its health check fails."""


def version_of(chance: random.Random) -> Version:
    choices = [
        chance.choice(names)
        for names in ((None, "a", "a/file"), (None, "b", "b as a directory"), (None, "theirs"))
    ]
    return frozenset(filter(None, choices)), chance.random() < 0.5, chance.random() < 0.4


def manifest(version: Version, text: str) -> str:
    pieces, has_scaffold, fails = version
    entries = [entry for part in sorted(pieces) for entry in PIECES[part]]
    lines = [f"      - {entry.replace('TEXT', text).replace('MODE', '0700')}\n" for entry in entries]
    pages = '  - scaffold: [{"{{ facts.machine }}/pages": {source: pages}}]\n' if has_scaffold else ""
    return TOP.replace("CODE", "2" if fails else "0") + "".join(lines) + pages


def wanted(version: Version, text: str, theirs: str) -> dict[str, str]:
    """Return the expected paths with their contents (empty for a directory)."""
    pieces, has_scaffold, _ = version
    result = {"health": "0\n", "theirs": text if "theirs" in pieces else theirs}
    result |= {"a": ""} if pieces & {"a", "a/file"} else {}
    result |= {"a/f": text} if "a/file" in pieces else {}
    result |= {"b": text} if "b" in pieces else {}
    result |= {"b": "", "b/f": text} if "b as a directory" in pieces else {}
    return result | ({"pages": "", "pages/p": text} if has_scaffold else {})


def tree(root: Path) -> dict[str, str]:
    paths = sorted(root.rglob("*"))
    return {str(path.relative_to(root)): "" if path.is_dir() else path.read_text() for path in paths}


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.representatives(1)
@pytest.mark.sample(6)
def test_disk_equals_the_enforced_version(host: Host, publisher: Publisher, seed: int) -> None:
    chance, theirs = random.Random(seed), "by hand"
    good: tuple[Version, str] = (frozenset(), False, False), ""
    host.machine.mkdir()
    (host.machine / "theirs").write_text(theirs)
    for number, version in enumerate([good[0], *(version_of(chance) for _ in range(5))], start=1):
        text = f"text-{number}"
        publisher.publish(f"{number}.0.0", manifest(version, text), files={"pages/p": text.encode()})
        outcome = host.run()
        assert outcome.status == (7 if version[2] else 0), outcome.output
        if not version[2]:
            good = version, text
            theirs = text if "theirs" in version[0] else theirs  # a passed version replaces it for good
        assert tree(host.machine) == wanted(*good, theirs), outcome.output
    assert host.run("--detailed-exitcodes").status in (0, 20)
