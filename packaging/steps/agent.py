"""The directory of one version: Puller with its dependencies, for the system's Python.

  bin/puller                          the command, independent of the location of the directory
  bin/self-test                       test for the launcher of the packages: does Puller start on this machine?
  bin/python3                         a link to the system's Python
  pyvenv.cfg                          restricts that Python to the modules of this directory
  lib/python3.11/site-packages/       Puller, and the packages of packaging/requirements.lock

* Downloads are compared with the hashes of the lock file before they are installed.
* The contents do not depend on the build machine or the time: records of the installer and byte code are omitted.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from steps.debian_tree import Tree
from steps.failure import BuildFailed
from steps.source import Source

LIBRARIES = "usr/lib/puller"
"""Where packages install the directories of versions, below the root."""

_BUILD = "/build"
_OF_THE_INSTALLER = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
_EXTENSIONS = "/usr/local/lib/puller/site-packages"

_GLIBC = re.compile(r"^manylinux_(\d+)_(\d+)_")

_COMMAND = """\
#!/bin/sh
# Puller {version}, with its own modules and the Python that they were built for.
self=$0
[ ! -L "$self" ] || self=$(readlink -f "$self")
exec "${{self%/*}}/python3" -I -c 'from puller.cli import main; main()' "$@"
"""

_CONFIGURATION = """\
home = /usr/bin
include-system-site-packages = false
version = {python}
"""


@dataclass(frozen=True)
class Agent:
    """The result of the build, with the version in ``directory``, and its bill of materials (CycloneDX, JSON).

    ``glibc`` is the oldest (major, minor) version that all compiled modules support.
    """

    source: Source
    tree: Tree
    work: Path
    directory: Path
    materials: bytes
    glibc: tuple[int, int]

    @property
    def python(self) -> str:
        """Return the Python version that it is built for: ``3.11``."""
        return self.tree.release.python

    @property
    def packages(self) -> Path:
        """Return the directory of its modules."""
        return self.directory / f"lib/python{self.python}/site-packages"

    def run(self, *command: str | Path) -> str:
        """Run a command in the tree, where ``work`` is /build. Raises ``BuildFailed``."""
        return self.tree.run(*command, mounts={self.work: _BUILD}, **_fixed(self.source))

    def inside(self, path: Path) -> str:
        """Return the path in the tree of a path below ``work``."""
        return f"{_BUILD}/{path.relative_to(self.work)}"


def build_agent(source: Source, tree: Tree, work: Path) -> Agent:
    """Build the wheel and install it with its locked dependencies, in the tree. Raises ``BuildFailed``."""
    installed = _install(source, tree, work)
    directory = work / "agent" / source.version
    agent = Agent(
        source, tree, work, directory, (work / "agent.cdx.json").read_bytes(), _oldest_glibc(installed)
    )
    shutil.copytree(installed, agent.packages, ignore=_is_not_ours)
    _keep_modes_plain(agent.packages)
    _add_command(agent)
    return agent


def _fixed(source: Source) -> dict[str, str]:
    """Return environment variables that make the build independent of date, process and user."""
    return {"SOURCE_DATE_EPOCH": str(source.epoch), "PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC"}


def _install(source: Source, tree: Tree, work: Path) -> Path:
    """Install into a separate environment, and write its bill of materials. Returns the directory of the modules."""
    script = work / "install"
    script.write_text(_INSTALL, encoding="utf-8")
    tree.run("sh", "-eu", f"{_BUILD}/install", mounts={work: _BUILD}, **_fixed(source))
    return work / f"environment/lib/python{tree.release.python}/site-packages"


_INSTALL = """\
cd /build
lock=source/packaging

# 1. What builds, by its own lock; pip is the one of this release of Debian. A tree that is kept has it already.
cache=/var/cache/puller-build
tools=$cache/$(sha256sum <$lock/requirements-build.lock | cut -c 1-64)
if [ ! -e $tools/complete ]; then
    rm -rf $cache
    python3 -m venv $tools
    $tools/bin/pip install --quiet --only-binary=:all: --require-hashes --requirement $lock/requirements-build.lock
    touch $tools/complete
fi

# 2. The wheel of this commit.
$tools/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir wheels ./source

# 3. The locked dependencies and the wheel, and whether that is all.
python3 -m venv --without-pip environment
$tools/bin/pip --python environment install --quiet --no-compile --only-binary=:all: --require-hashes \\
    --requirement $lock/requirements.lock
$tools/bin/pip --python environment install --quiet --no-compile --no-index --no-deps wheels/*.whl
$tools/bin/pip --python environment check --quiet

# 4. The bill of materials.
$tools/bin/cyclonedx-py environment --output-reproducible --output-format JSON --spec-version 1.6 \\
    --pyproject source/pyproject.toml --output-file agent.cdx.json environment/bin/python3

# 5. Man pages and completions, as this very version has them.
PYTHONPATH=$(echo environment/lib/python3*/site-packages) $tools/bin/python -B source/packaging/man manual
mkdir completions
for shell in bash zsh fish; do
    environment/bin/python3 -IB environment/bin/puller completion $shell >completions/$shell
done
"""


def _oldest_glibc(installed: Path) -> tuple[int, int]:
    """Return the oldest supported glibc by the tags of installed wheels. Raises ``BuildFailed`` for unknown tags."""
    needed = {(2, 17)}
    for record in sorted(installed.glob("*.dist-info/WHEEL")):
        tags = re.findall(r"^Tag: \S+-\S+-(\S+)$", record.read_text(encoding="utf-8"), re.MULTILINE)
        results = [tag for name in tags for tag in name.split(".") if tag != "any"]
        of_glibc = [(int(major), int(minor)) for name in results for major, minor in _GLIBC.findall(name)]
        if results and not of_glibc:
            raise BuildFailed(
                f"{record.parent.name}: built for {' '.join(results)}, and not for a version of glibc"
            )
        needed |= {min(of_glibc)} if of_glibc else set()
    return max(needed)


def _is_not_ours(directory: str, names: list[str]) -> list[str]:
    """Return names to omit: byte code, which depends on the machine, and the installation records of pip."""
    in_record = directory.endswith(".dist-info")
    return [name for name in names if name == "__pycache__" or (in_record and name in _OF_THE_INSTALLER)]


def _keep_modes_plain(directory: Path) -> None:
    """Set standard modes. Wheels have the modes of their build machine, and no file is started by its path."""
    for parent, folders, files in os.walk(directory):
        for name in folders:
            os.chmod(os.path.join(parent, name), 0o755)  # noqa: S103  as any directory of a package
        for name in files:
            os.chmod(os.path.join(parent, name), 0o644)


def _add_command(agent: Agent) -> None:
    programs = agent.directory / "bin"
    programs.mkdir()
    (programs / "puller").write_text(_COMMAND.format(version=agent.source.version), encoding="utf-8")
    shutil.copyfile(agent.source.directory / "packaging/launcher/self-test", programs / "self-test")
    for name in ("puller", "self-test"):
        (programs / name).chmod(0o755)
    (programs / "python3").symlink_to(f"/usr/bin/python{agent.python}")
    text = _CONFIGURATION.format(python=agent.python)
    (agent.directory / "pyvenv.cfg").write_text(text, encoding="utf-8")
    # Resource types and signers of third parties: modules that pip installs there survive upgrades.
    (agent.packages / "extensions.pth").write_text(f"{_EXTENSIONS}\n", encoding="utf-8")
