"""``examples/configurations``: twenty machines of the shape of real configurations, written with Puller's types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples/configurations"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
MOST_COMMANDS = 25
DEBIAN = {
    "os": {
        "family": "Debian",
        "name": "Debian",
        "hardware": "x86_64",
        "release": {"full": "12.11", "major": "12"},
        "distro": {"codename": "bookworm"},
    },
    "networking": {"hostname": "fallingrocks", "fqdn": "fallingrocks.example.com"},
    "kernel": "Linux",
    "is_virtual": True,
    "mountpoints": {"/": {}, "/proc": {}, "/dev/shm": {}},
    "node_type": "staffvm",
    "software_stack": "none",
    "environment": "production",
    "cluster": "none",
    "cloud": {"provider": "none", "region": "none"},
    "prefixes": ["node"],
    "links": {"/bin": "usr/bin", "/sbin": "usr/sbin"},
    "accounts": {
        "root": {"uid": 0, "home": "/root", "shell": "/bin/bash", "password": True},
        "daemon": {"uid": 1, "home": "/usr/sbin", "shell": "/usr/sbin/nologin", "password": False},
        "sync": {"uid": 4, "home": "/bin", "shell": "/bin/sync", "password": False},
        "ann": {"uid": 1000, "home": "/home/ann", "shell": "/bin/bash", "password": True},
    },
    "used_filesystems": {"proc": True, "overlay": True},
}

Execute = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("facts") / "debian.yaml"
    path.write_text(yaml.safe_dump(DEBIAN))
    return str(path)


@cache
def rendered(execute: Execute, facts: str, name: str) -> list[tuple[str, str]]:
    """Return type and name of an example's resources on the machine with these facts."""
    status, shown = execute("render", str(EXAMPLES / name), "--facts", facts, "--no-system-facts")
    assert status == 0, shown
    entries = yaml.safe_load(shown)["resources"]
    return [
        (kind, str(resource))
        for entry in entries
        for kind, found in entry.items()
        for resource in named(found)
    ]


def named(body: Any) -> list[str]:
    """The name comes first in its item, before the source of the configuration."""
    if isinstance(body, dict):
        return [body["name"]]
    return [item if isinstance(item, str) else next(iter(item)) for item in body]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_in_order_as_it_is_written(execute: Execute, facts: str, name: str) -> None:
    status, output = execute("lint", str(EXAMPLES / name), "--facts", facts, "--no-system-facts")
    assert status == 0, output
    assert "0 warnings" in output, output


def test_all_of_them_need_few_commands_each_with_its_reason(execute: Execute, facts: str) -> None:
    counts = Counter(kind for name in NAMES for kind, _ in rendered(execute, facts, name))
    assert len(NAMES) == 20
    assert counts.total() >= 450
    assert counts["exec"] <= MOST_COMMANDS
    for path in EXAMPLES.rglob("*.yaml"):
        text = path.read_text()
        for match in re.finditer(r"^  - exec:\n(.*?)(?=^  - |\Z)", text, re.MULTILINE | re.DOTALL):
            commands = len(re.findall(r"^      - (?!defaults)", match[1], re.MULTILINE))
            assert match[1].count("# A command, because ") == commands, (
                f"{path}: a command without its reason"
            )


def test_page_states_resources_and_commands_of_each(execute: Execute, facts: str) -> None:
    page = (EXAMPLES / "README.md").read_text()
    output = {
        name: (int(lines), int(resources), int(commands))
        for name, lines, resources, commands in re.findall(
            r"^\| \[(.+?)\]\(.* \| (\d+) \| (\d+) \| (\d+) \| \d+\.\d \|$", page, re.MULTILINE
        )
    }
    result = {name: rendered(execute, facts, name) for name in NAMES}
    assert output == {
        name: (lines_of(EXAMPLES / name), len(resources), [kind for kind, _ in resources].count("exec"))
        for name, resources in result.items()
    }
    commands = sum(commands for _, _, commands in output.values())
    total = sum(resources for _, resources, _ in output.values())
    assert f"{commands} of the {total} resources are commands, {100 * commands / total:.1f} percent." in page
    reasons = re.findall(r"^\| `(.+?)` \((.+?)\) \|", page, re.MULTILINE)
    assert sorted(reasons) == sorted(
        (command, name) for name, resources in result.items() for kind, command in resources if kind == "exec"
    )


def lines_of(bundle: Path) -> int:
    """Return the number of lines of a bundle, without its tests and the keys of other parties."""
    paths = (path for path in bundle.rglob("*") if path.is_file() and path.suffix != ".asc")
    return sum(
        len(path.read_text().splitlines()) for path in paths if path.relative_to(bundle).parts[0] != "tests"
    )
