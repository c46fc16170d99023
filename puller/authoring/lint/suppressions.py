"""Warnings that the author of a bundle has switched off.

* A comment ``puller-lint: disable=RULE[,RULE] - reason``, in YAML and in templates, applies to its own line. A comment
  alone on its line also applies to the next line.
* The file ``.puller-lint.yaml`` at the root of the bundle: ``disable: [RULE]`` for the whole bundle, ``files:
  {"templates/*": [RULE]}`` for some files.
* Only warnings can be switched off. An unknown rule, or a rule of errors, is a finding.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec

from bundles.archive.pack import LINT_FILE, is_left_out
from bundles.filesystem.atomic import read_limited
from bundles.filesystem.trees import walk
from foundation.problems import Location, ProblemCode, replaced
from foundation.suggestions import Meant, meant
from hiera import parsing
from hiera.errors import HieraError
from puller.authoring.lint.findings import RULES, Finding, Severity, may_be_switched_off
from puller.authoring.lint.subject import Subject, finding
from puller.manifest.problems import Problems

_SIZE_LIMIT: Final = 1024 * 1024  # bytes of a file that may have comments
_MARK: Final = b"puller-lint:"
# Beginnings of comments: YAML's #, Jinja's {#, the /* of Go templates, and Jet's {*.
_COMMENT: Final = re.compile(r"(?P<start>#|/\*|\{\*)-?\s*puller-lint:\s*(?P<rest>[^\n]*)")
_DISABLE: Final = re.compile(r"disable=\s*(?P<names>[\w-]*\w(?:\s*,\s*[\w-]*\w)*)(?=\s|[*#}-]|$)")


class Suppressions(msgspec.Struct, frozen=True):
    """All suppressions of one bundle."""

    name: str
    """The bundle's directory as the user named it."""
    everywhere: frozenset[str] = frozenset()
    files: tuple[tuple[str, frozenset[str]], ...] = ()
    """Patterns of paths below the bundle, with their suppressed rules."""
    lines: frozenset[tuple[str, int, str]] = frozenset()
    """File, line and rule."""
    findings: tuple[Finding, ...] = ()
    """Problems of the suppressions."""

    @classmethod
    def of(cls, subject: Subject) -> "Suppressions":
        """Return the suppressions in the files of the bundle."""
        problems: list[Finding] = []
        everywhere, files = _of_file(subject, problems)
        lines = frozenset(_of_comments(subject, problems))
        return cls(subject.name, everywhere, files, lines, tuple(problems))

    def applied(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the remaining findings, and those of the suppressions."""
        yield from (
            finding
            for finding in findings
            if finding.severity is not Severity.WARNING or not self._covers(finding)
        )
        yield from self.findings

    def _covers(self, item: Finding) -> bool:
        if item.rule in self.everywhere or (item.place.file, item.place.line, item.rule) in self.lines:
            return True
        path = os.path.relpath(item.place.file, self.name or ".")
        return any(item.rule in rules and fnmatchcase(path, pattern) for pattern, rules in self.files)


# -- comments -------------------------------------------------------------------------------------


def _of_comments(subject: Subject, problems: list[Finding]) -> Iterator[tuple[str, int, str]]:
    for path in _files(subject.directory):
        name = os.path.join(subject.name, path)
        lines = _text(subject.directory / path).splitlines()
        for number, line in enumerate(lines, 1):
            if "puller-lint:" in line and (comment := _COMMENT.search(line)):
                place = Location(name, number, comment.start() + 1)
                for rule in _rules_of(comment["rest"], place, problems):
                    yield name, number, rule
                    if not line[: comment.start()].strip(" \t{-"):
                        yield name, _next(lines, number), rule


def _next(lines: list[str], number: int) -> int:
    """Return the line to which a comment on its own line applies. Several comments may precede it."""
    while number < len(lines) and _is_suppression(lines[number]):
        number += 1
    return number + 1


def _is_suppression(line: str) -> bool:
    return "puller-lint:" in line and _COMMENT.search(line) is not None


def _rules_of(remainder: str, place: Location, problems: list[Finding]) -> Iterator[str]:
    written = _DISABLE.match(remainder)
    if written is None:
        problems.append(
            _wrong(
                place, f"{remainder.strip()!r} is not a suppression, expected disable=RULE[,RULE] - reason"
            )
        )
        return
    yield from _checked(re.split(r"\s*,\s*", written["names"]), place, problems)


def _checked(names: Iterable[str], place: Location, problems: list[Finding]) -> Iterator[str]:
    """Yield the rules that can be switched off, and note problems of the other names."""
    for name in names:
        if may_be_switched_off(name):
            yield name
        elif name in RULES:
            problems.append(_wrong(place, f"{name} cannot be switched off: only warnings can"))
        else:
            known = filter(may_be_switched_off, RULES)
            problems.append(_wrong(place, f"unknown rule {name!r}", **meant(name, known)))


def _wrong(place: Location, message: str, **names: Unpack[Meant]) -> Finding:
    return Finding.of(ProblemCode.SUPPRESSION, Severity.WARNING, place, message, **names)


def _files(directory: Path) -> Iterator[str]:
    """Yield all files of the bundle, by their paths in it."""
    try:
        yield from sorted(path for path, _ in walk(directory, is_left_out))
    except OSError:
        return  # packing reports unreadable files


def _text(path: Path) -> str:
    """Return the text of a file that may have comments. Empty for other files."""
    try:
        data = read_limited(path, _SIZE_LIMIT)
    except (OSError, ValueError):
        return ""
    return data.decode("utf-8", "replace") if _MARK in data else ""


# -- the file -------------------------------------------------------------------------------------

_Patterns = tuple[tuple[str, frozenset[str]], ...]


def _of_file(subject: Subject, problems: list[Finding]) -> tuple[frozenset[str], _Patterns]:
    path, name = subject.directory / LINT_FILE, os.path.join(subject.name, LINT_FILE)
    try:
        text = read_limited(path, _SIZE_LIMIT).decode("utf-8")
    except FileNotFoundError:
        return frozenset(), ()
    except (OSError, ValueError) as error:
        problems.append(_wrong(Location(name), f"cannot be read: {error}"))
        return frozenset(), ()
    try:
        value = parsing.load_yaml(text, name)
    except HieraError as error:
        problem = replaced(error.problems[0], code=ProblemCode.SUPPRESSION)
        problems.append(finding(problem, subject))
        return frozenset(), ()
    return _LintFile(Problems.of_text(name, text), problems).read(value)


class _LintFile(msgspec.Struct):
    """The reader of one ``.puller-lint.yaml``."""

    problems: Problems
    found: list[Finding]

    def read(self, value: object) -> tuple[frozenset[str], _Patterns]:
        known = self._mapping(value, ())
        for key in known.keys() - {"disable", "files"}:
            self._wrong((key,), f"unknown key {key!r}", **meant(str(key), ["disable", "files"]))
        files = self._mapping(known.get("files"), ("files",))
        patterns = (
            (str(pattern), self._rules(rules, ("files", pattern))) for pattern, rules in files.items()
        )
        return self._rules(known.get("disable"), ("disable",)), tuple(patterns)

    def _mapping(self, value: object, path: tuple[str, ...]) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        if value is not None:
            self._wrong(path, f"is {value!r}, expected a mapping")
        return {}

    def _rules(self, value: object, path: tuple[str, ...]) -> frozenset[str]:
        if not isinstance(value, list | None) or not all(isinstance(name, str) for name in value or ()):
            self._wrong(path, f"{path[-1]} is {value!r}, expected a list of rules")
            return frozenset()
        return frozenset(
            name
            for index, written in enumerate(value or ())
            for name in _checked([written], self._place((*path, index)), self.found)
        )

    def _place(self, path: tuple[str | int, ...]) -> Location:
        return Location(self.problems.source, *self.problems.locate(path))

    def _wrong(self, path: tuple[str | int, ...], message: str, **names: Unpack[Meant]) -> None:
        self.found.append(_wrong(self._place(path), message, **names))
