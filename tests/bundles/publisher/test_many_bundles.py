"""Many bundles, published in one signed step: which bundles get a version. Hosts see all of them or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bundles.archive.pack import BuiltBundle, DescribedBundle, build_bundle
from bundles.errors import BundleError, KeyFileError, PublishError, SignatureError
from bundles.format.release import Release
from bundles.publisher.channels import AT_ONCE, Channels, RolloutRequest
from bundles.publisher.lifecycle import verify_site
from bundles.publisher.publication import Publication, PublishRequest, plan_bundles, publish_bundles
from bundles.publisher.published import AUTO, Changes
from bundles.publisher.site import Site

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher, Survives

NAMES = ("app", "db", "web")
TENTH = RolloutRequest(percent=10)


def never(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


class Repository:
    """The bundles of an author, and their site."""

    def __init__(self, directory: Path, site: Site) -> None:
        self.directory = directory
        self.site = site
        for name in NAMES:
            self.write(f"{name}/manifest.yaml", "resources: []\n")

    def write(self, path: str, text: str) -> None:
        (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
        (self.directory / path).write_text(text)

    @property
    def sources(self) -> list[Path]:
        return sorted(path for path in self.directory.iterdir() if path.is_dir())

    def publish(
        self, version: str | None = AUTO, channel: str = "stable", request: RolloutRequest = AT_ONCE
    ) -> list[Publication]:
        return publish_bundles(self.site, self.sources, PublishRequest(version, channel, request), never)

    def plan(self, channel: str = "stable") -> list[Publication]:
        return plan_bundles(self.site, self.sources, PublishRequest(AUTO, channel))


@pytest.fixture
def repository(new_publisher: Callable[..., Publisher], tmp_path: Path) -> Repository:
    """Return ``app``, ``db`` and ``web`` with an empty site."""
    return Repository(tmp_path / "bundles", new_publisher("author").site)


@pytest.fixture
def published(repository: Repository) -> Repository:
    """Return the bundles, all published as 1.0.0 in channel stable."""
    repository.publish()
    return repository


def said(publications: list[Publication]) -> dict[str, tuple[str | None, str]]:
    """Return the versions before and after, for each bundle whose channel changed."""
    return {item.release.bundle: (item.before, item.release.version) for item in publications if item.changed}


# --- new versions -------------------------------------------------------------------------------------------


def test_the_first_version_of_each_is_one(repository: Repository) -> None:
    assert said(repository.publish()) == dict.fromkeys(NAMES, (None, "1.0.0"))
    assert verify_site(repository.site).targets == 9


def test_only_changed_bundles_get_a_new_version(published: Repository) -> None:
    published.write("web/text", "new\n")
    publications = published.publish()
    assert said(publications) == {"web": ("1.0.0", "1.0.1")}
    assert [str(item.release) for item in publications] == ["app 1.0.0", "db 1.0.0", "web 1.0.1"]
    listed = {item.release.bundle: item for item in published.site.releases()}
    for item in publications:
        assert (listed[item.release.bundle].sha256, listed[item.release.bundle].size) == (
            item.sha256,
            item.size,
        )


def test_nothing_changed_writes_and_signs_nothing(published: Repository) -> None:
    before = contents(published.site.directory)
    for _ in range(2):
        assert said(published.publish()) == {}
    assert contents(published.site.directory) == before


def test_published_bundle_is_not_packed_again(published: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def pack(bundle: DescribedBundle, output: Path) -> BuiltBundle:
        raise AssertionError(f"{bundle.description.name} is packed")

    monkeypatch.setattr(DescribedBundle, "pack", pack)
    assert said(published.publish()) == {}
    assert said(published.publish("1.0.0")) == {}
    assert said(published.publish("1.0.0", "canary")) == dict.fromkeys(NAMES, (None, "1.0.0"))
    published.write("web/text", "new\n")
    with pytest.raises(AssertionError, match="web is packed"):
        published.publish()


def test_all_are_signed_once(published: Repository) -> None:
    for name in NAMES:
        published.write(f"{name}/text", "new\n")
    published.publish()
    assert {role.role: role.version for role in published.site.roles()} == {
        "root": 1, "targets": 1, "snapshot": 3, "timestamp": 3,
    }  # fmt: skip


def make_executable(directory: Path) -> None:
    (directory / "text").chmod(0o755)


def touch(directory: Path) -> None:
    os.utime(directory / "text", (0, 0))
    (directory / "text").chmod(0o600)
    (directory / "text~").write_text("of an editor")
    (directory / "empty").mkdir()


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda web: (web / "text").write_text("other\n"), Changes((), (), ("text",))),
        (lambda web: (web / "more").write_text(""), Changes(("more",), (), ())),
        (lambda web: (web / "text").unlink(), Changes((), ("text",), ())),
        (lambda web: (web / "text").rename(web / "renamed"), Changes(("renamed",), ("text",), ())),
        (make_executable, Changes((), (), ("text",))),
        (touch, None),  # files outside the bundle do not count as changes
    ],
)
def test_changes_are_judged_by_unpacked_content(
    repository: Repository, change: Callable[[Path], object], expected: Changes | None
) -> None:
    repository.write("web/text", "text\n")
    repository.publish()
    change(repository.directory / "web")
    (web,) = (item for item in repository.publish() if item.release.bundle == "web")
    assert (web.changed, web.changes) == (expected is not None, expected or Changes((), (), ()))


def test_a_library_is_told_from_the_files_of_the_bundle() -> None:
    changes = Changes(
        ("libraries/common/new", "own"), ("libraries/users/files/old",), ("libraries/common/a", "libraries")
    )
    assert changes.libraries == ("common", "users")
    assert changes.own() == Changes(("own",), (), ("libraries",))
    assert Changes((), (), ("libraries/README",)).libraries == ()


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("version", "following"),
    [("1.4.0", "1.4.1"), ("2.0.0-rc1", "2.0.1"), ("v3", "v4"), ("summer", "summer.1")],
)
def test_next_version_follows_a_version_named_by_hand(
    published: Repository, version: str, following: str
) -> None:
    published.write("web/text", "by hand\n")
    publish_bundles(published.site, [published.directory / "web"], PublishRequest(version), never)
    published.write("web/text", "new\n")
    assert said(published.publish()) == {"web": (version, following)}


def test_next_version_follows_versions_of_all_channels(published: Repository) -> None:
    published.write("web/text", "canary\n")
    published.publish(channel="canary")
    published.write("web/text", "canary again\n")
    published.publish(channel="canary")  # web 1.0.2
    Channels(published.site, never).withdraw("web", "canary")
    published.write("web/text", "stable\n")
    assert said(published.publish()) == {"web": ("1.0.0", "1.0.3")}


def test_the_next_version_asks_no_clock(published: Repository, clock: Clock) -> None:
    for number in range(1, 4):
        published.write("web/text", f"{number}\n")
        clock.now -= timedelta(hours=1)
        assert said(published.publish())["web"][1] == f"1.0.{number}"


def test_rolled_back_bundle_is_compared_with_the_channel(published: Repository) -> None:
    published.write("web/text", "bad\n")
    published.publish()
    Channels(published.site, never).roll_back("web", "stable", "1.0.0")
    assert said(published.plan()) == {"web": ("1.0.0", "1.0.2")}
    (published.directory / "web/text").unlink()
    assert said(published.publish()) == {}
    assert published.site.indexes().find("web", "stable") == Release.of("web", "1.0.0")


def test_files_that_an_older_version_had_get_a_new_version(published: Repository) -> None:
    published.write("web/text", "new\n")
    published.publish()
    (published.directory / "web/text").unlink()
    assert said(published.publish()) == {"web": ("1.0.1", "1.0.2")}


@pytest.mark.parametrize("halted", [False, True])
def test_rollout_of_an_unchanged_bundle_continues(published: Repository, halted: bool) -> None:
    published.write("web/text", "new\n")
    published.publish(request=TENTH)
    if halted:
        Channels(published.site, never).halt("web", "stable")
    before = published.site.indexes()
    published.write("db/text", "new\n")
    assert said(published.publish(request=RolloutRequest(percent=50))) == {"db": ("1.0.0", "1.0.1")}
    after = published.site.indexes()
    assert after.find("web", "stable") == before.find("web", "stable")
    db = after.find("db", "stable")
    assert db is not None
    assert db.rollout is not None
    assert (db.rollout.percent, db.rollout.before) == (50, Release.of("db", "1.0.0"))


def test_a_version_that_is_given_is_for_all_unchanged_ones_too(published: Repository) -> None:
    published.write("web/text", "new\n")
    assert said(published.publish("1.4.0")) == dict.fromkeys(NAMES, ("1.0.0", "1.4.0"))
    assert said(published.publish("1.4.0")) == {}


def test_archives_and_directories_are_published_together(published: Repository, tmp_path: Path) -> None:
    archive = tmp_path / "shop.tar.gz"
    build_bundle(published.directory / "web", archive, name="shop", version="1.4.0")
    sources = [archive, published.directory / "web"]
    assert said(publish_bundles(published.site, sources, PublishRequest("1.4.0"), never)) == {
        "shop": (None, "1.4.0"),
        "web": ("1.0.0", "1.4.0"),
    }
    with pytest.raises(PublishError, match=r"version is '1\.4\.0' in the archive, expected 'auto'"):
        publish_bundles(published.site, sources, PublishRequest(AUTO), never)


# --- problems of one bundle -----------------------------------------------------------------------------------


def test_problems_of_all_bundles_are_reported_together(published: Repository) -> None:
    (published.directory / "app/link").symlink_to("/etc/motd")
    (published.directory / "db/manifest.yaml").unlink()
    published.write("web/text", "new\n")
    before = contents(published.site.directory)
    with pytest.raises(PublishError) as caught:
        published.publish()
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 3 bundles cannot be published, so nothing was published:"
    assert lines[1].endswith(
        "bundles/app: 'link': is a symbolic link, expected a regular file or a directory"
    )
    assert "bundles/db" in lines[2]
    assert "'manifest.yaml' is missing at the top of the bundle" in lines[2]
    assert contents(published.site.directory) == before


def test_versions_that_have_other_contents_are_all_named(published: Repository) -> None:
    for name in ("db", "web"):
        published.write(f"{name}/text", "new\n")
    with pytest.raises(PublishError) as caught:
        published.publish("1.0.0")
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()[1:]] == [
        "db 1.0.0",
        "web 1.0.0",
    ]


def test_a_rollout_that_cannot_be_asked_for_stops_all(published: Repository) -> None:
    published.write("web/text", "new\n")
    published.publish("1.1.0", request=TENTH)
    Channels(published.site, never).halt("db", "stable")
    before = published.site.indexes()
    with pytest.raises(PublishError) as caught:
        published.publish("1.1.0")
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 of 3 bundles cannot be published, so nothing was published:"
    assert "app 1.1.0: is in a rollout at 10 %" in lines[1]
    assert "db 1.1.0: is halted at 10 %" in lines[2]
    assert published.site.indexes() == before


def test_duplicate_bundle_name_names_both_directories(published: Repository, tmp_path: Path) -> None:
    other = shutil.copytree(published.directory / "web", tmp_path / "other/web")
    web = published.directory / "web"
    for sources in ([web, other], [web, web]):
        with pytest.raises(PublishError, match=f"{sources[1]}: contains bundle 'web', as {web}"):
            publish_bundles(published.site, sources, PublishRequest("1.4.0"), never)
    assert [item.release.version for item in published.site.releases()] == ["1.0.0"] * 3


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes() + b"\0")])
def test_trust_covers_signed_publications_only(
    published: Repository, damage: Callable[[Path], object]
) -> None:
    """Changes on disk must not decide which bundles are new. Publishing a version by hand repairs the site."""
    (archive,) = published.site.public.glob("targets/web/*.tar.gz")
    damage(archive)
    with pytest.raises(
        BundleError, match=r"web-1\.0\.0\.tar\.gz: .*(No such file|from the signed index)"
    ) as caught:
        published.publish()
    assert isinstance(caught.value, SignatureError | PublishError)
    assert said(published.publish("1.4.0"))["web"] == ("1.0.0", "1.4.0")


def test_an_archive_that_changes_meanwhile_is_not_published(published: Repository, tmp_path: Path) -> None:
    """The signed archive is the inspected archive, even if the other bundles take long."""
    archive, other = tmp_path / "shop.tar.gz", tmp_path / "other.tar.gz"
    for path in (archive, other):
        build_bundle(published.directory / "web", path, name="shop", version="1.4.0")
        published.write("web/text", "new\n")
    before = contents(published.site.directory)

    def replace_archive(number: int, source: Path) -> None:
        if number == 2:
            other.rename(archive)

    sources = [archive, published.directory / "web"]
    with pytest.raises(PublishError, match=r"shop\.tar\.gz: changed while it was published"):
        publish_bundles(published.site, sources, PublishRequest("1.4.0"), never, replace_archive)
    assert contents(published.site.directory) == before


def test_a_missing_key_leaves_no_trace(published: Repository) -> None:
    (key,) = published.site.directory.glob("keys/targets-*.pem")
    key.unlink()
    published.write("web/text", "new\n")
    before = contents(published.site.directory)
    with pytest.raises(KeyFileError):
        published.publish()
    assert contents(published.site.directory) == before


# --- dry runs -------------------------------------------------------------------------------------------------


def test_publish_dry_run_predicts_and_writes_nothing(published: Repository) -> None:
    published.write("web/text", "new\n")
    building = published.site.public / "targets/.build-of-somebody-else"
    building.mkdir()
    before = contents(published.site.directory)
    with published.site.locked():  # a dry run needs no lock
        planned = published.plan()
    assert building.is_dir()
    assert contents(published.site.directory) == before
    assert said(planned) == {"web": ("1.0.0", "1.0.1")}
    assert [(item.release, item.sha256, item.changes) for item in planned] == [
        (item.release, item.sha256, item.changes) for item in published.publish()
    ]


def test_publish_dry_run_finds_the_errors_of_publishing(published: Repository) -> None:
    (published.directory / "db/manifest.yaml").unlink()
    with pytest.raises(PublishError, match="1 of 3 bundles cannot be published"):
        published.plan()


# --- crashes --------------------------------------------------------------------------------------------------


def versions(host: Host) -> list[str | None]:
    host.bundles = list(NAMES)
    index = host.refresh()
    result = (index.find(name, "stable") for name in NAMES)
    return [release.version if release else None for release in result]


@pytest.mark.everything
def test_a_kill_at_any_step_leaves_all_as_before_or_all_as_after(
    published: Repository, publisher_host: Host, survives: Survives
) -> None:
    seen: list[bool] = []
    survived = False
    while not survived:
        number = len(seen)
        for name in NAMES:
            published.write(f"{name}/text", f"{number}\n")
        before = versions(publisher_host)
        survived = survives(number, partial(published.publish, f"2.{number}.0"))
        after = versions(publisher_host)
        assert after in (before, [f"2.{number}.0"] * 3)
        seen.append(after != before)
        assert all(publisher_host.fetch(name) for name in NAMES)
    # Three bundles, their copies, files, indexes and histories, five bins, snapshot and timestamp: only the last rename
    # makes them visible. The notes of obsolete files and of each bundle's files come later.
    assert seen == [False] * 45 + [True] * 10
    assert verify_site(published.site)


@pytest.mark.everything
def test_after_a_kill_auto_goes_on_as_if_nothing_had_been(
    published: Repository, publisher_host: Host, survives: Survives
) -> None:
    moment, expected = 0, [1, 1, 1]
    while True:
        for name in NAMES:
            published.write(f"{name}/text", f"{moment}\n")
        survived = survives(moment, published.publish)
        published.publish()
        assert versions(publisher_host) == [f"1.0.{number}" for number in expected]
        assert not list(published.site.public.rglob(".build-*"))
        if survived:
            break
        moment, expected = moment + 1, [number + 1 for number in expected]
    assert verify_site(published.site)


@pytest.mark.everything
def test_concurrent_copy_sees_all_or_none_of_a_publication(
    published: Repository, new_host: Callable[..., Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []
    rename = os.rename

    def copying(*arguments: Any, **options: Any) -> None:
        copies.append(Path(shutil.copytree(published.site.public, tmp_path / f"copy{len(copies)}")))
        rename(*arguments, **options)

    for name in NAMES:
        published.write(f"{name}/text", "new\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", copying)
        published.publish()
    copies.append(published.site.public)
    results = []
    for number, copy in enumerate(copies):
        host = new_host(copy, name=f"host{number}")
        host.anchor = published.site.anchor
        results.append(versions(host))
        assert all(host.fetch(name) for name in NAMES)
    # After the timestamp come four notes: of obsolete files, and of each bundle's files.
    assert results == [["1.0.0"] * 3] * (len(copies) - 5) + [["1.0.1"] * 3] * 5


@pytest.fixture
def publisher_host(new_host: Callable[..., Host], repository: Repository) -> Host:
    """Return a host that reads the repository's site directly from the publisher's disk."""
    host = new_host(repository.site.public)
    host.anchor = repository.site.anchor
    return host
