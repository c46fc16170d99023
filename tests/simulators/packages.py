"""Simulated package managers of Debian and Fedora, for Puller's commands.

The contract tests in ``tests/system`` compare them with the real tools.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from puller.resources.packages.providers import DPKG, RPM
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

NATIVE = "amd64"


@dataclass
class Deb:
    """A package in dpkg's database."""

    version: str
    status: str = "installed"
    want: str = "install"


class Machine(LocalSystem):
    """A machine whose packages are in memory. It records all commands."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[list[str]] = []
        self.changed: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.input = ""
        """The standard input of the command that runs."""

    def query(self, command: Command) -> Completed:
        self.looked.append(list(command.arguments))
        self.input = command.input.decode()
        return self.run(list(command.arguments))

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        self.changed.append(list(command.arguments))
        self.environments.append(dict(command.environment))
        self.input = command.input.decode()
        return self.run(list(command.arguments))

    def run(self, arguments: list[str]) -> Completed:
        raise NotImplementedError

    def versions(self, name: str) -> list[str]:
        """Return the versions that are installed completely, the oldest first."""
        raise NotImplementedError


def ended(code: int = 0, stdout: str = "", stderr: str = "") -> Completed:
    return Completed(code, None, False, stdout, stderr, 0.1)


def operands(arguments: Sequence[str]) -> list[str]:
    """Return the arguments after ``--``."""
    return list(arguments[list(arguments).index("--") + 1 :])


def read_package(path: str) -> tuple[str, str, str]:
    """Return name, version and architecture, the only content of a simulated package file."""
    with open(path) as stream:
        name, version, architecture = stream.read().split()
    return name, version, architecture


def words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments before ``--`` without options and their values."""
    remainder = iter(arguments[: list(arguments).index("--")] if "--" in arguments else arguments)
    return [word for word in remainder if not (word == "-o" and next(remainder)) and not word.startswith("-")]


@dataclass(eq=False)
class Debian(Machine):
    """Simulated dpkg-query, apt-cache, apt-get and dpkg."""

    repository: dict[str, list[str]] = field(default_factory=dict)
    """Versions by ``name`` (native, or all) or ``name:architecture``."""
    packages: dict[str, Deb] = field(default_factory=dict)
    """The packages in dpkg's database, by the same names."""
    architecture: dict[str, str] = field(default_factory=dict)
    """``all`` for the names that have no architecture."""
    fails: set[str] = field(default_factory=set)
    """Packages whose postinst fails."""
    is_interrupted: bool = False
    is_locked: bool = False
    unfetchable: set[str] = field(default_factory=set)
    """``name=version`` in the lists, but missing on the server. ``apt-get update`` corrects the lists."""
    published: dict[str, list[str]] = field(default_factory=dict)
    """Further versions that ``apt-get update`` fetches."""
    provides: dict[str, str] = field(default_factory=dict)
    """The ``Provides`` field of packages, installed or not."""
    depends: dict[str, list[str]] = field(default_factory=dict)
    """The packages that a package depends on, in any version."""
    conflicts: dict[str, list[str]] = field(default_factory=dict)
    """The packages that conflict with a package."""
    automatic: set[str] = field(default_factory=set)
    """Packages installed only as dependencies."""
    answers: dict[str, str] = field(default_factory=dict)
    """debconf's database, by question."""
    asked: dict[str, str] = field(default_factory=dict)
    """The questions of a package, and their answers at its installation."""

    def __post_init__(self) -> None:
        Machine.__init__(self)
        self.packages.setdefault("dpkg", Deb("1.21.22"))

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        """Return the names of package lists, since Puller reads only whether any exist."""
        if path != "/var/lib/apt/lists":
            return super().children(path)
        names = ["lock", "partial", *(["deb.example.com_debian_Packages"] if self.repository else [])]
        return [(name, os.lstat("/")) for name in names]

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        """Return simulated marks of apt, or else a real file of this machine."""
        if path != "/var/lib/apt/extended_states":
            return super().read(path, looked_at)
        stanzas = (
            f"Package: {name}\nArchitecture: {self.architecture.get(name, NATIVE)}\nAuto-Installed: 1\n"
            for name in sorted(self.automatic)
        )
        return "\n".join(stanzas).encode()

    def run(self, arguments: list[str]) -> Completed:
        tools: dict[str, Callable[[list[str]], Completed]] = {
            "dpkg-query": self.dpkg_query,
            "apt-cache": self.apt_cache,
            "apt-get": self.apt_get,
            "apt-mark": self.apt_mark,
            "dpkg": self.dpkg,
            "dpkg-deb": self.dpkg_deb,
            "debconf-set-selections": self.debconf_set_selections,
            "debconf-communicate": self.debconf_communicate,
        }
        return tools[arguments[0]](arguments)

    def versions(self, name: str) -> list[str]:
        deb = self.packages.get(name)
        return [deb.version] if deb and deb.status in ("installed", "triggers-pending") else []

    def dpkg_query(self, arguments: list[str]) -> Completed:
        pattern = arguments[2].removeprefix("-f=").replace("\\t", "\t").replace("\\n", "\n")
        text = ""
        for key, deb in self.packages.items():
            if deb.status == "not-installed" and "*" not in arguments:
                continue
            name, _, architecture = key.partition(":")
            values = {
                "Package": name,
                "Version": deb.version,
                "Architecture": architecture or self.architecture.get(name, NATIVE),
                "db:Status-Status": deb.status,
                "db:Status-Want": deb.want,
                "Provides": self.provides.get(name, ""),
            }
            line = pattern
            for name, value in values.items():
                line = line.replace(f"${{{name}}}", value)
            text += line
        return ended(stdout=text)

    def apt_cache(self, arguments: list[str]) -> Completed:
        if "showpkg" in arguments:
            (name,) = operands(arguments)
            text = "".join(f"{item} 1.0 (= )\n" for item in self.providing(name) if item in self.repository)
            return ended(stdout=f"Package: {name}\nReverse Depends: \nReverse Provides: \n{text}")
        assert [word for word in words(arguments) if word != "backports"] == ["apt-cache", "policy"]
        text = ""
        for name in operands(arguments):
            key = self.key(name)
            installed = self.packages.get(key)
            versions = set(self.repository.get(key, ()))
            if installed and installed.status != "config-files":
                versions.add(installed.version)
            if not versions:
                if self.providing(name):
                    text += f"{key}:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
                continue
            ordered = sorted(versions, key=DPKG.key, reverse=True)
            text += f"{key}:\n  Installed: {installed.version if installed else '(none)'}\n"
            text += f"  Candidate: {ordered[0]}\n  Version table:\n"
            for version in ordered:
                mark = "***" if installed and installed.version == version else "   "
                text += f" {mark} {version} 500\n        500 http://deb.example.com ./ Packages\n"
        return ended(stdout=text)

    def apt_get(self, arguments: list[str]) -> Completed:
        verb = words(arguments)[1]
        if verb == "update":
            for name, versions in self.published.items():
                self.repository[name] = versions
            self.unfetchable.clear()
            return ended()
        is_simulated = "--simulate" in arguments
        if self.is_locked and not is_simulated:
            return ended(
                100, stderr="E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend)\n"
            )
        if self.is_interrupted and not is_simulated:
            how = "you must manually run 'dpkg --configure -a' to correct the problem."
            return ended(100, stderr=f"E: dpkg was interrupted, {how} \n")
        if verb in ("remove", "purge"):
            return self.apt_remove(arguments, purge=verb == "purge")
        return self.apt_install(arguments)

    def apt_install(self, arguments: list[str]) -> Completed:
        plan: dict[str, str] = {}
        named: set[str] = set()
        is_simulated = "--simulate" in arguments
        unwanted = {self.key(name[:-1]) for name in operands(arguments) if name.endswith("-")}
        for operand in operands(arguments):
            if operand.endswith("-"):
                continue
            name, _, version = operand.partition("=")
            if name.endswith("+") and self.key(name) not in self.repository:
                name = name[:-1]
            if operand.startswith("/"):
                name, version = read_package(operand)[:2]
                self.repository.setdefault(self.key(name), []).append(version)
            key = self.key(name)
            versions = self.repository.get(key, [])
            if not versions and key not in self.packages:
                installed = [item for item in self.providing(name) if self.versions(item)]
                if installed:
                    continue
                if len(offered := [item for item in self.providing(name) if item in self.repository]) == 1:
                    key, versions = offered[0], self.repository[offered[0]]
                elif offered:
                    return ended(100, stderr=f"E: Package '{name}' has no installation candidate\n")
            if not versions and key not in self.packages:
                return ended(100, stderr=f"E: Unable to locate package {name}\n")
            if version and version not in versions:
                return ended(100, stderr=f"E: Version '{version}' for '{name}' was not found\n")
            present = self.packages.get(key)
            retained = present.version if present and present.status != "config-files" else ""
            plan[key] = version or max([*versions, *filter(None, [retained])], key=DPKG.key)
            if f"{key}={plan[key]}" in self.unfetchable and not is_simulated:
                return ended(100, stderr="E: Unable to fetch some archives, maybe run apt-get update\n")
            is_held = present and present.want == "hold" and present.version != plan[key]
            if is_held and "--allow-change-held-packages" not in arguments:
                return HELD
            named.add(key)
            plan |= self.dependencies(key)
            is_older = retained and DPKG.compare(plan[key], retained) < 0
            if is_older and "--allow-downgrades" not in arguments:
                return ended(
                    100, stderr="E: Packages were downgraded and -y was used without --allow-downgrades.\n"
                )
        excluded = {other for key in plan for other in self.conflicts.get(key, ())}
        if (
            unwanted & {other for key in plan for other in self.depends.get(key, ())}
            or excluded & plan.keys()
        ):
            return ended(
                100,
                stderr="The following packages have unmet dependencies:\nE: Unable to correct problems,"
                " you have held broken packages.\n",
            )
        excluded |= {key for key in self.packages if plan.keys() & {*self.conflicts.get(key, ())}}
        removals = self.with_dependents([*unwanted, *excluded])
        if is_simulated:
            return ended(stdout=self.listed(plan, removals))
        if removals and "--no-remove" in arguments:
            return ended(100, stderr="E: Packages need to be removed but remove is disabled.\n")
        for key in removals:
            del self.packages[key]
        self.automatic |= plan.keys() - named
        self.automatic -= named
        return self.set_up(plan)

    def dependencies(self, key: str) -> dict[str, str]:
        """Return the missing dependencies of a package, with their versions."""
        missing = [other for other in self.depends.get(key, ()) if not self.versions(other)]
        return {other: max(self.repository[other], key=DPKG.key) for other in missing}

    def with_dependents(self, keys: Sequence[str]) -> list[str]:
        """Return the installed packages among these, each after its dependents."""
        results: list[str] = []
        for key in keys:
            if self.versions(key):
                results += self.with_dependents(
                    [package for package in self.packages if key in self.depends.get(package, ())]
                )
                results.append(key)
        return list(dict.fromkeys(results))

    def listed(self, plan: dict[str, str], removals: Sequence[str], verb: str = "Remv") -> str:
        """Return the output of ``apt-get --simulate``."""
        lines = [f"{verb} {key} [{self.packages[key].version}]" for key in removals]
        changed = [key for key, version in plan.items() if self.versions(key) != [version]]
        for key in changed:
            name, _, architecture = key.partition(":")
            architecture = architecture or self.architecture.get(name, NATIVE)
            lines.append(f"Inst {key} ({plan[key]} localhost [{architecture}])")
        numbers = f"{len(changed)} newly installed, {len(removals)} to remove"
        return "".join(f"{line}\n" for line in [f"0 upgraded, {numbers} and 0 not upgraded.", *lines])

    def set_up(self, plan: dict[str, str]) -> Completed:
        for key, version in plan.items():
            before = self.packages.get(key)
            want = "hold" if before and before.want == "hold" else "install"
            self.packages[key] = Deb(version, "half-configured" if key in self.fails else "installed", want)
            if key in self.asked:
                self.asked[key] = self.answers.get(f"{key}/question", "")
        if failed := self.fails & plan.keys():
            return ended(
                100,
                "Setting up …\n",
                "".join(f"dpkg: error processing package {name} (--configure):\n" for name in sorted(failed))
                + "E: Sub-process /usr/bin/dpkg returned an error code (1)\n",
            )
        return ended()

    def apt_remove(self, arguments: list[str], *, purge: bool) -> Completed:
        keys = [self.key(name) for name in operands(arguments)]
        removals = [*self.with_dependents(keys), *(key for key in keys if not self.versions(key))]
        is_allowed = "--allow-change-held-packages" in arguments
        if any(self.packages[key].want == "hold" for key in removals) and not is_allowed:
            return HELD
        if "--simulate" in arguments:
            return ended(stdout=self.listed({}, removals, "Purg" if purge else "Remv"))
        for key in removals:
            deb = self.packages[key]
            self.packages[key] = Deb(deb.version, "config-files", "deinstall")
            if purge:
                del self.packages[key]
        return ended()

    def apt_mark(self, arguments: list[str]) -> Completed:
        if arguments[1] == "manual":
            self.automatic -= {*map(self.key, operands(arguments))}
            return ended()
        for name in operands(arguments):
            self.packages[self.key(name)].want = {"hold": "hold", "unhold": "install"}[arguments[1]]
        return ended()

    def dpkg_deb(self, arguments: list[str]) -> Completed:
        try:
            return ended(stdout="\t".join(read_package(operands(arguments)[0])))
        except ValueError:
            return ended(2, stderr="dpkg-deb: error: is not a Debian format archive\n")

    def debconf_set_selections(self, arguments: list[str]) -> Completed:
        assert len(arguments) == 1
        for line in self.input.splitlines():
            _, question, _, value = line.split(" ", 3)
            self.answers[question] = value
        return ended()

    def debconf_communicate(self, arguments: list[str]) -> Completed:
        assert len(arguments) == 1
        names = [line.removeprefix("GET ") for line in self.input.splitlines()]
        result = (
            f"0 {self.answers[name]}" if name in self.answers else f"10 {name} doesn't exist"
            for name in names
        )
        return ended(stdout="".join(f"{line}\n" for line in result))

    def providing(self, name: str) -> list[str]:
        return [item for item, text in self.provides.items() if name in text.replace(",", " ").split()]

    def dpkg(self, arguments: list[str]) -> Completed:
        assert words(arguments) == ["dpkg"]
        self.is_interrupted = False
        for key, deb in self.packages.items():
            if deb.status in ("unpacked", "half-configured") and key not in self.fails:
                deb.status = "installed"
        return ended()

    def key(self, name: str) -> str:
        return name.removesuffix(f":{NATIVE}").removesuffix(":all")


HELD = ended(
    100, stderr="E: Held packages were changed and -y was used without --allow-change-held-packages.\n"
)


@dataclass(frozen=True)
class Rpm:
    """A package in rpm's database, or in a repository, with its full version."""

    name: str
    version: str
    architecture: str = "x86_64"


@dataclass(eq=False)
class Fedora(Machine):
    """Simulated rpm and dnf 4 or 5."""

    repository: list[Rpm] = field(default_factory=list)
    packages: list[Rpm] = field(default_factory=list)
    side_by_side: set[str] = field(default_factory=set)
    """Packages that allow several installed versions."""
    fails: set[str] = field(default_factory=set)
    """Packages whose scriptlets fail."""
    generation: int = 4
    is_cached: bool = True
    database_error: str = ""
    published: list[Rpm] = field(default_factory=list)
    """Further packages that ``makecache --refresh`` fetches."""
    provides: dict[str, str] = field(default_factory=dict)
    """Further names that packages provide."""
    depends: dict[str, list[str]] = field(default_factory=dict)
    """The packages that a package depends on, in any version."""
    obsoletes: dict[str, list[str]] = field(default_factory=dict)
    """The packages that a package replaces."""
    locks: list[str] | None = field(default_factory=list)
    """The output of ``versionlock``. ``None`` if the plugin is missing."""

    def __post_init__(self) -> None:
        Machine.__init__(self)

    def run(self, arguments: list[str]) -> Completed:
        if arguments[0] == "rpm":
            return self.rpm(arguments)
        if self.generation == 5 and "--" in arguments:
            return ended(2, stderr=f'Unknown argument "--" for command "{words(arguments)[1]}".\n')
        return self.dnf(arguments)

    def versions(self, name: str) -> list[str]:
        return sorted((package.version for package in self.packages if package.name == name), key=RPM.key)

    def rpm(self, arguments: list[str]) -> Completed:
        pattern = arguments[arguments.index("--queryformat") + 1].replace("\\t", "\t").replace("\\n", "\n")
        text, missing = "", 0
        for label in operands(arguments):
            if "-p" in arguments:
                results = [Rpm(*read_package(label))]
            elif "--whatprovides" in arguments:
                results = [
                    package
                    for package in self.packages
                    if label in self.provided(package) and not self.database_error
                ]
            else:
                results = self.matching(label, [] if self.database_error else self.packages)
            for package in results:
                epoch, _, remainder = f"0:{package.version}".rpartition(":")
                version, _, release = remainder.rpartition("-")
                line = pattern.replace("%{NAME}", package.name).replace("%{ARCH}", package.architecture)
                line = line.replace("%{EPOCHNUM}", epoch.rpartition(":")[2] or "0")
                line = line.replace(
                    "[%{PROVIDENAME} ]", "".join(f"{name} " for name in self.provided(package))
                )
                text += line.replace("%{VERSION}", version).replace("%{RELEASE}", release)
            if not results:
                missing += 1
                text += f"no package provides {label}\n"
        return ended(missing, text, self.database_error)

    def provided(self, one: Rpm) -> list[str]:
        return [one.name, *self.provides.get(one.name, "").split()]

    def versionlock(self, verb: str, names: list[str]) -> Completed:
        if self.locks is None:
            return ended(1, stderr="No such command: versionlock. Please use /usr/bin/dnf --help\n")
        if verb == "list":
            return ended(stdout="".join(f"{line}\n" for line in self.locks))
        for name in names:
            self.locks = [line for line in self.locks if not line.startswith(f"{name}-")]
            for item in self.matching(name, self.packages) if verb == "add" else ():
                epoch = "" if ":" in item.version else "0:"
                self.locks.append(f"{item.name}-{epoch}{item.version}.*")
        return ended()

    def dnf(self, arguments: list[str]) -> Completed:
        verbs = words(arguments)
        is_simulated = "--assumeno" in arguments
        after = operands(arguments) if "--" in arguments else verbs[2:]
        if "--cacheonly" in arguments and not self.is_cached:
            return ended(1, stderr="Error: Cache-only enabled but no cache for 'local'\n")
        match verbs[1]:
            case "makecache":
                self.repository += self.published
                self.published = []
                return ended()
            case "versionlock":
                return self.versionlock(verbs[2], after if "--" in arguments else verbs[3:])
            case "check-update":
                return self.check_update(after)
            case "repoquery":
                return self.repoquery(arguments, after)
            case "remove":
                gone = self.with_dependents(
                    [package for package in self.packages if self.is_named(package, after)]
                )
                if is_simulated:
                    return ended(1 if gone else 0, self.table("Removing", gone))
                self.packages = [package for package in self.packages if package not in gone]
                return ended()
        before, offered = list(self.packages), list(self.repository)
        completed = self.dnf_install(after)
        if is_simulated:
            added = [package for package in self.packages if package not in before]
            replaced = [
                package.name
                for package in before
                if package.name not in {other.name for other in self.packages}
            ]
            text = "" if completed.exit_code else self.table("Installing", added, replaced)
            self.packages, self.repository = before, offered
            return ended(1 if added or completed.exit_code else 0, text, completed.stderr)
        return completed

    def with_dependents(self, packages: list[Rpm]) -> list[Rpm]:
        """Return these packages and all their dependents."""
        names = {package.name for package in packages}
        additional = [package for package in self.packages if names & {*self.depends.get(package.name, ())}]
        return packages if {*additional} <= {*packages} else self.with_dependents([*packages, *additional])

    def table(self, heading: str, packages: list[Rpm], replaced: Sequence[str] = ()) -> str:
        """Return the table of a transaction as dnf 4 prints it."""
        rows = [
            f" {package.name}  {package.architecture}  {package.version}  local  6 k" for package in packages
        ]
        rows += [f"     replacing  {name}.x86_64 1.0-1" for name in replaced]
        if not rows:
            return "Nothing to do.\n"
        summary = f"{heading.removesuffix('ing').replace('Remov', 'Remove')}  {len(packages)} Packages"
        columns = " Package  Architecture  Version  Repository  Size"
        return "\n".join([columns, f"{heading}:", *rows, "", "Transaction Summary", summary, ""])

    def check_update(self, names: list[str]) -> Completed:
        text = "\n"
        for item in self.newest(self.repository):
            installed = [
                p for p in self.packages if (p.name, p.architecture) == (item.name, item.architecture)
            ]
            newest = max((p.version for p in installed), key=RPM.key, default=None)
            if newest and RPM.compare(item.version, newest) > 0 and self.is_named(item, names):
                text += f"{item.name}.{item.architecture}      {item.version}      local\n"
        return ended(100 if text.strip() else 0, text)

    def repoquery(self, arguments: list[str], names: list[str]) -> Completed:
        option = next(word for word in arguments if word.startswith("--queryformat="))
        desired = next((word for word in arguments if word.startswith("--whatprovides=")), "")
        capabilities = set(desired.partition("=")[2].split(","))
        pattern = option.removeprefix("--queryformat=") + ("\n" if self.generation == 4 else "")
        text = ""
        for item in self.repository:
            if self.is_named(item, names) or not capabilities.isdisjoint(self.provided(item)):
                epoch, _, remainder = f"0:{item.version}".rpartition(":")
                version, _, release = remainder.rpartition("-")
                line = pattern.replace("%{name}", item.name).replace("%{arch}", item.architecture)
                line = line.replace("%{epoch}", epoch.rpartition(":")[2] or "0")
                text += line.replace("%{version}", version).replace("%{release}", release)
        return ended(stdout=text)

    def dnf_install(self, specifications: list[str]) -> Completed:
        for specification in specifications:
            if specification.startswith("/"):
                self.repository.append(Rpm(*read_package(specification)))
                specification = max(self.spellings(self.repository[-1]), key=len)
            if any(self.is_named(item, [specification]) for item in self.packages):
                continue  # A bare name never upgrades a package.
            results = [item for item in self.repository if specification in self.spellings(item)]
            results = results or [item for item in self.repository if specification in self.provided(item)]
            if not results:
                return ended(1, stderr=f"Error: Unable to find a match: {specification}\n")
            chosen = max(results, key=lambda item: RPM.key(item.version))
            self.packages = [
                item for item in self.packages if item.name not in self.obsoletes.get(chosen.name, ())
            ]
            if chosen.name in self.fails:
                return ended(1, stderr=f"Error: Transaction failed: {chosen.name}\n")
            if chosen.name not in self.side_by_side:
                of_name = (chosen.name, chosen.architecture)
                self.packages = [item for item in self.packages if (item.name, item.architecture) != of_name]
            if chosen not in self.packages:
                self.packages.append(chosen)
        return ended()

    def newest(self, packages: list[Rpm]) -> list[Rpm]:
        best: dict[tuple[str, str], Rpm] = {}
        for item in sorted(packages, key=lambda item: RPM.key(item.version)):
            best[item.name, item.architecture] = item
        return list(best.values())

    def is_named(self, one: Rpm, names: list[str]) -> bool:
        return bool({one.name, f"{one.name}.{one.architecture}"} & set(names))

    def matching(self, label: str, packages: list[Rpm]) -> list[Rpm]:
        """Return the packages that match as in rpm -q, also by name and version."""
        return [package for package in packages if label in self.spellings(package)]

    def spellings(self, one: Rpm) -> set[str]:
        full = one.version if ":" in one.version else f"0:{one.version}"
        plain = full.partition(":")[2]
        versions = {full, plain, plain.rpartition("-")[0], full.rpartition("-")[0]}
        names = {one.name, *(f"{one.name}-{version}" for version in versions)}
        return names | {f"{name}.{one.architecture}" for name in names}


class LookingOnly(NoopSystem):
    """The same machine in a dry run. Every change raises an error."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        return self.machine.children(path)

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        return self.machine.read(path, looked_at)

    def query(self, command: Command) -> Completed:
        return self.machine.query(command)
