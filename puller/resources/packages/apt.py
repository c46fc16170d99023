"""Packages of Debian and its derivatives: dpkg knows what is installed, apt what could be.

* apt never asks: a changed configuration file is kept, questions get their defaults.
* apt waits a limited time for dpkg's lock.
* An interrupted dpkg is repaired, and package lists that do not help are fetched anew, each once a run.
* A name without an architecture is the package of this machine's own, or one that has none (``all``).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from puller.errors import ResourceError
from puller.resources.packages.inventory import Inventory
from puller.resources.packages.job import Job, failure, output
from puller.resources.packages.manager import Installed, Manager, Wanted
from puller.resources.packages.versions import DPKG
from puller.system.commands import Completed

_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTBUGS_FRONTEND": "none",
    "APT_LISTCHANGES_FRONTEND": "none",
    # ucf keeps the configuration files that dpkg does not know of; it asks about them, too.
    "UCF_FORCE_CONFFOLD": "1",
}
# A name with a dot that no package has would be a regular expression, and all that match it be installed.
_EXACT_NAMES = ("-o", "APT::Cmd::Pattern-Only=true")
_UNATTENDED = (
    "-o", "DPkg::Options::=--force-confold",
    # In a terminal of its own, dpkg would be in another process group, and outlive the time limit.
    "-o", "Dpkg::Use-Pty=0",
)  # fmt: skip
# Without these, apt-cache writes what it has computed; noop writes nothing.
_WITHOUT_CACHE = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")

_LISTS = "/var/lib/apt/lists"

_FIELDS = ("db:Status-Want", "db:Status-Status", "Package", "Architecture", "Version")
_FORMAT = "\\t".join(f"${{{field}}}" for field in _FIELDS) + "\\n"
_NOT_INSTALLED = ("not-installed", "config-files")
# Configured, and only waiting for what others do at the end of a transaction.
_STATUSES_OF_INSTALLED = ("installed", "triggers-awaited", "triggers-pending")

_VERSION_LINE = re.compile(r" (?:\*\*\*|   ) (\S+)")


class Policy(msgspec.Struct):
    """The answer of ``apt-cache policy`` about a package."""

    candidate: str | None = None
    versions: list[str] = []


class Apt(Manager):
    """apt and dpkg."""

    order = DPKG
    sources = ("/etc/apt",)

    def __init__(self) -> None:
        super().__init__()
        self._policies = Inventory(self._list_policies)
        self._native = ""
        """The architecture of this machine: that of the package ``dpkg``."""

    def knows_repositories(self, job: Job, name: str) -> bool:
        del name
        try:
            return any("_Packages" in file for file, _ in job.system.children(_LISTS))
        except FileNotFoundError:
            return False

    def is_offered(self, job: Job, name: str) -> bool:
        return self.candidate(job, name) is not None

    def candidate(self, job: Job, name: str) -> str | None:
        policy = self._policies.about(job, name)
        return policy.candidate if policy else None

    def available(self, job: Job, name: str) -> Sequence[str]:
        policy = self._policies.about(job, name)
        return policy.versions if policy else ()

    def install(self, job: Job, wanted: Sequence[Wanted], *, downgrades: bool) -> None:
        options = ("--allow-downgrades",) if downgrades else ()
        packages = [f"{one.name}={one.version}" if one.version else one.name for one in wanted]
        self._apt_get(job, "install", options, packages)

    def remove(self, job: Job, names: Sequence[str]) -> None:
        self._apt_get(job, "remove", (), names)

    def refresh(self, job: Job) -> None:
        job.log("apt: fetching the package lists anew")
        _execute(job, "apt-get", "update", "-q", *_lock_options(job))

    def repair(self, job: Job) -> None:
        """Let dpkg finish what it was interrupted in; raises ``ResourceError`` when it cannot."""
        completed = _execute(job, "dpkg", "--force-confold", "--configure", "-a")
        if completed.exit_code != 0:
            raise failure("dpkg was interrupted; dpkg --configure -a", completed)
        job.log("apt: dpkg had been interrupted; dpkg --configure -a has finished what it was doing")

    def _apt_get(self, job: Job, verb: str, options: Sequence[str], packages: Sequence[str]) -> None:
        options = (*_UNATTENDED, *_EXACT_NAMES, *_lock_options(job), *options)
        arguments = ("apt-get", verb, "-y", "-q", *options, "--", *packages)
        # By apt's words, as its exit code is 100 for nearly everything.
        remedies: dict[str, Callable[[Job], None]] = {
            "dpkg was interrupted": self.repair,
            "Unable to locate package": self.refresh,
            "has no installation candidate": self.refresh,
            "Unable to fetch some archives": self.refresh,
        }
        what = " ".join(("apt-get", verb, *packages))
        self._change(job, lambda: _execute(job, *arguments), what, remedies)

    def _list_installed(self, job: Job, names: Sequence[str]) -> Mapping[str, Sequence[Installed]]:
        # All packages, not these: a name that dpkg does not know would make it fail, and one reading takes as long.
        found = parse_installed(output("dpkg-query", job.query("dpkg-query", "-W", f"-f={_FORMAT}")))
        self._native = _native_architecture(found)
        return {name: self._of_architecture(name, found) for name in names}

    def _of_architecture(self, name: str, found: Mapping[str, Sequence[Installed]]) -> list[Installed]:
        package, _, architecture = name.partition(":")
        wanted = {architecture or self._native}
        if self._native in wanted:
            wanted.add("all")
        return [one for one in found.get(package, ()) if one.architecture in wanted]

    def _list_policies(self, job: Job, names: Sequence[str]) -> Mapping[str, Policy]:
        options = (*_EXACT_NAMES, *(_WITHOUT_CACHE if job.noop else ()))
        completed = job.query("apt-cache", *options, "policy", "--", *names)
        found = parse_policies(output("apt-cache policy", completed))
        # apt leaves the architecture out where it is this machine's own.
        return {
            name: policy for name in names if (policy := found.get(name.removesuffix(f":{self._native}")))
        }


def parse_installed(text: str) -> dict[str, list[Installed]]:
    """The lines of ``dpkg-query`` by package, without those of which at most configuration files are there.

    Raises ``ResourceError`` for a line that is not one of ours.
    """
    found: dict[str, list[Installed]] = {}
    for line in text.splitlines():
        try:
            want, status, package, architecture, version = line.split("\t")
        except ValueError:
            raise ResourceError(f"dpkg-query printed {line!r}, wanted five fields") from None
        if status in _NOT_INSTALLED:
            continue
        status = "installed" if status in _STATUSES_OF_INSTALLED else status
        found.setdefault(package, []).append(Installed(version, architecture, status, want == "hold"))
    return found


def parse_policies(text: str) -> dict[str, Policy]:
    """The output of ``apt-cache policy`` by package, as apt writes its name."""
    found: dict[str, Policy] = {}
    policy = Policy()
    for line in text.splitlines():
        if not line.startswith(" "):
            policy = found[line.removesuffix(":")] = Policy()
        elif line.startswith("  Candidate: "):
            candidate = line.split()[1]
            policy.candidate = None if candidate == "(none)" else candidate
        elif version := _VERSION_LINE.match(line):
            policy.versions.append(version[1])
    return found


def _native_architecture(found: Mapping[str, Sequence[Installed]]) -> str:
    """This machine's own, which is that of dpkg; no process is needed to ask for it."""
    for one in found.get("dpkg", ()):
        return one.architecture
    raise ResourceError("dpkg-query does not list dpkg, whose architecture is this machine's")


def _lock_options(job: Job) -> tuple[str, str]:
    return "-o", f"DPkg::Lock::Timeout={math.ceil(job.lock_timeout)}"


def _execute(job: Job, *arguments: str) -> Completed:
    # The wait for the lock is bounded by apt, and not taken from the time that the work may need.
    return job.execute(*arguments, environment=_ENVIRONMENT, waits=job.lock_timeout)
