"""Lint reports a misspelt name once, without a second finding for its failing resource."""

from pathlib import Path

import pytest

from foundation.problems import DependsOn, Location, ProblemCode
from puller.authoring.lint.check import Linted, lint_bundle, without_consequences
from puller.authoring.lint.findings import Finding, Severity
from puller.manifest.manifest import Inputs, ManifestSource

MANIFEST = """\
data: {port: 80}
resources:
  - package: ["{{ data.prt }}"]
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/name: {content: "{{ data.prt }}"}
      - /etc/both: {content: "{{ data.prt }}", ower: root}
      - /etc/syntax: {content: "{{ data.port | }}"}
      - /etc/other: {content: "{{ data.port + 'x' }}"}
"""


def lint(tmp_path: Path, text: str) -> Linted:
    (tmp_path / "manifest.yaml").write_text(text)
    return lint_bundle(ManifestSource(tmp_path / "manifest.yaml", "web/manifest.yaml"), Inputs({}, {}))


def test_misspelt_name_is_reported_without_its_failing_resource(tmp_path: Path) -> None:
    linted = lint(tmp_path, MANIFEST)
    places = [(finding.place.line, str(finding.rule)) for finding in linted.findings]
    assert places == [
        (3, "unknown-name"),
        (6, "unknown-name"),
        (7, "unknown-name"),
        (7, "unknown-property"),
        (8, "expression-syntax"),
    ]


def test_two_mistakes_with_the_same_word_are_both_shown(tmp_path: Path) -> None:
    text = """\
data: {port: 80}
resources: [{exec: [{a: {command: "/bin/echo {{ data.prot }}", prot: 1, returns: prot}}]}]
"""
    linted = lint(tmp_path, text)
    assert [
        (str(finding.rule), finding.problem.property or finding.problem.name) for finding in linted.findings
    ] == [
        ("unknown-property", "prot"),
        ("unknown-name", "prot"),
        ("invalid-value", "returns"),
    ] or sorted(str(finding.rule) for finding in linted.findings) == [
        "invalid-value",
        "unknown-name",
        "unknown-property",
    ]


def failure(code: ProblemCode, name: str, line: int = 4, **fields: object) -> Finding:
    place = Location("web/manifest.yaml", line)
    finding = Finding.of(code, place, "message", severity=Severity.WARNING, name=name, **fields)
    return Finding(finding.problem, finding.severity, ProblemCode.RESOURCE_FAILS)


NAME = Finding.of(ProblemCode.UNKNOWN_NAME, Location("web/manifest.yaml", 4), "message", name="prt")


@pytest.mark.parametrize(
    "other",
    [
        failure(ProblemCode.UNDEFINED_DATA, "port"),
        failure(ProblemCode.UNDEFINED_DATA, "prt", 9),
        failure(ProblemCode.INVALID_VALUE, "prt"),
    ],
)
def test_another_failure_in_the_same_line_stays(other: Finding) -> None:
    assert without_consequences([], [NAME, other]) == [NAME, other]


def test_failure_of_a_template_has_its_cause_in_the_template() -> None:
    place = Location("web/a.j2", 2)
    cause = Finding.of(ProblemCode.UNKNOWN_NAME, place, "message", name="prt")
    consequence = failure(ProblemCode.TEMPLATE_FAILS, "prt", related=(Location("a.j2", 2, 4),))
    assert without_consequences([], [cause, consequence]) == [cause]


def test_unchecked_name_hides_no_failure() -> None:
    doubt = Finding(NAME.problem, Severity.UNCHECKED)
    fails = failure(ProblemCode.UNDEFINED_DATA, "prt")
    assert without_consequences([], [doubt, fails]) == [doubt, fails]


def test_missing_fact_of_a_resource_is_reported_once() -> None:
    def doubt(name: str) -> Finding:
        place = Location("web/manifest.yaml", 4)
        return Finding.of(ProblemCode.UNKNOWN_NAME, place, "message", severity=Severity.UNCHECKED, name=name)

    place = Location("web/manifest.yaml", 5)
    needs = Finding.of(
        ProblemCode.UNDEFINED_FACT,
        place,
        "message",
        severity=Severity.UNCHECKED,
        name="rack",
        depends_on=DependsOn.FACTS,
    )
    assert without_consequences([], [doubt("rack"), doubt("row"), needs]) == [doubt("row"), needs]
