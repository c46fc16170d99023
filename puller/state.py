"""Files of Puller below the state directory: their directories, default paths, damaged files, and the lock of a run.

* Only one run at a time uses the state. The lock ends with the process of its holder.
* The agent of the machine uses /etc/puller, /var/lib/puller and /run/puller. The agent of an ordinary user
  (``--as-user``) uses the paths of the XDG base directory specification.

JSON files have the same handling of damage:

* A document is written as a whole, by the atomic write of ``bundles.filesystem.atomic``, readable only by its owner.
* A document is missing only if the system reports *not found*. A damaged file (truncated, garbage, a link, a
  directory, another user's, too large) is set aside under a new name, with a warning that states the consequences. A
  run that can continue without it continues.
* A disk that cannot be read raises ``OSError``, since the state of the document is unknown.
"""

import contextlib
import errno
import fcntl
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from bundles.filesystem.atomic import forget_oldest, write_file
from puller.errors import BusyError, ConfigurationError, file_problem
from puller.version import __version__

# Decoding of JSON that Puller has written.

_Value = TypeVar("_Value")


def decode(data: bytes, kind: type[_Value]) -> _Value:
    """Return the decoded JSON document. Endless brackets are invalid, like any other damage.

    A document of another format, perhaps of a later Puller, is rejected with a message about its format. Raise
    ``msgspec.DecodeError``, which is a ``ValueError``.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("is nested too deeply") from None
    except msgspec.ValidationError as error:
        if "`$.format`" not in str(error):
            raise
        result = msgspec.json.decode(data, type=_Versioned).format
        raise msgspec.DecodeError(f"has format {result}, which Puller {__version__} cannot read") from None


class _Versioned(msgspec.Struct):
    format: object = None


LARGEST = 4 * 1024 * 1024
"""Bytes. Only the records of all resources can come close to it."""
_PIECE = 4 * 1024 * 1024  # bytes

_Document = TypeVar("_Document")


class StateFile(Generic[_Document]):
    """The document of type ``kind`` at ``path``. ``loss`` ends the warning about a damaged document."""

    def __init__(self, path: Path, kind: type[_Document], loss: str, *, largest: int = LARGEST) -> None:
        """``largest`` is the maximum number of bytes to read."""
        self.path = path
        self._largest = largest
        self._kind = kind
        self._loss = loss

    def load(self, warn: Callable[[str], None], *, noop: bool = False) -> _Document | None:
        """Return the saved document. ``None`` if it is missing or damaged. ``warn`` receives the damage.

        With ``noop`` nothing is changed, for a dry run. Raise ``OSError``.
        """
        try:
            return self.read()
        except ValueError as error:
            aside = "left as it is" if noop else f"set aside as {set_aside(self.path)}"
            warn(f"{self.path}: {error}, {aside}, and {self._loss}")
            return None

    def read(self) -> _Document | None:
        """Return the saved document, ``None`` if it is missing. For documents that a run requires.

        Raise ``ValueError`` for a damaged document, and ``OSError``.
        """
        try:
            return decode(read_state(self.path, self._largest), self._kind)
        except FileNotFoundError:
            return None

    def save(self, document: _Document) -> None:
        """Replace the document durably. Raise ``OSError``.

        1. Create the directory, readable only by the owner.
        2. Encode the whole document in memory. An encoding error leaves the old document unchanged.
        3. Write atomically: temporary file in the same directory, contents, mode, fsync, rename, fsync of the directory
           (``bundles.filesystem.atomic.replace_file``).
        4. If a directory is in its place, which rename cannot replace, set it aside and repeat step 3.
        """
        # 1. Directory
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # 2. Document
        data = msgspec.json.format(msgspec.json.encode(document)) + b"\n"
        # 3. and 4.
        write_state(self.path, data)

    def remove(self) -> None:
        """Remove the document, if it exists. Raise ``OSError``."""
        self.path.unlink(missing_ok=True)


def write_state(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace a state file: steps 3 and 4 of ``StateFile.save``. Raise ``OSError``."""
    # 3. Write
    try:
        write_file(path, data, mode=mode, durable=durable)
    # 4. Directory in its place
    except IsADirectoryError:
        set_aside(path)
        write_file(path, data, mode=mode, durable=durable)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to an unused name. Raise ``OSError``."""
    aside = next(candidate for candidate in _names_aside(path) if not os.path.lexists(candidate))
    os.rename(path, aside)
    # Damage in every run would otherwise fill the disk.
    forget_oldest(path.parent, f"{path.name}.unreadable")
    return aside


def read_state(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a state file. Raise ``ValueError`` for any other kind of file, and ``OSError``."""
    # Never follow links, and never block: another user may hold the other end of a FIFO.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("is a symbolic link") from None
        if error.errno == errno.ENXIO:
            raise ValueError("is a socket") from None
        raise
    try:
        # Check the open file, because its path may have changed.
        _check(os.fstat(descriptor))
        data = bytearray()
        while len(data) <= largest and (piece := os.read(descriptor, _PIECE)):
            data += piece
    finally:
        os.close(descriptor)
    if len(data) > largest:
        raise ValueError(f"has more than {largest} bytes")
    return bytes(data)


def _check(status: os.stat_result) -> None:
    """Raise ``ValueError`` unless only this user or root can have written the file."""
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise ValueError(f"belongs to user {status.st_uid}")
    if status.st_mode & 0o022:
        raise ValueError(f"is writable by others: its mode is {stat.S_IMODE(status.st_mode):04o}")


def _names_aside(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.unreadable")
    number = 2
    while True:
        yield path.with_name(f"{path.name}.unreadable-{number}")
        number += 1


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
