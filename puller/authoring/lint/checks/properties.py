"""Properties that no resource of the type has, and whose values are expressions that need facts.

A host has the facts, and refuses the manifest for the name; here the expression has failed first.
"""

from collections.abc import Iterator

import msgspec

from puller.authoring.lint.findings import Finding
from puller.authoring.lint.sentences import finding
from puller.authoring.lint.subject import Subject
from puller.manifest.declaration import Declaration
from puller.values.suggestions import did_you_mean


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each such property."""
    for declared in subject.manifest.declarations if subject.manifest else ():
        for declaration in declared.places():
            for sentence in _unknown(declaration):
                yield finding("manifest", sentence, subject)


def _unknown(declaration: Declaration) -> Iterator[str]:
    if not declaration.unknown:
        return
    of = declaration.type
    names = [field.encode_name for field in msgspec.structs.fields(of.properties_type)]
    for name in sorted(declaration.unknown - {*names}):
        what = f"{name} is not a property of {of.type_name}{did_you_mean(name, names)}"
        subject = f"{declaration.label} {declaration.subject(name)}"
        yield declaration.problems.worded((*declaration.path, name), what, subject)
