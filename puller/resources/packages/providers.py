"""The package managers, one row each, their orders of versions, and canonical package names.

To add a package manager, write one module like ``dnf.py``, with a ``Manager`` and a ``Layout`` of ``manager.py``, and
add its row here.

* A version is ``[epoch:]version[-release]``. Debian calls the release a revision. Epochs compare first, as numbers.
* Parts compare run by run, digits as numbers of any length. ``~`` sorts before the end of a part in both orders.
* If a request omits the epoch or the release, the comparison ignores it.
* ``hello`` and ``hello:amd64`` are the same package on an amd64 machine.

Sources: deb-version(7), rpm-version(7). The tests compare both orders with the real tools.
"""

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from puller.errors import ResourceError
from puller.resources.base import Context


class Provider(NamedTuple):
    """A package manager. Classes are ``MODULE:CLASS``, so that other modules are not imported."""

    family: str
    """The fact ``os.family`` of its machines."""
    suffix: str
    """The end of the names of its package files."""
    manager: str
    layout: str
    lacks: tuple[str, ...] = ()
    """Unsupported properties of repositories."""


PROVIDERS = {
    "apt": Provider(
        family="Debian",
        suffix=".deb",
        manager="puller.resources.packages.apt:Apt",
        layout="puller.resources.packages.apt:AptLayout",
    ),
    "dnf": Provider(
        family="RedHat",
        suffix=".rpm",
        manager="puller.resources.packages.dnf:Dnf",
        layout="puller.resources.packages.dnf:DnfLayout",
        lacks=("suites", "components", "architectures", "allow_release_info_change"),
    ),
}


def provider_of(forced: str | None, context: Context) -> str:
    """Return the forced provider, or this machine's. Raises ``ResourceError`` for an unknown family."""
    if forced:
        return forced
    family: Any = context.scope.lookup("facts.os.family", None)
    for name, provider in PROVIDERS.items():
        if provider.family == family:
            return name
    known = " or ".join(f"{provider.family} ({name})" for name, provider in PROVIDERS.items())
    raise ResourceError(f"the fact os.family is {family!r}", expected=f"{known}, or a provider named")


def suffix_of_family(family: Any) -> str:
    """Return the suffix of package files on machines of a family. Empty for an unknown family."""
    return next((provider.suffix for provider in PROVIDERS.values() if provider.family == family), "")


def load_class(place: str) -> Any:
    """Return the class of ``MODULE:CLASS``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


# Package versions in the orders of dpkg and rpm.

Key = tuple[Any, ...]


class Version(NamedTuple):
    """A parsed version. Missing parts are ``None``."""

    epoch: str | None
    version: str
    release: str | None


def parse_version(text: str) -> Version:
    """Parse any text. The epoch ends at the first colon, and the release begins after the last hyphen."""
    epoch, colon, remainder = text.partition(":")
    if not colon or not (epoch.isascii() and epoch.isdecimal()):
        epoch, remainder = "", text
    version, hyphen, release = remainder.rpartition("-")
    return Version(epoch or None, version, release) if hyphen else Version(epoch or None, remainder, None)


class Order:
    """The order of dpkg or rpm: how parts compare, and the default for a missing release."""

    def __init__(self, part: Callable[[str], Key], missing_release: str | None) -> None:
        self._part = part
        self._missing_release = missing_release

    def key(self, text: str) -> Key:
        """Return the sort key of a version."""
        return self._key(parse_version(text))

    def compare(self, first: str, second: str) -> int:
        """Return -1, 0 or 1 if the first version is older, equal or newer."""
        return _compared(self.key(first), self.key(second))

    def compare_to_request(self, installed: str, request: str) -> int:
        """Compare only the parts of ``installed`` that ``request`` also has."""
        desired, version = parse_version(request), parse_version(installed)
        if desired.epoch is None:
            version = version._replace(epoch=None)
        if desired.release is None:
            version = version._replace(release=None)
        return _compared(self._key(version), self._key(desired))

    def _key(self, version: Version) -> Key:
        release = self._missing_release if version.release is None else version.release
        # rpm sorts a missing release before all others.
        return (
            _number(version.epoch or "0"),
            self._part(version.version),
            release is not None,
            self._part(release or ""),
        )


def _compared(first: Key, second: Key) -> int:
    return (first > second) - (first < second)


def _number(digits: str) -> tuple[int, str]:
    """Return a key that sorts digits as a number. ``int`` rejects more than 4,300 digits."""
    significant = digits.lstrip("0")
    return len(significant), significant


# dpkg: runs of non-digits and digits alternate. In text ``~`` sorts before the end, the end before letters, and letters
# before all other characters. The last run is always empty and marks the end of the part.

_DPKG_RUN = re.compile(r"([^0-9]*)([0-9]*)")


def _dpkg_part(text: str) -> Key:
    return tuple(
        ((*map(_dpkg_character, letters), 0), _number(digits)) for letters, digits in _DPKG_RUN.findall(text)
    )


def _dpkg_character(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


# rpm: runs of letters and runs of digits. Other characters only separate runs. The order is ``~``, the end, ``^``,
# letters, digits.

_RPM_RUN = re.compile(r"~|\^|[A-Za-z]+|[0-9]+")
_RPM_MARKS: dict[str, Key] = {"~": (-1,), "^": (1,)}
_RPM_END: Key = (0,)


def _rpm_part(text: str) -> Key:
    return (*map(_rpm_run, _RPM_RUN.findall(text)), _RPM_END)


def _rpm_run(run: str) -> Key:
    if run in _RPM_MARKS:
        return _RPM_MARKS[run]
    return (3, _number(run)) if (run.isascii() and run.isdecimal()) else (2, run)


DPKG = Order(_dpkg_part, missing_release="0")
RPM = Order(_rpm_part, missing_release=None)


# Canonical package names.

_ANY_OF_THIS_MACHINE = ("all", "any", "native", "noarch")


def canonical_name(name: str, facts: Mapping[str, Any]) -> str:
    """Return a name without the machine's own architecture.

    dpkg separates the architecture by a colon, rpm by a dot. Facts are read only for names with an architecture.
    """
    package, colon, architecture = name.partition(":")
    if colon:
        return package if architecture in (*_ANY_OF_THIS_MACHINE, _architecture(facts)) else name
    package, dot, architecture = name.rpartition(".")
    if dot and architecture in ("noarch", "x86_64", "aarch64") and _suffix(facts) == ".rpm":
        return package if architecture in ("noarch", _architecture(facts)) else name
    return name


def _system(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    system = facts.get("os")
    return system if isinstance(system, Mapping) else {}


def _architecture(facts: Mapping[str, Any]) -> str:
    """Return the architecture as the package manager of the machine writes it."""
    architecture = str(_system(facts).get("architecture") or _native())
    return {"aarch64": "arm64"}.get(architecture, architecture) if _suffix(facts) == ".deb" else architecture


def _suffix(facts: Mapping[str, Any]) -> str:
    return suffix_of_family(_system(facts).get("family") or "Debian")


def _native() -> str:
    machine = os.uname().machine
    return {"x86_64": "amd64"}.get(machine, machine)
