"""The extras of this distribution: optional libraries that some commands need, and the command that installs them.

The command names the libraries themselves, never a distribution of Puller. A name that is not yet published on an index
can be registered there by an attacker.
"""

import os
import shlex
import sys
import sysconfig

DISTRIBUTION = "puller-agent"
"""The name of the distribution. The name ``puller`` on the Python package index belongs to another project."""

_EXTENSIONS = "extensions.pth"
"""A file of packages and unpacked directories. Its first line is the directory for further libraries."""


def how_to_install(extra: str) -> str:
    """Return a sentence with the command that installs the libraries of an extra into this installation of Puller.

    In a package or an unpacked directory, libraries go to a directory that survives upgrades. With a wheel or a clone,
    they go to the environment of this interpreter.
    """
    libraries = _libraries(extra)
    if not libraries:
        return f"Install the libraries that pyproject.toml lists for the extra {extra}"
    return f"Run: {shlex.join([*_installer(), *libraries])}"


def _installer() -> list[str]:
    """Return the words of the command, up to the libraries."""
    directory = _extensions_directory()
    if directory is None:
        return [sys.executable, "-m", "pip", "install"]
    # Packages contain no pip. The system's Python of the same version installs compatible files.
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [python, "-m", "pip", "install", "--target", directory]


def _extensions_directory() -> str | None:
    """Return the directory for further libraries of a package or an unpacked directory. None in an environment."""
    try:
        with open(os.path.join(sysconfig.get_path("purelib"), _EXTENSIONS), encoding="utf-8") as file:
            return file.readline().strip() or None
    except OSError:
        return None


def _libraries(extra: str) -> list[str]:
    """Return the requirements of an extra, as the metadata of the installed distribution state them."""
    from importlib.metadata import PackageNotFoundError, requires  # slow, and only needed for an error

    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from a source tree
        return []
    pairs = [requirement.partition(";") for requirement in requirements]
    return [name.strip() for name, _, marker in pairs if marker.split() in _markers(extra)]


def _markers(extra: str) -> list[list[str]]:
    return [["extra", "==", f"{quote}{extra}{quote}"] for quote in "'\""]
