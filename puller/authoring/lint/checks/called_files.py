"""Files that the expressions of manifests ask for by constant paths, and the bundle does not have.

``missing-file``: those of ``read_file`` (also ``readFile`` and ``file``) and ``template``. Templates are looked at by
``templates``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from puller.authoring.lint.called import in_expressions
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.names.bundle import ManifestFile, bundle_of
from puller.authoring.lint.names.expressions import Parsed, parse_condition, parse_text
from puller.authoring.lint.subject import Subject
from puller.manifest.entries import FOR

Path = tuple[str | int, ...]


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each such call."""
    for manifest in bundle_of(subject).manifests.values():
        for key in ("resources", "exports", "pre_message", "post_message"):
            path = (*manifest.run_path, key)
            for where, parsed in _parsed(manifest.run.get(key), path):
                yield from _found(manifest, where, parsed)


def _found(manifest: ManifestFile, path: Path, parsed: Parsed) -> Iterator[Finding]:
    yield from in_expressions(parsed, manifest.files, manifest.yaml.part(path))


def _parsed(value: Any, path: Path) -> Iterator[tuple[Path, Parsed]]:
    """All texts with expressions below a value, and those that are expressions without braces."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parsed(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _parsed(item, (*path, index))
    elif isinstance(value, str):
        if "{{" in value:
            yield path, parse_text(value)
        elif "(" in value and ("control" in path[-2:-1] or path[-1] == FOR):
            yield path, parse_condition(value)
