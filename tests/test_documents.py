"""The README and the pages of ``docs/`` agree with the program: commands, options, links, statuses."""

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from hiera.values import Secret
from puller.cli.command_table import cli
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError
from puller.exit_status import ExitStatus
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_COMMAND = re.compile(
    r"(?:^|[\s`(;&|/])puller ((?:[a-z][a-z-]*)(?: (?:'[^'\n]*'|[^`\n;|&()#'\s]#|[^`\n;|&()#'])*)?)"
)


def commands_in(page: Path) -> Iterator[str]:
    """Return Puller's command lines in indented or fenced blocks and in inline code. Skip names of tests."""
    for line in page.read_text().splitlines():
        indented = line.startswith("    ")
        without_tests = re.sub(r"\[`[^`]+`\]\(\.\./tests/", "", line)
        spans = [line] if indented else re.findall(r"`([^`]+)`", without_tests)
        for span in spans:
            for match in _COMMAND.finditer(span):
                yield match[1].strip()


COMMANDS = [(page.name, command) for page in PAGES for command in commands_in(page)]


def test_the_readme_shows_commands() -> None:
    assert len([command for page, command in COMMANDS if page == "README.md"]) > 8


@each_row(("page", "command"), COMMANDS)
def test_a_command_of_the_documents_exists_with_its_options(page: str, command: str) -> None:
    words = shlex.split(command.replace("…", ""))
    result: click.Command = cli
    context = click.Context(cli)
    while isinstance(result, click.Group) and words and not words[0].startswith("-"):
        following = result.get_command(context, words[0])
        assert following is not None, f"{page}: puller {command}"
        result, words = following, words[1:]
    known = {option for parameter in result.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in known | {"--help"}, f"{page}: puller {command}: {word}"


def command_paths(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from command_paths(command, (*path, name))


@each_row("path", list(command_paths(cli)), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        result = command.get_command(click.Context(command), name)
        assert result is not None
        command = result
    assert command.help
    assert command.help.strip()[0].isupper()
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(path)} {parameter.name}"


@each_row("page", PAGES, ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_page_of_exit_statuses_lists_every_status() -> None:
    table = (ROOT / "docs/exit-statuses.md").read_text().split("## Exit statuses")[1].split("##")[0]
    listed = {
        int(number)
        for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
        for number in row.split(",")
    }
    assert listed == set(ExitStatus)


def test_the_manifests_of_the_page_on_data_are_valid(tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "data.md").read_text(), re.DOTALL)
    document, derived, rules, lists = examples
    facts = {"os": {"family": "RedHat"}, "networking": {"fqdn": "web01.example.com"}}

    def data_of(text: str, **host: object) -> dict[str, object]:
        (tmp_path / "manifest.yaml").write_text(text)
        sources = (DataSource(Origin.HOST, "data.yaml", host),)
        return dict(load_manifest(tmp_path / "manifest.yaml", "data.md", Inputs(facts, {}, sources)).data.all)

    url = "http://web01.example.com"
    assert data_of(document) == {"port": 8080, "workers": 8, "url": f"{url}:8080/"}
    assert data_of(document, port=9090)["url"] == f"{url}:9090/"
    assert str(data_of(derived, version="2.0")["url"]).endswith("app-2.0.tar.gz")
    with pytest.raises(ManifestError, match=r"data\.server is required, but empty"):
        data_of(rules)
    users = [{"name": "web", "password": Secret("")}, {"name": "db", "password": Secret("")}]
    assert data_of(lists) == {"users": users}


def test_the_first_manifest_of_the_readme_loops(tmp_path: Path) -> None:
    (text,) = re.findall(
        r"```yaml\n(# web/manifest.yaml\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    (tmp_path / "manifest.yaml").write_text(text)
    facts = {"os": {"family": "Debian"}, "networking": {"fqdn": "web01.example.com"}}
    manifest = load_manifest(tmp_path / "manifest.yaml", "README.md", Inputs(facts, {}))
    assert manifest.scope.data["workers"] == 8
    assert [str(declaration) for declaration in manifest.declarations][:2] == ["package#curl", "package#jq"]


@each_row("page", PAGES, ids=lambda page: page.stem)
def test_every_table_has_its_header(page: Path) -> None:
    """A blank line within a table turns the rows below it into text."""
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        assert re.match(r".*\n\|(?: -+:? \|)+\n", table), table


@each_row("page", PAGES, ids=lambda page: page.name)
def test_titles_have_at_most_three_words(page: Path) -> None:
    title = page.read_text().partition("\n")[0].removeprefix("# ")
    assert len(title.split()) <= 3, title


def groups(entries: list[object]) -> Iterator[list[object]]:
    """Yield every level of the navigation."""
    yield entries
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else ():
            if isinstance(value, list):
                yield from groups(value)


def test_navigation_has_at_most_nine_entries_a_level() -> None:
    text = (ROOT / "packaging/documents/mkdocs.yml").read_text()
    navigation = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    assert not [group for group in groups(navigation) if len(group) > 9]


GUIDED = ("Migrate", "Author", "Publish", "Operate")
OTHER_KINDS = {
    "tutorial": ["authoring.md", "composing.md"],
    "reference": ["from-ccm.md", "lint-names.md", "mirrors.md", "output.md", "limits.md", "run-reports.md"],
    "explanation": ["sizing.md"],
    "command that is itself a check": [
        "testing-bundles.md",
        "trials.md",
        "preview.md",
        "lint.md",
        "fleet-store.md",
    ],
}
"""Pages of these parts of the navigation that are not guides."""


def test_a_guide_has_a_check_that_it_worked() -> None:
    text = (ROOT / "packaging/documents/mkdocs.yml").read_text()
    navigation = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    parts = [part[name] for part in navigation for name in part if name in GUIDED]
    names = {name for part in parts for name in re.findall(r"[\w/-]+\.md", json.dumps(part))}
    guides = {name for name in names if (ROOT / "docs" / name).exists()} - {
        *itertools.chain(*OTHER_KINDS.values())
    }
    assert len(guides) > 30
    texts = {name: (ROOT / "docs" / name).read_text() for name in guides}
    assert not [name for name, text in texts.items() if "Check that it worked" not in text]


@each_row("page", PAGES, ids=lambda page: page.name)
def test_a_page_starts_with_a_sentence(page: Path) -> None:
    assert re.match(r"# .+\n\n[A-Z`*\[0-9][^\n]*\w", page.read_text())


def test_the_readme_has_at_most_130_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
