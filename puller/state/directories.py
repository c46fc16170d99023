"""Where this machine's state is kept, and the files of it that are not the bundles' own.

How damage to one of them is answered is in ``puller.state.state_file``.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from puller.state.default_paths import users_run, users_state
from puller.state.state_file import set_aside

_ROOT_STATE = Path("/var/lib/puller")
_ROOT_RUN = Path("/run/puller")


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
        return cls(Path(users_state()), Path(users_run()))

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
    def in_order(self) -> Path:
        """Lists of resources that were in order, which reports name."""
        return self.state / "runs" / "in-order"

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
    def managed(self) -> Path:
        """The resources that bundles have managed here."""
        return self.state / "managed.json"

    @property
    def makings(self) -> Path:
        """Resources that the run at work makes, and that are not in ``managed`` yet."""
        return self.state / "managed.journal"

    @property
    def restless(self) -> Path:
        """The resources that change in run after run."""
        return self.state / "restless.json"

    @property
    def exports(self) -> Path:
        """The values that bundles export to the fleet."""
        return self.state / "exports.json"

    @property
    def spool(self) -> Path:
        """Reports that wait to be sent."""
        return self.state / "spool"

    @property
    def template_cache(self) -> Path:
        """Code that Jinja2 has compiled from templates."""
        return self.state / "template-cache"

    @property
    def trials(self) -> Path:
        """Copies of what bundles on trial have replaced."""
        return self.state / "trials"

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
        """The operator's word that nothing is applied for now, and why."""
        return self.state / "disabled.json"

    @property
    def status(self) -> Path:
        """The state of the agent right now."""
        return self.run / "status.json"

    @property
    def unkept_report(self) -> Path:
        """The end of the last run, if its report could not be kept in the state directory."""
        return self.run / "last-run.json"

    @property
    def fetching(self) -> Path:
        """The transfer that the run at work is at."""
        return self.run / "fetching.json"

    @property
    def archives(self) -> Path:
        """Receipts of extracted archives."""
        return self.state / "archives"

    def make(self) -> list[str]:
        """Make what is missing, readable by the owner alone, and set aside what is in the place of a directory.

        Gives a sentence about each such thing. Raises ``OSError``.
        """
        reports = (self.runs, self.in_order)
        places = (self.bundles, *reports, self.trust, self.data, self.downloads, self.archives, self.trials)
        wrong = [path for path in places if os.path.lexists(path) and not path.is_dir()]
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
            for name in os.listdir(self.downloads):
                if name.endswith(".tar.gz"):
                    (self.downloads / name).unlink()
