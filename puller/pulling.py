"""The site as one run uses it: asked once what is published, then for releases and their bytes.

Most runs find nothing new. For them a glance is enough (``bundles.glance``); what verifies signatures is imported only
when it says that something may have changed.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from bundles.errors import BundleError, SettingsError
from bundles.glance import glance
from bundles.index import Index, Release
from bundles.secret import Secret
from bundles.store import Installed, Store
from bundles.transport import TransportSettings, open_mirrors
from puller.config import BundleChoice, Configuration, HttpOptions
from puller.errors import ConfigurationError
from puller.state import Directories
from puller.system import reason
from puller.version import __version__

if TYPE_CHECKING:
    from bundles.trust import TrustClient


class Published(Protocol):
    """What the site publishes, as far as this host can trust it."""

    @property
    def index(self) -> Index:
        """Which version of each bundle a host should run, by channel."""

    def digest(self, release: Release) -> str:
        """SHA-256 of the archive of a release, as signed; raises ``FormatError`` when it is not published."""


class Site(msgspec.Struct, frozen=True):
    """What is published now, verified, and how to get it."""

    client: "TrustClient"
    index: Index

    @classmethod
    def refreshed(cls, configuration: Configuration, directories: Directories) -> "Site":
        """Fetch and verify the metadata; raises ``BundleError``, and ``ConfigurationError`` for what is ours."""
        from bundles.trust import TrustClient

        try:
            mirrors = open_mirrors(configuration.mirrors, transport_settings(configuration.http))
            client = TrustClient(directories.trust, Path(configuration.trust_anchor), mirrors)
            return cls(client, client.refresh())
        except SettingsError as error:
            raise ConfigurationError(str(error)) from error

    @property
    def notes(self) -> list[str]:
        """Sentences for people: mirrors that failed although another helped, damaged state."""
        return self.client.notes

    def digest(self, release: Release) -> str:
        """See ``Published``."""
        return self.client.digest(release)

    def install(self, release: Release, store: Store, directories: Directories) -> Installed:
        """Download, verify and unpack; what is in the store already is not fetched again. Raises ``BundleError``."""
        digest = self.digest(release)
        if (installed := store.find(release.bundle, digest)) is not None:
            return installed
        archive = directories.state / "downloads" / f"{digest}.tar.gz"
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.client.fetch(release, archive)
            return store.install(archive, name=release.bundle, version=release.version, sha256=digest)
        finally:
            archive.unlink(missing_ok=True)


def unchanged(configuration: Configuration, directories: Directories) -> Published | None:
    """What is published, when it is what this host enforces already; ``None`` when that takes more than a glance."""
    settings = transport_settings(configuration.http)
    anchor = Path(configuration.trust_anchor)
    known = glance(directories.trust, anchor, configuration.mirrors[0], settings, datetime.now(UTC))
    if known is None:
        return None
    store = Store(directories.bundles)
    try:
        for choice in configuration.bundles:
            current = store.current(choice.name)
            if current is None or current.sha256 != known.digest(choose(known.index, choice)):
                return None
    except (BundleError, ConfigurationError):
        return None
    return known


def choose(index: Index, choice: BundleChoice) -> Release:
    """The release that this host should run; raises ``ConfigurationError`` when none is published for it."""
    if choice.version is not None:
        return Release.of(choice.name, choice.version)
    release = index.find(choice.name, choice.channel)
    if release is None:
        raise ConfigurationError(f"{choice.name}: channel {choice.channel!r} of the site has no such bundle")
    return release


def transport_settings(options: HttpOptions) -> TransportSettings:
    """How the site is reached; raises ``ConfigurationError`` for a file of secrets that cannot be read."""
    token = _secret(options.token_file)
    password = _secret(options.password_file) or (Secret(options.password) if options.password else None)
    try:
        return TransportSettings(
            connect_timeout=options.connect_timeout,
            read_timeout=options.read_timeout,
            total_timeout=options.total_timeout,
            retries=options.retries,
            proxy=Secret(options.proxy) if options.proxy is not None else None,
            ca_bundle=options.ca_bundle,
            client_cert=options.client_certificate,
            client_key=options.client_key,
            username=options.username,
            password=password,
            token=token,
            headers={name: Secret(value) for name, value in options.headers.items()},
            user_agent=f"puller/{__version__}",
        )
    except ValueError as error:
        raise ConfigurationError(f"http: {error}") from error


def _secret(path: str | None) -> Secret | None:
    if path is None:
        return None
    try:
        return Secret(Path(path).read_text(encoding="utf-8").strip())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {reason(error)}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None


def copy_trust(source: Path, target: Path) -> None:
    """What this host has trusted so far, for a dry run that must not add to it."""
    if source.exists():
        shutil.copytree(source, target, symlinks=True)
