"""The ``timezone`` resource: the time zone of the machine (``docs/resources/timezone.md``).

* The link ``/etc/localtime`` decides. It is replaced in one step.
* ``/etc/timezone`` is written only if it exists: Debian up to 12 has it, and other systems do not read it.
* A zone is a file of ``/usr/share/zoneinfo`` with the format of tzfile(5). A missing zone changes nothing.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from foundation.differences import Difference, changed
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Declared, Properties, PropertyError
from puller.resources.claims import Claim, Use
from puller.resources.host.single import SingleValue
from puller.resources.paths import PathState
from puller.resources.read_once import EditedFile
from puller.system.local_paths import refuse_mounted
from puller.values.common_properties import Reference

ETC = "/etc"
ZONES = "/usr/share/zoneinfo"

_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_MAGIC = b"TZif"
_NO_ZONES = ("posix", "right", "posixrules", "localtime")
"""Names in the directory that are copies of zones, count leap seconds, or mean the current zone."""


class TimezoneState(msgspec.Struct, frozen=True):
    """The current zone. Empty: unset or unknown."""

    link: os.stat_result | None
    zone: str
    """The zone of ``/etc/localtime``, or its target outside of the known zones."""
    text: str | None
    """The zone in ``/etc/timezone``. ``None``: there is no such file."""


class Timezone(SingleValue[Properties, TimezoneState]):
    """The time zone of the machine. The name is the zone."""

    type_name = "timezone"
    properties_type = Properties
    providers = ("zoneinfo",)

    def look(self) -> TimezoneState:
        status, system = self.context.system.lstat(self._localtime), self.context.system
        result, content, _ = self._text_file.plan(system, lambda text: text)
        text = None if result is None else content.decode("utf-8", "replace").strip()
        if status is None or not stat.S_ISLNK(status.st_mode):
            return TimezoneState(status, "", text)
        return TimezoneState(status, _zone_of(os.readlink(self._localtime)), text)

    def differences(self, actual: TimezoneState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        name = self.properties.name
        differences = []
        if actual.zone != name:
            differences.append(changed("zone", actual.zone or _kind_of(actual), name))
        if actual.text is not None and actual.text != name:
            differences.append(changed("zone", actual.text or "empty", name, self._text_file.path))
        return differences

    def change(self, differences: Sequence[Difference], actual: TimezoneState) -> None:
        """Set the zone.

        1. Refuse a missing zone, and a directory in the place of the link.
        2. Replace the link, which programs read.
        3. Write the name of the zone, if the file exists.
        """
        del differences
        # 1. Refuse
        self._raise_predictable_failures(actual)
        # 2. Link
        name, system = self.properties.name, self.context.system
        if actual.zone != name:
            system.make_link(self._localtime, f"{ZONES}/{name}", actual.link, None)
        # 3. File
        if actual.text is not None:
            self._text_file.write(system, lambda text: f"{name}\n")

    def noop_message(self, differences: Sequence[Difference], actual: TimezoneState) -> str:
        del differences
        self._raise_predictable_failures(actual)
        name = self.properties.name
        if actual.zone != name:
            self.context.system.expect_link(self._localtime, f"{ZONES}/{name}")
            return f"Would have changed the time zone from {actual.zone or 'none'} to {name}"
        return f"Would have written {name} to {self._text_file.path}"

    def _raise_predictable_failures(self, actual: TimezoneState) -> None:
        name, path = self.properties.name, f"{ZONES}/{self.properties.name}"
        if (kind := PathState(actual.link).kind) == "directory":
            raise ResourceError(
                f"{self._localtime} is a {kind}", code=ProblemCode.CHANGE_REFUSED, expected="a link or a file"
            )
        refuse_mounted(self._localtime, "replaced")
        if not self._is_zone(path) and not self.context.uncertain(path):
            raise ResourceError(
                f"unknown time zone {name}: {path} is not a zone",
                code=ProblemCode.CHANGE_REFUSED,
                hint="install tzdata, on Debian 13 also tzdata-legacy for old names",
            )

    def _is_zone(self, path: str) -> bool:
        system = self.context.system
        if not system.exists(path) or system.is_directory(path):
            return False
        return next(iter(system.read_chunks(system.resolve(path))), b"").startswith(_MAGIC)

    def describe(self, actual: TimezoneState) -> dict[str, Any]:
        return {"ensure": self.properties.ensure, "zone": actual.zone}

    @property
    def _localtime(self) -> str:
        return f"{ETC}/localtime"

    @property
    def _text_file(self) -> EditedFile[str]:
        return EditedFile.of(self.context, f"{ETC}/timezone", str)

    def changed_paths(self, actual: TimezoneState) -> Iterable[str]:
        return [self._localtime, *([] if actual.text is None else [self._text_file.real])]

    # Loading

    @classmethod
    def follows(cls, properties: Properties, declared: Declared) -> Iterator[Reference]:
        del properties, declared
        yield Reference.to("package", "tzdata")

    @classmethod
    def places(cls, properties: Properties) -> Iterable[str]:
        del properties
        return (f"{ETC}/localtime", f"{ETC}/timezone")

    @classmethod
    def claims(cls, properties: Properties) -> Iterator[Claim]:
        del properties
        yield Claim(f"{ETC}/localtime", Use.LINK)
        yield Claim(f"{ETC}/timezone", Use.KEPT)

    @classmethod
    def check(cls, properties: Properties) -> Iterator[PropertyError]:
        if properties.ensure != "present":
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present")
        if not _ZONE.fullmatch(properties.name) or properties.name.split("/")[0] in _NO_ZONES:
            yield PropertyError("name", f"is {properties.name!r}", expected="a zone such as 'Europe/Berlin'")


def _kind_of(actual: TimezoneState) -> str:
    kind = PathState(actual.link).kind
    return "a file" if kind == "present" else kind


def _zone_of(target: str) -> str:
    """Return the zone of a link's target, which may be relative. Other targets are returned as they are."""
    path = os.path.normpath(os.path.join(ETC, target))
    return path.removeprefix(f"{ZONES}/")
