"""``puller bundle``: begin a bundle, pack it, look into one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.archive.pack import SCHEMA_FILE, build_bundle
from bundles.archive.unpack import inspect as inspect_archive
from bundles.errors import PublishError
from bundles.filesystem.output import OutputTree, open_output_directory
from bundles.filesystem.trees import measure
from bundles.format.identity import parse_name, parse_version
from bundles.progress import watched_by
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.cli.author.new_agent import files_of
from puller.cli.author.refusal import refuse_broken
from puller.cli.options import text_format_option
from puller.cli.output import say, warn
from puller.engine.schema import manifest_schema
from puller.manifest.libraries import files_in, outside_of, unused_libraries
from puller.manifest.source import MANIFEST
from puller.reporting.fetching import Fetching

if TYPE_CHECKING:
    from bundles.filesystem.trees import Counted
    from bundles.format.description import BundleDescription

_EXAMPLE = Path(__file__).with_name("example")


@click.group("bundle")
def bundle() -> None:
    """Begin a bundle, pack it, look into one.

    A bundle is a directory with a manifest.yaml at its root, and the templates, files and data that the manifest
    uses. Packed, it is a tar.gz of which every byte follows from the files: who packs the same files gets the same
    bytes.
    """


@bundle.command("new")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to write it.  [default: NAME in this directory]",
)
@click.option(
    "--agent",
    "packages",
    multiple=True,
    metavar="PACKAGE",
    type=click.Path(path_type=Path),
    help="Write a bundle that brings this package of Puller to its hosts; once for each system.",
)
def new(name: str, directory: Path | None, packages: tuple[Path, ...]) -> None:
    """Write a small, commented example to start from, with tests that pass.

    It manages a directory that no system uses, /opt/NAME-example, so it can be tried on any machine. Beside it is the
    schema of manifests, against which editors check it; `puller schema manifest` prints the one of this Puller.

    With --agent it is no example: the bundle upgrades Puller itself, each host by the package for its system, with a
    health check that starts the new version.

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
        say(f"{target}: a bundle that upgrades Puller; try: puller test {target}")
        return
    _write(target, _example_of(name))
    say(f"{target}: a bundle to start from; try: puller apply {target} --noop")
    say(f"{target}/tests: what it must come to on two kinds of machine; try: puller test {target}")


@bundle.command("build")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", help="What the bundle is called.  [default: the name of the directory]")
@click.option("--version", default="0.0.0", show_default=True, help="Its version, such as 1.4.0.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive to write.  [default: NAME-VERSION.tar.gz in this directory]",
)
def build(directory: Path, name: str | None, version: str, output: Path | None) -> None:
    """Pack DIRECTORY into a bundle.

    `puller site publish` does this by itself; a bundle built here can be looked at, compared, and applied without a
    site. What `puller lint` calls an error on any host is refused.

    What the manifest names under libraries is packed as libraries/NAME.

    Regular files and directories only: a link or a device is an error that names it. Left out are .git, .hg, .svn,
    __pycache__, *~, .*.swp, .puller-lint.yaml, and empty directories. Modes become 0755 for files that their owner may
    execute, 0644 for others; owners and dates are not kept.

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
    """The libraries that are packed with a directory; warns of those that nothing uses. Raises ``ManifestError``."""
    path = directory / MANIFEST
    if not path.is_file():
        return {}  # packing says what is missing

    files = files_in(directory)
    for warning in unused_libraries(files, str(path)):
        warn(str(warning))
    return outside_of(files)


@bundle.command("inspect")
@click.argument("file", type=click.Path(path_type=Path))
@text_format_option
def inspect(file: Path, output_format: str) -> None:
    """Check the bundle FILE and list what is in it.

    Checks all that a host checks before it unpacks a bundle, except signatures, and writes nothing. A bundle that
    a host would refuse is refused here, with the same sentence.

    \b
    Example:
      puller bundle inspect web-1.4.0.tar.gz
      puller bundle inspect web-1.4.0.tar.gz --format json | jq -r .sha256
    """
    description = inspect_archive(file)
    listing = _as_json if output_format == "json" else _as_text
    say(listing(description, measure(file)))


def _example_of(name: str) -> dict[str, bytes]:
    """The files of the example, by their paths in it."""
    sources = sorted(path for path in _EXAMPLE.rglob("*") if path.is_file())
    return {
        str(source.relative_to(_EXAMPLE)): source.read_text().replace("@name@", name).encode()
        for source in sources
    }


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a new bundle, with the schema of manifests; raises ``PublishError``."""
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


def _as_json(description: "BundleDescription", archive: "Counted") -> str:
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


def _as_text(description: "BundleDescription", archive: "Counted") -> str:
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
