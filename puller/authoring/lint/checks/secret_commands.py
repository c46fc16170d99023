"""Secrets that the process list would show."""

from collections.abc import Iterator

from puller.authoring.lint.findings import Finding
from puller.authoring.lint.sentences import of_resource
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each property that is a command line, and made of a secret."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        for name in sorted(declaration.secret & declaration.type.command_lines):
            what = f"{name} is made of a secret, which the process list shows while the command runs"
            advice = "hand it over in the environment, or in a file"
            yield of_resource("secret-on-command-line", declaration, f"{what}: {advice}", name, subject)
