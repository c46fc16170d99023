"""The store after interrupted steps: killed, failed by the disk, or run without permission."""

from __future__ import annotations

import os
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.archive.pack import BuiltBundle
from bundles.errors import StoreError
from bundles.filesystem import atomic, trees
from bundles.store.store import Store
from tests.bundles.store import steps

if TYPE_CHECKING:
    from tests.support.sweeps import Sweep

# The child only makes system calls and exits, so threads of other tests do not matter.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


install, activate = steps.install, steps.activate


def in_child(story: Callable[[], object]) -> int:
    """Return the wait status of a child process that runs ``story``."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            story()
            status = 0
        except BaseException:  # noqa: BLE001 - nothing may run on in the child; the status tells the parent
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


@pytest.mark.root
def test_permission_denied_is_an_error_and_not_absent(store: Store, old: BuiltBundle) -> None:
    activate(store, old)

    def as_nobody() -> None:
        os.setresuid(65534, 65534, 65534)
        for look in (store.current, store.good, store.installed, store.verify):
            with pytest.raises(StoreError, match="Permission denied"):
                look("web")
        with pytest.raises(StoreError, match="Permission denied"):
            store.prune("web")

    store.root.parent.parent.chmod(0o711)
    assert in_child(as_nobody) == 0


CALLS = ("open", "mkdir", "fchmod", "fsync", "rename", "symlink", "unlink", "rmdir")


def kill_before_call(number: int, story: Callable[[], object]) -> bool:
    """Run ``story`` in a process that is killed before its n-th change of the disk. Return whether it survived."""

    def killed() -> None:
        calls = iter(range(number))
        for name in CALLS:
            setattr(os, name, mortal(getattr(os, name), calls))
        story()

    status = in_child(killed)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status == 0


def mortal(call: Callable[..., object], calls: Iterator[int]) -> Callable[..., object]:
    def wrapper(*arguments: object, **options: object) -> object:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)

    return wrapper


def test_killed_update_leaves_the_old_or_the_new_bundle(
    tmp_path: Path, old: BuiltBundle, new: BuiltBundle, sweep: Sweep
) -> None:
    def is_killed_at(number: int) -> bool:
        store = Store(tmp_path / f"store{number}")
        before = activate(store, old)
        store.mark_good("web", old.sha256)

        def update() -> None:
            activate(store, new)
            store.mark_good("web", new.sha256)

        lived = kill_before_call(number, update)

        current, good = store.current("web"), store.good("web")
        assert current is not None
        assert good is not None
        assert current.version in ("1.0.0", "1.1.0")
        assert good.version in ("1.0.0", current.version)
        assert all(store.verify("web", bundle.sha256) == [] for bundle in store.installed("web"))

        update()
        store.prune("web")
        assert store.current("web") == store.good("web") == install(store, new)
        assert store.previous("web") == before
        assert sorted(os.listdir(store.root / "web")) == sorted(
            [old.sha256, new.sha256, "current", "good", "previous"]
        )
        return not lived

    assert sweep(is_killed_at) > 25


def test_each_step_is_on_the_disk_before_the_next(
    store: Store, old: BuiltBundle, new: BuiltBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may undo only the last step."""
    seen: list[str] = []
    rename, remove, sync = os.rename, trees.remove_tree, atomic.sync_directory

    def plain(path: Path) -> str:
        return (
            re.sub(r"\.[0-9a-f]{12}(?=\.)", "", path.name)
            .replace(new.sha256, "NEW")
            .replace(old.sha256, "OLD")
        )

    def watch_rename(source: Path, target: Path, **directories: int) -> None:
        if not directories:  # otherwise it renames a fingerprint, whose loss is harmless
            seen.append(f"rename {plain(source)} {plain(target)}")
        rename(source, target, **directories)

    def watch_remove(path: Path) -> None:
        seen.append(f"remove {plain(path)}")
        remove(path)

    def watch_sync(path: Path) -> None:
        seen.append(f"sync {plain(path)}")
        sync(path)

    monkeypatch.setattr(os, "rename", watch_rename)
    monkeypatch.setattr("bundles.filesystem.atomic.remove_tree", watch_remove)
    for module in ("store.contents", "store.store", "archive.unpack"):
        monkeypatch.setattr(f"bundles.{module}.sync_directory", watch_sync)

    activate(store, old)
    activate(store, new)
    os.unlink(store.root / "web/previous")
    store.prune("web")
    assert seen == [
        *("sync bundles", "rename .OLD.new OLD", "sync web"),
        *("rename .current.new current", "sync web"),
        *("sync bundles", "rename .NEW.new NEW", "sync web"),
        *("rename .previous.new previous", "sync web"),
        *("rename .current.new current", "sync web"),
        *("rename OLD .OLD.old", "sync web", "remove .OLD.old"),
    ]


def test_killed_removal_leaves_all_or_nothing(
    tmp_path: Path, old: BuiltBundle, new: BuiltBundle, sweep: Sweep
) -> None:
    def is_killed_at(number: int) -> bool:
        store = Store(tmp_path / f"store{number}")
        install(store, old)
        retained = activate(store, new)
        lived = kill_before_call(number, partial(store.prune, "web"))
        assert all(store.verify("web", bundle.sha256) == [] for bundle in store.installed("web"))
        store.prune("web")
        assert store.installed("web") == [retained]
        assert sorted(os.listdir(store.root / "web")) == sorted([new.sha256, "current"])
        return not lived

    assert sweep(is_killed_at) > 5


def test_killed_repair_is_resumed(tmp_path: Path, old: BuiltBundle, new: BuiltBundle, sweep: Sweep) -> None:
    def is_killed_at(number: int) -> bool:
        store = Store(tmp_path / f"store{number}")
        activate(store, old)
        store.mark_good("web", old.sha256)
        spoiled = activate(store, new).path / "conf/a"
        spoiled.chmod(0o644)
        spoiled.write_bytes(b"odd")
        lived = kill_before_call(number, partial(install, store, new, repair=True))
        try:
            current = store.current("web")
        except StoreError:
            current = store.good("web")
        assert current is not None
        install(store, new, repair=True)
        store.activate("web", new.sha256)
        assert store.verify("web") == []
        return not lived

    assert sweep(is_killed_at) > 15


@pytest.mark.parametrize("call", ["fsync", "rename", "symlink"])
def test_a_call_that_fails_leaves_old_or_new(
    tmp_path: Path, old: BuiltBundle, new: BuiltBundle, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = getattr(os, call)
    for number in range(1000):
        store = Store(tmp_path / f"store{number}")
        activate(store, old)
        calls = iter(range(number))

        def fail(*arguments: object, calls: Iterator[int] = calls, **options: object) -> object:
            if next(calls, None) is None:
                raise OSError(28, "No space left on device")
            return real(*arguments, **options)

        monkeypatch.setattr(os, call, fail)
        try:
            activate(store, new)
            failed = False
        except StoreError as error:
            failed = True
            assert "No space left on device" in str(error)
        monkeypatch.undo()

        current = store.current("web")
        assert current is not None
        assert current.version in ("1.0.0", "1.1.0")
        assert not [name for name in os.listdir(store.root / "web") if name.startswith(".")]
        activate(store, new)
        assert store.previous("web") == install(store, old)
        if not failed:
            assert number > 0
            return
    pytest.fail("it never came to an end")
