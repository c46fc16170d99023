"""Packages and repositories of Fedora, Red Hat and relatives: rpm lists installed packages, dnf available packages.

* A version is the full epoch, version and release: ``1:2.4-3.el9``. An epoch of 0 is omitted.
* Several versions of a package may be installed side by side, such as kernels.
* dnf waits for its own lock, within the timeout of the change.
* Commands and options are limited to those that dnf 4 and dnf 5 share.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser, Error, SectionProxy
from typing import ClassVar

import msgspec

from foundation.problems import ProblemCode
from puller.errors import ResourceError
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
from puller.resources.packages.providers import PROVIDERS, RPM
from puller.system.commands import Completed
from puller.system.protocol import System

_FILE_FORMAT = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"
_INSTALLED_FORMAT = _FILE_FORMAT.replace("\\n", "\\t[%{PROVIDENAME} ]\\n")
# With a newline: dnf 4 adds one, dnf 5 does not.
_AVAILABLE_FORMAT = "%{name}\t%{epoch}:%{version}-%{release}\t%{arch}\n"
_PLAIN = "--setopt=color=never"
_UPDATES_AVAILABLE = 100  # exit code of check-update
_SOURCES = ("src", "nosrc")
_NOT_FETCHED = re.compile("cache-only.*no cache", re.IGNORECASE)
_NOT_FOUND = ("Unable to find a match", "No match for argument")

# One package in a table with wrapped lines: name.architecture, version, repository.
_UPDATE = re.compile(r"^(\S+)\.(\w+)\s+(\S+-\S+)\s+\S+[ \t]*$", re.MULTILINE)
_OBSOLETING = re.compile(r"^obsoleting packages", re.IGNORECASE | re.MULTILINE)
_ERROR = re.compile(r"^error:", re.MULTILINE)


class Dnf(Manager):
    """dnf and rpm. Methods raise ``ResourceError``."""

    order = RPM
    sources = ("/etc/yum.repos.d", "/etc/dnf", "/etc/yum.conf")
    wants_one_provider = False
    suffix = PROVIDERS["dnf"].suffix

    def __init__(self) -> None:
        super().__init__()
        self._updates = Inventory(self._list_updates)
        self._available = Inventory(self._list_available)
        self._provided = Inventory(self._list_provided)
        self._locks = Inventory(self._list_locks)
        self._is_fetched = True
        """Whether the metadata of the repositories are on this machine."""
        self._end_of_options: tuple[str, ...] = ("--",)

    def knows_repositories(self, job: Job, name: str) -> bool:
        try:
            self._available.about(job, name)
        except ResourceError:
            if self._is_fetched:
                raise
            return False
        return True

    def is_offered(self, job: Job, name: str) -> bool:
        return bool(self.available(job, name))

    def offered_providers(self, job: Job, name: str) -> Sequence[str]:
        return self._provided.about(job, name) or ()

    def candidate(self, job: Job, name: str, release: str | None = None) -> str | None:
        del release  # dnf does not support it, and refuse_options rejects it
        versions = [record.version for record in self._updates.about(job, name) or ()]
        return max(versions, key=self.order.key, default=None)

    def available(self, job: Job, name: str) -> Sequence[str]:
        return [record.version for record in self._available.about(job, name) or ()]

    def plan(self, job: Job, request: Request) -> Plan:
        if request.install and request.remove:  # dnf needs a command for each
            installs = self.plan(job, msgspec.structs.replace(request, remove=()))
            removals = self.plan(job, msgspec.structs.replace(request, install=()))
            return Plan(installs.installs, (*installs.removals, *removals.removals))
        completed = self._simulate(job, request)
        if not _is_complete(completed):
            raise failure(" ".join(("dnf", *self._words(job, request))), completed)
        return parse_simulation(completed.stdout)

    def fulfil(self, job: Job, request: Request, approve: Approve = approve_all) -> None:
        verb, *packages = self._words(job, request)

        def run() -> Completed:
            simulated = self._simulate(job, request)
            if not _is_complete(simulated):
                return simulated
            approve(parse_simulation(simulated.stdout), request)
            return self._with_packages(job.execute, ("dnf", verb, "-y", *_options(request)), packages)

        self._change(job, run, " ".join(("dnf", verb, *packages)), dict.fromkeys(_NOT_FOUND, self.refresh))

    def _run_simulation(self, job: Job, request: Request) -> Completed:
        verb, *packages = self._words(job, request)
        options = (*_SIMULATION, *(("--cacheonly",) if job.noop else ()), *_options(request))
        return self._with_packages(job.query, ("dnf", verb, *options), packages)

    def _words(self, job: Job, request: Request) -> list[str]:
        """Return the verb and the packages of the command for a request, which either installs or removes."""
        if request.install:
            return ["install", *(self._specification(job, item) for item in request.install)]
        return ["remove", *map(rpm_name, request.remove)]

    def canonical(self, job: Job, name: str) -> str:
        return self._without_architecture(job, name)

    def full_name(self, job: Job, record: Record) -> str:
        return record.name

    def is_automatic(self, job: Job, name: str) -> bool:
        # Only a dnf query can find the reason of an installation, and it takes longer than all other queries of a run.
        del job, name
        return False

    def mark_manual(self, job: Job, names: Sequence[str]) -> None:
        packages = [rpm_name(name) for name in names]
        for reason in ("install", "user"):  # for dnf 4 and dnf 5
            completed = self._with_packages(job.execute, ("dnf", "-q", "-y", "mark", reason), packages)
            if completed.exit_code == 0:
                return
        raise failure("dnf mark", completed)

    def is_held(self, job: Job, name: str, *, to_hold: bool) -> bool:
        is_held = self._locks.about(job, name)
        if to_hold and is_held is None:
            raise ResourceError(
                "held: true requires dnf's plugin versionlock (package python3-dnf-plugin-versionlock)",
                code=ProblemCode.MISSING_DEPENDENCY,
            )
        return bool(is_held)

    def hold(self, job: Job, names: Sequence[str], *, held: bool) -> None:
        verb = "add" if held else "delete"
        packages = [self._without_architecture(job, name) for name in names]
        completed = self._with_packages(job.execute, ("dnf", "-q", "versionlock", verb), packages)
        output(f"dnf versionlock {verb}", completed)

    def _without_architecture(self, job: Job, name: str) -> str:
        """Return ``glibc`` for ``glibc.i686``, because a lock covers all architectures. ``python3.11`` stays."""
        name = rpm_name(name)
        endings = (f".{item.architecture}" for item in self.found(job, name).installed)
        return next((name.removesuffix(end) for end in endings if name.endswith(end)), name)

    def read_package(self, job: Job, path: str) -> Record:
        # dnf checks the signature at the installation.
        completed = job.query("rpm", "-q", "--nosignature", "--queryformat", _FILE_FORMAT, "-p", "--", path)
        records, _ = parse_records(output(f"rpm -q -p {path}", completed))
        if len(records) != 1:
            raise ResourceError(f"rpm printed {completed.stdout!r} of {path}", expected="one package")
        return records[0]

    def is_named(self, job: Job, record: Record, name: str) -> bool:
        del job
        return rpm_name(name) in (record.name, f"{record.name}.{record.architecture}")

    def refuse_options(self, options: Options, *, has_debconf: bool) -> None:
        if options.release:
            raise ResourceError(f"release is {options.release!r}, but only apt supports it, not dnf")
        if has_debconf:
            raise ResourceError("debconf is given, but only apt supports it, not dnf")

    def refresh(self, job: Job) -> None:
        job.log("dnf: fetching the metadata of the repositories anew")
        completed = job.execute("dnf", "-q", "makecache", "--refresh")
        if completed.exit_code != 0:
            self.refresh_problem = str(failure("dnf makecache --refresh", completed))

    def _specification(self, job: Job, desired: RequestedPackage) -> str:
        name = rpm_name(desired.name)
        if desired.file:
            return desired.file
        if desired.version is None:
            return name
        # Include the epoch even if it is 0. Without an epoch, dnf accepts any.
        version = desired.version if ":" in desired.version else f"0:{desired.version}"
        for record in self._available.about(job, desired.name) or ():
            if record.name != name:  # the name has an architecture, so the result needs it
                return f"{record.name}-{version}.{record.architecture}"
        return f"{name}-{version}"

    def _query(self, job: Job, arguments: Sequence[str], names: Sequence[str]) -> Completed:
        # noop downloads nothing, so use dnf's cache
        options = ("dnf", "-q", _PLAIN, *(("--cacheonly",) if job.noop else ()))
        packages = [rpm_name(name) for name in names]
        return self._with_packages(job.query, (*options, *arguments), packages)

    def _with_packages(
        self, run: Callable[..., Completed], arguments: Sequence[str], packages: Sequence[str]
    ) -> Completed:
        """Run dnf with ``--`` before the packages. dnf 5 rejects ``--`` before its version 5.4.3.

        Running without ``--`` is safe, because checked names begin with a letter or digit.
        """
        completed = run(*arguments, *self._end_of_options, *packages)
        if self._end_of_options and 'Unknown argument "--"' in completed.stderr:
            self._end_of_options = ()
            completed = run(*arguments, *packages)
        return completed

    def _list_installed(self, job: Job, names: Sequence[str]) -> Mapping[str, Found]:
        # A package also provides its own name. For a name with an architecture, query the name without it as well.
        labels = sorted(
            {label for name in names for label in (rpm_name(name), _without_suffix(rpm_name(name)))}
        )
        arguments = ("--queryformat", _INSTALLED_FORMAT, "--whatprovides", "--", *labels)
        completed = job.query("rpm", "-q", *arguments)
        records, others = parse_providing(completed.stdout)
        # For missing packages, rpm prints a message and exits with an error code. For an unreadable database it prints
        # the same messages, and the reason on stderr.
        if (completed.exit_code == 0) == bool(others) or completed.exit_code is None:
            raise failure("rpm -q", completed)
        if _ERROR.search(completed.stderr):
            raise failure("rpm -q", completed)
        result = _for_names(records, names)
        return {
            name: Found(
                [Installed(item.version, item.architecture) for item in of_name],
                () if of_name else _providers(records, name),
            )
            for name, of_name in result.items()
        }

    def _list_provided(self, job: Job, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        # The output does not name the requested capability. First query all names together: usually the result is
        # empty.
        missing = [name for name in names if not self.is_offered(job, name)]
        if not missing or not self._query_provided(job, missing):
            return {}
        return {name: self._query_provided(job, [name]) for name in missing}

    def _query_provided(self, job: Job, names: Sequence[str]) -> list[str]:
        capabilities = ",".join(map(rpm_name, names))
        arguments = ("repoquery", f"--queryformat={_AVAILABLE_FORMAT}", f"--whatprovides={capabilities}")
        records, _ = parse_records(output("dnf repoquery --whatprovides", self._query(job, arguments, ())))
        return sorted({record.name for record in records if record.architecture not in _SOURCES})

    def _list_locks(self, job: Job, names: Sequence[str]) -> Mapping[str, bool]:
        completed = job.query("dnf", "-q", "versionlock", "list")
        if "No such command" in completed.stderr or "Unknown argument" in completed.stderr:
            return {}  # without the plugin, dnf holds no package
        locked = parse_locks(output("dnf versionlock list", completed))
        return {name: self._without_architecture(job, name) in locked for name in names}

    def _list_updates(self, job: Job, names: Sequence[str]) -> Mapping[str, Sequence[Record]]:
        # Use check-update, because repoquery ignores the priorities of repositories.
        completed = self._query(job, ("check-update",), names)
        text = output("dnf check-update", completed, (0, _UPDATES_AVAILABLE))
        updates = parse_updates(text)
        if completed.exit_code == _UPDATES_AVAILABLE and not updates and not _OBSOLETING.search(text):
            raise ResourceError("the output of dnf check-update is not understood: it has no updates")
        return _for_names(updates, names)

    def _list_available(self, job: Job, names: Sequence[str]) -> Mapping[str, Sequence[Record]]:
        completed = self._query(job, ("repoquery", f"--queryformat={_AVAILABLE_FORMAT}"), names)
        # dnf has no exit status for missing metadata.
        printed = f"{completed.stderr}\n{completed.stdout}"
        self._is_fetched = completed.exit_code == 0 or not _NOT_FETCHED.search(printed)
        records, _ = parse_records(output("dnf repoquery", completed))
        return _for_names([record for record in records if record.architecture not in _SOURCES], names)


def rpm_name(name: str) -> str:
    """Return the name of a package and architecture as rpm writes it. Also accepts ``glibc:i686``."""
    return name.replace(":", ".")


def parse_records(text: str) -> tuple[list[Record], list[str]]:
    """Parse lines in our query formats. Return the records without duplicates, and all other lines."""
    records: dict[Record, None] = {}
    others = []
    for line in filter(None, text.splitlines()):
        if line.count("\t") == 2:
            name, version, architecture = line.split("\t")
            records[Record(name, version.removeprefix("0:"), architecture)] = None
        else:
            others.append(line)
    return list(records), others


def parse_providing(text: str) -> tuple[dict[Record, frozenset[str]], list[str]]:
    """Parse lines of installed packages. Return each record with the names that it provides, and all other lines."""
    records: dict[Record, frozenset[str]] = {}
    others = []
    for line in filter(None, text.splitlines()):
        if line.count("\t") == 3:
            name, version, architecture, provides = line.split("\t")
            records[Record(name, version.removeprefix("0:"), architecture)] = frozenset(provides.split())
        else:
            others.append(line)
    return records, others


_LOCK = re.compile(r"^(?:Package name: (\S+)|([^\s!#]\S*)-(?:\d+:)?[^-\s]+-[^-\s]+)$", re.MULTILINE)


def parse_locks(text: str) -> set[str]:
    """Return the names that ``versionlock`` lists. dnf 4 prints ``tool-0:1.0-1.*``, dnf 5 several lines for each."""
    return {match[1] or match[2] for match in _LOCK.finditer(text)}


def parse_updates(text: str) -> list[Record]:
    """Parse the table of ``dnf check-update``, without replacements for packages of other names."""
    table = _OBSOLETING.split(text)[0]
    return [Record(name, version, architecture) for name, architecture, version in _UPDATE.findall(table)]


def _without_suffix(name: str) -> str:
    """Return ``glibc`` for ``glibc.i686``. The caller also queries the full name, which may contain a dot."""
    return name.rpartition(".")[0] or name


def _providers(records: Mapping[Record, frozenset[str]], name: str) -> list[str]:
    return sorted({record.name for record, provided in records.items() if name in provided})


def _for_names(records: Iterable[Record], names: Sequence[str]) -> dict[str, list[Record]]:
    """Return the records for each name: ``glibc`` matches all architectures, ``glibc.i686`` matches one."""
    result: dict[str, list[Record]] = {}
    for record in records:
        for name in (record.name, f"{record.name}.{record.architecture}"):
            result.setdefault(name, []).append(record)
    return {name: result.get(rpm_name(name), []) for name in names}


def _is_complete(simulated: Completed) -> bool:
    """Return whether a simulation has a plan. dnf exits with 1 for a plan and for a failure."""
    return simulated.exit_code == 0 or (simulated.exit_code == 1 and has_plan(simulated.stdout))


def _options(request: Request) -> tuple[str, ...]:
    recommends = request.options.recommends
    return () if recommends is None or not request.install else (f"--setopt=install_weak_deps={recommends}",)


# The output of ``dnf --assumeno`` (dnf 4 and dnf 5): a table of packages under headings and a summary, or the statement
# that nothing changes. Every heading and row must be known, and the numbers must agree with the summary. Any other
# output is an error and never counts as a run without changes.

_SIMULATION = ("--assumeno", "--setopt=color=never", "--setopt=debuglevel=2")
"""The table is missing or has escape sequences with other values, which the configuration can set."""

_TABLE = re.compile(r"^ ?Package +Arch.*$", re.MULTILINE)
_END = re.compile(r"^(?:Transaction Summary:?|Nothing to do\.)$", re.MULTILINE)
_NOTHING = re.compile(r"^Nothing to do\.$", re.MULTILINE)

# ``Removing dependent packages:``
_PACKAGES = re.compile(
    r"(Installing|Upgrading|Downgrading|Reinstalling|Removing)"
    r"(?: dependencies| weak dependencies| dependent packages| unused dependencies| group/module packages)?:"
)
# Sections without packages, or with packages that do not change.
_OTHERS = re.compile(
    r"(?:Skipping packages with |Changing reason"
    r"|(?:\w+ )+(?:module|modules|groups|Groups|environmental|Environment)\b).*:"
)
_NOTE = re.compile(r"=+|\(.*\):?|")

# `` Install  2 Packages`` of dnf 4, `` Installing:  2 packages`` of dnf 5
_NUMBER = re.compile(
    r"^ ?(Install|Upgrad|Downgrad|Remov|Replac)(?:e|ing)?:? +(\d+) [Pp]ackages?$", re.MULTILINE
)


def has_plan(text: str) -> bool:
    """Return whether a simulation ended with a table of packages or without changes."""
    return bool(_TABLE.search(text) or _NOTHING.search(text))


def parse_simulation(text: str) -> Plan:
    """Return the packages that a simulated change installs and removes.

    Raises ``ResourceError`` for unknown output.
    """
    table = _TABLE.search(text)
    if table is None:
        if _NOTHING.search(text):
            return Plan()
        raise _not_understood("neither a table of packages nor the words 'Nothing to do.'")
    end = _END.search(text, table.end())
    if end is None:
        raise _not_understood("a table without an end")
    installs, removals, again = [], [], 0
    replaced: list[str] = []
    for verb, words in _rows(text[table.end() : end.start()]):
        if words[0] == "replacing":
            replaced.append(_replaced_name(words))
        elif verb == "Removing":
            removals.append(_record(words).name)
        else:
            installs.append(_record(words))
            again += verb == "Reinstalling"
    _require_numbers(text[end.start() :], len(installs) - again, len(removals), len(replaced))
    # dnf 5 also lists the older version of a package itself.
    obsoleted = {*replaced} - {record.name for record in installs}
    return Plan(tuple(installs), (*removals, *sorted(obsoleted)))


def _rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the verb of the heading and the words of each package. dnf 4 may wrap a row."""
    verb: str | None = None  # empty in skipped sections
    row: list[str] = []
    for line in table.splitlines():
        is_continued = line.startswith("  ") and not line.lstrip().startswith("replacing ")
        if is_continued and row:
            row += line.split()
            continue
        if row and verb:
            yield verb, row
        row = []
        if line.startswith(" ") and line.strip():
            if verb is None:
                raise _not_understood(f"the line {line!r} before the first heading")
            row = line.split()
        elif heading := _PACKAGES.fullmatch(line):
            verb = heading[1]
        elif _OTHERS.fullmatch(line):
            verb = ""
        elif not _NOTE.fullmatch(line):
            raise _not_understood(f"the line {line!r}")
    if row and verb:
        yield verb, row


def _record(words: list[str]) -> Record:
    """Return the package of a row: name, architecture, version, repository, size."""
    if len(words) < 5 or "-" not in words[2]:
        raise _not_understood(f"the row {' '.join(words)!r}")
    name, architecture, version, *_ = words
    return Record(name, version.removeprefix("0:"), architecture)


def _replaced_name(words: list[str]) -> str:
    """Return the name in ``replacing tool.noarch 1.0-1`` of dnf 4, or ``replacing tool noarch 0:1.0-1 …`` of dnf 5."""
    if len(words) == 3:
        return words[1].rpartition(".")[0]
    if len(words) < 5:
        raise _not_understood(f"the row {' '.join(words)!r}")
    return words[1]


def _require_numbers(summary: str, installs: int, removals: int, replaced: int) -> None:
    numbers: dict[str, int] = {}
    for kind, number in _NUMBER.findall(summary):
        numbers[kind] = int(number)
    # dnf 4 does not count replaced packages.
    expected = (numbers.pop("Remov", 0), numbers.pop("Replac", replaced))
    if (installs, removals, replaced) != (sum(numbers.values()), *expected):
        raise _not_understood(
            f"{installs} installations, {removals} removals and {replaced} replacements, "
            f"and the summary {sum(numbers.values())}, {expected[0]} and {expected[1]}"
        )


def _not_understood(description: str) -> ResourceError:
    return ResourceError(f"the output of dnf --assumeno is not understood: it has {description}")


# Repositories.


class DnfLayout(Layout):
    """A ``.repo`` file, and a key next to the distribution's keys. Methods raise like those of ``Layout``."""

    provider = "dnf"
    root: ClassVar[str] = "/etc/yum.repos.d"
    keys: ClassVar[str] = "/etc/pki/rpm-gpg"
    asks = False

    def paths(self, name: str) -> Sequence[str]:
        return f"{self.keys}/{name}", f"{self.root}/{name}.repo"

    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        key_file, path = self.paths(properties.name)
        return {key_file: key.content if key else None, path: _repo(properties, key_file if key else None)}

    def places(self, system: System) -> Iterator[str]:
        yield from (f"{self.root}/{name}" for name in names_in(system, self.root) if name.endswith(".repo"))

    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        for section in _sections(path, text):
            if section.get("enabled", "1") != "0":
                yield from ((host_and_directory(url), "") for url in section.get("baseurl", "").split())

    def find_problem(self, job: Job, name: str, texts: Mapping[str, bytes]) -> str:
        # dnf merges or ignores a second definition, and only warns.
        del job
        paths = [
            path
            for path, content in texts.items()
            if any(section.name == name for section in _sections(path, content.decode(errors="replace")))
        ]
        return f"{' and '.join(paths)} define the same repository id {name}" if len(paths) > 1 else ""

    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        with private_directory(job.system, 0o700) as directory:
            content = _repo(properties, None) + b"skip_if_unavailable=0\n"
            put_file(job.system, f"{directory}/{properties.name}.repo", content)
            fetch_lists(job, "dnf", "-q", f"--setopt=reposdir={directory}", "makecache", "--refresh")


def _sections(path: str, text: str) -> list[SectionProxy]:
    """Return the sections of a file of dnf. Empty for a file that dnf rejects in each run."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text, path)
    except Error:
        return []
    return [parser[name] for name in parser.sections()]


def _repo(properties: RepositoryProperties, key_file: str | None) -> bytes:
    name, enabled = properties.name, int(properties.enabled)
    lines = [f"[{name}]", f"name={name}", f"baseurl={properties.url}", f"enabled={enabled}", "gpgcheck=1"]
    lines += [f"gpgkey=file://{key_file}"] if key_file else []
    lines += [f"priority={properties.priority}"] if properties.priority is not None else []
    return "".join(f"{line}\n" for line in lines).encode()
