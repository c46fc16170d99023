"""Problems of the manifest, as a host would find them, become findings.

* A problem that every host has is an error, with its own code.
* A problem that the facts, data, bundles or keys of another host solve is unchecked, or a warning of a resource.
"""

import os

from foundation.problems import DependsOn, Location, Problem, ProblemCode, replaced
from puller.authoring.lint.findings import Finding, Severity, severity_of
from puller.authoring.lint.subject import Subject
from puller.manifest.declaration import Declaration


def needs_facts(problem: Problem) -> bool:
    """Return whether a missing fact, which a host may have, is the reason."""
    return problem.code is ProblemCode.UNDEFINED_FACT


def refusal(problem: Problem, subject: Subject, *, of_any_host: bool) -> Finding:
    """Return the finding for a problem that refuses the manifest. ``of_any_host``: no host is known."""
    is_open = of_any_host and problem.depends_on is not DependsOn.NOTHING
    if needs_facts(problem) or is_open:
        return finding(problem, subject, Severity.UNCHECKED)
    return finding(problem, subject, Severity.ERROR)


def finding(
    problem: Problem, subject: Subject, severity: Severity | None = None, rule: ProblemCode | None = None
) -> Finding:
    """Return the finding for a problem, by default with the severity and the rule of its code."""
    related = tuple(_shown(location, subject) for location in problem.related)
    location = _shown(problem.location, subject)
    return Finding(
        replaced(problem, location=location, related=related, entry=problem.entry),
        severity or severity_of(problem.code),
        rule,
    )


def of_resource(
    declaration: Declaration,
    problem: Problem,
    subject: Subject,
    severity: Severity | None = None,
    rule: ProblemCode | None = None,
) -> Finding:
    """Return the finding for a problem of a resource, at its property, or at the resource if it stands elsewhere."""
    placed = replaced(
        declaration.located(problem.property, problem), entry="", subject=str(declaration.reference)
    )
    return finding(placed, subject, severity or severity_of(rule or problem.code), rule)


def failure(
    declaration: Declaration, problem: Problem, subject: Subject, *, is_of_host: bool = False
) -> Finding:
    """Return the finding for a resource that fails with the facts at hand. ``is_of_host``: a fact may be the reason."""
    rule = ProblemCode.RESOURCE_FAILS
    if is_of_host or needs_facts(problem):
        rule = ProblemCode.DEPENDS_ON_FACTS
    if declaration.looped is not None:  # a failed loop names itself, but an item does not
        problem = replaced(problem, message=f"{problem.message} ({declaration.item})")
    return of_resource(declaration, problem, subject, rule=rule)


def _shown(location: Location, subject: Subject) -> Location:
    """Return the location with the file as the user named the bundle."""
    if not location.file:
        return Location(subject.manifest_name)
    root = os.path.realpath(subject.directory)
    file = location.file
    if os.path.isabs(file) and file.startswith(f"{root}/"):
        file = os.path.join(subject.name, os.path.relpath(file, root))
    elif not file.startswith(f"{subject.name}/") and (subject.directory / file).exists():
        file = os.path.join(subject.name, file)
    return Location(file, location.line, location.column, location.path)
