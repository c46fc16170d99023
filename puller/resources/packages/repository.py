"""The ``repository`` resource: sources of packages and their signing keys (``docs/resources/repository.md``).

* Keys come from the bundle and are never downloaded. Only a repository on this disk may omit its key.
* The package lists of a changed repository are fetched once, before its files are installed. If the repository cannot
  be read, the change fails and all files stay.
* A package manager that rejects one repository file may be unable to read any repository. A new file is therefore tried
  together with all other files before it is installed. An installed file is checked as well.
* The package manager checks each state of these files once. The last accepted state is recorded, so a run without a
  change starts no process. A dry run checks the files that the real run would leave.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence, unified
from foundation.problems import ProblemCode
from puller.errors import ResourceError, reason
from puller.resources.base import Content, Context, Declared, PropertyError, Resource
from puller.resources.claims import Claim, Use
from puller.resources.content_sources import bundled_contents, sha256, short
from puller.resources.packages.manager import Files, Job, Layout, all_layouts, layout_of
from puller.resources.packages.properties import (
    Key,
    RepositoryProperties,
    check_repository,
    is_armoured,
    parse_key,
)
from puller.resources.packages.providers import PROVIDERS, provider_of
from puller.resources.paths import PathState, attribute_differences
from puller.state import StateFile
from puller.system.protocol import Attributes
from puller.system.trusted_files import judge
from puller.values.common_properties import Reference
from puller.values.file_mode import FileMode

Listing = dict[str, tuple[int, int]]
"""Files that declare repositories: the inode and the time of its last change in nanoseconds, by path."""

_PLANNED = (0, 0)


class Sources:
    """The files of one package manager that declare repositories, for one run."""

    def __init__(self, layout: Layout, context: Context) -> None:
        self._layout = layout
        self._system = context.system
        self._changes = context.changes
        self._noop = context.noop
        self._planned: dict[str, bytes | None] = {}
        self._texts: dict[str, bytes] = {}
        self._listing: Listing = {}
        self._places: dict[tuple[str, str], list[str]] = {}
        self._read_after = -1
        self._accepted: Listing | None = None
        state = context.state_directory
        loss = "Puller checks again whether the package manager can read them"
        self._file = StateFile(state / "sources.json", Listing, loss) if state else None
        self._log = context.log

    @classmethod
    def of(cls, layout: Layout, context: Context) -> "Sources":
        """Return the sources that all repositories of a run share."""
        shared = context.shared.setdefault(cls, {})
        key = (context.system, layout)
        if key not in shared:
            shared[key] = cls(layout, context)
        sources: Sources = shared[key]
        return sources

    def plan(self, path: str, content: bytes | None) -> None:
        """Record a file that the real run would write or remove (``None``), for the rest of a dry run."""
        self._planned[path] = content
        self._read_after = -1

    def declaring(
        self, properties: RepositoryProperties, *, apart_from: str
    ) -> dict[tuple[str, str], list[str]]:
        """Return the files except ``apart_from`` that declare the repository, by URL and suite."""
        self._read()
        return {
            entry: paths
            for entry in sorted(self._layout.desired_entries(properties))
            if (paths := [path for path in self._places.get(entry, ()) if path != apart_from])
        }

    def texts(self) -> Mapping[str, bytes]:
        """Return the contents of all readable files."""
        self._read()
        return self._texts

    def problem(self, job: Job, name: str, changed: Mapping[str, bytes]) -> str:
        """Return why the package manager rejects the files with ``changed`` in place. Empty if it accepts them.

        Raises ``ResourceError`` if the package manager cannot run.
        """
        self._read()
        is_as_it_is = self._layout.asks and not changed and _PLANNED not in self._listing.values()
        if is_as_it_is and self._listing == self._last_accepted():
            return ""
        problem = self._layout.find_problem(job, name, {**self._texts, **changed})
        if is_as_it_is and not problem:
            self._accept(self._listing)
        return problem

    def _accept(self, listing: Listing) -> None:
        self._accepted = listing
        if self._file and not self._noop:
            with contextlib.suppress(OSError):  # on a full disk the next run checks again
                self._file.save(listing)

    def _last_accepted(self) -> Listing:
        if self._accepted is None:
            self._accepted = {}
            with contextlib.suppress(OSError):
                self._accepted = (self._file and self._file.load(self._log, noop=self._noop)) or {}
        return self._accepted

    def _read(self) -> None:
        """Read the files again if a resource has changed anything since."""
        changes = self._changes()
        if self._read_after == changes and not self._noop:
            return
        self._read_after = changes
        self._texts, self._listing, self._places = {}, {}, {}
        for path in self._layout.places(self._system):
            self._read_file(path)
        for path, content in self._planned.items():
            if content is not None:
                self._texts[path], self._listing[path] = content, _PLANNED
        for path, content in self._texts.items():
            for entry in dict.fromkeys(self._layout.entries(path, content.decode(errors="replace"))):
                self._places.setdefault(entry, []).append(path)

    def _read_file(self, path: str) -> None:
        """Read a file, unless it cannot be read, or a dry run cannot predict its content."""
        if self._noop and self._is_planned(path):
            self._listing[path] = _PLANNED
            return
        if (source := read_source(path)) is not None:
            content, status = source
            self._texts[path], self._listing[path] = content, (status.st_ino, status.st_ctime_ns)

    def _is_planned(self, path: str) -> bool:
        system = self._system
        is_to_go = os.path.lexists(path) and not system.exists(path)
        return path in self._planned or is_to_go or system.will_be_written(path)


def read_source(path: str) -> tuple[bytes, os.stat_result] | None:
    """Return the content and the state of a file. ``None`` if it cannot be read, which the package manager reports."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not block
        with open(descriptor, "rb") as stream:
            return stream.read(), os.fstat(stream.fileno())
    except OSError:
        return None


_ATTRIBUTES = Attributes(0, 0, 0o644)
_TIMEOUT = 600.0  # seconds to fetch the package lists of one repository
_PENDING = Key(lines=("",))
"""In noop: a key that an earlier resource would create."""


class Seen(PathState, frozen=True):
    """One file of a repository. ``content`` is set for a regular file."""

    content: bytes | None = None


class RepositoryState(msgspec.Struct, frozen=True):
    """The files of a repository, by path."""

    files: dict[str, Seen]


class Repository(Resource[RepositoryProperties, RepositoryState]):
    """A source of packages."""

    type_name = "repository"
    properties_type = RepositoryProperties
    providers = tuple(PROVIDERS)
    removable = True
    relative_paths = frozenset({"key"})

    _others: Sequence[str] = ()

    @property
    def provider(self) -> str:
        """The package manager of this machine. Raises ``ResourceError`` for an unsupported one."""
        return provider_of(self.properties.provider, self.context)

    def look(self) -> RepositoryState:
        system = self.context.system
        files = {}
        for path in self._layout.paths(self.properties.name):
            seen = Seen(system.lstat(path))
            files[path] = Seen(seen.found, system.read(path)) if seen.kind == "present" else seen
        if self._is_desired:
            url = self.properties.url.rstrip("/")
            self._others = [
                f"{path} has the same repository: {url} {suite}".rstrip()
                for (_, suite), paths in self._find_others().items()
                for path in paths
            ]
        return RepositoryState(files)

    def differences(self, actual: RepositoryState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        if not self._is_desired:
            return [presence("present", ABSENT)] if self._surplus(actual) else ()
        if not self._main(actual).found:
            return [presence(ABSENT, "present")]
        differences = [
            difference
            for path, content in self._wanted().items()
            if content is not None
            for difference in _differences(path, actual.files[path], content)
        ]
        differences += [presence(actual.files[path].kind, ABSENT, path) for path in self._surplus(actual)]
        if not differences and self.properties.enabled:
            self._require_readable({})
        return differences

    def change(self, differences: Sequence[Difference], actual: RepositoryState) -> None:
        """Install, update or remove the files of the repository.

        1. Refuse obstacles that may hold data, and files that the package manager rejects in combination with all
           others.
        2. Fetch the package lists, which verifies that the repository is readable and signed by its key.
        3. Write the files. The last file activates the repository.
        4. Remove surplus files, the activating file first.
        """
        del differences
        # 1. Refuse
        self._refuse(actual)
        desired = self._wanted()
        self._require_readable(desired)
        # 2. Fetch
        if self._is_desired and self.properties.enabled and self._offers_something_else(actual, desired):
            self._layout.refresh(self._job, self.properties, self._key())
        # 3. Put
        for path, content in desired.items():
            if content is not None and _differences(path, actual.files[path], content):
                self._put(path, content, actual.files[path])
        # 4. Remove
        for path in reversed(self._surplus(actual)):
            if (result := actual.files[path].found) is not None:
                self.context.system.remove(path, result)

    def noop_message(self, differences: Sequence[Difference], actual: RepositoryState) -> str:
        del differences
        self._refuse(actual)
        desired = self._wanted()  # raises for an invalid key
        path = self._layout.paths(self.properties.name)[-1]
        self._require_readable(desired)
        self._sources.plan(path, desired[path])
        if not self._is_desired:
            self.context.system.expect(path, "absent")
            return "Would have removed the repository"
        if self.properties.enabled:  # a disabled repository offers no packages
            self.context.system.expect(path, "file")
        return "Would have written the repository"

    @property
    def notes(self) -> Sequence[str]:
        """Warnings about other files that declare the same repository."""
        return self._others

    def contents(self) -> Mapping[str, Content]:
        key = self.properties.key
        is_file = key is not None and not is_armoured(key) and self.properties.ensure != "absent"
        return bundled_contents([key] if key and is_file else [], self.context)

    def final_ensure(self, actual: RepositoryState) -> str:
        is_there = self._main(actual).found if self._is_desired else self._surplus(actual)
        return "present" if is_there else "absent"

    @classmethod
    def hinders(cls, properties: RepositoryProperties, declared: Sequence[RepositoryProperties]) -> bool:
        """Return whether a leftover source conflicts. apt rejects different keys for the same URL and suite."""
        for layout in all_layouts():
            path = layout.paths(properties.name)[-1]
            if (content := read_source(path)) is not None:
                entries = {*layout.entries(path, content[0].decode(errors="replace"))}
                desired = (layout.desired_entries(other) for other in declared if other.ensure != "absent")
                if not all(entries.isdisjoint(each) for each in desired):
                    return True
        return False

    def changed_paths(self, actual: RepositoryState) -> Iterable[str] | None:
        return actual.files

    def describe(self, actual: RepositoryState) -> dict[str, Any]:
        texts = {
            path: (seen.content or b"").decode(errors="replace")
            for path, seen in actual.files.items()
            if seen.found
        }
        return {"ensure": self.final_ensure(actual), "files": texts}

    def diff(self, actual: RepositoryState) -> str | None:
        path = self._layout.paths(self.properties.name)[-1]
        content = self._wanted()[path]
        return unified(actual.files[path].content or b"", content, path) if content is not None else None

    # Desired state

    def _wanted(self) -> Files:
        """Return the content of each file, in the order of installation."""
        if not self._is_desired:
            return dict.fromkeys(self._layout.paths(self.properties.name))
        self._layout.require(self.properties)
        return self._layout.files(self.properties, self._key())

    def _key(self) -> Key | None:
        """Return the key. Raises ``ResourceError`` for an invalid key."""
        key = self.properties.key
        if key is None:
            return None
        if is_armoured(key):
            return parse_key(key.encode())
        system, files = self.context.system, self.context.files
        path = system.resolve(os.path.normpath(key)) if os.path.isabs(key) else files.find(key)
        if self._is_to_come(path):
            return _PENDING
        try:
            if os.path.isabs(key):
                path = _require_ours(key, path)
            return parse_key(system.read(path))
        except OSError as error:
            raise ResourceError(f"key {key} cannot be read: {reason(error)}") from error
        except ValueError as error:
            raise ResourceError(f"key {key} {error}") from None

    def _is_to_come(self, path: str) -> bool:
        context = self.context
        if not context.noop or os.path.lexists(path):
            return False
        return context.system.will_be_written(path) or context.uncertain(path)

    def _offers_something_else(self, actual: RepositoryState, desired: Files) -> bool:
        """Return whether the package lists may differ from the last fetch. Pins do not affect them."""
        pins = {path for path in desired if path.endswith(".pref")}
        return any(
            seen.content != desired[path]
            for path, seen in actual.files.items()
            if path not in pins and (seen.found or desired[path] is not None)
        )

    # Current state

    def _main(self, actual: RepositoryState) -> Seen:
        return actual.files[self._layout.paths(self.properties.name)[-1]]

    def _surplus(self, actual: RepositoryState) -> list[str]:
        """Return existing files that should be absent, except a key that another file uses."""
        there = [
            path for path, content in self._wanted().items() if content is None and actual.files[path].found
        ]
        key = self._layout.paths(self.properties.name)[0]
        return [path for path in there if path != key or not self._is_of_another(key)]

    def _is_of_another(self, key: str) -> bool:
        own = self._layout.paths(self.properties.name)[-1]
        return any(key.encode() in text for path, text in self._sources.texts().items() if path != own)

    def _find_others(self) -> dict[tuple[str, str], list[str]]:
        own = self._layout.paths(self.properties.name)[-1]
        return self._sources.declaring(self.properties, apart_from=own)

    def _require_readable(self, desired: Files) -> None:
        """Raise ``ResourceError`` if the package manager rejects its sources with these files among them."""
        if not self._is_desired or self._key() is _PENDING:
            return
        path = self._layout.paths(self.properties.name)[-1]
        content = desired.get(path)
        changed = {} if content is None else {path: content}
        if problem := self._sources.problem(self._job, self.properties.name, changed):
            detail = "cannot read its sources" + (" with this one, so nothing was changed" if changed else "")
            paths = list(dict.fromkeys(path for paths in self._find_others().values() for path in paths))
            hint = f"remove the same repository from {' and '.join(paths)}" if paths else ""
            raise ResourceError(f"{self.provider} {detail}: {problem}", hint=hint)

    @property
    def _sources(self) -> Sources:
        return Sources.of(self._layout, self.context)

    # Changes

    def _refuse(self, actual: RepositoryState) -> None:
        """Raise ``ResourceError`` for obstacles that may hold data. Links are replaced, never followed."""
        for path, seen in actual.files.items():
            if seen.kind not in ("absent", "present", "symbolic link", "fifo", "socket"):
                raise ResourceError(
                    f"{path} is a {seen.kind}",
                    code=ProblemCode.CHANGE_REFUSED,
                    expected="a file",
                    hint="remove it first",
                )

    def _put(self, path: str, content: bytes, seen: Seen) -> None:
        system, directory = self.context.system, os.path.dirname(path)
        if not system.is_directory(directory):
            system.make_directory(directory, Attributes(0, 0, 0o755))
            system.lstat(path)  # record the state of the path in the new directory
        system.replace_file(path, (content,), _ATTRIBUTES, seen.found)

    @property
    def _is_desired(self) -> bool:
        return self.properties.ensure == "present"

    @property
    def _layout(self) -> Layout:
        return layout_of(self.provider)

    @property
    def _job(self) -> "Job":
        context = self.context
        return Job(context.system, lambda: (), context.log, context.noop, _TIMEOUT, 0)

    # Loading

    @classmethod
    def check(cls, properties: RepositoryProperties) -> Iterator[PropertyError]:
        yield from check_repository(properties)

    @classmethod
    def follows(cls, properties: RepositoryProperties, declared: Declared) -> Iterator[Reference]:
        """Yield removed sources, because they may contradict the source that replaces them."""
        if properties.ensure == "absent":
            return
        yield from (
            Reference.to(cls.type_name, other.name)
            for other in declared(cls.type_name)
            if other.ensure == "absent"
        )
        directories = tuple(layout.root for layout in all_layouts())
        yield from (
            Reference.to("file", file.name)
            for file in declared("file")
            if file.ensure == "absent" and file.name.startswith(directories)
        )

    @classmethod
    def claims(cls, properties: RepositoryProperties) -> Iterator[Claim]:
        # The package manager is not known yet, so claim the files of each one.
        is_present = properties.ensure == "present"
        for layout in all_layouts():
            for path, is_written in layout.written(properties).items():
                use = Use.WHOLE if is_present and is_written else Use.ABSENT
                yield Claim(path, use, owner="root", group="root", mode=FileMode.parse("0644"))

    @classmethod
    def places(cls, properties: RepositoryProperties) -> Iterable[str]:
        return [path for layout in all_layouts() for path in layout.paths(properties.name)]


def _require_ours(key: str, path: str) -> str:
    """Return the path of a key without links. Raises ``ResourceError`` if other users can replace the key.

    The owner of the key controls the packages that are installed as root.
    """
    if os.geteuid() != 0:
        return path
    judged = judge(path)
    if judged.reason:
        raise ResourceError(
            f"key {key} may be changed by others: {judged.reason}",
            code=ProblemCode.UNTRUSTED_PATH,
            hint="put it into the bundle",
        )
    return judged.path


def _differences(path: str, seen: Seen, desired: bytes) -> list[Difference]:
    if seen.found is None or seen.content is None:
        return [presence(seen.kind, "present", path)]
    differences = attribute_differences(seen.found, _ATTRIBUTES, "root", "root", path)
    if seen.content != desired:
        digests = [short(sha256([content])) for content in (seen.content, desired)]
        differences.append(changed("content", digests[0], digests[1], path))
    return differences
