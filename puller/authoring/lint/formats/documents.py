"""Findings as JSON: a plain document, and SARIF 2.1.0."""

import json
from typing import Any, Final
from urllib.parse import quote

from foundation.formatting import plain
from foundation.problem_pages import address_of, load_entries
from foundation.problems import Location, ProblemCode
from puller.authoring.lint.check import Linted
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.rules import severity_of, summary_of
from puller.values.visible import visible_json
from puller.version import __version__

SARIF_SCHEMA: Final = (
    "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json"
)
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.UNCHECKED: "note"}


def as_json(linted: Linted) -> str:
    """The plain document."""
    document = {
        "manifest": linted.name,
        "resources": linted.resources,
        "errors": len(linted.of(Severity.ERROR)),
        "warnings": len(linted.of(Severity.WARNING)),
        "unchecked": len(linted.of(Severity.UNCHECKED)),
        "findings": [_plain(found) for found in linted.findings],
    }
    return visible_json(json.dumps(document, indent=2, ensure_ascii=False))


def _plain(found: Finding) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "severity": str(found.severity),
        "file": found.place.file,
        "line": found.place.line or None,
        "column": found.place.column or None,
        "message": found.message,
        "problem": plain(found.problem),
    }


def as_sarif(linted: Linted, documents: str = "") -> str:
    """Return the findings for code scanners. Unchecked ones are notes.

    ``documents`` is the address of a site with the documents of Puller. The format allows no relative ``helpUri``.
    """
    names = sorted({found.rule for found in linted.findings})
    driver = {
        "name": "puller lint",
        "version": __version__,
        "rules": [_described(name, documents) for name in names],
    }
    results = [_result(found, names.index(found.rule)) for found in linted.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return visible_json(json.dumps(document, indent=2, ensure_ascii=False))


def _described(code: ProblemCode, documents: str) -> dict[str, Any]:
    entry = load_entries()[code]
    rule = {
        "id": code,
        "shortDescription": {"text": summary_of(code)},
        "help": {"text": entry.text(), "markdown": entry.markdown(code)},
        "defaultConfiguration": {"level": _LEVELS[severity_of(code)]},
    }
    return {**rule, "helpUri": address_of(code, documents)} if documents else rule


def _result(found: Finding, index: int) -> dict[str, Any]:
    return {
        "ruleId": found.rule,
        "ruleIndex": index,
        "level": _LEVELS[found.severity],
        "message": {"text": found.message},
        "locations": [{"physicalLocation": _location(found.place)}],
    }


def _location(place: Location) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(place.file, errors="surrogateescape")}}
    if place.line:
        columns = {"startColumn": place.column} if place.column else {}
        location["region"] = {"startLine": place.line, **columns}
    return location
