"""Simulated account tools for Puller's commands. They change databases in files.

The table of ``tests/cases/accounts.yaml`` runs with them, and in ``tests/system/test_accounts.py`` with the real tools.
"""

import getopt
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from puller.system.commands import Command, Completed
from puller.system.identity import Identity
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

PASSWD = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
GROUP = "root:x:0:\ndaemon:x:1:\nusers:x:100:\n"
SHADOW = "root:*:20000:0:99999:7:::\ndaemon:*:20000:0:99999:7:::\n"
TODAY = "20779"

OPTIONS = {
    "useradd": "d:mMru:g:G:s:c:e:",
    "usermod": "u:g:G:as:c:d:me:LU",
    "userdel": "r",
    "groupadd": "g:r",
    "groupmod": "g:",
    "groupdel": "",
    "gpasswd": "M:",
    "chage": "m:M:W:",
    "chpasswd": "e",
}


class ToolFailed(Exception):
    """The exit code and message of a tool that fails."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Database:
    """A file with one line of fields for each account."""

    def __init__(self, path: Path, content: str) -> None:
        self.path = path
        path.write_text(content)

    @property
    def lines(self) -> dict[str, list[str]]:
        return {line.split(":")[0]: line.split(":") for line in self.path.read_text().splitlines()}

    def write(self, lines: Mapping[str, list[str]]) -> None:
        temporary = self.path.with_name(f"{self.path.name}+")
        temporary.write_text("".join(":".join(fields) + "\n" for fields in lines.values()))
        temporary.rename(self.path)

    def put(self, fields: list[str]) -> None:
        self.write({**self.lines, fields[0]: fields})

    def remove(self, name: str) -> None:
        self.write({key: fields for key, fields in self.lines.items() if key != name})

    def with_id(self, number: str) -> str | None:
        return next((name for name, fields in self.lines.items() if fields[2] == number), None)

    def free(self, first: int) -> str:
        taken = {int(fields[2]) for fields in self.lines.values()}
        return str(next(number for number in range(first, 60000) if number not in taken))


class Accounts(LocalSystem):
    """A machine with accounts in files below ``directory``. Accounts in ``elsewhere`` are not local."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        directory.mkdir()
        self.passwd = Database(directory / "passwd", PASSWD)
        self.group = Database(directory / "group", GROUP)
        self.shadow = Database(directory / "shadow", SHADOW)
        (directory / "login.defs").write_text("USERGROUPS_ENAB yes\nUMASK 022\n")
        self.ran: list[list[str]] = []
        self.inputs: list[bytes] = []
        self.asked: list[str] = []
        self.acted: list[str] = []
        self.elsewhere: dict[str, int] = {}
        self.missing: set[str] = set()
        self.after: Callable[[], None] = lambda: None
        """Called after each change. Raises an exception to cut the run short."""

    def user_id(self, name: str) -> int | None:
        self.asked.append(name)
        result = self.passwd.lines.get(name)
        return int(result[2]) if result else self.elsewhere.get(name)

    def group_id(self, name: str) -> int | None:
        result = self.group.lines.get(name)
        return int(result[2]) if result else self.elsewhere.get(name)

    def act_as(self, identity: Identity, act: Callable[[], object]) -> None:
        self.acted.append(identity.name)
        super().act_as(identity, act)
        self.after()

    def execute(self, command: Command) -> Completed:
        tool, *arguments = command.arguments
        self.executed += 1
        if tool in self.missing:
            raise FileNotFoundError(2, f"no executable {tool!r}")
        self.ran.append([*command.arguments])
        self.inputs.append(command.input)
        options, names = getopt.gnu_getopt(arguments, OPTIONS[tool])
        try:
            getattr(self, tool)(
                dict(options), *names, **({"text": command.input.decode()} if not names else {})
            )
        except ToolFailed as error:
            return Completed(error.code, None, False, "", f"{tool}: {error}", 0.1)
        self.after()
        return Completed(0, None, False, "", "", 0.1)

    def query(self, command: Command) -> Completed:
        raise AssertionError(f"{command.arguments} was asked")

    def bring(self, *commands: str) -> None:
        """Run commands that create the current state, and forget their records."""
        for command in commands:
            words = shlex.split(command)
            text = words.pop().encode() + b"\n" if words[0] == "chpasswd" else b""
            completed = self.execute(Command(words, input=text))
            assert completed.exit_code == 0, completed
        self.ran.clear()
        self.inputs.clear()

    def useradd(self, options: dict[str, str], name: str) -> None:
        if name in self.passwd.lines:
            raise ToolFailed(9, f"user '{name}' already exists")
        uid = options.get("-u") or self.passwd.free(900 if "-r" in options else 1000)
        if self.passwd.with_id(uid):
            raise ToolFailed(4, f"UID {uid} is not unique")
        groups = self._existing(options.get("-G", ""))
        if "-g" in options:
            gid = self._gid(options["-g"])
        elif name in self.group.lines:
            raise ToolFailed(9, f"group {name} exists - if you want to add this user to that group, use -g.")
        else:
            gid = uid if not self.group.with_id(uid) else self.group.free(1000)
            self.group.put([name, "x", gid, ""])
        self.passwd.put(
            [name, "x", uid, gid, options.get("-c", ""), options["-d"], options.get("-s", "/bin/sh")]
        )
        days = ["", "", ""] if "-r" in options else ["0", "99999", "7"]
        self.shadow.put([name, "!", TODAY, *days, "", _day(options.get("-e", "")), ""])
        self._list(name, groups, exactly=False)
        home = Path(options["-d"])
        if "-m" in options and not home.exists():
            home.mkdir()
            os.chown(home, int(uid), int(gid))

    def usermod(self, options: dict[str, str], name: str) -> None:
        fields, shadow = self.passwd.lines[name], self.shadow.lines[name]
        if "-u" in options and self.passwd.with_id(options["-u"]):
            raise ToolFailed(4, f"UID '{options['-u']}' already exists")
        old = Path(fields[5])
        for option, index in (("-u", 2), ("-c", 4), ("-d", 5), ("-s", 6)):
            fields[index] = options.get(option, fields[index])
        if "-g" in options:
            fields[3] = self._gid(options["-g"])
        if "-G" in options:
            self._list(name, self._existing(options["-G"]), exactly="-a" not in options)
        if "-e" in options:
            shadow[7] = _day(options["-e"])
        if "-L" in options and not shadow[1].startswith("!"):
            shadow[1] = f"!{shadow[1]}"
        if "-U" in options and len(shadow[1]) > 1:
            shadow[1] = shadow[1].removeprefix("!")
        self.passwd.put(fields)
        self.shadow.put(shadow)
        if "-m" in options and old.exists():
            old.rename(fields[5])
        if "-u" in options and Path(fields[5]).exists():
            os.chown(fields[5], int(options["-u"]), -1)

    def userdel(self, options: dict[str, str], name: str) -> None:
        fields = self.passwd.lines[name]
        self.passwd.remove(name)
        self.shadow.remove(name)
        self._list(name, [], exactly=True)
        own = self.group.lines.get(name)
        if own and own[2] == fields[3] and not own[3] and not self._primary(own[2]):
            self.group.remove(name)
        if "-r" in options:
            shutil.rmtree(fields[5])

    def groupadd(self, options: dict[str, str], name: str) -> None:
        gid = options.get("-g") or self.group.free(900 if "-r" in options else 1000)
        if name in self.group.lines or self.group.with_id(gid):
            raise ToolFailed(4, f"GID '{gid}' already exists")
        self.group.put([name, "x", gid, ""])

    def groupmod(self, options: dict[str, str], name: str) -> None:
        old, members = self.group.lines[name][2:]
        self.group.put([name, "x", options["-g"], members])
        for fields in self.passwd.lines.values():
            if fields[3] == old:
                self.passwd.put([*fields[:3], options["-g"], *fields[4:]])

    def groupdel(self, options: dict[str, str], name: str) -> None:
        del options
        if user := self._primary(self.group.lines[name][2]):
            raise ToolFailed(8, f"cannot remove the primary group of user '{user}'")
        self.group.remove(name)

    def gpasswd(self, options: dict[str, str], name: str) -> None:
        for member in filter(None, options["-M"].split(",")):
            if self.user_id(member) is None:
                raise ToolFailed(3, f"user '{member}' does not exist")
        self.group.put([*self.group.lines[name][:3], options["-M"]])

    def chage(self, options: dict[str, str], name: str) -> None:
        fields = self.shadow.lines[name]
        for option, index in (("-m", 3), ("-M", 4), ("-W", 5)):
            if option in options:
                fields[index] = "" if options[option] == "-1" else options[option]
        self.shadow.put(fields)

    def chpasswd(self, options: dict[str, str], *, text: str) -> None:
        del options
        for line in text.splitlines():
            name, password = line.split(":")
            if name not in self.passwd.lines:
                raise ToolFailed(1, f"line 1: user '{name}' does not exist")
            fields = self.shadow.lines[name]
            self.shadow.put([name, password, TODAY, *fields[3:]])

    def _gid(self, group: str) -> str:
        known = self.group.lines
        if group in known:
            return known[group][2]
        if self.group.with_id(group) is None:
            raise ToolFailed(6, f"group '{group}' does not exist")
        return group

    def _existing(self, groups: str) -> list[str]:
        names = [name for name in groups.split(",") if name]
        for name in names:
            if name not in self.group.lines:
                raise ToolFailed(6, f"group '{name}' does not exist")
        return names

    def _list(self, user: str, groups: list[str], *, exactly: bool) -> None:
        for name, fields in self.group.lines.items():
            members = [member for member in fields[3].split(",") if member]
            if name in groups and user not in members:
                self.group.put([*fields[:3], ",".join([*members, user])])
            elif exactly and name not in groups and user in members:
                self.group.put([*fields[:3], ",".join(member for member in members if member != user)])

    def _primary(self, gid: str) -> str | None:
        return next((name for name, fields in self.passwd.lines.items() if fields[3] == gid), None)


def _day(text: str) -> str:
    from datetime import date

    return str((date.fromisoformat(text) - date(1970, 1, 1)).days) if text else ""


class LookingOnly(NoopSystem):
    """The accounts of a machine, for a dry run."""

    def __init__(self, machine: Accounts) -> None:
        super().__init__()
        self._machine = machine

    def user_id(self, name: str) -> int | None:
        expected: Mapping[str, Any] = self.expected_accounts("user")
        return expected[name] if name in expected else self._machine.user_id(name)

    def group_id(self, name: str) -> int | None:
        expected: Mapping[str, Any] = self.expected_accounts("group")
        return expected[name] if name in expected else self._machine.group_id(name)
