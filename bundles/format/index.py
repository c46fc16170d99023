"""``index.json``: which version of each bundle a host should run, by channel.

* It is a target of the site, so whoever reads an `Index` has its signatures behind it.
* Read strictly. A key that this version does not know may steer hosts (a rollout, a halt), so it is not
  skipped: the whole index is refused and the host stays on what it has. Keys that start with ``x-`` are
  remarks for people and tools, and are passed over.
* One index has one spelling; publishing the same twice changes nothing.
* What a host should run follows from the index, its name and the time; ``bundles.format.release`` has the arithmetic.
"""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from bundles.errors import BundleError, FormatError
from bundles.format import strict_json
from bundles.format.identity import parse_name, parse_version
from bundles.format.paths import MemberPath, shown
from bundles.format.release import Release, Rollout
from bundles.format.strict_json import excerpt

FORMAT = 1
INDEX = "index.json"

Channel = Mapping[str, Release]


class Index(msgspec.Struct, frozen=True):
    """Channels, and in each the release of every bundle, by name."""

    channels: Mapping[str, Channel] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    def find(self, bundle: str, channel: str) -> Release | None:
        """The release of ``bundle`` in ``channel``; ``None`` when it says nothing."""
        return self.channels.get(channel, {}).get(bundle)

    def with_release(self, release: Release, channel: str) -> "Index":
        """This index with one release in one channel replaced; raises `FormatError` for the name of a channel."""
        parse_channel(channel)
        changed = {**self.channels.get(channel, {}), release.bundle: release}
        return Index(MappingProxyType({**self.channels, channel: MappingProxyType(changed)}))

    def without_release(self, bundle: str, channel: str) -> "Index":
        """This index where one channel says nothing of ``bundle``; a channel that says nothing at all is gone."""
        changed = {name: of for name, of in self.channels.get(channel, {}).items() if name != bundle}
        channels = {**self.channels, channel: MappingProxyType(changed)}
        return Index(MappingProxyType({name: of for name, of in channels.items() if of}))

    def releases(self) -> Iterator[Release]:
        """Every release that some host is told to run; one that is in several places comes several times."""
        for channel in self.channels.values():
            for release in channel.values():
                yield release
                if release.rollout is not None and release.rollout.before is not None:
                    yield release.rollout.before

    @classmethod
    def parse(cls, data: bytes, where: str = INDEX) -> "Index":
        """Read an index; raises `FormatError` with the place in it."""
        try:
            document = strict_json.load(data)
        except ValueError as error:
            raise FormatError(where, f"is not an index: {error}") from None
        _check_format(document, where)
        keys = _keys(document, f"{where}: index", {"format", "channels"})
        channels = _mapping(keys.get("channels"), f"{where}: channels")
        return cls(MappingProxyType({name: _channel(name, value, where) for name, value in channels.items()}))

    def to_bytes(self) -> bytes:
        """The one spelling of this index."""
        channels = {
            name: {key: item.fields() for key, item in of.items()} for name, of in self.channels.items()
        }
        document = {"format": FORMAT, "channels": channels}
        return json.dumps(document, sort_keys=True, indent=1).encode() + b"\n"


def parse_channel(name: str) -> str:
    """The name of a channel follows the rules for bundles; raises `FormatError`."""
    try:
        return parse_name(name)
    except FormatError as error:
        raise FormatError("channel", error.what) from None


def _check_format(document: Any, where: str) -> None:
    """Before all else, so that an index of a later format says so, and not that some key is unknown."""
    value = _mapping(document, where).get("format")
    if type(value) is not int:  # True == 1
        raise FormatError(f"{where}: format", f"is {excerpt(value)}, wanted the number {FORMAT}")
    if value != FORMAT:
        raise FormatError(
            f"{where}: format", f"is {value}, this version of Puller reads {FORMAT}: upgrade Puller here"
        )


def _channel(name: str, value: Any, where: str) -> Channel:
    place = f"{where}: channels.{shown(name)}"
    _checked(place, parse_channel, name)
    releases = _mapping(value, place)
    return MappingProxyType(
        {key: _release(key, item, f"{place}.{shown(key)}") for key, item in releases.items()}
    )


def _release(bundle: str, value: Any, place: str) -> Release:
    keys = _keys(value, place, {"version", "target", "rollout"})
    release = _plain_release(bundle, keys, place)
    if "rollout" not in keys:
        return release
    return msgspec.structs.replace(release, rollout=_rollout(bundle, keys["rollout"], f"{place}.rollout"))


def _rollout(bundle: str, value: Any, place: str) -> Rollout:
    keys = _keys(value, place, {"percent", "start", "duration", "halted", "before"})
    before = None
    if "before" in keys:
        fields = _keys(keys["before"], f"{place}.before", {"version", "target"})
        before = _plain_release(bundle, fields, f"{place}.before")
    try:
        return Rollout.parse(keys, before)
    except FormatError as error:
        raise FormatError(f"{place}.{error.where}", error.what) from None


def _plain_release(bundle: str, keys: Mapping[str, Any], place: str) -> Release:
    return Release(
        bundle=_checked(place, parse_name, bundle),
        version=_checked(place, parse_version, _text(keys, "version", place)),
        target=_checked(place, MemberPath, _text(keys, "target", place)).text,
    )


def _keys(value: Any, place: str, known: set[str]) -> dict[str, Any]:
    # Remarks for people and tools steer nothing, so that older versions may pass them over.
    keys = {key: item for key, item in _mapping(value, place).items() if not key.startswith("x-")}
    if unknown := sorted(keys.keys() - known):
        names = ", ".join(shown(key) for key in unknown[:5])
        raise FormatError(
            place, f"unknown keys {names}, wanted {', '.join(sorted(known))}: upgrade Puller here"
        )
    return keys


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(place, f"is {excerpt(value)}, wanted an object")
    return value


def _text(keys: Mapping[str, Any], key: str, place: str) -> str:
    value = keys.get(key)
    if not isinstance(value, str):
        raise FormatError(f"{place}.{key}", f"is {excerpt(value)}, wanted a string")
    return value


def _checked(place: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except BundleError as error:
        raise FormatError(f"{place}: {error.where}", error.what) from None
