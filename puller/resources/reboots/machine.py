"""The machine as a reboot sees it: its boot, the reasons to restart it, and the command that does.

* A reason has a key. Two reasons with one key are the same reason, also before and after a boot.
* Package managers are never interrupted: neither while they hold their lock, nor after an unfinished installation.
* In a container, the kernel belongs to another machine and is no reason.
* All paths are below ``root``, so that tests can describe a machine by files.
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.system.commands import SEARCH_PATH, Command, Completed, run
from puller.system.processes import find_holder
from puller.values.foreign_text import visible_line

_LARGEST = 64 * 1024  # bytes of a file about packages
_MOST_PACKAGES = 5
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_LOCALE = {"LC_ALL": "C.UTF-8"}
_QUERY_TIMEOUT = 120.0  # seconds; needs-restarting reads the database of all packages
_LOCKS = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/rpm/.rpm.lock",
    "usr/lib/sysimage/rpm/.rpm.lock",
)
_DPKG = "var/lib/dpkg/status"
_REQUIRED = "Reboot is required"
"""The words of needs-restarting(1). Without the plugin, dnf has the same exit status for another reason."""
_FLAVOUR = re.compile(r"(?:[-+][a-z][a-z0-9_]*)+$")
_DEBIAN_REVISION = re.compile(r"\+deb\d+\w*")


class Reason(msgspec.Struct, frozen=True):
    """Why the machine must be restarted."""

    key: str
    text: str
    """For people."""


class Scheduled(msgspec.Struct, frozen=True):
    """A shutdown that systemd has scheduled."""

    at: datetime
    mode: str
    """``reboot``, ``poweroff`` or ``halt``."""


class Machine(msgspec.Struct, frozen=True):
    """The machine below ``root``, which runs commands by ``execute``."""

    root: Path = Path("/")
    execute: Callable[[Command], Completed] = run
    user: int = msgspec.field(default_factory=os.geteuid)

    # The boot

    @property
    def boot(self) -> str:
        """The identity of this boot. Raise ``OSError``."""
        return (self.root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def booted_at(self, now: datetime) -> datetime:
        """Return the time of the boot: the start of the first process, also in a container. Raise ``OSError``."""
        up = float((self.root / "proc/uptime").read_text(encoding="ascii").split()[0])
        # The name of the process is in parentheses, and may contain blanks.
        fields = (self.root / "proc/1/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        started = int(fields.split()[19]) / os.sysconf("SC_CLK_TCK")
        return now - timedelta(seconds=max(0.0, up - started))

    @property
    def is_container(self) -> bool:
        """Whether systemd runs in a container."""
        return (self.root / "run/systemd/container").exists()

    def require_reboots(self) -> None:
        """Raise ``ResourceError`` if this machine cannot be restarted from here."""
        if self.user != 0:
            raise ResourceError("a reboot takes root", code=ProblemCode.REQUIRES_ROOT)
        if not (self.root / "run/systemd/system").is_dir():
            raise ResourceError(
                "this machine cannot be restarted, because systemd is not its init system",
                code=ProblemCode.CHANGE_REFUSED,
                hint="leave the resource out here, such as in a container, with `control: {if: …}`",
            )

    # The reasons

    def reasons(self) -> list[Reason]:
        """Return the reasons of ``when: required``. Raise ``OSError`` and ``ResourceError``."""
        return [*self._of_marker(), *self._of_packages(), *self._of_kernel()]

    def _of_marker(self) -> Iterator[Reason]:
        """Packages of Debian create the file, and list their names beside it."""
        if not (self.root / "run/reboot-required").exists():
            return
        text = _beginning(self.root / "run/reboot-required.pkgs")
        names = list(dict.fromkeys(line for line in text.splitlines() if _PACKAGE.fullmatch(line)))
        yield Reason(f"marker {' '.join(sorted(names))}", f"/run/reboot-required{_in_brackets(names)}")

    def _of_packages(self) -> Iterator[Reason]:
        """Query needs-restarting(1) on systems with dnf. Without the tool, the state is unknown."""
        if (self.root / _DPKG).exists():
            return
        if self._has("needs-restarting"):
            words = ["needs-restarting", "-r"]
        elif self._has("dnf"):
            words = ["dnf", "needs-restarting", "-r"]
        else:
            return
        completed = self.execute(Command(words, _LOCALE, timeout=_QUERY_TIMEOUT))
        if completed.exit_code == 1 and _REQUIRED in completed.stdout:
            lines = [line.strip(" *") for line in completed.stdout.splitlines() if line.startswith("  *")]
            names = [name for name in map(visible_line, lines) if name]
            yield Reason(f"packages {' '.join(sorted(names))}", f"updated packages{_in_brackets(names)}")
        elif completed.exit_code != 0:
            raise ResourceError(
                f"{' '.join(words)}: {completed.outcome}: {visible_line(completed.tail(2))}",
                code=ProblemCode.MISSING_DEPENDENCY,
                hint="install dnf-utils, or the package of the dnf plugin needs-restarting",
            )

    def _has(self, program: str) -> bool:
        if self.root == Path("/"):
            import shutil  # 1 % of an idle run, which looks for no reason

            return shutil.which(program, path=SEARCH_PATH) is not None
        return (self.root / "usr/bin" / program).exists()

    def _of_kernel(self) -> Iterator[Reason]:
        if self.is_container:
            return
        running = (self.root / "proc/sys/kernel/osrelease").read_text(encoding="ascii").strip()
        flavour = _flavour(running)
        installed = [name for name in self._kernels() if _flavour(name) == flavour]
        newest = max(installed, key=_version_key, default=running)
        if _version_key(newest) > _version_key(running):
            yield Reason(f"kernel {newest}", f"kernel {newest} is installed, and {running} is running")

    def _kernels(self) -> Iterator[str]:
        """Yield the installed kernels. A removed kernel may leave its directory of modules."""
        try:
            names = os.listdir(self.root / "lib/modules")
        except FileNotFoundError:  # a virtual machine may boot a kernel of its host
            return
        for name in names:
            images = (self.root / f"boot/vmlinuz-{name}", self.root / "lib/modules" / name / "vmlinuz")
            if _PACKAGE.fullmatch(name) and any(image.exists() for image in images):
                yield name

    # Obstacles

    def find_obstacle(self) -> str:
        """Return the work that a restart would interrupt. Usually empty. Raise ``OSError`` and ``ResourceError``."""
        for name in _LOCKS:
            try:
                descriptor = os.open(self.root / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                holder = find_holder(descriptor)
            finally:
                os.close(descriptor)
            if holder is not None:
                return f"for the package manager: /{name} is locked by {holder}"
        if (self.root / _DPKG).exists():
            completed = self.execute(Command(["dpkg", "--audit"], _LOCALE))
            if completed.exit_code != 0:
                raise ResourceError(f"dpkg --audit: {completed.outcome}: {visible_line(completed.tail(2))}")
            if completed.stdout.strip():
                return "for unfinished installations, which `dpkg --audit` lists"
        return ""

    # The restart

    def find_scheduled(self) -> Scheduled | None:
        """Return the shutdown that systemd has scheduled. Raise ``OSError``."""
        try:
            text = (self.root / "run/systemd/shutdown/scheduled").read_text(
                encoding="utf-8", errors="replace"
            )
        except FileNotFoundError:
            return None
        fields = dict(line.partition("=")[::2] for line in text.splitlines())
        microseconds = fields.get("USEC", "")
        if not microseconds.isascii() or not microseconds.isdecimal() or len(microseconds) > 17:
            return None
        return Scheduled(datetime.fromtimestamp(int(microseconds) / 1e6, UTC), fields.get("MODE", ""))

    def restart(self, at: datetime, now: datetime, message: str) -> None:
        """Let systemd restart the machine ``at`` a time, with a warning. Raise ``OSError`` and ``ResourceError``."""
        minutes = max(0, math.ceil((at - now).total_seconds() / 60))
        self._shutdown("-r", f"+{minutes}" if minutes else "now", *([message] if message else []))

    def cancel(self) -> None:
        """Cancel the scheduled shutdown. Raise ``OSError`` and ``ResourceError``."""
        self._shutdown("-c")

    def _shutdown(self, *arguments: str) -> None:
        completed = self.execute(Command(["shutdown", *arguments], _LOCALE, timeout=_QUERY_TIMEOUT))
        if completed.exit_code != 0:
            printed = visible_line(completed.tail(2))
            raise ResourceError(
                f"shutdown {arguments[0]}: {completed.outcome}{f': {printed}' if printed else ''}"
            )


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _in_brackets(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_PACKAGES} more" if len(names) > _MOST_PACKAGES else ""
    return f" ({', '.join(names[:_MOST_PACKAGES])}{more})"


def _flavour(release: str) -> str:
    """Return the kind of a kernel, such as ``-rt-amd64``. Kernels of two kinds do not replace each other."""
    match = _FLAVOUR.search(_DEBIAN_REVISION.sub("", release))
    return match.group() if match else ""


def _version_key(release: str) -> list[tuple[int, int, str]]:
    """Return the sorting key of the release of a kernel. A release candidate comes before its release."""
    parts = re.findall(r"[0-9]+|[a-z]+", release)
    return [(2, int(part), "") if part.isdecimal() else (int(part != "rc"), 0, part) for part in parts]
