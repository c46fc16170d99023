"""Exports that a host could not report: with the available facts they do not fit their types, or they are secrets.

A missing fact may exist on the machines of the bundle, so an export that needs it is unchecked.
"""

from collections.abc import Iterator

from foundation.problems import ProblemCode
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.refusals import finding, needs_facts
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each such export."""
    if subject.manifest is None or not subject.manifest.export_problems:
        return
    for problem in subject.manifest.export_problems:
        if problem.code is ProblemCode.EXPOSED_SECRET:  # it is secret on every host
            yield finding(problem, subject)
        elif needs_facts(problem):
            yield finding(problem, subject, Severity.UNCHECKED, ProblemCode.DEPENDS_ON_FACTS)
        else:
            yield finding(problem, subject, Severity.WARNING, ProblemCode.RESOURCE_FAILS)
