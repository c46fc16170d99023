"""Checks that a run can work with a configuration on this machine: its files, directories, keys and users.

* Each problem is found by the function that the run itself uses, so ``config check`` and ``run`` agree.
* The checks only read the machine. They fetch nothing, and do not contact servers.
* A file whose absence a run accepts (data, facts, a key in its default place) may be missing.
"""

import os
import pwd
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from bundles.client.trust import Anchor
from bundles.errors import BundleError
from hiera.errors import HieraError
from hiera.sops.identities import recipients_of
from puller.config.configuration import Configuration
from puller.config.report_destinations import DestinationOptions
from puller.config.transport import transport_settings, verify_files
from puller.delivery.destination import open_destination
from puller.errors import PullerError, file_problem
from puller.run.host import Host
from puller.state import IDENTITIES, PRIVATE_KEY, Directories
from puller.system.local_paths import require_writable
from puller.system.trusted_files import find_trusted

Keys = tuple[str | int, ...]


class Unready(msgspec.Struct, frozen=True):
    """Why a run would fail or print a warning."""

    keys: Keys
    """The path of the key in the configuration."""
    sentence: str
    is_warning: bool = False
    """Whether a run works, and reports this as a warning."""


def find_unready(configuration: Configuration) -> Iterator[Unready]:
    """Yield everything that would make a run fail or print a warning."""
    yield from _of("trust_anchor", lambda: _check_anchor(configuration))
    yield from _site(configuration)
    yield from _of("host_data", lambda: _check_host_data(configuration))
    yield from _of("facts_directory", lambda: _check_listed(configuration.facts_directory))
    yield from _of("eyaml_private_key", lambda: _check_private_key(configuration))
    yield from _identities(configuration.age_identities)
    yield from _of("http", lambda: _check_transport(configuration))
    yield from _of("network_user", lambda: _check_user(configuration.network_user))
    yield from _of("state_directory", lambda: _check_place(configuration.state_directory))
    yield from _of("run_directory", lambda: _check_place(configuration.run_directory))
    if textfile := configuration.reports.textfile:
        yield from _of(("reports", "textfile"), lambda: _check_textfile(textfile))
    for index, options in enumerate(configuration.reports.destinations):
        check = partial(_check_destination, configuration, options)
        yield from _of(("reports", "to", index), check)


def _check_destination(configuration: Configuration, options: DestinationOptions) -> None:
    destination = open_destination(configuration, options)
    try:
        destination.verify()
    finally:
        destination.close()


def _of(keys: str | Keys, check: Callable[[], None]) -> Iterator[Unready]:
    path = (keys,) if isinstance(keys, str) else keys
    try:
        check()
    except OSError as error:
        yield Unready(path, file_problem(error, "cannot be used"))
    except (PullerError, BundleError, HieraError, ValueError, LookupError) as error:
        yield Unready(path, " ".join(str(error).split()))


def _check_anchor(configuration: Configuration) -> None:
    Anchor.load(find_trusted(configuration.trust_anchor))


def _site(configuration: Configuration) -> Iterator[Unready]:
    """Yield the problems of mirrors. A missing mirror is not a problem if another mirror is usable."""
    if any(not mirror.startswith("/") or os.path.isdir(mirror) for mirror in configuration.mirrors):
        return
    for mirror in configuration.mirrors:
        yield from _of("site", lambda mirror=mirror: _check_listed(mirror, needed=True))  # type: ignore[misc]


def _check_host_data(configuration: Configuration) -> None:
    """Raise for data of this host, or site data in files, that a run could not read."""
    directories = Directories(Path(configuration.state_directory), Path(configuration.run_directory))
    # Site data that was never fetched is not a problem before the first run.
    Host.of(configuration).inputs_of_last_run(directories.data, lambda *_: None)
    for location in configuration.site_data:
        if location.startswith("/"):
            with open(find_trusted(location), "rb"):
                pass


def _check_private_key(configuration: Configuration) -> None:
    path = configuration.eyaml_private_key
    if not os.path.lexists(path) and (path == PRIVATE_KEY or configuration.as_user):
        return
    with open(find_trusted(path), "rb"):
        pass


def _identities(paths: Sequence[str]) -> Iterator[Unready]:
    """Yield the unusable keys. They are only a warning if a run can use another key."""
    usable, problems = set[str](), list[Unready]()

    def check(path: str) -> None:
        is_others = (
            path in IDENTITIES and os.geteuid() != 0
        )  # the default keys are root's, and its runs use them
        if os.path.lexists(path) and not is_others:
            usable.update(recipients_of(str(find_trusted(path))))

    for index, path in enumerate(paths):
        problems += _of(("age_identities", index), partial(check, path))
    for problem in problems:
        yield msgspec.structs.replace(problem, is_warning=bool(usable))


def _check_transport(configuration: Configuration) -> None:
    verify_files(transport_settings(configuration.http))


def _check_user(name: str) -> None:
    if name and not (name.isascii() and name.isdecimal()):
        try:
            pwd.getpwnam(name)
        except KeyError:
            raise ValueError(f"the user {name} does not exist") from None


def _check_listed(path: str, *, needed: bool = False) -> None:
    """Raise for a directory that exists and cannot be read."""
    if needed or os.path.lexists(path):
        os.listdir(path if needed else find_trusted(path))


def _check_place(path: str) -> None:
    """Raise for a directory that can neither be written nor made."""
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    require_writable(place)


def _check_textfile(path: str) -> None:
    if os.path.isdir(path):
        raise ValueError(f"{path} is a directory, expected a file")
    require_writable(os.path.dirname(path))
