"""Publishing adds each file of a bundle to the site once, for hosts that have the other files."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.errors import SignatureError
from bundles.format.size_limits import file_path
from bundles.publisher.lifecycle import verify_site
from bundles.publisher.site import Site

if TYPE_CHECKING:
    from tests.support.sites import Publisher, Survives


def files(site: Site) -> dict[str, bytes]:
    """Return the contents of the files of a site, by path below ``targets/``."""
    targets = site.public / "targets"
    return {
        str(path.relative_to(targets)): gzip.decompress(path.read_bytes())
        for path in targets.glob("files/*/*")
    }


def path_of(data: bytes) -> str:
    return file_path(hashlib.sha256(data).hexdigest())


def test_files_and_descriptions_are_named_by_their_hash(publisher: Publisher) -> None:
    before = files(publisher.site)
    publisher.publish("2.0.0", text="hello\n")
    result = files(publisher.site)
    assert {path: path_of(data) for path, data in result.items()} == {path: path for path in result}
    description = publisher.site.indexes().of["web"].releases["2.0.0"].description
    assert result.keys() - before.keys() == {path_of(b"hello\n"), file_path(description.sha256)}
    assert path_of(b"resources: []\n") in before


def test_file_is_stored_once_for_all_bundles(
    publisher: Publisher,
) -> None:
    publisher.publish("2.0.0", text="hello\n")
    before = {path: path.stat().st_ino for path in publisher.site.public.glob("targets/files/*/*")}
    publisher.publish("2.0.1", text="hello again\n")
    publisher.publish("1.0.0", name="db", text="hello\n")
    after = {path: path.stat().st_ino for path in publisher.site.public.glob("targets/files/*/*")}
    assert before.items() <= after.items()
    # Two descriptions and one text are new.
    assert len(after) == len(before) + 3


def test_dominant_large_file_is_in_the_archive_only(publisher: Publisher) -> None:
    text = "nearly all\n" * 100_000
    publisher.publish("2.0.0", text=text)
    assert path_of(text.encode()) not in files(publisher.site)
    verify_site(publisher.site)


@pytest.fixture
def private_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("private_umask")
def test_published_files_are_readable_under_any_umask(publisher: Publisher) -> None:
    publisher.publish("2.0.0")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in publisher.site.public.glob("targets/files/**/*")}
    assert modes == {0o755, 0o644}


def test_a_site_is_whole_wherever_its_publisher_is_killed(publisher: Publisher, survives: Survives) -> None:
    moment = 0
    while not survives(moment, lambda: publisher.publish("1.1.0")):
        verify_site(publisher.site)
        moment += 1
    verify_site(publisher.site)
    assert moment > 5
    assert not list(publisher.site.public.glob("targets/files/.*"))


def spoiled(path: Path) -> None:
    path.write_bytes(gzip.compress(b"something else"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [spoiled, cut, os.unlink])
@pytest.mark.parametrize("which", ["text", "description"])
def test_verify_names_a_file_that_is_damaged(
    publisher: Publisher, damage: Callable[[Path], None], which: str
) -> None:
    publisher.publish("2.0.0", text="hello\n")
    description = publisher.site.indexes().of["web"].releases["2.0.0"].description.sha256
    sha256 = hashlib.sha256(b"hello\n").hexdigest() if which == "text" else description
    damage(publisher.site.files.path(sha256))
    with pytest.raises(SignatureError, match=sha256):
        verify_site(publisher.site)


def test_missing_file_is_written_by_the_next_version(publisher: Publisher) -> None:
    publisher.publish("2.0.0", text="hello\n")
    shutil.rmtree(publisher.site.public / "targets/files")
    publisher.publish("2.0.1", name="db", text="hello\n")
    assert path_of(b"hello\n") in files(publisher.site)


@pytest.mark.parametrize("lost", ["targets/web/*.tar.gz", "targets/files/*/*", "targets/files/*/{text}.gz"])
def test_missing_file_is_written_when_its_version_is_republished(publisher: Publisher, lost: str) -> None:
    publisher.publish("2.0.0", text="hello\n")
    whole = contents(publisher.site)
    assert publisher.publish("2.0.0", text="hello\n").restored is False
    for path in publisher.site.public.glob(lost.format(text=hashlib.sha256(b"hello\n").hexdigest())):
        if "1.0.0" not in path.name:
            path.unlink()
    with pytest.raises(SignatureError):
        verify_site(publisher.site)
    again = publisher.publish("2.0.0", text="hello\n")
    assert (again.changed, again.restored) == (False, True)
    assert (
        contents(publisher.site).items()
        >= {
            path: data for path, data in whole.items() if "files/" not in path or path_of(b"hello\n") in path
        }.items()
    )


def test_lost_file_returns_when_a_channel_names_its_version(
    publisher: Publisher,
) -> None:
    publisher.publish("2.0.0")
    (archive,) = publisher.site.public.glob("targets/web/*web-1.0.0.tar.gz")
    archive.unlink()
    again = publisher.publish("1.0.0")
    assert (again.changed, again.restored) == (True, True)
    verify_site(publisher.site)


def contents(site: Site) -> dict[str, bytes]:
    return {
        str(path.relative_to(site.public)): path.read_bytes()
        for path in site.public.rglob("*")
        if path.is_file()
    }
