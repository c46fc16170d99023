"""Problems that hosts would report about the manifest: failures, exports, unknown properties and warnings.

* A missing fact may exist on the hosts of the bundle. A resource or export that needs it is unchecked.
* An export is wrong if it does not fit its type with the available facts, or if it is a secret.
* An unknown property may have an expression that needs facts. A host that has the facts rejects the manifest because
  of the name. Without the facts, lint would only report the expression.
* ``unused_data`` reports the warnings about annotations.
"""

from collections.abc import Iterator

import msgspec

from foundation.problems import Problem, ProblemCode
from foundation.suggestions import meant
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.subject import Subject, failure, finding, needs_facts
from puller.manifest.declaration import Declaration


def _failures(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each failure of a resource."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        for problem in declaration.failures:
            yield failure(declaration, problem, subject)


def _exports(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each invalid export."""
    if subject.manifest is None or not subject.manifest.export_problems:
        return
    for problem in subject.manifest.export_problems:
        if problem.code is ProblemCode.EXPOSED_SECRET:  # it is secret on every host
            yield finding(problem, subject)
        elif needs_facts(problem):
            yield finding(problem, subject, Severity.UNCHECKED, ProblemCode.DEPENDS_ON_FACTS)
        else:
            yield finding(problem, subject, Severity.WARNING, ProblemCode.RESOURCE_FAILS)


def _properties(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each unknown property."""
    for declared in subject.manifest.declarations if subject.manifest else ():
        for declaration in declared.places():
            for problem in _unknown(declaration):
                yield finding(problem, subject)


def _unknown(declaration: Declaration) -> Iterator[Problem]:
    if not declaration.unknown:
        return
    resource_type = declaration.type
    names = [field.encode_name for field in msgspec.structs.fields(resource_type.properties_type)]
    for name in sorted(declaration.unknown - {*names}):
        detail = f"{name} is not a property of {resource_type.type_name}"
        code = ProblemCode.UNKNOWN_PROPERTY
        problem = Problem(code=code, message=detail, property=name, **meant(name, names))
        yield declaration.located(name, problem)


def _warnings(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each warning."""
    for problem in subject.manifest.warnings if subject.manifest else ():
        if problem.code is ProblemCode.HOST_WARNING:  # `annotations` reports the others
            yield finding(problem, subject)


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings of all four kinds."""
    yield from _exports(subject)
    yield from _failures(subject)
    yield from _warnings(subject)
    yield from _properties(subject)
