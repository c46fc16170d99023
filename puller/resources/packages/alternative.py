"""The ``alternative`` resource: a program of ``update-alternatives`` (``docs/resources/alternative.md``).

* Debian's tool (``--query``) and Red Hat's tool (``--display``) report the state. Their files are never parsed.
* A candidate that Puller has registered is recorded before its registration. It is removed when another path is
  declared, when the resource is removed, and when a trial ends.
* The registration of a package's candidate is recorded before its first change. It is restored in the same cases.
* A file at the place of a link is never replaced. Debian's tool would report success and leave it.
* Without its group, an alternative is absent: automatic mode is the state of an unchanged group.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from foundation.differences import Difference, added, changed, presence, removed
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Use, agree
from puller.resources.paths import check_path
from puller.resources.tool import Tool
from puller.state import StateFile

DIRECTORY = "/etc/alternatives"
GROUPS = ("/var/lib/dpkg/alternatives", "/var/lib/alternatives")
"""The directories with a file for each group, of Debian and of Red Hat."""

_ENSURE = ("present", "absent")
_AUTO, _MANUAL = "auto", "manual"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]*")
_LONGEST_NAME = 200  # characters; file systems allow 255, and the tools append a suffix
_TOOL = Tool("update-alternatives")
_LOSS = "alternatives that Puller has registered stay"


class Slave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A further link that changes with the alternative, such as a manual page."""

    link: str
    path: str


class AlternativeProperties(Properties, frozen=True):
    """The properties of an alternative. The name is that of its group, such as ``editor``."""

    path: str | None = None
    """The program to use, or to register with ``auto``."""
    auto: bool = False
    """Whether the candidate with the highest priority is used."""
    link: str | None = None
    """The link of the group, such as ``/usr/bin/editor``, to register ``path`` as a candidate."""
    priority: int | None = None
    """The priority of the registered candidate."""
    slaves: dict[str, Slave] = msgspec.field(default_factory=dict)
    """Further links of the registered candidate, by name, each with ``link`` and ``path``."""


class Candidate(msgspec.Struct, frozen=True):
    """A registered program."""

    priority: int
    slaves: Mapping[str, str] = {}
    """The paths of its slaves, by name."""


class AlternativeState(msgspec.Struct, frozen=True):
    """The state of a group. Without candidates, the group is missing."""

    mode: str = _AUTO
    path: str = ""
    """The program in use. Empty if the links are broken."""
    best: str = ""
    """The candidate with the highest priority."""
    link: str = ""
    """Empty if the tool does not report it."""
    slaves: Mapping[str, str] = {}
    """The links of the slaves, by name."""
    candidates: Mapping[str, Candidate] = {}
    is_linked: bool = True
    """Whether the declared link leads to the group."""
    registered: tuple[str, ...] = ()
    """The candidates that Puller has registered, as recorded."""
    originals: Mapping[str, "Original"] = {}
    """The registrations of other candidates that Puller has changed, by path, as recorded."""

    def outdated(self, candidate: str) -> list[str]:
        """Return the existing candidates that Puller has registered, without the declared one."""
        return [path for path in self.registered if path in self.candidates and path != candidate]

    def changed_originals(self, candidate: str) -> "list[tuple[str, Original]]":
        """Return the candidates, other than the declared one, whose registration Puller must restore."""
        return [
            (path, original)
            for path, original in self.originals.items()
            if path != candidate and path in self.candidates and not original.is_of(self.candidates[path])
        ]


class Original(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The registration of a package's candidate."""

    link: str
    priority: int
    slaves: dict[str, Slave] = {}

    def is_of(self, candidate: Candidate) -> bool:
        """Return whether a candidate has this registration."""
        slaves = {name: slave.path for name, slave in self.slaves.items()}
        return (self.priority, slaves) == (candidate.priority, dict(candidate.slaves))


class Registered(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, tag_field="format", tag=1):
    """The candidates that Puller has registered, and the originals that it has changed, by the name of their group."""

    paths: dict[str, tuple[str, ...]] = {}
    originals: dict[str, dict[str, Original]] = {}


class Alternative(Resource[AlternativeProperties, AlternativeState]):
    """The program behind a name."""

    type_name = "alternative"
    properties_type = AlternativeProperties
    providers = ("alternatives",)
    unused = {"absent": frozenset({"path", "auto", "link", "priority", "slaves"})}  # noqa: RUF012  ClassVar in the base class
    removable = True

    def look(self) -> AlternativeState:
        """Return the state of the group. Raises ``OSError`` and ``ResourceError``."""
        name, properties = self.properties.name, self.properties
        program = _TOOL.find()
        recorded = self._recorded
        registered, originals = recorded.paths.get(name, ()), recorded.originals.get(name, {})
        if program is None or not any(self._exists(f"{directory}/{name}") for directory in GROUPS):
            return AlternativeState(registered=registered)
        is_debian = os.path.basename(os.path.realpath(program)) != "alternatives"
        text = _TOOL.query(self.context.system, "--query" if is_debian else "--display", name)
        state = parse_query(text) if is_debian else parse_display(text)
        link = properties.link or state.link
        is_linked = not link or _target(link) == f"{DIRECTORY}/{name}"
        return msgspec.structs.replace(state, is_linked=is_linked, registered=registered, originals=originals)

    def differences(self, actual: AlternativeState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties = self.properties
        if properties.ensure == "absent":
            return [presence("present", "absent")] if self._is_ours(actual) else []
        if properties.auto and not self._candidate and not actual.candidates:
            return [presence("absent", "present")]
        differences: list[Difference] = []
        if properties.link is not None and properties.path is not None:
            differences += self._candidate_differences(actual, properties.path)
        differences += [removed("candidate", path) for path in actual.outdated(self._candidate)]
        differences += [
            changed("priority", str(actual.candidates[path].priority), str(original.priority), path)
            for path, original in actual.changed_originals(self._candidate)
        ]
        desired = properties.path if not properties.auto else self._best(actual)
        mode = _AUTO if properties.auto else _MANUAL
        if actual.mode != mode:
            differences.append(changed("mode", actual.mode, mode))
        if actual.path != desired:
            differences.append(changed("path", actual.path or "none", desired or "none"))
        elif not actual.is_linked and not differences:
            link = properties.link or actual.link
            differences.append(
                changed("link", _target(link) or "missing", f"{DIRECTORY}/{properties.name}", link)
            )
        return differences

    def _candidate_differences(self, actual: AlternativeState, path: str) -> Iterator[Difference]:
        """Yield the differences of the registration."""
        properties, candidate = self.properties, actual.candidates.get(path)
        if candidate is None:
            yield added("candidate", path)
            return
        if candidate.priority != properties.priority:
            yield changed("priority", str(candidate.priority), str(properties.priority))
        if actual.link not in ("", properties.link):
            yield changed("link", actual.link, str(properties.link))
        slaves = {name: slave.path for name, slave in properties.slaves.items()}
        links = {name: slave.link for name, slave in properties.slaves.items()}
        has_links = {name: actual.slaves.get(name, "") for name in links}
        if dict(candidate.slaves) != slaves or (has_links != links and any(has_links.values())):
            yield changed(
                "slaves", ", ".join(sorted(candidate.slaves)) or "none", ", ".join(sorted(slaves)) or "none"
            )

    def _best(self, actual: AlternativeState) -> str:
        """Return the candidate with the highest priority after the registration. Of equal ones, the current one."""
        outdated = actual.outdated(self._candidate)
        ranks = {path: each.priority for path, each in actual.candidates.items() if path not in outdated}
        properties = self.properties
        if properties.link is not None and properties.path is not None:
            ranks[properties.path] = properties.priority or 0
        if not ranks:
            return ""
        best = max(ranks.values())
        same = [path for path, rank in ranks.items() if rank == best]
        return actual.best if actual.best in same else actual.path if actual.path in same else same[0]

    @property
    def _candidate(self) -> str:
        """The path that the resource registers. Empty: it registers none."""
        properties = self.properties
        is_registered = properties.ensure == "present" and properties.link is not None
        return properties.path or "" if is_registered else ""

    def change(self, differences: Sequence[Difference], actual: AlternativeState) -> None:
        """Change the group. Raises ``OSError`` and ``ResourceError``.

        1. Refuse impossible changes.
        2. Register the candidate. Record it first, so that an interrupted run does not lose it.
        3. Select the program, or switch to automatic mode.
        4. Remove the candidate of an earlier version, after the selection of its replacement. Restore changed
           candidates of packages.
        """
        del differences
        # 1. Refuse
        self._raise_predictable_failures(actual)
        properties, name, system = self.properties, self.properties.name, self.context.system
        # 2. Register
        if self._candidate and any(True for _ in self._candidate_differences(actual, self._candidate)):
            if self._candidate not in actual.candidates:
                self._record([*actual.registered, self._candidate], actual.originals)
            elif (original := self._original(actual)) is not None:
                self._record(actual.registered, {**actual.originals, self._candidate: original})
            link, priority = str(properties.link), properties.priority or 0
            self._install(self._candidate, Original(link, priority, properties.slaves))
        # 3. Select
        is_foreign = not actual.candidates.keys() <= {*actual.registered}
        if properties.ensure == "present" and not properties.auto:
            _TOOL.execute(system, "--set", name, properties.path or "")
        elif self._candidate or is_foreign:
            _TOOL.execute(system, "--auto", name)
        # 4. Remove and restore
        for path in actual.outdated(self._candidate):
            _TOOL.execute(system, "--remove", name, path)
        for path, original in actual.changed_originals(self._candidate):
            self._install(path, original)
        if {*actual.registered, *actual.originals} - {self._candidate}:
            recorded, own = self._recorded, (self._candidate,)
            self._record(
                [path for path in own if path in recorded.paths.get(name, ())],
                {path: each for path, each in recorded.originals.get(name, {}).items() if path in own},
            )

    def _install(self, path: str, desired: Original) -> None:
        slaves = [
            word
            for slave, each in sorted(desired.slaves.items())
            for word in ("--slave", each.link, slave, each.path)
        ]
        priority, name = str(desired.priority), self.properties.name
        _TOOL.execute(self.context.system, "--install", desired.link, name, path, priority, *slaves)

    def _original(self, actual: AlternativeState) -> Original | None:
        """Return the registration of the candidate before Puller changes it.

        ``None`` if Puller has registered or changed it before, or if the tool does not report its links.
        """
        if self._candidate in (*actual.registered, *actual.originals) or not actual.link:
            return None
        candidate = actual.candidates[self._candidate]
        slaves = {name: Slave(actual.slaves.get(name, ""), path) for name, path in candidate.slaves.items()}
        return Original(actual.link, candidate.priority, slaves)

    def noop_message(self, differences: Sequence[Difference], actual: AlternativeState) -> str:
        del differences
        self._raise_predictable_failures(actual)
        properties, name = self.properties, self.properties.name
        if properties.ensure == "absent":
            return f"Would have returned {name} to automatic mode"
        if self._candidate and self._candidate not in actual.candidates:
            return f"Would have registered {self._candidate} for {name}"
        if properties.auto:
            return f"Would have set {name} to automatic mode"
        return f"Would have set {name} to {properties.path}"

    def final_ensure(self, actual: AlternativeState) -> str:
        if self.properties.ensure == "present":
            return "present" if actual.candidates else "absent"
        return "present" if self._is_ours(actual) else "absent"

    def is_there(self, actual: AlternativeState) -> bool:
        """Return whether a program is selected or registered. Automatic mode is the state without it."""
        return actual.mode == _MANUAL or bool(self._candidate and self._candidate in actual.candidates)

    def _is_ours(self, actual: AlternativeState) -> bool:
        return actual.mode == _MANUAL or bool(actual.outdated("") or actual.changed_originals(""))

    def changed_paths(self, actual: AlternativeState) -> None:
        """Return ``None``, because the tool keeps further files."""
        del actual

    def way_back(self, actual: AlternativeState) -> AlternativeProperties | None:
        """Return the selection. A candidate that the trial has registered is removed with it."""
        if not actual.candidates:
            return None
        if actual.mode == _AUTO:
            return AlternativeProperties(name=self.properties.name, auto=True)
        return AlternativeProperties(name=self.properties.name, path=actual.path) if actual.path else None

    def _exists(self, path: str) -> bool:
        return self.context.system.lstat(path) is not None

    # The record

    @property
    def _file(self) -> "StateFile[Registered] | None":
        state = self.context.state_directory
        return None if state is None else StateFile(state / "alternatives.json", Registered, _LOSS)

    @property
    def _recorded(self) -> Registered:
        file = self._file
        return (file and file.load(self.context.log, noop=self.context.noop)) or Registered()

    def _record(self, paths: Sequence[str], originals: Mapping[str, Original]) -> None:
        """Record the registered and the changed candidates. Raises ``OSError``."""
        if (file := self._file) is not None:
            recorded, name = self._recorded, self.properties.name
            known = {**recorded.paths, name: tuple(dict.fromkeys(paths))}
            changed = {**recorded.originals, name: {**originals}}
            file.save(
                Registered(
                    {name: each for name, each in known.items() if each},
                    {name: each for name, each in changed.items() if each},
                )
            )

    # Refusals

    def _raise_predictable_failures(self, actual: AlternativeState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        properties, context, name = self.properties, self.context, self.properties.name
        if _TOOL.find() is None and not context.uncertain("/usr/bin/update-alternatives"):
            raise ResourceError("update-alternatives is not installed")
        if properties.ensure == "absent":
            return
        path = properties.path
        if path is not None and not context.system.exists(path) and not context.uncertain(path):
            raise ResourceError(f"path is {path!r}, which does not exist")
        links = [properties.link, *(slave.link for slave in properties.slaves.values())]
        for link in links if self._candidate else [actual.link]:
            status = context.system.lstat(link) if link else None
            if status is not None and not stat.S_ISLNK(status.st_mode):
                raise ResourceError(
                    f"{link} is not a link, and only a link is replaced",
                    code=ProblemCode.CHANGE_REFUSED,
                    hint=f"move it away, for example with a diversion, and register it as a candidate of {name}",
                )
        if self._candidate or context.uncertain(f"{GROUPS[0]}/{name}"):
            return
        if not actual.candidates:
            raise ResourceError(
                f"alternative {name} is unknown", hint="give link and priority to register it"
            )
        if path is not None and not properties.auto and path not in actual.candidates:
            known = ", ".join(sorted(actual.candidates))
            raise ResourceError(
                f"path is {path!r}, which is not a candidate of {name}",
                expected=f"one of {known}",
                hint="give link and priority to register it",
            )

    # Loading

    @classmethod
    def check(cls, properties: AlternativeProperties) -> Iterator[PropertyError]:
        ensure, path, auto = properties.ensure, properties.path, properties.auto
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        for name in (properties.name, *properties.slaves):
            if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
                expected = "letters, digits and . _ : + -, the first a letter, a digit or _"
                yield PropertyError(
                    "name" if name is properties.name else "slaves", f"is {name!r}", expected=expected
                )
        registers = properties.link is not None
        if ensure == "present" and path is None and not auto:
            yield missing_property("path", because=["ensure", "auto"], hint="or give auto: true")
        if auto and path is not None and not registers:
            yield PropertyError(
                "path", "has no effect with auto: true", because=["auto"], hint="give link to register it"
            )
        if registers and path is None:
            yield missing_property("path", because=["link"])
        if registers and properties.priority is None:
            yield missing_property("priority", because=["link"])
        for other in ("priority", "slaves"):
            if not registers and getattr(properties, other) not in (None, {}):
                yield missing_property("link", because=[other])
        paths = [("path", path), ("link", properties.link)]
        for each in properties.slaves.values():
            paths += [("slaves", each.link), ("slaves", each.path)]
        for name, given in paths:
            if given is not None:
                yield from check_path(name, given)
                if not given.isprintable():
                    yield PropertyError(name, f"is {given!r}", expected="a path on one line")

    @classmethod
    def agree(cls, first: AlternativeProperties, second: AlternativeProperties) -> AlternativeProperties:
        return agree(first, second, exact=("path", "auto", "link", "priority", "slaves"))

    @classmethod
    def subjects(cls, properties: AlternativeProperties) -> Iterable[str]:
        """Return the links, and the packages, whose scripts register and remove candidates."""
        return (*cls.places(properties), "package")

    def touched(self, actual: AlternativeState) -> Iterable[str]:
        del actual
        return self.places(self.properties)

    @classmethod
    def claims(cls, properties: AlternativeProperties) -> Iterator[Claim]:
        if properties.ensure == "present":
            yield from (Claim(path, Use.LINK) for path in cls.places(properties))

    @classmethod
    def places(cls, properties: AlternativeProperties) -> Iterable[str]:
        links = (properties.link, *(slave.link for slave in properties.slaves.values()))
        return (f"{DIRECTORY}/{properties.name}", *(link for link in links if link))


def _target(link: str) -> str:
    """Return the target of a link. Empty if it is not a link."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def parse_query(text: str) -> AlternativeState:
    """Return the state of a group from the output of Debian's ``update-alternatives --query``."""
    head, *blocks = [_fields(block) for block in text.strip("\n").split("\n\n")]
    candidates = {
        str(block["Alternative"]): Candidate(int(str(block["Priority"])), _slaves(block))
        for block in blocks
        if "Alternative" in block
    }
    path = str(head.get("Value", ""))
    return AlternativeState(
        mode=str(head.get("Status", _AUTO)),
        path="" if path == "none" else path,
        best=str(head.get("Best", "")),
        link=str(head.get("Link", "")),
        slaves=_slaves(head),
        candidates=candidates,
    )


def _fields(block: str) -> dict[str, str | list[str]]:
    """Return the fields of a block. The lines of *Slaves* start with a blank."""
    result: dict[str, str | list[str]] = {}
    slaves: list[str] = []
    for line in block.splitlines():
        if line.startswith(" "):
            slaves.append(line[1:])
        else:
            name, _, value = line.partition(":")
            result[name] = value.strip()
    return {**result, "Slaves": slaves}


def _slaves(block: Mapping[str, str | list[str]]) -> dict[str, str]:
    lines = block.get("Slaves", [])
    pairs = (line.partition(" ") for line in lines if isinstance(lines, list))
    return {name: path for name, _, path in pairs}


_CANDIDATE = re.compile(r"(?P<path>/.*) - (?:family \S+ )?priority (?P<priority>-?[0-9]+)")
_SLAVE = re.compile(r" (?:slave|follower) (?P<name>[^:]+): (?P<path>.*)")
_BEST = re.compile(r"Current `best' version is (?P<path>.*)\.")


def parse_display(text: str) -> AlternativeState:
    """Return the state of a group from the output of Red Hat's ``alternatives --display``."""
    mode, path, best = _AUTO, "", ""
    priorities: dict[str, int] = {}
    slaves: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.endswith((" - status is auto.", " - status is manual.")):
            mode = line.rpartition(" ")[2].rstrip(".")
        elif line.startswith(" link currently points to "):
            path = line.removeprefix(" link currently points to ").strip()
        elif match := _CANDIDATE.fullmatch(line):
            priorities[match["path"]] = int(match["priority"])
        elif (match := _SLAVE.fullmatch(line)) and priorities and match["path"] != "(null)":
            slaves.setdefault([*priorities][-1], {})[match["name"]] = match["path"]
        elif match := _BEST.fullmatch(line):
            best = match["path"]
    candidates = {each: Candidate(rank, slaves.get(each, {})) for each, rank in priorities.items()}
    return AlternativeState(mode=mode, path=path, best=best, candidates=candidates)
