"""Pushing a site to a destination: only changes, consistent at every moment, and no private files."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.errors import BundleError, PublishError
from bundles.publisher.lifecycle import refresh_site
from bundles.publisher.push.destination import Destination, Sending
from bundles.publisher.push.plan import Plan, Source, files_of
from bundles.publisher.push.push import Push, open_destination
from bundles.publisher.roles import RoleKeys
from bundles.publisher.signing_keys import make_key
from bundles.publisher.site import Site
from tests.bundles.publisher.push.conftest import Silent

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher


class Killed(BaseException):
    """An exception that no code handles."""


Open = Callable[[], Destination]
Opened = Callable[[str], Destination]
_WEEK = timedelta(days=7)


def run(site: Site, destination: Destination, **options: object) -> Plan:
    return Push(site, destination, **options).run(Silent()).plan  # type: ignore[arg-type]


def test_hosts_follow_pushed_releases(
    publisher: Publisher, open_www: Open, www: Path, new_host: Callable[..., Host]
) -> None:
    run(publisher.site, open_www())
    host = new_host(www)
    assert host.version() == "1.0.0"
    publisher.publish("1.1.0")
    assert host.version() == "1.0.0"
    run(publisher.site, open_www())
    assert host.version() == "1.1.0"
    assert host.fetch()


def test_push_copies_only_changes(publisher: Publisher, open_www: Open) -> None:
    first = run(publisher.site, open_www())
    assert set(first.copied) == files_of(publisher.site.public).keys()
    assert run(publisher.site, open_www()).is_empty
    before = set(files_of(publisher.site.public))
    publisher.publish("1.1.0")
    changed = run(publisher.site, open_www())
    assert set(changed.copied) == {
        *files_of(publisher.site.public).keys() - before,
        "metadata/timestamp.json",
    }
    assert run(publisher.site, open_www()).is_empty


def test_push_plan_equals_the_push(publisher: Publisher, open_www: Open, www: Path) -> None:
    planned = Push(publisher.site, open_www()).plan()
    assert not www.exists()
    watch = Silent()
    done = Push(publisher.site, open_www()).run(watch)
    assert (done.plan, watch.plans, watch.files) == (planned, [planned], list(planned.copied))


def test_the_timestamp_comes_after_all_that_it_leads_to(publisher: Publisher, open_www: Open) -> None:
    copied = run(publisher.site, open_www()).copied
    assert copied[-2:] == ("metadata/timestamp.json", "metadata/1.root.json")
    assert copied.index("metadata/timestamp.json") == len(copied) - 2


class Dying:
    """A destination whose process is killed after ``writes`` files."""

    def __init__(self, inner: Destination, writes: int) -> None:
        self._inner = inner
        self.left = writes

    def files(self) -> dict[str, int] | None:
        return self._inner.files()

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return self._inner.sizes(paths)

    def read(self, path: str, limit: int) -> bytes | None:
        return self._inner.read(path, limit)

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        for source in sources:
            if self.left == 0:
                raise Killed
            self.left -= 1
            self._inner.write([source], watch)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self.left == 0:
                raise Killed
            self.left -= 1
            self._inner.remove([path])

    def close(self) -> None:
        self._inner.close()

    def __str__(self) -> str:
        return str(self._inner)


def _survivors(publisher: Publisher, open_www: Open) -> Iterable[bool]:
    """Kill each push one step later than the previous push. Yield whether the push was complete."""
    for step in range(200):
        dying = Dying(open_www(), step)
        with suppress(Killed):
            run(publisher.site, dying, keep=timedelta(0))
        yield dying.left > 0
        if dying.left > 0:
            return
    raise AssertionError("the push never ends")


@pytest.mark.representatives(1)
def test_killed_push_shows_hosts_the_old_or_the_new_site(
    publisher: Publisher, open_www: Open, www: Path, new_host: Callable[..., Host]
) -> None:
    run(publisher.site, open_www())
    host = new_host(www)
    host.refresh()
    publisher.publish("1.1.0")
    publisher.publish("0.1.0", name="db")
    seen = []
    for step, _ in enumerate(_survivors(publisher, open_www)):
        fresh = new_host(www, name=f"host{step}")
        assert (host.version(), host.version("db")) == (fresh.version(), fresh.version("db"))
        seen.append((host.version(), host.version("db")))
        assert host.fetch()
    assert seen[0] == ("1.0.0", None)
    assert seen[-1] == ("1.1.0", "0.1.0")
    assert set(seen) == {seen[0], seen[-1]}


@pytest.mark.everything
@pytest.mark.parametrize("role", ["root", "targets", "snapshot", "timestamp"])
@pytest.mark.representatives(1)
def test_killed_push_of_a_new_key_locks_no_host_out(
    publisher: Publisher, www: Path, new_host: Callable[..., Host], clock: Clock, tmp_path: Path, role: str
) -> None:
    def open_www() -> Destination:
        return open_destination(str(www))

    run(publisher.site, open_www())
    host = new_host(www)
    host.refresh()
    host.anchor = anchor = publisher.site.anchor.read_bytes()
    RoleKeys(publisher.site, lambda _: b"").rotate(role, lambda: make_key(None))
    for step, _ in enumerate(_survivors(publisher, open_www)):
        fresh = type(host)(tmp_path / f"host{step}", anchor, clock, host.mirrors)
        assert host.version() == fresh.version() == "1.0.0"
    publisher.publish("1.1.0")
    for _ in _survivors(publisher, open_www):
        assert host.version() in ("1.0.0", "1.1.0")
    assert host.version() == "1.1.0"


# -- what must not be pushed ----------------------------------------------------------------------


def test_an_older_edition_is_not_pushed_over_a_newer_one(
    publisher: Publisher, open_www: Open, tmp_path: Path, clock: Clock
) -> None:
    old = Path(shutil.copytree(publisher.site.directory, tmp_path / "old"))
    publisher.publish("1.1.0")
    run(publisher.site, open_www())
    with pytest.raises(
        PublishError,
        match="has version 3 of the timestamp, and this site has version 2; check that this site is not an old copy",
    ):
        run(Site(old, clock), open_www())
    run(Site(old, clock), open_www(), replace=True)


def test_two_copies_of_a_site_do_not_take_turns(
    publisher: Publisher, open_www: Open, tmp_path: Path, clock: Clock
) -> None:
    copy = Path(shutil.copytree(publisher.site.directory, tmp_path / "copy"))
    run(publisher.site, open_www())
    publisher.refresh()
    run(publisher.site, open_www())
    clock.advance(hours=1)
    refresh_site(Site(copy, clock), lambda _: b"")
    with pytest.raises(PublishError, match="has version 3 of the timestamp, and this site has version 3"):
        run(Site(copy, clock), open_www())


def test_another_site_is_not_pushed_over(
    publisher: Publisher, new_publisher: Callable[..., Publisher], open_www: Open
) -> None:
    run(publisher.site, open_www())
    other = new_publisher("other")
    with pytest.raises(PublishError, match="contains another site"):
        run(other.site, open_www(), replace=True)


def test_expired_metadata_are_not_pushed(publisher: Publisher, open_www: Open, clock: Clock) -> None:
    clock.advance(days=8)
    with pytest.raises(PublishError, match=r"expired at .*; run `puller site refresh`"):
        run(publisher.site, open_www())
    publisher.refresh()
    run(publisher.site, open_www())


def test_a_damaged_bundle_is_found_before_it_is_sent(publisher: Publisher, open_www: Open, www: Path) -> None:
    (archive,) = publisher.site.public.rglob("*.tar.gz")
    archive.write_bytes(b"x" * archive.stat().st_size)
    with pytest.raises(PublishError, match=r"web-1\.0\.0\.tar\.gz: differs from the checksum in its name"):
        run(publisher.site, open_www())
    assert not (www / "metadata/timestamp.json").exists()


@pytest.mark.parametrize("lost", ["*.tar.gz", "*.index.json", "*.history.json"])
@pytest.mark.representatives(1)
def test_site_with_a_missing_file_is_not_pushed(
    publisher: Publisher, open_www: Open, www: Path, new_host: Callable[..., Host], lost: str
) -> None:
    run(publisher.site, open_www())
    publisher.publish("1.1.0")
    before = set(files_of(www))
    for path in publisher.site.public.glob(f"targets/web/{lost}"):
        if str(path.relative_to(publisher.site.public)) not in before:
            path.unlink()
    with pytest.raises(BundleError, match=r"is missing; restore it|No such file"):
        run(publisher.site, open_www())
    assert new_host(www).version() == "1.0.0"


def test_truncated_archive_is_not_pushed(publisher: Publisher, open_www: Open) -> None:
    run(publisher.site, open_www())
    (archive,) = publisher.site.public.rglob("*.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(PublishError, match=r"web-1\.0\.0\.tar\.gz: has \d+ bytes, expected \d+; restore it"):
        run(publisher.site, open_www())


def _another(data: bytes) -> bytes:
    return gzip.compress(b"something else")


def _longer(data: bytes) -> bytes:
    return data + b"\0"


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _emptied(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damaged", [_another, _longer, _cut, _emptied])
@pytest.mark.representatives(2)
def test_a_damaged_file_of_a_bundle_is_found_before_it_is_sent(
    publisher: Publisher, open_www: Open, www: Path, damaged: Callable[[bytes], bytes]
) -> None:
    path = next(publisher.site.public.glob("targets/files/*/*.gz"))
    path.write_bytes(damaged(path.read_bytes()))
    with pytest.raises(
        PublishError,
        match=rf"{path.name}: differs from the checksum in its name \(.*\); `puller site verify`",
    ):
        run(publisher.site, open_www())
    assert not (www / "metadata/timestamp.json").exists()


def test_a_destination_that_keeps_nothing_is_noticed(publisher: Publisher, open_www: Open) -> None:
    class Sink(Dying):
        def write(self, sources: Sequence[Source], watch: Sending) -> None:
            for source in sources:
                watch.sent(source.path, source.size)

    with pytest.raises(
        PublishError, match=r"timestamp\.json: differs from the pushed file; .*stores nothing"
    ):
        run(publisher.site, Sink(open_www(), 0))


def test_metadata_that_was_changed_by_hand_is_not_pushed(publisher: Publisher, open_www: Open) -> None:
    for path in publisher.site.metadata.glob("*.snapshot.json"):
        path.write_bytes(path.read_bytes().replace(b'"expires":"2', b'"expires":"3'))
    with pytest.raises(Exception, match=r"signature|signed|threshold"):
        run(publisher.site, open_www())


def test_concurrent_push_of_another_publisher_is_noticed(
    publisher: Publisher, www: Path, open_www: Open
) -> None:
    run(publisher.site, open_www())
    publisher.publish("1.1.0")

    class Late(Dying):
        def write(self, sources: Sequence[Source], watch: Sending) -> None:
            (www / "metadata/timestamp.json").write_bytes(b"{}")
            super().write(sources, watch)

    with pytest.raises(PublishError, match="was changed by another push at the same time"):
        run(publisher.site, Late(open_www(), 100))
    assert (www / "metadata/timestamp.json").read_bytes() == b"{}"


def test_publication_during_a_push_is_included(
    publisher: Publisher,
    open_www: Open,
    www: Path,
    new_host: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = iter(["1.1.0", "1.2.0", "1.3.0"])  # the first new history is removed

    def slowly(public: Path) -> dict[str, int]:
        for version in versions:
            publisher.publish(version)
        return files_of(public)

    monkeypatch.setattr("bundles.publisher.push.push.files_of", slowly)
    run(publisher.site, open_www())
    assert new_host(www).version() == "1.3.0"


def test_single_push_to_a_destination_at_a_time(publisher: Publisher, open_www: Open) -> None:
    push = Push(publisher.site, open_www())

    class Nested(Silent):
        def planned(self, steps: Plan) -> None:
            super().planned(steps)
            with pytest.raises(PublishError, match="is in use by another push"):
                push.run(Silent())

    push.run(Nested())


@pytest.mark.everything
@pytest.mark.representatives(1)
def test_a_large_file_is_watched_while_it_is_on_its_way(
    publisher: Publisher, open_www: Open, ssh: Path
) -> None:
    slow = ssh.read_text().replace("exec sh", 'case "$last" in *tar*) sleep 1;; esac\nexec sh')
    ssh.write_text(slow)
    publisher.publish("1.1.0", text=os.urandom(3_000_000).hex())
    watch = Silent()
    Push(publisher.site, open_www()).run(watch)
    sizes = files_of(publisher.site.public)
    (large,) = (path for path in sizes if path.endswith("web-1.1.0.tar.gz"))
    assert watch.parts
    assert all(have <= sum(sizes.values()) for _, have in watch.parts)
    if large in dict(watch.parts):
        assert dict(watch.parts)[large] == sizes[large]


# -- existing files -------------------------------------------------------------------------------


@pytest.fixture
def private_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("private_umask")
def test_pushed_files_are_readable_under_any_umask(publisher: Publisher, open_www: Open, www: Path) -> None:
    run(publisher.site, open_www())
    assert {stat.S_IMODE(path.stat().st_mode) for path in (www, *www.rglob("*"))} == {0o755, 0o644}


def test_a_directory_that_leads_to_another_disk_is_looked_into(
    publisher: Publisher, open_www: Open, www: Path, tmp_path: Path
) -> None:
    www.mkdir()
    (tmp_path / "disk").mkdir()
    (www / "targets").symlink_to(tmp_path / "disk")
    run(publisher.site, open_www())
    assert run(publisher.site, open_www()).is_empty


@pytest.mark.everything
@pytest.mark.parametrize(
    ("name", "value"), [("TIME_STYLE", "long-iso"), ("BLOCK_SIZE", "1K"), ("QUOTING_STYLE", "c")]
)
def test_remote_files_are_listed_under_any_shell_settings(
    publisher: Publisher,
    ssh: Path,
    www: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    opened: Opened,
) -> None:
    run(publisher.site, opened(f"host:{www}"))
    monkeypatch.setenv(name, value)
    assert run(publisher.site, opened(f"host:{www}")).is_empty


def test_files_of_others_are_left_alone(publisher: Publisher, open_www: Open, www: Path) -> None:
    others = ["index.html", "targets/README", "metadata/notes.txt", "web/1.root.json"]
    for name in others:
        (www / name).parent.mkdir(parents=True, exist_ok=True)
        (www / name).write_text("mine\n")
    run(publisher.site, open_www(), keep=timedelta(0))
    assert [(www / name).read_text() for name in others] == ["mine\n"] * len(others)


def test_removed_files_stay_for_the_life_of_a_timestamp(
    publisher: Publisher, open_www: Open, www: Path, clock: Clock
) -> None:
    publisher.publish("1.1.0")
    run(publisher.site, open_www())
    gone = "metadata/2.snapshot.json"
    (publisher.site.public / gone).unlink()
    for _ in range(2):
        assert list(run(publisher.site, open_www()).gone) == [gone]
        assert (www / gone).exists()
        clock.advance(days=3)
    clock.advance(days=2)
    publisher.refresh()
    assert run(publisher.site, open_www()).removed == (gone,)
    assert not (www / gone).exists()
    assert run(publisher.site, open_www()).is_empty


def test_roots_are_never_removed(publisher: Publisher, open_www: Open, www: Path) -> None:
    run(publisher.site, open_www())
    shutil.copy(www / "metadata/1.root.json", www / "metadata/9.root.json")
    assert run(publisher.site, open_www(), keep=timedelta(0)).removed == ()


def test_damaged_remote_file_with_another_size_is_copied(
    publisher: Publisher, open_www: Open, www: Path
) -> None:
    run(publisher.site, open_www())
    (archive,) = www.rglob("*.tar.gz")
    archive.write_bytes(b"")
    assert run(publisher.site, open_www()).copied == (str(archive.relative_to(www)),)


def test_a_lost_record_costs_a_closer_look_and_nothing_else(
    publisher: Publisher, open_www: Open, www: Path, new_host: Callable[..., Host]
) -> None:
    run(publisher.site, open_www())
    shutil.rmtree(publisher.site.directory / "pushes")
    named = www / "metadata/2.snapshot.json"
    named.write_bytes(named.read_bytes().replace(b"snapshot", b"snapsh0t", 1))  # of equal size
    assert run(publisher.site, open_www()).copied == ("metadata/2.snapshot.json",)
    assert new_host(www).version() == "1.0.0"


class Unlisted(Dying):
    """A destination that cannot list its files."""

    def __init__(self, inner: Destination, writes: int = 10_000) -> None:
        super().__init__(inner, writes)
        self.asked: set[str] = set()

    def files(self) -> None:
        return None

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        self.asked |= set(paths)
        return super().sizes(paths)


@pytest.mark.representatives(1)
def test_resumed_push_without_listing_sends_no_file_twice(publisher: Publisher, open_www: Open) -> None:
    run(publisher.site, Unlisted(open_www()))
    before = set(files_of(publisher.site.public))
    publisher.publish("1.1.0")
    new = set(files_of(publisher.site.public)) - before
    with pytest.raises(Killed):
        run(publisher.site, Unlisted(open_www(), 3))
    again = Unlisted(open_www())
    assert len(run(publisher.site, again).copied) == len(new) + 1 - 3
    assert again.asked == new
    ended = Unlisted(open_www())
    assert run(publisher.site, ended).is_empty
    assert not ended.asked


@pytest.mark.everything
@pytest.mark.representatives(1)
def test_killed_push_without_listing_removes_old_files(
    publisher: Publisher, open_www: Open, www: Path
) -> None:
    publisher.publish("1.1.0")
    run(publisher.site, Unlisted(open_www()))
    (publisher.site.public / "metadata/2.snapshot.json").unlink()
    publisher.publish("1.2.0")
    for step in range(200):
        dying = Unlisted(open_www(), step)
        with suppress(Killed):
            run(publisher.site, dying, keep=timedelta(0))
        if dying.left > 0:
            break
    assert files_of(www) == files_of(publisher.site.public)


@pytest.mark.representatives(1)
def test_full_check_sees_foreign_changes(publisher: Publisher, open_www: Open, www: Path) -> None:
    run(publisher.site, Unlisted(open_www()))
    (archive,) = www.rglob("*.tar.gz")
    archive.unlink()
    snapshot = www / "metadata/2.snapshot.json"
    snapshot.write_bytes(snapshot.read_bytes().replace(b"snapshot", b"snapsh0t", 1))  # of equal size
    assumed = run(publisher.site, Unlisted(open_www()))
    assert (assumed.is_empty, assumed.is_remembered) == (True, True)
    result = run(publisher.site, Unlisted(open_www()), compare=True)
    assert set(result.copied) == {str(archive.relative_to(www)), "metadata/2.snapshot.json"}
    assert not result.is_remembered
    assert run(publisher.site, open_www(), compare=True).is_empty


def test_a_damaged_record_is_as_good_as_none(publisher: Publisher, open_www: Open) -> None:
    run(publisher.site, open_www())
    (record,) = (publisher.site.directory / "pushes").glob("*.json")
    record.write_text('{"format": 1, "gone": 3}')
    assert run(publisher.site, open_www()).is_empty


def test_a_connection_that_fails_once_is_tried_again(
    publisher: Publisher,
    ssh: Path,
    www: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: Opened,
) -> None:
    monkeypatch.setenv("FAILS", str(tmp_path / "failed"))
    run(publisher.site, opened(f"ssh://me@host:2222{www}"))
    assert (tmp_path / "failed").exists()
    assert (www / "metadata/timestamp.json").exists()


@pytest.mark.everything
def test_a_shell_that_greets_is_no_problem(
    publisher: Publisher, ssh: Path, www: Path, opened: Opened
) -> None:
    ssh.write_text(ssh.read_text().replace("exec sh", "echo Welcome to www; echo; exec sh"))
    run(publisher.site, opened(f"host:{www}"))
    assert run(publisher.site, opened(f"host:{www}"), compare=True).is_empty
    publisher.publish("1.1.0")
    run(publisher.site, opened(f"host:{www}"))


@pytest.mark.everything
def test_leftovers_at_the_far_side_go_when_they_are_old(
    publisher: Publisher, ssh: Path, www: Path, opened: Opened
) -> None:
    for name, age in (("old", 3 * 86400), ("new", 60)):
        (www / f".puller-push-{name}").mkdir(parents=True)
        then = os.stat(www).st_mtime - age
        os.utime(www / f".puller-push-{name}", (then, then))
    run(publisher.site, opened(f"host:{www}"))
    assert [path.name for path in www.glob(".puller-push-*")] == [".puller-push-new"]


def test_remote_messages_are_reported(
    publisher: Publisher, ssh: Path, tmp_path: Path, opened: Opened
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PublishError, match=r"mkdir|cannot|Not a directory|File exists"):
        run(publisher.site, opened(f"host:{tmp_path}/file/www"))


def test_push_skips_directories_of_a_running_publisher(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = publisher.site.public
    before = files_of(public)
    (public / "targets/.build-x").mkdir()
    scandir = os.scandir

    def vanishing(path: str | int) -> object:
        if ".build-x" in str(path):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", vanishing)
    assert files_of(public) == before
