"""The walks of CONTRIBUTING.md: each change is made in a copy of the tree, only in the files that its walk names."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("puller", "bundles", "hiera", "foundation")
MOST_FILES = 3

MARKER = '''
"""The ``marker`` resource: an empty file that says that something is there."""

from collections.abc import Sequence
from pathlib import Path

from puller.resources.base import Properties, Resource
from foundation.differences import Difference, presence


class Marker(Resource[Properties, str]):
    """An empty file."""

    type_name = "marker"
    properties_type = Properties

    def look(self) -> str:
        return "present" if self.context.system.lstat(self.properties.name) else "absent"

    def differences(self, actual: str, *, refresh: bool = False) -> Sequence[Difference]:
        wanted = self.properties.ensure
        return [] if actual == wanted else [presence(actual, wanted)]

    def change(self, differences: Sequence[Difference], actual: str) -> None:
        Path(self.properties.name).touch()

    def noop_message(self, differences: Sequence[Difference], actual: str) -> str:
        return "Would have made the marker"
'''
GREET = '''
"""``puller greet``: a word to whoever is there."""

import click


@click.command()
def greet() -> None:
    """Say hello."""
    click.echo("hello")
'''


class Walk:
    """The files of one walk, in a copy of the tree. Tests may change no other files."""

    def __init__(self, heading: str, copy: Path) -> None:
        section = re.search(
            rf"### {heading}\n(.*?)(?=\n###|\Z)", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
        )
        assert section, heading
        steps = re.findall(r"^\d\. (.*(?:\n   .*)*)", section[1], re.MULTILINE)
        self.files = [re.search(r"[\w./]+/[\w.]+\.(?:py|yaml|md)", step)[0] for step in steps]  # type: ignore[index]
        self._copy = copy

    def edit(self, file: str, old: str, new: str) -> None:
        """Change a file of the walk."""
        assert file in self.files
        text = (self._copy / file).read_text()
        assert text.count(old) == 1, f"{file}: {old!r} stands in it {text.count(old)} times"
        (self._copy / file).write_text(text.replace(old, new))

    def add(self, file: str, text: str) -> None:
        """Create a file that the walk describes as new."""
        assert file in self.files
        (self._copy / file).write_text(text.lstrip())

    def python(self, program: str) -> str:
        """Return the output of a program that imports the copy."""
        return self._run("-c", program)[1]

    def puller(self, *arguments: str) -> tuple[int, str]:
        """Return exit status and output of the copy's command."""
        return self._run("-m", "puller", *arguments)

    def _run(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._copy,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def add_a_type(walk: Walk, tmp_path: Path) -> None:
    walk.add("puller/resources/marker.py", MARKER)
    walk.edit(
        "puller/resources/registry.py",
        "_OWN = {\n",
        '_OWN = {\n    "marker": "puller.resources.marker:Marker",\n',
    )
    (tmp_path / "manifest.yaml").write_text(f"resources: [{{marker: [{{{tmp_path}/here: {{}}}}]}}]\n")
    line = ("apply", str(tmp_path / "manifest.yaml"), "--state-directory", str(tmp_path / "state"))
    assert "1 changed" in walk.puller(*line)[1]
    assert "1 stable" in walk.puller(*line)[1]


def keep_more_of_a_download(walk: Walk, tmp_path: Path) -> None:
    program = "from bundles.client.partial_downloads import is_kept; print(is_kept(1000))"
    assert walk.python(program) == "False\n"
    walk.edit("bundles/client/partial_downloads.py", "SMALLEST_KEPT = 64 * 1024", "SMALLEST_KEPT = 512")
    assert walk.python(program) == "True\n"


def add_a_key(walk: Walk, tmp_path: Path) -> None:
    walk.edit(
        "puller/config/configuration.py",
        '    host_name: str = ""\n',
        '    host_name: str = ""\n    site_name: str = ""\n',
    )
    sample = (ROOT / "puller/config/samples/config.yaml").read_text().splitlines()[0]
    walk.edit("puller/config/samples/config.yaml", sample, f"{sample}\n# site_name: Berlin\n")
    assert "# site_name: Berlin" in walk.puller("config", "sample")[1]
    config = tmp_path / "config.yaml"
    config.write_text("site: https://www.example.org/\nbundles: [{name: web}]\nsite_name: [Berlin]\n")
    assert (
        "config.yaml:3: site_name is a list, expected text"
        in walk.puller("config", "check", "--config", str(config))[1]
    )


def add_a_command(walk: Walk, tmp_path: Path) -> None:
    walk.add("puller/cli/host/greet.py", GREET)
    entry = '    "Host": {\n        "greet": ("puller.cli.host.greet:greet", "Say hello."),\n'
    walk.edit("puller/cli/command_table.py", '    "Host": {\n', entry)
    assert walk.puller("greet") == (0, "hello\n")
    assert "greet" in walk.puller("--help")[1]


def find_a_status(walk: Walk, tmp_path: Path) -> None:
    """These files contain every name for the status: with another number in them, status 13 no longer exists."""
    (tmp_path / "manifest.yaml").write_text("resources: [{file: [{/x: {}}]}]\n")
    (tmp_path / "web.tar.gz").write_bytes(b"no archive")
    lines = [
        ("apply", str(tmp_path / "manifest.yaml")),
        ("apply", str(tmp_path / "web.tar.gz")),
    ]
    assert [walk.puller(*line)[0] for line in lines] == [13, 13]
    walk.edit("puller/exit_status.py", "REJECTED = 13", "REJECTED = 99")
    assert [walk.puller(*line)[0] for line in lines] == [99, 99]
    users = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "puller").rglob("*.py")
        if "= ExitStatus.REJECTED" in path.read_text() or ", ExitStatus.REJECTED)" in path.read_text()
    }
    assert users <= set(walk.files)


def add_a_filter(walk: Walk, tmp_path: Path) -> None:
    file = "hiera/expressions/filters.py"
    function = 'def shout(text: str) -> str:\n    """Text that is loud."""\n    return text.upper()\n\n\n'
    walk.edit(file, "OWN_FILTERS: Final", f"{function}OWN_FILTERS: Final")
    walk.edit(file, '    "shuffle": lists.shuffle,\n', '    "shout": shout,\n    "shuffle": lists.shuffle,\n')
    program = (
        "from hiera.expressions.expressions import Scope, resolve;"
        "print(resolve(\"{{ 'a' | shout }}\", Scope({}, {})))"
    )
    assert walk.python(program) == "A\n"


def change_the_arithmetic(walk: Walk, tmp_path: Path) -> None:
    program = (
        "from datetime import UTC, datetime, timedelta; from bundles.format.release import Rollout;"
        "start = datetime(2026, 1, 1, tzinfo=UTC); rollout = Rollout(start=start, duration=timedelta(hours=4));"
        "print(rollout.reached(start + timedelta(hours=2)))"
    )
    assert walk.python(program) == "50.0\n"
    walk.edit(
        "bundles/format/release.py",
        "elapsed * STEPS // self.duration / 100",
        "elapsed * STEPS // self.duration / 200",
    )
    assert walk.python(program) == "25.0\n"


WALKS: dict[str, Callable[[Walk, Path], None]] = {
    "Add a resource type": add_a_type,
    "Change how a download resumes": keep_more_of_a_download,
    "Add a key to the configuration": add_a_key,
    "Add a command": add_a_command,
    "Find why exit status 13 is given": find_a_status,
    "Add a filter": add_a_filter,
    "Change the arithmetic of a rollout": change_the_arithmetic,
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("heading", WALKS)
def test_a_walk_takes_at_most_three_files(heading: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package)
    walk = Walk(heading, copy)
    assert 1 < len(walk.files) <= MOST_FILES
    WALKS[heading](walk, tmp_path)


def test_every_walk_is_walked_and_its_files_are_there() -> None:
    headings = re.findall(r"^### (.*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert headings == list(WALKS)
    for heading in headings:
        named = Walk(heading, ROOT).files
        assert [file for file in named if not (ROOT / file).exists()] == [
            file for file in named if file in ("puller/resources/marker.py", "puller/cli/host/greet.py")
        ]
