"""The files that a bundle names: each path of a manifest, its place, and the possible files.

A path with expressions may match several files. A path that is only an expression may be any file.
"""

import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hiera.errors import HieraError
from hiera.expressions.expressions import parse
from puller.authoring.lint.names.bundle import Bundle, ManifestFile
from puller.authoring.lint.names.expression_names import constants_of, parse_text
from puller.bundle_paths import BundleFiles
from puller.errors import PullerError, ResourceError
from puller.manifest.entries import Entry
from puller.resources.registry import find_type
from puller.resources.scaffolds.scaffold_tree import read_source
from puller.system.local import LocalSystem
from puller.templates.engine_choice import ENGINES, choose_engine, named_engine

ELSEWHERE: Final = ("/", "http://", "https://")
"""Prefixes of paths outside the bundle."""


class NamedFile(msgspec.Struct, frozen=True):
    """One path as it is written in a manifest."""

    manifest: ManifestFile
    entry: Entry | None
    """The resource with the path. ``None`` for ``resources_template``."""
    key: str
    """The property, or ``resources_template``."""
    written: str
    path: tuple[str | int, ...]
    """Place in the manifest."""
    meant: tuple[str, ...]
    """The real paths of existing files or directories that match."""
    is_open: bool
    """Whether only an expression determines the file."""

    @property
    def is_constant(self) -> bool:
        """Whether it contains no expression."""
        return "{{" not in self.written


class TemplateUse(msgspec.Struct, frozen=True):
    """One template, and its context."""

    path: str
    """The real path of its file."""
    engine: str
    files: BundleFiles
    """The base of its paths."""
    delimiters: tuple[str, str] = ("", "")
    tree: str = ""
    """The scaffold directory that contains it."""


def named_files(bundle: Bundle) -> Iterator[NamedFile]:
    """Yield all file paths in the manifests of a bundle, except paths of child manifests."""
    for manifest in bundle.manifests.values():
        for entry in manifest.resources:
            yield from _of_entry(entry, manifest, bundle)
        written = manifest.run.get("resources_template")
        if isinstance(written, str):
            path = (*manifest.run_path, "resources_template")
            yield _named(written, path, "resources_template", None, manifest, bundle)


def _of_entry(entry: Entry, manifest: ManifestFile, bundle: Bundle) -> Iterator[NamedFile]:
    try:
        found = find_type(entry.type_name)
    except PullerError:  # a type of another distribution that cannot be used here
        return
    if found is None or entry.properties.get("ensure") == "absent":
        return
    for name in sorted(found.relative_paths):
        written = entry.properties.get(name)
        if isinstance(written, str) and written and "\n" not in written and not written.startswith(ELSEWHERE):
            yield _named(written, (*entry.path, name), name, entry, manifest, bundle)


def _named(
    written: str,
    path: tuple[str | int, ...],
    name: str,
    entry: Entry | None,
    manifest: ManifestFile,
    bundle: Bundle,
) -> NamedFile:
    is_directory = entry is not None and (
        entry.type_name == "scaffold" or entry.properties.get("ensure") == "directory"
    )
    meant = tuple(bundle.meant_by(written, manifest.files, directories=is_directory))
    return NamedFile(manifest, entry, name, written, path, meant, _is_open(written))


def _is_open(written: str) -> bool:
    try:
        pieces = parse(written)
    except HieraError:
        return True
    if not any(not isinstance(piece, str) for piece in pieces):
        return False
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return not any(text.strip("/") for text in texts) and not constants_of(parse_text(written))


def template_uses(named: NamedFile) -> Iterator[TemplateUse]:
    """Yield the templates of a path: itself, or the files of a scaffold."""
    properties: dict[str, Any] = named.entry.properties if named.entry else {}
    files, engine = named.manifest.files, properties.get("engine")
    if named.key == "source":
        if named.entry is not None and named.entry.type_name == "scaffold":
            for directory in named.meant:
                yield from _of_scaffold(directory, properties, files)
    elif named.key in ("template", "resources_template"):
        for path in named.meant:
            if chosen := _engine(path, engine, "jinja"):
                yield TemplateUse(path, chosen, files.within(path))


def _of_scaffold(directory: str, properties: dict[str, Any], files: BundleFiles) -> Iterator[TemplateUse]:
    delimiters = str(properties.get("left_delimiter") or ""), str(properties.get("right_delimiter") or "")
    engine = properties.get("engine")
    if isinstance(engine, str) and "{{" in engine:
        engine = os.path.basename(
            directory
        )  # with a directory for each engine, the directory has the engine's name
    chosen = _engine(directory, engine, "jet")
    if chosen is None or any("{{" in one and "}}" in one for one in delimiters):
        return
    try:
        source = read_source(directory, directory, LocalSystem(), ())
    except ResourceError:  # reported where the source is checked
        return
    for path in sorted(source.templates):
        yield TemplateUse(f"{directory}/{path}", chosen, files.within(directory), delimiters, directory)


def _engine(path: str, engine: Any, otherwise: str) -> str | None:
    """Return the engine that renders a file, or ``None`` for an engine from an expression or an invalid engine."""
    if engine is not None and engine not in ENGINES:
        return None
    try:
        return choose_engine(path, engine, otherwise)
    except ValueError:
        return named_engine(path)
