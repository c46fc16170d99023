"""Places of names in files: line and column of the wrong step of a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import yaml

from foundation.problems import KeyPath, Location, ProblemCode
from hiera.parsing import Places
from puller.authoring.lint.findings import Finding, Severity
from puller.manifest.problems import Problems

Path = tuple[str, ...]


class TextPart:
    """A part of a text, such as one value: mistakes in it become findings at their line and column."""

    def __init__(
        self, name: str, text: str, start: int, end: int, path: KeyPath = (), *, skipped: int = 0
    ) -> None:
        """``skipped`` is the number of lines before the text that a parser has read."""
        self.name = name
        self.text = text
        self._start, self._end = start, end
        self._path = path
        self._skipped = skipped

    def finding(
        self,
        code: ProblemCode,
        severity: Severity,
        message: str,
        needle: Path = (),
        line: int = 0,
        offset: int = -1,
        **fields: Any,
    ) -> Finding:
        """Return the finding of a mistake.

        ``needle`` is a name as steps, and the last step is wrong. ``line`` and ``offset`` are positions in the text, if
        known.
        """
        del line, offset  # the span of a value is more exact
        place = self._location(_found(self.text, needle, self._start, self._end))
        return Finding.of(code, severity, place, message, **{"name": needle[-1] if needle else "", **fields})

    def _location(self, offset: int) -> Location:
        line = self.text.count("\n", 0, offset) + 1
        return Location(self.name, line, offset - self.text.rfind("\n", 0, offset), self._path)


UNPLACED = TextPart("", "", 0, 0)
"""For callers that ignore the findings."""


class _RenderedPart(TextPart):
    """A part of a rendered text, which may differ with the facts of other hosts."""

    mask: Callable[[str], str]

    def finding(
        self, code: ProblemCode, severity: Severity, message: str, *more: Any, **fields: Any
    ) -> Finding:
        """Return the finding of a mistake. An error becomes a warning about the available facts."""
        if severity is not Severity.ERROR:
            return super().finding(code, severity, self.mask(message), *more, **fields)
        result = super().finding(
            code, Severity.WARNING, f"{self.mask(message)}, with the available facts", *more, **fields
        )
        return msgspec.structs.replace(result, switched_by=ProblemCode.RESOURCE_FAILS)


class TemplatePart(TextPart):
    """A whole template, whose parser knows the line or the offset of a name."""

    def finding(
        self,
        code: ProblemCode,
        severity: Severity,
        message: str,
        needle: Path = (),
        line: int = 0,
        offset: int = -1,
        **fields: Any,
    ) -> Finding:
        """Return the finding of a mistake in a template."""
        if offset < 0:
            start = _line_start(self.text, line + self._skipped)
            # The line of a multi-line expression may be its first or its last.
            offset = _found(self.text, needle, start, min(len(self.text), start + 2000), otherwise=start)
        else:
            end = min(len(self.text), offset + 500)
            offset = _found(self.text, needle, offset, end, otherwise=offset)
        place = self._location(offset)
        return Finding.of(code, severity, place, message, **{"name": needle[-1] if needle else "", **fields})


class YamlText:
    """One YAML text. Its places are parsed on first use."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._places: Places | None = None

    def part(self, path: Sequence[str | int]) -> TextPart:
        """Return the value at a path of keys."""
        return self._part(*self._span(path), tuple(path))

    def line_part(self, line: int) -> TextPart:
        """Return a line."""
        start = _line_start(self.text, line)
        end = self.text.find("\n", start)
        return self._part(start, len(self.text) if end < 0 else end, ())

    def _part(self, start: int, end: int, path: KeyPath) -> TextPart:
        return TextPart(self.name, self.text, start, end, path)

    def _span(self, path: Sequence[str | int]) -> tuple[int, int]:
        try:
            self._places = self._places or Places(self.text)
        except yaml.YAMLError:
            return 0, 0
        return self._places.span(path)


class RenderedText(YamlText):
    """One text that a template has rendered."""

    def __init__(self, problems: Problems) -> None:
        super().__init__(problems.source, problems.text)
        self._mask = problems.mask

    def _part(self, start: int, end: int, path: KeyPath) -> TextPart:
        part = _RenderedPart(self.name, self.text, start, end, path)
        part.mask = self._mask
        return part


def template_part(name: str, text: str, *, skipped: int = 0) -> TextPart:
    """Return a template as a part. Its parser has skipped ``skipped`` lines."""
    return TemplatePart(name, text, 0, len(text), skipped=skipped)


def _found(text: str, needle: Path, start: int, end: int, *, otherwise: int | None = None) -> int:
    """Return the offset of the last step of a name between ``start`` and ``end``."""
    for steps in (needle, needle[-1:]):
        if steps and (match := _pattern(steps).search(text, start, end)):
            return match.start(1)
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
