"""The ``sysctl`` resource: a kernel parameter, now and at the next boot (``docs/resources/sysctl.md``).

* The running kernel is changed first. A value that it rejects is never written for the next boot.
* All parameters of a file are written together. A rejected value does not block the others.
* ``sysctl(8)`` is not used. It exits with 0 when the kernel rejects a value, and ``-p`` applies unrelated lines.
* When a parameter is no longer declared, its line is removed and the running value stays.
* A ``minimum`` never lowers a value, neither now nor at boot. It writes a line only if the value would be lower
  without it.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, added, changed, presence, secret, unified
from foundation.masking import VALUE_MASK
from puller.errors import ResourceError, reason
from puller.resources.base import Declared, Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Contradiction, EditedPlace, Use, agree
from puller.resources.kernel.sysctl_files import (
    BootFiles,
    Edit,
    edited,
    find_place,
    module_of,
    normalized,
    parse,
    path_of,
    problem_of_key,
    remember,
    same_words,
    set_before,
    spellings,
    why_missing,
    why_not_writable,
)
from puller.resources.paths import check_path
from puller.resources.read_once import EditedFile
from puller.system.local_paths import Spellings
from puller.values.common_properties import Reference

DEFAULT_PATH = "/etc/sysctl.d/90-puller.conf"
_ENSURE = ("present", "absent")


class SysctlProperties(Properties, frozen=True):
    """The properties of a kernel parameter. The name is the key, with dots or slashes."""

    value: str | int | None = None
    """The value: a number, or words separated by blanks."""
    minimum: int | None = None
    """The lowest accepted number, instead of ``value``. A higher number stays, now and at boot."""
    path: str = DEFAULT_PATH
    """The file that sets the parameter at boot."""


class SysctlState(msgspec.Struct, frozen=True):
    """The value in the kernel and the value in the file. ``None``: missing."""

    running: str | None
    kept: str | None


class Sysctl(Resource[SysctlProperties, SysctlState]):
    """A kernel parameter."""

    type_name = "sysctl"
    properties_type = SysctlProperties
    unused = {"absent": frozenset({"value", "minimum"})}  # noqa: RUF012  ClassVar in the base class
    secret_properties = frozenset({"value"})
    removable = True

    def look(self) -> SysctlState:
        return SysctlState(self._running(), self._file.current(self.context).get(self._key))

    def differences(self, actual: SysctlState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        if self.properties.ensure == "absent":
            return [] if actual.kept is None else [presence("present", ABSENT)]
        differences, running, kept = [], self._running_target(actual), self._kept_target(actual)
        if not same_words(actual.running, running):
            differences.append(self._value_difference(actual.running, running))
        if kept is not None and not same_words(actual.kept, kept):
            differences.append(self._value_difference(actual.kept, kept, self._file.path))
        return differences

    def _value_difference(self, current: str | None, target: str, path: str = "") -> Difference:
        if self.properties.sensitive:
            return secret("value", path)
        desired = self._shown(target)
        if current is None:
            return added("value", desired, path)
        return changed("value", self._shown(current), desired, path)

    def change(self, differences: Sequence[Difference], actual: SysctlState) -> None:
        """Change only this parameter. Raises ``OSError`` and ``ResourceError``."""
        del differences
        for failure in self.change_together([(self, actual)]).values():
            raise failure

    @classmethod
    def change_together(cls, members: "Sequence[tuple[Sysctl, SysctlState]]") -> Mapping[int, Exception]:
        """Change all parameters of one file.

        1. Set the parameters that differ in the kernel, in the order of the run. Rejected values fail.
        2. Write the file, without the lines of failed parameters.
        """
        # 1. The kernel
        failed: dict[int, Exception] = {}
        for place, (resource, actual) in enumerate(members):
            try:
                resource._set(actual)
            except (OSError, ResourceError) as error:
                failed[place] = error
        # 2. The file
        cls._write([member for place, member in enumerate(members) if place not in failed])
        return failed

    @classmethod
    def _write(cls, members: "Sequence[tuple[Sysctl, SysctlState]]") -> None:
        files: dict[str, list[tuple[Sysctl, SysctlState]]] = {}
        for resource, actual in members:  # the line to remove may be in another file than declared
            files.setdefault(resource._file.path, []).append((resource, actual))
        for of_one in files.values():
            edits = [resource._edit(actual) for resource, actual in of_one]
            first, _ = of_one[0]
            first._file.write(first.context.system, partial(edited, edits=edits))
            first._remember([resource for resource, _ in of_one])

    def noop_message(self, differences: Sequence[Difference], actual: SysctlState) -> str:
        self._raise_predictable_failures(actual)
        key, path = self.properties.name, self._file.path
        if self.properties.ensure == "absent":
            self._note_removed()
            return f"Would have removed {key} from {path}"
        running, kept, words = self._running_target(actual), self._kept_target(actual), []
        if not same_words(actual.running, running):
            result = "" if actual.running is None else f" from {self._shown(actual.running)}"
            words.append(f"changed {key}{result} to {self._shown(running)}")
        if kept is not None and not same_words(actual.kept, kept):
            words.append(f"set {key} to {self._shown(kept)} in {path}")
        return f"Would have {', would have '.join(words)}"

    @property
    def notes(self) -> Sequence[str]:
        boot, path = BootFiles.of(self.context), self._file.path
        set_last = boot.last(self._key)
        others = set_last and set_last[0] not in (path, self._file.real)
        if self.properties.ensure == "absent":
            removed = self._key in self.context.shared.get(Sysctl, ())
            notes = ["the running value stays until the next boot"] if removed else []
            if others and set_last:
                notes.append(f"{set_last[0]} sets it to {self._shown(set_last[1])} at boot")
            return notes
        if others and set_last and not same_words(set_last[1], self._target(set_last[1])):
            return [f"{set_last[0]} sets it to {self._shown(set_last[1])} at boot, whatever {path} says"]
        if self.properties.minimum is not None and self._key not in self._file.current(self.context):
            return []  # the file needs no line
        if not boot.reads(path) and not boot.reads(self._file.real) and not self.context.noop:
            return [f"{path} is not read at boot"]
        return []

    def final_ensure(self, actual: SysctlState) -> str:
        return "absent" if actual.kept is None else "present"

    @classmethod
    def subjects(cls, properties: SysctlProperties) -> Iterable[str]:
        """Return the file, and all kernel parameters together, because one can change another."""
        return (*cls.places(properties), cls.type_name)

    # The edit of the file, for the end of a trial

    @classmethod
    def edited_file(cls, properties: SysctlProperties) -> str:
        return properties.path

    def edited_place(self, actual: SysctlState) -> EditedPlace:
        del actual
        file = self._file
        result, content, _ = file.plan(self.context.system, lambda text: text)
        return EditedPlace(file.path, file.real, None if result is None else content)

    @classmethod
    def edited_content(cls, properties: SysctlProperties, content: bytes | None) -> bytes | None:
        text = (content or b"").decode("utf-8", "surrogateescape")
        current = parse(text).get(normalized(properties.name))
        value = None if properties.ensure == "absent" else _target(properties, current)
        if value is not None and same_words(current, value):
            return None
        after = edited(text, [Edit(properties.name, value)])
        return None if after == text else after.encode("utf-8", "surrogateescape")

    @classmethod
    def finds_part(cls, properties: SysctlProperties, content: bytes) -> bool:
        return normalized(properties.name) in parse(content.decode("utf-8", "surrogateescape"))

    def changed_paths(self, actual: SysctlState) -> Iterable[str]:
        paths = [self._file.real]
        if self.properties.ensure == "present" and not same_words(
            actual.running, self._running_target(actual)
        ):
            paths += [] if actual.running is None else [path_of(self._key)]
        return paths

    def diff(self, actual: SysctlState) -> str | None:
        return self.diff_together([(self, actual)])

    @classmethod
    def diff_together(cls, members: "Sequence[tuple[Sysctl, SysctlState]]") -> str | None:
        file, system = members[0][0]._file, members[0][0].context.system
        edits = [resource._edit(actual) for resource, actual in members if not resource._why_not(actual)]
        _, before, after = file.plan(system, partial(edited, edits=edits))
        return unified(before, after, file.path) if before != after else None

    # Current state

    def _running(self) -> str | None:
        path = path_of(self._key)
        try:
            return self.context.system.read(path).decode("utf-8", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if self.properties.ensure == "absent":  # its value does not matter
                return None
            if isinstance(error, PermissionError):
                raise ResourceError(
                    f"{path} cannot be read. It may trigger an action and hold no value"
                ) from None
            raise

    @property
    def _file(self) -> EditedFile[dict[str, str]]:
        return EditedFile.of(self.context, self.properties.path, parse)

    # Desired state

    @property
    def _key(self) -> str:
        return normalized(self.properties.name)

    def _target(self, current: str | None) -> str:
        """Return the desired value in a place that has the ``current`` one."""
        return _target(self.properties, current)

    def _running_target(self, actual: SysctlState) -> str:
        running, minimum = actual.running, self.properties.minimum
        if minimum is not None and running is not None and _number(running) is None:
            shown = self._shown(running)
            raise ResourceError(f"the kernel has {shown!r}, expected one number to compare with the minimum")
        return self._target(running)

    def _kept_target(self, actual: SysctlState) -> str | None:
        """Return the desired value in the file. ``None``: the file needs no line.

        With a minimum, the line is a lower bound for the value that the other files set at boot. Without a value in
        any file, a kernel that starts with a higher value needs no line, which would lower it.
        """
        minimum = self.properties.minimum
        if minimum is None:
            return self._target(actual.kept)
        set_by_others = BootFiles.of(self.context).others(self._key, (self._file.path, self._file.real))
        other = None if set_by_others is None else _number(set_by_others)
        if actual.kept is not None:
            lower_bound = str(max(minimum, minimum if other is None else other))
            kept = _number(actual.kept)
            return lower_bound if kept is None or kept < int(lower_bound) else actual.kept
        if other is not None:
            return None if other >= minimum else str(minimum)
        running = None if actual.running is None else _number(actual.running)
        return None if running is not None and running > minimum else str(minimum)

    def _edit(self, actual: SysctlState) -> Edit:
        is_absent = self.properties.ensure == "absent"
        return Edit(self.properties.name, None if is_absent else self._kept_target(actual))

    def _shown(self, value: str) -> str:
        return VALUE_MASK if self.properties.sensitive else " ".join(value.split())

    # Changes

    def _set(self, actual: SysctlState) -> None:
        """Set the value in the kernel, then verify it."""
        if self.properties.ensure == "absent":
            self._note_removed()
            return
        desired, path = self._running_target(actual), path_of(self._key)
        if same_words(actual.running, desired):
            return
        if why := self._why_not(actual):
            raise ResourceError(why)
        try:
            self.context.system.write_kernel(path, desired.encode() + b"\n")
        except OSError as error:
            text = f"the kernel refuses {self._shown(desired)}: {reason(error)}"
            raise ResourceError(f"{text}. It stays {self._shown(actual.running or '')}") from None
        if not same_words(result := self._running(), desired):
            raise ResourceError(f"the kernel made {self._shown(result or '')} of {self._shown(desired)}")

    def _why_not(self, actual: SysctlState) -> str:
        """Return why the kernel cannot accept the value, empty if it may."""
        if self.properties.ensure == "absent" or same_words(actual.running, self._running_target(actual)):
            return ""
        path = path_of(self._key)
        if actual.running is None:
            return f"{path}: {why_missing(self._key)}"
        why = why_not_writable(path)
        return f"{path} {why}" if why else ""

    def _raise_predictable_failures(self, actual: SysctlState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        if actual.running is None and self._may_come():
            return
        if why := self._why_not(actual):
            raise ResourceError(why)

    def _may_come(self) -> bool:
        """Return whether, in noop, an earlier resource may create the key, such as by loading its module."""
        context = self.context
        modules = {name.replace("-", "_") for name in context.declared("kernel_module")}
        return context.noop and (context.uncertain(path_of(self._key)) or module_of(self._key) in modules)

    def _note_removed(self) -> None:
        self.context.shared.setdefault(Sysctl, set()).add(self._key)

    def _remember(self, resources: "Sequence[Sysctl]") -> None:
        """Record lines outside the default file. A parameter that is no longer declared has only its key."""
        retained = {
            each._key: each.properties.path for each in resources if each.properties.ensure == "present"
        }
        others = {key: path for key, path in retained.items() if path != DEFAULT_PATH}
        if others and self.context.state_directory is not None:
            remember(others, self.context)

    # Loading

    @classmethod
    def whole(cls, properties: Any) -> Hashable | None:
        return (cls.type_name, properties.path)

    @classmethod
    def follows(cls, properties: SysctlProperties, declared: Declared) -> Iterator[Reference]:
        del declared
        key = normalized(properties.name)
        if module := module_of(key):
            yield Reference.to("kernel_module", module)
        for other in set_before(key):
            yield from (Reference.to(cls.type_name, name) for name in spellings(other))

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        del spellings
        return normalized(properties.name)

    @classmethod
    def agree(cls, first: SysctlProperties, second: SysctlProperties) -> SysctlProperties:
        """Compare values word by word, because the kernel treats blanks and tabs alike. The highest minimum counts.

        A value that is at least the minimum of another declaration satisfies both. Raises ``Contradiction``.
        """
        agreed = agree(first, second, rules={"value": _one_value, "minimum": _highest})
        value, minimum = agreed.value, agreed.minimum
        if value is None or minimum is None:
            return agreed
        number = _number(str(value))
        if number is None or number < minimum:
            raise Contradiction([("minimum", first.minimum, second.minimum)])
        return msgspec.structs.replace(agreed, minimum=None)

    @classmethod
    def claims(cls, properties: SysctlProperties) -> Iterator[Claim]:
        key, minimum = normalized(properties.name), properties.minimum

        def rejects(line: str) -> bool:
            values = (other for name, other in parse(line).items() if name == key)
            return any(not same_words(other, _target(properties, other)) for other in values)

        if properties.ensure == "absent":
            yield Claim(properties.path, Use.REMOVED_PART, editor=cls.type_name)
        elif minimum is not None:  # the file may need no line
            yield Claim(properties.path, Use.PART, editor=cls.type_name, rejects=rejects)
        else:
            line = f"{properties.name} = {properties.value}"
            yield Claim(
                properties.path, Use.PART, editor=cls.type_name, lines=lambda: (line,), rejects=rejects
            )

    @classmethod
    def check(cls, properties: SysctlProperties) -> Iterator[PropertyError]:
        ensure, value = properties.ensure, properties.value
        if problem := problem_of_key(properties.name):
            yield PropertyError("name", f"is {properties.name!r}, {problem}")
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        yield from check_path("path", properties.path)
        if value is None and properties.minimum is None and ensure == "present":
            yield missing_property("value", because=["ensure", "minimum"], hint="or give minimum")
        if value is not None and properties.minimum is not None:
            yield PropertyError("minimum", "cannot be given together with value", because=["value"])
        if (
            isinstance(value, str)
            and not value.isprintable()
            and value.replace("\t", "").isprintable() is False
        ):
            yield PropertyError("value", f"is {value!r}", expected="words in one line")

    @classmethod
    def places(cls, properties: SysctlProperties) -> Iterable[str]:
        return (properties.path,)

    @classmethod
    def is_whole(cls, properties: SysctlProperties) -> bool:
        del properties
        return False


def _number(value: str) -> int | None:
    """Return a value as a number, ``None`` for anything but one decimal number."""
    try:
        return int(value) if value.isascii() and "_" not in value else None
    except ValueError:
        return None


def _target(properties: SysctlProperties, current: str | None) -> str:
    if properties.minimum is None:
        return str(properties.value).strip()
    number = None if current is None else _number(current)
    is_enough = current is not None and number is not None and number >= properties.minimum
    return current if is_enough and current is not None else str(properties.minimum)


def _highest(first: Any, other: Any) -> Any:
    return max(minimum for minimum in (first, other) if minimum is not None)


def _one_value(first: Any, other: Any) -> Any:
    if first is None or other is None:
        return other if first is None else first
    if str(first).split() != str(other).split():
        raise ValueError(f"{first!r} is not {other!r}")
    return first


class LeftoverSysctl(Sysctl):
    """A parameter that Puller wrote, to be ``absent``."""

    @property
    def _file(self) -> EditedFile[dict[str, str]]:
        known = find_place(normalized(self.properties.name), self.context)
        return EditedFile.of(self.context, known or self.properties.path, parse)

    @classmethod
    def claims(cls, properties: SysctlProperties) -> Iterator[Claim]:
        del properties
        return iter(())

    @classmethod
    def places(cls, properties: SysctlProperties) -> Iterable[str]:
        del properties
        return ()  # it owns no file, so other lines in the file stay
