"""Files of cloud-config as the draft of a bundle.

* A bundle keeps a state, and cloud-init acts once. Commands of ``runcmd`` get a marker, so they run once as well.
* Passwords and their hashes are left out, and listed.
* Braces in the source are literal text.
"""

import base64
import binascii
import functools
import gzip
import io
import re
import shlex
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from foundation.problems import ProblemCode
from hiera.errors import HieraError
from puller.authoring.importing.draft import (
    Draft,
    ManifestDraft,
    Origin,
    Outcome,
    Resource,
    document_text,
    slug,
)
from puller.authoring.importing.reading import COPY_LIMIT, TREE_LIMIT, Document, SourceTree, has_secret
from puller.errors import SourceError

_HEADER: Final = "#cloud-config"
_INLINE_LINES: Final = 20
"""Maximum lines of a file that the manifest contains itself."""
_MARKERS: Final = "/var/lib/cloud-config-import"
_NO_CHANGE: Final[Mapping[str, str]] = {
    "package_update": "Puller refreshes the package lists itself",
    "apt_update": "Puller refreshes the package lists itself",
    "final_message": "a message",
    "output": "the log of cloud-init",
    "datasource": "the data source of cloud-init",
    "datasource_list": "the data source of cloud-init",
    "merge_how": "a rule for several files of cloud-config",
    "merge_type": "a rule for several files of cloud-config",
    "preserve_hostname": "the bundle sets the host name only if the source does",
}
_PROPOSALS: Final[Mapping[str, str]] = {
    "package_upgrade": "an upgrade of all packages is not a state. Use unattended-upgrades or dnf-automatic",
    "package_reboot_if_required": "Puller does not restart hosts",
    "power_state": "Puller does not restart hosts",
    "bootcmd": "use a unit of systemd that runs the commands at each boot",
    "chpasswd": "passwords are secrets. Encrypt their hashes, and set `password` of a user",
    "password": "a password is a secret. Encrypt its hash, and set `password` of a user",
    "ssh_keys": "private host keys are secrets",
    "disk_setup": "create partitions at installation",
    "fs_setup": "create file systems at installation",
    "growpart": "resize partitions at installation",
    "resize_rootfs": "resize file systems at installation",
    "snap": "use an exec: `snap install` with the guard `snap list`",
    "ntp": "declare the package, the file and the service of the time server",
    "keyboard": "declare /etc/default/keyboard",
    "ssh_authorized_keys": "the keys are for the default user of the image. Add them to `authorized_keys` of a user",
    "disable_root": "declare the user root with `locked: true`, and the configuration of sshd",
    "manage_etc_hosts": "declare a block in /etc/hosts",
    "resolv_conf": "declare the file",
    "rsyslog": "declare the file in /etc/rsyslog.d",
    "puppet": "remove the other agent when its catalog is empty",
    "chef": "remove the other agent",
    "salt_minion": "remove the other agent",
    "phone_home": "use destinations of reports",
}


def import_cloud_config(source: Path, name: str) -> Draft:
    """Return the draft for a file. Raises ``SourceError``."""
    tree = SourceTree(source.parent)
    text = tree.text(source.name)
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.strip() != _HEADER:
        raise SourceError(f"{name}: the first line is {first[:60]!r}, expected {_HEADER}")
    try:
        document = Document(name, text)
    except HieraError as error:
        raise SourceError(problems=error.problems) from error
    if not isinstance(document.value, dict):
        raise SourceError(f"{name}: is not a mapping")
    importer = _Importer(document, Draft(name, "cloud-config"))
    importer.add_all()
    return importer.draft


_USER_KEYS: Final[Mapping[str, str]] = {
    "uid": "uid",
    "gecos": "comment",
    "shell": "shell",
    "homedir": "home",
    "primary_group": "group",
    "system": "system",
    "expiredate": "expires",
}
"""Properties of a user, by the key of cloud-config."""


class _Unmapped(Exception):
    """An entry without a counterpart. The text is the reason."""


class _Importer:
    """The state of one import."""

    def __init__(self, document: Document, draft: Draft) -> None:
        self.document = document
        self.draft = draft
        self.manifest = ManifestDraft("manifest.yaml", [f"From {document.name}."])
        draft.manifests["manifest.yaml"] = self.manifest
        self._sudo: list[str] = []
        self._bytes = 0
        """Bytes of all files."""
        self._keys: dict[str, Callable[[Any, tuple[str | int, ...]], None]] = {
            "packages": self._packages,
            "groups": self._groups,
            "users": self._users,
            "write_files": self._files,
            "apt": self._apt,
            "yum_repos": self._yum,
            "timezone": self._timezone,
            "locale": self._locale,
            "swap": self._swap,
            "hostname": self._hostname,
            "fqdn": self._hostname,
            "mounts": self._mounts,
            "ssh_pwauth": self._password_login,
            "ca_certs": self._certificates,
            "ca-certs": self._certificates,
            "runcmd": self._commands,
        }

    def add_all(self) -> None:
        """Add all keys: repositories and packages first, commands last."""
        value = self.document.value
        order = ["apt", "yum_repos", "packages", "groups", "users"]
        keys = [
            *(key for key in order if key in value),
            *(key for key in value if key not in (*order, "runcmd")),
        ]
        keys += ["runcmd"] if "runcmd" in value else []
        for key in keys:
            before = len(self.draft.remarks)
            if key in self._keys:
                self._try(str(key), (key,), functools.partial(self._keys[key], value[key], (key,)))
            elif key in _NO_CHANGE:
                self._note((key,), key, Outcome.NO_CHANGE, _NO_CHANGE[key])
            elif value[key] not in (None, False, [], {}):
                self._propose((key,), str(key), _PROPOSALS.get(key, f"the key {key} is unsupported"))
            if len(self.draft.remarks) == before:
                self._note((key,), str(key), Outcome.NO_CHANGE, "the key is empty or turned off")
        self._add_sudo()
        text = document_text({"os": "debian-12"}, ["Add expected resources under `expect`."])
        self.draft.files["tests/debian-12.yaml"] = text.encode()

    def _try(self, subject: str, path: tuple[str | int, ...], add: Callable[[], None]) -> None:
        try:
            add()
        except _Unmapped as error:
            self._propose(path, subject, error.args[0])
        except (AttributeError, TypeError, ValueError, LookupError):
            self._propose(path, subject, "the value has another form than cloud-init documents")

    def _add(self, resource: Resource, path: tuple[str | int, ...], remark: str = "") -> None:
        origin = self._origin(path)
        resource.comments = [str(origin), *([f"Remark: {remark}"] if remark else [])]
        self.manifest.resources.append(resource)
        subject = f"{resource.type}#{resource.name}"
        self._note(path, subject, Outcome.REMARK if remark else Outcome.MAPPED, remark)

    def _propose(self, path: tuple[str | int, ...], subject: str, reason: str) -> None:
        comments = [f"Not mapped: {subject} ({self._origin(path)})", f"Reason: {reason}."]
        self.manifest.resources.append(Resource("", "", comments=comments, disabled=True))
        self._note(path, subject, Outcome.UNMAPPED, reason)

    def _note(self, path: tuple[str | int, ...], subject: str, outcome: Outcome, reason: str) -> None:
        self.draft.note(self._origin(path), subject, outcome, reason)

    def _origin(self, path: tuple[str | int, ...]) -> Origin:
        return Origin(self.document.name, self.document.line(path))

    def _each(
        self, value: Any, path: tuple[str | int, ...], add: Callable[[Any, tuple[str | int, ...]], None]
    ) -> None:
        """Add each entry of a list."""
        if not isinstance(value, list):
            raise _Unmapped("the value is not a list")
        for index, item in enumerate(value):
            self._try(str(path[0]), (*path, index), functools.partial(add, item, (*path, index)))

    # Packages and repositories.

    def _packages(self, value: Any, path: tuple[str | int, ...]) -> None:
        def add(item: Any, place: tuple[str | int, ...]) -> None:
            if isinstance(item, list) and len(item) == 2:
                self._add(
                    Resource("package", _literal(str(item[0])), {"ensure": _literal(str(item[1]))}), place
                )
            elif isinstance(item, str):
                name, _, version = item.partition("=")
                properties = {"ensure": _literal(version)} if version else {}
                self._add(Resource("package", _literal(name), properties), place)
            else:
                raise _Unmapped("snaps and other forms are not supported")

        self._each(value, path, add)

    def _apt(self, value: Any, path: tuple[str | int, ...]) -> None:
        for name, source in (value.get("sources") or {}).items():
            place = (*path, "sources", name)
            self._try(
                str(name),
                place,
                functools.partial(self._source, name, source, place),
            )
        for key in value:
            if key not in ("sources", "preserve_sources_list"):
                self._propose((*path, key), f"apt {key}", "declare a repository, or a file in /etc/apt")

    def _source(self, name: Any, source: Mapping[str, Any], path: tuple[str | int, ...]) -> None:
        line = str(source.get("source", ""))
        match = re.fullmatch(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s*(.*)", line)
        if match is None:
            raise _Unmapped(f"the line {line!r} is an invalid line of sources.list")
        key = source.get("key")
        if not key:
            raise _Unmapped(
                "the key is on a key server. Put the public key into files/, and name it with `key`"
            )
        suite = "{{ facts.os.distro.codename }}" if match[2] == "$RELEASE" else _literal(match[2])
        properties = {"url": match[1], "suites": [suite], "components": match[3].split(), "key": str(key)}
        self._add(Resource("repository", slug(str(name).removesuffix(".list")), properties), path)

    def _yum(self, value: Any, path: tuple[str | int, ...]) -> None:
        for name, settings in value.items():
            place = (*path, name)
            key = str(settings.get("gpgkey", "")).removeprefix("file://")
            if not key.startswith("/"):
                self._propose(
                    place, f"repository {name}", "put the public key into files/, and name it with `key`"
                )
                continue
            properties = {"url": str(settings["baseurl"]), "key": key, "enabled": settings.get("enabled")}
            self._add(Resource("repository", slug(str(name)), properties), place)

    # Accounts.

    def _groups(self, value: Any, path: tuple[str | int, ...]) -> None:
        def add(item: Any, place: tuple[str | int, ...]) -> None:
            if isinstance(item, str):
                self._add(Resource("group", item), place)
                return
            for name, members in item.items():
                names = members if isinstance(members, list) else [members]
                self._add(Resource("group", str(name), {"members": list(map(str, names))}), place)

        entries = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        self._each(
            [{key: item} for key, item in entries.items()] if isinstance(entries, dict) else entries,
            path,
            add,
        )

    def _users(self, value: Any, path: tuple[str | int, ...]) -> None:
        self._each(value, path, self._user)

    def _user(self, item: Any, path: tuple[str | int, ...]) -> None:
        if item == "default":
            raise _Unmapped("the default user depends on the image. Declare a user with its name")
        values = {"name": item} if isinstance(item, str) else dict(item)
        name = str(values.pop("name"))
        properties: dict[str, Any] = {}
        for key, target in _USER_KEYS.items():
            if values.get(key) not in (None, ""):
                properties[target] = _literal(values.pop(key))
        groups = values.pop("groups", None)
        if groups:
            names = groups.split(",") if isinstance(groups, str) else groups
            properties["groups"] = [str(group).strip() for group in names]
        if values.pop("no_create_home", False):
            properties["manage_home"] = False
        if values.pop("lock_passwd", True):
            properties["locked"] = True
        keys = values.pop("ssh_authorized_keys", None) or values.pop("ssh-authorized-keys", None)
        if keys:
            properties["authorized_keys"] = [str(key).strip() for key in keys]
        rules = values.pop("sudo", None)
        for rule in [rules] if isinstance(rules, str) else rules or []:
            self._sudo.append(f"{name} {rule}")
        secrets = [key for key in ("passwd", "hashed_passwd", "plain_text_passwd") if values.pop(key, None)]
        remarks = [f"{key} is a secret, and is left out" for key in secrets]
        remarks += [f"the key {key} is not mapped" for key in values if values[key] is not None]
        if secrets:
            self.draft.check(
                f"The password of {name} is left out. Encrypt its hash with `puller hiera encrypt`."
            )
        self._add(Resource("user", name, properties), path, ". ".join(remarks))

    def _add_sudo(self) -> None:
        if self._sudo:
            content = "".join(f"{rule}\n" for rule in self._sudo)
            properties = {"content": _literal(content), **_owned("0440"), "validate": "visudo -cf {}"}
            self._add(Resource("file", "/etc/sudoers.d/90-cloud-init-users", properties), ("users",))

    # Files and settings.

    def _files(self, value: Any, path: tuple[str | int, ...]) -> None:
        self._each(value, path, self._file)

    def _file(self, item: Mapping[str, Any], path: tuple[str | int, ...]) -> None:
        target = str(item["path"])
        if not target.startswith("/"):
            raise _Unmapped(f"the path {target} is not absolute")
        if ".." in target.split("/") or not target.isprintable():
            raise _Unmapped(f"the path {target} contains .. or unprintable characters")
        if item.get("append"):
            raise _Unmapped(f"{target} is extended. Use a block")
        if item.get("source"):
            raise _Unmapped(f"{target} comes from a URL. Use `source` with `checksum`")
        owner, _, group = str(item.get("owner", "root:root")).partition(":")
        content = _decoded(str(item.get("content", "")), str(item.get("encoding", "text/plain")))
        self._bytes += len(content)
        if self._bytes > TREE_LIMIT:
            raise SourceError(
                f"{self.document.name}: its files have more than {TREE_LIMIT} bytes",
                code=ProblemCode.LIMIT_EXCEEDED,
            )
        # YAML reads 0600 as the number 384. Only the source has the digits.
        original = self.document.original((*path, "permissions"))
        mode = str(original or item.get("permissions", "0644")).strip("\"'").lower().replace("0o", "0")
        if not re.fullmatch("0?[0-7]{3,4}", mode):
            raise _Unmapped(f"{target} has the permissions {mode[:20]!r}, expected octal digits")
        properties = {
            "owner": owner or "root",
            "group": group or "root",
            "mode": mode[-4:] if len(mode) > 3 else f"0{mode}",
        }
        if has_secret(content):
            self.draft.check(f"{target} can contain secrets, and is left out.")
            raise _Unmapped(f"{target} can contain secrets. Encrypt them, and use a template")
        text = _text(content)
        if text is not None and text.count("\n") <= _INLINE_LINES:
            self._add(Resource("file", _literal(target), {"content": _literal(text), **properties}), path)
            return
        place = f"files{target}"
        self.draft.files[place] = content
        self._add(Resource("file", _literal(target), {"source": place, **properties}), path)

    def _timezone(self, value: Any, path: tuple[str | int, ...]) -> None:
        self._add(Resource("timezone", str(value), {}), path)

    def _locale(self, value: Any, path: tuple[str | int, ...]) -> None:
        if value:  # false keeps the locale of the image
            self._add(Resource("locale", str(value), {"variables": ["LANG"]}), path)

    def _swap(self, value: Any, path: tuple[str | int, ...]) -> None:
        size = str(value.get("size", "")) if isinstance(value, dict) else ""
        number = re.fullmatch(r"([1-9][0-9]*)([MGT]?)", size)
        if number is None or (not number[2] and int(number[1]) % (1 << 20)):
            raise _Unmapped("declare `swap` with a size such as 2G")
        text = size if number[2] else f"{int(number[1]) >> 20}M"
        self._add(Resource("swap", str(value.get("filename") or "/swap.img"), {"size": text}), path)

    def _hostname(self, value: Any, path: tuple[str | int, ...]) -> None:
        if path == ("fqdn",) and "hostname" in self.document.value:
            raise _Unmapped("set `domain` and `hosts: true` of the host name")
        self._add(Resource("hostname", str(value), {}), path)

    def _mounts(self, value: Any, path: tuple[str | int, ...]) -> None:
        def add(item: Any, place: tuple[str | int, ...]) -> None:
            fields = [*map(str, item), *[""] * 6]
            if fields[2] == "swap" or not fields[1].startswith("/"):
                raise _Unmapped("swap is not a mount. Declare a swap file with `swap`")
            device = f"/dev/{fields[0]}" if re.fullmatch(r"(xvd|sd|vd|nvme)\w+", fields[0]) else fields[0]
            properties: dict[str, Any] = {"device": device, "type": fields[2] or "auto"}
            properties["options"] = (fields[3] or "defaults,nofail").split(",")
            properties |= {"pass": int(fields[5])} if fields[5] not in ("", "0") else {}
            self._add(Resource("mount", fields[1], properties), place)

        self._each(value, path, add)

    def _password_login(self, value: Any, path: tuple[str | int, ...]) -> None:
        if not isinstance(value, bool):
            raise _Unmapped("the value is not a boolean")
        content = f"PasswordAuthentication {'yes' if value else 'no'}\n"
        properties = {"content": content, **_owned("0600")}
        remark = "sshd reads the file after a reload: add `reload` to its service"
        self._add(Resource("file", "/etc/ssh/sshd_config.d/50-cloud-init.conf", properties), path, remark)

    def _certificates(self, value: Any, path: tuple[str | int, ...]) -> None:
        references = []
        for index, text in enumerate(value.get("trusted") or [], 1):
            name = f"/usr/local/share/ca-certificates/cloud-init-ca-cert-{index}.crt"
            self._add(Resource("file", name, {"content": f"{str(text).strip()}\n", **_owned("0644")}), path)
            references.append(f"file#{name}")
        if references:
            properties = {"refreshonly": True, "subscribe": references}
            self._add(Resource("exec", "update-ca-certificates", properties), path)
        if value.get("remove_defaults") or value.get("remove-defaults"):
            self._propose(path, "ca_certs remove_defaults", "remove the packages of the default certificates")

    # Commands.

    def _commands(self, value: Any, path: tuple[str | int, ...]) -> None:
        def add(item: Any, place: tuple[str | int, ...]) -> None:
            number = int(place[-1]) + 1
            line = (item if isinstance(item, str) else shlex.join(map(str, item))).strip()
            if has_secret(line.encode()):
                raise _Unmapped("the command can contain a secret. Encrypt it, and use an exec")
            marker = f"{_MARKERS}/runcmd-{number}"
            command = f"{line}\ntouch {marker}\n" if "\n" in line else f"{line} && touch {marker}"
            properties = {"command": _literal(command), "provider": "shell", "creates": marker}
            self._add(
                Resource("exec", f"runcmd {number}", properties),
                place,
                "the command runs once. Replace the marker by a guard that checks its result",
            )

        if value:
            self._add(Resource("file", _MARKERS, {"ensure": "directory", **_owned("0755")}), path)
        self._each(value, path, add)


def _owned(mode: str) -> dict[str, Any]:
    return {"owner": "root", "group": "root", "mode": mode}


def _literal(value: Any) -> Any:
    """Return a text without expressions: braces stay braces."""
    return value.replace("{{", "{{ '{{' }}") if isinstance(value, str) else value


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _decoded(content: str, encoding: str) -> bytes:
    """Return the bytes of a file, in memory of bounded size."""
    data = content.encode()
    words = re.split(r"[+/]", encoding.lower())
    if {"b64", "base64"} & set(words):
        try:
            data = base64.b64decode(content, validate=False)
        except binascii.Error:
            raise _Unmapped("the content is invalid Base64 text") from None
    if {"gz", "gzip"} & set(words):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(COPY_LIMIT + 1)
        except (OSError, EOFError, zlib.error):
            raise _Unmapped("the content is invalid gzip data") from None
    if len(data) > COPY_LIMIT:
        raise _Unmapped(f"the content has more than {COPY_LIMIT} bytes")
    return data
