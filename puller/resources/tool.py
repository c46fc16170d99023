"""Programs that types run: tools of the system, and commands that validate a file before it is replaced.

A tool reads and changes the machine:

* It is found in the fixed search path, runs without a shell, and prints English, because types read its output.
* A failure is an error with the command, its outcome and its output.
* All users of the machine can read arguments. Pass a secret by ``text``, its standard input.

A command such as ``validate: visudo -cf {}`` validates a file:

* The command checks a private copy in the same directory, which already has the owner, mode and suffix of the file. If
  the command fails or times out, the file stays unchanged.
* Some files are only valid in their place, such as a virtual host that another file includes. Such a file is checked
  there, in the command's own mount namespace, where the copy covers it. The copy is invisible to other processes.
* The command runs only before a change, never in noop, and must not change the copy.
"""

import os
from collections.abc import Callable, Iterator

import msgspec

from puller.errors import ResourceError, reason
from puller.resources.base import Context, PropertyError
from puller.system import commands
from puller.system.commands import Command, Completed, split_words
from puller.system.identity import Identity
from puller.system.protocol import System

_LOCALE = {"LC_ALL": "C.UTF-8"}


class Tool(msgspec.Struct, frozen=True):
    """A program by its name. ``timeout`` is in seconds, ``identity`` the user to run as."""

    name: str
    timeout: float = 60.0
    identity: Identity | None = None

    def find(self) -> str | None:
        """Return the path of the program. ``None`` if it is not installed."""
        paths = (f"{directory}/{self.name}" for directory in commands.SEARCH_PATH.split(":"))
        return next((path for path in paths if os.access(path, os.X_OK)), None)

    def query(self, system: System, *arguments: str, text: str = "") -> str:
        """Return the output of a call that changes nothing. Raises ``ResourceError``."""
        completed = self._run(system, arguments, text, changes=False)
        self.require_success(completed, arguments)
        return completed.stdout

    def execute(self, system: System, *arguments: str, text: str = "") -> None:
        """Make a call that may change the machine. Raises ``ResourceError``."""
        self.require_success(self.attempt(system, *arguments, text=text), arguments)

    def attempt(self, system: System, *arguments: str, text: str = "") -> Completed:
        """Make a call that may change the machine, and return its result. Raises ``ResourceError``."""
        return self._run(system, arguments, text, changes=True)

    def _run(self, system: System, arguments: tuple[str, ...], text: str, *, changes: bool) -> Completed:
        program = self.find() or self.name
        command = Command(
            [program, *arguments],
            _LOCALE,
            timeout=self.timeout,
            input=text.encode(),
            identity=self.identity,
        )
        try:
            return system.execute(command) if changes else system.query(command)
        except OSError as error:
            raise ResourceError(f"{program} cannot be started: {reason(error)}") from error

    def require_success(self, completed: Completed, arguments: tuple[str, ...]) -> None:
        """Raise ``ResourceError`` if a call failed."""
        if completed.exit_code != 0:
            command = " ".join([self.find() or self.name, *arguments])
            raise ResourceError(f"{command}: {completed.outcome}: {completed.tail()}")


TIME_LIMIT = 60.0
"""Seconds for one command."""

_PLACE = "{}"

# Arguments: the copy, its target path, the command. The copy is mounted over a regular file. If the file is missing (or
# a link, which a mount would follow), the directory is covered by an overlay of itself that contains the copy under the
# target's name. The file descriptor gives access to the covered directory.
_IN_PLACE = """
set -e
copy=$1 path=$2
shift 2
if [ -f "$path" ] && [ ! -L "$path" ]; then
    mount --bind -- "$copy" "$path"
else
    directory=${path%/*}/
    [ "$directory" != / ] || { echo "nothing can be mounted over /" >&2; exit 1; }
    exec 3<"$directory"
    mount -t tmpfs -o mode=0755 tmpfs "$directory"
    cd -- "$directory"
    cp -p -- "/proc/self/fd/3/${copy##*/}" "./${path##*/}"
    mount -t overlay -o ro,lowerdir=.:/proc/self/fd/3 overlay "$directory"
    exec 3<&-
    cd /
fi
exec "$@"
"""


class Validation(msgspec.Struct, frozen=True):
    """The validation of a file: the properties ``validate``, ``validate_in_place`` and ``provider``."""

    command: str
    in_place: bool = False
    shell: bool = False
    """Whether ``provider`` is ``shell``."""

    def problems(self) -> Iterator[PropertyError]:
        """Yield all errors that can be detected when the manifest is read."""
        desired, count = ("at most one {}", "one {}")[not self.in_place], self.command.count(_PLACE)
        if count > 1 or (not count and not self.in_place):
            because = ["validate_in_place"]
            yield PropertyError(
                "validate", f"is {self.command!r}", because=because, expected=f"a command with {desired}"
            )
        if "\0" in self.command:
            yield PropertyError("validate", f"is {self.command!r}, which has a NUL in it")
        if self.shell:
            return
        try:
            words = split_words(self.command)
        except ValueError as error:
            yield PropertyError("validate", f"is {self.command!r}, which {error}", because=["provider"])
            return
        if not words or not words[0]:
            yield PropertyError("validate", "names no program", because=["provider"])

    def verifier(self, path: str, context: Context, *, secret: bool) -> Callable[[str], None]:
        """Return the callback for ``System.replace_file`` that checks the copy at its argument.

        With ``secret``, the output of the command is not shown. The callback raises ``ResourceError``.
        """

        return lambda copy: self._ask(copy, path, context, secret=secret)

    def require_possible(self, context: Context) -> None:
        """Raise ``ResourceError`` for a predictable failure, so that noop reports it."""
        if self.in_place and os.geteuid() != 0:
            raise ResourceError(f"validate {self.command!r}: mounting the copy in place requires root")
        program = "" if self.shell else split_words(self.command)[0]
        if not program or _PLACE in program:
            return
        places = [os.path.join(directory, program) for directory in commands.SEARCH_PATH.split(":")]
        if not any(context.system.exists(place) or context.uncertain(place) for place in places):
            raise ResourceError(f"validate {self.command!r}: unknown program {program!r}")

    def _ask(self, copy: str, path: str, context: Context, *, secret: bool) -> None:
        command = Command(self._arguments(copy, path), _LOCALE, timeout=TIME_LIMIT)
        where = f"validate {self.command!r}"
        try:
            completed = context.system.query(command)
        except OSError as error:
            raise ResourceError(f"{where} cannot be started: {reason(error)}") from error
        if completed.exit_code == 0:
            return
        printed = completed.tail().replace(copy, path)
        text = "its output may be secret" if secret else f"it printed:\n{printed}"
        raise ResourceError(
            f"{where}: {completed.outcome}, expected 0, so {path} stays as it was"
            + (f"; {text}" if printed else "")
        )

    def _arguments(self, copy: str, path: str) -> list[str]:
        requested = path if self.in_place else copy
        if self.shell:
            import shlex  # 0.3 % of an idle run, which validates no file

            words = ["/bin/sh", "-c", self.command.replace(_PLACE, shlex.quote(requested))]
        else:
            words = [word.replace(_PLACE, requested) for word in split_words(self.command)]
        if not self.in_place:
            return words
        # The namespace and its mounts end with the command.
        return ["unshare", "--mount", "--", "/bin/sh", "-c", _IN_PLACE, "sh", copy, path, *words]


def check_validate(command: str | None, *, in_place: bool, provider: str | None) -> Iterator[PropertyError]:
    """Yield errors of ``validate`` and of the properties that depend on it."""
    if command is not None:
        yield from Validation(command, in_place, provider == "shell").problems()
        return
    if in_place:
        yield PropertyError("validate_in_place", "is only for validate", because=["validate"])
    if provider == "shell":
        yield PropertyError("provider", "is 'shell', which is only for validate", because=["validate"])
