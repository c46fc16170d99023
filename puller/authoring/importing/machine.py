"""The configuration of a running Debian machine as the draft of a bundle.

* The draft contains differences from a new installation: packages that were installed on request, changed or new
  configuration files, units, accounts, cron jobs and kernel parameters.
* Only files are read, and no command runs: the databases of dpkg and apt, and the links of systemd.
* Secrets are left out and listed: password hashes, private keys, and files that only root can read.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from foundation.problems import ProblemCode
from puller.authoring.importing.draft import Draft, ManifestDraft, Origin, Outcome, Resource, document_text
from puller.authoring.importing.reading import has_secret
from puller.errors import SourceError, file_problem

_STATUS: Final = "var/lib/dpkg/status"
_FILE_LIMIT: Final = 1 << 20
"""Maximum bytes of a configuration file in a draft."""
_DATABASE_LIMIT: Final = 256 << 20
_MOST_LINKS: Final = 40
_DIRECTORIES: Final = (
    *("etc/apt/apt.conf.d", "etc/apt/keyrings", "etc/apt/preferences.d", "etc/apt/sources.list.d"),
    *("etc/cron.d", "etc/cron.daily", "etc/cron.hourly", "etc/cron.monthly", "etc/cron.weekly"),
    *("etc/logrotate.d", "etc/modprobe.d", "etc/modules-load.d", "etc/profile.d", "etc/rsyslog.d"),
    *("etc/security/limits.d", "etc/ssh/sshd_config.d", "etc/ssh/ssh_config.d", "etc/sudoers.d"),
    *(
        "etc/systemd/system",
        "etc/systemd/journald.conf.d",
        "etc/tmpfiles.d",
        "etc/udev/rules.d",
        "etc/update-motd.d",
    ),
    *("usr/local/bin", "usr/local/sbin"),
)
"""Directories whose files without a package belong to the administrator."""
_BASE: Final = frozenset({"required", "important", "standard"})
_LIBRARIES: Final = frozenset({"libs", "oldlibs"})
"""Sections of packages that installers mark as installed on request without reason."""
_READABLE: Final = ("etc/sudoers.d/", "etc/sudoers", "etc/cron.d/", "etc/crontab")
"""Files without secrets that only root can read."""
_NO_SECRETS: Final = frozenset({"etc/nsswitch.conf"})
"""Files whose names of databases look like passwords."""
_SYSTEM: Final = "etc/systemd/system"
_ENABLED: Final = "var/lib/systemd/deb-systemd-helper-enabled"
_USER_IDS: Final = range(1000, 60000)


def import_machine(root: Path) -> Draft:
    """Return the draft for the machine at a root directory. Raises ``SourceError``."""
    machine = _Machine(root)
    if not machine.exists(_STATUS):
        raise SourceError(f"{root / _STATUS}: is missing. Only machines with dpkg are supported")
    return _Importer(machine).draft_of_all()


class _Machine:
    """Files below a root directory. Links are never followed in the last name of a path, and never out of the root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directories: dict[str, str] = {}

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._place(path))

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of a regular file, or ``None``."""
        try:
            status = os.lstat(self._place(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(file_problem(error)) from error
        return status if stat.S_ISREG(status.st_mode) else None

    def link(self, path: str) -> str | None:
        """Return the target of a link, or ``None``."""
        try:
            return os.readlink(self._place(path))
        except OSError:
            return None

    def content(self, path: str, limit: int = _FILE_LIMIT) -> bytes | None:
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
        """Return the sorted names in a directory, or an empty list."""
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


class _Importer:
    """The state of one import."""

    def __init__(self, machine: _Machine) -> None:
        self.machine = machine
        self.draft = Draft("this machine", "machine")
        self.manifest = ManifestDraft("manifest.yaml", ["From a running machine."])
        self.draft.manifests["manifest.yaml"] = self.manifest
        self.packages = list(_stanzas(machine.lines(_STATUS)))
        self.users: dict[int, str] = {}
        self.groups: dict[int, str] = {}
        self.owned = {
            line[1:]
            for name in machine.names("var/lib/dpkg/info")
            if name.endswith(".list")
            for line in machine.lines(f"var/lib/dpkg/info/{name}")
        }

    def draft_of_all(self) -> Draft:
        """Return the complete draft."""
        for field, names in ((self.users, "etc/passwd"), (self.groups, "etc/group")):
            for line in self.machine.lines(names):
                parts = line.split(":")
                if len(parts) > 2 and (number := _id(parts[2])) is not None:
                    field.setdefault(number, parts[0])
        files = list(self._changed_files())
        early = [path for path in files if path.startswith("etc/apt/")]
        for path in early:
            self._file(path)
        self._add_packages()
        self._add_accounts()
        for path in files:
            if path not in early:
                self._file(path)
        self._add_parameters()
        self._add_jobs()
        self._add_units()
        text = document_text({"os": "debian-12"}, ["Add expected resources under `expect`."])
        self.draft.files["tests/debian-12.yaml"] = text.encode()
        return self.draft

    def _add(self, resource: Resource, origin: str, remark: str = "") -> None:
        if remark:
            resource.comments = [f"Remark: {remark}"]
        self.manifest.resources.append(resource)
        outcome = Outcome.REMARK if remark else Outcome.MAPPED
        subject = f"{resource.type}#{resource.name}"
        self.draft.note(Origin(f"/{origin}"), subject, outcome, remark)

    def _leave_out(self, origin: str, subject: str, reason: str) -> None:
        self.draft.note(Origin(f"/{origin}"), subject, Outcome.UNMAPPED, reason)

    # Packages.

    def _add_packages(self) -> None:
        automatic = {
            package["Package"]
            for package in _stanzas(self.machine.lines("var/lib/apt/extended_states"))
            if package.get("Auto-Installed") == "1"
        }
        libraries: list[str] = []
        for package in self.packages:
            status = package.get("Status", "").split()
            if len(status) != 3 or status[2] != "installed":
                continue
            name, is_held = package["Package"], status[0] == "hold"
            is_base = package.get("Priority") in _BASE or package.get("Essential") == "yes"
            if not is_held and (is_base or name in automatic):
                continue
            if not is_held and package.get("Section", "").rpartition("/")[2] in _LIBRARIES:
                libraries.append(name)
                continue
            self._add(Resource("package", name, {"held": True} if is_held else {}), _STATUS)
        self.draft.check(
            "Packages of the priorities required, important and standard are omitted: a new installation has them. "
            "A minimal installation can lack some of them."
        )
        if libraries:
            self.draft.check(
                "Libraries are omitted, since other packages require them. They are marked as installed on request: "
                f"{', '.join(libraries)}."
            )

    # Files.

    def _changed_files(self) -> Iterator[str]:
        """Yield changed configuration files of packages, and files without a package."""
        for package in self.packages:
            for line in package.get("Conffiles", "").splitlines():
                words = line.split()
                if (
                    len(words) < 2
                    or "obsolete" in words[2:]
                    or package.get("Status", "").split()[-1:] != ["installed"]
                ):
                    continue
                path = words[0][1:]
                if not self.machine.exists(path):
                    yield path
                elif self.machine.status(path) is not None:
                    content = self.machine.content(path)
                    if content is None or hashlib.md5(content, usedforsecurity=False).hexdigest() != words[1]:
                        yield path
        for directory in _DIRECTORIES:
            yield from self._unowned(directory, 0)

    def _unowned(self, directory: str, depth: int) -> Iterator[str]:
        for name in self.machine.names(directory):
            path = f"{directory}/{name}"
            if path in self.owned or path.startswith("etc/sysctl.d/"):
                continue
            if self.machine.status(path) is not None:
                yield path
            elif depth < 2 and name.endswith(".d") and self.machine.link(path) is None:
                yield from self._unowned(path, depth + 1)

    def _file(self, path: str) -> None:
        target = f"/{path}"
        status = self.machine.status(path)
        if status is None:
            self._add(Resource("file", target, {"ensure": "absent"}), path)
            return
        content = self.machine.content(path)
        if content is None:
            self._leave_out(path, target, f"the file has more than {_FILE_LIMIT} bytes")
            return
        mode = stat.S_IMODE(status.st_mode)
        is_private = not mode & stat.S_IROTH and not path.startswith(_READABLE)
        if is_private or (has_secret(content) and path not in _NO_SECRETS):
            self._leave_out(path, target, "the file can contain secrets. Encrypt them, and use a template")
            return
        place = f"files/{path}"
        self.draft.files[place] = content
        directory = os.path.dirname(path)
        if directory not in self.owned and path.startswith(f"{_SYSTEM}/"):
            self._add_directory(directory)
        self._add(Resource("file", target, {"source": place, **self._attributes(status, mode)}), path)

    def _add_directory(self, path: str) -> None:
        if path == _SYSTEM or any(resource.name == f"/{path}" for resource in self.manifest.resources):
            return
        properties = {"ensure": "directory", "owner": "root", "group": "root", "mode": "0755"}
        self._add(Resource("file", f"/{path}", properties), path)

    def _attributes(self, status: os.stat_result, mode: int) -> dict[str, Any]:
        owner = self.users.get(status.st_uid, str(status.st_uid))
        group = self.groups.get(status.st_gid, str(status.st_gid))
        return {"owner": owner, "group": group, "mode": f"{mode:04o}"}

    # Accounts.

    def _add_accounts(self) -> None:
        members: dict[str, list[str]] = {}
        for line in self.machine.lines("etc/group"):
            parts = line.split(":")
            if len(parts) != 4 or (gid := _id(parts[2])) is None:
                continue
            for member in filter(None, parts[3].split(",")):
                members.setdefault(member, []).append(parts[0])
            if gid in _USER_IDS:
                self._add(Resource("group", parts[0], {"gid": gid}), "etc/group")
        hashes = dict(line.split(":")[:2] for line in self.machine.lines("etc/shadow") if line.count(":") > 1)
        for line in self.machine.lines("etc/passwd"):
            parts = line.split(":")
            if len(parts) == 7 and _id(parts[2]) in _USER_IDS and _id(parts[3]) is not None:
                self._add_user(parts, members.get(parts[0], []), hashes.get(parts[0], ""))

    def _add_user(self, parts: list[str], groups: list[str], password: str) -> None:
        name, _, uid, gid, comment, home, shell = parts
        properties: dict[str, Any] = {"uid": int(uid), "group": self.groups.get(int(gid), gid)}
        properties |= {"groups": groups} if groups else {}
        properties |= {"home": home, "shell": shell}
        properties |= {"comment": _literal(comment.rstrip(","))} if comment.rstrip(",") else {}
        keys = [
            _literal(line.strip())
            for line in self._keys_of(home)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        properties |= {"authorized_keys": keys} if keys else {}
        remark = ""
        if password.startswith("!"):
            properties["locked"] = True
        elif password not in ("", "*"):
            remark = "the password hash is a secret, and is left out"
            self.draft.check(
                f"The password of {name} is left out. Encrypt its hash with `puller hiera encrypt`."
            )
        self._add(Resource("user", name, properties), "etc/passwd", remark)

    def _keys_of(self, home: str) -> list[str]:
        path = f"{home.strip('/')}/.ssh/authorized_keys"
        if not home.startswith("/") or ".." in home or self.machine.link(os.path.dirname(path)) is not None:
            return []
        return self.machine.lines(path, _FILE_LIMIT)

    # Kernel parameters, jobs and units.

    def _add_parameters(self) -> None:
        files = [
            f"etc/sysctl.d/{name}" for name in self.machine.names("etc/sysctl.d") if name.endswith(".conf")
        ]
        values: dict[str, tuple[str, str]] = {}
        for path in [*(path for path in files if path not in self.owned), "etc/sysctl.conf"]:
            if self.machine.status(path) is None or f"files/{path}" in self.draft.files:
                continue
            for line in self.machine.lines(path):
                match = re.fullmatch(r"\s*-?([\w./*-]+)\s*=\s*(.*?)\s*", line)
                if match:
                    values[match[1]] = (match[2], path)
        for key, (value, path) in values.items():
            if "*" in key:
                self._leave_out(path, key, "the key is a pattern. Declare each key")
            else:
                self._add(Resource("sysctl", key, {"value": _literal(value), "path": f"/{path}"}), path)

    def _add_jobs(self) -> None:
        for user in self.machine.names("var/spool/cron/crontabs"):
            path = f"var/spool/cron/crontabs/{user}"
            environment: dict[str, str] = {}
            for number, line in enumerate(self.machine.lines(path), 1):
                text = line.strip()
                if not text or text.startswith("#"):
                    continue
                if match := re.fullmatch(r"(\w+)\s*=\s*(.*)", text):
                    environment[match[1]] = match[2].strip("\"'")
                    continue
                match = re.fullmatch(r"(@\w+|(?:\S+\s+){4}\S+)\s+(.*)", text)
                if match is None:
                    self._leave_out(path, f"line {number}", "the line is invalid")
                    continue
                if has_secret(text.encode(errors="replace")) or any(
                    has_secret(f"{name}={value}".encode(errors="replace"))
                    for name, value in environment.items()
                ):
                    reason = "the job can contain a secret. Encrypt it, and use a cron job with a file"
                    self._leave_out(path, f"line {number}", reason)
                    continue
                properties: dict[str, Any] = {
                    "schedule": " ".join(match[1].split()),
                    "command": _literal(match[2]),
                }
                properties |= {"user": user} if user != "root" else {}
                properties |= {"environment": dict(environment)} if environment else {}
                remark = "the job moves to /etc/cron.d. Remove it from the crontab"
                self._add(
                    Resource("cron", f"{re.sub(r'[^A-Za-z0-9_-]', '-', user)}-{number}", properties),
                    path,
                    remark,
                )

    def _add_units(self) -> None:
        links = list(self._wanted_units())
        for name in self.machine.names(_SYSTEM):
            path = f"{_SYSTEM}/{name}"
            if self.machine.link(path) == "/dev/null" and name.endswith(".service"):
                self._add(
                    Resource(
                        "service", name.removesuffix(".service"), {"ensure": "stopped", "enable": "masked"}
                    ),
                    path,
                )
        by_package = {
            name.removesuffix(".dsh-also"): self.machine.lines(f"{_ENABLED}/{name}")
            for name in self.machine.names(_ENABLED)
            if name.endswith(".dsh-also")
        }
        for unit, paths in sorted(by_package.items()):
            is_installed = any(
                self.machine.exists(f"{place}/{unit}")
                for place in ("usr/lib/systemd/system", "lib/systemd/system")
            )
            if (
                is_installed
                and paths
                and not any(self.machine.exists(path.lstrip("/")) for path in paths)
                and unit.endswith(".service")
            ):
                properties = {"ensure": "stopped", "enable": False}
                self._add(
                    Resource("service", unit.removesuffix(".service"), properties),
                    f"{_ENABLED}/{unit}.dsh-also",
                )
        for unit, path in links:
            known = {entry.lstrip("/") for entry in by_package.get(unit, [])}
            if path in known or path in self.owned or unit.startswith(("getty@", "systemd-")):
                continue
            source = f"/{_SYSTEM}/{unit}"
            is_own = any(resource.name == source for resource in self.manifest.resources)
            if unit.endswith(".service"):
                properties = {"enable": True, **({"subscribe": [f"file#{source}"]} if is_own else {})}
                self._add(Resource("service", unit.removesuffix(".service"), properties), path)
            elif unit.endswith((".timer", ".socket", ".path")):
                guard = f"systemctl is-enabled -q {unit} && systemctl is-active -q {unit}"
                self._add(
                    Resource(
                        "exec", f"systemctl enable --now {unit}", {"provider": "shell", "unless": guard}
                    ),
                    path,
                )

    def _wanted_units(self) -> Iterator[tuple[str, str]]:
        """Yield the enabled units with the paths of their links."""
        seen = set()
        for directory in self.machine.names(_SYSTEM):
            if not directory.endswith((".wants", ".requires")):
                continue
            for unit in self.machine.names(f"{_SYSTEM}/{directory}"):
                path = f"{_SYSTEM}/{directory}/{unit}"
                if unit not in seen and self.machine.link(path) is not None:
                    seen.add(unit)
                    yield unit, path


def _stanzas(lines: list[str]) -> Iterator[Mapping[str, str]]:
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


def _id(text: str) -> int | None:
    """Return the number of an account, or ``None`` for an invalid one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


def _literal(text: str) -> str:
    """Return a text without expressions: braces stay braces."""
    return text.replace("{{", "{{ '{{' }}")
