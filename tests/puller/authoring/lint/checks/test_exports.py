"""Lint of ``exports``: secrets, invalid values, and unknown names."""

from pathlib import Path

import pytest

from puller.authoring.lint.check import lint_bundle
from puller.authoring.lint.findings import Severity
from puller.manifest.manifest import Inputs, ManifestSource

TEXT = """\
data:
  # @sensitive
  password: hunter2hunter2
  port: 80
exports:
  port: {type: port, value: "%s"}
resources:
  - exec: {name: /bin/true}
"""


@pytest.mark.parametrize(
    ("value", "severity", "message"),
    [
        ("{{ data.password }}", Severity.ERROR, "exports.port is a secret, which is never exported"),
        ("{{ data.prt }}", Severity.ERROR, "did you mean"),
        ("{{ data.port * 1000 }}", Severity.WARNING, "exports.port is 80000, expected a port"),
        ("{{ facts.bios.port }}", Severity.UNCHECKED, "in facts.bios"),
    ],
)
def test_an_export_that_no_host_could_report(
    tmp_path: Path, value: str, severity: Severity, message: str
) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(TEXT % value)
    linted = lint_bundle(ManifestSource(path, "web/manifest.yaml"), Inputs({"bios": {}}, {}))
    problems = [finding for finding in linted.findings if finding.place.line == 6]
    assert any(finding.severity is severity and message in finding.message for finding in problems), (
        linted.findings
    )
    assert "hunter2" not in str(linted)


def test_an_export_that_fits_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(TEXT % "{{ data.port }}")
    linted = lint_bundle(ManifestSource(path, "web/manifest.yaml"), Inputs({}, {}))
    assert not [finding for finding in linted.findings if finding.place.line == 6]
