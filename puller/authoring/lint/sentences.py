"""Sentences of other parts of Puller, *file:line: what*, made into findings."""

import os
import re

from puller.authoring.lint.findings import Finding, Place
from puller.authoring.lint.rules import RULES
from puller.authoring.lint.subject import Subject
from puller.manifest.declaration import Declaration

# A place never holds what ends it, or a line number in the words behind would be taken for one.
_PLACED = re.compile(
    r"(?P<file>(?:(?!: )[^\n])+?):(?P<line>\d+)(?::(?P<column>\d+))?: (?P<what>.+)", re.DOTALL
)
_NAMED = re.compile(r"(?P<file>(?:(?!: )[^\n])*\.[A-Za-z0-9_]+): (?P<what>.+)", re.DOTALL)

FAILED = "depends-on-facts"
"""The rule of what has failed for want of a fact."""
_NEEDS_FACTS = re.compile(
    r"\b(?:facts|environ)\b[^\s:]* has no key"
    r"|\{\{.*\b(?:facts|environ)\b.*: there is no key |is not run where this machine's facts are left out"
)
# What an expression gives, what data must be, what another bundle declares, what only the hosts' key opens.
_UNDECLARED = "which is not declared"
_OF_NO_HOST = ", and would be shown"
"""Said of a name that is made of a secret, whose expression may be a part of the sentence."""
_NEEDS_HOST = re.compile(
    r"\{\{|%\{| has no key |"
    + _UNDECLARED
    + r"|is required and has no value|does not satisfy: |cannot be validated: "
    r"|decrypt|private key|\(rendered\)"
)


def needs_facts(sentence: str) -> bool:
    """Whether something cannot be told for want of facts, which may be there on the hosts."""
    return _NEEDS_FACTS.search(sentence) is not None


def refusal(sentence: str, subject: Subject, *, of_any_host: bool) -> Finding:
    """The finding of a sentence that a manifest is refused with: an error, where it can be told.

    ``of_any_host``: whatever facts, data and other bundles could mend is unchecked.
    """
    if needs_facts(sentence) or (of_any_host and _needs_host(sentence)):
        return finding(FAILED, sentence, subject)
    return finding("manifest", sentence, subject)


def _needs_host(sentence: str) -> bool:
    return _OF_NO_HOST not in sentence and _NEEDS_HOST.search(sentence) is not None


def is_undeclared(found: Finding) -> bool:
    """Whether a finding is of a reference to what the bundle does not declare, and another one of its hosts may."""
    return _UNDECLARED in found.message


def finding(rule: str, sentence: str, subject: Subject) -> Finding:
    """The finding that a sentence tells, with the severity of its rule; one without a place is of the manifest."""
    place, message = _split(sentence, subject)
    return Finding(rule, RULES[rule].severity, place, message)


def of_resource(rule: str, declaration: Declaration, message: str, name: str, subject: Subject) -> Finding:
    """The finding of a resource, at its property ``name``, or at itself where that stands elsewhere."""
    sentence = f"{declaration.reference}: {message}"
    return finding(rule, declaration.problems.worded((*declaration.path, name), sentence), subject)


def _split(sentence: str, subject: Subject) -> tuple[Place, str]:
    if found := _PLACED.fullmatch(sentence):
        file = _shown(found["file"], subject)
        column = int(found["column"] or 0) or _column(sentence, subject)
        return Place(file, int(found["line"]), column), found["what"]
    if found := _NAMED.fullmatch(sentence):
        return Place(_shown(found["file"], subject)), found["what"]
    return Place(subject.manifest_name), sentence


def _column(sentence: str, subject: Subject) -> int:
    """The column that a sentence is about; 0 where it is not known."""
    return max((text.columns.get(sentence, 0) for text in subject.texts), default=0)


def _shown(file: str, subject: Subject) -> str:
    """A file below the bundle as the user has named that, whoever has named the file."""
    root = os.path.realpath(subject.directory)
    if os.path.isabs(file) and file.startswith(f"{root}/"):
        return os.path.join(subject.name, os.path.relpath(file, root))
    if not file.startswith(f"{subject.name}/") and (subject.directory / file).exists():
        return os.path.join(subject.name, file)
    return file
