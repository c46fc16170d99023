"""The ``kernel_module`` resource: a kernel module, now and at boot (``docs/resources/kernel_module.md``).

* Two small files hold the configuration, one for modules-load.d(5) and one for modprobe.d(5). A file that also
  configures another module is never replaced or removed.
* Other files count as well. A module that another file blocks is not loaded at boot.
* A loaded module stays loaded. New options take effect when it is loaded again.
* When a module is no longer declared, its files are removed. A loaded module stays until the next boot.
"""

import os
import re
import stat
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context, Properties, PropertyError, Resource
from puller.resources.claims import Claim, Use
from puller.resources.content_sources import sha256, short
from puller.resources.kernel import module_files
from puller.resources.kernel.module_files import (
    CONFIGURED,
    LOADED_AT_BOOT,
    Line,
    Modules,
    lines_of,
    normalized,
)
from puller.resources.paths import attribute_differences
from puller.system.commands import SEARCH_PATH, Command
from puller.system.local_paths import Spellings
from puller.system.protocol import Attributes, System
from puller.values.file_mode import FileMode

_TIMEOUT = 120.0  # seconds; a driver may search for devices
_TOOL = "/usr/sbin/modprobe"


def load(name: str, system: System) -> None:
    """Load a module with its dependencies. Raises ``ResourceError``."""
    _run(system, "--", name)


def unload(name: str, system: System) -> None:
    """Unload a module, and dependencies that become unused. Raises ``ResourceError``."""
    _run(system, "-r", "--", name)


def require_modprobe(context: Context) -> None:
    """Raise ``ResourceError`` if modprobe is missing and, in noop, no earlier resource may install it."""
    is_there = any(os.access(f"{directory}/modprobe", os.X_OK) for directory in SEARCH_PATH.split(":"))
    if not is_there and not (context.noop and context.uncertain(_TOOL)):
        raise ResourceError(
            "modprobe is not installed", code=ProblemCode.MISSING_DEPENDENCY, hint="it is in the package kmod"
        )


def _run(system: System, *arguments: str) -> None:
    completed = system.execute(Command(["modprobe", *arguments], {"LC_ALL": "C.UTF-8"}, timeout=_TIMEOUT))
    if completed.exit_code != 0:
        printed = completed.tail()
        detail = f"modprobe {' '.join(arguments)}: {completed.outcome}"
        raise ResourceError(detail + (f"; it printed:\n{printed}" if printed else ""))


_ENSURE = ("present", "loaded", "absent", "blacklisted")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,54}")  # the kernel's limit is 55 characters
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_HEADER = "# Written by Puller.\n"
_TRUE, _FALSE = ("y", "1", "on", "yes", "true"), ("n", "0", "off", "no", "false")


class KernelModuleProperties(Properties, frozen=True):
    """The properties of a kernel module. ``-`` and ``_`` in the name are equal."""

    options: dict[str, str | int] | tuple[str, ...] = ()
    """Parameters of the module: a mapping, or a list of ``key=value``."""


class ModuleFile(msgspec.Struct, frozen=True):
    """A file of a module: its ``lstat``, ``None`` if it is missing, and its content."""

    path: str
    found: os.stat_result | None
    content: bytes = b""


class ModuleState(msgspec.Struct, frozen=True):
    """The files of a module, and whether it is loaded. ``None``: unknown, because ``/proc/modules`` is missing."""

    at_boot: ModuleFile
    configured: ModuleFile
    is_loaded: bool | None


class KernelModule(Resource[KernelModuleProperties, ModuleState]):
    """A kernel module."""

    type_name = "kernel_module"
    properties_type = KernelModuleProperties
    unused = dict.fromkeys(("absent", "blacklisted"), frozenset({"options"}))
    providers = ("modprobe",)

    def look(self) -> ModuleState:
        loaded = self._modules.loaded
        is_loaded = None if loaded is None else self._name in loaded or self._name in self._modules.built_in
        at_boot, configured = _paths_of(self.properties.name)
        return ModuleState(self._file(at_boot), self._file(configured), is_loaded)

    def differences(self, actual: ModuleState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        self._raise_predictable_failures(actual)
        return [*self._of_files(actual), *self._of_kernel(actual)]

    def change(self, differences: Sequence[Difference], actual: ModuleState) -> None:
        """Write the files and load or unload the module (``docs/resources/kernel_module.md``).

        1. Refuse impossible changes.
        2. Write or remove its files, options first.
        3. Load or unload it. If it is in use, unloading fails after the files have changed.
        """
        # 1. Refuse
        self._refuse_to_write(differences, actual)
        # 2. Files
        named = {difference.path or difference.property for difference in differences}
        for file, content in reversed(self._desired_files(actual)):
            if file.path in named:
                self._write(file, content)
        # 3. Load or unload
        if "module" in named and self.properties.ensure == "loaded":
            load(self.properties.name, self.context.system)
        elif "module" in named:
            self._refuse_in_use()
            unload(self.properties.name, self.context.system)

    def noop_message(self, differences: Sequence[Difference], actual: ModuleState) -> str:
        self._refuse_to_write(differences, actual)
        named, done = {difference.path or difference.property for difference in differences}, []
        for file, content in self._desired_files(actual):
            if file.path in named:
                self.context.system.expect(file.path, "absent" if content is None else "file")
                done.append(f"{'removed' if content is None else 'written'} {file.path}")
        if "module" in named and self.properties.ensure == "loaded":
            done.append("loaded the module")
        elif "module" in named:
            self._refuse_in_use()
            done.append("unloaded the module")
        return f"Would have {', would have '.join(done)}"

    def final_ensure(self, actual: ModuleState) -> str:
        commands = {line.command for line in self._lines() if line.command != "install" or line.is_never}
        if "blacklist" in commands and "install" in commands:
            return "blacklisted"
        if actual.is_loaded and self.properties.ensure != "present":
            return "loaded"
        return "present" if "load" in commands else "absent"

    def is_there(self, actual: ModuleState) -> bool:
        return actual.at_boot.found is not None or actual.configured.found is not None

    def describe(self, actual: ModuleState) -> dict[str, Any]:
        files = [file.path for file in (actual.at_boot, actual.configured) if file.found is not None]
        return {"ensure": self.final_ensure(actual), "loaded": actual.is_loaded, "files": files}

    def changed_paths(self, actual: ModuleState) -> Iterable[str] | None:
        # Restoring the files would not load or unload the module.
        return None if [*self._of_kernel(actual)] else _paths_of(self.properties.name)

    @property
    def notes(self) -> Sequence[str]:
        notes = [*self._not_in_force()] if self.properties.ensure in ("present", "loaded") else []
        if self.properties.ensure == "blacklisted" and (line := self._elsewhere("load")):
            notes.append(f"{line.path} names it to be loaded at boot, which it is kept from")
        return notes

    # Desired state

    @property
    def _name(self) -> str:
        return normalized(self.properties.name)

    def _desired_files(self, actual: ModuleState) -> list[tuple[ModuleFile, bytes | None]]:
        """Return the files with their desired contents, ``None`` for files that should be absent."""
        ensure, options = self.properties.ensure, _as_texts(self.properties.options)
        at_boot, configured = "", ""
        if ensure == "blacklisted" and (
            actual.configured.found is not None or not self._is_kept_out_elsewhere()
        ):
            configured = f"blacklist {self._name}\ninstall {self._name} /bin/false\n"
        elif ensure in ("present", "loaded"):
            at_boot = f"{self._name}\n"
            configured = f"options {self._name} {' '.join(options)}\n" if options else ""
        texts = ((actual.at_boot, at_boot), (actual.configured, configured))
        return [(file, f"{_HEADER}{text}".encode() if text else None) for file, text in texts]

    def _of_files(self, actual: ModuleState) -> Iterator[Difference]:
        for file, content in self._desired_files(actual):
            is_there = "absent" if file.found is None else "present"
            if (file.found is None) is not (content is None):
                yield presence(is_there, "present" if content is not None else ABSENT, file.path)
            elif file.found is not None and content is not None:
                if file.content != content:
                    yield _content_difference(file, content)
                yield from attribute_differences(file.found, _attributes(), "root", "root", file.path)

    def _of_kernel(self, actual: ModuleState) -> Iterator[Difference]:
        ensure = self.properties.ensure
        if ensure == "loaded" and not actual.is_loaded:
            yield changed("module", "not loaded", "loaded")
        elif ensure in ("absent", "blacklisted") and actual.is_loaded:
            yield changed("module", "loaded", "not loaded")

    # Current state

    @property
    def _modules(self) -> Modules:
        return Modules.of(self.context)

    def _file(self, path: str) -> ModuleFile:
        system = self.context.system
        status = system.lstat(path)
        if status is None:
            return ModuleFile(path, None)
        if not stat.S_ISREG(status.st_mode):
            raise ResourceError(
                f"{path} is not a regular file", code=ProblemCode.CHANGE_REFUSED, hint="remove it first"
            )
        return ModuleFile(path, status, system.read(path, status))

    def _lines(self) -> list[Line]:
        """Return the lines about the module. In noop, ignore files that the run would have removed."""
        lines, exists = self._modules.lines(self._name), self.context.system.exists
        return [line for line in lines if exists(line.path)] if self.context.noop else lines

    def _elsewhere(self, command: str, *, never: bool = False) -> Line | None:
        """Return a line in a file that does not belong to this resource."""
        own = _paths_of(self.properties.name)
        lines = (line for line in self._lines() if line.command == command and line.path not in own)
        return next((line for line in lines if line.is_never or not never), None)

    def _is_kept_out_elsewhere(self) -> bool:
        return None not in (self._elsewhere("blacklist"), self._elsewhere("install", never=True))

    def _not_in_force(self) -> Iterator[str]:
        """Yield a note for each option that a loaded module does not have."""
        if self._name not in (self._modules.loaded or {}):
            return
        for option in _as_texts(self.properties.options):
            key, _, desired = option.partition("=")
            actual = self._modules.parameter(self._name, normalized(key))
            if actual is not None and not _same_value(actual, desired.strip('"')):
                yield f"{key} is {actual} now; {desired} takes effect when the module is loaded again"

    # Refusals

    def _raise_predictable_failures(self, actual: ModuleState) -> None:
        """Raise ``ResourceError`` if no change can reach the desired state, even if the files are in sync."""
        ensure, name = self.properties.ensure, self.properties.name
        if ensure in ("absent", "blacklisted"):
            if self._name in self._modules.built_in:
                raise ResourceError(
                    f"{name} is built into the kernel, so nothing keeps it out",
                    code=ProblemCode.CHANGE_REFUSED,
                )
            if ensure == "absent" and (line := self._elsewhere("load")):
                raise ResourceError(
                    f"{line.path} loads {name} at boot",
                    code=ProblemCode.CHANGE_REFUSED,
                    hint="take it out there",
                )
            return
        if line := self._elsewhere("blacklist") or self._elsewhere("install", never=True):
            raise ResourceError(
                f"{line.path} keeps {name} out ({line.command})",
                code=ProblemCode.CHANGE_REFUSED,
                hint="take it out there",
            )
        if ensure == "loaded" and actual.is_loaded is None:
            raise ResourceError(
                "the kernel does not report loaded modules (no /proc/modules, as in a container)"
            )
        if not actual.is_loaded and actual.is_loaded is not None:
            self._require_available()

    def _require_available(self) -> None:
        """Raise ``ResourceError`` if the running kernel lacks the module and no earlier resource may install it."""
        available, release = self._modules.available, os.uname().release
        if self.context.uncertain(f"{module_files.ROOT}/lib/modules/{release}"):
            return
        if available is None and self.properties.ensure == "loaded":
            raise ResourceError(f"no modules of the running kernel, {release}, are installed")
        if available is not None and self._name not in available:
            raise ResourceError(f"no module {self.properties.name} for the running kernel, {release}")

    def _refuse_to_write(self, differences: Sequence[Difference], actual: ModuleState) -> None:
        """Raise ``ResourceError`` if a file configures other modules, or if modprobe is missing."""
        for file in (actual.at_boot, actual.configured):
            others = {line.module for line in lines_of(file.path)} - {self._name} if file.found else ()
            if others:
                detail = f"says something of {', '.join(sorted(others))}"
                raise ResourceError(
                    f"{file.path} {detail}, so it is not replaced or removed",
                    code=ProblemCode.CHANGE_REFUSED,
                    hint="put that elsewhere",
                )
        if "module" in {difference.property for difference in differences}:
            require_modprobe(self.context)

    def _refuse_in_use(self) -> None:
        result = (self._modules.loaded or {}).get(self._name)
        if result is not None and result.is_in_use:
            raise ResourceError(
                f"{self.properties.name} is {result.by}, so it cannot be unloaded",
                code=ProblemCode.CHANGE_REFUSED,
            )

    def _write(self, file: ModuleFile, content: bytes | None) -> None:
        system, directory = self.context.system, os.path.dirname(file.path)
        if content is None and file.found is not None:
            system.remove(file.path, file.found)
        elif content is not None:
            if not system.is_directory(directory):
                system.make_directory(directory, msgspec.structs.replace(_attributes(), mode=0o755))
            system.replace_file(file.path, [content], _attributes(), file.found)
        self._modules.read_again(file.path)

    # Loading

    @classmethod
    def check(cls, properties: KernelModuleProperties) -> Iterator[PropertyError]:
        ensure = properties.ensure
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected=f"one of {', '.join(_ENSURE)}")
        if not _NAME.fullmatch(properties.name):
            expected = "expected at most 55 letters, digits, '_' and '-', the first no '-'"
            yield PropertyError("name", f"is {properties.name!r}, {expected}")
        for option in _as_texts(properties.options):
            key, mark, value = option.partition("=")
            text = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
            if not _KEY.fullmatch(key) or (mark and not text) or not _is_plain(text, is_quoted=text != value):
                yield PropertyError(
                    "options", f"has {option!r}", expected="key=value without quotes and backslashes"
                )

    @classmethod
    def places(cls, properties: KernelModuleProperties) -> Sequence[str]:
        return _paths_of(properties.name)

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        del spellings
        return normalized(properties.name)

    @classmethod
    def claims(cls, properties: KernelModuleProperties) -> Iterator[Claim]:
        at_boot, configured = _paths_of(properties.name)
        ensure, is_loaded = properties.ensure, properties.ensure in ("present", "loaded")
        is_configured = ensure == "blacklisted" or (is_loaded and bool(properties.options))
        for path, is_written in ((at_boot, is_loaded), (configured, is_configured)):
            use = Use.WHOLE if is_written else Use.ABSENT
            yield Claim(path, use, owner="root", group="root", mode=FileMode.parse("0644"))


def _paths_of(name: str) -> tuple[str, str]:
    """Return the modules-load.d file and the modprobe.d file of a module."""
    root, file = module_files.ROOT, f"{normalized(name)}.conf"
    return f"{root}{LOADED_AT_BOOT}/{file}", f"{root}{CONFIGURED}/{file}"


def _content_difference(file: ModuleFile, expected: bytes) -> Difference:
    current, desired = (short(sha256([content])) for content in (file.content, expected))
    return changed("content", current, desired, file.path)


def _attributes() -> Attributes:
    return Attributes(os.geteuid(), os.getegid(), 0o644)


def _as_texts(options: Mapping[str, str | int] | Sequence[str]) -> list[str]:
    """Return the options as written in modprobe.d."""
    if not isinstance(options, Mapping):
        return [*options]
    return [f'{key}="{value}"' if " " in str(value) else f"{key}={value}" for key, value in options.items()]


def _is_plain(value: str, *, is_quoted: bool) -> bool:
    """Return whether modprobe passes the value on unchanged."""
    return value.isprintable() and not set(value) & {'"', "\\", "'"} and (is_quoted or " " not in value)


def _same_value(first: str, other: str) -> bool:
    """Return whether two values of a parameter are equal. Boolean values have several spellings."""
    pair = {first.lower(), other.lower()}
    return len(pair) == 1 or pair <= {*_TRUE} or pair <= {*_FALSE}


class LeftoverKernelModule(KernelModule):
    """A module whose files Puller wrote, to be ``absent``."""

    def _of_kernel(self, actual: ModuleState) -> Iterator[Difference]:
        yield from ()  # another component may need the module, such as the disk

    def _raise_predictable_failures(self, actual: ModuleState) -> None:
        """Accept lines in other files, because the module is no longer declared."""

    @property
    def notes(self) -> Sequence[str]:
        return ()
