"""Problems of resources have the code of their kind, not the default of their class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foundation.problems import ProblemCode
from puller.authoring.lint.check import lint_bundle
from puller.errors import ResourceError
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource
from puller.resources.content_sources import fetched
from puller.resources.registry import type_names

COMPLETE = frozenset(
    {
        "apply",
        "diversion",
        "exec",
        "group",
        "hostname",
        "kernel_module",
        "locale",
        "package",
        "service",
        "timezone",
        "user",
    }
)
"""Types whose resources need only a name."""
CASES: dict[str, dict[str, object]] = {
    **{
        f"{name} without properties": {name: {"/srv/x.tar.gz": {}}}
        for name in type_names()
        if name not in COMPLETE
    },
    "a service of a user": {"service": {"app": {"scope": "user"}}},
    "inclusive groups": {"user": {"jane": {"membership": "inclusive"}}},
    "a package from a URL": {"package": {"app": {"source": "https://example.com/app.deb"}}},
    "a setting without format": {"setting": {"a": {"path": "/etc/a", "key": "a", "value": "1"}}},
    "a line without match": {"line": {"a": {"path": "/etc/a", "line": "a", "match_all": True}}},
    "a suite without components": {
        "repository": {"a": {"url": "https://example.com", "key": "files/key.asc", "suites": ["stable"]}}
    },
}


def codes(directory: Path, resource: dict[str, object]) -> set[ProblemCode]:
    (directory / MANIFEST).write_text(
        json.dumps({"resources": [{kind: [item] for kind, item in resource.items()}]})
    )
    linted = lint_bundle(ManifestSource(directory / MANIFEST, MANIFEST), Inputs({}, {}))
    return {problem.code for problem in linted.errors()}


@pytest.mark.parametrize("resource", CASES.values(), ids=CASES)
def test_missing_properties_have_their_code(tmp_path: Path, resource: dict[str, object]) -> None:
    assert ProblemCode.MISSING_PROPERTY in codes(tmp_path, resource)


def test_another_checksum_has_its_code() -> None:
    with pytest.raises(ResourceError) as raised:
        fetched(lambda url: b"a", "https://example.com/a", "0" * 64)
    assert raised.value.code is ProblemCode.CHECKSUM_MISMATCH
