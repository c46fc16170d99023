"""Packages of Fedora, Red Hat and their relatives: rpm knows what is installed, dnf what could be.

* A version is the whole of epoch, version and release, ``1:2.4-3.el9``; an epoch of 0 is not written.
* Several versions of one package may be installed side by side, such as those of the kernel.
* dnf waits for its own lock, in the time that the work may take.
* Works with dnf 4 and dnf 5, and asks both only in ways that they agree on.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from puller.errors import ResourceError
from puller.resources.packages.inventory import Inventory
from puller.resources.packages.job import Job, failure, output
from puller.resources.packages.manager import Installed, Manager, Wanted
from puller.resources.packages.versions import RPM
from puller.system.commands import Completed

_INSTALLED_FORMAT = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"
# With a line end of its own: dnf 4 adds one, dnf 5 does not.
_AVAILABLE_FORMAT = "%{name}\t%{epoch}:%{version}-%{release}\t%{arch}\n"
_UPDATES_AVAILABLE = 100  # exit code of check-update
_SOURCES = ("src", "nosrc")
_NOT_FETCHED = re.compile("cache-only.*no cache", re.IGNORECASE)
_NOT_FOUND = ("Unable to find a match", "No match for argument")

# One package in a table that may be broken into several lines: name.architecture, version, repository.
_UPDATE = re.compile(r"^(\S+)\.(\w+)\s+(\S+-\S+)\s+\S+[ \t]*$", re.MULTILINE)
_OBSOLETING = re.compile(r"^obsoleting packages", re.IGNORECASE | re.MULTILINE)
_ERROR = re.compile(r"^error:", re.MULTILINE)


class Record(msgspec.Struct, frozen=True):
    """A package that is installed, or in a repository."""

    name: str
    version: str
    architecture: str


class Dnf(Manager):
    """dnf and rpm."""

    order = RPM
    sources = ("/etc/yum.repos.d", "/etc/dnf", "/etc/yum.conf")

    def __init__(self) -> None:
        super().__init__()
        self._updates = Inventory(self._list_updates)
        self._available = Inventory(self._list_available)
        self._end_of_options: tuple[str, ...] = ("--",)

    def knows_repositories(self, job: Job, name: str) -> bool:
        try:
            self._available.about(job, name)
        except ResourceError as error:
            if _NOT_FETCHED.search(str(error)):
                return False
            raise
        return True

    def is_offered(self, job: Job, name: str) -> bool:
        return bool(self.available(job, name))

    def candidate(self, job: Job, name: str) -> str | None:
        versions = [record.version for record in self._updates.about(job, name) or ()]
        return max(versions, key=self.order.key, default=None)

    def available(self, job: Job, name: str) -> Sequence[str]:
        return [record.version for record in self._available.about(job, name) or ()]

    def install(self, job: Job, wanted: Sequence[Wanted], *, downgrades: bool) -> None:
        del downgrades  # dnf installs the version that it is told, whichever there is
        self._change_packages(job, "install", [self._specification(job, one) for one in wanted])

    def remove(self, job: Job, names: Sequence[str]) -> None:
        self._change_packages(job, "remove", [rpm_name(name) for name in names])

    def refresh(self, job: Job) -> None:
        job.log("dnf: fetching the metadata of the repositories anew")
        job.execute("dnf", "-q", "makecache", "--refresh")  # a failure shows when the install is tried again

    def _specification(self, job: Job, wanted: Wanted) -> str:
        name = rpm_name(wanted.name)
        if wanted.version is None:
            return name
        # With the epoch, also when it is 0: without one, dnf takes any.
        version = wanted.version if ":" in wanted.version else f"0:{wanted.version}"
        for record in self._available.about(job, wanted.name) or ():
            if record.name != name:  # what was asked for ends in an architecture; so does this
                return f"{record.name}-{version}.{record.architecture}"
        return f"{name}-{version}"

    def _change_packages(self, job: Job, verb: str, packages: Sequence[str]) -> None:
        def run() -> Completed:
            return self._with_packages(job.execute, ("dnf", verb, "-y"), packages)

        self._change(job, run, " ".join(("dnf", verb, *packages)), dict.fromkeys(_NOT_FOUND, self.refresh))

    def _query(self, job: Job, arguments: Sequence[str], names: Sequence[str]) -> Completed:
        # Noop downloads nothing; it takes what dnf has.
        options = ("dnf", "-q", *(("--cacheonly",) if job.noop else ()))
        packages = [rpm_name(name) for name in names]
        return self._with_packages(job.query, (*options, *arguments), packages)

    def _with_packages(
        self, run: Callable[..., Completed], arguments: Sequence[str], packages: Sequence[str]
    ) -> Completed:
        """Run dnf with ``--`` before the packages; dnf 5 refuses that before its version 5.4.3.

        Nothing is lost then: ``--`` is a second lock, names begin with a letter or digit.
        """
        completed = run(*arguments, *self._end_of_options, *packages)
        if self._end_of_options and 'Unknown argument "--"' in completed.stderr:
            self._end_of_options = ()
            completed = run(*arguments, *packages)
        return completed

    def _list_installed(self, job: Job, names: Sequence[str]) -> Mapping[str, Sequence[Installed]]:
        labels = sorted({rpm_name(name) for name in names})
        completed = job.query("rpm", "-q", "--queryformat", _INSTALLED_FORMAT, "--", *labels)
        records, others = parse_records(completed.stdout)
        # rpm says of each package that is not installed that it is not, and ends with another code than 0. Of a
        # database that it cannot read it says the same, and what is wrong on stderr.
        if (completed.exit_code == 0) == bool(others) or completed.exit_code is None:
            raise failure("rpm -q", completed)
        if _ERROR.search(completed.stderr):
            raise failure("rpm -q", completed)
        found = _for_names(records, names)
        return {
            name: [Installed(one.version, one.architecture) for one in of_name]
            for name, of_name in found.items()
        }

    def _list_updates(self, job: Job, names: Sequence[str]) -> Mapping[str, Sequence[Record]]:
        # check-update and not repoquery, which does not regard the priorities of repositories.
        completed = self._query(job, ("check-update",), names)
        updates = parse_updates(output("dnf check-update", completed, (0, _UPDATES_AVAILABLE)))
        return _for_names(updates, names)

    def _list_available(self, job: Job, names: Sequence[str]) -> Mapping[str, Sequence[Record]]:
        completed = self._query(job, ("repoquery", f"--queryformat={_AVAILABLE_FORMAT}"), names)
        records, _ = parse_records(output("dnf repoquery", completed))
        return _for_names([one for one in records if one.architecture not in _SOURCES], names)


def rpm_name(name: str) -> str:
    """A package of one architecture as rpm and dnf write it; ``glibc:i686`` is understood, too."""
    return name.replace(":", ".")


def parse_records(text: str) -> tuple[list[Record], list[str]]:
    """The lines of our formats, each record once; and the lines that are something else."""
    records: dict[Record, None] = {}
    others = []
    for line in filter(None, text.splitlines()):
        if line.count("\t") == 2:
            name, version, architecture = line.split("\t")
            records[Record(name, version.removeprefix("0:"), architecture)] = None
        else:
            others.append(line)
    return list(records), others


def parse_updates(text: str) -> list[Record]:
    """The table of ``dnf check-update``, without what would replace packages of another name."""
    table = _OBSOLETING.split(text)[0]
    return [Record(name, version, architecture) for name, architecture, version in _UPDATE.findall(table)]


def _for_names(records: Iterable[Record], names: Sequence[str]) -> dict[str, list[Record]]:
    """Which records each name means: ``glibc`` those of all architectures, ``glibc.i686`` those of one."""
    found: dict[str, list[Record]] = {}
    for record in records:
        for name in (record.name, f"{record.name}.{record.architecture}"):
            found.setdefault(name, []).append(record)
    return {name: found.get(rpm_name(name), []) for name in names}
