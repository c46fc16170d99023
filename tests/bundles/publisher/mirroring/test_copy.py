"""A copy of a site: its contents for hosts, rejected sources, and unchanged files."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.errors import BundleError, FormatError, RollbackError, SettingsError, SignatureError, StoreError
from bundles.progress import Transfer, watched_by
from bundles.publisher.mirroring.copy import Copied, SiteCopy
from bundles.publisher.mirroring.mirror_state import Selection, State
from bundles.publisher.push.plan import files_of
from bundles.publisher.roles import RoleKeys
from bundles.publisher.signing_keys import make_key
from bundles.transport.mirror import open_mirrors
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher

Follow = Callable[..., Copied]


class Killed(BaseException):
    """An exception that no code handles."""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return the directory of the copy."""
    return tmp_path / "copy"


@pytest.fixture
def follow(publisher: Publisher, copied: Path, clock: Clock) -> Follow:
    """Return a function that runs the copy as a timer does."""

    def run(*bundles: str, channels: tuple[str, ...] = (), place: Path | None = None) -> Copied:
        return _copy(publisher, copied, clock, Selection(bundles, channels), place).run()

    return run


def _copy(
    publisher: Publisher,
    copied: Path,
    clock: Clock,
    selection: Selection | None = None,
    place: Path | None = None,
) -> SiteCopy:
    [mirror] = open_mirrors([str(place or publisher.served)])
    return SiteCopy(mirror, copied, publisher.site.anchor, selection, clock)


def _contents(public: Path) -> dict[str, bytes]:
    return {path: (public / path).read_bytes() for path in files_of(public)}


def test_a_copy_has_the_same_files_byte_by_byte(publisher: Publisher, follow: Follow, copied: Path) -> None:
    publisher.publish("0.1.0", name="db")
    follow()
    assert _of_now(_contents(publisher.served)) == _of_now(_contents(copied / "public"))
    assert follow().is_empty


def _of_now(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Return the contents without files that only earlier editions of the site named."""
    return {path: data for path, data in contents.items() if "/files/" in path or path.endswith(".tar.gz")}


def test_mirror_files_are_readable_under_any_umask(follow: Follow, copied: Path) -> None:
    before = os.umask(0o077)
    try:
        follow()
    finally:
        os.umask(before)
    public = copied / "public"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (copied, public, *public.rglob("*"))} == {
        0o755,
        0o644,
    }
    assert stat.S_IMODE((copied / "mirror/trust").stat().st_mode) == 0o700


def test_hosts_follow_the_copy(
    publisher: Publisher, follow: Follow, copied: Path, new_host: Callable[..., Host]
) -> None:
    follow()
    host = new_host(copied / "public")
    assert host.version() == "1.0.0"
    publisher.publish("1.1.0")
    assert host.version() == "1.0.0"
    follow()
    assert host.version() == "1.1.0"
    assert host.fetch()


def test_mirror_fetches_only_new_files(publisher: Publisher, follow: Follow) -> None:
    follow()
    publisher.publish("1.1.0")
    fetched = follow().fetched
    assert [path for path in fetched if path.endswith(".tar.gz")] == [
        path for path in fetched if "web-1.1.0" in path
    ]


def test_who_watches_is_told_how_much_is_to_come(publisher: Publisher, follow: Follow) -> None:
    publisher.publish("1.1.0", text=os.urandom(1_000_000).hex())
    reported: list[tuple[int | None, int]] = []

    class Watcher:
        def moved(self, transfer: Transfer) -> None:
            reported.append((transfer.size, transfer.have))

        def ended(self, transfer: Transfer, *, well: bool) -> None:
            reported.append((transfer.size, transfer.have))

    with watched_by(Watcher()):
        follow()
    (size,) = {size for size, _ in reported}
    assert size
    assert 0.8 < reported[-1][1] / size < 1.25


def test_a_lost_record_costs_no_download(publisher: Publisher, follow: Follow, copied: Path) -> None:
    follow()
    (copied / "mirror/record.json").write_bytes(b"damaged")
    assert follow().fetched == ()


def test_changed_file_in_the_copy_is_fetched_again(follow: Follow, copied: Path) -> None:
    follow()
    [archive] = (copied / "public/targets/web").glob("*.tar.gz")
    right = archive.read_bytes()
    archive.write_bytes(b"x" * 10)
    assert follow().fetched == (str(archive.relative_to(copied / "public")),)
    assert archive.read_bytes() == right


def test_chosen_bundles_come_without_the_others(
    publisher: Publisher, follow: Follow, copied: Path, new_host: Callable[..., Host]
) -> None:
    publisher.publish("0.1.0", name="db")
    follow("db")
    assert not (copied / "public/targets/web").exists()
    host = new_host(copied / "public")
    host.bundles = ["db"]
    assert host.fetch("db")
    with pytest.raises(BundleError, match=r"targets/web/.*index\.json: .*(is missing|not|No)"):
        host.fetch("web")


def test_chosen_channels_come_without_other_releases(
    publisher: Publisher, follow: Follow, copied: Path
) -> None:
    publisher.publish("2.0.0", channel="canary")
    follow(channels=("stable",))
    assert [path.name[65:] for path in (copied / "public/targets/web").glob("*.tar.gz")] == [
        "web-1.0.0.tar.gz"
    ]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(("wbe",)), "bundle 'wbe'"),
        (Selection((), ("stabel",)), "channel 'stabel' is missing in the copied bundles"),
    ],
)
def test_a_name_that_the_site_does_not_know_is_refused(
    publisher: Publisher, copied: Path, clock: Clock, selection: Selection, words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        _copy(publisher, copied, clock, selection).run()
    assert not (copied / "public").exists()


@pytest.mark.attack("copy.rollback")
def test_mirror_refuses_with_the_message_of_a_host(
    publisher: Publisher, follow: Follow, copied: Path, new_host: Callable[..., Host]
) -> None:
    old = publisher.copy("old")
    publisher.publish("1.1.0")
    follow()
    host = new_host()
    host.refresh()
    before = _contents(copied / "public")
    shutil.rmtree(publisher.served)
    shutil.copytree(old, publisher.served)
    with pytest.raises(RollbackError) as of_host:
        host.refresh()
    with pytest.raises(RollbackError) as of_copy:
        follow()
    assert str(of_copy.value) == str(of_host.value)
    assert _contents(copied / "public") == before


@pytest.mark.attack("copy.rollback")
def test_a_rollback_is_refused_without_the_state_of_the_copy(
    publisher: Publisher, follow: Follow, copied: Path
) -> None:
    old = publisher.copy("old")
    publisher.publish("1.1.0")
    follow()
    shutil.rmtree(copied / "mirror")
    with pytest.raises(RollbackError):
        follow(place=old)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("changed", marks=pytest.mark.attack("copy.changed")),
        pytest.param("withheld", marks=pytest.mark.attack("copy.withheld")),
    ],
)
def test_a_copy_stays_as_it_was_when_a_bundle_is_wrong(
    publisher: Publisher, follow: Follow, copied: Path, what: str
) -> None:
    follow()
    before = _contents(copied / "public")
    publisher.publish("1.1.0")
    [archive] = (publisher.served / "targets/web").glob("*.web-1.1.0.tar.gz")
    if what == "changed":
        archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    else:
        archive.unlink()
    with pytest.raises(SignatureError if what == "changed" else BundleError, match=r"web-1\.1\.0\.tar\.gz"):
        follow()
    after = _contents(copied / "public")
    assert {path: after[path] for path in before} == before
    assert not any("web-1.1.0" in path for path in after)


@pytest.mark.attack("copy.freeze")
def test_a_site_that_has_expired_is_refused(follow: Follow, copied: Path, clock: Clock) -> None:
    follow()
    before = _contents(copied / "public")
    clock.advance(days=4000)
    with pytest.raises(BundleError, match="expired"):
        follow()
    assert _contents(copied / "public") == before


def test_unreachable_files_are_removed_from_the_mirror(
    publisher: Publisher, follow: Follow, copied: Path, clock: Clock
) -> None:
    follow()
    named = files_of(copied / "public").keys()
    publisher.publish("1.1.0")
    done = follow()
    assert done.kept
    assert not done.removed
    assert named <= files_of(copied / "public").keys()
    clock.advance(seconds=(max(done.kept.values()) - clock()).total_seconds() + 1)
    publisher.refresh()
    removed = follow().removed
    assert "metadata/1.root.json" not in removed
    assert set(done.kept) <= set(removed)


def test_mirror_dry_run_writes_nothing_and_predicts_the_run(
    publisher: Publisher, copied: Path, clock: Clock
) -> None:
    copy = _copy(publisher, copied, clock)
    planned = copy.plan()
    assert not copied.exists()
    assert copy.run() == planned


def test_another_root_or_site_is_refused(
    publisher: Publisher, follow: Follow, copied: Path, clock: Clock, tmp_path: Path
) -> None:
    follow()
    [mirror] = open_mirrors([str(publisher.served)])
    other = tmp_path / "other.json"
    other.write_bytes(publisher.site.anchor.read_bytes() + b"\n")
    with pytest.raises(SettingsError, match="is not a root of the copied site"):
        SiteCopy(mirror, copied, other, now=clock).run()
    with pytest.raises(SettingsError, match="the site of a publisher and not a copy"):
        SiteCopy(mirror, publisher.site.directory, publisher.site.anchor, now=clock).run()
    with pytest.raises(SettingsError, match="the first run requires --root"):
        SiteCopy(mirror, tmp_path / "new", None, now=clock).run()


def test_two_runs_at_once_are_refused(follow: Follow, copied: Path) -> None:
    with (
        State(copied).held(),
        pytest.raises(StoreError, match="is in use by another process that copies the site"),
    ):
        follow()


@pytest.mark.attack("copy.killed")
def test_hosts_see_something_whole_wherever_a_run_is_killed(
    publisher: Publisher,
    follow: Follow,
    copied: Path,
    clock: Clock,
    new_host: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow()
    host = new_host(copied / "public")
    host.refresh()
    publisher.publish("1.1.0")
    versions = []
    for step in range(200):
        with monkeypatch.context() as patched:
            remaining = _die_after(patched, step)
            with suppress(Killed):
                follow()
        versions.append(host.version())
        assert host.fetch()
        if remaining():
            break
    assert versions[0] == "1.0.0"
    assert versions[-1] == "1.1.0"
    assert len(versions) > 5


def _die_after(patched: pytest.MonkeyPatch, steps: int) -> Callable[[], bool]:
    """Kill the process at the rename or removal after ``steps``. The returned function reports whether it survived."""
    import os

    done = 0

    def dying(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            nonlocal done
            if done == steps:
                raise Killed
            done += 1
            return real(*arguments, **named)

        patched.setattr(os, name, call)

    for name in ("rename", "replace"):
        dying(name)
    return lambda: done < steps


@pytest.mark.attack("copy.mix")
@pytest.mark.parametrize("name", ["snapshot.json", "targets.json", f"{bin_of('web/index.json')}.json"])
def test_metadata_of_another_time_is_refused(
    publisher: Publisher, follow: Follow, copied: Path, name: str
) -> None:
    follow()
    before = _contents(copied / "public")
    forge = publisher.forge()
    forge.bin()
    for _ in range(2):
        forge.publish()
    old, new = sorted((publisher.served / "metadata").glob(f"*.{name}"))[-2:]
    shutil.copy(old, new)
    with pytest.raises(
        SignatureError, match=rf"{new.name}: (sha256|length) is .*, expected .* from the signed metadata"
    ):
        follow()
    assert _contents(copied / "public") == before


@pytest.mark.attack("copy.withheld")
def test_bin_of_an_uncopied_bundle_is_required(publisher: Publisher, follow: Follow, copied: Path) -> None:
    publisher.publish("0.1.0", name="db")
    [*_, bin_file] = sorted((publisher.served / "metadata").glob(f"*.{bin_of('web/index.json')}.json"))
    bin_file.unlink()
    with pytest.raises(BundleError, match=bin_file.name):
        follow("db")
    assert not (copied / "public").exists()


@pytest.mark.attack("copy.path")
@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "web/web-1.0.0.tar.gz", "files/ab/x.gz"])
def test_a_path_that_a_copy_must_not_write_to_is_refused(
    publisher: Publisher, follow: Follow, copied: Path, path: str
) -> None:
    [index] = (publisher.served / "targets/web").glob("*.index.json")
    document = json.loads(index.read_bytes())
    document["releases"]["1.0.0"]["archive"]["path"] = path
    forge = publisher.forge()
    forge.put_index(json.dumps(document).encode())
    forge.publish()
    with pytest.raises(FormatError, match=r"path|expected a name that starts with the sha256"):
        follow()
    assert not (copied / "public").exists()


@pytest.mark.attack("copy.file")
def test_unsigned_file_content_is_refused(publisher: Publisher, follow: Follow, copied: Path) -> None:
    follow()
    before = _contents(copied / "public")
    publisher.publish("1.1.0")
    for path in files_of(publisher.served).keys() - before.keys():
        if path.startswith("targets/files/"):
            (publisher.served / path).write_bytes(gzip.compress(b"another"))
    with pytest.raises(SignatureError, match=r"targets/files/"):
        follow()
    assert {path: _contents(copied / "public")[path] for path in before} == before


def test_missing_file_is_accepted_beside_its_archive(
    publisher: Publisher, follow: Follow, copied: Path, new_host: Callable[..., Host]
) -> None:
    shutil.rmtree(publisher.served / "targets/files")
    follow()
    assert new_host(copied / "public").fetch()


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", "root"])
@pytest.mark.representatives(1)
def test_hosts_follow_a_copy_over_a_change_of_keys(
    publisher: Publisher, follow: Follow, copied: Path, new_host: Callable[..., Host], role: str
) -> None:
    follow()
    host = new_host(copied / "public")
    host.refresh()
    RoleKeys(publisher.site, lambda _: b"").rotate(role, lambda: make_key(None))
    publisher.deploy()
    follow()
    assert host.version() == "1.0.0"
    publisher.publish("1.1.0")
    follow()
    assert host.version() == "1.1.0"
    assert new_host(copied / "public", name="new").version() == "1.1.0"


def test_hosts_with_an_earlier_root_than_the_copy_find_all_roots(
    publisher: Publisher, copied: Path, clock: Clock, new_host: Callable[..., Host], tmp_path: Path
) -> None:
    first = publisher.copy("first") / "metadata/1.root.json"
    RoleKeys(publisher.site, lambda _: b"").rotate("root", lambda: make_key(None))
    publisher.deploy()
    [mirror] = open_mirrors([str(publisher.served)])
    SiteCopy(mirror, copied, publisher.served / "metadata/2.root.json", now=clock).run()
    host = new_host(copied / "public")
    host.anchor = first
    assert host.version() == "1.0.0"
