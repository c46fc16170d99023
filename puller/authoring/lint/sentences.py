"""Sentences of other parts of Puller, *file:line: what*, made into findings."""

import os
import re

from puller.authoring.lint.findings import Finding, Place
from puller.authoring.lint.rules import RULES
from puller.authoring.lint.subject import Subject

# A place never holds what ends it, or a line number in the words behind would be taken for one.
_PLACED = re.compile(
    r"(?P<file>(?:(?!: )[^\n])+?):(?P<line>\d+)(?::(?P<column>\d+))?: (?P<what>.+)", re.DOTALL
)
_NAMED = re.compile(r"(?P<file>(?:(?!: )[^\n])*\.[A-Za-z0-9_]+): (?P<what>.+)", re.DOTALL)


def finding(rule: str, sentence: str, subject: Subject) -> Finding:
    """The finding that a sentence tells, with the severity of its rule; one without a place is of the manifest."""
    place, message = _split(sentence, subject)
    return Finding(rule, RULES[rule].severity, place, message)


def _split(sentence: str, subject: Subject) -> tuple[Place, str]:
    if found := _PLACED.fullmatch(sentence):
        file = _shown(found["file"], subject)
        return Place(file, int(found["line"]), int(found["column"] or 0)), found["what"]
    if found := _NAMED.fullmatch(sentence):
        return Place(_shown(found["file"], subject)), found["what"]
    return Place(subject.manifest_name), sentence


def _shown(file: str, subject: Subject) -> str:
    """A file below the bundle as the user has named that, whoever has named the file."""
    root = os.path.realpath(subject.directory)
    if os.path.isabs(file) and file.startswith(f"{root}/"):
        return os.path.join(subject.name, os.path.relpath(file, root))
    if not os.path.dirname(file) and subject.name and (subject.directory / file).exists():
        return os.path.join(subject.name, file)
    return file
