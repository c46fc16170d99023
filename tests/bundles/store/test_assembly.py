"""Assembling a version from local files: the same tree as from its archive, or none."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bundles.archive.pack import BuiltBundle, build_bundle, gzipped
from bundles.errors import StoreError, UnpackError
from bundles.filesystem.trees import walk
from bundles.format.index import Archive, Artifact, Digest
from bundles.store.assembly import REQUEST, Assembly, is_promising
from bundles.store.contents import Installed
from bundles.store.store import Store
from tests.bundles.store import steps


class Parts:
    """A machine with version 1.0.0, and the files that it needs for 2.0.0."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "source"
        self.directory = directory
        self.store = Store(directory / "store")
        self.write("manifest.yaml", b"resources: []\n")
        self.write("bin/tool", b"#!/bin/sh\n" * 100)
        (self.source / "bin/tool").chmod(0o755)
        self.write("large", bytes(range(256)) * 3000)
        self.write("text", b"old\n")
        self.old = self.build("1.0.0")
        steps.activate(self.store, self.old)
        self.write("text", b"new\n")
        self.write("copy/of/text", b"new\n")
        self.new = self.build("2.0.0")
        described = self.new.description.to_bytes()
        self.description = described
        digest = Digest(len(described), hashlib.sha256(described).hexdigest())
        archive = Archive.of("web", "2.0.0", Digest(self.new.size, self.new.sha256))
        self.artifact = Artifact(archive, digest)

    def write(self, name: str, data: bytes) -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def build(self, version: str) -> BuiltBundle:
        output = self.directory / f"web-{version}.tar.gz"
        return build_bundle(self.source, output, name="web", version=version)

    def assembly(self) -> Assembly:
        return Assembly(self.artifact, self.description, self.store.directories())

    def fetched(self, data: bytes = b"new\n") -> dict[str, Path]:
        """Return the downloaded file that is missing on this machine."""
        place = self.directory / "fetched.gz"
        place.write_bytes(b"".join(gzipped([data])))
        return {hashlib.sha256(b"new\n").hexdigest(): place}

    def install(self, **changes: Any) -> Installed:
        fetched = changes.pop("fetched") if "fetched" in changes else self.fetched()
        components = self.assembly().parts(fetched)
        return self.store.assemble(components, **{"name": "web", "version": "2.0.0", **changes})

    @property
    def installed(self) -> Path:
        return self.store.root / "web" / self.old.sha256


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    yield (pieces := Parts(tmp_path))
    for name in pieces.store.names():
        pieces.store.remove(name)  # read-only directories, which pytest cannot remove


def shape(tree: Path) -> dict[str, tuple[int, bytes]]:
    return {
        name: (found.st_mode, b"" if stat.S_ISDIR(found.st_mode) else (tree / name).read_bytes())
        for name, found in walk(tree)
    }


def test_assembled_tree_equals_the_archive(parts: Parts, tmp_path: Path) -> None:
    made = parts.install()
    other = Store(tmp_path / "other")
    unpacked = steps.install(other, parts.new)
    assert shape(made.path) == shape(unpacked.path)
    assert stat.S_IMODE(made.path.stat().st_mode) == stat.S_IMODE(unpacked.path.stat().st_mode)
    assert made.sha256 == parts.new.sha256
    assert parts.store.verify("web", made.sha256) == []
    other.remove("web")


def test_missing_files_of_all_bundles_are_listed_once(parts: Parts) -> None:
    assert parts.assembly().missing == [Digest(4, hashlib.sha256(b"new\n").hexdigest())]


def test_a_bundle_takes_files_of_another_one(parts: Parts) -> None:
    built = build_bundle(parts.source, parts.directory / "db.tar.gz", name="db", version="1.0.0")
    store = parts.store
    store.install(built.path, name="db", version="1.0.0", sha256=built.sha256)
    assert parts.assembly().missing == []
    assert parts.install(fetched={}).version == "2.0.0"


def test_assembled_file_is_no_hard_link_of_another_version(parts: Parts) -> None:
    made = parts.install()
    assert {path.stat().st_nlink for path in made.path.rglob("*") if path.is_file()} == {1}
    for path in (made.path / "large", parts.installed / "large"):
        path.chmod(0o600)
    (made.path / "large").write_bytes(b"changed")
    assert (parts.installed / "large").read_bytes() == bytes(range(256)) * 3000


def test_where_the_file_system_can_files_are_cloned_and_compared(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned = []

    def ioctl(target: int, request: int, source: int) -> int:
        assert request == 0x40049409
        cloned.append(os.fstat(source).st_size)
        os.sendfile(target, source, 0, os.fstat(source).st_size)  # like a file system that clones immediately
        os.lseek(target, 0, os.SEEK_SET)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    made = parts.install()
    assert sorted(cloned) == [14, 1000, 768_000]
    assert parts.store.verify("web", made.sha256) == []


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\x01", b"\x02"))


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize("damage", [changed, longer, os.unlink])
def test_locally_changed_file_is_not_reused(parts: Parts, damage: Callable[[Path], None]) -> None:
    parts.installed.chmod(0o700)
    (parts.installed / "large").chmod(0o600)
    damage(parts.installed / "large")
    with pytest.raises((UnpackError, StoreError), match="large"):
        parts.install()
    assert parts.store.find("web", parts.new.sha256) is None
    assert [name for name in os.listdir(parts.store.root / "web") if name.endswith(".new")] == []


def test_a_link_in_the_place_of_a_file_is_not_followed(parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(bytes(range(256)) * 3000)
    parts.installed.chmod(0o700)
    (parts.installed / "large").unlink()
    (parts.installed / "large").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="symbolic links"):
        parts.install()


@pytest.mark.parametrize("data", [b"now\n", b"new", b"new\n" * 1000])
def test_a_download_that_is_another_file_is_not_taken(parts: Parts, data: bytes) -> None:
    with pytest.raises(UnpackError, match="signed"):
        parts.install(fetched=parts.fetched(data))
    assert parts.store.find("web", parts.new.sha256) is None


def test_unsigned_description_is_refused(parts: Parts) -> None:
    parts.description = parts.old.description.to_bytes()
    with pytest.raises(UnpackError, match=r"bundle\.json: differs from the description in the signed index"):
        parts.install()


@pytest.mark.parametrize(("name", "version"), [("web", "1.0.0"), ("db", "2.0.0")])
def test_a_description_of_another_bundle_or_version_is_not_taken(
    parts: Parts, name: str, version: str
) -> None:
    with pytest.raises(UnpackError, match=r"bundle\.json: (name|version): is '(web|2\.0\.0)', expected"):
        parts.install(name=name, version=version)


def test_damaged_version_is_rebuilt_from_its_intact_files(parts: Parts) -> None:
    made = parts.install()
    parts.store.activate("web", made.sha256)
    made.path.chmod(0o700)
    (made.path / "text").unlink()
    again = Store(parts.store.root)
    assert again.find("web", made.sha256) is None
    parts.store = again
    parts.install()
    assert again.verify("web", made.sha256) == []


def test_a_full_disk_is_told_before_anything_is_written(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs_result((4096, 4096, 1000, 10, 10, 1000, 1000, 1000, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    with pytest.raises(StoreError, match=r"requires .* and a reserve of"):
        parts.install()


def test_a_disk_that_fails_meanwhile_leaves_nothing(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("bundles.archive.unpack.sync_filesystem", full)
    with pytest.raises(StoreError, match="No space left"):
        parts.install()
    assert parts.store.find("web", parts.new.sha256) is None


def artifact(archive: int, description: int = 1000) -> Artifact:
    return Artifact(Archive.of("web", "2.0.0", Digest(archive, "0" * 64)), Digest(description, "1" * 64))


def test_small_archive_is_fetched_whole() -> None:
    assert not is_promising(artifact(1000 + REQUEST))
    assert is_promising(artifact(1001 + REQUEST))


def test_few_missing_files_are_fetched_one_by_one(parts: Parts) -> None:
    parts.artifact = artifact(10_000_000)
    assert parts.assembly().is_worth_it
    parts.artifact = artifact(1000)
    assert not parts.assembly().is_worth_it
    parts.artifact = artifact(10_000_000)
    nothing_here = Assembly(parts.artifact, parts.description, [])
    assert not nothing_here.is_worth_it


def test_dominant_missing_file_causes_an_archive_download(parts: Parts) -> None:
    parts.write("large", bytes(range(256)) * 10_000)
    parts.new = parts.build("3.0.0")
    parts.description = parts.new.description.to_bytes()
    parts.artifact = artifact(100_000_000)
    assert not parts.assembly().is_worth_it
