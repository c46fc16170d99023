"""Holds of a host and of its bundles: rollouts, the quarantine, ``puller disable``, pins and windows.

* The texts of all holds are here, except those of rejected versions (``puller/run/bundle_run.py``) and of windows
  (``puller/values/maintenance.py``).
* The hold of ``puller disable`` is in force until ``puller enable`` or until its end. Runs never remove its file, since
  an operator may be replacing it, and a wrong clock must not end it permanently.
* A hold that cannot be read is in force. Damage must not restart updates that an operator has stopped.
* A pin has priority over the channel. A version in the configuration is also a pin. If the two differ, no new version
  is chosen until the operator resolves the conflict.
* A pin chooses only among signed and published versions.

Quarantine: versions that this host does not try again, because they failed here or were rolled back.

* Entries are identified by the SHA-256 of the archive. A fixed release has another digest and is not affected.
* Only an operator removes an entry (``puller quarantine clear``). Runs never do.
* With ``noop`` new entries exist only in this run.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec

from bundles.format.fields import SHA256
from bundles.format.release import Release, Rollout, shown_percent
from foundation.times import iso_text, minute_text, parse_moment
from puller.config.configuration import Configuration
from puller.errors import ConfigurationError
from puller.errors import reason as reason_of
from puller.state import Directories, StateFile, set_aside
from puller.values.maintenance import Window, next_opening, why_closed

# Rollouts that have not reached this host.


def held_by_rollout(release: Release, at: float, now: datetime) -> str:
    """Return why a host whose place is ``at`` does not get a release. Empty without a rollout."""
    if (rollout := release.rollout) is None:
        return ""
    reached = shown_percent(rollout.reached(now))
    if not rollout.halted:
        return f"{release} reaches this host at {shown_percent(at + 0.01)}, now {reached}{_expected(rollout, at)}"
    if at < rollout.reached(now):
        return f"{release} was halted by the publisher at {reached}, before this host installed it"
    return f"{release} was halted by the publisher at {reached}, and this host's place is {shown_percent(at)}"


def _expected(rollout: Rollout, at: float) -> str:
    if (moment := rollout.reaches(at)) is None:
        return ""
    minute = moment.replace(second=0, microsecond=0)
    minute += timedelta(minutes=minute < moment)
    return f", at about {minute_text(minute)}"


# The quarantine.

_QUARANTINE_LOSS = "quarantined versions may be tried again"


class Quarantined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quarantined version. ``since`` is UTC in ISO 8601."""

    bundle: str
    version: str
    sha256: Annotated[str, msgspec.Meta(pattern=f"^{SHA256}$")]
    reason: str
    since: str
    failed: tuple[str, ...] = ()
    """The first resources that failed in the run that gave it up, as sentences."""
    not_undone: tuple[str, ...] = ()
    """Its changes that could not be undone, as sentences."""

    def __post_init__(self) -> None:
        parse_moment(self.since)

    def __str__(self) -> str:
        since = minute_text(parse_moment(self.since))
        return f"{self.bundle} {self.version} has been quarantined since {since}: {self.reason}"


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    bundles: tuple[Quarantined, ...]


class Quarantine:
    """All entries, oldest first."""

    def __init__(self, file: StateFile[_Document], entries: tuple[Quarantined, ...], *, noop: bool) -> None:
        self.entries = entries
        self._file = file
        self._noop = noop

    @classmethod
    def load(
        cls, directories: Directories, warn: Callable[[str], None], *, noop: bool = False
    ) -> "Quarantine":
        """Read the file. A damaged file has no entries, and ``warn`` receives the damage. Raise ``OSError``."""
        file = StateFile(directories.quarantine, _Document, _QUARANTINE_LOSS)
        document = file.load(warn, noop=noop)
        return cls(file, document.bundles if document else (), noop=noop)

    def find(self, sha256: str) -> Quarantined | None:
        """Return the entry of the archive with this SHA-256."""
        return next((entry for entry in self.entries if entry.sha256 == sha256), None)

    def in_force(self, published: Mapping[str, str]) -> list[Quarantined]:
        """Return the entries that keep this host from a release. Other entries are about old releases.

        ``published`` has the version that is published for this host, by configured bundle. If it is empty, because
        metadata were not fetched yet, the newest entry of the bundle counts.
        """
        newest = {entry.bundle: entry for entry in self.entries}
        return [
            entry
            for entry in self.entries
            if entry.bundle in published
            and (
                entry.version == published[entry.bundle]
                or (not published[entry.bundle] and entry is newest[entry.bundle])
            )
        ]

    def add(
        self, bundle: str, version: str, sha256: str, reason: str, failed: Iterable[str] = ()
    ) -> Quarantined:
        """Quarantine a version. An existing entry keeps its reason. Raise ``OSError``."""
        if (known := self.find(sha256)) is not None:
            return known
        since, why = iso_text(datetime.now(UTC)), " ".join(reason.split())
        entry = Quarantined(bundle, version, sha256, why, since, tuple(failed))
        self._save((*self.entries, entry))
        return entry

    def add_remaining(self, sha256: str, sentences: Iterable[str]) -> None:
        """Add irreversible changes to an entry. Raise ``OSError``."""
        if (entry := self.find(sha256)) is None:
            return
        not_undone = tuple(dict.fromkeys((*entry.not_undone, *sentences)))
        new = msgspec.structs.replace(entry, not_undone=not_undone)
        if new != entry:
            self._save(tuple(new if one is entry else one for one in self.entries))

    def clear(self, bundle: str | None = None, version: str | None = None) -> list[Quarantined]:
        """Remove all entries, those of one bundle, or those of one of its versions. Raise ``OSError``."""
        cleared = [
            entry
            for entry in self.entries
            if bundle in (None, entry.bundle) and version in (None, entry.version)
        ]
        if cleared:
            self._save(tuple(entry for entry in self.entries if entry not in cleared))
        return cleared

    def _save(self, entries: tuple[Quarantined, ...]) -> None:
        if not self._noop:
            self._file.save(_Document(1, entries))
        self.entries = entries


# ``puller disable``.


class Disabled(msgspec.Struct, frozen=True):
    """A hold of all changes. ``since`` and ``until`` are UTC in ISO 8601, or empty: unknown, without an end."""

    reason: str
    since: str = ""
    until: str = ""
    by: str = ""
    """The user who set the hold."""

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        since = f" since {minute_text(parse_moment(self.since))}" if self.since else ""
        until = f" until {minute_text(parse_moment(self.until))}" if self.until else ""
        return f"disabled{by}{since}{until}: {self.reason}"


class _DisableDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    reason: str
    since: str
    until: str
    by: str

    def __post_init__(self) -> None:
        parse_moment(self.since)
        if self.until:
            parse_moment(self.until)


def find_disabled(directories: Directories, now: datetime) -> Disabled | None:
    """Return the hold in force. ``None`` if it does not exist, or has expired.

    An unreadable hold is in force without an end. Its reason is the error.
    """
    try:
        document = _file(directories).read()
    except (OSError, ValueError) as error:
        detail = reason_of(error) if isinstance(error, OSError) else str(error)
        return Disabled(
            f"{directories.disabled}: {detail}, so this host is held until `puller enable` removes the file"
        )
    if document is None or (document.until and parse_moment(document.until) <= now):
        return None
    return Disabled(document.reason, document.since, document.until, document.by)


def disable(
    directories: Directories, reason: str, by: str, now: datetime, until: datetime | None = None
) -> Disabled:
    """Prevent changes of this host from the next run on. Replace an earlier hold, even if it is damaged.

    Raise ``OSError``.
    """
    _clear_place(directories)
    hold = _DisableDocument(1, " ".join(reason.split()), iso_text(now), iso_text(until) if until else "", by)
    _file(directories).save(hold)
    return Disabled(hold.reason, hold.since, hold.until, hold.by)


def enable(directories: Directories, now: datetime) -> Disabled | None:
    """Allow changes of this host from the next run on. Return the hold that was in force. Raise ``OSError``."""
    hold = find_disabled(directories, now)
    _clear_place(directories)
    _file(directories).remove()
    return hold


def _file(directories: Directories) -> StateFile[_DisableDocument]:
    return StateFile(directories.disabled, _DisableDocument, "")


def _clear_place(directories: Directories) -> None:
    """Set aside a directory in place of the file, because neither rename nor ``unlink`` replaces it."""
    if directories.disabled.is_dir() and not directories.disabled.is_symlink():
        set_aside(directories.disabled)


# Pins: versions at which the operator holds bundles.

_PINS_LOSS = (
    "PINS ARE LOST: pinned bundles follow their channel again until you pin them again with `puller pin`"
)


class _PinsDocument(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    bundles: dict[str, str]


class Pins:
    """All pins, by the name of the bundle."""

    def __init__(self, file: StateFile[_PinsDocument], entries: Mapping[str, str], *, noop: bool) -> None:
        self.entries = dict(entries)
        self._file = file
        self._noop = noop

    @classmethod
    def load(cls, directories: Directories, warn: Callable[[str], None], *, noop: bool = False) -> "Pins":
        """Read the file. A damaged file has no pins, and ``warn`` receives the damage. Raise ``OSError``."""
        file = StateFile(directories.pins, _PinsDocument, _PINS_LOSS)
        document = file.load(warn, noop=noop)
        return cls(file, document.bundles if document else {}, noop=noop)

    def find(self, bundle: str) -> str | None:
        """Return the pinned version of a bundle."""
        return self.entries.get(bundle)

    def version_for(self, bundle: str, configured: str | None) -> str | None:
        """Return the version of a bundle in its pin or in the configuration. ``None`` follows the channel.

        Raise ``ConfigurationError`` if these two differ.
        """
        pinned = self.find(bundle)
        if pinned and configured and pinned != configured:
            raise ConfigurationError(
                f"{bundle}: is pinned to {pinned}, but the configuration has version {configured}",
                hint=f"run `puller unpin {bundle}` to use the configuration",
            )
        return pinned or configured

    def set(self, bundle: str, version: str) -> None:
        """Pin a bundle to a version. Raise ``OSError``."""
        self._save({**self.entries, bundle: version})

    def remove(self, bundle: str) -> str | None:
        """Let a bundle follow its channel again. Return its pinned version. Raise ``OSError``."""
        if (version := self.find(bundle)) is not None:
            self._save({name: pin for name, pin in self.entries.items() if name != bundle})
        return version

    def _save(self, entries: dict[str, str]) -> None:
        if not self._noop:
            self._file.save(_PinsDocument(1, entries))
        self.entries = entries


class Holds(msgspec.Struct, frozen=True):
    """All holds of a host."""

    disabled: Disabled | None
    windows: tuple[Window, ...]
    pins: Pins
    quarantine: Quarantine

    @classmethod
    def load(
        cls,
        configuration: Configuration,
        directories: Directories,
        now: datetime,
        warn: Callable[[str], None],
        *,
        noop: bool = False,
    ) -> "Holds":
        """Read the holds. ``warn`` receives damage. With ``noop`` nothing is written. Raise ``OSError``."""
        return cls(
            find_disabled(directories, now),
            configuration.windows,
            Pins.load(directories, warn, noop=noop),
            Quarantine.load(directories, warn, noop=noop),
        )

    def why_not_applying(self, now: datetime) -> str:
        """Return why this host must not be changed ``now``. Empty if it may."""
        return str(self.disabled) if self.disabled else why_closed(self.windows, now)

    def lines(self, now: datetime, published: Mapping[str, str]) -> list[str]:
        """Return a sentence for each hold in force. See ``Quarantine.in_force`` for ``published``."""
        return [
            *([why] if (why := self.why_not_applying(now)) else []),
            *(f"{bundle} is pinned to {version}" for bundle, version in sorted(self.pins.entries.items())),
            *(map(str, self.quarantine.in_force(published))),
        ]

    def data(self, now: datetime) -> dict[str, object]:
        """Return all holds for programs, as plain values."""
        opening = next_opening(self.windows, now) if self.windows else None
        return {
            "disabled": msgspec.to_builtins(self.disabled),
            "not_applying": self.why_not_applying(now) or None,
            "next_window": iso_text(opening) if opening and opening > now else None,
            "pins": self.pins.entries,
            "quarantine": [msgspec.to_builtins(entry) for entry in self.quarantine.entries],
        }
