"""Build of packages for the Red Hat family: the specifications of ``packaging/rpm`` filled in, and ``rpmbuild``."""

import shutil
import textwrap
from pathlib import Path

from steps.additions import Addition
from steps.agent import LIBRARIES, Agent, oldest_glibc
from steps.failure import BuildFailed
from steps.placeholders import fill
from steps.staging import Stage, stage_addition, stage_host_files

_UNITS = "usr/lib/systemd/system"
_ZSH = "usr/share/zsh/site-functions"
_GLIBC = (2, 34)
"""Version in Red Hat Enterprise Linux 9, the oldest release with the Python versions of the packages."""


def build(agent: Agent, work: Path) -> Path:
    """Build the agent's package in a new directory, and return its path. Raises ``BuildFailed``."""
    _verify_glibc(agent.installed)
    stage = stage_host_files(agent, work / "root", units=_UNITS, zsh=_ZSH, compiled=True, manager="dnf")
    changelog = (agent.source.directory / "CHANGELOG.md").read_bytes()
    stage.file("usr/share/doc/puller/CHANGELOG.md", changelog)
    return _pack(agent, stage, "puller", {"LIBRARIES": LIBRARIES})


def build_addition(addition: Addition, agent: Agent, work: Path) -> Path:
    """Build the package of an addition in a new directory, and return its path. Raises ``BuildFailed``."""
    _verify_glibc(agent.installed_addition(addition))
    stage = Stage(work / "root")
    stage_addition(agent, stage, addition)
    values = {
        "SUMMARY": addition.summary.capitalize(),
        "DESCRIPTION": textwrap.fill(addition.description, 78),
        "ADDITION_LIBRARIES": " ".join(("puller", *addition.rpm_libraries.split())),
    }
    return _pack(agent, stage, addition.name, values)


def _verify_glibc(installed: Path) -> None:
    """Raise ``BuildFailed`` if modules need a newer glibc than the oldest system has."""
    if (needed := oldest_glibc(installed)) > _GLIBC:
        raise BuildFailed(
            f"rpm: a locked dependency needs glibc {needed}, and the oldest system has {_GLIBC}"
        )


def _pack(agent: Agent, stage: Stage, name: str, values: dict[str, str]) -> Path:
    work = stage.root.parent
    stage.file(f"usr/share/doc/{name}/LICENSE", (agent.source.directory / "LICENSE").read_bytes())
    stage.date(agent.source.epoch)
    architecture = agent.run("uname", "-m").strip()
    values = values | {
        "PACKAGE": name,
        "VERSION": agent.source.version,
        "PYTHON": agent.python,
        "ARCHITECTURE": architecture,
        "STAGE": agent.inside(stage.root),
    }
    template = "puller.spec" if name == "puller" else "addition.spec"
    specification = work / f"{name}.spec"
    text = fill(agent.source.directory / "packaging/rpm" / template, values)
    specification.write_text(text, encoding="utf-8")
    fixed = {
        "_topdir": agent.inside(work / "rpmbuild"),
        "_tmppath": agent.inside(work),
        "_buildhost": "packaging",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
        "_binary_payload": "w9.zstdio",
    }
    defines = [f"--define={key} {value}" for key, value in fixed.items()]
    agent.run("rpmbuild", "-bb", "--quiet", f"--target={architecture}", *defines, agent.inside(specification))
    (built,) = (work / "rpmbuild/RPMS").rglob("*.rpm")
    package = work / built.name
    shutil.move(built, package)
    return package
