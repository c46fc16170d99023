"""Warnings of every host that reads the manifest, other than those of annotations."""

from collections.abc import Iterator

from puller.authoring.lint.checks.annotations import sentences
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.sentences import finding
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each warning."""
    told = set(sentences(subject))
    for sentence in subject.manifest.warnings if subject.manifest else ():
        if sentence not in told:
            yield finding("host-warning", sentence, subject)
