"""Files as they are to lie in a root directory, for any kind of package.

* Owners are never of the person who builds: archives are written with root as the owner of everything.
* Times are those of the commit, modes are those given here, and names are sorted where an archive is written.
"""

import gzip
import os
import shutil
from pathlib import Path

from steps.agent import LIBRARIES, Agent
from steps.launcher import script

COMMAND = "/usr/bin/puller"
_ON_DEMAND = ("puller-tight.", "puller-user.")
"""Files of systemd/ that are in force only where somebody asks for them."""
_SAMPLE = "etc/puller/config.yaml.sample"
_USERS = 'u _puller - "Processes of Puller that speak to the network"\n'
CONFIGURATION_FILES = (f"/{_SAMPLE}",)
"""What an operator may change, and an upgrade keeps then."""


class Stage:
    """A root directory that is filled; paths have no leading slash."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Make a directory, with those above it."""
        (self.root / path).mkdir(parents=True, exist_ok=True)
        (self.root / path).chmod(mode)

    def file(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file."""
        self.directory(os.path.dirname(path))
        target = self.root / path
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def packed(self, path: str, content: str) -> None:
        """Write a file as gzip: always the same bytes, as small as can be."""
        self.file(path, gzip.compress(content.encode(), compresslevel=9, mtime=0))

    def size(self) -> int:
        """Of all files, in KiB, as dpkg counts it: each file in whole KiB, and one for each directory and link."""
        sizes = ((path, path.lstat()) for path in self.root.rglob("*"))
        return sum(
            -(-found.st_size // 1024) if path.is_file() and not path.is_symlink() else 1
            for path, found in sizes
        )

    def date(self, epoch: int) -> None:
        """Give everything the same time, in seconds since 1970."""
        for path in (self.root, *self.root.rglob("*")):
            os.utime(path, (epoch, epoch), follow_symlinks=False)


def stage_host_files(agent: Agent, root: Path, *, units: str, zsh: str, compiled: bool) -> Stage:
    """What every package puts on a host: the version, the command, units, tmpfiles, the sample, man pages, completions.

    ``units`` and ``zsh`` are the directories of units and of functions of zsh. ``compiled``: with byte code, where the
    package manager does not make it on the host.
    """
    stage = Stage(root)
    stage_manual(agent, stage, "usr/share/man")
    places = {
        "bash": "usr/share/bash-completion/completions/puller",
        "zsh": f"{zsh}/_puller",
        "fish": "usr/share/fish/vendor_completions.d/puller.fish",
    }
    for shell, place in places.items():
        stage.file(place, (agent.work / "completions" / shell).read_bytes())
    stage_version(agent, stage, f"{LIBRARIES}/package", compiled=compiled)
    stage.file(f"{LIBRARIES}/brought", f"1 {agent.source.version}\n")
    stage.file(f"{LIBRARIES}/arrange", script(agent.source.directory, "arrange"), 0o755)
    stage.file(COMMAND.lstrip("/"), script(agent.source.directory, "puller"), 0o755)
    for path in sorted((agent.source.directory / "systemd").iterdir()):
        if path.name.startswith(_ON_DEMAND):
            continue  # `puller install-units` has them from the version's own copy
        text = path.read_text(encoding="utf-8").replace("@PULLER@", COMMAND)
        is_unit = path.suffix in {".service", ".timer"}
        stage.file(f"{units}/{path.name}" if is_unit else "usr/lib/tmpfiles.d/puller.conf", text)
    stage.file("usr/lib/sysusers.d/puller.conf", _USERS)
    stage.file(_SAMPLE, (agent.packages / "puller/config/samples/config.yaml").read_bytes())
    return stage


def stage_manual(agent: Agent, stage: Stage, path: str) -> None:
    """The man pages."""
    shutil.copytree(agent.work / "manual/usr/share/man", stage.root / path)


def stage_version(agent: Agent, stage: Stage, path: str, *, compiled: bool) -> None:
    """The directory of the version. Its byte code is never compared with the sources, as both come in one package."""
    stage.directory(os.path.dirname(path))
    shutil.copytree(agent.directory, stage.root / path, symlinks=True)
    if compiled:
        directory = agent.inside(stage.root / path)
        modes = ("--invalidation-mode", "unchecked-hash", "-q", "-s", agent.inside(stage.root), "-p", "/")
        agent.run(f"python{agent.python}", "-I", "-m", "compileall", *modes, directory)
