"""Problems that hosts would report: about the manifest, and about resources when they are applied.

The manifest has failures, exports, unknown properties and warnings:

* A missing fact may exist on the hosts of the bundle. A resource or export that needs it is unchecked.
* An export is wrong if it does not fit its type with the available facts, or if it is a secret.
* An unknown property may have an expression that needs facts. A host that has the facts rejects the manifest because
  of the name. Without the facts, lint would only report the expression.
* ``data.py`` reports the warnings about annotations.

Resources may fail with the available facts when they are applied, for example because a template fails:

* Templates are rendered and sources located as in ``puller test``, without changes of the machine.
* Compiling a template takes much longer than following its names. Therefore only some are rendered, and the number of
  skipped resources is reported as unchecked.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from foundation.problems import DependsOn, Location, Problem, ProblemCode
from foundation.suggestions import meant
from puller.authoring.lint.findings import Finding, Severity, Subject, failure, finding, needs_facts
from puller.authoring.resolution import Failing
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
            yield finding(problem, subject, rule=ProblemCode.DEPENDS_ON_FACTS)
        else:
            yield finding(problem, subject, rule=ProblemCode.RESOURCE_FAILS)


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


def check_manifest(subject: Subject) -> Iterator[Finding]:
    """Yield the findings of all four kinds."""
    yield from _exports(subject)
    yield from _failures(subject)
    yield from _warnings(subject)
    yield from _properties(subject)


_MOST: Final = 20  # maximum files to render, in a few tenths of a second


def check_rendering(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each resource that fails when it is applied."""
    if subject.manifest is None:
        return

    failing = Failing(_MOST)
    for declaration, problems in failing.of(subject.manifest):
        for problem in problems:
            # The failing line names a missing fact. A variable that was set from a fact is not recognised.
            is_of_host = problem.depends_on is DependsOn.FACTS
            yield failure(declaration, problem, subject, is_of_host=is_of_host)
    if failing.left_out:
        detail = f"the files of {failing.left_out} further resources are not rendered. `puller test` renders all files"
        place = Location(subject.manifest_name)
        yield Finding.of(ProblemCode.RESOURCE_FAILS, place, detail, severity=Severity.UNCHECKED)
