"""``puller bundle new --agent``: a bundle that brings a version of Puller to hosts, from its packages.

* Each system gets the package that was built for it; a host for which there is none fails, and is not passed over.
* The version is in the manifest, so that an earlier version of the bundle is the way back.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bundles.errors import PublishError
from foundation.problems import ProblemCode

_DEBIAN = re.compile(r"puller_([0-9.]+)(-[0-9]+\+deb([0-9]+))_([a-z0-9]+)\.deb")
_RED_HAT = re.compile(r"puller-([0-9.]+)(-[0-9]+)\.([a-z0-9_]+)\.rpm")
_BEGINS = {".deb": b"!<arch>\n", ".rpm": b"\xed\xab\xee\xdb"}

_MANIFEST = """\
# yaml-language-server: $schema=.manifest.schema.json
# Puller {number} for every machine that follows the bundle "{name}". The run that installs it ends with the version
# that it began with; the next one is the new version, or the one before it where that does not start.
#
#   puller test {name}                what machines of each system get
#   puller site publish SITE {name} --version {number} --over 24h
#
# For the next version, replace the packages, the versions and `number`, and publish it with a version of its own; or
# begin anew: puller bundle new {name} --agent PACKAGE …

data:
  number: "{number}"

hierarchy:                            # a machine of another system has no `source`, and fails
  order:
    - "{{{{ facts.os.name }}}}-{{{{ facts.os.release.major }}}}-{{{{ facts.os.architecture }}}}"
    - "{{{{ facts.os.family }}}}-{{{{ facts.os.hardware }}}}"

overrides:
{overrides}
resources:
  - package:
      - puller:
          ensure: "{{{{ data.version }}}}"
          source: "{{{{ data.source }}}}"
          health_checks:              # they decide whether a version of this bundle stays, or the one before comes back
            - name: the new version starts
              command: >-
                sh -c 'test "$(/usr/bin/puller --version)" = "puller, version {{{{ data.number }}}}" || exit 2'
              timeout: 3m
"""
_SYSTEM = '  {system}: {{version: "{version}", source: "files/{name}"}}\n'
_CASE = """\
os: {system}
expect:
  package#puller: {{ensure: "{version}", source: "{source}"}}
"""


class AgentPackage(msgspec.Struct, frozen=True):
    """A package of Puller, by its name."""

    path: Path
    number: str
    """Of Puller: ``1.4.0``."""
    version: str
    """Of the package: ``1.4.0-1+deb12``."""
    system: str
    """Which machines it is for, as the manifest writes it: ``Debian-12-amd64``."""
    example: str
    """A known system that is one of those, for a test."""

    @classmethod
    def of(cls, path: Path) -> "AgentPackage":
        """Raises ``PublishError`` for anything but a package as `packaging/build` names it."""
        if found := _DEBIAN.fullmatch(path.name):
            number, revision, release, architecture = found.groups()
            system, example = f"Debian-{release}-{architecture}", f"debian-{release}"
        elif found := _RED_HAT.fullmatch(path.name):
            number, revision, hardware = found.groups()
            system, example = f"RedHat-{hardware}", "rocky-9"
        else:
            wanted = "puller_1.4.0-1+deb12_amd64.deb or puller-1.4.0-1.x86_64.rpm"
            raise PublishError(
                str(path),
                f"is not named as a package of Puller is, such as {wanted}",
                code=ProblemCode.UNREADABLE_SOURCE,
            )
        try:
            with path.open("rb") as file:
                begins = file.read(8)
        except OSError as error:
            raise PublishError(
                str(path), f"cannot be read: {error.strerror}", code=ProblemCode.UNREADABLE_SOURCE
            ) from error
        if not begins.startswith(_BEGINS[path.suffix]):
            raise PublishError(
                str(path),
                f"is no {path.suffix} package, whatever its name says",
                code=ProblemCode.UNREADABLE_SOURCE,
            )
        return cls(path, number, f"{number}{revision}", system, example)


def files_of(name: str, paths: Sequence[Path]) -> dict[str, bytes]:
    """All files of the bundle, by their paths in it; raises ``PublishError``."""
    packages = [AgentPackage.of(path) for path in paths]
    number = packages[0].number
    seen: dict[str, AgentPackage] = {}
    for package in packages:
        if package.number != number:
            what = f"is of Puller {package.number}, and {packages[0].path.name} of {number}"
            raise PublishError(str(package.path), f"{what}: one bundle brings one version")
        if (other := seen.setdefault(package.system, package)) is not package:
            raise PublishError(str(package.path), f"is for the same machines as {other.path}")
    packages.sort(key=lambda package: package.system)
    overrides = "".join(
        _SYSTEM.format(system=one.system, version=one.version, name=one.path.name) for one in packages
    )
    files = {"manifest.yaml": _MANIFEST.format(name=name, number=number, overrides=overrides).encode()}
    for one in packages:
        source = f"files/{one.path.name}"
        case = _CASE.format(system=one.example, version=one.version, source=source)
        files[f"tests/{one.system.lower()}.yaml"] = case.encode()
        try:
            files[source] = one.path.read_bytes()
        except OSError as error:
            raise PublishError(
                str(one.path), f"cannot be read: {error.strerror}", code=ProblemCode.UNREADABLE_SOURCE
            ) from error
    return files
