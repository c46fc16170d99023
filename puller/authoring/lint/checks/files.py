"""Files that a manifest names but the bundle lacks, and unused files.

* ``missing-file``: a source, template or scaffold directory that is missing or of another kind, or a path with
  expressions that matches no file of the bundle.
* ``resource-fails``: a missing path from an expression, with the available facts.
* ``unused-file``: a file that no path, template or level can reach. This check is skipped if an expression alone
  determines a path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from bundles.filesystem.trees import walk_directories
from foundation.problems import Location, Problem, ProblemCode
from foundation.suggestions import nearest
from hiera.errors import HieraError
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.named_files import ELSEWHERE, NamedFile, named_files
from puller.authoring.lint.names.bundle import Bundle, bundle_of
from puller.authoring.lint.names.hiera_trees import tree_files
from puller.authoring.lint.refusals import of_resource
from puller.authoring.lint.subject import Subject, read_text
from puller.bundle_paths import BundleFiles
from puller.manifest.libraries import LIBRARY
from puller.manifest.manifest import MANIFEST

_MISSING: Final = ProblemCode.MISSING_FILE
_ANYWAY: Final = ("README*", "LICENSE*", "CHANGELOG*", "COPYING*", "Makefile", "*.md", "*.rst")
"""Names of files for people."""
_APART: Final = ("tests", "docs", "facts.d", "libraries", "examples")
"""Directories of a bundle that need not be named by a path."""
_IN_NAMES: Final = r"[\w.@%+-]"
_LAST_WORD: Final = re.compile(rf"{_IN_NAMES}+\Z")


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each path without a file, and for each file without a path."""
    bundle = bundle_of(subject)
    named = list(named_files(bundle))
    for one in named:
        message, similar = _problem(one, bundle)
        if message:
            yield one.manifest.yaml.part(one.path).finding(
                _MISSING, Severity.ERROR, message, name=one.written, property=one.key, suggestions=similar
            )
    yield from _given(subject)
    if subject.is_bundle and subject.manifest is not None and not any(one.is_open for one in named):
        yield from _unused(bundle, named)


# -- missing --------------------------------------------------------------------------------------


def _problem(one: NamedFile, bundle: Bundle) -> tuple[str, tuple[str, ...]]:
    """Return the message about a path without a file, and similar paths. Empty for an existing file."""
    if not one.is_constant:
        return ("" if one.meant or one.is_open else _none_fits(one)), ()
    try:
        real = one.manifest.files.find(one.written)
    except HieraError as error:
        return f"{one.key} {error}", ()
    if not os.path.lexists(real):
        known = (os.path.relpath(path, one.manifest.files.directory) for path in _paths(bundle))
        return f"{one.key} {one.written} is not in the bundle", nearest(one.written.rstrip("/"), known)
    return _wrong_kind(one, real), ()


def _given(subject: Subject) -> Iterator[Finding]:
    """Yield a warning for each path from an expression, with the available facts, that the bundle lacks."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        for name in sorted(declaration.type.relative_paths & declaration.dynamic):
            written = getattr(declaration.properties, name, None)
            if not isinstance(written, str) or "\n" in written or written.startswith(ELSEWHERE):
                continue
            if problem := _why_missing(written, declaration.home.files):
                if name in declaration.secret or declaration.properties.sensitive:
                    problem = "is made of a secret, and leads to no file of the bundle"
                message = f"{name} {problem}, for the facts at hand"
                missing = Problem(code=_MISSING, message=message, property=name, name=written)
                yield of_resource(declaration, missing, subject, rule=ProblemCode.RESOURCE_FAILS)


def _why_missing(written: str, files: BundleFiles) -> str:
    try:
        return "" if os.path.lexists(files.find(written)) else f"{written} is not in the bundle"
    except HieraError as error:
        return str(error)


def _none_fits(one: NamedFile) -> str:
    return f"{one.key} {one.written} can lead to no file of the bundle, whatever its expressions give"


def _paths(bundle: Bundle) -> set[str]:
    files = {path for listed in bundle.listed.values() for path in listed}
    return files | {os.path.dirname(path) for path in files}


def _wrong_kind(one: NamedFile, real: str) -> str:
    entry = one.entry
    is_scaffold = entry is not None and entry.type_name == "scaffold"
    ensure = "present" if entry is None else entry.properties.get("ensure", "present")
    if is_scaffold or (entry is not None and entry.type_name == "file" and ensure == "directory"):
        if not os.path.isdir(real):
            return f"{one.key} {one.written} is a file, expected a directory"
        return "" if _has_files(real) else f"{one.key} {one.written} holds no files"
    if not os.path.isfile(real):
        return f"{one.key} {one.written} is not a regular file"
    return ""


def _has_files(directory: str) -> bool:
    return any(files for _, _, files in walk_directories(directory))


# -- unused ---------------------------------------------------------------------------------------


def _unused(bundle: Bundle, named: list[NamedFile]) -> Iterator[Finding]:
    used = _used(bundle, named)
    left = [
        path
        for path in bundle.listed[bundle.root]
        if path not in used and not _is_apart(os.path.relpath(path, bundle.root))
    ]
    # Expressions and templates may build paths, so a file name in any text counts as a use.
    written = _written(bundle, {os.path.basename(path) for path in left})
    for path in left:
        if os.path.basename(path) not in written:
            place, message = Location(bundle.name_of(path)), "nothing in the bundle uses this file"
            yield Finding.of(ProblemCode.UNUSED_FILE, Severity.WARNING, place, message)


def _used(bundle: Bundle, named: list[NamedFile]) -> set[str]:
    used = {os.path.join(bundle.root, name) for name in (MANIFEST, LIBRARY)} | {*bundle.manifests}
    used |= {*tree_files(bundle.root)} | {*map(os.path.realpath, bundle.subject.data_files)}
    for one in named:
        for path in one.meant:
            used.add(path)
            if os.path.isdir(path):
                used |= {
                    os.path.join(place, name) for place, _, names in walk_directories(path) for name in names
                }
    return used


def _is_apart(path: str) -> bool:
    first, *rest = path.split("/")
    name = os.path.basename(path)
    if name.startswith(".") or (first.startswith(".") and rest) or (first in _APART and rest):
        return True
    return any(fnmatchcase(name, pattern) for pattern in _ANYWAY)


def _written(bundle: Bundle, names: set[str]) -> set[str]:
    """Return the ``names`` that some text of the bundle contains as words.

    The search looks for their suffixes, then for the word before. Extracting all words of 100 MB would take seconds.
    """
    found: set[str] = set()
    if not names:
        return found
    endings = "|".join(
        re.escape(ending) for ending in sorted({os.path.splitext(name)[1] or name for name in names})
    )
    ending = re.compile(rf"(?:{endings})(?!{_IN_NAMES})")
    longest = max(map(len, names))
    for path in bundle.listed[bundle.root]:
        text = read_text(path) or ""
        for one in ending.finditer(text):
            # One more character than the longest name, because longer words do not match.
            word = _LAST_WORD.search(text, max(one.end() - longest - 1, 0), one.end())
            if word and word[0] in names:
                found.add(word[0])
    return found
