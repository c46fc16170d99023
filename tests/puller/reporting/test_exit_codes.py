"""Exit statuses are a stable interface: each error has one, and the most serious wins."""

import pytest

from bundles import errors as bundle_errors
from hiera import errors as hiera_errors
from puller import errors as puller_errors
from puller.exit_status import ExitStatus, worst
from puller.reporting.run_log import status_of
from tests.support.rows import each_row


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([], ExitStatus.OK),
        ([ExitStatus.OK, ExitStatus.CHANGED], ExitStatus.CHANGED),
        ([ExitStatus.FETCH_FAILED, ExitStatus.CHANGED], ExitStatus.FETCH_FAILED),
        ([ExitStatus.FETCH_FAILED, ExitStatus.NOTHING_TO_ENFORCE], ExitStatus.NOTHING_TO_ENFORCE),
        ([ExitStatus.SIGNATURE, ExitStatus.FAILED], ExitStatus.SIGNATURE),
        ([ExitStatus.FETCH_FAILED, ExitStatus.FAILED], ExitStatus.FAILED),
    ],
)
def test_the_most_serious_status_wins(statuses: list[ExitStatus], status: ExitStatus) -> None:
    assert worst(*statuses) is status


@each_row("status", ExitStatus)
def test_every_status_has_its_place_among_the_others(status: ExitStatus) -> None:
    assert worst(status) is status


def classes(module: object, base: type[Exception]) -> list[type[Exception]]:
    return [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)]


@each_row("kind", classes(bundle_errors, bundle_errors.BundleError))
def test_every_error_of_bundles_has_a_status(kind: type[Exception]) -> None:
    assert status_of(kind("https://www.example.org", "broken")) not in (None, ExitStatus.BUG)


@each_row("kind", classes(hiera_errors, hiera_errors.HieraError))
def test_every_error_of_data_has_a_status(kind: type[Exception]) -> None:
    assert status_of(kind("web.yaml:3", "broken")) is ExitStatus.REJECTED


@each_row(
    ("error", "status"),
    [
        (puller_errors.ConfigurationError("x"), 78),
        (puller_errors.BusyError("x"), 75),
        (puller_errors.UsageError("x"), 64),
        (puller_errors.ManifestError([]), 13),
        (puller_errors.SourceError("x"), 13),
        (bundle_errors.SignatureError("x", "y"), 10),
        (bundle_errors.ExpiredError("x", "y"), 11),
        (bundle_errors.RollbackError("x", "y"), 12),
        (bundle_errors.UnpackError("x", "y"), 13),
        (bundle_errors.TransportError("x", "y"), 14),
        (PermissionError(13, "denied"), 78),
    ],
)
def test_the_documented_statuses(error: Exception, status: int) -> None:
    assert status_of(error) == status


def test_unknown_exceptions_are_internal_errors() -> None:
    assert status_of(KeyError("x")) is None
