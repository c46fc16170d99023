"""A bundle, linted: read as a host reads it, given to all checks, and their findings put in order.

1. The manifest is read with the facts and data at hand, after the bundles that come before it on its hosts. What a host
   would refuse it for is found, and the checks that need no manifest still run.
2. Each check looks at the bundle.
3. What says again what another says better is taken out, and what its author has switched off.
4. The findings are sorted by place, each once.
"""

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from foundation.problems import Problem, replaced
from puller.authoring.lint.causes import without_consequences
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.refusals import refusal
from puller.authoring.lint.rules import UNPACKABLE
from puller.authoring.lint.subject import Check, Subject
from puller.authoring.lint.suppressions import Suppressions
from puller.errors import ManifestError
from puller.manifest.host_catalog import load_together
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.problems import Problems
from puller.manifest.source import ManifestSource

_CHECKS: Final[tuple[str, ...]] = (
    "annotations",
    "called_files",
    "commands",
    "exports",
    "failures",
    "files",
    "health_checks",
    "hiera_files",
    "host_warnings",
    "libraries",
    "members",
    "names",
    "notations",
    "properties",
    "reach",
    "rendering",
    "secret_commands",
    "templates",
)
"""The modules below ``checks``; each is imported when it runs."""


class Linted(msgspec.Struct, frozen=True):
    """All that lint has to say of one bundle."""

    name: str
    """What messages call its manifest: ``web/manifest.yaml``."""
    findings: tuple[Finding, ...]
    """By place."""
    resources: int | None
    """The number of those that it declares for these facts; ``None`` where its manifest is refused."""

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one weight."""
        return [found for found in self.findings if found.severity is severity]

    @property
    def has_errors(self) -> bool:
        """Whether the bundle must not be published like this."""
        return any(found.severity is Severity.ERROR for found in self.findings)

    def errors(self) -> list[Problem]:
        """The problems that are errors, without those that packing reports by itself."""
        errors = (error for error in self.of(Severity.ERROR) if error.rule != UNPACKABLE)
        return [_exact(error.problem) for error in errors]

    def misspelt_references(self) -> list[Problem]:
        """References that only another bundle can declare, and that are similar to a declared one."""
        undeclared = (one.problem for one in self.of(Severity.UNCHECKED) if one.is_undeclared)
        return [_exact(problem) for problem in undeclared if problem.suggestions]

    def strict(self) -> "Linted":
        """A copy with errors in the place of all warnings."""
        findings = (
            msgspec.structs.replace(found, severity=Severity.ERROR)
            if found.severity is Severity.WARNING
            else found
            for found in self.findings
        )
        return msgspec.structs.replace(self, findings=tuple(findings))


def lint_bundle(
    source: ManifestSource,
    inputs: Inputs,
    *,
    before: Sequence[ManifestSource] = (),
    data_files: Iterable[str] = (),
    of_any_host: bool = False,
) -> Linted:
    """The findings of the bundle whose manifest is at ``source``.

    ``before``: the bundles that come before it on its hosts. ``data_files``: those that ``inputs`` have been made of.
    ``of_any_host``: nothing is known of its hosts, and what their facts, data or other bundles could mend is unchecked.
    Raises ``SourceError`` where there is no manifest to read, and ``ManifestError`` where one ``before`` is refused.
    """
    # 1. As a host reads it.
    subject, problems = _read(source, inputs, before, tuple(map(Path, data_files)))
    refusals = [refusal(problem, subject, of_any_host=of_any_host) for problem in problems]
    # 2. All checks.
    found: list[Finding] = []
    for name in _CHECKS:
        # Without facts hardly a template renders, and that is no error.
        if not (of_any_host and name == "rendering"):
            found += _check(name)(subject)
    # 3. What is said twice, or switched off.
    kept = Suppressions.of(subject).applied(without_consequences(refusals, found))
    # 4. The order.
    findings = sorted(dict.fromkeys(kept), key=_order)
    count = None if subject.manifest is None else len(subject.manifest.declarations)
    return Linted(source.name, tuple(findings), count)


def _check(name: str) -> Check:
    check: Check = import_module(f"puller.authoring.lint.checks.{name}").check
    return check


def _exact(problem: Problem) -> Problem:
    """A problem whose text shows the column, as lint does."""
    return replaced(problem, location=msgspec.structs.replace(problem.location, is_exact=True))


def _order(found: Finding) -> tuple[object, ...]:
    return found.place.order, found.severity  # what is found at one place keeps its order


def _read(
    source: ManifestSource, inputs: Inputs, before: Sequence[ManifestSource], data_files: tuple[Path, ...]
) -> tuple[Subject, Sequence[Problem]]:
    """The bundle for the checks, and the problems that a host would refuse it with."""
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
    """The text of a manifest that is no YAML, and need not even be text."""
    return Problems.of_text(source.name, source.path.read_text(errors="replace"))
