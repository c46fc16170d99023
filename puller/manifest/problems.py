"""The problems of one text, collected until all of it is read.

Places are paths of keys. Lines are computed only for a problem, by reading the text again.
"""

from collections.abc import Callable, Sequence
from typing import Unpack

import msgspec

from foundation.masking import mask_urls
from foundation.problems import NOWHERE, KeyPath, Location, Problem, ProblemCode
from hiera.text import yaml_text
from puller.errors import Fields, ManifestError


class Problems(msgspec.Struct):
    """Collects the problems of one text. ``source`` is its name in messages."""

    source: str
    locate: Callable[[Sequence[str | int]], tuple[int, int]]
    """Line and column of the value at a path."""
    original: Callable[[Sequence[str | int]], str | None]
    """The scalar at a path as it was written."""
    text: str = ""
    mask: Callable[[str], str] = mask_urls
    """Removes secrets from a message."""
    is_rendered: bool = False
    """Whether a template has made the text."""
    _noted: list[Problem] = []

    @classmethod
    def of_text(cls, source: str, text: str) -> "Problems":
        """For a YAML text."""
        return cls(
            source,
            lambda path: yaml_text.locate(text, path),
            lambda path: yaml_text.original(text, path),
            text,
        )

    def add(
        self,
        path: KeyPath,
        message: str,
        subject: str = "",
        code: ProblemCode = ProblemCode.INVALID_MANIFEST,
        **fields: Unpack[Fields],
    ) -> None:
        """Note a problem with the value at ``path``. ``subject`` is the resource that it belongs to."""
        self._noted.append(self.problem(path, message, subject, code, **fields))

    def problem(
        self,
        path: KeyPath,
        message: str,
        subject: str = "",
        code: ProblemCode = ProblemCode.INVALID_MANIFEST,
        **fields: Unpack[Fields],
    ) -> Problem:
        """Return a problem with the value at ``path``, without secrets."""
        return self.placed(Problem(code=code, message=message, subject=subject, **fields), path)

    def placed(self, problem: Problem, path: KeyPath) -> Problem:
        """Return a problem at the place of a path in this text, without secrets."""
        masked = problem.map_texts(self.mask)
        return msgspec.structs.replace(masked, location=self.location(path), entry=entry_of(path))

    def note(self, problem: Problem) -> None:
        """Note a problem that is placed already."""
        self._noted.append(problem)

    def location(self, path: KeyPath) -> Location:
        """Return the place of a path."""
        line, column = self.locate(path)
        return Location(self.source, line, column, tuple(path))

    def where(self, path: KeyPath) -> str:
        """Return ``file:line`` of a path."""
        return f"{self.source}:{self.locate(path)[0]}"

    def line(self, number: int) -> str:
        """Return one line of the text, from 1. Empty outside of the text."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""

    @property
    def any(self) -> bool:
        """Whether a problem was noted."""
        return bool(self._noted)

    def all(self) -> list[Problem]:
        """Return the problems in the order of lines. A problem of all items of a loop is one."""
        ordered = sorted(self._noted, key=lambda problem: problem.location.line)
        first: dict[object, Problem] = {}
        for problem in ordered:
            first.setdefault(_identity(problem), problem)
        return list(first.values())

    def raise_any(self) -> None:
        """Raise ``ManifestError`` if a problem was noted."""
        if self._noted:
            raise ManifestError(self.all())


class UnplacedProblems(Problems):
    """The problems of a value that is in no file, such as a command line: without location and entry."""

    @classmethod
    def of(cls, source: str) -> "UnplacedProblems":
        """For a value that messages call ``source``."""
        return cls(source, lambda path: (0, 0), lambda path: None)

    def placed(self, problem: Problem, path: KeyPath) -> Problem:
        """Return the problem without place and secrets."""
        return msgspec.structs.replace(super().placed(problem, path), location=NOWHERE, entry="")

    def where(self, path: KeyPath) -> str:
        """Return the name of the source."""
        del path
        return self.source


def _identity(problem: Problem) -> object:
    """Return equal values for two reports of one mistake."""
    if not problem.name:
        return problem
    return problem.code, problem.location, problem.subject, problem.property, problem.name


def entry_of(path: KeyPath) -> str:
    """Return the entry of the list of resources that a path leads through: ``resources[3]``. Empty for another path."""
    for key, number in zip(("resources", *path), path, strict=False):
        if isinstance(number, int):
            return f"resources[{number}]" if key == "resources" else ""
    return ""
