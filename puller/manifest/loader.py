"""Reading a manifest: text, data, declared resources, references, order; all problems at once.

* Nothing here touches the machine: facts and outer data are handed in, only files below the manifest are read.
* A value is resolved once. What an expression cannot give on this machine is the failure of the one resource that uses
  it, reported when it is reached; everything else that is wrong refuses the manifest.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.files import read_limited
from hiera import yamltext
from hiera.document import Document, Resolved, annotations_of
from hiera.errors import HieraError
from hiera.expressions import Scope, evaluate, has_expression, resolve, resolve_tree
from hiera.merge import merge_sources
from hiera.secrets import has_secret, hidden_at, revealed
from puller.errors import ManifestError, ResourceError, SourceError
from puller.manifest.entries import Entry, read_entries
from puller.manifest.order import CycleError, ordered
from puller.manifest.problems import Path as KeyPath
from puller.manifest.problems import Problems, did_you_mean, unknown_key
from puller.manifest.properties import decode, decode_common, find_problems
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.resources.reference import Reference
from puller.system import reason

if TYPE_CHECKING:
    from hiera.annotations import Annotations

_DATA_KEYS = ("data", "hierarchy", "overrides")
_RUN_KEYS = ("resources", "resources_template", "fail_on_error", "pre_message", "post_message")
_CCM = "ccm"  # the reference's section for the same keys
_CCM_TEMPLATE = "resources_jet_file"  # and its name for resources_template
_SIZE_LIMIT = 64 * 1024 * 1024  # bytes


class Declaration(msgspec.Struct):
    """One resource of a manifest, with typed properties."""

    type: ResourceType
    properties: Properties
    problems: Problems
    """Of the text that it stands in; knows names and lines."""
    path: KeyPath
    failure: str = ""
    """Why it cannot be applied on this machine, found while its values were resolved."""
    dynamic: frozenset[str] = frozenset()
    """Properties that were given by expressions."""

    @property
    def reference(self) -> Reference:
        """``type#name``."""
        return Reference.to(self.type.type_name, self.properties.name)

    def names(self) -> Iterator[Reference]:
        """All references that mean this resource."""
        yield self.reference
        if self.properties.alias:
            yield Reference.to(self.type.type_name, self.properties.alias)

    @property
    def where(self) -> str:
        """``file:line``."""
        return self.problems.where(self.path)

    def add_problem(self, error: PropertyError) -> None:
        """A property is not valid: the manifest's problem, or this resource's failure when an expression gave it."""
        if error.property in self.dynamic:
            self.failure = self.failure or str(error)
        else:
            path = (*self.path, error.property)
            self.problems.add(path, str(error), f"{_label(self.path)} {self.reference}")


class Manifest(msgspec.Struct):
    """A manifest that is understood: what is declared, and in which order it is applied."""

    name: str
    """For messages: ``web/manifest.yaml``."""
    directory: Path
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    resolved: Resolved
    """The manifest's own data, with where each value came from."""
    declarations: list[Declaration]
    order: list[int]
    fail_on_error: bool = False
    pre_message: str = ""
    post_message: str = ""
    warnings: list[str] = []
    """What is suspicious, and not wrong."""
    links: "Links" = msgspec.field(default_factory=lambda: Links())

    def evaluate(self, condition: str) -> Any:
        """The value of a bare expression; raises ``HieraError``."""
        return evaluate(condition, self.scope)

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

    def subscribers(self) -> set[Reference]:
        """Every resource that subscribes to another."""
        return {reference for references in self.links.subscribers.values() for reference in references}


class Links(msgspec.Struct):
    """References as indexes; only resources that have any are in here."""

    requirements: dict[int, list[tuple[Reference, int]]] = {}
    subscriptions: dict[int, list[int]] = {}
    subscribers: dict[int, list[Reference]] = {}
    first: dict[int, list[int]] = {}
    """All that comes before a resource, whatever the reason."""


class Inputs(msgspec.Struct, frozen=True):
    """What a manifest is resolved with."""

    facts: Mapping[str, Any]
    environ: Mapping[str, str]
    sources: tuple[Mapping[str, Any], ...] = ()
    """Data from outside of the manifest, lowest precedence first; merged over its own."""
    annotations: "tuple[Annotations, ...]" = ()
    """What those documents say about values."""


def load_manifest(path: Path, name: str, inputs: Inputs) -> Manifest:
    """Read the manifest at ``path``; ``name`` is what messages call it.

    Raises ``SourceError`` when it cannot be read, ``ManifestError`` with all problems when it is not valid.
    """
    text = _read(path, name)
    try:
        value = yamltext.load(text, name)
    except HieraError as error:
        raise ManifestError([str(error)]) from error
    problems = Problems.of_text(name, text)
    if not isinstance(value, dict):
        problems.add((), "is not a mapping; wanted keys such as data and resources")
        problems.raise_any()
    return _Loader(path.parent, name, value, problems, inputs, annotations_of(text, name)).load()


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

    def __init__(
        self,
        directory: Path,
        name: str,
        value: dict[str, Any],
        problems: Problems,
        inputs: Inputs,
        annotations: "Annotations | None",
    ) -> None:
        self.annotations = annotations
        self.directory = directory
        self.name = name
        self.problems = problems
        self.inputs = inputs
        self.value = value
        self.rendered: Problems | None = None
        """Of the text that ``resources_template`` gave."""
        self.run, self.run_path = self._run_section(value)

    def load(self) -> Manifest:
        self._check_keys()
        resolved = self._resolve_data()
        scope = self._scope(resolved)
        declarations = self._merge_duplicates(
            [d for e in self._entries(scope) if (d := self._declare(*e, scope))]
        )
        for declaration in declarations:
            self._check(declaration)
        links = self._link(declarations)
        order = self._order(declarations, links)
        messages = [self._message(key, scope) for key in ("pre_message", "post_message")]
        self._raise_any(declarations)
        return Manifest(
            self.name,
            self.directory,
            scope,
            resolved,
            declarations,
            order,
            fail_on_error=self.run.get("fail_on_error", False),
            pre_message=messages[0],
            post_message=messages[1],
            warnings=[warning for annotations in self._all_annotations() for warning in annotations.warnings],
            links=links,
        )

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
        if "resources" in self.run and "resources_template" in self.run:
            self.problems.add(
                (*self.run_path, "resources"), "resources cannot be given together with resources_template"
            )
        if "resources" not in self.run and "resources_template" not in self.run:
            self.problems.add((), "declares no resources; wanted resources or resources_template")

    def _message(self, key: str, scope: Scope) -> str:
        text = self.run.get(key, "")
        if not isinstance(text, str):
            self.problems.add((*self.run_path, key), f"{key} is {text!r}, wanted text")
            return ""
        try:
            return str(resolve(text, scope))
        except HieraError as error:
            self.problems.add((*self.run_path, key), f"{key}: {error}")
            return ""

    # Data

    def _resolve_data(self) -> Resolved:
        document = {key: self.value[key] for key in _DATA_KEYS if key in self.value}
        try:
            parsed = Document.from_value(document, self.name, self.problems.locate, self.annotations)
            return parsed.resolve(facts=self.inputs.facts, environ=self.inputs.environ)
        except HieraError as error:
            self.problems.raise_any()
            raise ManifestError([str(error)]) from error

    def _scope(self, resolved: Resolved) -> Scope:
        from puller.templates.functions import bundle_functions

        data: Mapping[str, Any] = resolved.data
        for source in self.inputs.sources:
            data = merge_sources(data, source)
        data = self._annotated(data)
        scope = Scope(facts=self.inputs.facts, data=data, environ=self.inputs.environ)
        return scope.with_names(bundle_functions(self.directory, scope))

    def _annotated(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The finished data: checked against its annotations, and with what is sensitive made secret."""
        failures = [
            failure for annotations in self._all_annotations() for failure in annotations.failures(data)
        ]
        if failures:
            raise ManifestError([*self.problems.sentences(), *failures])
        for path in (path for annotations in self._all_annotations() for path in annotations.sensitive):
            data = hidden_at(data, path)
        return data

    def _all_annotations(self) -> "tuple[Annotations, ...]":
        own = () if self.annotations is None else (self.annotations,)
        return (*own, *self.inputs.annotations)

    # Resources

    def _entries(self, scope: Scope) -> Iterator[tuple[Entry, Problems]]:
        if "resources_template" in self.run:
            yield from self._rendered_entries(scope)
        elif "resources" in self.run:
            for entry in read_entries(self.run["resources"], (*self.run_path, "resources"), self.problems):
                yield entry, self.problems

    def _rendered_entries(self, scope: Scope) -> Iterator[tuple[Entry, Problems]]:
        from puller.templates.rendering import render_list

        path = self.run["resources_template"]
        if not isinstance(path, str):
            self.problems.add(
                (*self.run_path, "resources_template"), f"resources_template is {path!r}, wanted a path"
            )
            return
        try:
            text = render_list(path, scope, self.directory)
            name = f"{path} (rendered)"
            problems = self.rendered = Problems.of_text(name, text)
            value = yamltext.load(text, name)
        except (HieraError, ResourceError) as error:
            self.problems.add((*self.run_path, "resources_template"), str(error))
            return
        for entry in read_entries(value, (), problems):
            yield entry, problems

    def _declare(self, entry: Entry, problems: Problems, scope: Scope) -> Declaration | None:
        from puller.resources.registry import find_type

        resource_type = find_type(entry.type_name)
        if resource_type is None:  # read_entries has reported it
            return None
        try:
            raw = resource_type.accept(entry.properties)
        except PropertyError as error:
            problems.add((*entry.path, error.property), str(error), _subject(entry))
            return None
        dynamic, failure = _resolve(raw, resource_type, scope)
        if failure and "name" in dynamic:
            problems.add(entry.path, failure, _subject(entry))
            return None
        try:
            properties = decode(resource_type, raw)
        except msgspec.ValidationError:
            return self._explain(entry, raw, resource_type, problems, dynamic, failure)
        return Declaration(resource_type, properties, problems, entry.path, failure, dynamic)

    def _explain(
        self,
        entry: Entry,
        raw: dict[str, Any],
        resource_type: ResourceType,
        problems: Problems,
        dynamic: frozenset[str],
        failure: str,
    ) -> Declaration | None:
        """Something does not decode: what was written is reported, what an expression gave is a failure."""
        written = []
        for error in find_problems(resource_type, raw):
            if error.property in dynamic:
                failure = failure or str(error)
            else:
                written.append(error)
        for error in written:
            self._add_written(entry, error, problems)
        if written or ("name" in dynamic and not isinstance(raw["name"], str)):
            if not written:
                problems.add(entry.path, failure, _subject(entry))
            return None
        return Declaration(resource_type, decode_common(raw), problems, entry.path, failure, dynamic)

    def _add_written(self, entry: Entry, error: PropertyError, problems: Problems) -> None:
        path = (*entry.path, error.property)
        sentence = str(error)
        if sentence.endswith("quote it") and (written := problems.original(path)) is not None:
            sentence += f", as '{written}'"
        problems.add(path, sentence, _subject(entry))

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
        try:
            properties = first.type.merge(first.properties, second.properties)
            sentence = f"is declared twice, first at {first.where}"
        except PropertyError as error:
            properties, sentence = (
                None,
                f"is declared twice, first at {first.where}, and the two do not agree: {error}",
            )
        if properties is None:
            second.problems.add(second.path, sentence, f"{_label(second.path)} {second.reference}")
            return None
        first.properties = properties
        first.failure = first.failure or second.failure
        first.dynamic |= second.dynamic
        return first

    def _check(self, declaration: Declaration) -> None:
        """Properties against each other."""
        if declaration.failure:
            return
        try:
            declaration.type.check(declaration.properties)
        except PropertyError as error:
            declaration.add_problem(error)

    # References

    def _link(self, declarations: list[Declaration]) -> Links:
        index = self._index(declarations)
        links = Links()
        for position, declaration in enumerate(declarations):
            properties = declaration.properties
            subscriptions = declaration.type.subscriptions(properties)
            if not (properties.require or properties.after or subscriptions):
                continue
            required = self._find_all(declaration, "require", properties.require, index)
            after = self._find_all(declaration, "after", properties.after, index)
            subscribed = self._find_all(declaration, "subscribe", subscriptions, index)
            links.requirements[position] = required
            links.subscriptions[position] = [other for _, other in subscribed]
            links.first[position] = [other for _, other in (*required, *after, *subscribed)]
            for _, other in subscribed:
                links.subscribers.setdefault(other, []).append(declaration.reference)
        return links

    def _index(self, declarations: list[Declaration]) -> dict[Reference, int]:
        index: dict[Reference, int] = {}
        for position, declaration in enumerate(declarations):
            for name in declaration.names():
                if (other := index.setdefault(name, position)) != position:
                    sentence = f"{name} is also a name of the resource at {declarations[other].where}"
                    declaration.problems.add(declaration.path, sentence, _label(declaration.path))
        return index

    def _find_all(
        self,
        declaration: Declaration,
        name: str,
        references: Iterable[Reference],
        index: Mapping[Reference, int],
    ) -> list[tuple[Reference, int]]:
        found = []
        for reference in references:
            if (other := index.get(reference)) is None:
                sentence = f"{name} names {reference}, which is not declared{did_you_mean(reference, index)}"
                declaration.problems.add(
                    (*declaration.path, name), sentence, f"{_label(declaration.path)} {declaration.reference}"
                )
            else:
                found.append((reference, other))
        return found

    def _order(self, declarations: list[Declaration], links: Links) -> list[int]:
        try:
            return ordered(len(declarations), lambda index: links.first.get(index, ()))
        except CycleError as cycle:
            chain = [declarations[index] for index in cycle.indexes]
            sentence = "resources wait for each other: " + " → ".join(str(d.reference) for d in chain)
            chain[0].problems.add(chain[0].path, sentence, _label(chain[0].path))
            return list(range(len(declarations)))

    def _raise_any(self, declarations: list[Declaration]) -> None:
        """All problems of the manifest, and of the text that its template rendered."""
        texts = {id(self.problems): self.problems}
        texts.update((id(d.problems), d.problems) for d in declarations)
        if self.rendered is not None:
            texts[id(self.rendered)] = self.rendered
        sentences = [sentence for problems in texts.values() for sentence in problems.sentences()]
        if sentences:
            raise ManifestError(sentences)


def _resolve(raw: dict[str, Any], resource_type: ResourceType, scope: Scope) -> tuple[frozenset[str], str]:
    """Replace, in ``raw``, what holds expressions; gives the properties that did, and why one could not be resolved."""
    dynamic = []
    failure = ""
    tainted = False
    for key, value in list(raw.items()):
        if isinstance(value, str):
            if not has_expression(value):
                continue
        elif not isinstance(value, list | dict):
            continue
        if key in resource_type.expressions_kept or (key == "content" and raw.get("interpolate") is True):
            continue
        try:
            new = resolve_tree(value, scope)
        except HieraError as error:
            failure = failure or f"{key}: {error}"
            dynamic.append(key)
            continue
        if new is not value:
            dynamic.append(key)
            if has_secret(new):
                new = revealed(new)
                tainted = True
            raw[key] = new
    if tainted:  # a secret was put into it, so nothing of it may be shown
        raw["sensitive"] = True
    return (frozenset(dynamic) if dynamic else _NOTHING), failure


_NOTHING: frozenset[str] = frozenset()


def _subject(entry: Entry) -> str:
    return f"{_label(entry.path)} {entry.type_name}#{entry.properties.get('name')}"


def _label(path: KeyPath) -> str:
    """``resources[3]``: the entry that a path leads through."""
    return f"resources[{next((part for part in path if isinstance(part, int)), 0)}]"
