"""Names that no host can have, in all expressions and templates of a bundle.

* ``unknown-name``: an unknown key of data or facts, or an unknown variable. Names that only hosts have are unchecked.
* ``unknown-function``: an unknown filter, test or function.
* ``expression-syntax``: an invalid expression outside templates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from bundles.filesystem.trees import walk_directories
from hiera.document.annotations import functions, in_words
from hiera.document.document import annotations_of
from hiera.errors import HieraError
from puller.authoring.lint.bundle import Bundle, DataFile, ManifestFile, bundle_of, mappings, shape_of
from puller.authoring.lint.checks.files import engine_of
from puller.authoring.lint.expression_names import (
    Parsed,
    follow,
    follow_interpolations,
    parse_condition,
    parse_text,
    tree_files,
)
from puller.authoring.lint.findings import Finding, Severity, Subject, read_text
from puller.authoring.lint.known_names import Guards, Known, YamlText
from puller.authoring.lint.template_names import Delimiters, Templates, Use
from puller.authoring.lint.value_shapes import ANY, Shape
from puller.manifest.entries import DEFAULTS, FOR, Entry
from puller.templates.rendering import named_engine

_CONDITIONS: Final = ("if", "unless")
_OF_TREES: Final = ("render", "write")
"""The functions that only templates of a scaffold have."""
_KEPT: Final = frozenset({"control", "left_delimiter", "right_delimiter"})
Path = tuple[str | int, ...]


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings without duplicates, by file and line."""
    result = sorted(
        dict.fromkeys(_Checking(bundle_of(subject)).findings()),
        key=lambda item: (item.place.order, item.rule),
    )
    # A fact of hosts is reported once per file.
    text: set[object] = set()
    for item in result:
        key = (item.place.file, item.problem.name) if item.severity is Severity.UNCHECKED else item
        if key not in text:
            text.add(key)
            yield item


class _Checking:
    """The walk through one bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.templates = Templates(bundle.name_of)
        self.found: list[Finding] = []

    def findings(self) -> list[Finding]:
        for manifest in self.bundle.manifests.values():
            self._manifest(manifest)
        for file in self.bundle.data_files:
            self._document(file, self.bundle.known_in_file(file))
        self._unreached()
        self._tree()
        return self.found

    def _manifest(self, manifest: ManifestFile) -> None:
        known = self.bundle.known_in_resources(manifest)
        self._document(manifest, self.bundle.known_in_data(manifest))
        for entry in manifest.resources:
            self._entry(manifest, entry, known)
        for key in ("exports", "pre_message", "post_message"):
            self._texts(manifest, (*manifest.run_path, key), manifest.run.get(key), known, Guards())
        written = manifest.run.get("resources_template", manifest.run.get("resources_jet_file"))
        engine = "jet" if "resources_jet_file" in manifest.run else None
        for path in self.bundle.meant_by(written, manifest.files):
            self._template(path, engine, known, manifest, Guards())

    # -- data -------------------------------------------------------------------------------------

    def _document(self, file: ManifestFile | DataFile, known: Known) -> None:
        for key in ("data", "overrides"):
            self._data(file, (key,), file.value.get(key), known)
        hierarchy = file.value.get("hierarchy")
        order = hierarchy.get("order") if isinstance(hierarchy, Mapping) else None
        # The order is evaluated without data. An expression that reads data fails when the manifest is resolved.
        self._data(file, ("hierarchy", "order"), order, known.with_data(ANY))
        self._annotations(file.yaml)

    def _data(self, file: ManifestFile | DataFile, path: Path, value: Any, known: Known) -> None:
        for where, text in _all_texts(value, path):
            self.found += follow(parse_text(text), known, Guards(), _unheard, file.yaml.part(where))[1]

    def _annotations(self, yaml: YamlText) -> None:
        try:
            annotations = annotations_of(yaml.text, yaml.name)
        except HieraError:
            return
        known = Known({"value": ANY, "Value": ANY, **dict.fromkeys(functions(), ANY)})
        for rule in annotations.rules if annotations else ():
            if rule.expression:
                parsed = parse_condition(in_words(rule.expression), is_check=True)
                part = yaml.line_part(rule.location.line)
                self.found += follow(parsed, known, Guards(), _unheard, part)[1]

    def _tree(self) -> None:
        tree = self.bundle.tree
        if tree is None:
            return
        for path in tree_files(self.bundle.root):
            text = read_text(path)
            if text is not None and "%{" in text:
                yaml = YamlText(self.bundle.name_of(path), text)
                at_hand = self.bundle.at_hand
                self.found += follow_interpolations(yaml, self.bundle.facts, tree, at_hand)

    # -- resources --------------------------------------------------------------------------------

    def _entry(self, manifest: ManifestFile, entry: Entry, around: Known) -> None:
        guards = _guards_of(entry)
        self._loop(manifest, entry, around, guards)
        known = self.bundle.loop_names(entry.loop, around)
        for key, value in entry.properties.items():
            path = _place(manifest, entry, key)
            if key == "control" and isinstance(value, Mapping):
                for name in _CONDITIONS:
                    self._condition(manifest, (*path, name), value.get(name), known, guards)
            elif key not in _KEPT:
                self._texts(manifest, path, value, known, guards)
        self._files_of(manifest, entry, known, guards)

    def _loop(self, manifest: ManifestFile, entry: Entry, known: Known, guards: Guards) -> None:
        if entry.loop is None:
            return
        path = (*(entry.path if "name" in _own(manifest, entry.path) else entry.path[:-1]), FOR)
        for clause in entry.loop.clauses:
            self._follow(manifest, path, parse_condition(clause.expression), known, guards)
            single = entry.loop._replace(clauses=(clause,))
            known = self.bundle.loop_names(single, known)
            if clause.condition:
                self._follow(manifest, path, parse_condition(clause.condition), known, guards)

    def _condition(
        self, manifest: ManifestFile, path: Path, value: Any, known: Known, guards: Guards
    ) -> None:
        if isinstance(value, str):
            self._follow(manifest, path, parse_condition(value), known, guards)

    def _texts(self, manifest: ManifestFile, path: Path, value: Any, known: Known, guards: Guards) -> None:
        """Follow all texts in a value. Keys are not expressions."""
        for where, text in _all_texts(value, path):
            self._follow(manifest, where, parse_text(text), known, guards)

    def _follow(
        self, manifest: ManifestFile, path: Path, parsed: Parsed, known: Known, guards: Guards
    ) -> None:
        def used(name: str, names: Mapping[str, Shape], is_open: bool) -> None:
            del is_open  # the names are written out
            for found in self.bundle.meant_by(name, manifest.files):
                self._template(found, None, known.with_names(names), manifest, guards)

        self.found += follow(parsed, known, guards, used, manifest.yaml.part(path))[1]

    # -- templates --------------------------------------------------------------------------------

    def _files_of(self, manifest: ManifestFile, entry: Entry, known: Known, guards: Guards) -> None:
        properties = entry.properties
        if properties.get("interpolate"):
            return  # TinyCM templates use their own names for data
        if properties.get("data") is not None:
            # With the facts of other hosts, a rendered list may pass other data.
            is_known = manifest.rendered is None
            known = known.with_data(shape_of(properties["data"], known) if is_known else ANY)
        engine = properties.get("engine")
        if entry.type_name == "scaffold":
            self._scaffold(manifest, entry, known, guards)
        elif "template" in properties and not (isinstance(engine, str) and "{{" in engine):
            for path in self.bundle.meant_by(properties["template"], manifest.files):
                self._template(path, engine, known, manifest, guards)

    def _template(self, path: str, engine: Any, known: Known, manifest: ManifestFile, guards: Guards) -> None:
        if (chosen := engine_of(path, engine, "jinja")) and os.path.isfile(path):
            files = manifest.files.within(path)
            self.found += self.templates.follow(Use(path, chosen, known, files, guards))

    def _scaffold(self, manifest: ManifestFile, entry: Entry, known: Known, guards: Guards) -> None:
        properties = entry.properties
        delimiters = (
            str(properties.get("left_delimiter") or ""),
            str(properties.get("right_delimiter") or ""),
        )
        for directory in self.bundle.meant_by(properties.get("source"), manifest.files, directories=True):
            engine = properties.get("engine")
            if isinstance(engine, str) and "{{" in engine:
                # With a directory for each engine, the directory has the engine's name.
                engine = os.path.basename(directory)
            if chosen := engine_of(directory, engine, "jet"):
                self._tree_of(directory, chosen, delimiters, known, manifest, guards)

    def _tree_of(
        self,
        directory: str,
        engine: str,
        delimiters: Delimiters,
        known: Known,
        manifest: ManifestFile,
        guards: Guards,
    ) -> None:
        files = manifest.files.within(directory)
        if engine == "jinja":
            known = known.with_names(dict.fromkeys(_OF_TREES, ANY))
        for place, names, found in walk_directories(directory):
            names.sort()
            if "_partials" in os.path.relpath(place, directory).split("/"):
                continue  # followed from their renderings
            for name in sorted(found):
                path = os.path.join(place, name)
                use = Use(path, engine, known, files, guards, delimiters, tree=directory)
                self.found += self.templates.follow(use)

    def _unreached(self) -> None:
        """Follow the templates without an explicit reference. Their further names are unknown."""
        bundle = self.bundle
        manifests = bundle.manifests.values()
        data = mappings(bundle.data_of(manifest) for manifest in manifests)
        # A template with its own data may be one of these.
        if data is None or any(
            "data" in resource.properties for manifest in manifests for resource in manifest.resources
        ):
            return
        known = Known.of(data, bundle.facts, bundle.at_hand, ())
        known = msgspec.structs.replace(known, is_lenient=True)
        for path in bundle.listed[bundle.files.tree.root]:
            is_case = os.path.relpath(path, bundle.root).startswith("tests/")
            if named_engine(path) == "jinja" and not is_case and path not in self.templates.reached:
                self.found += self.templates.follow(Use(path, "jinja", known, bundle.files.within(path)))


def _guards_of(entry: Entry) -> Guards:
    """Return the guards of all texts of an entry. Its condition protects the other texts."""
    guards = Guards()
    clauses = entry.loop.clauses if entry.loop else ()
    for clause in clauses:
        for text in filter(None, (clause.expression, clause.condition)):
            guards = guards.over(parse_condition(text).guards)
    for key, value in entry.properties.items():
        if key == "control" and isinstance(value, Mapping):
            conditions = [value.get(name) for name in _CONDITIONS]
            for condition in conditions:
                if isinstance(condition, str):
                    guards = guards.over(parse_condition(condition).guards)
        elif key not in _KEPT:
            for _, text in _all_texts(value):
                if (result := parse_text(text).guards).paths or result.kinds:
                    guards = guards.over(result)
    return guards


def _all_texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield all texts with expressions in a value, with their places. Keys are not expressions."""
    if isinstance(value, str):
        if "{{" in value:
            yield path, value
    elif isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _all_texts(item, (*path, key))


def _place(manifest: ManifestFile, entry: Entry, key: str) -> Path:
    """Return the place of a property of an entry: its own, or in the defaults of its list."""
    own = _own(manifest, entry.path)
    if key in own:
        return (*entry.path, key)
    if key == "name":
        return entry.path
    siblings = _own(manifest, entry.path[:-2])
    for index, item in enumerate(siblings if isinstance(siblings, list) else ()):
        if isinstance(item, Mapping) and isinstance(below := item.get(DEFAULTS), Mapping) and key in below:
            return (*entry.path[:-2], index, DEFAULTS, key)
    return entry.path


def _own(manifest: ManifestFile, path: Sequence[str | int]) -> Any:
    value: Any = manifest.root
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return {}
    return {} if value is None else value


def _unheard(path: str, names: Mapping[str, Shape], is_open: bool) -> None:
    """Ignore templates, because annotations call none."""
