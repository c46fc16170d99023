"""Files of a machine below its root directory, and the draft that they become.

* Links are never followed in the last name of a path, and never out of the root directory.
* Missing files are empty. Unreadable files are errors.
* The draft grows by resources and files, and lists the parts that are left out.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from foundation.problems import ProblemCode
from puller.authoring.importing.draft import Draft, ManifestDraft, Origin, Outcome, Resource
from puller.authoring.importing.reading import has_secret
from puller.authoring.importing.written_expressions import escaped
from puller.errors import SourceError, file_problem

FILE_LIMIT: Final = 1 << 20
"""Maximum bytes of a configuration file in a draft."""
_DATABASE_LIMIT: Final = 256 << 20
_MOST_LINKS: Final = 40
SYSTEM_UNITS: Final = "etc/systemd/system"
_READABLE: Final = ("etc/sudoers.d/", "etc/sudoers", "etc/cron.d/", "etc/crontab")
"""Files without secrets that only root can read."""
_NO_SECRETS: Final = frozenset({"etc/nsswitch.conf"})
"""Files whose names of databases look like passwords."""


class RootFiles:
    """Files below a root directory, by paths without a leading slash."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directories: dict[str, str] = {}

    def exists(self, path: str) -> bool:
        """Return whether an object exists, or a link whose target is missing."""
        return os.path.lexists(self._place(path))

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of a regular file, or ``None``. Raises ``SourceError``."""
        status = self.status_of_object(path)
        return status if status is not None and stat.S_ISREG(status.st_mode) else None

    def status_of_object(self, path: str) -> os.stat_result | None:
        """Return the status of an object, or ``None`` for a missing one. Raises ``SourceError``."""
        try:
            return os.lstat(self._place(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(file_problem(error)) from error

    def link(self, path: str) -> str | None:
        """Return the target of a link, or ``None``."""
        try:
            return os.readlink(self._place(path))
        except OSError:
            return None

    def content(self, path: str, limit: int = FILE_LIMIT) -> bytes | None:
        """Return the content of a regular file, or ``None`` if it is larger. Raises ``SourceError``."""
        try:
            descriptor = os.open(
                self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
            with open(descriptor, "rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise SourceError(file_problem(error, where=self.root / path)) from error
        return data if len(data) <= limit else None

    def lines(self, path: str, limit: int = _DATABASE_LIMIT) -> list[str]:
        """Return the lines of a text, or an empty list for a missing file. Raises ``SourceError``."""
        if self.status(path) is None:
            return []
        data = self.content(path, limit)
        if data is None:
            raise SourceError(
                f"{self.root / path}: has more than {limit} bytes", code=ProblemCode.LIMIT_EXCEEDED
            )
        return data.decode(errors="replace").splitlines()

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, or an empty list. Raises ``SourceError``."""
        try:
            return sorted(os.listdir(self._place(f"{path}/.")))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise SourceError(file_problem(error)) from error

    def _place(self, path: str) -> str:
        """Return the place of an object on this machine. Links to directories stay below the root directory."""
        directory, _, name = path.rpartition("/")
        if directory not in self._directories:
            self._directories[directory] = self._resolved(directory)
        return os.path.join(self.root, self._directories[directory], name)

    def _resolved(self, directory: str) -> str:
        """Return a directory without links. An absolute link of an image starts at the root of the image."""
        place: list[str] = []
        names, links = directory.split("/")[::-1], 0
        while names:
            name = names.pop()
            if name == "..":
                place = place[:-1]
            elif name not in ("", "."):
                try:
                    target = os.readlink(os.path.join(self.root, *place, name))
                except OSError:  # not a link, or reported when the object is read
                    place.append(name)
                    continue
                links += 1
                if links > _MOST_LINKS:
                    raise SourceError(f"{self.root / directory}: too many links")
                place = [] if target.startswith("/") else place
                names += target.split("/")[::-1]
        return "/".join(place)


def stanzas(lines: list[str]) -> Iterator[Mapping[str, str]]:
    """Yield the stanzas of a database of dpkg. Further lines of a field keep their line breaks."""
    stanza: dict[str, str] = {}
    field = ""
    for line in [*lines, ""]:
        if not line.strip():
            if "Package" in stanza:
                yield stanza
            stanza, field = {}, ""
        elif line[0] in " \t":
            if field:
                stanza[field] += f"\n{line.strip()}"
        elif ":" in line:
            field, _, value = line.partition(":")
            stanza[field] = value.strip()


def number_of(text: str) -> int | None:
    """Return the number of an account or a field, or ``None`` for an invalid one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


class MachineDraft:
    """The draft, and the machine from which it is made."""

    def __init__(self, machine: RootFiles) -> None:
        self.machine = machine
        self.draft = Draft("this machine", "machine")
        self.manifest = ManifestDraft("manifest.yaml", ["From a running machine."])
        self.draft.manifests["manifest.yaml"] = self.manifest
        self.users = self._names_of("etc/passwd")
        self.groups = self._names_of("etc/group")
        self.owned = {
            line[1:]
            for name in machine.names("var/lib/dpkg/info")
            if name.endswith(".list")
            for line in machine.lines(f"var/lib/dpkg/info/{name}")
        }
        """Paths of packages."""
        self.handled: set[str] = set()
        """Files that the draft contains, or that it names as left out."""

    def _names_of(self, database: str) -> dict[int, str]:
        """Return the names of users or groups by number."""
        names: dict[int, str] = {}
        for line in self.machine.lines(database):
            parts = line.split(":")
            if len(parts) > 2 and (number := number_of(parts[2])) is not None:
                names.setdefault(number, parts[0])
        return names

    def add(self, resource: Resource, origin: str, remark: str = "") -> None:
        """Add a resource. A remark is about a part that is missing or needs a check."""
        if remark:
            resource.comments = [f"Remark: {remark}"]
        self.manifest.resources.append(resource)
        self.handled.add(origin)
        outcome = Outcome.REMARK if remark else Outcome.MAPPED
        subject = f"{resource.type}#{resource.name}"
        self.draft.note(Origin(f"/{origin}"), subject, outcome, remark)

    def leave_out(self, origin: str, subject: str, reason: str) -> None:
        """Name a part that the draft lacks."""
        self.handled.add(origin)
        self.draft.note(Origin(f"/{origin}"), subject, Outcome.UNMAPPED, reason)

    def find(self, kind: str, name: str) -> Resource | None:
        """Return a resource of the draft, or ``None``."""
        resources = (resource for resource in self.manifest.resources if resource.identity == (kind, name))
        return next(resources, None)

    def add_file(self, path: str) -> None:
        """Add a file with its content, a missing file or a link."""
        target = f"/{path}"
        if (link := self.machine.link(path)) is not None:
            self.add(Resource("link", target, {"target": escaped(link)}), path)
            return
        status = self.machine.status(path)
        if status is None:
            self.add(Resource("file", target, {"ensure": "absent"}), path)
            return
        content = self.machine.content(path)
        if content is None:
            self.leave_out(path, target, f"the file has more than {FILE_LIMIT} bytes")
            return
        mode = stat.S_IMODE(status.st_mode)
        is_private = not mode & stat.S_IROTH and not path.startswith(_READABLE)
        if is_private or (has_secret(content) and path not in _NO_SECRETS):
            self.leave_out(path, target, "the file can contain secrets. Encrypt them, and use a template")
            return
        place = f"files/{path}"
        self.draft.files[place] = content
        attributes = self.attributes(status)
        unit = path.removeprefix(f"{SYSTEM_UNITS}/")
        if unit != path and attributes == {"owner": "root", "group": "root", "mode": "0644"}:
            self.add(Resource("unit", unit, {"source": place}), path)
            return
        directory = os.path.dirname(path)
        if directory not in self.owned and self.find("file", f"/{directory}") is None:
            directory_status = self.machine.status_of_object(directory)
            if directory_status is not None and stat.S_ISDIR(directory_status.st_mode):
                properties = {"ensure": "directory", **self.attributes(directory_status)}
                self.add(Resource("file", f"/{directory}", properties), directory)
        self.add(Resource("file", target, {"source": place, **attributes}), path)

    def attributes(self, status: os.stat_result) -> dict[str, Any]:
        """Return owner, group and mode."""
        owner = self.users.get(status.st_uid, str(status.st_uid))
        group = self.groups.get(status.st_gid, str(status.st_gid))
        return {"owner": owner, "group": group, "mode": f"{stat.S_IMODE(status.st_mode):04o}"}
