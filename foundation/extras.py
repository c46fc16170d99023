"""The extras of this distribution: optional libraries that some commands need, and the command that installs them.

A command of pip names the libraries themselves, never a distribution of Puller. A name that is not yet published on an
index can be registered there by an attacker.
"""

import os
import shlex
import sys
import sysconfig
import tomllib
from importlib.metadata import PackageNotFoundError, requires

DISTRIBUTION = "puller-agent"
"""The name of the distribution. The name ``puller`` on the Python package index belongs to another project."""

PACKAGES = {"fleet": "puller-fleet", "postgresql": "puller-fleet", "s3": "puller-s3"}
"""Packages with the libraries of an extra, for installations by a package manager."""

_MANAGER = "package-manager"
"""A file in the directory of a packaged version. It contains the command of the package manager."""
_EXTENSIONS = "extensions.pth"
"""A file of packages and unpacked directories. Its last line is the directory for further libraries."""
_PROJECT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "pyproject.toml")
"""The requirements in a clone that is not installed."""


def how_to_install(extra: str) -> str:
    """Return a sentence with the command that installs the libraries of an extra into this installation of Puller.

    If Puller is a package, the package manager installs another package. Extras without a package go to a directory
    that survives upgrades, also for an unpacked directory. With a wheel or a clone, pip installs them into the
    environment of this interpreter.
    """
    manager = _package_manager()
    if manager and extra in PACKAGES:
        return f"Run: {manager} install {PACKAGES[extra]}"
    libraries = _libraries(extra)
    if not libraries:
        return f"Install the libraries that pyproject.toml lists for the extra {extra}"
    return f"Run: {shlex.join([*_installer(), *libraries])}"


def _package_manager() -> str:
    """Return the command of the package manager that has installed Puller. Empty for other installations."""
    try:
        with open(os.path.join(sys.prefix, _MANAGER), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


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
            lines = file.read().split()
    except OSError:
        return None
    return lines[-1] if lines else None


def _libraries(extra: str) -> list[str]:
    """Return the requirements of an extra from the metadata of the installed distribution, or from the clone."""
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return _libraries_of_clone(extra)
    pairs = [requirement.partition(";") for requirement in requirements]
    return [name.strip() for name, _, marker in pairs if marker.split() in _markers(extra)]


def _libraries_of_clone(extra: str) -> list[str]:
    try:
        with open(_PROJECT, "rb") as file:
            project = tomllib.load(file)["project"]
    except OSError:
        return []
    return list(project["optional-dependencies"].get(extra, ()))


def _markers(extra: str) -> list[list[str]]:
    return [["extra", "==", f"{quote}{extra}{quote}"] for quote in "'\""]
