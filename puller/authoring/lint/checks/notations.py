"""YAML with an unintended meaning: the notation of another tool, and octal numbers."""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from foundation.problems import Location, ProblemCode
from hiera.document.foreign_notation import find_foreign
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.subject import Subject
from puller.manifest.problems import Problems

_OCTAL: Final = re.compile(r"0[0-7_]*[1-7][0-7_]*")
_MAYBE_OCTAL: Final = re.compile(r"(?<![\w.'\"])0[0-7_]+\b")

_FILTERS: Final = "Jinja2 has no equivalent, so use filters such as select, map and length"


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all texts, and in the given data documents."""
    provided = (Problems.of_text(str(path), path.read_text()) for path in subject.data_files)
    for text in (*subject.texts, *provided):
        yield from _foreign(text)
        yield from _octal(text)


def _foreign(text: Problems) -> Iterator[Finding]:
    """Yield expressions of CCM: errors where they are evaluated, and warnings where they would be installed literally.

    ``puller apply`` evaluates them in a manifest of CCM. A published bundle has one notation.
    """
    for match in find_foreign(text.text):
        severity = Severity.ERROR if match.is_evaluated else Severity.WARNING
        detail = "is an expression of CCM" if match.is_evaluated else "is ordinary text here"
        column = text.line(match.line).find(match.text) + 1
        fix = f"write {match.replacement}" if match.replacement else _FILTERS
        message = text.mask(f"{match.text} {detail}: {fix}")
        place = Location(text.source, match.line, column)
        yield Finding.of(ProblemCode.FOREIGN_EXPRESSION, severity, place, message)


def _octal(text: Problems) -> Iterator[Finding]:
    """Yield numbers such as ``0644``, which YAML reads as 420."""
    if not _MAYBE_OCTAL.search(text.text):
        return
    try:
        for event in yaml.parse(text.text, yaml.CSafeLoader):
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _OCTAL.fullmatch(event.value):
                mark: Any = event.start_mark  # the types allow events without one
                detail = f"{event.value} is the number {int(event.value, 8)}: quote it, '{event.value}', for a mode"
                yield _warning(
                    ProblemCode.UNQUOTED_OCTAL,
                    text,
                    Location(text.source, mark.line + 1, mark.column + 1),
                    detail,
                )
    except yaml.YAMLError:
        return  # already reported


def _warning(code: ProblemCode, text: Problems, place: Location, description: str) -> Finding:
    return Finding.of(code, Severity.WARNING, place, text.mask(description))
