"""Places of names in files: line and column of the step of a name that is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import yaml

from hiera.text.yaml_reading import Places
from puller.authoring.lint.findings import Finding, Place, Severity
from puller.authoring.lint.names.known import Path, Trouble
from puller.manifest.problems import Problems


class YamlText:
    """One text of YAML; it is parsed for places when the first one is asked for."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._places: Places | None = None

    def finding(self, trouble: Trouble, path: Sequence[str | int]) -> Finding:
        """A trouble of the value at a path of keys."""
        start, end = self._span(path)
        return self._at(trouble, _found(self.text, trouble.needle, start, end))

    def at_line(self, trouble: Trouble, line: int) -> Finding:
        """A trouble somewhere in a line."""
        start = _line_start(self.text, line)
        end = self.text.find("\n", start)
        return self._at(trouble, _found(self.text, trouble.needle, start, len(self.text) if end < 0 else end))

    def _at(self, trouble: Trouble, offset: int) -> Finding:
        place = _place(self.name, self.text, offset)
        return Finding(trouble.rule, trouble.severity, place, trouble.message)

    def _span(self, path: Sequence[str | int]) -> tuple[int, int]:
        try:
            self._places = self._places or Places(self.text)
        except yaml.YAMLError:
            return 0, 0
        return self._places.span(path)


class RenderedText(YamlText):
    """One text that a template has rendered: for the facts of other hosts it says something else."""

    def __init__(self, problems: Problems) -> None:
        super().__init__(problems.source, problems.text)
        self._mask = problems.mask

    def _at(self, trouble: Trouble, offset: int) -> Finding:
        found = super()._at(trouble, offset)
        if found.severity is not Severity.ERROR:
            return msgspec.structs.replace(found, message=self._mask(found.message))
        message = f"{self._mask(found.message)}, for the facts at hand"
        return Finding("resource-fails", Severity.WARNING, found.place, message)


def in_template(name: str, text: str, trouble: Trouble) -> Finding:
    """A trouble of a template."""
    offset = trouble.offset
    if offset < 0:
        start = _line_start(text, trouble.line)
        # An expression of several lines has the number of its first, or of its last.
        offset = _found(text, trouble.needle, start, min(len(text), start + 2000), otherwise=start)
    else:
        offset = _found(text, trouble.needle, offset, min(len(text), offset + 500), otherwise=offset)
    return Finding(trouble.rule, trouble.severity, _place(name, text, offset), trouble.message)


def _found(text: str, needle: Path, start: int, end: int, *, otherwise: int | None = None) -> int:
    """The offset of the last step of a name between two others."""
    for steps in (needle, needle[-1:]):
        if steps and (found := _pattern(steps).search(text, start, end)):
            return found.start(1)
    return start if otherwise is None else otherwise


def _pattern(steps: Path) -> re.Pattern[str]:
    *before, last = steps
    ahead = "".join(_step(step) + r"['\"\]\s]*[.\[][\s'\"]*" for step in before if step != "…")
    return re.compile(rf"{ahead}(?<!\w)({_step(last)})(?!\w)")


def _step(step: str) -> str:
    return r"[^\]]*" if step == "*" else re.escape(step)


def _line_start(text: str, line: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start


def _place(name: str, text: str, offset: int) -> Place:
    return Place(name, text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))
