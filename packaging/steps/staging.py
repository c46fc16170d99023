"""Files of packages in a root directory, independent of the package format.

* Archives are written with root as the owner of everything.
* Times are the time of the commit, modes are set explicitly, and archives contain names in sorted order.
"""

import gzip
import os
import shutil
from pathlib import Path

from steps.additions import Addition
from steps.agent import LIBRARIES, Agent, copy_modules
from steps.failure import BuildFailed
from steps.launcher import script

COMMAND = "/usr/bin/puller"
_ON_DEMAND = ("puller-tight.", "puller-user.")
"""Prefixes of files in systemd/ that are installed on request only."""
_SAMPLE = "etc/puller/config.yaml.sample"
_USERS = 'u _puller - "Processes of Puller that speak to the network"\n'
CONFIGURATION_FILES = (f"/{_SAMPLE}",)
"""Files that operators may change and upgrades keep."""


class Stage:
    """A root directory to fill. Paths have no leading slash."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Create a directory and its parents."""
        (self.root / path).mkdir(parents=True, exist_ok=True)
        (self.root / path).chmod(mode)

    def file(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file."""
        self.directory(os.path.dirname(path))
        target = self.root / path
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def packed(self, path: str, content: str) -> None:
        """Write a file with the best gzip compression, reproducibly."""
        self.file(path, gzip.compress(content.encode(), compresslevel=9, mtime=0))

    def size(self) -> int:
        """Return the size of all files in KiB, like dpkg: files in whole KiB, and 1 for each directory and link."""
        sizes = ((path, path.lstat()) for path in self.root.rglob("*"))
        return sum(
            -(-found.st_size // 1024) if path.is_file() and not path.is_symlink() else 1
            for path, found in sizes
        )

    def date(self, epoch: int) -> None:
        """Set the same time, in seconds since 1970, on everything."""
        for path in (self.root, *self.root.rglob("*")):
            os.utime(path, (epoch, epoch), follow_symlinks=False)


def stage_host_files(
    agent: Agent, root: Path, *, units: str, zsh: str, compiled: bool, manager: str
) -> Stage:
    """Fill a root directory with the files of every package.

    These are the version, the command, units, tmpfiles, the sample configuration, man pages and completions. ``units``
    and ``zsh`` are the directories of units and of zsh functions. ``compiled`` adds byte code, for package managers
    that do not create it on the host. ``manager`` is the command of the package manager, which Puller shows in messages
    about missing libraries.
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
    stage.file(f"{LIBRARIES}/package/package-manager", f"{manager}\n")
    stage.file(f"{LIBRARIES}/brought", f"1 {agent.source.version}\n")
    stage.file(f"{LIBRARIES}/arrange", script(agent.source.directory, "arrange"), 0o755)
    stage.file(COMMAND.lstrip("/"), script(agent.source.directory, "puller"), 0o755)
    for path in sorted((agent.source.directory / "systemd").iterdir()):
        if path.name.startswith(_ON_DEMAND):
            continue  # `puller install-units` uses the copy within the version
        text = path.read_text(encoding="utf-8").replace("@PULLER@", COMMAND)
        is_unit = path.suffix in {".service", ".timer"}
        stage.file(f"{units}/{path.name}" if is_unit else "usr/lib/tmpfiles.d/puller.conf", text)
    stage.file("usr/lib/sysusers.d/puller.conf", _USERS)
    stage.file(_SAMPLE, (agent.packages / "puller/config/samples/config.yaml").read_bytes())
    return stage


def stage_manual(agent: Agent, stage: Stage, path: str) -> None:
    """Add the man pages."""
    shutil.copytree(agent.work / "manual/usr/share/man", stage.root / path)


def stage_version(agent: Agent, stage: Stage, path: str, *, compiled: bool) -> None:
    """Add the directory of the version. Byte code is not compared with sources, as one package contains both."""
    stage.directory(os.path.dirname(path))
    shutil.copytree(agent.directory, stage.root / path, symlinks=True)
    if compiled:
        compile_modules(agent, stage, stage.root / path)


def stage_addition(agent: Agent, stage: Stage, addition: Addition) -> None:
    """Add the modules of an addition, with byte code. Raises ``BuildFailed``."""
    path = addition.directory(agent.python)
    stage.directory(os.path.dirname(path))
    copy_modules(agent.installed_addition(addition), stage.root / path)
    if addition.services:
        _keep_services(stage.root / path / "botocore/data", addition.services)
    compile_modules(agent, stage, stage.root / path)


def _keep_services(data: Path, services: tuple[str, ...]) -> None:
    """Remove the descriptions of other services. Files of the directory itself describe regions and retries."""
    if missing := set(services) - set(os.listdir(data)):
        raise BuildFailed(f"botocore has no description of {', '.join(sorted(missing))}")
    for path in list(data.iterdir()):
        if path.is_dir() and path.name not in services:
            shutil.rmtree(path)


def compile_modules(agent: Agent, stage: Stage, directory: Path) -> None:
    """Add the byte code of all modules in a directory of the stage. Raises ``BuildFailed``."""
    place = agent.inside(directory)
    modes = ("--invalidation-mode", "unchecked-hash", "-q", "-s", agent.inside(stage.root), "-p", "/")
    agent.run(f"python{agent.python}", "-I", "-m", "compileall", *modes, place)
