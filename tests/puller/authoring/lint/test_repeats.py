"""What is wrong is said once: a name that no host has, and not also that its resource fails for it."""

from pathlib import Path

from puller.authoring.lint.check import lint_bundle
from puller.authoring.lint.findings import Finding, Place, Severity
from puller.authoring.lint.repeats import without_repeats
from puller.manifest.manifest import Inputs
from puller.manifest.source import ManifestSource

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


def test_a_wrong_name_is_not_told_again_as_the_failure_of_its_resource(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    linted = lint_bundle(ManifestSource(tmp_path / "manifest.yaml", "web/manifest.yaml"), Inputs({}, {}))
    said = [(found.place.line, found.rule) for found in linted.findings]
    assert (3, "unknown-name") in said
    assert (6, "unknown-name") in said
    assert (8, "expression-syntax") in said
    assert [found.message for found in linted.findings if found.rule == "manifest"] == [
        "resources[1] file#/etc/both: ower is not a property of file (did you mean 'owner'?)"
    ]


def found(rule: str, message: str, *, line: int = 4, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(rule, severity, Place("web/manifest.yaml", line), message)


def test_another_failure_in_the_same_line_stays() -> None:
    wrong = found("unknown-name", "data has no 'prt' on any host")
    others = [
        found("resource-fails", "file#/a: there is no file 'x'"),
        found("resource-fails", "file#/a: data has no key 'prt'", line=9),
        found("missing-file", "there is no 'prt'"),
    ]
    assert without_repeats([wrong, *others]) == [wrong, *others]
    assert without_repeats([wrong, found("resource-fails", "data has no key 'prt'")]) == [wrong]
    named = found("resource-fails", "file#/a: manifest.yaml:4:1: there is no key 'prt'", line=2)
    assert without_repeats([wrong, named]) == [wrong]


def test_what_is_unchecked_hides_nothing() -> None:
    doubt = found("unknown-name", "facts.rack 'rack'", severity=Severity.UNCHECKED)
    fails = found("resource-fails", "there is no key 'rack'")
    assert without_repeats([doubt, fails]) == [doubt, fails]


def test_a_fact_that_a_resource_needs_is_told_once() -> None:
    doubt = found("unknown-name", "facts.rack is no fact of Puller", severity=Severity.UNCHECKED)
    other = found("unknown-name", "facts.row is no fact of Puller", severity=Severity.UNCHECKED)
    needs = found(
        "depends-on-facts", "{{ facts.rack }}: facts has no key", severity=Severity.UNCHECKED, line=5
    )
    assert without_repeats([doubt, other, needs]) == [other, needs]
