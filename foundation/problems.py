"""Problems as values: what is wrong, where, with which resource, and how to fix it.

* Code that decides something reads the fields of a problem. Only ``foundation.formatting`` turns problems into text.
* A code is a stable name. Lint, reports, JSON documents and ``docs/problems.md`` use the same names.
* Messages are masked when a problem is made: user names, passwords and queries of URLs never get into one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from foundation.masking import mask_urls

KeyPath = tuple[str | int, ...]
"""Keys and indexes that lead to a value, from the top of a document."""


class DependsOn(StrEnum):
    """Why a problem of this host may not exist on another host."""

    NOTHING = "nothing"
    """Every host has the problem."""
    FACTS = "facts"
    """Another host has other facts or environment variables."""
    DATA = "data"
    """Another host has other data."""
    BUNDLES = "bundles"
    """Another bundle of the host may declare the resource."""
    KEY = "key"
    """Only the host has the key that decrypts the value."""

    @classmethod
    def _missing_(cls, value: object) -> DependsOn:
        """Accept a reason of a newer version of Puller, and read it as no reason."""
        return cls.NOTHING


_NAME_OF_CODE = r"[a-z][a-z0-9]*(-[a-z0-9]+){0,9}"  # compiled on first use


class ProblemCode(StrEnum):
    """The kind of a problem. ``docs/problems.md`` explains each code."""

    # Texts and their keys.
    INVALID_MANIFEST = "invalid-manifest"
    INVALID_DOCUMENT = "invalid-document"
    UNKNOWN_KEY = "unknown-key"
    INVALID_NAME = "invalid-name"
    REQUIRES_OTHER_VERSION = "requires-other-version"
    # Resources.
    UNKNOWN_TYPE = "unknown-type"
    UNKNOWN_PROPERTY = "unknown-property"
    MISSING_PROPERTY = "missing-property"
    INVALID_VALUE = "invalid-value"
    DECLARED_TWICE = "declared-twice"
    RESOURCE_CONFLICT = "resource-conflict"
    UNDECLARED_REFERENCE = "undeclared-reference"
    DEPENDENCY_CYCLE = "dependency-cycle"
    INVALID_CHILD_MANIFEST = "invalid-child-manifest"
    INVALID_LOOP = "invalid-loop"
    INVALID_LIBRARY = "invalid-library"
    INVALID_EXPORT = "invalid-export"
    EXPOSED_SECRET = "exposed-secret"  # noqa: S105  a code and no secret
    REQUIRES_ROOT = "requires-root"
    # Expressions, facts and data.
    UNDEFINED_FACT = "undefined-fact"
    UNDEFINED_DATA = "undefined-data"
    DATA_CYCLE = "data-cycle"
    UNAVAILABLE_FACT = "unavailable-fact"
    INVALID_FACT_FILE = "invalid-fact-file"
    EXPRESSION_FAILS = "expression-fails"
    MISSING_DATA = "missing-data"
    REJECTED_DATA = "rejected-data"
    UNREADABLE_SECRET = "unreadable-secret"  # noqa: S105  a code and no secret
    LIMIT_EXCEEDED = "limit-exceeded"
    INVALID_HIERARCHY = "invalid-hierarchy"
    LOOKUP_FAILS = "lookup-fails"
    # Rules of lint.
    HOST_WARNING = "host-warning"
    RESOURCE_FAILS = "resource-fails"
    DEPENDS_ON_FACTS = "depends-on-facts"
    UNKNOWN_NAME = "unknown-name"
    MISSPELT_FACT = "misspelt-fact"
    UNKNOWN_FUNCTION = "unknown-function"
    EXPRESSION_SYNTAX = "expression-syntax"
    TEMPLATE_SYNTAX = "template-syntax"
    MISSING_FILE = "missing-file"
    UNPACKABLE_FILE = "unpackable-file"
    UNUSED_FILE = "unused-file"
    UNUSED_LIBRARY = "unused-library"
    COMMAND_SYNTAX = "command-syntax"
    SHELL_OPERATOR = "shell-operator"
    SHELL_SYNTAX = "shell-syntax"
    RELATIVE_PROGRAM = "relative-program"
    HEALTH_CHECK_LIMIT = "health-check-limit"
    GOSS_FILE = "goss-file"
    SECRET_ON_COMMAND_LINE = "secret-on-command-line"  # noqa: S105  a code and no secret
    UNNEEDED_READER = "unneeded-reader"
    UNREACHABLE_OVERRIDE = "unreachable-override"
    UNUSED_DATA = "unused-data"
    MISSPELT_ANNOTATION = "misspelt-annotation"
    MISPLACED_ANNOTATION = "misplaced-annotation"
    ANNOTATION = "annotation"
    FOREIGN_EXPRESSION = "foreign-expression"
    UNQUOTED_OCTAL = "unquoted-octal"
    SUPPRESSION = "suppression"
    # Trust and transport.
    NETWORK_FAILURE = "network-failure"
    FILE_NOT_FOUND = "file-not-found"
    OVERSIZED_FILE = "oversized-file"
    UNTRUSTED_CONTENT = "untrusted-content"
    CHECKSUM_MISMATCH = "checksum-mismatch"
    METADATA_EXPIRED = "metadata-expired"
    METADATA_ROLLBACK = "metadata-rollback"
    UNKNOWN_FORMAT = "unknown-format"
    INVALID_ARCHIVE = "invalid-archive"
    STORE_FAILURE = "store-failure"
    # Publishing.
    PUBLISH_REFUSED = "publish-refused"
    NOT_PUBLISHED = "not-published"
    UNUSABLE_KEY = "unusable-key"
    UNAVAILABLE_TOKEN = "unavailable-token"  # noqa: S105  a code and no secret
    TESTS_FAIL = "tests-fail"
    # The machine and its operator.
    INVALID_CONFIGURATION = "invalid-configuration"
    INVALID_COMMAND = "invalid-command"
    ANOTHER_RUN = "another-run"
    UNREADABLE_SOURCE = "unreadable-source"
    UNWRITABLE_OUTPUT = "unwritable-output"
    UNUSABLE_STORE = "unusable-store"
    MISSING_DEPENDENCY = "missing-dependency"
    RUN_WARNING = "run-warning"
    NOTHING_TO_ENFORCE = "nothing-to-enforce"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_FAILS = "rollback-fails"
    AGENT_FALLBACK = "agent-fallback"
    SYSTEM_ERROR = "system-error"
    INTERNAL_ERROR = "internal-error"
    # Resources while they are applied.
    LOOK_FAILED = "look-failed"
    CHANGE_REFUSED = "change-refused"
    CHANGE_FAILED = "change-failed"
    STILL_DIFFERS = "still-differs"
    UNDONE_CHANGE = "undone-change"
    REASON_REMAINS = "reason-remains"
    HEALTH_CHECK_FAILED = "health-check-failed"
    CHILDREN_FAILED = "children-failed"
    UNTRUSTED_PATH = "untrusted-path"
    MISSING_ACCOUNT = "missing-account"
    TEMPLATE_FAILS = "template-fails"
    STOPPED = "stopped"
    NEEDED_BY_ANOTHER = "needed-by-another"
    CHANGED_MEANWHILE = "changed-meanwhile"

    @classmethod
    def _missing_(cls, value: object) -> ProblemCode | None:
        """Accept the code of a newer version of Puller, so that its reports can be read."""
        if not isinstance(value, str) or not re.fullmatch(_NAME_OF_CODE, value):
            return None
        code = str.__new__(cls, value)
        code._name_, code._value_ = value, value
        return code


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a file."""

    file: str = ""
    """The name in messages: ``web/templates/app.conf.j2``. Empty if unknown."""
    line: int = 0
    """Line number from 1. 0 for the whole file."""
    column: int = 0
    """Column number from 1. 0 if only the line is known."""
    path: KeyPath = ()
    """The keys that lead to the value, in a document."""
    is_exact: bool = False
    """Whether this column is the mistake itself. Otherwise it is the start of the value, and
    errors show only the line.
    """

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])

    @property
    def order(self) -> tuple[str, int, int]:
        """Return a key that sorts locations."""
        return self.file, self.line, self.column

    def map_texts(self, change: Callable[[str], str]) -> Location:
        """Return the location with other texts."""
        if not self.file and not self.path:
            return self
        path = tuple(change(key) if isinstance(key, str) else key for key in self.path)
        return msgspec.structs.replace(self, file=change(self.file), path=path)


NOWHERE = Location()


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One problem."""

    code: ProblemCode
    message: str
    """One sentence for users, without location, subject, suggestions, expected values and hint."""
    location: Location = NOWHERE
    entry: str = ""
    """The list entry that contains the subject: ``resources[3]``."""
    subject: str = ""
    """The resource: ``file#/etc/motd``."""
    property: str = ""
    name: str = ""
    """The wrong name, path or expression. Two reports of one mistake have the same name."""
    suggestions: tuple[str, ...] = ()
    """Similar names, nearest first."""
    known: tuple[str, ...] = ()
    """Some known names, nearest first, if none is similar."""
    known_more: int = 0
    """The number of further known names."""
    expected: str = ""
    """The valid values: ``a duration such as '5s'``. It completes the message."""
    hint: str = ""
    """How to fix it."""
    excerpt: str = ""
    """Lines of the source, with a mark below the place."""
    related: tuple[Location, ...] = ()
    """Further places, such as the template that a resource renders."""
    depends_on: DependsOn = DependsOn.NOTHING

    def __post_init__(self) -> None:
        _mask(self)

    def __str__(self) -> str:
        return _formatters[-1](self)

    def map_texts(self, change: Callable[[str], str]) -> Problem:
        """Return the problem with each text replaced by ``change``. The code stays."""
        return msgspec.structs.replace(
            self,
            **{name: change(getattr(self, name)) for name in _TEXTS if getattr(self, name)},
            location=self.location.map_texts(change),
            suggestions=tuple(map(change, self.suggestions)),
            known=tuple(map(change, self.known)),
            related=tuple(location.map_texts(change) for location in self.related),
        )


_TEXTS = ("message", "entry", "subject", "property", "name", "expected", "hint", "excerpt")


def _mask(problem: Problem) -> None:
    for field in ("message", "subject", "expected", "hint", "name"):
        text = getattr(problem, field)
        if "://" in text and (masked := mask_urls(text)) != text:
            msgspec.structs.force_setattr(problem, field, masked)


def register_formatter(formatter: Callable[[Problem], str]) -> None:
    """Register the function that formats problems. ``foundation.formatting`` calls this when it is imported."""
    _formatters.append(formatter)


_formatters: list[Callable[[Problem], str]] = []


@runtime_checkable
class HasProblems(Protocol):
    """An error that carries its problems."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return all problems of the error."""
        ...


def problems_of(error: BaseException) -> tuple[Problem, ...]:
    """Return the problems of an error. A system or library error becomes one problem."""
    if isinstance(error, HasProblems):
        return error.problems
    code = ProblemCode.SYSTEM_ERROR if isinstance(error, OSError) else ProblemCode.INTERNAL_ERROR
    return (Problem(code=code, message=str(error) or type(error).__name__),)


def replaced(problem: Problem, **fields: Any) -> Problem:
    """Return a copy with other fields."""
    return msgspec.structs.replace(problem, **fields)
