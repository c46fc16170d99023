"""Properties of packages and repositories, with the checks that need only the manifest, such as for OpenPGP keys."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from foundation.times import Duration
from hiera.values import Secret
from puller.resources.base import Properties, PropertyError, missing_property
from puller.resources.content_sources import check_sha256, is_url
from puller.resources.packages.providers import PROVIDERS

STATES = ("present", "absent", "latest", "purged")
GONE = ("absent", "purged")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_:~-]*")
_VERSION = re.compile(r"(?=.*[0-9])[A-Za-z0-9][A-Za-z0-9.+_:~^-]*")
# Codenames, suites, and what apt writes as ``o=Debian,n=bookworm``.
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_~/=,:-]*")
_QUESTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_/:-]*")
_ANSWERS = ("boolean", "multiselect", "password", "select", "string")
_SOURCE_ENDS = tuple(sorted({provider.suffix for provider in PROVIDERS.values()}))


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of an installation."""

    recommends: bool | None = None
    """Whether to install recommended packages. The default is the configuration of the package manager."""
    release: str | None = None
    """The preferred release for versions (apt): ``bookworm-backports``."""


DEFAULTS = Options()


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a question of debconf at the installation of a package."""

    question: str
    """The name of the question, as in ``debconf-get-selections``: ``postfix/main_mailer_type``."""
    type: str
    """``string``, ``boolean``, ``select``, ``multiselect`` or ``password``."""
    value: Secret
    """The answer. Puller masks it in all output, because it may be a password."""


class PackageProperties(Properties, frozen=True):
    """The properties of a package."""

    options: Options | None = None
    """Options of the installation: ``recommends`` (true or false) and ``release``, the preferred release (apt)."""
    held: bool | None = None
    """``true``: hold the package in its version. ``false``: release the hold. Unset: unmanaged."""
    source: str | None = None
    """A ``.deb`` or ``.rpm`` file instead of the repositories: a file of the bundle, an absolute path, or an
    ``http(s)://`` URL."""
    checksum: str | None = None
    """SHA-256 of ``source``, in hexadecimal. Required for a URL."""
    debconf: tuple[Answer, ...] = ()
    """Answers to questions at installation (apt), each with ``question``, ``type`` and ``value``."""
    timeout: Duration = Duration(1800.0)
    """Time limit of the package manager and its children."""
    lock_timeout: Duration = Duration(300.0)
    """Time limit for the lock of dpkg. dnf waits within ``timeout``."""

    @property
    def is_versioned(self) -> bool:
        """Whether a specific version is declared."""
        return self.ensure not in STATES


def check_package(properties: PackageProperties) -> Iterator[PropertyError]:
    """Yield the errors in single properties and in combinations."""
    name, ensure = properties.name, properties.ensure
    if not _NAME.fullmatch(name):
        yield PropertyError(
            "name", f"is {name!r}, expected letters, digits and . + _ : ~ -, a letter or digit first"
        )
    elif name.endswith(":any"):
        yield PropertyError(
            "name", f"is {name!r}", expected="the name alone, or an architecture such as ':amd64'"
        )
    elif name.endswith("-"):
        yield PropertyError(
            "name", f"is {name!r}, which apt reads as a request to remove {name.rstrip('-')!r}"
        )
    if ensure not in STATES and not _VERSION.fullmatch(ensure):
        expected = ", ".join(STATES)
        yield PropertyError(
            "ensure", f"is {ensure!r}", expected=f"{expected} or a version such as '1.24.0-1'"
        )
    if properties.timeout <= 0:
        yield PropertyError("timeout", "is 0", expected="a positive duration")
    yield from _check_options(properties)
    yield from _check_source(properties)
    yield from _check_debconf(properties)


def _check_options(properties: PackageProperties) -> Iterator[PropertyError]:
    release = properties.options.release if properties.options else None
    if release is not None and not _RELEASE.fullmatch(release):
        expected = "the name of a release such as 'bookworm-backports'"
        yield PropertyError("options", f"has the release {release!r}", place=("release",), expected=expected)
    if properties.held and properties.ensure in ("latest", *GONE):
        detail = "a package that is held stays in its version: expected ensure: present or a version"
        yield PropertyError(
            "held", f"is true, and ensure is {properties.ensure}", because=["ensure"], hint=detail
        )


def _check_source(properties: PackageProperties) -> Iterator[PropertyError]:
    source, checksum = properties.source, properties.checksum
    if checksum is not None:
        yield from check_sha256("checksum", checksum)
    if source is None:
        if checksum is not None:
            yield PropertyError("checksum", "is given, but source is missing", because=["source"])
        return
    if "\0" in source or not source.partition("?")[0].endswith(_SOURCE_ENDS):
        yield PropertyError(
            "source", f"is {source!r}", expected=f"a file that ends in {' or '.join(_SOURCE_ENDS)}"
        )
    elif "://" in source and not is_url(source):
        yield PropertyError("source", f"is {source!r}", expected="a file or an http(s):// URL")
    if is_url(source) and checksum is None:
        yield missing_property(
            "checksum", "is missing", because=["source"], hint="it is required where source is a URL"
        )
    if properties.ensure == "latest":
        detail = "is given, but latest is only for repositories: expected ensure: present or a version"
        yield PropertyError("source", detail, because=["ensure"])


def _check_debconf(properties: PackageProperties) -> Iterator[PropertyError]:
    for index, answer in enumerate(properties.debconf):
        if not _QUESTION.fullmatch(answer.question):
            sentence = f"has the question {answer.question!r}, expected one such as 'postfix/mailname'"
            yield PropertyError("debconf", sentence, place=(index, "question"))
        if answer.type not in _ANSWERS:
            expected = f"expected one of {', '.join(_ANSWERS)}"
            yield PropertyError("debconf", f"has the type {answer.type!r}, {expected}", place=(index, "type"))
        value = str(answer.value.reveal())
        # debconf's database reads a backslash and an n as a newline. A backslash at the end continues the line.
        if any(piece in value for piece in ("\n", "\r", "\0", "\\n")) or value.endswith("\\"):
            sentence = (
                f"has a value for {answer.question!r} with a line end or a backslash that debconf cannot keep"
            )
            yield PropertyError("debconf", sentence, place=(index, "value"))


# Recognition of OpenPGP public keys before a package manager trusts them.

_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"
_LINE = re.compile(r"[ -~]{0,200}")
# The first byte of a packet holds its tag. Tag 6 is a public key, in the old and in the new format (RFC 9580, 4.2).
_FIRST_BYTES = (0x98, 0x99, 0x9A, 0xC6)
_LARGEST = 1024 * 1024  # bytes; keyrings of distributions have about ten thousand


class Key(msgspec.Struct, frozen=True):
    """One or more public keys, as armoured lines or as bytes."""

    lines: tuple[str, ...] = ()
    data: bytes = b""

    @property
    def content(self) -> bytes:
        """The key as a file."""
        return self.data or "".join(f"{line}\n" for line in self.lines).encode()


def is_armoured(text: str) -> bool:
    """Return whether the property contains a key instead of a file name."""
    return text.lstrip().startswith("-----BEGIN")


def parse_key(data: bytes) -> Key:
    """Parse a key in either form. Raises ``ValueError`` with a text that follows *key*."""
    if len(data) > _LARGEST:
        raise ValueError(f"has {len(data)} bytes, expected at most {_LARGEST}")
    if b"PRIVATE KEY BLOCK" in data:
        raise ValueError("holds a private key, expected a public one")
    if data[:1] and data[0] in _FIRST_BYTES:
        return Key(data=data)
    return Key(_parse_armour(data.decode("ascii", "replace")))


def _parse_armour(text: str) -> tuple[str, ...]:
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if not lines or lines[0] != _BEGIN or lines[-1] != _END:
        raise ValueError(f"is not an OpenPGP public key, expected {_BEGIN} … or its binary form")
    if lines.count(_BEGIN) > 1:
        raise ValueError("holds several blocks, expected one block with all keys (gpg --export --armor)")
    if strange := next((line for line in lines if not _LINE.fullmatch(line)), None):
        raise ValueError(f"has the line {strange!r}, expected plain text")
    return tuple(lines)


_REPOSITORY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_URL = re.compile(r"(?:https?|ftp|file|mirror(?:\+https?)?)://?[!-~]+")
_WORD = re.compile(r"[A-Za-z0-9.$/][A-Za-z0-9.+_~$()/:-]*")
_WORDS = ("suites", "components", "architectures")
_PRIORITIES = range(-32768, 32768)


class RepositoryProperties(Properties, frozen=True):
    """The properties of a repository. The name is the name of its file."""

    url: str = ""
    """The address: an ``https://``, ``http://`` or ``file://`` URL, without credentials."""
    suites: tuple[str, ...] = ()
    """The suites (apt): ``bookworm``. A suite that ends with ``/`` is a directory without components."""
    components: tuple[str, ...] = ()
    """The components of each suite (apt): ``main``."""
    architectures: tuple[str, ...] = ()
    """The architectures (apt). The default is the architectures of the host."""
    key: str | None = None
    """The public signing key: a file of the bundle, an absolute path, or armoured text. Required unless ``url``
    is ``file:``."""
    enabled: bool = True
    """Whether packages come from this repository."""
    priority: int | None = None
    """The preference. On apt a pin, where the highest wins. On dnf a number from 1 to 99, where the lowest wins."""
    allow_release_info_change: bool = False
    """Accept a Release file with another Label, Suite, Codename or Version than before (apt)."""


def check_repository(properties: RepositoryProperties) -> Iterator[PropertyError]:
    """Yield the errors in single properties and in combinations."""
    if not _REPOSITORY_NAME.fullmatch(properties.name):
        sentence = f"is {properties.name!r}, expected letters, digits, _ and -, and no - first"
        yield PropertyError("name", sentence)
    if properties.ensure not in ("present", "absent"):
        yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
    if properties.url or properties.ensure == "present":
        yield from _check_url(properties.url)
    yield from _check_words(properties)
    yield from _check_key(properties)
    if properties.priority is not None and (
        not properties.priority or properties.priority not in _PRIORITIES
    ):
        yield PropertyError("priority", f"is {properties.priority}, expected a number, and not 0")
    if properties.provider in PROVIDERS:
        yield from (
            PropertyError(
                name, f"is given, but only apt supports it, not {properties.provider}", because=["provider"]
            )
            for name in PROVIDERS[properties.provider].lacks
            if getattr(properties, name)
        )


def _check_url(url: str) -> Iterator[PropertyError]:
    if not url:
        yield missing_property(
            "url", "is missing", because=["ensure"], hint="it is required unless ensure is absent"
        )
    elif not _URL.fullmatch(url):
        yield PropertyError("url", f"is {url!r}", expected="an http(s):// or file:// URL without blanks")
    elif "@" in urlsplit(url).netloc:
        # Every user can read the file.
        yield PropertyError("url", "has credentials", expected="them in /etc/apt/auth.conf.d or the like")


def _check_words(properties: RepositoryProperties) -> Iterator[PropertyError]:
    for name in _WORDS:
        for index, word in enumerate(getattr(properties, name)):
            if not _WORD.fullmatch(word):
                yield PropertyError(name, f"has {word!r}", place=(index,), expected="a word without blanks")
    flat = [suite for suite in properties.suites if suite.endswith("/")]
    # apt rejects all sources if one has a directory with components, or a suite without components.
    if flat and properties.components:
        sentence = f"is given, and {flat[0]!r} is a directory without components"
        yield PropertyError("components", sentence, because=["suites"])
    elif len(flat) not in (0, len(properties.suites)):
        yield PropertyError(
            "suites", f"has {flat[0]!r}, a directory, beside suites: expected two repositories"
        )
    elif properties.suites and not flat and not properties.components:
        sentence = f"is missing, but the suite {properties.suites[0]!r} requires components such as [main]"
        yield missing_property("components", sentence, because=["suites"])
    elif properties.components and not properties.suites:
        yield missing_property(
            "suites", "is missing", because=["components"], hint="components belong to a suite"
        )


def _check_key(properties: RepositoryProperties) -> Iterator[PropertyError]:
    key = properties.key
    if key is not None and is_armoured(key):
        try:
            parse_key(key.encode())
        except ValueError as error:
            yield PropertyError("key", str(error))
    elif key is not None and (not key or "\n" in key or "\0" in key or "://" in key):
        yield PropertyError("key", f"is {key!r}", expected="a file of the bundle, or an armoured key")
    if key is None and properties.ensure == "present" and not properties.url.startswith("file:"):
        yield missing_property(
            "key", "is missing", because=["url", "ensure"], hint="it is required unless url is file:"
        )
