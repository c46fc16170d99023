"""Resources that fail with the facts at hand.

A fact that is not at hand may be there on the machines that the bundle is for: what needs it is unchecked.
"""

from collections.abc import Iterator

from puller.authoring.lint.findings import Finding
from puller.authoring.lint.sentences import FAILED, finding, needs_facts
from puller.authoring.lint.subject import Subject
from puller.manifest.declaration import Declaration


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each resource that fails."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        if declaration.failure:
            rule = FAILED if needs_facts(declaration.failure) else "resource-fails"
            yield finding(rule, _sentence(declaration), subject)


def _sentence(declaration: Declaration) -> str:
    """A loop that fails says so itself, of its items each says which."""
    item = f" ({declaration.item})" if declaration.looped is not None else ""
    return f"{declaration.where}: {declaration.reference}: {declaration.failure}{item}"
