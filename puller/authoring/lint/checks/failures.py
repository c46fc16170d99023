"""Resources that fail with the facts at hand.

A fact that is not at hand may be there on the machines that the bundle is for: what needs it is unchecked.
"""

import re
from collections.abc import Iterator

from puller.authoring.lint.findings import Finding
from puller.authoring.lint.sentences import FAILED, needs_facts, of_resource
from puller.authoring.lint.subject import Subject
from puller.manifest.declaration import Declaration


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each resource that fails."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        if declaration.failure:
            yield failure_of(declaration, declaration.failure, subject)


def failure_of(
    declaration: Declaration, failure: str, subject: Subject, *, is_of_host: bool = False
) -> Finding:
    """The finding of a resource that fails; a loop that fails says so itself, of its items each says which.

    ``is_of_host``: it may be for want of a fact.
    """
    rule = FAILED if is_of_host or needs_facts(failure) else "resource-fails"
    item = f" ({declaration.item})" if declaration.looped is not None else ""
    name = re.split(r"\W", failure, maxsplit=1)[0]  # of the property, where it is one that failed
    return of_resource(rule, declaration, f"{failure}{item}", name, subject)
