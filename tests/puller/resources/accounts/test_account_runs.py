"""Users and groups of whole manifests: runs and dry runs, unusual machines, and contradictory manifests."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event, State
from puller.resources.accounts import account_databases, user_state
from puller.system import local_paths
from tests.puller.test_imports import HEAVY, imported_by
from tests.simulators import accounts as simulator

if TYPE_CHECKING:
    from tests.simulators.accounts import Accounts

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[4]

HASH = "$6$salt$" + "a" * 86
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINENO5BBHYBbDqOgk1cPiqa+N259bg97G1XeVSYa0YiN a"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA b"

Load = Callable[..., Manifest]
Apply = Callable[..., dict[str, Event]]


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "homes"
    directory.mkdir()
    monkeypatch.setattr(user_state, "HOMES", str(directory))
    return directory


@pytest.fixture
def machine(tmp_path: Path, homes: Path, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    monkeypatch.setattr(account_databases, "DIRECTORY", str(tmp_path / "etc"))
    accounts: Accounts = simulator.Accounts(tmp_path / "etc")
    return accounts


@pytest.fixture
def apply(machine: Accounts, load: Load, tmp_path: Path) -> Apply:
    """Return a function that applies a manifest and returns its events by reference: ``apply(text, noop=…)``."""

    def run(text: str, *, noop: bool = False, family: str = "Debian") -> dict[str, Event]:
        resources = yaml.safe_load(text.replace("DIR", str(tmp_path)))
        manifest = load(yaml.safe_dump({"resources": resources}), facts={"os": {"family": family}})
        system = simulator.LookingOnly(machine) if noop else machine
        pending = PendingRefreshes(tmp_path / "pending.json", "web", noop=noop)
        events = Engine(manifest, system, lambda url: b"", pending, Settings(noop=noop)).apply()
        return {str(event.reference): event for event in events}

    return run


def outcomes(events: dict[str, Event]) -> dict[str, str]:
    """Return the error, the dry run's message or the state of each event."""
    return {
        name: "; ".join(event.errors) or event.noop_message or str(event.state.value)
        for name, event in events.items()
    }


# Resources that a dry run expects from earlier resources


@pytest.mark.parametrize(
    "text",
    [
        "[{group: {name: g}}, {user: {name: a, group: g}}]",
        "[{group: {name: g, gid: 5001}}, {user: {name: a, group: 5001}}]",
        "[{group: {name: g}}, {user: {name: a, groups: [g]}}]",
        "[{user: {name: a}}, {group: {name: g, members: [a], require: [user#a]}}]",
        "[{user: {name: a}}, {user: {name: b, group: a, require: [user#a]}}]",
        "[{user: {name: a, uid: 3001}}, {file: {name: DIR/x, owner: a, group: a, mode: '0644', content: x}}]",
        "[{user: {name: a}}, {file: {name: DIR/homes/a/x, owner: a, group: a, mode: '0644', content: x}}]",
        "[{group: {name: g}}, {file: {name: DIR/x, owner: root, group: g, mode: '0644', content: x}}]",
    ],
)
def test_earlier_accounts_exist_for_later_resources_in_noop(
    machine: Accounts, apply: Apply, text: str
) -> None:
    predicted = apply(text, noop=True)
    assert [event.errors for event in predicted.values()] == [[]] * len(predicted)
    assert {event.state for event in predicted.values()} == {State.WOULD_CHANGE}
    assert machine.ran == []
    assert {event.state for event in apply(text).values()} == {State.CHANGED}
    assert {event.state for event in apply(text).values()} == {State.STABLE}


@pytest.mark.root
@pytest.mark.attack("homes.way")
def test_no_home_is_made_where_a_user_could_exchange_it(machine: Accounts, apply: Apply) -> None:
    text = "[{user: {name: a}}, {user: {name: b, home: DIR/homes/a/b}}]"
    for noop in (True, False, True, False):
        first, second = apply(text, noop=noop).values()
        assert not first.errors
        assert "could exchange it" in second.errors[0]
    assert not any("b" in words for words in machine.ran)


def test_file_of_a_new_user_with_a_uid_is_predicted(apply: Apply, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("x")
    path.chmod(0o644)
    os.chown(path, 3001, 0)
    text = "[{user: {name: a, uid: 3001}}, {file: {name: DIR/x, owner: a, group: root, mode: '0644'}}]"
    assert apply(text, noop=True)[f"file#{path}"].state is State.STABLE


def test_removed_accounts_are_gone_for_later_resources_in_noop(
    machine: Accounts, apply: Apply, tmp_path: Path
) -> None:
    machine.bring("useradd -M -d /x -- a", "groupadd g")
    text = """
    - user: {name: a, ensure: absent}
    - group: {name: g, ensure: absent}
    - file: {name: DIR/x, owner: a, group: root, mode: '0644'}
    - file: {name: DIR/y, owner: root, group: g, mode: '0644'}
    - user: {name: c, group: a}
    """
    predicted = outcomes(apply(text, noop=True))
    assert predicted.pop("user#a") == "Would have removed the user"
    assert predicted.pop("group#g") == "Would have removed the group"
    assert predicted == {
        f"file#{tmp_path}/x": "owner is 'a', an unknown user",
        f"file#{tmp_path}/y": "group is 'g', an unknown group",
        "user#c": "group is 'a', an unknown group",
    }
    done = outcomes(apply(text))
    assert {name: done[name] for name in predicted} == predicted


def test_a_group_that_goes_with_its_user_is_gone_for_a_dry_run(machine: Accounts, apply: Apply) -> None:
    machine.bring("useradd -M -d /x -- a")
    text = "[{user: {name: a, ensure: absent}}, {group: {name: a, ensure: absent}}]"
    assert outcomes(apply(text, noop=True)) == {"user#a": "Would have removed the user", "group#a": "stable"}
    assert outcomes(apply(text)) == {"user#a": "changed", "group#a": "stable"}


def test_a_dry_run_says_that_an_id_is_given_twice(machine: Accounts, apply: Apply) -> None:
    text = """
    - group: [{g: {gid: 4001}}, {h: {gid: 4001}}]
    - user: [{a: {uid: 3001}}, {b: {uid: 3001}}]
    """
    for noop in (True, False):
        result = outcomes(apply(text, noop=noop))
        assert result["user#b"] == "uid 3001 belongs to user a"
        assert result["group#h"] == "gid 4001 belongs to group g"


def test_a_command_before_may_bring_users_groups_and_shells(apply: Apply) -> None:
    text = """
    - exec: {name: ./make-them}
    - user: {name: a, groups: [brought], shell: /opt/brought/bin/zsh}
    - group: {name: g, members: [brought]}
    """
    assert [event.errors for event in apply(text, noop=True).values()] == [[], [], []]


# Unusual machines


@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_whom_a_directory_service_knows_is_not_local_and_refused(
    machine: Accounts, apply: Apply, ensure: str
) -> None:
    machine.elsewhere = {"alice": 20001, "staff": 20002}
    text = f"[{{user: {{name: alice, ensure: {ensure}}}}}, {{group: {{name: staff, ensure: {ensure}}}}}]"
    for noop in (True, False):
        result = outcomes(apply(text, noop=noop))
        assert result["user#alice"].startswith("user alice is not local")
        assert result["group#staff"].startswith("group staff is not local")
    assert machine.ran == []


def test_directory_service_group_can_be_primary(machine: Accounts, apply: Apply) -> None:
    machine.elsewhere = {"staff": 20002}
    refused = outcomes(apply("[{user: {name: a, groups: [staff]}}]"))["user#a"]
    assert refused == "groups has 'staff', which is not local, so Puller cannot change its members"


def test_a_user_of_a_directory_service_can_be_listed(machine: Accounts, apply: Apply) -> None:
    machine.elsewhere = {"alice": 20001}
    assert outcomes(apply("[{group: {name: g, members: [alice]}}]")) == {"group#g": "changed"}


def test_directory_service_is_queried_for_missing_names_only(machine: Accounts, apply: Apply) -> None:
    machine.bring(*(f"useradd -M -d /x -- u{number}" for number in range(5)))
    machine.asked.clear()
    apply("[{user: [{u0: {}}, {u1: {}}, {u2: {}}, {u3: {}}, {u4: {}}, {u5: {ensure: absent}}]}]")
    assert machine.asked == ["u5"]


def test_accounts_are_read_from_the_databases_once(
    machine: Accounts, apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.bring(*(f"useradd -M -d /x -- u{number}" for number in range(50)))
    read = []

    class Counted(account_databases.Names):
        def __init__(self, passwd: bytes, group: bytes) -> None:
            read.append(1)
            super().__init__(passwd, group)

    monkeypatch.setattr(account_databases, "Names", Counted)
    users = ", ".join(f"{{u{number}: {{locked: true}}}}" for number in range(50))
    groups = ", ".join(f"{{u{number}: {{}}}}" for number in range(50))
    assert {event.state for event in apply(f"[{{group: [{groups}]}}, {{user: [{users}]}}]").values()} == {
        State.STABLE
    }
    assert (read, machine.ran, machine.asked) == ([1], [], [])


def test_damaged_lines_are_ignored(machine: Accounts, apply: Apply) -> None:
    machine.bring("useradd -M -d /x -u 3001 -- a")
    for database in (machine.passwd, machine.group, machine.shadow):
        content = database.path.read_bytes()
        damaged = b"\n::::\nb\nb:x:y:z:::\nb:x:-1:-1:::\n+\n+::::::\n-@netgroup\n# c:x:1:1:::\n\xff\x00:x\n"
        database.path.write_bytes(damaged + content + damaged)
    assert outcomes(apply("[{user: {name: a, uid: 3001, locked: true}}, {group: {name: a}}]")) == {
        "group#a": "stable",
        "user#a": "stable",
    }


def test_first_line_of_a_duplicate_name_counts(machine: Accounts, apply: Apply) -> None:
    machine.bring("useradd -M -d /x -u 3001 -s /bin/sh -- a")
    with machine.passwd.path.open("a") as stream:
        stream.write("a:x:3002:3002::/y:/bin/false\n")
    assert outcomes(apply("[{user: {name: a, uid: 3001, shell: /bin/sh}}]")) == {"user#a": "stable"}


def test_a_password_that_is_empty_is_not_none(machine: Accounts, apply: Apply) -> None:
    machine.bring("useradd -M -d /x -- a")
    machine.shadow.put(["a", "", *machine.shadow.lines["a"][2:]])
    assert outcomes(apply("[{user: {name: a, password: '!'}}]")) == {"user#a": "changed"}
    assert machine.shadow.lines["a"][1] == "!"


def test_hash_in_passwd_counts_without_a_shadow_file(machine: Accounts, apply: Apply) -> None:
    machine.passwd.put(["a", HASH, "3001", "1", "", "/x", "/bin/sh"])
    machine.shadow.path.unlink()
    assert outcomes(apply(f"[{{user: {{name: a, password: {HASH}}}}}]")) == {"user#a": "stable"}


def test_deleted_users_leave_the_members_on_a_change(machine: Accounts, apply: Apply) -> None:
    machine.group.put(["g", "x", "5001", "ghost,daemon"])
    assert outcomes(apply("[{group: {name: g, members: [root]}}]")) == {"group#g": "changed"}
    assert machine.group.lines["g"][3] == "daemon,root"


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("useradd", "[{user: {name: b}}]"),
        ("usermod", "[{user: {name: a, shell: /bin/bash}}]"),
        ("chpasswd", f"[{{user: {{name: a, password: {HASH}}}}}]"),
        ("chage", "[{user: {name: a, password_max_days: 1}}]"),
        ("userdel", "[{user: {name: a, ensure: absent}}]"),
        ("groupadd", "[{group: {name: h}}]"),
        ("groupmod", "[{group: {name: g, gid: 5009}}]"),
        ("gpasswd", "[{group: {name: g, members: [a]}}]"),
        ("groupdel", "[{group: {name: g, ensure: absent}}]"),
    ],
)
def test_a_machine_without_a_tool_is_told_which_and_its_package(
    machine: Accounts, apply: Apply, tool: str, text: str
) -> None:
    machine.bring("useradd -M -d /x -s /bin/sh -- a", "groupadd g")
    machine.missing = {tool}
    (failure,) = outcomes(apply(text)).values()
    assert failure.startswith(f"{tool} cannot be started: ")
    assert "package passwd (Debian) or shadow-utils" in failure


def test_a_tool_that_ends_well_and_has_done_nothing_is_a_failure(
    machine: Accounts, apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.bring("useradd -M -d /x -s /bin/sh -- a")
    monkeypatch.setattr(machine, "usermod", lambda options, name: None)
    (failure,) = outcomes(apply("[{user: {name: a, shell: /bin/bash}}]")).values()
    assert failure == "is still out of sync after the change: shell /bin/sh → /bin/bash"


def test_a_tool_that_fails_says_why(machine: Accounts, apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(options: object, name: str) -> None:
        raise simulator.ToolFailed(1, "cannot lock /etc/passwd; try again later.")

    monkeypatch.setattr(machine, "useradd", fails)
    (failure,) = outcomes(apply("[{user: {name: a}}]")).values()
    assert failure == "useradd: exit code 1; it printed:\nuseradd: cannot lock /etc/passwd; try again later."


HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(machine: Accounts) -> Iterator[subprocess.Popen[str]]:
    """Start another tool that holds the lock until the test ends."""
    command = [sys.executable, "-c", HOLD, f"{account_databases.DIRECTORY}/.pwd.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_lock_of_another_tool_is_awaited_then_named(
    machine: Accounts, apply: Apply, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_databases, "WAIT", 0.1)
    (failure,) = outcomes(apply("[{user: {name: a}}]")).values()
    assert f".pwd.lock is locked by process {holder.pid} (python" in failure
    assert machine.ran == []


def test_a_lock_that_is_given_back_in_time_is_no_failure(
    machine: Accounts, apply: Apply, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_back(seconds: float) -> None:
        holder.communicate()

    monkeypatch.setattr("puller.resources.accounts.account_databases.time.sleep", give_back)
    assert outcomes(apply("[{user: {name: a}}]")) == {"user#a": "changed"}


def test_the_lock_is_not_kept_for_the_tool_takes_it_itself(machine: Accounts, apply: Apply) -> None:
    def try_lock() -> None:
        with open(f"{account_databases.DIRECTORY}/.pwd.lock", "w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    machine.after = try_lock
    assert outcomes(apply("[{user: {name: a}}]")) == {"user#a": "changed"}


# Users with processes


@pytest.fixture
def busy_user(machine: Accounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create user ``a`` with a process in a simulated /proc. Return the expected message."""
    machine.bring("useradd -u 3001 -m -d DIR/homes/a -s /bin/sh -- a".replace("DIR", str(tmp_path)))
    proc = tmp_path / "proc"
    for pid, name, uid in (("self", "puller", 0), ("17", "init", 0), ("247", "sleep", 3001)):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "root").symlink_to("/")
        (proc / pid / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    monkeypatch.setattr(account_databases, "PROC", str(proc))
    return "user a is used by process 247 (sleep); end it first"


@pytest.mark.parametrize("change", ["uid: 3002", "home: DIR/homes/b", "ensure: absent"])
@pytest.mark.parametrize("noop", [True, False])
def test_user_with_processes_keeps_id_home_and_account(
    machine: Accounts, apply: Apply, busy_user: str, change: str, noop: bool
) -> None:
    assert outcomes(apply(f"[{{user: {{name: a, {change}}}}}]", noop=noop)) == {"user#a": busy_user}
    assert machine.ran == []


def test_everything_else_of_a_user_with_processes_is_changed(
    machine: Accounts, apply: Apply, busy_user: str
) -> None:
    machine.bring("groupadd g")
    text = f"[{{user: {{name: a, shell: /bin/bash, groups: [g], comment: x, password: {HASH}}}}}]"
    assert outcomes(apply(text)) == {"user#a": "changed"}


def test_process_with_another_root_belongs_to_a_container(
    machine: Accounts, apply: Apply, busy_user: str, tmp_path: Path
) -> None:
    (tmp_path / "proc/247/root").unlink()
    (tmp_path / "proc/247/root").symlink_to(tmp_path)
    assert outcomes(apply("[{user: {name: a, ensure: absent}}]")) == {"user#a": "changed"}


def test_a_home_with_a_mount_below_is_not_removed(
    machine: Accounts, apply: Apply, homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.bring(f"useradd -m -d {homes}/a -- a")
    monkeypatch.setattr(local_paths, "mount_points", lambda: ["/", f"{homes}/a/data"])
    (failure,) = outcomes(apply("[{user: {name: a, ensure: absent, remove_home: true}}]")).values()
    assert failure == f"{homes}/a cannot be removed: {homes}/a/data is mounted below it"
    assert machine.ran == []


# Secrets


@pytest.mark.attack("secrets.password")
def test_the_hash_is_on_standard_input_and_nowhere_else(
    machine: Accounts, apply: Apply, tmp_path: Path
) -> None:
    machine.bring("useradd -M -d /x -- a", "chpasswd -e a:$y$j9T$salt$" + "b" * 43)
    text = f"[{{user: {{name: a, password: {HASH}}}}}]"
    for noop in (True, False):
        (event,) = apply(text, noop=noop).values()
        assert [*map(str, event.differences)] == ["password (sensitive)"]
        assert "aaaa" not in repr(event)
        assert "bbbb" not in repr(event)
    assert machine.ran == [["chpasswd", "-e"]]
    assert machine.inputs == [f"a:{HASH}\n".encode()]


# Contradictory manifests

REFUSED = {
    "user: {name: -a}": "name is '-a', expected letters, digits",
    "user: {name: '123'}": "name is '123', expected letters, digits",
    "user: {name: 'a:b'}": "name is 'a:b', expected letters, digits",
    'user: {name: "a\\nb"}': r"name is 'a\nb', expected letters, digits",
    "user: {name: a23456789012345678901234567890123}": "expected letters, digits",
    "user: {name: a, ensure: x}": "ensure is 'x', expected present or absent",
    "user: {name: a, uid: 0}": "uid is 0, and 0 is root's alone",
    "user: {name: root, uid: 5}": "uid is 5, and 0 is root's alone",
    "user: {name: a, uid: -1}": "uid is -1, expected 0 to 4294967294",
    "user: {name: a, uid: 4294967295}": "uid is 4294967295, expected 0 to 4294967294",
    "user: {name: root, ensure: absent}": "ensure is 'absent', and root is not removed",
    "user: {name: a, group: -g}": "group has '-g', expected a name",
    "user: {name: a, groups: ['a,b']}": "groups has 'a,b', expected a name",
    "user: {name: a, groups: ['12']}": "groups has '12', expected a name",
    "user: {name: a, membership: all}": "membership is 'all', expected minimum or inclusive",
    "user: {name: a, membership: inclusive}": "membership is inclusive, and groups is missing",
    "user: {name: a, home: x}": "home is 'x', expected an absolute path",
    "user: {name: a, home: '/x:y'}": "home is '/x:y', expected no colon",
    "user: {name: a, shell: bash}": "shell is 'bash', expected an absolute path",
    "user: {name: a, comment: 'a:b'}": "comment is 'a:b', expected no colon",
    'user: {name: a, comment: "a\\nb"}': r"comment is 'a\nb', expected no colon",
    "user: {name: a, expires: 31.12.2030}": "expires is '31.12.2030', expected a day such as '2030-12-31'",
    "user: {name: a, expires: '2030-02-30'}": "expires is '2030-02-30', expected a day such as",
    "user: {name: a, expires: '1969-12-31'}": "expires is '1969-12-31', expected a day such as",
    "user: {name: a, password_max_days: -2}": "password_max_days is -2, expected a number of days",
    "user: {name: a, password: '!', locked: false}": "locked is false, but unlocking requires a password",
    "user: {name: a, authorized_keys: [hello]}": "authorized_keys [0] is not a public key",
    f"user: {{name: a, authorized_keys: ['{KEY}', 'no-pty {KEY}']}}": "authorized_keys [1] is the same key as [0]",
    "user: {name: a, exclusive_keys: true}": "exclusive_keys requires authorized_keys, which may be empty",
    "user: {name: a, remove_home: true}": "remove_home is only for ensure: absent",
    "group: {name: -g}": "name is '-g', expected letters, digits",
    "group: {name: g, gid: 0}": "gid is 0, and 0 is root's alone",
    "group: {name: root, ensure: absent}": "ensure is 'absent', and root is not removed",
    "group: {name: g, members: ['a,b']}": "members has 'a,b', expected a name",
    'group: {name: g, members: ["a\\nb"]}': r"members has 'a\nb', expected a name",
    "group: {name: g, membership: inclusive}": "membership is inclusive, and members is missing",
    "group: {name: g, gid: x}": "gid is 'x', expected",
}


@pytest.mark.attack("data-names.accounts")
@pytest.mark.parametrize("text", REFUSED)
def test_contradictory_properties_are_refused_at_load(apply: Apply, text: str) -> None:
    with pytest.raises(ManifestError) as failure:
        apply(f"[{{{text}}}]")
    assert REFUSED[text] in str(failure.value)


@pytest.mark.attack("data-names.accounts")
@pytest.mark.parametrize(
    "password",
    [
        "secret-text",
        "$6$",
        "$6$salt$short",
        "!" + HASH,
        HASH + "\n",
        HASH + ":x",
        "",
        "x",
        "$6$salt$" + "*" * 86,
    ],
)
def test_a_text_that_is_no_hash_is_refused_and_not_shown(apply: Apply, password: str) -> None:
    with pytest.raises(ManifestError) as failure:
        apply(yaml.safe_dump([{"user": {"name": "a", "password": password}}]))
    assert "password " in str(failure.value)
    assert len(password) < 4 or password.strip() not in str(failure.value)


@pytest.mark.parametrize(
    "password",
    [
        "*",
        "!",
        HASH,
        "$6$rounds=5000$salt$" + "a" * 86,
        "$5$salt$" + "a" * 43,
        "$1$salt$" + "a" * 22,
        "$2b$12$" + "a" * 53,
        "$y$j9T$salt$" + "a" * 43,
        "$gy$j9T$salt$" + "a" * 43,
        "$7$CU..../....salt$" + "a" * 43,
    ],
)
def test_hashes_of_every_kind_are_accepted(machine: Accounts, apply: Apply, password: str) -> None:
    assert outcomes(apply(yaml.safe_dump([{"user": {"name": "a", "password": password}}]))) == {
        "user#a": "changed"
    }
    assert machine.shadow.lines["a"][1] == password


# Declared twice


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("groups: [g]", "groups: [h]", "groups: [g, h]"),
        ("groups: [g]", "{}", "groups: [g]"),
        ("groups: [g, h], membership: inclusive", "groups: [g]", "groups: [g, h], membership: inclusive"),
        ("groups: [g], membership: inclusive", "{}", "groups: [g], membership: inclusive"),
        (
            "groups: [g, h], membership: inclusive",
            "groups: [h, g], membership: inclusive",
            "groups: [g, h], membership: inclusive",
        ),
        ("groups: [g], membership: inclusive", "groups: [h]", ""),
        ("groups: [g], membership: inclusive", "groups: [g, h], membership: inclusive", ""),
        (
            f"authorized_keys: ['{KEY}']",
            f"authorized_keys: ['{OTHER}']",
            f"authorized_keys: ['{OTHER}', '{KEY}']",
        ),
        (f"authorized_keys: ['{KEY}']", f"authorized_keys: ['no-pty {KEY}']", ""),
        (f"authorized_keys: ['{KEY}'], exclusive_keys: true", f"authorized_keys: ['{OTHER}']", ""),
        (
            f"authorized_keys: ['{OTHER}', '{KEY}'], exclusive_keys: true",
            f"authorized_keys: ['{KEY}']",
            f"authorized_keys: ['{OTHER}', '{KEY}'], exclusive_keys: true",
        ),
        ("shell: /bin/sh", "uid: 3001", "shell: /bin/sh, uid: 3001"),
        ("group: 5", "group: '5'", "group: '5'"),
        ("shell: /bin/sh", "shell: /bin/bash", ""),
        ("locked: true", "locked: false", ""),
        (f"password: {HASH}", "{}", f"password: {HASH}"),
        (f"password: {HASH}", "password: '*'", ""),
    ],
)
def test_compatible_user_declarations_are_joined(load: Load, first: str, second: str, both: str) -> None:
    def text(*declarations: str) -> str:
        bodies = [{"name": "a", **yaml.safe_load("{" + one.strip("{}") + "}")} for one in declarations]
        return yaml.safe_dump({"resources": [{"user": body} for body in bodies]})

    if not both:
        with pytest.raises(ManifestError, match="is declared twice") as failure:
            load(text(first, second))
        assert HASH not in str(failure.value)
        return
    (expected,) = load(text(both)).declarations
    for pair in ((first, second), (second, first), (first, second, first)):
        (declaration,) = load(text(*pair)).declarations
        assert ordered(declaration.properties) == ordered(expected.properties)


def ordered(properties: Any) -> dict[str, Any]:
    result = {name: getattr(properties, name) for name in properties.__struct_fields__}
    return {name: sorted(value) if isinstance(value, tuple) else value for name, value in result.items()}


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("members: [a]", "members: [b]", "members: [a, b]"),
        ("members: [a, b], membership: inclusive", "members: [b]", "members: [a, b], membership: inclusive"),
        ("members: [a], membership: inclusive", "members: [b]", ""),
        ("gid: 5001", "{}", "gid: 5001"),
        ("gid: 5001", "gid: 5002", ""),
    ],
)
def test_compatible_group_declarations_are_joined(load: Load, first: str, second: str, both: str) -> None:
    def text(*declarations: str) -> str:
        bodies = [{"name": "g", **yaml.safe_load("{" + one.strip("{}") + "}")} for one in declarations]
        return yaml.safe_dump({"resources": [{"group": body} for body in bodies]})

    if not both:
        with pytest.raises(ManifestError, match="is declared twice"):
            load(text(first, second))
        return
    (expected,) = load(text(both)).declarations
    for pair in ((first, second), (second, first)):
        (declaration,) = load(text(*pair)).declarations
        assert ordered(declaration.properties) == ordered(expected.properties)


def test_renumbered_group_stays_primary_in_noop(machine: Accounts, apply: Apply) -> None:
    machine.bring("groupadd -g 5001 g", "useradd -M -d /x -g g -- a", "gpasswd -M a g")
    text = "[{group: {name: g, gid: 5002}}, {user: {name: a, group: g, groups: [], membership: inclusive}}]"
    assert outcomes(apply(text, noop=True))["user#a"] == "stable"
    assert outcomes(apply(text)) == {"group#g": "changed", "user#a": "stable"}


def test_a_home_that_is_moved_is_in_its_new_place_for_a_dry_run(
    machine: Accounts, apply: Apply, homes: Path
) -> None:
    machine.bring(f"useradd -m -u 3001 -d {homes}/a -- a")
    text = """
    - user: {name: a, home: DIR/homes/b}
    - file: {name: DIR/homes/b/x, owner: a, group: a, mode: '0644', content: x}
    """
    assert [event.errors for event in apply(text, noop=True).values()] == [[], []]
    assert {event.state for event in apply(text).values()} == {State.CHANGED}


def test_empty_mount_point_changes_no_owner(
    machine: Accounts, apply: Apply, homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (homes / "a").mkdir()
    monkeypatch.setattr(local_paths, "mount_points", lambda: ["/", f"{homes}/a"])
    (failure,) = outcomes(apply("[{user: {name: a}}]")).values()
    assert failure == f"{homes}/a is a mount point, which cannot be given to a new user"


def test_users_and_groups_that_are_in_order_import_nothing_heavy(tmp_path: Path) -> None:
    """The resources are in sync with this machine, so the run changes nothing."""
    resources = [
        {"group": {"name": "root", "members": []}},
        {"user": {"name": "root", "uid": 0, "group": "root"}},
    ]
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump({"resources": resources}))
    options = ("apply", str(tmp_path), "--state-directory", f"{tmp_path}/state")
    imported_by(*options)
    assert imported_by(*options) & HEAVY == set()


def test_package_accounts_are_managed_and_not_created(machine: Accounts, apply: Apply) -> None:
    machine.bring("useradd -M -d /x -r -s /bin/sh -- Debian-exim")
    text = """
    - user: [{Debian-exim: {shell: /usr/sbin/nologin}}, {Abc: {}}, {a.b: {ensure: absent}}]
    - group: [{Debian-exim: {}}, {Abc: {}}]
    """
    refused = "name is 'Abc', expected lower-case letters, digits, _ and - for a new one, and single dots between them"
    for noop in (True, False):
        result = outcomes(apply(text, noop=noop))
        assert (result["user#Abc"], result["group#Abc"]) == (refused, refused)
        assert (result["user#a.b"], result["group#Debian-exim"]) == ("stable", "stable")
    assert machine.passwd.lines["Debian-exim"][6] == "/usr/sbin/nologin"


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize(
    ("family", "name", "message"),
    [
        ("Debian", "john.smith", ""),
        ("RedHat", "j.r.smith", ""),
        ("Suse", "john.smith", "useradd accepts dots only on Debian and RedHat systems"),
        ("Debian", "john.", "single dots between them"),
        ("Debian", "john..smith", "single dots between them"),
        ("Debian", "John.Smith", "single dots between them"),
        ("Debian", f"{'j' * 20}.{'s' * 11}", "expected letters, digits"),
    ],
)
def test_new_names_have_dots_where_useradd_accepts_them(
    machine: Accounts, apply: Apply, noop: bool, family: str, name: str, message: str
) -> None:
    text = f"[{{group: {{name: {name}}}}}, {{user: {{name: {name}}}}}]"
    if message.startswith("expected"):
        with pytest.raises(ManifestError, match=message):
            apply(text, noop=noop, family=family)
        return
    for event in apply(text, noop=noop, family=family).values():
        assert (not event.errors) if not message else message in event.errors[0]
    assert (name in machine.passwd.lines) is (not message and not noop)
    if not noop and not message:
        assert {event.state for event in apply(text, family=family).values()} == {State.STABLE}


PARENTS = ("srv", "srv/homes")


def test_missing_parents_of_a_home_belong_to_root(machine: Accounts, apply: Apply, tmp_path: Path) -> None:
    text = (
        "[{user: {name: a, home: DIR/srv/homes/a}}, {file: {name: DIR/srv/homes/x, content: x, mode: '0644'"
    )
    text += f", owner: {os.geteuid()}, group: {os.getegid()}}}}}]"
    predicted = apply(text, noop=True)
    assert not (tmp_path / "srv").exists()
    events = apply(text)
    assert [event.errors for event in (*predicted.values(), *events.values())] == [[]] * 4
    for name in PARENTS:
        status = (tmp_path / name).stat()
        assert (status.st_uid, status.st_mode & 0o7777) == (os.geteuid(), 0o755)
    assert (tmp_path / "srv/homes/a").is_dir()
    assert {event.state for event in apply(text).values()} == {State.STABLE}


@pytest.mark.root
def test_home_moves_into_missing_parents_and_back(machine: Accounts, apply: Apply, tmp_path: Path) -> None:
    for home in ("homes/a", "srv/homes/a", "homes/a"):
        text = f"[{{user: {{name: a, home: DIR/{home}}}}}]"
        predicted, done = apply(text, noop=True), apply(text)
        assert not predicted["user#a"].errors
        assert not done["user#a"].errors
        assert (tmp_path / home).is_dir()
        assert machine.passwd.lines["a"][5] == str(tmp_path / home)
        assert apply(text)["user#a"].state == State.STABLE
    assert sorted(os.listdir(tmp_path / "srv/homes")) == []


@pytest.mark.root
def test_missing_home_of_a_user_is_created_with_parents(
    machine: Accounts, apply: Apply, tmp_path: Path
) -> None:
    machine.bring(f"useradd -M -d {tmp_path}/srv/homes/a -- a")
    text = "[{user: {name: a, home: DIR/srv/homes/a}}]"
    assert not apply(text, noop=True)["user#a"].errors
    assert not apply(text)["user#a"].errors
    assert (tmp_path / "srv/homes/a").stat().st_uid == int(machine.passwd.lines["a"][2])
    assert apply(text)["user#a"].state == State.STABLE


@pytest.mark.parametrize("noop", [True, False])
def test_parent_of_a_home_that_is_no_directory_is_a_failure(
    machine: Accounts, apply: Apply, tmp_path: Path, noop: bool
) -> None:
    (tmp_path / "srv").write_text("a file")
    (event,) = apply("[{user: {name: a, home: DIR/srv/homes/a}}]", noop=noop).values()
    assert event.errors == [f"{tmp_path}/srv is not a directory"]
    assert machine.ran == []


def test_a_home_with_a_slash_at_its_end_is_the_same_one(machine: Accounts, apply: Apply, homes: Path) -> None:
    machine.bring(f"useradd -m -d {homes}/a -- a")
    machine.passwd.put([*machine.passwd.lines["a"][:5], f"{homes}/a/", "/bin/sh"])
    assert outcomes(apply("[{user: {name: a, home: DIR/homes/a}}]")) == {"user#a": "stable"}


@pytest.mark.parametrize("noop", [True, False])
def test_a_home_with_a_path_of_another_resource_stays(
    machine: Accounts, apply: Apply, tmp_path: Path, noop: bool
) -> None:
    apply("[{user: {name: a}}]")
    home = tmp_path / "homes/a"
    (home / "done").touch()
    command = "{exec: {name: /bin/true, creates: DIR/homes/a/done}}"
    text = f"[{command}, {{user: {{name: a, ensure: absent, remove_home: true}}}}]"
    failure = apply(text, noop=noop)["user#a"].errors[0]
    assert failure == f"{home} cannot be removed: exec#/bin/true keeps {home}/done"
    assert home.exists()
