"""Exports that a host could not report: with the facts at hand they do not fit their types, or they are secrets.

A fact that is not at hand may be there on the machines that the bundle is for: what needs it is unchecked.
"""

from collections.abc import Iterator

from puller.authoring.lint.findings import Finding
from puller.authoring.lint.sentences import FAILED, finding, needs_facts
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each such export."""
    if subject.manifest is None or not subject.manifest.export_problems:
        return
    from puller.manifest.exported import NEVER

    for sentence in subject.manifest.export_problems:
        # What is a secret here is one everywhere.
        failing = FAILED if needs_facts(sentence) else "resource-fails"
        yield finding("manifest" if sentence.endswith(NEVER) else failing, sentence, subject)
