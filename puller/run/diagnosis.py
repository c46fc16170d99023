"""The checks of ``puller doctor``: whether a run can work on this host, and why the last one did not.

* The checks change nothing. They read the machine, ask systemd, and fetch one small file from each mirror. The file is
  not used, because only a run verifies metadata.
* A broken configuration stops no check that works without it.
* A check that requires root has the verdict *unknown* for other users.
"""

import contextlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from bundles.client.trust import Anchor
from bundles.deadline import Deadline
from bundles.errors import BundleError
from bundles.format.size_limits import LARGEST_METADATA
from bundles.transport.mirror import Mirror, open_mirrors
from foundation.extras import how_to_install
from foundation.masking import mask_urls
from foundation.quantities import counted, size_text
from foundation.times import minute_text, parse_moment
from puller.config.configuration import Configuration, load_configuration
from puller.config.transport import transport_settings
from puller.errors import PullerError, file_problem
from puller.exit_status import ExitStatus
from puller.reporting.headline import cause, journal_command, services_to_run, stopped_sentence
from puller.reporting.history import load_all_events, load_last_report, load_status
from puller.reporting.restless import load_restless, restless_file, sentence
from puller.run.host_state import HostState
from puller.run.readiness import find_unready
from puller.state import Directories, decode, read_state
from puller.system.commands import Command, run
from puller.system.systemd_units import AGENT_TIMER, find_stopped, find_timer, is_systemd_running
from puller.system.trusted_files import find_trusted, require_trusted_directory

_MOST_RESTLESS = 3
_PATIENCE = 15.0
"""Seconds for all mirrors together."""
_TIMESTAMP = "metadata/timestamp.json"
_LEAST_BYTES = 100_000_000
_LEAST_FILES = 2_000
"""Free inodes. File systems without a fixed number of inodes report 0 in total."""
_EXPIRES_SOON = timedelta(days=2)
_OLDEST_RUN = timedelta(hours=2)
_CLOCK_TOLERANCE = timedelta(minutes=5)
_CHECKED_ELSEWHERE = frozenset(("trust_anchor", "site", "state_directory", "run_directory"))
_STORES = ("quarantine", "pins", "disabled", "journal", "managed", "restless", "pending_refreshes")
_EXTRAS = {"s3": "boto3", "fleet": "sqlalchemy"}
"""The module that shows whether an extra is installed."""
_NO_ANSWER = "systemd is not running or does not answer"
_AS_ROOT = "start `puller doctor` as root"


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """A run works now, but probably not for long."""
    PROBLEM = "problem"
    UNKNOWN = "unknown"


class Diagnosis(msgspec.Struct, frozen=True):
    """The result of one check, and how to fix a problem."""

    subject: str
    verdict: Verdict
    fact: str
    fix: str = ""


def diagnose(path: str, *, as_user: bool) -> Iterator[Diagnosis]:
    """Yield the results of all checks. ``path`` is the configuration of this host, or of the user's own agent."""
    configuration: Configuration | None = None
    try:
        configuration = load_configuration(path)
    except (PullerError, OSError) as error:
        fix = (
            f"puller config check --config {path}"
            if os.path.lexists(path)
            else f"puller config sample > {path}"
        )
        yield Diagnosis("configuration", Verdict.PROBLEM, _sentence(error), fix)
        directories = Directories.of_user()
    else:
        yield _configuration(path, configuration)
        directories = Directories(Path(configuration.state_directory), Path(configuration.run_directory))
    if configuration is not None:
        yield _checked("trust anchor", lambda: _anchor(configuration), _FIX_ANCHOR)
    yield _clock(directories)
    if configuration is not None:
        yield from _site(configuration)
        yield _checked("metadata", lambda: _expiry(configuration, directories))
    yield _timer(as_user=as_user)
    yield _checked("last run", lambda: _last_run(directories))
    yield from _services(directories, as_user=as_user)
    yield from _disk(directories)
    yield from _permissions(directories, is_private=not as_user)
    yield from _stores(directories)
    if configuration is not None:
        yield _checked("bundles", lambda: _bundles(configuration, directories))
        yield from _other_files(configuration)
    yield _extras(configuration)


def _checked(subject: str, check: Callable[[], Diagnosis], fix: str = "") -> Diagnosis:
    """Return the result of a check. An error of the check is a problem, or unknown without permission."""
    try:
        return check()
    except PermissionError as error:
        if os.geteuid() == 0:
            return Diagnosis(subject, Verdict.PROBLEM, file_problem(error, "cannot be read"), fix)
        return Diagnosis(subject, Verdict.UNKNOWN, file_problem(error, "cannot be read"), _AS_ROOT)
    except OSError as error:
        return Diagnosis(subject, Verdict.PROBLEM, file_problem(error, "cannot be read"), fix)
    except (PullerError, BundleError, ValueError, LookupError) as error:
        return Diagnosis(subject, Verdict.PROBLEM, _sentence(error), fix)


def _require_readable(directory: Path) -> None:
    """Raise ``OSError`` for a directory that exists and cannot be read."""
    with contextlib.suppress(FileNotFoundError):
        os.listdir(directory)


def _sentence(error: Exception) -> str:
    return " ".join(mask_urls(str(error)).split())


# Configuration, trust and time

_FIX_ANCHOR = "copy root.json from the publisher's site to the path in trust_anchor"


def _configuration(path: str, configuration: Configuration) -> Diagnosis:
    count = counted(len(configuration.bundles), "bundle")
    if not configuration.bundles:
        return Diagnosis("configuration", Verdict.WARNING, f"{path}: {count}", f"add bundles to {path}")
    return Diagnosis("configuration", Verdict.OK, f"{path}: valid, {count}")


def _anchor(configuration: Configuration) -> Diagnosis:
    path = find_trusted(configuration.trust_anchor)
    return Diagnosis("trust anchor", Verdict.OK, f"{path}: root version {Anchor.load(path).version}")


def _clock(directories: Directories) -> Diagnosis:
    """Compare the clock with the last run, and return whether it is synchronised."""
    now = datetime.now(UTC)
    fix = "timedatectl set-ntp true"
    try:
        report = load_last_report(directories)
        if report is not None and parse_moment(report.finished) > now + _CLOCK_TOLERANCE:
            fact = f"{minute_text(now)} is before the last run, {minute_text(parse_moment(report.finished))}"
            return Diagnosis("clock", Verdict.PROBLEM, fact, fix)
    except (OSError, ValueError):
        pass  # the check of the last run reports it
    synchronised = _is_clock_synchronised()
    if synchronised is False:
        fix = fix if _has_time_service() else "install systemd-timesyncd or chrony"
        return Diagnosis("clock", Verdict.WARNING, f"{minute_text(now)}, not synchronised", fix)
    return Diagnosis("clock", Verdict.OK, f"{minute_text(now)}{', synchronised' if synchronised else ''}")


def _is_clock_synchronised() -> bool | None:
    """Ask systemd. ``None`` if it is not running or does not answer."""
    return _of_timedatectl("NTPSynchronized")


def _has_time_service() -> bool:
    """Return whether ``timedatectl set-ntp`` works. It fails if no time service is installed."""
    return _of_timedatectl("CanNTP") is not False


def _of_timedatectl(name: str) -> bool | None:
    if not is_systemd_running():
        return None
    words = ["timedatectl", "show", f"--property={name}", "--value"]
    try:
        completed = run(Command(words, {"LC_ALL": "C"}, timeout=5.0))
    except OSError:
        return None
    return {"yes": True, "no": False}.get(completed.stdout.strip())


# Site


def _site(configuration: Configuration) -> Iterator[Diagnosis]:
    """Yield whether each mirror answers. A mirror that fails is a warning if another one works."""
    try:
        deadline = Deadline(_PATIENCE)
        mirrors = open_mirrors(configuration.mirrors, transport_settings(configuration.http), deadline)
    except (PullerError, BundleError, OSError) as error:
        yield Diagnosis(
            "site", Verdict.PROBLEM, _sentence(error), "correct `site` and `http` in the configuration"
        )
        return
    failures = [(mirror, _failure_of(mirror)) for mirror in mirrors]
    works = any(not failure for _, failure in failures)
    for mirror, failure in failures:
        if failure:
            verdict = Verdict.WARNING if works else Verdict.PROBLEM
            yield Diagnosis(
                "site", verdict, failure, "check the network, the server and `site` in the configuration"
            )
        else:
            yield Diagnosis("site", Verdict.OK, f"{mirror}: reachable")


def _failure_of(mirror: Mirror) -> str:
    try:
        mirror.download(_TIMESTAMP, LARGEST_METADATA["timestamp"], io.BytesIO())
    except (BundleError, OSError) as error:
        return _sentence(error)
    return ""


def _expiry(configuration: Configuration, directories: Directories) -> Diagnosis:
    now = datetime.now(UTC)
    _require_readable(directories.trust)
    expires = HostState(configuration, directories, now, _ignore).metadata_expiry()
    if expires is None:
        return Diagnosis("metadata", Verdict.UNKNOWN, "no verified metadata is stored", "puller run")
    fix = "the publisher runs `puller site refresh` and pushes the site"
    if expires <= now:
        return Diagnosis("metadata", Verdict.PROBLEM, f"expired {minute_text(expires)}", fix)
    if expires - now < _EXPIRES_SOON:
        return Diagnosis("metadata", Verdict.WARNING, f"expires {minute_text(expires)}", fix)
    return Diagnosis("metadata", Verdict.OK, f"valid until {minute_text(expires)}")


# Runs


def _timer(*, as_user: bool) -> Diagnosis:
    timer = find_timer(of_user=as_user)
    if timer is None:
        fix = "start `puller run` regularly, for example with cron"
        return Diagnosis("timer", Verdict.UNKNOWN, _NO_ANSWER, fix)
    if not timer.is_active:
        user = "--user " if as_user else ""
        fix = f"systemctl {user}enable --now {AGENT_TIMER}"
        return Diagnosis("timer", Verdict.PROBLEM, f"{AGENT_TIMER} is not active", fix)
    start = f", next run {minute_text(timer.next_start)}" if timer.next_start else ""
    return Diagnosis("timer", Verdict.OK, f"{AGENT_TIMER} is active{start}")


def _last_run(directories: Directories) -> Diagnosis:
    status = load_status(directories)
    if status and status.state == "running":
        return Diagnosis(
            "last run", Verdict.OK, f"a run is active since {minute_text(parse_moment(status.since))}"
        )
    _require_readable(directories.state)
    report = load_last_report(directories)
    if report is None:
        return Diagnosis("last run", Verdict.WARNING, "no run has ended yet", "puller run")
    finished = parse_moment(report.finished)
    fact = f"{minute_text(finished)}, exit status {report.exit_status}"
    if report.exit_status not in (ExitStatus.OK, ExitStatus.CHANGED, ExitStatus.HELD):
        problem, fix = cause(report)
        fact = f"{fact}: {problem}" if problem else fact
        otherwise = "correct the cause, then `puller run`" if problem else "puller status"
        return Diagnosis("last run", Verdict.PROBLEM, fact, _bare(fix) or otherwise)
    if datetime.now(UTC) - finished > _OLDEST_RUN:
        return Diagnosis("last run", Verdict.WARNING, f"{fact}, more than 2 hours ago", "puller run")
    return Diagnosis("last run", Verdict.OK, fact)


def _bare(fix: str) -> str:
    """Return a fix that is only a command without its backticks, as the fixes of all checks are."""
    return fix[1:-1] if fix.startswith("`") and fix.find("`", 1) == len(fix) - 1 else fix


def _services(directories: Directories, *, as_user: bool) -> Iterator[Diagnosis]:
    """Yield the services that stopped since the last run, and those that every run starts again."""
    try:
        report = load_all_events(directories)
        resources = load_restless(restless_file(directories), _ignore, noop=True)
    except (OSError, ValueError):
        return  # the check of the last run reports it
    services = services_to_run(report) if report else []
    if stopped := find_stopped(services, of_user=as_user):
        fix = f"{journal_command(stopped)}, then `puller run`"
        yield Diagnosis("services", Verdict.PROBLEM, stopped_sentence(stopped), fix)
    elif services and find_timer(of_user=as_user) is None:
        yield Diagnosis("services", Verdict.UNKNOWN, _NO_ANSWER)
    elif services:
        yield Diagnosis("services", Verdict.OK, f"{counted(len(services), 'service')} running")
    for resource in resources[:_MOST_RESTLESS]:
        fix = f"puller explain {resource.reference}"
        yield Diagnosis("restless", Verdict.WARNING, sentence(resource), fix)


# Directories and state


def _disk(directories: Directories) -> Iterator[Diagnosis]:
    """Yield the free space of the file systems that Puller writes to, each file system once."""
    devices = set()
    for directory in (directories.state, directories.run):
        place = _existing(directory)
        try:
            device, space = os.stat(place).st_dev, os.statvfs(place)
        except OSError as error:
            yield Diagnosis("disk space", Verdict.UNKNOWN, file_problem(error, "cannot be read"), _AS_ROOT)
            continue
        if device in devices:
            continue
        devices.add(device)
        free = space.f_bavail * space.f_frsize
        fact, fix = f"{directory}: {size_text(free)} free", f"free space on the file system of {place}"
        if space.f_files and space.f_favail < _LEAST_FILES:
            fact = f"{fact}, {counted(space.f_favail, 'free inode')}"
            yield Diagnosis("disk space", Verdict.PROBLEM, fact, fix)
        elif free < _LEAST_BYTES:
            yield Diagnosis("disk space", Verdict.PROBLEM, fact, fix)
        else:
            yield Diagnosis("disk space", Verdict.OK, fact)


def _existing(directory: Path) -> Path:
    """Return the directory, or its nearest parent that exists."""
    while not os.path.lexists(directory) and directory != directory.parent:
        directory = directory.parent
    return directory


def _permissions(directories: Directories, *, is_private: bool) -> Iterator[Diagnosis]:
    """Yield whether only the owner of the agent can write its directories, and whether this user can."""
    for directory in (directories.state, directories.run):
        place = _existing(directory)
        try:
            require_trusted_directory(directory)
        except PullerError as error:
            fix = f"chown root: {place} && chmod go-w {place}"
            yield Diagnosis("permissions", Verdict.PROBLEM, _sentence(error), fix)
            continue
        if os.access(place, os.W_OK):
            yield Diagnosis("permissions", Verdict.OK, f"{directory}: writable")
        elif is_private and os.geteuid() != 0:
            yield Diagnosis("permissions", Verdict.UNKNOWN, f"{directory}: requires root", _AS_ROOT)
        else:
            fix = f"make {place} writable for user {os.geteuid()}"
            yield Diagnosis("permissions", Verdict.PROBLEM, f"{directory}: not writable", fix)


def _stores(directories: Directories) -> Iterator[Diagnosis]:
    """Yield the state files that cannot be read. A run sets a damaged file aside and continues without it."""
    notes = []
    for name in _STORES:
        path: Path = getattr(directories, name)
        try:
            decode(read_state(path), msgspec.Raw)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            if os.geteuid() != 0:
                yield Diagnosis("state", Verdict.UNKNOWN, file_problem(error, "cannot be read"), _AS_ROOT)
                return
            notes.append(file_problem(error, "cannot be read"))
        except (OSError, ValueError) as error:
            notes.append(f"{path}: damaged ({_sentence(error)})")
    for note in notes:
        yield Diagnosis("state", Verdict.PROBLEM, note, "puller run, which sets a damaged file aside")
    if not notes:
        yield Diagnosis("state", Verdict.OK, f"{directories.state}: no damaged files")


def _bundles(configuration: Configuration, directories: Directories) -> Diagnosis:
    """Verify the files of the enforced versions."""
    _require_readable(directories.bundles)
    state = HostState(configuration, directories, datetime.now(UTC), _ignore, verify=True)
    bundles = state.bundles
    if damaged := [bundle.problem for bundle in bundles if bundle.problem]:
        return Diagnosis(
            "bundles", Verdict.PROBLEM, "; ".join(damaged), "puller run, which fetches the bundle again"
        )
    missing = [bundle.choice.name for bundle in bundles if bundle.enforced is None]
    if missing:
        return Diagnosis("bundles", Verdict.WARNING, f"not enforced yet: {', '.join(missing)}", "puller run")
    versions = [f"{bundle.choice.name} {bundle.enforced.version}" for bundle in bundles if bundle.enforced]
    return Diagnosis("bundles", Verdict.OK, ", ".join(versions) or "none configured")


def _other_files(configuration: Configuration) -> Iterator[Diagnosis]:
    """Yield the problems of the other files, users and destinations that the configuration names."""
    for unready in find_unready(configuration):
        key = ".".join(map(str, unready.keys))
        if unready.keys[0] in _CHECKED_ELSEWHERE:
            continue
        verdict, fix = Verdict.PROBLEM, f"correct `{key}` in the configuration"
        if unready.is_warning:
            verdict, fix = Verdict.WARNING, "restore the file from a backup, or remove it"
        if os.geteuid() != 0 and not configuration.as_user:
            verdict, fix = Verdict.UNKNOWN, _AS_ROOT
        yield Diagnosis(key, verdict, mask_urls(unready.sentence), fix)


def _extras(configuration: Configuration | None) -> Diagnosis:
    """Return the installed extras. An extra that the configuration needs and that is missing is a problem."""
    installed = [name for name, module in _EXTRAS.items() if importlib.util.find_spec(module)]
    destinations = configuration.reports.destinations if configuration else ()
    if "s3" not in installed and any((options.url or "").startswith("s3://") for options in destinations):
        return Diagnosis("extras", Verdict.PROBLEM, "s3 is required for reports", how_to_install("s3"))
    missing = [name for name in _EXTRAS if name not in installed]
    texts = [f"installed: {', '.join(installed) or 'none'}"]
    if missing:
        texts.append(f"not installed, and not needed on most hosts: {', '.join(missing)}")
    return Diagnosis("extras", Verdict.OK, "; ".join(texts))


def _ignore(note: str) -> None:
    """Ignore notes about damaged state, because the checks of the state report it."""
