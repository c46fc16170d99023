"""Findings as workflow commands of GitHub, which shows them beside the lines of a change."""

from collections.abc import Iterator
from typing import Final

from puller.authoring.lint.check import Linted
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.formats.text import summary
from puller.values.visible import visible

_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.UNCHECKED: "notice"}
# As the runner undoes it: a message ends at a line break, a property at a comma or colon as well.
_OF_MESSAGES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_OF_PROPERTIES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def lines(linted: Linted, *, verbose: bool = False) -> Iterator[str]:
    """One command for each finding, and the summary; what is unchecked only when ``verbose``."""
    for found in linted.findings:
        if verbose or found.severity is not Severity.UNCHECKED:
            yield _command(found)
    yield summary(linted)


def _command(found: Finding) -> str:
    place = found.place
    properties = {"file": place.file, "line": place.line, "col": place.column, "title": found.rule}
    written = ",".join(
        f"{key}={visible(str(value)).translate(_OF_PROPERTIES)}" for key, value in properties.items() if value
    )
    return f"::{_COMMANDS[found.severity]} {written}::{visible(found.message).translate(_OF_MESSAGES)}"
