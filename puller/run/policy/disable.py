"""The operator's word that nothing is applied for now: ``puller disable``.

* A hold is in force until ``puller enable``, or until its end if it has one. No run removes one: an operator may be
  replacing it at that moment, and a clock that was wrong for a while must not end it for good.
* A hold that cannot be read is in force: damage to a file must not set off what somebody wanted to stop.
"""

from datetime import datetime
from typing import Literal

import msgspec

from foundation.timestamps import iso_text, minute_text, parse_moment
from puller.errors import reason as reason_of
from puller.state.directories import Directories
from puller.state.state_file import StateFile, set_aside


class Disabled(msgspec.Struct, frozen=True):
    """Why nothing is applied; ``since`` and ``until`` are UTC in ISO 8601, or empty: not known, no end."""

    reason: str
    since: str = ""
    until: str = ""
    by: str = ""
    """The user who said so."""

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        since = f" since {minute_text(parse_moment(self.since))}" if self.since else ""
        until = f" until {minute_text(parse_moment(self.until))}" if self.until else ""
        return f"disabled{by}{since}{until}: {self.reason}"


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    """The hold that is in force; ``None`` when there is none, or its end has come.

    One that cannot be read is in force without an end, and its reason is what is wrong with it.
    """
    try:
        document = _file(directories).read()
    except (OSError, ValueError) as error:
        what = reason_of(error) if isinstance(error, OSError) else str(error)
        return Disabled(
            f"{directories.disabled}: {what}; nothing is applied until `puller enable` removes it"
        )
    if document is None or (document.until and parse_moment(document.until) <= now):
        return None
    return Disabled(document.reason, document.since, document.until, document.by)


def disable(
    directories: Directories, reason: str, by: str, now: datetime, until: datetime | None = None
) -> Disabled:
    """Apply nothing from the next run on; takes the place of an earlier hold, whatever it looks like.

    Raises ``OSError``.
    """
    _clear_place(directories)
    hold = _Document(1, " ".join(reason.split()), iso_text(now), iso_text(until) if until else "", by)
    _file(directories).save(hold)
    return Disabled(hold.reason, hold.since, hold.until, hold.by)


def enable(directories: Directories, now: datetime) -> Disabled | None:
    """Apply again from the next run on; gives the hold that was in force. Raises ``OSError``."""
    hold = find_disabled(directories, now)
    _clear_place(directories)
    _file(directories).remove()
    return hold


def _file(directories: Directories) -> StateFile[_Document]:
    return StateFile(directories.disabled, _Document, "")


def _clear_place(directories: Directories) -> None:
    """A directory in the place of the file is neither replaced by a rename nor removed by ``unlink``."""
    if directories.disabled.is_dir() and not directories.disabled.is_symlink():
        set_aside(directories.disabled)
