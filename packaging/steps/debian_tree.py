"""A Debian release in a directory, and commands in it.

* This machine's settings for apt and pip apply in the tree, through variables and read-only mounts. They are not stored
  in it.
* Commands see the tree and their mounts, but no variables of the user who builds.
"""

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from steps.failure import BuildFailed, run


@dataclass(frozen=True)
class Release:
    """A Debian release to build packages for."""

    codename: str
    number: int
    python: str
    units: str


RELEASES = {
    release.codename: release
    for release in (
        Release("bookworm", 12, python="3.11", units="lib/systemd/system"),
        Release("trixie", 13, python="3.13", units="usr/lib/systemd/system"),
    )
}

_PACKAGES = "python3,python3-venv,ca-certificates,rpm"
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_PASSED_ON = (
    "PIP_",
    "SSL_CERT_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)


@dataclass(frozen=True)
class Tree:
    """A Debian system in ``root``."""

    root: Path
    release: Release
    settings: dict[str, str] = field(repr=False)  # of pip

    def run(
        self,
        *command: str | Path,
        mounts: Mapping[Path, str],
        variables: Mapping[str, str],
        read_only: bool = False,
    ) -> str:
        """Return the output of a command in the tree. ``mounts`` maps directories of this machine to paths in the tree.

        systemd-nspawn accepts several commands at the same time only if all of them see the tree ``read_only``.
        Raises ``BuildFailed`` if the command fails.
        """
        passed_on = self.settings | dict(variables)
        options = [
            *(["--read-only"] if read_only else []),
            *(f"--bind={here}:{there}" for here, there in mounts.items()),
            *(f"--bind-ro={path}" for path in sorted(_paths_in(self.settings.values()))),
            # By name only: the URL of an index may contain a password, and every user can read command lines.
            *(f"--setenv={name}" for name in passed_on),
        ]
        nspawn = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--as-pid2")
        return run(
            *nspawn, f"--directory={self.root}", *options, "--", *command, environment=os.environ | passed_on
        )


def make_tree(release: str, root: Path) -> Path:
    """Create a minimal Debian system with Python. Raises ``BuildFailed``."""
    unfinished = root.with_name(f"{root.name}.unfinished")
    with tempfile.TemporaryDirectory(prefix="puller-sources-") as directory:
        lists = list(_sources(release, Path(directory)))
        run(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={_PACKAGES}",
            release,
            unfinished,
            *lists,
        )
    unfinished.rename(root)
    return root


def open_tree(root: Path, release: str) -> Tree:
    """Return the tree in a directory, and create a missing one. Raises ``BuildFailed`` for another release."""
    if not root.exists():
        make_tree(release, root)
    text = (root / "etc/os-release").read_text(encoding="utf-8")
    if f"VERSION_CODENAME={release}\n" not in text:
        raise BuildFailed(f"{root}: is not Debian {RELEASES[release].number} ({release})")
    return Tree(root.resolve(), RELEASES[release], _settings())


def _sources(release: str, directory: Path) -> Iterator[Path]:
    """Yield the package sources of this machine, adapted to the release. Empty unless this machine runs Debian."""
    own = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    paths = map(Path, ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"))
    for path in (path for path in paths if own in RELEASES and path.exists()):
        turned = directory / path.name
        turned.write_text(path.read_text(encoding="utf-8").replace(own, release), encoding="utf-8")
        yield turned


def _settings() -> dict[str, str]:
    """Return this machine's settings for pip, from configuration files and the environment, as variables."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list")
    listed = subprocess.run(pip, capture_output=True, text=True, check=False).stdout
    files = re.findall(r"^(?:global|install|download)\.([-a-z]+)='(.*)'$", listed, re.MULTILINE)
    settings = {f"PIP_{name.replace('-', '_').upper()}": value.replace("\\n", " ") for name, value in files}
    settings |= {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    if Path(_AUTHORITIES).exists():
        settings.setdefault("PIP_CERT", _AUTHORITIES)
    return settings | {
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_WARN_SCRIPT_LOCATION": "1",
    }


def _paths_in(values: Iterable[str]) -> set[str]:
    """Return the local files and directories in settings. The files of a `file:` index are beside it."""
    words = [word for value in values for word in value.split()]
    paths = {word for word in words if word.startswith("/")}
    paths |= {str(Path(urlsplit(word).path).parent) for word in words if word.startswith("file:///")}
    return {path for path in paths - {"/"} if Path(path).exists()}
