"""``puller lint --format``: the same findings as text and in the formats of services."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from foundation.problem_pages import load_entries
from foundation.problems import ProblemCode

if TYPE_CHECKING:
    from tests.support.stories import Execute

jsonschema: Any = pytest.importorskip("jsonschema", reason="the schema of SARIF is applied by jsonschema")
SARIF = Path(__file__).parents[2] / "cases/sarif/sarif-schema-2.1.0.json"
MANIFEST = """\
data:
  mode: 0750
  # @sensitve
  token: "50%, of: it"
resources:
  - exec:
      - "echo {{ facts.nowhere }}": {alias: a}
      - b: {command: "echo ${ Data.a,b:c }", environment: ["A={{ data.mode }}{{ data.token }}"]}
"""


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle with an error, two warnings, and an object that cannot be checked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web").mkdir()
    text = MANIFEST.replace(
        '"echo {{ facts.nowhere }}": {alias: a}', 'a: {command: "echo {{ facts.nowhere }}"}'
    )
    (tmp_path / "web/manifest.yaml").write_text(text)
    return tmp_path / "web"


def said(execute: Execute, *options: str) -> tuple[int, str]:
    return execute("lint", "web", "--no-system-facts", *options)


@pytest.mark.usefixtures("web")
def test_people_get_a_line_for_each_and_a_summary(execute: Execute) -> None:
    status, output = said(execute)
    assert output.splitlines() == [
        "web/manifest.yaml:2:9: warning: 0750 is the number 488: quote it, '0750', for a mode [unquoted-octal]",
        "web/manifest.yaml:3:5: error: unknown annotation @sensitve (did you mean '@sensitive'?) "
        "[misspelt-annotation]",
        "web/manifest.yaml:8:28: warning: ${ Data.a,b:c } is ordinary text here: Jinja2 has no equivalent, "
        "so use filters such as select, map and length "
        "[foreign-expression]",
        "Explanations: puller help CODE",
        "web: 2 resources, 1 error, 2 warnings, 1 expression not checked",
    ]
    assert status == 1


@pytest.mark.usefixtures("web")
def test_unchecked_items_are_listed_on_request(execute: Execute) -> None:
    output = said(execute, "-v")[1]
    place = "web/manifest.yaml:7:13: unchecked: exec#a: command: {{ facts.nowhere }}: "
    assert f"{place}unknown key 'nowhere' in facts" in output


def test_strict_makes_errors_of_warnings_only(execute: Execute, web: Path) -> None:
    path = web / "manifest.yaml"
    path.write_text(path.read_text().replace("@sensitve", "@sensitive").replace("0750", "'0750'"))
    assert said(execute)[0] == 0
    status, output = said(execute, "--strict")
    assert (status, "web: 2 resources, 1 error, 0 warnings, 1 expression not checked" in output) == (1, True)
    path.write_text(path.read_text().replace("${ Data.a,b:c }", ""))
    assert said(execute, "--strict")[0] == 0


@pytest.mark.usefixtures("web")
def test_programs_get_json(execute: Execute) -> None:
    status, output = said(execute, "--format", "json")
    document = json.loads(output)
    findings = document.pop("findings")
    assert document == {
        "manifest": "web/manifest.yaml",
        "resources": 2,
        "errors": 1,
        "warnings": 2,
        "unchecked": 1,
    }
    problem = findings[1].pop("problem")
    assert (problem["code"], problem["suggestions"]) == ("misspelt-annotation", ["@sensitive"])
    assert findings[1] == {
        "rule": "misspelt-annotation",
        "severity": "error",
        "file": "web/manifest.yaml",
        "line": 3,
        "column": 5,
        "message": "unknown annotation @sensitve (did you mean '@sensitive'?)",
    }
    assert [finding["severity"] for finding in findings] == ["warning", "error", "unchecked", "warning"]
    assert status == 1


@pytest.mark.usefixtures("web")
def test_github_commands_are_escaped(execute: Execute) -> None:
    lines = said(execute, "--format", "github")[1].splitlines()
    assert lines[0].startswith("::warning file=web/manifest.yaml,line=2,col=9,title=unquoted-octal::0750 is")
    assert lines[1].startswith(
        "::error file=web/manifest.yaml,line=3,col=5,title=misspelt-annotation::unknown"
    )
    assert lines[2].startswith(
        "::warning file=web/manifest.yaml,line=8,col=28,title=foreign-expression::${ Data.a,b:c }"
    )
    assert lines[3].startswith("web: 2 resources, ")
    assert any(
        line.startswith("::notice ") for line in said(execute, "--format", "github", "-v")[1].splitlines()
    )


def test_a_file_name_does_not_end_a_command(execute: Execute, web: Path) -> None:
    web.rename(web.with_name("a,b%c:d"))
    line = execute("lint", "a,b%c:d", "--no-system-facts", "--format", "github")[1].splitlines()[0]
    assert line.startswith("::warning file=a%2Cb%25c%3Ad/manifest.yaml,line=2,")


def sarif(output: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(output)
    jsonschema.Draft7Validator(json.loads(SARIF.read_text())).validate(document)
    return document


def test_sarif_matches_the_oasis_schema(execute: Execute, web: Path) -> None:
    document = sarif(said(execute, "--format", "sarif")[1])
    (run,) = document["runs"]
    assert [(item["ruleId"], item["level"]) for item in run["results"]] == [
        ("unquoted-octal", "warning"),
        ("misspelt-annotation", "error"),
        ("depends-on-facts", "note"),
        ("foreign-expression", "warning"),
    ]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[item["ruleIndex"]]["id"] == item["ruleId"] for item in run["results"])
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "web/manifest.yaml"},
        "region": {"startLine": 2, "startColumn": 9},
    }
    (web / "manifest.yaml").write_text("resources: []\n")
    assert sarif(said(execute, "--format", "sarif")[1])["runs"][0]["results"] == []


def test_sarif_explains_its_rules(execute: Execute, web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``helpUri`` must be absolute, so it needs the address of the documents."""
    (rule, *_) = sarif(said(execute, "--format", "sarif")[1])["runs"][0]["tool"]["driver"]["rules"]
    assert load_entries()[ProblemCode(rule["id"])].meaning in rule["help"]["text"]
    assert "helpUri" not in rule
    base = "https://docs.example.com/puller/"
    monkeypatch.setenv("PULLER_DOCUMENTS", base)
    rules = sarif(said(execute, "--format", "sarif")[1])["runs"][0]["tool"]["driver"]["rules"]
    assert {rule["helpUri"] for rule in rules} == {f"{base}problems.html#{rule['id']}" for rule in rules}


@pytest.mark.usefixtures("web")
def test_people_get_the_command_that_explains_codes(execute: Execute) -> None:
    *_, explanations, summary = said(execute)[1].splitlines()
    assert explanations == "Explanations: puller help CODE"
    assert summary.startswith("web: ")


def test_sarif_names_files_as_uris(execute: Execute, web: Path) -> None:
    web.rename(web.with_name("a b#1"))
    document = sarif(execute("lint", "a b#1", "--no-system-facts", "--format", "sarif")[1])
    place = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b%231/manifest.yaml"}


def test_junit_has_a_case_for_each_file(execute: Execute, web: Path) -> None:
    (web / ".puller-lint.yaml").write_text("disable: [nothing]\n")
    root = ET.fromstring(said(execute, "--format", "junit")[1])
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "2", "1")
    manifest, other = root.findall("testsuite/testcase")
    assert (manifest.get("name"), other.get("name")) == ("web/manifest.yaml", "web/.puller-lint.yaml")
    (failure,) = manifest.findall("failure")
    assert "unknown annotation @sensitve" in (failure.get("message") or "")
    assert "is ordinary text here" in (manifest.findtext("system-out") or "")
    assert other.find("failure") is None


def test_junit_of_a_valid_bundle_is_a_passing_case(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_text("resources: []\n")
    root = ET.fromstring(said(execute, "--format", "junit")[1])
    assert [list(case) for case in root.iter("testcase")] == [[]]


def test_characters_that_xml_cannot_have_are_replaced(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_text('resources: [{"a\\x01b": []}]\n')
    root = ET.fromstring(said(execute, "--format", "junit")[1])
    assert root.get("failures") == "1"


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit"])
def test_no_form_shows_a_password(execute: Execute, web: Path, form: str) -> None:
    (web / "manifest.yaml").write_text(
        "data:\n  # @sensitive\n  token: hunter2hunter2\n  # @sensitve\n  other: x\n"
        "resources:\n  - exec:\n      - a: {command: 'echo {{ data.token }}', cwd: '{{ data.token }}'}\n"
        "      - b: {command: 'x ${ https://u:hunter2hunter2@h/ }', nope: '{{ data.token }}'}\n"
    )
    for options in ((), ("-v",), ("--strict",)):
        output = said(execute, "--format", form, *options)[1]
        assert output
        assert "hunter2" not in output


def test_refused_manifest_is_linted_as_far_as_possible(execute: Execute, web: Path) -> None:
    path = web / "manifest.yaml"
    path.write_text(path.read_text().replace("- b: {", "- b: {comand: x, "))
    status, output = said(execute)
    assert status == 1
    assert "web/manifest.yaml:8:13: error: resources[0] exec#b: comand is not a property of exec" in output
    assert "misspelt-annotation" in output
    assert "unquoted-octal" in output
    assert output.endswith("web: 2 errors, 2 warnings, 1 expression not checked\n")


def test_unknown_property_is_found_despite_unknown_facts(execute: Execute, web: Path) -> None:
    path = web / "manifest.yaml"
    path.write_text(path.read_text().replace('command: "echo {{', 'comand: "echo {{'))
    status, output = said(execute)
    sentence = "exec#a: comand is not a property of exec (did you mean 'command'?) [unknown-property]"
    assert (status, f"web/manifest.yaml:7:13: error: resources[0] {sentence}" in output) == (1, True)


def test_text_that_is_no_yaml_is_an_error_with_its_place(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_bytes(b"a: [\n")
    status, output = said(execute)
    assert (status, output.startswith("web/manifest.yaml:2:1: error: ")) == (1, True), output
    (web / "manifest.yaml").write_bytes(b"\xff\xfe")
    assert said(execute)[0] == 1


def test_missing_directory_has_the_common_exit_status(execute: Execute) -> None:
    status, output = execute("lint", "nowhere")
    assert (status, "does not exist" in output) == (64, True)


@pytest.mark.parametrize(
    ("comment", "rule"),
    [
        ("@sensitve", "misspelt-annotation"),
        ("@senstive", "misspelt-annotation"),
        ("@Sensitive", "misspelt-annotation"),
        ("@requires", "misspelt-annotation"),
        ("@valdate value > 1", "misspelt-annotation"),
        ("@see the wiki", "annotation"),
        ("@todo", "annotation"),
        ("@sensitive @require", "annotation"),
        ("@validate", "annotation"),
    ],
)
def test_misspelt_annotation_is_an_error(execute: Execute, web: Path, comment: str, rule: str) -> None:
    (web / "manifest.yaml").write_text(f"data:\n  # {comment}\n  token: a\nresources: []\n")
    status, output = said(execute)
    assert (status, f"[{rule}]" in output) == (int(rule == "misspelt-annotation"), True), output
    assert output.count(comment.split()[0]) == 1


@pytest.mark.parametrize(
    ("value", "is_warned"),
    [
        ("0644", True), ("010", True), ("[1, 0755]", True), ("{a: 07}", True),
        ("'0644'", False), ("0o644", False), ("0", False), ("00", False), ("0899", False), ("x0644", False),
        ("644", False), ("0x0f", False), ("0.644", False), ("|\n    0644 x", False),
    ],
)  # fmt: skip
def test_a_number_that_yaml_reads_as_octal_is_warned_of(
    execute: Execute, web: Path, value: str, is_warned: bool
) -> None:
    (web / "manifest.yaml").write_text(f"data:\n  mode: {value}\nresources: []\n")
    status, output = said(execute)
    assert (status, "[unquoted-octal]" in output) == (0, is_warned), output


def test_a_missing_fact_that_refuses_the_manifest_is_unchecked(execute: Execute, web: Path) -> None:
    (web / "manifest.yaml").write_text(
        "data: {a: '{{ facts.role }}'}\nresources: [{exec: [a: {command: 'echo {{ data.a }}'}]}]\n"
    )
    status, output = said(execute, "-v")
    assert (status, "unchecked" in output) == (0, True), output
    assert said(execute, "--fact", "role=db") == (0, "web: 1 resource, 0 errors, 0 warnings\n")
