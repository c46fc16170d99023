"""``~/.ssh/authorized_keys``, a file that its owner can replace at any moment."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.errors import MutationInNoop, ResourceError
from puller.resources.accounts.authorized_keys import LARGEST, DesiredKeys, KeysState, look, parse_key, write
from puller.system import identity
from puller.system.identity import Identity, act_as
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

pytestmark = pytest.mark.root

UID, GID = 30017, 30018
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINENO5BBHYBbDqOgk1cPiqa+N259bg97G1XeVSYa0YiN a"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA b"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    os.chown(directory, UID, GID)
    return directory


def desired(home: Path, *keys: str, exclusive: bool = False) -> DesiredKeys:
    return DesiredKeys(tuple(map(parse_key, keys or (KEY,))), exclusive, "a", UID, GID, str(home))


def user_at(home: Path) -> Identity:
    return Identity("a", UID, GID, (GID,), str(home), "/bin/sh")


def apply(keys: DesiredKeys) -> KeysState:
    """Write the keys if they are out of sync, and return the state before the change."""
    keys_state = look(keys)
    if not keys_state.is_right:
        write(keys, lambda act: LocalSystem().act_as(user_at(Path(keys.home)), act))
    assert look(keys).is_right
    return keys_state


def put(home: Path, content: str = "", *, uid: int = UID, mode: int = 0o600) -> Path:
    """Create ``.ssh`` and ``authorized_keys`` with the user as owner. Return the path of the file."""
    directory = home / ".ssh"
    directory.mkdir(mode=0o700)
    os.chown(directory, UID, GID)
    path = directory / "authorized_keys"
    path.write_text(content)
    os.chown(path, uid, GID if uid == UID else uid)
    path.chmod(mode)
    return path


def test_directory_and_file_are_private_to_the_user(home: Path) -> None:
    assert apply(desired(home)) == KeysState(missing=1)
    for path, mode in ((home / ".ssh", 0o700), (home / ".ssh/authorized_keys", 0o600)):
        status = path.lstat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (UID, GID, mode)
    assert (home / ".ssh/authorized_keys").read_text() == f"{KEY}\n"


def test_no_keys_and_no_file_is_in_order(home: Path) -> None:
    assert look(DesiredKeys((), True, "a", UID, GID, str(home))).is_right
    assert not (home / ".ssh").exists()


def test_a_directory_and_a_file_that_others_can_read_are_closed(home: Path) -> None:
    path = put(home, f"{KEY}\n", mode=0o644)
    path.parent.chmod(0o755)
    assert apply(desired(home)).attributes == (".ssh has mode 0755", ".ssh/authorized_keys has mode 0644")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_another_group_becomes_the_primary_one(home: Path) -> None:
    path = put(home, f"{KEY}\n")
    os.chown(path, UID, 0)
    assert apply(desired(home)).attributes == (".ssh/authorized_keys has group 0",)
    assert path.stat().st_gid == GID


def test_a_file_of_root_becomes_the_users_with_all_its_keys(home: Path) -> None:
    path = put(home, f"{OTHER}\n", uid=0, mode=0o644)
    apply(desired(home))
    assert (path.stat().st_uid, path.read_text()) == (UID, f"{OTHER}\n{KEY}\n")


def test_unreadable_root_file_is_only_replaced(home: Path) -> None:
    path = put(home, f"{OTHER}\n", uid=0)
    with pytest.raises(ResourceError, match="belongs to user 0, expected a file of a"):
        look(desired(home))
    apply(desired(home, exclusive=True))
    assert path.read_text() == f"{KEY}\n"


# Hostile cases


def link_directory(home: Path, secret: Path) -> None:
    (home / ".ssh").symlink_to(secret.parent)


def link_file(home: Path, secret: Path) -> None:
    put(home).unlink()
    (home / ".ssh/authorized_keys").symlink_to(secret)


def hard_link(home: Path, secret: Path) -> None:
    put(home).unlink()
    os.link(secret, home / ".ssh/authorized_keys")


def fifo(home: Path, secret: Path) -> None:
    put(home).unlink()
    os.mkfifo(home / ".ssh/authorized_keys")


def file_as_directory(home: Path, secret: Path) -> None:
    (home / ".ssh").write_text("")


def directory_of_somebody_else(home: Path, secret: Path) -> None:
    (home / ".ssh").mkdir()


HOSTILE = [
    (link_directory, r"/\.ssh is a link, which is not followed, expected a directory of a"),
    (link_file, "authorized_keys is a link, which is not followed, expected a file of a"),
    (hard_link, "has 2 names|belongs to user 0"),
    (fifo, "authorized_keys is not a file|belongs to"),
    (file_as_directory, r"/\.ssh is not a directory"),
    (directory_of_somebody_else, "belongs to user 0, expected a directory of a"),
]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "etc/authorized_keys"
    path.parent.mkdir()
    path.write_text(f"secret {OTHER}\n")
    path.chmod(0o600)
    return path


@pytest.mark.attack("authorized-keys.way")
@pytest.mark.parametrize(("prepare", "why"), HOSTILE)
def test_obstacles_are_refused_without_effect(
    home: Path, secret: Path, prepare: Callable[[Path, Path], None], why: str
) -> None:
    before = [path.lstat() for path in (secret.parent, secret)]
    prepare(home, secret)
    for exclusive in (False, True):
        with pytest.raises(ResourceError, match=why):
            apply(desired(home, exclusive=exclusive))
    after = [path.lstat() for path in (secret.parent, secret)]
    assert [(item.st_mode, item.st_uid) for item in before] == [(item.st_mode, item.st_uid) for item in after]
    assert secret.read_text() == f"secret {OTHER}\n"


@pytest.mark.attack("authorized-keys.exchange")
@pytest.mark.parametrize(("prepare", "why"), HOSTILE)
def test_late_obstacles_are_refused_by_the_user_process(
    home: Path, secret: Path, prepare: Callable[[Path, Path], None], why: str
) -> None:
    assert look(desired(home)).missing == 1

    def act_later(act: Callable[[], object]) -> None:
        prepare(home, secret)
        act_as(user_at(home), act)

    with pytest.raises(ResourceError, match=why):
        write(desired(home), act_later)
    assert secret.read_text() == f"secret {OTHER}\n"
    assert sorted(os.listdir(secret.parent)) == ["authorized_keys"]


def test_unwritable_home_is_a_failure_with_the_path(home: Path) -> None:
    os.chown(home, 0, 0)
    home.chmod(0o755)
    with pytest.raises(PermissionError) as failure:
        apply(desired(home))
    assert failure.value.filename == str(home / ".ssh/authorized_keys")


@pytest.mark.attack("authorized-keys.large")
def test_a_file_that_is_too_large_is_refused(home: Path) -> None:
    put(home, "#" * (LARGEST + 1))
    with pytest.raises(ResourceError, match=f"has more than {LARGEST} bytes"):
        look(desired(home))


# The process that acts as the user


@pytest.mark.attack("authorized-keys.process")
def test_child_process_has_irrevocable_user_ids(home: Path) -> None:
    def act() -> None:
        ids = (os.getresuid(), os.getresgid(), os.getgroups())
        assert ids == ((UID,) * 3, (GID,) * 3, [GID])
        try:
            os.setuid(0)
        except PermissionError:
            raise ResourceError("all as it should be") from None

    with pytest.raises(ResourceError, match="all as it should be"):
        act_as(user_at(home), act)
    assert os.geteuid() == 0


def test_an_error_of_the_system_arrives_with_its_number_and_path(home: Path) -> None:
    with pytest.raises(FileNotFoundError) as failure:
        act_as(user_at(home), lambda: os.stat("/nowhere"))
    assert failure.value.filename == "/nowhere"


def test_bug_in_the_child_is_a_failure(home: Path) -> None:
    with pytest.raises(ResourceError, match="division by zero"):
        act_as(user_at(home), lambda: 1 / 0)


@pytest.mark.attack("authorized-keys.process")
def test_a_child_that_its_user_has_killed_is_a_failure(home: Path) -> None:
    with pytest.raises(ResourceError, match="the change as a was interrupted"):
        act_as(user_at(home), lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.attack("authorized-keys.process")
def test_a_child_that_its_user_has_stopped_is_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "LIMIT", 0.1)
    with pytest.raises(ResourceError, match=r"the change as a was not finished within 0\.1 s"):
        act_as(user_at(home), lambda: os.kill(os.getpid(), signal.SIGSTOP))


def test_a_dry_run_acts_as_nobody(home: Path) -> None:
    with pytest.raises(MutationInNoop):
        NoopSystem().act_as(user_at(home), lambda: None)
