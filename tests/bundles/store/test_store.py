"""The store: installed, applied and good bundles on a machine, and recovery from damage."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from bundles.archive.pack import BuiltBundle
from bundles.errors import FormatError, SignatureError, StoreError, UnpackError
from bundles.store.contents import Installed
from bundles.store.store import Store
from tests.bundles.store import steps

MakeBundle = Callable[..., BuiltBundle]


install, activate = steps.install, steps.activate


def damage(path: Path, data: bytes) -> None:
    """Change a read-only file as a failing disk does."""
    path.parent.chmod(0o755)
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)
    path.parent.chmod(0o555)


# Normal operation


def test_a_machine_that_has_nothing_yet_has_nothing(store: Store) -> None:
    assert store.names() == []
    assert store.installed("web") == []
    assert store.current("web") is store.good("web") is store.previous("web") is None
    assert store.verify("web") == []
    assert store.prune("web") == []
    store.remove("web")
    assert not store.root.exists()


def test_installed_bundle_is_named_by_its_checksum(store: Store, old: BuiltBundle) -> None:
    bundle = install(store, old)
    assert bundle == Installed("web", "1.0.0", old.sha256, store.root / "web" / old.sha256)
    assert (bundle.path / "conf/a").read_bytes() == b"old"
    assert store.installed("web") == [bundle]
    assert store.names() == ["web"]
    assert store.current("web") is None


def test_a_store_is_closed_to_others(store: Store, old: BuiltBundle) -> None:
    install(store, old)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (store.root, store.root / "web")] == [0o700, 0o700]


def test_installing_twice_needs_no_archive_and_writes_nothing(store: Store, old: BuiltBundle) -> None:
    first = install(store, old)
    inode = first.path.stat().st_ino
    old.path.unlink()
    assert install(store, old) == first
    assert first.path.stat().st_ino == inode


def test_a_bundle_is_found_by_its_checksum(store: Store, old: BuiltBundle, new: BuiltBundle) -> None:
    assert store.find("web", old.sha256) is None
    bundle = install(store, old)
    assert store.find("web", old.sha256) == bundle
    assert store.find("web", new.sha256) is None
    damage(bundle.path / "bundle.json", b"")
    assert store.find("web", old.sha256) is None


def test_the_latest_installed_comes_first(store: Store, old: BuiltBundle, new: BuiltBundle) -> None:
    install(store, new)
    install(store, old)
    assert [bundle.version for bundle in store.installed("web")] == ["1.0.0", "1.1.0"]


def test_activation_remembers_the_previous_bundle(store: Store, old: BuiltBundle, new: BuiltBundle) -> None:
    activate(store, old)
    assert store.previous("web") is None
    bundle = activate(store, new)
    assert store.current("web") == bundle
    assert store.previous("web") == install(store, old)
    assert os.readlink(store.root / "web/current") == new.sha256


def test_activating_the_same_again_forgets_nothing(store: Store, old: BuiltBundle, new: BuiltBundle) -> None:
    activate(store, old)
    activate(store, new)
    activate(store, new)
    assert store.previous("web") == install(store, old)


def test_good_version_passed_last(store: Store, old: BuiltBundle, new: BuiltBundle) -> None:
    activate(store, old)
    store.mark_good("web", old.sha256)
    activate(store, new)
    assert store.good("web") == install(store, old)
    store.mark_good("web", new.sha256)
    assert store.good("web") == store.current("web") == install(store, new)


def test_only_an_installed_bundle_can_be_activated_or_marked(store: Store, old: BuiltBundle) -> None:
    install(store, old)
    for step in (store.activate, store.mark_good):
        with pytest.raises(StoreError, match=r"bundle\.json: No such file or directory"):
            step("web", "0" * 64)
    assert store.current("web") is store.good("web") is None


@pytest.mark.parametrize(
    ("name", "sha256"), [("../web", "0" * 64), ("web", "../x"), ("web", "A" * 64), ("", "0" * 64)]
)
def test_names_and_checksums_are_never_paths(store: Store, old: BuiltBundle, name: str, sha256: str) -> None:
    with pytest.raises(FormatError, match="expected"):
        store.install(old.path, name=name, version="1.0.0", sha256=sha256)
    assert not store.root.exists()


def test_pruning_keeps_current_good_and_previous(store: Store, make_bundle: MakeBundle) -> None:
    bundles = [
        activate(store, make_bundle({"a": b"%d" % number}, version=f"{number}")) for number in range(5)
    ]
    store.mark_good("web", bundles[1].sha256)
    assert store.prune("web") == sorted([bundles[0].sha256, bundles[2].sha256])
    assert [bundle.version for bundle in store.installed("web")] == ["4", "3", "1"]
    assert store.prune("web") == []


def test_pruning_removes_interrupted_work_only(store: Store, old: BuiltBundle) -> None:
    activate(store, old)
    web = store.root / "web"
    for leftover in (web / f".{old.sha256}.0123456789ab.new", store.root / ".db.0123456789ab.old"):
        (leftover / "a").mkdir(parents=True)
        (leftover / "a/b").write_bytes(b"")
        (leftover / "a").chmod(0o555)
    (web / ".current.0123456789ab.new").symlink_to("0" * 64)
    for foreign in (web / "notes.txt", web / ".notes", store.root / ".profile"):
        foreign.write_text("not ours")
    store.prune("web")
    assert sorted(path.name for path in web.iterdir()) == sorted(
        [".notes", old.sha256, "current", "notes.txt"]
    )
    assert sorted(path.name for path in store.root.iterdir()) == [".profile", ".seals", "web"]


def test_removing_a_bundle_leaves_the_others(store: Store, old: BuiltBundle, make_bundle: MakeBundle) -> None:
    activate(store, old)
    other = make_bundle(name="db")
    store.install(other.path, name="db", version="1.4.0", sha256=other.sha256)
    store.remove("web")
    assert store.names() == ["db"]
    assert store.names() == ["db"]
    assert sorted(os.listdir(store.root)) == [".seals", "db"]


# Rejected archives


def test_another_checksum_is_refused_before_anything_is_parsed(store: Store, old: BuiltBundle) -> None:
    old.path.write_bytes(b"not even gzip")
    with pytest.raises(SignatureError, match=f"sha256 is [0-9a-f]{{64}}, expected {old.sha256}"):
        install(store, old)
    assert store.installed("web") == []


@pytest.mark.attack("wrong-software.other-name", "wrong-software.other-version")
@pytest.mark.parametrize(("name", "version"), [("db", "1.0.0"), ("web", "1.0.1")])
def test_another_name_or_version_than_the_index_says_is_refused(
    store: Store, old: BuiltBundle, name: str, version: str
) -> None:
    with pytest.raises(
        UnpackError, match=r"bundle\.json: (name|version): is '(web|1.0.0)', expected '(db|1.0.1)'"
    ):
        store.install(old.path, name=name, version=version, sha256=old.sha256)
    assert store.installed(name) == []


def test_installed_bundle_with_another_version_is_refused(store: Store, old: BuiltBundle) -> None:
    install(store, old)
    with pytest.raises(UnpackError, match=r"bundle\.json: version: is '1\.0\.0', expected '2'"):
        store.install(old.path, name="web", version="2", sha256=old.sha256)


# Damage


def dangle(link: Path) -> None:
    link.symlink_to("0" * 64)


def point_elsewhere(link: Path) -> None:
    link.symlink_to("../../etc")


def write_garbage(link: Path) -> None:
    link.write_bytes(b"\0garbage")


def make_directory(link: Path) -> None:
    link.mkdir()
    (link / "manifest.yaml").write_text("restored from a backup that follows links")


def point_to_itself(link: Path) -> None:
    link.symlink_to(link.name)


DAMAGES = [
    (dangle, "points to a damaged bundle: "),
    (point_elsewhere, "points to '../../etc', expected the SHA-256 of a bundle"),
    (write_garbage, "is a regular file, expected a link"),
    (make_directory, "is a directory, expected a link"),
    (point_to_itself, "points to 'current', expected the SHA-256 of a bundle"),
]


@pytest.mark.parametrize(("spoil", "message"), DAMAGES)
def test_a_damaged_link_is_an_error_and_not_absent(
    store: Store, old: BuiltBundle, new: BuiltBundle, spoil: Callable[[Path], None], message: str
) -> None:
    activate(store, old)
    store.mark_good("web", old.sha256)
    activate(store, new)
    link = store.root / "web/current"
    link.unlink()
    spoil(link)

    with pytest.raises(StoreError) as caught:
        store.current("web")
    assert str(caught.value).startswith(f"{link}: {message}")

    assert store.activate("web", old.sha256) == store.current("web") == store.good("web")
    assert store.installed("web") == [install(store, new), install(store, old)]


@pytest.mark.parametrize(("spoil", "message"), DAMAGES)
def test_a_new_bundle_can_be_activated_over_a_damaged_link(
    store: Store, old: BuiltBundle, new: BuiltBundle, spoil: Callable[[Path], None], message: str
) -> None:
    install(store, old)
    spoil(store.root / "web/current")
    assert activate(store, new) == store.current("web")


def test_a_directory_in_the_place_of_a_link_is_set_aside(store: Store, old: BuiltBundle) -> None:
    install(store, old)
    make_directory(store.root / "web/current")
    store.activate("web", old.sha256)
    store.prune("web")
    (aside,) = (store.root / "web").glob("current.*")
    assert re.fullmatch(r"current\.[0-9a-f]{12}\.damaged", aside.name)
    assert (aside / "manifest.yaml").exists()


def test_nothing_is_pruned_while_a_link_cannot_be_read(
    store: Store, old: BuiltBundle, new: BuiltBundle
) -> None:
    activate(store, old)
    install(store, new)
    write_garbage(store.root / "web/good")
    with pytest.raises(StoreError, match="web/good: is a regular file, expected a link"):
        store.prune("web")
    assert len(store.installed("web")) == 2


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 100, b'{"name":"db","version":"1.0.0"}'])
def test_damaged_description_causes_a_new_installation(store: Store, old: BuiltBundle, data: bytes) -> None:
    bundle = activate(store, old)
    damage(bundle.path / "bundle.json", data)
    with pytest.raises(StoreError, match="current: points to a damaged bundle"):
        store.current("web")
    with pytest.raises(StoreError, match=re.escape(f"{bundle.path}")):
        store.installed("web")
    assert install(store, old) == bundle
    assert store.current("web") == bundle
    assert store.verify("web") == []
    assert sorted(path.name for path in (store.root / "web").iterdir()) == sorted([old.sha256, "current"])


def test_a_file_in_the_place_of_a_bundle_is_replaced(store: Store, old: BuiltBundle) -> None:
    (store.root / "web").mkdir(parents=True)
    (store.root / "web" / old.sha256).write_text("in the way")
    assert (install(store, old).path / "conf/a").read_bytes() == b"old"


def test_a_damaged_bundle_stays_when_the_archive_is_damaged_too(store: Store, old: BuiltBundle) -> None:
    bundle = activate(store, old)
    damage(bundle.path / "conf/a", b"0ld")
    old.path.write_bytes(b"garbage")
    with pytest.raises(SignatureError):
        install(store, old, repair=True)
    assert store.current("web") == bundle


def spoil_contents(path: Path) -> None:
    damage(path / "conf/a", b"0ld")


def spoil_size(path: Path) -> None:
    damage(path / "conf/a", b"")


def spoil_mode(path: Path) -> None:
    (path / "conf/a").chmod(0o666)


def spoil_by_removing(path: Path) -> None:
    (path / "conf").chmod(0o755)
    (path / "conf/a").unlink()


def spoil_with_link(path: Path) -> None:
    spoil_by_removing(path)
    (path / "conf/a").symlink_to("../manifest.yaml")


def spoil_with_more(path: Path) -> None:
    path.chmod(0o755)
    (path / "more").mkdir()
    (path / "more/file").write_text("")


@pytest.mark.parametrize(
    ("spoil", "sentences"),
    [
        (spoil_contents, ["'conf/a' has the sha256 .*, expected .*"]),
        (spoil_size, ["'conf/a' has 0 bytes, expected 3"]),
        (spoil_mode, ["'conf/a' has the mode 0666, expected 0444"]),
        (spoil_by_removing, ["'conf/a' is missing"]),
        (spoil_with_link, ["'conf/a' is a symbolic link, expected a regular file"]),
        (
            spoil_with_more,
            ["'more' is not listed in bundle.json", "'more/file' is not listed in bundle.json"],
        ),
    ],
)
def test_local_damage_is_found_and_repaired(
    store: Store, old: BuiltBundle, spoil: Callable[[Path], None], sentences: list[str]
) -> None:
    bundle = activate(store, old)
    assert store.verify("web") == []
    spoil(bundle.path)
    result = store.verify("web")
    assert len(result) == len(sentences)
    for sentence, pattern in zip(result, sentences, strict=True):
        assert re.fullmatch(pattern, sentence)
    assert store.verify("web", old.sha256) == result

    install(store, old, repair=True)
    assert store.verify("web") == []
    assert store.current("web") == bundle


@pytest.mark.parametrize("method", ["current", "good", "installed", "prune", "remove", "verify"])
def test_a_file_in_the_place_of_the_store_is_an_error(store: Store, method: str) -> None:
    store.root.parent.mkdir()
    store.root.write_text("in the way")
    with pytest.raises(StoreError, match="Not a directory"):
        getattr(store, method)("web")


def test_a_store_that_cannot_be_made_is_an_error(store: Store, old: BuiltBundle) -> None:
    store.root.parent.write_text("in the way")
    with pytest.raises(StoreError, match=r"Not a directory|File exists"):
        install(store, old)


def test_few_damaged_copies_are_kept(store: Store, old: BuiltBundle) -> None:
    install(store, old)
    for _ in range(7):
        (store.root / "web/current").unlink(missing_ok=True)
        make_directory(store.root / "web/current")
        store.activate("web", old.sha256)
    assert len(list((store.root / "web").glob("*.damaged"))) == 3
