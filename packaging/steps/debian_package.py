"""Build of a Debian package, which dpkg installs, upgrades, removes and purges.

Uses the files of ``packaging/debian`` with their placeholders (``@VERSION@``) filled in, and ``dpkg-deb`` in the tree.
Does not use debhelper, because everything that it detects is already known.
"""

import hashlib
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from steps.agent import LIBRARIES, Agent
from steps.licences import licences_of
from steps.placeholders import fill
from steps.staging import CONFIGURATION_FILES, Stage, stage_host_files

_SCRIPTS = ("postinst", "prerm", "postrm")
_DOCUMENTS = "usr/share/doc/puller"
_ZSH = "usr/share/zsh/vendor-completions"


def build(agent: Agent, work: Path) -> Path:
    """Build the package in a new directory, and return its path. Raises ``BuildFailed``."""
    release = agent.tree.release
    version = f"{agent.source.version}-1+deb{release.number}"
    architecture = agent.run("dpkg", "--print-architecture").strip()
    stage = stage_host_files(agent, work / "root", units=release.units, zsh=_ZSH, compiled=False)
    values = {
        "VERSION": version,
        "ARCHITECTURE": architecture,
        "PYTHON": agent.python,
        "LIBC": ".".join(map(str, agent.glibc)),
        "LIBRARIES": f"/{LIBRARIES}",
        "NUMBER": agent.source.version,
        "CODENAME": release.codename,
        "COMMIT": agent.source.commit,
        "DATE": format_datetime(datetime.fromtimestamp(agent.source.epoch, UTC)),
        "LICENCES": licences_of(agent.packages),
    }
    _add_documents(stage, agent, values)
    _add_control(stage, agent, values | {"SIZE": str(stage.size())})
    stage.date(agent.source.epoch)
    package = work / f"puller_{version}_{architecture}.deb"
    agent.run(
        "dpkg-deb",
        "--root-owner-group",
        "-Zxz",
        "--threads-max=1",
        "--build",
        agent.inside(stage.root),
        agent.inside(package),
    )
    return package


def _add_documents(stage: Stage, agent: Agent, values: dict[str, str]) -> None:
    stage.file(f"{_DOCUMENTS}/copyright", _filled(agent, "copyright", values))
    stage.packed(f"{_DOCUMENTS}/changelog.Debian.gz", _filled(agent, "changelog", values))
    stage.packed(
        f"{_DOCUMENTS}/changelog.gz", (agent.source.directory / "CHANGELOG.md").read_text(encoding="utf-8")
    )
    stage.file("usr/share/lintian/overrides/puller", _filled(agent, "lintian-overrides", values))


def _add_control(stage: Stage, agent: Agent, values: dict[str, str]) -> None:
    sums = "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(stage.root)}\n"
        for path in sorted(stage.root.rglob("*"))
        if path.is_file()
        and not path.is_symlink()
        and f"/{path.relative_to(stage.root)}" not in CONFIGURATION_FILES
    )
    stage.file("DEBIAN/control", _filled(agent, "control", values))
    stage.file("DEBIAN/md5sums", sums)
    stage.file("DEBIAN/conffiles", "".join(f"{path}\n" for path in CONFIGURATION_FILES))
    for name in _SCRIPTS:
        stage.file(f"DEBIAN/{name}", _filled(agent, name, values), 0o755)


def _filled(agent: Agent, name: str, values: dict[str, str]) -> str:
    return fill(agent.source.directory / "packaging/debian" / name, values)
