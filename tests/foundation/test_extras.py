"""Errors about missing libraries print a command that fits the installation and names no distribution of ours."""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from foundation.extras import DISTRIBUTION, PACKAGES, how_to_install

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PIP = "-m pip install"
FLEET = "'matplotlib>=3.8' 'sqlalchemy>=2'"


@pytest.fixture(autouse=True)
def metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install metadata as the build makes it from pyproject.toml, independent of installed packages."""
    lines = [f"{library}; extra == '{extra}'" for extra, libraries in EXTRAS.items() for library in libraries]
    monkeypatch.setattr("foundation.extras.requires", {DISTRIBUTION: lines}.__getitem__)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that replaces the modules of this interpreter."""
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("modules")
def test_environment_gets_libraries_by_its_interpreter() -> None:
    assert how_to_install("fleet") == f"Run: {sys.executable} {PIP} {FLEET}"


@pytest.mark.parametrize("manager", ["apt", "dnf"])
@pytest.mark.parametrize("extra", PACKAGES)
def test_package_gets_an_extra_as_a_package(
    manager: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package-manager").write_text(f"{manager}\n")
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert how_to_install(extra) == f"Run: {manager} install {PACKAGES[extra]}"
    assert how_to_install("hsm").startswith("Run: ")
    assert "-m pip install" in how_to_install("hsm")


def test_packages_of_extras_are_those_that_the_build_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "packaging")
    from steps.additions import ADDITIONS

    assert {addition.name for addition in ADDITIONS} == set(PACKAGES.values())
    for addition in ADDITIONS:
        assert (ROOT / "packaging" / addition.lock).exists()


def test_directory_gets_libraries_beside_its_versions(modules: Path) -> None:
    lines = "/usr/lib/puller-fleet/python3.11\n/usr/local/lib/puller/site-packages\n"
    (modules / "extensions.pth").write_text(lines)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = f"{python} {PIP} --target /usr/local/lib/puller/site-packages {FLEET}"
    assert how_to_install("fleet") == f"Run: {command}"


@pytest.fixture
def clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puller is not installed."""

    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("foundation.extras.requires", requires)


@pytest.mark.usefixtures("clone", "modules")
def test_clone_reads_the_libraries_from_its_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "foundation.extras._PROJECT", str(ROOT / "pyproject.toml")
    )  # also if Puller is installed
    assert how_to_install("fleet") == f"Run: {sys.executable} {PIP} {FLEET}"


@pytest.mark.usefixtures("clone")
def test_copy_without_metadata_names_pyproject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foundation.extras._PROJECT", str(tmp_path / "pyproject.toml"))
    assert how_to_install("s3") == "Install the libraries that pyproject.toml lists for the extra s3"


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_names_its_libraries_and_not_ours(extra: str) -> None:
    sentence = how_to_install(extra)
    assert sentence.startswith("Run: ")
    libraries = sentence.partition(" install ")[2]
    assert len(libraries.split()) == len(EXTRAS[extra])
    assert not {DISTRIBUTION, "puller"} & set(re.findall(r"[\w-]+", libraries))


def test_messages_name_extras_that_exist() -> None:
    code = "".join(
        path.read_text()
        for package in ("bundles", "foundation", "puller")
        for path in (ROOT / package).rglob("*.py")
    )
    named = set(re.findall(r"how_to_install\(\s*[\"'](\w+)[\"']\)", code))
    assert {"fleet", "postgresql", "s3"} <= named <= {*EXTRAS}
