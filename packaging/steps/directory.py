"""A tar.gz with the directory of one version, to unpack anywhere: it runs with the system's Python from where it lies.

Not one file that is run (zipapp): compiled modules cannot be loaded from inside of an archive, and would be unpacked
somewhere at the first run, by whoever runs it.
"""

import gzip
import io
import tarfile
from pathlib import Path

from steps.agent import Agent
from steps.staging import Stage, stage_manual, stage_version


def build(agent: Agent, work: Path) -> Path:
    """Build the archive, in a new directory; gives its path. Raises ``BuildFailed``."""
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
