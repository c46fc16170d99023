"""The tests of a gossfile on this machine. Each attribute that differs is reported as a sentence.

* One method per kind of resource returns the values of its attributes. Each attribute is a function, so that only
  compared attributes are queried.
* A missing resource has only ``exists: false`` or the like, so that tests of its other attributes fail.
* Unsupported parts are errors, and the check's deadline limits every test.
"""

import grp
import hashlib
import ipaddress
import os
import pwd
import re
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from bundles.deadline import Deadline, DeadlineError, aside
from hiera.errors import HieraError
from puller.checks import http, service
from puller.checks.gossfile_parser import LARGEST, Lines, Test, matches, read
from puller.checks.kinds import Answer, GossRules, Http, NotCarriedOut, Service, parse_address
from puller.checks.local_checks import group_name, kind_of, owner_name, running
from puller.checks.network_checks import NoConnectionError, closing, connect
from puller.errors import PullerError, StoppedCommand, reason
from puller.system.commands import Command, Completed
from puller.system.protocol import System

Values = Mapping[str, Callable[[], Any]]
_MOST_READ = 16 << 20  # bytes of a file to search
_LISTENING = "0A"
_SECOND = 1000.0  # milliseconds


class Machine:
    """This machine, queried within one deadline."""

    def __init__(self, system: System, deadline: Deadline) -> None:
        self.system, self.deadline = system, deadline

    def values(self, test: Test) -> Values:
        """Return the attributes of a tested resource. Raises ``NotCarriedOut`` and ``OSError``."""
        ask: Callable[[Test], Values] = getattr(self, f"_{test.kind.replace('-', '_')}")
        return ask(test)

    def _limit(self, test: Test, default: float) -> Deadline:
        provided = test.options.get("timeout")
        return self.deadline.within(default if provided is None else provided / _SECOND)

    def _query(self, words: list[str], limit: Deadline | None = None) -> Completed:
        remaining = (limit or self.deadline).at_most((limit or self.deadline).seconds)
        completed = self.system.query(Command(words, timeout=remaining, output_limit=1 << 20))
        if completed.timed_out:
            raise NotCarriedOut(f"{words[0]}: {completed.outcome}")
        return completed

    def _addr(self, test: Test) -> Values:
        def reachable() -> bool:
            address = str(test.options.get("address", test.name)).removeprefix("tcp://")
            try:
                host, port = parse_address(address)
                with closing(connect(host, port, self._limit(test, 0.5))):
                    return True
            except ValueError as error:
                raise NotCarriedOut(str(error)) from error
            except (NoConnectionError, TimeoutError):
                self.deadline.verify()
                return False

        return {"reachable": reachable}

    def _command(self, test: Test) -> Values:
        line = str(test.options.get("exec", test.name))
        done = self._query(["/bin/sh", "-c", line], self._limit(test, 10.0))
        code = done.exit_code if done.exit_code is not None else -1
        return {
            "exit-status": lambda: code,
            "stdout": lambda: Lines(done.stdout),
            "stderr": lambda: Lines(done.stderr),
        }

    def _dns(self, test: Test) -> Values:
        name = str(test.options.get("resolve", test.name))
        try:
            result = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno not in (socket.EAI_NONAME, socket.EAI_NODATA):
                raise NotCarriedOut(f"{name}: {error.strerror}") from error
            return {"resolvable": lambda: False}
        except UnicodeError as error:
            raise NotCarriedOut(f"{name}: is not a valid host name: {error}") from error
        return {"resolvable": lambda: True, "addrs": lambda: sorted({str(item[4][0]) for item in result})}

    def _file(self, test: Test) -> Values:
        path = os.path.expanduser(str(test.options.get("path", test.name)))
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return {"exists": lambda: False}
        name = {"link": "symlink", "fifo": "pipe"}.get(kind := kind_of(status.st_mode), kind)
        values: dict[str, Callable[[], Any]] = {
            "exists": lambda: True,
            "mode": lambda: f"{stat.S_IMODE(status.st_mode):04o}",
            "size": lambda: os.stat(path).st_size,
            "owner": lambda: owner_name(status.st_uid),
            "group": lambda: group_name(status.st_gid),
            "uid": lambda: status.st_uid,
            "gid": lambda: status.st_gid,
            "filetype": lambda: name,
            "contents": lambda: Lines(self._read(path).decode(errors="replace")),
            "contains": lambda: Lines(self._read(path).decode(errors="replace")),
            "md5": lambda: self._digest(path, "md5"),
            "sha256": lambda: self._digest(path, "sha256"),
            "sha512": lambda: self._digest(path, "sha512"),
        }
        if stat.S_ISLNK(status.st_mode):
            values["linked-to"] = lambda: os.readlink(path)
        return values

    def _open(self, path: str) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotCarriedOut(f"{path}: is not a regular file, so it cannot be read")
        return descriptor

    def _read(self, path: str) -> bytes:
        with open(self._open(path), "rb") as stream:
            data = stream.read(_MOST_READ + 1)
        if len(data) > _MOST_READ:
            raise NotCarriedOut(f"{path}: has more than {_MOST_READ} bytes and cannot be searched")
        return data

    def _digest(self, path: str, name: str) -> str:
        digest = hashlib.new(name, usedforsecurity=False)
        with open(self._open(path), "rb") as stream:
            while piece := stream.read(1 << 20):
                self.deadline.verify()
                digest.update(piece)
        return digest.hexdigest()

    def _group(self, test: Test) -> Values:
        try:
            result = grp.getgrnam(str(test.options.get("groupname", test.name)))
        except KeyError:
            return {"exists": lambda: False}
        return {"exists": lambda: True, "gid": lambda: result.gr_gid}

    def _user(self, test: Test) -> Values:
        name = str(test.options.get("username", test.name))
        try:
            result = pwd.getpwnam(name)
        except KeyError:
            return {"exists": lambda: False}
        return {
            "exists": lambda: True,
            "uid": lambda: result.pw_uid,
            "gid": lambda: result.pw_gid,
            "groups": lambda: sorted(group_name(gid) for gid in os.getgrouplist(name, result.pw_gid)),
            "home": lambda: result.pw_dir,
            "shell": lambda: result.pw_shell,
        }

    def _http(self, test: Test) -> Values:
        try:
            desired = Http(
                url=str(test.options.get("url", test.name)),
                method=test.options.get("method", "GET"),
                headers=tuple(test.options.get("request-headers", ())),
                redirects=0 if test.options.get("no-follow-redirects") else 10,
                ca_bundle=test.options.get("ca-file") or None,
            )
        except ValueError as error:
            raise NotCarriedOut(f"{test.name}: {error}") from error
        try:
            answered = http.fetch(desired, self._limit(test, 5.0))
        except http.NoAnswerError as error:
            raise NotCarriedOut(str(error)) from error
        lines = "\n".join(f"{name}: {value}" for name, value in answered.headers.items())

        def body() -> Lines:
            if not answered.is_whole:
                raise NotCarriedOut(
                    f"{test.name}: the body is incomplete, or has more than {http.MOST_READ} bytes"
                )
            return Lines(answered.body.decode(errors="replace"))

        return {"status": lambda: answered.status, "headers": lambda: Lines(lines), "body": body}

    def _interface(self, test: Test) -> Values:
        name = str(test.options.get("name", test.name))
        if "/" in name or name in (".", ".."):
            raise NotCarriedOut(f"{name!r} is not a valid interface name")
        if not os.path.lexists(f"/sys/class/net/{name}"):
            return {"exists": lambda: False}

        def mtu() -> int:
            with open(f"/sys/class/net/{name}/mtu", encoding="ascii") as stream:
                return int(stream.read())

        def addrs() -> list[str]:
            done = self._query(["ip", "-json", "address", "show", "dev", name])
            if done.exit_code != 0:
                raise NotCarriedOut(f"ip: {done.outcome}: {done.tail(2)}")
            result = msgspec.json.decode(done.stdout)
            return [
                f"{item['local']}/{item['prefixlen']}"
                for each in result
                for item in each.get("addr_info", ())
            ]

        return {"exists": lambda: True, "mtu": mtu, "addrs": addrs}

    def _kernel_param(self, test: Test) -> Values:
        name = str(test.options.get("name", test.name))
        if not re.fullmatch(r"[A-Za-z0-9_.:/-]+", name) or ".." in name:
            raise NotCarriedOut(f"{name!r} is not a valid kernel parameter")
        path = f"/proc/sys/{name if '/' in name else name.replace('.', '/')}"

        def value() -> str:
            try:
                with open(path, encoding="utf-8", errors="replace") as stream:
                    return stream.read().strip()
            except FileNotFoundError:
                raise NotCarriedOut(f"unknown kernel parameter {name}") from None

        return {"value": value}

    def _matching(self, test: Test) -> Values:
        return {"matches": lambda: test.options["content"]}

    def _mount(self, test: Test) -> Values:
        point = os.path.normpath(str(test.options.get("mountpoint", test.name)))
        results: list[list[str]] = []
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
            for line in stream:
                words = line.split()
                if _unescaped(words[4]) == point:
                    results.append(words)
        if not results:
            return {"exists": lambda: False}
        words = results[-1]  # the last one covers the others
        remainder = words[words.index("-") + 1 :]

        def usage() -> int:
            disk = os.statvfs(point)
            used = disk.f_blocks - disk.f_bfree
            if not used + disk.f_bavail:
                raise NotCarriedOut(f"{point}: cannot determine the size of its file system")
            return -(-used * 100 // (used + disk.f_bavail))  # rounded up, as df does

        return {
            "exists": lambda: True,
            "opts": lambda: words[5].split(","),
            "vfs-opts": lambda: remainder[2].split(","),
            "source": lambda: _unescaped(remainder[1]),
            "filesystem": lambda: remainder[0],
            "usage": usage,
        }

    def _package(self, test: Test) -> Values:
        name = str(test.options.get("name", test.name))
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+_:~-]*", name):
            raise NotCarriedOut(f"{name!r} is not a valid package name")
        if os.path.exists("/var/lib/dpkg/status"):
            done = self._query(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}\\n", "--", name])
            if done.exit_code not in (0, 1):
                raise NotCarriedOut(f"dpkg-query: {done.outcome}: {done.tail(2)}")
            lines = [line.split() for line in done.stdout.splitlines()] if done.exit_code == 0 else []
            versions = [line[1] for line in lines if line[0] == "installed" and len(line) > 1]
        else:
            done = self._query(["rpm", "-q", "--nosignature", "--qf", "%{VERSION}\\n", "--", name])
            if done.exit_code != 0 and "is not installed" not in done.stdout:
                raise NotCarriedOut(f"rpm: {done.outcome}: {done.tail(2)}")
            versions = done.stdout.split() if done.exit_code == 0 else []
        if not versions:
            return {"installed": lambda: False}
        return {"installed": lambda: True, "versions": lambda: versions}

    def _port(self, test: Test) -> Values:
        protocol, _, number = str(test.options.get("port", test.name)).rpartition(":")
        result = _listening(protocol or "tcp", int(number))
        return {"listening": lambda: bool(result), **({"ip": lambda: result} if result else {})}

    def _process(self, test: Test) -> Values:
        name = str(test.options.get("comm", test.name))
        result = any(process.is_called(name) or process.name == name for process in running())
        return {"running": lambda: result}

    def _service(self, test: Test) -> Values:
        try:
            desired = Service(unit=str(test.options.get("name", test.name)))
        except ValueError as error:
            raise NotCarriedOut(f"{test.name}: {error}") from error
        unit = service.look(desired.unit, self.deadline, self.system)
        return {"running": lambda: unit.is_active, "enabled": lambda: unit.is_enabled}


def _listening(protocol: str, desired: int) -> list[str]:
    """Return the local addresses that listen on a port. Raises ``OSError``."""
    addresses = []
    try:
        with open(f"/proc/net/{protocol}", encoding="ascii") as stream:
            lines = stream.readlines()[1:]
    except FileNotFoundError:  # a kernel without IPv6
        return []
    for line in lines:
        words = line.split()
        address, _, port = words[1].partition(":")
        is_open = words[3] == _LISTENING if protocol.startswith("tcp") else words[2].endswith(":0000")
        if is_open and int(port, 16) == desired:
            addresses.append(_address(address))
    return sorted({*addresses})


def _address(text: str) -> str:
    """Parse hexadecimal words of the kernel, which have this machine's byte order."""
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    plain = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return str(ipaddress.ip_address(plain))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda result: chr(int(result[1], 8)), text)


def explained(error: OSError) -> str:
    """Return why a query failed."""
    return f"{error.filename}: {reason(error)}" if error.filename else reason(error)


_MOST_SHOWN = 80  # characters of a value
_STARTS_PROGRAMS = frozenset({"command", "interface", "package", "service"})
"""Kinds that start programs. They run in the main thread, and have their own timeout."""

_Answer = TypeVar("_Answer")


def ask(desired: str | GossRules, deadline: Deadline, system: System) -> Answer:
    """Run all tests of the gossfile at an absolute path, or the tests of a manifest.

    Raises ``NotCarriedOut`` for an unreadable or unsupported file, and if some tests have no result while no other test
    fails. Raises ``DeadlineError``.
    """
    is_inline = isinstance(desired, GossRules)
    name = "goss_rules" if is_inline else os.path.basename(desired)
    tests, problems = read(desired if is_inline else _text(desired), name)
    if problems:
        suffix = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise NotCarriedOut(f"{name}: {problems[0]}{suffix}")
    machine = Machine(system, deadline)
    wrong, unknown, requested = [], [], 0
    for test in tests:
        if test.skip:
            continue
        where = f"{test.kind} {test.name}"
        try:
            values = _bounded(test.kind, deadline, partial(machine.values, test))
            for attribute, matcher in test.desired.items():
                deadline.verify()
                requested += 1
                if attribute not in values:
                    if not _requires_absence(test.desired, values):
                        wrong.append(f"{where}: {attribute} is missing, expected {_shown(matcher)}")
                elif not matches(result := _bounded(test.kind, deadline, values[attribute]), matcher):
                    wrong.append(f"{where}: {attribute} is {_shown(result)}, expected {_shown(matcher)}")
        except (DeadlineError, StoppedCommand):
            raise
        except (NotCarriedOut, HieraError, PullerError) as error:
            unknown.append(f"{where}: {error}")
        except OSError as error:
            deadline.verify()
            unknown.append(f"{where}: {explained(error)}")
    if not wrong and unknown:
        raise NotCarriedOut("; ".join(unknown))
    skipped = sum(test.skip for test in tests)
    return Answer(
        [*wrong, *unknown], f"{requested} tests passed" + (f", {skipped} skipped" if skipped else "")
    )


def _bounded(kind: str, deadline: Deadline, work: Callable[[], _Answer]) -> _Answer:
    """Run a test, in another thread if a file server or a resolver may block it beyond the deadline."""
    return work() if kind in _STARTS_PROGRAMS else aside(work, deadline)


def _requires_absence(desired: Any, values: Any) -> bool:
    """Return whether the test requires absence, which makes its other attributes irrelevant, as in Goss."""
    first = next(iter(values))
    return desired.get(first) is False and values[first]() is False


def _text(path: str) -> str:
    if not os.path.isabs(path):
        raise NotCarriedOut(f"{path}: is not a file of the bundle")
    try:
        with open(path, "rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise NotCarriedOut(f"{path}: {reason(error)}") from error
    if len(data) > LARGEST:
        raise NotCarriedOut(f"{path}: has more than {LARGEST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotCarriedOut(f"{path}: is not valid UTF-8: {error}") from error


def _shown(value: Any) -> str:
    # Command output and file contents are long and may be confidential.
    if isinstance(value, Lines):
        return f"a text of {len(value)} characters"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
