"""The ``unit`` resource: a unit file or a drop-in of systemd (``docs/resources/unit.md``).

* Puller manages the whole file below ``/etc/systemd/system``. Whether a unit runs and starts at boot is the subject of
  ``service``.
* ``systemd-analyze verify`` checks a private copy before the old file is replaced, in a dry run too.
* systemd reads changed files once for all units that change together. ``look`` lets it read files that an interrupted
  run wrote, as for a ``service``.
* A link in the place of the file is a mask or an alias of an administrator, so it is never replaced or removed.
* The end of a trial removes a new unit by its name and not by its path, so that systemd forgets it.
"""

import os
import re
import stat
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foundation.differences import Difference, changed, presence, secret, unified, unknown
from foundation.problems import ProblemCode
from puller.errors import ResourceError, reason
from puller.resources import base
from puller.resources.base import Declared, Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Use, agree
from puller.resources.content_sources import is_url, sha256, short
from puller.resources.files.content import Bytes, Content, Pending, bundled_content, find_content
from puller.resources.files.file_properties import FileProperties, check_content
from puller.resources.paths import PathState, attribute_differences, describe_attributes, require_makeable
from puller.resources.services.service import names_of_services
from puller.resources.services.systemd import SYSTEM, Systemd
from puller.resources.services.unit_files import UNIT_DIRECTORIES
from puller.resources.services.unit_links import unit_of
from puller.system.commands import SEARCH_PATH, Command
from puller.system.protocol import Attributes
from puller.values.common_properties import Reference
from puller.values.file_mode import FileMode
from puller.values.foreign_text import visible

DIRECTORY = "/etc/systemd/system"
ATTRIBUTES = Attributes(0, 0, 0o644)
BOOTED = "/run/systemd/system"
"""Exists if systemd is the init system, see sd_booted(3)."""

_OF_DIRECTORY = 0o755
_HEADER = "# Puller writes this file: what is changed here is lost.\n"
_ENSURE = ("present", "absent")
_CONTENT = ("sections", "content", "source", "template")
_KINDS = ("service", "socket", "target", "path", "timer", "mount", "automount", "swap", "slice")
_UNIT = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.:\\-]*(?:@[A-Za-z0-9_.:\\@-]*)?\.(?:{'|'.join(_KINDS)})")
_DROP_IN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\\@-]*\.conf")
_LONGEST_NAME = 255  # bytes; systemd's limit
_LONGEST_DROP_IN = 200  # characters; file systems allow 255, and a temporary file has a longer name
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_PROGRAM = re.compile(r"^[ \t]*Exec[A-Za-z]*[ \t]*=[ \t]*[-@:+!|]*\"?(/[^\s\"]+)", re.MULTILINE)
_TIME_LIMIT = 60.0  # seconds for systemd-analyze

Value = str | int | bool | list[str | int | bool]


class UnitProperties(Properties, frozen=True):
    """The properties of a unit. The name is the path below ``/etc/systemd/system``."""

    sections: dict[str, dict[str, Value]] = msgspec.field(default_factory=dict)
    """Sections with their settings. A list gives a setting several times, and an empty text resets it."""
    content: str | None = None
    """The text of the file, instead of ``sections``."""
    source: str | None = None
    """A file with the text: relative to the manifest, or absolute."""
    template: str | None = None
    """A template file, relative to the manifest or absolute."""
    engine: str | None = None
    """The template engine: ``jinja``, ``jet`` or ``go``. The default follows the file name, otherwise ``jinja``."""
    data: dict[Any, Any] | None = None
    """Data for the template, instead of the data of the manifest."""
    interpolate: bool = False
    """Whether the template sees the data by name, as a template of Ansible."""
    verify: bool = True
    """Whether ``systemd-analyze verify`` checks a new text before it replaces the file."""

    @property
    def main(self) -> str:
        """The unit of a drop-in. The name of any other unit."""
        return self.name.partition(".d/")[0] if self.is_drop_in else self.name

    @property
    def is_drop_in(self) -> bool:
        return "/" in self.name

    def as_file(self) -> FileProperties:
        """Return the properties of a file with this text."""
        names = ("name", "content", "source", "template", "engine", "data", "interpolate", "sensitive")
        return FileProperties(**{name: getattr(self, name) for name in names})


class UnitState(PathState, frozen=True):
    """The state of the file's path, and whether its content is in sync."""

    same_content: bool = True


class Unit(Resource[UnitProperties, UnitState]):
    """A unit file or a drop-in."""

    type_name = "unit"
    properties_type = UnitProperties
    providers = ("systemd",)
    unused = {"absent": frozenset({*_CONTENT, "engine", "data", "interpolate", "verify"})}  # noqa: RUF012  ClassVar in the base class
    secret_properties = frozenset({"sections", "content", "data"})
    relative_paths = frozenset({"source", "template"})
    rendered = frozenset({"template", "interpolate"})
    removable = True

    _text: Content | None = None

    def look(self) -> UnitState:
        properties, system = self.properties, self.context.system
        self._reload_systemd()
        status = system.lstat(self._path)
        content = self._content if properties.ensure == "present" else None
        if status is None or content is None or not stat.S_ISREG(status.st_mode):
            return UnitState(status)
        return UnitState(status, status.st_size == content.size and content.same_as(self._path))

    def differences(self, actual: UnitState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        ensure, status = self.properties.ensure, actual.found
        if actual.kind != ensure:
            return [presence(actual.kind, ensure)]
        if status is None:
            return ()
        differences = [] if actual.same_content else [self._content_difference(status)]
        differences += attribute_differences(status, ATTRIBUTES, "root", "root")
        return differences

    def _content_difference(self, status: os.stat_result) -> Difference:
        content = self._content
        if self._is_secret:
            return secret("content")
        if isinstance(content, Pending):
            return unknown("content", f"from {content.path}")
        current = self.context.system.read(self._path, status)
        return changed("content", short(sha256([current])), short(sha256(content.chunks())))

    def transaction(self, actual: UnitState) -> Hashable:
        """Return one key for all units, so that systemd reads its files once."""
        del actual
        return self.type_name

    def change(self, differences: Sequence[Difference], actual: UnitState) -> None:
        """Change this unit alone. Raises ``OSError`` and ``ResourceError``."""
        del differences
        for failure in self.change_together([(self, actual)]).values():
            raise failure

    @classmethod
    def change_together(cls, members: "Sequence[tuple[Unit, UnitState]]") -> Mapping[int, Exception]:
        """Write or remove the files in their order, then let systemd read all files. A rejected file stays."""
        failed: dict[int, Exception] = {}
        for place, (unit, actual) in enumerate(members):
            try:
                unit._write(actual)
            except (OSError, ResourceError) as error:
                failed[place] = error
        if len(failed) < len(members):
            members[0][0]._reload()
        return failed

    def _write(self, actual: UnitState) -> None:
        self._raise_predictable_failures(actual)
        system, directory = self.context.system, os.path.dirname(self._path)
        if self.properties.ensure == "present":
            self._verify()
            if not system.is_directory(directory):
                system.make_directory(directory, Attributes(ATTRIBUTES.uid, ATTRIBUTES.gid, _OF_DIRECTORY))
            system.replace_file(self._path, self._content.chunks(), ATTRIBUTES, actual.found)
        elif actual.found is not None:
            system.remove(self._path, actual.found)
            self._remove_empty(directory)

    def _remove_empty(self, directory: str) -> None:
        """Remove the directory of the last drop-in."""
        status = self.context.system.lstat(directory)
        if not self.properties.is_drop_in or status is None or not stat.S_ISDIR(status.st_mode):
            return
        if not self.context.system.children(directory):
            self.context.system.remove(directory, status)

    def noop_message(self, differences: Sequence[Difference], actual: UnitState) -> str:
        del differences
        self._raise_predictable_failures(actual)
        system, what = self.context.system, "drop-in" if self.properties.is_drop_in else "unit"
        if self.properties.ensure == "absent":
            system.expect(self._path, "absent")
            return f"Would have removed the {what}"
        if not isinstance(self._content, Pending):
            self._verify()
            planned = self.context.shared.setdefault(Unit, {})
            planned[self.properties.name] = b"".join(self._content.chunks())
        system.expect(self._path, "file")
        return f"Would have written the {what}"

    def final_ensure(self, actual: UnitState) -> str:
        return actual.kind

    def describe(self, actual: UnitState) -> dict[str, Any]:
        status = actual.found
        return {"ensure": actual.kind} | ({} if status is None else describe_attributes(status))

    def diff(self, actual: UnitState) -> str | None:
        if (actual.found is not None and actual.kind != "present") or self._is_secret:
            return None
        system, is_present = self.context.system, self.properties.ensure == "present"
        if is_present and isinstance(self._content, Pending):
            return None
        old = b"" if actual.found is None else system.read(self._path)
        new = b"".join(self._content.chunks()) if is_present else b""
        return unified(old, new, self._path)

    @classmethod
    def diff_together(cls, members: "Sequence[tuple[Unit, UnitState]]") -> str | None:
        return "".join(unit.diff(actual) or "" for unit, actual in members) or None

    def contents(self) -> Mapping[str, base.Content]:
        properties = self.properties
        if properties.ensure != "present":
            return {}
        content = (
            self._content if properties.sections else bundled_content(properties.as_file(), self.context)
        )
        return {} if content is None else {self._path: content}

    def changed_paths(self, actual: UnitState) -> Iterable[str] | None:
        """Return the path if only a copy of the file restores it. Otherwise systemd has to read the restored file."""
        is_new = actual.found is None
        return None if is_new or self.way_back(actual) is not None else (self._path,)

    def touched(self, actual: UnitState) -> Iterable[str]:
        del actual
        return (
            (self._path, f"{os.path.dirname(self._path)}/") if self.properties.is_drop_in else (self._path,)
        )

    def way_back(self, actual: UnitState) -> UnitProperties | None:
        status = actual.found
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        if attribute_differences(status, ATTRIBUTES, "root", "root"):
            return None
        try:
            text = self.context.system.read(self._path, status).decode()
        except (OSError, UnicodeDecodeError):
            return None
        if not text:
            return None
        return UnitProperties(
            name=self.properties.name, content=text, verify=False, sensitive=self.properties.sensitive
        )

    # Content

    @property
    def _path(self) -> str:
        return _path(self.properties)

    @property
    def _content(self) -> Content:
        """The desired content. Raises ``ResourceError`` and ``HieraError``."""
        if self._text is None:
            properties = self.properties
            found = None if properties.sections else find_content(properties.as_file(), self.context)
            self._text = found or Bytes(_joined(properties.sections), self.context.system)
        return self._text

    @property
    def _is_secret(self) -> bool:
        return self.properties.sensitive or (self.properties.ensure == "present" and self._content.is_secret)

    # systemd

    @property
    def _is_booted(self) -> bool:
        return self.context.system.is_directory(BOOTED)

    @property
    def _systemd(self) -> Systemd:
        context = self.context
        return Systemd.of(context, lambda: names_of_services(context), SYSTEM)

    def _reload_systemd(self) -> None:
        if self._is_booted:
            self._systemd.reload_if_needed()

    def _reload(self) -> None:
        if self._is_booted:
            self._systemd.read_files()

    # Refusals

    def _raise_predictable_failures(self, actual: UnitState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        kind, path = actual.kind, self._path
        if kind == "symbolic link":
            is_mask = os.path.realpath(path) == os.devnull
            detail = "masks the unit" if is_mask else "is a link to another unit file"
            hint = f"systemctl unmask {self.properties.main}" if is_mask else "remove the link"
            raise ResourceError(
                f"{path} {detail}, and only a file is replaced or removed",
                code=ProblemCode.CHANGE_REFUSED,
                hint=f"if it is not needed: {hint}",
            )
        if kind not in ("absent", "present"):
            raise ResourceError(
                f"{path} is a {kind}, and only a file is replaced or removed", code=ProblemCode.CHANGE_REFUSED
            )
        if self.properties.ensure == "present":
            require_makeable(os.path.dirname(path), self.context.system)

    # Verification

    def _verify(self) -> None:
        """Raise ``ResourceError`` if systemd rejects or ignores a part of the new text.

        1. Find systemd-analyze, and the unit of a drop-in. Without them, nothing can be verified.
        2. In noop, skip a unit whose programs an earlier resource may install.
        3. Write the text to a private directory, with the units that this dry run would write.
        4. Let systemd-analyze verify the unit there. Messages about other files do not count, and neither do messages
           of a drop-in that also appear without it.
        """
        properties, context = self.properties, self.context
        # 1. Find
        program = _find_program()
        text = b"".join(self._content.chunks())
        main = text if not properties.is_drop_in else self._text_of(properties.main)
        if not properties.verify or program is None or main is None:
            return
        # 2. Skip
        if context.noop and any(map(self._may_come, _programs(text))):
            return
        # 3. Write
        with tempfile.TemporaryDirectory(prefix="puller-unit-") as directory:
            planned: dict[str, bytes] = context.shared.get(Unit, {})
            for name, other in {**planned, properties.main: main}.items():
                _put(directory, name, other)
            # 4. Verify
            before = self._messages(program, directory) if properties.is_drop_in else []
            if properties.is_drop_in:
                _put(directory, properties.name, text)
            messages = [line for line in self._messages(program, directory) if line not in before]
        if not messages:
            return
        shown = ". Its messages may be secret" if self._is_secret else ":\n" + "\n".join(messages[:10])
        raise ResourceError(
            f"systemd-analyze verify rejects {properties.name}, so {self._path} stays as it was{shown}",
            hint="correct it, or set verify: false",
        )

    def _messages(self, program: str, directory: str) -> list[str]:
        """Return the messages about the files in a directory, as if they were in the directory of units."""
        unit = f"{directory}/{self.properties.main}"
        options = ["--man=no", "--recursive-errors=no"]
        # The final colon adds systemd's own directories.
        environment = {"LC_ALL": "C.UTF-8", "SYSTEMD_UNIT_PATH": f"{DIRECTORY}:"}
        for _ in range(2):
            command = Command([program, *options, "verify", unit], environment, timeout=_TIME_LIMIT)
            try:
                completed = self.context.system.query(command)
            except OSError as error:
                raise ResourceError(f"{program} cannot be started: {reason(error)}") from error
            if "unrecognized option" not in completed.stderr:
                break
            options.pop()  # systemd before version 250
        if completed.exit_code == 0:
            return []
        if completed.exit_code is None:
            raise ResourceError(f"{program} verify: {completed.outcome}")
        lines = [visible(line) for line in completed.stderr.splitlines()]
        own = [line for line in lines if not line.startswith("/") or line.startswith(f"{directory}/")]
        name = os.path.basename(unit).partition("@")[0]
        if not any(name in line for line in own):  # it failed for a reason outside of the unit
            return []
        return [line.replace(f"{directory}/", f"{DIRECTORY}/") for line in own]

    def _text_of(self, unit: str) -> bytes | None:
        """Return the text of an existing unit file, or of its template. ``None`` without such a file."""
        system, planned = self.context.system, self.context.shared.get(Unit, {})
        template, mark, instance = unit.partition("@")
        names = [unit, f"{template}@.{instance.rpartition('.')[2]}"] if mark else [unit]
        for name in names:
            if name in planned:
                text: bytes = planned[name]
                return text
            for directory in (DIRECTORY, *UNIT_DIRECTORIES):
                path = system.resolve(f"{directory}/{name}")
                status = system.lstat(path)
                if status is not None and stat.S_ISREG(status.st_mode) and system.exists(path):
                    return system.read(path)
        return None

    def _may_come(self, program: str) -> bool:
        """Return whether, in noop, an earlier resource would or may install a missing program."""
        if os.path.exists(program):
            return False
        return self.context.system.exists(program) or self.context.uncertain(program)

    # Loading

    @classmethod
    def check(cls, properties: UnitProperties) -> Iterator[PropertyError]:
        ensure = properties.ensure
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        yield from _check_name(properties.name)
        given = [name for name in _CONTENT if getattr(properties, name) not in (None, {})]
        if ensure == "present" and not given:
            yield missing_property(
                "sections", because=["ensure", *_CONTENT], hint="or give content, source or template"
            )
        if "sections" in given:
            for other in given[1:]:
                yield PropertyError(other, "cannot be given together with sections", because=["sections"])
        if properties.source is not None and is_url(properties.source):
            yield PropertyError(
                "source", f"is {properties.source!r}", expected="a file", hint="use a file resource for a URL"
            )
        if properties.interpolate and properties.template is None:
            yield PropertyError("interpolate", "is only for a template", because=["template"])
        yield from check_content(properties.as_file())
        yield from _check_sections(properties.sections)

    @classmethod
    def agree(cls, first: UnitProperties, second: UnitProperties) -> UnitProperties:
        """Require the same text. ``verify: false`` of one declaration is not a contradiction."""
        rules = {"verify": lambda one, other: one and other}
        return agree(first, second, exact=(*_CONTENT, "engine", "data", "interpolate"), rules=rules)

    @classmethod
    def follows(cls, properties: UnitProperties, declared: Declared) -> Iterator[Reference]:
        """Yield the unit of a drop-in, and the service that a socket, timer or path activates.

        A file is removed after its service has stopped.
        """
        if properties.ensure == "absent":
            services = [service.name for service in declared("service")]
            yield from (
                Reference.to("service", name) for name in services if unit_of(name) == properties.main
            )
            return
        stem, _, kind = properties.main.rpartition(".")
        if properties.is_drop_in:
            yield Reference.to(cls.type_name, properties.main)
        elif kind in ("socket", "timer", "path"):
            yield from (Reference.to(cls.type_name, f"{name}.service") for name in (stem, f"{stem}@"))

    @classmethod
    def claims(cls, properties: UnitProperties) -> Iterator[Claim]:
        use = Use.ABSENT if properties.ensure == "absent" else Use.WHOLE
        yield Claim(_path(properties), use, owner="root", group="root", mode=FileMode.parse("0644"))

    @classmethod
    def places(cls, properties: UnitProperties) -> Iterable[str]:
        return (_path(properties),)


def _path(properties: UnitProperties) -> str:
    return f"{DIRECTORY}/{properties.name}"


def _check_name(name: str) -> Iterator[PropertyError]:
    unit, mark, drop_in = name.partition("/")
    if not mark:
        if not _UNIT.fullmatch(unit) or len(unit) > _LONGEST_NAME - len(".d"):
            kinds = ", ".join(_KINDS)
            expected = f"a unit such as backup.timer (one of {kinds}), or a drop-in such as nginx.service.d/limits.conf"
            yield PropertyError("name", f"is {name!r}", expected=expected)
        return
    of_unit = unit.removesuffix(".d")
    is_unit = of_unit != unit and (of_unit in _KINDS or _UNIT.fullmatch(of_unit))
    if not is_unit or not _DROP_IN.fullmatch(drop_in) or len(drop_in) > _LONGEST_DROP_IN:
        yield PropertyError("name", f"is {name!r}", expected="a drop-in such as nginx.service.d/limits.conf")


def _check_sections(sections: Mapping[str, Mapping[str, Value]]) -> Iterator[PropertyError]:
    for section, settings in sections.items():
        if not _WORD.fullmatch(section):
            yield PropertyError("sections", f"has {section!r}", expected="the name of a section")
            continue
        for key, value in settings.items():
            if not _WORD.fullmatch(key):
                message = f"has {key!r} in [{section}]"
                yield PropertyError("sections", message, place=(section,), expected="the name of a setting")
                continue
            for each in value if isinstance(value, list) else [value]:
                text = _shown(each)
                if not text.replace("\t", " ").isprintable() or text.rstrip().endswith("\\"):
                    message = f"has {key} with {text!r} in [{section}]"
                    expected = "one line, without a backslash at its end"
                    yield PropertyError("sections", message, place=(section, key), expected=expected)


def _joined(sections: Mapping[str, Mapping[str, Value]]) -> bytes:
    """Return the text of a unit file."""
    blocks = []
    for section, settings in sections.items():
        lines = [f"[{section}]"]
        for key, value in settings.items():
            lines += [f"{key}={_shown(each)}" for each in (value if isinstance(value, list) else [value])]
        blocks.append("".join(f"{line}\n" for line in lines))
    return (_HEADER + "\n".join(blocks)).encode()


def _shown(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _programs(text: bytes) -> list[str]:
    """Return the absolute paths of the programs that a unit starts."""
    return _PROGRAM.findall(text.decode(errors="replace"))


def _find_program() -> str | None:
    """Return the path of systemd-analyze. ``None`` if it is not installed."""
    paths = (f"{directory}/systemd-analyze" for directory in SEARCH_PATH.split(":"))
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _put(directory: str, name: str, text: bytes) -> None:
    """Write a file of a unit directory for the verification."""
    path = f"{directory}/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text)
