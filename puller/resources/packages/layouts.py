"""Repository files in the formats of apt and dnf, and the sources that apt reads.

* All paths derive from the repository's name, so that a repository can be removed by its name alone.
* A repository is tried before its files are installed, so that an unreadable repository never blocks others. Its
  package lists exist before its files, wherever a run is killed.
"""

import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser, Error, SectionProxy
from functools import cache
from typing import ClassVar
from urllib.parse import urlsplit

from puller.errors import ResourceError
from puller.resources.packages.installation import private_directory
from puller.resources.packages.manager import Job, failure
from puller.resources.packages.properties import Key, RepositoryProperties
from puller.resources.packages.providers import PROVIDERS, load_class
from puller.system.protocol import Attributes, System

ACCEPTS_CHANGES = "X-Allow-Release-Info-Change"
"""A field of sources that apt ignores: the Release file may change its Label, Suite, Codename or Version."""

PARTS = "/etc/apt/sources.list.d"
_ONE_LINE = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)")
_OFF = ("no", "false", "0", "off", "without", "disable")


def parse_entries(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the URL and suite of each enabled entry. Skip lines that apt cannot parse."""
    return _of_stanzas(text) if path.endswith(".sources") else _of_lines(text)


def options_for_one(path: str, *, accepts_changes: bool) -> list[str]:
    """Return the options of ``apt-get update`` that fetch the lists of one source and keep all other lists."""
    options = {
        "Dir::Etc::sourcelist": path,
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Get::List-Cleanup": "0",
        "APT::Update::Error-Mode": "any",  # otherwise apt-get exits with 0 if a repository is unreachable
        **({"Acquire::AllowReleaseInfoChange": "1"} if accepts_changes else {}),
    }
    return [word for item in options.items() for word in ("-o", "=".join(item))]


def accepting_changes(system: System) -> list[str]:
    """Return the sources whose Release files may change their Label, Suite, Codename or Version."""
    try:
        names = [name for name, _ in system.children(PARTS) if name.endswith(".sources")]
        paths = [os.path.join(PARTS, name) for name in names]
        return [path for path in paths if f"\n{ACCEPTS_CHANGES}: yes\n".encode() in system.read(path)]
    except OSError:  # without permission or file, apt-get update reports the change
        return []


def _of_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if match := _ONE_LINE.match(line.partition("#")[0]):
            yield match[1], match[2]


def _of_stanzas(text: str) -> Iterator[tuple[str, str]]:
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = dict(_fields(stanza))
        if fields.get("enabled", "yes").strip().lower() not in _OFF:
            for url in fields.get("uris", "").split():
                yield from ((url, suite) for suite in fields.get("suites", "").split())


def _fields(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield each field with its continuation lines. Skip comments."""
    name, value = "", ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t"):
            value += f"\n{line}"
            continue
        yield name, value
        name, _, value = line.partition(":")
        name = name.strip().lower()
    yield name, value


Files = dict[str, bytes | None]
"""Contents by path, in the order of installation. ``None`` removes a file."""

_READABLE = 0o644


class Layout(ABC):
    """The files of one package manager. Methods raise ``ResourceError`` and ``OSError``."""

    root: ClassVar[str]
    """The directory of the files that declare repositories."""

    @abstractmethod
    def paths(self, name: str) -> Sequence[str]:
        """Return all files that a repository may have. The last file activates it."""

    def written(self, properties: RepositoryProperties) -> dict[str, bool]:
        """Return each of ``paths``, and whether a repository with these properties may have a file there."""
        *others, source = self.paths(properties.name)
        return {**dict.fromkeys(others, properties.key is not None), source: True}

    @abstractmethod
    def require(self, properties: RepositoryProperties) -> None:
        """Raise ``ResourceError`` for properties that this package manager does not support, or that it requires."""

    @abstractmethod
    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        """Return the desired content of each of ``paths``."""

    @abstractmethod
    def places(self, system: System) -> Iterator[str]:
        """Yield the files of the machine that declare repositories."""

    @abstractmethod
    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        """Yield the URL and suite of each enabled repository in one of ``places``."""

    asks: ClassVar[bool]
    """Whether ``find_problem`` starts a process."""

    @abstractmethod
    def find_problem(self, job: Job, name: str, texts: Mapping[str, bytes]) -> str:
        """Return why the package manager would reject these contents of ``places``. Empty if it accepts them.

        ``name`` is the repository that matters.
        """

    @abstractmethod
    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        """Fetch the package lists of a repository before it is installed.

        Raises ``ResourceError`` if it is unreadable.
        """

    def desired_entries(self, properties: RepositoryProperties) -> set[tuple[str, str]]:
        """Return the URLs and suites of a repository in the format of ``entries``."""
        return {(plain(properties.url), suite) for suite in properties.suites or ("",)}


class AptLayout(Layout):
    """deb822 sources with embedded keys, and pins by host. Methods raise like those of ``Layout``."""

    root: ClassVar[str] = "/etc/apt"
    asks = True

    def paths(self, name: str) -> Sequence[str]:
        return (
            f"{self.root}/keyrings/{name}.gpg",
            f"{self.root}/preferences.d/{name}.pref",
            f"{self.root}/sources.list.d/{name}.sources",
        )

    def written(self, properties: RepositoryProperties) -> dict[str, bool]:
        keyring, preferences, source = self.paths(properties.name)
        return {
            keyring: properties.key is not None,
            preferences: properties.priority is not None,
            source: True,
        }

    def require(self, properties: RepositoryProperties) -> None:
        if not properties.suites:
            raise ResourceError(
                "suites is missing", hint="apt requires suites such as [bookworm], or [./] for a directory"
            )

    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        keyring, preferences, source = self.paths(properties.name)
        return {
            keyring: key.data if key and key.data else None,
            preferences: _pin(properties),
            source: _source(properties, key, keyring),
        }

    def places(self, system: System) -> Iterator[str]:
        pieces = f"{self.root}/sources.list.d"
        yield f"{self.root}/sources.list"
        # apt ignores names with other characters.
        yield from (
            f"{pieces}/{name}"
            for name in _names(system, pieces)
            if name.endswith((".list", ".sources")) and name.isascii()
        )

    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        return ((plain(url), suite) for url, suite in parse_entries(path, text))

    def find_problem(self, job: Job, name: str, texts: Mapping[str, bytes]) -> str:
        # apt reads all sources and prints the files to fetch. It takes no lock, and fetches and writes nothing.

        del name
        with tempfile.TemporaryDirectory(prefix="puller-") as directory:
            os.mkdir(f"{directory}/sources.list.d")
            for path, content in texts.items():
                with open(directory + path.removeprefix(self.root), "wb") as stream:
                    stream.write(content)
            options = (
                "-o", f"Dir::Etc::sourcelist={directory}/sources.list",
                "-o", f"Dir::Etc::sourceparts={directory}/sources.list.d",
            )  # fmt: skip
            # apt writes embedded keys to temporary files and does not remove them.
            environment = {"TMPDIR": directory}
            completed = job.query("apt-get", "update", "--print-uris", *options, environment=environment)
        if completed.exit_code == 0:
            return ""
        return str(failure("apt-get update", completed)).replace(directory, self.root)

    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        # Readable for the user to which apt switches before it connects to a server or reads a key.
        with private_directory(job.system, 0o755) as directory:
            keyring, source = f"{directory}/key.gpg", f"{directory}/trial.sources"
            if key and key.data:
                _put(job.system, keyring, key.data)
            _put(job.system, source, _source(properties, key, keyring))
            options = options_for_one(source, accepts_changes=properties.allow_release_info_change)
            _run(job, "apt-get", "update", "-q", *options)


class DnfLayout(Layout):
    """A ``.repo`` file, and a key next to the distribution's keys. Methods raise like those of ``Layout``."""

    root: ClassVar[str] = "/etc/yum.repos.d"
    keys: ClassVar[str] = "/etc/pki/rpm-gpg"
    asks = False

    def paths(self, name: str) -> Sequence[str]:
        return f"{self.keys}/{name}", f"{self.root}/{name}.repo"

    def require(self, properties: RepositoryProperties) -> None:
        for name in PROVIDERS["dnf"].lacks:
            if getattr(properties, name):
                raise ResourceError(f"{name} is given, but only apt supports it, not dnf")

    def files(self, properties: RepositoryProperties, key: Key | None) -> Files:
        key_file, path = self.paths(properties.name)
        return {key_file: key.content if key else None, path: _repo(properties, key_file if key else None)}

    def places(self, system: System) -> Iterator[str]:
        yield from (f"{self.root}/{name}" for name in _names(system, self.root) if name.endswith(".repo"))

    def entries(self, path: str, text: str) -> Iterator[tuple[str, str]]:
        for section in _sections(path, text):
            if section.get("enabled", "1") != "0":
                yield from ((plain(url), "") for url in section.get("baseurl", "").split())

    def find_problem(self, job: Job, name: str, texts: Mapping[str, bytes]) -> str:
        # dnf merges or ignores a second definition, and only warns.
        del job
        paths = [
            path
            for path, content in texts.items()
            if any(section.name == name for section in _sections(path, content.decode(errors="replace")))
        ]
        return f"{' and '.join(paths)} define the same repository id {name}" if len(paths) > 1 else ""

    def refresh(self, job: Job, properties: RepositoryProperties, key: Key | None) -> None:
        with private_directory(job.system, 0o700) as directory:
            content = _repo(properties, None) + b"skip_if_unavailable=0\n"
            _put(job.system, f"{directory}/{properties.name}.repo", content)
            _run(job, "dnf", "-q", f"--setopt=reposdir={directory}", "makecache", "--refresh")


@cache
def layout_of(provider: str) -> Layout:
    """Return the files of a package manager."""
    layout: Layout = load_class(PROVIDERS[provider].layout)()
    return layout


def all_layouts() -> list[Layout]:
    """Return the files of all package managers."""
    return [layout_of(provider) for provider in PROVIDERS]


def plain(url: str) -> str:
    """Return the part of a URL that identifies a repository: host and directory.

    apt stores downloads under a name without the scheme, so ``http`` and ``https`` conflict.
    """
    try:
        url_parts = urlsplit(url)
    except ValueError:  # apt reports it
        return url
    return f"{url_parts.netloc.rpartition('@')[2].lower()}{url_parts.path.rstrip('/')}"


def _sections(path: str, text: str) -> list[SectionProxy]:
    """Return the sections of a file of dnf. Empty for a file that dnf rejects in each run."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text, path)
    except Error:
        return []
    return [parser[name] for name in parser.sections()]


def _source(properties: RepositoryProperties, key: Key | None, keyring: str) -> bytes:
    """Return the stanza, without empty fields."""
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
        ACCEPTS_CHANGES: " yes" if properties.allow_release_info_change else "",
    }
    return "".join(f"{name}:{value}\n" for name, value in fields.items() if value).encode()


def _listed(words: Sequence[str]) -> str:
    return "".join(f" {word}" for word in words)


def _pin(properties: RepositoryProperties) -> bytes | None:
    if properties.priority is None:
        return None

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
