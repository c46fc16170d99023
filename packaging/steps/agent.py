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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steps.additions import ADDITIONS, Addition
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
    """The result of the build, with the version in ``directory``."""

    source: Source
    tree: Tree
    work: Path
    directory: Path

    @property
    def python(self) -> str:
        """Return the Python version that it is built for: ``3.11``."""
        return self.tree.release.python

    @property
    def packages(self) -> Path:
        """Return the directory of its modules."""
        return self.directory / f"lib/python{self.python}/site-packages"

    @property
    def installed(self) -> Path:
        """Return the directory of the modules as pip has installed them."""
        return _modules_in(self.work / "environment", self.python)

    def installed_addition(self, addition: Addition) -> Path:
        """Return the directory of the modules of an addition as pip has installed them."""
        return _modules_in(self.work / addition.name, self.python)

    def materials(self, name: str) -> bytes:
        """Return the bill of materials (CycloneDX, JSON) of the agent (``puller``) or of an addition."""
        return (self.work / f"{name}.cdx.json").read_bytes()

    def run(self, *command: str | Path) -> str:
        """Run a command in the read-only tree, where ``work`` is /build. Raises ``BuildFailed``.

        Several threads can use the tree at the same time.
        """
        mounts = {self.work: _BUILD}
        return self.tree.run(*command, mounts=mounts, read_only=True, variables=_fixed(self.source))

    def inside(self, path: Path) -> str:
        """Return the path in the tree of a path below ``work``."""
        return f"{_BUILD}/{path.relative_to(self.work)}"


def build_agent(source: Source, tree: Tree, work: Path, additions: Iterable[Addition]) -> Agent:
    """Build the wheel and install it with its locked dependencies and these additions, in the tree.

    Raises ``BuildFailed``.
    """
    script = work / "install"
    script.write_text(_INSTALL, encoding="utf-8")
    words = [f"{addition.name}={addition.lock}" for addition in additions]
    tree.run("sh", "-eu", f"{_BUILD}/install", *words, mounts={work: _BUILD}, variables=_fixed(source))
    agent = Agent(source, tree, work, work / "agent" / source.version)
    copy_modules(agent.installed, agent.packages)
    _add_command(agent)
    return agent


def copy_modules(installed: Path, target: Path) -> None:
    """Copy installed modules to a new directory, without the files that depend on the build machine."""
    shutil.copytree(installed, target, ignore=_is_not_ours)
    _keep_modes_plain(target)


def _modules_in(environment: Path, python: str) -> Path:
    return environment / f"lib/python{python}/site-packages"


def _fixed(source: Source) -> dict[str, str]:
    """Return environment variables that make the build independent of date, process and user."""
    return {"SOURCE_DATE_EPOCH": str(source.epoch), "PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC"}


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
    --pyproject source/pyproject.toml --output-file puller.cdx.json environment/bin/python3

# 5. The libraries of each addition, their bill of materials, and whether they fit the agent's.
for words; do
    addition=${words%%=*}
    python3 -m venv --without-pip $addition
    $tools/bin/pip --python $addition install --quiet --no-compile --only-binary=:all: --require-hashes --no-deps \\
        --requirement $lock/${words#*=}
    $tools/bin/cyclonedx-py environment --output-reproducible --output-format JSON --spec-version 1.6 \\
        --output-file $addition.cdx.json $addition/bin/python3
    modules=$(echo $addition/lib/python3*/site-packages)
    realpath environment/lib/python3*/site-packages >$modules/agent.pth
    $tools/bin/pip --python $addition check --quiet
    rm $modules/agent.pth
done

# 6. Man pages and completions, as this very version has them.
PYTHONPATH=$(echo environment/lib/python3*/site-packages) $tools/bin/python -B source/packaging/man manual
mkdir completions
for shell in bash zsh fish; do
    environment/bin/python3 -IB environment/bin/puller completion $shell >completions/$shell
done
"""


def oldest_glibc(installed: Path) -> tuple[int, int]:
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
    # The additions, and resource types and signers of third parties: modules that pip installs there survive upgrades.
    directories = [f"/{addition.directory(agent.python)}" for addition in ADDITIONS]
    lines = "".join(f"{directory}\n" for directory in (*directories, _EXTENSIONS))
    (agent.packages / "extensions.pth").write_text(lines, encoding="utf-8")
