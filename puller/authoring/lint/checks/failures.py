"""Resources that fail with the facts at hand.

A missing fact may exist on the hosts of the bundle: a resource that needs it is unchecked.
"""

from collections.abc import Iterator

from puller.authoring.lint.findings import Finding
from puller.authoring.lint.refusals import failure
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each failure of a resource."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        for problem in declaration.failures:
            yield failure(declaration, problem, subject)
