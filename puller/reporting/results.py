"""The JSON documents of ``--format json``: one document for each command, and their JSON Schema.

* ``command`` and ``format`` identify the kind of a document. Later versions may add fields, which readers ignore.
* After an error, the document has the problems and the exit status, and the other fields have their defaults.
* Values contain no secrets.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Union

import msgspec

from foundation.formatting import plain
from foundation.problems import Problem, ProblemCode
from foundation.times import iso_text
from puller.reporting.history import identity
from puller.reporting.report import BundleReport, Health, HealthResult, Report
from puller.values.maintenance import PendingReboot
from puller.version import __version__

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class DescribedProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem with its full text."""

    text: str = ""


class Result(msgspec.Struct, kw_only=True, tag_field="command"):
    """The fields of all documents."""

    format: Literal[1] = 1
    exit_status: int = 0
    problems: list[DescribedProblem] = []
    """Problems outside of resources."""


class RunResult(Result, tag="run", kw_only=True):
    """The result of ``puller run``."""

    report: Report | None = None
    """Every resource with its differences. Empty if the run has not begun."""


class ApplyResult(Result, tag="apply", kw_only=True):
    """The result of ``puller apply``."""

    report: Report | None = None
    """Like the report of a run. The manifest is its only bundle, named by its path."""
    messages: list[str] = []
    """The messages of the manifest before and after the application."""


class RollbackResult(Result, tag="rollback", kw_only=True):
    """The result of ``puller rollback``."""

    bundle: str = ""
    before: str = ""
    """The version that is quarantined now."""
    version: str = ""
    """The version that is current again."""
    quarantined: str = ""
    """SHA-256 of the quarantined version."""
    report: Report | None = None
    """The run that applies the version. Empty with ``--later``."""


class PinResult(Result, tag="pin", kw_only=True):
    """The result of ``puller pin``."""

    bundle: str = ""
    version: str = ""
    enforced: str = ""
    """The version at this moment. Empty without one."""


class DisableResult(Result, tag="disable", kw_only=True):
    """The result of ``puller disable``. Times are UTC in ISO 8601."""

    reason: str = ""
    by: str = ""
    since: str = ""
    until: str = ""
    """Empty: until ``puller enable``."""


class FollowedBundle(msgspec.Struct, kw_only=True):
    """A bundle in the configuration."""

    name: str
    channel: str
    version: str = ""
    """The version that the configuration fixes. Usually empty."""


class DiffResult(Result, tag="diff", kw_only=True):
    """The result of ``puller diff``."""

    report: Report | None = None
    """Like the report of a dry run, without new releases."""


class HistoryResult(Result, tag="history", kw_only=True):
    """The result of ``puller history``."""

    runs: list[Report] = []
    """The runs with changes or problems, newest first."""
    quiet: int = 0
    """The number of runs without changes."""


class DoctorCheck(msgspec.Struct):
    """The result of one check."""

    subject: str
    verdict: str
    """``ok``, ``warning``, ``problem`` or ``unknown``."""
    fact: str
    fix: str = ""


class DoctorResult(Result, tag="doctor", kw_only=True):
    """The result of ``puller doctor``."""

    checks: list[DoctorCheck] = []


class ConfigCheckResult(Result, tag="config check", kw_only=True):
    """The result of ``puller config check``."""

    file: str = ""
    mirrors: list[str] = []
    """Without passwords."""
    bundles: list[FollowedBundle] = []
    windows: list[str] = []


class SiteRole(msgspec.Struct, kw_only=True):
    """The metadata of one role."""

    role: str
    version: int
    expires: str
    """UTC in ISO 8601."""


class SiteVerifyResult(Result, tag="site verify", kw_only=True):
    """The result of ``puller site verify``."""

    directory: str = ""
    targets: int = 0
    """Indexes, histories, documents and archives."""
    files: int = 0
    """Single files of bundles."""
    size: int = 0
    """Bytes of the targets."""
    roles: list[SiteRole] = []


class BundleCheck(HealthResult, kw_only=True, omit_defaults=True):
    """The result of a health check, with its resource."""

    bundle: str
    resource: str


class HealthFinding(msgspec.Struct, kw_only=True):
    """A sentence about the health of the host."""

    health: Health
    message: str


class RepairRun(msgspec.Struct, kw_only=True):
    """The run of ``puller check --run``."""

    exit_status: int
    changed: int


class CheckResult(Result, tag="check", kw_only=True):
    """The result of ``puller check``. Its exit status is that of a Nagios plugin."""

    health: Health = Health.UNKNOWN
    message: str = ""
    enforced: dict[str, str] = {}
    """Versions by the name of the bundle."""
    checks: list[BundleCheck] = []
    findings: list[HealthFinding] = []
    at_work: str | None = None
    """The run that is in progress."""
    held: str | None = None
    """Why runs apply nothing."""
    reboots: list[PendingReboot] = []
    """The reboots that the last run left pending."""
    run: RepairRun | None = None


AnyResult = Union[  # noqa: UP007  a schema needs one type
    RunResult,
    ApplyResult,
    RollbackResult,
    CheckResult,
    DiffResult,
    HistoryResult,
    DoctorResult,
    PinResult,
    DisableResult,
    ConfigCheckResult,
    SiteVerifyResult,
]


def described_problems(problems: Sequence[Problem]) -> list[DescribedProblem]:
    """Return problems with their texts."""
    return [msgspec.convert(plain(problem), DescribedProblem) for problem in problems]


def report_of_apply(
    bundle: BundleReport, warnings: Sequence[str], exit_status: int, *, noop: bool, only: Sequence[str]
) -> Report:
    """Return the result of ``puller apply`` in the form of the report of a run."""
    finished = datetime.now(UTC)
    started = finished - timedelta(seconds=bundle.summary.duration)
    return Report(
        run=identity(started),
        started=iso_text(started, "milliseconds"),
        finished=iso_text(finished, "milliseconds"),
        host=os.uname().nodename,
        puller=__version__,
        noop=noop,
        exit_status=exit_status,
        only=list(only),
        problems=[Problem(code=ProblemCode.RUN_WARNING, message=warning) for warning in warnings],
        bundles=[bundle],
    )


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of all documents."""
    schema = msgspec.json.schema(AnyResult)
    schema["$defs"][ProblemCode.__name__] = {"title": ProblemCode.__name__, "type": "string"}
    return {"$schema": _DIALECT, "title": "The result of a command of Puller", **schema}
