"""Unknown properties whose values are expressions that need facts.

A host has the facts and refuses the manifest for the name. Here the expression fails first.
"""

from collections.abc import Iterator

import msgspec

from foundation.problems import Problem, ProblemCode
from foundation.suggestions import meant
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.refusals import finding
from puller.authoring.lint.subject import Subject
from puller.manifest.declaration import Declaration


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each such property."""
    for declared in subject.manifest.declarations if subject.manifest else ():
        for declaration in declared.places():
            for problem in _unknown(declaration):
                yield finding(problem, subject)


def _unknown(declaration: Declaration) -> Iterator[Problem]:
    if not declaration.unknown:
        return
    of = declaration.type
    names = [field.encode_name for field in msgspec.structs.fields(of.properties_type)]
    for name in sorted(declaration.unknown - {*names}):
        what = f"{name} is not a property of {of.type_name}"
        code = ProblemCode.UNKNOWN_PROPERTY
        problem = Problem(code=code, message=what, property=name, **meant(name, names))
        yield declaration.located(name, problem)
