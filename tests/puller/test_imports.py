"""What each command imports at its start, and which package may import which.

A run that finds nothing to do spends most of its time importing; so what a command does not need stays out.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HEAVY = {
    *(
        "asyncio",
        "click",
        "cryptography",
        "dataclasses",
        "difflib",
        "email",
        "hashlib",
        "http",
        "inspect",
        "jinja2",
    ),
    *(
        "json",
        "logging",
        "requests",
        "securesystemslib",
        "shutil",
        "ssl",
        "subprocess",
        "tempfile",
        "tenacity",
    ),
    *("traceback", "tuf", "unittest", "urllib3", "zipfile"),
}

MANIFEST = """\
data: {port: 80}
resources:
  - file:
      - defaults: {owner: "UID", group: "GID", mode: "0644"}
      - DIR/out: {ensure: directory}
      - DIR/out/a: {content: "port {{ data.port }} {{ lookup('facts.kernel') }}"}
"""

# msgspec imports typing_extensions where it is installed, as the tools of the tests have it; users do not.
PROBE = """\
import sys
sys.modules["typing_extensions"] = None
from puller.cli import _status
status = _status(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(status)
"""


def imported_by(*arguments: str) -> set[str]:
    """Top-level names of everything that a command has imported when it is done."""
    completed = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return set(completed.stderr.splitlines()[-1].split())


@pytest.fixture
def source(tmp_path: Path) -> str:
    text = (
        MANIFEST.replace("DIR", str(tmp_path))
        .replace("UID", str(os.geteuid()))
        .replace("GID", str(os.getegid()))
    )
    (tmp_path / "manifest.yaml").write_text(text)
    return str(tmp_path)


def test_applying_files_that_are_in_order_imports_nothing_heavy(source: str) -> None:
    options = ("apply", source, "--state-directory", f"{source}/state")
    imported_by(*options)
    assert imported_by(*options) & HEAVY == set()


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (("facts", "os.family"), {"click", "inspect", "hashlib"}),
        (("config", "sample"), {"click", "inspect"}),
        (("--help",), {"click", "inspect", "shutil"}),
    ],
)
def test_other_commands_import_no_more_than_they_need(command: tuple[str, ...], allowed: set[str]) -> None:
    assert imported_by(*command) & HEAVY <= allowed


def modules(package: str) -> Iterator[Path]:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.rglob("*.py")


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


@pytest.mark.parametrize(
    ("package", "forbidden"), [("hiera", {"puller", "bundles"}), ("bundles", {"puller", "hiera"})]
)
def test_imports_run_from_puller_to_hiera_and_bundles_only(package: str, forbidden: set[str]) -> None:
    found = {
        f"{path}: {name}"
        for path in modules(package)
        for name in imports_of(path)
        if name.partition(".")[0] in forbidden
    }
    assert found == set()
