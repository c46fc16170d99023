"""Build of a package for the Red Hat family: ``packaging/rpm/puller.spec`` filled in, and ``rpmbuild``."""

import shutil
from pathlib import Path

from steps.agent import LIBRARIES, Agent
from steps.failure import BuildFailed
from steps.placeholders import fill
from steps.staging import stage_host_files

_UNITS = "usr/lib/systemd/system"
_ZSH = "usr/share/zsh/site-functions"
_GLIBC = (2, 34)
"""Version in Red Hat Enterprise Linux 9, the oldest release with the Python versions of the packages."""


def build(agent: Agent, work: Path) -> Path:
    """Build the package in a new directory, and return its path. Raises ``BuildFailed``."""
    if agent.glibc > _GLIBC:
        raise BuildFailed(
            f"rpm: a locked dependency needs glibc {agent.glibc}, and the oldest system has {_GLIBC}"
        )
    architecture = agent.run("uname", "-m").strip()
    stage = stage_host_files(agent, work / "root", units=_UNITS, zsh=_ZSH, compiled=True)
    stage.file("usr/share/doc/puller/LICENSE", (agent.source.directory / "LICENSE").read_bytes())
    stage.file("usr/share/doc/puller/CHANGELOG.md", (agent.source.directory / "CHANGELOG.md").read_bytes())
    stage.date(agent.source.epoch)
    values = {
        "VERSION": agent.source.version,
        "PYTHON": agent.python,
        "ARCHITECTURE": architecture,
        "STAGE": agent.inside(stage.root),
        "LIBRARIES": LIBRARIES,
    }
    specification = work / "puller.spec"
    specification.write_text(
        fill(agent.source.directory / "packaging/rpm/puller.spec", values), encoding="utf-8"
    )
    fixed = {
        "_topdir": agent.inside(work / "rpmbuild"),
        "_buildhost": "packaging",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
        "_binary_payload": "w9.zstdio",
    }
    defines = [f"--define={name} {value}" for name, value in fixed.items()]
    agent.run("rpmbuild", "-bb", "--quiet", f"--target={architecture}", *defines, agent.inside(specification))
    (built,) = (work / "rpmbuild/RPMS").rglob("*.rpm")
    package = work / built.name
    shutil.move(built, package)
    return package
