"""Build of a tar.gz with the directory of one version, which runs with the system's Python wherever it is unpacked.

A single executable file (zipapp) is not possible: compiled modules cannot be loaded from an archive, and every user
would unpack them at the first run.
"""

import gzip
import io
import tarfile
from pathlib import Path

from steps.agent import Agent
from steps.staging import Stage, stage_manual, stage_version


def build(agent: Agent, work: Path) -> Path:
    """Build the archive in a new directory, and return its path. Raises ``BuildFailed``."""
    name = f"puller-{agent.source.version}"
    stage = Stage(work / "root")
    stage_version(agent, stage, name, compiled=True)
    stage_manual(agent, stage, f"{name}/share/man")
    package = work / f"{name}-python{agent.python}-linux-{agent.run('uname', '-m').strip()}.tar.gz"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted((stage.root / name, *(stage.root / name).rglob("*"))):
            member = archive.gettarinfo(path, str(path.relative_to(stage.root)))
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mtime = agent.source.epoch
            with path.open("rb") if member.isreg() else io.BytesIO() as content:
                archive.addfile(member, content)
    package.write_bytes(gzip.compress(packed.getvalue(), compresslevel=6, mtime=0))
    return package
