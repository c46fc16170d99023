"""Output formats of findings: text, JSON, SARIF 2.1.0, GitHub workflow commands and JUnit XML.

* Text has one line for each finding and a summary.
* GitHub shows workflow commands beside the lines of a change.
* In JUnit XML each file is a test case, which fails if the file has errors.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from foundation.formatting import plain
from foundation.problem_pages import EXPLANATIONS, address_of, load_entries
from foundation.problems import Location, ProblemCode
from foundation.quantities import counted
from puller.authoring.lint.check import Linted
from puller.authoring.lint.findings import Finding, Severity, severity_of, summary_of
from puller.values.colour import coloured
from puller.values.foreign_text import visible, visible_json
from puller.version import __version__

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.UNCHECKED: "dim"}
_UNCHECKED = "expression not checked", "expressions not checked"


def text_lines(linted: Linted, *, verbose: bool = False, colours: bool = False) -> Iterator[str]:
    """Yield a line for each finding, the summary, and the command that explains codes.

    Unchecked findings are counted, and listed only if ``verbose``. ``colours`` paints the severities.
    """
    shown = [one for one in linted.findings if verbose or one.severity is not Severity.UNCHECKED]
    for finding in shown:
        line = _in_colour(finding) if colours else visible(str(finding))
        count = linted.counts.get(finding, linted.machines)
        yield line if count == linted.machines else f"{line} (on {count} of {linted.machines} machines)"
    if shown:
        yield EXPLANATIONS
    yield summary(linted)


def _in_colour(problems: Finding) -> str:
    severity = coloured(str(problems.severity), _COLOURS[problems.severity])
    return f"{visible(str(problems.place))}: {severity}: {visible(problems.message)} [{problems.rule}]"


def summary(linted: Linted) -> str:
    """Return the summary ``web: 12 resources, 1 error, 2 warnings, 3 expressions not checked``."""
    errors, warnings, unchecked = (len(linted.of(severity)) for severity in Severity)
    pieces = [
        *([] if linted.resources is None else [counted(linted.resources, "resource")]),
        counted(errors, "error"),
        counted(warnings, "warning"),
        *([counted(unchecked, *_UNCHECKED)] if unchecked else []),
    ]
    return f"{visible(_bundle(linted.name))}: {', '.join(pieces)}"


def _bundle(name: str) -> str:
    """Return ``web`` for ``web/manifest.yaml``. Other manifests keep their names."""
    directory, file = os.path.split(name)
    return directory if directory and file == "manifest.yaml" else name


SARIF_SCHEMA: Final = (
    "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json"
)
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.UNCHECKED: "note"}


def as_json(linted: Linted) -> str:
    """Return the findings as JSON."""
    document = {
        "manifest": linted.name,
        "resources": linted.resources,
        "errors": len(linted.of(Severity.ERROR)),
        "warnings": len(linted.of(Severity.WARNING)),
        "unchecked": len(linted.of(Severity.UNCHECKED)),
        "findings": [_finding_as_json(finding) for finding in linted.findings],
    }
    return visible_json(json.dumps(document, indent=2, ensure_ascii=False))


def _finding_as_json(problems: Finding) -> dict[str, Any]:
    return {
        "rule": problems.rule,
        "severity": str(problems.severity),
        "file": problems.place.file,
        "line": problems.place.line or None,
        "column": problems.place.column or None,
        "message": problems.message,
        "problem": plain(problems.problem),
    }


def as_sarif(linted: Linted, documents: str = "") -> str:
    """Return the findings for code scanners. Unchecked ones are notes.

    ``documents`` is the address of a site with the documents of Puller. The format allows no relative ``helpUri``.
    """
    names = sorted({finding.rule for finding in linted.findings})
    driver = {
        "name": "puller lint",
        "version": __version__,
        "rules": [_sarif_rule(name, documents) for name in names],
    }
    results = [_sarif_result(finding, names.index(finding.rule)) for finding in linted.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return visible_json(json.dumps(document, indent=2, ensure_ascii=False))


def _sarif_rule(code: ProblemCode, documents: str) -> dict[str, Any]:
    entry = load_entries()[code]
    rule = {
        "id": code,
        "shortDescription": {"text": summary_of(code)},
        "help": {"text": entry.text(), "markdown": entry.markdown(code)},
        "defaultConfiguration": {"level": _LEVELS[severity_of(code)]},
    }
    return {**rule, "helpUri": address_of(code, documents)} if documents else rule


def _sarif_result(problems: Finding, index: int) -> dict[str, Any]:
    return {
        "ruleId": problems.rule,
        "ruleIndex": index,
        "level": _LEVELS[problems.severity],
        "message": {"text": problems.message},
        "locations": [{"physicalLocation": _sarif_location(problems.place)}],
    }


def _sarif_location(place: Location) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(place.file, errors="surrogateescape")}}
    if place.line:
        columns = {"startColumn": place.column} if place.column else {}
        location["region"] = {"startLine": place.line, **columns}
    return location


_GITHUB_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.UNCHECKED: "notice"}
# Escapes of the runner: a message ends at a line break, a property also at a comma or colon.
_GITHUB_MESSAGE_ESCAPES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_GITHUB_PROPERTY_ESCAPES: Final = str.maketrans(
    {"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"}
)


def github_lines(linted: Linted, *, verbose: bool = False) -> Iterator[str]:
    """Yield a command for each finding, and the summary. Unchecked findings require ``verbose``."""
    for finding in linted.findings:
        if verbose or finding.severity is not Severity.UNCHECKED:
            yield _github_command(finding)
    yield summary(linted)


def _github_command(problems: Finding) -> str:
    place = problems.place
    properties = {"file": place.file, "line": place.line, "col": place.column, "title": problems.rule}
    written = ",".join(
        f"{key}={visible(str(value)).translate(_GITHUB_PROPERTY_ESCAPES)}"
        for key, value in properties.items()
        if value
    )
    message = visible(problems.message).translate(_GITHUB_MESSAGE_ESCAPES)
    return f"::{_GITHUB_COMMANDS[problems.severity]} {written}::{message}"


# Characters that XML 1.0 cannot contain.
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(linted: Linted) -> str:
    """Return the document. Warnings are in the output of their case."""
    cases: dict[str, list[Finding]] = {linted.name: []}
    for file, of_file in groupby(linted.findings, key=lambda result: result.place.file):
        cases.setdefault(file, []).extend(of_file)
    failures = sum(any(map(_is_error, findings)) for findings in cases.values())
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": "0"}
    root = ET.Element("testsuites", {"name": "puller lint", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "puller lint", **counts, "time": "0"})
    for file, findings in cases.items():
        _add_junit_case(suite, file, findings)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False)


def _add_junit_case(suite: ET.Element, file: str, findings: Iterable[Finding]) -> None:
    case = ET.SubElement(
        suite, "testcase", {"name": _xml_text(file), "classname": "puller.lint", "time": "0"}
    )
    errors: list[str] = []
    others: list[str] = []
    for finding in findings:
        (errors if _is_error(finding) else others).append(_xml_text(str(finding)))
    if errors:
        first = {"message": errors[0], "type": "error"}
        ET.SubElement(case, "failure", first).text = "\n".join(errors)
    if others:
        ET.SubElement(case, "system-out").text = "\n".join(others)


def _is_error(problems: Finding) -> bool:
    return problems.severity is Severity.ERROR


def _xml_text(text: str) -> str:
    return _NOT_IN_XML.sub("�", visible(text))
