"""Findings of lint, their severities, and the table of all rules.

The name of a rule identifies its findings. Authors switch off warnings by this name (``docs/lint.md``).

To add a rule:

1. Add its code to ``ProblemCode`` in ``foundation/problems.py``.
2. Add its row with its severity to ``_ROWS`` below, and the same row to the table of ``docs/lint.md``.
3. Yield its findings from a check in ``checks``. Add a new check to ``_CHECKS`` in ``check.py``.
4. Explain the code in ``foundation/problem_pages.yaml``, and write ``docs/problems.md`` anew with
   ``python -m foundation.problem_pages``.

The linted bundle as all checks see it (files, texts, manifest), and findings from problems of the manifest.

* A problem that every host has is an error, with its own code.
* A problem that the facts, data, bundles or keys of another host solve is unchecked, or a warning of a resource.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from bundles.filesystem.trees import open_regular
from foundation.formatting import text_without_place
from foundation.problems import DependsOn, Location, Problem, ProblemCode, replaced
from foundation.problems import ProblemCode as Code
from puller.manifest.declaration import Declaration
from puller.manifest.manifest import MANIFEST, Inputs, Manifest
from puller.manifest.problems import Problems
from puller.values.foreign_text import IS_WIDE, MARK, is_wide


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """The bundle cannot work on any host, and is not published."""
    WARNING = "warning"
    """Probably a mistake."""
    UNCHECKED = "unchecked"
    """Depends on values that only hosts have."""


class Finding(msgspec.Struct, frozen=True):
    """One mistake, or a possible one."""

    problem: Problem
    severity: Severity
    switched_by: ProblemCode | None = None
    """The rule that switches the finding off, if it is not the code of the problem."""

    @classmethod
    def of(
        cls,
        code: ProblemCode,
        place: Location,
        message: str,
        *,
        severity: Severity | None = None,
        **fields: Any,
    ) -> "Finding":
        """Return the finding of a new problem, by default with the severity of its rule.

        ``fields`` are further fields of the problem.
        """
        problem = Problem(code=code, message=message, location=place, **fields)
        return cls(problem, severity or severity_of(code))

    @property
    def is_undeclared(self) -> bool:
        """Whether it is a reference to an undeclared resource. If it is unchecked, another bundle may declare it."""
        return self.problem.code is ProblemCode.UNDECLARED_REFERENCE

    @property
    def rule(self) -> ProblemCode:
        """The displayed rule, which also switches the finding off."""
        return self.switched_by or self.problem.code

    @property
    def place(self) -> Location:
        """The location of the problem."""
        return self.problem.location

    @property
    def message(self) -> str:
        """The text without its location."""
        return text_without_place(self.problem)

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.message} [{self.rule}]"


UNPACKABLE: Final = Code.UNPACKABLE_FILE
"""The rule that packing enforces as well."""
_ERROR, _WARNING, _UNCHECKED = Severity.ERROR, Severity.WARNING, Severity.UNCHECKED


class Rule(msgspec.Struct, frozen=True):
    """One rule."""

    name: Code
    severity: Severity
    """Severity of its findings. Findings of an error rule that depend on host data are unchecked."""
    summary: str
    """The rule in one sentence."""


_ROWS: Final = (
    # The bundle as a host reads it.
    Rule(Code.HOST_WARNING, _WARNING, "Every host prints this warning when it reads the manifest."),
    Rule(Code.RESOURCE_FAILS, _WARNING, "A resource fails with the available facts."),
    Rule(Code.DEPENDS_ON_FACTS, _UNCHECKED, "An expression needs unavailable facts."),
    # Names, filters and functions.
    Rule(Code.UNKNOWN_NAME, _ERROR, "This data, fact or variable cannot exist on any host."),
    Rule(Code.MISSPELT_FACT, _WARNING, "The name of a possible custom fact resembles a built-in fact."),
    Rule(Code.UNKNOWN_FUNCTION, _ERROR, "The filter, test or function is unknown."),
    Rule(Code.EXPRESSION_SYNTAX, _ERROR, "The syntax of an expression is invalid."),
    # Templates and files.
    Rule(Code.TEMPLATE_SYNTAX, _ERROR, "The syntax of a template is invalid."),
    Rule(Code.MISSING_FILE, _ERROR, "A file or directory of the manifest or a template is missing."),
    Rule(UNPACKABLE, _ERROR, "A link, device or other special file cannot be packed."),
    Rule(Code.UNUSED_FILE, _WARNING, "The bundle does not use this file."),
    Rule(Code.UNUSED_LIBRARY, _WARNING, "The bundle does not use this library."),
    # Commands.
    Rule(Code.COMMAND_SYNTAX, _ERROR, "A command line cannot be split into words."),
    Rule(Code.SHELL_OPERATOR, _ERROR, "A command without a shell has a redirection, a pipe or a shell word."),
    Rule(Code.SHELL_SYNTAX, _WARNING, "A command without a shell has a character that only a shell expands."),
    Rule(Code.RELATIVE_PROGRAM, _WARNING, "The path of a program is relative, but `cwd` is missing."),
    Rule(Code.HEALTH_CHECK_LIMIT, _WARNING, "A health check waits for another system without a time limit."),
    Rule(Code.GOSS_FILE, _ERROR, "A goss file contains an unsupported test."),
    Rule(Code.SECRET_ON_COMMAND_LINE, _WARNING, "The process list shows a secret while a command runs."),
    Rule(Code.UNNEEDED_READER, _WARNING, "More recipients can read an encrypted file than need it."),
    # Data.
    Rule(Code.UNREACHABLE_OVERRIDE, _ERROR, "No entry of `hierarchy.order` produces this override section."),
    Rule(Code.UNUSED_DATA, _WARNING, "The bundle does not use this key of data."),
    Rule(Code.MISPLACED_ANNOTATION, _ERROR, "An annotation without a key is ignored."),
    Rule(Code.MISSPELT_ANNOTATION, _ERROR, "A misspelt annotation is ignored."),
    Rule(Code.ANNOTATION, _WARNING, "A comment looks like an annotation, but is ignored."),
    # Notation.
    Rule(Code.FOREIGN_EXPRESSION, _WARNING, "`${ … }` is ordinary text. Write `{{ … }}`. In CCM manifests, an error."),
    Rule(Code.UNQUOTED_OCTAL, _WARNING, "YAML reads a number with a leading 0 as octal. Quote it."),
    # Lint itself.
    Rule(Code.SUPPRESSION, _WARNING, "A suppression names an unknown rule, or a rule that cannot be switched off."),
)  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _ROWS}
"""The rules by name."""


def severity_of(code: Code) -> Severity:
    """Return the severity of a code. A code without a rule refuses the manifest."""
    return RULES[code].severity if code in RULES else Severity.ERROR


def summary_of(code: Code) -> str:
    """Return the meaning of a code in one sentence."""
    return RULES[code].summary if code in RULES else "A host would reject the manifest."


def may_be_switched_off(name: str) -> bool:
    """Return whether authors may switch off a rule. Only warnings qualify."""
    return name in RULES and RULES[name].severity is Severity.WARNING and name != Code.SUPPRESSION


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
    """Return the finding for a problem, by default with the rule of its code and the severity of the rule."""
    related = tuple(_shown(location, subject) for location in problem.related)
    location = _shown(problem.location, subject)
    return Finding(
        replaced(problem, location=location, related=related, entry=problem.entry),
        severity or severity_of(rule or problem.code),
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
    return finding(placed, subject, severity, rule)


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
