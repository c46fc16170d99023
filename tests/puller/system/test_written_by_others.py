"""Files that control root are ignored and reported if other users can write them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foundation.problems import ProblemCode
from puller.system.trusted_files import trusted

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher

pytestmark = pytest.mark.root

JOE = 65534
Hand = Callable[[Path], str]
"""Makes a path writable by another user, and returns the expected problem."""


def writable(path: Path) -> str:
    path.chmod(path.stat().st_mode | 0o022)
    mode = path.stat().st_mode & 0o7777
    return f"{path} has mode {mode:04o}, expected it writable by its owner only"


def owned(path: Path) -> str:
    os.chown(path, JOE, JOE)
    return f"{path} belongs to user 65534, expected root or the running user 0"


def in_a_directory_of_theirs(path: Path) -> str:
    home = path.with_name(f"home-of-{path.name}")
    home.mkdir()
    path.rename(home / path.name)
    path.symlink_to(home / path.name)
    return owned(home)


def behind_a_link_of_theirs(path: Path) -> str:
    real = path.with_name(f"real-{path.name}")
    path.rename(real)
    path.symlink_to(real)
    os.chown(path, JOE, JOE, follow_symlinks=False)
    return f"{path} belongs to user 65534, expected root or the running user 0"


HANDS = [
    *(pytest.param(hand, marks=pytest.mark.attack("configuration.writable")) for hand in (writable, owned)),
    pytest.param(in_a_directory_of_theirs, marks=pytest.mark.attack("configuration.link")),
    pytest.param(behind_a_link_of_theirs, marks=pytest.mark.attack("configuration.link")),
]
by_every_hand = pytest.mark.parametrize("hand", HANDS)


@by_every_hand
def test_a_configuration_is_refused(settled: Host, hand: Hand) -> None:
    (settled.machine / "motd").unlink()
    reason = hand(settled.configuration)
    sentence = f"puller: {settled.configuration}: is not read: {reason}\n"
    assert settled.run("--noop") == settled.run() == (78, sentence)
    assert not (settled.machine / "motd").exists()


@by_every_hand
def test_writable_trust_anchor_is_refused(settled: Host, publisher: Publisher, hand: Hand) -> None:
    publisher.publish("1.1.0")
    (settled.machine / "motd").unlink()
    anchor = settled.configuration.with_name("root.json")
    reason = hand(anchor)
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told(f"{anchor}: is not read: {reason}", outcome)
    assert settled.problem_codes() == {ProblemCode.UNTRUSTED_PATH}
    settled.assert_enforces("1.0.0")


@pytest.mark.attack("configuration.writable", "configuration.link")
@pytest.mark.parametrize(
    ("name", "hand"),
    [
        ("data.yaml", writable),
        ("data.yaml", behind_a_link_of_theirs),
        ("data.d", writable),
        ("data.d", in_a_directory_of_theirs),
        ("data.d/10.yaml", owned),
        ("data.d/10.yaml", behind_a_link_of_theirs),
    ],
)
def test_writable_host_data_are_refused(settled: Host, name: str, hand: Hand) -> None:
    path = settled.configuration.parent / name
    path.parent.mkdir(exist_ok=True)
    if name == "data.d":
        path.mkdir()
    else:
        path.write_text("data: {port: 1}\n")
    (settled.machine / "motd").unlink()
    reason = hand(path)
    for outcome in (settled.run("--noop"), settled.run()):
        assert outcome.status == 78
        assert f"ERROR  {path}: is not read: {reason}" in outcome.output
    assert not (settled.machine / "motd").exists()


@by_every_hand
def test_writable_site_data_file_uses_the_last_good_copy(settled: Host, hand: Hand) -> None:
    shared = settled.configuration.with_name("shared.yaml")
    shared.write_text("data: {port: 1}\n")
    settled.configure(data=str(shared))
    assert settled.run().status == 0
    (settled.machine / "motd").unlink()
    reason = hand(shared)
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told(f"{shared}: is not read: {reason}, using its last good copy", outcome)
    settled.assert_enforces("1.0.0")


@pytest.mark.attack("configuration.writable", "configuration.link")
@pytest.mark.parametrize(
    ("key", "hand"),
    [("token_file", writable), ("password_file", behind_a_link_of_theirs), ("ca_bundle", owned)],
)
def test_writable_site_settings_are_refused(settled: Host, key: str, hand: Hand) -> None:
    path = settled.configuration.with_name(key)
    path.write_text("secret\n")
    reason = hand(path)
    settled.configure(http={"retries": 0, key: str(path)})
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told(f"{path}: is not read: {reason}", outcome)
    settled.assert_enforces("1.0.0")


def test_a_directory_above_that_others_may_write_is_refused(settled: Host) -> None:
    reason = writable(settled.configuration.parent)
    assert settled.run() == (78, f"puller: {settled.configuration}: is not read: {reason}\n")


def test_a_link_of_roots_to_a_file_of_roots_is_followed(settled: Host) -> None:
    elsewhere = settled.configuration.parent / "elsewhere"
    elsewhere.mkdir()
    for name in ("config.yaml", "root.json"):
        path = settled.configuration.with_name(name)
        path.rename(elsewhere / name)
        path.symlink_to(Path("elsewhere") / name)
    (settled.machine / "motd").unlink()
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")


def test_paths_of_the_command_line_are_read(execute: Execute, tmp_path: Path) -> None:
    """The caller has named these files and the manifest explicitly."""
    for name, text in {
        "data.yaml": "data: {port: 1}\n",
        "facts.yaml": "role: web\n",
        "manifest.yaml": "resources: []\n",
    }.items():
        (tmp_path / name).write_text(text)
        owned(tmp_path / name)
    options = ["--data", f"{tmp_path}/data.yaml", "--facts", f"{tmp_path}/facts.yaml"]
    status, output = execute("render", f"{tmp_path}/manifest.yaml", *options)
    assert status == 0, output


def test_group_of_an_ordinary_user_is_not_checked(tmp_path: Path) -> None:
    """``umask 002`` lets a user's own group write. The user is its only member."""
    path = tmp_path / "config.yaml"
    path.write_text("site: /nowhere\nbundles: [{name: web}]\n")
    writable(path)
    child = os.fork()
    if not child:
        os.chdir(tmp_path)
        os.setresuid(JOE, JOE, JOE)
        os._exit(0 if trusted(path) == path else 1)
    assert os.waitpid(child, 0)[1] == 0
