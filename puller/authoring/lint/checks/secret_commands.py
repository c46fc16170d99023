"""Secrets that the process list would show."""

from collections.abc import Iterable, Iterator

from foundation.problems import Problem, ProblemCode
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.refusals import of_resource
from puller.authoring.lint.subject import Subject
from puller.checks.kinds import HealthCheck


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each command line that contains a secret."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        for name in sorted(declaration.secret & declaration.type.command_lines):
            if name == "health_checks" and not _has_commands(declaration.properties.health_checks):
                continue
            what = f"{name} is made of a secret, which the process list shows while the command runs"
            advice = "hand it over in the environment, or in a file"
            code = ProblemCode.SECRET_ON_COMMAND_LINE
            problem = Problem(code=code, message=what, property=name, hint=advice)
            yield of_resource(declaration, problem, subject)


def _has_commands(checks: Iterable[HealthCheck]) -> bool:
    """Return whether a check starts a program of the manifest. Other checks have no command line."""
    return any(check.command is not None for check in checks)
