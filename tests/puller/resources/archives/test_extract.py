"""Extraction puts all files in place or fails, and never writes part of a file."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pwd
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.manifest.problems import decode
from puller.resources.archives import archive_receipts, filling
from puller.resources.archives.archive import Archive
from puller.resources.archives.members import Kind
from puller.resources.base import Context
from puller.system.local import LocalSystem
from tests.simulators.extraction import extract

if TYPE_CHECKING:
    from tests.support.sweeps import Sweep


OLD = {"bin/app": "old", "lib/a": "old", "same": "same"}
NEW = {"bin/app": "new", "lib/a": "new", "same": "same", "doc/deep/down": "new"}


def tarred(tree: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in tree.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("current")
        link.type, link.linkname = tarfile.SYMTYPE, "bin/app"
        tar.addfile(link)
    return buffer.getvalue()


def put(tree: Mapping[str, str], place: Path) -> tuple[str, ...]:
    archive = place.parent / "archive.tar.gz"
    archive.write_bytes(tarred(tree))
    names: tuple[str, ...] = extract(archive, Kind.TAR_GZ, place)
    return names


def contents(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


def test_top_level_names_are_reported(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert put(NEW, tmp_path / "out") == ("bin", "current", "doc", "lib", "same")


def test_directories_are_joined_and_keep_their_permissions(tmp_path: Path) -> None:
    place = tmp_path / "out"
    (place / "bin").mkdir(parents=True)
    (place / "bin").chmod(0o700)
    (place / "bin/other").write_text("other")
    put(NEW, place)
    assert contents(place) == {**NEW, "current": "new", "bin/other": "other"}
    assert (place / "bin").stat().st_mode & 0o777 == 0o700


def test_link_at_the_target_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "current").symlink_to("/etc/passwd")
    put(NEW, place)
    assert os.readlink(place / "current") == "bin/app"


@pytest.mark.root
def test_other_file_system_is_known_before_moving(
    tmp_path: Path,
) -> None:
    place = tmp_path / "out"
    (place / "lib").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", place / "lib"], check=True)
    try:
        with pytest.raises(ResourceError, match=f"{place}/lib is on another file system than {place}"):
            put(NEW, place)
        assert contents(place) == {}
    finally:
        subprocess.run(["umount", place / "lib"], check=True)


# A run that is killed

CALLS = (
    "open",
    "mkdir",
    "rename",
    "unlink",
    "symlink",
    "link",
    "fsync",
    "fchown",
    "fchmod",
    "write",
    "utime",
)


class Manifest:
    """A manifest with a downloaded archive, so that tests need no server."""

    def __init__(self, directory: Path, story: str) -> None:
        self.directory = directory
        self.place, self.archive = directory / "opt", directory / "app.tar.gz"
        self.new, self.old = tarred(NEW), tarred(OLD)
        checksum = hashlib.sha256(self.new).hexdigest()
        part = directory / f".app.tar.gz.{checksum[:16]}.part"
        part.write_bytes(self.new)
        part.chmod(0o600)
        self.place.mkdir()
        for name, text in OLD.items():
            (self.place / name).parent.mkdir(exist_ok=True)
            (self.place / name).write_text(text)
        self.properties: dict[str, Any] = {
            "name": str(self.archive),
            "url": "https://www.example.org/app.tar.gz",
            "checksum": checksum,
            "extract_parent": str(self.place),
            "owner": pwd.getpwuid(os.geteuid()).pw_name,
            "group": os.getegid(),
        }
        if story == "cleaned up":
            self.properties |= {"creates": str(self.place / "doc/deep/down"), "cleanup": True}
        if story == "new version of what somebody else put there":
            self.properties |= {"creates": str(self.place / "bin/app")}
            self.archive.write_bytes(self.old)

    def declare(self, version: str, tree: Mapping[str, str]) -> None:
        """Change the declaration to another archive, already present, with the same ``creates``."""
        archive = self.directory / f"app-{version}.tar.gz"
        archive.write_bytes(data := tarred(tree))
        self.properties |= {
            "name": str(archive),
            "checksum": hashlib.sha256(data).hexdigest(),
            "creates": str(self.place / "bin/app"),
        }

    def apply(self) -> list[str]:
        context = Context(
            LocalSystem(), BundleFiles.of("/"), Scope({}, {}), lambda url: b"", {}, lambda kind: ()
        )
        decoded: Any = decode(Archive, self.properties)
        resource = Archive(decoded, context)
        actual = resource.look()
        if differences := resource.differences(actual):
            resource.change(differences, actual)
            assert not resource.differences(resource.look())
        return [str(difference) for difference in differences]


@pytest.fixture
def no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: a killed process loses no written data, and syncing would slow the tests."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(filling, "sync_filesystem", lambda descriptor: None)


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a child process that exits without cleanup before disk change number ``step``.

    Return False if ``work`` ends before that step.
    """
    if (child := os.fork()) == 0:
        calls = itertools.count()

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if next(calls) == step:
                    os._exit(9)
                return function(*arguments, **options)

            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.usefixtures("no_power_cut")
@pytest.mark.parametrize("story", ["first", "cleaned up", "new version of what somebody else put there"])
@pytest.mark.representatives(1)
@pytest.mark.sample(2)
def test_killed_run_leaves_old_or_new_files_and_converges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep, story: str
) -> None:
    def is_killed_at(step: int) -> bool:
        directory = tmp_path / str(step)
        directory.mkdir()
        monkeypatch.setattr(archive_receipts, "default_directory", lambda: directory / "state")
        manifest = Manifest(directory, story)
        killed = killed_at(step, manifest.apply)
        for name, text in contents(manifest.place).items():
            # The target of the link ``current`` is checked under its own name.
            if not name.startswith(".puller-") and name != "current":
                assert text in (OLD.get(name, "new"), NEW.get(name, "new")), (step, name)
        assert not manifest.archive.exists() or manifest.archive.read_bytes() in (manifest.new, manifest.old)
        if killed:
            manifest.apply()
        assert contents(manifest.place) == {**NEW, "current": "new"}, step
        assert manifest.archive.exists() is (story != "cleaned up")
        assert manifest.apply() == []
        return killed

    assert sweep(is_killed_at) > 60


@pytest.mark.everything
@pytest.mark.usefixtures("no_power_cut")
@pytest.mark.parametrize("next_version", ["the one before", "another one"])
@pytest.mark.sample(1)
def test_killed_new_version_never_passes_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep, next_version: str
) -> None:
    """The version declared next is complete afterwards, without files of other versions."""
    versions = {"the one before": OLD, "another one": {"bin/app": "3", "other/x": "3"}}

    def is_killed_at(step: int) -> bool:
        directory = tmp_path / str(step)
        directory.mkdir()
        monkeypatch.setattr(archive_receipts, "default_directory", lambda: directory / "state")
        manifest = Manifest(directory, "first")
        shutil.rmtree(manifest.place)
        manifest.declare("the one before", OLD)
        manifest.apply()
        manifest.declare("new", NEW)
        killed = killed_at(step, manifest.apply)
        manifest.declare(next_version, versions[next_version])
        manifest.apply()
        result = {
            name: text for name, text in contents(manifest.place).items() if not name.startswith(".puller-")
        }
        assert result == {**versions[next_version], "current": versions[next_version]["bin/app"]}, step
        assert manifest.apply() == []
        return killed

    assert sweep(is_killed_at) > 60
