"""Findings with the same cause, such as a misspelt name and the failure of its resource. Only the cause stays.

A finding is the consequence of another one if it names the same thing at the same place. The places are those of keys
in a document, and lines of templates.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foundation.problems import KeyPath, Location, ProblemCode
from puller.authoring.lint.findings import Finding, Severity

_NAMES = frozenset({ProblemCode.UNKNOWN_FUNCTION, ProblemCode.UNKNOWN_NAME})
_SYNTAX = frozenset({ProblemCode.EXPRESSION_SYNTAX, ProblemCode.TEMPLATE_SYNTAX})
_RESOLVING = frozenset({ProblemCode.DEPENDS_ON_FACTS, ProblemCode.RESOURCE_FAILS})
"""Rules of findings that may be consequences."""
_FOLLOWS_FROM = {
    **dict.fromkeys(
        (
            ProblemCode.EXPRESSION_FAILS,
            ProblemCode.UNDEFINED_DATA,
            ProblemCode.UNDEFINED_FACT,
            ProblemCode.UNKNOWN_NAME,
        ),
        _NAMES,
    ),
    ProblemCode.EXPRESSION_SYNTAX: _SYNTAX | _NAMES,
    ProblemCode.TEMPLATE_FAILS: _SYNTAX | _NAMES | {ProblemCode.MISSING_FILE},
    ProblemCode.MISSING_FILE: frozenset({ProblemCode.MISSING_FILE}),
}
"""By the code of a consequence: the codes of its possible causes."""


class _Cause(NamedTuple):
    code: ProblemCode
    name: str
    line: int
    path: KeyPath

    def explains(self, finding: Finding) -> bool:
        """Whether a finding in the same file follows from this mistake."""
        problem = finding.problem
        if self.code not in _FOLLOWS_FROM.get(problem.code, ()):
            return False
        # A text with wrong syntax is not evaluated at all, so the name does not matter.
        if self.code in _SYNTAX or problem.code is ProblemCode.EXPRESSION_SYNTAX:
            return True
        is_file = self.code is ProblemCode.MISSING_FILE and self._is_file(problem.name)
        return is_file or self.name == problem.name

    def _is_file(self, path: str) -> bool:
        """Whether a path, which may be absolute, is that of the missing file. Prefixes of trees do not count."""
        written = os.path.normpath(self.name.rpartition(":")[2])
        return path == written or os.path.normpath(path).endswith(f"/{written}")

    def is_at(self, place: Location) -> bool:
        return self.line == place.line or (bool(place.path) and self.path[: len(place.path)] == place.path)


def without_consequences(refusals: Iterable[Finding], findings: Iterable[Finding]) -> list[Finding]:
    """Return all findings but consequences of others. ``refusals`` are those of reading the manifest."""
    refusals, findings = list(refusals), list(findings)
    causes: dict[str, list[_Cause]] = defaultdict(list)
    for finding in findings:
        if finding.severity is Severity.ERROR and finding.rule not in _RESOLVING:
            problem, place = finding.problem, finding.place
            causes[_file(place)].append(_Cause(problem.code, problem.name, place.line, place.path))
    needed = {
        (finding.place.file, finding.problem.name)
        for finding in (*refusals, *findings)
        if finding.severity is Severity.UNCHECKED and finding.problem.code is ProblemCode.UNDEFINED_FACT
    }
    return [
        *(finding for finding in refusals if not _is_consequence(finding, causes)),
        *_kept(findings, causes, needed),
    ]


def _kept(
    findings: Iterable[Finding], causes: dict[str, list[_Cause]], needed: set[tuple[str, str]]
) -> Iterator[Finding]:
    for finding in findings:
        if finding.rule in _RESOLVING:
            if not _is_consequence(finding, causes):
                yield finding
        elif not (finding.severity is Severity.UNCHECKED and finding.rule in _NAMES) or (
            (finding.place.file, finding.problem.name) not in needed  # a resource reports the missing fact
        ):
            yield finding


def _is_consequence(finding: Finding, causes: dict[str, list[_Cause]]) -> bool:
    return any(
        cause.is_at(place) and cause.explains(finding)
        for place in (finding.place, *finding.problem.related)
        for cause in causes.get(_file(place), ())
    )


def _file(place: Location) -> str:
    # Templates of libraries have other names in messages.
    return os.path.basename(place.file)
