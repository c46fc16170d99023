"""The manifests of a bundle with their visible data: the top manifest, its children, and their children.

* The name of a child may contain expressions, which match any text.
* A child with several parents sees the data of all parents.
* Unreadable files are skipped, because another check reports them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from bundles.filesystem.trees import walk_directories
from hiera import parsing
from hiera.errors import HieraError
from hiera.expressions.expressions import parse
from puller.authoring.lint import value_shapes
from puller.authoring.lint.expression_names import (
    constants_of,
    follow,
    parse_condition,
    parse_text,
    tree_shape,
)
from puller.authoring.lint.findings import Subject, read_text
from puller.authoring.lint.known_names import Guards, Known, RenderedText, YamlText
from puller.authoring.lint.value_shapes import ANY, SCALAR, Shape, of_value, union
from puller.bundle_paths import BundleFiles
from puller.data.sources import DATA
from puller.errors import PullerError
from puller.manifest.entries import Entry, read_entries
from puller.manifest.libraries import FACTS, files_in
from puller.manifest.loops import Loop
from puller.manifest.manifest import MANIFEST
from puller.manifest.problems import Problems

IN_DATA: Final = ("lookup",)
IN_RESOURCES: Final = ("lookup", "hiera", "read_file", "readFile", "file", "template")
_MOST_FILES: Final = 20_000
_MOST_TIMES: Final = 50  # maximum extensions of the data of one child
_LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", "__pycache__"})


class ManifestFile(msgspec.Struct):
    """One manifest: its content, and its inputs."""

    path: str
    """The real path."""
    yaml: YamlText
    value: Mapping[str, Any]
    files: BundleFiles
    above: Shape | None = None
    """The documents of its parents, or the data that they pass. ``None`` for the top manifest."""
    resources: list[Entry] = []
    times: int = 0
    """Number of extensions of its visible data."""
    rendered: Any = None
    """The resources that its template rendered with the available facts, if this object stands for that list."""

    @property
    def root(self) -> Any:
        """The value at which paths in its text begin."""
        return self.value if self.rendered is None else self.rendered

    @property
    def run(self) -> Mapping[str, Any]:
        """The mapping that holds ``resources``."""
        section = self.value.get("ccm")
        return section if isinstance(section, Mapping) else self.value

    @property
    def run_path(self) -> tuple[str, ...]:
        """Place of that mapping."""
        return ("ccm",) if self.run is not self.value else ()

    def document(self) -> Shape | None:
        """Return the shape of its own data with all overrides, or ``None``."""
        return _document(self.value)


class DataFile(msgspec.Struct, frozen=True):
    """One data document that is not a manifest."""

    yaml: YamlText
    value: Mapping[str, Any]
    is_given: bool
    """Whether it was passed in addition to the bundle, so that the bundle's data is not visible."""

    def document(self) -> Shape | None:
        """Return the shape of its data with all overrides, or ``None``."""
        return _document(self.value)


class Bundle:
    """The files of one bundle, for checks of names."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.root = os.path.realpath(subject.directory)
        manifest = subject.manifest
        self.at_hand: Mapping[str, Any] = manifest.scope.facts if manifest else subject.inputs.facts
        """Facts of this machine, with those of the bundle if it is readable."""
        self.files = _files_of(subject.directory)
        self.listed = {
            tree.root: _listed(tree.root) for tree in (self.files.tree, *self.files.libraries.values())
        }
        places = (os.path.join(root, FACTS) for root in self.listed)
        base = value_shapes.built_in()
        self.facts = Shape({**base.keys, **value_shapes.of_bundle(places)})
        self.data_files = [*self._data_files()]
        self.libraries = mappings(
            data_file.document() for data_file in self.data_files if not data_file.is_given
        )
        self.outside = mappings(
            of_value(source.data, "\0") for source in subject.inputs.sources if source.data
        )
        self.tree = tree_shape(self.root)
        self.manifests: dict[str, ManifestFile] = {}
        # In an archive the name is web-1.4.0.tar.gz:manifest.yaml.
        name = MANIFEST if subject.is_bundle else os.path.basename(subject.manifest_name)
        self.top = self._read(os.path.join(self.root, name), self.files)
        if self.top is not None:
            self._expand([self.top])
            self._expand([*self._rendered(subject.texts)])

    def name_of(self, path: str) -> str:
        """Return the name of a file in findings, by its real path."""
        return os.path.normpath(os.path.join(self.subject.name, os.path.relpath(path, self.root)))

    def data_of(self, manifest: ManifestFile) -> Shape:
        """Return all visible data of a manifest, or any shape if it is unknown."""
        own = self._data_of_bundle(manifest)
        return ANY if own is None else mappings((own, self.outside)) or ANY

    def _data_of_bundle(self, manifest: ManifestFile) -> Shape | None:
        return mappings((manifest.document(), manifest.above, self.libraries, self.tree))

    def known_in_resources(self, manifest: ManifestFile) -> Known:
        """Return the scope of its resources."""
        return Known.of(self.data_of(manifest), self.facts, self.at_hand, IN_RESOURCES)

    def known_in_data(self, manifest: ManifestFile) -> Known:
        """Return the scope of its own data. Expressions there are resolved over the data of all sources."""
        return Known.of(self.data_of(manifest), self.facts, self.at_hand, IN_DATA)

    def known_in_file(self, file: DataFile) -> Known:
        """Return the scope of a data document: itself, other documents of its kind, and the bundle."""
        others = self.outside if file.is_given else self.libraries
        bundle = None if self.top is None else self._data_of_bundle(self.top)
        shape = mappings((file.document(), others, bundle)) or ANY
        return Known.of(shape, self.facts, self.at_hand, IN_DATA)

    def loop_names(self, loop: Loop | None, known: Known) -> Known:
        """Return the scope with the names of a loop."""
        for clause in loop.clauses if loop else ():
            shape, _ = follow(parse_condition(clause.expression), known, Guards(), _unheard)
            item = shape.each() if shape.items is not None or len(clause.names) > 1 else ANY
            values = [SCALAR, item] if len(clause.names) > 1 else [item]
            known = known.with_names(dict(zip(clause.names, values, strict=False)))
        return known

    def meant_by(
        self, text: object, files: BundleFiles, *, directories: bool = False, all_below: bool = False
    ) -> list[str]:
        """Return the real paths of all files or directories that match a path with expressions."""
        if not isinstance(text, str):
            return []
        parsed = parse_text(text)
        pieces = _pieces(text)
        if all(isinstance(piece, str) for piece in pieces):
            written = [text]
        elif len(pieces) == 1:
            written = constants_of(parsed)
        else:
            return self._matching(pieces, files, directories=directories, all_below=all_below)
        result = (_found(files, item) for item in written)
        return [path for path in result if path and os.path.exists(path)]

    def _matching(
        self, pieces: list[Any], files: BundleFiles, *, directories: bool, all_below: bool
    ) -> list[str]:
        first = pieces[0] if isinstance(pieces[0], str) else ""
        start = _found(files, first.rpartition("/")[0] or ".") if not first.endswith(":") else None
        prefix = first.partition(":")[0] if files.is_prefixed(first) else ""
        base = _found(files, f"{prefix}:.") if prefix else files.directory
        if base is None or (not prefix and start is None):
            return []
        paths = [path for listed in self.listed.values() for path in listed]
        if directories:
            paths = sorted({os.path.dirname(path) for path in paths})
        # Few expressions produce a slash. Deeper paths match only if nothing else does.
        for anything in ("[^/]*", ".*") if not all_below else (".*",):
            pattern = "".join(re.escape(piece) if isinstance(piece, str) else anything for piece in pieces)
            desired = re.compile(pattern.removeprefix(re.escape(f"{prefix}:")).rstrip("/"))
            if match := [path for path in paths if desired.fullmatch(os.path.relpath(path, base))]:
                return match
        return []

    # -- children ---------------------------------------------------------------------------------

    def _expand(self, waiting: list[ManifestFile]) -> None:
        for _ in range(_MOST_FILES):
            if not waiting:
                return
            manifest = waiting.pop()
            known = self.known_in_resources(manifest)
            for entry in manifest.resources:
                if entry.type_name == "apply":
                    waiting += self._applied(entry, manifest, known)

    def _applied(self, entry: Entry, parent: ManifestFile, known: Known) -> Iterator[ManifestFile]:
        """Yield the children of an entry whose visible data has grown."""
        provided = self._given(entry, parent, known)
        for path in self.meant_by(entry.properties.get("name"), parent.files, all_below=True):
            child = self.manifests.get(path) or self._read(path, parent.files.at(os.path.dirname(path)))
            if child is None:
                continue
            above = provided if child.above is None else mappings((child.above, provided)) or ANY
            if child.times > _MOST_TIMES:
                above = ANY  # manifests that apply each other could pass more data without end
            if child.above is None or above != child.above:
                child.above = above
                child.times += 1
                yield child

    def _given(self, entry: Entry, parent: ManifestFile, known: Known) -> Shape:
        """Return the documents of the parent that a child sees, or the data that it gets instead."""
        handed = entry.properties.get("data")
        if parent.rendered is not None and handed is not None:
            return ANY  # the facts of other hosts may produce other data
        if handed is None:
            return mappings((parent.document(), parent.above)) or Shape()
        return shape_of(handed, self.loop_names(entry.loop, known))

    def _read(self, path: str, files: BundleFiles) -> ManifestFile | None:
        text = read_text(path)
        try:
            value = None if text is None else parsing.load_yaml(text, path)
        except HieraError:
            return None
        if text is None or not isinstance(value, Mapping):
            return None
        manifest = ManifestFile(path, YamlText(self.name_of(path), text), value, files)
        if not manifest.run.keys() & {"resources", "resources_template", "resources_jet_file"}:
            return None
        if "resources" in manifest.run:
            ignored = Problems("", lambda _: (0, 0), lambda _: None)
            where = (*manifest.run_path, "resources")
            manifest.resources = read_entries(manifest.run["resources"], where, ignored)
        self.manifests[path] = manifest
        return manifest

    def _rendered(self, texts: Iterable[Problems]) -> Iterator[ManifestFile]:
        """Yield the lists of resources that templates rendered with the available facts, each as a manifest."""
        for manifest in [*self.manifests.values()]:
            path = manifest.run.get("resources_template", manifest.run.get("resources_jet_file"))
            name = os.path.normpath(os.path.join(os.path.dirname(manifest.yaml.name), str(path)))
            for text in texts:
                if text.is_rendered and os.path.normpath(text.source) == f"{name} (rendered)":
                    yield self._of_rendered(text, manifest)

    def _of_rendered(self, text: Problems, of: ManifestFile) -> ManifestFile:
        try:
            value = parsing.load_yaml(text.text, text.source)
        except HieraError:
            value = None
        ignored = Problems("", lambda _: (0, 0), lambda _: None)
        manifest_file = ManifestFile(of.path, RenderedText(text), {}, of.files)
        manifest_file.above = self.data_of(of)
        manifest_file.rendered = value if isinstance(value, list) else []
        manifest_file.resources = read_entries(manifest_file.rendered, (), ignored)
        self.manifests[text.source] = manifest_file
        return manifest_file

    def _data_files(self) -> Iterator[DataFile]:
        """Yield the documents of libraries, and the given data documents."""
        for library in self.files.libraries.values():
            path = os.path.join(library.root, DATA)
            yield from _data_file(path, self.name_of(path), is_given=False)
        for data_file in self.subject.data_files:
            yield from _data_file(str(data_file), str(data_file), is_given=True)


def _data_file(path: str, name: str, *, is_given: bool) -> Iterator[DataFile]:
    text = read_text(path)
    try:
        value = None if text is None else parsing.load_yaml(text, path)
    except HieraError:
        return
    if text is not None and isinstance(value, Mapping):
        yield DataFile(YamlText(name, text), value, is_given)


def _document(value: Mapping[str, Any]) -> Shape | None:
    overrides = value.get("overrides")
    sections = list(overrides.values()) if isinstance(overrides, Mapping) else []
    results = [section for section in (value.get("data"), *sections) if isinstance(section, Mapping)]
    return mappings(of_value(section) for section in results if section)


def bundle_of(subject: Subject) -> Bundle:
    """Return the bundle of a subject. All of its checks share one object."""
    if not _last or _last[0][0] is not subject:
        _last[:] = [(subject, Bundle(subject))]
    return _last[0][1]


_last: list[tuple[Subject, Bundle]] = []


def shape_of(value: Any, known: Known) -> Shape:
    """Return the shape of a value with expressions."""
    if isinstance(value, Mapping):
        return Shape({str(key): shape_of(item, known) for key, item in value.items()}) if value else Shape()
    if isinstance(value, list):
        return Shape(items=union(shape_of(item, known) for item in value)) if value else ANY
    if isinstance(value, str) and "{{" in value:
        return follow(parse_text(value), known, Guards(), _unheard)[0]
    return ANY if value is None else SCALAR


def mappings(shapes: Iterable[Shape | None]) -> Shape | None:
    """Return the union of the given shapes, or ``None`` without any."""
    results = [shape for shape in shapes if shape is not None]
    return union(results) if results else None


def _files_of(directory: Path) -> BundleFiles:
    try:
        return files_in(directory)
    except (HieraError, PullerError):
        return BundleFiles.of(directory)


def _listed(root: str) -> list[str]:
    """Return all files below a directory, except files that are never packed."""
    results: list[str] = []
    for directory, names, files in walk_directories(root):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT)
        results += (os.path.join(directory, name) for name in sorted(files))
        if len(results) > _MOST_FILES:
            break
    return results


def _found(files: BundleFiles, path: str) -> str | None:
    try:
        return files.find(path)
    except HieraError:
        return None


def _pieces(text: str) -> list[Any]:
    try:
        return list(parse(text))
    except HieraError:
        return [text]


def _unheard(path: str, names: Mapping[str, Shape], is_open: bool) -> None:
    """Ignore templates, because they are followed when the text is checked."""
