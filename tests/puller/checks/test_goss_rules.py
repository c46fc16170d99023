"""Goss tests in a manifest (``goss_rules``), and the formats of CCM."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.checks.kinds import GossRules, HealthCheck
from puller.engine.conditions import check_health
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.reporting.report import Health
from puller.system.local import LocalSystem
from puller.values.plain_values import parse_value

Load = Callable[..., Manifest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(check: str) -> Manifest:
        (tmp_path / "manifest.yaml").write_text(
            f"data: {{path: {tmp_path}/a, list: []}}\n"
            f"resources:\n  - exec: [{{'true': {{health_checks: [{check}]}}}}]\n"
        )
        return load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs({}, {}))

    return load


def only_check(manifest: Manifest) -> HealthCheck:
    (declaration,) = manifest.declarations
    (check,) = declaration.properties.health_checks
    return check


def test_rules_of_a_manifest_are_checked(load: Load, tmp_path: Path) -> None:
    check = only_check(
        load(
            "{name: app, goss_rules: {file: {'{{ data.path }}': {exists: true, contents: ['{{ 1 + 1 }}']}}}}"
        )
    )
    missing = check_health(check, LocalSystem())
    assert (missing.name, missing.status) == ("app", Health.CRITICAL)
    assert f"file {tmp_path}/a: exists is False" in missing.output
    (tmp_path / "a").write_text("2\n")
    assert check_health(check, LocalSystem()).status is Health.OK


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (
            "{goss_rules: {prot: {'tcp:80': {listening: true}}}}",
            "has a test that goss checks cannot run: prot",
        ),
        ("{goss_rules: {}}", "is not a mapping of goss tests"),
        ("{goss_rules: text}", "is not a mapping of goss tests"),
        ("{goss_rules: {file: {/a: {exists: true}}}, command: 'true'}", "has command and goss_rules"),
        (
            "{goss_rules: {file: {/a: {exists: true}}}, format: nagios}",
            "has the format nagios, which requires command",
        ),
        ("{command: 'true', format: goss}", "has the format goss, which requires goss_rules or goss"),
        ("{command: 'true', format: text}", "format"),
    ],
)
def test_invalid_rules_and_formats_refuse_the_manifest(load: Load, check: str, sentence: str) -> None:
    with pytest.raises(ManifestError, match=sentence):
        load(check)


def test_formats_of_ccm_are_accepted(load: Load) -> None:
    assert only_check(load("{command: 'true', format: nagios}")).command == "true"
    assert only_check(load("{goss_rules: {file: {/: {exists: true}}}, format: goss}")).kind == "goss_rules"


def test_equal_rules_are_one_check() -> None:
    raw: dict[str, Any] = {"goss_rules": {"file": {"/a": {"exists": True}}}}
    first, second = (msgspec.convert(raw, HealthCheck, dec_hook=parse_value) for _ in range(2))
    assert {first, second} == {first}
    assert isinstance(first.desired, GossRules)


def test_key_that_is_no_text_fails_the_resource(load: Load) -> None:
    (declaration,) = load("{goss_rules: {file: {'{{ data.list }}': {exists: true}}}}").declarations
    assert "cannot be a key" in str(declaration.failures[0])
