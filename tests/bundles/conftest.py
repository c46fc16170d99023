"""Trees and bundles to test with."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bundles.pack import BuiltBundle, build_bundle
from bundles.store import Store

MANIFEST = b"resources: []\n"


@pytest.fixture(scope="session")
def write_tree() -> Callable[[Path, Mapping[str, bytes]], Path]:
    """Writes files below a new directory, which is returned."""

    def write(root: Path, files: Mapping[str, bytes]) -> Path:
        root.mkdir(parents=True)
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root

    return write


@pytest.fixture(scope="session")
def read_tree() -> Callable[[Path], dict[str, tuple[bytes, int]]]:
    """Contents and permission bits of the files below a directory, in which nothing else may be."""

    def read(root: Path) -> dict[str, tuple[bytes, int]]:
        found = {}
        for path in root.rglob("*"):
            mode = path.lstat().st_mode
            assert stat.S_ISDIR(mode) or stat.S_ISREG(mode), path
            if stat.S_ISREG(mode):
                found[os.fspath(path.relative_to(root))] = (path.read_bytes(), stat.S_IMODE(mode))
        return found

    return read


@pytest.fixture
def make_bundle(
    tmp_path: Path, write_tree: Callable[[Path, Mapping[str, bytes]], Path]
) -> Callable[..., BuiltBundle]:
    """Packs files, to which a manifest is added, into ``tmp_path``."""

    def make(
        files: Mapping[str, bytes] | None = None, name: str = "web", version: str = "1.4.0"
    ) -> BuiltBundle:
        source = write_tree(
            tmp_path / "sources" / f"{name}-{version}", {"manifest.yaml": MANIFEST, **(files or {})}
        )
        return build_bundle(source, tmp_path / f"{name}-{version}.tar.gz", name=name, version=version)

    return make


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state" / "bundles")


@pytest.fixture
def old(make_bundle: Callable[..., BuiltBundle]) -> BuiltBundle:
    return make_bundle({"conf/a": b"old"}, version="1.0.0")


@pytest.fixture
def new(make_bundle: Callable[..., BuiltBundle]) -> BuiltBundle:
    return make_bundle({"conf/a": b"new", "conf/b": b""}, version="1.1.0")
