"""Commands with which an operator stops or reverts updates on this host.

``disable`` and ``enable``, ``pin`` and ``unpin``, ``quarantine``, ``rollback``, and ``forget``. ``docs/holding.md``
is the guide.
"""

import contextlib
from datetime import UTC, datetime

import click
import msgspec

from bundles.format.fields import parse_version
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.problems import ProblemCode
from foundation.quantities import size_text
from foundation.times import minute_text, parse_until
from puller.cli.command_table import CommandGroup
from puller.cli.completing import (
    bundles_of_host,
    bundles_with_state,
    leftovers_of_bundle,
    quarantined_bundles,
    quarantined_versions,
    versions_on_host,
)
from puller.cli.host.common import chosen, config_option, load_host, one_line, state_in_use, user
from puller.cli.options import text_format_option
from puller.cli.output import print_result_of, say, show, warn
from puller.config.configuration import BundleChoice
from puller.errors import BusyError, ConfigurationError, ResourceError, UsageError
from puller.reporting.history import load_status
from puller.reporting.report import Report
from puller.reporting.results import DisableResult, PinResult, RollbackResult, described_problems
from puller.run.jobs import RunOptions, run
from puller.run.policy.holds import Disabled, Pins, Quarantine
from puller.run.policy.holds import disable as save_hold
from puller.run.policy.holds import enable as end_hold
from puller.run.policy.operator_requests import forget as forget_bundle
from puller.run.policy.operator_requests import forget_leftovers, roll_back
from puller.run.reboots import cancel_scheduled
from puller.run.trials import Trials
from puller.state import Directories, only_run


@click.command()
@click.option(
    "--reason",
    metavar="REASON",
    required=True,
    help="The reason for other operators. Runs and `puller status` print it.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="The end of the hold: 2026-11-21T06:00 (UTC without an offset), 4h, 2d, 18:00 or tomorrow.",
)
@config_option
@text_format_option
def disable(reason: str, until: str | None, path: str, output_format: str) -> int:
    """Stop applying bundles on this host.

    The hold ends with `puller enable`, or at the time of --until. Runs still fetch and verify new releases, so the
    host is up to date soon after the hold. These runs exit with status 20. An active run continues to its end. A
    reboot that a run has scheduled is cancelled. If you disable the host again, the new reason and time replace the
    old ones.

    \b
    Examples:
      puller disable --reason "TICKET-7: restoring the database" --until 4h
      puller disable --reason "frozen for the audit" --until 2026-12-01T08:00+01:00
    """

    def hold() -> Disabled:
        _, directories = load_host(path)
        now = datetime.now(UTC)
        end = _end(until, now)
        with state_in_use("written"):
            disabled = save_hold(directories, one_line("--reason", reason), user(), now, end)
            _cancel_reboot(directories)
        return disabled

    if output_format == "json":
        return print_result_of(DisableResult, lambda: DisableResult(**msgspec.structs.asdict(hold())))
    say(hold())
    _print_active_run(load_host(path)[1], "The hold takes effect after it")
    return 0


def _cancel_reboot(directories: Directories) -> None:
    """Cancel a scheduled reboot, after the hold is in force. Print the result on standard error."""
    try:
        if (at := cancel_scheduled(directories)) is not None:
            say(f"the reboot scheduled for {minute_text(at)} is cancelled", err=True)
    except (ResourceError, ValueError) as error:
        say(f"puller: a scheduled reboot cannot be cancelled: {error}", err=True)


@click.command()
@config_option
def enable(path: str) -> None:
    """Apply bundles again after `puller disable`.

    \b
    Example:
      puller enable && puller run
    """
    _, directories = load_host(path)
    with state_in_use("written"):
        hold = end_hold(directories, datetime.now(UTC))
    say(f"enabled. Before: {hold}" if hold else "already enabled")
    _print_active_run(directories, "The next run applies bundles again")


def _end(until: str | None, now: datetime) -> datetime | None:
    try:
        return None if until is None else parse_until(until, now)
    except ValueError as error:
        raise UsageError(f"--until {error}") from None


def _print_active_run(directories: Directories, consequence: str) -> None:
    doing = load_status(directories)
    if doing and doing.state == "running":
        say(
            f"a run has been active since {doing.since} (process {doing.process}) and finishes. {consequence}"
        )


# ``puller pin`` and ``puller unpin``: hold a bundle at a version.


@click.command()
@click.argument("bundle", shell_complete=bundles_of_host)
@click.argument("version", required=False, shell_complete=versions_on_host)
@config_option
@text_format_option
def pin(bundle: str, version: str | None, path: str, output_format: str) -> int:
    """Hold a bundle at one version on this host.

    The hold ends with `puller unpin`. Without VERSION, Puller pins the currently enforced version. Otherwise the
    next run installs VERSION from the site. A pin overrides the channel. It must not contradict a version in the
    configuration. The exit status is 75 during a run.

    \b
    Examples:
      puller pin web
      puller pin web 1.4.0
    """
    if output_format == "json":
        return print_result_of(PinResult, lambda: _pin(bundle, version, path))
    pinned = _pin(bundle, version, path)
    change = ""
    if pinned.enforced != pinned.version:
        change = f"; enforced now: {pinned.enforced or 'nothing'}, the next run changes that"
    say(f"{bundle} is pinned to {pinned.version}{change}")
    _print_quarantine(load_host(path)[1], bundle, pinned.version)
    return 0


def _pin(bundle: str, version: str | None, path: str) -> PinResult:
    configuration, directories = load_host(path)
    choice = chosen(configuration, bundle)
    with only_run(directories.run), state_in_use("written"):
        enforced = Store(directories.bundles).current(bundle)
        pinned = _version(bundle, version, enforced)
        _check_configured(choice, pinned, path)
        Pins.load(directories, warn).set(bundle, pinned)
    return PinResult(bundle=bundle, version=pinned, enforced=enforced.version if enforced else "")


@click.command()
@click.argument("bundle", shell_complete=bundles_of_host)
@config_option
def unpin(bundle: str, path: str) -> None:
    """Let a bundle follow its channel again.

    If the configuration names a version, the bundle follows this version.

    \b
    Example:
      puller unpin web
    """
    configuration, directories = load_host(path)
    with only_run(directories.run), state_in_use("written"):
        pins = Pins.load(directories, warn)
        if pins.find(bundle) is None:  # a pin may remain after its bundle has left the configuration
            chosen(configuration, bundle)
        version = pins.remove(bundle)
    say(f"{bundle} is unpinned. Before: pinned to {version}" if version else f"{bundle} is not pinned")


def _version(bundle: str, version: str | None, enforced: Installed | None) -> str:
    if version is not None:
        return parse_version(version)
    if enforced is None:
        raise UsageError(
            f"{bundle}: no version is enforced yet. Name the version to pin",
            code=ProblemCode.NOTHING_TO_ENFORCE,
        )
    return enforced.version


def _check_configured(choice: BundleChoice, version: str, path: str) -> None:
    if choice.version not in (None, version):
        raise ConfigurationError(
            f"{path}: {choice.name} has version {choice.version} there, expected a pin to {version}. "
            "Change it there, or remove it there to pin it here"
        )


def _print_quarantine(directories: Directories, bundle: str, version: str) -> None:
    for entry in Quarantine.load(directories, warn, noop=True).entries:
        if (entry.bundle, entry.version) == (bundle, version):
            say(f"{entry}. `puller quarantine clear {bundle} {version}` allows another attempt")


# ``puller quarantine``: versions of bundles that this host does not retry.


@click.group(cls=CommandGroup)
def quarantine() -> None:
    """List or clear quarantined versions.

    Puller does not retry a quarantined version. A version is quarantined after failed health checks, after two
    interrupted runs, after as many failed runs as give_up_after permits, or by `puller rollback`. Entries identify
    versions by digest, so the same files with another version number can be tried.
    """


@quarantine.command("list")
@text_format_option
@config_option
def list_entries(output_format: str, path: str) -> None:
    """List the quarantined versions with their reasons, oldest first.

    \b
    Example:
      puller quarantine list --format json
    """
    _, directories = load_host(path)
    with state_in_use("read"):
        entries = Quarantine.load(directories, warn, noop=True).entries
    if output_format == "json":
        show(msgspec.to_builtins(entries), "json")
        return
    for entry in entries:
        say(entry)
        for failure in entry.failed:
            say(f"  failed: {failure}")
        for change in entry.not_undone:
            say(f"  not undone: {change}")
    if not entries:
        say("nothing is quarantined")


@quarantine.command()
@click.argument("bundle", required=False, shell_complete=quarantined_bundles)
@click.argument("version", required=False, shell_complete=quarantined_versions)
@click.option("--all", "everything", is_flag=True, help="Clear the entries of all bundles.")
@config_option
def clear(bundle: str | None, version: str | None, everything: bool, path: str) -> None:
    """Let the next run retry the versions of BUNDLE, or one VERSION.

    The exit status is 75 during a run, because runs write the same file.

    \b
    Examples:
      puller quarantine clear web 1.5.0
      puller quarantine clear --all
    """
    if everything == (bundle is not None):
        raise UsageError("quarantine clear: expected the name of a bundle, or --all")
    configuration, directories = load_host(path)
    with only_run(directories.run), state_in_use("written"):
        quarantine = Quarantine.load(directories, warn)
        if bundle is not None and all(entry.bundle != bundle for entry in quarantine.entries):
            chosen(configuration, bundle)  # an unknown bundle is an error
        cleared = quarantine.clear(bundle, version)
    for entry in cleared:
        say(f"{entry.bundle} {entry.version} may be tried again. Reason of the quarantine: {entry.reason}")
    if not cleared:
        name = " ".join(filter(None, (bundle, version)))
        say(f"{name} is not quarantined" if name else "nothing is quarantined")


# ``puller rollback``: return to an earlier version of a bundle.


@click.command()
@click.argument("bundle", shell_complete=bundles_of_host)
@click.option(
    "--reason", metavar="REASON", default="", help="The reason, for the list of quarantined versions."
)
@click.option("--later", is_flag=True, help="Let the next run apply the earlier version.")
@config_option
@text_format_option
def rollback(bundle: str, reason: str, later: bool, path: str, output_format: str) -> int:
    """Roll a bundle back to its last good version.

    Puller applies the last good version of BUNDLE. If the current version is the last good one, Puller rolls back
    to the version before it. The current version is quarantined by its digest, so no run installs it again. Later
    releases are installed as usual. The command works offline, and its exit status is that of the run. It fails
    without an earlier version. The exit status is 75 during a run.

    \b
    Example:
      puller rollback web --reason "logins fail since 1.5.0"
    """
    if output_format == "json":
        return print_result_of(RollbackResult, lambda: _rolled_back(bundle, reason, path, later=later))
    current, target, pinned = _roll_back(bundle, reason, path)
    _print_rollback(current, target, pinned)
    if later:
        say("the next run applies it. To apply it now, use `puller run`")
        return 0
    return _apply(path)


def _roll_back(bundle: str, reason: str, path: str) -> tuple[Installed, Installed, str | None]:
    """Return the version that was current, the version that is current now, and the pinned version."""
    configuration, directories = load_host(path)
    choice = chosen(configuration, bundle)
    why = f"rolled back by {user()}" + (f": {one_line('--reason', reason)}" if reason else "")
    with only_run(directories.run), state_in_use("written"):
        quarantine = Quarantine.load(directories, warn)
        trials = Trials(directories, warn, noop=False)
        current, target = roll_back(Store(directories.bundles), quarantine, trials, bundle, why)
        return current, target, Pins.load(directories, warn).find(bundle) or choice.version


def _rolled_back(bundle: str, reason: str, path: str, *, later: bool) -> RollbackResult:
    """Roll back, and return the result with the report of the run that applies the version."""
    current, target, _ = _roll_back(bundle, reason, path)
    reports: list[Report] = []
    status = 0
    with contextlib.suppress(BusyError):  # a run that began after the links were changed applies the version
        status = 0 if later else run(RunOptions(config=path, offline=True, reports=reports))
    report = next(iter(reports), None)
    return RollbackResult(
        exit_status=status,
        problems=described_problems(report.problems if report else ()),
        bundle=bundle,
        before=current.version,
        version=target.version,
        quarantined=current.sha256,
        report=report,
    )


def _print_rollback(current: Installed, target: Installed, pinned: str | None) -> None:
    say(f"{target.name} {target.version} is current again, was {current.version}")
    say(f"{current.name} {current.version} is quarantined (sha256 {current.sha256})")
    if pinned == current.version:
        say(f"{current.name} is still pinned to {pinned}, which is not tried again: pin it to another")


def _apply(path: str) -> int:
    try:
        return run(RunOptions(config=path, offline=True))
    except BusyError:  # it began after the links were changed
        say("another run has just begun, and applies it")
        return 0


# ``puller forget``: remove the files of a bundle that the configuration no longer names.


@click.command()
@click.argument("bundle", shell_complete=bundles_with_state)
@click.argument("references", nargs=-1, metavar="[REFERENCE]...", shell_complete=leftovers_of_bundle)
@click.option(
    "--left", is_flag=True, help="Remove leftovers of BUNDLE from the list, all or those of the references."
)
@config_option
def forget(bundle: str, references: tuple[str, ...], left: bool, path: str) -> None:
    """Delete the stored data of an unconfigured bundle.

    Puller deletes the versions and the pin of BUNDLE. Resources of the bundle and quarantine entries stay. If you
    configure the bundle again before you forget it, the next run enforces the stored version, even offline. The
    exit status is 75 during a run.

    With --left, Puller only removes leftovers from the list: resources that no version declares any longer. This also
    works for configured bundles.

    \b
    Examples:
      puller forget web
      puller forget web --left
      puller forget web --left file#/etc/old.conf
    """
    configuration, directories = load_host(path)
    if left:
        _forget_leftovers(directories, bundle, references)
        return
    if references:
        raise UsageError("forget: references are for --left")
    if any(choice.name == bundle for choice in configuration.bundles):
        raise UsageError(
            f"{bundle}: is in {path}", hint="take it out there first, or the next run brings it again"
        )
    with only_run(directories.run), state_in_use("written"):
        result = forget_bundle(directories, bundle, warn)
    version = f" {result.version}" if result.version else ""
    say(f"{bundle}{version} is forgotten, {size_text(result.size)} are free. Its resources stay")


def _forget_leftovers(directories: Directories, bundle: str, references: tuple[str, ...]) -> None:
    with only_run(directories.run), state_in_use("written"):
        forgotten = forget_leftovers(directories, bundle, references, warn)
    for item in forgotten:
        say(f"{item.reference} is forgotten, and stays as it is")
    if not forgotten:
        say(f"{bundle} has left nothing behind")
