"""``web/history.json``: every published version of the bundle ``web``, and all statements of channels about it.

* Publishers use it to know used versions whose files are pruned. Hosts never fetch it.
* It only grows. Pruned versions are marked and stay in it.
* It is parsed as strictly as the index, and has exactly one spelling.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from bundles.errors import FormatError
from bundles.format import fields
from bundles.format.identity import parse_version
from bundles.format.index import Artifact, check_bundle, parse_channel, parse_named
from bundles.format.release import Release, parse_time
from foundation.timestamps import zulu_text

FORMAT = 1
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


class Said(msgspec.Struct, frozen=True):
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
    statements: tuple[Said, ...] = ()

    def with_version(self, version: str, artifact: Artifact, now: datetime) -> "History":
        """Return this history with one more version, published now. A known version keeps its files.

        Restores a pruned version.
        """
        known = self.versions.get(version)
        added = Version(version, artifact, _whole(now)) if known is None else replace(known, pruned=None)
        return replace(self, versions=MappingProxyType({**self.versions, version: added}))

    def with_statement(self, channel: str, release: Release | None, now: datetime) -> "History":
        """Return this history with one more statement, made now."""
        return replace(self, statements=(*self.statements, Said(_whole(now), channel, release)))

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
        document = fields.read_document(data, where, "a history", FORMAT)
        known = fields.known_fields(
            document, f"{where}: history", {"format", "bundle", "versions", "statements"}
        )
        check_bundle(known, bundle, where)
        versions = [
            _version(value, f"{where}: versions[{number}]")
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
            "format": FORMAT,
            "bundle": self.bundle,
            "versions": [version.fields() for version in self.versions.values()],
            "statements": [text.fields() for text in self.statements],
        }
        return json.dumps(document, sort_keys=True, indent=1).encode() + b"\n"


def history_path(bundle: str) -> str:
    """Return the path of a bundle's history as a target of the site."""
    return f"{bundle}/history.json"


def _version(value: Any, place: str) -> Version:
    known = fields.known_fields(value, place, {"version", "published", "archive", "description", "pruned"})
    return Version(
        fields.checked(place, parse_version, fields.text(known, "version", place)),
        Artifact.parse({key: known.get(key) for key in ("archive", "description")}, place),
        _time(known, "published", place),
        _time(known, "pruned", place) if "pruned" in known else None,
    )


def _said(bundle: str, value: Any, place: str) -> Said:
    known = fields.known_fields(value, place, {"at", "channel", "version", "rollout"})
    channel = fields.checked(place, parse_channel, fields.text(known, "channel", place))
    named = {key: known[key] for key in ("version", "rollout") if key in known}
    return Said(_time(known, "at", place), channel, parse_named(bundle, named, place) if named else None)


def _time(known: fields.Fields, key: str, place: str) -> datetime:
    try:
        return parse_time(key, known.get(key))
    except FormatError as error:
        raise error.under(f"{place}.{error.where}", FormatError) from None


def _whole(now: datetime) -> datetime:
    return now.replace(microsecond=0)
