"""The configuration of a running Debian machine as the draft of a bundle.

* The draft contains differences from a new installation: packages that were installed on request, changed or new
  configuration files, units, accounts, jobs, mounts, kernel parameters, and the names and zone of the machine.
* Only files are read, and no command runs: the databases of dpkg and apt, and the links of systemd.
* Secrets are left out and listed: password hashes, private keys, and files that only root can read.
* Other files in ``/etc`` without a package are listed, because scripts of packages create many of them.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from puller.authoring.importing.draft import Draft, Resource, document_text
from puller.authoring.importing.machine.machine_draft import SYSTEM_UNITS, MachineDraft, RootFiles, stanzas
from puller.authoring.importing.machine.machine_settings import (
    add_accounts,
    add_alternatives,
    add_diversions,
    add_jobs,
    add_mounts,
    add_names,
    add_overrides,
    add_parameters,
    add_units,
    add_zone,
    diverted_paths,
)
from puller.errors import SourceError

_STATUS: Final = "var/lib/dpkg/status"
_DIRECTORIES: Final = (
    *("etc/apt/apt.conf.d", "etc/apt/keyrings", "etc/apt/preferences.d", "etc/apt/sources.list.d"),
    *("etc/apt/trusted.gpg.d", "etc/binfmt.d", "etc/environment.d"),
    *("etc/cron.d", "etc/cron.daily", "etc/cron.hourly", "etc/cron.monthly", "etc/cron.weekly"),
    *("etc/logrotate.d", "etc/modprobe.d", "etc/modules-load.d", "etc/profile.d", "etc/rsyslog.d"),
    *("etc/security/limits.d", "etc/ssh/sshd_config.d", "etc/ssh/ssh_config.d", "etc/sudoers.d"),
    *("etc/sysusers.d", "etc/tmpfiles.d", "etc/udev/rules.d", "etc/update-motd.d"),
    *("etc/systemd/journald.conf.d", "etc/systemd/logind.conf.d", "etc/systemd/resolved.conf.d"),
    *("etc/systemd/sleep.conf.d", "etc/systemd/system.conf.d", "etc/systemd/timesyncd.conf.d"),
    *("etc/systemd/user.conf.d", SYSTEM_UNITS),
    *("usr/local/bin", "usr/local/lib/systemd/system", "usr/local/sbin"),
)
"""Directories whose files without a package belong to the administrator."""
_ORIGINALS: Final = {
    "etc/motd": "usr/share/base-files/motd",
    "etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
    "etc/profile": "usr/share/base-files/profile",
}
"""Files that scripts of packages copy, with their originals."""
_OWN_FILES: Final = (
    *("etc/apt/preferences", "etc/apt/sources.list", "etc/cron.allow", "etc/cron.deny"),
    *("etc/default/locale", "etc/environment", "etc/locale.gen", "etc/modules"),
)
"""Files without a package that only an administrator or the installer writes."""
_BASE: Final = frozenset({"required", "important", "standard"})
_LIBRARIES: Final = frozenset({"libs", "oldlibs"})
"""Sections of packages that installers mark as installed on request without reason."""
_GENERATED: Final = re.compile(
    r"etc/(?:(?:passwd|group|shadow|gshadow|subuid|subgid)-?|\.\S*|machine-id|resolv\.conf|ld\.so\.cache|mtab|adjtime"
    r"|fstab|hosts|hostname|localtime|timezone|sysctl\.conf|ca-certificates\.conf|motd|profile|nsswitch\.conf"
    r"|(?:ssl/certs|alternatives|rc[0-6S]\.d|sysctl\.d|systemd/system|dpkg/origins|init\.d)/.*"
    r"|ssh/ssh_host_\S+|.*\.(?:dpkg-\w+|ucf-\w+|pyc)|.*~)"
)
"""Files of ``/etc`` that programs write, or that other rules read."""
_MOST_LISTED: Final = 200
_DEPTH: Final = 5


def import_machine(root: Path) -> Draft:
    """Return the draft for the machine at a root directory. Raises ``SourceError``."""
    machine = RootFiles(root)
    if not machine.exists(_STATUS):
        raise SourceError(f"{root / _STATUS}: is missing. Only machines with dpkg are supported")
    draft = MachineDraft(machine)
    packages = _Packages(machine)
    files = list(dict.fromkeys([*packages.changed_files(), *_own_files(draft)]))
    early = [path for path in files if path.startswith("etc/apt/")]
    add_names(draft)
    for path in early:
        draft.add_file(path)
    packages.add_to(draft)
    add_accounts(draft)
    diverted = {path.lstrip("/") for path, _ in diverted_paths(draft)}
    add_diversions(draft)
    for path in files:
        if path not in early and path not in diverted:
            draft.add_file(path)
    add_alternatives(draft)
    add_overrides(draft)
    add_parameters(draft)
    add_jobs(draft)
    add_mounts(draft)
    _add_commands(draft)
    add_units(draft)
    add_zone(draft)
    _list_others(draft)
    text = document_text({"os": "debian-12"}, ["Add expected resources under `expect`."])
    draft.draft.files["tests/debian-12.yaml"] = text.encode()
    return draft.draft


class _Packages:
    """The packages of a machine."""

    def __init__(self, machine: RootFiles) -> None:
        self.machine = machine
        self.installed = [
            package
            for package in stanzas(machine.lines(_STATUS))
            if package.get("Status", "").split()[-1:] == ["installed"]
        ]

    def changed_files(self) -> Iterator[str]:
        """Yield changed and removed configuration files of packages."""
        for package in self.installed:
            for line in package.get("Conffiles", "").splitlines():
                path, *words = line.split() or [""]
                if words and "obsolete" not in words[1:] and self._is_changed(path[1:], words[0]):
                    yield path[1:]
        for line in self.machine.lines("var/lib/ucf/hashfile"):
            digest, _, path = line.partition("  ")
            if path.startswith("/etc/") and self._is_changed(path[1:], digest):
                yield path[1:]
        for path, original in _ORIGINALS.items():
            source = self.machine.content(original) if self.machine.status(original) is not None else None
            if source is not None and self._is_changed(
                path, hashlib.md5(source, usedforsecurity=False).hexdigest()
            ):
                yield path

    def _is_changed(self, path: str, digest: str) -> bool:
        """Return whether a file is missing or differs from a digest of dpkg. Links do not count."""
        if not self.machine.exists(path):
            return True
        if self.machine.status(path) is None:
            return False
        content = self.machine.content(path)
        return content is None or hashlib.md5(content, usedforsecurity=False).hexdigest() != digest

    def add_to(self, draft: MachineDraft) -> None:
        """Add the packages that were installed on request."""
        automatic = {
            package["Package"]
            for package in stanzas(self.machine.lines("var/lib/apt/extended_states"))
            if package.get("Auto-Installed") == "1"
        }
        libraries: list[str] = []
        for package in self.installed:
            name, is_held = package["Package"], package["Status"].split()[0] == "hold"
            is_base = package.get("Priority") in _BASE or package.get("Essential") == "yes"
            if not is_held and (is_base or name in automatic):
                continue
            if not is_held and package.get("Section", "").rpartition("/")[2] in _LIBRARIES:
                libraries.append(name)
                continue
            draft.add(Resource("package", name, {"held": True} if is_held else {}), _STATUS)
        draft.draft.check(
            "Packages of the priorities required, important and standard are omitted: a new installation has them. "
            "A minimal installation can lack some of them."
        )
        draft.draft.check(
            "Packages have no versions in the draft, and removed packages of the installation are not part of it."
        )
        if libraries:
            draft.draft.check(
                "Libraries are omitted, since other packages require them. They are marked as installed on request: "
                f"{', '.join(libraries)}."
            )


def _own_files(draft: MachineDraft) -> Iterator[str]:
    """Yield files and links without a package, of directories and names that belong to the administrator."""
    for directory in _DIRECTORIES:
        yield from _unowned(draft, directory, 0)
    for path in _OWN_FILES:
        if draft.machine.status(path) is not None and path not in draft.owned:
            yield path


def _unowned(draft: MachineDraft, directory: str, depth: int) -> Iterator[str]:
    for name in draft.machine.names(directory):
        path = f"{directory}/{name}"
        if path in draft.owned:
            continue
        is_link = draft.machine.link(path) is not None
        if draft.machine.status(path) is not None or (is_link and directory != SYSTEM_UNITS):
            yield path
        elif not is_link and depth < 2 and name.endswith(".d"):
            yield from _unowned(draft, path, depth + 1)


def _add_commands(draft: MachineDraft) -> None:
    """Add the commands that make a changed file effective."""
    if draft.find("file", "/etc/locale.gen") is not None:
        properties = {"refreshonly": True, "subscribe": ["file#/etc/locale.gen"]}
        draft.add(Resource("exec", "locale-gen", properties), "etc/locale.gen")


def _list_others(draft: MachineDraft) -> None:
    """List the files of ``/etc`` that no package owns and no rule reads."""
    others = [path for path in _walk(draft, "etc", 0) if path not in draft.handled]
    if others:
        shown = ", ".join(f"/{path}" for path in others[:_MOST_LISTED])
        more = f", and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
        draft.draft.check(
            f"Files of /etc that no package owns and the draft lacks, because programs can have written them: "
            f"{shown}{more}."
        )


def _walk(draft: MachineDraft, directory: str, depth: int) -> Iterator[str]:
    known = {line.partition("  ")[2][1:] for line in draft.machine.lines("var/lib/ucf/hashfile")}
    for name in draft.machine.names(directory):
        path = f"{directory}/{name}"
        if _GENERATED.fullmatch(path) or draft.machine.link(path) is not None:
            continue
        if draft.machine.status(path) is not None:
            if path not in draft.owned and path not in known:
                yield path
        elif depth < _DEPTH:
            yield from _walk(draft, path, depth + 1)
