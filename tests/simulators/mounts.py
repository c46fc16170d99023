"""A simulated machine whose mounts behave like mount(8), umount(8) and systemd, below a directory.

``mountinfo`` and ``fstab`` are files. Each mount is a line of ``mountinfo``.
"""

import os
import re
from pathlib import Path

from puller.resources.kernel.fstab import decoded, encoded, parse
from puller.resources.kernel.mount_table import MountTable, of_kernel
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem

FIRST = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"


_FLAG = re.compile("ro|no(suid|exec|dev|atime|diratime)|relatime")


def _remounted(flags: tuple[str, ...], words: list[str]) -> list[str]:
    """Return the flags of a mount point after a remount."""
    shown = [word for word in words if _FLAG.fullmatch(word)]
    return [*dict.fromkeys(["ro" if "ro" in words else "rw", *(word for word in shown if word != "ro")])]


class MountingSystem(LocalSystem):
    """A system that records commands without options in ``ran``, and writes of fstab as ``fstab``."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.fstab, self.mountinfo = root / "fstab", root / "mountinfo"
        self.ran: list[str] = []
        self.busy: set[str] = set()
        """Points that cannot be unmounted."""
        self.stuck: set[str] = set()
        """Points whose mount exceeds the timeout."""
        self.without: set[str] = set()
        """Missing programs."""
        self.dies_after = -1

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        program, *remainder = command.arguments
        if program in self.without:
            raise FileNotFoundError(2, "no executable")
        if program not in ("mount", "umount", "systemctl"):
            self._act(Path(program).name)
            return Completed(0, None, False, "", "", 0)
        assert command.timeout == 60
        assert not command.input
        assert command.environment == {"LC_ALL": "C.UTF-8"}
        if program == "systemctl":
            self._act("daemon-reload")
            return Completed(0, None, False, "", "", 0)
        options, operands = remainder[: remainder.index("--")], remainder[remainder.index("--") + 1 :]
        point, words = operands[-1], options[-1].split(",") if options else []
        remounts = "remount" in words
        self._act(f"{self._name_of(program, options, words)} {Path(point).name}")
        if point in self.stuck:
            return Completed(None, None, True, "", "", 60)
        real = os.path.realpath(point)
        if program == "umount":
            output = self._unmount(real)
        elif remounts:
            output = self._remount(real, words)
        elif options:  # All arguments are explicit, and fstab is not read.
            self.add(100 + len(self.ran), operands[0], real, options[1], (*words,))
            output = ""
        else:
            output = self._mount(point, real)
        return Completed(
            32 if output else 0, None, False, "", f"{program}: {point}: {output}." if output else "", 0
        )

    def replace_file(self, path: str, *arguments: object, **options: object) -> None:
        self._act(Path(path).name)
        super().replace_file(path, *arguments, **options)  # type: ignore[arg-type]

    def make_directory(self, path: str, *arguments: object, **options: object) -> None:
        self._act("directory")
        super().make_directory(path, *arguments, **options)  # type: ignore[arg-type]

    def _act(self, what: str) -> None:
        if self.dies_after == len(self.ran):
            raise KeyboardInterrupt
        self.ran.append(what)

    def _name_of(self, program: str, options: list[str], words: list[str]) -> str:
        if options and options[0].startswith("--make-"):
            return options[0].removeprefix("--")
        return ("remount bind" if "bind" in words else "remount") if "remount" in words else program

    def _remount(self, point: str, words: list[str]) -> str:
        """Change a mount point and, without ``bind``, all mounts of its file system (mount(2))."""
        if "wrong" in words:
            return "wrong fs type, bad option, bad superblock"
        mount = MountTable(self.mountinfo.read_text()).at(point)[-1]
        own, of_all = _remounted(mount.options, words), mount.of_all
        if "bind" not in words:
            keys = {word.partition("=")[0] for word in words}
            retained = [item for item in of_all if item.partition("=")[0] not in {*keys, "ro", "rw"}]
            access = "ro" if "ro" in words else "rw"
            of_all = (access, *retained, *(word for word in words if "=" in word))
        lines = []
        for line in self.mountinfo.read_text().splitlines():
            fields = line.split(" ")
            if fields[2] == mount.device:
                fields[-1] = ",".join(of_all)
            if int(fields[0]) == mount.number:
                fields[5] = ",".join(own)
            lines.append(" ".join(fields))
        self.mountinfo.write_text("\n".join(lines) + "\n")
        return ""

    def _unmount(self, point: str) -> str:
        lines = self.mountinfo.read_text().splitlines(keepends=True)
        own = [index for index, line in enumerate(lines) if decoded(line.split(" ")[4]) == point]
        if not own:
            return "not mounted"
        below = any(decoded(line.split(" ")[4]).startswith(f"{point}/") for line in lines)
        if point in self.busy or (below and len(own) == 1):
            return "target is busy"
        del lines[own[-1]]
        self.mountinfo.write_text("".join(lines))
        return ""

    def _mount(self, point: str, real: str) -> str:
        entries = parse(self.fstab.read_text() if self.fstab.exists() else "").get(point)
        if not entries:
            return "can't find in /etc/fstab"
        if not os.path.isdir(point):
            return "mount point does not exist"
        desired = entries[-1].fields
        if "broken" in desired.device or "wrong" in desired.options:
            return "wrong fs type, bad option, bad superblock"
        if "missing" in desired.device and "nofail" in desired.options:
            return ""
        self.add(100 + len(self.ran), desired.device, real, desired.type, desired.options)
        return ""

    def add(self, number: int, device: str, point: str, kind: str, options: tuple[str, ...]) -> None:
        """Add a mount."""
        table = MountTable(self.mountinfo.read_text())
        parent, root = table.holding(point), "/"
        assert parent is not None
        major_minor = f"0:{number}"
        if "bind" in options:
            held = table.holding(device)
            assert held is not None
            kind, source, major_minor, root = held.type, held.source, held.device, device
        else:
            source = device
        shown = [item for item in of_kernel(options) if _FLAG.fullmatch(item)]
        values = [item for item in of_kernel(options) if "=" in item]
        own, of_all = ",".join(shown or ["rw"]), ",".join(["rw", *values])
        if "ro" in shown and "bind" not in options:
            of_all = ",".join(["ro", *values])
        if same := [mount for mount in table.mounts if mount.device == major_minor]:
            of_all = ",".join(same[0].of_all)
        fields = (number, parent.number, major_minor, encoded(root), encoded(point), own)
        line = " ".join(map(str, (*fields, "-", kind, encoded(source), of_all)))
        self.mountinfo.write_text(self.mountinfo.read_text() + line + "\n")
