"""Properties of a package, and checks that need the manifest only."""

import re
from collections.abc import Iterator

import msgspec

from foundation.durations import Duration
from hiera.values.secrets import Secret
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
        yield PropertyError("name", f"is {name!r}, which apt takes for a wish to remove {name.rstrip('-')!r}")
    if ensure not in STATES and not _VERSION.fullmatch(ensure):
        expected = ", ".join(STATES)
        yield PropertyError(
            "ensure", f"is {ensure!r}", expected=f"{expected} or a version such as '1.24.0-1'"
        )
    if properties.timeout <= 0:
        yield PropertyError("timeout", "is 0", expected="a time that the package manager can work in")
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
