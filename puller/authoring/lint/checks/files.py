"""Files that a manifest names but the bundle lacks, unused files and libraries, and files that cannot be packed.

* ``missing-file``: a source, template or scaffold directory that is missing or of another kind, or a path with
  expressions that matches no file of the bundle.
* ``resource-fails``: a missing path from an expression, with the available facts.
* ``unused-file``: a file that no path, template or level can reach. This check is skipped if an expression alone
  determines a path.
* ``unpackable-file``: a link, device or similar file. ``puller bundle build`` rejects the bundle.

A path with expressions may match several files. A path that is only an expression may be any file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from bundles.archive.pack import is_left_out
from bundles.filesystem.trees import kind_of, walk, walk_directories
from foundation.problems import Location, Problem, ProblemCode
from foundation.suggestions import nearest
from hiera.errors import HieraError
from hiera.expressions.expressions import parse
from puller.authoring.lint.bundle import Bundle, ManifestFile, bundle_of
from puller.authoring.lint.expression_names import constants_of, parse_text, tree_files
from puller.authoring.lint.findings import (
    UNPACKABLE,
    Finding,
    Subject,
    finding,
    of_resource,
    read_text,
)
from puller.bundle_paths import BundleFiles
from puller.errors import PullerError, ResourceError
from puller.manifest.entries import Entry
from puller.manifest.libraries import LIBRARY, unused_libraries
from puller.manifest.manifest import MANIFEST
from puller.resources.registry import find_type
from puller.resources.scaffolds.scaffold_tree import read_source
from puller.system.local import LocalSystem
from puller.templates.rendering import ENGINES, choose_engine, named_engine

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
    """The real paths of matching files or directories."""
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
        result = find_type(entry.type_name)
    except PullerError:  # a type of another distribution that cannot be used here
        return
    if result is None or entry.properties.get("ensure") == "absent":
        return
    for name in sorted(result.relative_paths):
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
            if chosen := engine_of(path, engine, "jinja"):
                yield TemplateUse(path, chosen, files.within(path))


def _of_scaffold(directory: str, properties: dict[str, Any], files: BundleFiles) -> Iterator[TemplateUse]:
    delimiters = str(properties.get("left_delimiter") or ""), str(properties.get("right_delimiter") or "")
    engine = properties.get("engine")
    if isinstance(engine, str) and "{{" in engine:
        engine = os.path.basename(
            directory
        )  # with a directory for each engine, the directory has the engine's name
    chosen = engine_of(directory, engine, "jet")
    if chosen is None or any("{{" in delimiter and "}}" in delimiter for delimiter in delimiters):
        return
    try:
        source = read_source(directory, directory, LocalSystem(), ())
    except ResourceError:  # reported where the source is checked
        return
    for path in sorted(source.templates):
        yield TemplateUse(f"{directory}/{path}", chosen, files.within(directory), delimiters, directory)


def engine_of(path: str, engine: Any, otherwise: str) -> str | None:
    """Return the engine that renders a file, or ``None`` for an engine from an expression or an invalid engine."""
    if engine is not None and engine not in ENGINES:
        return None
    try:
        return choose_engine(path, engine, otherwise)
    except ValueError:
        return named_engine(path)


_MISSING: Final = ProblemCode.MISSING_FILE
_NAMES_FOR_PEOPLE: Final = ("README*", "LICENSE*", "CHANGELOG*", "COPYING*", "Makefile", "*.md", "*.rst")
"""Names of files for people."""
_EXEMPT_DIRECTORIES: Final = ("tests", "docs", "facts.d", "libraries", "examples")
"""Directories of a bundle that need not be named by a path."""
_IN_NAMES: Final = r"[\w.@%+-]"
_LAST_WORD: Final = re.compile(rf"{_IN_NAMES}+\Z")


def _named_and_unused(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each path without a file, and for each file without a path."""
    bundle = bundle_of(subject)
    named = list(named_files(bundle))
    for item in named:
        message, similar = _problem(item, bundle)
        if message:
            yield item.manifest.yaml.part(item.path).finding(
                _MISSING, message, name=item.written, property=item.key, suggestions=similar
            )
    yield from _missing_paths_of_expressions(subject)
    if subject.is_bundle and subject.manifest is not None and not any(item.is_open for item in named):
        yield from _unused(bundle, named)


# -- missing --------------------------------------------------------------------------------------


def _problem(item: NamedFile, bundle: Bundle) -> tuple[str, tuple[str, ...]]:
    """Return the message about a path without a file, and similar paths. Empty for an existing file."""
    if not item.is_constant:
        return ("" if item.meant or item.is_open else _message_without_match(item)), ()
    try:
        real = item.manifest.files.find(item.written)
    except HieraError as error:
        return f"{item.key} {error}", ()
    if not os.path.lexists(real):
        known = (os.path.relpath(path, item.manifest.files.directory) for path in _paths(bundle))
        return f"{item.key} {item.written} is missing in the bundle", nearest(item.written.rstrip("/"), known)
    return _wrong_kind(item, real), ()


def _missing_paths_of_expressions(subject: Subject) -> Iterator[Finding]:
    """Yield a warning for each path from an expression, with the available facts, that the bundle lacks."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        for name in sorted(declaration.type.relative_paths & declaration.dynamic):
            written = getattr(declaration.properties, name, None)
            if not isinstance(written, str) or "\n" in written or written.startswith(ELSEWHERE):
                continue
            if problem := _why_missing(written, declaration.home.files):
                if name in declaration.secret or declaration.properties.sensitive:
                    problem = "contains a secret, and the file is missing in the bundle"
                message = f"{name} {problem}, with the available facts"
                missing = Problem(code=_MISSING, message=message, property=name, name=written)
                yield of_resource(declaration, missing, subject, rule=ProblemCode.RESOURCE_FAILS)


def _why_missing(written: str, files: BundleFiles) -> str:
    try:
        return "" if os.path.lexists(files.find(written)) else f"{written} is missing in the bundle"
    except HieraError as error:
        return str(error)


def _message_without_match(item: NamedFile) -> str:
    return f"{item.key} {item.written} matches no file of the bundle, for any values of its expressions"


def _paths(bundle: Bundle) -> set[str]:
    files = {path for listed in bundle.listed.values() for path in listed}
    return files | {os.path.dirname(path) for path in files}


def _wrong_kind(item: NamedFile, real: str) -> str:
    entry = item.entry
    is_scaffold = entry is not None and entry.type_name == "scaffold"
    ensure = "present" if entry is None else entry.properties.get("ensure", "present")
    if is_scaffold or (entry is not None and entry.type_name == "file" and ensure == "directory"):
        if not os.path.isdir(real):
            return f"{item.key} {item.written} is a file, expected a directory"
        return "" if _has_files(real) else f"{item.key} {item.written} contains no files"
    if not os.path.isfile(real):
        return f"{item.key} {item.written} is not a regular file"
    return ""


def _has_files(directory: str) -> bool:
    return any(files for _, _, files in walk_directories(directory))


# -- unused ---------------------------------------------------------------------------------------


def _unused(bundle: Bundle, named: list[NamedFile]) -> Iterator[Finding]:
    used = _used(bundle, named)
    remaining = [
        path
        for path in bundle.listed[bundle.root]
        if path not in used and not _is_exempt(os.path.relpath(path, bundle.root))
    ]
    # Expressions and templates may build paths, so a file name in any text counts as a use.
    written = _names_in_texts(bundle, {os.path.basename(path) for path in remaining})
    for path in remaining:
        if os.path.basename(path) not in written:
            place, message = Location(bundle.name_of(path)), "the bundle does not use this file"
            yield Finding.of(ProblemCode.UNUSED_FILE, place, message)


def _used(bundle: Bundle, named: list[NamedFile]) -> set[str]:
    used = {os.path.join(bundle.root, name) for name in (MANIFEST, LIBRARY)} | {*bundle.manifests}
    used |= {*tree_files(bundle.root)} | {*map(os.path.realpath, bundle.subject.data_files)}
    for item in named:
        for path in item.meant:
            used.add(path)
            if os.path.isdir(path):
                used |= {
                    os.path.join(place, name) for place, _, names in walk_directories(path) for name in names
                }
    return used


def _is_exempt(path: str) -> bool:
    first, *remainder = path.split("/")
    name = os.path.basename(path)
    if (
        name.startswith(".")
        or (first.startswith(".") and remainder)
        or (first in _EXEMPT_DIRECTORIES and remainder)
    ):
        return True
    return any(fnmatchcase(name, pattern) for pattern in _NAMES_FOR_PEOPLE)


def _names_in_texts(bundle: Bundle, names: set[str]) -> set[str]:
    """Return the ``names`` that some text of the bundle contains as words.

    The search looks for their suffixes, then for the word before. Extracting all words of 100 MB would take seconds.
    """
    results: set[str] = set()
    if not names:
        return results
    endings = "|".join(
        re.escape(ending) for ending in sorted({os.path.splitext(name)[1] or name for name in names})
    )
    ending = re.compile(rf"(?:{endings})(?!{_IN_NAMES})")
    longest = max(map(len, names))
    for path in bundle.listed[bundle.root]:
        text = read_text(path) or ""
        for item in ending.finditer(text):
            # One more character than the longest name, because longer words do not match.
            word = _LAST_WORD.search(text, max(item.end() - longest - 1, 0), item.end())
            if word and word[0] in names:
                results.add(word[0])
    return results


_MOST: Final = 20_000  # maximum files to check, because a path may point to a whole machine


def _unpackable(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each unpackable file of a bundle. Files beside a single manifest are not checked."""
    if not subject.is_bundle:
        return
    try:
        for number, (path, status) in enumerate(walk(subject.directory, is_left_out)):
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                detail = f"is {kind_of(status.st_mode)}, expected a regular file or a directory"
                yield Finding.of(UNPACKABLE, Location(os.path.join(subject.name, path)), detail)
            if number > _MOST:
                return
    except OSError:
        return  # packing reports unreadable files


def _unused_libraries(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each unused library."""
    manifest = subject.manifest
    if manifest is None or not manifest.files.libraries:
        return

    for problem in unused_libraries(manifest.files, manifest.name):
        yield finding(problem, subject)


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings about files, libraries and members."""
    yield from _named_and_unused(subject)
    yield from _unused_libraries(subject)
    yield from _unpackable(subject)
