"""The ``exec`` resource: a command that runs unless a guard prevents it (``docs/resources/exec.md``).

* Guards run in order until one decides, in noop as well. They run again after the command: a command that would run in
  every run has not reached its goal.
* A command has a fixed environment and a time limit. Its children are killed with it.
* A command of another user has exactly that user's groups, and a directory that the user can enter.
* A successful command with ``once`` is recorded before its resource ends. If the run is killed between both, the
  command runs again. If the record cannot be read, the command fails and does not run.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from foundation.differences import Action, Difference, acting
from foundation.masking import Mask
from foundation.problems import ProblemCode
from foundation.times import Duration
from hiera.values import Secret
from puller.errors import ResourceError, reason
from puller.resources.base import ANYTHING, Properties, PropertyError, Resource
from puller.resources.claims import agree
from puller.resources.content_sources import sha256
from puller.resources.paths import group_name
from puller.state import Directories, StateFile
from puller.system.commands import Command, Completed, split_words
from puller.system.identity import Identity
from puller.system.protocol import UNKNOWN_ID
from puller.values.common_properties import Reference

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)

_USERS, _GROUPS = "/etc/passwd", "/etc/group"
_WHO = re.compile(r"[^-:\s\0][^:\s\0]*")
"""Any user or group name that a database may have, except one that looks like an option."""


class ExecProperties(Properties, frozen=True):
    """The properties of a command."""

    command: str | None = None
    """The command. The default is the name."""
    cwd: str = "/"
    """The working directory."""
    user: str | int | None = None
    """The user of the command and its guards: name or id. The default is the user that runs Puller."""
    group: str | int | None = None
    """Another primary group: name or id."""
    environment: tuple[str, ...] = ()
    """``KEY=VALUE`` pairs, in addition to PATH, HOME, USER, LOGNAME, SHELL and LANG."""
    path: str | None = None
    """Directories of programs, separated by colons, also exported as ``PATH``."""
    returns: tuple[int, ...] = (0,)
    """Exit statuses that mean success, by default 0."""
    timeout: Duration = Duration(300.0)
    """Time limit, by default ``5m``. Puller then kills the command and all its children."""
    guard_timeout: Duration | None = None
    """Time limit of each ``onlyif`` and ``unless``. The default is ``timeout``."""
    stdin: Secret | None = None
    """Text for the standard input of the command, always masked. Guards do not receive it."""
    creates: str | None = None
    """Skip the command if this path exists. Absolute, or relative to ``cwd``."""
    onlyif: str | None = None
    """Run the command only if this command exits with 0."""
    unless: str | None = None
    """Skip the command if this command exits with 0."""
    once: bool = False
    """Run until the command has succeeded once on this machine. A changed command is another command."""
    recheck: bool = True
    """Fail if ``creates`` is still missing after the command, or ``unless`` still fails."""
    refreshonly: bool = False
    """Run only if a subscribed resource changed."""
    guard_refresh: bool = False
    """Check ``once``, ``creates``, ``onlyif`` and ``unless`` also if a subscribed resource changed."""
    subscribe: tuple[Reference, ...] = ()
    """Resources whose change runs the command, independently of the guards unless ``guard_refresh`` is set."""
    logoutput: bool = False
    """Log the output of the command."""


class ExecState(msgspec.Struct, frozen=True):
    """The result of the command in this run. ``None`` if it has not run."""

    completed: Completed | None = None


class _Succeeded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands with ``once`` that have succeeded on this machine: checksums by resource name, the newest last."""

    format: Literal[1] = 1
    commands: dict[str, list[str]] = {}


_REMEMBERED = 100
"""Checksums of each name, so that a command that contains a version cannot fill the record."""


class _NotStartedError(ResourceError):
    """A command or guard that could not be started."""


class _NobodyError(_NotStartedError):
    """The user or group to run it as does not exist."""


class Exec(Resource[ExecProperties, ExecState]):
    """A command."""

    type_name = "exec"
    properties_type = ExecProperties
    secret_properties = frozenset({"command", "environment", "onlyif", "unless"})
    command_lines = frozenset({"command", "onlyif", "unless", "health_checks"})
    providers = ("posix", "shell")
    has_state = False
    spellings = {"refresh_only": {"type": "boolean"}}  # noqa: RUF012  declared as ClassVar in the base class

    _completed: Completed | None = None
    _notes: tuple[str, ...] = ()
    _may_enter = False

    @classmethod
    def may_replace(cls, properties: ExecProperties) -> bool:
        return not properties.refreshonly

    def look(self) -> ExecState:
        return ExecState(self._completed)

    def differences(self, actual: ExecState, *, refresh: bool = False) -> Sequence[Difference]:
        if actual.completed is not None:
            return ()  # ``change`` has checked the exit code
        if refresh:
            return self._refresh_differences()
        if self.properties.refreshonly or self._is_guarded():
            return ()
        return [acting("command", Action.RUN)]

    def _refresh_differences(self) -> Sequence[Difference]:
        if self.properties.guard_refresh and self._is_guarded():
            self._notes = ("a subscribed resource changed, and a guard skipped the command",)
            return ()
        return [acting("command", Action.RUN, refresh=True)]

    def change(self, differences: Sequence[Difference], actual: ExecState) -> None:
        """Run the command (``docs/resources/exec.md``). The guards have already run for the differences.

        1. Run it in its directory and environment, with its time limit.
        2. Log its output if requested and not secret.
        3. Raise ``ResourceError`` if the exit code is not a success.
        4. Run the guards again. The command fails if the next run would run it again.
        5. Record a command with ``once``.
        """
        del actual
        properties = self.properties
        # 1. Run
        text = properties.command or properties.name
        completed = self._run("command", text, self.context.system.execute)
        # 2. Log
        if properties.logoutput and not properties.sensitive:
            self._log(completed)
        # 3. Check the exit code
        if completed.exit_code not in properties.returns:
            raise ResourceError(self._failure(completed))
        self._completed = completed
        # 4. Run the guards again, except after a refresh, which ignores them
        if properties.recheck and not differences[0].refresh:
            self._recheck()
        # 5. Record
        if properties.once:
            self._record()

    def _log(self, completed: Completed) -> None:
        properties = self.properties
        mask = Mask([properties.stdin.reveal()] if properties.stdin else ())
        for line in (completed.stdout + completed.stderr).splitlines():
            self.context.log(f"{properties.alias or properties.name}: {mask(line)}")

    def noop_message(self, differences: Sequence[Difference], actual: ExecState) -> str:
        del actual
        try:
            self._require_cwd(self._identity())
        except _NobodyError:
            if not self._may_come():
                raise
        return "Would have executed via subscribe" if differences[0].refresh else "Would have executed"

    def reach(self) -> str:
        return "/"

    @classmethod
    def subjects(cls, properties: ExecProperties) -> Iterable[str]:
        return () if properties.creates is None else (os.path.join(properties.cwd, properties.creates),)

    def touched(self, actual: ExecState) -> Iterable[str]:
        """Return everything, except for a command that runs in every run: the next run repairs what it undoes."""
        del actual
        return () if self.is_recurring else (ANYTHING,)

    @classmethod
    def lasting(cls, properties: ExecProperties) -> ExecProperties | None:
        """Return the properties only if ``creates`` is the sole guard: commands of guards are not run again."""
        has_guards = properties.onlyif is not None or properties.unless is not None
        is_path = properties.creates is not None and properties.recheck and not has_guards
        return properties if is_path else None

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    @property
    def is_recurring(self) -> bool:
        own = self.properties
        has_guard = own.once or any(guard is not None for guard in (own.creates, own.onlyif, own.unless))
        return not own.refreshonly and not has_guard

    def _is_guarded(self) -> bool:
        """Return whether a guard prevents the command. Stops at the first guard that does."""
        properties = self.properties
        if properties.once and _has_succeeded(properties, self._load_succeeded()):
            return True
        if properties.creates is not None and self._is_created():
            return True
        try:
            if properties.onlyif is not None and not self._succeeds("onlyif", properties.onlyif):
                return True
            return properties.unless is not None and self._succeeds("unless", properties.unless)
        except _NotStartedError as error:
            if self._may_start_later() or (isinstance(error, _NobodyError) and self._may_come()):
                return False
            raise

    def _load_succeeded(self) -> _Succeeded:
        file = _succeeded_file(self.context.state_directory)
        try:
            return file.read() or _Succeeded()
        except ValueError as error:  # running the command again on a guess could do harm
            hint = "restore the file, or remove it to run all commands with once again"
            raise ResourceError(f"{file.path}: {error}", hint=hint) from None

    def _record(self) -> None:
        properties, before = self.properties, self._load_succeeded()
        digest = _checksum(properties)
        digests = [other for other in before.commands.get(properties.name, ()) if other != digest]
        commands = {**before.commands, properties.name: [*digests, digest][-_REMEMBERED:]}
        _succeeded_file(self.context.state_directory).save(_Succeeded(commands=commands))

    @classmethod
    def on_record(cls, properties: ExecProperties, state_directory: Path | None) -> list[str]:
        if not properties.once:
            return []
        try:
            succeeded = _succeeded_file(state_directory).read() or _Succeeded()
        except (OSError, ValueError) as error:
            return [f"the record of successful commands cannot be read: {error}"]
        if _has_succeeded(properties, succeeded):
            return ["the command has succeeded on this machine"]
        return ["the command has not succeeded on this machine yet"]

    def _is_created(self) -> bool:
        return self.context.system.exists(os.path.join(self.properties.cwd, self.properties.creates or ""))

    def _may_start_later(self) -> bool:
        """In noop: return whether the requirements of a guard may exist when the real run executes it."""
        cwd = self.properties.cwd
        brings_cwd = self.context.system.is_directory(cwd) and not os.path.isdir(cwd)
        return self.context.noop and (brings_cwd or self.context.uncertain("/"))

    def _may_come(self) -> bool:
        """In noop: return whether this run would have created the user and the group in time."""
        context, user, group = self.context, self.properties.user, self.properties.group
        return (
            context.noop
            and (
                self._is_user() or context.system.user_id(str(user)) is not None or context.uncertain(_USERS)
            )
            and (
                group is None
                or (str(group).isascii() and str(group).isdecimal())
                or context.system.group_id(str(group)) is not None
                or context.uncertain(_GROUPS)
            )
        )

    def _is_user(self) -> bool:
        """Return whether the user exists now and stays, or no user is required."""
        user, users = self.properties.user, self.context.system.expected_accounts("user")
        if user is None:
            return True
        try:
            return users.get(Identity.find(user).name, UNKNOWN_ID) is not None
        except ResourceError:
            return False

    def _recheck(self) -> None:
        """Raise ``ResourceError`` if a guard would make the next run execute the command again."""
        properties = self.properties
        if properties.creates is not None and not self._is_created():
            detail = f"ran, but `creates` {properties.creates} is still missing"
            raise ResourceError(detail, code=ProblemCode.STILL_DIFFERS)
        if properties.unless is not None and not self._succeeds("unless", properties.unless):
            raise ResourceError("ran, but `unless` still fails", code=ProblemCode.STILL_DIFFERS)
        if properties.creates is None and properties.unless is None and properties.onlyif is not None:
            with contextlib.suppress(ResourceError):  # this guard only decides about a note
                if self._succeeds("onlyif", properties.onlyif):
                    self._notes = ("ran, and `onlyif` still succeeds: the command runs in every run",)

    def _succeeds(self, kind: str, text: str) -> bool:
        completed = self._run(kind, text, self.context.system.query)
        if completed.exit_code is None:
            # The result is unknown, and running the command on a guess could do harm.
            raise ResourceError(f"{kind}{self._shown(text)}: {completed.outcome}")
        return completed.exit_code == 0

    def _run(self, kind: str, text: str, run: Callable[[Command], Completed]) -> Completed:
        try:
            identity = self._identity()
            self._require_cwd(identity)
            return run(self._command(kind, text, identity))
        except OSError as error:
            raise _NotStartedError(f"{kind}{self._shown(text)} cannot be started: {reason(error)}") from error

    def _identity(self) -> Identity | None:
        """Return the user and group of the command. ``None``: those of Puller."""
        user, group = self.properties.user, self.properties.group
        if user is None and group is None:
            return None
        try:
            identity = Identity.find(os.geteuid() if user is None else user, group)
        except ResourceError as error:
            raise _NobodyError(problems=error.problems) from error
        self._require_staying(identity)
        if os.geteuid() == 0:
            return identity
        if (identity.uid, identity.gid) == (os.geteuid(), os.getegid()):
            return None
        raise ResourceError(f"running as user {identity.name} and group {identity.gid} takes root")

    def _require_staying(self, identity: Identity) -> None:
        """Raise, in noop, for a user or group that this run would have removed by then."""
        system, group = self.context.system, self.properties.group
        users, groups = system.expected_accounts("user"), system.expected_accounts("group")
        if users.get(identity.name, identity.uid) is None:
            raise _NobodyError(f"user is {self.properties.user!r}, which this run would have removed")
        if groups and group is not None and groups.get(group_name(identity.gid), identity.gid) is None:
            raise _NobodyError(f"group is {group!r}, which this run would have removed")

    def _require_cwd(self, identity: Identity | None) -> None:
        """Raise if the directory is missing: the system's error does not distinguish it from a missing program."""
        context, cwd = self.context, self.properties.cwd
        if not context.system.is_directory(cwd) and not context.uncertain(cwd):
            detail = "is not a directory" if context.system.exists(cwd) else "does not exist"
            raise _NotStartedError(f"cwd {cwd} {detail}")
        if identity is not None and identity.uid != 0 and cwd != "/" and not context.noop:
            self._require_entry(cwd, identity)

    def _require_entry(self, cwd: str, identity: Identity) -> None:
        """Raise if the user cannot enter the directory.

        The process enters the directory before it changes its ids, so the command itself would not fail. Skipped in
        noop, because an earlier resource may give the directory to the user.
        """
        if not self._may_enter:
            requested = Command(["test", "-x", cwd], identity=identity)
            if self.context.system.query(requested).exit_code != 0:
                raise ResourceError(f"cwd {cwd} cannot be entered by user {identity.name}")
            self._may_enter = True

    def _shown(self, text: str) -> str:
        return "" if self.properties.sensitive else f" {text!r}"

    def _command(self, kind: str, text: str, identity: Identity | None) -> Command:
        properties = self.properties
        is_guard = kind != "command"
        limit = (is_guard and properties.guard_timeout) or properties.timeout
        stdin = "" if is_guard or properties.stdin is None else properties.stdin.reveal()
        environment = dict(variable.split("=", 1) for variable in properties.environment)
        if properties.path is not None:
            environment["PATH"] = properties.path
        arguments = ["/bin/sh", "-c", text] if properties.provider == "shell" else split_words(text)
        return Command(
            arguments, environment, properties.cwd, timeout=limit, input=stdin.encode(), identity=identity
        )

    def _failure(self, completed: Completed) -> str:
        expected = ", ".join(map(str, self.properties.returns))
        message = f"{completed.outcome}, expected {expected}"
        if self.properties.sensitive or not (tail := completed.tail()):
            return message
        return f"{message}; it printed:\n{tail}"

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Rename ``refresh_only`` to ``refreshonly``. Raises ``PropertyError`` if both are set."""
        if "refresh_only" in raw:
            if "refreshonly" in raw:
                raise PropertyError("refresh_only", "cannot be given together with refreshonly")
            return {("refreshonly" if key == "refresh_only" else key): value for key, value in raw.items()}
        return raw

    @classmethod
    def check(cls, properties: ExecProperties) -> Iterator[PropertyError]:
        if properties.ensure != "present":
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present")
        if properties.provider != "shell":
            yield from _check_words(properties)
        if properties.once and properties.refreshonly and not properties.guard_refresh:
            message, because = "has no effect on a refresh", ("refreshonly", "guard_refresh")
            yield PropertyError("once", message, because=because, hint="set guard_refresh: true")
        # The form for managed paths is not required, because this path identifies nothing: "/srv/app/" is valid.
        if not properties.cwd.startswith("/"):
            yield PropertyError("cwd", f"is {properties.cwd!r}", expected="an absolute path")
        if (
            properties.creates is not None
            and not properties.creates.startswith("/")
            and properties.cwd == "/"
        ):
            expected = "an absolute path, or a cwd to which it is relative"
            yield PropertyError("creates", f"is {properties.creates!r}", because=["cwd"], expected=expected)
        for variable in properties.environment:
            if not _VARIABLE.fullmatch(variable):
                yield PropertyError("environment", f"has {variable!r}", expected="KEY=VALUE")
        for directory in (properties.path or "/").split(":"):
            if not directory.startswith("/"):
                yield PropertyError(
                    "path", f"has {directory!r}", expected="absolute directories separated by colons"
                )
        for name, limit in (("timeout", properties.timeout), ("guard_timeout", properties.guard_timeout)):
            if limit is not None and limit <= 0:
                yield PropertyError(name, "is 0", expected="a positive duration")
        for name, who in (("user", properties.user), ("group", properties.group)):
            if who is not None and not _WHO.fullmatch(str(who)):
                yield PropertyError(name, f"is {who!r}", expected="a name or an id")

    @classmethod
    def tool_paths(cls, properties: ExecProperties) -> Sequence[str]:
        # If the path were removed, the command would run again.
        return [properties.creates] if properties.creates and properties.creates.startswith("/") else ()

    @classmethod
    def agree(cls, first: ExecProperties, second: ExecProperties) -> ExecProperties:
        """Merge two declarations.

        Guards and exit codes must be equal: one set only once would stop the other's command.
        """
        own = cls.properties_type.__struct_fields__
        return agree(
            first, second, exact=own, rules={"command": lambda left_side, other: _same_command(first, second)}
        )


def _succeeded_file(state_directory: Path | None) -> StateFile[_Succeeded]:
    state = state_directory or Directories.of_user().state
    return StateFile(Directories(state, state).commands, _Succeeded, "")


def _has_succeeded(properties: ExecProperties, succeeded: _Succeeded) -> bool:
    return _checksum(properties) in succeeded.commands.get(properties.name, ())


def _checksum(properties: ExecProperties) -> str:
    """Return the SHA-256 of the command with its provider. The record must not reveal a secret in it."""
    text = properties.command or properties.name
    return sha256([f"{properties.provider or 'posix'}\0{text}".encode("utf-8", "surrogateescape")])


def _same_command(first: ExecProperties, second: ExecProperties) -> str | None:
    if (first.command or first.name) != (second.command or second.name):
        raise ValueError("two commands")
    return first.command


def _check_words(properties: ExecProperties) -> Iterator[PropertyError]:
    """Yield errors for commands without a shell that cannot be split into words."""
    command = ("name", properties.name) if properties.command is None else ("command", properties.command)
    for name, text in (command, ("onlyif", properties.onlyif), ("unless", properties.unless)):
        if text is None:
            continue
        try:
            words = split_words(text)
        except ValueError as error:
            yield PropertyError(name, f"is {text!r}, which {error}", because=["provider"])
            continue
        if not words or not words[0]:
            yield PropertyError(name, f"is {text!r}", because=["provider"], expected="a command")
