"""Findings for people: one line each, then a summary."""

import os
from collections.abc import Iterator

from foundation.problem_pages import EXPLANATIONS
from foundation.quantities import counted
from puller.authoring.lint.check import Linted
from puller.authoring.lint.findings import Finding, Severity
from puller.values.colour import coloured
from puller.values.visible import visible

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.UNCHECKED: "dim"}
_UNCHECKED = "expression not checked", "expressions not checked"


def lines(linted: Linted, *, verbose: bool = False, colours: bool = False) -> Iterator[str]:
    """Yield a line for each finding, the summary, and the command that explains codes.

    Unchecked findings are counted, and listed only if ``verbose``. ``colours`` paints the severities.
    """
    shown = [one for one in linted.findings if verbose or one.severity is not Severity.UNCHECKED]
    for finding in shown:
        yield _in_colour(finding) if colours else visible(str(finding))
    if shown:
        yield EXPLANATIONS
    yield summary(linted)


def _in_colour(found: Finding) -> str:
    severity = coloured(str(found.severity), _COLOURS[found.severity])
    return f"{visible(str(found.place))}: {severity}: {visible(found.message)} [{found.rule}]"


def summary(linted: Linted) -> str:
    """``web: 12 resources, 1 error, 2 warnings, 3 expressions not checked``."""
    errors, warnings, unchecked = (len(linted.of(severity)) for severity in Severity)
    parts = [
        *([] if linted.resources is None else [counted(linted.resources, "resource")]),
        counted(errors, "error"),
        counted(warnings, "warning"),
        *([counted(unchecked, *_UNCHECKED)] if unchecked else []),
    ]
    return f"{visible(_bundle(linted.name))}: {', '.join(parts)}"


def _bundle(name: str) -> str:
    """``web`` for ``web/manifest.yaml``; any other manifest by its own name."""
    directory, file = os.path.split(name)
    return directory if directory and file == "manifest.yaml" else name
