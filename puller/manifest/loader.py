"""Reading a manifest: text, data, declared resources, references, order; all problems at once.

* Nothing here touches the machine: facts and outer data are handed in, only files below the manifest are read.
* A value is resolved once. What an expression cannot give on this machine is the failure of the one resource that uses
  it, reported when it is reached; everything else that is wrong refuses the manifest.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.filesystem.atomic import read_limited
from hiera.document.document import Document, annotations_of
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, resolve
from hiera.limits import total
from hiera.text import yaml_text
from hiera.values.paths import MISSING
from puller.data.bundle_data import BundleData
from puller.data.hiera_tree import open_tree
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError, ResourceError, SourceError, reason
from puller.manifest import children
from puller.manifest.children import Family
from puller.manifest.declaration import Declaration, Home, label
from puller.manifest.declare import Draft
from puller.manifest.entries import Entry, read_entries
from puller.manifest.links import Links, link, order
from puller.manifest.problems import Problems
from puller.resources.base import PropertyError
from puller.state.directories import PRIVATE_KEY
from puller.system import signals
from puller.values.reference import Reference
from puller.values.suggestions import Path as KeyPath
from puller.values.suggestions import unknown_key

if TYPE_CHECKING:
    from hiera.document.annotations import Annotations
    from puller.manifest.masking import Mask

_DATA_KEYS = ("data", "hierarchy", "overrides")
_RUN_KEYS = (
    "resources",
    "resources_template",
    "fail_on_error",
    "give_up_after",
    "pre_message",
    "post_message",
)
_OF_THE_TOP = {"give_up_after": "counts", "pre_message": "is shown", "post_message": "is shown"}
_CCM = "ccm"  # the reference's section for the same keys
_CCM_TEMPLATE = "resources_jet_file"  # and its name for resources_template
_SIZE_LIMIT = 64 * 1024 * 1024  # bytes


class Manifest(msgspec.Struct):
    """A manifest that is understood: what is declared, and in which order it is applied."""

    name: str
    """For messages: ``web/manifest.yaml``."""
    directory: Path
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    data: BundleData
    """Where ``scope.data`` comes from."""
    declarations: list[Declaration]
    order: list[int]
    fail_on_error: bool = False
    give_up_after: int = 0
    """Runs in a row with failed resources after which a bundle on trial is given up; 0 is never."""
    pre_message: str = ""
    post_message: str = ""
    warnings: list[str] = []
    """What is suspicious, and not wrong."""
    links: Links = msgspec.field(default_factory=Links)
    texts: list[Problems] = []
    """What was read: of the manifest, its children, and lists that templates rendered."""

    def names_of(self, type_name: str) -> list[str]:
        """The names of all declared resources of a type."""
        return [d.properties.name for d in self.declarations if d.type.type_name == type_name]

    def requirements(self, index: int) -> list[tuple[Reference, int]]:
        """What must have succeeded before this resource."""
        return self.links.requirements.get(index, [])

    def subscriptions(self, index: int) -> list[int]:
        """What this resource is refreshed by."""
        return self.links.subscriptions.get(index, [])

    def subscribers_of(self, index: int) -> list[Reference]:
        """What is refreshed when this resource changes."""
        return self.links.subscribers.get(index, [])

    def children(self, index: int) -> list[int]:
        """The resources of an ``apply`` resource's manifest."""
        return self.links.children.get(index, [])

    def subscribers(self) -> set[Reference]:
        """Every resource that subscribes to another."""
        return {reference for references in self.links.subscribers.values() for reference in references}


class Inputs(msgspec.Struct, frozen=True):
    """What a manifest is resolved with."""

    facts: Mapping[str, Any]
    environ: Mapping[str, str]
    sources: tuple[DataSource, ...] = ()
    """Data from outside of the manifest, lowest precedence first; merged over its own."""
    private_key: str = PRIVATE_KEY
    """The file of this host's key for encrypted values."""
    watch: Callable[[str, KeyPath, Scope, Path], Scope] | None = None
    """Makes the scope for a resource from that of its manifest; told the text and the place in it (``recording``)."""


def load_manifest(path: Path, name: str, inputs: Inputs) -> Manifest:
    """Read the manifest at ``path``; ``name`` is what messages call it.

    Raises ``SourceError`` when it cannot be read, ``ManifestError`` with all problems when it is not valid.
    """
    with total:
        return _Loader.of_file(path, name, inputs, Family(path, name)).load()


def load_value(path: Path, value: dict[str, Any], problems: Problems, inputs: Inputs) -> Manifest:
    """A manifest that is no file: as if ``value`` had been read from ``path``; raises ``ManifestError``."""
    name = problems.source
    with total:
        return _Loader(path.parent, name, value, problems, inputs, None, Family(path, name), None).load()


def _read(path: Path, name: str) -> str:
    try:
        return read_limited(path, _SIZE_LIMIT).decode("utf-8")
    except FileNotFoundError:
        raise SourceError(f"{name}: there is no manifest here ({path})") from None
    except UnicodeDecodeError as error:
        raise ManifestError([f"{name}: is not UTF-8 text, at byte {error.start}"]) from None
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise SourceError(str(error)) from error


class _Loader:
    """The steps of reading one manifest."""

    home: Home
    data: BundleData
    handed: DataSource | None = None
    """The data that a parent gives to this manifest instead of its own."""
    has_data = True
    """Whether all of its data is known; without it resources are checked, but nothing is made of what they would be."""
    list_mask: "Mask | None" = None
    """Given when the list of resources was rendered with secrets at hand."""

    @classmethod
    def of_file(
        cls, path: Path, name: str, inputs: Inputs, family: Family, parent: Declaration | None = None
    ) -> "_Loader":
        """For the manifest at ``path``; raises ``SourceError`` and ``ManifestError``."""
        text = _read(path, name)
        try:
            value = yaml_text.load(text, name)
        except HieraError as error:
            raise ManifestError([str(error)]) from error
        problems = Problems.of_text(name, text)
        if not isinstance(value, dict):
            problems.add((), "is not a mapping; wanted keys such as data and resources")
            problems.raise_any()
        return cls(path.parent, name, value, problems, inputs, annotations_of(text, name), family, parent)

    def __init__(
        self,
        directory: Path,
        name: str,
        value: dict[str, Any],
        problems: Problems,
        inputs: Inputs,
        annotations: "Annotations | None",
        family: Family,
        parent: Declaration | None,
    ) -> None:
        self.annotations = annotations
        self.family = family
        self.parent = parent
        self.directory = directory
        self.name = name
        self.problems = problems
        self.inputs = inputs
        self.value = value
        self.run, self.run_path = self._run_section(value)

    def load(self) -> Manifest:
        """The whole run, with all child manifests."""
        declarations = self._merge_duplicates(self.read())
        for declaration in declarations:
            declaration.check()
        links = link(declarations)
        indexes = order(declarations, links)
        messages = [self._message(key) for key in ("pre_message", "post_message")]
        self.family.raise_any()
        return Manifest(
            self.name,
            self.directory,
            self.home.scope,
            self.data,
            declarations,
            indexes,
            fail_on_error=self.home.fail_on_error,
            give_up_after=self.run.get("give_up_after", 0),
            pre_message=messages[0],
            post_message=messages[1],
            warnings=self.family.warnings,
            links=links,
            texts=self.family.texts,
        )

    def read(self) -> list[Declaration]:
        """The resources of this manifest, those of a child before the ``apply`` resource that brings it."""
        self._check_keys()
        self.data = self._all_data()
        scope = self._scope()
        prefix = "" if self.parent is None else os.path.dirname(self.parent.properties.name)
        fail_on_error = self.run.get("fail_on_error") is True
        self.home = Home(self.directory, scope, self.data, fail_on_error, prefix, self.parent, self.has_data)
        self.family.warnings += [warning for notes in self.data.annotations for warning in notes.warnings]
        self.family.warnings += self._unheard_messages()
        self.family.texts.append(self.problems)
        found: list[Declaration] = []
        for entry, problems in self._entries():
            signals.check()
            if (declaration := self._declare(entry, problems)) is None:
                continue
            if entry.type_name == children.TYPE:
                found += children.expand(declaration, self.family, self._read_child)
            found.append(declaration)
        return found

    # The top level

    def _run_section(self, value: dict[str, Any]) -> tuple[dict[str, Any], KeyPath]:
        """The mapping that holds ``resources`` and its company: the document itself, or its ``ccm`` section."""
        if _CCM not in value:
            return value, ()
        section = value[_CCM]
        if both := [key for key in _RUN_KEYS if key in value]:
            self.problems.add((both[0],), f"{both[0]} cannot be given beside {_CCM}")
        if not isinstance(section, dict):
            self.problems.add((_CCM,), f"{_CCM} is {section!r}, wanted a mapping")
            return {}, (_CCM,)
        return {("resources_template" if k == _CCM_TEMPLATE else k): v for k, v in section.items()}, (_CCM,)

    def _check_keys(self) -> None:
        top = (*_DATA_KEYS, _CCM) if self.run_path else (*_DATA_KEYS, *_RUN_KEYS)
        for key in self.value:
            if key not in top and key != _CCM:
                self.problems.add((key,), unknown_key(key, top))
        for key in self.run if self.run_path else ():
            if key not in _RUN_KEYS:
                self.problems.add((*self.run_path, key), unknown_key(key, _RUN_KEYS))
        if not isinstance(self.run.get("fail_on_error", False), bool):
            self.problems.add((*self.run_path, "fail_on_error"), "fail_on_error is not true or false")
        runs = self.run.get("give_up_after", 0)
        if type(runs) is not int or runs < 0:
            sentence = f"give_up_after is {runs!r}, wanted a number of runs"
            self.problems.add((*self.run_path, "give_up_after"), sentence)
        if "resources" in self.run and "resources_template" in self.run:
            self.problems.add(
                (*self.run_path, "resources"), "resources cannot be given together with resources_template"
            )
        if "resources" not in self.run and "resources_template" not in self.run:
            self.problems.add((), "declares no resources; wanted resources or resources_template")

    def _message(self, key: str) -> str:
        text = self.run.get(key, "")
        if not isinstance(text, str):
            self.problems.add((*self.run_path, key), f"{key} is {text!r}, wanted text")
            return ""
        if not self.has_data:
            return ""
        try:
            return str(resolve(text, self.home.scope))
        except HieraError as error:
            self.problems.add((*self.run_path, key), f"{key}: {error}")
            return ""

    def _unheard_messages(self) -> list[str]:
        unheard = [key for key in _OF_THE_TOP if key in self.run and self.parent is not None]
        return [
            f"{self.problems.where((*self.run_path, key))}: {key} {_OF_THE_TOP[key]} of the top manifest only"
            for key in unheard
        ]

    # Data

    def _all_data(self) -> BundleData:
        """All sources of data, checked against the annotations in them; none when what is wrong hides them.

        What is wrong for want of the parent's data is not noted.
        """
        nothing = DataSource(Origin.MANIFEST, self.name, {})
        try:
            data = self._find_data(nothing)
            failures = data.failures()
        except HieraError as error:
            data, failures = BundleData(nothing, None, ()), [str(error)]
        if failures and self.has_data:
            self.has_data = False
            self.family.refused += failures
        return data

    def _find_data(self, nothing: DataSource) -> BundleData:
        if self.parent is not None:
            above = self.parent.home.data.of_child(nothing, self.handed)
        else:
            inputs, warn = self.inputs, self.family.warnings.append
            tree = open_tree(self.directory, inputs.facts, inputs.private_key, warn)
            above = BundleData(nothing, tree, inputs.sources)
        return above.over(self._own_data(above))

    def _own_data(self, above: BundleData) -> DataSource:
        values = {key: self.value[key] for key in _DATA_KEYS if key in self.value}
        document = Document.from_value(values, self.name, self.problems.locate, self.annotations)
        facts, environ = self.inputs.facts, self.inputs.environ
        unresolved: dict[object, str] = {}

        def is_replaced(path: KeyPath, error: HieraError) -> bool:
            unresolved[path[0]] = str(error)
            return above.is_replaced(path)

        resolved = document.resolve(facts, environ, is_replaced=is_replaced)
        explanation = resolved.explanation
        return DataSource(
            Origin.MANIFEST, self.name, resolved.data, document, explanation, unresolved=unresolved
        )

    def _scope(self) -> Scope:
        from puller.templates.functions import bundle_functions

        data = self.data

        def hiera(key: str, default: Any = MISSING, merge: Any = None) -> Any:
            from puller.data.hiera_function import look_up  # few manifests call it

            return look_up(data, key, default, merge)

        scope = Scope(self.inputs.facts, data.all, self.inputs.environ, {"hiera": hiera})
        return scope.with_names(bundle_functions(self.directory, scope))

    # Resources

    def _entries(self) -> Iterator[tuple[Entry, Problems]]:
        if "resources_template" in self.run:
            yield from self._rendered_entries()
        elif "resources" in self.run:
            for entry in read_entries(self.run["resources"], (*self.run_path, "resources"), self.problems):
                yield entry, self.problems

    def _rendered_entries(self) -> Iterator[tuple[Entry, Problems]]:
        from puller.templates.rendering import render_list

        path = self.run["resources_template"]
        if not isinstance(path, str):
            self.problems.add(
                (*self.run_path, "resources_template"), f"resources_template is {path!r}, wanted a path"
            )
            return
        if not self.has_data:
            return
        try:
            rendered = render_list(path, self.home.scope, self.directory, self._list_engine)
            name = f"{path} (rendered)"
            problems = Problems.of_text(name, rendered.text)
            if rendered.is_secret:
                problems.mask = self.list_mask = self._data_mask()
            self.family.texts.append(problems)
            value = yaml_text.load(rendered.text, name)
        except (HieraError, ResourceError) as error:
            said = self.list_mask(str(error)) if self.list_mask else str(error)
            self.problems.add((*self.run_path, "resources_template"), said)
            return
        for entry in read_entries(value, (), problems):
            yield entry, problems

    @property
    def _list_engine(self) -> str | None:
        """What renders ``resources_template``, where its own name does not say it."""
        return "jet" if _CCM_TEMPLATE in (self.value.get(_CCM) or ()) else None

    def _data_mask(self) -> "Mask":
        from puller.manifest.masking import Masks  # few lists of resources are made with secrets

        return Masks().of(self.data.all)

    def _declare(self, entry: Entry, problems: Problems) -> Declaration | None:
        from puller.resources.registry import find_type

        resource_type = find_type(entry.type_name)
        if resource_type is None:  # read_entries has reported it
            return None
        draft = Draft(entry, resource_type, problems)
        if not draft.accept():
            return None
        scope = self.home.scope
        if self.inputs.watch is not None:
            scope = self.inputs.watch(problems.source, entry.path, scope, self.directory)
        draft.resolve(scope)
        if self.list_mask is not None:
            draft.mark_secrets(self.list_mask)
        return draft.declaration(self.home)

    def _merge_duplicates(self, declarations: list[Declaration]) -> list[Declaration]:
        """One declaration for each name; two of one name merge where their type can, and are a problem where not."""
        seen: dict[Reference, int] = {}
        kept: list[Declaration] = []
        for declaration in declarations:
            reference = declaration.reference
            first = seen.setdefault(reference, len(kept))
            if first == len(kept):
                kept.append(declaration)
            elif (merged := self._merged(kept[first], declaration)) is not None:
                kept[first] = merged
        return kept

    def _merged(self, first: Declaration, second: Declaration) -> Declaration | None:
        if first.home is not second.home:  # their relative paths, data and conditions are not the same
            second.refuse("name", f"is declared twice, first at {first.where}, in another manifest")
            return None
        try:
            properties = first.type.merge(first.properties, second.properties)
            sentence = f"is declared twice, first at {first.where}"
        except PropertyError as error:
            what = error.sentence(secret=error.property in first.hidden | second.hidden)
            properties = None
            sentence = f"is declared twice, first at {first.where}, and the two do not agree: {what}"
        if properties is None:
            second.problems.add(second.path, sentence, f"{label(second.path)} {second.reference}")
            return None
        first.properties = properties
        first.failure = first.failure or second.failure
        first.unknown |= second.unknown
        first.dynamic |= second.dynamic
        first.secret |= second.secret
        return first

    def _read_child(
        self, path: Path, name: str, data: Mapping[str, Any] | None, parent: Declaration
    ) -> list[Declaration]:
        child = _Loader.of_file(path, name, self.inputs, self.family, parent)
        child.has_data = self.has_data and "data" not in parent.unknown
        if data is not None:
            where = parent.problems.where((*parent.path, "data"))
            child.handed = DataSource(Origin.PARENT, where, data, joins_lists=True)
        return child.read()
