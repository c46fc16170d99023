"""Findings as JUnit's XML: each file a test case, which fails when it has errors."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final
from xml.etree import ElementTree as ET

from puller.authoring.lint.check import Linted
from puller.authoring.lint.findings import Finding, Severity
from puller.values.visible import visible

# What XML 1.0 has no way to write.
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(linted: Linted) -> str:
    """The document; what is no error is in the output of its case."""
    cases: dict[str, list[Finding]] = {linted.name: []}
    for file, of_file in groupby(linted.findings, key=lambda found: found.place.file):
        cases.setdefault(file, []).extend(of_file)
    failures = sum(any(map(_is_error, findings)) for findings in cases.values())
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": "0"}
    root = ET.Element("testsuites", {"name": "puller lint", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "puller lint", **counts, "time": "0"})
    for file, findings in cases.items():
        _add_case(suite, file, findings)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False)


def _add_case(suite: ET.Element, file: str, findings: Iterable[Finding]) -> None:
    case = ET.SubElement(suite, "testcase", {"name": _written(file), "classname": "puller.lint", "time": "0"})
    errors: list[str] = []
    others: list[str] = []
    for found in findings:
        (errors if _is_error(found) else others).append(_written(str(found)))
    if errors:
        first = {"message": errors[0], "type": "error"}
        ET.SubElement(case, "failure", first).text = "\n".join(errors)
    if others:
        ET.SubElement(case, "system-out").text = "\n".join(others)


def _is_error(found: Finding) -> bool:
    return found.severity is Severity.ERROR


def _written(text: str) -> str:
    return _NO_XML.sub("�", visible(text))
