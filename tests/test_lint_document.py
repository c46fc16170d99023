"""The page on lint and the hook for pre-commit: rules, examples and entry agree with the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from puller.authoring.lint.findings import RULES, may_be_switched_off

if TYPE_CHECKING:
    import pytest

    from tests.support.stories import Execute

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/lint.md").read_text()


def test_the_page_has_all_rules_in_their_order() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning|unchecked) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(rule.name, str(rule.severity), rule.summary) for rule in RULES.values()]


def test_page_disables_every_optional_rule() -> None:
    (text,) = re.findall(r"```yaml\n(disable:.*?)```", PAGE, re.DOTALL)
    value = yaml.safe_load(text)
    names = [*value["disable"], *(name for rules in value["files"].values() for name in rules)]
    names += re.findall(r"disable=([a-z-]+)", PAGE)
    assert names
    assert all(map(may_be_switched_off, names))


def test_the_hook_runs_lint_where_a_bundle_has_changed(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    bundle = tmp_path / "bundles/web"
    bundle.mkdir(parents=True)
    (bundle / "manifest.yaml").write_text("resources: []\n")
    (example,) = re.findall(r"```yaml\n(repos:.*?)```", PAGE, re.DOTALL)
    (used,) = yaml.safe_load(example)["repos"][0]["hooks"]
    line: list[str] = shlex.split(hook["entry"]) + used["args"]
    program, arguments = line[0], line[1:]
    assert (program, used["id"]) == ("puller", hook["id"])
    assert execute(*arguments)[0] == 0
    (bundle / "manifest.yaml").write_text("resourcs: []\n")
    assert execute(*arguments)[0] == 1
    for name in ("web/manifest.yaml", "web/templates/app", "web/x.conf.j2", "web/facts.d/role"):
        assert re.search(hook["files"], name), name
    assert not re.search(hook["files"], "README.md")
