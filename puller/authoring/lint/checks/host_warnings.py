"""Warnings of every host that reads the manifest, except warnings of annotations."""

from collections.abc import Iterator

from foundation.problems import ProblemCode
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.refusals import finding
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each warning."""
    for problem in subject.manifest.warnings if subject.manifest else ():
        if problem.code is ProblemCode.HOST_WARNING:  # `annotations` reports the others
            yield finding(problem, subject)
