"""The publisher: written files, rejected input, and leftovers of a crash."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tuf.api.metadata import Metadata, TargetFile

from bundles.archive.pack import build_bundle
from bundles.errors import ExpiredError, FormatError, KeyFileError, PublishError, SignatureError, UnpackError
from bundles.filesystem.atomic import temporary_name
from bundles.format.index import history_path, index_path
from bundles.format.release import Release
from bundles.format.size_limits import LARGEST_METADATA
from bundles.publisher.channels import Channels, RolloutRequest
from bundles.publisher.lifecycle import make_site, refresh_site, verify_site
from bundles.publisher.publication import publish_bundle
from bundles.publisher.settings import DEFAULT_LIFETIMES, Lifetimes
from bundles.publisher.site import Site
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher, Survives


def never(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


# --- making a site ------------------------------------------------------------------------------------------


BIN, HISTORY_BIN = bin_of(index_path("web")), bin_of(history_path("web"))


def site_bins(site: Site) -> set[int]:
    """Return the versions of the bins."""
    published = site.published()
    return {of_bin.version for of_bin in published.bins()}


def test_a_site_is_laid_out_as_documented(publisher: Publisher) -> None:
    directory = publisher.site.directory
    assert names(directory) == [
        ".lock",
        "keys",
        "named-files",
        "pruning.json",
        "public",
        "root.json",
        "site.yaml",
    ]
    assert [name.split("-")[0] for name in names(directory / "keys")] == [
        "root",
        "snapshot",
        "targets",
        "timestamp",
    ]
    bins = [f"1.bin-{number:x}.json" for number in range(16)]
    changed = [f"2.{name}.json" for name in sorted({BIN, HISTORY_BIN})]
    assert names(directory / "public/metadata") == [
        *(*bins, "1.root.json", "1.snapshot.json", "1.targets.json"),
        *(*changed, "2.snapshot.json", "timestamp.json"),
    ]
    assert names(directory / "public/targets") == ["files", "web"]
    # The description, the manifest and a text.
    assert len(list((directory / "public/targets/files").glob("*/*"))) == 3
    assert sorted(name[64:] for name in names(directory / "public/targets/web")) == [
        *(".history.json", ".index.json", ".web-1.0.0.tar.gz"),
    ]
    assert (directory / "root.json").read_bytes() == (directory / "public/metadata/1.root.json").read_bytes()


def test_web_server_reads_public_files_only(publisher: Publisher) -> None:
    old = os.umask(0o077)
    try:
        publisher.publish("1.0.0", name="db")
    finally:
        os.umask(old)
    for path in publisher.site.public.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path
    keys = publisher.site.directory / "keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in keys.iterdir())


def test_each_role_has_a_key_of_its_own(publisher: Publisher) -> None:
    root = json.loads(publisher.site.anchor.read_bytes())["signed"]
    ids = [key_id for role in root["roles"].values() for key_id in role["keyids"]]
    assert len(ids) == len(set(ids)) == len(root["keys"]) == 4
    assert root["consistent_snapshot"] is True


def test_a_new_site_is_empty_and_valid(new_publisher: Callable[..., Publisher]) -> None:
    site = new_publisher().site
    assert verify_site(site).targets == 0
    assert site.releases() == []


def test_a_site_is_made_in_an_empty_directory_too(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    site = make_site(tmp_path / "site", None)
    assert verify_site(site)
    assert len(site.published().bin_names()) == 64


def test_a_directory_that_holds_something_is_left_alone(publisher: Publisher) -> None:
    before = contents(publisher.site.directory)
    with pytest.raises(PublishError, match="site: exists and is not empty"):
        make_site(publisher.site.directory, None)
    assert contents(publisher.site.directory) == before


@pytest.mark.parametrize(
    ("passphrase", "lifetimes"), [(b"", {}), (None, {"timestamp": "soon"}), (None, {"mirrors": "1d"})]
)
def test_a_site_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, passphrase: bytes | None, lifetimes: dict[str, str]
) -> None:
    with pytest.raises(PublishError):
        make_site(tmp_path / "site", passphrase, lifetimes)
    assert list(tmp_path.iterdir()) == []


def test_directory_without_a_site_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="is not a site; `puller site init` creates one"):
        Site(tmp_path)


def test_a_place_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PublishError, match=r"Not a directory|File exists"):
        make_site(tmp_path / "file" / "site", None)


# --- publishing ---------------------------------------------------------------------------------------------


def test_publishing_the_same_again_changes_nothing(publisher: Publisher) -> None:
    before = contents(publisher.site.public)
    done = publisher.publish("1.0.0")
    assert not done.changed
    assert contents(publisher.site.public) == before


@pytest.mark.attack("republish.contents")
def test_the_same_version_with_other_contents_is_refused(publisher: Publisher, host: Host) -> None:
    before = contents(publisher.site.public)
    with pytest.raises(
        PublishError,
        match=r"web 1\.0\.0: is already published with sha256 .*, and the new archive has .*new version",
    ):
        publisher.publish("1.0.0", text="something else\n")
    with pytest.raises(PublishError):
        publisher.publish("1.0.0", text="something else\n", channel="canary")
    assert contents(publisher.site.public) == before
    assert host.version() == "1.0.0"


def test_other_compression_of_equal_files_is_the_same_release(publisher: Publisher, tmp_path: Path) -> None:
    """For example, by a build machine with another zlib."""
    archive = tmp_path / "web.tar.gz"
    built = build_bundle(publisher.source("web 1.0.0\n"), archive, name="web", version="1.0.0")
    raw = archive.read_bytes()
    tar = zlib.decompress(raw, wbits=31)
    deflate = zlib.compressobj(level=1, wbits=-15)
    archive.write_bytes(raw[:10] + deflate.compress(tar) + deflate.flush() + raw[-8:])
    assert archive.read_bytes() != raw
    before = contents(publisher.site.public)
    done = publish_bundle(publisher.site, archive, never)
    assert (done.changed, done.sha256) == (False, built.sha256)
    assert contents(publisher.site.public) == before
    publish_bundle(publisher.site, archive, never, channel="canary")
    assert verify_site(publisher.site)


def test_channels_are_told_apart(publisher: Publisher, host: Host) -> None:
    assert publisher.publish("1.1.0", channel="canary").before is None
    assert (host.version(), host.version(channel="canary")) == ("1.0.0", "1.1.0")
    assert publisher.publish("1.1.0").before == "1.0.0"
    assert host.version() == "1.1.0"


def test_rolling_back_is_a_new_statement_that_hosts_follow(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"
    done = publisher.publish("1.0.0")
    assert (done.before, done.changed) == ("1.1.0", True)
    assert host.version() == "1.0.0"


def test_a_built_archive_states_its_name_and_version(publisher: Publisher, tmp_path: Path) -> None:
    archive = tmp_path / "any-name.tar.gz"
    build_bundle(publisher.source("text\n"), archive, name="db", version="2.0.0")
    assert publish_bundle(publisher.site, archive, never).release == Release.of("db", "2.0.0")
    assert not publish_bundle(publisher.site, archive, never, name="db", version="2.0.0").changed
    with pytest.raises(PublishError, match=r"version is '2\.0\.0' in the archive, expected '2\.1\.0'"):
        publish_bundle(publisher.site, archive, never, version="2.1.0")
    with pytest.raises(PublishError, match="name is 'db' in the archive, expected 'web'"):
        publish_bundle(publisher.site, archive, never, name="web")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": None}, PublishError, "a directory requires a version, expected a version such as"),
        ({"version": "1 0"}, PublishError, "version: is '1 0'"),
        ({"name": "../web"}, PublishError, "name: is '../web'"),
        ({"channel": "St able"}, FormatError, "channel: is 'St able', expected"),
    ],
)
def test_unpublishable_bundle_is_refused_before_writing(
    publisher: Publisher, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = contents(publisher.site.directory)
    source = publisher.source("text\n")
    with pytest.raises(error, match=message):
        publish_bundle(publisher.site, source, never, **{"version": "2.0.0", **change})
    assert contents(publisher.site.directory) == before


def test_directory_without_a_bundle_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"'manifest\.yaml' is missing at the top"):
        publish_bundle(publisher.site, tmp_path / "publisher/sources", never, version="1.0.0")
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(b"not gzip")
    with pytest.raises(UnpackError):
        publish_bundle(publisher.site, archive, never)


def test_list_shows_releases_for_hosts(publisher: Publisher) -> None:
    publisher.publish("2.0.0", name="db", channel="canary")
    publisher.publish("0.1.0", name="app")
    listed = publisher.site.releases()
    assert [(item.channel, str(item.release)) for item in listed] == [
        ("canary", "db 2.0.0"),
        ("stable", "app 0.1.0"),
        ("stable", "web 1.0.0"),
    ]
    assert all(item.size > 0 and len(item.sha256) == 64 for item in listed)


def test_a_site_that_hosts_would_refuse_is_not_published(publisher: Publisher, host: Host) -> None:
    """Both sides have the same limits. The publisher must report problems before the hosts do."""
    neighbour = next(name for name in map("app{}".format, range(1000)) if bin_of(index_path(name)) == BIN)
    forge = publisher.forge(publisher.site.metadata)
    remark = TargetFile(1, {"sha256": "0" * 64}, "remark", {"custom": {"remark": ""}})
    forge.bin().targets["remark"] = remark
    signature = 260
    remainder = LARGEST_METADATA["targets"] - len(Metadata(forge.bin()).to_bytes()) - signature
    remark.unrecognized_fields["custom"]["remark"] = "x" * remainder
    forge.publish()
    publisher.deploy()
    assert host.version() == "1.0.0"
    before = contents(publisher.site.public)
    with pytest.raises(
        PublishError, match=rf"{BIN}\.json: would have 400\d+ bytes, and hosts read at most 4000000"
    ):
        publisher.publish("1.0.0", name=neighbour)
    assert contents(publisher.site.public) == before
    publisher.refresh()
    assert host.version() == "1.0.0"


def test_an_index_that_hosts_would_refuse_is_not_published(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bundles.publisher.site.LARGEST_INDEX", 200)
    with pytest.raises(PublishError, match=r"index\.json: would have \d+ bytes, and hosts read at most 200"):
        publisher.publish("1.0.0", name="database")


def test_concurrent_publishers_are_refused(publisher: Publisher) -> None:
    import fcntl

    with open(publisher.site.directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for action in (lambda: publisher.publish("1.1.0"), publisher.refresh):
            with pytest.raises(PublishError, match="is in use by another process that publishes"):
                action()
    assert publisher.publish("1.1.0").changed


# --- keys ---------------------------------------------------------------------------------------------------


def test_encrypted_keys_sign_when_the_passphrase_is_right(tmp_path: Path, clock: Clock) -> None:
    site = make_site(tmp_path / "site", b"open sesame", now=clock)
    requested: list[str] = []

    def passphrase(key: Path) -> bytes:
        requested.append(key.name.split("-")[0])
        return b"open sesame"

    refresh_site(site, passphrase)
    assert requested == ["timestamp"]
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        refresh_site(site, lambda _: b"open barley")
    assert verify_site(site)


def test_publishing_with_a_wrong_passphrase_leaves_no_trace(tmp_path: Path, clock: Clock) -> None:
    site = make_site(tmp_path / "site", b"open sesame", now=clock)
    source = tmp_path / "web"
    source.mkdir()
    (source / "manifest.yaml").write_text("resources: []\n")
    before = contents(site.directory)
    with pytest.raises(KeyFileError):
        publish_bundle(site, source, lambda _: b"open barley", version="1.0.0")
    assert contents(site.directory) | {".lock": b""} == before | {".lock": b""}


def test_a_missing_key_is_named(publisher: Publisher) -> None:
    (key,) = publisher.site.directory.glob("keys/targets-*.pem")
    key.unlink()
    with pytest.raises(
        KeyFileError, match=f"contains 0 of the 1 keys required to sign for targets, expected {key.name}"
    ):
        publisher.publish("1.1.0")


def test_a_key_under_the_name_of_another_is_refused(publisher: Publisher) -> None:
    (targets,) = publisher.site.directory.glob("keys/targets-*.pem")
    (timestamp,) = publisher.site.directory.glob("keys/timestamp-*.pem")
    shutil.copy(targets, timestamp)
    with pytest.raises(KeyFileError, match=r"contains the key .*, expected"):
        publisher.refresh()


# --- refreshing ---------------------------------------------------------------------------------------------


def test_a_refresh_signs_the_timestamp_and_nothing_that_is_fresh(publisher: Publisher, clock: Clock) -> None:
    clock.advance(days=1)
    renewal = refresh_site(publisher.site, never)
    assert (renewal.signed, renewal.due) == (["timestamp"], {})
    roles = {role.role: role for role in publisher.site.roles()}
    assert roles["timestamp"].version == 3
    assert roles["timestamp"].expires == clock.now + timedelta(days=7)
    assert (roles["targets"].version, roles["snapshot"].version) == (1, 2)
    assert site_bins(publisher.site) == {1, 2}


@pytest.mark.parametrize(
    ("days", "signed"),
    [
        (21, ["snapshot", "timestamp"]),
        (61, ["targets", "snapshot", "timestamp"]),
        (244, ["root", "targets", "snapshot", "timestamp"]),
    ],
)
def test_metadata_in_their_last_third_are_signed_again(
    publisher: Publisher, clock: Clock, host: Host, days: int, signed: list[str]
) -> None:
    host.refresh()
    clock.advance(days=days)
    renewal = refresh_site(publisher.site, never)
    assert renewal.signed == signed
    publisher.deploy()
    assert host.version() == "1.0.0"
    assert all(role.expires > clock.now + timedelta(days=6) for role in publisher.site.roles())
    assert verify_site(publisher.site)


def test_a_new_root_becomes_the_anchor_for_new_hosts(
    publisher: Publisher, clock: Clock, new_host: Callable[..., Host]
) -> None:
    clock.advance(days=300)
    publisher.refresh()
    assert publisher.site.anchor.read_bytes() == (publisher.served / "metadata/2.root.json").read_bytes()
    assert new_host().version() == "1.0.0"


def test_keys_that_are_kept_elsewhere_are_asked_for_in_time(publisher: Publisher, clock: Clock) -> None:
    for role in ("root", "targets"):
        for key in publisher.site.directory.glob(f"keys/{role}-*.pem"):
            key.unlink()
    clock.advance(days=300)
    renewal = refresh_site(publisher.site, never)
    assert (renewal.signed, [*renewal.due]) == (["snapshot", "timestamp"], ["root", "targets"])


def test_lifetimes_are_those_of_the_site(new_publisher: Callable[..., Publisher], clock: Clock) -> None:
    publisher = new_publisher(timestamp="12h", root="4w")
    remaining = {role.role: role.expires - clock.now for role in publisher.site.roles()}
    assert (remaining["timestamp"], remaining["root"], remaining["targets"]) == (
        timedelta(hours=12), timedelta(weeks=4), timedelta(days=90),
    )  # fmt: skip
    (publisher.site.directory / "site.yaml").write_text("expiry: {timestamp: 30m}\n")
    refresh_site(publisher.site, never)
    assert publisher.site.roles()[-1].expires == clock.now + timedelta(minutes=30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "expiry: {timestamp: 5}",
            r"site\.yaml: expiry: timestamp: is '5', expected a duration such as '30s'",
        ),
        ("expiry: {timestamp: 0d}", "expected a duration"),
        ("expiry: {timestamp: -1d}", "expected a duration"),
        ("expiry: {mirror: 1d}", "unknown role 'mirror', expected root, targets, snapshot, timestamp"),
        ("expire: {}", "unknown key 'expire', expected expiry or require"),
        ("expiry: 7d", "expiry: expected a mapping"),
        ("[]", "expected a mapping with the keys expiry and require"),
        ("require: true", "require: expected a mapping with the keys tests"),
        ("require: {test: true}", "require: unknown key 'test', expected tests"),
        ("require: {tests: yes}", "require: tests: is 'yes', expected true or false"),
        ("require: {tests: }", "require: tests: is '', expected true or false"),
        ("expiry: {", "is not YAML"),
    ],
)
@pytest.mark.representatives(6)
def test_settings_that_are_not_understood_are_refused(publisher: Publisher, text: str, message: str) -> None:
    (publisher.site.directory / "site.yaml").write_text(text)
    with pytest.raises(PublishError, match=message):
        publisher.refresh()


@pytest.mark.parametrize("text", ["", "# nothing set\n", "expiry: {}\n"])
def test_settings_have_defaults(publisher: Publisher, clock: Clock, text: str) -> None:
    (publisher.site.directory / "site.yaml").write_text(text)
    refresh_site(publisher.site, never)
    assert publisher.site.roles()[-1].expires == clock.now + Lifetimes.parse({}, "").timestamp


def test_a_new_site_gets_the_default_lifetimes(tmp_path: Path) -> None:
    make_site(tmp_path / "site", None)
    text = (tmp_path / "site/site.yaml").read_text()
    for role, lifetime in DEFAULT_LIFETIMES.items():
        assert f"  {role}: {lifetime}\n" in text


@pytest.mark.parametrize("page", ["refresh.md", "offline.md"])
def test_documents_name_the_lifetime_of_the_timestamp(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    days = {f"{number}d" for number in re.findall(r"(\d+) days", text)}
    assert days == {DEFAULT_LIFETIMES["timestamp"]}


# --- checking -----------------------------------------------------------------------------------------------


def tamper(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "metadata/timestamp.json",
            "metadata/2.snapshot.json",
            "metadata/1.targets.json",
            f"metadata/2.{BIN}.json",
            f"metadata/2.{HISTORY_BIN}.json",
            "metadata/1.bin-0.json",
            "metadata/1.root.json",
        ),
        *("targets/web/*.index.json", "targets/web/*.history.json", "targets/web/*.tar.gz"),
    ],
)
def test_site_check_finds_errors_of_hosts(publisher: Publisher, pattern: str) -> None:
    assert verify_site(publisher.site).targets == 3
    for path in publisher.site.public.glob(pattern):
        tamper(path)
    with pytest.raises((SignatureError, FormatError, PublishError)):
        verify_site(publisher.site)


def test_a_check_names_every_damaged_file(publisher: Publisher) -> None:
    publisher.publish("1.0.0", name="db")
    for path in publisher.site.public.glob("targets/*/*.tar.gz"):
        tamper(path)
    with pytest.raises(SignatureError, match="2 of 11 published files") as caught:
        verify_site(publisher.site)
    (line,) = caught.value.what.splitlines()[1:]
    assert re.fullmatch(
        r"2 damaged: .*db-1\.0\.0\.tar\.gz \(.*hash.*\), .*web-1\.0\.0\.tar\.gz \(.*hash.*\)", line
    )


def test_a_check_finds_a_missing_file(publisher: Publisher) -> None:
    (path,) = publisher.site.public.glob("targets/web/*.tar.gz")
    path.unlink()
    with pytest.raises(SignatureError, match="1 of 6 published files") as caught:
        verify_site(publisher.site)
    assert caught.value.what.splitlines()[1:] == [f"1 missing: {path}"]


def test_file_missing_in_many_versions_is_reported_once(publisher: Publisher, tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    (source / "manifest.yaml").write_text("resources: []\n")
    for number in range(50):
        (source / str(number)).write_text(f"file {number}\n")
    for version in ("1.1.0", "1.2.0", "1.3.0"):
        (source / "text").write_text(version)
        publish_bundle(publisher.site, source, never, name="many", version=version)
    for number in range(50):
        publisher.site.files.path(hashlib.sha256(b"file %d\n" % number).hexdigest()).unlink()
    archive = next(publisher.site.public.glob("targets/many/*-1.2.0.tar.gz"))
    tamper(archive)
    with pytest.raises(SignatureError) as caught:
        verify_site(publisher.site)
    first, damaged, missing = caught.value.what.splitlines()
    assert re.fullmatch(r"51 of \d\d published files differ from their signed metadata:", first)
    assert damaged.startswith(f"1 damaged: {archive} (")
    assert re.fullmatch(r"50 missing: \S+\.gz, \S+\.gz, \S+\.gz and 47 more", missing)


def test_site_check_finds_expired_metadata(publisher: Publisher, clock: Clock) -> None:
    clock.advance(days=8)
    with pytest.raises(ExpiredError):
        verify_site(publisher.site)


@pytest.mark.parametrize("role", ["1.targets", "2.snapshot", "timestamp", "1.root", f"2.{BIN}"])
def test_metadata_changed_by_another_hand_are_not_signed(publisher: Publisher, role: str) -> None:
    path = publisher.site.public / f"metadata/{role}.json"
    document = json.loads(path.read_bytes())
    document["signed"]["x-added"] = "by somebody else"
    path.write_text(json.dumps(document))
    if role == "1.root":
        shutil.copy(path, publisher.site.anchor)
    for action in (publisher.refresh, lambda: publisher.publish("1.1.0")):
        with pytest.raises(SignatureError, match="differs from the content that this site signed"):
            action()


def test_an_index_that_was_changed_is_not_published_from(publisher: Publisher) -> None:
    for path in publisher.site.public.glob("targets/web/*.index.json"):
        path.write_bytes(path.read_bytes().replace(b"web", b"xyz"))
    with pytest.raises(SignatureError, match="differs from the content that this site signed"):
        publisher.publish("1.1.0")


# --- crashes ------------------------------------------------------------------------------------------------


@pytest.mark.everything
def test_killed_publisher_leaves_old_or_new_and_is_resumed(
    publisher: Publisher, new_host: Callable[..., Host], survives: Survives
) -> None:
    site, host = publisher.site, new_host(publisher.site.public)
    new_seen: list[bool] = []
    survived = False
    while not survived:
        before, following = host.version(), f"1.{len(new_seen) + 1}.0"
        publish = partial(publish_bundle, site, publisher.source(following), never, version=following)
        survived = survives(len(new_seen), publish)
        new_seen.append((result := host.version()) == following)
        assert result in (before, following)
        assert host.fetch()
    # Bundle, its copy, two files, index, history, two bins, snapshot and timestamp: only the last makes them visible.
    # The notes of obsolete files and of the bundle's files come later.
    assert new_seen == [False] * 19 + [True] * 6
    assert verify_site(site)


@pytest.mark.everything
def test_killed_halt_is_complete_or_absent_and_is_resumed(
    publisher: Publisher, new_host: Callable[..., Host], survives: Survives
) -> None:
    site, host = publisher.site, new_host(publisher.site.public)
    channels, seen, survived = Channels(site, never), list[bool](), False
    while not survived:
        version = f"1.{len(seen) + 1}.0"
        publish_bundle(
            site, publisher.source(version), never, version=version, request=RolloutRequest(percent=10)
        )
        survived = survives(len(seen), partial(channels.halt, "web", "stable"))
        release = host.refresh().find("web", "stable")
        assert release is not None
        assert release.rollout is not None
        seen.append(release.rollout.halted)
    # Index, history, two bins, snapshot, and the timestamp that makes them visible. Then the two notes.
    assert seen == [False] * 11 + [True] * 6
    assert verify_site(site)


@pytest.mark.everything
def test_killed_refresh_leaves_old_or_new_and_is_resumed(
    new_publisher: Callable[..., Publisher], new_host: Callable[..., Host], clock: Clock, survives: Survives
) -> None:
    publisher = new_publisher("mortal", root="9d", targets="9d", snapshot="9d", timestamp="9d")
    publisher.publish("1.0.0")
    site, host = publisher.site, new_host(publisher.site.public)
    host.anchor = site.anchor.read_bytes()
    moments, survived = 0, False
    while not survived:
        refresh_site(site, never)
        clock.advance(days=8)
        survived = survives(moments, partial(refresh_site, site, never))
        assert host.version() == "1.0.0"
        moments += 1 if moments < 6 else 4  # the 16 bins behave alike
    # Before and after: root, targets, 16 bins, snapshot, timestamp, anchor, note of obsolete files.
    assert moments in range(44, 67)
    assert verify_site(site)


def test_partial_files_of_a_killed_publisher_are_not_uploaded(publisher: Publisher) -> None:
    """``public/`` is copied to web servers unchanged."""
    half = publisher.site.public / "targets/web" / temporary_name("web-1.1.0.tar.gz")
    half.write_bytes(b"half")
    build = publisher.site.public / "targets/.build-0123abcd"
    (build / "deeper").mkdir(parents=True)
    publisher.publish("1.2.0")
    assert not half.exists()
    assert not build.exists()


def test_earlier_archive_is_copied_and_stays(publisher: Publisher, tmp_path: Path) -> None:
    built = build_bundle(publisher.source("db\n"), tmp_path / "db.tar.gz", name="db", version="1.0.0")
    publish_bundle(publisher.site, built.path, never)
    (published,) = publisher.site.public.glob("targets/db/*.tar.gz")
    assert not built.path.samefile(published)
    assert built.path.read_bytes() == published.read_bytes()


def test_packed_archive_is_readable_and_leaves_no_temporary_file(
    publisher: Publisher,
) -> None:
    publisher.publish("1.1.0")
    (published,) = publisher.site.public.glob("targets/web/*.web-1.1.0.tar.gz")
    assert stat.S_IMODE(published.stat().st_mode) == 0o644
    assert stat.S_IMODE(published.parent.stat().st_mode) == 0o755
    assert not [path for path in publisher.site.public.rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_a_site_is_made_under_a_name_of_its_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a new directory would replace the current directory."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(PublishError, match="is not the name of a new directory"):
        make_site(Path(place), None)
    assert names(tmp_path) == ["empty"]


def test_lock_file_that_is_a_link_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    """The owner of the site must not redirect writes of root, whose timer signs the site."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"of somebody else")
    (publisher.site.directory / ".lock").unlink()
    (publisher.site.directory / ".lock").symlink_to(victim)
    with pytest.raises(PublishError, match=r"\.lock: Too many levels of symbolic links"):
        publisher.refresh()
    assert victim.read_bytes() == b"of somebody else"


def test_a_new_site_has_a_lock_of_its_owner(new_publisher: Callable[..., Publisher]) -> None:
    """If the first publication made the lock, it would belong to root when the timer ran first."""
    assert (new_publisher("another").site.directory / ".lock").exists()


def test_a_version_that_a_crash_left_behind_is_never_reused(publisher: Publisher, host: Host) -> None:
    """A mirror may have copied it, and caches keep versioned names forever."""
    metadata = publisher.site.public / "metadata"
    (metadata / f"3.{BIN}.json").write_bytes(b"left behind")
    (metadata / "7.snapshot.json").write_bytes(b"left behind")
    publisher.publish("1.1.0")
    assert (metadata / f"3.{BIN}.json").read_bytes() == b"left behind"
    assert (metadata / f"4.{BIN}.json").exists()
    assert {role.role: role.version for role in publisher.site.roles()} == {
        "root": 1, "targets": 1, "snapshot": 8, "timestamp": 3,
    }  # fmt: skip
    assert host.version() == "1.1.0"


def test_concurrent_copy_sees_the_old_or_the_new_site(
    publisher: Publisher, new_host: Callable[..., Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies before every write of a publication are all valid sites."""
    copies: list[Path] = []
    rename = os.rename

    def copying(*arguments: Any, **options: Any) -> None:
        copies.append(Path(shutil.copytree(publisher.site.public, tmp_path / f"copy{len(copies)}")))
        rename(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", copying)
        publish_bundle(publisher.site, publisher.source("new\n"), never, version="1.1.0")
    copies.append(publisher.site.public)
    versions = []
    for number, copy in enumerate(copies):
        host = new_host(copy, name=f"host{number}")
        versions.append(host.version())
        assert host.fetch()
    assert versions == sorted(versions, key=str)
    assert {*versions} == {"1.0.0", "1.1.0"}
