"""The configuration of a host, ``/etc/puller/config.yaml`` or that of an ordinary user, decoded into typed values.

``samples/config.yaml`` documents every key, and a test loads it. An unknown key or a wrong type is an error with its
line, so that a misspelt key never falls back to its default.

Rules for the configuration of an ordinary user's agent, and for the files that it names:

The rules are those of root's configuration, with the user in root's place: only root and this user may be able to write
the files. A private group of the user may also have write permission, as many systems create it.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from bundles.errors import FormatError
from bundles.filesystem.atomic import read_limited
from bundles.format.fields import parse_name, parse_version
from bundles.format.release import TrialRule
from bundles.format.site_targets import SIGNED, parse_data_name
from foundation.masking import mask_location, mask_urls
from foundation.problems import KeyPath, Location, ProblemCode, replaced
from foundation.times import Duration
from hiera import parsing
from hiera.errors import HieraError
from hiera.values import Secret
from puller.config.report_destinations import DestinationOptions, find_destination_problem
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.state import (
    DEFAULT_CONFIGURATION,
    IDENTITIES,
    PRIVATE_KEY,
    UserConfigurationFile,
    users_configuration,
    users_facts,
    users_identities,
    users_private_key,
    users_run,
    users_state,
)
from puller.system.trusted_files import judge, trusted
from puller.values.foreign_text import EXPECTED_NAME, is_host_name
from puller.values.maintenance import Window, find_problem
from puller.values.plain_values import explain, parse_value

_SIZE_LIMIT = 1024 * 1024  # bytes
_PATHS = (
    "trust_anchor",
    "host_data",
    "host_data_directory",
    "eyaml_private_key",
    "facts_directory",
    "state_directory",
    "run_directory",
)


class BundleChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A bundle that this host follows."""

    name: str
    channel: str = "stable"
    version: str | None = None
    """The pinned version. ``None``: follow the channel."""
    give_up_after: int | None = None
    """Number of runs with failed resources after which a new version is given up. 0: never.

    ``None``: the setting of the bundle.
    """
    trial: TrialRule | None = None
    """How long a new version stays on trial. Each key replaces the rule of the release and of its manifest."""


class HttpOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings for the connection to the site. Times in seconds, ``total_timeout`` for all downloads of one run."""

    connect_timeout: Duration = Duration(10.0)
    read_timeout: Duration = Duration(30.0)
    total_timeout: Duration = Duration(600.0)
    retries: int = 3
    proxy: Secret | None = None
    ca_bundle: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    username: str | None = None
    password: Secret | None = None
    password_file: str | None = None
    token_file: str | None = None
    headers: dict[str, Secret] = {}


class SpoolOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits for the number and total size of waiting reports of each unreachable destination."""

    count: int = 100
    bytes: int = 10_000_000


class ReportOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings for reports of runs: retention, destinations, and the file for metrics. Times in seconds."""

    keep: int = 20
    """The number of newest reports that are kept at any age."""
    quiet_for: Duration = Duration(2 * 86400.0)
    """How long to keep reports of runs without changes."""
    eventful_for: Duration = Duration(90 * 86400.0)
    """How long to keep reports of runs with changes, failures or rejections."""
    most: int = 1000
    most_bytes: int = 100_000_000
    diffs: bool = True
    """Whether reports have diffs of changed files that all users can read. Secrets are masked."""
    textfile: str | None = None
    to: tuple[str | DestinationOptions, ...] = ()
    """The destinations that each report is sent to after the run."""
    facts: tuple[str, ...] = (
        "os.family",
        "os.name",
        "os.release",
        "os.architecture",
        "kernelrelease",
        "virtual",
    )
    """The paths of facts that are sent with reports."""
    used_facts: bool = True
    """Whether sent reports also have the names of the host and the facts that its bundles read."""
    send_timeout: Duration = Duration(10.0)
    """The time limit for all destinations together."""
    spool: SpoolOptions = SpoolOptions()

    @property
    def destinations(self) -> tuple[DestinationOptions, ...]:
        """The destinations of reports."""
        return tuple(DestinationOptions.of(written) for written in self.to)


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole configuration. Paths are absolute."""

    as_user: ClassVar[bool] = False
    """Whether this is the configuration of an ordinary user's agent."""

    site: str | tuple[str, ...]
    bundles: tuple[BundleChoice, ...]
    trust_anchor: str = "/etc/puller/root.json"
    host_name: str = ""
    host_data: str = "/etc/puller/data.yaml"
    host_data_directory: str = "/etc/puller/data.d"
    data: str | tuple[str, ...] = ()
    """Site data: absolute paths, URLs, and ``site:NAME`` for signed documents of the site. Lowest precedence first."""
    eyaml_private_key: str = PRIVATE_KEY
    age_identities: tuple[str, ...] = IDENTITIES
    """The keys for files that SOPS encrypted. Missing files are skipped. The first usable key is in reports."""
    facts_directory: str = "/etc/puller/facts.d"
    windows: tuple[Window, ...] = ()
    """Maintenance windows, when bundles may be applied. Empty: always."""
    undo_packages: bool = False
    """Whether packages that a version on trial has installed are removed if the version is given up."""
    http: HttpOptions = HttpOptions()
    reports: ReportOptions = ReportOptions()
    network_user: str = ""
    """The user of the processes with network access, if the agent is root. Empty: ``_puller``, otherwise ``nobody``."""
    state_directory: str = "/var/lib/puller"
    run_directory: str = "/run/puller"

    def __repr__(self) -> str:
        return mask_urls(super().__repr__())

    @property
    def mirrors(self) -> tuple[str, ...]:
        """The locations of the site, in the order of requests."""
        return (self.site,) if isinstance(self.site, str) else self.site

    @property
    def site_data(self) -> tuple[str, ...]:
        """The locations of site data."""
        return (self.data,) if isinstance(self.data, str) else self.data

    @property
    def signed_data(self) -> tuple[str, ...]:
        """The names of the documents of site data that the site has signed."""
        return tuple(each.removeprefix(SIGNED) for each in self.site_data if each.startswith(SIGNED))


class UserConfiguration(Configuration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of the agent of an ordinary user, whose paths are that user's where it names none."""

    as_user: ClassVar[bool] = True


def load_configuration(path: Path | str) -> Configuration:
    """Read and check the configuration. Raise ``ConfigurationError`` with every problem, or if others may write it.

    A ``UserConfigurationFile`` is for the agent of the running user. The files that it names are checked, and root is
    rejected (``UsageError``).
    """
    if isinstance(path, UserConfigurationFile):
        return _load_of_user(Path(path))
    return _load(Path(path), Configuration)


def _load_of_user(path: Path) -> Configuration:
    require_user()
    require_own(path)
    configuration = _load(path, UserConfiguration)
    for named in _files_of(configuration):
        require_own(Path(named))
    return configuration


def _files_of(configuration: Configuration) -> Iterator[str]:
    """Yield the files and directories that it names and that affect the run."""
    yield from (getattr(configuration, key) for key in _PATHS)
    yield from configuration.age_identities
    yield from (location for location in configuration.site_data if location.startswith("/"))
    transports: tuple[HttpOptions | DestinationOptions, ...]
    transports = (configuration.http, *configuration.reports.destinations)
    for of in transports:
        paths = (of.password_file, of.token_file, of.client_key, of.client_certificate, of.ca_bundle)
        yield from filter(None, paths)
    if os.path.isdir(directory := configuration.host_data_directory):
        yield from (os.path.join(directory, name) for name in sorted(os.listdir(directory)))


def _users_places() -> dict[str, str | tuple[str, ...]]:
    """Return the user's paths in place of the machine's."""
    directory = users_configuration()
    return {
        "trust_anchor": f"{directory}/root.json",
        "host_data": f"{directory}/data.yaml",
        "host_data_directory": f"{directory}/data.d",
        "eyaml_private_key": users_private_key(),
        "age_identities": users_identities(),
        "facts_directory": users_facts(),
        "state_directory": users_state(),
        "run_directory": users_run(),
    }


def _load(path: Path, kind: type[Configuration]) -> Configuration:
    option = " --as-user" if kind.as_user else ""
    try:
        data = read_limited(trusted(path), _SIZE_LIMIT)
        value = parsing.load_yaml(data, str(path))
    except FileNotFoundError:
        hint = f"create it from the output of `puller config sample{option}`"
        location = Location(str(path))
        raise ConfigurationError("the configuration does not exist", location=location, hint=hint) from None
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error
    except HieraError as error:
        raise ConfigurationError(problems=error.problems) from error
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if not isinstance(value, dict):
        hint = f"create it from the output of `puller config sample{option}`"
        raise ConfigurationError("is not a mapping", location=Location(str(path)), hint=hint)
    return _decode(value, data.decode(), path, kind)


def _decode(value: dict[str, Any], text: str, path: Path, kind: type[Configuration]) -> Configuration:
    provided = {**_users_places(), **value} if kind.as_user else value
    try:
        configuration = msgspec.convert(provided, kind, dec_hook=parse_value)
    except msgspec.ValidationError:  # it has only the first problem, without a line
        problems = [
            replaced(mismatch.problem(), location=_location(path, text, mismatch.path))
            for mismatch in explain(Configuration, value, "key of the configuration")
        ]
        raise ConfigurationError(problems=problems) from None
    if problem := next(_problems(configuration), None):
        key, sentence = problem
        raise _invalid(path, text, (key,), f"{key} {sentence}")
    if wrong := find_destination_problem(configuration.reports.to):
        index, sentence = wrong
        raise _invalid(path, text, ("reports", "to", index), f"reports.to[{index}] {sentence}")
    original = partial(parsing.original, text)
    if result := find_problem(configuration.windows, value.get("windows", ()), original):
        place, sentence = result
        raise _invalid(path, text, place, sentence)
    return configuration


def _invalid(path: Path, text: str, keys: KeyPath, message: str) -> ConfigurationError:
    return ConfigurationError(message, location=_location(path, text, keys), property=str(keys[0]))


def _location(path: Path, text: str, keys: KeyPath) -> Location:
    return Location(str(path), *parsing.locate(text, keys), tuple(keys))


def _problems(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield semantic errors as pairs of key and message."""
    yield from _problems_of_locations(configuration)
    yield from _problems_of_bundles(configuration.bundles)
    for key in _PATHS:
        if not os.path.isabs(path := getattr(configuration, key)):
            yield key, f"is {path!r}, expected an absolute path"
    yield from _problems_of_reports(configuration.reports)
    yield from _problems_of_sending(configuration)


def _problems_of_locations(configuration: Configuration) -> Iterator[tuple[str, str]]:
    if not configuration.mirrors:
        yield "site", "is empty, expected at least one location"
    for mirror in configuration.mirrors:
        if not mirror.startswith(("http://", "https://", "/")):
            yield "site", f"is {mask_location(mirror)!r}, expected a URL or the absolute path of a directory"
    for location in configuration.site_data:
        if location.startswith(SIGNED):
            try:
                parse_data_name(location.removeprefix(SIGNED))
            except FormatError as error:
                yield "data", f"has {location!r}: the name {error.what}"
        elif not location.startswith(("http://", "https://", "/")):
            expected = f"expected a URL, the absolute path of a file, or {SIGNED}NAME"
            yield "data", f"has {mask_location(location)!r}, {expected}"


def _problems_of_reports(reports: ReportOptions) -> Iterator[tuple[str, str]]:
    if reports.keep < 1:
        yield "reports", f"has keep: {reports.keep}, expected at least 1"
    if reports.most < reports.keep:
        yield "reports", f"has most: {reports.most}, expected at least keep: {reports.keep}"
    if reports.textfile is not None and not os.path.isabs(reports.textfile):
        yield "reports", f"has textfile: {reports.textfile!r}, expected an absolute path"
    if reports.most_bytes < 1:
        yield "reports", f"has most_bytes: {reports.most_bytes}, expected at least 1"
    if reports.eventful_for < reports.quiet_for:
        yield (
            "reports",
            "has a longer quiet_for than eventful_for, expected at most as long",
        )


def _problems_of_sending(configuration: Configuration) -> Iterator[tuple[str, str]]:
    reports = configuration.reports
    if reports.to and configuration.host_name and not is_host_name(configuration.host_name):
        detail = f"is {configuration.host_name!r}, which is invalid as the sender of reports"
        yield "host_name", f"{detail}, {EXPECTED_NAME}"
    if reports.send_timeout <= 0:
        yield "reports", f"has send_timeout: {reports.send_timeout:g}, expected more than 0 seconds"
    if reports.spool.count < 1 or reports.spool.bytes < 1:
        yield "reports", "has a spool without room, expected count and bytes of at least 1"
    for name in reports.facts:
        if not all(name.split(".")) or name != name.strip():
            yield "reports", f"has {name!r} among facts, expected the path of a fact such as os.release"


def _problems_of_bundles(bundles: Sequence[BundleChoice]) -> Iterator[tuple[str, str]]:
    if not bundles:
        yield "bundles", "is empty, expected at least one bundle"
    for choice in bundles:
        for parse, value in (
            (parse_name, choice.name),
            (parse_name, choice.channel),
            (parse_version, choice.version or "0"),
        ):
            try:
                parse(value)
            except FormatError as error:
                key = "channel" if value is choice.channel else error.where
                yield "bundles", f"has {choice.name!r} with a {key} that {error.what}"
        if (choice.give_up_after or 0) < 0:
            detail = f"has {choice.name!r} with give_up_after: {choice.give_up_after}"
            yield "bundles", f"{detail}, expected a number of runs"
    names = [choice.name for choice in bundles]
    yield from (("bundles", f"names {name!r} twice") for name in names if names.count(name) > 1)


def sample(*, as_user: bool = False) -> str:
    """Return the documented sample with every key. Paths of a user's agent are comments with their defaults."""
    text = Path(__file__).with_name("samples").joinpath("config.yaml").read_text(encoding="utf-8")
    if not as_user:
        return text
    lines = text.replace(
        f"{os.path.dirname(DEFAULT_CONFIGURATION)}/", f"{users_configuration()}/"
    ).splitlines()
    places = _users_places()
    named = ((line.partition(":")[0], line) for line in lines)
    return "".join(f"# {key}: {places[key]}\n" if key in places else f"{line}\n" for key, line in named)


def require_user() -> None:
    """Raise ``UsageError`` for root, whose agent is the machine's."""
    if os.geteuid() == 0:
        raise UsageError(
            "--as-user is for ordinary users, and root runs the agent of the machine",
            hint="run it without --as-user",
        )


def require_own(path: Path) -> None:
    """Raise ``ConfigurationError`` for a file that other users can write or replace.

    The check follows links. No other user can change the path later, so it is the file that is read. If the file does
    not exist, check its parent directory.
    """
    try:
        judged = judge(os.fspath(path), private_group=True)
    except FileNotFoundError:
        require_own(path.parent)
        return
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error
    if judged.reason:
        raise ConfigurationError(f"{path}: is not read: {judged.reason}", code=ProblemCode.UNTRUSTED_PATH)
