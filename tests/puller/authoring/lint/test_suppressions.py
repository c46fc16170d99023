"""Warnings that a bundle's author disables: by comments, and in ``.puller-lint.yaml``."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.problems import Location, ProblemCode
from puller.authoring.lint.check import Suppressions
from puller.authoring.lint.findings import Finding, Severity, Subject
from puller.manifest.manifest import Inputs

RULE = "unused-data"


def left(bundle: Path, *findings: Finding) -> list[str]:
    subject = Subject(bundle, "web", Inputs({}, {}), None, (), "web/manifest.yaml")
    return [str(match) for match in Suppressions.of(subject).applied(findings)]


def warning(file: str, line: int, rule: str = RULE, severity: Severity = Severity.WARNING) -> Finding:
    return Finding.of(ProblemCode(rule), Location(f"web/{file}", line), "is odd", severity=severity)


@pytest.mark.parametrize(
    ("name", "comment"),
    [
        ("manifest.yaml", "# puller-lint: disable=unused-data - read by the monitoring"),
        ("manifest.yaml", "#puller-lint: disable=unused-data"),
        ("a.conf.j2", "{# puller-lint: disable=unused-data - why #}"),
        ("a.conf.j2", "{#- puller-lint: disable=unused-data-#}"),
        ("a.conf.tmpl", "{{/* puller-lint: disable=shell-syntax,unused-data - why */}}"),
        ("a.conf.tmpl", "{{- /* puller-lint: disable=unused-data */ -}}"),
        ("a.conf.jet", "{* puller-lint: disable=unused-data, shell-syntax *}"),
    ],
)
def test_comment_suppresses_its_line_or_the_next(tmp_path: Path, name: str, comment: str) -> None:
    file = tmp_path / name
    file.write_text(f"one\n{comment}\nthree\nfour\n")
    assert left(tmp_path, warning(name, 2), warning(name, 3)) == []
    assert len(left(tmp_path, warning(name, 1), warning(name, 4), warning(name, 3, "annotation"))) == 3
    file.write_text(f"one {comment}\ntwo\n")
    assert left(tmp_path, warning(name, 1)) == []
    assert len(left(tmp_path, warning(name, 2), warning("other", 1))) == 2


def test_stacked_comments_apply_to_the_line_below(tmp_path: Path) -> None:
    lines = [f"# puller-lint: disable={rule}\n" for rule in (RULE, "annotation")]
    (tmp_path / "manifest.yaml").write_text("".join([*lines, "port: 1\n"]))
    assert left(tmp_path, warning("manifest.yaml", 3), warning("manifest.yaml", 3, "annotation")) == []


def test_an_error_stays_and_the_comment_is_told(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("a: 1  # puller-lint: disable=unknown-name\n")
    assert left(tmp_path, warning("manifest.yaml", 1, "unknown-name", Severity.ERROR)) == [
        "web/manifest.yaml:1: error: is odd [unknown-name]",
        "web/manifest.yaml:1:7: warning: unknown-name cannot be switched off: only warnings can [suppression]",
    ]


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("disable=unused-date", "unknown rule 'unused-date' (did you mean 'unused-data'?)"),
        ("disable", "'disable' is not a suppression, expected disable=RULE[,RULE] - reason"),
        ("disable=", "'disable=' is not a suppression, expected disable=RULE[,RULE] - reason"),
        ("disable=suppression", "suppression cannot be switched off: only warnings can"),
    ],
)
def test_meaningless_suppressions_are_reported(tmp_path: Path, comment: str, said: str) -> None:
    (tmp_path / "manifest.yaml").write_text(f"# puller-lint: {comment}\na: 1\n")
    assert left(tmp_path) == [f"web/manifest.yaml:1:1: warning: {said} [suppression]"]


def test_configuration_disables_rules_for_bundle_or_files(tmp_path: Path) -> None:
    (tmp_path / ".puller-lint.yaml").write_text(
        'disable: [annotation]\nfiles: {"templates/*": [unused-data], "*.sh": [shell-syntax]}\n'
    )
    gone = [
        warning("manifest.yaml", 1, "annotation"),
        warning("templates/a.j2", 0),
        warning("files/a.sh", 7, "shell-syntax"),
    ]
    stay = [warning("manifest.yaml", 1), warning("templates/a.j2", 1, "shell-syntax")]
    assert left(tmp_path, *gone, *stay) == [str(item) for item in stay]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("disable: [nothing]", ":1:11: warning: unknown rule 'nothing'"),
        ("disable: [unknown-name]", ":1:11: warning: unknown-name cannot be switched off: only warnings can"),
        ("disable: all", ":1:1: warning: disable is 'all', expected a list of rules"),
        ("disabled: []", ":1:1: warning: unknown key 'disabled' (did you mean 'disable'?)"),
        ("files: []", ":1:1: warning: is [], expected a mapping"),
        ("- a", ":1:1: warning: is ['a'], expected a mapping"),
        ("a: [", ":2:1: warning: did not find expected node content"),
    ],
)
def test_a_file_that_cannot_be_meant_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / ".puller-lint.yaml").write_text(text)
    (reported,) = left(tmp_path)
    assert said in reported
    assert reported.startswith("web/.puller-lint.yaml:")
    assert reported.endswith("[suppression]")


def test_files_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\0\xff")
    (tmp_path / "link").symlink_to("nowhere")
    assert left(tmp_path, warning("logo.png", 1)) == ["web/logo.png:1: warning: is odd [unused-data]"]
