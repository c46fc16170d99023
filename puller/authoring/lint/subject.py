"""The linted bundle as all checks see it (files, texts, manifest), and findings from problems of the manifest.

* A problem that every host has is an error, with its own code.
* A problem that the facts, data, bundles or keys of another host solve is unchecked, or a warning of a resource.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from bundles.filesystem.trees import open_regular
from foundation.problems import DependsOn, Location, Problem, ProblemCode, replaced
from puller.authoring.lint.findings import Finding, Severity, severity_of
from puller.manifest.declaration import Declaration
from puller.manifest.manifest import MANIFEST, Inputs, Manifest
from puller.manifest.problems import Problems
from puller.values.foreign_text import IS_WIDE, MARK, is_wide


class Subject(msgspec.Struct, frozen=True):
    """One bundle."""

    directory: Path
    """Directory of its manifest: the root of the bundle."""
    name: str
    """Directory as the user named it, for findings: ``web``, or empty for the working directory."""
    inputs: Inputs
    """The available facts, and the given data."""
    manifest: Manifest | None
    """The manifest with these inputs. ``None`` if it is refused, which is already a finding."""
    texts: tuple[Problems, ...]
    """All YAML texts: of the manifest, its children, and rendered lists of resources."""
    manifest_name: str = ""
    """Name of its manifest in messages: ``web/manifest.yaml``."""
    data_files: tuple[Path, ...] = ()
    """Additional data documents."""

    @property
    def is_bundle(self) -> bool:
        """Whether it is a directory or an archive, and not a single manifest with another name."""
        return not self.manifest_name or self.manifest_name.endswith(MANIFEST)


Check = Callable[[Subject], Iterable[Finding]]
"""Yields violations of some rules. Problems of the bundle never raise."""


# Texts of files. Only regular files are read, since a pipe or a device would block all checks.

_SIZE_LIMIT: Final = 16 * 1024 * 1024


def read_text(path: str, limit: int = _SIZE_LIMIT) -> str | None:
    """Return the text of a file of at most ``limit`` bytes without a byte order mark, or ``None`` if it is
    unreadable.
    """
    try:
        data = _read(path, limit)
        is_text = len(data) <= limit and not is_wide(data)
        return data.decode("utf-8").removeprefix(MARK) if is_text else None
    except (OSError, ValueError):
        return None


def problem_of_text(path: str) -> str:
    """Return why `read_text` rejects an existing file: it is not text. Empty for other reasons."""
    try:
        data = _read(path, _SIZE_LIMIT)
        if len(data) <= _SIZE_LIMIT:
            data.decode("utf-8")
            return IS_WIDE if is_wide(data) else ""
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text, at byte {error.start}"
    except (OSError, ValueError):
        return ""
    return ""


def _read(path: str, limit: int) -> bytes:
    with open_regular(Path(path), follow=True) as file:
        return file.read(limit + 1)


def needs_facts(problem: Problem) -> bool:
    """Return whether a missing fact, which a host may have, is the reason."""
    return problem.code is ProblemCode.UNDEFINED_FACT


def refusal(problem: Problem, subject: Subject, *, of_any_host: bool) -> Finding:
    """Return the finding for a problem that refuses the manifest. ``of_any_host``: no host is known."""
    is_open = of_any_host and problem.depends_on is not DependsOn.NOTHING
    if needs_facts(problem) or is_open:
        return finding(problem, subject, Severity.UNCHECKED)
    return finding(problem, subject, Severity.ERROR)


def finding(
    problem: Problem, subject: Subject, severity: Severity | None = None, rule: ProblemCode | None = None
) -> Finding:
    """Return the finding for a problem, by default with the severity and the rule of its code."""
    related = tuple(_shown(location, subject) for location in problem.related)
    location = _shown(problem.location, subject)
    return Finding(
        replaced(problem, location=location, related=related, entry=problem.entry),
        severity or severity_of(problem.code),
        rule,
    )


def of_resource(
    declaration: Declaration,
    problem: Problem,
    subject: Subject,
    severity: Severity | None = None,
    rule: ProblemCode | None = None,
) -> Finding:
    """Return the finding for a problem of a resource, at its property, or at the resource if it stands elsewhere."""
    placed = replaced(
        declaration.located(problem.property, problem), entry="", subject=str(declaration.reference)
    )
    return finding(placed, subject, severity or severity_of(rule or problem.code), rule)


def failure(
    declaration: Declaration, problem: Problem, subject: Subject, *, is_of_host: bool = False
) -> Finding:
    """Return the finding for a resource that fails with the facts at hand. ``is_of_host``: a fact may be the reason."""
    rule = ProblemCode.RESOURCE_FAILS
    if is_of_host or needs_facts(problem):
        rule = ProblemCode.DEPENDS_ON_FACTS
    if declaration.looped is not None:  # a failed loop names itself, but an item does not
        problem = replaced(problem, message=f"{problem.message} ({declaration.item})")
    return of_resource(declaration, problem, subject, rule=rule)


def _shown(location: Location, subject: Subject) -> Location:
    """Return the location with the file as the user named the bundle."""
    if not location.file:
        return Location(subject.manifest_name)
    root = os.path.realpath(subject.directory)
    file = location.file
    if os.path.isabs(file) and file.startswith(f"{root}/"):
        file = os.path.join(subject.name, os.path.relpath(file, root))
    elif not file.startswith(f"{subject.name}/") and (subject.directory / file).exists():
        file = os.path.join(subject.name, file)
    return Location(file, location.line, location.column, location.path)
