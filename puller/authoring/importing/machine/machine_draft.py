"""The draft of a machine while it grows: resources, files, and the parts that are left out."""

import os
import stat
from typing import Any, Final

from puller.authoring.importing.draft import Draft, ManifestDraft, Origin, Outcome, Resource
from puller.authoring.importing.machine.root_files import FILE_LIMIT, RootFiles, number_of
from puller.authoring.importing.reading import has_secret
from puller.authoring.importing.written_expressions import escaped

SYSTEM_UNITS: Final = "etc/systemd/system"
_READABLE: Final = ("etc/sudoers.d/", "etc/sudoers", "etc/cron.d/", "etc/crontab")
"""Files without secrets that only root can read."""
_NO_SECRETS: Final = frozenset({"etc/nsswitch.conf"})
"""Files whose names of databases look like passwords."""


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
