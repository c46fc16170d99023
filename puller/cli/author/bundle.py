"""The commands of ``puller bundle``: create a bundle, pack it and inspect it.

* Packing and publishing refuse a bundle with errors of lint, since no host can apply it.
* ``puller bundle new --agent`` creates a bundle that installs a version of Puller from its packages. Each system gets
  the package for it. A host without a matching package fails.
* The version of Puller is in the manifest of that bundle, so an earlier version of the bundle is a rollback.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from bundles.archive.pack import SCHEMA_FILE, build_bundle
from bundles.archive.unpack import inspect as inspect_archive
from bundles.errors import BundleError, PublishError
from bundles.filesystem.safe_paths import OutputTree, open_output_directory
from bundles.filesystem.trees import Counted, measure
from bundles.format.fields import parse_name, parse_version
from bundles.progress import watched_by
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from hiera.sops.identities import OPAQUE
from puller.authoring.lint.check import Linted, lint_bundle
from puller.cli.command_table import CommandGroup
from puller.cli.options import output_option, text_format_option
from puller.cli.output import say, warn
from puller.engine.manifest_schema import manifest_schema
from puller.errors import ManifestError, SourceError
from puller.manifest.libraries import files_in, outside_of, unused_libraries
from puller.manifest.manifest import MANIFEST, Inputs, open_source
from puller.reporting.fetching import Fetching

if TYPE_CHECKING:
    from bundles.format.description import BundleDescription


# Errors of lint, found before anything is packed, signed or written.


def refuse_broken(sources: Iterable[Path]) -> None:
    """Raise ``ManifestError`` with all errors that lint finds in these directories and archives.

    The facts and data of this machine are not used. Problems that facts, data and other bundles of hosts could solve
    are not errors. Likely misspellings in references to other bundles cause warnings.
    """
    problems: list[Problem] = []
    undeclared: list[Problem] = []
    for source in sources:
        try:
            for linted in _linted(source):
                problems += linted.errors()
                undeclared += linted.misspelt_references()
        except (ManifestError, SourceError) as error:
            problems += error.problems
    if problems:
        raise ManifestError(problems)
    for problem in undeclared:
        warn(f"{problem}. A host refuses it unless another bundle of the host declares that")


def _linted(source: Path) -> Iterator[Linted]:
    """Yield the result of lint for one source, or nothing for a source that packing or publishing refuses."""
    if not (source / MANIFEST).is_file() and not source.name.endswith(".tar.gz"):
        return  # packing reports other kinds of sources, and missing files

    try:
        with open_source(str(source)) as opened:
            yield lint_bundle(opened, Inputs({}, {}, identities=OPAQUE), of_any_host=True)
    except BundleError:
        return  # publishing reports invalid archives


# ``puller bundle new --agent``.

_DEBIAN = re.compile(r"puller_([0-9.]+)(-[0-9]+\+deb([0-9]+))_([a-z0-9]+)\.deb")
_RED_HAT = re.compile(r"puller-([0-9.]+)(-[0-9]+)\.([a-z0-9_]+)\.rpm")
_BEGINS = {".deb": b"!<arch>\n", ".rpm": b"\xed\xab\xee\xdb"}

_MANIFEST = """\
# yaml-language-server: $schema=.manifest.schema.json
# Puller {number} for every machine that follows the bundle "{name}". The run that installs it ends with the version
# that it began with. The next one is the new version, or the one before it where that does not start.
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
    """Version of Puller: ``1.4.0``."""
    version: str
    """Version of the package: ``1.4.0-1+deb12``."""
    system: str
    """Its machines, in the form of the manifest: ``Debian-12-amd64``."""
    example: str
    """One of these systems, for a test."""

    @classmethod
    def of(cls, path: Path) -> "AgentPackage":
        """Return the package at a path. Raises ``PublishError`` unless its name is that of a package from
        `packaging/build`.
        """
        if match := _DEBIAN.fullmatch(path.name):
            number, revision, release, architecture = match.groups()
            system, example = f"Debian-{release}-{architecture}", f"debian-{release}"
        elif match := _RED_HAT.fullmatch(path.name):
            number, revision, hardware = match.groups()
            system, example = f"RedHat-{hardware}", "rocky-9"
        else:
            expected = "puller_1.4.0-1+deb12_amd64.deb or puller-1.4.0-1.x86_64.rpm"
            raise PublishError(
                str(path),
                f"is not named as a package of Puller is, such as {expected}",
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
                f"is no {path.suffix} package, despite its name",
                code=ProblemCode.UNREADABLE_SOURCE,
            )
        return cls(path, number, f"{number}{revision}", system, example)


def files_of(name: str, paths: Sequence[Path]) -> dict[str, bytes]:
    """Return all files of the bundle, by their paths in it. Raises ``PublishError``."""
    packages = [AgentPackage.of(path) for path in paths]
    number = packages[0].number
    seen: dict[str, AgentPackage] = {}
    for package in packages:
        if package.number != number:
            detail = f"is of Puller {package.number}, and {packages[0].path.name} of {number}"
            raise PublishError(str(package.path), f"{detail}: one bundle brings one version")
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


_EXAMPLE = Path(__file__).with_name("example")


@click.group("bundle", cls=CommandGroup)
def bundle() -> None:
    """Create, build and inspect bundles.

    A bundle is a directory with a `manifest.yaml` and the templates, files and data of this manifest. `build` packs it
    into a canonical tar.gz: the same files always give the same bytes.
    """


@bundle.command("new")
@click.argument("name")
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The directory of the new bundle.  [default: ./NAME]",
)
@click.option(
    "--agent",
    "packages",
    multiple=True,
    metavar="PACKAGE",
    type=click.Path(path_type=Path),
    help="Create a bundle that installs this package of Puller on its hosts. Repeat it for each "
    "operating system.",
)
def new(name: str, directory: Path | None, packages: tuple[Path, ...]) -> None:
    """Create a small, commented example bundle with tests that pass.

    The example manages the directory /opt/NAME-example, which no system uses, so you can apply it to any machine. It
    contains the schema of manifests for your editor. `puller schema manifest` prints the current schema.

    With --agent, the bundle upgrades Puller itself. Each host installs the package for its system, and a health check
    starts the new version.

    \b
    Example:
      puller bundle new web
      puller test web
      puller apply web --noop
      puller bundle new agent --agent puller_1.4.0-1+deb12_amd64.deb --agent puller_1.4.0-1+deb13_amd64.deb
    """
    parse_name(name)
    target = directory or Path(name)
    if packages:
        _write(target, files_of(name, packages))
        say(f"{target}: a bundle that upgrades Puller. Next: puller test {target}")
        return
    _write(target, _example_of(name))
    say(f"{target}: a bundle to start from. Next: puller apply {target} --noop")
    say(f"{target}/tests: the expected result on two kinds of machine. Next: puller test {target}")


@bundle.command("build")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="The name of the bundle.  [default: the name of the directory]")
@click.option(
    "--version", metavar="VERSION", default="0.0.0", show_default=True, help="The version, such as 1.4.0."
)
@output_option("The archive to write.  [default: ./NAME-VERSION.tar.gz]")
def build(directory: Path, name: str | None, version: str, output: Path | None) -> None:
    """Pack DIRECTORY into a bundle file.

    `puller site publish` also packs directories. Build a bundle yourself to inspect it, to compare it, or to apply it
    without a site. Bundles with errors of `puller lint` are rejected.

    Libraries of the manifest are packed as libraries/NAME.

    A bundle contains regular files and directories only. Links and devices are errors. The build skips .git, .hg, .svn,
    __pycache__, *~, .*.swp, .puller-lint.yaml and empty directories. Modes become 0755 for files that their owner may
    execute, and 0644 for all other files. Owners and dates are not stored.

    \b
    Example:
      puller bundle build web --version 1.4.0
      puller apply web-1.4.0.tar.gz --noop
    """
    name = parse_name(name or directory.resolve().name)
    output = output or Path(f"{name}-{parse_version(version)}.tar.gz")
    libraries = libraries_of(directory)
    refuse_broken([directory])
    with watched_by(Fetching()):
        built = build_bundle(directory, output, name=name, version=version, libraries=libraries)
    say(
        f"{built.path}: {counted(len(built.description.files), 'file')}, {built.size} bytes, sha256 {built.sha256}"
    )


def libraries_of(directory: Path) -> Mapping[str, Path]:
    """Return the libraries to pack with a directory, and warn about unused ones. Raises ``ManifestError``."""
    path = directory / MANIFEST
    if not path.is_file():
        return {}  # packing reports the missing manifest

    files = files_in(directory)
    for warning in unused_libraries(files, str(path)):
        warn(str(warning))
    return outside_of(files)


@bundle.command("inspect")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@text_format_option
def inspect(file: Path, output_format: str) -> None:
    """Check a bundle file and list its contents.

    This command runs all checks of a host before unpacking, except those of signatures, and reports the same errors. It
    writes no files.

    \b
    Example:
      puller bundle inspect web-1.4.0.tar.gz
      puller bundle inspect web-1.4.0.tar.gz --format json | jq -r .sha256
    """
    description = inspect_archive(file)
    listing = _as_json if output_format == "json" else _as_text
    say(listing(description, measure(file)))


def _example_of(name: str) -> dict[str, bytes]:
    """Return the files of the example, by their paths in it."""
    sources = sorted(path for path in _EXAMPLE.rglob("*") if path.is_file())
    return {
        str(source.relative_to(_EXAMPLE)): source.read_text().replace("@name@", name).encode()
        for source in sources
    }


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a new bundle, with the schema of manifests. Raises ``PublishError``."""
    try:
        with open_output_directory(target, make=True) as directory:
            if os.listdir(directory):
                raise PublishError(
                    str(target), "exists already and is not empty", code=ProblemCode.UNWRITABLE_OUTPUT
                )
        tree = OutputTree(target)
        schema = json.dumps(manifest_schema(), ensure_ascii=False).encode()
        for name, content in {**files, SCHEMA_FILE: schema}.items():
            tree.write(name, [content])
        tree.close()
    except OSError as error:
        raise PublishError(
            str(target), f"cannot be written: {error.strerror}", code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error


def _as_json(description: "BundleDescription", archive: Counted) -> str:
    files = {
        path.text: {"mode": entry.mode.value, "sha256": entry.sha256, "size": entry.size}
        for path, entry in description.files.items()
    }
    document = {
        "name": description.name,
        "version": description.version,
        "sha256": archive.sha256,
        "size": archive.size,
        "libraries": description.libraries(),
        "files": files,
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _as_text(description: "BundleDescription", archive: Counted) -> str:
    head = [
        f"name     {description.name}",
        f"version  {description.version}",
        f"sha256   {archive.sha256}",
        f"size     {archive.size} bytes, {description.size} unpacked, {counted(len(description.files), 'file')}",
        *(f"library  {name}, sha256 {digest}" for name, digest in description.libraries().items()),
        "",
    ]
    width = len(str(max(entry.size for entry in description.files.values())))
    files = [
        f"{entry.mode.value}  {entry.size:{width}}  {entry.sha256[:12]}  {path}"
        for path, entry in description.files.items()
    ]
    return "\n".join(head + files)
