"""A bundle of given files, and the findings of checks in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.authoring.lint.checks import names
from puller.authoring.lint.findings import Severity, Subject
from puller.data.sources import DataSource, Origin
from puller.manifest.manifest import Inputs

Lint = Callable[..., list[str]]


@pytest.fixture
def find_names(tmp_path: Path) -> Lint:
    """Return ``find_names({file: text})``: the findings of ``names``, by place, in a bundle ``web`` of these files.

    ``manifest`` and other words are short for a YAML file of that name. Returns errors, or ``unchecked`` objects.
    """

    def run(
        files: dict[str, str] | None = None,
        *,
        facts: dict[str, Any] | None = None,
        provided: dict[str, Any] | None = None,
        unchecked: bool = False,
        **named: str,
    ) -> list[str]:
        written = {**(files or {}), **{f"{name}.yaml": text for name, text in named.items()}}
        for name, text in written.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        sources = (DataSource(Origin.COMMAND_LINE, "test", provided),) if provided else ()
        subject = Subject(tmp_path, "web", Inputs(facts or {}, {}, sources), None, ())
        expected = {Severity.UNCHECKED} if unchecked else {Severity.ERROR, Severity.WARNING}
        return [str(found) for found in names.check(subject) if found.severity in expected]

    return run
