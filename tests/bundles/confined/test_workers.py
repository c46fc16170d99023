"""Workers without privileges: calls arrive, and a compromised worker can only withhold data."""

import contextlib
import io
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bundles import progress
from bundles.confined import confinement
from bundles.confined.current import confined, current, missing_protections
from bundles.confined.network import Connection, Network
from bundles.confined.worker import DATA, ERROR, LOG, UNPROTECTED, message
from bundles.deadline import Deadline, DeadlineError
from bundles.errors import OversizeError, SettingsError, TransportError
from foundation.problems import ProblemCode

Ask = Callable[..., list[bytes]]

OPERATION = "operations_of_workers:open_session"

pytestmark = pytest.mark.usefixtures("operations")


@pytest.fixture(params=["split off", "from the server"])
def network(request: pytest.FixtureRequest, operations: None) -> Iterator[Network]:
    """Yield a network for each kind of worker: the first worker, and workers that are split off."""
    with confined(at_once=request.param == "split off") as opened:
        opened.user = "nobody" if os.geteuid() == 0 else ""
        yield opened


@pytest.fixture
def session(network: Network) -> Iterator[Connection]:
    connection = network.open(OPERATION, (), "http://a.example/x")
    yield connection
    connection.close()


@pytest.fixture
def ask(session: Connection) -> Ask:
    """Return a function that calls an operation in ``operations``."""
    return lambda name, *arguments, **options: session.call((name, *arguments), Deadline(20), **options)


@pytest.fixture
def attempt(ask: Ask) -> Callable[..., str]:
    """Return a function that lets a worker attempt an action and returns the outcome."""
    return lambda *arguments: ask("attempt", *arguments)[0].decode()


# Calls and results


def test_calls_are_answered_in_order(ask: Ask) -> None:
    assert ask("echo", "one") == [b"one"]
    assert ask("echo", "zwei ü") == ["zwei ü".encode()]


def test_each_session_has_a_process_of_its_own(network: Network) -> None:
    pids = set()
    for _ in range(3):
        connection = network.open(OPERATION, (), "x")
        pids.add(int(connection.call(("pid",), Deadline(20))[0]))
    assert len(pids) == 3
    assert os.getpid() not in pids
    network.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_written_bytes_arrive_in_the_file(ask: Ask) -> None:
    into = io.BytesIO()
    ask("write", 200_000, into=into, limit=200_000)
    assert into.getvalue() == b"x" * 200_000


def test_held_call_is_continued_or_cancelled(ask: Ask) -> None:
    into = io.BytesIO(b"abcdef")
    ask("rewrite", 6, b"ghi", into=into, limit=100, resume=True)
    assert into.getvalue() == b"abcdefghi"
    ask("rewrite", 0, b"new", into=into, limit=100, resume=True)
    assert into.getvalue() == b"new"


def test_unwritable_file_is_a_local_error(ask: Ask) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        ask("write", 10, into=Full(), limit=100)


def test_nothing_is_left_when_the_block_ends(network: Network) -> None:
    connection = network.open(OPERATION, (), "x")
    pid = int(connection.call(("pid",), Deadline(20))[0])
    network.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(TransportError):
        connection.call(("pid",), Deadline(1))


def test_single_network_worker_runs_at_a_time() -> None:
    assert current() is None
    with confined() as outer:
        assert current() is outer
        with confined() as inner:
            assert current() is inner
        assert current() is outer
    assert current() is None


def test_an_error_keeps_its_code_and_hint(ask: Ask) -> None:
    with pytest.raises(TransportError) as raised:
        ask("fail")
    error = raised.value
    assert (error.code, error.hint) == (ProblemCode.CHECKSUM_MISMATCH, "repeat the upload")
    assert (error.where, error.what) == ("a", "b; repeat the upload")


def test_a_session_that_cannot_be_opened_says_why(network: Network) -> None:
    connection = network.open(OPERATION, "fails", "x")
    with pytest.raises(SettingsError, match=r"network_user: .*No such file.*/etc/puller/ca\.pem"):
        connection.call(("pid",), Deadline(20))


@pytest.mark.root
def test_a_user_that_is_not_there_is_named() -> None:
    with confined() as network:
        network.user = "nosuchuser"
        connection = network.open(OPERATION, (), "x")
        with pytest.raises(SettingsError, match=r"network_user: .*unknown user nosuchuser"):
            connection.call(("pid",), Deadline(20))


@pytest.mark.root
def test_where_no_other_user_can_be_had_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example in a container whose user namespace contains only root."""

    def refuse(_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.setgroups", refuse)
    sentence = (
        r"network_user: .*not become user \d+ \(Operation not permitted\); with `network_user: root` it stays"
    )
    with confined(at_once=True) as network:
        connection = network.open(OPERATION, (), "x")
        with pytest.raises(SettingsError, match=sentence):
            connection.call(("pid",), Deadline(20))


def test_package_user_is_preferred_over_the_shared_user(monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"nobody": SimpleNamespace(pw_uid=65534, pw_gid=65533)}
    monkeypatch.setattr("pwd.getpwnam", users.__getitem__)
    assert confinement._identity("") == (65534, 65533)
    users["_puller"] = SimpleNamespace(pw_uid=990, pw_gid=991)
    assert confinement._identity("") == (990, 991)
    assert confinement._identity("nobody") == (65534, 65533)
    users.clear()
    assert confinement._identity("") == (65534, 65534)
    assert confinement._identity("64999") == (64999, 64999)


def test_failed_import_of_an_operation_does_not_block_others(network: Network) -> None:
    for name in ("no_such_module:open_session", "operations_of_workers:no_such_function"):
        with pytest.raises(SettingsError, match="no_such"):
            network.open(name, (), "x").call(("pid",), Deadline(20))
    assert network.open(OPERATION, (), "x").call(("echo", "here"), Deadline(20)) == [b"here"]


def test_signals_to_all_processes_are_the_agents(ask: Ask, session: Connection) -> None:
    """A terminal and systemd also send signals to workers."""
    pid = int(ask("pid")[0])
    with contextlib.suppress(PermissionError):  # a test without root cannot signal a worker of another user
        for number in (1, 2, 3, 15):
            os.kill(pid, number)
    time.sleep(0.05)
    assert ask("echo", "still here") == [b"still here"]


# Permissions of workers


def test_it_has_no_privileges(ask: Ask) -> None:
    lines = dict(line.split(":\t", 1) for line in ask("status")[0].decode().splitlines() if ":\t" in line)
    assert lines["NoNewPrivs"] == "1"
    assert lines["Seccomp"] == "2"
    assert {lines[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    if os.geteuid() == 0:
        assert set(lines["Uid"].split()) == set(lines["Gid"].split()) == {"65534"}
        assert lines["Groups"].split() == []


@pytest.mark.root
def test_root_workers_have_no_root_privileges() -> None:
    with confined() as network:
        network.user = "root"
        connection = network.open(OPERATION, (), "x")
        fields = connection.call(("status",), Deadline(20))
        assert b"CapEff:\t0000000000000000" in fields[0]
        assert connection.call(("attempt", "read", "/etc/shadow"), Deadline(20))[0] == b"PermissionError"
        assert connection.call(("attempt", "write", "/root/theirs"), Deadline(20))[0] != b"done"
    assert not Path("/root/theirs").exists()


def test_it_does_not_know_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecret")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    with confined() as network:
        result = network.open(OPERATION, (), "x").call(("environment",), Deadline(20))
    assert b"https_proxy=http://proxy.example:3128" in result
    assert b"verysecret" not in b" ".join(result)


OF_A_FILE = ("read", "unlink", "chmod", "utime", "truncate")


@pytest.mark.attack("worker.opens")
@pytest.mark.parametrize(
    "what", ["write", "mkdir", "read", "listdir", "unlink", "chmod", "utime", "truncate"]
)
@pytest.mark.representatives(3)
def test_it_reaches_no_file(attempt: Callable[..., str], tmp_path: Path, what: str) -> None:
    tmp_path.chmod(0o777)
    there = tmp_path / "there"
    there.write_text("mine")
    there.chmod(0o666)
    target = tmp_path if what == "listdir" else there if what in OF_A_FILE else tmp_path / "new"
    assert attempt(what, str(target)) in ("PermissionError", "OSError")
    assert [each.name for each in tmp_path.iterdir()] == ["there"]
    assert there.read_text() == "mine"
    assert there.stat().st_mode & 0o777 == 0o666


@pytest.mark.attack("worker.opens")
def test_it_reads_no_state_and_no_secret(attempt: Callable[..., str]) -> None:
    assert attempt("read", "/etc/shadow") == "PermissionError"
    assert attempt("read", f"/proc/{os.getpid()}/environ") in ("PermissionError", "FileNotFoundError")
    assert attempt("read", f"/proc/{os.getpid()}/mem") in ("PermissionError", "FileNotFoundError")


@pytest.mark.attack("worker.processes")
def test_it_asks_no_service_of_its_user(attempt: Callable[..., str], tmp_path: Path) -> None:
    """With the user of the agent, it could make that user's service manager start programs."""
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "bus"))
        (tmp_path / "bus").chmod(0o666)
        service.listen()
        if os.geteuid() != 0:
            assert attempt("connect", str(tmp_path / "bus")) == "PermissionError"


@pytest.mark.root
def test_with_roots_user_it_asks_no_service_either(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as service, confined() as network:
        service.bind(str(tmp_path / "bus"))
        service.listen()
        network.user = "root"
        call = ("attempt", "connect", str(tmp_path / "bus"))
        assert network.open(OPERATION, (), "x").call(call, Deadline(20))[0] == b"PermissionError"


@pytest.mark.attack("worker.processes")
@pytest.mark.parametrize("what", ["exec", "fork", "spawn", "setuid", "packet", "chroot", "setsid"])
@pytest.mark.representatives(3)
def test_it_starts_nothing_and_becomes_nobody(attempt: Callable[..., str], what: str) -> None:
    assert attempt(what) == "PermissionError"


@pytest.mark.attack("worker.processes")
def test_it_ends_no_other_process(attempt: Callable[..., str]) -> None:
    for pid in (os.getpid(), os.getppid(), 1):
        assert attempt("kill", pid) == "PermissionError"


def test_it_may_ask_for_names(ask: Ask) -> None:
    """Workers resolve names without the thread that `aside` uses elsewhere."""
    assert ask("name") == [b"127.0.0.1"]


@pytest.mark.representatives(3)
@pytest.mark.attack("worker.takes")
@pytest.mark.parametrize("what", ["thread", "memory", "shared memory", "descriptors"])
def test_it_takes_a_bounded_part_of_the_machine(attempt: Callable[..., str], what: str) -> None:
    assert attempt(what) in ("RuntimeError", "MemoryError", "OSError", "PermissionError")


@pytest.mark.attack("worker.takes")
@pytest.mark.parametrize("what", ["memfd", "shmget", "mq_open", "pair", "inotify", "fanotify"])
@pytest.mark.representatives(3)
def test_it_has_no_memory_outside_of_its_limits(attempt: Callable[..., str], what: str) -> None:
    assert attempt(what) == "PermissionError"


@pytest.mark.representatives(2)
@pytest.mark.attack("worker.listens")
@pytest.mark.parametrize("what", ["listen", "bind", "bind datagrams", "bind 6"])
def test_it_waits_for_no_connection(attempt: Callable[..., str], what: str) -> None:
    assert attempt(what) == "PermissionError"


@pytest.mark.attack("worker.listens")
@pytest.mark.parametrize("what", ["raw", "ping", "sctp", "netlink", "vsock", "packet", "ptrace", "syslog"])
@pytest.mark.representatives(3)
def test_it_reaches_no_other_part_of_the_kernel(attempt: Callable[..., str], what: str) -> None:
    assert attempt(what) == "PermissionError"


@pytest.fixture
def unprotected(monkeypatch: pytest.MonkeyPatch, operations: None) -> Iterator[Network]:
    """Yield workers on a kernel without Landlock."""
    monkeypatch.setattr("bundles.confined.confinement.landlock_version", lambda libc: 0)
    with confined(at_once=True) as opened:
        opened.user = "nobody" if os.geteuid() == 0 else ""
        yield opened


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Yield a directory that is writable for every user, unlike pytest's directories."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


WRITES = (
    "open",
    "create",
    "empty",
    "write",
    "mkdir",
    "unlink",
    "chmod",
    "truncate",
    "mkfifo",
    "link",
    "utime",
)


@pytest.mark.representatives(4)
@pytest.mark.attack("worker.opens")
@pytest.mark.parametrize("what", WRITES)
def test_without_landlock_it_changes_no_file(what: str, unprotected: Network, open_to_all: Path) -> None:
    there = open_to_all / "there"
    there.write_text("mine")
    there.chmod(0o666)
    target = open_to_all / "new" if what in ("create", "mkdir", "mkfifo") else there
    call = unprotected.open(OPERATION, (), "x").call(("attempt", what, str(target)), Deadline(20))
    assert call[0] == b"PermissionError"
    assert [each.name for each in open_to_all.iterdir()] == ["there"]
    assert there.read_text() == "mine"


def test_a_missing_landlock_is_noted(unprotected: Network) -> None:
    connection = unprotected.open(OPERATION, (), "x")
    assert connection.call(("echo", "here"), Deadline(20)) == [b"here"]
    assert [*unprotected.missing] == ["landlock"]
    assert missing_protections() == [unprotected.missing["landlock"]]


def test_a_kernel_with_both_is_not_warned_of(network: Network, ask: Ask) -> None:
    ask("echo", "here")
    assert network.missing == {}


@pytest.mark.attack("worker.sends")
def test_a_protection_that_is_unknown_is_ignored(network: Network, ask: Ask) -> None:
    ask("send", message(UNPROTECTED, b"firewall\x1b[2J", b""))
    assert network.missing == {}


@pytest.mark.representatives(1)
@pytest.mark.attack("worker.sends")
@pytest.mark.parametrize(("count", "line"), [(5000, b"x"), (300, b"x" * 4000)])
def test_a_flood_of_log_lines_is_cut_off(
    ask: Ask, caplog: pytest.LogCaptureFixture, count: int, line: bytes
) -> None:
    with caplog.at_level("INFO"):
        ask("log", count, line)
        ask("log", 10, line)
    lines = [each for each in caplog.messages if "dropped" not in each]
    dropped = [each for each in caplog.messages if "dropped" in each]
    assert len(lines) <= 100
    assert sum(map(len, lines)) <= 64 * 1024
    first = count - len(lines)
    assert dropped == [
        f"{number} more lines of the process for the network were dropped" for number in (first, 10)
    ]


@pytest.mark.attack("worker.sends")
def test_a_flood_of_files_is_a_failed_transfer(ask: Ask) -> None:
    with pytest.raises(TransportError, match="sent an invalid message"):
        ask("begin", 100_000, into=io.BytesIO(), limit=10)


# Compromised workers


@pytest.mark.attack("worker.sends")
@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff" + b"x" * 100,
        b"\0\0\0\0",
        b"HTTP/1.1 200 OK\r\n\r\n",
        message(b"?", b"what"),
        message(DATA),
        message(DATA, b"a", b"b"),
        message(b"T", b"-1"),
        message(b"T", b"9" * 30),
        message(b"B", b"name"),
        message(b"B", b"name", b"x", b"y"),
        b"\0\0\0\x06D\0\0\1\0x",
        message(ERROR),
        message(ERROR, b"SystemExit", b"", b"no"),
        message(ERROR, b"BaseException"),
    ],
    ids=range(14),
)
@pytest.mark.representatives(3)
def test_malformed_message_is_a_failed_transfer(ask: Ask, session: Connection, data: bytes) -> None:
    into = io.BytesIO()
    with pytest.raises(TransportError) as raised:
        ask("send", data, into=into, limit=1000)
    assert raised.value.where == "http://a.example/x"
    assert into.getvalue() == b""


@pytest.mark.attack("worker.sends")
def test_more_than_the_file_may_have_is_not_written(ask: Ask, network: Network) -> None:
    into = io.BytesIO()
    with pytest.raises(OversizeError, match="more than the permitted 100000 bytes"):
        ask("flood", into=into, limit=100_000)
    assert len(into.getvalue()) <= 100_000


@pytest.mark.attack("worker.sends")
def test_a_file_does_not_grow_by_saying_so(ask: Ask) -> None:
    into = io.BytesIO()
    with pytest.raises(TransportError, match="sent an invalid message: position behind the end"):
        ask("grow", into=into, limit=1000)
    assert into.getvalue() == b""


@pytest.mark.attack("worker.sends")
def test_its_sentences_move_no_cursor_and_are_short(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), pytest.raises(TransportError) as raised:
        ask(
            "send",
            message(LOG, b"\x1b[2Jold") + message(ERROR, b"TransportError", b"", b"a\x1b[31m" + b"b" * 9999),
        )
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 4100
    assert caplog.messages == ["?[2Jold"]


@pytest.mark.attack("worker.sends")
def test_the_name_that_is_shown_moves_no_cursor(ask: Ask) -> None:
    seen: list[str] = []

    class Watcher:
        def moved(self, transfer: progress.Transfer) -> None:
            seen.extend(transfer._files)

        def ended(self, transfer: progress.Transfer, *, well: bool) -> None: ...

    begin = message(b"B", b"a\x1b]0;title\x07" + b"c" * 999, b"0", b"5") + message(DATA, b"12345")
    with progress.watched_by(Watcher()), progress.transfer("a file"):
        ask("send", begin, into=io.BytesIO(), limit=5)
    assert seen
    assert all(name.isprintable() and len(name) < 300 for name in seen)


@pytest.mark.representatives(1)
@pytest.mark.attack("worker.ends")
@pytest.mark.parametrize("how", ["hang", "trickle"])
def test_endless_worker_is_stopped(session: Connection, ask: Ask, how: str) -> None:
    pid = int(ask("pid")[0])
    into = io.BytesIO()
    with pytest.raises(DeadlineError):
        session.call((how,), Deadline(0.3), into, 1000)
    wait_until_gone(pid)


@pytest.mark.attack("worker.ends")
def test_dead_worker_is_a_failed_transfer(ask: Ask) -> None:
    with pytest.raises(TransportError, match="ended before its response"):
        ask("die")


@pytest.mark.attack("worker.ends")
def test_hanging_worker_does_not_block_the_end_of_a_run(network: Network) -> None:
    """The signal is noticed within 0.1 s, and the process is gone at the end of the block."""
    connection = network.open(OPERATION, (), "x")
    pid = int(connection.call(("pid",), Deadline(20))[0])
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    threading.Timer(0.2, stopped.set).start()
    with pytest.raises(KeyboardInterrupt):
        connection.call(("hang",), Deadline(60, check))
    network.close()
    assert not Path(f"/proc/{pid}").exists()


def test_failed_worker_does_not_block_others(network: Network, ask: Ask) -> None:
    with pytest.raises(TransportError):
        ask("die")
    assert network.open(OPERATION, (), "x").call(("echo", "here"), Deadline(20)) == [b"here"]


def test_a_server_that_was_killed_is_started_again() -> None:
    with confined() as network:
        assert network.open(OPERATION, (), "x").call(("echo", "one"), Deadline(20)) == [b"one"]
        assert network._server is not None
        _, server = network._server
        os.kill(server, 9)
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        with pytest.raises(TransportError, match="cannot be started"):
            network.open(OPERATION, (), "x")
        assert network.open(OPERATION, (), "x").call(("echo", "two"), Deadline(20)) == [b"two"]


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a worker, which another process of the server ends."""
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
