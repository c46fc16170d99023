"""Index of a bundle for hosts, ``web/index.json``, and its history for publishers, ``web/history.json``.

The index contains the current version of each channel and the files of each version:

* The index is a target of the site, so the signatures of an `Index` are verified.
* Parsing is strict (``bundles.format.fields``). If any part is unknown, the whole index is rejected, and the host
  keeps its current version.
* Each index has exactly one spelling, so publishing the same index twice changes nothing.
* ``releases`` contains every version that a channel names, so that hosts can download it.
* The version for a host depends on the index, the host name and the time. ``bundles.format.release`` computes it.
* An `Artifact` lists the files of a version by SHA-256: the archive and the description ``bundle.json``, which
  contains the SHA-256 of every file of the bundle.

The history contains every published version and all statements of channels:

* Publishers use it to know used versions whose files are pruned. Hosts never fetch it.
* It only grows. Pruned versions are marked and stay in it.
* It is parsed as strictly as the index, and has exactly one spelling.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from bundles.errors import FormatError
from bundles.format import fields
from bundles.format.fields import MemberPath, parse_name, parse_version, shown
from bundles.format.release import Release, Rollout, TrialRule, parse_time
from bundles.format.site_targets import SiteDocument
from foundation.problems import ProblemCode
from foundation.strict_json import excerpt
from foundation.times import zulu_text

# The files of a site that make up one version of a bundle.


class Digest(msgspec.Struct, frozen=True):
    """The ``length`` in bytes and SHA-256 of a file."""

    length: int
    sha256: str

    @classmethod
    def parse(cls, value: Any, place: str) -> Self:
        """Parse a field of a signed document. Raises `FormatError` with the place."""
        known = fields.known_fields(value, place, {"length", "sha256"})
        return cls(fields.size(known, "length", place), fields.sha256(known, "sha256", place))

    def fields(self) -> dict[str, Any]:
        """Return the fields as documents store them."""
        return {"length": self.length, "sha256": self.sha256}


class Archive(msgspec.Struct, frozen=True):
    """The archive of a bundle. Its ``path`` below ``targets/`` of a site contains the SHA-256."""

    path: str
    length: int
    sha256: str

    @classmethod
    def of(cls, bundle: str, version: str, digest: Digest) -> Self:
        """Return the archive that a site publishes under this name and version."""
        return cls(f"{bundle}/{digest.sha256}.{bundle}-{version}.tar.gz", digest.length, digest.sha256)

    @classmethod
    def parse(cls, value: Any, place: str) -> Self:
        """Parse a field of a signed document. Raises `FormatError` with the place."""
        known = fields.known_fields(value, place, {"path", "length", "sha256"})
        path = fields.checked(f"{place}.path", MemberPath, fields.text(known, "path", place)).text
        return cls(path, fields.size(known, "length", place), fields.sha256(known, "sha256", place))

    def fields(self) -> dict[str, Any]:
        """Return the fields as documents store them."""
        return {"path": self.path, "length": self.length, "sha256": self.sha256}


class Artifact(msgspec.Struct, frozen=True):
    """The archive of one version, and its description."""

    archive: Archive
    description: Digest

    @classmethod
    def parse(cls, value: Any, place: str) -> Self:
        """Parse a field of a signed document. Raises `FormatError` with the place."""
        known = fields.known_fields(value, place, {"archive", "description"})
        archive = Archive.parse(known.get("archive"), f"{place}.archive")
        return cls(archive, Digest.parse(known.get("description"), f"{place}.description"))

    def fields(self) -> dict[str, Any]:
        """Return the fields as documents store them."""
        return {"archive": self.archive.fields(), "description": self.description.fields()}


FORMAT = 2
_NAMED = frozenset({"version", "rollout", "trial"})
"""The keys of a release, as a channel names it."""
_ROLLOUT = frozenset({"percent", "start", "duration", "halted", "before", "before_trial", "wave"})
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Index(msgspec.Struct, frozen=True):
    """One bundle's release in each channel, and the files of each offered version."""

    bundle: str
    channels: Mapping[str, Release] = NOTHING
    releases: Mapping[str, Artifact] = NOTHING
    """By version: the versions that channels name, and older versions for hosts that stay at them."""

    def check(self, where: str) -> None:
        """Raise `FormatError` if a channel names a version without files."""
        for channel, release in self.channels.items():
            for named in named_by(release):
                if named.version not in self.releases:
                    detail = f"refers to version {named.version}, which is missing in the releases"
                    raise FormatError(f"{where}: channels.{shown(channel)}", detail)

    def find(self, channel: str) -> Release | None:
        """Return the release in ``channel``, or ``None``."""
        return self.channels.get(channel)

    def named(self) -> set[str]:
        """Return every version that a channel assigns to some host."""
        return {each.version for release in self.channels.values() for each in named_by(release)}

    @classmethod
    def parse(cls, data: bytes, bundle: str, where: str = "") -> "Index":
        """Read the index of ``bundle``. Raises `FormatError` with the place in it."""
        where = where or index_path(bundle)
        document = fields.read_document(data, where, "an index", FORMAT)
        known = fields.known_fields(document, f"{where}: index", {"format", "bundle", "channels", "releases"})
        check_bundle(known, bundle, where)
        channels = fields.mapping(known.get("channels"), f"{where}: channels")
        releases = fields.mapping(known.get("releases"), f"{where}: releases")
        index = cls(
            bundle,
            MappingProxyType({name: _channel(bundle, name, of, where) for name, of in channels.items()}),
            MappingProxyType({name: _artifact(name, of, where) for name, of in releases.items()}),
        )
        index.check(where)
        return index

    def to_bytes(self) -> bytes:
        """Return the only spelling of this index."""
        document = {
            "format": FORMAT,
            "bundle": self.bundle,
            "channels": {name: release.fields() for name, release in self.channels.items()},
            "releases": {version: artifact.fields() for version, artifact in self.releases.items()},
        }
        return json.dumps(document, sort_keys=True, indent=1).encode() + b"\n"


class Indexes(msgspec.Struct, frozen=True):
    """The published indexes and site data by name, limited to the requested bundles and documents."""

    of: Mapping[str, Index] = NOTHING
    documents: Mapping[str, SiteDocument] = NOTHING

    def find(self, bundle: str, channel: str) -> Release | None:
        """Return the release of ``bundle`` in ``channel``, or ``None``."""
        index = self.of.get(bundle)
        return index.find(channel) if index else None

    def artifact(self, release: Release) -> Artifact:
        """Return the files of ``release``. Raises `FormatError` if the site does not offer it."""
        index = self.of.get(release.bundle)
        artifact = index.releases.get(release.version) if index else None
        if artifact is None:
            raise FormatError("site", f"{release} is not published", code=ProblemCode.NOT_PUBLISHED)
        return artifact

    def artifacts(self) -> Iterator[Artifact]:
        """Yield the files of every offered release."""
        for index in self.of.values():
            yield from index.releases.values()


def named_by(release: Release) -> Iterator[Release]:
    """Yield a release, and the release for hosts outside its rollout."""
    yield release
    if release.rollout is not None and release.rollout.before is not None:
        yield release.rollout.before


def index_path(bundle: str) -> str:
    """Return the path of a bundle's index as a target of the site."""
    return f"{bundle}/index.json"


def parse_channel(name: str) -> str:
    """Check a channel name by the rules for bundle names. Raises `FormatError`."""
    return _named("channel", name)


def parse_wave(name: str) -> str:
    """Check a wave name by the rules for bundle names. Raises `FormatError`."""
    return _named("wave", name)


def check_bundle(known: fields.Fields, bundle: str, where: str) -> None:
    """Raise `FormatError` if a document belongs to another bundle."""
    if (result := fields.text(known, "bundle", f"{where}: index")) != bundle:
        raise FormatError(f"{where}: bundle", f"is {excerpt(result)}", expected=f"{excerpt(bundle)}")


def parse_named(bundle: str, value: Any, place: str) -> Release:
    """Parse a version with its rollout and its trial, as a channel names it. Raises `FormatError` with the place."""
    known = fields.known_fields(value, place, _NAMED)
    rollout = _rollout(bundle, known["rollout"], f"{place}.rollout") if "rollout" in known else None
    return Release(bundle, _version(known, "version", place), rollout, _trial(known, "trial", place))


def _trial(known: fields.Fields, key: str, place: str) -> TrialRule | None:
    return TrialRule.parse_fields(known[key], f"{place}.{key}") if key in known else None


def _named(description: str, name: str) -> str:
    try:
        return parse_name(name)
    except FormatError as error:
        raise error.under(description, FormatError) from None


def _channel(bundle: str, name: str, value: Any, where: str) -> Release:
    place = f"{where}: channels.{shown(name)}"
    fields.checked(place, parse_channel, name)
    return parse_named(bundle, value, place)


def _artifact(version: str, value: Any, where: str) -> Artifact:
    place = f"{where}: releases.{shown(version)}"
    fields.checked(place, parse_version, version)
    return Artifact.parse(value, place)


def _rollout(bundle: str, value: Any, place: str) -> Rollout:
    known = fields.known_fields(value, place, _ROLLOUT)
    before = None
    if "before" in known:
        trial = _trial(known, "before_trial", place)
        before = Release(bundle, _version(known, "before", place), trial=trial)
    elif "before_trial" in known:
        raise FormatError(f"{place}.before_trial", "has no release", expected="a version in 'before'")
    wave = fields.checked(place, parse_wave, fields.text(known, "wave", place)) if "wave" in known else None
    try:
        return Rollout.parse(known, before, wave)
    except FormatError as error:
        raise error.under(f"{place}.{error.where}", FormatError) from None


def _version(known: fields.Fields, key: str, place: str) -> str:
    return fields.checked(place, parse_version, fields.text(known, key, place))


HISTORY_FORMAT = 1
_NO_VERSIONS: Mapping[str, Any] = MappingProxyType({})


class Version(msgspec.Struct, frozen=True):
    """A published version. Times are UTC, in whole seconds."""

    version: str
    artifact: Artifact
    published: datetime
    pruned: datetime | None = None
    """When its files were removed."""

    def fields(self) -> dict[str, Any]:
        """Return the fields as the history stores them."""
        pruned = {} if self.pruned is None else {"pruned": zulu_text(self.pruned)}
        published = {"version": self.version, "published": zulu_text(self.published)}
        return {**published, **self.artifact.fields(), **pruned}


class ChannelEntry(msgspec.Struct, frozen=True):
    """A statement of a channel about the bundle, valid from ``at`` on. ``release`` is ``None`` after a withdrawal."""

    at: datetime
    channel: str
    release: Release | None

    def fields(self) -> dict[str, Any]:
        """Return the fields as the history stores them."""
        release = {} if self.release is None else self.release.fields()
        return {"at": zulu_text(self.at), "channel": self.channel, **release}


class History(msgspec.Struct, frozen=True):
    """History of one bundle: versions and statements in the order of publication."""

    bundle: str
    versions: Mapping[str, Version] = _NO_VERSIONS
    statements: tuple[ChannelEntry, ...] = ()

    def with_version(self, version: str, artifact: Artifact, now: datetime) -> "History":
        """Return this history with one more version, published now. A known version keeps its files.

        Restores a pruned version.
        """
        known = self.versions.get(version)
        added = Version(version, artifact, _whole(now)) if known is None else replace(known, pruned=None)
        return replace(self, versions=MappingProxyType({**self.versions, version: added}))

    def with_statement(self, channel: str, release: Release | None, now: datetime) -> "History":
        """Return this history with one more statement, made now."""
        return replace(self, statements=(*self.statements, ChannelEntry(_whole(now), channel, release)))

    def without_files(self, versions: set[str], now: datetime) -> "History":
        """Return this history with the files of some versions pruned now."""
        changed = {
            name: replace(of, pruned=_whole(now)) if name in versions and of.pruned is None else of
            for name, of in self.versions.items()
        }
        return replace(self, versions=MappingProxyType(changed))

    @classmethod
    def parse(cls, data: bytes, bundle: str, where: str = "") -> "History":
        """Read the history of ``bundle``. Raises `FormatError` with the place in it."""
        where = where or history_path(bundle)
        document = fields.read_document(data, where, "a history", HISTORY_FORMAT)
        known = fields.known_fields(
            document, f"{where}: history", {"format", "bundle", "versions", "statements"}
        )
        check_bundle(known, bundle, where)
        versions = [
            _history_version(value, f"{where}: versions[{number}]")
            for number, value in enumerate(fields.array(known, "versions", f"{where}: history"))
        ]
        by_name = {version.version: version for version in versions}
        if len(by_name) < len(versions):
            raise FormatError(f"{where}: versions", "contains a version twice")
        statements = tuple(
            _said(bundle, value, f"{where}: statements[{number}]")
            for number, value in enumerate(fields.array(known, "statements", f"{where}: history"))
        )
        return cls(bundle, MappingProxyType(by_name), statements)

    def to_bytes(self) -> bytes:
        """Return the only spelling of this history."""
        document = {
            "format": HISTORY_FORMAT,
            "bundle": self.bundle,
            "versions": [version.fields() for version in self.versions.values()],
            "statements": [text.fields() for text in self.statements],
        }
        return json.dumps(document, sort_keys=True, indent=1).encode() + b"\n"


def history_path(bundle: str) -> str:
    """Return the path of a bundle's history as a target of the site."""
    return f"{bundle}/history.json"


def _history_version(value: Any, place: str) -> Version:
    known = fields.known_fields(value, place, {"version", "published", "archive", "description", "pruned"})
    return Version(
        fields.checked(place, parse_version, fields.text(known, "version", place)),
        Artifact.parse({key: known.get(key) for key in ("archive", "description")}, place),
        _time(known, "published", place),
        _time(known, "pruned", place) if "pruned" in known else None,
    )


def _said(bundle: str, value: Any, place: str) -> ChannelEntry:
    known = fields.known_fields(value, place, {"at", "channel", *_NAMED})
    channel = fields.checked(place, parse_channel, fields.text(known, "channel", place))
    named = {key: known[key] for key in _NAMED if key in known}
    return ChannelEntry(
        _time(known, "at", place), channel, parse_named(bundle, named, place) if named else None
    )


def _time(known: fields.Fields, key: str, place: str) -> datetime:
    try:
        return parse_time(key, known.get(key))
    except FormatError as error:
        raise error.under(f"{place}.{error.where}", FormatError) from None


def _whole(now: datetime) -> datetime:
    return now.replace(microsecond=0)
