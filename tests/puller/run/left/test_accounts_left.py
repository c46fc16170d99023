"""Users and groups across versions of a bundle: changed, restored, removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from puller.resources.accounts import account_databases, user_state
from puller.system.local import LocalSystem
from tests.puller.run.left.test_way_back import story
from tests.simulators import accounts as simulator
from tests.support.stories import Host, Publisher

if TYPE_CHECKING:
    from tests.simulators.accounts import Accounts

pytestmark = pytest.mark.root


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "homes"
    directory.mkdir()
    monkeypatch.setattr(user_state, "HOMES", str(directory))
    return directory


@pytest.fixture
def machine(tmp_path: Path, homes: Path, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    """Return simulated accounts, which the commands of ``LocalSystem`` change."""
    monkeypatch.setattr(account_databases, "DIRECTORY", str(tmp_path / "etc"))
    accounts: Accounts = simulator.Accounts(tmp_path / "etc")
    monkeypatch.setattr(LocalSystem, "execute", lambda system, command: accounts.execute(command))
    monkeypatch.setattr(LocalSystem, "user_id", lambda system, name: accounts.user_id(name))
    monkeypatch.setattr(LocalSystem, "group_id", lambda system, name: accounts.group_id(name))
    return accounts


BOTH = "  - user: [{app: {group: web, shell: /bin/sh}}]\n  - group: [{web: {gid: 5001}}]\n"


def test_versions_forth_and_back(machine: Accounts, host: Host, publisher: Publisher) -> None:
    for version, shell in (("1.0.0", "/bin/sh"), ("2.0.0", "/bin/bash"), ("3.0.0", "/bin/sh")):
        publisher.publish(version, story(0, BOTH.replace("/bin/sh", shell)))
        assert host.run().status == 0
        assert machine.passwd.lines["app"][6] == shell
        machine.ran.clear()
        assert host.run().status == 0
        assert set(host.states().values()) == {"stable"}
        assert machine.ran == []


def test_leftover_users_go_before_their_group_without_the_home(
    machine: Accounts, host: Host, publisher: Publisher, homes: Path
) -> None:
    machine.bring("useradd -M -d /x -- found")
    publisher.publish("1.0.0", "removed: absent\n" + story(0, BOTH, "  - user: [{found: {comment: x}}]\n"))
    assert host.run().status == 0
    machine.ran.clear()
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    assert host.run().status == 0
    assert machine.ran == [["userdel", "--", "app"], ["groupdel", "--", "web"]]
    assert "found" in machine.passwd.lines
    assert (homes / "app").is_dir()


def test_running_user_goes_after_its_processes_end(
    machine: Accounts, host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service keeps running as the old user until its file changes. Remove the user and its group after that."""
    runs_as = "  - file:\n      - '{{ facts.machine }}/runs-as': {content: USER, mode: '0644'}\n"
    runs_as = runs_as.replace("USER,", "USER, owner: '{{ facts.uid }}', group: '{{ facts.gid }}',")
    publisher.publish("1.0.0", "removed: absent\n" + story(0, BOTH, runs_as.replace("USER", "app")))
    assert host.run().status == 0
    uid = int(machine.passwd.lines["app"][2])

    def find_process(of: int) -> tuple[int, str] | None:
        is_running = of == uid and (host.machine / "runs-as").read_text() == "app"
        return (4711, "app") if is_running else None

    monkeypatch.setattr(account_databases, "find_process", find_process)
    new = "  - user: [{new: {shell: /bin/sh}}]\n"
    publisher.publish("2.0.0", "removed: absent\n" + story(0, new, runs_as.replace("USER", "new")))
    done = host.run()
    assert done.status == 0, done.output
    assert {"app", "web"}.isdisjoint({*machine.passwd.lines, *machine.group.lines})
    assert machine.ran[-2:] == [["userdel", "--", "app"], ["groupdel", "--", "web"]]


@pytest.mark.everything
def test_abandoned_bundle_removes_its_users(
    machine: Accounts, host: Host, publisher: Publisher, homes: Path
) -> None:
    machine.bring("useradd -M -d /x -s /bin/sh -- theirs", "useradd -M -d /x -s /bin/sh -- ours")
    publisher.publish("1.0.0", story(0, "  - user: [{ours: {shell: /bin/sh}}]\n"))
    assert host.run().status == 0
    changed = "  - user: [{ours: {shell: /bin/bash}}, {theirs: {shell: /bin/bash}}]\n"
    publisher.publish("2.0.0", story(2, BOTH, changed))
    done = host.run()
    assert done.status == 7
    assert {"app", "web"}.isdisjoint({*machine.passwd.lines, *machine.group.lines})
    assert machine.passwd.lines["ours"][6] == "/bin/sh"
    assert "user#theirs was changed or run" in done.output


@pytest.mark.everything
def test_a_user_that_is_renamed_makes_way_for_its_number(
    machine: Accounts, host: Host, publisher: Publisher, homes: Path
) -> None:
    """Two users cannot share a uid, so Puller removes the old user first. The home directory stays."""
    renamed = "  - user: [{NAME: {uid: 5001, home: HOMES/shared, shell: /bin/sh}}]\n".replace(
        "HOMES", str(homes)
    )
    publisher.publish("1.0.0", "removed: absent\n" + story(0, renamed.replace("NAME", "old")))
    assert host.run().status == 0
    machine.ran.clear()
    publisher.publish("2.0.0", "removed: absent\n" + story(0, renamed.replace("NAME", "new")))
    done = host.run()
    assert done.status == 0, done.output
    assert [command[0] for command in machine.ran] == ["userdel", "useradd"]
    assert "old" not in machine.passwd.lines
    assert machine.passwd.lines["new"][2] == "5001"
    assert (homes / "shared").is_dir()
    assert host.run("--detailed-exitcodes").status == 0


def test_a_user_with_another_number_goes_after_its_successor(
    machine: Accounts, host: Host, publisher: Publisher
) -> None:
    publisher.publish("1.0.0", "removed: absent\n" + story(0, "  - user: [{old: {shell: /bin/sh}}]\n"))
    assert host.run().status == 0
    machine.ran.clear()
    publisher.publish("2.0.0", "removed: absent\n" + story(0, "  - user: [{new: {shell: /bin/sh}}]\n"))
    assert host.run().status == 0
    assert [command[0] for command in machine.ran] == ["useradd", "userdel"]
