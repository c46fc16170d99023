"""The directories of this machine's state, their files outside of bundles, their default paths, and the lock of a run.

* Only one run at a time uses the state. The lock ends with the process of its holder.
* ``puller.state.state_file`` handles damaged files.
* The agent of the machine uses /etc/puller, /var/lib/puller and /run/puller. The agent of an ordinary user
  (``--as-user``) uses the paths of the XDG base directory specification.
"""

import contextlib
import fcntl
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from puller.errors import BusyError, ConfigurationError, file_problem
from puller.state.state_file import set_aside

DEFAULT_CONFIGURATION: Final = "/etc/puller/config.yaml"
PRIVATE_KEY: Final = "/etc/puller/keys/private_key.pkcs7.pem"
"""The default path of a host's key for encrypted values of eyaml."""
IDENTITIES: Final = ("/etc/puller/keys/age.txt", "/etc/ssh/ssh_host_ed25519_key")
"""The default paths of a host's keys for files that SOPS encrypted."""


class UserConfigurationFile(str):
    """The path of a configuration that is read for the agent of an ordinary user."""

    __slots__ = ()


def configuration_file(path: str | None, *, as_user: bool) -> str:
    """Return the configuration of a command line: its argument, or the default of the machine or user."""
    if not as_user:
        return path or DEFAULT_CONFIGURATION
    return UserConfigurationFile(path or os.path.join(users_configuration(), "config.yaml"))


def users_configuration() -> str:
    """Return the configuration directory of the running user."""
    return _below("XDG_CONFIG_HOME", ".config")


def places_of_data(*, as_user: bool) -> tuple[str, str]:
    """Return the default file and directory of a host's own data."""
    directory = users_configuration() if as_user else os.path.dirname(DEFAULT_CONFIGURATION)
    return os.path.join(directory, "data.yaml"), os.path.join(directory, "data.d")


def users_private_key() -> str:
    """Return the path of the running user's key for encrypted values."""
    return os.path.join(users_configuration(), "keys/private_key.pkcs7.pem")


def users_identities() -> tuple[str, ...]:
    """Return the paths of the running user's keys for files that SOPS encrypted."""
    return (os.path.join(users_configuration(), "keys/age.txt"),)


def users_facts() -> str:
    """Return the directory of the running user's custom facts."""
    return os.path.join(users_configuration(), "facts.d")


def users_state() -> str:
    """Return the state directory of the running user."""
    return _below("XDG_STATE_HOME", ".local/state")


def users_run() -> str:
    """Return the runtime directory of the login, or a directory in the state if there is none.

    Commands of cron and ``su`` lack the variable, so ``/run/user`` is the fallback: all processes must use the same
    lock.
    """
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    for directory in (named, f"/run/user/{os.geteuid()}"):
        if os.path.isabs(directory) and os.path.isdir(directory) and os.access(directory, os.W_OK):
            return os.path.join(directory, "puller")
    return os.path.join(users_state(), "run")


def _below(variable: str, usual: str) -> str:
    """Return a directory of Puller. The specification ignores variables with relative paths."""
    directory = os.environ.get(variable, "")
    return os.path.join(directory if os.path.isabs(directory) else os.path.join(_home(), usual), "puller")


def _home() -> str:
    home = os.environ.get("HOME", "")
    if os.path.isabs(home):
        return home

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


_ROOT_STATE = Path("/var/lib/puller")
_ROOT_RUN = Path("/run/puller")


class Directories(msgspec.Struct, frozen=True):
    """The two directories that Puller writes to."""

    state: Path
    """Persistent."""
    run: Path
    """Removed by a reboot."""

    @classmethod
    def of_user(cls) -> "Directories":
        """Return the directories of commands without a configuration: of the system for root, otherwise of the user."""
        if os.geteuid() == 0:
            return cls(_ROOT_STATE, _ROOT_RUN)
        return cls(Path(users_state()), Path(users_run()))

    @property
    def trust(self) -> Path:
        """Verified metadata."""
        return self.state / "trust"

    @property
    def downloads(self) -> Path:
        """Archives during the download."""
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
        """Refreshes that subscribers still need."""
        return self.state / "owed.json"

    @property
    def journal(self) -> Path:
        """New bundles that are on trial."""
        return self.state / "journal.json"

    @property
    def managed(self) -> Path:
        """The resources that bundles have managed on this host."""
        return self.state / "managed.json"

    @property
    def makings(self) -> Path:
        """Resources that the current run has created and that are not in ``managed`` yet."""
        return self.state / "managed.journal"

    @property
    def reboots(self) -> Path:
        """Pending reboots and their reasons."""
        return self.state / "reboots.json"

    @property
    def commands(self) -> Path:
        """The commands with ``once`` that have succeeded."""
        return self.state / "commands.json"

    @property
    def used_facts(self) -> Path:
        """The facts that the last complete run of the bundles has read. Only on hosts that send reports."""
        return self.state / "used-facts.json"

    @property
    def restless(self) -> Path:
        """The resources that change in each run."""
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
        """Copies of objects that bundles on trial have replaced."""
        return self.state / "trials"

    @property
    def quarantine(self) -> Path:
        """Bundles that are not tried again."""
        return self.state / "quarantine.json"

    @property
    def pins(self) -> Path:
        """Versions at which the operator holds bundles."""
        return self.state / "pins.json"

    @property
    def disabled(self) -> Path:
        """The operator's request to apply nothing, with its reason."""
        return self.state / "disabled.json"

    @property
    def status(self) -> Path:
        """The current state of the agent."""
        return self.run / "status.json"

    @property
    def unkept_report(self) -> Path:
        """The end of the last run, if its report could not be kept in the state directory."""
        return self.run / "last-run.json"

    @property
    def fetching(self) -> Path:
        """The current transfer."""
        return self.run / "fetching.json"

    @property
    def archives(self) -> Path:
        """Receipts of extracted archives."""
        return self.state / "archives"

    def make(self) -> list[str]:
        """Create missing directories, readable only by the owner. Set aside other files at their paths.

        Return a sentence about each such file. Raise ``OSError``.
        """
        reports = (self.runs, self.in_order)
        places = (self.bundles, *reports, self.trust, self.data, self.downloads, self.archives, self.trials)
        wrong = [path for path in places if os.path.lexists(path) and not path.is_dir()]
        notes = [f"{path}: is not a directory, set aside as {set_aside(path)}" for path in wrong]
        for directory in (self.state, self.bundles, self.runs, self.trust):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.run.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._forget_downloads()
        return notes

    def _forget_downloads(self) -> None:
        """Remove archives that a killed run has left behind. A run itself removes its unpacked archives.

        Partial downloads stay, because the next download resumes them.
        """
        with contextlib.suppress(OSError):
            for name in os.listdir(self.downloads):
                if name.endswith(".tar.gz"):
                    (self.downloads / name).unlink()


_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextlib.contextmanager
def only_run(directory: Path) -> Iterator[None]:
    """Hold the lock in ``directory`` during the block.

    Raise ``BusyError`` at once if another process holds it, ``ConfigurationError`` if it cannot be created. Child
    processes do not inherit the descriptor, so they cannot keep the lock.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", _OPEN, 0o600)
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be opened", where=directory / "lock")) from error
    try:
        _require_plain(descriptor, directory / "lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            by = f" (process {holder})" if (holder.isascii() and holder.isdecimal()) else ""
            raise BusyError(f"{directory}/lock: another run is active{by}, so nothing was done") from None
        with contextlib.suppress(OSError):  # only informs people about the holder
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _require_plain(descriptor: int, path: Path) -> None:
    """Raise ``ConfigurationError`` for a lock with several links: writing to it could change another user's file."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(f"{path}: is not a regular file", hint="remove it while no run is active")
    if status.st_nlink != 1:
        raise ConfigurationError(
            f"{path}: has {status.st_nlink} names", hint="remove it while no run is active"
        )
