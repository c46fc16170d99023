"""An attacker who may write to an archive or to its directory during verification and extraction."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from puller.errors import ChangedMeanwhile, ResourceError
from puller.resources.archives.archive import Archive
from puller.resources.base import Resource
from tests.simulators import fileserver as simulator

if TYPE_CHECKING:
    from tests.simulators.fileserver import FileServer

Make = Callable[..., Resource[Any, Any]]


def packed(text: str) -> bytes:
    """Return an uncompressed tar, so that all have the same size."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("app")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


GOOD, EVIL = packed("good" * 50_000), packed("evil" * 50_000)
CHECKSUM = hashlib.sha256(GOOD).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with simulator.serving() as server:
        server.files["/app.tar"] = GOOD
        yield server


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return the path of an archive in a directory that the attacker may write to."""
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache/app.tar"


@pytest.fixture
def declared(
    make: Make, archive: Path, tmp_path: Path, server: FileServer, ours: dict[str, str]
) -> Callable[..., Any]:
    def declare(**additional: Any) -> Resource[Any, Any]:
        properties = {
            "name": str(archive),
            "url": f"{server.url}/app.tar",
            "checksum": CHECKSUM,
            "extract_parent": str(tmp_path / "opt"),
            "owner": ours["owner"],
            "group": ours["group"],
            **additional,
        }
        return make(Archive, properties)

    return declare


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return tmp_path / "opt/app"


def swap(archive: Path) -> None:
    """Replace the archive by another file."""
    other = archive.with_name("other")
    other.write_bytes(EVIL)
    other.chmod(0o600)
    other.rename(archive)


def rewrite(archive: Path) -> None:
    """Overwrite the content of the archive."""
    with archive.open("r+b") as stream:
        stream.write(EVIL)


def apply(resource: Resource[Any, Any]) -> list[str]:
    actual = resource.look()
    if differences := resource.differences(actual):
        resource.change(differences, actual)
    return [str(difference) for difference in differences]


def meanwhile(
    resource: Resource[Any, Any], attack: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack after the archive is in place, and before it is extracted."""
    make_directory = resource.context.system.make_directory

    def then(*arguments: Any, **options: Any) -> None:
        make_directory(*arguments, **options)
        attack()

    monkeypatch.setattr(resource.context.system, "make_directory", then)


def test_file_renamed_over_an_archive_is_not_extracted(
    declared: Callable[..., Any], archive: Path, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = declared()
    meanwhile(resource, lambda: swap(archive), monkeypatch)
    apply(resource)
    assert app.read_text().startswith("good")
    assert apply(declared())[0].startswith("checksum "), "the next run sees that it is another file"
    assert apply(declared()) == []
    assert archive.read_bytes() == GOOD


@pytest.mark.root
def test_archive_rewritten_by_its_owner_is_not_extracted(
    declared: Callable[..., Any], archive: Path, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = declared(owner="nobody")
    meanwhile(resource, lambda: rewrite(archive), monkeypatch)
    with pytest.raises(
        ChangedMeanwhile, match=f"{archive}: sha256 is .*, expected {CHECKSUM}: another process changed it"
    ):
        apply(resource)
    assert not app.exists()
    assert apply(declared(owner="nobody"))[0].startswith("checksum ")
    assert app.read_text().startswith("good")
    assert apply(declared(owner="nobody")) == []


@pytest.mark.parametrize("attack", [swap, rewrite])
def test_archive_changed_after_the_check_is_not_extracted(
    declared: Callable[..., Any], archive: Path, app: Path, attack: Callable[[Path], None]
) -> None:
    archive.write_bytes(GOOD)
    resource = declared()
    actual = resource.look()
    differences = resource.differences(actual)
    assert [difference.property for difference in differences] == ["contents"]
    attack(archive)
    with pytest.raises(ChangedMeanwhile, match="another process changed it meanwhile"):
        resource.change(differences, actual)
    assert not app.exists()
    apply(declared())
    assert app.read_text().startswith("good")


@pytest.mark.parametrize("attack", [swap, pytest.param(rewrite, marks=pytest.mark.root)])
@pytest.mark.everything
def test_continuous_changes_of_an_archive_gain_nothing(
    declared: Callable[..., Any], archive: Path, app: Path, attack: Callable[[Path], None]
) -> None:
    additional: dict[str, Any] = {"creates": str(app)}
    if attack is rewrite:
        additional["owner"] = "nobody"
    with changing(archive, attack):
        for _ in range(40):
            try:
                apply(declared(**additional))
            except (ResourceError, OSError):
                continue
            assert app.read_text().startswith("good")
            app.unlink()
    assert not app.exists()
    apply(declared(**additional))
    assert app.read_text().startswith("good")
    assert archive.read_bytes() == GOOD


@contextmanager
def changing(archive: Path, attack: Callable[[Path], None]) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            for content in (GOOD, EVIL):
                if archive.exists() and attack is rewrite:
                    with archive.open("r+b") as stream:
                        stream.write(content)
                elif archive.exists():
                    other = archive.with_name("other")
                    other.write_bytes(content)
                    other.rename(archive)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_an_archive_behind_a_link_is_not_read(
    declared: Callable[..., Any], archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.tar").write_bytes(GOOD)
    archive.symlink_to(tmp_path / "secret.tar")
    assert apply(declared())[0] == "ensure symbolic link → present"
    assert not archive.is_symlink()


def test_existing_partial_file_is_copied_before_extraction(
    declared: Callable[..., Any], archive: Path, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former owner may still have it open."""
    part = archive.with_name(f".app.tar.{CHECKSUM[:16]}.part")
    part.write_bytes(GOOD)
    part.chmod(0o600)
    with part.open("r+b") as held:
        resource = declared()

        def write() -> None:
            held.write(EVIL)
            held.flush()

        meanwhile(resource, write, monkeypatch)
        with pytest.raises(ChangedMeanwhile):
            apply(resource)
    assert not app.exists()
    apply(declared())
    assert app.read_text().startswith("good")
