"""The lock files: they lock all requirements of pyproject.toml, each file by its hash, and name no index.

`tests/system/test_agent_packages.py` proves that the locked versions work together and exist for each Python.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
AGENT, TOOLS = "requirements.lock", "requirements-build.lock"
FLEET, S3 = "requirements-fleet.lock", "requirements-s3.lock"
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def locked(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Return the locked version and its hashes, by distribution."""
    return {
        canonicalize_name(entry[0].name): entry for entry in entries((ROOT / "packaging" / name).read_text())
    }


def entries(text: str) -> Iterator[tuple[Requirement, list[str]]]:
    plain = "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))
    for entry in plain.replace("\\\n", " ").splitlines():
        requirement, *hashes = entry.split(" --hash=")
        yield Requirement(requirement), [f"--hash={value.strip()}" for value in hashes]


def lines_of(name: str) -> list[str]:
    text = (ROOT / "packaging" / name).read_text().splitlines()
    return [line for line in text if line.strip() and not line.lstrip().startswith("#")]


@pytest.mark.parametrize("name", [AGENT, TOOLS, FLEET, S3])
def test_each_locked_entry_is_a_version_with_hashes(name: str) -> None:
    result = locked(name)
    assert len(result) > 5
    for requirement, hashes in result.values():
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
        assert requirement.url is None, requirement
        assert hashes, requirement
        assert all(HASH.fullmatch(value) for value in hashes), requirement
    assert not [line for line in lines_of(name) if "://" in line or line.startswith("-")]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        (AGENT, PROJECT["project"]["dependencies"]),
        (FLEET, [*EXTRAS["fleet"], *EXTRAS["postgresql"]]),
        (S3, EXTRAS["s3"]),
        (TOOLS, [*PROJECT["build-system"]["requires"], *lines_of("requirements-build.in")]),
    ],
)
def test_requirements_are_locked_at_allowed_versions(name: str, asked: list[str]) -> None:
    result = locked(name)
    for requirement in map(Requirement, asked):
        entry, _ = result[canonicalize_name(requirement.name)]
        version = next(iter(entry.specifier)).version
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement} is locked at {version}"
        )


@pytest.mark.parametrize("python", PYTHONS)
def test_requirements_of_locked_versions_are_locked(python: str) -> None:
    """Check only distributions whose locked version is installed here: other versions may have other requirements."""
    here = {"python_version": python, "python_full_version": f"{python}.1", "extra": ""}
    result = {name: entry for name, (entry, _) in locked(AGENT).items() if holds(entry, here)}
    compared = [name for name, entry in result.items() if entry.specifier.contains(version(name))]
    for name in compared:
        for needed in map(Requirement, requires(name) or ()):
            if holds(needed, here):
                assert canonicalize_name(needed.name) in result, f"{name} needs {needed}"


def test_locks_of_additions_share_versions_and_omit_the_agent() -> None:
    agent, fleet, s3 = locked(AGENT), locked(FLEET), locked(S3)
    assert not agent.keys() & (fleet.keys() | s3.keys())
    shared = fleet.keys() & s3.keys()
    assert {name: str(fleet[name][0].specifier) for name in shared} == {
        name: str(s3[name][0].specifier) for name in shared
    }


def holds(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


def test_the_pythons_of_the_lock_are_those_of_the_classifiers() -> None:
    output = [
        text.rpartition(" :: ")[2] for text in PROJECT["project"]["classifiers"] if "Python :: 3." in text
    ]
    assert output == list(PYTHONS)
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
