"""The ``cron`` resource: one file below ``/etc/cron.d`` (``docs/resources/cron.md``).

* Puller manages the whole file and replaces it with a rename. cron notices the rename, but not a changed mode.
* cron silently skips jobs with an invalid schedule, an unusual file name, another owner or an unknown user. These
  errors are refused or corrected.
* A schedule has five fields or one word (crontab(5)). Only syntax that every common cron reads alike is accepted.
  Debian's cron, for example, reads ``5/15`` as ``5`` and ignores text after a number.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from foundation.differences import Difference, changed, presence, secret, unified
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Use, agree
from puller.resources.content_sources import sha256, short
from puller.resources.paths import PathState, attribute_differences, describe_attributes, require_makeable
from puller.system.protocol import Attributes
from puller.values.file_mode import FileMode

# Schedules. Pure functions that parse and check text.

WORDS = frozenset(
    {"@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
"""Words that replace all fields."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ITEM = re.compile(r"(?P<first>\*|[0-9]+|[A-Za-z]+)(?:-(?P<last>[0-9]+|[A-Za-z]+))?(?:/(?P<step>[0-9]+))?")


class _Field(msgspec.Struct, frozen=True):
    """One of the five fields: its name, and its valid values."""

    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()

    @property
    def desired(self) -> str:
        """The valid numbers and names, for messages."""
        names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"expected {self.lowest} to {self.highest}{names}"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),  # both 0 and 7 are Sunday
)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule in canonical form: words separated by single blanks."""

    text: str

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Parse a schedule. Raises ``ValueError`` with the error in the first invalid field."""
        fields = text.split()
        if len(fields) == 1 and fields[0].startswith("@"):
            if fields[0] not in WORDS:
                raise ValueError(f"is {text!r}, expected one of {', '.join(sorted(WORDS))}")
        elif len(fields) != len(_FIELDS):
            raise ValueError(f"is {text!r}, expected five fields, or a word such as @daily")
        else:
            for field, written in zip(_FIELDS, fields, strict=True):
                _check_field(field, written)
        return cls(" ".join(fields))

    @property
    def is_either_day(self) -> bool:
        """Whether cron runs the job if either the day of the month or the day of the week matches.

        This is not the case if one of the fields begins with ``*``.
        """
        fields = self.text.split()
        return len(fields) > 1 and not fields[2].startswith("*") and not fields[4].startswith("*")


def _check_field(field: _Field, written: str) -> None:
    for item in written.split(","):
        if (match := _ITEM.fullmatch(item)) is None or (match["first"] == "*" and match["last"]):
            raise ValueError(
                f"has {written!r} as its {field.name}, expected numbers such as *, 5, 1-5, */2, 1-9/2 or 1,5"
            )
        _check_item(field, item, match["first"], match["last"], match["step"])


def _check_item(field: _Field, item: str, first: str, last: str | None, step: str | None) -> None:
    low = field.lowest if first == "*" else _number(field, first)
    high = low if last is None else _number(field, last)
    if high < low:
        of_sunday = " (Sunday is also 7)" if field.names is _DAYS and high == 0 else ""
        raise ValueError(f"has {item!r} as its {field.name}, expected the lower one first{of_sunday}")
    if step is None:
        return
    if first != "*" and last is None:
        raise ValueError(
            f"has {item!r} as its {field.name}, expected a range before the step: {first}-{field.highest}/{step}"
        )
    if not 1 <= int(step) <= field.highest:
        raise ValueError(f"has {item!r} as its {field.name}, expected a step of 1 to {field.highest}")


def _number(field: _Field, text: str) -> int:
    if text.isascii() and text.isdecimal():
        number = int(text) if len(text) < 4 else field.highest + 1
    elif text.lower() in field.names:
        number = field.names.index(text.lower()) + field.lowest
    else:
        number = field.highest + 1
    if not field.lowest <= number <= field.highest:
        raise ValueError(f"has {text!r} as its {field.name}, {field.desired}")
    return number


DIRECTORY = "/etc/cron.d"
ATTRIBUTES = Attributes(0, 0, 0o644)
_OF_DIRECTORY = 0o755
_DAEMONS = (
    "/usr/sbin/cron",
    "/usr/sbin/crond",
    "/usr/lib/systemd/system-generators/systemd-crontab-generator",
)

_HEADER = "# Puller writes this file: what is changed here is lost.\n"
_ENSURE = ("present", "absent")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_LONGEST_NAME = 200  # characters; file systems allow 255, and a temporary file has a longer name
_USER = re.compile(r"[^-:%\s\0][^:%\s\0]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_A_LINE = re.compile(r"[\n\r\0]")
_LONGEST = 999  # bytes of a command or a variable; Debian's cron truncates longer ones
_EITHER = "both a day of the month and a day of the week are given: it runs on both kinds of days"
_NO_DAEMON = "no cron is installed here, so nothing runs it"


class CronProperties(Properties, frozen=True):
    """The properties of a cron job. The name is the file name in ``/etc/cron.d``."""

    schedule: str = ""
    """Five fields (minute, hour, day of month, month, day of week), or a word such as ``@daily``."""
    user: str = "root"
    """The user of the command."""
    command: str = ""
    """One line for ``/bin/sh``. ``%`` is a percent sign."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of the command and of cron, such as ``PATH`` and ``MAILTO``."""


class CronState(PathState, frozen=True):
    """The state of the file's path, and whether its content is in sync."""

    same_content: bool = True


class Cron(Resource[CronProperties, CronState]):
    """A cron job."""

    type_name = "cron"
    properties_type = CronProperties
    unused = {"absent": frozenset({"schedule", "command", "environment"})}  # noqa: RUF012  ClassVar in the base class
    secret_properties = frozenset({"command", "environment"})
    command_lines = frozenset({"command", "health_checks"})
    removable = True

    def look(self) -> CronState:
        properties, system = self.properties, self.context.system
        status = system.lstat(self._path)
        if properties.ensure == "present":
            self._require_user()
        if status is None or properties.ensure == "absent" or not stat.S_ISREG(status.st_mode):
            return CronState(status)
        content = _content(properties)
        return CronState(status, status.st_size == len(content) and system.read(self._path) == content)

    def differences(self, actual: CronState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        ensure, status = self.properties.ensure, actual.found
        if actual.kind != ensure:
            return [presence(actual.kind, ensure)]
        if status is None:
            return ()
        differences = []
        if not actual.same_content:
            differences.append(self._content_difference(status))
        differences += attribute_differences(status, ATTRIBUTES, "root", "root")
        if status.st_nlink > 1:  # cron ignores files with several hard links
            differences.append(changed("hard links", str(status.st_nlink), "1"))
        return differences

    def _content_difference(self, found: os.stat_result) -> Difference:
        if self.properties.sensitive:
            return secret("content")
        contents = self.context.system.read(self._path, found), _content(self.properties)
        return changed("content", *(short(sha256([content])) for content in contents))

    def change(self, differences: Sequence[Difference], actual: CronState) -> None:
        del differences
        self._raise_predictable_failures(actual)
        system = self.context.system
        if self.properties.ensure == "present":
            if not system.is_directory(DIRECTORY):
                system.make_directory(DIRECTORY, Attributes(ATTRIBUTES.uid, ATTRIBUTES.gid, _OF_DIRECTORY))
            system.replace_file(self._path, [_content(self.properties)], ATTRIBUTES, actual.found)
        elif actual.found is not None:
            system.remove(self._path, actual.found)

    def noop_message(self, differences: Sequence[Difference], actual: CronState) -> str:
        del differences
        self._raise_predictable_failures(actual)
        is_present = self.properties.ensure == "present"
        self.context.system.expect(self._path, "file" if is_present else "absent")
        return f"Would have {'written' if is_present else 'removed'} the cron job"

    def final_ensure(self, actual: CronState) -> str:
        return actual.kind

    def describe(self, actual: CronState) -> dict[str, Any]:
        status = actual.found
        return (
            {"ensure": actual.kind}
            if status is None
            else {"ensure": actual.kind, **describe_attributes(status)}
        )

    def diff(self, actual: CronState) -> str | None:
        if self.properties.sensitive or (actual.found is not None and actual.kind != "present"):
            return None
        old = b"" if actual.found is None else self.context.system.read(self._path)
        new = _content(self.properties) if self.properties.ensure == "present" else b""
        return unified(old, new, self._path)

    @property
    def notes(self) -> Sequence[str]:
        if self.properties.ensure == "absent":
            return ()
        results = [_EITHER] if Schedule(self.properties.schedule).is_either_day else []
        context = self.context
        if not any(context.system.exists(path) or context.uncertain(path) for path in _DAEMONS):
            results.append(_NO_DAEMON)
        return results

    def changed_paths(self, actual: CronState) -> Iterable[str]:
        del actual
        return (self._path,)

    @property
    def _path(self) -> str:
        return _path(self.properties)

    def _require_user(self) -> None:
        """Raise ``ResourceError`` for an unknown user, because cron would silently skip the file."""
        user, context = self.properties.user, self.context
        if context.system.user_id(user) is None and not context.uncertain("/etc/passwd"):
            raise ResourceError(f"user is {user!r}, an unknown user", code=ProblemCode.MISSING_ACCOUNT)

    def _raise_predictable_failures(self, actual: CronState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        if actual.kind == "directory" or "device" in actual.kind:
            raise ResourceError(
                f"{self._path} is a {actual.kind}, and only a file is replaced or removed",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if self.properties.ensure == "present":
            require_makeable(DIRECTORY, self.context.system)

    # Loading

    @classmethod
    def check(cls, properties: CronProperties) -> Iterator[PropertyError]:
        ensure, name = properties.ensure, properties.name
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            expected = f"at most {_LONGEST_NAME} letters, digits, _ and -, as cron ignores other files"
            yield PropertyError("name", f"is {name!r}", expected=expected, hint="the first must not be -")
        if ensure == "present":
            yield from _check_job(properties)
        yield from _check_environment(properties.environment)

    @classmethod
    def agree(cls, first: CronProperties, second: CronProperties) -> CronProperties:
        """Require the same user, because an omitted user means root."""
        return agree(first, second, exact=("user",))

    @classmethod
    def claims(cls, properties: CronProperties) -> Iterator[Claim]:
        use = Use.ABSENT if properties.ensure == "absent" else Use.WHOLE
        yield Claim(_path(properties), use, owner="root", group="root", mode=FileMode.parse("0644"))

    @classmethod
    def places(cls, properties: CronProperties) -> Iterable[str]:
        return (_path(properties),)


def _path(properties: CronProperties) -> str:
    return f"{DIRECTORY}/{properties.name}"


def _check_job(properties: CronProperties) -> Iterator[PropertyError]:
    for name in ("schedule", "command"):
        if not getattr(properties, name).strip():
            yield missing_property(
                name, "is missing", because=["ensure"], hint="it is required unless ensure is absent"
            )
    if properties.schedule.strip():
        try:
            Schedule.parse(properties.schedule)
        except ValueError as error:
            yield PropertyError("schedule", str(error))
    user, command = properties.user, properties.command
    if not _USER.fullmatch(user) or (user.isascii() and user.isdecimal()):
        yield PropertyError("user", f"is {user!r}", expected="the name of a user")
    if _NOT_IN_A_LINE.search(command):
        yield PropertyError("command", f"is {command!r}", expected="one line", hint="a script may have more")
    if "\\\\" in command:  # one backslash in Debian's cron, two in Red Hat's
        detail = "has two backslashes in a row, which crons read differently, expected a script"
        yield PropertyError("command", f"is {command!r}, which {detail}")
    if len(_escaped(command).encode()) > _LONGEST:
        yield PropertyError(
            "command", f"has more than {_LONGEST} bytes, and cron cuts off the rest", expected="a script"
        )


def _check_environment(environment: dict[str, str]) -> Iterator[PropertyError]:
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            yield PropertyError("environment", f"has {name!r}", expected="the name of a variable")
        elif _NOT_IN_A_LINE.search(value):
            yield PropertyError("environment", f"has {name} with {value!r}", expected="one line")
        elif _is_quoted(value):
            detail = "which begins and ends with quotes, and crons read that differently"
            yield PropertyError("environment", f"has {name} with {value!r}, {detail}")
        elif _needs_quotes(value) and '"' in value and "'" in value:
            detail = f"has {name} with {value!r}, which cron cannot quote"
            yield PropertyError("environment", f"{detail}: expected only one kind of quotes")
        elif len(_assignment(name, value).encode()) > _LONGEST:
            yield PropertyError(
                "environment", f"has {name} with more than {_LONGEST} bytes, and cron cuts off the rest"
            )


# The content of the file


def _content(properties: CronProperties) -> bytes:
    """Return the whole file. cron ignores a last line without a newline."""
    variables = (_assignment(name, value) for name, value in properties.environment.items())
    schedule = " ".join(properties.schedule.split())
    job = f"{schedule} {properties.user} {_escaped(properties.command.strip())}"
    return (_HEADER + "".join(f"{line}\n" for line in (*variables, job))).encode()


def _assignment(name: str, value: str) -> str:
    quote = ("'" if '"' in value else '"') if _needs_quotes(value) else ""
    return f"{name}={quote}{value}{quote}"


def _is_quoted(value: str) -> bool:
    """Return whether Debian's cron would remove a second pair of quotes. Red Hat's cron removes one pair."""
    value = value.rstrip()
    return len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]


def _needs_quotes(value: str) -> bool:
    """Return whether cron would change the unquoted value: blanks at an end, quotes at the start, or an empty value."""
    return not value or value != value.strip() or value[0] in "\"'"


def _escaped(command: str) -> str:
    """Escape percent signs that are not escaped yet. cron reads an unescaped one as a newline."""
    return re.sub(r"(?<!\\)%", r"\\%", command)
