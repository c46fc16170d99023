"""``docs/templates.md`` is correct: the tests run its examples, tables, lists and limits."""

import re
from pathlib import Path
from typing import Any

import pytest

from hiera import limits as bounds
from hiera.expressions.filters import OWN_FILTERS, OWN_TESTS
from hiera.expressions.refused import REFUSED_FILTERS, REFUSED_TESTS
from hiera.limits import TEXT_LIMIT
from hiera.parsing import load_yaml
from puller.cli import main
from puller.errors import ResourceError
from puller.resources.scaffolds import scaffold_tree
from puller.templates.rendering import ENGINES
from puller.templates.template_errors import DEFAULT_LIMITS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "templates.md").read_text()
PROPERTIES = (ROOT / "docs" / "resources" / "scaffold.md").read_text()


def rows(heading: str, columns: int) -> list[list[str]]:
    """Return the rows of the first table below a heading, without backticks."""
    table = PAGE.split(f"\n## {heading}\n")[1].split("\n| --- |")[1].split("\n\n")[0]
    results = [re.split(r"(?<!\\)\|", row.replace("`", ""))[1:-1] for row in table.splitlines()[1:]]
    assert all(len(row) == columns for row in results)
    return [[cell.replace("\\|", "|") for cell in row] for row in results]


def test_the_files_that_are_shown_are_those_of_the_example() -> None:
    shown = dict(re.findall(r"<!-- (examples/\S+) -->\n```\w*\n(.*?)```", PAGE, re.DOTALL))
    assert {path: (ROOT / path).read_text() for path in shown} == shown
    example = ROOT / "examples" / "scaffold"
    present = {str(path.relative_to(ROOT)) for path in example.rglob("*") if path.is_file()}
    assert shown.keys() == present - {
        "examples/scaffold/manifest.yaml",
        "examples/scaffold/.puller-lint.yaml",
    }


@pytest.mark.parametrize("row", rows("Side by side", 4), ids=lambda row: row[0].strip())
def test_documented_pairs_render_equally(bench: Any, row: list[str]) -> None:
    bench.data = {
        "port": 80,
        "a-b": 1,
        "list": ["x", "y"],
        "on": True,
        "off": False,
        "name": "web",
        "map": {"b": 1, "a": 2},
    }
    (bench.directory / "files").mkdir()
    (bench.directory / "files" / "motd").write_text("hello\n")
    files = {}
    for engine, cell in zip(("jet", "go", "jinja"), row[1:], strict=True):
        bench.template(
            "_partials/p", {"jet": "[[ .name ]]", "go": "{{ .name }}", "jinja": "{{ name }}"}[engine]
        )
        bench.template("out", cell.strip())
        bench.apply(engine=engine)
        files[engine] = bench.files()
    assert files["jet"] == files["go"] == files["jinja"]
    assert files["jet"] == {"out": "", "more": "text"} or files["jet"]["out"] not in ("", "<no value>")


@pytest.mark.parametrize("row", rows("Jet", 3), ids=lambda row: row[0].strip())
def test_documented_jet_oddities_are_true(bench: Any, row: list[str]) -> None:
    template, result = row[0][1:-1], row[1].strip()
    data = PAGE.split("\n## Jet\n")[1].split("```yaml\n")[1].split("```")[0]
    bench.data = load_yaml(data, "templates.md")
    bench.template("out", template)
    if result == "an error":
        with pytest.raises(ResourceError):
            bench.scaffold().look()
        return
    bench.apply()
    assert bench.files() == {"out": result}


def test_the_filters_and_tests_are_those_that_there_are() -> None:
    assert [row[0].strip() for row in rows("Jinja2", 2)] == list(OWN_FILTERS)
    listed = PAGE.split("and these tests: ")[1].split(". ")[0]
    assert re.findall(r"`(\w+)`", listed) == list(OWN_TESTS)


def test_refused_ansible_features_are_documented() -> None:
    table = PAGE.split("\n### Templates of Ansible\n")[1].split("\n| --- |")[1].split("\n\n")[0]
    there = " ".join(row.split("|")[1] for row in table.splitlines()[1:])
    listed = set(re.findall(r"`(\w+)`", there))
    assert {name for name in (*REFUSED_FILTERS, *REFUSED_TESTS) if not name.startswith("is_")} <= listed


def test_the_names_that_the_page_promises_are_seen(bench: Any) -> None:
    promised = PAGE.split("\n### Names in Jinja2\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"```jinja\n(.*?)```", promised, re.DOTALL)
    (result,) = re.findall(r"```text\n(.*?)```", promised, re.DOTALL)
    bench.data = {"vhosts": [{"name": "shop"}, {"name": "blog"}]}
    files = re.split(r"^\{# (\S+) #\}\n", example, flags=re.MULTILINE)[1:]
    for path, text in zip(files[::2], files[1::2], strict=True):
        bench.template(path, text)
    bench.apply(engine="jinja")
    assert bench.files() == {"hosts.conf": result}


def test_the_limits_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split("## Limits")[1].split())
    limits = DEFAULT_LIMITS
    mebi = 1 << 20
    assert (
        f"after {limits.seconds:g} seconds, {limits.characters // mebi} Mi characters or {limits.depth} nested"
        in text
    )
    assert f"after {bounds.TIME_LIMIT:g} seconds, {TEXT_LIMIT // mebi} Mi characters of one text" in text
    assert f"or {bounds.BUDGET // mebi} Mi steps" in text
    assert (
        f"at most {scaffold_tree.MOST_ENTRIES:,} files and directories, and {scaffold_tree.MOST_BYTES // mebi} MiB"
        in text
    )


def test_documented_example_applies_and_renders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = ROOT / "examples" / "scaffold"
    manifest = load_yaml((example / "manifest.yaml").read_text(), "manifest.yaml")
    data = load_yaml((example / "data.yaml").read_text(), "data.yaml")
    assert data["data"].items() <= manifest["data"].items()
    options = (
        "--set",
        f"target={tmp_path}/target",
        "--fact",
        "hostname=web01",
        "--state-directory",
        str(tmp_path),
    )
    for engine in ENGINES:
        with pytest.raises(SystemExit) as ended:
            main(["apply", str(example), *options, "--set", f"engine={engine}", "--detailed-exitcodes"])
        first = engine == ENGINES[0]
        assert ended.value.code == (2 if first else 0), capsys.readouterr().out
    assert (tmp_path / "target" / "app.conf").read_text() == (example / "expected" / "app.conf").read_text()
