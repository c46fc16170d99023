"""The interface of package managers: queries, plans, the execution of commands, and files of repositories.

``providers.py`` lists the managers.

* Failed commands and unknown output raise an error. A failed query never counts as *not installed*.
* A failure with a known remedy is repaired and reported once per run, and the command is retried.
* Callers pass checked names and versions, so none can act as a command-line option.
* One query returns all packages of a run. Its result, or its failure, is reused until a resource executes a command.
* A dry run keeps package files in memory, to simulate their installation.
* All paths of a repository derive from its name, so that it can be removed by its name alone.
* A repository is tried before its files are installed, so that an unreadable repository never blocks others. Its
  package lists exist before its files, wherever a run is killed.
"""

import contextlib
import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from puller.errors import ResourceError, reason
from puller.resources.packages.properties import DEFAULTS, Key, Options, RepositoryProperties
from puller.resources.packages.providers import PROVIDERS, Order, load_class
from puller.system.commands import Command, Completed
from puller.system.protocol import Attributes, System

_MEMORY = "/proc/"


class KeptFiles:
    """The package files of one dry run. They last as long as this object."""

    def keep(self, content: bytes) -> str:
        """Return the path of a file with this content."""
        descriptor = os.memfd_create("package", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        return f"{_MEMORY}{os.getpid()}/fd/{descriptor}"


@contextlib.contextmanager
def named_files(files: Sequence[str | None], suffix: str) -> Iterator[list[str | None]]:
    """Yield the paths of package files, with names that end with ``suffix`` for kept files.

    Package managers read an argument as a file only if it ends with ``.deb`` or ``.rpm``. apt also resolves links, so
    the names belong to copies. Only this user can read the copies. They are removed at the end.
    """
    if not any(file and file.startswith(_MEMORY) for file in files):
        yield [*files]
        return
    with tempfile.TemporaryDirectory(prefix="puller-") as directory:

        def named(file: str | None, number: int) -> str | None:
            if file is None or not file.startswith(_MEMORY):
                return file
            return str(shutil.copyfile(file, f"{directory}/{number}{suffix}"))

        yield [named(file, number) for number, file in enumerate(files)]


# Commands that a package manager runs for one resource.

_QUERY_TIMEOUT = 300.0  # seconds; dnf may have to fetch metadata first
_OUTPUT_LIMIT = 64 * 1024 * 1024  # bytes; must fit a line for each package of a large machine
_TAIL = 10  # lines of output of a failed command


class Job(msgspec.Struct, frozen=True):
    """The work of a package manager for one resource. Methods raise ``ResourceError``."""

    system: System
    declared: Callable[[], Sequence[str]]
    """All packages of the manifest, to query them together."""
    log: Callable[[str], None]
    noop: bool
    timeout: float
    """Seconds allowed for a change."""
    lock_timeout: float
    """Seconds to wait for another package manager."""

    def query(
        self, *arguments: str, environment: Mapping[str, str] | None = None, text: str = ""
    ) -> Completed:
        """Run a read-only command. ``text`` is its standard input, which may be secret."""
        command = Command(
            arguments,
            environment or {},
            timeout=_QUERY_TIMEOUT,
            output_limit=_OUTPUT_LIMIT,
            input=text.encode(),
        )
        return _started(self.system.query, command)

    def execute(
        self, *arguments: str, environment: Mapping[str, str] | None = None, waits: float = 0, text: str = ""
    ) -> Completed:
        """Run a command that changes packages. ``waits``: additional seconds to wait for a lock."""
        limit = self.timeout + waits
        command = Command(arguments, environment or {}, timeout=limit, input=text.encode())
        return _started(self.system.execute, command)


def output(description: str, completed: Completed, accepted: Sequence[int] = (0,)) -> str:
    """Return stdout. Raises ``ResourceError`` if the exit code is not accepted."""
    if completed.exit_code not in accepted:
        raise failure(description, completed)
    return completed.stdout


def failure(what: str, completed: Completed, lines: int = _TAIL) -> ResourceError:
    """Return the error of a failed command, with the last ``lines`` of stderr, or of stdout if stderr is empty."""
    printed = completed.stderr.strip() or completed.stdout.strip()
    tail = "\n".join(printed.splitlines()[-lines:])
    return ResourceError(f"{what}: {completed.outcome}" + (f"; it printed:\n{tail}" if tail else ""))


def _started(run: Callable[[Command], Completed], command: Command) -> Completed:
    try:
        return run(command)
    except OSError as error:
        raise ResourceError(f"{command.arguments[0]} cannot be started: {reason(error)}") from error


# The cached inventory of packages.

T = TypeVar("T")


class Inventory(Generic[T]):
    """The results of one command for all declared packages. ``ask`` runs it and may raise ``ResourceError``."""

    def __init__(self, ask: Callable[[Job, Sequence[str]], Mapping[str, T]]) -> None:
        self._ask = ask
        self._asked_at = -1
        self._names: frozenset[str] = frozenset()
        self._found: Mapping[str, T] = {}
        self._failure = ""

    def about(self, job: Job, name: str) -> T | None:
        """Return the result for one package, ``None`` if it is unknown. Raises ``ResourceError``."""
        if job.system.executed > self._asked_at or name not in self._names:
            self._refresh(job, name)
        if self._failure:
            raise ResourceError(self._failure)
        return self._found.get(name)

    def _refresh(self, job: Job, name: str) -> None:
        self._asked_at = job.system.executed
        self._names |= {*job.declared(), name}
        self._found, self._failure = {}, ""
        try:
            self._found = self._ask(job, sorted(self._names))
        except ResourceError as error:
            self._failure = str(error)


class Installed(msgspec.Struct, frozen=True):
    """One installed version of a package, in full: ``1:2.4-1``."""

    version: str
    architecture: str
    status: str = "installed"
    """dpkg's status of an incomplete installation: ``half-configured``, ``unpacked``, ``half-installed``."""
    held: bool = False
    """Whether an administrator has put it on hold."""

    @property
    def is_complete(self) -> bool:
        """False after a failed installation."""
        return self.status == "installed"


class Found(msgspec.Struct, frozen=True):
    """The installed packages of one name."""

    installed: Sequence[Installed] = ()
    providers: Sequence[str] = ()
    """Installed packages of other names that provide it."""
    has_configuration: bool = False
    """Whether it was removed without its configuration files."""
    held: bool = False
    """Whether the package is on hold without being installed."""


class RequestedPackage(msgspec.Struct, frozen=True):
    """A package to install, in this full version or in the preferred version of the package manager."""

    name: str
    version: str | None = None
    file: str | None = None
    """The package file, if it does not come from a repository."""


class Record(msgspec.Struct, frozen=True):
    """A package with its full name, installed, in a repository or in a file."""

    name: str
    version: str
    architecture: str


class Plan(msgspec.Struct, frozen=True):
    """The packages that a change installs, upgrades or downgrades, and the packages that it removes."""

    installs: tuple[Record, ...] = ()
    removals: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """One command of a package manager: packages to install and to remove."""

    install: tuple[RequestedPackage, ...] = ()
    remove: tuple[str, ...] = ()
    purge: bool = False
    downgrades: bool = False
    """Whether an installed package may be replaced by an older version."""
    changes_held: bool = False
    """Whether packages on hold may change, in simulations of a change that first releases them."""
    options: Options = DEFAULTS


_NOTHING = Found()


Approve = Callable[[Plan, Request], None]
"""Raises ``ResourceError`` for a plan that must not be executed."""


def approve_all(plan: Plan, request: Request) -> None:
    """Accept every plan."""


class Manager(ABC):
    """The package manager of this machine, for one run. Methods raise ``ResourceError``."""

    order: ClassVar[Order]
    """How its versions compare."""
    sources: ClassVar[tuple[str, ...]]
    """Files and directories that declare repositories."""
    wants_one_provider: ClassVar[bool]
    """Whether it rejects a name with several providers instead of choosing one."""
    suffix: ClassVar[str]
    """The suffix of package files."""
    can_purge: ClassVar[bool] = False
    """Whether it keeps configuration files of removed packages until they are purged."""

    def __init__(self) -> None:
        self._inventory = Inventory(self._list_installed)
        self._remedied: set[str] = set()
        self.refresh_problem = ""
        """Why some package lists could not be fetched in this run. Empty after success, or if they were not fetched."""
        self.may_get_repositories = False
        """In noop: whether an earlier package would add repositories, according to its name."""

    def installed(self, job: Job, name: str) -> tuple[Installed, ...]:
        """Return every installed version of a package, the newest first."""
        status = self.found(job, name).installed
        return tuple(sorted(status, key=lambda item: self.order.key(item.version), reverse=True))

    def found(self, job: Job, name: str) -> Found:
        """Return the installed packages of a name."""
        return self._inventory.about(job, name) or _NOTHING

    def find_version(self, job: Job, name: str, request: str) -> str:
        """Return the newest available version that meets a request. The error lists the available versions."""
        matching = self._find_matching(job, name, request)
        if not matching and not job.noop and self._remedy_once(self.refresh, job):
            matching = self._find_matching(job, name, request)
        if not matching:
            there_is = ", ".join(self._sorted(self.available(job, name))) or "none"
            raise self._with_refresh_problem(
                ResourceError(f"version {request} is not available (available: {there_is})")
            )
        return matching[-1]

    def require_offer(self, job: Job, name: str, request: str | None) -> None:
        """In noop, raise ``ResourceError`` if the repositories lack the package or its version.

        Without package lists, as on a fresh machine, do nothing, because the real run would fetch them first.
        """
        if not self.knows_repositories(job, name):
            return
        if request is not None:
            self.find_version(job, name, request)
        elif not self.is_offered(job, name):
            self._require_provider(job, name)

    def _require_provider(self, job: Job, name: str) -> None:
        """Raise ``ResourceError`` unless exactly one package provides the name. dnf also accepts several."""
        providers = self.offered_providers(job, name)
        if not providers:
            raise ResourceError(f"no configured repository offers a package {name}")
        if len(providers) > 1 and self.wants_one_provider:
            raise ResourceError(
                f"is a name that {', '.join(providers)} provide, expected one of these packages"
            )

    @abstractmethod
    def knows_repositories(self, job: Job, name: str) -> bool:
        """Return whether package lists were ever fetched. ``name`` is the package to query next."""

    @abstractmethod
    def is_offered(self, job: Job, name: str) -> bool:
        """Return whether any version of the package can be installed."""

    @abstractmethod
    def offered_providers(self, job: Job, name: str) -> Sequence[str]:
        """Return the packages of the repositories that provide a name, in alphabetical order."""

    @abstractmethod
    def candidate(self, job: Job, name: str, release: str | None = None) -> str | None:
        """Return the current meaning of *latest*, ``None`` if the repositories offer no version, or no newer one."""

    @abstractmethod
    def available(self, job: Job, name: str) -> Sequence[str]:
        """Return all versions that can be installed."""

    @abstractmethod
    def plan(self, job: Job, request: Request) -> Plan:
        """Simulate a request. Raises ``ResourceError`` if the package manager cannot fulfil it."""

    @abstractmethod
    def fulfil(self, job: Job, request: Request, approve: Approve = approve_all) -> None:
        """Install and remove packages in one transaction, after ``approve`` has accepted the plan for it.

        Without ``purge``, the configuration files of removed packages stay.
        """

    def _simulate(self, job: Job, request: Request) -> Completed:
        """Simulate a request.

        A dry run keeps package files in memory. They get names for the simulation, as private copies.
        """
        if not job.noop:
            return self._run_simulation(job, request)

        with named_files([desired.file for desired in request.install], self.suffix) as files:
            pairs = zip(request.install, files, strict=True)
            install = tuple(msgspec.structs.replace(desired, file=file) for desired, file in pairs)
            return self._run_simulation(job, msgspec.structs.replace(request, install=install))

    @abstractmethod
    def _run_simulation(self, job: Job, request: Request) -> Completed:
        """Run the command that simulates a request. In a dry run, it writes nothing."""

    def install(
        self,
        job: Job,
        desired: Sequence[RequestedPackage],
        *,
        downgrades: bool,
        options: Options = DEFAULTS,
        approve: Approve = approve_all,
    ) -> None:
        """Install, upgrade or, if allowed, downgrade packages in one transaction."""
        self.fulfil(job, Request(tuple(desired), downgrades=downgrades, options=options), approve)

    def remove(
        self, job: Job, names: Sequence[str], *, purge: bool = False, approve: Approve = approve_all
    ) -> None:
        """Remove packages in one transaction."""
        self.fulfil(job, Request(remove=tuple(names), purge=purge), approve)

    @abstractmethod
    def canonical(self, job: Job, name: str) -> str:
        """Return the canonical spelling of a package name: without the architecture of this machine."""

    @abstractmethod
    def full_name(self, job: Job, record: Record) -> str:
        """Return the canonical name of a package."""

    def delivers(self, job: Job, plan: Plan, name: str) -> bool:
        """Return whether the package of this name, or a provider of it, is installed after a plan."""
        status = self.found(job, name)
        if status.installed or status.providers:
            return True
        if any(self.is_named(job, record, name) for record in plan.installs):
            return True
        offered = self.offered_providers(job, name) if plan.installs else ()
        return any(record.name in offered for record in plan.installs)

    @abstractmethod
    def is_automatic(self, job: Job, name: str) -> bool:
        """Return whether the package was installed only as a dependency, so that an automatic removal would remove it.

        Called for every declared package in every run, so it must not start a process. A manager that needs a process
        returns False.
        """

    @abstractmethod
    def mark_manual(self, job: Job, names: Sequence[str]) -> None:
        """Mark installed packages as installed by request, so that automatic removals keep them."""

    @abstractmethod
    def is_held(self, job: Job, name: str, *, to_hold: bool) -> bool:
        """Return whether the package manager keeps a package in its version.

        Raises `ResourceError` if the package is ``to_hold`` and the package manager cannot hold packages.
        """

    @abstractmethod
    def hold(self, job: Job, names: Sequence[str], *, held: bool) -> None:
        """Hold packages at their versions, or release them."""

    @abstractmethod
    def read_package(self, job: Job, path: str) -> Record:
        """Return the name, version and architecture of a package file."""

    @abstractmethod
    def is_named(self, job: Job, record: Record, name: str) -> bool:
        """Return whether a name refers to this package."""

    @abstractmethod
    def refuse_options(self, options: Options, *, has_debconf: bool) -> None:
        """Raise ``ResourceError`` for options that this package manager does not support."""

    @abstractmethod
    def refresh(self, job: Job) -> None:
        """Fetch the lists of all repositories. On failures, set ``refresh_problem`` and continue."""

    @abstractmethod
    def _list_installed(self, job: Job, names: Sequence[str]) -> Mapping[str, Found]:
        """Return the installed packages of these names, by requested name."""

    def _find_matching(self, job: Job, name: str, request: str) -> list[str]:
        available = self._sorted(self.available(job, name))
        return [version for version in available if self.order.compare_to_request(version, request) == 0]

    def _sorted(self, versions: Iterable[str]) -> list[str]:
        return sorted(set(versions), key=self.order.key)

    def _change(
        self, job: Job, run: Callable[[], Completed], what: str, remedies: Mapping[str, Callable[[Job], None]]
    ) -> None:
        """Run a changing command. ``remedies`` are keyed by the words in stderr that require them.

        1. Run it. Exit code 0 is success.
        2. Find matching remedies, except for a command that was killed or timed out.
        3. Try the first remedy that is new in this run, and run the command again. Without one, raise the failure.
        """
        # 1. Run
        while (completed := run()).exit_code != 0:
            # 2. Find a remedy
            fitting = (remedy for words, remedy in remedies.items() if words in completed.stderr)
            # 3. Try each remedy once, which ends the loop
            if completed.exit_code is None or not any(self._remedy_once(remedy, job) for remedy in fitting):
                raise self._with_refresh_problem(failure(what, completed))

    def _with_refresh_problem(self, error: ResourceError) -> ResourceError:
        """Add the reason why the package lists may be outdated to the error."""
        return ResourceError(f"{error}\n{self.refresh_problem}") if self.refresh_problem else error

    def _remedy_once(self, remedy: Callable[[Job], None], job: Job) -> bool:
        """Run a remedy and return True, or return False if this run has tried it before."""
        if remedy.__name__ in self._remedied:
            return False
        self._remedied.add(remedy.__name__)
        remedy(job)
        return True


# Repositories.

Files = dict[str, bytes | None]
"""Contents by path, in the order of installation. ``None`` removes a file."""


class Layout(ABC):
    """The files of one package manager that declare repositories. Methods raise ``ResourceError`` and ``OSError``."""

    provider: ClassVar[str]
    """The name in ``PROVIDERS``."""
    root: ClassVar[str]
    """The directory of the files that declare repositories."""

    @abstractmethod
    def paths(self, name: str) -> Sequence[str]:
        """Return all files that a repository may have. The last file activates it."""

    def written(self, properties: RepositoryProperties) -> dict[str, bool]:
        """Return each of ``paths``, and whether a repository with these properties may have a file there."""
        *others, source = self.paths(properties.name)
        return {**dict.fromkeys(others, properties.key is not None), source: True}

    def require(self, properties: RepositoryProperties) -> None:
        """Raise ``ResourceError`` for properties that this package manager does not support, or that it requires."""
        for name in PROVIDERS[self.provider].lacks:
            if getattr(properties, name):
                raise ResourceError(f"{name} is given, but only apt supports it, not {self.provider}")

    @abstractmethod
    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        """Return the desired content of each of ``paths``."""

    @abstractmethod
    def places(self, system: System) -> Iterator[str]:
        """Yield the files of the machine that declare repositories."""

    @abstractmethod
    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        """Yield the URL and suite of each enabled repository in one of ``places``."""

    asks: ClassVar[bool]
    """Whether ``find_problem`` starts a process."""

    @abstractmethod
    def find_problem(self, job: Job, name: str, texts: Mapping[str, bytes]) -> str:
        """Return why the package manager would reject these contents of ``places``. Empty if it accepts them.

        ``name`` is the repository that matters.
        """

    @abstractmethod
    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        """Fetch the package lists of a repository before it is installed.

        Raises ``ResourceError`` if it is unreadable.
        """

    def desired_entries(self, properties: RepositoryProperties) -> set[tuple[str, str]]:
        """Return the URLs and suites of a repository in the format of ``entries``."""
        return {(host_and_directory(properties.url), suite) for suite in properties.suites or ("",)}


@cache
def layout_of(provider: str) -> Layout:
    """Return the files of a package manager."""
    layout: Layout = load_class(PROVIDERS[provider].layout)()
    return layout


def all_layouts() -> list[Layout]:
    """Return the files of all package managers."""
    return [layout_of(provider) for provider in PROVIDERS]


def host_and_directory(url: str) -> str:
    """Return the part of a URL that identifies a repository: host and directory.

    apt stores downloads under a name without the scheme, so ``http`` and ``https`` conflict.
    """
    try:
        url_parts = urlsplit(url)
    except ValueError:  # apt reports it
        return url
    return f"{url_parts.netloc.rpartition('@')[2].lower()}{url_parts.path.rstrip('/')}"


def names_in(system: System, directory: str) -> list[str]:
    """Return the names in a directory. Empty if it does not exist."""
    try:
        return [name for name, _ in system.children(directory)]
    except FileNotFoundError:
        return []


def put_file(system: System, path: str, content: bytes) -> None:
    """Write a new file that all users can read."""
    system.replace_file(path, (content,), Attributes(os.geteuid(), os.getegid(), 0o644), None)


def fetch_lists(job: Job, *arguments: str) -> None:
    """Run the command that fetches the package lists of one repository. Raise ``ResourceError`` if it fails."""
    completed = job.execute(*arguments)
    if completed.exit_code != 0:
        raise failure("cannot be read, so nothing was changed; " + " ".join(arguments[:2]), completed)
