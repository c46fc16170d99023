"""Libraries of a bundle: their directories, the files that are packed with a bundle, and the facts of both.

* In the author's tree a library is at its path in ``libraries:``. A packed bundle contains it as ``libraries/NAME``,
  and paths outside of the bundle are ignored.
* A ``library.yaml`` makes a directory a library. The module reads no other file of the library.
* Within one bundle a name always refers to the same library. Libraries must not overlap each other or the bundle,
  except as ``libraries/NAME``.
* The facts of a bundle and its libraries override those of the host before its manifest is read. They are visible to
  all its manifests, including children. Data of the site and of the host are resolved without them.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bundles.filesystem.atomic import read_limited
from bundles.filesystem.trees import walk
from bundles.format.fields import DESCRIPTION
from foundation.problems import Location, Problem, ProblemCode
from foundation.suggestions import meant
from hiera import parsing
from hiera.errors import HieraError
from puller.bundle_paths import BUNDLE, LIBRARY_NAME, BundleFiles, FileTree
from puller.data.sources import DATA
from puller.errors import ManifestError, SourceError, file_problem
from puller.manifest.manifest import MANIFEST
from puller.manifest.manifest_reader import ManifestText
from puller.manifest.problems import Problems

_CODE = ProblemCode.INVALID_LIBRARY
KEY = "libraries"
PACKED = "libraries"
"""The directory of libraries in a packed bundle."""
LIBRARY = "library.yaml"
_TREE = "hiera.yaml"
FACTS = "facts.d"
"""The directory of a bundle or of a library, with a file for each fact."""
_SIZE_LIMIT = 1024 * 1024  # bytes of a library.yaml
_MOST = 100  # libraries of one bundle
_SEARCHED = 10_000  # files, when a use is looked for


def used_libraries(directory: Path) -> Mapping[str, Path]:
    """Return the directories that are packed with a bundle: ``libraries/common`` → its directory.

    Raise ``SourceError`` and ``ManifestError`` if the manifest or a library cannot be read or is invalid.
    """
    return outside_of(files_in(directory))


def files_in(directory: Path) -> BundleFiles:
    """Return the files of the bundle or library in a directory. Raise the errors of ``used_libraries``."""
    path = directory / MANIFEST
    if not path.exists() and (directory / LIBRARY).exists():
        path = directory / LIBRARY
    return bundle_files(ManifestText.of_file(path, str(path)))


def outside_of(files: BundleFiles) -> Mapping[str, Path]:
    """Return the libraries outside of the bundle: their packed paths, and their directories."""
    return {
        f"{PACKED}/{name}": Path(library.root)
        for name, library in sorted(files.libraries.items())
        if not files.tree.holds(library.root)
    }


def bundle_files(text: ManifestText) -> BundleFiles:
    """Return the files of a bundle for its top manifest. Raise ``ManifestError`` with all problems."""
    root = os.path.realpath(text.directory)
    search = _Search(root, text.name, os.path.lexists(os.path.join(root, DESCRIPTION)))
    problems = Problems.of_text(text.name, text.problems.text)
    names = search.declare(text.value.get(KEY), problems, root)
    if results := [problem for item in (problems, *search.texts) for problem in item.all()]:
        raise ManifestError(results)
    return BundleFiles(root, FileTree(root, "", names), search.found)


class _Search(msgspec.Struct):
    """The libraries found so far. The dependencies of a library come before it."""

    root: str
    """The real path of the bundle."""
    name: str
    """The name of its manifest in messages."""
    is_packed: bool
    found: dict[str, FileTree] = {}
    places: dict[str, tuple[str, Problems]] = {}
    """By name: the directory, and the text that declares it."""
    texts: list[Problems] = []
    """The problems of every ``library.yaml``."""

    def declare(
        self, declared: object, problems: Problems, base: str, chain: tuple[str, ...] = ()
    ) -> frozenset[str]:
        """Find the libraries of one text with their dependencies. Return the names, and record problems.

        Paths are relative to ``base``. ``chain`` has the libraries that lead to this text.
        """
        if declared is None:
            return frozenset()
        if not isinstance(declared, dict):
            problems.add(
                (KEY,), f"{KEY} is {declared!r}", code=_CODE, expected="a mapping of names to directories"
            )
            return frozenset()
        for name, path in declared.items():
            if why := _why_malformed(name, path):
                problems.add((KEY, name), why, code=_CODE)
            else:
                self._find(name, self._directory(name, path, base), problems, chain)
        return frozenset(map(str, declared))

    def _directory(self, name: str, path: str, base: str) -> str:
        packed = os.path.join(self.root, PACKED, name)
        return os.path.realpath(packed if self.is_packed else os.path.join(base, path))

    def _find(self, name: str, directory: str, problems: Problems, chain: tuple[str, ...]) -> None:
        other, text = self.places.setdefault(name, (directory, problems))
        if other != directory:
            where = text.where((KEY, name))
            detail = f"{name} is {directory} here and {other} at {where}, and a name must be unique"
            problems.add((KEY, name), detail, code=_CODE)
        elif name in chain:
            circle = " → ".join([*chain[chain.index(name) :], name])
            problems.add((KEY, name), f"libraries use each other in a cycle: {circle}", code=_CODE)
        elif name not in self.found:
            if why := self._why_not(name, directory):
                problems.add((KEY, name), why, code=_CODE)
            uses = self._uses(directory, (*chain, name)) if not why else frozenset()
            self.found[name] = FileTree(directory, name, uses)

    def _why_not(self, name: str, directory: str) -> str:
        """Return why a directory cannot be a library of this bundle. Empty if it can."""
        inside, library = os.path.join(self.root, PACKED, name), FileTree(directory)
        if library.holds(self.root):
            return f"leads to {directory}, which holds the bundle itself"
        if directory != inside and (self.is_packed or FileTree(self.root).holds(directory)):
            return f"leads to {directory}, expected {PACKED}/{name} or a directory outside of the bundle"
        if directory != inside and os.path.lexists(inside):
            return f"is {directory}, and the bundle has {PACKED}/{name} too, so remove either"
        if not os.path.isdir(directory):
            whole = ", so the bundle is incomplete" if self.is_packed else ""
            return f"{directory} is not a directory{whole}"
        if len(self.places) > _MOST:
            return f"the bundle has more than {_MOST} libraries"
        # A manifest may name any directory. Directories that are not meant to be shared must not be packed and
        # published.
        if not os.path.isfile(os.path.join(directory, LIBRARY)):
            return f"{directory} is not a library, because it has no {LIBRARY} (an empty file is enough)"
        if os.path.lexists(os.path.join(directory, _TREE)):
            return f"has a {_TREE}, which libraries cannot have, so move its defaults to {DATA}"
        return next(self._overlaps(name, library), "")

    def _overlaps(self, name: str, library: FileTree) -> Iterator[str]:
        for other, (directory, text) in self.places.items():
            if other != name and (library.holds(directory) or FileTree(directory).holds(library.root)):
                where = text.where((KEY, other))
                yield f"is {library.root}, and the library {other} at {where} is {directory}: they overlap"

    def _uses(self, directory: str, chain: tuple[str, ...]) -> frozenset[str]:
        """Return the libraries that a ``library.yaml`` names."""
        path = os.path.join(directory, LIBRARY)
        name = os.path.join(os.path.dirname(self.name), os.path.relpath(path, self.root))
        problems, value = _read(path, os.path.normpath(name))
        self.texts.append(problems)
        for key in value:
            if key != KEY:
                code, names = ProblemCode.UNKNOWN_KEY, meant(str(key), [KEY])
                problems.add((key,), f"unknown key {key!r}", code=code, **names)
        return self.declare(value.get(KEY), problems, directory, chain)


def _why_malformed(name: object, path: object) -> str:
    if not isinstance(name, str) or not re.fullmatch(LIBRARY_NAME, name):
        return f"the name {name!r} is not valid, expected lower-case letters, digits, - and _, starting with a letter"
    if name == BUNDLE:
        return f"the name {BUNDLE!r} is reserved for the bundle itself"
    if not isinstance(path, str) or not path or "\0" in path or os.path.isabs(path):
        return f"is {path!r}, expected the path of a directory, relative to this file"
    return ""


def _read(path: str, name: str) -> tuple[Problems, Mapping[str, Any]]:
    try:
        text = read_limited(path, _SIZE_LIMIT).decode("utf-8")
        value = parsing.load_yaml(text, name)
    except OSError as error:
        raise SourceError(file_problem(error, "cannot be read", where=name)) from error
    except HieraError as error:
        raise ManifestError(error.problems) from error
    except ValueError as error:
        problem = Problem(code=_CODE, message=str(error), location=Location(name))
        raise ManifestError([problem]) from error
    problems = Problems.of_text(name, text)
    if value is not None and not isinstance(value, dict):
        problems.add((), "is not a mapping", code=_CODE, expected=f"a mapping with the key {KEY}")
    return problems, value if isinstance(value, dict) else {}


def unused_libraries(files: BundleFiles, name: str) -> Iterator[Problem]:
    """Yield a problem for each declared library that no file uses. ``name`` is the name of the manifest.

    A library with data or facts is always used, because all manifests receive them.
    """
    for tree in (files.tree, *files.libraries.values()):
        declared_in = f"{tree.name}:{LIBRARY}" if tree.name else name
        for library in sorted(tree.libraries):
            root = files.libraries[library].root
            if any(os.path.lexists(os.path.join(root, own)) for own in (DATA, FACTS)):
                continue
            if not _may_refer_to(tree, library):
                yield Problem(
                    code=ProblemCode.UNUSED_LIBRARY,
                    message=f"the library {library} is not used: no file has a path {library}:…",
                    location=Location(declared_in),
                    name=library,
                )


def _may_refer_to(tree: FileTree, library: str) -> bool:
    """Whether a file of the tree may name a path of the library. ``True`` if a file is too large or unreadable."""
    # With logging and thread pools, a tenth of the imports of a run, which never searches for unused libraries.
    from bundles.archive.pack import is_left_out

    used = re.compile(rb"(?<![\w-])" + library.encode() + rb":[^\s\"']")
    try:
        for count, (path, status) in enumerate(walk(Path(tree.root), is_left_out)):
            if count == _SEARCHED or status.st_size > _SIZE_LIMIT:
                return True
            if stat.S_ISREG(status.st_mode) and used.search(Path(tree.root, path).read_bytes()):
                return True
    except OSError:
        return True
    return False


def bundle_facts(
    host: Mapping[str, Any], root: Path, refused: list[Problem], libraries: Sequence[Path] = ()
) -> Mapping[str, Any]:
    """Return the facts of a host with those of the bundle at ``root`` and of its ``libraries``.

    Problems with fact files are added to ``refused``. Fact files are not read or run here.
    """
    directories = [place / FACTS for place in (root, *libraries)]
    # Checked before the import, because most bundles have no facts.
    if not any(map(os.path.lexists, directories)):
        return host
    from puller.facts import bundled  # 0.4 % of an idle run, and few bundles have facts

    facts, problems = bundled.over(host, root, directories)
    refused += problems
    return facts


def need_bundle_facts(host: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """Return the facts of a host with those of a bundle and its libraries.

    Raise ``ManifestError`` for files that cannot be facts, and the errors of ``used_libraries``.
    """
    problems: list[Problem] = []
    facts = bundle_facts(host, root, problems, _libraries_of(root))
    if problems:
        raise ManifestError(problems)
    return facts


def _libraries_of(root: Path) -> list[Path]:
    if not (root / MANIFEST).exists():
        return []
    return [Path(library.root) for library in files_in(root).libraries.values()]
