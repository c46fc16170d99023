"""The ``exec`` resource: a command, run when nothing says that it need not be (``resources.md`` section 4).

* Guards are asked in order, and only those that decide, in noop too; and again when the command has run, as one that
  would make it run in every run has not done what it is there for.
* A command runs in a fixed environment and a bounded time; its children go with it.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from puller.errors import ResourceError, reason
from puller.resources.base import Difference, Properties, PropertyError, Resource
from puller.system.commands import Command, Completed
from puller.system.shell_words import split_words
from puller.values.duration import Duration
from puller.values.reference import Reference

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


class ExecProperties(Properties, frozen=True):
    """The properties of a command."""

    command: str | None = None
    """What to run; the name, when not given."""
    cwd: str = "/"
    """The directory to run it in."""
    environment: tuple[str, ...] = ()
    """``KEY=VALUE`` pairs, added to the documented base environment."""
    path: str | None = None
    """Directories to search for programs, separated by colons; exported as ``PATH``."""
    returns: tuple[int, ...] = (0,)
    """Exit codes that mean success."""
    timeout: Duration = Duration(300.0)
    """After so long the command and its children are killed."""
    creates: str | None = None
    """Do not run when this path exists."""
    onlyif: str | None = None
    """Run only when this command ends with 0."""
    unless: str | None = None
    """Run only when this command does not end with 0."""
    recheck: bool = True
    """Fail when ``creates`` is not there after the command, or ``unless`` would have it run again."""
    refreshonly: bool = False
    """Run only when a subscribed resource changed."""
    guard_refresh: bool = False
    """Ask the guards also when a subscribed resource changed."""
    subscribe: tuple[Reference, ...] = ()
    """Resources whose change runs this command, whatever the guards say unless ``guard_refresh`` is set."""
    logoutput: bool = False
    """Log what the command prints."""


class ExecState(msgspec.Struct, frozen=True):
    """How the command ended in this run; ``None`` when it has not run."""

    completed: Completed | None = None


class _NotStartedError(ResourceError):
    """A command or guard that could not be started."""


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

    def look(self) -> ExecState:
        return ExecState(self._completed)

    def differences(self, actual: ExecState, *, refresh: bool = False) -> Sequence[Difference]:
        if actual.completed is not None:
            return ()  # ``change`` has judged the exit code, and knows the output
        if refresh:
            return self._refresh_differences()
        if self.properties.refreshonly or self._is_guarded():
            return ()
        return [Difference("command", "not executed", "executed")]

    def _refresh_differences(self) -> Sequence[Difference]:
        if self.properties.guard_refresh and self._is_guarded():
            self._notes = ("a subscribed resource changed, and a guard says that the command need not run",)
            return ()
        why = "not executed since a subscribed resource changed"
        return [Difference("command", why, "executed", refresh=True)]

    def change(self, differences: Sequence[Difference], actual: ExecState) -> None:
        """Run the command (``resources.md`` section 4); the guards were asked for the differences.

        1. Run it in its directory, environment and time.
        2. Log what it printed, if that is asked for and no secret.
        3. Raise ``ResourceError`` for an exit code that is not success.
        4. Ask the guards again: a success that would not keep the next run from running it is none.
        """
        del actual
        properties = self.properties
        # 1. Run
        text = properties.command or properties.name
        completed = self._run("command", text, self.context.system.execute)
        # 2. Log
        if properties.logoutput and not properties.sensitive:
            for line in (completed.stdout + completed.stderr).splitlines():
                self.context.log(f"{properties.alias or properties.name}: {line}")
        # 3. Judge
        if completed.exit_code not in properties.returns:
            raise ResourceError(self._failure(completed))
        self._completed = completed
        # 4. Ask again; a refresh runs whatever the guards say
        if properties.recheck and not differences[0].refresh:
            self._recheck()

    def noop_message(self, differences: Sequence[Difference], actual: ExecState) -> str:
        del actual
        self._require_cwd()
        return "Would have executed via subscribe" if differences[0].refresh else "Would have executed"

    def reach(self) -> str:
        return "/"

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    def _is_guarded(self) -> bool:
        """Whether a guard says that the command need not run; later guards are not asked."""
        properties = self.properties
        if properties.creates is not None and self._is_created():
            return True
        try:
            if properties.onlyif is not None and not self._succeeds("onlyif", properties.onlyif):
                return True
            return properties.unless is not None and self._succeeds("unless", properties.unless)
        except _NotStartedError:
            if self._may_start_later():
                return False
            raise

    def _is_created(self) -> bool:
        return self.context.system.exists(os.path.join(self.properties.cwd, self.properties.creates or ""))

    def _may_start_later(self) -> bool:
        """In noop: whether what a guard needs may be there when the real run asks it."""
        cwd = self.properties.cwd
        brings_cwd = self.context.system.is_directory(cwd) and not os.path.isdir(cwd)
        return self.context.noop and (brings_cwd or self.context.uncertain("/"))

    def _recheck(self) -> None:
        """Refuse a success that the next run would not believe in either."""
        properties = self.properties
        if properties.creates is not None and not self._is_created():
            raise ResourceError(f"ran, but `creates` {properties.creates} is still not there")
        if properties.unless is not None and not self._succeeds("unless", properties.unless):
            raise ResourceError("ran, but `unless` still fails")
        if properties.creates is None and properties.unless is None and properties.onlyif is not None:
            with contextlib.suppress(ResourceError):  # it has no answer, and no failure depends on it
                if self._succeeds("onlyif", properties.onlyif):
                    self._notes = ("ran, and `onlyif` still succeeds: the command runs in every run",)

    def _succeeds(self, kind: str, text: str) -> bool:
        completed = self._run(kind, text, self.context.system.query)
        if completed.exit_code is None:
            # Neither yes nor no: running the command on a guess could do harm.
            raise ResourceError(f"{kind}{self._shown(text)}: {completed.outcome}")
        return completed.exit_code == 0

    def _run(self, kind: str, text: str, run: Callable[[Command], Completed]) -> Completed:
        try:
            self._require_cwd()
            return run(self._command(text))
        except OSError as error:
            raise _NotStartedError(f"{kind}{self._shown(text)} cannot be started: {reason(error)}") from error

    def _require_cwd(self) -> None:
        """Of a missing directory the system says no more than of a missing program: that something is not found."""
        context, cwd = self.context, self.properties.cwd
        if not context.system.is_directory(cwd) and not context.uncertain(cwd):
            what = "is not a directory" if context.system.exists(cwd) else "does not exist"
            raise _NotStartedError(f"cwd {cwd} {what}")

    def _shown(self, text: str) -> str:
        return "" if self.properties.sensitive else f" {text!r}"

    def _command(self, text: str) -> Command:
        properties = self.properties
        environment = dict(variable.split("=", 1) for variable in properties.environment)
        if properties.path is not None:
            environment["PATH"] = properties.path
        arguments = ["/bin/sh", "-c", text] if properties.provider == "shell" else split_words(text)
        return Command(arguments, environment, properties.cwd, properties.timeout)

    def _failure(self, completed: Completed) -> str:
        wanted = ", ".join(map(str, self.properties.returns))
        message = f"{completed.outcome}, wanted {wanted}"
        if self.properties.sensitive or not (tail := completed.tail()):
            return message
        return f"{message}; it printed:\n{tail}"

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """``refresh_only`` as ``refreshonly``; raises ``PropertyError`` for both."""
        if "refresh_only" in raw:
            if "refreshonly" in raw:
                raise PropertyError("refresh_only", "cannot be given together with refreshonly")
            return {("refreshonly" if key == "refresh_only" else key): value for key, value in raw.items()}
        return raw

    @classmethod
    def check(cls, properties: ExecProperties) -> Iterator[PropertyError]:
        if properties.ensure != "present":
            yield PropertyError("ensure", f"is {properties.ensure!r}, wanted present")
        if properties.provider != "shell":
            yield from _check_words(properties)
        # Not in the one form of managed paths: nothing is known by it, so "/srv/app/" does as well as "/srv/app".
        if not properties.cwd.startswith("/"):
            yield PropertyError("cwd", f"is {properties.cwd!r}, wanted an absolute path")
        if (
            properties.creates is not None
            and not properties.creates.startswith("/")
            and properties.cwd == "/"
        ):
            wanted = "an absolute path, or a cwd to which it is relative"
            yield PropertyError("creates", f"is {properties.creates!r}, wanted {wanted}", because=["cwd"])
        for variable in properties.environment:
            if not _VARIABLE.fullmatch(variable):
                yield PropertyError("environment", f"has {variable!r}, wanted KEY=VALUE")
        for directory in (properties.path or "/").split(":"):
            if not directory.startswith("/"):
                yield PropertyError(
                    "path", f"has {directory!r}, wanted absolute directories separated by colons"
                )
        if properties.timeout <= 0:
            yield PropertyError("timeout", "is 0, wanted a time that the command can end in")

    @classmethod
    def agree(cls, first: ExecProperties, second: ExecProperties) -> ExecProperties:
        """A guard or a code of success that only one of them has would keep what the other asks for from being done."""
        from puller.resources.agreeing import agree  # few manifests declare a command twice

        own = cls.properties_type.__struct_fields__
        return agree(
            first, second, exact=own, rules={"command": lambda one, other: _same_command(first, second)}
        )


def _same_command(first: ExecProperties, second: ExecProperties) -> str | None:
    if (first.command or first.name) != (second.command or second.name):
        raise ValueError("two commands")
    return first.command


def _check_words(properties: ExecProperties) -> Iterator[PropertyError]:
    """The commands that are run without a shell must split into words."""
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
            yield PropertyError(name, f"is {text!r}, wanted a command", because=["provider"])
