"""Packages and repositories of Debian and its derivatives: dpkg lists installed packages, apt available packages.

* apt never asks questions: changed configuration files are kept, and questions get their defaults.
* apt waits a limited time for dpkg's lock.
* An interrupted dpkg is repaired, and outdated package lists are fetched again, each once per run.
* A name without an architecture is a package of this machine's architecture, or of ``all``.
"""

import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from puller.errors import ResourceError, reason
from puller.resources.packages.installation import private_directory
from puller.resources.packages.manager import (
    Approve,
    Files,
    Found,
    Installed,
    Inventory,
    Job,
    Layout,
    Manager,
    Plan,
    Record,
    Request,
    RequestedPackage,
    approve_all,
    failure,
    fetch_lists,
    host_and_directory,
    names_in,
    output,
    put_file,
)
from puller.resources.packages.properties import Key, Options, RepositoryProperties
from puller.resources.packages.providers import DPKG, PROVIDERS
from puller.system.commands import Completed
from puller.system.protocol import System

_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTBUGS_FRONTEND": "none",
    "APT_LISTCHANGES_FRONTEND": "none",
    # ucf manages configuration files outside dpkg, and also asks about them.
    "UCF_FORCE_CONFFOLD": "1",
}
# Otherwise apt treats an unknown name with a dot as a regular expression and installs all matches.
_EXACT_NAMES = ("-o", "APT::Cmd::Pattern-Only=true")
_UNATTENDED = (
    "-o", "DPkg::Options::=--force-confold",
    # In a terminal of its own, dpkg would be in another process group and survive the timeout.
    "-o", "Dpkg::Use-Pty=0",
)  # fmt: skip
# Otherwise apt-cache writes its cache, but noop writes nothing.
_WITHOUT_CACHE = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")

_UPDATE_LINES = 30  # lines of output of apt-get update: a few for each failed source
_LISTS = "/var/lib/apt/lists"
_MARKS = "/var/lib/apt/extended_states"

_FIELDS = ("db:Status-Want", "db:Status-Status", "Package", "Architecture", "Version", "Provides")
_FORMAT = "\\t".join(f"${{{field}}}" for field in _FIELDS) + "\\n"
_CONFIGURATION = "config-files"
_NEVER_INSTALLED = "unknown\tnot-installed\t"
# Configured packages that only wait for triggers at the end of a transaction.
_STATUSES_OF_INSTALLED = ("installed", "triggers-awaited", "triggers-pending")

_FILE_FORMAT = "${Package}\\t${Version}\\t${Architecture}"

_VERSION_LINE = re.compile(r" (?:\*\*\*|   ) (\S+)")


class Database(msgspec.Struct):
    """The dpkg database, by package name."""

    installed: dict[str, list[Installed]] = {}
    configured: dict[str, set[str]] = {}
    """The architectures with only configuration files."""
    held: dict[str, set[str]] = {}
    """The architectures of packages that are held but not installed."""
    provided: dict[str, list[Record]] = {}
    """The installed packages that provide a name."""


class Policy(msgspec.Struct):
    """The output of ``apt-cache policy`` for a package."""

    candidate: str | None = None
    versions: list[str] = []


class Apt(Manager):
    """apt and dpkg. Methods raise ``ResourceError``."""

    order = DPKG
    sources = ("/etc/apt",)
    wants_one_provider = True
    suffix = PROVIDERS["apt"].suffix
    can_purge = True

    def __init__(self) -> None:
        super().__init__()
        self._policies: dict[str | None, Inventory[Policy]] = {}
        """Policies by preferred release."""
        self._native = ""
        """The architecture of this machine: that of the package ``dpkg``. Known after the first query."""
        self._automatic = Inventory(self._list_automatic)

    def knows_repositories(self, job: Job, name: str) -> bool:
        del name
        try:
            return any("_Packages" in file for file, _ in job.system.children(_LISTS))
        except FileNotFoundError:
            return False

    def is_offered(self, job: Job, name: str) -> bool:
        return self.candidate(job, name) is not None

    def offered_providers(self, job: Job, name: str) -> Sequence[str]:
        if self._policy(job, name) is None:  # no package refers to this name
            return ()
        completed = job.query("apt-cache", *_cache_options(job), "showpkg", "--", name)
        _, _, after = output("apt-cache showpkg", completed).partition("\nReverse Provides:")
        return sorted({line.split()[0] for line in after.splitlines() if line.strip()})

    def candidate(self, job: Job, name: str, release: str | None = None) -> str | None:
        policy = self._policy(job, name, release)
        return policy.candidate if policy else None

    def available(self, job: Job, name: str) -> Sequence[str]:
        policy = self._policy(job, name)
        return policy.versions if policy else ()

    def _policy(self, job: Job, name: str, release: str | None = None) -> Policy | None:
        if release not in self._policies:
            self._policies[release] = Inventory(partial(self._list_policies, release=release))
        return self._policies[release].about(job, name)

    def plan(self, job: Job, request: Request) -> Plan:
        completed = self._simulate(job, request)
        return parse_simulation(output(_description(request), completed), self._native)

    def fulfil(self, job: Job, request: Request, approve: Approve = approve_all) -> None:
        # Match apt's messages, because its exit code is 100 for almost every failure.
        remedies: dict[str, Callable[[Job], None]] = {
            "dpkg was interrupted": self.repair,
            "Unable to locate package": self.refresh,
            "has no installation candidate": self.refresh,
            "Unable to fetch some archives": self.refresh,
        }

        def run() -> Completed:
            simulated = self._simulate(job, request)
            if simulated.exit_code != 0:
                return simulated
            plan = parse_simulation(simulated.stdout, self._native)
            approve(plan, request)
            # Another process may change packages between the simulation and the change.
            options = ("--no-remove",) if request.install and not plan.removals else ()
            return _execute(job, *_apt_get(job, request, *options))

        self._change(job, run, _description(request), remedies)

    def _run_simulation(self, job: Job, request: Request) -> Completed:
        return job.query(*_apt_get(job, request, *_SIMULATION, *(_WITHOUT_CACHE if job.noop else ())))

    def canonical(self, job: Job, name: str) -> str:
        if not self._native:
            self.found(job, name)
        return self._canonical(name)

    def _canonical(self, name: str) -> str:
        package, _, architecture = name.partition(":")
        return package if architecture in ("", "all", self._native) else name

    def full_name(self, job: Job, record: Record) -> str:
        return self.canonical(job, f"{record.name}:{record.architecture}")

    def is_automatic(self, job: Job, name: str) -> bool:
        return bool(self._automatic.about(job, name))

    def mark_manual(self, job: Job, names: Sequence[str]) -> None:
        output("apt-mark manual", job.execute("apt-mark", "manual", "--", *names))

    def _list_automatic(self, job: Job, names: Sequence[str]) -> Mapping[str, bool]:
        # Read directly: apt-mark showauto takes longer than all other queries of a run.
        try:
            text = job.system.read(_MARKS).decode(errors="replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ResourceError(f"{_MARKS}: {reason(error)}") from error
        marked = parse_marks(text)
        return {
            name: True
            for name in names
            if any(
                (name.partition(":")[0], architecture) in marked for architecture in self._architectures(name)
            )
        }

    def is_held(self, job: Job, name: str, *, to_hold: bool) -> bool:
        status = self.found(job, name)
        return status.held or any(item.held for item in status.installed)

    def hold(self, job: Job, names: Sequence[str], *, held: bool) -> None:
        verb = "hold" if held else "unhold"
        output(f"apt-mark {verb}", job.execute("apt-mark", verb, "--", *names))

    def read_package(self, job: Job, path: str) -> Record:
        completed = job.query("dpkg-deb", "--show", f"--showformat={_FILE_FORMAT}", "--", path)
        fields = output(f"dpkg-deb --show {path}", completed).split("\t")
        if len(fields) != 3:
            raise ResourceError(f"dpkg-deb printed {completed.stdout!r} of {path}", expected="three fields")
        return Record(*fields)

    def is_named(self, job: Job, record: Record, name: str) -> bool:
        if not self._native:
            self.found(job, name)
        return record.name == name.partition(":")[0] and record.architecture in self._architectures(name)

    def _architectures(self, name: str) -> set[str]:
        """Return the architectures that a package of this name may have."""
        architecture = name.partition(":")[2] or self._native
        return {architecture, "all"} if architecture == self._native else {architecture}

    def refuse_options(self, options: Options, *, has_debconf: bool) -> None:
        pass  # apt supports all options

    def refresh(self, job: Job) -> None:
        job.log("apt: fetching the package lists anew")
        for path in accepting_changes(job.system):  # the update of all sources below reports a failure
            _execute(job, "apt-get", "update", "-q", *options_for_one(path, accepts_changes=True))
        # Without the error mode, apt-get exits with 0 if a repository is unreachable.
        options = ("-q", "-o", "APT::Update::Error-Mode=any", *_lock_options(job))
        completed = _execute(job, "apt-get", "update", *options)
        if completed.exit_code != 0:
            self.refresh_problem = str(failure("apt-get update", completed, _UPDATE_LINES))
            job.log("apt: some package lists could not be fetched")

    def repair(self, job: Job) -> None:
        """Let dpkg finish its interrupted work. Raises ``ResourceError`` on failure."""
        completed = _execute(job, "dpkg", "--force-confold", "--configure", "-a")
        if completed.exit_code != 0:
            raise failure("dpkg was interrupted; dpkg --configure -a", completed)
        job.log("apt: dpkg had been interrupted; dpkg --configure -a has finished its work")

    def _list_installed(self, job: Job, names: Sequence[str]) -> Mapping[str, Found]:
        # Query all packages, because unknown names make dpkg-query fail, and reading all takes as long. The pattern
        # includes held packages that are not installed.
        completed = job.query("dpkg-query", "-W", f"-f={_FORMAT}", "*")
        database = parse_database(output("dpkg-query", completed))
        self._native = _native_architecture(database.installed)
        return {name: self._found(name, database) for name in names}

    def _found(self, name: str, database: Database) -> Found:
        package, desired = name.partition(":")[0], self._architectures(name)
        installed = [item for item in database.installed.get(package, ()) if item.architecture in desired]
        if installed:
            return Found(installed)
        providers = (item.name for item in database.provided.get(package, ()) if item.architecture in desired)
        has_configuration = not desired.isdisjoint(database.configured.get(package, ()))
        is_held = not desired.isdisjoint(database.held.get(package, ()))
        return Found((), sorted(set(providers)), has_configuration, is_held)

    def _list_policies(self, job: Job, names: Sequence[str], release: str | None) -> Mapping[str, Policy]:
        options = (*_cache_options(job), *_release_options(release))
        completed = job.query("apt-cache", *options, "policy", "--", *names)
        policies = parse_policies(output("apt-cache policy", completed))
        # apt omits this machine's architecture and ``all``.
        return {name: policy for name in names if (policy := policies.get(self._canonical(name)))}


def parse_database(text: str) -> Database:
    """Parse the output of ``dpkg-query``. Raises ``ResourceError`` for an unknown line."""
    database = Database()
    for line in text.splitlines():
        if line.startswith(_NEVER_INSTALLED):  # names from fields of other packages, which are most lines
            continue
        try:
            want, status, package, architecture, version, provides = line.split("\t")
        except ValueError:
            raise ResourceError(f"dpkg-query printed {line!r}", expected="six fields") from None
        if want == "hold" and status in (_CONFIGURATION, "not-installed"):
            database.held.setdefault(package, set()).add(architecture)
        if status == _CONFIGURATION:
            database.configured.setdefault(package, set()).add(architecture)
        elif status != "not-installed":
            status = "installed" if status in _STATUSES_OF_INSTALLED else status
            item = Installed(version, architecture, status, want == "hold")
            database.installed.setdefault(package, []).append(item)
            for name in _names(provides) if item.is_complete else ():
                database.provided.setdefault(name, []).append(Record(package, version, architecture))
    return database


def _names(provides: str) -> list[str]:
    """Return the names of ``mail-transport-agent, smtp-server (= 1.0)`` without versions."""
    return [part.split()[0] for part in provides.split(",") if part.strip()]


def parse_policies(text: str) -> dict[str, Policy]:
    """Parse the output of ``apt-cache policy`` by package, in apt's spelling."""
    policies: dict[str, Policy] = {}
    policy = Policy()
    for line in text.splitlines():
        if not line.startswith(" "):
            policy = policies[line.removesuffix(":")] = Policy()
        elif line.startswith("  Candidate: "):
            candidate = line.split()[1]
            policy.candidate = None if candidate == "(none)" else candidate
        elif version := _VERSION_LINE.match(line):
            policy.versions.append(version[1])
    return policies


def parse_marks(text: str) -> set[tuple[str, str]]:
    """Return name and architecture of the packages that apt's ``extended_states`` marks as automatically installed."""
    marked = set()
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
        if fields.get("Auto-Installed") == "1":
            marked.add((fields.get("Package", ""), fields.get("Architecture", "")))
    return marked


def _native_architecture(result: Mapping[str, Sequence[Installed]]) -> str:
    """Return the architecture of this machine, which is dpkg's, without a process."""
    for item in result.get("dpkg", ()):
        return item.architecture
    raise ResourceError("dpkg-query does not list dpkg, whose architecture is this machine's")


def _operand(desired: RequestedPackage) -> str:
    """Return a package as an argument of ``apt-get install``. A path begins with a slash."""
    return desired.file or (f"{desired.name}={desired.version}" if desired.version else desired.name)


def _apt_get(job: Job, request: Request, *options: str) -> tuple[str, ...]:
    """Return the command line for a request."""
    verb, operands = "purge" if request.purge else "remove", list(request.remove)
    chosen = [*options, *(("--allow-change-held-packages",) if request.changes_held else ())]
    if request.install:
        verb, operands = "install", [_operand(item) for item in request.install]
        operands += [f"{name}-" for name in request.remove]
        chosen += ("--allow-downgrades",) if request.downgrades else ()
        chosen += _release_options(request.options.release)
        if (recommends := request.options.recommends) is not None:
            chosen.append("--install-recommends" if recommends else "--no-install-recommends")
    unattended = (*_UNATTENDED, *_EXACT_NAMES, *_lock_options(job))
    return ("apt-get", verb, "-y", "-q", *unattended, *chosen, "--", *operands)


def _description(request: Request) -> str:
    """Return the short form of a request's command, for messages."""
    if request.install:
        return " ".join(("apt-get install", *map(_operand, request.install)))
    return " ".join(("apt-get purge" if request.purge else "apt-get remove", *request.remove))


def _release_options(release: str | None) -> tuple[str, ...]:
    return ("-t", release) if release else ()


def _cache_options(job: Job) -> tuple[str, ...]:
    return (*_EXACT_NAMES, *(_WITHOUT_CACHE if job.noop else ()))


def _lock_options(job: Job) -> tuple[str, str]:
    return "-o", f"DPkg::Lock::Timeout={math.ceil(job.lock_timeout)}"


def _execute(job: Job, *arguments: str) -> Completed:
    # apt limits the wait for the lock. The wait does not count towards the timeout.
    return job.execute(*arguments, environment=_ENVIRONMENT, waits=job.lock_timeout)


# The output of ``apt-get --simulate``: one line for each package, and a summary with their numbers. Every line must be
# known, and the numbers must agree. Any other output is an error and never counts as a run without changes.

_SIMULATION = ("--simulate", "-q=1", "-o", "APT::Output-Version=0")
"""With ``quiet`` set to 2 the summary is missing, and apt 3 has a different one. The configuration can set both."""

# ``Inst tool:i386 [1.0] (2.0 Debian:12.5/stable [i386])``, ``Remv tool [1.0]``, ``Purg tool``
_INSTALLS = re.compile(r"Inst (\S+) (?:\[\S*\] )?\((\S+) .*\[(\S+)\]\)")
_REMOVES = re.compile(r"(?:Remv|Purg) (\S+)(?: |$)")
_ACTION = re.compile(r"(?:Inst|Remv|Purg)\b")
_SUMMARY = re.compile(
    r"(?P<upgraded>\d+) upgraded, (?P<new>\d+) newly installed, (?:(?P<again>\d+) reinstalled, )?"
    r"(?:(?P<older>\d+) downgraded, )?(?P<removed>\d+) to remove and \d+ not upgraded\."
)


def parse_simulation(text: str, native: str) -> Plan:
    """Return the packages that a simulated change installs and removes.

    ``native`` is the architecture of this machine. Raises ``ResourceError`` for unknown output.
    """
    installs: dict[tuple[str, str], Record] = {}
    removals: dict[str, None] = {}
    if not text.endswith("\n"):
        raise _not_understood("no end")
    lines = text.splitlines()
    for line in lines:
        if install := _INSTALLS.match(line):
            record = Record(install[1].partition(":")[0], install[2], install[3])
            installs[record.name, record.architecture] = record
        elif removal := _REMOVES.match(line):
            removals[removal[1].removesuffix(f":{native}")] = None
        elif _ACTION.match(line):
            raise _not_understood(f"the line {line!r}")
    for name, architecture in installs:  # apt may remove it first, to break a loop of conflicts
        removals.pop(name if architecture in ("all", native) else f"{name}:{architecture}", None)
    _require_numbers(lines, len(installs), len(removals))
    return Plan(tuple(installs.values()), tuple(removals))


def _require_numbers(lines: Iterable[str], installs: int, removals: int) -> None:
    summaries = [match for line in lines if (match := _SUMMARY.fullmatch(line))]
    if len(summaries) != 1:
        raise _not_understood(f"{len(summaries)} summaries")
    numbers = {name: int(number or 0) for name, number in summaries[0].groupdict().items()}
    expected = numbers.pop("removed")
    if (installs, removals) != (sum(numbers.values()), expected):
        raise _not_understood(
            f"{installs} installations and {removals} removals, and the summary {sum(numbers.values())} and {expected}"
        )


def _not_understood(description: str) -> ResourceError:
    return ResourceError(f"the output of apt-get --simulate is not understood: it has {description}")


# Repositories.

ACCEPTS_CHANGES = "X-Allow-Release-Info-Change"
"""A field of sources that apt ignores: the Release file may change its Label, Suite, Codename or Version."""

PARTS = "/etc/apt/sources.list.d"
_ONE_LINE = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)")
_OFF = ("no", "false", "0", "off", "without", "disable")


def parse_entries(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the URL and suite of each enabled entry. Skip lines that apt cannot parse."""
    return _of_stanzas(text) if path.endswith(".sources") else _of_lines(text)


def options_for_one(path: str, *, accepts_changes: bool) -> list[str]:
    """Return the options of ``apt-get update`` that fetch the lists of one source and keep all other lists."""
    options = {
        "Dir::Etc::sourcelist": path,
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Get::List-Cleanup": "0",
        "APT::Update::Error-Mode": "any",  # otherwise apt-get exits with 0 if a repository is unreachable
        **({"Acquire::AllowReleaseInfoChange": "1"} if accepts_changes else {}),
    }
    return [word for item in options.items() for word in ("-o", "=".join(item))]


def accepting_changes(system: System) -> list[str]:
    """Return the sources whose Release files may change their Label, Suite, Codename or Version."""
    try:
        names = [name for name, _ in system.children(PARTS) if name.endswith(".sources")]
        paths = [os.path.join(PARTS, name) for name in names]
        return [path for path in paths if f"\n{ACCEPTS_CHANGES}: yes\n".encode() in system.read(path)]
    except OSError:  # without permission or file, apt-get update reports the change
        return []


def _of_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if match := _ONE_LINE.match(line.partition("#")[0]):
            yield match[1], match[2]


def _of_stanzas(text: str) -> Iterator[tuple[str, str]]:
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = dict(_fields(stanza))
        if fields.get("enabled", "yes").strip().lower() not in _OFF:
            for url in fields.get("uris", "").split():
                yield from ((url, suite) for suite in fields.get("suites", "").split())


def _fields(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield each field with its continuation lines. Skip comments."""
    name, value = "", ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t"):
            value += f"\n{line}"
            continue
        yield name, value
        name, _, value = line.partition(":")
        name = name.strip().lower()
    yield name, value


class AptLayout(Layout):
    """deb822 sources with embedded keys, and pins by host. Methods raise like those of ``Layout``."""

    provider = "apt"
    root: ClassVar[str] = "/etc/apt"
    asks = True

    def paths(self, name: str) -> Sequence[str]:
        return (
            f"{self.root}/keyrings/{name}.gpg",
            f"{self.root}/preferences.d/{name}.pref",
            f"{self.root}/sources.list.d/{name}.sources",
        )

    def written(self, properties: RepositoryProperties) -> dict[str, bool]:
        keyring, preferences, source = self.paths(properties.name)
        return {
            keyring: properties.key is not None,
            preferences: properties.priority is not None,
            source: True,
        }

    def require(self, properties: RepositoryProperties) -> None:
        if not properties.suites:
            raise ResourceError(
                "suites is missing", hint="apt requires suites such as [bookworm], or [./] for a directory"
            )

    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        keyring, preferences, source = self.paths(properties.name)
        return {
            keyring: key.data if key and key.data else None,
            preferences: _pin(properties),
            source: _source(properties, key, keyring),
        }

    def places(self, system: System) -> Iterator[str]:
        pieces = f"{self.root}/sources.list.d"
        yield f"{self.root}/sources.list"
        # apt ignores names with other characters.
        yield from (
            f"{pieces}/{name}"
            for name in names_in(system, pieces)
            if name.endswith((".list", ".sources")) and name.isascii()
        )

    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        return ((host_and_directory(url), suite) for url, suite in parse_entries(path, text))

    def find_problem(self, job: Job, name: str, texts: Mapping[str, bytes]) -> str:
        # apt reads all sources and prints the files to fetch. It takes no lock, and fetches and writes nothing.

        del name
        with tempfile.TemporaryDirectory(prefix="puller-") as directory:
            os.mkdir(f"{directory}/sources.list.d")
            for path, content in texts.items():
                with open(directory + path.removeprefix(self.root), "wb") as stream:
                    stream.write(content)
            options = (
                "-o", f"Dir::Etc::sourcelist={directory}/sources.list",
                "-o", f"Dir::Etc::sourceparts={directory}/sources.list.d",
            )  # fmt: skip
            # apt writes embedded keys to temporary files and does not remove them.
            environment = {"TMPDIR": directory}
            completed = job.query("apt-get", "update", "--print-uris", *options, environment=environment)
        if completed.exit_code == 0:
            return ""
        return str(failure("apt-get update", completed)).replace(directory, self.root)

    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        # Readable for the user to which apt switches before it connects to a server or reads a key.
        with private_directory(job.system, 0o755) as directory:
            keyring, source = f"{directory}/key.gpg", f"{directory}/trial.sources"
            if key and key.data:
                put_file(job.system, keyring, key.data)
            put_file(job.system, source, _source(properties, key, keyring))
            options = options_for_one(source, accepts_changes=properties.allow_release_info_change)
            fetch_lists(job, "apt-get", "update", "-q", *options)


def _source(properties: RepositoryProperties, key: Key | None, keyring: str) -> bytes:
    """Return the stanza, without empty fields."""
    signed = (
        f" {keyring}"
        if key and key.data
        else "".join(f"\n {line or '.'}" for line in key.lines)
        if key
        else ""
    )
    fields: Mapping[str, str] = {
        "Types": " deb",
        "URIs": f" {properties.url}",
        "Suites": _listed(properties.suites),
        "Components": _listed(properties.components),
        "Architectures": _listed(properties.architectures),
        "Signed-By": signed,
        "Enabled": " yes" if properties.enabled else " no",
        ACCEPTS_CHANGES: " yes" if properties.allow_release_info_change else "",
    }
    return "".join(f"{name}:{value}\n" for name, value in fields.items() if value).encode()


def _listed(words: Sequence[str]) -> str:
    return "".join(f" {word}" for word in words)


def _pin(properties: RepositoryProperties) -> bytes | None:
    if properties.priority is None:
        return None

    host = urlsplit(properties.url).hostname or ""
    return f'Package: *\nPin: origin "{host}"\nPin-Priority: {properties.priority}\n'.encode()
