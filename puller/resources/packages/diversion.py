"""The ``diversion`` resource: another place for a file of a package (``docs/resources/diversion.md``).

* ``dpkg-divert`` reports and changes the diversions. Only Debian and its derivatives have it.
* A file that Puller created is never moved as the package's file.
* A diversion is removed only while its place is free, or the diverted file is missing. Otherwise one of the two files
  would be lost. Resources at the path therefore come after a diversion, and before its removal.
* dpkg-divert moves the file before it writes its database. An interrupted run leaves a state from which the same
  command continues.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from foundation.differences import Difference, changed, presence
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource
from puller.resources.claims import Claim, Use, agree
from puller.resources.paths import check_managed, check_path, require_parent
from puller.resources.tool import Tool

_ENSURE = ("present", "absent")
_LOCAL = "LOCAL"
_SUFFIX = ".distrib"
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_DIVERT = Tool("dpkg-divert")


class DiversionProperties(Properties, frozen=True):
    """The properties of a diversion. The name is the path of the package's file."""

    to: str | None = None
    """The new place of the package's file, by default the path with ``.distrib``."""
    package: str | None = None
    """The package whose own file stays at the path. Unset: the files of all packages are diverted."""
    rename: bool = True
    """Whether an existing file of a package is moved there, and moved back by the removal."""

    @property
    def target(self) -> str:
        """The new place of the package's file."""
        return self.to or f"{self.name}{_SUFFIX}"


class DiversionState(msgspec.Struct, frozen=True):
    """A diversion. Without ``to``, the path is not diverted."""

    to: str = ""
    package: str = ""
    """Empty for a local diversion."""


class Diversion(Resource[DiversionProperties, DiversionState]):
    """Another place for a file of a package."""

    type_name = "diversion"
    properties_type = DiversionProperties
    providers = ("dpkg",)
    unused = {"absent": frozenset({"to", "package"})}  # noqa: RUF012  ClassVar in the base class
    removable = True

    def look(self) -> DiversionState:
        """Return the diversion of the path. Raises ``ResourceError``."""
        path = self.properties.name
        if _DIVERT.find() is None:
            return DiversionState()
        system = self.context.system
        if not (package := _DIVERT.query(system, "--listpackage", path).removesuffix("\n")):
            return DiversionState()
        to = _DIVERT.query(system, "--truename", path).removesuffix("\n")
        return DiversionState(to, "" if package == _LOCAL else package)

    def differences(self, actual: DiversionState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties, ensure = self.properties, "present" if actual.to else "absent"
        if ensure != properties.ensure:
            return [presence(ensure, properties.ensure)]
        if not actual.to:
            return ()
        differences = []
        if actual.to != properties.target:
            differences.append(changed("to", actual.to, properties.target))
        if actual.package != (properties.package or ""):
            differences.append(changed("package", actual.package or "none", properties.package or "none"))
        return differences

    def change(self, differences: Sequence[Difference], actual: DiversionState) -> None:
        """Add, replace or remove the diversion. Raises ``OSError`` and ``ResourceError``."""
        del differences
        self._raise_predictable_failures(actual)
        properties, system = self.properties, self.context.system
        options = ["--quiet", self._renaming]
        if actual.to:
            _DIVERT.execute(system, *options, "--remove", properties.name)
        if properties.ensure == "present":
            options += ["--local"] if properties.package is None else ["--package", properties.package]
            _DIVERT.execute(system, *options, "--divert", properties.target, "--add", properties.name)

    def noop_message(self, differences: Sequence[Difference], actual: DiversionState) -> str:
        del differences
        self._raise_predictable_failures(actual)
        properties, system = self.properties, self.context.system
        name, is_moved = properties.name, self._renaming == "--rename"
        if properties.ensure == "absent":
            if is_moved and system.exists(actual.to):
                system.expect(name, "file")
                system.expect(actual.to, "absent")
            return f"Would have removed the diversion of {name}"
        if is_moved and not actual.to and system.exists(name):
            system.expect_content(name, None)
            system.expect(name, "absent")
            system.expect(properties.target, "file")
        return f"Would have diverted {name} to {properties.target}"

    @property
    def _renaming(self) -> str:
        """The option that moves the file, unless Puller has created the file at the path."""
        properties = self.properties
        is_own = properties.ensure == "present" and self.context.is_created_at(properties.name)
        return "--rename" if properties.rename and not is_own else "--no-rename"

    def final_ensure(self, actual: DiversionState) -> str:
        return "present" if actual.to else "absent"

    def changed_paths(self, actual: DiversionState) -> None:
        """Return ``None``: a copy of a file would not move it, and would leave the diversion."""
        del actual

    def touched(self, actual: DiversionState) -> Iterable[str]:
        return (self.properties.name, *(path for path in (actual.to, self.properties.target) if path))

    def way_back(self, actual: DiversionState) -> DiversionProperties | None:
        if not actual.to:
            return None
        return DiversionProperties(name=self.properties.name, to=actual.to, package=actual.package or None)

    # Refusals

    def _raise_predictable_failures(self, actual: DiversionState) -> None:
        """Raise the errors that ``change`` would raise, so that noop predicts them."""
        properties, context, name = self.properties, self.context, self.properties.name
        if _DIVERT.find() is None:
            raise ResourceError(
                "dpkg-divert is not installed: only Debian and its derivatives have diversions",
                code=ProblemCode.CHANGE_REFUSED,
                hint="set control: if for other distributions",
            )
        if actual.to and actual.package and actual.package != (properties.package or ""):
            raise ResourceError(
                f"{name} is diverted by the package {actual.package}",
                code=ProblemCode.CHANGE_REFUSED,
                hint="remove that package, or divert another path",
            )
        status = context.system.lstat(name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise ResourceError(
                f"{name} is a directory, and only files are diverted", code=ProblemCode.CHANGE_REFUSED
            )
        if actual.to and properties.rename:
            self._refuse_two_files(name, actual.to, "removing its diversion")
        if properties.ensure == "absent":
            return
        require_parent(properties.target, context)
        if self._renaming == "--rename" and not actual.to:
            self._refuse_two_files(name, properties.target, "diverting it")

    def _refuse_two_files(self, path: str, other: str, action: str) -> None:
        """Raise ``ResourceError`` if moving a file would overwrite the other one."""
        system = self.context.system
        if not (system.exists(path) or os.path.islink(path)) or not system.exists(other):
            return
        first, second = system.lstat(path), system.lstat(other)
        if first is not None and second is not None and os.path.samestat(first, second):
            return
        raise ResourceError(
            f"{path} and {other} both exist, and {action} would overwrite one of them",
            code=ProblemCode.CHANGE_REFUSED,
            hint=f"remove {path} or {other} first",
        )

    # Loading

    @classmethod
    def check(cls, properties: DiversionProperties) -> Iterator[PropertyError]:
        if properties.ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
        yield from check_managed(properties.name)
        if properties.to is not None:
            yield from check_path("to", properties.to)
        for name, path in (("name", properties.name), ("to", properties.to or "/")):
            if not path.isprintable():  # the database of dpkg has one path on each line
                yield PropertyError(name, f"is {path!r}", expected="a path on one line")
        if properties.target == properties.name:
            yield PropertyError("to", f"is {properties.to!r}, the path itself", expected="another path")
        if properties.package is not None and not _PACKAGE.fullmatch(properties.package):
            yield PropertyError("package", f"is {properties.package!r}", expected="the name of a package")

    @classmethod
    def agree(cls, first: DiversionProperties, second: DiversionProperties) -> DiversionProperties:
        return agree(first, second, exact=("to", "package", "rename"))

    @classmethod
    def covers(cls, properties: DiversionProperties) -> Iterable[str]:
        """Return the path, so that a file there is written after the package's file was moved."""
        return (properties.name,) if properties.ensure == "present" else ()

    @classmethod
    def needs(cls, properties: DiversionProperties) -> Iterable[str]:
        """Return the path for a removal, so that a file there is removed before the package's file moves back."""
        return (properties.name,) if properties.ensure == "absent" else ()

    @classmethod
    def claims(cls, properties: DiversionProperties) -> Iterator[Claim]:
        """Keep the package's file. Other resources write the path itself."""
        if properties.ensure == "present":
            yield Claim(properties.target, Use.KEPT)

    @classmethod
    def subjects(cls, properties: DiversionProperties) -> Iterable[str]:
        return (properties.name, properties.target)

    @classmethod
    def places(cls, properties: DiversionProperties) -> Iterable[str]:
        """Return the new place. A removal waits until no resource declares the path."""
        return (properties.target,) if properties.ensure == "present" else (properties.name,)
