"""Heavy modules that frequent commands do not import, and the allowed imports of each package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import layout

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

HEAVY = {"asyncio", "cryptography", "jinja2", "requests", "securesystemslib", "tuf", "urllib3"}
"""Modules that take a tenth of an idle run or more to import."""

OF_RARE_STEPS = {
    "copy",
    "dataclasses",
    "difflib",
    "email",
    "hashlib",
    "http",
    "logging",
    "random",
    "shlex",
    "shutil",
    "ssl",
    "subprocess",
    "threading",
    "tomllib",
    "traceback",
    "zoneinfo",
}
"""Modules for commands, diffs, bugs, edits and requests. Together they took a tenth of an idle apply to import."""

MANIFEST = """\
data: {port: 80}
resources:
  - file:
      - defaults: {owner: "UID", group: "GID", mode: "0644"}
      - DIR/out: {ensure: directory}
      - DIR/out/a: {content: "port {{ data.port }} {{ lookup('facts.kernel') }}"}
"""

PROBE = """\
import sys
before = {*sys.modules}
from puller.cli import _status
status, _ = _status(sys.argv[1:])
print(*{name.partition(".")[0] for name in {*sys.modules} - before}, file=sys.stderr)
sys.exit(status)
"""


def imported_by(*arguments: str) -> set[str]:
    """Return the top-level modules and packages that a command has imported at its end."""
    completed = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return set(completed.stderr.splitlines()[-1].split())


def manifest_below(directory: Path) -> str:
    text = MANIFEST.replace("UID", str(os.geteuid())).replace("GID", str(os.getegid()))
    return text.replace("DIR", str(directory))


def test_apply_without_changes_imports_no_heavy_module(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(manifest_below(tmp_path))
    command = ("apply", str(tmp_path), "--state-directory", f"{tmp_path}/state")
    imported_by(*command)
    assert imported_by(*command) & (HEAVY | OF_RARE_STEPS | {"json"}) == set()


def test_run_without_news_imports_no_heavy_module(host: "Host", publisher: "Publisher") -> None:
    publisher.publish("1.0.0", manifest_below(host.machine), files={})
    host.machine.mkdir(parents=True, exist_ok=True)
    command = ("run", "--config", str(host.configuration))
    for _ in range(2):
        imported_by(*command)
    assert imported_by(*command) & (HEAVY | OF_RARE_STEPS) == set()


def test_lookup_of_a_key_imports_no_heavy_module(tmp_path: Path) -> None:
    (tmp_path / "hiera.yaml").write_text("version: 5\nhierarchy: [{name: common, path: common.yaml}]\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/common.yaml").write_text("a: 1\n")
    (tmp_path / "facts.yaml").write_text("{hostname: a, domain: b, fqdn: a.b, clientcert: a.b}\n")
    options = ("--environment", str(tmp_path), "--facts", str(tmp_path / "facts.yaml"), "--no-system-facts")
    assert imported_by("hiera", "lookup", "a", *options) & HEAVY == set()


def test_help_of_a_site_imports_no_heavy_module() -> None:
    assert imported_by("site", "--help") & HEAVY == set()


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def graph() -> Any:
    """Return the modules of this tree that each module imports."""
    return layout.imports(ROOT)


@pytest.mark.sources
def test_folders_import_only_documented_folders(graph: Any) -> None:
    """See the table of docs/architecture.md. Imports within functions and for type checkers count."""
    assert layout.violations(ROOT, graph) == []


@pytest.mark.sources
def test_no_modules_import_each_other(graph: Any) -> None:
    """Neither modules nor rooms import each other, directly or indirectly."""
    assert layout.circles(graph) == []
    assert layout.circles(layout.rooms(graph)) == []


@pytest.mark.sources
def test_a_kind_of_resource_imports_no_other_kind(graph: Any) -> None:
    """Code that two kinds share is beside their folders."""
    kinds = [path.name for path in (ROOT / "puller/resources").iterdir() if (path / "__init__.py").exists()]
    assert {"files", "packages", "services", "archives", "scaffolds"} <= {*kinds}
    for name, others in graph.items():
        kind = next((kind for kind in kinds if name.startswith(f"puller.resources.{kind}")), None)
        strange = [f"puller.resources.{other}" for other in kinds if kind and other != kind]
        assert [other for other in others if other.startswith(tuple(strange))] == [], name


def test_the_table_has_every_folder_and_its_rows_go_downwards() -> None:
    """No row allows a folder above it, so the rows alone cannot form a cycle."""
    ground, rows = layout.allowed(ROOT / "docs/architecture.md")
    above: set[str] = set()
    for folder, may in rows.items():
        if folder not in ground and folder != "puller/cli":
            assert may & above == set(), folder
        above |= {folder} - ground
    placed = {layout.folder_of(name, [*rows, *ground]) for name in layout.modules(ROOT)}
    assert placed - {*rows} <= {*layout.PACKAGES}


@pytest.mark.everything
def test_an_import_that_is_not_allowed_is_found(tmp_path: Path) -> None:
    """Imports at the top, within a function and for type checkers, in a tree with each of them."""
    shutil.copytree(ROOT / "bundles", tmp_path / "bundles")
    shutil.copytree(ROOT / "foundation", tmp_path / "foundation")
    for package in ("hiera", "puller"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/architecture.md", tmp_path / "docs")
    assert layout.violations(tmp_path) == []
    description = tmp_path / "bundles/format/description.py"
    text = description.read_text()
    for statement in (
        "from bundles.store.store import Store",
        "def f():\n    import bundles.store.store",
        "if TYPE_CHECKING:\n    from bundles.store import store",
    ):
        description.write_text(f"{text}\n{statement}\n")
        detail = "bundles/format/description.py (bundles/format) imports bundles.store.store (bundles/store)"
        graph = layout.imports(tmp_path)
        assert layout.violations(tmp_path, graph) == [detail]
        circles = layout.circles(graph)
        assert any({"bundles.format.description", "bundles.store.store"} <= {*circle} for circle in circles)
    description.write_text(f"{text}\nimport puller\n")
    detail = "bundles/format/description.py (bundles/format) imports puller (puller)"
    assert layout.violations(tmp_path) == [detail]


KEY_SERVICES = {"azure", "boto3", "botocore", "google", "hvac", "keylet", "pkcs11"}


@pytest.mark.everything
@pytest.mark.parametrize("command", [("refresh",), ("list",), ("verify",), ("publish",)])
def test_file_keys_import_no_token_or_service_library(
    command: tuple[str, ...], publisher: "Publisher", tmp_path: Path
) -> None:
    """The libraries are installed with the test dependencies. Importing boto3 alone takes longer than a publication."""
    publisher.publish("1.0.0", "resources: []\n", files={})
    source = tmp_path / "other"
    source.mkdir()
    (source / "manifest.yaml").write_text("resources: []\n")
    additional = (str(source), "--version", "1.0.0") if command == ("publish",) else ()
    imported = imported_by("site", *command, str(publisher.site.directory), *additional)
    assert "securesystemslib" in imported
    assert imported & KEY_SERVICES == set()


def test_key_service_modules_have_a_single_importer() -> None:
    root = Path(__file__).parents[2]
    named = [
        str(path.relative_to(root))
        for package in layout.PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        if re.search(r"(from|import) (tuf\.api\.metadata|securesystemslib\.signer)\b", path.read_text())
    ]
    assert named == ["bundles/format/tuf.py"]


@pytest.mark.everything
@pytest.mark.parametrize(
    ("scheme", "library", "error"),
    [("awskms", "boto3", "AWS_IMPORT_ERROR"), ("hsm", "pkcs11", "PKCS11_IMPORT_ERROR")],
)
def test_a_key_that_wants_a_library_gets_it(scheme: str, library: str, error: str) -> None:
    pytest.importorskip(library)
    probe = f"""\
import sys
from bundles.publisher import signing_keys
from bundles.format.tuf import SIGNER_FOR_URI_SCHEME
assert {library!r} not in sys.modules
before = SIGNER_FOR_URI_SCHEME[{scheme!r}]
assert getattr(sys.modules[before.__module__], {error!r})
signer = signing_keys.signer_of({scheme!r})
assert {library!r} in sys.modules
assert getattr(sys.modules[signer.__module__], {error!r}) is None
assert SIGNER_FOR_URI_SCHEME[{scheme!r}] is signer
"""
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", probe], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr


WITHOUT_EXTRAS = """\
import sys
import click

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sqlalchemy", "boto3", "botocore", "psycopg", "pkcs11"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from puller.cli import command_table

def explain(command, context):
    command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            explain(below, click.Context(below, info_name=name, parent=context))

(group,) = (value for value in vars(command_table).values() if isinstance(value, click.Group))
explain(group, click.Context(group, info_name="puller"))
"""


@pytest.mark.everything
def test_every_command_explains_itself_without_extras() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
