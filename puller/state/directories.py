"""Where this machine's state is kept, and the files of it that are not the bundles' own.

How damage to one of them is answered is in ``puller.state.state_file``.
"""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bundles.filesystem.atomic import read_limited
from puller.reporting.report import Report
from puller.state.state_file import LARGEST, set_aside, write_state
from puller.state.stored_json import decode

DEFAULT_CONFIGURATION = "/etc/puller/config.yaml"
PRIVATE_KEY = "/etc/puller/keys/private_key.pkcs7.pem"
"""Where a host's key for encrypted values is, unless something else is said."""
_LARGEST_REPORT = 64 * 1024 * 1024  # bytes: an event for each of a hundred thousand resources
_ROOT_STATE = Path("/var/lib/puller")
_ROOT_RUN = Path("/run/puller")


class Status(msgspec.Struct, frozen=True):
    """What an agent is doing; ``since`` is UTC in ISO 8601."""

    state: str
    since: str
    process: int


class Directories(msgspec.Struct, frozen=True):
    """The two places that Puller writes to on its own account."""

    state: Path
    """Survives a reboot."""
    run: Path
    """Does not."""

    @classmethod
    def of_user(cls) -> "Directories":
        """For commands without a configuration: the system's for root, else the user's own (XDG base directories)."""
        if os.geteuid() == 0:
            return cls(_ROOT_STATE, _ROOT_RUN)
        home = Path(os.environ.get("HOME", "/"))
        state = Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "puller"
        run = os.environ.get("XDG_RUNTIME_DIR")
        return cls(state, Path(run) / "puller" if run else state)

    @property
    def trust(self) -> Path:
        """Verified metadata."""
        return self.state / "trust"

    @property
    def downloads(self) -> Path:
        """Archives that are on their way."""
        return self.state / "downloads"

    @property
    def bundles(self) -> Path:
        """Unpacked bundles."""
        return self.state / "bundles"

    @property
    def runs(self) -> Path:
        """Reports."""
        return self.state / "runs"

    @property
    def data(self) -> Path:
        """The last good copies of site data."""
        return self.state / "data"

    @property
    def last_run(self) -> Path:
        """The newest report."""
        return self.state / "last-run.json"

    @property
    def pending_refreshes(self) -> Path:
        """Pending refreshes."""
        return self.state / "owed.json"

    @property
    def journal(self) -> Path:
        """New bundles that are on trial."""
        return self.state / "journal.json"

    @property
    def quarantine(self) -> Path:
        """Bundles that are not to be tried again."""
        return self.state / "quarantine.json"

    @property
    def pins(self) -> Path:
        """Versions that this host's operator holds bundles at."""
        return self.state / "pins.json"

    @property
    def disabled(self) -> Path:
        """That nothing is applied for now, and why."""
        return self.state / "disabled.json"

    @property
    def status(self) -> Path:
        """What is going on right now."""
        return self.run / "status.json"

    @property
    def archives(self) -> Path:
        """Receipts of extracted archives."""
        return self.state / "archives"

    def make(self) -> list[str]:
        """Make what is missing, readable by the owner alone, and set aside what is in the place of a directory.

        Gives a sentence about each such thing. Raises ``OSError``.
        """
        below = (self.bundles, self.runs, self.trust, self.data, self.downloads, self.archives)
        wrong = [path for path in below if os.path.lexists(path) and not path.is_dir()]
        notes = [f"{path}: is not a directory; set aside as {set_aside(path)}" for path in wrong]
        for directory in (self.state, self.bundles, self.runs, self.trust):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.run.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._forget_downloads()
        return notes

    def _forget_downloads(self) -> None:
        """A run removes what it has unpacked, so what is there at its start is left over from one that was killed.

        What has not come in full stays: the download goes on with it.
        """
        with contextlib.suppress(OSError):
            for path in self.downloads.glob("*.tar.gz"):
                path.unlink()


def save_report(report: Report, directories: Directories, keep: int) -> Path:
    """Keep a report and forget the oldest; gives where it is. Raises ``OSError``."""
    data = msgspec.json.encode(report)
    path = directories.runs / f"{report.run}.json"
    # Reports hold file names and differences, which not everybody on the machine needs to see.
    write_state(path, data)
    write_state(directories.last_run, data)
    for old in sorted(directories.runs.glob("*.json"))[:-keep]:
        with contextlib.suppress(IsADirectoryError):  # somebody's own; it is in nobody's way
            old.unlink(missing_ok=True)
    return path


def save_status(directories: Directories, state: str) -> None:
    """Say what is going on: ``running`` since now in this process, or ``idle``. Raises ``OSError``."""
    status = Status(state=state, since=datetime.now(UTC).isoformat(timespec="seconds"), process=os.getpid())
    # It does not survive a reboot anyway.
    write_state(directories.status, msgspec.json.encode(status), mode=0o644, durable=False)


def load_status(directories: Directories) -> Status | None:
    """What is going on, as far as it can be told: ``running`` only while that process is there."""
    status = _read_status(directories)
    if status is None:
        return None
    return status if status.state != "running" or os.path.exists(f"/proc/{status.process}") else None


def find_unfinished(directories: Directories) -> str | None:
    """When a run began that has no end on record; to be asked by the holder of the lock. ``None``: there is none."""
    status = _read_status(directories)
    return status.since if status and status.state == "running" else None


def _read_status(directories: Directories) -> Status | None:
    try:
        return decode(read_limited(directories.status, LARGEST), Status)
    except (OSError, ValueError):
        return None


def load_last_report(directories: Directories) -> Report | None:
    """The newest report; ``None`` when there is none. Raises ``OSError``, ``ValueError`` for what is no report."""
    try:
        return decode(read_limited(directories.last_run, _LARGEST_REPORT), Report)
    except FileNotFoundError:
        return None
