"""Packed but unused libraries."""

from collections.abc import Iterator

from puller.authoring.lint.findings import Finding
from puller.authoring.lint.refusals import finding
from puller.authoring.lint.subject import Subject
from puller.manifest.libraries import unused_libraries


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each unused library."""
    manifest = subject.manifest
    if manifest is None or not manifest.files.libraries:
        return

    for problem in unused_libraries(manifest.files, manifest.name):
        yield finding(problem, subject)
