"""The files that say which repositories there are, as apt and as dnf read them.

* All of them follow from a repository's name, so that it can be taken away by its name alone.
* A repository is tried before its files are in place: one that cannot be read never keeps others from being read, and
  what it offers is known by the time that its files are there, wherever a run is killed.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from puller.errors import ResourceError
from puller.resources.packages.job import Job, failure
from puller.resources.packages.openpgp import Key
from puller.resources.packages.private import private_directory
from puller.resources.packages.repository_properties import RepositoryProperties
from puller.system.protocol import Attributes, System

Files = dict[str, bytes | None]
"""Contents by path, in the order in which they are put in place; ``None`` for one that is not to be there."""

_READABLE = 0o644


class Layout(ABC):
    """The files of one package manager. Methods raise ``ResourceError`` and ``OSError``."""

    @abstractmethod
    def paths(self, name: str) -> Sequence[str]:
        """All files that a repository may have; the last is the one that makes it known."""

    @abstractmethod
    def require(self, properties: RepositoryProperties) -> None:
        """Raise for properties that only the other package manager knows, or that this one needs."""

    @abstractmethod
    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        """The wanted content of each of ``paths``."""

    @abstractmethod
    def places(self, system: System) -> Iterator[str]:
        """The files of the machine that declare repositories."""

    @abstractmethod
    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        """The URL and suite of each repository in one of ``places`` that is in use."""

    @abstractmethod
    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        """Fetch what a repository offers, which is not in place yet; raises when it cannot be read."""

    def wanted_entries(self, properties: RepositoryProperties) -> set[tuple[str, str]]:
        """The URLs and suites of a repository, as ``entries`` has them."""
        return {(plain(properties.url), suite) for suite in properties.suites or ("",)}


class AptLayout(Layout):
    """Sources in deb822, with the key in them; pins by the host. Methods raise as those of ``Layout``."""

    root: ClassVar[str] = "/etc/apt"

    def paths(self, name: str) -> Sequence[str]:
        return (
            f"{self.root}/keyrings/{name}.gpg",
            f"{self.root}/preferences.d/{name}.pref",
            f"{self.root}/sources.list.d/{name}.sources",
        )

    def require(self, properties: RepositoryProperties) -> None:
        if not properties.suites:
            raise ResourceError(
                "suites is missing; apt wants some, such as [bookworm], or [./] for a directory"
            )

    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        keyring, preferences, source = self.paths(properties.name)
        return {
            keyring: key.data if key and key.data else None,
            preferences: _pin(properties),
            source: _source(properties, key, keyring),
        }

    def places(self, system: System) -> Iterator[str]:
        parts = f"{self.root}/sources.list.d"
        yield f"{self.root}/sources.list"
        yield from (
            f"{parts}/{name}" for name in _names(system, parts) if name.endswith((".list", ".sources"))
        )

    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        from puller.resources.packages.apt_sources import parse_entries

        return ((plain(url), suite) for url, suite in parse_entries(path, text))

    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        # Readable for the user that apt becomes before it asks a server or reads a key.
        with private_directory(job.system, 0o755) as directory:
            keyring, source = f"{directory}/key.gpg", f"{directory}/trial.sources"
            if key and key.data:
                _put(job.system, keyring, key.data)
            _put(job.system, source, _source(properties, key, keyring))
            options = {
                "Dir::Etc::sourcelist": source,
                "Dir::Etc::sourceparts": "/dev/null",
                "APT::Get::List-Cleanup": "0",  # the lists of all other sources stay
                "APT::Update::Error-Mode": "any",  # otherwise one that cannot be reached is a success
            }
            arguments = [word for item in options.items() for word in ("-o", "=".join(item))]
            _run(job, "apt-get", "update", "-q", *arguments)


class DnfLayout(Layout):
    """A ``.repo`` file, and a key beside those of the distribution. Methods raise as those of ``Layout``."""

    root: ClassVar[str] = "/etc/yum.repos.d"
    keys: ClassVar[str] = "/etc/pki/rpm-gpg"

    def paths(self, name: str) -> Sequence[str]:
        return f"{self.keys}/{name}", f"{self.root}/{name}.repo"

    def require(self, properties: RepositoryProperties) -> None:
        for name in ("suites", "components", "architectures"):
            if getattr(properties, name):
                raise ResourceError(f"{name} is given, which apt has and dnf has not")

    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        key_file, path = self.paths(properties.name)
        return {key_file: key.content if key else None, path: _repo(properties, key_file if key else None)}

    def places(self, system: System) -> Iterator[str]:
        yield from (f"{self.root}/{name}" for name in _names(system, self.root) if name.endswith(".repo"))

    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        from configparser import ConfigParser, Error

        parser = ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(text, path)
        except Error:  # which dnf says in every run
            return
        for section in map(parser.__getitem__, parser.sections()):
            if section.get("enabled", "1") != "0":
                yield from ((plain(url), "") for url in section.get("baseurl", "").split())

    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        with private_directory(job.system, 0o700) as directory:
            content = _repo(properties, None) + b"skip_if_unavailable=0\n"
            _put(job.system, f"{directory}/{properties.name}.repo", content)
            _run(job, "dnf", "-q", f"--setopt=reposdir={directory}", "makecache", "--refresh")


def plain(url: str) -> str:
    """A URL as it is compared: that of a directory, with or without a slash at the end."""
    return url.rstrip("/")


def _source(properties: RepositoryProperties, key: Key | None, keyring: str) -> bytes:
    """The stanza; a field without a value is left out."""
    signed = (
        f" {keyring}"
        if key and key.data
        else "".join(f"\n {line or '.'}" for line in key.lines)
        if key
        else ""
    )
    fields: Mapping[str, str] = {
        "Types": " deb",
        "URIs": f" {properties.url}",
        "Suites": _listed(properties.suites),
        "Components": _listed(properties.components),
        "Architectures": _listed(properties.architectures),
        "Signed-By": signed,
        "Enabled": " yes" if properties.enabled else " no",
    }
    return "".join(f"{name}:{value}\n" for name, value in fields.items() if value).encode()


def _listed(words: Sequence[str]) -> str:
    return "".join(f" {word}" for word in words)


def _pin(properties: RepositoryProperties) -> bytes | None:
    if properties.priority is None:
        return None
    from urllib.parse import urlsplit

    host = urlsplit(properties.url).hostname or ""
    return f'Package: *\nPin: origin "{host}"\nPin-Priority: {properties.priority}\n'.encode()


def _repo(properties: RepositoryProperties, key_file: str | None) -> bytes:
    name, enabled = properties.name, int(properties.enabled)
    lines = [f"[{name}]", f"name={name}", f"baseurl={properties.url}", f"enabled={enabled}", "gpgcheck=1"]
    lines += [f"gpgkey=file://{key_file}"] if key_file else []
    lines += [f"priority={properties.priority}"] if properties.priority is not None else []
    return "".join(f"{line}\n" for line in lines).encode()


def _names(system: System, directory: str) -> list[str]:
    try:
        return [name for name, _ in system.children(directory)]
    except FileNotFoundError:
        return []


def _put(system: System, path: str, content: bytes) -> None:
    system.replace_file(path, (content,), Attributes(os.geteuid(), os.getegid(), _READABLE), None)


def _run(job: Job, *arguments: str) -> None:
    completed = job.execute(*arguments)
    if completed.exit_code != 0:
        raise failure("cannot be read, so nothing was changed; " + " ".join(arguments[:2]), completed)
