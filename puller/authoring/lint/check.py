"""Lint of one bundle: reads the bundle, runs all checks and sorts their findings.

1. Read the manifest as a host does, with the available facts and data, after the preceding bundles of its hosts.
   Problems for which a host would reject the manifest are findings. The checks that need no manifest still run.
2. Run each check.
3. Remove consequences of other findings, and warnings that the author has switched off.
4. Sort the findings by place, without duplicates.

Warnings that the author of a bundle has switched off:

* A comment ``puller-lint: disable=RULE[,RULE] - reason``, in YAML and in templates, applies to its own line. A comment
  alone on its line also applies to the next line.
* The file ``.puller-lint.yaml`` at the root of the bundle: ``disable: [RULE]`` for the whole bundle, ``files:
  {"templates/*": [RULE]}`` for some files.
* Only warnings can be switched off. An unknown rule, or a rule of errors, is a finding.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple, Unpack

import msgspec

from bundles.archive.pack import LINT_FILE, is_left_out
from bundles.filesystem.atomic import read_limited
from bundles.filesystem.trees import walk
from foundation.problems import KeyPath, Location, Problem, ProblemCode, replaced
from foundation.suggestions import Meant, meant
from hiera import parsing
from hiera.errors import HieraError
from puller.authoring.lint.checks import commands, data, files, host_problems, names, templates
from puller.authoring.lint.findings import (
    RULES,
    UNPACKABLE,
    Check,
    Finding,
    Severity,
    Subject,
    may_be_switched_off,
    refusal,
)
from puller.authoring.lint.findings import finding as finding_of
from puller.errors import ManifestError
from puller.manifest.graph.host_catalog import load_together
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest, ManifestSource
from puller.manifest.problems import Problems

# Findings with the same cause, such as a misspelt name and the failure of its resource. Only the cause stays. A
# finding is the consequence of another finding if both name the same object at the same place: a key of a document or
# a line of a template.

_NAMES = frozenset({ProblemCode.UNKNOWN_FUNCTION, ProblemCode.UNKNOWN_NAME})
_SYNTAX = frozenset({ProblemCode.EXPRESSION_SYNTAX, ProblemCode.TEMPLATE_SYNTAX})
_RESOLVING = frozenset({ProblemCode.DEPENDS_ON_FACTS, ProblemCode.RESOURCE_FAILS})
"""Rules of findings that may be consequences."""
_FOLLOWS_FROM = {
    **dict.fromkeys(
        (
            ProblemCode.EXPRESSION_FAILS,
            ProblemCode.UNDEFINED_DATA,
            ProblemCode.UNDEFINED_FACT,
            ProblemCode.UNKNOWN_NAME,
        ),
        _NAMES,
    ),
    ProblemCode.EXPRESSION_SYNTAX: _SYNTAX | _NAMES,
    ProblemCode.TEMPLATE_FAILS: _SYNTAX | _NAMES | {ProblemCode.MISSING_FILE},
    ProblemCode.MISSING_FILE: frozenset({ProblemCode.MISSING_FILE}),
}
"""By the code of a consequence: the codes of its possible causes."""


class _Cause(NamedTuple):
    code: ProblemCode
    name: str
    line: int
    path: KeyPath

    def explains(self, finding: Finding) -> bool:
        """Return whether a finding in the same file follows from this mistake."""
        problem = finding.problem
        if self.code not in _FOLLOWS_FROM.get(problem.code, ()):
            return False
        # A text with wrong syntax is not evaluated at all, so the name does not matter.
        if self.code in _SYNTAX or problem.code is ProblemCode.EXPRESSION_SYNTAX:
            return True
        is_file = self.code is ProblemCode.MISSING_FILE and self._is_file(problem.name)
        return is_file or self.name == problem.name

    def _is_file(self, path: str) -> bool:
        """Return whether a path, which may be absolute, is that of the missing file. Prefixes of trees do not count."""
        written = os.path.normpath(self.name.rpartition(":")[2])
        return path == written or os.path.normpath(path).endswith(f"/{written}")

    def is_at(self, place: Location) -> bool:
        return self.line == place.line or (bool(place.path) and self.path[: len(place.path)] == place.path)


def without_consequences(refusals: Iterable[Finding], findings: Iterable[Finding]) -> list[Finding]:
    """Return all findings except consequences of others. ``refusals`` come from reading the manifest."""
    refusals, findings = list(refusals), list(findings)
    causes: dict[str, list[_Cause]] = defaultdict(list)
    for finding in findings:
        if finding.severity is Severity.ERROR and finding.rule not in _RESOLVING:
            problem, place = finding.problem, finding.place
            causes[_file(place)].append(_Cause(problem.code, problem.name, place.line, place.path))
    needed = {
        (finding.place.file, finding.problem.name)
        for finding in (*refusals, *findings)
        if finding.severity is Severity.UNCHECKED and finding.problem.code is ProblemCode.UNDEFINED_FACT
    }
    return [
        *(finding for finding in refusals if not _is_consequence(finding, causes)),
        *_kept(findings, causes, needed),
    ]


def _kept(
    findings: Iterable[Finding], causes: dict[str, list[_Cause]], needed: set[tuple[str, str]]
) -> Iterator[Finding]:
    for finding in findings:
        if finding.rule in _RESOLVING:
            if not _is_consequence(finding, causes):
                yield finding
        elif not (finding.severity is Severity.UNCHECKED and finding.rule in _NAMES) or (
            (finding.place.file, finding.problem.name) not in needed  # a resource reports the missing fact
        ):
            yield finding


def _is_consequence(finding: Finding, causes: dict[str, list[_Cause]]) -> bool:
    return any(
        cause.is_at(place) and cause.explains(finding)
        for place in (finding.place, *finding.problem.related)
        for cause in causes.get(_file(place), ())
    )


def _file(place: Location) -> str:
    # Templates of libraries have other names in messages.
    return os.path.basename(place.file)


_CHECKS: Final[tuple[Check, ...]] = (
    data.check_effects,
    commands.check_commands,
    host_problems.check_manifest,
    files.check,
    commands.check_health,
    names.check,
    data.check_notations,
    host_problems.check_rendering,
    data.check_readers,
    templates.check,
)
"""All checks. Findings of one place and severity are reported in this order."""


class Linted(msgspec.Struct, frozen=True):
    """The result of lint for one bundle."""

    name: str
    """Name of its manifest in messages: ``web/manifest.yaml``."""
    findings: tuple[Finding, ...]
    """The findings, sorted by place."""
    resources: int | None
    """Number of resources for these facts, or ``None`` if the manifest is refused."""
    counts: dict[Finding, int] = {}
    """The number of machines with each finding. Empty for one machine."""
    machines: int = 1

    def of(self, severity: Severity) -> list[Finding]:
        """Return the findings of one severity."""
        return [finding for finding in self.findings if finding.severity is severity]

    @property
    def has_errors(self) -> bool:
        """Whether the bundle must not be published."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def errors(self) -> list[Problem]:
        """Return the problems that are errors, except those that packing reports itself."""
        errors = (error for error in self.of(Severity.ERROR) if error.rule != UNPACKABLE)
        return [_exact(error.problem) for error in errors]

    def misspelt_references(self) -> list[Problem]:
        """Return references that only another bundle can declare, but that are similar to a declared one."""
        undeclared = (item.problem for item in self.of(Severity.UNCHECKED) if item.is_undeclared)
        return [_exact(problem) for problem in undeclared if problem.suggestions]

    def strict(self) -> "Linted":
        """Return a copy with errors instead of warnings."""
        findings = (
            msgspec.structs.replace(finding, severity=Severity.ERROR)
            if finding.severity is Severity.WARNING
            else finding
            for finding in self.findings
        )
        return msgspec.structs.replace(self, findings=tuple(findings))


def lint_on_each(
    source: ManifestSource,
    machines: Sequence[tuple[Inputs, Sequence[ManifestSource]]],
) -> Linted:
    """Return the findings of a bundle on several machines, each with its inputs and the bundles before it.

    A finding that several machines share appears once, with their number. Raises like ``lint_bundle``.
    """
    results = [lint_bundle(source, inputs, before=before) for inputs, before in machines]
    counts = Counter(finding for linted in results for finding in linted.findings)
    resources = next((linted.resources for linted in results if linted.resources is not None), None)
    return Linted(
        source.name, tuple(sorted(counts, key=_order)), resources, dict(counts), machines=len(results)
    )


def lint_bundle(
    source: ManifestSource,
    inputs: Inputs,
    *,
    before: Sequence[ManifestSource] = (),
    data_files: Iterable[str] = (),
    of_any_host: bool = False,
) -> Linted:
    """Return the findings of the bundle whose manifest is at ``source``.

    ``before``: the bundles that precede it on its hosts. ``data_files``: the sources of the data in ``inputs``.
    ``of_any_host``: its hosts are unknown, so problems that their facts, data or other bundles could solve are
    unchecked. Raises ``SourceError`` without a readable manifest, and ``ManifestError`` if a manifest in ``before`` is
    refused.
    """
    # 1. As a host reads it.
    subject, problems = _read(source, inputs, before, tuple(map(Path, data_files)))
    refusals = [refusal(problem, subject, of_any_host=of_any_host) for problem in problems]
    # 2. All checks.
    found: list[Finding] = []
    for check in _CHECKS:
        # Without facts most templates fail to render, which is no error.
        if not (of_any_host and check is host_problems.check_rendering):
            found += check(subject)
    # 3. Consequences, and suppressed warnings.
    retained = Suppressions.of(subject).applied(without_consequences(refusals, found))
    # 4. The order.
    findings = sorted(dict.fromkeys(retained), key=_order)
    count = None if subject.manifest is None else len(subject.manifest.declarations)
    return Linted(source.name, tuple(findings), count)


def _exact(problem: Problem) -> Problem:
    """Return a problem whose text shows the column."""
    return replaced(problem, location=msgspec.structs.replace(problem.location, is_exact=True))


def _order(problems: Finding) -> tuple[object, ...]:
    return problems.place.order, problems.severity  # findings at one place keep their order


def _read(
    source: ManifestSource, inputs: Inputs, before: Sequence[ManifestSource], data_files: tuple[Path, ...]
) -> tuple[Subject, Sequence[Problem]]:
    """Return the bundle for the checks, and the problems for which a host would refuse it."""
    texts: list[Problems] = []
    manifest, problems = _loaded(source, inputs, before, texts)
    subject = Subject(
        source.path.parent,
        os.path.dirname(source.name),
        inputs,
        manifest,
        tuple(manifest.texts if manifest else texts or [_as_it_is(source)]),
        source.name,
        data_files,
    )
    return subject, problems


def _loaded(
    source: ManifestSource, inputs: Inputs, before: Sequence[ManifestSource], texts: list[Problems]
) -> tuple[Manifest | None, Sequence[Problem]]:
    catalog = load_together(before, inputs)
    try:
        manifest = load_manifest(source.path, source.name, inputs, catalog.references(), texts)
        return catalog.joined(manifest).manifests[-1], ()
    except ManifestError as error:
        return None, error.problems


def _as_it_is(source: ManifestSource) -> Problems:
    """Return the text of a manifest that is not valid YAML, or not even text."""
    return Problems.of_text(source.name, source.path.read_text(errors="replace"))


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
    return Finding.of(ProblemCode.SUPPRESSION, place, message, **names)


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
        problems.append(finding_of(problem, subject))
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
