"""Detection of damaged bundles before use, by checking the status of each file."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bundles.archive.pack import BuiltBundle
from bundles.errors import StoreError
from bundles.store import contents
from bundles.store.contents import LONGEST_TRUSTED
from bundles.store.store import Store


def installed(store: Store, built: BuiltBundle) -> Path:
    bundle = store.install(built.path, name="web", version=built.description.version, sha256=built.sha256)
    store.activate("web", bundle.sha256)
    return bundle.path


def spoil(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"x" * path.stat().st_size)
    path.chmod(0o444)


def take_away(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the bundles that were compared byte by byte."""
    seen: list[Path] = []
    differences = contents.differences

    def watch(directory: Path, *, unlisted: bool) -> list[str]:
        seen.append(directory)
        return differences(directory, unlisted=unlisted)

    monkeypatch.setattr(contents, "differences", watch)
    return seen


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (spoil, r"web/\w{64}: 'conf/a' has the sha256 \w+, expected "),
        (take_away, r"web/\w{64}: 'conf/a' is missing"),
    ],
)
def test_a_damaged_bundle_is_not_handed_out_and_installed_anew(
    store: Store, old: BuiltBundle, damage: Callable[[Path], None], message: str
) -> None:
    place = installed(store, old)
    damage(place / "conf/a")
    again = Store(store.root)
    with pytest.raises(StoreError, match=message):
        again.current("web")
    with pytest.raises(StoreError, match=message):
        again.activate("web", old.sha256)
    assert again.find("web", old.sha256) is None
    assert installed(again, old) == place
    assert Store(store.root).verify("web") == []


def test_files_added_by_a_command_are_no_damage(store: Store, old: BuiltBundle, compared: list[Path]) -> None:
    place = installed(store, old)
    place.chmod(0o755)
    (place / "__pycache__").mkdir()
    again = Store(store.root)
    assert again.current("web")
    assert again.verify("web") == ["'__pycache__' is not listed in bundle.json"]
    again.prune("web")
    compared.clear()
    assert Store(store.root).current("web")
    assert compared == []


def test_sealed_files_are_not_read(store: Store, old: BuiltBundle, compared: list[Path]) -> None:
    installed(store, old)
    assert Store(store.root).current("web")
    assert compared == []


def test_changed_seals_are_compared_when_the_store_is_tidied(
    store: Store, old: BuiltBundle, compared: list[Path]
) -> None:
    place = installed(store, old)
    os.utime(place / "conf/a")
    for _ in range(2):  # checks alone write nothing
        assert Store(store.root).current("web")
    assert compared == [place, place]
    tidied = Store(store.root)
    assert tidied.current("web")
    tidied.prune("web")
    compared.clear()
    assert Store(store.root).current("web")
    assert compared == []


@pytest.mark.parametrize("age", [LONGEST_TRUSTED, -3600], ids=["a day old", "from the future"])
def test_a_seal_says_nothing_for_ever(
    store: Store, old: BuiltBundle, compared: list[Path], age: float
) -> None:
    place = installed(store, old)
    then = time.time() - age
    os.utime(store.root / ".seals" / old.sha256, (then, then))
    assert Store(store.root).current("web")
    assert compared == [place]


def test_seals_that_are_lost_or_damaged_cost_a_comparison(
    store: Store, old: BuiltBundle, compared: list[Path]
) -> None:
    place = installed(store, old)
    for spoiled in (b"", b"\0" * 64, b"0" * 1000):
        (store.root / ".seals" / old.sha256).write_bytes(spoiled)
        assert Store(store.root).current("web")
    shutil.rmtree(store.root / ".seals")
    (store.root / ".seals").write_bytes(b"")
    assert Store(store.root).current("web")
    assert compared == [place] * 4


def test_seals_of_bundles_that_are_gone_go_too(store: Store, old: BuiltBundle, new: BuiltBundle) -> None:
    installed(store, old)
    installed(store, new)
    os.unlink(store.root / "web/previous")
    store.prune("web")
    assert os.listdir(store.root / ".seals") == [new.sha256]
